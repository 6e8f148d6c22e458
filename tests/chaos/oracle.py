"""The operations that were begun and acknowledged, in shared memory outside of lancemem.

Owns: a file that every process of a round maps; the records of a killed process stay. Does not own:
what a read may show (`verdict`).

A group is a few keys of one shard that one writer always writes together. Its operations are
numbered from 1; each puts the number into every key of the group, or deletes them.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

GROUPS = 36
KEYS_PER_GROUP = 3
MAX_OPERATIONS = 20_000
# Rows that pylance alone writes.
FOREIGN_ROWS = 4_000

Numbers: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]

_INTEGER = 8
_FLAGS = 8


class Kind(IntEnum):
    """The effect of an operation on its group."""

    PUT = 1
    DELETE = 2


class Foreign(IntEnum):
    """The recorded state of a row that pylance writes."""

    NEVER = 0
    APPENDING = 1
    THERE = 2
    CHANGING = 3
    GONE = 4
    UNKNOWN = 5


@dataclass(frozen=True)
class Moment:
    """A copy of the oracle, taken before or after a read."""

    acked: Numbers
    begun: Numbers
    states: Numbers
    values: Numbers
    restores: int


class Oracle:
    """The shared memory of a round."""

    def __init__(self, path: Path, *, create: bool = False) -> None:
        counters = _FLAGS + 2 * GROUPS + 2 * FOREIGN_ROWS
        size = counters * _INTEGER + GROUPS * MAX_OPERATIONS
        if create:
            with path.open("wb") as new:
                new.truncate(size)
        with path.open("r+b") as shared:
            memory = mmap.mmap(shared.fileno(), size)
        numbers = np.frombuffer(memory, np.int64, counters)
        parts = np.split(numbers, np.cumsum([_FLAGS, GROUPS, GROUPS, FOREIGN_ROWS]), axis=0)
        self._flags, self.acked, self.begun, self.states, self.values = parts
        kinds = np.frombuffer(memory, np.uint8, GROUPS * MAX_OPERATIONS, counters * _INTEGER)
        self.kinds = kinds.reshape(GROUPS, MAX_OPERATIONS)

    @property
    def is_over(self) -> bool:
        """Return whether the round has ended."""
        return bool(self._flags[0])

    def end(self) -> None:
        """End the round: every role stops after its step."""
        self._flags[0] = 1

    @property
    def restores(self) -> int:
        """Count the beginnings and ends of restores; odd while an old version is the newest."""
        return int(self._flags[1])

    def count_restore(self) -> None:
        """Count the beginning or the end of a restore."""
        self._flags[1] += 1

    def moment(self) -> Moment:
        """Copy the present state."""
        return Moment(
            self.acked.copy(),
            self.begun.copy(),
            self.states.copy(),
            self.values.copy(),
            self.restores,
        )

    def begin(self, group: int, kind: Kind) -> int:
        """Record the next operation of a group before it is called, and return its number."""
        number = int(self.begun[group]) + 1
        self.kinds[group][number] = kind
        self.begun[group] = number
        return number

    def is_full(self, group: int) -> bool:
        """Return whether a group has no number left."""
        return int(self.begun[group]) + 1 >= MAX_OPERATIONS
