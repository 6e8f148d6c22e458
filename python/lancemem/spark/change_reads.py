"""`LancememTable.changes`: the changes of a table as a DataFrame, and their way into another table.

Owns the call and its arguments, Delta's names among them, and which columns of a DataFrame are
the columns of a feed. Does not own the read: see `change_feed`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, cast

from pyspark.sql.functions import col

import lancemem
from lancemem.change_feed import refuse_level
from lancemem.change_rows import CHANGE_TYPE, COMMIT_VERSION, FEED_COLUMNS, INPUT_COLUMNS
from lancemem.spark import change_positions
from lancemem.spark.reader import num_cores

_, _, GENERATION, ROW = INPUT_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from datetime import datetime

    from pyspark.sql import DataFrame, SparkSession

    State = int | datetime


class ChangeReads:
    """The change feed of `LancememTable`."""

    _spark: SparkSession
    _table: lancemem.Table

    def changes(  # noqa: PLR0913 - each narrows the feed
        self,
        since: State | str | None = None,
        until: State | str | None = None,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        *,
        startingVersion: int | None = None,  # noqa: N803 - Delta's name
        endingVersion: int | None = None,  # noqa: N803
        level: str = "committed",
        skip_unchanged: bool = False,
        row_kinds: Literal["delta", "flink"] = "delta",
        splits: int | None = None,
    ) -> DataFrame:
        """Read the inserts, updates and deletes between two versions of the base table.

        Rows reach the base table with a compaction. The versions are fixed by this call: all
        queries of the DataFrame read the same changes. Tasks divide them by fragments.

        Args:
            since: The version that the caller has: the feed starts behind it. A datetime is the
                newest version that was committed by then. Default: every row of `until` is an
                insert.
            until: The version that the feed reaches, or a datetime. Default: the newest version.
            columns: Columns of the table in the result. Default: all.
            where: A SQL filter that the engine applies. It sees both images of an update.
            startingVersion: Delta's name: the first version whose changes are read, `since` + 1.
            endingVersion: Delta's name: `until`.
            level: "committed", "flushed" or "input", as in `lancemem.Table.changes`. With the last
                two `since` and `until` are positions, and a task reads a shard. Without `since`
                level "input" reads what no compaction has moved when a task reads it.
            skip_unchanged: As in `lancemem.Table.changes`.
            row_kinds: As in `lancemem.Table.changes`.
            splits: The maximum number of tasks. Default: as many as Spark has processors.

        Returns:
            A DataFrame of the columns, `_change_type`, `_commit_version` and `_commit_timestamp`.
            At the other levels `_shard`, `_generation` and at level "input" `_row` follow
            `_change_type`.

        Raises:
            ChangesExpiredError: The version of `since` was cleaned up.
            ChangesUnavailableError: The changes of a version cannot be derived.
            InvalidInputError: A version never was, `since` is after `until`, an argument cannot be
                used, or an end is given by both of its names.

        Example:
            table.changes(since=41).groupBy("_change_type").count().show()
            mirror.apply_changes(table.changes(since=41))
        """
        since = _either(since, startingVersion, "since", "startingVersion", minus=1)
        until = _either(until, endingVersion, "until", "endingVersion")
        if splits is not None and splits < 1:
            raise lancemem.InvalidInputError(f"splits is at least 1, got {splits}")
        given: dict[str, object] = {
            "readChangeFeed": "true",
            "columns": None if columns is None else ",".join(columns),
            "where": where,
            "changelogLevel": level,
            "skipUnchanged": str(skip_unchanged).lower(),
            "rowKinds": row_kinds,
        }
        narrowed: dict[str, Any] = {
            "columns": columns,
            "filter": where,
            "skip_unchanged": skip_unchanged,
            "row_kinds": row_kinds,
        }
        if level in change_positions.LEVELS:
            given |= self._between_positions(since, until, level, narrowed, splits)
        else:
            refuse_level(level)
            given |= self._between_versions(since, until, narrowed)
            given["splits"] = splits or num_cores(self._spark)
        read = self._spark.read.format("lancemem")
        for name, value in given.items():
            if value is not None:
                read = read.option(name, str(value))
        return read.load(self._table.uri)

    def _between_versions(
        self, since: State | str | None, until: State | str | None, narrowed: dict[str, Any]
    ) -> dict[str, object]:
        """Return the options that fix the versions of a feed."""
        feed = self._table.changes(
            cast("State | None", since), cast("State | None", until), **narrowed
        )
        first = None if feed.since is None else feed.since + 1
        return {"startingVersion": first, "endingVersion": feed.until}

    def _between_positions(
        self,
        since: State | str | None,
        until: State | str | None,
        level: str,
        narrowed: dict[str, Any],
        splits: int | None,
    ) -> dict[str, object]:
        """Return the options that fix the positions of a feed."""
        if splits is not None:
            raise lancemem.InvalidInputError(
                f'a task reads the changes of one shard at level "{level}": leave out splits'
            )
        feed = self._table.changes(since, until, level=level, **narrowed)  # type: ignore[call-overload]
        return {"startingPosition": since, "endingPosition": feed.until}


def _either(
    own: State | str | None, given: int | None, name: str, delta_name: str, minus: int = 0
) -> State | str | None:
    """Return the end of a feed that was given by one of two names."""
    if given is None:
        return own
    if own is not None:
        raise lancemem.InvalidInputError(
            f"{name} and {delta_name} name the same end of a feed: give one of them"
        )
    if given < 0:
        raise lancemem.InvalidInputError(f"{delta_name} is at least 0, got {given}")
    return max(given - minus, 0)


def feed_columns(
    have: Collection[str], op_column: str | None, sequence_by: str | None
) -> tuple[str | None, str | None, list[str | None]]:
    """Return the columns of operations and of their order, and all columns that are no values.

    Rows with the columns of a change feed are changes where the caller names no other column:
    its deletes must not become upserts.
    """
    if op_column is None and CHANGE_TYPE in have:
        op_column = CHANGE_TYPE
    if op_column != CHANGE_TYPE:
        return op_column, sequence_by, [op_column, sequence_by]
    orders = (COMMIT_VERSION, ROW, GENERATION)
    sequence_by = sequence_by or next((name for name in orders if name in have), None)
    return op_column, sequence_by, [op_column, sequence_by, *FEED_COLUMNS, *INPUT_COLUMNS]


def in_arrival_order(changes: DataFrame) -> DataFrame:
    """Return changes whose `_row` orders the events of a key, where they are of level "input".

    A row number is of one generation, and has 32 bits.
    """
    if not {CHANGE_TYPE, GENERATION, ROW} <= set(changes.columns):
        return changes
    return changes.withColumn(ROW, col(GENERATION) * (1 << 32) + col(ROW))
