"""A lancemem table as a Spark DataFrame, whole or by key.

Owns the splits of a read, the task that streams one split, and the join of a DataFrame with the
rows of its keys. Does not own which row of a key is the newest, or where a filter runs: that is the
engine's plan.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

import lancemem
from lancemem import rule_calls
from lancemem.spark import transactions
from lancemem.spark.arrow_collect import map_in_arrow
from lancemem.spark.arrow_types import (
    cast_batch,
    spark_arrow_schema,
    spark_schema,
    table_batch,
)
from lancemem.spark.broken_pipe import until_closed
from lancemem.spark.job_description import named_task
from lancemem.spark.size_estimate import quoted
from lancemem.spark.tables import open_cached

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from os import PathLike

    from pyspark.sql import DataFrame, SparkSession

Consistency = Literal["flushed", "durable", "live"]

# Maximum number of keys that are looked up in one call.
KEYS_A_CALL = 8_192

# Stored bytes that are worth a task of their own, and most bytes of a task, as for Spark's files.
BYTES_WORTH_A_TASK = 32 << 20
MAX_BYTES_OF_A_TASK = 128 << 20
# Tasks for each processor, where the bytes are worth them. Newer rows replace whole stretches of
# older ones, so tasks of equal bytes yield unequal numbers of rows.
TASKS_A_PROCESSOR = 4
# Where a rule makes a row of several, each task of a read merges its whole snapshot. From this
# part of the base table's rows on, one in so many, one task merges the newer rows, with the threads
# of all processors.
MERGED_ALONE = 8


def read_table(  # noqa: PLR0913, PLR0917 - one argument a choice of the caller
    spark: SparkSession,
    table: lancemem.Table,
    columns: Sequence[str] | None,
    where: str | None,
    consistency: Consistency,
    splits: int | None,
    live: Sequence[LiveJob] = (),
) -> DataFrame:
    """Make a DataFrame of the table, read in at most `splits` tasks; None chooses their number."""
    if splits is None:
        splits = 1 if live else _worthwhile(table, num_cores(spark))
    names = checked_columns(table, columns)
    if not names:
        first = _first(table)
        return read_table(spark, table, first, where, consistency, splits, live).select()
    # Checked on the driver, or the error would come from a task that failed four times.
    table.scan(names[:1], where, consistency=consistency)
    if where is not None:
        _ = table.scan(names[:1], where, consistency="flushed").schema
    schema = spark_columns(table, names)
    if splits == 1:
        # The snapshot of a single task is taken when the task runs.
        parts = [Split(table.uri, None, (0, 1), tuple(live))]
    else:
        parts = divided(table, consistency, splits)
    scan = named_task(_scan_of(parts, names, where, consistency, schema), "read of", table.uri)
    return _tasks(spark, len(parts)).mapInArrow(scan, spark_schema(schema))


@dataclass(frozen=True)
class LiveJob:
    """Where a running job is offered, as it is sent to a task."""

    location: str
    token: str
    tls_root_certificates: str | None

    def connect(self) -> lancemem.RemoteJob:
        """Connect to the job."""
        return lancemem.connect_job(self.location, self.token, self.tls_root_certificates)


def live_jobs(
    endpoints: Mapping[int, lancemem.Endpoint] | Iterable[lancemem.Endpoint] | None,
    consistency: Consistency,
    splits: int | None,
    tls_root_certificates: str | PathLike[str] | None,
) -> list[LiveJob]:
    """Return the jobs of a "live" read; refuse them for any other read."""
    if endpoints is None:
        return []
    if consistency != "live":
        raise lancemem.InvalidInputError(f"jobs go with consistency='live', got {consistency!r}")
    if splits not in {1, None}:
        raise lancemem.InvalidInputError(
            f"jobs go with splits=1, got {splits}: other tasks cannot share a snapshot that has "
            "rows of a job's memory"
        )
    given = endpoints.values() if isinstance(endpoints, Mapping) else endpoints
    tls = None if tls_root_certificates is None else os.fspath(tls_root_certificates)
    jobs = [LiveJob(endpoint.location, endpoint.token, tls) for endpoint in given]
    for job in jobs:
        # A wrong token or address is an error of the call, not of a task that failed four times.
        job.connect()
    return jobs


def _tasks(spark: SparkSession, count: int) -> DataFrame:
    """Make the numbers from 0 to `count`, exclusive, each in a partition of its own.

    Spark must not estimate their size: it would estimate the table as that small, and broadcast all
    of it to every executor. So a range alone does not do. Spark knows no size of an RDD's rows.
    """
    numbers = spark.range(0, count, 1, count).select("id")
    try:
        java = spark._jsparkSession  # noqa: SLF001 - no public name
    except AttributeError:
        # A session of Spark Connect has no RDDs. Rows of a list have no size either, but a Python
        # worker of its own kind hands them out. The product keeps the partitions of the range; a
        # union would put two single partitions into one.
        one = spark.createDataFrame([(0,)], "one int").coalesce(1)
        return one.hint("shuffle_replicate_nl").crossJoin(numbers).select("id")
    rows = numbers._jdf  # noqa: SLF001 - no public name
    from pyspark.sql import DataFrame  # noqa: PLC0415 - tasks need it not

    return DataFrame(java.createDataFrame(rows.toJavaRDD(), rows.schema()), spark)


def _scan_of(
    parts: Sequence[Split],
    names: Sequence[str],
    where: str | None,
    consistency: Consistency,
    schema: pa.Schema,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Make the function of the tasks, which reads the parts whose numbers it is given.

    It runs in the Python workers that Spark's tasks use anyway. For a read through the format Spark
    starts four more kinds of Python process, each once a session, and one after the other.
    """
    version = lancemem.__version__

    def scan(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        transactions.check_version(version)
        for row in rows:
            for number in row.column(0).to_pylist():
                yield from scan_batches(parts[number], names, where, consistency, schema)

    return scan


@dataclass(frozen=True)
class Split:
    """A part of one snapshot, which any process can read."""

    uri: str
    # None: the table as it is when the task runs.
    token: str | None
    # Which part of how many.
    part: tuple[int, int]
    # Jobs of other processes whose MemTables are read too.
    live: tuple[LiveJob, ...] = ()


def splits(uri: str, consistency: Consistency, most: int | None) -> list[Split]:
    """Divide a read through the format into at most `most` parts.

    Spark keeps them with the DataFrame or view: all its queries then read the same snapshot. A read
    in one part takes its snapshot when it runs.

    Args:
        uri: The table.
        consistency: As in `LancememTable.toDF`.
        most: The maximum number of parts. None: by stored bytes and the processors of this machine.
    """
    table = lancemem.open_table(uri)
    if most is None:
        most = _worthwhile(table, os.cpu_count() or 1)
    if most == 1:
        return [Split(uri, None, (0, 1))]
    return divided(table, consistency, most)


def divided(table: lancemem.Table, consistency: Consistency, most: int) -> list[Split]:
    """Divide a read of one new snapshot into at most `most` parts.

    The parts are fragments of the base table and rows of SSTables.
    """
    snapshot = shared_snapshot(table, consistency)
    uri, token = table.uri, snapshot.token
    # A part without rows would be a task for nothing.
    count = max(1, min(most, snapshot.num_parts))
    return [Split(uri, token, (index, count)) for index in range(count)]


def shared_snapshot(table: lancemem.Table, consistency: Consistency) -> lancemem.Snapshot:
    """Take a snapshot that other processes can open by its token."""
    # Tasks hold no job's MemTables, and a snapshot with rows of this process's jobs has no token.
    level: Consistency = "durable" if consistency == "live" else consistency
    snapshot = table.snapshot(consistency=level)
    if snapshot.token is None:
        raise lancemem.InternalError(f"table {table.uri}: a snapshot without jobs has no token")
    return snapshot


def _worthwhile(table: lancemem.Table, cores: int) -> int:
    """Choose the number of tasks, by bytes as for Spark's own files."""
    # No log is read for an estimate.
    if rule_calls.combines(table):
        stats = table.stats(count_logs=False)
        if stats.num_sstable_rows:
            return _worthwhile_merges(table, stats, cores)
    stored = table.snapshot(consistency="flushed").stored_bytes
    for_speed = min(-(-stored // BYTES_WORTH_A_TASK), TASKS_A_PROCESSOR * cores)
    return max(1, for_speed, -(-stored // MAX_BYTES_OF_A_TASK))


def _worthwhile_merges(table: lancemem.Table, stats: lancemem.TableStats, cores: int) -> int:
    """Choose the number of tasks where each of them merges the rows of all SSTables."""
    if stats.num_sstable_rows * MERGED_ALONE >= stats.num_base_rows:
        # A snapshot would merge here, too.
        return 1
    stored = table.snapshot(consistency="flushed").stored_bytes
    return max(1, min(-(-stored // BYTES_WORTH_A_TASK), cores))


def num_cores(spark: SparkSession) -> int:
    """Return how many tasks Spark runs at once, as far as the driver knows."""
    try:
        return int(spark.sparkContext.defaultParallelism)
    except AttributeError:
        # A session of Spark Connect has no context.
        return os.cpu_count() or 1


def scan_batches(
    split: Split,
    names: Sequence[str],
    where: str | None,
    consistency: Consistency,
    schema: pa.Schema,
) -> Iterator[pa.RecordBatch]:
    """Read a part in this process, in the types of `schema`."""
    table = open_cached(split.uri)
    if split.token is not None:
        snapshot = table.snapshot(token=split.token)
    elif split.live:
        jobs = [job.connect() for job in split.live]
        snapshot = table.snapshot(consistency=consistency, jobs=jobs)
    else:
        snapshot = table.snapshot(consistency=consistency)
    # A scan of the whole table fills the cache of this process; a part cannot.
    part = None if split.part[1] == 1 else split.part
    scan = snapshot.scan(columns=list(names), filter=where, part=part)
    # An error of the engine would lose its type in Arrow's C stream.
    filled = (batch for batch in scan.to_batches() if batch.num_rows)
    yield from until_closed(cast_batch(batch, schema) for batch in filled)


def lookup(keys: DataFrame, table: lancemem.Table, columns: Sequence[str] | None) -> DataFrame:
    """Make a DataFrame of the rows with these keys; tasks ask the engine for each batch of them."""
    uri, key = table.uri, list(table.primary_key)
    names = checked_columns(table, columns)
    if not names:
        return lookup(keys, table, _first(table)).select()
    schema = spark_columns(table, names)

    def get_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from until_closed(found_rows(batches))

    def found_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = open_cached(uri)
        for batch in _slices(batches):
            found = table.get(key_batch(table, batch), columns=names)
            for rows in found.combine_chunks().to_batches():
                yield cast_batch(rows, schema)

    # The table has no row with a null in its key.
    task = named_task(get_rows, "lookup in", uri)
    return keys.select(*key).dropna().mapInArrow(task, spark_schema(schema))


def join_by_key(
    source: DataFrame,
    table: lancemem.Table,
    key: Mapping[str, str],
    target_alias: str,
    source_alias: str,
) -> DataFrame:
    """Add to each row of `source`, as a struct, the stored row of its key, or null.

    The row has the columns that `table` was last seen with; `key` names the source's column for
    each key column.
    """
    uri = table.uri
    target = spark_columns(table, pa.schema(table.schema).names)
    target_type = spark_schema(_all_nullable(target))
    columns = source.columns

    def join(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = open_cached(uri)
        for batch in _slices(batches):
            stored = _stored_beside(table, batch, key, target)
            rows = pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema))
            yield pa.RecordBatch.from_arrays([rows, stored], names=[source_alias, target_alias])

    from pyspark.sql.types import StructField, StructType  # noqa: PLC0415 - tasks need it not

    joined = StructType(
        [
            StructField(source_alias, source.schema, nullable=False),
            StructField(target_alias, target_type, nullable=True),
        ]
    )
    return map_in_arrow(source.select(*map(quoted, columns)), join, joined)


def _stored_beside(
    table: lancemem.Table, batch: pa.RecordBatch, key: Mapping[str, str], target: pa.Schema
) -> pa.StructArray:
    """Return for each row of `batch` the stored row of its key, null where the key has no row."""
    names = list(key)
    keys = pa.Table.from_arrays([batch[key[name]] for name in names], names=names)
    keys = keys.cast(pa.schema([target.field(name).with_nullable(True) for name in names]))
    asked = keys.group_by(names).aggregate([])
    nulls = [name for name in names if asked[name].null_count]
    if nulls:
        raise lancemem.InvalidInputError(
            f"table {table.uri}: key column {nulls[0]!r} is null in the source of a merge"
        )
    [asked_here] = asked.combine_chunks().to_batches()
    found = table.get(key_batch(table, asked_here), columns=target.names).combine_chunks()
    found = pa.Table.from_batches(
        [cast_batch(rows, target) for rows in found.to_batches()], schema=target
    )
    place = places_of(keys, found.select(names).cast(keys.schema))
    rows = found.take(place).combine_chunks()
    arrays = [
        rows[name].combine_chunks() if rows.num_rows else pa.array([], target.field(name).type)
        for name in target.names
    ]
    return pa.StructArray.from_arrays(
        arrays, fields=list(_all_nullable(target)), mask=place.is_null()
    )


def places_of(keys: pa.Table, found: pa.Table) -> pa.Array:
    """Return for each row of `keys` its place in `found`, null where `found` has no such row.

    Both have the same columns; no two rows of `found` are the same.
    """
    # Columns are renamed by number: a key column could have the name of an added column.
    names = [f"key {number}" for number in range(keys.num_columns)]
    found, keys = found.rename_columns(names), keys.rename_columns(names)
    found = found.append_column("place", pa.array(range(found.num_rows), pa.int64()))
    keys = keys.append_column("row", pa.array(range(keys.num_rows), pa.int64()))
    joined = keys.join(found, keys=names, join_type="left outer").sort_by("row")
    return joined["place"].combine_chunks()


def key_batch(table: lancemem.Table, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Bring the key columns of a batch of Spark's to the table's types."""
    schema, names = pa.schema(table.schema), table.primary_key
    if not names:
        # A new batch without columns has no rows; a selection of no columns keeps the number of
        # rows.
        return batch.select([])
    return table_batch(batch.select(names), pa.schema([schema.field(name) for name in names]))


def _slices(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for start in range(0, batch.num_rows, KEYS_A_CALL):
            yield batch.slice(start, KEYS_A_CALL)


def _all_nullable(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_nullable(True) for field in schema])


def spark_columns(table: lancemem.Table, names: Sequence[str]) -> pa.Schema:
    """Return the Arrow schema under which Spark takes these columns."""
    schema = pa.schema(table.schema)
    return spark_arrow_schema(pa.schema([schema.field(name) for name in names]))


def _first(table: lancemem.Table) -> list[str]:
    """Name a column to read where no column is asked for: Spark would get no rows without one."""
    return list(pa.schema(table.schema).names[:1])


def checked_columns(table: lancemem.Table, names: Sequence[str] | None) -> list[str]:
    """Return `names`, or all columns; refuse a name that the table does not have."""
    have = pa.schema(table.schema).names
    if isinstance(names, str):
        text = f"expected a list of names of columns, got str; {[names]!r} is a list of one"
        raise TypeError(text)
    if names is None:
        return list(have)
    unknown = [name for name in names if name not in have]
    if unknown:
        raise lancemem.InvalidInputError(
            f"table {table.uri}: no column {unknown[0]!r}; it has {', '.join(have)}"
        )
    twice = [name for place, name in enumerate(names) if name in names[:place]]
    if twice:
        raise lancemem.InvalidInputError(
            f"table {table.uri}: column {twice[0]!r} is named twice; repeat it in the DataFrame"
        )
    return list(names)
