"""How long after its acknowledgement a durable row is seen by another process.

Owns: a writer process of 10,000 rows a second, and the reader that asks for the newest row in a
loop. Both read the monotonic clock of the machine.
Does not own: reads within the writer's process.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

import lancemem
from benches.read import tables

if TYPE_CHECKING:
    from benches.write.runner import Settings

ROWS_A_SECOND = 10_000
PUT_ROWS = 100
HEAD = 0
GOAL_MS = {"p50": 20.0, "p99": 100.0}

WRITER = """
import json, sys, time
import lancemem
from benches.read import freshness, tables
table = lancemem.open_table(sys.argv[1])
seconds, pause = float(sys.argv[2]), freshness.PUT_ROWS / freshness.ROWS_A_SECOND
acknowledged = []
with table.start_job(shard=0) as job:
    begun = time.monotonic()
    for number in range(1, int(seconds / pause) + 1):
        due = begun + number * pause
        while (wait := due - time.monotonic()) > 0:
            time.sleep(wait)
        job.put(freshness.batch(number))
        acknowledged.append(time.monotonic())
print(json.dumps(acknowledged))
"""


@dataclass
class Freshness:
    """Milliseconds from acknowledged to visible, and the rate that the writer kept up."""

    p50: float
    p99: float
    rows_a_second: float
    reads: int


def batch(number: int) -> pa.Table:
    """Make a put's rows: new keys, and one row with the number of the put."""
    first = 1 + (number - 1) * (PUT_ROWS - 1)
    made = tables.rows("int64", [HEAD, *range(first, first + PUT_ROWS - 1)])
    tags = pa.array([number] * PUT_ROWS, pa.int64())
    return made.set_column(1, made.schema.field("tag"), tags)


def measure(settings: Settings, seconds: float) -> Freshness:
    """Write for some seconds and read meanwhile."""
    place = settings.folder / "table"
    uri = str(place / "t.lance")
    try:
        table = lancemem.create_table(uri, tables.schema("int64"), primary_key=["id"])
        writer = subprocess.Popen(  # noqa: S603 - our own interpreter
            [sys.executable, "-c", WRITER, uri, str(seconds)], stdout=subprocess.PIPE, text=True
        )
        head = pa.table({"id": pa.array([HEAD], pa.int64())})
        seen: list[tuple[int, float]] = []
        reads = 0
        while writer.poll() is None:
            found = table.get(head, ["tag"]).column("tag").to_pylist()
            now = time.monotonic()
            reads += 1
            if found and (not seen or found[0] > seen[-1][0]):
                seen.append((found[0], now))
        output, _ = writer.communicate()
        acknowledged: list[float] = json.loads(output)
        waits = _waits(acknowledged, seen)
        taken = acknowledged[-1] - acknowledged[0]
        rate = PUT_ROWS * (len(acknowledged) - 1) / taken
        p50, p99 = np.percentile(waits, [50, 99])
        return Freshness(float(p50), float(p99), rate, reads)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _waits(acknowledged: list[float], seen: list[tuple[int, float]]) -> list[float]:
    """Return for every put the time until the end of a read that saw it or a later put."""
    waits = []
    place = 0
    for number, moment in enumerate(acknowledged, 1):
        while place < len(seen) and seen[place][0] < number:
            place += 1
        if place < len(seen):
            waits.append(max(0.0, seen[place][1] - moment) * 1e3)
    return waits
