"""Runs the Python blocks of a Markdown page, in order and in one namespace, as its reader does.

Owns: the blocks of a page, and that a traceback names the page and its line. Does not own: what the
blocks need (`scripts/check_wheel.py` installs it, `tests/test_pages.py` creates it).

    python scripts/code_blocks.py README.md --skip PySpark

It imports the standard library alone, because it also runs beside nothing but a wheel.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

FENCE = "```"
PYTHON = FENCE + "python"
# Pages write tables to this folder; each run has a folder of its own in its place.
FOLDER_OF_PAGES = '"/tmp/'


@dataclass(frozen=True)
class Block:
    """A fenced block of Python, the line of its first statement, and the heading above it."""

    heading: str
    line: int
    code: str


def blocks(page: Path) -> list[Block]:
    """Return the fenced Python blocks of a page, in order."""
    found = []
    heading, fence, start = "", "", 0
    lines = page.read_text().splitlines()
    for number, line in enumerate(lines, 1):
        if fence and line == FENCE:
            if fence == PYTHON:
                found.append(Block(heading, start, "\n".join(lines[start - 1 : number - 1])))
            fence = ""
        elif not fence and line.startswith(FENCE):
            fence, start = line, number + 1
        elif not fence and line.startswith("#"):
            heading = line.lstrip("#").strip()
    return found


def run(page: Path, chosen: list[Block], folder: str, before: str = "") -> None:
    """Run blocks of a page in one namespace, after the statements `before`."""
    names: dict[str, object] = {"__name__": "__main__"}
    exec(before, names)  # noqa: S102 - the caller's own statements
    for block in chosen:
        code = block.code.replace(FOLDER_OF_PAGES, f'"{folder}/')
        # Empty lines in front, so that a traceback shows the lines of the page.
        program = compile("\n" * (block.line - 1) + code, str(page), "exec")
        exec(program, names)  # noqa: S102 - the page of this tree
        print(f"{page.name}:{block.line}: the block ran", file=sys.stderr)


def main() -> None:
    """Run the blocks of one page in a temporary folder."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("page", type=Path)
    parser.add_argument("--only", metavar="HEADING", help="the blocks below this heading")
    parser.add_argument("--skip", metavar="HEADING", help="no block below this heading")
    parser.add_argument("--before", default="", metavar="CODE", help="statements that run first")
    options = parser.parse_args()
    page = options.page.resolve()
    chosen = [
        block
        for block in blocks(page)
        if options.only in (None, block.heading) and block.heading != options.skip
    ]
    if not chosen:
        sys.exit(f"{page} has no such Python block")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        run(page, chosen, folder, options.before)
        os.chdir(page.parent)


if __name__ == "__main__":
    main()
