"""Whether reads and writes of one register, each with a beginning and an end, have one order.

Owns: linearizability of a register whose writes have distinct values. That makes the check fast:
each value is one zone of time, and the zones decide (Gibbons and Korach, "Testing Shared Memories",
SIAM Journal on Computing 26(4), 1997). Does not own: the reads and writes.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# No write has this value: the register before the first one.
NOTHING = ""


@dataclass(frozen=True)
class Operation:
    """One call, on a clock that all processes share.

    Attributes:
        kind: `read` or `write`.
        value: What was written or read.
        begin: When it was called.
        end: When it returned; `math.inf` where it failed or its process died. It may have
            happened at any time since, or never.
    """

    kind: str
    value: str
    begin: float
    end: float = math.inf


@dataclass(frozen=True)
class _Zone:
    """When the register had a value: at least (forward), or at most (backward), `low` to `high`."""

    value: str
    low: float
    high: float
    forward: bool


class HistoryError(Exception):
    """No order explains the reads."""


def check(operations: Sequence[Operation]) -> None:
    """Check that a register was linearizable.

    Raises:
        HistoryError: It did not; the text names the values.
    """
    always = Operation("write", NOTHING, -math.inf, -math.inf)
    by_value: dict[str, list[Operation]] = {NOTHING: [always]}
    for operation in operations:
        by_value.setdefault(operation.value, []).append(operation)
    zones = [zone for of in by_value.values() for zone in _zone(of)]
    forward = sorted((zone for zone in zones if zone.forward), key=lambda zone: zone.low)
    for earlier, later in pairwise(forward):
        if later.low < earlier.high:
            raise HistoryError(
                f"'{earlier.value}' was there until {earlier.high} and '{later.value}' from "
                f"{later.low} on"
            )
    lows = [zone.low for zone in forward]
    for zone in zones:
        # Forward zones do not overlap, so only this zone can contain the backward zone.
        before = bisect_left(lows, zone.low)
        if zone.forward or before == 0:
            continue
        around = forward[before - 1]
        if zone.high < around.high:
            raise HistoryError(
                f"'{zone.value}' came and went from {zone.low} to {zone.high}, while "
                f"'{around.value}' was there"
            )


def _zone(operations: Sequence[Operation]) -> list[_Zone]:
    """Return the zone of a value, or an empty list if its write may never have happened."""
    value = operations[0].value
    writes = [it for it in operations if it.kind == "write"]
    if not writes:
        raise HistoryError(f"'{value}' was read, but never written")
    if len(writes) > 1:
        raise ValueError(f"'{value}' was written twice: the history cannot be checked")
    [write] = writes
    reads = [it for it in operations if it.kind == "read"]
    if not reads and write.end == math.inf:
        return []
    if any(read.end < write.begin for read in reads):
        raise HistoryError(f"'{value}' was read before it was written at {write.begin}")
    first_end = min(it.end for it in operations)
    last_begin = max(it.begin for it in operations)
    low, high = sorted((first_end, last_begin))
    return [_Zone(value, low, high, first_end < last_begin)]
