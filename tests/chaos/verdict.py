"""Whether a read shows what the oracle allows.

Owns: the rules, as a pure function over rows and two moments of the oracle. Does not own: the
reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .oracle import FOREIGN_ROWS, Foreign, Kind, Moment
from .shape import FOREIGN_GROUP, Key, Layout, Row, Shape, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np


class Judge:
    """The rows that one reader has seen, which bound what it may see next.

    Attributes:
        faults: Findings that no order of the operations explains.
    """

    def __init__(
        self, shape: Shape, layout: Layout, kinds: np.ndarray[tuple[int, int], np.dtype[np.uint8]]
    ) -> None:
        self.shape, self.layout, self.kinds = shape, layout, kinds
        self._seen: dict[tuple[str, int], int] = {}

    def faults(
        self,
        rows: Sequence[Row],
        during: tuple[Moment, Moment],
        *,
        level: str,
        foreign: bool,
        remember: bool = True,
    ) -> list[str]:
        """Compare a read with what was begun and acknowledged.

        Args:
            rows: The rows of the read.
            during: The oracle when it began, and when it ended.
            level: Its consistency. `durable` shows at least the acknowledged operations.
            foreign: Whether it read the rows of pylance as well.
            remember: Whether later reads of this reader must not go back behind it.
        """
        before, after = during
        found: dict[Key, Row] = {}
        for row in rows:
            if row[0] in found:
                return [f"key {row[0]!r} twice: {found[row[0]]} and {row}"]
            found[row[0]] = row
        faults = list(self._foreign(found, before, after, foreign=foreign))
        for group in range(len(self.layout.keys)):
            low = max(
                int(before.acked[group]) if level == "durable" else 0,
                self._seen.get((level, group), 0),
            )
            number, fault = self._group(found, group, low, int(after.begun[group]))
            if fault is not None:
                faults.append(f"group {group}, shard {self.layout.shards[group]}: {fault}")
            elif remember and number is not None:
                self._seen[level, group] = max(low, number)
        if found:
            faults.append(f"rows of no operation: {list(found.values())[:5]}")
        return faults

    def _group(
        self, found: dict[Key, Row], group: int, low: int, high: int
    ) -> tuple[int | None, str | None]:
        """Take the rows of a group out of `found`; return its operation, or a fault."""
        rows = [found.pop(key, None) for key in self.layout.keys[group]]
        numbers = {None if row is None else row[2] for row in rows}
        if len(numbers) != 1:
            return None, f"torn: {rows}, operations {low} to {high}"
        [number] = numbers
        if number is None:
            deleted = low == 0 or (self.kinds[group][low : high + 1] == Kind.DELETE).any()
            return None, None if deleted else f"rows are missing, operations {low} to {high} put"
        if any(row != (row[0], group, number, text_of(group, number)) for row in rows if row):
            return None, f"wrong content: {rows}"
        if not low <= number <= high:
            return None, f"shows operation {number}, right are {low} to {high}"
        if self.kinds[group][number] != Kind.PUT:
            return None, f"shows operation {number}, which deletes"
        return number, None

    def _foreign(
        self, found: dict[Key, Row], before: Moment, after: Moment, *, foreign: bool
    ) -> Iterator[str]:
        """Take the rows of pylance out of `found` and compare those whose state is known."""
        # While an old version is restored, its rows are the newest.
        known = foreign and before.restores == after.restores and before.restores % 2 == 0
        for number in range(FOREIGN_ROWS):
            state, later = before.states[number], after.states[number]
            if state == later == Foreign.NEVER:
                continue
            row = found.pop(self.shape.foreign_key(number), None)
            if not known or state != later:
                continue
            if state == Foreign.GONE and row is not None:
                yield f"row {number} of pylance is deleted, and shown as {row}"
            if state != Foreign.THERE:
                continue
            value, same = before.values[number], before.values[number] == after.values[number]
            if row is None:
                yield f"row {number} of pylance is missing"
            elif same and row[1:3] != (FOREIGN_GROUP, value):
                yield f"row {number} of pylance is {row}, right is {value}"
