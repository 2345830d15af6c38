#!/usr/bin/env python3
"""Draws what a terminal shows as a picture.

Reads text with ANSI colours from standard input, writes an SVG to the file named:

    tachograph replay --output timeline --color always --width 100 run.ndjson | terminal.py "tachograph replay run.ndjson" out.svg
"""
import io
import re
import sys

from rich.console import Console
from rich.text import Text


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    title, file = sys.argv[1:]
    text = Text.from_ansi(sys.stdin.read().rstrip("\n"))
    width = max(line.cell_len for line in text.split("\n"))
    console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(text, soft_wrap=True)
    svg = console.export_svg(title=title, unique_id="terminal")
    # A picture in a repository asks no server for its letters.
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    svg = svg.replace("Fira Code", "DejaVu Sans Mono, monospace")
    with open(file, "w", encoding="utf-8") as out:
        out.write(svg)


if __name__ == "__main__":
    main()
