"""put from Python, not durable, against key-value engines at a batch of 1,000 rows.

Owns: the timed part. The goal is judged on write batches that are built before the clock starts, as
lancemem's Arrow batches are: that favours the peer, because a Python caller also pays for building
them row by row. The rate with the building stands beside it. Does not own: how an engine is opened.
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
# SlateDB's binding builds batches at some 10,000 rows a second, so its samples are smaller.
ROWS = {"RocksDB": 200_000, "SlateDB": 50_000}
QUICK_ROWS = {"RocksDB": 100_000, "SlateDB": 20_000}
ORDERS: tuple[Order, ...] = ("sequential", "random")

Pairs = list[list[tuple[bytes, bytes]]]


def _rates(rows: int, built: float, written: float, closed: float) -> Sample:
    return {
        "rows/s": rows / written,
        "closed": rows / (written + closed),
        "built": rows / (built + written),
    }


def _lancemem(batches: list[Any], rows: int) -> Side:
    def sample(folder: Path) -> Sample:
        opened = LancememPeer(folder, "int64")
        begun = time.perf_counter()
        for batch in batches:
            opened.put(batch)
        written = time.perf_counter()
        opened.close()
        return _rates(rows, 0, written - begun, time.perf_counter() - written)

    return sample


def _rocksdb(pairs: Pairs, rows: int) -> Side:
    def sample(folder: Path) -> Sample:
        opened = rocksdb.RocksDbPeer(folder)
        begun = time.perf_counter()
        ready = [rocksdb.write_batch(group) for group in pairs]
        built = time.perf_counter()
        for batch in ready:
            opened.write(batch)
        written = time.perf_counter()
        opened.close()
        return _rates(rows, built - begun, written - built, time.perf_counter() - written)

    return sample


def _slatedb(pairs: Pairs, rows: int) -> Side:
    def sample(folder: Path) -> Sample:
        return _rates(rows, *slate.time_writes(folder, pairs))

    return sample


def _compare(settings: Settings, name: str, order: Order) -> list[Comparison]:
    """Compare the bursts and the sustained rates of the same puts."""
    rows = (QUICK_ROWS if settings.quick else ROWS)[name]
    batches = batches_of("int64", order, rows, BATCH)
    pairs = [rocksdb.pairs_of(batch) for batch in batches]
    theirs = _rocksdb(pairs, rows) if name == "RocksDB" else _slatedb(pairs, rows)
    found = interleave(settings, {"lancemem": _lancemem(batches, rows), name: theirs})
    ours, other = (spread(column(samples, "built")).median for samples in found.values())
    building = ("building batches", f"{ours:,.0f}", f"{other:,.0f}")
    made = [
        Comparison(
            bench=bench,
            label=f"int64, {order}, batch {BATCH:,}",
            peer=name,
            unit="rows/s",
            ours=column(found["lancemem"], rate),
            theirs=column(found[name], rate),
            goal=goal,
            notes=notes,
            facts={"kind": "int64", "order": order, "batch": BATCH},
        )
        for bench, rate, goal, notes in (
            ("key-value", "rows/s", Goal(4.0), [building]),
            ("key-value-sustained", "closed", None, []),
        )
    ]
    ratio, low, high = made[0].interval()
    settings.say(f"  {name}, {made[0].label}: {ratio:.2f}x [{low:.2f}, {high:.2f}]")
    return made


def run(settings: Settings) -> list[Comparison]:
    """Run sequential and random keys against each engine."""
    return [made for name in ROWS for order in ORDERS for made in _compare(settings, name, order)]
