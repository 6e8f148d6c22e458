"""The command `changes` of the command line: the changes of a table, one line a row.

Owns its arguments and the lines. Does not own the feed (`Table.changes`), or signals and exit codes
(`plain_commands`).
"""

from __future__ import annotations

import argparse
import sys
import threading
from datetime import datetime
from typing import TYPE_CHECKING, Any

import lancemem
from lancemem.json_text import json_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["add_parser", "lines"]

_ADDED = ("_change_type", "_commit_version", "_commit_timestamp")
_ADDED_BY_SHARD = ("_change_type", "_shard", "_generation", "_row")
# The levels whose feeds start at a position, and how its text begins.
_POSITIONS = {"flushed": "flushed1", "input": "input1"}


def add_parser(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    interval: Callable[[str], float],
) -> None:
    """Add the command and its arguments.

    Args:
        commands: The commands.
        interval: Reads a number of seconds above 0.
    """
    parser = commands.add_parser(
        "changes",
        help="print the inserts, updates and deletes between two versions, one line a row",
    )
    parser.add_argument("uri", help="the table")
    parser.add_argument(
        "--since",
        metavar="V",
        type=_state,
        help="the version behind which to start, or a time such as 2026-01-31T12:00:00+00:00; "
        "default: every row as an insert; with another level a position, default: every change "
        "that is left, or every event that no compaction has moved",
    )
    parser.add_argument(
        "--until",
        metavar="V",
        type=_state,
        help="the last version, or a time; default: the newest version; with another level a "
        "position",
    )
    parser.add_argument(
        "--level",
        choices=["committed", *_POSITIONS],
        default="committed",
        help="the changes of versions or of flushes, or the upserts and deletes as they came; "
        "with the last two the position behind the last one goes to standard error",
    )
    parser.add_argument("--filter", metavar="SQL", help="a condition on the columns of the table")
    parser.add_argument(
        "--follow", action="store_true", help="go on with the changes of new versions"
    )
    parser.add_argument(
        "--interval",
        metavar="S",
        type=interval,
        default=1.0,
        help="seconds between two looks for new versions (default 1)",
    )
    parser.add_argument("--json", action="store_true", help="print each row as a JSON object")


def lines(table: lancemem.Table, options: argparse.Namespace) -> Iterator[str]:
    """Read the changes, each batch when its lines are asked for.

    Args:
        table: The table.
        options: The arguments of the command.

    Yields:
        A line for each row.

    Raises:
        InvalidInputError: `--follow` and `--until` are both given, or one is not valid.
    """
    if options.follow and options.until is not None:
        raise lancemem.InvalidInputError("--follow has no end: leave out --until")
    text = _text_of_shard if options.level in _POSITIONS else _text
    line = json_text if options.json else text
    since = options.since
    while True:
        try:
            feed = table.changes(since, options.until, filter=options.filter, level=options.level)
        except lancemem.RetryableError:
            if not options.follow:
                raise
        else:
            for batch in feed:
                yield from map(line, batch.to_pylist())
            since = feed.until
        if not options.follow:
            if options.level in _POSITIONS:
                sys.stderr.write(f"position {since}\n")
            return
        threading.Event().wait(options.interval)


def _state(text: str) -> int | datetime | str:
    if text.isascii() and text.isdecimal():
        return int(text)
    if text.startswith(tuple(_POSITIONS.values())):
        return text
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        message = f"expected a version, a time in the form of ISO 8601 or a position, got {text!r}"
        raise argparse.ArgumentTypeError(message) from None


def _text(row: dict[str, Any]) -> str:
    values = {name: value for name, value in row.items() if name not in _ADDED}
    told = f"{row['_commit_version']} {row['_commit_timestamp'].isoformat()} {row['_change_type']}"
    return f"{told} {json_text(values)}"


def _text_of_shard(row: dict[str, Any]) -> str:
    values = {name: value for name, value in row.items() if name not in _ADDED_BY_SHARD}
    # Changes of flushes have no row.
    place = [str(row[name]) for name in _ADDED_BY_SHARD[1:] if name in row]
    told = f"{':'.join(place)} {row['_change_type']}"
    return f"{told} {json_text(values)}"
