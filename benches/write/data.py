"""The rows that both sides of a bench write.

Owns: keys of three kinds in three orders, payloads, and batches that share no memory.
Does not own: the conversion for a peer.

Batches are copies, not slices: an engine that keeps its input, or counts its memory, must not be
charged for the whole table behind a slice.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa

KeyKind: TypeAlias = Literal["int64", "utf8 uuid", "composite"]
Order: TypeAlias = Literal["sequential", "random", "updates"]
KEY_KINDS: tuple[KeyKind, ...] = ("int64", "utf8 uuid", "composite")
ORDERS: tuple[Order, ...] = ("sequential", "random", "updates")

PAYLOAD_BYTES = 100
# How often a key comes on average in `updates`.
REPEATS = 10

_PK = b"lance-schema:unenforced-primary-key"
_PK_POSITION = b"lance-schema:unenforced-primary-key:position"


def key_names(kind: KeyKind) -> list[str]:
    """Name the key columns."""
    return ["id", "sub"] if kind == "composite" else ["id"]


def schema_of(kind: KeyKind) -> pa.Schema:
    """Make the schema, with the key marked as Lance does."""
    columns = [("id", pa.string() if kind == "utf8 uuid" else pa.int64())]
    if kind == "composite":
        columns.append(("sub", pa.string()))
    fields = [
        pa.field(name, kind_, nullable=False, metadata={_PK: b"true", _PK_POSITION: b"%d" % place})
        for place, (name, kind_) in enumerate(columns, 1)
    ]
    return pa.schema([*fields, pa.field("payload", pa.binary())])


def _numbers(order: Order, rows: int) -> Any:  # noqa: ANN401 - numpy's array
    random = np.random.default_rng(20)
    if order == "sequential":
        return np.arange(rows, dtype=np.int64)
    if order == "random":
        return random.permutation(rows).astype(np.int64)
    return random.integers(0, max(1, rows // REPEATS), rows, dtype=np.int64)


def _uuid(number: int) -> str:
    """Make the text of a version 7 UUID whose order is the number's."""
    mixed = (number * 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFF
    return f"{number:08x}-0000-7000-8000-{mixed:012x}"


@cache
def rows_of(kind: KeyKind, order: Order, rows: int) -> pa.Table:
    """Make all rows of a sample; the same for the same arguments."""
    numbers = _numbers(order, rows)
    if kind == "utf8 uuid":
        keys = [pa.array([_uuid(number) for number in numbers.tolist()])]
    elif kind == "composite":
        subs = [f"sub-{number % 100:04d}" for number in numbers.tolist()]
        keys = [pa.array(numbers // 100), pa.array(subs)]
    else:
        keys = [pa.array(numbers)]
    noise = np.random.default_rng(7).bytes(rows * PAYLOAD_BYTES)
    offsets = np.arange(0, rows * PAYLOAD_BYTES + 1, PAYLOAD_BYTES, dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(noise)]
    payload = pa.Array.from_buffers(pa.binary(), rows, buffers)
    return pa.Table.from_arrays([*keys, payload], schema=schema_of(kind))


def batches_of(kind: KeyKind, order: Order, rows: int, batch: int) -> list[pa.RecordBatch]:
    """Divide the rows into batches that own their memory."""
    [whole] = rows_of(kind, order, rows).combine_chunks().to_batches()
    return [
        whole.take(pa.array(np.arange(start, min(start + batch, rows))))
        for start in range(0, rows, batch)
    ]


def payload_bytes(rows: int) -> int:
    """Count the bytes of int64 rows, which is what a rate in MB/s counts."""
    return rows * (8 + PAYLOAD_BYTES)
