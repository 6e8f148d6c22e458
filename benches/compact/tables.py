"""Tables of both sides, made once and copied for each measurement.

Owns: the rows, the base table, the updates that lie in SSTables, and sizes on disk.
Does not own: the measurements.
"""

from __future__ import annotations

import os
import shutil
import uuid
from typing import TYPE_CHECKING

import lance
import numpy as np
import pyarrow as pa

import lancemem

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KEY = {b"lance-schema:unenforced-primary-key": b"true"}
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False, metadata=KEY),
        pa.field("number", pa.float64()),
        pa.field("text", pa.binary()),
    ]
)
TEXT_BYTES = 32
CHUNK_ROWS = 1_000_000
PUT_ROWS = 100_000
# A MemTable is flushed when it is told to, not before.
CONFIG = lancemem.WriterConfig(
    max_memtable_rows=1 << 30,
    max_memtable_bytes=1 << 40,
    max_memtable_batches=1 << 20,
    max_unflushed_memtable_bytes=1 << 40,
    fsync=True,
)


def rows(ids: np.ndarray, seed: int) -> pa.Table:
    """Make rows of random numbers and bytes."""
    random = np.random.default_rng(seed)
    count = len(ids)
    text = pa.Array.from_buffers(
        pa.binary(TEXT_BYTES), count, [None, pa.py_buffer(random.bytes(count * TEXT_BYTES))]
    ).cast(pa.binary())
    columns = [pa.array(ids, pa.int64()), pa.array(random.random(count)), text]
    return pa.table(columns, schema=SCHEMA)


def updates(base_rows: int, share: float, seed: int) -> pa.Table:
    """Choose keys of the base at random and give them new rows."""
    random = np.random.default_rng(seed)
    ids = random.choice(base_rows, int(base_rows * share), replace=False)
    return rows(ids, seed + 1)


def make_base(
    path: Path, base_rows: int, rows_of: Callable[[np.ndarray, int], pa.Table] = rows
) -> Path:
    """Write a base table with pylance, in fragments of a million rows.

    `rows_of` makes the rows of some ids with a seed.
    """
    for start in range(0, base_rows, CHUNK_ROWS):
        ids = np.arange(start, min(start + CHUNK_ROWS, base_rows))
        lance.write_dataset(rows_of(ids, start), str(path), mode="append" if start else "create")
    return path


def with_runs(base: Path, changed: pa.Table, shards: int, generations: int) -> Path:
    """Copy the base and flush `changed` into SSTables above it."""
    path = copy(base, f"runs-{shards}-{generations}")
    sharding = lancemem.bucket("id", shards) if shards > 1 else lancemem.unsharded()
    table = lancemem.enable(str(path), sharding=sharding, config=CONFIG)
    ordinals = pa.array(table.shard_ordinals(changed.select(["id"]))).to_numpy()
    for shard in range(shards):
        mine = changed.filter(pa.array(ordinals == shard))
        each = -(-mine.num_rows // generations)
        with table.start_job(shard=shard, config=CONFIG) as job:
            for start in range(0, mine.num_rows, each):
                for batch in mine.slice(start, each).to_batches(max_chunksize=PUT_ROWS):
                    job.put(batch, durable=False)
                job.flush()
    return path


def copy(path: Path, name: str = "") -> Path:
    """Copy a table by links: every file but the version hints is written once."""
    to = path.parent / f"{name or 'copy'}-{uuid.uuid4().hex[:8]}.lance"
    shutil.copytree(path, to, copy_function=os.link)
    return to


def remove(path: Path) -> None:
    """Remove a copy."""
    shutil.rmtree(path, ignore_errors=True)


def sizes(path: Path) -> dict[int, int]:
    """Find the files of a table by inode, so that a second name is not counted."""
    stats = [file.stat() for file in path.rglob("*") if file.is_file()]
    return {stat.st_ino: stat.st_size for stat in stats}


def written(before: dict[int, int], after: dict[int, int]) -> int:
    """Sum the bytes of files that are new."""
    return sum(size for inode, size in after.items() if inode not in before)
