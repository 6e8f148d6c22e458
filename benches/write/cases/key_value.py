"""put from Python, not durable, against key-value engines at a batch of 1,000 rows.

Owns: what is timed. Each engine is measured twice: with write batches that are built beforehand,
as lancemem's Arrow batches are, and with the building, which a Python caller pays. The goal is
judged on the first, which favours the peer. Does not own: how an engine is opened.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from benches.write.data import Order, batches_of
from benches.write.peers import rocksdb, slate
from benches.write.peers.lancemem_job import LancememPeer
from benches.write.runner import Sample, Settings, Side, column, interleave
from benches.write.stats import Comparison, Goal, spread

if TYPE_CHECKING:
    from pathlib import Path

BATCH = 1_000
ROWS = 200_000
QUICK_ROWS = 100_000
ORDERS: tuple[Order, ...] = ("sequential", "random")

Pairs = list[list[tuple[bytes, bytes]]]


def _rates(rows: int, written: float, closed: float) -> Sample:
    return {"rows/s": rows / written, "closed": rows / closed}


def _lancemem(batches: list[Any], rows: int) -> Side:
    def sample(folder: Path) -> Sample:
        opened = LancememPeer(folder, "int64")
        begun = time.perf_counter()
        for batch in batches:
            opened.put(batch)
        written = time.perf_counter()
        opened.close()
        return _rates(rows, written - begun, time.perf_counter() - begun)

    return sample


def _rocksdb(pairs: Pairs, rows: int, *, build: bool) -> Side:
    def sample(folder: Path) -> Sample:
        opened = rocksdb.RocksDbPeer(folder)
        ready = [] if build else [rocksdb.write_batch(group) for group in pairs]
        begun = time.perf_counter()
        if build:
            for group in pairs:
                opened.write(rocksdb.write_batch(group))
        else:
            for batch in ready:
                opened.write(batch)
        written = time.perf_counter()
        opened.close()
        return _rates(rows, written - begun, time.perf_counter() - begun)

    return sample


def _slatedb(pairs: Pairs, rows: int, *, build: bool) -> Side:
    def sample(folder: Path) -> Sample:
        written, closed = slate.time_writes(folder, pairs, build=build)
        return _rates(rows, written, closed)

    return sample


def _compare(settings: Settings, order: Order) -> list[Comparison]:
    rows = QUICK_ROWS if settings.quick else ROWS
    batches = batches_of("int64", order, rows, BATCH)
    pairs = [rocksdb.pairs_of(batch) for batch in batches]
    sides = {
        "lancemem": _lancemem(batches, rows),
        "RocksDB": _rocksdb(pairs, rows, build=False),
        "SlateDB": _slatedb(pairs, rows, build=False),
        "RocksDB, building its batches": _rocksdb(pairs, rows, build=True),
        "SlateDB, building its batches": _slatedb(pairs, rows, build=True),
    }
    found = interleave(settings, sides)
    closed = {name: f"{spread(column(found[name], 'closed')).median:,.0f}" for name in sides}
    return [
        Comparison(
            bench="key-value",
            label=f"int64, {order}, batch {BATCH:,}",
            peer=name,
            unit="rows/s",
            ours=column(found["lancemem"], "rows/s"),
            theirs=column(found[name], "rows/s"),
            goal=None if "building" in name else Goal(4.0),
            notes=[("rows/s with close", closed["lancemem"], closed[name])],
            facts={"order": order, "batch": BATCH},
        )
        for name in list(sides)[1:]
    ]


def run(settings: Settings) -> list[Comparison]:
    """Run sequential and random keys."""
    return [made for order in ORDERS for made in _compare(settings, order)]
