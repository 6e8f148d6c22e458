"""The data source `lancemem`: `spark.read`, `df.write` and `df.writeStream` with that format.

Owns its options, its errors, and the two phases of a write. Spark lets such a source neither route
rows nor choose which task writes a shard. So tasks stage SSTables, which needs no claim, and the
driver commits all of them as one bulk write. Does not own which row of a key is the newest: that is
the engine's plan. Does not own the read of changes: see `change_feed` and `change_stream`.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

import lancemem
from lancemem.change_feed import refuse_level
from lancemem.rule_calls import (
    given_columns,
    refuse_changes,
    refuse_mode,
    replaced_columns,
    takes_back,
)
from lancemem.spark import (
    bulk,
    catalogue,
    change_feed,
    change_positions,
    change_stream,
    merge_rules,
    reader,
    transactions,
)
from lancemem.spark.arrow_types import arrow_schema, spark_schema
from lancemem.spark.columns import settle_extra
from lancemem.spark.tables import open_cached
from lancemem.spark.writer import FAULTS, WritePlan, change_of, stage, try_again

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_READ_OPTIONS = {"path", "columns", "where", "consistency", "splits", "readchangefeed"}
_WRITE_OPTIONS = {
    "path",
    "op",
    "opcolumn",
    "txnappid",
    "txnversion",
    "primarykey",
    "shards",
    "roundfloats",
    "mergeschema",
    "ignoreextracolumns",
    "replace",
    "nulls",
    "checkpointlocation",
    # Spark's own options, which it passes on.
    "queryname",
} | merge_rules.OPTIONS


class LancememDataSource(DataSource):
    """Spark's format "lancemem".

    Options of a read: `columns` ("id,v"), `where` (SQL that the engine applies), `consistency`,
    `splits` (the maximum number of tasks, by default chosen by stored bytes; with more than 1 all
    queries of one DataFrame or view read the snapshot of the first query). Options of a write:
    `op` ("upsert", "delete" or "append"), `opColumn`, `replace`, `nulls` ("set" or "keep"),
    `roundFloats`, `mergeSchema`, `ignoreExtraColumns`, `txnAppId` and `txnVersion`, and for a table
    that does not exist `primaryKey`, `shards` and the merge rule: `mergeEngine`, `sequenceBy`
    ("ts,n"), `aggregates` ("clicks=sum"), `mergeFunctions`
    ("embedding=package.module:function"), `sequenceGroups`
    ("pay_ts=status,amount;ship_ts=carrier"), `deletes`, `deleteRetention` ("7 days").

    With `readChangeFeed` a read has the changes of the table: `startingVersion` or
    `startingTimestamp` (without one of them every row is an insert), `endingVersion` or
    `endingTimestamp`, `skipUnchanged`, `rowKinds`, `columns`, `where`, `splits`. With
    `changelogLevel` "flushed" or "input" it has `startingPosition` and `endingPosition` instead.
    A stream of changes has `consumer`, `failOnDataLoss`, `maxVersionsPerTrigger`,
    `maxRowsPerTrigger` and `maxBytesPerTrigger` instead of an end.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "lancemem"

    def schema(self) -> StructType:
        """Return the columns of the table or of its changes, or the ones that `columns` names."""
        if self.options.get("provider"):
            # Only Spark's catalogue sets this option. It asks for the columns before it stores a
            # name.
            raise lancemem.InvalidInputError(f"{catalogue.REFUSED}: {catalogue.WAYS}")
        if change_feed.is_asked_for(self.options):
            if change_positions.is_asked_for(self.options):
                self._check_options("read of changes", change_positions.OPTIONS)
                return change_positions.feed_schema(self._uri("read"), self.options)
            # Spark asks a batch and a stream in the same way.
            options = change_feed.BATCH_OPTIONS | change_feed.STREAM_OPTIONS
            self._check_options("read of changes", options)
            return change_feed.feed_schema(self._uri("read"), self.options)
        table = lancemem.open_table(self._uri("read"))
        names = reader.checked_columns(table, self._columns())
        return spark_schema(reader.spark_columns(table, names))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Make the reader.

        It pushes no filters: Spark 4.3 keeps the reader of a filtered query for later queries of
        the same DataFrame, even for queries without that filter, and so loses rows. Use the option
        `where` to filter in the engine.
        """
        if change_feed.is_asked_for(self.options):
            if change_positions.is_asked_for(self.options):
                self._check_options("read of changes", change_positions.OPTIONS)
                return change_positions.PositionReader(self._uri("read"), self.options, schema)
            self._check_options("read of changes", change_feed.BATCH_OPTIONS)
            return change_feed.ChangeReader(self._uri("read"), self.options, schema)
        self._check_options("read", _READ_OPTIONS)
        table = lancemem.open_table(self._uri("read"))
        _check_types(table, schema)
        read = _Read(
            # A task would resolve a relative path to another place.
            table.uri,
            # Spark refuses batches whose fields are not nullable exactly as in its schema.
            arrow_schema(schema),
            self.options.get("where"),
            cast("reader.Consistency", self.options.get("consistency", "durable")),
            self._number("splits"),
        )
        return _Reader(read)

    def writer(self, schema: StructType, overwrite: bool) -> _BatchWriter:
        """Make the writer of a batch."""
        write = self._write(schema, overwrite=overwrite)
        txn = transactions.of_application(
            self.options.get("txnAppId"), self.options.get("txnVersion")
        )
        return _BatchWriter(write, transactions.once() if txn is None else txn)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        """Make the reader of a stream of changes; refuse a stream of rows."""
        if not change_feed.is_asked_for(self.options):
            raise lancemem.InvalidInputError(
                "a stream of format('lancemem') has the changes of a table: add "
                ".option('readChangeFeed', 'true'); its rows are read with spark.read or toDF, in "
                "each micro-batch of another stream where they have to be newest"
            )
        refuse_level(self.options.get("changelogLevel", "committed"))
        self._check_options("stream of changes", change_feed.STREAM_OPTIONS)
        uri = lancemem.open_table(self._uri("read")).uri
        return change_stream.stream_reader(uri, self.options, schema)

    def streamWriter(  # noqa: N802 - Spark's name
        self,
        schema: StructType,
        overwrite: bool,
    ) -> _StreamWriter:
        """Make the writer of a stream."""
        if overwrite:
            raise lancemem.InvalidInputError(
                "outputMode('complete') would replace the table in every micro-batch; use "
                "'append', which upserts by key; or stream_upsert of LancememTable"
            )
        return _StreamWriter(self._write(schema, overwrite=False))

    def _write(self, schema: StructType, *, overwrite: bool) -> _Write:
        uri = self._uri("write")
        self._check_options("write", _WRITE_OPTIONS)
        op, op_column = self._op()
        if overwrite and (op == "delete" or op_column):
            raise lancemem.InvalidInputError(
                "mode('overwrite') replaces all rows of the table, and leaves none where its rows "
                "are deletes; write deletes with mode('append')"
            )
        # Checked first: no table is created for rows that are then refused.
        _refuse_missing(uri, [op_column] if op_column else [], schema)
        replace, nulls = self._flag("replace"), self._nulls()
        table = self._open_or_create(uri, schema, op_column)
        key = tuple(table.primary_key)
        if not key and (overwrite or op != "append"):
            raise lancemem.InvalidInputError(
                f"table {uri} has no primary key, so its rows cannot be replaced or deleted; write "
                "to it with option op='append' and mode('append')"
            )
        if overwrite:
            merge_rules.refuse_overwrite(table)
        is_changes = op == "delete" or op_column is not None
        if op_column is not None:
            refuse_changes(table)
        refuse_mode(table, replace=replace, nulls=nulls, changes=is_changes)
        gives = op != "delete" or takes_back(table)
        if gives:
            settle_extra(
                table,
                schema,
                [op_column] if op_column else [],
                ignores=self._flag("ignoreExtraColumns"),
                merges=self._flag("mergeSchema"),
            )
        columns = replaced_columns if replace else given_columns
        names = columns(table, schema.names) if gives else key
        _refuse_missing(uri, names, schema)
        plan = WritePlan(
            names,
            key,
            op_column=op_column,
            deletes=op == "delete",
            takes_back=takes_back(table),
            replace=replace,
            nulls=nulls,
            round_floats=self._flag("roundFloats"),
        )
        return _Write(table.uri, plan, overwrite=overwrite)

    def _op(self) -> tuple[str, str | None]:
        """Return the operation for all rows, and the column with the operation of each row."""
        op, op_column = self.options.get("op", "upsert"), self.options.get("opColumn")
        if op not in ("upsert", "delete", "append"):
            raise lancemem.InvalidInputError(
                f"option op is 'upsert', 'delete' or 'append', got {op!r}"
            )
        if op_column == "":
            raise lancemem.InvalidInputError("option opColumn names a column, got ''")
        if op != "upsert" and op_column:
            raise lancemem.InvalidInputError(
                f"option op={op!r} applies to all rows, opColumn to each row: give one of them"
            )
        return op, op_column

    def _open_or_create(
        self, uri: str, schema: StructType, op_column: str | None
    ) -> lancemem.Table:
        key = self.options.get("primaryKey")
        try:
            return self._as_named(lancemem.open_table(uri))
        except lancemem.TableNotFoundError as error:
            if key is None:
                raise lancemem.InvalidInputError(
                    f"{error}. To create the table by this write, name its key: "
                    ".option('primaryKey', 'id').option('shards', '4'); or use LancememTable.create"
                ) from None
        names = _names(key)
        shards = self._number("shards") or 1
        sharding = lancemem.unsharded() if shards == 1 else lancemem.bucket(names[0], shards)
        # The column of operations is no column of the table.
        columns = StructType([field for field in schema if field.name != op_column])
        rule = merge_rules.of_options(self.options)
        return lancemem.create_table(
            uri, arrow_schema(columns), primary_key=names, sharding=sharding, **rule
        )

    def _as_named(self, table: lancemem.Table) -> lancemem.Table:
        """Return the table; refuse one with another key, number of shards or merge rule."""
        key, has = self.options.get("primaryKey"), list(table.primary_key)
        if key is not None and _names(key) != has:
            raise lancemem.InvalidInputError(
                f"table {table.uri} has the primary key {','.join(has)!r}, not {key!r}"
            )
        wanted = self.options.get("shards")
        shards = table.sharding.num_shards if table.sharding else 1
        if wanted is not None and (self._number("shards") or 1) != shards:
            raise lancemem.InvalidInputError(
                f"table {table.uri} has {shards} shards, not {wanted}: their number is fixed"
            )
        merge_rules.refuse_another(table, self.options)
        return table

    def _uri(self, action: str) -> str:
        path: str | None = self.options.get("path")
        if path:
            return path
        if self.options.get("paths"):
            raise lancemem.InvalidInputError(
                f"format('lancemem') needs one path to {action}, got {self.options['paths']}"
            )
        raise lancemem.InvalidInputError(
            f"format('lancemem') needs a path to {action}. {catalogue.REFUSED}: {catalogue.WAYS}. "
            "MERGE INTO, UPDATE and DELETE do not reach a Python data source: use LancememTable "
            "with merge, upsert and delete"
        )

    def _number(self, option: str) -> int | None:
        text = self.options.get(option)
        if text is None:
            return None
        if not text.isdecimal() or int(text) < 1:
            raise lancemem.InvalidInputError(
                f"option {option} is a whole number of at least 1, got {text!r}"
            )
        return int(text)

    def _flag(self, option: str) -> bool:
        text = self.options.get(option, "false")
        if text.lower() not in {"true", "false"}:
            raise lancemem.InvalidInputError(f"option {option} is true or false, got {text!r}")
        return text.lower() == "true"

    def _nulls(self) -> Literal["set", "keep"] | None:
        text = self.options.get("nulls")
        if text not in {None, "set", "keep"}:
            raise lancemem.InvalidInputError(f"option nulls is 'set' or 'keep', got {text!r}")
        return cast("Literal['set', 'keep'] | None", text)

    def _columns(self) -> list[str] | None:
        columns = self.options.get("columns")
        return [name.strip() for name in columns.split(",")] if columns else None

    def _check_options(self, action: str, known: set[str]) -> None:
        unknown = [name for name in self.options if name.lower() not in known]
        if unknown:
            raise lancemem.InvalidInputError(
                f"unknown option {unknown[0]!r} for a {action} of lancemem; the options are "
                f"{', '.join(sorted(known))}{_way_of(unknown[0])}"
            )


@dataclass(frozen=True)
class _Read:
    """The read, as it is sent to a task."""

    uri: str
    # The columns, with the types that Spark was given.
    schema: pa.Schema
    where: str | None
    consistency: reader.Consistency
    most_splits: int | None
    driver_version: str = lancemem.__version__


def _way_of(option: str) -> str:
    """Return what reads an older version, which the format does not."""
    if option.lower() not in {"versionasof", "timestampasof"}:
        return ""
    return (
        "; lancemem.open_table(path).snapshot(version=...) reads an older version in Python, and "
        "any reader of Lance the base table of one"
    )


def _refuse_missing(uri: str, names: Iterable[str], schema: StructType) -> None:
    missing = [name for name in names if name not in schema.names]
    if missing:
        raise lancemem.InvalidInputError(
            f"table {uri}: the DataFrame has no column {missing[0]!r}; give it, as null: "
            f"df.withColumn({missing[0]!r}, lit(None))"
        )


def _names(key: str) -> list[str]:
    """Return the columns of the option `primaryKey`."""
    return [name.strip() for name in key.split(",")]


def _check_types(table: lancemem.Table, schema: StructType) -> None:
    """Refuse a schema of the user that is more than a choice of columns."""
    names = reader.checked_columns(table, schema.names)
    have = spark_schema(reader.spark_columns(table, names))
    for wanted, actual in zip(schema, have, strict=True):
        if wanted.dataType.simpleString() != actual.dataType.simpleString():
            raise lancemem.InvalidInputError(
                f"table {table.uri}: column {wanted.name!r} is {actual.dataType.simpleString()}, "
                f"the schema asks for {wanted.dataType.simpleString()}; read it as it is and cast"
            )


class _Split(InputPartition):
    """A part of the read, as it is sent to a task."""

    def __init__(self, split: reader.Split) -> None:
        super().__init__(split.part[0])
        self.split = split


class _Reader(DataSourceReader):
    """Reads one snapshot, divided among tasks."""

    def __init__(self, read: _Read) -> None:
        self._read = read

    def partitions(self) -> Sequence[InputPartition]:
        read = self._read
        return [_Split(it) for it in reader.splits(read.uri, read.consistency, read.most_splits)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        split = cast("_Split", partition).split
        transactions.check_version(self._read.driver_version)
        read, schema = self._read, self._read.schema
        return reader.scan_batches(split, schema.names, read.where, read.consistency, schema)


@dataclass(frozen=True)
class _Write:
    """The write, as it is sent to a task."""

    uri: str
    plan: WritePlan
    overwrite: bool


@dataclass
class _Staged(WriterCommitMessage):
    """The SSTables that a task staged."""

    sstables: list[lancemem.StagedSsTable]
    query_id: str | None


class _Writer:
    """The two phases, common to batches and streams."""

    def __init__(self, write: _Write) -> None:
        self._write = write

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        plan = self._write.plan
        transactions.check_version(plan.driver_version)
        table = open_cached(self._write.uri)
        schema = pa.schema(table.schema)
        # It may claim empty shards of another sharding, and other tasks do the same at this time.
        bulk = try_again(table.bulk_writer)
        for batch in iterator:
            if batch.num_rows:
                stage(bulk, plan, change_of(plan, schema, batch))
        context = TaskContext.get()
        query_id = context.getLocalProperty(transactions.QUERY_ID) if context else None
        return _Staged(bulk.finish(), query_id)

    def _commit(
        self, sstables: list[lancemem.StagedSsTable], name: str, txn: transactions.Txn
    ) -> None:
        if not sstables:
            return
        uri = self._write.uri
        # Another writer may claim a shard before the commit of its manifest, and Spark itself does
        # not repeat a failed commit. The transaction id makes a repeated commit harmless.
        try_again(lambda: lancemem.open_table(uri).commit(sstables, write=name, txn=txn), FAULTS)

    def _abort(self, messages: Iterable[WriterCommitMessage | None], name: str) -> None:
        sstables = _sstables_of(messages)
        if sstables:
            lancemem.open_table(self._write.uri).abort(sstables, write=name)


class _BatchWriter(_Writer, DataSourceArrowWriter):
    """A batch: all tasks stage SSTables, the driver commits them."""

    def __init__(self, write: _Write, txn: transactions.Txn) -> None:
        super().__init__(write)
        self._txn = txn
        self._name = secrets.token_hex(16)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        sstables = _sstables_of(messages)
        if self._write.overwrite:
            # SSTables that a failed attempt staged are never committed.
            sstables = try_again(lambda: _deletes_of_all(self._write.uri), FAULTS) + sstables
        self._commit(sstables, self._name, self._txn)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        # Spark also calls this after a commit that raised; the engine decides which came first.
        self._abort(messages, self._name)


class _StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """A stream: the transaction id of a micro-batch is the query's id and the batch's number."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        staged = [
            message for message in messages if isinstance(message, _Staged) and message.sstables
        ]
        if not staged:
            return
        query_id = staged[0].query_id
        if query_id is None:
            raise lancemem.InternalError(
                f"a task of a stream has no query id: Spark did not set {transactions.QUERY_ID}"
            )
        txn = transactions.of_micro_batch(query_id, batchId)
        self._commit(_sstables_of(messages), _name_of(messages), txn)

    def abort(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: ARG002, N803 - Spark's
    ) -> None:
        self._abort(messages, _name_of(messages))


def _sstables_of(messages: Iterable[WriterCommitMessage | None]) -> list[lancemem.StagedSsTable]:
    return [
        sstable
        for message in messages
        if isinstance(message, _Staged)
        for sstable in message.sstables
    ]


def _name_of(messages: Iterable[WriterCommitMessage | None]) -> str:
    """Name a bulk write by its SSTables: commit and abort have a new writer each."""
    return bulk.name_of(_sstables_of(messages))


def _deletes_of_all(uri: str) -> list[lancemem.StagedSsTable]:
    """Stage deletes of all keys that the table has at present."""
    table = lancemem.open_table(uri)
    bulk = table.bulk_writer()
    scan = table.scan(columns=table.primary_key)
    for keys in scan.to_batches():
        if keys.num_rows:
            bulk.delete(keys)
    return bulk.finish()
