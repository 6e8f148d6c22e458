"""The changes of flushes and the events of logs in Spark: one task for each shard.

Owns the options of these two levels of a change feed, and how a feed is divided. Does not own level
"committed" (`change_feed`), or which rows are changes (`lancemem.Table.changes`).

A position of these levels is the text of `feed.until`: a format, then a position for each shard. A
feed between two positions that name one shard has the changes of that shard alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

import lancemem
from lancemem.change_rows import INPUT_COLUMNS
from lancemem.spark import transactions
from lancemem.spark.arrow_types import arrow_schema
from lancemem.spark.broken_pipe import until_closed
from lancemem.spark.change_feed import (
    column_names,
    flag,
    in_columns,
    own_columns,
    refuse_other_types,
    schema_in_order,
)
from lancemem.spark.tables import open_cached

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql.types import StructType

    from lancemem import FlushedFeed, InputFeed

LEVELS = ("flushed", "input")
OPTIONS = {
    "path",
    "readchangefeed",
    "changeloglevel",
    "columns",
    "where",
    "startingposition",
    "endingposition",
    "skipunchanged",
    "rowkinds",
}


def is_asked_for(options: Mapping[str, str]) -> bool:
    """Whether the options ask for a level that has positions instead of versions."""
    return options.get("changelogLevel") in LEVELS


@dataclass(frozen=True)
class PositionOptions:
    """The options of a feed with positions. Sent to tasks."""

    level: str
    columns: tuple[str, ...] | None
    where: str | None
    since: str | None
    until: str | None
    skip_unchanged: bool
    row_kinds: str

    @classmethod
    def of(cls, given: Mapping[str, str]) -> PositionOptions:
        """Parse the options, of which Spark makes text; raise `InvalidInputError` for a bad one."""
        return cls(
            level=given["changelogLevel"],
            columns=column_names(given),
            where=given.get("where"),
            since=given.get("startingPosition"),
            until=given.get("endingPosition"),
            skip_unchanged=flag(given, "skipUnchanged"),
            row_kinds=given.get("rowKinds", "delta"),
        )

    @property
    def added(self) -> tuple[str, ...]:
        """The columns that a feed adds."""
        return INPUT_COLUMNS if self.level == "input" else INPUT_COLUMNS[:-1]

    def feed(
        self,
        table: lancemem.Table,
        since: str | None,
        until: str | None,
        columns: Sequence[str] | None,
    ) -> FlushedFeed | InputFeed:
        """Describe changes of a table with these options."""
        given: dict[str, Any] = {
            "level": self.level,
            "skip_unchanged": self.skip_unchanged,
            "row_kinds": self.row_kinds,
        }
        changes = table.changes(since, until, columns, self.where, **given)
        return cast("FlushedFeed | InputFeed", changes)


def feed_schema(uri: str, options: Mapping[str, str]) -> StructType:
    """Return the columns of a feed in Spark, and check its options."""
    asked, table = PositionOptions.of(options), lancemem.open_table(uri)
    columns = own_columns(table, asked.columns, asked.added)
    feed = asked.feed(table, asked.since, asked.until, columns)
    return schema_in_order(pa.schema(feed.schema), asked.columns, asked.added)


class ShardPartition(InputPartition):
    """The changes of a shard between two positions, as they are sent to a task."""

    def __init__(self, index: int, since: str | None, until: str | None) -> None:
        super().__init__(index)
        self.since = since
        self.until = until


class PositionReader(DataSourceReader):
    """Reads the changes between two positions. A task reads a shard."""

    def __init__(self, uri: str, options: Mapping[str, str], schema: StructType) -> None:
        """Fix the end: every query of the DataFrame reads up to the same position."""
        table, self._options = lancemem.open_table(uri), PositionOptions.of(options)
        self._uri, self._schema = table.uri, arrow_schema(schema)
        self._columns = own_columns(table, self._schema.names, self._options.added)
        feed = self._options.feed(table, self._options.since, self._options.until, self._columns)
        self._until = feed.until
        refuse_other_types(uri, schema, pa.schema(feed.schema))
        self._driver_version = lancemem.__version__

    def partitions(self) -> Sequence[InputPartition]:
        """Divide the feed by shards."""
        divided = by_shard(self._options.since, self._until)
        parts = [ShardPartition(index, *ends) for index, ends in enumerate(divided)]
        # Spark's plan of a read has one partition at least.
        return parts or [ShardPartition(0, None, None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the changes of a shard."""
        transactions.check_version(self._driver_version)
        part = cast("ShardPartition", partition)
        if part.until is None:
            return iter(())
        table = open_cached(self._uri)
        feed = self._options.feed(table, part.since, part.until, self._columns)
        filled = (batch for batch in feed.to_batches() if batch.num_rows)
        return until_closed(in_columns(batch, self._schema) for batch in filled)


def by_shard(since: str | None, until: str) -> list[tuple[str | None, str]]:
    """Divide the range between two positions into one range for each shard of `until`."""
    form, *ends = until.split(",")
    starts = {} if since is None else {_shard(start): start for start in since.split(",")[1:]}
    ranges: list[tuple[str | None, str]] = []
    for end in ends:
        start = starts.get(_shard(end))
        own = None if since is None else ",".join([form] if start is None else [form, start])
        ranges.append((own, f"{form},{end}"))
    return ranges


def _shard(position: str) -> str:
    return position.partition(":")[0]
