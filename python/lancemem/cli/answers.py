"""What commands print: rows, objects and tables, as text or as JSON.

Owns: the forms. Does not own: which values a command prints.
"""

from __future__ import annotations

import base64
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

import lancemem
from lancemem.json_text import json_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = [
    "answer",
    "ask",
    "facts",
    "fields",
    "grid",
    "json_line",
    "say",
    "say_all",
    "way_out",
]

# Characters of a value in a table of rows.
_CHARACTERS = 60
_WIDE = 200
_WAYS_OF_KINDS: tuple[tuple[type[Exception], str], ...] = (
    (lancemem.TableNotFoundError, "check the URI; lancemem create makes a table"),
    (
        lancemem.TableExistsError,
        "--exist-ok opens the table that exists, lancemem drop removes it",
    ),
    (
        lancemem.ShardHeldError,
        "stop that job, or pass --take-over to lancemem flush to take its shard over",
    ),
    (
        lancemem.CorruptionError,
        "lancemem verify reports the damage; docs/repair.md names the repair",
    ),
    (lancemem.RetryableError, "run the command again"),
)
# Words that say more than the kind of their error.
_WAYS_OF_CAUSES = (
    (
        "the base table is damaged",
        "docs/repair.md names the repair; lancemem verify looks at logs, SSTables and record index",
    ),
    ("Failed to resolve region", "set AWS_REGION, or run the command again"),
    ("Permission denied", "let this user read and write the folder of the table"),
    ("Read-only file system", "let this user read and write the folder of the table"),
)
# For errors of one kind, the words that tell them apart.
_WAYS_OF_WORDS = (
    ("MemWAL index", "lancemem enable URI adds upserts to a Lance table"),
    (
        "is a file, and a table is a folder",
        "lancemem create URI --from FILE --key COLUMN makes a table of its rows",
    ),
    ("Not a directory", "the URI names a file: a table is a folder"),
    ("names no primary key", "--key COLUMN names a key column; repeat it for more"),
    ("deletion-vector mode of table", "lancemem deletion-vectors on URI switches it on"),
)


class _Console(Console):
    """A console that leaves a closed pipe to its caller; Rich exits with the code of damage."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def console() -> Console:
    """Return the console of standard output; a pipe is not cut at 80 columns."""
    here = _Console(highlight=False)
    return here if here.is_terminal else _Console(highlight=False, width=_WIDE)


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def say_all(lines: Iterable[str]) -> None:
    """Print lines, each at once."""
    for line in lines:
        say(line)


def json_line(value: object) -> None:
    """Print a value as one line of JSON. NaN and infinities, which JSON lacks, are text."""
    say(json_text(value))


def answer(value: object, *texts: str, as_json: bool) -> None:
    """Print the answer of a command: its fields as one line of JSON, or lines of text.

    Args:
        value: A result of lancemem, or a dict of what `--json` prints.
        texts: The lines without `--json`.
        as_json: Whether `--json` was given.
    """
    if as_json:
        json_line(value if isinstance(value, dict) else fields(value))
    else:
        say_all(texts)


def fields(value: object) -> dict[str, Any]:
    """Return the fields of a result under the names of its class."""
    names = [name for name in dir(type(value)) if not name.startswith("_")]
    return {name: _nested(getattr(value, name)) for name in names}


def _nested(value: object) -> object:
    if isinstance(value, list):
        return [_nested(each) for each in value]
    if type(value).__module__.startswith("lancemem"):
        return fields(value)
    return value


def grid(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "") -> None:
    """Print a table. Numbers stand to the right."""
    console().print(grid_of(columns, rows, title))


def grid_of(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "") -> Grid:
    """Return a table for a console."""
    listed = [list(row) for row in rows]
    made = Grid(title=title or None, title_justify="left", header_style="bold")
    for place, name in enumerate(columns):
        values = [row[place] for row in listed if row[place] is not None]
        is_number = bool(values) and all(isinstance(value, int | float) for value in values)
        if is_number:
            # A number that is folded into two lines reads as two numbers; its heading may be.
            width = max(map(len, [*map(shown, values), *name.split()]))
            made.add_column(name, justify="right", width=width)
        else:
            made.add_column(name, overflow="fold")
    for row in listed:
        made.add_row(*(Text(shown(value)) for value in row))
    return made


def facts(values: Mapping[str, object]) -> None:
    """Print names and values, one a line."""
    width = max(map(len, values), default=0)
    for name, value in values.items():
        say(f"{name.ljust(width)}  {shown(value, _WIDE)}")


def shown(value: object, characters: int = _CHARACTERS) -> str:
    """Return a value as a person reads it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.1f}" if abs(value) >= 1 else f"{value:.3g}"
    if isinstance(value, datetime):
        return value.isoformat(" ", "seconds")
    text = base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
    return text if len(text) <= characters else f"{text[: characters - 1]}…"


def ask(question: str, *, is_agreed: bool) -> None:
    """Ask before something is lost, unless `--yes` agreed.

    Args:
        question: What would be lost.
        is_agreed: Whether `--yes` was given.

    Raises:
        Exit: The answer is no, or no terminal can be asked. Nothing was done.
    """
    if is_agreed:
        return
    if not sys.stdin.isatty():
        raise lancemem.InvalidInputError(
            f"{question}\nno terminal can be asked: pass --yes to do it"
        )
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        sys.stderr.write("nothing was done\n")
        raise typer.Exit(2)


def way_out(error: Exception) -> str | None:
    """Return what to do next on the command line, where the error names a call of Python."""
    text = str(error)
    for words, way in _WAYS_OF_CAUSES:
        if words in text:
            return way
    for kind, way in _WAYS_OF_KINDS:
        if isinstance(error, kind):
            return way
    return next((way for part, way in _WAYS_OF_WORDS if part in text), None)
