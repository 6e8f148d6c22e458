"""Kinds of damage to the bytes of a file, the same as `lancemem_testkit::damage` in Rust.

Owns: six kinds of damage, their positions, and how a call reports them. Does not own: which call
has to notice (the tests).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import lancemem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pytest

# Maximum number of damaged positions in a file. Each of the last bytes is always one of them.
POSITIONS, LAST = 200, 16
# Number of bytes that a disk loses at once.
SECTOR = 64
# Whether each position is one of them.
EVERYWHERE = os.environ.get("LANCEMEM_POSITIONS") == "all"


def positions(length: int) -> list[int]:
    """Give positions over the whole length, or each one where `LANCEMEM_POSITIONS` is "all"."""
    if length <= POSITIONS or EVERYWHERE:
        return list(range(length))
    spread = POSITIONS - LAST
    chosen = {number * (length - LAST) // spread for number in range(spread)}
    return sorted(chosen | set(range(length - LAST, length)))


def damages(whole: bytes, at: int) -> dict[str, bytes]:
    """Return the bytes of a file after each kind of damage at a position."""
    sector, behind = whole[at : at + SECTOR], whole[at + SECTOR :]
    return {
        "bit": whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :],
        "cut": whole[:at],
        "zeros": whole[:at] + bytes(len(sector)) + behind,
        "zero tail": whole[:at] + bytes(len(whole) - at),
        "foreign": whole[:at] + bytes(byte ^ 0x5A for byte in sector) + behind,
        "inserted": whole[:at] + b"A" + whole[at:],
    }


def damaged(path: Path, every: int = 1, *, but_last: int = 0) -> Iterator[str]:
    """Damage a file in each way at each position, or at each `every`th, and repair it again.

    Yields the name of each damage while it lasts. The last `but_last` bytes are never damaged.
    """
    whole = path.read_bytes()
    path.unlink()  # it may be the second name of another file
    for at in positions(len(whole) - but_last)[::every]:
        for kind, content in damages(whole, at).items():
            if content != whole:
                path.write_bytes(content)
                yield f"{kind} at {at} of {path.name}"
    path.write_bytes(whole)


def unnamed(name: str, call: Callable[..., object], *given: object, **named: object) -> str:
    """Return what a call reports instead of damage of `name`; empty where it reports that."""
    try:
        seen = call(*given, **named)
    except lancemem.CorruptionError as error:
        return "" if name in str(error) else str(error)
    except lancemem.LancememError as error:
        return f"{type(error).__name__}: {error}"
    return f"no error, but {seen}"


def told(caplog: pytest.LogCaptureFixture) -> str:
    """Return the log records since the last call."""
    lines = "\n".join(record.getMessage() for record in caplog.records)
    caplog.clear()
    return lines
