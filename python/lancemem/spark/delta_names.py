"""Delta's names for what a lancemem table has under a name of its own, or does not have.

Owns: `vacuum`, `detail` and `optimize`, and errors that name the way for calls of Delta that have
no counterpart. Does not own what the calls do: see `LancememTable`.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, NoReturn, cast

import lancemem
from lancemem.spark.job_description import table_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lancemem.spark.table import LancememTable

DETAIL_DDL = (
    "format string, name string, location string, lastModified timestamp, version long, "
    "primaryKey array<string>, numShards int, numBaseRows long, numSsTables long, "
    "numSsTableRows long, numLogRows long, logBytes long"
)


class DeltaNames:
    """The names of `DeltaTable` that `LancememTable` has besides its own."""

    _spark: SparkSession
    _table: lancemem.Table

    @classmethod
    def forName(cls, spark: SparkSession, tableOrViewName: str) -> NoReturn:  # noqa: N802, N803, ARG003 - Delta's names
        """Refuse: Spark's catalogue holds no lancemem table.

        Raises:
            InvalidInputError: Always.
        """
        raise lancemem.InvalidInputError(
            "a table of Spark's catalogue loses the path of a lancemem table, so a table has no "
            "name there: open it by its path, LancememTable.forPath(spark, path)"
        )

    def vacuum(
        self,
        retentionHours: float | None = None,  # noqa: N803 - Delta's name
    ) -> lancemem.CollectionResult:
        """Remove what no reader has needed for some hours: `collect_garbage` by Delta's name.

        Args:
            retentionHours: How long a thing must have been unneeded. Default: 1 hour.

        Returns:
            What was removed, each thing with its reason.

        Raises:
            InvalidInputError: As in `lancemem.Table.collect_garbage`.

        Example:
            table.vacuum(168)
        """
        older_than = None if retentionHours is None else timedelta(hours=retentionHours)
        return self._table.collect_garbage(older_than=older_than)

    def detail(self) -> DataFrame:
        """Describe the table in one row, as Delta's `detail`.

        `format`, `name`, `location` and `lastModified` are Delta's columns. The others count what a
        lancemem table has: rows and SSTables above the base table, and rows in logs.

        Returns:
            A DataFrame of one row.

        Example:
            table.detail().select("location", "numBaseRows").show()
        """
        table = self._table
        stats, newest = table.stats(), table.history(1)
        row = (
            "lancemem",
            table_name(table.uri),
            table.uri,
            newest[0].timestamp if newest else None,
            stats.base_version,
            list(table.primary_key),
            stats.num_shards,
            stats.num_base_rows,
            stats.num_sstables,
            stats.num_sstable_rows,
            stats.num_log_rows,
            stats.log_bytes,
        )
        return self._spark.createDataFrame([row], DETAIL_DDL)

    def optimize(self) -> OptimizeBuilder:
        """Start what Delta calls an optimization; `executeCompaction` is `compact`.

        Returns:
            A builder.

        Example:
            table.optimize().executeCompaction()
        """
        return OptimizeBuilder(cast("LancememTable", self))

    @staticmethod
    def isDeltaTable(spark: SparkSession, identifier: str) -> NoReturn:  # noqa: N802, ARG004 - Delta's name
        """Refuse: a lancemem table is no Delta table.

        Raises:
            InvalidInputError: Always. It names `lancemem.exists`.
        """
        raise lancemem.InvalidInputError(
            f"a lancemem table is no Delta table; lancemem.exists({identifier!r}) says whether one "
            "is there"
        )

    def restoreToVersion(self, version: int) -> NoReturn:  # noqa: N802, ARG002 - Delta's name
        """Refuse: rows above the base table belong to no version of it.

        Raises:
            InvalidInputError: Always.
        """
        raise lancemem.InvalidInputError(
            "a lancemem table is restored by Lance's own restore of the base table, with no writer "
            "running, and a repair after it: see docs/repair.md"
        )

    def restoreToTimestamp(self, timestamp: str) -> NoReturn:  # noqa: N802, ARG002 - Delta's name
        """Refuse, as `restoreToVersion` does.

        Raises:
            InvalidInputError: Always.
        """
        self.restoreToVersion(0)

    @classmethod
    def createIfNotExists(cls, *_: object, **__: object) -> NoReturn:  # noqa: N802 - Delta's name
        """Refuse: a table is created by one call, without a builder.

        Raises:
            InvalidInputError: Always. It names the calls.
        """
        raise lancemem.InvalidInputError(
            "a table has no builder: LancememTable.create(spark, path, schema=ddl, "
            "primary_key=...) creates one, where lancemem.exists(path) is False; forPath opens it, "
            'and lancemem.create_table(path, schema, mode="overwrite") replaces it'
        )

    createOrReplace = createIfNotExists  # noqa: N815 - Delta's name

    @classmethod
    def convertToDelta(cls, *_: object, **__: object) -> NoReturn:  # noqa: N802 - Delta's name
        """Refuse: files of Parquet are read and written once.

        Raises:
            InvalidInputError: Always. It names the calls.
        """
        raise lancemem.InvalidInputError(
            "create a table and upsert the rows of the files; lancemem.enable(path, "
            "primary_key=...) adds upserts to a table that is a Lance table already"
        )


class OptimizeBuilder:
    """What `LancememTable.optimize` returns."""

    def __init__(self, table: LancememTable) -> None:
        """Use `LancememTable.optimize`."""
        self._table = table

    def executeCompaction(self) -> lancemem.CompactionResult:  # noqa: N802 - Delta's name
        """Move what was flushed into the base table: `LancememTable.compact`.

        Returns:
            A report that lists what became of each SSTable, and why.
        """
        return self._table.compact()

    def where(self, partitionFilter: str) -> NoReturn:  # noqa: N803, ARG002 - Delta's name
        """Refuse: one commit compacts all shards.

        Raises:
            InvalidInputError: Always.
        """
        raise lancemem.InvalidInputError(
            "a compaction moves the SSTables of all shards in one commit, and has no condition: "
            "call executeCompaction() on optimize() itself"
        )

    def executeZOrderBy(self, *columns: str) -> NoReturn:  # noqa: N802, ARG002 - Delta's name
        """Refuse: files of a base table have no order of columns.

        Raises:
            InvalidInputError: Always.
        """
        raise lancemem.InvalidInputError(
            "a lancemem table has no Z-order: rows are found by their key (lookup); for conditions "
            "on other columns create an index of the base table (table.create_index(column, "
            "'BTREE')), and call executeCompaction()"
        )
