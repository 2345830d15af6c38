#!/usr/bin/env bash
# Makes the streams that the tests read from the recordings:
#   recordings/*.ndjson --tools/convert.py--> lifecycle/*.ndjson   what an emitter plugin would have sent
#   recordings/*.ndjson --tools/native.py---> native/*.ndjson      the runtime's own events, alone
# Deterministic: running it again changes nothing (`git diff --exit-code tests/corpus`).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
for runtime in adk-python; do
    # The converter derives ids from the path below the corpus.
    mkdir -p "$scratch/$runtime"
    cp "$runtime"/recordings/*.ndjson "$scratch/$runtime/"
    python3 tools/convert.py "$scratch/$runtime"/*.ndjson --out "$runtime/lifecycle"
    python3 tools/native.py "$runtime"/recordings/*.ndjson --out "$runtime/native"
done
