"""What a Spark task does with the rows of its shard: one job, from claim to close.

Owns the task side of upsert, delete and apply_changes, and the counts that a task reports. A job
lives exactly as long as its task, because Spark gives no way to find the same worker process again.
It does not route rows; it refuses rows of a second shard instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pyarrow as pa
import pyarrow.compute as pc

import lancemem
from lancemem.spark.routing import SHARD_COLUMN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

REPORT_DDL = "shard int, upserts bigint, deletes bigint, wal_entries bigint"
_REPORT_SCHEMA = pa.schema(
    [
        pa.field("shard", pa.int32()),
        pa.field("upserts", pa.int64()),
        pa.field("deletes", pa.int64()),
        pa.field("wal_entries", pa.int64()),
    ]
)
DELETE_OP = "D"

Verb = Literal["put", "delete"]
Step = tuple[Verb, pa.RecordBatch]


def shard_writer(
    uri: str, steps_of: Callable[[pa.RecordBatch], Iterable[Step]]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Make the function for mapInArrow that writes one shard and reports one row.

    `steps_of` turns a batch into the puts and deletes to do, in order.
    """

    def write_shard(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        filled = (batch for batch in batches if batch.num_rows)
        first = next(filled, None)
        # No rows, no claim: a claim would fence whoever owns the shard for nothing.
        if first is None:
            return
        shard = _only_shard(first)
        written: dict[Verb, int] = {"put": 0, "delete": 0}
        with lancemem.open_table(uri).start_job(shard=shard) as job:
            for batch in _first_and_rest(first, filled):
                _check_same_shard(batch, shard)
                for verb, rows in steps_of(batch.drop_columns([SHARD_COLUMN])):
                    if verb == "put":
                        job.put(rows)
                    else:
                        job.delete(rows)
                    written[verb] += rows.num_rows
            wal_entries = job.stats().wal_entries
        report = {
            "shard": shard,
            "upserts": written["put"],
            "deletes": written["delete"],
            "wal_entries": wal_entries,
        }
        yield pa.RecordBatch.from_pylist([report], schema=_REPORT_SCHEMA)

    return write_shard


def upsert_steps(columns: Sequence[str]) -> Callable[[pa.RecordBatch], Iterable[Step]]:
    """Put every row of the batch."""
    names = list(columns)
    return lambda batch: [("put", batch.select(names))]


def delete_steps(primary_key: Sequence[str]) -> Callable[[pa.RecordBatch], Iterable[Step]]:
    """Delete the key of every row of the batch."""
    key = list(primary_key)
    return lambda batch: [("delete", batch.select(key))]


def change_steps(
    columns: Sequence[str], primary_key: Sequence[str], op_column: str
) -> Callable[[pa.RecordBatch], Iterable[Step]]:
    """Delete the rows whose op is 'D' and put the others, keeping the order within each key.

    Only the order within one key matters, so the batch is not cut at every change of op: the rows
    are dealt into rounds, and a key enters the next round when it comes back after a delete. A
    round is then all its puts followed by all its deletes; mostly there is one round.
    """
    names, key = list(columns), list(primary_key)

    def steps_of(batch: pa.RecordBatch) -> Iterator[Step]:
        is_delete = pc.fill_null(pc.equal(batch[op_column], DELETE_OP), fill_value=False)
        rounds = _rounds(batch.select(key), is_delete)
        for number in range(pc.max(rounds).as_py() + 1):
            in_round = pc.equal(rounds, number)
            puts = batch.filter(pc.and_not(in_round, is_delete))
            deletes = batch.filter(pc.and_(in_round, is_delete))
            if puts.num_rows:
                yield "put", puts.select(names)
            if deletes.num_rows:
                yield "delete", deletes.select(key)

    return steps_of


def _rounds(keys: pa.RecordBatch, is_delete: pa.BooleanArray) -> pa.Array:
    """For each row, how often its key was put again after a delete, up to and including it."""
    deletes = is_delete.true_count
    if deletes in (0, keys.num_rows):
        return pa.repeat(pa.scalar(0), keys.num_rows)
    frame = keys.to_pandas()
    key_number = frame.groupby(keys.schema.names, sort=False, dropna=False).ngroup()
    deleted = is_delete.to_pandas()
    deleted_before = deleted.groupby(key_number).shift(fill_value=False)
    comes_back = deleted_before & ~deleted
    return pa.array(comes_back.groupby(key_number).cumsum().astype("int64"))


def _first_and_rest(
    first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest


def _only_shard(batch: pa.RecordBatch) -> int:
    shard: int = batch[SHARD_COLUMN][0].as_py()
    return shard


def _check_same_shard(batch: pa.RecordBatch, shard: int) -> None:
    if pc.all(pc.equal(batch[SHARD_COLUMN], shard)).as_py():
        return
    raise lancemem.LancememError(
        f"rows of more than one shard reached the task of shard {shard}: "
        "Spark changed the partitions after they were routed; please report this with the plan"
    )
