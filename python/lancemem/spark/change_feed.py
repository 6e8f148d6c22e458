"""The changes of a table in Spark: the options of a read, its columns, and the read of a batch.

Owns what each option of a change feed means, the check of all of them before anything is read, and
the parts that tasks read. Does not own micro-batches (`change_stream`), or how changes are derived
(`lancemem.Table.changes`).

The options have Delta's names and meaning: `startingVersion` is the first version whose changes
are read. `since` of `lancemem.Table.changes` is the version before it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal, cast

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

import lancemem
from lancemem.change_feed import refuse_level
from lancemem.change_rows import FEED_COLUMNS
from lancemem.spark import transactions
from lancemem.spark.arrow_types import arrow_schema, cast_batch, spark_arrow_schema, spark_schema
from lancemem.spark.broken_pipe import until_closed
from lancemem.spark.tables import open_cached

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql.types import StructType

    from lancemem.change_feed import ChangeFeed, ChangeFeedPart

READ_CHANGE_FEED = "readChangeFeed"
_COMMON = {
    "path",
    "readchangefeed",
    "columns",
    "where",
    "splits",
    "changeloglevel",
    "startingversion",
    "startingtimestamp",
    "skipunchanged",
    "rowkinds",
}
BATCH_OPTIONS = _COMMON | {"endingversion", "endingtimestamp"}
STREAM_OPTIONS = _COMMON | {
    "consumer",
    "failondataloss",
    "maxversionspertrigger",
    "maxrowspertrigger",
    "maxbytespertrigger",
}


@dataclass(frozen=True)
class FeedOptions:
    """The options of a change feed, with the types of their values. Sent to tasks."""

    columns: tuple[str, ...] | None
    where: str | None
    level: str
    skip_unchanged: bool
    row_kinds: Literal["delta", "flink"]
    splits: int
    # The version or the time behind which the feed starts; None for all rows as inserts.
    since: int | datetime | None
    until: int | datetime | None
    consumer: str | None
    fails_on_data_loss: bool
    max_versions: int | None
    max_rows: int | None
    max_bytes: int | None

    @classmethod
    def of(cls, given: Mapping[str, str]) -> FeedOptions:
        """Parse the options, of which Spark makes text; raise `InvalidInputError` for a bad one."""
        return cls(
            columns=column_names(given),
            where=given.get("where"),
            level=given.get("changelogLevel", "committed"),
            skip_unchanged=flag(given, "skipUnchanged"),
            row_kinds=cast("Literal['delta', 'flink']", given.get("rowKinds", "delta")),
            splits=_number(given, "splits") or os.cpu_count() or 1,
            since=_since(given),
            until=_one_of(given, "endingVersion", "endingTimestamp"),
            consumer=given.get("consumer"),
            fails_on_data_loss=flag(given, "failOnDataLoss", default="true"),
            max_versions=_number(given, "maxVersionsPerTrigger"),
            max_rows=_number(given, "maxRowsPerTrigger"),
            max_bytes=_number(given, "maxBytesPerTrigger"),
        )

    def feed(
        self,
        table: lancemem.Table,
        since: int | datetime | None,
        until: int | datetime | None,
        columns: Sequence[str] | None,
    ) -> ChangeFeed:
        """Describe changes of a table with these options."""
        refuse_level(self.level)
        return table.changes(
            since,
            until,
            columns,
            self.where,
            skip_unchanged=self.skip_unchanged,
            row_kinds=self.row_kinds,
        )


def is_asked_for(options: Mapping[str, str]) -> bool:
    """Whether the options ask for changes instead of rows."""
    return flag(options, READ_CHANGE_FEED)


def flag(options: Mapping[str, str], name: str, default: str = "false") -> bool:
    """Return an option that is true or false."""
    text = options.get(name, default)
    if text.lower() not in {"true", "false"}:
        raise lancemem.InvalidInputError(f"option {name} is true or false, got {text!r}")
    return text.lower() == "true"


def _number(options: Mapping[str, str], name: str, least: int = 1) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if not text.isdecimal() or int(text) < least:
        raise lancemem.InvalidInputError(
            f"option {name} is a whole number of at least {least}, got {text!r}"
        )
    return int(text)


def _since(given: Mapping[str, str]) -> int | datetime | None:
    first = _one_of(given, "startingVersion", "startingTimestamp")
    if isinstance(first, datetime):
        # A version that was committed at this time is read too.
        return first - timedelta(microseconds=1)
    return None if first is None else max(first - 1, 0)


def _one_of(given: Mapping[str, str], version: str, timestamp: str) -> int | datetime | None:
    number, text = _number(given, version, least=0), given.get(timestamp)
    if text is None:
        return number
    if number is not None:
        raise lancemem.InvalidInputError(
            f"options {version} and {timestamp} name the same end of a feed: give one of them"
        )
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise lancemem.InvalidInputError(
            f"option {timestamp} is a time such as '2026-01-31 13:30:00+00:00', got {text!r}"
        ) from None


def feed_schema(uri: str, options: Mapping[str, str]) -> StructType:
    """Return the columns of a feed in Spark, and check its options."""
    asked, table = FeedOptions.of(options), lancemem.open_table(uri)
    if asked.consumer is not None:
        # An error for a name that no consumer can have.
        table.changes_consumer_info(asked.consumer)
    columns = own_columns(table, asked.columns)
    try:
        feed = asked.feed(table, asked.since, asked.until, columns)
    except (lancemem.ChangesExpiredError, lancemem.ChangesUnavailableError):
        # A stream that goes on at its checkpoint does not read from its start. A batch raises the
        # error when it makes its reader.
        feed = asked.feed(table, None, asked.until, columns)
    return schema_in_order(pa.schema(feed.schema), asked.columns, FEED_COLUMNS)


def column_names(given: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the names in the option `columns`; None where it is not given."""
    columns = given.get("columns")
    return tuple(name.strip() for name in columns.split(",")) if columns else None


def schema_in_order(
    schema: pa.Schema, names: Sequence[str] | None, added: Sequence[str]
) -> StructType:
    """Return the columns of a feed in Spark, in the order in which the option names them.

    Of the columns that the feed adds, those that the option leaves out come last.
    """
    if names is not None:
        ordered = [*names, *(name for name in added if name not in names)]
        schema = pa.schema([schema.field(name) for name in ordered])
    return spark_schema(spark_arrow_schema(schema))


def own_columns(
    table: lancemem.Table, names: Sequence[str] | None, added: Sequence[str] = FEED_COLUMNS
) -> list[str] | None:
    """Return the columns of the table among `names`, or one column if there are none.

    The other names are among `added`, the columns that the feed adds.
    """
    if names is None:
        return None
    own = [name for name in names if name not in added]
    return own or pa.schema(table.schema).names[:1]


class ChangePartition(InputPartition):
    """A part of a feed, as it is sent to a task."""

    def __init__(self, index: int, part: ChangeFeedPart | None) -> None:
        super().__init__(index)
        self.part = part


class ChangeReader(DataSourceReader):
    """Reads the changes between two versions, divided among tasks."""

    def __init__(self, uri: str, options: Mapping[str, str], schema: StructType) -> None:
        """Fix the versions: every query of the DataFrame reads the changes between the same two."""
        table, self._options = lancemem.open_table(uri), FeedOptions.of(options)
        self._uri, self._schema = table.uri, arrow_schema(schema)
        feed = self._feed(table, self._options.since, self._options.until)
        self._since, self._until = feed.since, feed.until
        refuse_other_types(uri, schema, pa.schema(feed.schema))
        self._driver_version = lancemem.__version__

    def partitions(self) -> Sequence[InputPartition]:
        """Divide the feed by fragments."""
        feed = self._feed(lancemem.open_table(self._uri), self._since, self._until)
        parts = feed.parts(self._options.splits)
        # Spark's plan of a read has one partition at least.
        return numbered(parts) or [ChangePartition(0, None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one part."""
        transactions.check_version(self._driver_version)
        return read_part(partition, self._schema)

    def _feed(
        self, table: lancemem.Table, since: int | datetime | None, until: int | datetime | None
    ) -> ChangeFeed:
        return self._options.feed(table, since, until, own_columns(table, self._schema.names))


def refuse_other_types(uri: str, asked: StructType, feed: pa.Schema) -> None:
    """Refuse a schema of the user that is more than a choice of columns."""
    have = spark_schema(spark_arrow_schema(feed))
    for field in asked:
        actual, wanted = have[field.name].dataType.simpleString(), field.dataType.simpleString()
        if wanted != actual:
            raise lancemem.InvalidInputError(
                f"table {uri}: column {field.name!r} of the changes is {actual}, the schema asks "
                f"for {wanted}; read it as it is and cast"
            )


def numbered(parts: Sequence[ChangeFeedPart]) -> list[InputPartition]:
    """Make partitions of parts."""
    return [ChangePartition(index, part) for index, part in enumerate(parts)]


def read_part(partition: InputPartition, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Read a part in this process, in the columns and types of `schema`."""
    part = cast("ChangePartition", partition).part
    if part is None:
        return
    feed = part.to_feed(table=open_cached(part.uri))
    # An error of the engine would lose its type in Arrow's C stream.
    filled = (batch for batch in feed.to_batches() if batch.num_rows)
    yield from until_closed(in_columns(batch, schema) for batch in filled)


def in_columns(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Choose columns; those that the table got after the changes of `batch` are null."""
    have = set(batch.schema.names)
    columns = [
        batch[field.name] if field.name in have else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return cast_batch(pa.RecordBatch.from_arrays(columns, names=schema.names), schema)
