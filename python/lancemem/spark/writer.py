"""The writing of a shard's rows by a Spark task: all at once, and exactly once.

Owns the task side of every verb and the counts that a task reports. The rows of a task become
durable in one step together with the write's transaction id: as one put, or as a bulk write where
they are many. So a task may be repeated, copied or woken too late, and a fenced task may try again.
Does not own the routing of rows: rows of a second shard are an error.
"""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Literal, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

import lancemem
from lancemem import change_rows
from lancemem.spark import transactions
from lancemem.spark.arrow_types import cast_column, table_batch
from lancemem.spark.claim import claimed, in_turn
from lancemem.spark.reader import key_batch, places_of
from lancemem.spark.shuffle import SHARD_COLUMN
from lancemem.spark.tables import open_cached

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from lancemem.spark.driver_jobs import ShardJobs

REPORT_DDL = (
    "shard int, rows bigint, deletes bigint, inserts bigint, late bigint, "
    "wal_entries bigint, sstables bigint, already_written boolean"
)
_REPORT_SCHEMA = pa.schema(
    [
        pa.field("shard", pa.int32()),
        *(pa.field(n, pa.int64()) for n in ("rows", "deletes", "inserts", "late")),
        pa.field("wal_entries", pa.int64()),
        pa.field("sstables", pa.int64()),
        pa.field("already_written", pa.bool_()),
    ]
)

# A larger write becomes a bulk write: entries of the log would slow down the next claim.
SINGLE_PUT_BYTES = 16 << 20
# Another writer of the shard needs milliseconds for its rows; then this one claims again.
MAX_ATTEMPTS = 50

# Limits on retries of storage faults in number and in seconds, for writes that Spark does not
# repeat. A put that waited for a compaction exceeds the seconds, and is not repeated.
FAULTS = 5
FAULT_SECONDS = 10.0

_T = TypeVar("_T")


@dataclass(frozen=True)
class WritePlan:
    """How the rows of a DataFrame become changes of the table; the same for every task."""

    columns: tuple[str, ...]
    primary_key: tuple[str, ...]
    op_column: str | None = None
    # All rows are keys to delete, or rows that the table takes back.
    deletes: bool = False
    # The row before an update is taken back, as a deleted row is.
    takes_back: bool = False
    # Rows are put whole, and what came before them counts no more.
    replace: bool = False
    # What a null of a put does; None for the default of the table.
    nulls: Literal["set", "keep"] | None = None
    # A row that is older by this column than the stored row of its key is left out.
    newer_by: str | None = None
    # A key that comes twice is an error.
    unique_keys: bool = False
    # Doubles are rounded to floats in columns that are no vectors too.
    round_floats: bool = False
    driver_version: str = lancemem.__version__


@dataclass
class _Change:
    """Rows in the table's types; which of them delete, and which insert by their operation."""

    rows: pa.RecordBatch
    deletes: pa.BooleanArray
    inserts: pa.BooleanArray

    def filter(self, kept: pa.BooleanArray) -> _Change:
        return _Change(*(part.filter(kept) for part in (self.rows, self.deletes, self.inserts)))


@dataclass
class _Counts:
    rows: int = 0
    deletes: int = 0
    inserts: int = 0
    late: int = 0
    wal_entries: int = 0
    sstables: int = 0
    already_written: bool = False
    bytes: int = field(default=0, repr=False)

    def set(self, change: _Change) -> None:
        """Set the counts to the rows that are left."""
        self.rows, self.deletes = change.rows.num_rows, change.deletes.true_count

    def add(self, change: _Change) -> None:
        self.rows += change.rows.num_rows
        self.deletes += change.deletes.true_count
        self.inserts += change.inserts.true_count
        self.bytes += change.rows.nbytes


def shard_writer(
    uri: str, plan: WritePlan, txn: transactions.Txn
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Make the function for mapInArrow that writes one shard and reports one row."""

    def write_shard(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        transactions.check_version(plan.driver_version)
        filled = (batch for batch in batches if batch.num_rows)
        first = next(filled, None)
        if first is None:
            return
        shard = _only_shard(first)
        table = open_cached(uri)
        changes = _changes_of(table, plan, _same_shard(first, filled, shard))
        change = next(changes, None)
        # No change, no claim: a claim would fence a running job of the shard for nothing.
        if change is None:
            return
        counts = _write(table, shard, plan, chain([change], changes), txn)
        report = {name: getattr(counts, name) for name in _REPORT_SCHEMA.names[1:]}
        yield pa.RecordBatch.from_pylist([{"shard": shard, **report}], schema=_REPORT_SCHEMA)

    return write_shard


def write_here(  # noqa: PLR0913, PLR0917 - one argument a part of the write
    table: lancemem.Table,
    plan: WritePlan,
    rows: pa.Table,
    sequence_by: str | None,
    txn: transactions.Txn,
    jobs: ShardJobs | None,
) -> list[dict[str, int]]:
    """Write few rows in this process, all shards in parallel; return reports as the tasks do.

    Rows go through `jobs` if there are any, otherwise through the jobs of this process's calls,
    which linger for the next call. The rows of all shards are checked before any row is written.
    """
    if rows.num_rows == 0:
        return []
    if sequence_by is not None:
        # The order of Spark's sort within a task: nulls first.
        valid = pc.is_valid(rows[sequence_by]).cast(pa.int8())
        keys = pa.table({"valid": valid, "by": rows[sequence_by]})
        order = [("valid", "ascending"), ("by", "ascending")]
        rows = rows.take(pc.sort_indices(keys, order))
    # Usually one batch: a column of text that is larger than 2 GiB stays in several.
    changes = list(_changes_of(table, plan, rows.combine_chunks().to_batches()))
    if not changes:
        return []
    _check_input(table, plan, changes)
    ordinals = [pa.array(table.shard_ordinals(key_batch(table, change.rows))) for change in changes]

    def write(shard: int) -> dict[str, int]:
        parts = (
            change.filter(pc.equal(of_change, shard))
            for change, of_change in zip(changes, ordinals, strict=True)
        )
        # Spark repeats a task that fails, but no write on the driver.
        counts = _write(table, shard, plan, parts, txn, jobs, faults=FAULTS, lingers=True)
        return {"shard": shard} | {n: getattr(counts, n) for n in _REPORT_SCHEMA.names[1:]}

    shards = pc.unique(pa.chunked_array(ordinals)).to_pylist()
    with ThreadPoolExecutor(min(len(shards), 8)) as threads:
        return list(threads.map(write, shards))


def change_of(plan: WritePlan, schema: pa.Schema, batch: pa.RecordBatch) -> _Change:
    """Bring a batch of Spark's to the table's types, and return which rows delete."""
    fields = [schema.field(name) for name in plan.columns]
    if plan.deletes:
        deletes, inserts = _repeated(batch, value=True), _repeated(batch, value=False)
    elif plan.op_column is None:
        deletes = inserts = _repeated(batch, value=False)
    else:
        batch, deletes, inserts = change_rows.changes(
            batch, plan.op_column, takes_back=plan.takes_back
        )
    rows = table_batch(batch.select(list(plan.columns)), pa.schema(fields))
    return _Change(rows, deletes, inserts)


def stage(bulk: lancemem.BulkWriter, plan: WritePlan, change: _Change) -> None:
    """Add the rows of a change to a bulk write."""
    if plan.deletes or plan.op_column is not None:
        bulk.apply(change.rows, change.deletes, round_floats=plan.round_floats)
        return
    bulk.upsert(change.rows, replace=plan.replace, nulls=plan.nulls, round_floats=plan.round_floats)


def _repeated(batch: pa.RecordBatch, *, value: bool) -> pa.BooleanArray:
    return pa.repeat(pa.scalar(value), batch.num_rows)


def _changes_of(
    table: lancemem.Table, plan: WritePlan, batches: Iterable[pa.RecordBatch]
) -> Iterator[_Change]:
    """Yield the changes; a batch of rows before updates has none."""
    schema = pa.schema(table.schema)
    for batch in batches:
        change = change_of(plan, schema, batch)
        if change.rows.num_rows:
            yield change


def _check_input(table: lancemem.Table, plan: WritePlan, changes: list[_Change]) -> None:
    """Refuse rows that the put of one shard would refuse, before another shard has its rows."""
    for change in changes:
        # A bulk writer checks rows as a put does, and buffers the first ones: no file is written.
        bulk = try_again(table.bulk_writer, FAULTS)
        stage(bulk, plan, change)
    if plan.unique_keys:
        _refuse_double_keys(table.uri, plan, changes)


def _write(  # noqa: PLR0913, PLR0917 - one argument a part of the write
    table: lancemem.Table,
    shard: int,
    plan: WritePlan,
    changes: Iterator[_Change],
    txn: transactions.Txn,
    jobs: ShardJobs | None = None,
    *,
    faults: int = 0,
    lingers: bool = False,
) -> _Counts:
    counts = _Counts()
    waiting: list[_Change] = []
    for change in changes:
        counts.add(change)
        waiting.append(change)
        # The checks for late rows and for double keys need all rows at once.
        if counts.bytes > SINGLE_PUT_BYTES and not (plan.newer_by or plan.unique_keys):
            sstables = _write_sstables(table, plan, waiting, changes, counts, faults)
            _commit(table, sstables, txn, counts, faults)
            return counts
    whole = _joined(waiting)
    if plan.unique_keys:
        _refuse_double_keys(table.uri, plan, [whole])
    # Rows of one verb need no job of their own. A task does not know where the next task runs.
    put = _put_by_call if lingers and not (plan.newer_by or plan.op_column) else _put
    try_again(lambda: put(table, shard, plan, whole, txn, counts, jobs), faults)
    return counts


def _commit(
    table: lancemem.Table,
    sstables: list[lancemem.StagedSsTable],
    txn: transactions.Txn,
    counts: _Counts,
    faults: int,
) -> None:
    done = try_again(lambda: table.commit(sstables, txn=txn), faults)
    counts.already_written = done.num_shards_already_written > 0
    counts.sstables = done.num_sstables


def _write_sstables(  # noqa: PLR0913, PLR0917 - one argument a part of the write
    table: lancemem.Table,
    plan: WritePlan,
    waiting: Iterable[_Change],
    more: Iterator[_Change],
    counts: _Counts,
    faults: int,
) -> list[lancemem.StagedSsTable]:
    # It may claim empty shards of another sharding, and other writers do the same at this time.
    bulk = try_again(table.bulk_writer, faults)

    def counted() -> Iterator[_Change]:
        for change in more:
            counts.add(change)
            yield change

    for change in chain(waiting, counted()):
        # A failed call leaves none of its rows in the bulk writer, and all rows of earlier calls.
        try_again(partial(stage, bulk, plan, change), faults)
    return try_again(bulk.finish, faults)


def _put(  # noqa: PLR0913, PLR0917 - one argument a part of the write
    table: lancemem.Table,
    shard: int,
    plan: WritePlan,
    change: _Change,
    txn: transactions.Txn,
    counts: _Counts,
    jobs: ShardJobs | None,
) -> None:
    if jobs is not None and jobs.closed:
        jobs = None
    if (jobs is None or not jobs.runs(shard)) and _is_written(table, shard, txn):
        counts.already_written = True
        return
    with claimed(table, shard) if jobs is None else jobs.lend(shard) as job:
        entries = job.stats().num_wal_entries
        if plan.newer_by is not None:
            # While the job holds the shard no other writer can write a newer row.
            change, counts.late = _without_late(table, plan, change, job)
            counts.set(change)
        if plan.deletes or plan.op_column is not None:
            put = partial(job.apply, change.rows, change.deletes)
        else:
            put = partial(job.put, change.rows, replace=plan.replace, nulls=plan.nulls)
        done = put(durable=True, txn=txn, round_floats=plan.round_floats)
        counts.already_written = done.already_written
        counts.wal_entries = job.stats().num_wal_entries - entries


def _put_by_call(  # noqa: PLR0913, PLR0917 - as `_put`
    table: lancemem.Table,
    shard: int,
    plan: WritePlan,
    change: _Change,
    txn: transactions.Txn,
    counts: _Counts,
    jobs: ShardJobs | None,
) -> None:
    """Write the rows of a shard by a call of the table, whose job lingers for the next call."""
    if jobs is not None and not jobs.closed:
        _put(table, shard, plan, change, txn, counts, jobs)
        return
    # As a task does, a write on the driver takes the shard from a job of another process.
    with in_turn(table, shard):
        if plan.deletes and not plan.round_floats:
            done = table.delete(change.rows, txn=txn, take_over=True)
        else:
            if plan.deletes:
                put = partial(table.apply, change.rows, change.deletes)
            else:
                put = partial(table.upsert, change.rows, replace=plan.replace, nulls=plan.nulls)
            done = put(txn=txn, round_floats=plan.round_floats, take_over=True)
    counts.already_written = done.num_shards_already_written > 0
    counts.wal_entries = done.num_wal_entries


def _is_written(table: lancemem.Table, shard: int, txn: transactions.Txn) -> bool:
    """Whether a shard has recorded a write. A claim, to find out, would fence a running job."""
    application, version = txn
    recorded = table.txn_version(application, shard=shard)
    if recorded is not None and recorded > version:
        raise lancemem.StaleTxnError(
            f"version {version} of application {application!r} comes too late for shard {shard}: "
            f"version {recorded} is written already"
        )
    return recorded == version


def try_again(write: Callable[[], _T], faults: int = 0) -> _T:
    """Repeat a write that was fenced: its transaction id makes that harmless.

    Also repeat a write that met a transient fault of the storage, at most `faults` times.
    """
    begun = time.monotonic()
    for attempt in range(1, MAX_ATTEMPTS):
        try:
            return write()
        except (lancemem.WriterFencedError, lancemem.JobStoppedError):
            # The other writer needs milliseconds. A random pause keeps two writers from fencing
            # each other again.
            time.sleep(random.uniform(0.005, 0.03) * min(attempt, 10))  # noqa: S311
        except lancemem.RetryableError:
            if faults == 0 or time.monotonic() - begun > FAULT_SECONDS:
                raise
            faults -= 1
            # Exponential backoff: 0.2 s at first.
            time.sleep(0.1 * 2 ** (FAULTS - faults))
    return write()


def _joined(changes: list[_Change]) -> _Change:
    if len(changes) == 1:
        return changes[0]
    deletes = pa.concat_arrays([change.deletes for change in changes])
    inserts = pa.concat_arrays([change.inserts for change in changes])
    rows = pa.Table.from_batches([change.rows for change in changes]).combine_chunks().to_batches()
    if len(rows) > 1:
        raise lancemem.InvalidInputError(
            "a column of the rows of one shard takes more than 2 GiB in one write; write them in "
            "several, or use a table with more shards"
        )
    return _Change(rows[0], deletes, inserts)


def _without_late(
    table: lancemem.Table, plan: WritePlan, change: _Change, job: lancemem.Job
) -> tuple[_Change, int]:
    """Leave out rows that are older than the stored row of their key."""
    key, by = list(plan.primary_key), str(plan.newer_by)
    keys = pa.Table.from_batches([change.rows.select(key)])
    asked = keys.group_by(key).aggregate([])
    stored = table.get(asked, columns=[*key, by], consistency="live", jobs=[job])
    if stored.num_rows == 0:
        return change, 0
    places = places_of(keys, stored.select(key).cast(keys.schema))
    newest = stored[by].combine_chunks().take(places)
    given = change.rows[by]
    if not given.type.equals(newest.type):
        # Arrow does not compare instants of two units, and Spark's instants have the zone of its
        # session.
        given = cast_column(given, newest.type, by)
    # A row with a null sequence is older than every other row, as among the rows of one write.
    is_older = pc.fill_null(pc.less(given, newest), fill_value=False)
    if pa.types.is_floating(newest.type):
        # NaN is larger than every number, as Spark orders the rows of one write.
        is_older = pc.or_(is_older, pc.and_(_is_nan(newest), _is_number(given)))
    late = pc.or_(is_older, pc.and_(pc.is_null(given), pc.is_valid(newest)))
    return change.filter(pc.invert(late)), late.true_count


def _is_nan(values: pa.Array) -> pa.Array:
    return pc.fill_null(pc.is_nan(values), fill_value=False)


def _is_number(values: pa.Array) -> pa.Array:
    return pc.fill_null(pc.invert(pc.is_nan(values)), fill_value=False)


def _refuse_double_keys(uri: str, plan: WritePlan, changes: list[_Change]) -> None:
    key = list(plan.primary_key)
    keys = pa.Table.from_batches([change.rows.select(key) for change in changes])
    counted = keys.group_by(key).aggregate([([], "count_all")])
    double = counted.filter(pc.greater(counted["count_all"], 1)).select(key)
    if double.num_rows:
        example = double.slice(0, 1).to_pylist()[0]
        raise lancemem.InvalidInputError(
            f"table {uri}: {double.num_rows} keys come more than once in the source of a merge, "
            f"such as {example}; keep one row a key, or use apply_changes with sequence_by"
        )


def _same_shard(
    first: pa.RecordBatch, rest: Iterator[pa.RecordBatch], shard: int
) -> Iterator[pa.RecordBatch]:
    _check_same_shard(first, shard)
    yield first.drop_columns([SHARD_COLUMN])
    for batch in rest:
        _check_same_shard(batch, shard)
        yield batch.drop_columns([SHARD_COLUMN])


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
