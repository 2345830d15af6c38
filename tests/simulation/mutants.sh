#!/bin/sh
# Breaks the core on purpose, one patch at a time, in a copy of the tree, and expects the simulation to notice.
# A simulator that catches nothing is decoration.
#
#   tests/simulation/mutants.sh [NAME…]     all mutations, or those named
#   SIM_SEEDS=n                             seeds a mix (default: the simulation's own)
set -u
cd "$(dirname "$0")/../.." || exit 1
patches=tests/simulation/mutations
target=${CARGO_TARGET_DIR:-target}
mkdir -p "$target/mutants" || exit 1
# The copy shares the target folder, and with it the built dependencies; its version keeps the two packages apart.
target=$(cd "$target" && pwd)
copy=$target/mutants
export CARGO_TARGET_DIR="$target" CARGO_PROFILE_DEV_DEBUG=false RUST_BACKTRACE=0 SIM_STOP=1

# Puts the tree back as it is; only files that differ are touched, so that cargo builds only those.
restore() {
    for part in src tests/simulation tests/support; do
        mkdir -p "$copy/tree/$part"
        (cd "$part" && find . -type f) | while read -r file; do
            cmp -s "$part/$file" "$copy/tree/$part/$file" && continue
            mkdir -p "$(dirname "$copy/tree/$part/$file")"
            cp "$part/$file" "$copy/tree/$part/$file"
        done
    done
    cp Cargo.lock "$copy/tree/"
    # Of the targets only those that are needed: the others' files are not copied.
    awk '/^\[/ { keep = !/^\[\[/ || /^\[\[bin/ } keep' Cargo.toml \
        | sed '1,/^version/ s/^version = .*/version = "0.0.0-mutant"/' > "$copy/tree/Cargo.toml"
    printf '\n[[test]]\nname = "simulation"\npath = "tests/simulation/main.rs"\n' \
        >> "$copy/tree/Cargo.toml"
}

simulate() {
    (cd "$copy/tree" && cargo test --no-default-features --test simulation) > "$copy/log" 2>&1
}

restore
if ! simulate; then
    grep -B 6 '^SIM_SEED=' "$copy/log" || tail -20 "$copy/log"
    echo "the simulation fails without any mutation"
    exit 1
fi
echo "ok          no mutation"
failed=0
for patch in "$patches"/*.patch; do
    name=$(basename "$patch" .patch)
    if [ $# -gt 0 ]; then
        case " $* " in *" $name "*) ;; *) continue ;; esac
    fi
    restore
    if ! patch -s -p1 -d "$copy/tree" < "$patch" > "$copy/log" 2>&1; then
        echo "NO PATCH    $name"
        cat "$copy/log"
        find "$copy/tree" \( -name '*.orig' -o -name '*.rej' \) -exec rm {} +
        failed=1
        continue
    fi
    find "$copy/tree" -name '*.orig' -exec rm {} +
    # A rare one names a seed that shows it.
    seed=$(grep -m 1 -o '^SIM_SEED=[0-9]* SIM_MIX=[a-z_]*' "$patch")
    if [ -n "$seed" ] && (export ${seed?}; ! simulate); then
        :
    elif simulate; then
        echo "NOT CAUGHT  $name"
        failed=1
        continue
    fi
    if grep -q '^SIM_SEED=' "$copy/log"; then
        echo "caught      $name: $(grep -m 1 -o '^SIM_SEED=[0-9]* SIM_MIX=[a-z_]*' "$copy/log")"
    else
        echo "NO BUILD    $name"
        grep -m 5 '^error' "$copy/log"
        failed=1
    fi
done
restore
exit $failed
