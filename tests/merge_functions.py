"""Merge functions that tests give to tables: some are right, each other one has one fault.

Owns: the functions, by names that other processes of the tests can import too. Does not own:
stories (test_merge_functions).
"""

from __future__ import annotations

from itertools import count

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

# Whether `fragile` raises.
BROKEN: list[str] = []
_CALLS = count()


def longest(older: pa.Array, newer: pa.Array) -> pa.Array:
    """Keep the longer text; of equals the older one."""
    return pc.if_else(pc.greater(pc.utf8_length(newer), pc.utf8_length(older)), newer, older)


def farthest(older: pa.Array, newer: pa.Array) -> pa.Array:
    """Keep the vector of the greater norm; of equals the older one. Takes any width."""
    width = older.type.list_size

    def rows(vectors: pa.Array) -> pa.Array:
        return vectors.flatten().to_numpy().reshape(-1, width)

    is_farther = np.linalg.norm(rows(newer), axis=1) > np.linalg.norm(rows(older), axis=1)
    return pc.if_else(pa.array(is_farther), newer, older)


def weighted(older: pa.Array, newer: pa.Array) -> pa.Array:
    """Add vectors and their weights. Builds its arrays of nothing that the table gave."""
    total = pc.add(older.field("total").flatten(), newer.field("total").flatten())
    total = pa.FixedSizeListArray.from_arrays(total, 2)
    weight = pc.add(older.field("weight"), newer.field("weight"))
    return pa.StructArray.from_arrays([total, weight], ["total", "weight"])


def rebuilt(_: pa.Array, newer: pa.Array) -> pa.Array:
    """Return the newer values in arrays of plain types, as `pa.array` makes them."""
    return pa.array(newer.to_pylist(), type=_plain(newer.type))


def _plain(of: pa.DataType) -> pa.DataType:
    if pa.types.is_fixed_size_list(of):
        return pa.list_(_plain(of.value_type), of.list_size)
    if pa.types.is_list(of):
        return pa.list_(_plain(of.value_type))
    if pa.types.is_struct(of):
        return pa.struct([(field.name, _plain(field.type)) for field in of])
    return of


def fragile(older: pa.Array, newer: pa.Array) -> pa.Array:
    """Add, unless something is broken."""
    if BROKEN and len(older):
        raise ArithmeticError(BROKEN[0])
    return pc.add(older, newer)


def narrow(older: pa.Array, newer: pa.Array) -> pa.Array:
    """Add, and return int32 whatever the values are."""
    return pc.add(older, newer).cast(pa.int32())


# --- faults ---


def average(older: pa.Array, newer: pa.Array) -> pa.Array:
    """Not associative."""
    return pc.divide(pc.add(older, newer), 2)


def floats(older: pa.Array, newer: pa.Array) -> pa.Array:
    """Returns another type."""
    return pc.add(older, newer).cast(pa.float64())


def floats_of_values(older: pa.Array, newer: pa.Array) -> pa.Array:
    """Returns another type, unless there is nothing to return."""
    return floats(older, newer) if len(older) else older


def short(older: pa.Array, newer: pa.Array) -> pa.Array:
    """Returns a value too few."""
    return pc.add(older, newer)[:-1]


def nothing(older: pa.Array, _: pa.Array) -> pa.Array:
    """Returns nulls."""
    return pa.nulls(len(older), older.type)


def chunks(older: pa.Array, newer: pa.Array) -> pa.ChunkedArray:
    """Returns no array."""
    return pa.chunked_array([pc.add(older, newer)])


def counted(older: pa.Array, _: pa.Array) -> pa.Array:
    """Returns another value in each call."""
    return pa.array([next(_CALLS)] * len(older), type=older.type)


def ranked(older: pa.Array, newer: pa.Array) -> pa.Array:
    """Depends on the other pairs of a call."""
    return pa.array([len(older)] * len(newer), type=older.type)


def raw(older: pa.Array, newer: pa.Array) -> pa.Array:
    """Reads the buffer of an array and forgets its offset."""
    _, buffer = older.buffers()
    first = np.frombuffer(buffer, dtype=np.int64)[: len(newer)]
    return pa.array(first, type=older.type)


not_a_function = 7
