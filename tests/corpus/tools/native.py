#!/usr/bin/env python3
"""The native events of recordings, alone: what a topic holds when only the runtime's own events are sent.

    native.py RECORDING... --out DIR    one NDJSON file of events for each recording

An event is taken as the recorder's on_event hook saw it, in the order of the recording; where no hook sees events (live
runs of ADK Java), as the caller received it. Standard library only.
"""
import argparse
import collections
import json
import pathlib
import sys


def events(path):
    by_source = collections.defaultdict(list)
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                row = json.loads(line)
            except ValueError as error:
                raise SystemExit(f"{path}:{number}: {error}")
            if "event" in row:
                by_source[row["src"] + row.get("plugin", "")].append(row["event"])
    return by_source["pluginrecorder"] or by_source["consumer"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("recording", nargs="+")
    parser.add_argument("--out", metavar="DIR", required=True)
    arguments = parser.parse_args()
    out = pathlib.Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    for path in arguments.recording:
        text = "".join(json.dumps(e, separators=(",", ":"), ensure_ascii=False) + "\n" for e in events(path))
        (out / pathlib.Path(path).name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
