"""How many round trips deep a cold read of a remote object store is.

Owns: 8 shards of 4 SSTables and a log above a base, on the S3 server of the tests behind a proxy;
each read in a process that opens the table for it. The depth is counted: all requests that a
reader can make at a time go as one wave (`tests.s3.proxy`). A run with every request
delayed shows the same in wall time.
Does not own: reads of a local disk (`scans`, `lookup`).
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import lancemem
from benches.read import tables
from tests.s3 import running, waves

if TYPE_CHECKING:
    from benches.write.runner import Settings

SHARDS, RUNS = 8, 4
BASE_ROWS = 100_000
# One of this many rows is newer, in all SSTables together.
EVERY = 10
KEYS = 10
# Far above the server's own time, so that the wall time shows the depth.
DELAY = 0.5
GOAL = 6
BUCKET = "bucket-depth"
READS = {"scan": "scan", "count": "count", "get": f"{KEYS} keys"}


@dataclass
class Depth:
    """One read of one side."""

    side: str
    what: str
    counted: waves.Cold
    delayed: waves.Cold


def measure(settings: Settings) -> list[Depth]:
    """Read cold, both sides in turn."""
    with running.running() as s3, waves.proxy(s3) as proxy:
        s3.request("PUT", f"/{BUCKET}")
        uri = f"s3://{BUCKET}/t.lance"
        build(uri, s3.options())
        # Every other key is newer in an SSTable.
        keys = [key * BASE_ROWS // KEYS + 3 * (key % 2) for key in range(KEYS)]
        found = []
        for what in READS:
            for side in ("lancemem", "lance"):
                settings.say(f"  {side}, {what}")
                counted = proxy.read(side, what, uri, keys)
                delayed = proxy.read(side, what, uri, keys, DELAY)
                check(what, counted, delayed)
                found.append(Depth(side, what, counted, delayed))
        return found


def build(uri: str, options: dict[str, str]) -> None:
    """Write the base with an index on its key, each shard's SSTables, and an entry in its log."""
    table = lancemem.create_table(
        uri,
        tables.schema("int64"),
        primary_key=["id"],
        sharding=lancemem.bucket("id", SHARDS),
        storage_options=options,
    )
    with contextlib.ExitStack() as open_jobs:
        jobs = [open_jobs.enter_context(table.start_job(shard=it)) for it in range(SHARDS)]

        def put(first: int, every: int) -> None:
            batch = tables.rows("int64", np.arange(first, BASE_ROWS, every))
            shard_of = pa.array(table.shard_ordinals(batch))
            for shard, job in enumerate(jobs):
                job.put(batch.filter(pc.equal(shard_of, shard)))

        def flush() -> None:
            for job in jobs:
                job.flush()

        put(0, 1)
        flush()
        table.compact()
        for run in range(RUNS):
            put(run * EVERY, RUNS * EVERY)
            flush()
        put(1, 100 * EVERY)
    lance.dataset(uri, storage_options=options).create_scalar_index("id", "BTREE")


def check(what: str, *reads: waves.Cold) -> None:
    """Refuse a wrong answer."""
    expected = KEYS if what == "get" else BASE_ROWS
    for read in reads:
        if read.rows != expected:
            message = f"{read.rows} rows of a {what}, not {expected}"
            raise RuntimeError(message)


def section(found: list[Depth]) -> list[str]:
    """Make the part of the page."""
    heads = (
        f"| cold read, {SHARDS} shards x {RUNS} SSTables and a log | side "
        "| round trips of the open | of the read | requests | goal of the read | met "
        f"| read with {DELAY * 1e3:.0f} ms each, in round trips |"
    )
    lines = [
        (
            "Round trips one after the other, each read in a new process. Requests that a process "
            "can make before one of them is answered are one round trip. The last column is wall "
            "time, in which the server's own time counts. Lance reads the base table only, "
            f"{BASE_ROWS:,} rows."
        ),
        "",
        heads,
        "|" + " --- |" * 8,
    ]
    for it in found:
        opened, read = it.counted.open, it.counted.read
        ours = it.side == "lancemem"
        goal, met = (f"at most {GOAL}", "yes" if read.depth <= GOAL else "no") if ours else ("", "")
        lines.append(
            f"| {READS[it.what]} | {it.side} | {opened.depth} | **{read.depth}** | "
            f"{len(opened.requests) + len(read.requests)} | {goal} | {met} | "
            f"{it.delayed.read.seconds / DELAY:.1f} |"
        )
    for it in found:
        if it.side == "lancemem":
            lines += ["", f"What the round trips of the {it.what} are for:", ""]
            lines += [f"{trip}. {text}" for trip, text in enumerate(it.counted.read.waves(), 1)]
    return lines
