"""`LancememTable`: a lancemem table as Spark code uses it.

Owns the verbs of the Spark side and their results. Its handle is for the driver only: tasks open
the table by its URI, because a handle belongs to the process that opened it.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, contextmanager
from copy import copy
from dataclasses import dataclass, field
from dataclasses import replace as replaced
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql.types import ArrayType, MapType, StructType, UserDefinedType, VariantType

import lancemem
from lancemem.rule_calls import (
    given_columns,
    orders_by,
    refuse_by_rule,
    refuse_changes,
    refuse_delete_where,
    refuse_mode,
    refuse_retract,
    replaced_columns,
    takes_back,
)
from lancemem.spark import (
    bulk,
    conditions,
    reader,
    shuffle,
    stream,
    transactions,
    writer,
)
from lancemem.spark.arrow_collect import map_in_arrow, to_arrow_within
from lancemem.spark.arrow_types import arrow_schema
from lancemem.spark.change_reads import ChangeReads, feed_columns, in_arrival_order
from lancemem.spark.columns import settle_extra
from lancemem.spark.delta_names import DeltaNames
from lancemem.spark.driver_jobs import ShardJobs
from lancemem.spark.indexes import IndexCalls
from lancemem.spark.job_description import described
from lancemem.spark.maintenance import MaintenanceCalls
from lancemem.spark.merge import MergeBuilder, MergeResult
from lancemem.spark.results import (
    ChangesResult,
    DeleteResult,
    Report,
    UpsertResult,
    places,
    total,
)
from lancemem.spark.search import VectorSearch
from lancemem.spark.session import check_workers
from lancemem.spark.size_estimate import UNKNOWN_BYTES, estimated_bytes, quoted
from lancemem.spark.stream import StreamStats
from lancemem.spark.task_errors import own_errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import timedelta
    from os import PathLike

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = [
    "ChangesResult",
    "DeleteResult",
    "LancememTable",
    "LancememTableStats",
    "MergeBuilder",
    "MergeResult",
    "ShardJobs",
    "StreamStats",
    "UpsertResult",
]

# The driver collects and writes a DataFrame of at most this many bytes by Spark's estimate.
DRIVER_BYTES = 1 << 20
# Limit on the bytes that the driver then collects, whatever the estimate was; tasks write more.
DRIVER_PEEK_BYTES = 16 << 20
# Limit on the rows of a DataFrame without an estimate, while jobs run on the driver.
DRIVER_ROWS = 1 << 14
# Types whose values have no order in Spark, or none in Arrow.
_UNORDERED = (ArrayType, MapType, StructType, UserDefinedType, VariantType)
HISTORY_DDL = "version long, timestamp timestamp, operation string, num_compacted_shards int"


@dataclass(frozen=True)
class LancememTableStats:
    """A table at one moment.

    Attributes:
        table: The counters of the table.
        streams: The progress of the streams into it.
        jobs: The counters of the jobs of `start_jobs`, by shard.
    """

    table: lancemem.TableStats
    streams: tuple[StreamStats, ...]
    jobs: Mapping[int, lancemem.JobStats]


@dataclass
class _Running:
    """What runs for a table and its aliases."""

    jobs: ShardJobs | None = None
    streams: list[StreamingQuery] = field(default_factory=list)


class LancememTable(DeltaNames, ChangeReads, VectorSearch, IndexCalls, MaintenanceCalls):
    """A lancemem table, bound to a Spark session.

    A write and a `flush` take their shards over: a job (`Table.start_job`, `Table.writer`) that
    runs there in another process is stopped. Tasks, `merge`, `apply_changes`, `flush` and
    `start_jobs` stop a job of this process too. The next put of a stopped job raises
    `WriterFencedError`; its acknowledged durable rows stay. `lancemem.Table.upsert` refuses
    instead.

    Example:
        table = LancememTable.forPath(spark, "/data/board.lance")
        table.upsert(rows, sequence_by="updated_at")
        table.toDF(where="delay > 15").show()
    """

    def __init__(self, spark: SparkSession, table: lancemem.Table) -> None:
        """Bind an open table; most code uses `forPath` or `create`.

        Args:
            spark: The session.
            table: The driver's handle of the table.

        Raises:
            InvalidInputError: `table` is a path.
        """
        if not isinstance(table, lancemem.Table):
            raise lancemem.InvalidInputError(
                f"LancememTable takes a table that lancemem.open_table opened, got {table!r}; "
                "LancememTable.forPath(spark, path) takes a path"
            )
        self._spark = spark
        self._table = table
        self._running = _Running()
        self._alias: str | None = None

    @classmethod
    def forPath(cls, spark: SparkSession, uri: str) -> LancememTable:  # noqa: N802 - Delta's name
        """Open a table. This writes nothing; `enable` enables a Lance table.

        Args:
            spark: The session.
            uri: The address of the table, which executors reach too.

        Returns:
            The table.

        Raises:
            TableNotFoundError: There is no table at `uri`.
            InvalidInputError: The table is a Lance table that is not enabled.

        Example:
            table = LancememTable.forPath(spark, "/data/board.lance")
        """
        return cls(spark, lancemem.open_table(uri))

    @classmethod
    def create(  # noqa: PLR0913 - one argument a property of the table, all but two by name
        cls,
        spark: SparkSession,
        uri: str,
        *,
        schema: pa.Schema | StructType | str,
        primary_key: str | Sequence[str] | None,
        sharding: lancemem.Sharding | None = None,
        vectors: Mapping[str, int] | None = None,
        config: lancemem.WriterConfig | None = None,
        maintenance: lancemem.MaintenanceConfig | bool | None = None,
        changelog: Literal["stored", "flushed"] | None = None,
        merge_engine: Literal["deduplicate", "first_row", "partial_update", "aggregation"]
        | None = None,
        sequence_by: str | Sequence[str] | None = None,
        aggregates: Mapping[str, str | lancemem.agg.Aggregate] | None = None,
        merge_functions: Mapping[str, str] | None = None,
        sequence_groups: Mapping[str, str | Sequence[str]] | None = None,
        deletes: Literal["remove", "ignore", "refuse", "retract"] | None = None,
        delete_retention: timedelta | None = None,
    ) -> LancememTable:
        """Create a table.

        Args:
            spark: The session.
            uri: The address of the table, which executors reach too.
            schema: A schema of Arrow or of Spark, the latter also as text such as "id long, name
                string".
            primary_key: The key columns in key order. None: a table that takes appends alone.
            sharding: How rows are spread over shards. Default: one shard.
            vectors: The lengths of array columns of a Spark schema that become fixed-size lists, as
                vector search needs them.
            config: The defaults of every job of the table.
            maintenance: As in `lancemem.create_table`.
            changelog: As in `lancemem.create_table`.
            merge_engine: As in `lancemem.create_table`.
            sequence_by: As in `lancemem.create_table`.
            aggregates: As in `lancemem.create_table`.
            merge_functions: As in `lancemem.create_table`. Executors import them too: ship their
                module with `--py-files`.
            sequence_groups: As in `lancemem.create_table`.
            deletes: As in `lancemem.create_table`.
            delete_retention: As in `lancemem.create_table`.

        Returns:
            The table.

        Raises:
            TableExistsError: A table exists at `uri`.
            InvalidInputError: The key, a column or the merge rule cannot be used, or `vectors`
                comes with an Arrow schema.

        Example:
            table = LancememTable.create(
                spark,
                "/data/board.lance",
                schema=rows.schema,
                primary_key="id",
                sharding=lancemem.bucket("id", 16),
            )
        """
        if isinstance(schema, str):
            schema = _parsed(schema)
        if isinstance(schema, StructType):
            schema = arrow_schema(schema, vectors)
        elif vectors:
            raise lancemem.InvalidInputError(
                "vectors= needs a Spark schema; an Arrow schema has fixed-size lists itself"
            )
        key = [primary_key] if isinstance(primary_key, str) else list(primary_key or ())
        table = lancemem.create_table(
            uri,
            schema,
            primary_key=key,
            sharding=lancemem.unsharded() if sharding is None else sharding,
            config=config,
            maintenance=maintenance,
            changelog=changelog,
            merge_engine=merge_engine,
            sequence_by=sequence_by,
            aggregates=aggregates,
            merge_functions=merge_functions,
            sequence_groups=sequence_groups,
            deletes=deletes,
            delete_retention=delete_retention,
        )
        return cls(spark, table)

    @classmethod
    def enable(  # noqa: PLR0913 - as `create`
        cls,
        spark: SparkSession,
        uri: str,
        *,
        sharding: lancemem.Sharding | None = None,
        config: lancemem.WriterConfig | None = None,
        maintenance: lancemem.MaintenanceConfig | bool | None = None,
        merge_engine: Literal["deduplicate", "first_row", "partial_update", "aggregation"]
        | None = None,
        sequence_by: str | Sequence[str] | None = None,
        aggregates: Mapping[str, str | lancemem.agg.Aggregate] | None = None,
        merge_functions: Mapping[str, str] | None = None,
        sequence_groups: Mapping[str, str | Sequence[str]] | None = None,
        deletes: Literal["remove", "ignore", "refuse", "retract"] | None = None,
        delete_retention: timedelta | None = None,
    ) -> LancememTable:
        """Enable a Lance table that has its primary key in the field metadata, and open it.

        Args:
            spark: The session.
            uri: The address of the table, which executors reach too.
            sharding: How rows are spread over shards. A table that has a sharding, such as one
                partitioned by `bucket(n, c)`, keeps it.
            config: The defaults of every job of the table.
            maintenance: As in `lancemem.create_table`.
            merge_engine: As in `lancemem.enable`.
            sequence_by: As in `lancemem.enable`.
            aggregates: As in `lancemem.enable`.
            merge_functions: As in `lancemem.enable`.
            sequence_groups: As in `lancemem.enable`.
            deletes: As in `lancemem.enable`.
            delete_retention: As in `lancemem.enable`.

        Returns:
            The table.

        Raises:
            TableNotFoundError: There is no table at `uri`.
            InvalidInputError: The table has no primary key, or another sharding, another merge rule
                or other settings.

        Example:
            table = LancememTable.enable(spark, "/data/flights.lance")
        """
        table = lancemem.enable(
            uri,
            sharding=sharding,
            config=config,
            maintenance=maintenance,
            merge_engine=merge_engine,
            sequence_by=sequence_by,
            aggregates=aggregates,
            merge_functions=merge_functions,
            sequence_groups=sequence_groups,
            deletes=deletes,
            delete_retention=delete_retention,
        )
        return cls(spark, table)

    @property
    def uri(self) -> str:
        """The address of the table."""
        return self._table.uri

    @property
    def schema(self) -> pa.Schema:
        """The table's Arrow schema, as its last read or write, or `refresh`, saw it."""
        return pa.schema(self._table.schema)

    @property
    def primary_key(self) -> list[str]:
        """The columns of the primary key, in order."""
        return list(self._table.primary_key)

    @property
    def handle(self) -> lancemem.Table:
        """The driver's handle of the table, for calls without a verb here."""
        return self._table

    def refresh(self) -> LancememTable:
        """Read the newest version, so that `schema` has its columns.

        Returns:
            This object.
        """
        self._table.refresh()
        return self

    def alias(self, name: str) -> LancememTable:
        """Name the table for the condition of a merge and for the columns of `toDF`, as in Delta.

        Args:
            name: The alias.

        Returns:
            The same table, with its running jobs and streams, under that name.

        Example:
            table.alias("t").merge(source.alias("s"), "t.id = s.id")
        """
        named = copy(self)
        named._alias = name  # noqa: SLF001 - the same class
        return named

    def upsert(  # noqa: PLR0913 - all but one by name
        self,
        rows: DataFrame,
        *,
        sequence_by: str | None = None,
        replace: bool = False,
        nulls: Literal["set", "keep"] | None = None,
        round_floats: bool = False,
        merge_schema: bool = False,
        ignore_extra_columns: bool = False,
        txn_app_id: str | None = None,
        txn_version: int | None = None,
    ) -> UpsertResult:
        """Insert rows, or replace those whose key the table holds.

        A row takes the place of the stored row of its key as a whole. In a table whose
        `merge_engine` is "partial_update" or "aggregation" it is merged with that row, and `rows`
        may have the key and some of the other columns. Doubles of a vector are rounded to the
        nearest float.

        Args:
            rows: A DataFrame with every column of the table, or with some of them, as above.
            sequence_by: The column that orders the versions of a key. Name it where `rows` holds a
                key more than once: the shuffle to shards keeps no order of its own.
            replace: As in `lancemem.Table.upsert`: whole rows, behind which earlier events of their
                keys count no more. `rows` has every column but those with `count`. Default: False.
            nulls: As in `lancemem.Table.upsert`: with "keep" a null leaves the column of a table
                with "partial_update" as it is. Default: "set".
            round_floats: Round doubles of other `float` columns too. Default: False.
            merge_schema: Add columns that the table does not have to the table, as Delta's
                `mergeSchema`. They are null in older rows. Needs pylance on the driver. Default:
                False.
            ignore_extra_columns: Leave out columns that the table does not have. Default: False,
                they are an error.
            txn_app_id: An application, as in Delta. Goes with `txn_version`.
            txn_version: A version of the application. A shard that has taken this version takes
                nothing.

        Returns:
            The numbers of rows, shards, WAL entries and SSTables written.

        Raises:
            StaleTxnError: A shard has taken a newer version of the application.
            InvalidInputError: The rows cannot be stored, have a column that the table does not
                have, or `replace` or `nulls` are not of the table's merge engine.

        Example:
            table.upsert(rows, sequence_by="updated_at")
            orders.upsert(payments, nulls="keep")
        """
        self._settle_extra(rows, [sequence_by], ignores=ignore_extra_columns, merges=merge_schema)
        plan = self._upsert_plan(rows, replace=replace, nulls=nulls, round_floats=round_floats)
        txn = transactions.of_application(txn_app_id, txn_version)
        with self._described("upsert into"):
            reports = self._write(rows, plan, sequence_by, txn)
        return UpsertResult(total(reports, "rows"), *places(reports))

    def update(
        self,
        condition: Column | str | None = None,
        set: Mapping[str, Column | str] | None = None,  # noqa: A002 - Delta's name
        *,
        round_floats: bool = False,
        txn_app_id: str | None = None,
        txn_version: int | None = None,
    ) -> UpsertResult:
        """Change columns of the rows that meet a condition, as in Delta.

        The rows are read, and written by key. **A change that another writer makes to one of them
        meanwhile is overwritten.** In a table with `merge_engine="partial_update"` the columns that
        change are written alone, so the other columns keep such a change. An update that computes
        with stored values must not be written twice: give it a transaction id where it may be
        repeated.

        Args:
            condition: Spark's SQL, or a Column. Default: every row.
            set: The new value of each column that changes, as Spark's SQL or a Column over the row
                before the update. Text is quoted in SQL: `"'new'"`.
            round_floats: As in `upsert`.
            txn_app_id: As in `upsert`.
            txn_version: As in `upsert`.

        Returns:
            The numbers of rows, shards, WAL entries and SSTables written.

        Raises:
            InvalidInputError: `set` is empty, names a column of the primary key or no column of the
                table, or a column cannot hold its value; or the table has no primary key, or a
                merge engine that does not take it (docs/merge-engines.md).
            StaleTxnError: A shard has taken a newer version of the application.

        Example:
            table.update("category = 'book'", {"price": "price * 1.1"})
        """
        key = self._key("update")
        refuse_by_rule(self._table, "an update")
        rows = conditions.updated_rows(
            self.refresh(), condition, set or {}, round_floats=round_floats
        )
        plan = writer.WritePlan(tuple(rows.columns), key, round_floats=round_floats)
        txn = transactions.of_application(txn_app_id, txn_version)
        with self._described("update of"):
            reports = self._write(rows, plan, None, txn)
        return UpsertResult(total(reports, "rows"), *places(reports))

    def retract(
        self,
        rows: DataFrame,
        *,
        round_floats: bool = False,
        ignore_extra_columns: bool = False,
        txn_app_id: str | None = None,
        txn_version: int | None = None,
    ) -> UpsertResult:
        """Take rows back: subtract their values from sums, and 1 from each count.

        As `lancemem.Table.retract`: the table has `merge_engine="aggregation"` and
        `deletes="retract"`.

        Args:
            rows: The rows as they were written: the key and the columns that have a sum. A column
                with `count` is left out.
            round_floats: As in `upsert`.
            ignore_extra_columns: As in `upsert`.
            txn_app_id: As in `upsert`.
            txn_version: As in `upsert`.

        Returns:
            The numbers of rows, shards, WAL entries and SSTables written.

        Raises:
            StaleTxnError: A shard has taken a newer version of the application.
            InvalidInputError: The table has another engine or other `deletes`, or the rows cannot
                be taken back.

        Example:
            table.retract(cancelled.select("sku", "paid"))
        """
        refuse_retract(self._table)
        self._settle_extra(rows, [], ignores=ignore_extra_columns, merges=False)
        names = given_columns(self.handle, rows.columns)
        key = tuple(self.primary_key)
        plan = writer.WritePlan(names, key, deletes=True, round_floats=round_floats)
        txn = transactions.of_application(txn_app_id, txn_version)
        with self._described("retract from"):
            reports = self._write(rows, plan, None, txn)
        return UpsertResult(total(reports, "rows"), *places(reports))

    def delete(
        self,
        keys: DataFrame | Column | str | None = None,
        *,
        condition: Column | str | None = None,
        txn_app_id: str | None = None,
        txn_version: int | None = None,
    ) -> DeleteResult:
        """Delete rows by key, or by a condition as in Delta.

        With a condition, the keys of the rows that meet it are read first. A row that another
        writer changes or adds meanwhile is deleted or kept by what was read. In a table with
        `deletes="retract"` the call takes rows back, as `retract` does.

        Args:
            keys: A DataFrame with the key columns, whose other columns are ignored unless the call
                takes rows back; or the condition.
            condition: Spark's SQL, or a Column.
            txn_app_id: As in `upsert`.
            txn_version: As in `upsert`.

        Returns:
            The numbers of keys, shards, WAL entries and SSTables written.

        Raises:
            StaleTxnError: A shard has taken a newer version of the application.
            InvalidInputError: The keys or the condition cannot be used, both or neither are given,
                the table has no primary key, or a condition is given for a table with
                `deletes="retract"`.

        Example:
            table.delete(rows.where("cancelled"))
            table.delete("arrived < '2024-01-01'")
        """
        key = self._key("delete")
        if isinstance(keys, Column | str) and condition is None:
            keys, condition = None, keys
        if (keys is None) == (condition is None):
            raise lancemem.InvalidInputError(
                f"table {self.uri}: delete takes a DataFrame of keys or a condition; to delete all "
                "rows pass the condition 'true'"
            )
        if condition is not None:
            refuse_delete_where(self._table)
            keys = conditions.keys_where(self.refresh(), condition)
        if not isinstance(keys, DataFrame):
            kind = type(keys).__name__
            raise TypeError(f"delete takes a DataFrame of keys or a condition, got {kind}")
        names = given_columns(self._table, keys.columns) if takes_back(self._table) else key
        plan = writer.WritePlan(names, key, deletes=True)
        txn = transactions.of_application(txn_app_id, txn_version)
        self._check_has(keys, key)
        with self._described("delete from"):
            reports = self._write(keys.select(*map(quoted, names)), plan, None, txn)
        return DeleteResult(total(reports, "deletes"), *places(reports))

    def merge(self, source: DataFrame, condition: Column | str) -> MergeBuilder:
        """Start a merge, which `execute` runs.

        Args:
            source: The DataFrame to merge into the table.
            condition: Equality of the whole primary key, as text. Its aliases name the table and
                the source in the clauses. After `alias` that name is the table's.

        Returns:
            A builder for the clauses.

        Raises:
            InvalidInputError: `condition` is anything else, or the merge engine of the table does
                not take it (docs/merge-engines.md).

        Example:
            merge = table.merge(source, "t.id = s.id").whenMatchedDelete("s.op = 'D'")
            merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
        """
        refuse_by_rule(self._table, "a merge")
        return MergeBuilder(self.refresh(), source, condition)

    def apply_changes(  # noqa: PLR0913 - all but one by name
        self,
        changes: DataFrame,
        *,
        op_column: str | None = None,
        sequence_by: str | None = None,
        keep_newest: bool = False,
        round_floats: bool = False,
        merge_schema: bool = False,
        ignore_extra_columns: bool = False,
        txn_app_id: str | None = None,
        txn_version: int | None = None,
    ) -> ChangesResult:
        """Apply changes: upserts and deletes, as the operation of each row requires.

        Operations are I, U and D, small and as words; Debezium's c and r; the change types of
        Delta; the row kinds of Flink and Paimon. The row before an update is left out. Any other
        operation, and a null, is an error. In a table with `sequence_by` a delete has the sequence
        of its row. In a table with `deletes="retract"` deletes and rows before an update are taken
        back, so that sums follow the rows. The rows of a change feed of lancemem or of Delta are
        taken as they are, without `op_column` and `sequence_by`.

        Changes that the driver writes are checked before any is written. Where tasks write, one
        task may refuse the changes of its shard when other shards are written. With `txn_app_id`
        and `txn_version` the repeated call writes only the others.

        Args:
            changes: A DataFrame with the columns of the table and the two columns below. A delete
                needs only its key, and in a table with `sequence_by` its sequence; its other
                columns may be null. Where the table's rule makes a row of several puts, some of
                the columns will do.
            op_column: The column of operations. Default: `_change_type` of a change feed.
            sequence_by: The column by which the changes of a key take effect in order. Default:
                `_commit_version` of a change feed.
            keep_newest: `sequence_by` is a column of the table too, and a change that is older than
                the stored row of its key is left out: events may come in any order, in any call. A
                null is older than any value. A deleted row has no sequence any more, so a late
                change brings it back. A table with that `sequence_by` needs no `keep_newest`, reads
                nothing for it, and counts no late changes. Default: False.
            round_floats: As in `upsert`.
            merge_schema: As in `upsert`.
            ignore_extra_columns: As in `upsert`.
            txn_app_id: As in `upsert`.
            txn_version: As in `upsert`.

        Returns:
            The numbers of upserts, deletes, shards, WAL entries and SSTables written.

        Raises:
            StaleTxnError: A shard has taken a newer version of the application.
            InvalidInputError: A change cannot be applied, or the table has
                `merge_engine="aggregation"` without `deletes="retract"`.

        Example:
            table.apply_changes(changes, op_column="op", sequence_by="lsn")
            mirror.apply_changes(table.changes(since=41))
        """
        if sequence_by is None:
            changes = in_arrival_order(changes)
        op_column, sequence_by, read = feed_columns(changes.columns, op_column, sequence_by)
        if op_column is None or sequence_by is None:
            raise lancemem.InvalidInputError(
                f"table {self.uri}: changes need op_column, the column of operations, and "
                "sequence_by, the column that orders them; only the rows of a change feed have "
                "columns for both by themselves"
            )
        self._settle_extra(changes, read, ignores=ignore_extra_columns, merges=merge_schema)
        plan = self._changes_plan(
            changes, op_column, sequence_by, keep_newest=keep_newest, round_floats=round_floats
        )
        txn = transactions.of_application(txn_app_id, txn_version)
        with self._described("changes into"):
            reports = self._write(changes, plan, sequence_by, txn)
        deletes = total(reports, "deletes")
        return ChangesResult(
            total(reports, "rows") - deletes,
            deletes,
            *places(reports),
            num_late_changes=total(reports, "late"),
        )

    def stream_upsert(  # noqa: PLR0913 - one argument a property of the stream, all but one by name
        self,
        rows: DataFrame,
        *,
        checkpoint: str,
        trigger: str | Mapping[str, str | bool] | None = None,
        op_column: str | None = None,
        sequence_by: str | None = None,
        keep_newest: bool = False,
        replace: bool = False,
        nulls: Literal["set", "keep"] | None = None,
        round_floats: bool = False,
        merge_schema: bool = False,
        ignore_extra_columns: bool = False,
        query_name: str | None = None,
        output_mode: Literal["update", "append"] = "update",
    ) -> StreamingQuery:
        """Start a query that writes each micro-batch of `rows` exactly once.

        Each progress of the query has `observedMetrics["lancemem"]`: `num_rows` of the micro-batch;
        `newest`, the largest `sequence_by` of its rows; and where that is a timestamp `lag_ms`, how
        much older it is than the batch, in milliseconds.

        Args:
            rows: A streaming DataFrame.
            checkpoint: The folder of the query's checkpoint.
            trigger: An interval such as "1 second", or the arguments of Spark's `trigger`.
            op_column: The column of operations: the rows are changes as in `apply_changes`.
                Default: that of a change feed; other rows are upserts.
            sequence_by: As in `upsert`. Changes need it.
            keep_newest: As in `apply_changes`.
            replace: As in `upsert`. Does not go with changes.
            nulls: As in `upsert`. Does not go with changes.
            round_floats: As in `upsert`.
            merge_schema: As in `upsert`, once: before the query starts.
            ignore_extra_columns: As in `upsert`.
            query_name: As Spark's `queryName`.
            output_mode: Spark's output mode. Some queries, such as an outer join of two streams,
                return their rows in "append" only. Default: "update".

        Returns:
            The running query.

        Raises:
            InvalidInputError: An argument cannot be used, or `rows` lacks a column.

        Example:
            query = table.stream_upsert(rows, checkpoint="/data/checkpoint", trigger="1 second")
        """
        if output_mode not in {"update", "append"}:
            raise lancemem.InvalidInputError(
                f"output_mode is 'update' or 'append', got {output_mode!r}: each micro-batch has "
                "the rows that are new or changed"
            )
        op_column, sequence_by, read = feed_columns(rows.columns, op_column, sequence_by)
        self._settle_extra(rows, read, ignores=ignore_extra_columns, merges=merge_schema)
        refuse_mode(self._table, replace=replace, nulls=nulls, changes=op_column is not None)
        if op_column is None and not keep_newest:
            plan = self._upsert_plan(rows, replace=replace, nulls=nulls, round_floats=round_floats)
        elif sequence_by is None:
            raise lancemem.InvalidInputError(
                "changes need sequence_by, the column that orders them"
            )
        else:
            plan = self._changes_plan(
                rows, op_column, sequence_by, keep_newest=keep_newest, round_floats=round_floats
            )
            plan = replaced(plan, replace=replace, nulls=nulls)
        self._check_has(rows, _needed(plan, sequence_by))
        self._check_order(rows, plan, sequence_by)
        query = stream.start(
            self, rows, plan, sequence_by, checkpoint, trigger, query_name, output_mode
        )
        active = [each for each in self._running.streams if each.isActive]
        self._running.streams = [*active, query]
        return query

    def start_jobs(
        self,
        config: lancemem.WriterConfig | None = None,
        *,
        maintenance: lancemem.MaintenanceConfig | bool | None = None,
    ) -> ShardJobs:
        """Keep the jobs of this table's shards between the writes of this object.

        While they run, the driver's jobs take small writes and micro-batches into their MemTables.
        The first rows of a shard claim it. Later ones claim nothing, read no log again and leave
        only entries of the log behind. Small is 1 MiB or less by Spark's estimate, or 16,384 rows
        and 16 MiB or less where Spark has no estimate. Tasks do larger writes and claim the shards;
        the next small write takes them back.

        Args:
            config: The settings of the jobs.
            maintenance: Whether and when the jobs compact beside the writes, as in
                `lancemem.Table.start_job`.

        Returns:
            The jobs, a context manager. Close them after the queries that write through them.

        Raises:
            InvalidInputError: The jobs of this object run already.

        Example:
            with table.start_jobs():
                table.upsert(rows)
        """
        if self._running_jobs() is not None:
            raise lancemem.InvalidInputError(
                f"table {self.uri}: the jobs of this object run already; close them first"
            )
        self._running.jobs = ShardJobs(self._table, config, maintenance)
        return self._running.jobs

    def toDF(  # noqa: N802, PLR0913 - Delta's name; all but three by name
        self,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        consistency: reader.Consistency = "durable",
        *,
        splits: int | None = None,
        jobs: Mapping[int, lancemem.Endpoint] | Iterable[lancemem.Endpoint] | None = None,
        tls_root_certificates: str | PathLike[str] | None = None,
    ) -> DataFrame:
        """Read the table as a DataFrame.

        One task reads a small table, and each query of the DataFrame reads it as it is then. Tasks
        divide a large table, by fragments of the base table and by rows of SSTables, and all
        queries of the DataFrame read the snapshot that this call takes. `splits=1` is one task for
        a large table too.

        Args:
            columns: The columns of the DataFrame. Default: all of them.
            where: A SQL filter that the engine applies.
            consistency: "flushed" or "durable", as in `lancemem.Table.scan`. "live" also reads the
                MemTables of `jobs`; without `jobs` it reads what "durable" reads, as Spark's tasks
                hold no job's MemTables.
            splits: The maximum number of tasks. Default: one for each 32 MiB that are stored, at
                most four for each of Spark's processors, or one for each 128 MiB where these are
                more.
            jobs: Endpoints of running jobs, such as `ShardJobs.endpoints`, for a "live" read. The
                task connects to their addresses. The read fails where one of the jobs has ended.
                Does not go with `splits` above 1.
            tls_root_certificates: As in `lancemem.connect_job`; a path on every node.

        Returns:
            The DataFrame.

        Raises:
            InvalidInputError: `splits` is less than 1, `jobs` comes with another consistency or
                with `splits`, or another argument cannot be used.
            RetryableError: No server answers at the address of an endpoint.

        Example:
            table.toDF(columns=["id", "delay"], where="delay > 15").count()
            table.toDF(consistency="live", jobs=running.serve()).count()
        """
        if splits is not None and splits < 1:
            raise lancemem.InvalidInputError(f"splits is at least 1, got {splits}")
        if isinstance(where, Column):
            raise lancemem.InvalidInputError(
                "where= of toDF is SQL text, by which the engine leaves rows out; a Column "
                "of Spark goes behind the read: toDF().where(column)"
            )
        table = self.refresh().handle
        live = reader.live_jobs(jobs, consistency, splits, tls_root_certificates)
        rows = reader.read_table(self._spark, table, columns, where, consistency, splits, live)
        return rows if self._alias is None else rows.alias(self._alias)

    def commit(
        self,
        reports: DataFrame,
        *,
        txn_app_id: str | None = None,
        txn_version: int | None = None,
    ) -> lancemem.CommitResult:
        """Run tasks that write with `task_writer`, and commit the rows of all of them.

        In each shard all rows appear at once, together with the transaction id. Repeated tasks are
        harmless: of each task the rows of one run are committed. A repeated call is harmless with a
        transaction id. In the function of `foreachBatch` that is the id of the query and the number
        of the micro-batch; a second commit of the same micro-batch needs a name of its own, such as
        the id with a suffix, because a shard takes an id once.

        Args:
            reports: The DataFrame of `mapInArrow(function, TASK_REPORT)`, whose function yields the
                report of its writer.
            txn_app_id: As in `upsert`.
            txn_version: As in `upsert`.

        Returns:
            The numbers of rows, shards and SSTables committed.

        Raises:
            InvalidInputError: `reports` has other columns.
            StaleTxnError: A shard has taken a newer version of the application.

        Example:
            def write_batch(rows, batch_id):
                query_id = streaming_query_id(rows.sparkSession)
                reports = rows.mapInArrow(score, TASK_REPORT)
                table.commit(reports, txn_app_id=query_id, txn_version=batch_id)

            rows.writeStream.foreachBatch(write_batch).start()
        """
        txn = transactions.of_application(txn_app_id, txn_version)
        with self._described("commit into"), own_errors():
            check_workers(self._spark)
            # It creates shards that another program's sharding lacks, before the tasks read them.
            writer.try_again(self._table.bulk_writer, writer.FAULTS)
            sstables = bulk.sstables_of(reports)
            return bulk.commit(self._table, sstables, txn or transactions.once())

    def lookup(self, keys: DataFrame, columns: Sequence[str] | None = None) -> DataFrame:
        """Read the rows with the keys in `keys`, by key and not by a scan.

        A key that comes twice may return its row twice.

        Args:
            keys: A DataFrame with the key columns. Keys without a row, and rows with a null in the
                key, are left out.
            columns: The columns of the DataFrame. Default: all of them.

        Returns:
            The DataFrame.

        Raises:
            InvalidInputError: `keys` lacks a key column, or the table has no primary key.

        Example:
            table.lookup(keys, columns=["id", "delay"])
        """
        self._check_has(keys, self._key("lookup"))
        return reader.lookup(keys, self.refresh().handle, columns)

    def history(self, limit: int | None = None) -> DataFrame:
        """Describe the newest versions of the base table, newest first, as Delta's `history`.

        Upserts make no version: rows reach the base table with a compaction, which has
        `num_compacted_shards` above 0.

        Args:
            limit: The maximum number of versions. Default: all of them.

        Returns:
            A DataFrame with a row for each version.
        """
        versions = [
            (each.version, each.timestamp, each.operation, each.num_compacted_shards)
            for each in self._table.history(limit)
        ]
        return self._spark.createDataFrame(versions, HISTORY_DDL)

    def stats(self) -> LancememTableStats:
        """Return the table's counters, and how far the streams of this object are.

        Returns:
            The counters of the table and of running jobs, and the progress of the streams that run
                and
            of the stream that was started last.
        """
        streams = tuple(stream.progress(query) for query in self._running.streams)
        jobs = self._running_jobs()
        return LancememTableStats(
            self._table.stats(), streams, {} if jobs is None else jobs.stats()
        )

    def shards(self) -> list[lancemem.Shard]:
        """Describe every shard."""
        return self._table.shards()

    def _running_jobs(self) -> ShardJobs | None:
        jobs = self._running.jobs
        return None if jobs is None or jobs.closed else jobs

    def _described(self, verb: str) -> AbstractContextManager[None]:
        return described(self._spark, verb, self.uri)

    def _settle_extra(
        self, rows: DataFrame, read: Sequence[str | None], *, ignores: bool, merges: bool
    ) -> None:
        """Read the newest columns, and see to columns that the table does not have."""
        table, named = self.refresh().handle, [name for name in read if name is not None]
        settle_extra(table, rows.schema, named, ignores=ignores, merges=merges)

    def _upsert_plan(
        self,
        rows: DataFrame,
        *,
        replace: bool,
        nulls: Literal["set", "keep"] | None,
        round_floats: bool,
    ) -> writer.WritePlan:
        table, key = self._table, tuple(self.primary_key)
        refuse_mode(table, replace=replace, nulls=nulls, changes=False)
        columns = replaced_columns if replace else given_columns
        return writer.WritePlan(
            columns(table, rows.columns),
            key,
            replace=replace,
            nulls=nulls,
            round_floats=round_floats,
        )

    def _changes_plan(
        self,
        changes: DataFrame,
        op_column: str | None,
        sequence_by: str,
        *,
        keep_newest: bool,
        round_floats: bool,
    ) -> writer.WritePlan:
        table = self.refresh().handle
        refuse_changes(table)
        if keep_newest and sequence_by not in self.schema.names:
            raise lancemem.InvalidInputError(
                f"table {self.uri} has no column {sequence_by!r}, by which keep_newest compares "
                "a change with the stored row"
            )
        if keep_newest and takes_back(table):
            raise lancemem.InvalidInputError(
                f"table {self.uri} has deletes='retract': a sum counts every change, and "
                "keep_newest would leave late ones out; leave keep_newest out"
            )
        # A table that orders events itself needs no look at the stored row.
        compares = keep_newest and not orders_by(table, sequence_by)
        return writer.WritePlan(
            given_columns(table, changes.columns),
            tuple(self.primary_key),
            op_column=op_column,
            takes_back=takes_back(table),
            newer_by=sequence_by if compares else None,
            round_floats=round_floats,
        )

    def _write(
        self,
        rows: DataFrame,
        plan: writer.WritePlan,
        sequence_by: str | None,
        txn: transactions.Txn | None = None,
        *,
        size: int | None = None,
    ) -> list[Report]:
        """Route, write with one task for each shard, and return the report of each task.

        `size` is the caller's estimate of their bytes; the default is Spark's.
        """
        needed = _needed(plan, sequence_by)
        self._check_has(rows, needed)
        self._check_order(rows, plan, sequence_by)
        sharding = self._table.sharding
        if sharding is None:
            raise lancemem.InvalidInputError(
                f"table {self.uri} has no sharding, so its rows cannot be routed"
            )
        rows = rows.select(*map(quoted, needed))
        if txn is None:
            txn = transactions.once()
        jobs = self._running_jobs()
        size = estimated_bytes(rows) if size is None else size
        with own_errors(), _few_rows(rows, size, peek=jobs is not None) as (rows, few):
            if few is not None:
                # Two shuffled stages with Python workers take longer than the driver's write of a
                # small batch.
                return writer.write_here(self._table, plan, few, sequence_by, txn, jobs)
            if jobs is not None:
                # The tasks claim the shards.
                jobs.release()
            check_workers(self._spark)
            # A table whose MemWAL index another program made may have no shards. This creates them
            # before the tasks read them.
            writer.try_again(self._table.bulk_writer, writer.FAULTS)
            routed = shuffle.partition_by_shard(
                rows, self.uri, self.primary_key, sharding.num_shards, sequence_by
            )
            task = writer.shard_writer(self.uri, plan, txn)
            written = map_in_arrow(routed, task, writer.REPORT_DDL)
            return [report.asDict() for report in written.collect()]

    def _key(self, verb: str) -> tuple[str, ...]:
        """Return the key columns, for a verb that needs them."""
        if not self.primary_key:
            raise lancemem.InvalidInputError(
                f"table {self.uri} has no primary key; {verb} needs one"
            )
        return tuple(self.primary_key)

    def _check_has(self, rows: DataFrame, columns: Sequence[str]) -> None:
        missing = [name for name in columns if name not in rows.columns]
        if missing:
            raise lancemem.InvalidInputError(
                f"table {self.uri}: the DataFrame has no column {missing[0]!r}"
            )

    def _check_order(
        self, rows: DataFrame, plan: writer.WritePlan, sequence_by: str | None
    ) -> None:
        """Refuse a sequence that Spark and Arrow order differently, or that has no order."""
        if sequence_by is None:
            return
        ordered = rows.schema[sequence_by].dataType
        collation = getattr(ordered, "collation", "UTF8_BINARY")
        if isinstance(ordered, _UNORDERED) or collation != "UTF8_BINARY":
            raise lancemem.InvalidInputError(
                f"table {self.uri}: sequence_by names column {sequence_by!r} of type "
                f"{ordered.simpleString()}; versions are ordered by a number, a date, a time, or "
                "text without a collation"
            )
        if plan.newer_by is None:
            return
        stored = pa.schema(self._table.schema).field(plan.newer_by).type
        try:
            pc.less(pa.nulls(0, stored), pa.nulls(0, stored))
        except pa.ArrowNotImplementedError:
            raise lancemem.InvalidInputError(
                f"table {self.uri}: keep_newest cannot compare values of column "
                f"{plan.newer_by!r}, whose type is {stored}"
            ) from None


def _needed(plan: writer.WritePlan, sequence_by: str | None) -> list[str]:
    """List the columns that a write reads, each once."""
    names = (*plan.columns, plan.op_column, sequence_by)
    return list(dict.fromkeys(name for name in names if name is not None))


@contextmanager
def _few_rows(
    rows: DataFrame, size: int, *, peek: bool
) -> Iterator[tuple[DataFrame, pa.Table | None]]:
    """Return the DataFrame to write, and its rows where they are few enough for the driver.

    A DataFrame that exceeds its estimate is computed again by the tasks: the driver has written
    none of its rows. With `peek` the driver also tries a DataFrame of unknown size, which is
    persisted and so computed once.
    """
    if size <= DRIVER_BYTES:
        yield rows, to_arrow_within(rows, DRIVER_PEEK_BYTES)
        return
    if not peek or size < UNKNOWN_BYTES:
        yield rows, None
        return
    was_kept = rows.storageLevel != StorageLevel.NONE
    kept = rows.persist()
    try:
        # A new plan: the plan of `rows` may have been made before `rows` was persisted.
        few = to_arrow_within(kept.select("*"), DRIVER_PEEK_BYTES)
        yield kept, few if few is not None and few.num_rows <= DRIVER_ROWS else None
    finally:
        # A DataFrame that the user persisted stays persisted.
        if not was_kept:
            kept.unpersist()


def _parsed(schema: str) -> StructType:
    parsed = StructType.fromDDL(schema)
    if not isinstance(parsed, StructType):
        raise lancemem.InvalidInputError(f"the schema {schema!r} has no columns")
    return parsed
