"""Runs the blocks of Markdown pages, in order and in one namespace a page, as its reader does.

Owns: the Python blocks of a page, its `sh` blocks, `text` blocks that a Python block prints, and
that a traceback names the page and its line. Does not own: what the blocks need
(`scripts/check_wheel.py` installs it, `tests/test_pages.py` creates it).

    python scripts/code_blocks.py README.md --skip PySpark

It imports the standard library alone, because it also runs beside nothing but a wheel.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

FENCE = "```"
PYTHON, SHELL, TEXT = FENCE + "python", FENCE + "sh", FENCE + "text"
# Pages write tables to this folder; each run has a folder of its own in its place.
FOLDER_OF_PAGES = '"/tmp/'


@dataclass(frozen=True)
class Block:
    """A fenced block, the line of its first statement, and the heading above it.

    `is_shell` is whether it holds commands. `printed` is the text block right below it, which shows
    the end of what it prints.
    """

    heading: str
    line: int
    code: str
    is_shell: bool = False
    printed: str | None = None


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of Python and of commands of a page, in order."""
    found: list[Block] = []
    heading, fence, start, last = "", "", 0, 0
    lines = page.read_text().splitlines()
    for number, line in enumerate(lines, 1):
        if fence and line == FENCE:
            code = "\n".join(lines[start - 1 : number - 1])
            if fence in {PYTHON, SHELL}:
                found.append(Block(heading, start, code, is_shell=fence == SHELL))
                last = number
            elif fence == TEXT and found and not any(lines[last : start - 2]):
                found[-1] = replace(found[-1], printed=code)
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
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            if block.is_shell:
                run_commands(code)
            else:
                # Empty lines in front, so that a traceback shows the lines of the page.
                program = compile("\n" * (block.line - 1) + code, str(page), "exec")
                exec(program, names)  # noqa: S102 - the page of this tree
        print(printed.getvalue(), end="")
        if block.printed is not None and not printed.getvalue().rstrip().endswith(block.printed):
            sys.exit(f"{page}:{block.line}: the block does not print\n{block.printed}")
        print(f"{page.name}:{block.line}: the block ran", file=sys.stderr)


def run_commands(commands: str) -> None:
    """Run commands with the Python of this process first on the PATH."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    subprocess.run(  # noqa: S603 - the page of this tree
        ["/bin/bash", "-euc", commands], check=True, env={**os.environ, "PATH": path}, timeout=60
    )


def main() -> None:
    """Run the blocks of pages, each page in a temporary folder of its own."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("pages", type=Path, nargs="+", metavar="page")
    parser.add_argument(
        "--only", metavar="HEADING", action="append", help="the blocks below these headings"
    )
    parser.add_argument("--skip", metavar="HEADING", help="no block below this heading")
    parser.add_argument("--before", default="", metavar="CODE", help="statements that run first")
    options = parser.parse_args()
    # As in a session of a reader, which imports modules from its own folder.
    sys.path.insert(0, "")
    for page in [page.resolve() for page in options.pages]:
        chosen = [
            block
            for block in blocks(page)
            if (options.only is None or block.heading in options.only)
            and block.heading != options.skip
        ]
        if not chosen:
            sys.exit(f"{page} has no such block")
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            run(page, chosen, folder, options.before)
            os.chdir(page.parent)


if __name__ == "__main__":
    main()
