"""How long an acknowledged row takes to be seen by another process.

Owns a side table with one marker row, the job that moves the marker, and a second process that
watches it. One measurement: the watcher starts reading. This process puts the marker's next tick
and records when the put is acknowledged. The watcher records when a read at "durable" first shows
the tick. Both use the monotonic clock, which on Linux is the same for all processes of a machine.

Does not own the flight board. A read that shows the tick before the put has returned counts as
zero.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Self

import pyarrow as pa

import lancemem
from demo.child import Child, say

if TYPE_CHECKING:
    from types import TracebackType

MARKER = "board"
GIVE_UP_SECONDS = 20.0
SCHEMA = pa.schema([pa.field("marker", pa.string(), nullable=False), pa.field("tick", pa.int64())])


class FreshnessProbe:
    """A marker table, its one writer, and the process that watches it; a context manager."""

    def __init__(self, uri: str) -> None:
        """Create the marker table at `uri`, claim its shard and start the watcher."""
        self._tick = 0
        self._job = lancemem.create_table(uri, SCHEMA, primary_key=["marker"]).start_job(shard=0)
        self._watcher = Child(
            "demo.freshness",
            uri,
            called="the watcher of the freshness marker",
            patience=GIVE_UP_SECONDS,
        )

    def __enter__(self) -> Self:
        """Return the probe."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the watcher and close the job."""
        self._watcher.end()
        self._job.close()

    def measure(self, count: int) -> list[float]:
        """Move the marker `count` times; return the milliseconds each tick took to be seen."""
        return [self._measure_once() for _ in range(count)]

    def _measure_once(self) -> float:
        self._tick += 1
        row = pa.table({"marker": [MARKER], "tick": [self._tick]}, schema=SCHEMA)
        self._watcher.tell(str(self._tick))
        self._expect_watching()
        self._job.put(row)
        acknowledged_ns = time.monotonic_ns()
        seen_ns = int(self._watcher.hear())
        return max(0, seen_ns - acknowledged_ns) / 1e6

    def _expect_watching(self) -> None:
        heard = self._watcher.hear()
        if heard != "watching":
            raise RuntimeError(f"expected 'watching' from the watcher, got {heard!r}")


def watch(uri: str) -> None:
    """For each tick named on standard input, print the instant at which a read shows it."""
    table = lancemem.open_table(uri)
    for line in sys.stdin:
        tick = int(line)
        say("watching")
        give_up = time.monotonic() + GIVE_UP_SECONDS
        while _newest_tick(table) < tick:
            if time.monotonic() > give_up:
                raise TimeoutError(f"tick {tick} was not seen within {GIVE_UP_SECONDS} seconds")
        say(str(time.monotonic_ns()))


def _newest_tick(table: lancemem.Table) -> int:
    scan = table.scan(columns=["tick"], filter=f"marker = '{MARKER}'", consistency="durable")
    ticks: list[int] = pa.table(scan.to_table())["tick"].to_pylist()
    return max(ticks, default=0)


if __name__ == "__main__":
    watch(sys.argv[1])
