"""Indexes of the base table, as `LancememTable` creates, lists, updates and drops them.

Owns the calls and the DataFrame of a listing. Does not own the indexes: see `lancemem.indexes`. All
of it runs on the driver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    import lancemem

INDEXES_DDL = (
    "name string, columns array<string>, type string, metric string, indexed_rows long, "
    "unindexed_rows long, segments int, unindexed_because string"
)


class IndexCalls:
    """The calls of `LancememTable` that are about indexes of the base table."""

    _spark: SparkSession
    _table: lancemem.Table

    def create_index(
        self,
        column: str,
        index_type: str,
        *,
        name: str | None = None,
        replace: bool = False,
        **options: Any,  # noqa: ANN401 - whatever lancemem.Table.create_index takes
    ) -> lancemem.TableIndex:
        """Create an index of a column of the base table. Runs on the driver.

        Rows above the base table are not in it: they are added by `compact(flush=True)` and
        `optimize_indexes`.

        Args:
            column: The column.
            index_type: As in `lancemem.Table.create_index`.
            name: The name. Default: that of the column and `_idx`.
            replace: Replace the index of that name. Default: False.
            options: The other options of `lancemem.Table.create_index`, by their names.

        Returns:
            The index.

        Raises:
            InvalidInputError: As in `lancemem.Table.create_index`.

        Example:
            table.create_index("carrier", "BITMAP")
        """
        return self._table.create_index(column, index_type, name=name, replace=replace, **options)

    def indexes(self) -> DataFrame:
        """List the indexes of the base table, by name.

        Returns:
            A DataFrame with a row for each index, and the columns of `lancemem.TableIndex`.

        Example:
            table.indexes().where("unindexed_rows > 0").show()
        """
        rows = [
            (
                each.name,
                each.columns,
                each.type,
                each.metric,
                each.indexed_rows,
                each.unindexed_rows,
                each.segments,
                each.unindexed_because,
            )
            for each in self._table.indexes()
        ]
        return self._spark.createDataFrame(rows, INDEXES_DDL)

    def drop_index(self, name: str) -> None:
        """Drop an index of the base table.

        Args:
            name: The name of the index.

        Raises:
            InvalidInputError: No index has that name.
        """
        self._table.drop_index(name)

    def optimize_indexes(
        self, names: Sequence[str] | str | None = None, *, num_indices_to_merge: int | None = None
    ) -> list[lancemem.OptimizedIndex]:
        """Add the rows of the base table that its indexes do not cover to them.

        Args:
            names: The names of the indexes. Default: all.
            num_indices_to_merge: As in `lancemem.Table.optimize_indexes`.

        Returns:
            The indexes that changed.

        Raises:
            InvalidInputError: No index has one of the names.

        Example:
            table.compact(flush=True)
            table.optimize_indexes()
        """
        return self._table.optimize_indexes(names, num_indices_to_merge=num_indices_to_merge)
