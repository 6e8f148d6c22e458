"""Arguments that several commands share, and the texts that they are read from.

Owns: options, and the words for a text that is not understood. Does not own: what a value means to
a table.
"""

from __future__ import annotations

import re
import threading
from datetime import timedelta
from typing import Annotated, Any

import pyarrow as pa
import typer

import lancemem

__all__ = [
    "Json",
    "ShardName",
    "Uri",
    "Yes",
    "address",
    "column",
    "duration",
    "interval",
    "names",
    "order",
    "rate",
    "sharding",
]

Uri = Annotated[str, typer.Argument(metavar="URI", help="The table: a path or s3://bucket/path.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON with stable keys.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Bars = Annotated[
    bool | None,
    typer.Option("--progress/--no-progress", help="Show bars. Default: on a terminal."),
]
_MAX_ORDINAL = 2**31
_VECTOR = re.compile(r"^(?P<of>[a-z0-9]+)\[(?P<size>[0-9]+)\]$")


def _shard(text: str) -> int | str:
    is_number = text.isascii() and text.isdecimal() and int(text) < _MAX_ORDINAL
    return int(text) if is_number else text


ShardName = Annotated[
    str | None,
    typer.Option("--shard", parser=_shard, metavar="S", help="Ordinal or id. Default: all."),
]


def names(text: str | None) -> list[str] | None:
    """Read column names that are divided by commas."""
    if text is None:
        return None
    found = [name.strip() for name in text.split(",")]
    if not all(found):
        raise typer.BadParameter(f"expected names divided by commas, got {text!r}")
    return found


def order(text: str | None) -> list[str] | None:
    """Read columns to sort by; `-name` sorts downwards."""
    return names(text)


def column(text: str) -> pa.Field:
    """Read a column, `NAME:TYPE`; `!` behind the type forbids nulls."""
    name, found, kind = text.rpartition(":")
    if not (name and found):
        raise typer.BadParameter(f"expected NAME:TYPE such as id:int64, got {text!r}")
    nullable = not kind.endswith("!")
    return pa.field(name, _type(kind.removesuffix("!").strip(), text), nullable)


def _type(kind: str, text: str) -> pa.DataType:
    vector = _VECTOR.match(kind)
    known: Any = pa.type_for_alias
    try:
        if vector and vector["of"] != "timestamp":
            return pa.list_(known(vector["of"]), int(vector["size"]))
        return known(kind)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} has no type of Arrow: use a name such as int64, float32, string, bool, "
            "date32, timestamp[us], binary, or float32[384] for a vector"
        ) from None


def sharding(shards: int | None, shard_by: str | None, key: list[str]) -> lancemem.Sharding | None:
    """Read how rows are spread over shards; None is the table's own choice."""
    if shards is None:
        if shard_by is not None:
            raise typer.BadParameter("--shard-by needs the number of shards: add --shards N")
        return None
    if shards == 1 and shard_by is None:
        return lancemem.unsharded()
    if shard_by is None and not key:
        raise typer.BadParameter("--shards spreads rows by a column: add --shard-by or --key")
    return lancemem.bucket(shard_by or key[0], shards)


def duration(text: str | timedelta) -> timedelta:
    """Read seconds, 0 or more. A default is a duration already."""
    if isinstance(text, timedelta):
        return text
    try:
        found = timedelta(seconds=float(text))
    except (ValueError, OverflowError):
        found = timedelta(seconds=-1)
    if found < timedelta(0):
        raise typer.BadParameter(f"expected seconds, 0 or more, such as 3600, got {text!r}")
    return found


def interval(text: str | float) -> float:
    """Read seconds above 0. A default is a number already."""
    seconds = duration(str(text)).total_seconds()
    if not 0 < seconds <= threading.TIMEOUT_MAX:
        raise typer.BadParameter(f"expected seconds above 0, got {text!r}")
    return seconds


def rate(text: str) -> int:
    """Read bytes a second, at least 1."""
    if not (text.isascii() and text.isdecimal()) or not 0 < int(text) < 2**64:
        raise typer.BadParameter(
            f"expected bytes per second, at least 1, got {text!r}; omit the option for no limit"
        )
    return int(text)


def address(text: str) -> tuple[str, int]:
    """Read `HOST:PORT`."""
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdecimal()) or int(port) >= 2**16:
        raise typer.BadParameter(f"expected HOST:PORT such as 127.0.0.1:9464, got {text!r}")
    return host.removeprefix("[").removesuffix("]"), int(port)
