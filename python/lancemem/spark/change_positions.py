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
from lancemem.spark.arrow_types import arrow_schema, spark_arrow_schema, spark_schema
from lancemem.spark.broken_pipe import until_closed
from lancemem.spark.change_feed import flag, in_columns, refuse_other_types
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
    images: tuple[tuple[str, Any], ...]

    @classmethod
    def of(cls, given: Mapping[str, str]) -> PositionOptions:
        """Parse the options, of which Spark makes text; raise `InvalidInputError` for a bad one."""
        columns = given.get("columns")
        images: dict[str, Any] = {}
        if "skipUnchanged" in given:
            images["skip_unchanged"] = flag(given, "skipUnchanged")
        if "rowKinds" in given:
            images["row_kinds"] = given["rowKinds"]
        return cls(
            level=given["changelogLevel"],
            columns=tuple(name.strip() for name in columns.split(",")) if columns else None,
            where=given.get("where"),
            since=given.get("startingPosition"),
            until=given.get("endingPosition"),
            images=tuple(images.items()),
        )

    def feed(
        self,
        table: lancemem.Table,
        since: str | None,
        until: str | None,
        columns: Sequence[str] | None,
    ) -> FlushedFeed | InputFeed:
        """Describe changes of a table with these options."""
        given: dict[str, Any] = {"level": self.level, **dict(self.images)}
        changes = table.changes(since, until, columns, self.where, **given)
        return cast("FlushedFeed | InputFeed", changes)


def feed_schema(uri: str, options: Mapping[str, str]) -> StructType:
    """Return the columns of a feed in Spark, and check its options."""
    asked, table = PositionOptions.of(options), lancemem.open_table(uri)
    feed = asked.feed(table, asked.since, asked.until, _own_columns(table, asked.columns))
    schema = pa.schema(feed.schema)
    if asked.columns is not None:
        # The columns that a feed adds come in the order in which the option names them.
        added = [name for name in schema.names if name in INPUT_COLUMNS]
        added = [name for name in added if name not in asked.columns]
        schema = pa.schema([schema.field(name) for name in (*asked.columns, *added)])
    return spark_schema(spark_arrow_schema(schema))


def _own_columns(table: lancemem.Table, names: Sequence[str] | None) -> list[str] | None:
    """Return those of `names` that are columns of the table, or one column for none."""
    if names is None:
        return None
    own = [name for name in names if name not in INPUT_COLUMNS]
    return own or pa.schema(table.schema).names[:1]


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
        self._columns = _own_columns(table, self._schema.names)
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
