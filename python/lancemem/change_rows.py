"""Rows that are changes: the column of operations, and the order in which they take effect.

Owns: the names of operations that change streams use, and the refusal of every other name: an
unknown operation must not become an upsert. The columns that a change feed adds.
Does not own: how changes are written, or how a feed derives them (`change_feed`).
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from lancemem import _lancemem, rule_calls

# Debezium's c, r, u, d; Delta's _change_type; the row kinds of Flink and Paimon; words.
INSERTS = ("I", "i", "INSERT", "insert", "+I", "c", "r")
UPDATES = ("U", "u", "UPDATE", "update", "+U", "update_postimage", "upsert")
DELETES = ("D", "d", "DELETE", "delete", "-D")
# The row before an update. The row after the update has the same key and comes too.
BEFORE = ("-U", "update_preimage")

# The columns that a feed adds: the operation, the version that orders the changes, its time.
CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP = FEED_COLUMNS = (
    "_change_type",
    "_commit_version",
    "_commit_timestamp",
)
# The columns that a feed of level "input" adds. Level "flushed" has all but the last.
INPUT_COLUMNS = (CHANGE_TYPE, "_shard", "_generation", "_row")


def changes(
    batch: pa.RecordBatch, column: str, *, takes_back: bool = False
) -> tuple[pa.RecordBatch, pa.Array, pa.Array]:
    """Return the rows that are changes, and for each of them whether it deletes or inserts.

    With `takes_back`, for a table whose deletes take rows back, the row before an update is such a
    delete too. Otherwise it is left out.
    """
    ops = batch[column].cast(pa.string())
    known = pc.is_in(ops, pa.array([*INSERTS, *UPDATES, *DELETES, *BEFORE]))
    if not pc.all(known, min_count=0).as_py():
        first = ops.filter(pc.invert(known))[0].as_py()
        raise _lancemem.InvalidInputError(
            f"column {column!r} has {first!r}, which is no operation: upserts are "
            f"{', '.join(INSERTS + UPDATES)}, deletes {', '.join(DELETES)}, and "
            f"{', '.join(BEFORE)} are rows before an update"
        )
    if takes_back:
        deletes = pc.is_in(ops, pa.array([*DELETES, *BEFORE]))
        return batch, deletes, pc.is_in(ops, pa.array(INSERTS))
    before = pc.is_in(ops, pa.array(BEFORE))
    if pc.any(before).as_py():
        changing = pc.invert(before)
        batch, ops = batch.filter(changing), ops.filter(changing)
    return batch, pc.is_in(ops, pa.array(DELETES)), pc.is_in(ops, pa.array(INSERTS))


def in_order(
    table: _lancemem.Table, rows: pa.Table, op_column: str, sequence_by: str | None
) -> tuple[pa.Table, pa.Array]:
    """Return the changes in their order with the columns of the table, and which of them delete.

    Args:
        table: The table that takes the changes, whose columns are the newest ones. Where its rule
            makes a row of several, changes may have some of them.
        rows: The changes, in the order in which they came.
        op_column: The column of operations.
        sequence_by: The column that orders the changes of a key. None keeps their order.

    Raises:
        InvalidInputError: A column is missing, is not in the table, or has an unknown operation.
    """
    names = rule_calls.given_columns(table, rows.column_names)
    read = [op_column] if sequence_by is None else [op_column, sequence_by]
    for name in (*names, *read):
        if name not in rows.column_names:
            raise _lancemem.InvalidInputError(f"table {table.uri}: changes have no column {name!r}")
    added = (*FEED_COLUMNS, *INPUT_COLUMNS) if op_column == CHANGE_TYPE else ()
    extra = [name for name in rows.column_names if name not in {*names, *read, *added}]
    if extra:
        raise _lancemem.InvalidInputError(
            f"table {table.uri}: column {extra[0]!r} of the changes is not in the table; leave it "
            "out"
        )
    [batch] = rows.combine_chunks().to_batches() or [_empty(rows.schema)]
    batch, deletes, _ = changes(batch, op_column, takes_back=rule_calls.takes_back(table))
    if sequence_by is not None:
        # A stable sort: changes of the same sequence keep their order.
        order = pc.sort_indices(batch.select([sequence_by]), [(sequence_by, "ascending")])
        # The sort puts nulls last; a change without a sequence is the oldest.
        known = batch.num_rows - batch[sequence_by].null_count
        order = pa.concat_arrays([order[known:], order[:known]])
        batch, deletes = batch.take(order), deletes.take(order)
    return pa.Table.from_batches([batch.select(list(names))]), deletes


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(0, each.type) for each in schema], schema=schema)
