"""`LancememTable`: a lancemem table as Spark code uses it.

Owns the verbs of the Spark side and what they return. It holds a handle for the driver only: tasks
open the table by its URI, because a handle belongs to the process that opened it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import StructType

import lancemem
from lancemem.spark import reading, routing, writing
from lancemem.spark.arrow_types import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class UpsertResult:
    """What an upsert wrote. Which rows were new is not known at write time."""

    rows: int
    shards: int
    wal_entries: int


@dataclass(frozen=True)
class DeleteResult:
    """What a delete wrote. Keys that the table did not hold count as well."""

    rows: int
    shards: int
    wal_entries: int


@dataclass(frozen=True)
class ChangesResult:
    """What apply_changes wrote."""

    upserts: int
    deletes: int
    shards: int
    wal_entries: int


class LancememTable:
    """A lancemem table, bound to a Spark session."""

    def __init__(self, spark: SparkSession, table: lancemem.Table) -> None:
        """Bind an open table; most code uses `forPath` or `create`."""
        self._spark = spark
        self._table = table

    @classmethod
    def forPath(cls, spark: SparkSession, uri: str) -> LancememTable:  # noqa: N802 - Delta's name
        """Open the table at `uri`."""
        return cls(spark, lancemem.open_table(uri))

    @classmethod
    def create(  # noqa: PLR0913 - one argument a property of the table, all but two by name
        cls,
        spark: SparkSession,
        uri: str,
        *,
        schema: pa.Schema | StructType,
        primary_key: str | Sequence[str],
        sharding: lancemem.Sharding | None = None,
        config: lancemem.WriterConfig | None = None,
    ) -> LancememTable:
        """Create a table at `uri`; without `sharding` it has one shard."""
        if isinstance(schema, StructType):
            schema = arrow_schema(schema)
        key = [primary_key] if isinstance(primary_key, str) else list(primary_key)
        table = lancemem.create_table(
            uri,
            schema,
            primary_key=key,
            sharding=lancemem.unsharded() if sharding is None else sharding,
            config=config,
        )
        return cls(spark, table)

    @property
    def uri(self) -> str:
        """Where the table is."""
        return self._table.uri

    @property
    def schema(self) -> pa.Schema:
        """The table's Arrow schema."""
        return pa.schema(self._table.schema)

    @property
    def primary_key(self) -> list[str]:
        """The columns of the primary key, in order."""
        return list(self._table.primary_key)

    def upsert(self, rows: DataFrame, *, sequence_by: str | None = None) -> UpsertResult:
        """Insert rows, or replace those whose key the table holds.

        `rows` needs every column of the table. If it holds a key more than once, name the column
        that orders its versions in `sequence_by`: the shuffle to shards keeps no order of its own.
        """
        columns = self.schema.names
        self._check_has(rows, columns if sequence_by is None else [*columns, sequence_by])
        reports = self._write(rows, writing.upsert_steps(columns), sequence_by)
        return UpsertResult(_sum(reports, "upserts"), len(reports), _sum(reports, "wal_entries"))

    def delete(self, keys: DataFrame) -> DeleteResult:
        """Delete the rows with the keys in `keys`; its other columns are ignored."""
        key = self.primary_key
        self._check_has(keys, key)
        reports = self._write(keys.select(*key), writing.delete_steps(key), None)
        return DeleteResult(_sum(reports, "deletes"), len(reports), _sum(reports, "wal_entries"))

    def apply_changes(
        self, changes: DataFrame, *, op_column: str, sequence_by: str
    ) -> ChangesResult:
        """Apply a stream of changes: rows with op 'D' are deletes, all others are upserts.

        Within a key, changes take effect in the order of `sequence_by`. A delete needs only its
        key; its other columns may be null.
        """
        columns = self.schema.names
        self._check_has(changes, [*columns, op_column, sequence_by])
        steps_of = writing.change_steps(columns, self.primary_key, op_column)
        reports = self._write(changes, steps_of, sequence_by)
        return ChangesResult(
            _sum(reports, "upserts"),
            _sum(reports, "deletes"),
            len(reports),
            _sum(reports, "wal_entries"),
        )

    def toDF(  # noqa: N802 - Delta's name
        self,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        consistency: reading.Consistency = "durable",
    ) -> DataFrame:
        """Read the table as a DataFrame; `where` is an SQL filter that the engine applies.

        Spark reads in processes of its own, which hold no job's MemTables, so "live" finds there
        what "durable" finds.
        """
        return reading.read_table(self._spark, self._table, columns, where, consistency)

    def compact(self) -> lancemem.CompactionResult:
        """Move what was flushed into the base table; runs on the driver."""
        return self._table.compact()

    def stats(self) -> lancemem.TableStats:
        """Return the table's counters."""
        return self._table.stats()

    def _write(
        self,
        rows: DataFrame,
        steps_of: Callable[[pa.RecordBatch], Iterable[writing.Step]],
        sequence_by: str | None,
    ) -> list[dict[str, int]]:
        """Route, write with one task a shard, and return what each task reported."""
        sharding = self._table.sharding
        if sharding is None:
            raise lancemem.InvalidInputError(
                f"table {self.uri} has no sharding, so its rows cannot be routed"
            )
        routed = routing.partition_by_shard(
            rows, self.uri, self.primary_key, sharding.shards, sequence_by
        )
        written = routed.mapInArrow(writing.shard_writer(self.uri, steps_of), writing.REPORT_DDL)
        return [report.asDict() for report in written.collect()]

    def _check_has(self, rows: DataFrame, columns: Sequence[str]) -> None:
        missing = [name for name in columns if name not in rows.columns]
        if missing:
            raise lancemem.InvalidInputError(
                f"table {self.uri}: the DataFrame has no column {missing[0]!r}"
            )


def _sum(reports: list[dict[str, int]], name: str) -> int:
    return sum(report[name] for report in reports)
