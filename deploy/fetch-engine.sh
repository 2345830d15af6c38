#!/usr/bin/env bash
# Fetches the embedded ClickHouse engine (libchdb.so, Apache-2.0, x86_64 Linux with glibc) for the demo and the tests.
#
#   fetch-engine.sh            install it into the cache folder, if it is not there yet
#   fetch-engine.sh --path     print where the library belongs, fetch nothing
#
# Environment: XDG_CACHE_HOME (default ~/.cache). The version and the checksum are pinned: a package that
# differs from them is refused and never installed.
set -euo pipefail

package="@chdb/lib-linux-x64-gnu"
release="26.7.3-stable.1"
sha256="36ad4e999882821ef13cf2d0f52c93f48e6ee1b4498b35a201c23ce4b8d15bf5"

die() { echo "fetch-engine.sh: $*" >&2; exit 1; }
need() { command -v "$1" >/dev/null || die "$1 is missing; install it with: apt-get install -y $2"; }

folder="${XDG_CACHE_HOME:-${HOME:?fetch-engine.sh: neither XDG_CACHE_HOME nor HOME is set}/.cache}/tachograph/chdb/26.7.3"
library="$folder/libchdb.so"
verified="$folder/.ok"

case "${1:-}" in
--path) echo "$library"; exit 0 ;;
"") ;;
*) sed -n '2,/^set /s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 64 ;;
esac

if [[ -f $library && $(cat "$verified" 2>/dev/null) == "$sha256" ]]; then
    echo "    engine $release is there: $library"
    exit 0
fi
[[ "$(uname -s) $(uname -m)" == "Linux x86_64" ]] ||
    die "there is no engine for $(uname -s) $(uname -m): set the URL of a ClickHouse server instead"
need npm npm
need tar tar
need sha256sum coreutils

mkdir -p "$folder"
# Beside the target, so that the last step is a rename on one file system: no half library is ever seen.
find "$folder" -maxdepth 1 -name '.fetch.*' -mmin +60 -exec rm -rf {} + # left by a kill -9
scratch=$(mktemp -d "$folder/.fetch.XXXXXX")
trap 'rm -rf "$scratch"' EXIT

if [[ ! -f $library ]] || ! echo "$sha256  $library" | sha256sum --check --status; then
    echo "    fetching $package@$release (178 MB)"
    (cd "$scratch" && npm pack --silent "$package@$release" >/dev/null) ||
        die "npm could not fetch $package@$release (is the npm registry reachable?)"
    echo "    unpacking (566 MB)"
    tar -xzf "$scratch"/*.tgz -C "$scratch" --strip-components=1 package/libchdb.so ||
        die "the package holds no libchdb.so, or the disk is full: $folder"
    echo "    checking sha256"
    echo "$sha256  $scratch/libchdb.so" | sha256sum --check --status ||
        die "checksum of libchdb.so differs from the pinned one; nothing was installed"
    mv -f "$scratch/libchdb.so" "$library"
fi
echo "$sha256" >"$verified"
echo "    engine $release installed: $library"
