"""The changes of a table in Spark: the options of a read, and its parts in tasks.

Owns what the options of a change feed mean, the columns of its rows, and the batch read. Does not
own the stream (`change_stream`), or how changes are derived (`lancemem.Table.changes`).

The options have Delta's names: `startingVersion` and `startingTimestamp` are inclusive, while
`since` of `lancemem.Table.changes` is exclusive.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal, cast

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

import lancemem
from lancemem.spark import transactions
from lancemem.spark.arrow_types import cast_batch, spark_arrow_schema
from lancemem.spark.broken_pipe import until_closed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql.types import StructType

    from lancemem.change_feed import ChangeFeedPart

#: The option that asks for changes instead of rows.
READ_CHANGE_FEED = "readchangefeed"
#: The columns that a feed adds, in its order.
CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP = FEED_COLUMNS = (
    "_change_type",
    "_commit_version",
    "_commit_timestamp",
)

_COMMON = {
    "path",
    READ_CHANGE_FEED,
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
class ChangeRead:
    """What of the changes is read, as it is sent to a task."""

    uri: str
    # The columns of the table in the result.
    names: tuple[str, ...]
    where: str | None
    level: str
    skip_unchanged: bool
    row_kinds: Literal["delta", "flink"]
    most_parts: int
    driver_version: str = lancemem.__version__

    def feed(
        self,
        table: lancemem.Table,
        since: int | datetime | None,
        until: int | datetime | None = None,
    ) -> lancemem.ChangeFeed:
        """Describe the changes behind `since`, up to and with `until`."""
        return table.changes(
            since,
            until,
            list(self.names),
            self.where,
            level=self.level,
            skip_unchanged=self.skip_unchanged,
            row_kinds=self.row_kinds,
        )


class Options:
    """The options of a change feed, whose names Spark has made small."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {name.lower(): text for name, text in given.items()}

    def read(self, uri: str, names: Sequence[str]) -> ChangeRead:
        """Return what of the changes is read."""
        return ChangeRead(
            uri=uri,
            names=tuple(name for name in names if name not in FEED_COLUMNS),
            where=self._given.get("where"),
            level=self._given.get("changeloglevel", "committed"),
            skip_unchanged=self.flag("skipUnchanged", default=False),
            row_kinds=cast("Literal['delta', 'flink']", self._given.get("rowkinds", "delta")),
            most_parts=self.number("splits") or os.cpu_count() or 1,
        )

    def since(self) -> int | datetime | None:
        """Return the state behind which the changes start; None for all rows as inserts."""
        version, time = self.number("startingVersion", least=0), self._time("startingTimestamp")
        _refuse_both("starting", version, time)
        if time is not None:
            # The state before: a version that was committed at this time belongs to the changes.
            return time - timedelta(microseconds=1)
        return None if version is None else max(version - 1, 0)

    def until(self) -> int | datetime | None:
        """Return the state that the changes reach; None for the newest version."""
        version, time = self.number("endingVersion", least=0), self._time("endingTimestamp")
        _refuse_both("ending", version, time)
        return version if time is None else time

    def text(self, option: str) -> str | None:
        """Return an option as it was given."""
        return self._given.get(option.lower())

    def number(self, option: str, least: int = 1) -> int | None:
        """Return an option that is a whole number."""
        text = self._given.get(option.lower())
        if text is None:
            return None
        if not text.isdecimal() or int(text) < least:
            raise lancemem.InvalidInputError(
                f"option {option} is a whole number of at least {least}, got {text!r}"
            )
        return int(text)

    def flag(self, option: str, *, default: bool) -> bool:
        """Return an option that is true or false."""
        text = self._given.get(option.lower(), str(default)).lower()
        if text not in {"true", "false"}:
            raise lancemem.InvalidInputError(f"option {option} is true or false, got {text!r}")
        return text == "true"

    def _time(self, option: str) -> datetime | None:
        text = self._given.get(option.lower())
        if text is None:
            return None
        try:
            time = datetime.fromisoformat(text)
        except ValueError:
            raise lancemem.InvalidInputError(
                f"option {option} is a time such as '2026-01-31 13:30:00', got {text!r}"
            ) from None
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time


def is_asked_for(options: Mapping[str, str]) -> bool:
    """Whether the options ask for changes."""
    return Options(options).flag("readChangeFeed", default=False)


def feed_columns(table: lancemem.Table, names: Sequence[str] | None) -> pa.Schema:
    """Return the Arrow schema under which Spark takes the changes of these columns."""
    own = None if names is None else [name for name in names if name not in FEED_COLUMNS]
    return spark_arrow_schema(pa.schema(table.changes(columns=own).schema))


class ChangePartition(InputPartition):
    """A part of a feed, as it is sent to a task."""

    def __init__(self, index: int, part: ChangeFeedPart) -> None:
        super().__init__(index)
        self.part = part


def partitions_of(parts: Sequence[ChangeFeedPart]) -> list[InputPartition]:
    """Number the parts."""
    return [ChangePartition(index, part) for index, part in enumerate(parts)]


def read_partition(
    read: ChangeRead, partition: InputPartition, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Read a part in this process, in the types and the order of `schema`."""
    transactions.check_version(read.driver_version)
    part = cast("ChangePartition", partition).part
    names = schema.names
    # An error of the engine would lose its type in Arrow's C stream.
    filled = (batch for batch in part.to_feed().to_batches() if batch.num_rows)
    yield from until_closed(cast_batch(batch.select(names), schema) for batch in filled)


class ChangeReader(DataSourceReader):
    """Reads the changes between two versions, divided among tasks."""

    def __init__(self, options: Options, uri: str, schema: pa.Schema) -> None:
        self._read, self._schema = options.read(uri, schema.names), schema
        table = lancemem.open_table(uri)
        # Resolved once: the tasks and a repeated job read the same changes.
        feed = self._read.feed(table, options.since(), options.until())
        self._since, self._until = feed.since, feed.until

    def partitions(self) -> Sequence[InputPartition]:
        """Divide the feed by fragments."""
        table = lancemem.open_table(self._read.uri)
        feed = self._read.feed(table, self._since, self._until)
        # Spark takes no plan without a part as an empty one.
        return partitions_of(feed.parts(self._read.most_parts)) or [_Nothing(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one part."""
        if isinstance(partition, _Nothing):
            return iter(())
        return read_partition(self._read, partition, self._schema)


class _Nothing(InputPartition):
    """The part of a feed without changes."""


def columns_of_changes(
    columns: Sequence[str], op_column: str | None, sequence_by: str | None
) -> tuple[str, str]:
    """Return the columns of operations and of their order, by default those of a change feed."""
    op_column = op_column or CHANGE_TYPE
    if sequence_by is None and op_column == CHANGE_TYPE:
        sequence_by = COMMIT_VERSION
    if sequence_by is None:
        raise lancemem.InvalidInputError("changes need sequence_by, the column that orders them")
    for column, argument in ((op_column, "op_column"), (sequence_by, "sequence_by")):
        if column not in columns:
            raise lancemem.InvalidInputError(
                f"the changes have no column {column!r}; name the column with {argument}="
            )
    return op_column, sequence_by


def columns_of_feed(op_column: str | None) -> Sequence[str]:
    """Return the columns of a change feed that are no columns of its table."""
    return FEED_COLUMNS if op_column == CHANGE_TYPE else ()


def refuse_reserved(schema: StructType) -> None:
    """Refuse a schema without a column of the feed: its rows would not say what changed."""
    missing = [name for name in FEED_COLUMNS if name not in schema.names]
    if missing:
        raise lancemem.InvalidInputError(
            f"the schema of a change feed has the column {missing[0]!r}; choose columns with the "
            "option columns, and select from the DataFrame"
        )


def _refuse_both(side: str, version: int | None, time: datetime | None) -> None:
    if version is not None and time is not None:
        raise lancemem.InvalidInputError(
            f"options {side}Version and {side}Timestamp are two ways to say one thing: give one"
        )
