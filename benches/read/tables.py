"""The tables that reads are measured on.

Owns: a base of a key + 100 bytes written through lancemem and compacted, and the newer rows above
it. Does not own: the reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import lance
import numpy as np
import pyarrow as pa
from lance.mem_wal import LsmScanner, ShardSnapshot

import lancemem

PUT_ROWS = 100_000
PAYLOAD_BYTES = 100
# Integers that count up, integers of all 64 bits, and text.
KINDS = ("int64", "scattered", "uuid")
UUID_BYTES, DASHES = 36, (8, 13, 18, 23)
# Rows of these numbers have this tag, one in a thousand; an index finds them.
TAGS = 1_000


@dataclass(frozen=True)
class Above:
    """The newer rows above the base."""

    label: str
    # Flushed SSTables; none where the rows stay in the job's MemTable.
    runs: int
    # One key of this many is newer, in all SSTables together.
    every: int
    deletes: bool = False


MEMTABLE = Above("10 % newer, 1 MemTable", 0, 10)
FOUR = Above("10 % newer, 4 SSTables", 4, 10)
SIXTEEN = Above("16 SSTables of 1 %", 16, 6)
DELETED = Above("10 % deleted, 1 SSTable", 1, 10, deletes=True)


def key(kind: str, number: int) -> int | str:
    """Give the key of a number: itself, or what `_keys` makes of it."""
    if kind == "int64":
        return number
    found: int | str = _keys(kind, np.array([number]))[0].as_py()
    return found


def _keys(kind: str, numbers: Any) -> pa.Array:  # noqa: ANN401 - numpy's array
    """Make the keys of numbers: themselves, 64 bits of SplitMix64 of each, or a UUID of 128."""
    if kind == "uuid":
        return _uuids(numbers)
    if kind == "scattered":
        numbers = _mixed(numbers.astype(np.uint64)).view(np.int64)
    return pa.array(numbers)


def _uuids(numbers: Any) -> pa.Array:  # noqa: ANN401 - numpy's array
    """Make the text of a UUID of each number, 128 bits of SplitMix64."""
    halves = [_mixed(numbers.astype(np.uint64) * np.uint64(2) + np.uint64(half)) for half in (0, 1)]
    binary = np.stack(halves, axis=1).byteswap().view(np.uint8)
    digits = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)
    hexadecimal = np.stack([digits[binary >> 4], digits[binary & 15]], axis=2)
    text = np.full((len(numbers), UUID_BYTES), ord("-"), dtype=np.uint8)
    text[:, [place for place in range(UUID_BYTES) if place not in DASHES]] = hexadecimal.reshape(
        len(numbers), -1
    )
    offsets = np.arange(0, text.size + 1, UUID_BYTES, dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text.tobytes())]
    return pa.Array.from_buffers(pa.string(), len(numbers), buffers)


def _mixed(numbers: Any) -> Any:  # noqa: ANN401
    mixed = (numbers + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(31))


@cache
def _noise() -> pa.Buffer:
    return pa.py_buffer(np.random.default_rng(7).bytes(PUT_ROWS * PAYLOAD_BYTES))


def schema(kind: str) -> pa.Schema:
    """Give the table's columns."""
    key_type = pa.string() if kind == "uuid" else pa.int64()
    return pa.schema(
        [
            pa.field("id", key_type, nullable=False),
            pa.field("tag", pa.int64()),
            pa.field("payload", pa.binary()),
        ]
    )


def rows(kind: str, numbers: Any) -> pa.Table:  # noqa: ANN401 - a range or numpy's array
    """Make rows of a key, a tag and 100 random bytes; at most `PUT_ROWS`."""
    numbers = np.asarray(numbers, dtype=np.int64)
    count = len(numbers)
    offsets = np.arange(0, count * PAYLOAD_BYTES + 1, PAYLOAD_BYTES, dtype=np.int32)
    payload = pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), _noise()])
    return pa.table(
        [_keys(kind, numbers), pa.array(numbers * 7 % TAGS), payload], schema=schema(kind)
    )


def put(job: lancemem.Job, kind: str, numbers: Any, *, deletes: bool = False) -> None:  # noqa: ANN401
    """Put, or delete, the rows of numbers."""
    for start in range(0, len(numbers), PUT_ROWS):
        batch = rows(kind, numbers[start : start + PUT_ROWS])
        if deletes:
            job.delete(batch.select(["id"]))
        else:
            job.put(batch)


def base(uri: str, kind: str, base_rows: int) -> lancemem.Table:
    """Write the base table."""
    config = lancemem.WriterConfig(
        durable=False, fsync=False, max_memtable_rows=4_000_000, max_memtable_bytes=1 << 30
    )
    table = lancemem.create_table(uri, schema(kind), primary_key=["id"], config=config)
    with table.start_job(shard=0) as job:
        put(job, kind, range(base_rows))
        job.flush()
    table.compact()
    return table


def lay(table: lancemem.Table, kind: str, base_rows: int, above: Above) -> lancemem.Job:
    """Put newer rows above the base; return the job, whose MemTable has them or an SSTable."""
    job = table.start_job(shard=0)
    every = above.every
    if above.runs == 0:
        put(job, kind, range(0, base_rows, every), deletes=above.deletes)
        return job
    chosen = np.arange(0, base_rows, every)
    for run in range(above.runs):
        put(job, kind, chosen[run :: above.runs], deletes=above.deletes)
        job.flush()
    return job


def pylance_scanner(uri: str, table: lancemem.Table) -> LsmScanner:
    """Give pylance's scan of the same SSTables."""
    [shard] = table.shards()
    snapshot = ShardSnapshot(shard.shard_id)
    for run in shard.sstables:
        snapshot = snapshot.with_sstable(run.generation, run.path)
    return LsmScanner.from_snapshots(lance.dataset(uri), [snapshot])
