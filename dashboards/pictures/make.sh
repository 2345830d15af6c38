#!/usr/bin/env bash
# Makes the pictures of the README from the recorded runs: `make pictures`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
target=${CARGO_TARGET_DIR:-target}
program=$(realpath "$target")/debug/tachograph
python=$(realpath "$target")/pictures/bin/python
if [[ ! -x $python ]]; then
    python3 -m venv "$target/pictures"
    "$target/pictures/bin/pip" install --quiet 'rich==14.*'
fi

picture() { "$python" dashboards/pictures/terminal.py "$1" "dashboards/pictures/$2.svg"; }

cd tests/corpus/adk-python/lifecycle
runs=(11_parallel_branches.ndjson 16c_tool_confirmation.ndjson)
drawn=$("$program" replay --output timeline --color always --width 100 "${runs[@]}")
cd - >/dev/null
picture "tachograph replay ${runs[*]}" timeline <<<"$drawn"

# Another folder than the demo of whoever works here; the picture names no folder of this machine.
"$program" demo --once --dir "$target/pictures/demo" | sed "s|$PWD/||g; s|target/pictures/demo|target/demo|g" |
    picture "make demo ARGS=--once" demo
