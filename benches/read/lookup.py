"""Lookups by key, warm: one key and a thousand, beside pylance.

Owns: five flushed SSTables above a base with a B-tree on the key, the same bytes for both sides,
asked in turn in one process.
Does not own: the Rust side without Python (`benches/table/lookup.rs`).
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import lance
import numpy as np
import pyarrow as pa
from lance.mem_wal import LsmPointLookupPlanner, ShardSnapshot

from benches.read import tables
from benches.write.runner import Sample, Settings, column, interleave
from benches.write.stats import Comparison

if TYPE_CHECKING:
    from pathlib import Path

    import lancemem

RUNS = 5
RUN_ROWS = 20_000
MANY = 1_000
# Milliseconds.
GOALS = {"one key": 0.5, "1,000 keys": 5.0}

# Looks up keys, and returns the number of rows.
Ask: TypeAlias = Callable[[pa.Table], int]


def build(uri: str, kind: str, base_rows: int) -> lancemem.Table:
    """Write base, index and SSTables."""
    table = tables.base(uri, kind, base_rows)
    lance.dataset(uri).create_scalar_index("id", "BTREE")
    with table.start_job(shard=0) as job:
        for run in range(RUNS):
            tables.put(job, kind, range(run, base_rows, max(1, base_rows // RUN_ROWS)))
            job.flush()
    return table


def sides(uri: str, table: lancemem.Table, kind: str) -> dict[str, dict[str, Ask]]:
    """Return the comparisons: for one key and for many, each side's lookup."""
    [shard] = table.shards()
    snapshot = ShardSnapshot(shard.shard_id)
    for run in shard.sstables:
        snapshot = snapshot.with_sstable(run.generation, run.path)
    dataset = lance.dataset(uri)
    planner = LsmPointLookupPlanner(dataset, [snapshot])

    def get(keys: pa.Table) -> int:
        return int(table.get(keys).num_rows)

    def plan(keys: pa.Table) -> int:
        return int(planner.plan_lookup(keys.column("id").combine_chunks()).to_table().num_rows)

    def plain(keys: pa.Table) -> int:
        # Base rows only: Lance's own lookup, without a choice between versions of a key.
        quote = "'" if kind == "uuid" else ""
        values = ", ".join(f"{quote}{key}{quote}" for key in keys.column("id").to_pylist())
        return int(dataset.to_table(filter=f"id IN ({values})").num_rows)

    return {
        "one key": {"lancemem": get, "pylance's planner": plan, "plain Lance": plain},
        "1,000 keys": {"lancemem": get, "plain Lance": plain},
    }


def measure(ask: Ask, kind: str, base_rows: int, number: int, calls: int) -> Sample:
    """Ask for random keys and give the median time in milliseconds."""
    choose = random.Random(calls + number)  # noqa: S311 - the same keys for each side
    times = []
    for _ in range(calls):
        asked: list[Any] = [tables.key(kind, choose.randrange(base_rows)) for _ in range(number)]
        keys = pa.table({"id": pa.array(asked, tables.schema(kind).field("id").type)})
        begun = time.perf_counter()
        found = ask(keys)
        times.append((time.perf_counter() - begun) * 1e3)
        if found < len(set(asked)):
            message = f"{found} rows of {len(set(asked))} keys"
            raise RuntimeError(message)
    return {"ms": float(np.median(times))}


def compare(settings: Settings, kind: str, base_rows: int) -> list[Comparison]:
    """Run all sides of one kind of key."""
    place = settings.folder / "table"
    uri = str(place / "t.lance")
    try:
        table = build(uri, kind, base_rows)
        return [
            line
            for label, asks in sides(uri, table, kind).items()
            for line in _compare(settings, kind, base_rows, label, asks)
        ]
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _compare(
    settings: Settings, kind: str, base_rows: int, label: str, asks: dict[str, Ask]
) -> list[Comparison]:
    number, calls = (1, 100) if label == "one key" else (MANY, 5)

    def side(ask: Ask) -> Callable[[Path], Sample]:
        return lambda _: measure(ask, kind, base_rows, number, calls)

    for ask in asks.values():
        measure(ask, kind, base_rows, number, calls)
    samples = interleave(settings, {name: side(ask) for name, ask in asks.items()})
    ours = column(samples["lancemem"], "ms")
    return [
        Comparison(
            "lookup", f"{kind}, {base_rows:,} rows + {RUNS} SSTables, {label}", peer, "ms",
            ours, column(theirs, "ms"), inverse=True, facts={"goal ms": GOALS[label]},
        )
        for peer, theirs in samples.items()
        if peer != "lancemem"
    ]  # fmt: skip
