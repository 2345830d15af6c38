#!/usr/bin/env bash
# Makes the streams that the tests read from the recordings:
#   recordings/*.ndjson --tools/convert.py--> lifecycle/*.ndjson   what an emitter plugin would have sent
#   recordings/*.ndjson --tools/native.py---> native/*.ndjson      the runtime's own events, alone
# adk-go and adk-ts wrote their native events apart, as the runtime spells them: there native/ is as recorded.
# Deterministic: running it again changes nothing (`git diff --exit-code tests/corpus`).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Folder here, and the path below the corpus from which the converter derives ids and the runtime's version.
while read -r folder path; do
    mkdir -p "$scratch/$path"
    cp "$folder"/recordings/*.ndjson "$scratch/$path/"
    python3 tools/convert.py "$scratch/$path"/*.ndjson --out "$folder/lifecycle"
    case $folder in
    adk-go* | adk-ts*)
        # A run that leaves no event is an empty stream.
        for recording in "$folder"/recordings/*.ndjson; do
            touch "$folder/native/${recording##*/}"
        done
        ;;
    *) python3 tools/native.py "$folder"/recordings/*.ndjson --out "$folder/native" ;;
    esac
done <<'SETS'
adk-go              adk-go
adk-go-1.4.0        adk-go/older/1.4.0
adk-java            adk-java
adk-python          adk-python
adk-python-1.34.0   adk-python/older/1.34.0
adk-python-2.8.0    adk-python/older/2.8.0
adk-ts              adk-ts
adk-ts-progressive  adk-ts/progressive
SETS
