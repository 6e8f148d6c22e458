"""Writes the part of docs/cli.md that lists the commands, from the commands themselves.

Owns: the list of commands, arguments, options and JSON keys. Does not own: the rest of the page,
which stands before and behind the two marks; a test compares the page with this script's answer.

    python scripts/cli_page.py          # writes docs/cli.md
    python scripts/cli_page.py --check  # exit code 1 where the page is stale
"""

from __future__ import annotations

import importlib
import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from lancemem.cli import app, keys

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = Path(__file__).parents[1] / "docs" / "cli.md"
BEGIN, END = "<!-- commands: begin -->", "<!-- commands: end -->"


def commands() -> dict[str, Any]:
    """Return every command that has options of its own, by name, in the order of the help."""
    for name in app._MODULES:  # noqa: SLF001 - the list of what the program loads
        importlib.import_module(f"lancemem.cli.{name}")
    group: Any = typer.main.get_command(app.app)
    return {
        name: group.commands[name]
        for name in group.list_commands(None)
        if group.commands[name].rich_help_panel != app.PARTS
    }


def listed() -> str:
    """Return the list of the commands as Markdown."""
    return "\n".join(
        line for name, command in commands().items() for line in section(name, command)
    )


def section(name: str, command: Any) -> Iterator[str]:  # noqa: ANN401 - a class of Typer's parser
    """Return the lines about one command."""
    arguments = [it for it in command.params if it.param_type_name == "argument"]
    options = [it for it in command.params if it.param_type_name == "option"]
    usage = " ".join(["lancemem", name, *(it.metavar for it in arguments)])
    yield from (
        f"### `{usage}`",
        "",
        command.help.strip(),
        "",
        "| option | meaning |",
        "| --- | --- |",
    )
    for option in options:
        if "--help" not in option.opts:
            yield f"| {names(option)} | {option.help}{default(option)} |"
    yield ""
    if name in keys.ROWS:
        yield "JSON: a line for each row, whose keys are the columns."
    for called, found in keys.KEYS.items():
        if called == name or called.startswith(f"{name} "):
            yield f"JSON keys{called.removeprefix(name)}: {', '.join(f'`{key}`' for key in found)}."
    yield ""


def names(option: Any) -> str:  # noqa: ANN401
    """Return how an option is written."""
    written = ", ".join(f"`{it}`" for it in [*option.opts, *option.secondary_opts])
    return written if option.is_flag else f"{written} `{option.metavar}`"


def default(option: Any) -> str:  # noqa: ANN401
    """Return the words for a default that the help does not name."""
    value = option.default
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if value is None or isinstance(value, bool) or "Default" in option.help:
        return ""
    return f" Default: {value:g}." if isinstance(value, float | int) else f" Default: {value}."


def page(text: str) -> str:
    """Return a page with the list of today between its marks."""
    before, _, rest = text.partition(BEGIN)
    _, _, behind = rest.partition(END)
    return f"{before}{BEGIN}\n\n{listed()}{END}{behind}"


def main() -> int:
    """Write the page, or compare it."""
    text = PAGE.read_text()
    if "--check" in sys.argv[1:]:
        return int(page(text) != text)
    PAGE.write_text(page(text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
