"""Lookups by key, warm: one key and a thousand, beside pylance.

Owns: a base of a key + 100 bytes with a B-tree on the key and five flushed runs above it, the
same bytes for both sides, asked in turn in one process.
Does not own: the Rust side without Python (`benches/lookup.rs`).

    python -m benches.read.lookup [--quick] [--pairs 7]
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import lance
import numpy as np
import pyarrow as pa
from lance.mem_wal import LsmPointLookupPlanner, ShardSnapshot

import lancemem
from benches.write.runner import Sample, Settings, column, interleave
from benches.write.stats import Comparison, spread

RUNS = 5
RUN_ROWS = 20_000
MANY = 1_000

# Answers keys, and gives the number of rows.
Ask: TypeAlias = Callable[[list[Any]], int]


def key(kind: str, number: int) -> int | str:
    """Give the key of a number: itself, or the text of a UUID that belongs to it."""
    return number if kind == "int64" else str(uuid.UUID(int=random.Random(number).getrandbits(128)))  # noqa: S311


def rows(kind: str, numbers: range, name: str) -> pa.Table:
    """Make rows of a key and 100 bytes."""
    keys = [key(kind, number) for number in numbers]
    text = [f"{name}-{number:>{99 - len(name)}}" for number in numbers]
    return pa.table({"id": keys, "text": text}, schema=schema(kind))


def schema(kind: str) -> pa.Schema:
    """Give the table's columns."""
    key_type = pa.int64() if kind == "int64" else pa.string()
    return pa.schema([pa.field("id", key_type, nullable=False), pa.field("text", pa.string())])


def build(uri: str, kind: str, base_rows: int) -> lancemem.Table:
    """Write base, index and runs."""
    config = lancemem.WriterConfig(durable=False, fsync=False, max_memtable_rows=4_000_000)
    table = lancemem.create_table(uri, schema(kind), primary_key=["id"], config=config)

    def flush(numbers: range, name: str) -> None:
        with table.start_job(shard=0) as job:
            for start in range(0, len(numbers), 100_000):
                job.put(rows(kind, numbers[start : start + 100_000], name))
            job.flush()

    flush(range(base_rows), "base")
    table.compact()
    lance.dataset(uri).create_scalar_index("id", "BTREE")
    for run in range(RUNS):
        flush(range(run, base_rows, base_rows // RUN_ROWS), f"run{run}")
    return table


def sides(uri: str, table: lancemem.Table, kind: str) -> dict[str, dict[str, Ask]]:
    """Give what is compared: for one key and for many, each side's way to ask."""
    [shard] = table.shards()
    snapshot = ShardSnapshot(shard.shard_id)
    for run in shard.sstables:
        snapshot = snapshot.with_sstable(run.generation, run.path)
    dataset = lance.dataset(uri)
    planner = LsmPointLookupPlanner(dataset, [snapshot])
    key_type = schema(kind).field("id").type

    def get(keys: list[Any]) -> int:
        return int(table.get(pa.table({"id": pa.array(keys, key_type)})).num_rows)

    def plan(keys: list[Any]) -> int:
        return int(planner.plan_lookup(pa.array(keys, key_type)).to_table().num_rows)

    def plain(keys: list[Any]) -> int:
        # Base rows only: what Lance itself takes, without a choice between versions of a key.
        values = ", ".join(str(key) if kind == "int64" else f"'{key}'" for key in keys)
        return int(dataset.to_table(filter=f"id IN ({values})").num_rows)

    return {
        "one key": {"lancemem": get, "planner": plan, "plain lance": plain},
        "1,000 keys": {"lancemem": get, "plain lance": plain},
    }


def measure(ask: Ask, kind: str, base_rows: int, number: int, calls: int) -> Sample:
    """Ask for random keys and give the median time in milliseconds."""
    choose = random.Random(calls + number)  # noqa: S311 - the same keys for each side
    times = []
    for _ in range(calls):
        keys = [key(kind, choose.randrange(base_rows)) for _ in range(number)]
        begun = time.perf_counter()
        found = ask(keys)
        times.append((time.perf_counter() - begun) * 1e3)
        if found < len(set(keys)):
            raise RuntimeError(f"{found} rows of {len(set(keys))} keys")
    return {"ms": float(np.median(times))}


def compare(settings: Settings, kind: str, base_rows: int) -> list[Comparison]:
    """Run all sides of one kind of key."""
    found = []
    with tempfile.TemporaryDirectory(dir=settings.folder) as folder:
        uri = f"{folder}/t.lance"
        table = build(uri, kind, base_rows)
        for label, asks in sides(uri, table, kind).items():
            number, calls = (1, 100) if label == "one key" else (MANY, 5)
            for ask in asks.values():
                measure(ask, kind, base_rows, number, calls)

            def side(
                ask: Ask, number: int = number, calls: int = calls
            ) -> Callable[[Path], Sample]:
                return lambda _: measure(ask, kind, base_rows, number, calls)

            samples = interleave(settings, {name: side(ask) for name, ask in asks.items()})
            ours = column(samples["lancemem"], "ms")
            found += [
                Comparison(
                    "lookup",
                    f"{kind}, {label}",
                    peer,
                    "ms",
                    ours,
                    column(theirs, "ms"),
                    inverse=True,
                )
                for peer, theirs in samples.items()
                if peer != "lancemem"
            ]
    return found


def main() -> None:
    """Measure and print a line for each comparison."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="a base of 100,000 rows, 3 pairs")
    arguments = parser.parse_args()
    quick = arguments.quick
    with tempfile.TemporaryDirectory() as folder:
        pairs = 3 if quick else arguments.pairs
        settings = Settings(Path(folder), pairs=pairs, quick=quick, limit=300.0)
        for kind in ("int64", "uuid"):
            for line in compare(settings, kind, 100_000 if quick else 1_000_000):
                median, low, high = line.interval()
                ours, theirs = spread(line.ours).median, spread(line.theirs).median
                print(
                    f"{line.label:<20} lancemem {ours:8.3f} ms   {line.peer:<12} {theirs:8.3f} ms"
                    f"   {median:6.2f}x faster ({low:.2f} to {high:.2f})",
                    flush=True,
                )


if __name__ == "__main__":
    main()
