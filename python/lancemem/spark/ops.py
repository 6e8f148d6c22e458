"""The column of operations in a stream of changes.

Owns: the names of operations that change streams use, and the refusal of every other name: an
unknown operation must not become an upsert.
Does not own: the order of changes, or how they are written.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

import lancemem

# Debezium's c, r, u, d; Delta's _change_type; the row kinds of Flink and Paimon; words.
INSERTS = ("I", "i", "INSERT", "insert", "+I", "c", "r")
UPDATES = ("U", "u", "UPDATE", "update", "+U", "update_postimage")
DELETES = ("D", "d", "DELETE", "delete", "-D")
# The row before an update. The row after the update has the same key and comes too.
BEFORE = ("-U", "update_preimage")


def changes(batch: pa.RecordBatch, column: str) -> tuple[pa.RecordBatch, pa.Array, pa.Array]:
    """Return the rows that are changes, and for each of them whether it deletes or inserts."""
    ops = batch[column].cast(pa.string())
    known = pc.is_in(ops, pa.array([*INSERTS, *UPDATES, *DELETES, *BEFORE]))
    if not pc.all(known, min_count=0).as_py():
        first = ops.filter(pc.invert(known))[0].as_py()
        raise lancemem.InvalidInputError(
            f"column {column!r} has {first!r}, which is no operation: upserts are "
            f"{', '.join(INSERTS + UPDATES)}, deletes {', '.join(DELETES)}, and "
            f"{', '.join(BEFORE)} are left out"
        )
    before = pc.is_in(ops, pa.array(BEFORE))
    if pc.any(before).as_py():
        changing = pc.invert(before)
        batch, ops = batch.filter(changing), ops.filter(changing)
    return batch, pc.is_in(ops, pa.array(DELETES)), pc.is_in(ops, pa.array(INSERTS))
