"""The extension module, and the reference of what the package takes over from it unchanged.

`Table`, `Scan`, `Snapshot` and `ChangeFeed` of the package are subclasses of the classes here.
`lancemem.reads`, `lancemem.updates`, `lancemem.indexes`, `lancemem.change_feed`, `lancemem.scan`
and `lancemem.snapshot` document what they add, `lancemem.catalog` the functions that create and
open tables.

Data goes in as any object with `__arrow_c_stream__` or `__arrow_c_array__`: pyarrow tables and
batches, pandas and polars frames. lancemem copies it once and keeps none of the caller's buffers.
Rows can also be a pyarrow dataset, a list of dicts, a dict of columns or an iterable of batches.

Errors are `LancememError`, with some exceptions. An argument of a wrong Python type or sign raises
`TypeError`, `ValueError` or `OverflowError`. A stream that its producer breaks raises `OSError`, an
iterable of the caller its own error. Then too nothing is written. A call that needs a package that
is not installed raises `ModuleNotFoundError`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from os import PathLike
from types import EllipsisType, TracebackType
from typing import Any, Literal, Protocol, Self, TypeAlias, final

import pandas as pd  # noqa: TID253 - a stub is never run
import polars as pl  # noqa: TID253
import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import disjoint_base

from lancemem.agg import Aggregate
from lancemem.arrow_dataset import TableDataset
from lancemem.progress import Progress

__all__ = [
    "Acknowledged",
    "Admin",
    "ArrowArray",
    "ArrowStream",
    "BatchIterator",
    "BulkWriter",
    "ChangeCounts",
    "ChangeFeed",
    "ChangeVersion",
    "ChangesExpiredError",
    "ChangesUnavailableError",
    "CollectionResult",
    "CommitResult",
    "CompactedIndex",
    "CompactedSsTable",
    "CompactionResult",
    "ConsumerInfo",
    "CorruptionError",
    "DeletionVectorResult",
    "Endpoint",
    "FlushResult",
    "FlushedConsumer",
    "FlushedFeed",
    "FlushedLog",
    "ForkedHandleError",
    "Garbage",
    "InputFeed",
    "InternalError",
    "InvalidInputError",
    "Job",
    "JobStats",
    "JobStoppedError",
    "LancememError",
    "MaintenanceConfig",
    "MergeRule",
    "OptimizedIndex",
    "RecordIndexReport",
    "RelistReport",
    "RemoteJob",
    "RetryableError",
    "Scan",
    "Shard",
    "ShardHeldError",
    "ShardLog",
    "Sharding",
    "SkippedLog",
    "Snapshot",
    "SnapshotMemTable",
    "SnapshotShard",
    "SsTable",
    "SsTableReport",
    "StagedSsTable",
    "StaleTxnError",
    "Table",
    "TableExistsError",
    "TableIndex",
    "TableNotFoundError",
    "TableStats",
    "TableVersion",
    "TableWriter",
    "WalFinding",
    "WalReport",
    "WriteResult",
    "WriterConfig",
    "WriterFencedError",
    "WriterStats",
    "__version__",
    "_set_memory_index_bounds",
    "bucket",
    "change_feed",
    "change_feed_of_slices",
    "changes_consumer",
    "changes_consumers",
    "connect_job",
    "create_index",
    "create_table",
    "drop_changes_consumer",
    "drop_flushed_consumer",
    "drop_index",
    "drop_table",
    "enable",
    "evaluate",
    "exists",
    "flushed_change_feed",
    "flushed_consumer",
    "flushed_consumers",
    "input_change_feed",
    "move_changes_consumer",
    "move_flushed_consumer",
    "open_table",
    "optimize_indexes",
    "table_indexes",
    "unsharded",
]

__version__: str

class _Stream(Protocol):
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

class _Array(Protocol):
    def __arrow_c_array__(
        self, requested_schema: object | None = None
    ) -> tuple[object, object]: ...

class _Schema(Protocol):
    def __arrow_c_schema__(self) -> object: ...

_Data: TypeAlias = _Stream | _Array
# Data, a frame that is collected first, columns by name, or dicts or batches.
_Rows: TypeAlias = _Data | pl.LazyFrame | Mapping[str, Any] | Iterable[Any]
# Names, or SQL expressions by the names of their columns.
_Columns: TypeAlias = Sequence[str] | Mapping[str, str]
# Rows with the key columns, values of a key of one column, or tuples of a key of several.
_Keys: TypeAlias = _Data | Iterable[Any]
_Filter: TypeAlias = str | pc.Expression

# An object with the attributes of pylance's `ColumnOrdering`.
class _ColumnOrdering(Protocol):
    @property
    def column_name(self) -> str: ...
    @property
    def ascending(self) -> bool: ...
    @property
    def nulls_first(self) -> bool: ...

_Direction: TypeAlias = Literal["asc", "desc", "ascending", "descending"]
_OrderBy: TypeAlias = str | Sequence[str | tuple[str, _Direction] | _ColumnOrdering]
# A transaction id: an application, such as a streaming query's id, and a version of its writes.
_Txn: TypeAlias = tuple[str, int]
# A version, or the newest version that was committed by a time.
_State: TypeAlias = int | datetime
_RowKinds: TypeAlias = Literal["delta", "flink"]
_Changelog: TypeAlias = Literal["stored", "flushed"]
_MergeEngine: TypeAlias = Literal["deduplicate", "first_row", "partial_update", "aggregation"]
_Deletes: TypeAlias = Literal["remove", "ignore", "refuse", "retract"]
# Sequence columns, and the columns that follow them.
_Groups: TypeAlias = (
    Mapping[str, str | Sequence[str]] | Mapping[tuple[str, ...], str | Sequence[str]]
)
_Progress: TypeAlias = Callable[[Progress], object] | bool | None
# Version before, version, whether rows may have moved, fragments of images before and after.
_Slice: TypeAlias = tuple[int | None, int, bool, list[int], list[int]]
_Consistency: TypeAlias = Literal["flushed", "durable", "live"]
# Query vectors: lists, arrays of NumPy and Arrow, tensors.
_Query: TypeAlias = Sequence[Any] | Any
_QueryType: TypeAlias = Literal["auto", "vector", "fts", "hybrid"]
# Words, or a query of `lancemem.query`.
_Text: TypeAlias = str | Any
# `lancemem.RRF`, a function of (query, vector_results, fts_results), or an object with
# `rerank_hybrid`.
_Rerank: TypeAlias = Any
# The least distance, and the distance that all are below.
_DistanceRange: TypeAlias = tuple[float | None, float | None]
_Metric: TypeAlias = Literal["l2", "cosine", "dot", "hamming"]
# How `get` treats a key without a row.
_Missing: TypeAlias = Literal["drop", "null", "raise"]

class LancememError(Exception):
    """Any failure of lancemem. A note (`__notes__`) names its table where that is known."""

class InvalidInputError(LancememError, ValueError):
    """The call or its data cannot be accepted; nothing was written. Fix it and call again."""

class TableNotFoundError(InvalidInputError, FileNotFoundError):
    """There is no table at this address. Create it, or correct the address."""

class TableExistsError(InvalidInputError, FileExistsError):
    """A table exists at this address. Open it, or choose another address."""

class ChangesUnavailableError(LancememError):
    """The changes of a version cannot be derived. Read the table as a whole and go on behind it.

    Attributes:
        version: The version of the base table; at level "flushed" the generation of a shard.
        operation: Lance's name of the operation that committed it; at level "flushed" that name.
    """

    version: int
    operation: str

class ChangesExpiredError(LancememError):
    """The version behind which changes were asked for was cleaned up. Start from one that is left.

    With level "input", events behind the position were compacted and collected. With level
    "flushed", a collection removed the changes behind the position after the retention.

    Attributes:
        oldest: The oldest version that is left. With another level the oldest generation.
    """

    oldest: int

class WriterFencedError(LancememError):
    """Another job took the shard. Stop, or start a job to take it back."""

class ShardHeldError(LancememError):
    """A job of another process may hold the shard. Close that job, or pass take_over=True."""

class StaleTxnError(LancememError):
    """The shard has a newer version of the application. Stop: this write comes too late."""

class JobStoppedError(LancememError):
    """The job cannot go on. Start a new one: it replays everything that is durable."""

class RetryableError(LancememError):
    """The storage failed or was contended. Call again."""

class CorruptionError(LancememError):
    """Stored bytes are damaged or missing; nothing was skipped. The message names the place."""

class InternalError(LancememError):
    """A defect of lancemem. Report it."""

class ForkedHandleError(LancememError):
    """The object was opened before a fork of the process. Open it again in this process."""

def create_table(
    uri: str | PathLike[str],
    schema: _Schema,
    *,
    primary_key: str | Sequence[str] | None = None,
    sharding: Sharding | None = None,
    config: WriterConfig | None = None,
    maintenance: MaintenanceConfig | bool | None = None,
    changelog: _Changelog | None = None,
    merge_engine: _MergeEngine | None = None,
    sequence_by: str | Sequence[str] | None = None,
    aggregates: Mapping[str, str | Aggregate] | None = None,
    merge_functions: Mapping[str, str] | None = None,
    sequence_groups: _Groups | None = None,
    deletes: _Deletes | None = None,
    delete_retention: timedelta | None = None,
    storage_options: dict[str, str] | None = None,
) -> Table:
    """Create an empty table with its shards, and open it.

    A table whose creation was interrupted is finished.

    Args:
        uri: A path, which is made absolute, a `file://` URL with its escapes, or `s3://`.
        schema: An Arrow schema. Key columns become not nullable.
        primary_key: The key columns in key order: integers, bool, `utf8`, `large_utf8`, `binary` or
            `large_binary`. Default: no key, and the table is append-only.
        sharding: How rows are spread over shards. Default: one shard.
        config: The defaults of every job of the table, stored with it.
        maintenance: Whether and when a task beside every job of the table compacts and collects,
            stored with it. True is `MaintenanceConfig()`. Default: no such task.
        changelog: "stored" stores the changes of each compaction, as `Table.alter` does. "flushed"
            stores those of each flush, and enters deletion-vector mode. Default: changes are
            derived.
        merge_engine: How the events of a key become one row (docs/merge-engines.md): "deduplicate"
            keeps the last, "first_row" the first, "partial_update" the last value that was given of
            each column, "aggregation" what the function of each column makes. It cannot be changed
            later. Default: "deduplicate".
        sequence_by: The columns that order the events of a key, the most significant first.
            Default: the order of arrival.
        aggregates: The function of each column, of `lancemem.agg`, or its name.
        merge_functions: Functions of the user by column, each with an importable name such as
            "package.module:function" (docs/merge-engines.md).
        sequence_groups: Sequence columns, and the columns that are taken together with them.
        deletes: What a delete does. Default: "remove".
        delete_retention: How long a delete with a sequence is remembered after a compaction.
            Default: 7 days, where `sequence_by` orders "deduplicate".
        storage_options: Options of pylance, such as `aws_access_key_id` (docs/object-stores.md).
            Base table and shards share them. No error, log line or `repr` shows the secret ones.

    Returns:
        The table.

    Raises:
        TableExistsError: A table exists at `uri`, or another process created it at the same time.
        InvalidInputError: The key cannot be used, or Lance could not store or read a column as it
            is: dictionaries with indices of less than 32 bits, structs without fields, lists of a
            fixed size of anything but numbers and booleans, blobs and JSON, columns without a name.
            Also where the table cannot have the merge rule, or a merge function cannot be loaded.

    Example:
        schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
        table = lancemem.create_table("board.lance", schema, primary_key="id")
    """

def open_table(
    uri: str | PathLike[str],
    *,
    storage_options: dict[str, str] | None = None,
    verify_sstables: bool = True,
) -> Table:
    """Open a table. This writes nothing.

    On a local disk an SSTable's files are compared with their checksums at the first read of its
    rows, if they have at most 32 MiB, and at its compaction. A mismatch raises `CorruptionError`,
    which names the file.

    Args:
        uri: As in `create_table`.
        storage_options: As in `create_table`.
        verify_sstables: False reads whatever can be decoded and consults no bloom filter, and a
            compaction by this handle takes the rows over. Use it to save what is left of a damaged
            table. Default: True.

    Returns:
        The table.

    Raises:
        TableNotFoundError: There is no table at `uri`.
        InvalidInputError: The table is a Lance table without a MemWAL index (see `enable`), has
            columns that `create_table` refuses, or may not be read. This process cannot load a
            merge function of the table: the text names table, column and function.

    Example:
        table = lancemem.open_table("board.lance")
    """

def enable(
    uri: str | PathLike[str],
    *,
    primary_key: str | Sequence[str] | None = None,
    sharding: Sharding | None = None,
    config: WriterConfig | None = None,
    maintenance: MaintenanceConfig | bool | None = None,
    merge_engine: _MergeEngine | None = None,
    sequence_by: str | Sequence[str] | None = None,
    aggregates: Mapping[str, str | Aggregate] | None = None,
    merge_functions: Mapping[str, str] | None = None,
    sequence_groups: _Groups | None = None,
    deletes: _Deletes | None = None,
    delete_retention: timedelta | None = None,
    storage_options: dict[str, str] | None = None,
    verify_sstables: bool = True,
) -> Table:
    """Enable a Lance table, and open it.

    Records the primary key in the metadata of its fields where the table names none, commits the
    MemWAL index and creates the shards. A table that has the index is opened as it is.

    Args:
        uri: As in `create_table`.
        primary_key: The key columns in key order, for a table that names no key. They become not
            nullable, which reads them once. Their values must be unique, which is not checked.
            Default: the key that the table names.
        sharding: How rows are spread over shards. Default: one shard.
        config: The defaults of every job of the table, stored with it.
        maintenance: Whether and when a task beside every job of the table compacts and collects,
            stored with it. True is `MaintenanceConfig()`. Default: no such task.
        merge_engine: As in `create_table`. A table that is enabled keeps its merge rule: where one
            of these seven arguments is given, all of them must describe that rule.
        sequence_by: As in `create_table`.
        aggregates: As in `create_table`.
        merge_functions: As in `create_table`.
        sequence_groups: As in `create_table`.
        deletes: As in `create_table`.
        delete_retention: As in `create_table`.
        storage_options: As in `create_table`.
        verify_sstables: As in `open_table`.

    Returns:
        The table.

    Raises:
        TableNotFoundError: There is no table at `uri`.
        InvalidInputError: The table has no primary key or another one, a key column has nulls or
            cannot be a key, the table is enabled with another sharding, another merge rule or other
            settings, or has columns that `create_table` refuses. Also where the table cannot have
            the merge rule, and where the MemWAL index was dropped while rows lay above it.

    Example:
        table = lancemem.enable("board.lance", primary_key="id", sharding=lancemem.bucket("id", 4))
    """

def exists(uri: str | PathLike[str], *, storage_options: dict[str, str] | None = None) -> bool:
    """Whether a Lance table is at `uri`, enabled or not.

    Args:
        uri: As in `create_table`.
        storage_options: As in `create_table`.

    Returns:
        Whether there is a table.

    Raises:
        InvalidInputError: `uri` is not a table's URI.
        CorruptionError: There is a table, and its newest version cannot be read.
    """

def drop_table(uri: str | PathLike[str], *, storage_options: dict[str, str] | None = None) -> None:
    """Remove a Lance table with everything in its folder.

    Args:
        uri: As in `create_table`.
        storage_options: As in `create_table`.

    Raises:
        TableNotFoundError: There is no table at `uri`, and nothing is removed.
        RetryableError: A file could not be removed.
    """

def change_feed(
    table: Table,
    since: _State | None = None,
    until: _State | None = None,
    columns: Sequence[str] | None = None,
    filter: _Filter | None = None,  # noqa: A002
    *,
    skip_unchanged: bool = False,
    row_kinds: _RowKinds = "delta",
) -> ChangeFeed:
    """Describe the changes of a table. `Table.changes` of the package calls this.

    Args:
        table: The table.
        since: As in `Table.changes`; a datetime needs a zone.
        until: As in `Table.changes`; a datetime needs a zone.
        columns: As in `Table.changes`.
        filter: As in `Table.changes`.
        skip_unchanged: As in `Table.changes`.
        row_kinds: As in `Table.changes`.

    Returns:
        The feed.

    Raises:
        LancememError: As in `Table.changes`.
    """

def flushed_change_feed(
    table: Table,
    since: str | None = None,
    until: str | None = None,
    columns: Sequence[str] | None = None,
    filter: _Filter | None = None,  # noqa: A002
    *,
    skip_unchanged: bool = False,
    row_kinds: _RowKinds = "delta",
) -> FlushedFeed:
    """Describe the changes of a table's flushes. `Table.changes` of the package calls this.

    Args:
        table: The table.
        since: A position, the `until` of an earlier feed.
        until: A position.
        columns: As in `Table.changes`.
        filter: As in `Table.changes`.
        skip_unchanged: As in `Table.changes`.
        row_kinds: As in `Table.changes`.

    Returns:
        The feed.

    Raises:
        LancememError: As in `Table.changes`.
    """

def input_change_feed(
    table: Table,
    since: str | None = None,
    until: str | None = None,
    columns: Sequence[str] | None = None,
    filter: _Filter | None = None,  # noqa: A002
) -> InputFeed:
    """Describe the events of a table. `Table.changes` of the package calls this.

    Args:
        table: The table.
        since: A position, the `until` of an earlier feed.
        until: A position.
        columns: As in `Table.changes`.
        filter: As in `Table.changes`.

    Returns:
        The feed.

    Raises:
        LancememError: As in `Table.changes`.
    """

def change_feed_of_slices(
    table: Table,
    until: int,
    slices: list[_Slice],
    columns: Sequence[str] | None = None,
    filter: _Filter | None = None,  # noqa: A002
    *,
    skip_unchanged: bool = False,
    row_kinds: _RowKinds = "delta",
) -> ChangeFeed:
    """Describe a part of a feed. `ChangeFeedPart` of the package calls this.

    Args:
        table: The table of the feed.
        until: The version that the feed reaches.
        slices: The slices of the part.
        columns: As in the feed.
        filter: As in the feed.
        skip_unchanged: As in the feed.
        row_kinds: As in the feed.

    Returns:
        The changes of the part.

    Raises:
        InvalidInputError: The slices are of another table.
        LancememError: As in `Table.changes`.
    """

def changes_consumers(table: Table) -> list[ConsumerInfo]:
    """List the consumers of a table's changes, by name.

    Args:
        table: The table.

    Returns:
        The consumers.

    Raises:
        RetryableError: The storage failed.
    """

def changes_consumer(table: Table, name: str) -> ConsumerInfo | None:
    """Look up a consumer of a table's changes.

    Args:
        table: The table.
        name: The name of the consumer.

    Returns:
        The consumer, or None if the table has no consumer of that name.

    Raises:
        InvalidInputError: No consumer can have that name.
        RetryableError: The storage failed.
    """

def move_changes_consumer(table: Table, name: str, version: int) -> None:
    """Move a consumer to a version, or create it there.

    Args:
        table: The table.
        name: The name of the consumer.
        version: The version behind which it goes on. Clean-ups leave this version.

    Raises:
        ChangesExpiredError: The version was cleaned up.
        InvalidInputError: No consumer can have that name, there never was such a version, or the
            consumer is at a later version.
        RetryableError: The storage failed.
    """

def drop_changes_consumer(table: Table, name: str) -> None:
    """Drop a consumer. Clean-ups may remove the version that it kept.

    Args:
        table: The table.
        name: The name of the consumer.

    Raises:
        InvalidInputError: There is no consumer of that name.
        RetryableError: The storage failed.
    """

def flushed_consumers(table: Table) -> list[FlushedConsumer]:
    """List the consumers of the changes of a table's flushes, by name.

    Args:
        table: The table.

    Returns:
        The consumers.

    Raises:
        CorruptionError: A position is damaged.
        RetryableError: The storage failed.
    """

def flushed_consumer(table: Table, name: str) -> FlushedConsumer | None:
    """Look up a consumer of the changes of a table's flushes.

    Args:
        table: The table.
        name: The name of the consumer.

    Returns:
        The consumer, or None if the table has no consumer of that name.

    Raises:
        CorruptionError: The position is damaged.
        InvalidInputError: No consumer can have that name.
        RetryableError: The storage failed.
    """

def move_flushed_consumer(table: Table, name: str, position: str) -> None:
    """Move a consumer of flushed changes to a position, or create it there.

    Args:
        table: The table.
        name: The name of the consumer.
        position: The position behind which it goes on. Collections leave the changes behind it.

    Raises:
        InvalidInputError: No consumer can have that name, the position is of another table, or the
            consumer is at a later position.
        RetryableError: The storage failed.
    """

def drop_flushed_consumer(table: Table, name: str) -> None:
    """Drop a consumer of flushed changes. Collections may remove the changes that it kept.

    Args:
        table: The table.
        name: The name of the consumer.

    Raises:
        InvalidInputError: There is no consumer of that name.
        RetryableError: The storage failed.
    """

def create_index(
    table: Table,
    column: str,
    index_type: str,
    *,
    name: str | None = None,
    replace: bool = False,
    **options: Any,  # noqa: ANN401 - the options of all types of indexes
) -> TableIndex:
    """Create an index of a column of the base table.

    `Table.create_index` calls this, and documents the options.

    Args:
        table: The table.
        column: The column.
        index_type: The type, in upper or lower case.
        name: The name. Default: that of the column and `_idx`.
        replace: Replace the index of that name.
        options: Options of the type, each by its name.

    Returns:
        The index.

    Raises:
        InvalidInputError: The table cannot have such an index.
        RetryableError: The storage failed.
    """

def table_indexes(table: Table) -> list[TableIndex]:
    """List the indexes of the base table, by name.

    Args:
        table: The table.

    Returns:
        The indexes.

    Raises:
        RetryableError: The storage failed.
    """

def drop_index(table: Table, name: str) -> None:
    """Drop an index of the base table.

    Args:
        table: The table.
        name: The name of the index.

    Raises:
        InvalidInputError: No index has that name.
        RetryableError: The storage failed.
    """

def optimize_indexes(
    table: Table,
    names: Sequence[str] | None = None,
    *,
    num_indices_to_merge: int | None = None,
) -> list[OptimizedIndex]:
    """Add rows that the indexes of the base table do not cover to the indexes.

    Args:
        table: The table.
        names: The names of the indexes. Default: all.
        num_indices_to_merge: As in `Table.optimize_indexes`.

    Returns:
        The indexes that changed.

    Raises:
        InvalidInputError: No index has one of the names.
        RetryableError: The storage failed, or other commits came first again and again.
    """

def _set_memory_index_bounds(
    *, vector_bytes: int | None = None, ordered_rows: int | None = None
) -> None:
    """Set from which size on rows in memory are indexed, in this process. For tests.

    Args:
        vector_bytes: The bytes of vectors of a MemTable. Default: as without a call.
        ordered_rows: The rows of a MemTable, for filters. Default: as without a call.
    """

def evaluate(rows: _Rows, expressions: Mapping[str, str]) -> pa.Table:
    """Evaluate SQL expressions over rows in memory.

    A column named `source.x` is the column `x` of `source` in SQL: `source.x + target.x`. Numbers,
    text and times mean what they mean in a condition (docs/reading.md).

    Args:
        rows: The rows.
        expressions: The expression of each column of the result, by its name.

    Returns:
        A table with as many rows.

    Raises:
        InvalidInputError: An expression is not valid, names a column that the rows do not have, or
            fails for a row.
    """

def connect_job(
    location: str, token: str, tls_root_certificates: str | PathLike[str] | None = None
) -> RemoteJob:
    """Connect to a job that another process offers with `Job.serve`.

    Args:
        location: `Endpoint.location` of the job.
        token: `Endpoint.token` of the job.
        tls_root_certificates: The path of a PEM file with the certificate that signed the server's.
            A location with TLS, `grpc+tls://...`, needs it.

    Returns:
        The remote job, for the `jobs` of a read with consistency "live".

    Raises:
        InvalidInputError: The server refused the token, or certificates are named for a location
            without TLS.
        RetryableError: No server answers at `location`.
    """

def bucket(column: str, buckets: int) -> Sharding:
    """Shard rows by the hash of one key column.

    Args:
        column: A column of the primary key with integers, booleans or text.
        buckets: Number of shards, 1 to 1,024.

    Returns:
        A sharding for `create_table` or `enable`.

    Raises:
        InvalidInputError: `buckets` is out of range.

    Example:
        sharding = lancemem.bucket("id", 4)
    """

def unsharded() -> Sharding:
    """Keep all rows in one shard."""

@final
class Sharding:
    """How rows are spread over shards. Made by `bucket` and `unsharded`.

    Attributes:
        num_shards: Number of shards.
        column: The column whose hash selects the shard. None for one shard.
    """

    @property
    def num_shards(self) -> int: ...
    @property
    def column(self) -> str | None: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class MergeRule:
    """How the events of a key become one row. Chosen when a table is created or enabled.

    Columns have their present names. A column that was dropped since is left out.

    Attributes:
        merge_engine: The engine.
        sequence_by: The columns that order the events of a key, the most significant first.
        aggregates: The function of each column that has one.
        merge_functions: The names of the user's functions, by column.
        sequence_groups: The sequence columns of each group, and the columns that follow them.
        deletes: What a delete does.
        nulls: What a null in a partial put does: "set" stores it, "keep" keeps the value.
        delete_retention: How long a delete with a sequence is remembered after a compaction. None
            where no delete has a sequence.
    """

    @property
    def merge_engine(self) -> _MergeEngine: ...
    @property
    def sequence_by(self) -> tuple[str, ...]: ...
    @property
    def aggregates(self) -> dict[str, Aggregate]: ...
    @property
    def merge_functions(self) -> dict[str, str]: ...
    @property
    def sequence_groups(self) -> dict[tuple[str, ...], tuple[str, ...]]: ...
    @property
    def deletes(self) -> _Deletes: ...
    @property
    def nulls(self) -> Literal["set", "keep"]: ...
    @property
    def delete_retention(self) -> timedelta | None: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class WriterConfig:
    """Settings of a job's write path. Settings that are left out come from the table.

    `create_table` and `enable` store settings as the table's defaults. `Table.start_job` takes
    settings for one job. Each setting is an attribute of the same name. A duration is a `timedelta`
    of whole milliseconds. Zero is never "no limit". `MaintenanceConfig` has the settings of the
    task that compacts beside the job.

    Args:
        durable: A put returns only when its rows are in the WAL. Default: True.
        sync_index: A put returns only when its keys are in the key index. With False a background
            task indexes them, and a read that needs the index indexes the rest first. Default:
            True.
        sync_search_index: A put returns only when its rows are in the indexes by which searches
            and filters find rows in memory. With False they are added beside the reads that need
            such an index (docs/search.md). Default: False.
        key_index: The structure of the key index (docs/decisions/0006). Default: "hash".
        index_flushed: Flushed SSTables get the indexes of the base table (docs/format.md). If not,
            a flush takes less time, a search reads all rows of the SSTable, and pylance does not
            find its rows by index. Default: True.
        fsync: On a local disk, file and folder are synced before a put counts as durable. With
            False a put survives a killed process, but not a power cut. Default: True.
        max_memtable_rows: Rows at which a MemTable is frozen and flushed. Default: 100,000.
        max_memtable_bytes: Bytes at which a MemTable is frozen and flushed. Default: 256 MiB.
        max_memtable_batches: Puts at which a MemTable is frozen and flushed. Default: 8,000.
        max_wal_buffer_bytes: Bytes of rows that a job without `durable` may hold back from the WAL.
            Default: 10 MiB.
        max_wal_flush_interval: How long such rows may wait for the WAL. Default: 100 ms.
        max_unflushed_memtable_bytes: MemTable bytes above which puts wait for a flush. Default:
            1 GiB.
        max_uncompacted_generations: Flushed generations of the shard above which puts wait for a
            compaction. Default: 1,000.
        max_compaction_wait: How long a put waits for that compaction before it raises
            `RetryableError`. Default: 1 minute.
        idle_flush_interval: A MemTable that got no put for this long is flushed. "never" switches
            this off. Default: 1 minute.

    Raises:
        InvalidInputError: A value cannot be used, such as a zero that would switch something off.
            The message names the setting. Some values are checked by the call that takes the
            settings.

    Example:
        config = lancemem.WriterConfig(durable=False, idle_flush_interval=timedelta(seconds=5))
        table.start_job(shard=0, config=config)
    """

    def __new__(
        cls,
        *,
        durable: bool | None = None,
        sync_index: bool | None = None,
        sync_search_index: bool | None = None,
        key_index: Literal["hash", "skip_list"] | None = None,
        index_flushed: bool | None = None,
        fsync: bool | None = None,
        max_memtable_rows: int | None = None,
        max_memtable_bytes: int | None = None,
        max_memtable_batches: int | None = None,
        max_wal_buffer_bytes: int | None = None,
        max_wal_flush_interval: timedelta | None = None,
        max_unflushed_memtable_bytes: int | None = None,
        max_uncompacted_generations: int | None = None,
        max_compaction_wait: timedelta | None = None,
        idle_flush_interval: timedelta | Literal["never"] | None = None,
    ) -> Self: ...
    def __getnewargs_ex__(self) -> tuple[tuple[()], dict[str, object]]: ...
    @property
    def durable(self) -> bool | None: ...
    @property
    def sync_index(self) -> bool | None: ...
    @property
    def sync_search_index(self) -> bool | None: ...
    @property
    def key_index(self) -> str | None: ...
    @property
    def index_flushed(self) -> bool | None: ...
    @property
    def fsync(self) -> bool | None: ...
    @property
    def max_memtable_rows(self) -> int | None: ...
    @property
    def max_memtable_bytes(self) -> int | None: ...
    @property
    def max_memtable_batches(self) -> int | None: ...
    @property
    def max_wal_buffer_bytes(self) -> int | None: ...
    @property
    def max_wal_flush_interval(self) -> timedelta | None: ...
    @property
    def max_unflushed_memtable_bytes(self) -> int | None: ...
    @property
    def max_uncompacted_generations(self) -> int | None: ...
    @property
    def max_compaction_wait(self) -> timedelta | None: ...
    @property
    def idle_flush_interval(self) -> timedelta | Literal["never"] | None: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class MaintenanceConfig:
    """Settings of the task beside a job that compacts the table and collects its garbage.

    `create_table` and `enable` store settings as the table's defaults. `Table.start_job` takes
    settings for one job. Settings that are left out come from the table. Each setting is an
    attribute of the same name. A duration is a `timedelta` of whole milliseconds. Zero is never "no
    limit".

    Args:
        enabled: The task compacts and collects. With False the other settings are stored with the
            table, and `maintenance=True` of a job uses them. Default: True.
        generations: Flushed generations of the job's shard at which the task compacts, at most half
            of `max_uncompacted_generations`. Default: 8.
        interval: How long fewer generations wait for the task. Default: 1 minute.
        older_than: How long garbage must have been unneeded before the task removes it. Default: 1
            hour.
        bytes_per_second: Limit on what the task's compactions read and write, in bytes per second.
            It does not apply while puts wait for a compaction. Default: "unlimited".

    Raises:
        InvalidInputError: A value cannot be used, such as a negative number or a part of a
            millisecond. The message names the setting. The call that takes the settings refuses 0
            for `generations` and `interval`.

    Example:
        maintenance = lancemem.MaintenanceConfig(generations=4, older_than=timedelta(minutes=10))
        table.start_job(shard=0, maintenance=maintenance)
    """

    def __new__(
        cls,
        *,
        enabled: bool | None = None,
        generations: int | None = None,
        interval: timedelta | None = None,
        older_than: timedelta | None = None,
        bytes_per_second: int | Literal["unlimited"] | None = None,
    ) -> Self: ...
    def __getnewargs_ex__(self) -> tuple[tuple[()], dict[str, object]]: ...
    @property
    def enabled(self) -> bool | None: ...
    @property
    def generations(self) -> int | None: ...
    @property
    def interval(self) -> timedelta | None: ...
    @property
    def older_than(self) -> timedelta | None: ...
    @property
    def bytes_per_second(self) -> int | Literal["unlimited"] | None: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@disjoint_base
class Table:
    """A Lance table with shards that take upserts.

    The handle belongs to the process that opened it. In a fork every call raises
    `ForkedHandleError`.

    Attributes:
        uri: The address of the table.
        primary_key: The key columns in key order. Empty for an append-only table.
        sharding: How rows are spread over shards. None where the table records no sharding.
        merge_rule: How the events of a key become one row. None where the last event wins.
    """

    # Another handle of the same, for a subclass.
    def __new__(cls, handle: Table) -> Self: ...
    @property
    def uri(self) -> str: ...
    @property
    def schema(self) -> pa.Schema:
        """The columns, as the last read, write or `refresh` of this handle saw them."""

    @property
    def primary_key(self) -> list[str]: ...
    @property
    def sharding(self) -> Sharding | None: ...
    @property
    def merge_rule(self) -> MergeRule | None:
        """The rule by which the row of a key is made; None where the last event of a key wins.

        It is chosen when the table is created or enabled, and never changes. See
        docs/merge-engines.md.
        """

    @property
    def admin(self) -> Admin:
        """Verification and repair: of logs, SSTables and the record index."""

    def refresh(self) -> None:
        """Read the newest version of the base table, so that `schema` has its columns.

        Reads and writes do this by themselves.

        Raises:
            InvalidInputError: Another table was created at `uri` since this one was opened, or the
                columns changed in a way that its rows cannot follow. Open the table again.
        """

    def upsert(
        self,
        data: _Rows,
        *,
        replace: bool = False,
        nulls: Literal["set", "keep"] | None = None,
        txn: _Txn | None = None,
        round_floats: bool = False,
        take_over: bool = False,
    ) -> WriteResult:
        """Add or replace rows by key, routed to their shards. Returns when all rows are durable.

        Where a job or a writer of this process has the shard, the rows go through it. Otherwise the
        call claims the shard, in turn with other such calls of any process. Calls that follow
        within a second need no claim of their own. A call that loses a shard to another writer
        claims it again. A program that writes often uses `writer`.

        **Where a job of another process has claimed the shard and was not closed, the call raises
        `ShardHeldError` before anything is written.** The claim of a process that was killed cannot
        be told from a running job's (docs/write-path.md).

        Values are cast to the column's type where the cast loses nothing. Doubles have rules of
        their own (docs/write-path.md):

        - In a vector, a fixed-size list of `float` or `halffloat`, they are rounded to the nearest.
        - In another `float` column they are rounded only with `round_floats`.
        - Whole numbers go into an integer column: pandas makes doubles where a value is missing.

        Args:
            data: The rows. Columns may come in any order. A table with `merge_engine=
                "partial_update"` or `"aggregation"` takes some of the columns.
            replace: Put whole rows, behind which earlier events of their keys count no more. For
                tables with a merge rule; in others each row replaces the one before. Default:
                False.
            nulls: With "partial_update" what a null does: "set" makes it the value, "keep" leaves
                the column as it is. Default: "set".
            txn: A transaction id `(app_id, version)`. Each shard takes its rows once: they are
                durable together with the id, and a shard that has recorded the id takes nothing. Of
                applications whose name starts with "once:" a shard remembers the 128 whose names
                sort last, for two weeks where the name has a time (docs/format.md). Default: no id.
            round_floats: Round doubles of every `float` column to the nearest. Default: False.
            take_over: Claim a shard although a job of another process may run on it. **That job is
                stopped**: its next put raises `WriterFencedError`. Rows that it acknowledged as
                durable stay; those of `durable=False` that are not in its log are lost.
                Default: False.

        Returns:
            The number of rows, shards and WAL entries written.

        Raises:
            InvalidInputError: The rows cannot be stored. The message names column and row, and
                nothing is written.
            ShardHeldError: A job of another process may run on a shard. Nothing is written, unless
                the job started while the call wrote to other shards.
            StaleTxnError: A shard has recorded a newer version of the application.
            RetryableError: Other writers held a shard for a minute, or no compaction made room
                within `max_compaction_wait`: then compact before another try. Nothing of the call
                is in that shard; other shards may have their rows.
            CorruptionError: The log of a shard is damaged (docs/repair.md).
            JobStoppedError: It is not known whether the rows of a shard are written.
            WriterFencedError: Another process took a shard from the job that wrote the rows. It is
                not known whether the rows of this shard are written.

        Example:
            table.upsert(pa.table({"id": [3, 7], "name": ["Ada", "Grace"]}))
            table.upsert(rows, txn=("loader", 17))
        """

    def delete(
        self, keys: _Keys, *, txn: _Txn | None = None, take_over: bool = False
    ) -> WriteResult:
        """Delete the rows with these keys, whether they exist or not. Returns when all are durable.

        The call writes to each shard as `upsert` does.

        Args:
            keys: As in `get`. In a "deduplicate" table with `sequence_by` rows that have the
                sequence columns too are deletes with that sequence, which lose against a greater
                one. With "first_row" and sequence groups such rows are an `InvalidInputError`: give
                the key columns alone. With `deletes="ignore"` the call changes nothing, though the
                result counts the keys; with "refuse" it is an `InvalidInputError`.
            txn: As in `upsert`.
            take_over: As in `upsert`.

        Returns:
            The number of keys, shards and WAL entries written.

        Raises:
            LancememError: As in `upsert`.

        Example:
            table.delete([3, 7])
        """

    def apply(
        self,
        data: _Rows,
        deletes: _Array,
        *,
        txn: _Txn | None = None,
        round_floats: bool = False,
        take_over: bool = False,
    ) -> WriteResult:
        """Delete the keys of some rows and upsert the other rows, in their order.

        The call writes to each shard as `upsert` does.

        Args:
            data: The rows. Of a row that deletes, the key counts; with "deduplicate" and
                `sequence_by` its sequence too, and with `deletes="retract"` all its values.
            deletes: An Arrow array of booleans, one for each row. True deletes the row's key.
            txn: As in `upsert`.
            round_floats: As in `upsert`.
            take_over: As in `upsert`.

        Returns:
            The number of rows, shards and WAL entries written.

        Raises:
            LancememError: As in `upsert`.

        Example:
            changes = pa.table({"id": [3, 7], "name": ["Ada", None]})
            table.apply(changes, pa.array([False, True]))
        """

    def txn_version(self, app_id: str, *, shard: int | str) -> int | None:
        """Return the newest version that an application has written durably to a shard.

        Args:
            app_id: The application, the first part of `txn`.
            shard: The shard, by ordinal or id.

        Returns:
            The version. None where the shard has recorded no version of the application.

        Raises:
            InvalidInputError: There is no such shard.
        """

    def bulk_writer(self) -> BulkWriter:
        """Start a bulk write. Rows stay invisible until `commit`; no shard is claimed."""

    def commit(
        self,
        sstables: Sequence[StagedSsTable],
        *,
        write: str | None = None,
        txn: _Txn | None = None,
    ) -> CommitResult:
        """Commit a bulk write: its SSTables become the newest rows of their shards.

        In each shard all SSTables appear at once, durably. Shards follow one another. A job that
        runs in one of the shards is fenced.

        The call can be repeated without `txn` too. An SSTable that was committed before stays where
        it is, also after a compaction; a shard remembers the newest 128.

        Args:
            sstables: What `BulkWriter.finish` returned, in the order in which the rows apply.
            write: A name of the bulk write, at most 200 bytes, by which another process may `abort`
                it. The first of the two calls decides.
            txn: As in `upsert`.

        Returns:
            The number of rows, shards and SSTables committed.

        Raises:
            InvalidInputError: The bulk write was aborted, or an SSTable is missing or was written
                more than six days ago: `collect_garbage` removes staged SSTables after a week.
            StaleTxnError: A shard has recorded a newer version of the application.
            RetryableError: The storage failed, or other writers held a shard for a minute. Each
                shard has all of its SSTables or none: call again with the same arguments.
            CorruptionError: The file that records the decision about the bulk write is damaged.
        """

    def abort(self, sstables: Sequence[StagedSsTable], *, write: str) -> bool:
        """Abort a bulk write: remove its staged SSTables, unless a commit of `write` has begun.

        SSTables that are older than six days stay for `collect_garbage`. SSTables that are gone
        count as removed.

        Args:
            sstables: What `BulkWriter.finish` returned.
            write: The name of the bulk write, as in `commit`.

        Returns:
            Whether the bulk write is aborted.

        Raises:
            InvalidInputError: With nothing removed, where an SSTable was committed under another
                name.
        """

    def shard_ordinals(self, data: _Rows) -> ArrowArray:
        """Return the shard ordinal of every row as int32.

        Args:
            data: Rows with the sharding column. Other columns are ignored.

        Returns:
            An array with one ordinal for each row.

        Raises:
            InvalidInputError: The sharding column is missing or cannot be hashed, or the table has
                no sharding.
        """

    def writer(
        self,
        config: WriterConfig | None = None,
        *,
        maintenance: MaintenanceConfig | bool | None = None,
    ) -> TableWriter:
        """Open a writer, which takes rows of all shards.

        Claims no shard yet: the first rows of a shard start its job. As with `start_job`, a job of
        another process stops there with `WriterFencedError`. Where a job of this process runs on a
        shard, the writer shares it, and does not close it.

        Args:
            config: Settings of the jobs that the writer starts. Default: the table's.
            maintenance: As in `start_job`, for each of these jobs.

        Returns:
            The writer, which is a context manager.

        Raises:
            InvalidInputError: A setting cannot be used, or the table has no sharding. Also where a
                job of this process runs with other settings than `config`.

        Example:
            with table.writer() as writer:
                writer.put(rows)
                writer.delete([3, 7])
        """

    def start_job(
        self,
        *,
        shard: int | str | None = None,
        config: WriterConfig | None = None,
        maintenance: MaintenanceConfig | bool | None = None,
    ) -> Job:
        """Claim a shard and start its job.

        A job that ran before is fenced. Rows that were durable are in memory again. Calls such as
        `upsert` of this process go through the job from now on; one that is under way ends first.

        Args:
            shard: The shard, by ordinal or id. Default: the table's only shard.
            config: Settings of this job. Default: the table's.
            maintenance: Whether a task beside the job compacts the table and collects its garbage.
                True starts it with the table's settings, False starts none, and a
                `MaintenanceConfig` starts it with settings of its own. Default: the table's.

        Returns:
            The job, which is a context manager.

        Raises:
            InvalidInputError: There is no such shard, or a setting cannot be used. Also where the
                table has several shards and none is given.
            CorruptionError: An entry of the shard's log is damaged (docs/repair.md).

        Example:
            with table.start_job() as job:
                job.put(rows)
                job.flush()
        """

    def scan(
        self,
        columns: _Columns | None = None,
        filter: _Filter | None = None,  # noqa: A002
        limit: int | None = None,
        offset: int = 0,
        *,
        order_by: _OrderBy | None = None,
        consistency: _Consistency = "durable",
        jobs: Sequence[Job | RemoteJob] | None = None,
    ) -> Scan:
        """Prepare a read of the newest row of every key.

        Each read of the scan takes a snapshot of its own. Rows come in no order without `order_by`.

        Args:
            columns: The columns of the result, or a SQL expression over the columns of the row for
                each column of the result, by its name (docs/reading.md). Default: all columns.
            filter: A SQL condition or a pyarrow expression (docs/reading.md). A condition on null
                is null, as in SQL. Default: every row.
            limit: The maximum number of rows. Default: no limit.
            offset: Number of rows that are skipped first. Without `order_by` by a key it cannot
                page, because rows have no order.
            order_by: Columns by which the rows are sorted, the first counts most: a name, `"-name"`
                or `("name", "desc")` for descending, or pylance's `ColumnOrdering`. Columns need
                not be in the result; a computed column counts before one of the table. Nulls come
                last in both directions. A sort reads all rows before it returns the first
                (docs/reading.md). Default: no order.
            consistency: "flushed" reads the base table and flushed SSTables. "durable" also reads
                the WAL, so every acknowledged durable write of any process. "live" also reads the
                MemTables of the jobs and writers of this process, and those of `jobs`.
            jobs: More running jobs of a "live" read: of other processes, as `connect_job` returns
                them. The other levels take none. The read raises `JobStoppedError` where a job of
                `jobs` is closed. Where another job took its shard, it raises `WriterFencedError`
                for a job of this process, and `JobStoppedError` for one of `connect_job`. A job of
                this process that is not among `jobs` is left out once it does not run any more.

        Returns:
            A read that has not begun.

        Raises:
            InvalidInputError: The expression cannot be translated, or `jobs` does not go with
                `consistency`. Other faults of a condition or of an expression are raised when the
                rows are read.

        Example:
            table.scan(["id", "delay"], "delay > 15", limit=1_000).to_table()
            table.scan({"id": "id", "hours": "delay / 60.0"}).to_table()
            table.scan(order_by=["carrier", "-delay"], limit=10).to_table()
        """

    def sql(
        self,
        query: str,
        *,
        consistency: _Consistency = "durable",
        jobs: Sequence[Job | RemoteJob] | None = None,
    ) -> Scan:
        """Prepare a SQL query of the table, in DataFusion's dialect.

        The table is called `t`, and as its folder without the extension. Each read takes one
        snapshot, which all parts of the query share. Names keep their case, as in `scan`; names
        that are words of SQL stand in double quotes. Sorts, aggregates and joins use at most 1 GiB
        of memory (docs/reading.md).

        Args:
            query: One statement that reads: SELECT, WITH, VALUES, EXPLAIN or DESCRIBE. Statements
                that write, and settings, are refused.
            consistency: As in `scan`.
            jobs: As in `scan`.

        Returns:
            A read that has not begun, with the forms of a scan.

        Raises:
            InvalidInputError: The query does not parse, is no single query, or `jobs` does not go
                with `consistency`. Other faults of a query are raised when the rows are read, such
                as an unknown column, or a join that needs more memory.

        Example:
            table.sql("SELECT carrier, avg(delay) AS delay FROM t GROUP BY carrier").to_pandas()
        """

    def search(
        self,
        query: _Query,
        *,
        query_type: _QueryType = "auto",
        text: _Text | None = None,
        text_columns: str | Sequence[str] | None = None,
        rerank: _Rerank | None = None,
        column: str | None = None,
        k: int = 10,
        columns: Sequence[str] | None = None,
        filter: _Filter | None = None,  # noqa: A002
        metric: _Metric | None = None,
        nprobes: int | None = None,
        minimum_nprobes: int | None = None,
        maximum_nprobes: int | None = None,
        ef: int | None = None,
        refine_factor: int | None = None,
        distance_range: _DistanceRange | None = None,
        prefilter: bool = True,
        exact: bool = False,
        fast_search: bool = False,
        offset: int = 0,
        consistency: _Consistency = "durable",
        jobs: Sequence[Job | RemoteJob] | None = None,
    ) -> Scan:
        """Prepare a search for the rows nearest to a vector, or that match a text, or both.

        Each read takes a snapshot of its own and sees every row that a scan of it sees, so a row
        is found as soon as its write is acknowledged. A row that was updated or deleted is not
        (docs/search.md). Distances are exact, computed from the stored vectors. A row whose vector
        is null or has a null, or whose distance is no number, is never in the result.

        Args:
            query: One vector: a list or an array of numbers. A batch of them: a list of vectors, an
                array of two dimensions, or an Arrow array of lists. Or words, or a query of
                `lancemem.query`, for a full-text search.
            query_type: What the query is: "vector", "fts" for words, or "hybrid" for a vector with
                `text`. Default: "auto", as its form says.
            text: Words or a query of `lancemem.query` beside a vector: a hybrid search, which joins
                the rows nearest to the vector and those that match the text.
            text_columns: The columns of strings that a text is searched in. Default: all with an
                `INVERTED` index.
            rerank: How the two lists of a hybrid search become one: `lancemem.RRF`, a function of
                (query, vector_results, fts_results), or an object with `rerank_hybrid`, as in
                lancedb, that returns an Arrow table with the key and `_relevance_score`. Default:
                `lancemem.RRF()`.
            column: The column of vectors, a fixed_size_list of float16, float32, float64, int8 or
                uint8. Default: the only one whose vectors are as wide as the query.
            k: The largest number of rows, of each query.
            columns: The columns of the result. Default: all columns.
            filter: A condition on the newest row of each key, as in `scan`. Default: every row.
            metric: "l2" (squared), "cosine" (one minus the cosine), "dot" (one minus the product),
                or "hamming" of uint8. Default: that of the column's index, else "l2", or "hamming"
                for uint8.
            nprobes: How many partitions of an index are searched, no fewer and no more. Default:
                Lance's choice.
            minimum_nprobes: The least number of partitions. Default: as `nprobes`.
            maximum_nprobes: The largest number of partitions. Default: as `nprobes`.
            ef: The number of candidates in an HNSW graph. Default: Lance's choice.
            refine_factor: Candidates of an index for each row of the result, whose exact distances
                decide. Default: 4 with PQ or RQ, 2 with SQ and for IVF_HNSW_FLAT, 1 for IVF_FLAT.
            distance_range: The least distance, and the distance that all are below. None for no
                bound. Default: every distance.
            prefilter: Whether `filter` chooses the rows that are compared. If not, it chooses among
                the `k` nearest rows, so that fewer may be left.
            exact: Whether to use no index: the result is that of comparing every row.
            fast_search: Whether to search the indexes of the base table and of flushed SSTables
                alone, without rows that are in no index, such as those in memory.
            offset: Number of rows, of each query, that are skipped first.
            consistency: As in `scan`.
            jobs: As in `scan`.

        Returns:
            A read that has not begun, with the forms of a scan. Its columns are `query_index`
            (int32) for a batch, then `columns`, then `_distance` (float32). Rows are ordered by
            distance, and by key where distances are equal. A full-text search has `_score` (BM25,
            float32), the best first; a hybrid one `_distance`, `_score` and `_relevance_score`.

        Raises:
            InvalidInputError: The query has no form of a query, or an argument cannot be used.
                Other faults are raised when the rows are read, such as a vector of another width.

        Example:
            table.search([0.1, 0.9], k=3, filter="year > 2020").to_pandas()
        """

    def snapshot(
        self,
        *,
        consistency: _Consistency = "durable",
        jobs: Sequence[Job | RemoteJob] | None = None,
        token: str | None = None,
        version: int | None = None,
        timestamp: datetime | None = None,
    ) -> Snapshot:
        """Take a snapshot of the table, to read it more than once.

        This handle keeps the newest snapshot that it opened by a token open until it collects. With
        `version` or `timestamp` the snapshot is the base table as it was then, without logs and
        SSTables: rows that no compaction had moved by then are not in it.

        Args:
            consistency: As in `scan`. Does not go with `token`.
            jobs: As in `scan`. Does not go with `token`.
            token: `Snapshot.token` of a snapshot that this or another process took. It can be
                opened again as long as `collect_garbage` and Lance's clean-up leave its files, by
                default an hour. Default: a new snapshot.
            version: A version of the base table, as `history` lists them. Goes with no other
                argument.
            timestamp: The newest version that was committed at this time or before, by the clocks
                of the programs that committed. A time without a zone is local time. Goes with no
                other argument.

        Returns:
            The snapshot.

        Raises:
            InvalidInputError: Files of the token's snapshot were removed, the token is of another
                table, or arguments do not go together. Also where there is no such version, or
                none as old as `timestamp`; the error names the oldest version left.
            JobStoppedError: A job of `jobs` is closed, or is of `connect_job` and lost its shard.
            WriterFencedError: Another job took the shard of a job of `jobs` of this process.

        Example:
            snapshot = table.snapshot()
            table.snapshot(version=41).count_rows()
            snapshot.count_rows("delay > 15")
            snapshot.get([3, 7])
        """

    def to_dataset(
        self,
        *,
        consistency: _Consistency = "durable",
        jobs: Sequence[Job | RemoteJob] | None = None,
    ) -> TableDataset:
        """Return the table as a `pyarrow.dataset.Dataset`, for DuckDB, polars and pyarrow.

        Columns and conditions of their queries are pushed into the scan. Every scan of the dataset
        reads a snapshot of its own; every scan of `snapshot().to_dataset()` reads the same one.

        Args:
            consistency: As in `scan`.
            jobs: As in `scan`.

        Returns:
            The dataset.

        Raises:
            InvalidInputError: `jobs` does not go with `consistency`.

        Example:
            flights = table.to_dataset()
            duckdb.sql("SELECT carrier, avg(delay) FROM flights GROUP BY carrier")
        """

    def __datafusion_table_provider__(self, session: object) -> object:
        """Serve the queries of a DataFusion session: `session.register_table("board", table)`.

        Each scan of a query reads a snapshot of its own, with every acknowledged durable write of
        any process. Needs the package datafusion, version 54.

        Args:
            session: The session, which DataFusion passes.

        Returns:
            A capsule of DataFusion's C interface.
        """

    def get(
        self,
        keys: _Keys,
        columns: Sequence[str] | None = None,
        *,
        missing: _Missing = "drop",
        consistency: _Consistency = "durable",
        jobs: Sequence[Job | RemoteJob] | None = None,
    ) -> pa.Table:
        """Return the newest rows of `keys`, in the order of the keys.

        A key that is given twice returns its row twice.

        Args:
            keys: Rows with the key columns. Where the key is one column, also an Arrow array or any
                iterable of its values, such as a list, a range or a numpy array. Where the key has
                several columns, also a list of tuples in their order.
            columns: The columns of the result. Default: all of them.
            missing: What a key without a row becomes. "drop" leaves it out. "null" returns a row in
                its place with the key and nulls; the other columns are then nullable. "raise"
                raises.
            consistency: As in `scan`.
            jobs: As in `scan`.

        Returns:
            The rows.

        Raises:
            InvalidInputError: With `missing="raise"`, where keys have no row. The message names the
                number of these keys and the first five. Also where the keys cannot be used.
            JobStoppedError: A job of `jobs` is closed, or is of `connect_job` and lost its shard.
            WriterFencedError: Another job took the shard of a job of `jobs` of this process.

        Example:
            rows = table.get([3, 7])
            one_row_per_key = table.get([3, 7], missing="null")
        """

    def flush(self, *, idle_for: timedelta | None = None, take_over: bool = False) -> FlushResult:
        """Move the rows of logs into flushed SSTables, which `compact` moves into the base table.

        Where a job or a writer of this process has a shard, it flushes, and goes on. Otherwise the
        call claims each shard whose log has rows, in turn with calls such as `upsert`. A job of
        another process is not stopped: the call raises `ShardHeldError` before it flushes anything.

        With `idle_for` the call raises no such error. It takes over released claims alone: those of
        calls such as `upsert`, and those of jobs that were closed. Other logs are left alone and
        listed in `skipped`: a running job flushes its log itself after its `idle_flush_interval`.
        The log of a process that was killed waits for `flush(take_over=True)`.

        Args:
            idle_for: Flush a log only where its claim is released and its newest entry is at least
                this old. Default: flush every log.
            take_over: Flush the log of a shard although a job of another process may run there, as
                in `upsert`. **That job is stopped.** Does not go with `idle_for`. Default: False.

        Returns:
            A report that lists each log that was flushed or left alone.

        Raises:
            ShardHeldError: A job of another process may run on a shard whose log has rows.
            RetryableError: Other writers held a shard for a minute. The rows of that shard stay in
                its log; other shards may be flushed.
            CorruptionError: A log is damaged. With `idle_for` it is listed in `skipped` instead.

        Example:
            table.flush().num_rows
            table.flush(idle_for=timedelta(minutes=1)).skipped
        """

    def compact(
        self,
        *,
        mode: Literal["auto", "link", "rewrite"] = "auto",
        dry_run: bool = False,
        update_indexes: bool = True,
        max_dead_share: float | None = None,
        bytes_per_second: int | None = None,
        flush: bool = False,
        count_logs: bool = True,
        progress: _Progress = None,
    ) -> CompactionResult:
        """Move every flushed SSTable into the base table, all shards in one commit.

        Rows that are in a log alone are not moved, except with `flush=True`. The result counts the
        rows that stay in logs.

        Steps after the move, such as the rewrite of mostly dead fragments, have their own commits,
        which change no row.

        Args:
            mode: "link" makes the data file of an SSTable a base fragment as it is. "rewrite"
                writes its live rows into a new file, with live rows of other SSTables. "auto"
                decides for each SSTable.
            dry_run: Decide, and write nothing. Default: False.
            update_indexes: Let the table's own indexes cover the new rows. Indexes of linked
                SSTables become segments, and segments over other new rows are built.
                Default: True.
            max_dead_share: Lance rewrites base fragments in which more than this share of the rows
                is dead. With "auto" an SSTable with a larger share is rewritten when it is moved.
                Default: 0.5.
            bytes_per_second: Limit on the bytes that are read of the base table and of the
                SSTables, and written. Default: no limit.
            flush: Flush all logs first, as `Table.flush` does: jobs of this process flush and go
                on, and a job of another process makes the call raise `ShardHeldError`. Then every
                row reaches the base table. Default: False.
            count_logs: Count the rows that stay in logs. This reads each log entry that no flush
                has covered. Default: True.
            progress: A function that is called with a `lancemem.Progress` on this thread while the
                call runs, at most about ten times a second, and at the end of each stage. An
                exception of it is passed to `sys.unraisablehook`, and it is not called again: the
                call goes on. An exception that ends a program, such as Ctrl-C, cancels the call.
                True shows bars of `tqdm`, which has to be installed. Default: nothing is shown.

        Returns:
            A report that lists, for each SSTable, what became of it and why.

        Raises:
            ShardHeldError: With `flush=True`, a job of another process may run on a shard whose log
                has rows. Nothing is moved. `flush(take_over=True)` stops that job.
            InvalidInputError: `bytes_per_second` is 0, `flush` is combined with `dry_run`, or
                another argument cannot be used.
            RetryableError: Other commits came first 50 times, and nothing is moved. Or other
                writers held a shard for a minute, and nothing is compacted.

        Example:
            table.compact()
            table.compact(flush=True).num_rows_in_logs
            table.compact(dry_run=True).sstables
        """

    def alter(
        self,
        *,
        deletion_vectors: bool | None = None,
        changelog: _Changelog | EllipsisType | None = ...,
        changelog_retention: timedelta | None = None,
    ) -> int:
        """Change settings of the table.

        In deletion-vector mode a look-up beside each flush records, by position, which rows the new
        SSTable supersedes. Reads with consistency "flushed" then compare no keys, not even the
        first one of a process. Nothing is rewritten.

        A job enters the mode when it starts. `upsert`, `delete`, `flush` and bulk writes leave the
        look-up to the next job, to `write_deletion_vectors` or to `python -m lancemem maintain`.
        With a flushed changelog `flush` looks up too. Rows without a look-up are compared by key.

        With a stored changelog each compaction stores the changes of its version, which `changes`
        then reads instead of deriving them. They stay readable after the version is cleaned up.

        With a flushed changelog the look-up after each flush stores the changes of the new SSTable,
        for `changes(level="flushed")`. It needs deletion-vector mode. A compaction stores what is
        missing before it moves an SSTable.

        Args:
            deletion_vectors: True enters the mode, and looks up every flushed SSTable before the
                call returns. False compacts every flushed SSTable first, and leaves the mode.
                Default: as it is.
            changelog: "stored" stores the changes of each compaction from here on, "flushed" those
                of each flush, and of the SSTables that no compaction has moved yet. None ends that;
                changes that are stored stay for the retention. Default: as it is.
            changelog_retention: How long stored changes are kept, at least. Default: as it is, and
                at first seven days.

        Returns:
            The version of the base table that records the settings.

        Raises:
            InvalidInputError: No setting is named, `changelog` has no such value, the table has no
                primary key (`deletion_vectors`, "flushed") or has a merge rule ("flushed"), it has
                a column with one of the names that a change feed adds (`changelog`), or "flushed"
                goes without deletion-vector mode.

        Example:
            table.alter(deletion_vectors=True)
            table.alter(changelog="stored", changelog_retention=timedelta(days=3))
        """

    def alter_column(self, name: str, type: pa.DataType) -> int:  # noqa: A002
        """Change the type of a column: int32 to int64, or float32 to float64.

        Every other change of the columns is Lance's: `add_columns`, `drop_columns` and
        `alter_columns` of the dataset. Lance refuses a change of type as long as rows are above the
        base table.

        Args:
            name: The column.
            type: Its new type, `pyarrow.int64()` or `pyarrow.float64()`.

        Returns:
            The version of the base table that has the new type.

        Raises:
            InvalidInputError: With nothing written, for any other change of type, for the sharding
                column, and for a column of the primary key, inside a struct or with an index.

        Example:
            table.alter_column("count", pa.int64())
        """

    def collect_garbage(
        self,
        *,
        dry_run: bool = False,
        older_than: timedelta | None = None,
        progress: _Progress = None,
    ) -> CollectionResult:
        """Remove what no reader has needed for `older_than`.

        Jobs and readers of any process go on meanwhile. A read that lasts longer than `older_than`
        may fail in another process; in this process the SSTables that it reads stay. Garbage is:

        - SSTables that the base table contains, with their deletion vectors;
        - WAL entries whose rows are in SSTables;
        - left-overs of failed flushes;
        - staged SSTables, and records of bulk writes, after a week;
        - shard manifests of more than a day ago;
        - pages of the record index that no run has any more;
        - stored changes that are older than `changelog_retention` and that no consumer needs;
        - merged rows of SSTables that are not the newest, and remembered deletes that no version
          lists;
        - files of the base table that no version names and that are a week old.

        Args:
            dry_run: List each thing with its reason, and write nothing. Default: False.
            older_than: How long a thing must have been unneeded. Default: 1 hour.
            progress: As in `compact`.

        Returns:
            What was removed, each thing with its reason.

        Raises:
            InvalidInputError: With nothing removed, where the clock of this process and the clock
                of the table's store are more than a quarter of `older_than` apart. A minute is
                always allowed, more than an hour never.

        Example:
            table.collect_garbage()
            table.collect_garbage(dry_run=True).garbage
        """

    def shards(self) -> list[Shard]:
        """Describe every shard, by ordinal."""

    def stats(self, *, count_logs: bool = True) -> TableStats:
        """Count the rows of the base table, and the SSTables, logs and rows above it.

        The rows of a log are counted by a read of each entry that no flush has covered.

        Args:
            count_logs: Read the logs. Without, `num_log_rows` and `log_bytes` are 0 and `logs` is
                empty. Default: True.

        Returns:
            The counts at one moment.

        Raises:
            CorruptionError: A log is damaged.
        """

    def create_record_index(self, *, progress: _Progress = None) -> RecordIndexReport:
        """Create the record index of the base table. An existing index is replaced by a new one.

        `get` and compactions find the base rows of keys in it, for keys of one column and of
        several. Compactions keep it up from then on.

        Args:
            progress: As in `compact`.

        Returns:
            A report of the new index.

        Raises:
            InvalidInputError: The table has no primary key.

        Example:
            table.create_record_index()
        """

    def drop_record_index(self) -> None:
        """Drop the record index, if there is one. `get` and compactions then read key columns.

        Readers that have the index open may go on with it: `collect_garbage` removes its files. A
        compaction that runs meanwhile does not bring the index back.

        Raises:
            InvalidInputError: The table has no primary key.
        """

    @property
    def changelog(self) -> _Changelog | None:
        """Which changes the table stores, at the newest version that this handle has seen.

        "stored" where compactions do, "flushed" where look-ups after flushes do, None where changes
        are derived.
        """

    @property
    def deletion_vectors(self) -> bool:
        """Whether deletion-vector mode is on, at the newest version that this handle has seen."""

    def write_deletion_vectors(
        self, *, shard: int | str | None = None, progress: _Progress = None
    ) -> DeletionVectorResult:
        """Look up which rows each flushed SSTable supersedes, where the look-up is missing.

        With `changelog="flushed"` it stores the missing changes of flushes too.

        Args:
            shard: The only shard whose SSTables are looked up, by ordinal or id. Default: every
                shard.
            progress: As in `compact`.

        Returns:
            The number of SSTables, fragments and bytes.

        Raises:
            InvalidInputError: Deletion-vector mode is off.
        """

    def history(self, limit: int | None = None) -> list[TableVersion]:
        """Describe the newest versions of the base table, newest first.

        Upserts make no version: rows reach the base table with a compaction.

        Args:
            limit: The maximum number of versions. Default: all of them.

        Returns:
            One description for each version.
        """

@final
class Admin:
    """Verification and repair of a table: `Table.admin`.

    The object belongs to the process that opened the table, as the table does.
    """

    def verify_wal(self, shard: int | str) -> WalReport:
        """Look for damage in a shard's log; write nothing.

        Args:
            shard: The shard, by ordinal or id.

        Returns:
            A report whose findings start at the first damaged entry. A log without damage has no
            findings.

        Raises:
            CorruptionError: The shard is older than its table, or the base table is older than the
                shard.
            InvalidInputError: There is no such shard.
        """

    def truncate_wal(self, shard: int | str, *, from_position: int) -> WalReport:
        """Truncate a shard's log at a damaged entry. The job of the shard is fenced.

        Every dropped entry is copied to `_lancemem/dropped/` first. Intact entries behind
        `from_position` are dropped too.

        Args:
            shard: The shard, by ordinal or id.
            from_position: The first entry to drop: the first damaged one, which `verify_wal`
                reports, or an entry before it.

        Returns:
            A report of the dropped entries.

        Raises:
            InvalidInputError: With nothing written, where an entry before `from_position` is
                damaged too, where no entry is damaged, or where the shard manifest covers
                `from_position`.
            RetryableError: The log may be truncated in part. Call again.
        """

    def verify_sstables(
        self, shard: int | str | None = None, *, progress: _Progress = None
    ) -> list[SsTableReport]:
        """Compare every file of uncompacted SSTables with its checksum; write nothing.

        All bytes are read, on an object store too. SSTables that Lance wrote have no checksums. An
        SSTable that is compacted meanwhile is left out where its files are gone. Generations that
        were flushed and are missing are reported as damage too. Deletes that the table remembers
        are verified with every shard.

        Args:
            shard: The only shard to verify, by ordinal or id. Default: every shard.
            progress: As in `Table.compact`.

        Returns:
            A report for each SSTable, for each range of missing generations, and for each folder of
            remembered deletes.

        Raises:
            InvalidInputError: There is no such shard.
            RetryableError: A fault that may pass. The error names the file.
        """

    def verify_record_index(self, *, progress: _Progress = None) -> RecordIndexReport:
        """Compare the record index with the base table, entry by entry; write nothing.

        Args:
            progress: As in `Table.compact`.

        Returns:
            A report, whose `damage` is empty for a correct index. `Table.create_record_index`
            repairs a damaged one.

        Raises:
            InvalidInputError: The table has no primary key.
        """

    def relist_sstables(self, shard: int | str | None = None) -> list[RelistReport]:
        """List SSTables again whose rows the base table lost, and that are still on storage.

        Use it where a version from before a compaction was restored, or the base table was copied
        before its shards. Reads, writes and compactions then raise `CorruptionError`, "base table
        older than its shards". Every file of an SSTable is compared with its checksum first.
        Running jobs go on. Rows that were put later still supersede the rows that come back.

        Args:
            shard: The only shard to repair, by ordinal or id. Default: every shard.

        Returns:
            A report for each shard of which generations were missing. The table can be used when no
            generation is missing any more.

        Raises:
            InvalidInputError: There is no such shard, or its rows are of another sharding.
        """

    def abandon_generations(self, shard: int | str, *, through_generation: int) -> int:
        """Give up the rows of a shard's missing generations, so that the table can be used again.

        The base table counts as containing these generations from then on. SSTables that are
        listed below `through_generation` are compacted first. `relist_sstables` brings rows back;
        call it first, unless an older version was restored to be rid of them.

        Args:
            shard: The shard, by ordinal or id.
            through_generation: Its newest missing generation, which the error names.

        Returns:
            The version of the base table that counts as containing them.

        Raises:
            InvalidInputError: With nothing written, where no generation is missing, or the newest
                one that is has another number.
        """

@final
class Job:
    """The only writer of a shard while it runs; a context manager, which closes it.

    Several threads may use it.

    Attributes:
        shard_id: The id of the shard.
    """

    @property
    def shard_id(self) -> str: ...
    def put(
        self,
        data: _Rows,
        *,
        replace: bool = False,
        nulls: Literal["set", "keep"] | None = None,
        durable: bool | None = None,
        sync_index: bool | None = None,
        sync_search_index: bool | None = None,
        txn: _Txn | None = None,
        round_floats: bool = False,
    ) -> Acknowledged:
        """Add or replace rows of this shard, all of them or none.

        What a put promises when it returns, in each mode, is in docs/write-path.md.

        Args:
            data: The rows, at most 4 GiB. Columns may come in any order.
            replace: As in `Table.upsert`.
            nulls: As in `Table.upsert`.
            durable: Replaces this setting of the job for this put. Default: the job's.
            sync_index: Replaces this setting of the job for this put. Default: the job's.
            sync_search_index: The same for this setting. Default: the job's.
            txn: A transaction id. The rows are written only where the shard has not recorded it;
                see `Table.upsert`.
            round_floats: As in `Table.upsert`.

        Returns:
            Which promises hold: whether the rows are durable, and whether their keys are indexed.

        Raises:
            InvalidInputError: The rows cannot be stored, with column and row in the message, or
                have more than 4 GiB, with this bound in the message. Nothing is written.
            StaleTxnError: The shard has recorded a newer version of the application.
            RetryableError: No compaction made room within `max_compaction_wait`; nothing is
                written.
            WriterFencedError: Another job took the shard.
            JobStoppedError: The job is closed or cannot go on.

        Example:
            job.put(pa.table({"id": [3], "name": ["Ada"]}))
            job.put(rows, durable=False)
        """

    def delete(
        self,
        keys: _Keys,
        *,
        durable: bool | None = None,
        sync_index: bool | None = None,
        sync_search_index: bool | None = None,
        txn: _Txn | None = None,
    ) -> Acknowledged:
        """Delete keys of this shard, whether they exist or not.

        Args:
            keys: As in `Table.get`.
            durable: As in `put`.
            sync_index: As in `put`.
            sync_search_index: As in `put`.
            txn: As in `put`.

        Returns:
            Which promises hold, as for `put`.

        Raises:
            LancememError: As in `put`.
        """

    def retract(
        self,
        rows: _Rows,
        *,
        durable: bool | None = None,
        sync_index: bool | None = None,
        sync_search_index: bool | None = None,
        txn: _Txn | None = None,
        round_floats: bool = False,
    ) -> Acknowledged:
        """Take rows of this shard back, as `Table.retract` does.

        Args:
            rows: As in `Table.retract`.
            durable: As in `put`.
            sync_index: As in `put`.
            sync_search_index: As in `put`.
            txn: As in `put`.
            round_floats: As in `Table.upsert`.

        Returns:
            Which promises hold, as for `put`.

        Raises:
            InvalidInputError: The table has another engine or other `deletes`, or the rows cannot
                be taken back.
            LancememError: As in `put`.

        Example:
            job.retract(pa.table({"page": ["/"], "clicks": [3]}))
        """

    def apply(
        self,
        data: _Rows,
        deletes: _Array,
        *,
        durable: bool | None = None,
        sync_index: bool | None = None,
        sync_search_index: bool | None = None,
        txn: _Txn | None = None,
        round_floats: bool = False,
    ) -> Acknowledged:
        """Delete the keys of some rows and put the other rows, in one step and in their order.

        Args:
            data: The rows, as in `Table.apply`.
            deletes: As in `Table.apply`.
            durable: As in `put`.
            sync_index: As in `put`.
            sync_search_index: As in `put`.
            txn: As in `put`.
            round_floats: As in `Table.upsert`.

        Returns:
            Which promises hold, as for `put`.

        Raises:
            LancememError: As in `put`.
        """

    def flush(self) -> None:
        """Write the rows in memory to an SSTable. Returns when the shard manifest lists it.

        Readers with consistency "flushed" then see the rows, and `Table.compact` can move them.

        Raises:
            LancememError: The flush failed. Durable rows stay in the WAL.
            WriterFencedError: Another job took the shard.
            JobStoppedError: The job is closed or cannot go on.

        Example:
            job.put(rows)
            job.flush()
            table.compact()
        """

    def close(self, *, flush: bool | None = False) -> None:
        """End the job when every put is durable.

        A later call that asks for the same raises the same error again.

        Args:
            flush: True flushes the rows first. False leaves them in the WAL. None is for a job that
                was started for a few rows: it flushes them where the log has more than 63 puts or
                32 MiB, which would make the next job of the shard slow to start. A flush that fails
                is then a warning, as the rows are durable. Default: False.

        Raises:
            JobStoppedError: The storage kept the job from flushing, or the job was closed without
                `flush` before. The next job has the rows.
            LancememError: The job had ended with this error.
        """

    def serve(
        self,
        address: str = "grpc://127.0.0.1:0",
        token: str | None = None,
        tls: tuple[str | PathLike[str], str | PathLike[str]] | None = None,
        *,
        max_streams: int = 16,
        stall_timeout: timedelta | None = None,
    ) -> Endpoint:
        """Offer the rows in this job's memory to other processes, over Arrow Flight.

        The endpoint ends with the job or with `Endpoint.close`, not with the object.

        Args:
            address: The address to listen on; port 0 takes a free one.
            token: The secret of a reader, 16 to 4,096 visible ASCII characters. Default: 256 random
                bits.
            tls: The paths of a certificate and of its private key, in PEM form. Without TLS, rows
                and token can be read on the way.
            max_streams: The maximum number of reads at a time. Default: 16.
            stall_timeout: A read whose reader takes nothing for this long ends with an error. Until
                then it keeps the rows that it has yet to send in this job's memory, beyond the
                job's budget. Default: 30 seconds.

        Returns:
            The endpoint, with the location and the token for `connect_job`.

        Raises:
            InvalidInputError: The address cannot be bound, or an argument cannot be used.
            JobStoppedError: The job is closed or stopped.
            WriterFencedError: Another job took the shard.
        """

    def stats(self) -> JobStats:
        """Return the job's counters."""

    def prometheus(self) -> str:
        """Return the job's counters as Prometheus text, labelled with the shard."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        error_type: type[BaseException] | None = None,
        error: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> bool: ...

@disjoint_base
class TableWriter:
    """The writer of all shards of a table; a context manager, which closes it.

    It routes each row to its shard, and holds a job for each shard that got rows. Several threads
    may use it. A writer that lost a shard to another writer takes no more rows of that shard: its
    calls raise `WriterFencedError`, and a new writer can claim the shard again.
    """

    def __new__(cls, handle: TableWriter) -> Self: ...
    def put(
        self,
        data: _Rows,
        *,
        replace: bool = False,
        nulls: Literal["set", "keep"] | None = None,
        durable: bool | None = None,
        sync_index: bool | None = None,
        sync_search_index: bool | None = None,
        txn: _Txn | None = None,
        round_floats: bool = False,
    ) -> Acknowledged:
        """Add or replace rows, routed to their shards.

        The rows of one shard are written all at once, or none of them. All shards write at the same
        time. All rows are checked first, so an input error leaves nothing written.

        Args:
            data: The rows, at most 4 GiB. Columns may come in any order.
            replace: As in `Table.upsert`.
            nulls: As in `Table.upsert`.
            durable: Replaces this setting of the jobs for this put. Default: the jobs'.
            sync_index: Replaces this setting of the jobs for this put. Default: the jobs'.
            sync_search_index: The same for this setting. Default: the jobs'.
            txn: A transaction id. Each shard takes its rows only where it has not recorded the id;
                see `Table.upsert`.
            round_floats: As in `Table.upsert`.

        Returns:
            Which promises hold in every shard. `num_rows` counts the rows that were written now,
            and `already_written` is true where no shard wrote any.

        Raises:
            InvalidInputError: The rows cannot be stored, with column and row in the message.
            StaleTxnError: A shard has recorded a newer version of the application.
            RetryableError: No compaction made room within `max_compaction_wait`.
            WriterFencedError: Another writer took a shard.
            JobStoppedError: The writer is closed, or a job of it cannot go on.
            LancememError: Where some shards have written their rows, the message names these shards
                and the others.

        Example:
            writer.put(pa.table({"id": [3, 7], "name": ["Ada", "Grace"]}))
            writer.put(rows, durable=False)
        """

    def delete(
        self,
        keys: _Keys,
        *,
        durable: bool | None = None,
        sync_index: bool | None = None,
        sync_search_index: bool | None = None,
        txn: _Txn | None = None,
    ) -> Acknowledged:
        """Delete keys, whether they exist or not.

        Args:
            keys: As in `Table.get`.
            durable: As in `put`.
            sync_index: As in `put`.
            sync_search_index: As in `put`.
            txn: As in `put`.

        Returns:
            Which promises hold, as for `put`.

        Raises:
            LancememError: As in `put`.
        """

    def apply(
        self,
        data: _Rows,
        deletes: _Array,
        *,
        durable: bool | None = None,
        sync_index: bool | None = None,
        sync_search_index: bool | None = None,
        txn: _Txn | None = None,
        round_floats: bool = False,
    ) -> Acknowledged:
        """Delete the keys of some rows and put the other rows, in their order in each shard.

        Args:
            data: The rows, as in `Table.apply`.
            deletes: As in `Table.apply`.
            durable: As in `put`.
            sync_index: As in `put`.
            sync_search_index: As in `put`.
            txn: As in `put`.
            round_floats: As in `Table.upsert`.

        Returns:
            Which promises hold, as for `put`.

        Raises:
            LancememError: As in `put`.
        """

    def scan(
        self,
        columns: _Columns | None = None,
        filter: _Filter | None = None,  # noqa: A002
        limit: int | None = None,
        offset: int = 0,
        *,
        order_by: _OrderBy | None = None,
    ) -> Scan:
        """Prepare a "live" read, which shows every row that the writer has acknowledged.

        The read raises `WriterFencedError` where another writer took a shard of this writer.

        Args:
            columns: As in `Table.scan`.
            filter: As in `Table.scan`.
            limit: As in `Table.scan`.
            offset: As in `Table.scan`.
            order_by: As in `Table.scan`.

        Returns:
            A read that has not begun.

        Raises:
            InvalidInputError: The expression cannot be translated.
            JobStoppedError: The writer is closed.
        """

    def get(
        self,
        keys: _Keys,
        columns: Sequence[str] | None = None,
        *,
        missing: _Missing = "drop",
    ) -> pa.Table:
        """Return the newest rows of `keys`, in the order of the keys, as a "live" read.

        Args:
            keys: As in `Table.get`.
            columns: As in `Table.get`.
            missing: As in `Table.get`.

        Returns:
            The rows.

        Raises:
            InvalidInputError: As in `Table.get`.
            WriterFencedError: Another writer took a shard.
            JobStoppedError: The writer is closed.
        """

    def flush(self) -> None:
        """Write the rows in memory to SSTables, one for each shard that has rows.

        Returns when the shard manifests list them.

        Raises:
            LancememError: The flush of a shard failed. Durable rows stay in the WAL, and the other
                shards are flushed.
        """

    def close(self, *, flush: bool = False) -> None:
        """End the writer when every put is durable, and the jobs that it started.

        A job that the writer shares goes on. A later call that asks for the same raises the same
        error again.

        Args:
            flush: True flushes the rows first. False leaves them in the WAL. Default: False.

        Raises:
            LancememError: As `Job.close`, of the first shard that failed. The others are closed.
        """

    def stats(self) -> WriterStats:
        """Return the counters of the writer's jobs."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        error_type: type[BaseException] | None = None,
        error: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> bool: ...

@final
class WriterStats:
    """The counters of a writer's jobs at one moment, added up and of each job.

    A job that the writer shares counts the rows of its other callers too.

    Attributes:
        num_puts: Puts and deletes accepted. A call whose rows go to several shards is one for each.
        num_rows: Rows accepted, tombstones included.
        num_wal_entries: WAL entries appended.
        wal_bytes: Bytes of the rows in those entries.
        num_flushes: MemTables flushed.
        memtable_bytes: Bytes in active and frozen MemTables.
        num_uncompacted_generations: Flushed generations that wait for compaction.
        num_waiting_puts: Puts that wait for memory or for a compaction.
        jobs: The counters of each job, by the ordinal of its shard.
    """

    @property
    def num_puts(self) -> int: ...
    @property
    def num_rows(self) -> int: ...
    @property
    def num_wal_entries(self) -> int: ...
    @property
    def wal_bytes(self) -> int: ...
    @property
    def num_flushes(self) -> int: ...
    @property
    def memtable_bytes(self) -> int: ...
    @property
    def num_uncompacted_generations(self) -> int: ...
    @property
    def num_waiting_puts(self) -> int: ...
    @property
    def jobs(self) -> list[JobStats]: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@disjoint_base
class Snapshot:
    """A consistent snapshot of a table. Its reads agree, whatever is written meanwhile.

    It holds the rows that were in memory, and the other files open, as long as it lives.

    Attributes:
        schema: The columns.
    """

    # Another handle of the same, for a subclass.
    def __new__(cls, handle: Snapshot) -> Self: ...
    @property
    def schema(self) -> pa.Schema: ...
    @property
    def base_version(self) -> int:
        """The version of the base table."""

    @property
    def num_base_fragments(self) -> int:
        """The number of fragments of the base table."""

    @property
    def num_parts(self) -> int:
        """Most parts of a divided read that have rows.

        A fragment of the base table is in one part. An SSTable can be cut every 8,192 rows.
        """

    @property
    def stored_bytes(self) -> int:
        """Bytes of the data files of the base table and of the SSTables. Logs do not count."""

    @property
    def shards(self) -> list[SnapshotShard]:
        """What the snapshot reads above the base table, by shard."""

    @property
    def token(self) -> str | None:
        """The token by which any process can open this snapshot: `table.snapshot(token=...)`.

        None where the snapshot shows rows of a running job that storage does not have.
        """

    def scan(
        self,
        columns: _Columns | None = None,
        filter: _Filter | None = None,  # noqa: A002
        limit: int | None = None,
        offset: int = 0,
        *,
        order_by: _OrderBy | None = None,
        part: tuple[int, int] | None = None,
    ) -> Scan:
        """Prepare a read of the snapshot.

        Args:
            columns: As in `Table.scan`.
            filter: As in `Table.scan`.
            limit: As in `Table.scan`. Counts within the part.
            offset: As in `Table.scan`. Counts within the part.
            order_by: As in `Table.scan`. Does not go with `part`.
            part: `(i, n)` reads part i of n, counted from 0. The n parts have all rows, each once.
                Different processes that open the snapshot by its token can read them. Default: all
                rows.

        Returns:
            A read that has not begun.

        Raises:
            InvalidInputError: The expression cannot be translated, or another argument cannot be
                used.
        """

    def sql(self, query: str) -> Scan:
        """Prepare a SQL query of the snapshot.

        Args:
            query: As in `Table.sql`.

        Returns:
            A read that has not begun, with the forms of a scan.

        Raises:
            InvalidInputError: As in `Table.sql`.

        Example:
            table.snapshot(version=41).sql("SELECT count(*) AS n FROM t").to_pandas()
        """

    def search(
        self,
        query: _Query,
        *,
        query_type: _QueryType = "auto",
        text: _Text | None = None,
        text_columns: str | Sequence[str] | None = None,
        rerank: _Rerank | None = None,
        column: str | None = None,
        k: int = 10,
        columns: Sequence[str] | None = None,
        filter: _Filter | None = None,  # noqa: A002
        metric: _Metric | None = None,
        nprobes: int | None = None,
        minimum_nprobes: int | None = None,
        maximum_nprobes: int | None = None,
        ef: int | None = None,
        refine_factor: int | None = None,
        distance_range: _DistanceRange | None = None,
        prefilter: bool = True,
        exact: bool = False,
        fast_search: bool = False,
        offset: int = 0,
    ) -> Scan:
        """Prepare a search of the snapshot for the rows nearest to a vector.

        Args:
            query: As in `Table.search`.
            query_type: As in `Table.search`.
            text: As in `Table.search`.
            text_columns: As in `Table.search`.
            rerank: As in `Table.search`.
            column: As in `Table.search`.
            k: As in `Table.search`.
            columns: As in `Table.search`.
            filter: As in `Table.search`.
            metric: As in `Table.search`.
            nprobes: As in `Table.search`.
            minimum_nprobes: As in `Table.search`.
            maximum_nprobes: As in `Table.search`.
            ef: As in `Table.search`.
            refine_factor: As in `Table.search`.
            distance_range: As in `Table.search`.
            prefilter: As in `Table.search`.
            exact: As in `Table.search`.
            fast_search: As in `Table.search`.
            offset: As in `Table.search`.

        Returns:
            A read that has not begun, with the forms of a scan, as of `Table.search`.

        Raises:
            InvalidInputError: As in `Table.search`.

        Example:
            table.snapshot(version=41).search([0.1, 0.9], k=3).to_pandas()
        """

    def get(
        self,
        keys: _Keys,
        columns: Sequence[str] | None = None,
        *,
        missing: _Missing = "drop",
    ) -> pa.Table:
        """Return the rows of `keys` in the snapshot, in the order of the keys.

        Args:
            keys: As in `Table.get`.
            columns: As in `Table.get`.
            missing: As in `Table.get`.

        Returns:
            The rows.

        Raises:
            InvalidInputError: As in `Table.get`.
        """

    def count_rows(self, filter: _Filter | None = None) -> int:  # noqa: A002
        """Count the rows that meet a condition.

        Args:
            filter: As in `Table.scan`. Default: every row.

        Returns:
            The number of rows.
        """

    def to_dataset(self) -> TableDataset:
        """Return the snapshot as a `pyarrow.dataset.Dataset`."""

    def __datafusion_table_provider__(self, session: object) -> object:
        """Serve the queries of a DataFusion session from this snapshot.

        Args:
            session: The session, which DataFusion passes.

        Returns:
            A capsule of DataFusion's C interface.
        """

@final
class SnapshotShard:
    """What a snapshot reads of one shard.

    Attributes:
        shard_id: The id of the shard.
        manifest_version: The version of the shard manifest.
        sstables: The generations of the SSTables, oldest first.
        memtables: The rows in memory, oldest generation first.
    """

    @property
    def shard_id(self) -> str: ...
    @property
    def manifest_version(self) -> int: ...
    @property
    def sstables(self) -> list[int]: ...
    @property
    def memtables(self) -> list[SnapshotMemTable]: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class SnapshotMemTable:
    """Rows in memory that a snapshot reads.

    Attributes:
        generation: The age of the MemTable in its shard, from 1.
        num_rows: Number of rows, superseded ones and tombstones included.
    """

    @property
    def generation(self) -> int: ...
    @property
    def num_rows(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class BulkWriter:
    """A bulk write: rows become staged SSTables, which no reader sees before `Table.commit`.

    Example:
        writer = table.bulk_writer()
        for batch in batches:
            writer.upsert(batch)
        table.commit(writer.finish())
    """

    def upsert(
        self,
        data: _Rows,
        *,
        replace: bool = False,
        nulls: Literal["set", "keep"] | None = None,
        round_floats: bool = False,
    ) -> None:
        """Add rows, routed to their shards.

        Waiting rows are written first where they would fill a MemTable together with these.

        Args:
            data: The rows, as in `Table.upsert`.
            replace: As in `Table.upsert`.
            nulls: As in `Table.upsert`.
            round_floats: As in `Table.upsert`.

        Raises:
            LancememError: None of these rows is staged, and all earlier ones are.
        """

    def delete(self, keys: _Rows) -> None:
        """Add keys to delete.

        Args:
            keys: Rows with the key columns.

        Raises:
            LancememError: As in `upsert`.
        """

    def apply(self, data: _Rows, deletes: _Array, *, round_floats: bool = False) -> None:
        """Add keys to delete and rows, in their order.

        Args:
            data: The rows, as in `Table.apply`.
            deletes: As in `Table.apply`.
            round_floats: As in `Table.upsert`.

        Raises:
            LancememError: As in `upsert`.
        """

    def finish(self) -> list[StagedSsTable]:
        """Write the remaining rows.

        Returns:
            All staged SSTables; SSTables of one shard are in row order.

        Raises:
            LancememError: No row is lost. Call it again.
        """

@final
class StagedSsTable:
    """An SSTable that no manifest lists. Any process can commit it, and it can be pickled.

    Attributes:
        shard_id: The id of the shard whose rows it has.
        path: The name of its folder in the shard.
        num_rows: Number of rows, superseded ones and tombstones included.
        in_memory_bytes: Bytes of the rows in memory.
        primary_key_bytes: The part of these bytes that is key columns.
    """

    def __new__(
        cls, shard_id: str, path: str, num_rows: int, in_memory_bytes: int, primary_key_bytes: int
    ) -> Self: ...
    @property
    def shard_id(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def num_rows(self) -> int: ...
    @property
    def in_memory_bytes(self) -> int: ...
    @property
    def primary_key_bytes(self) -> int: ...
    def __getnewargs__(self) -> tuple[str, str, int, int, int]: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class CommitResult:
    """What a commit of a bulk write did.

    Attributes:
        num_rows: Rows of the SSTables that were committed.
        num_shards: Shards that took them.
        num_sstables: SSTables that were committed.
        num_shards_already_written: Shards that had recorded the transaction id or all SSTables, and
            took nothing.
    """

    @property
    def num_rows(self) -> int: ...
    @property
    def num_shards(self) -> int: ...
    @property
    def num_sstables(self) -> int: ...
    @property
    def num_shards_already_written(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class Endpoint:
    """The place where a job is offered; a context manager. Its `repr` does not show the token."""

    @property
    def location(self) -> str:
        """The location, for `connect_job` and `pyarrow.flight.connect`."""

    @property
    def token(self) -> str:
        """The secret that a reader must have."""

    def close(self) -> None:
        """End the endpoint. Running reads fail, and new connections are refused."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        error_type: type[BaseException] | None = None,
        error: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> bool: ...

@final
class RemoteJob:
    """A job that another process runs, for the `jobs` of a read with consistency "live".

    A read raises `JobStoppedError` where the job is closed, gone or fenced; stale rows are never
    returned. The object caches the rows that it read, so that the next read fetches new rows only.

    Attributes:
        location: The location of the endpoint.
        shard_id: The id of the job's shard.
    """

    @property
    def location(self) -> str: ...
    @property
    def shard_id(self) -> str: ...

@disjoint_base
class Scan:
    """A read that has not begun.

    Each method that reads takes a consistent snapshot of its own. A scan of a `Snapshot` reads that
    snapshot.
    """

    # Another handle of the same, for a subclass.
    def __new__(cls, handle: Scan) -> Self: ...
    @property
    def schema(self) -> pa.Schema:
        """The columns of the result.

        Raises:
            InvalidInputError: As a read would.
        """

    def to_reader(self) -> ArrowStream:
        """Return the rows as a stream, for `pyarrow.RecordBatchReader.from_stream` and others."""

    def to_batches(self) -> BatchIterator:
        """Return the rows in batches, each fetched when it is asked for. `iter` does the same."""

    def to_table(self) -> pa.Table:
        """Return all rows."""

    def to_pandas(self, **options: object) -> pd.DataFrame:
        """Return all rows as a pandas frame.

        Args:
            **options: Options of `pyarrow.Table.to_pandas`.

        Returns:
            The frame.
        """

    def to_polars(self) -> pl.DataFrame:
        """Return all rows as a polars frame."""

    def count_rows(self) -> int:
        """Count the rows without reading columns that no condition needs."""

    def explain(self, analyze: bool = False) -> str:
        """Return the plan as text.

        Args:
            analyze: Run the plan first, and add rows and times. Default: False.

        Returns:
            The text.
        """

    def __iter__(self) -> BatchIterator: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

@disjoint_base
class ChangeFeed:
    """The changes between two versions of the base table, not yet read.

    Version by version, a feed has the images of changed rows before, then the images after.
    """

    # Another handle of the same, for a subclass.
    def __new__(cls, handle: ChangeFeed) -> Self: ...
    @property
    def since(self) -> int | None:
        """The version behind which the feed starts. None: the table of `until` as inserts."""

    @property
    def until(self) -> int:
        """The version that the feed reaches. Changes behind it are those of the next feed."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table, then `_change_type`, `_commit_version`, `_commit_timestamp`."""

    @property
    def versions(self) -> list[ChangeVersion]:
        """The versions that change rows, the oldest first."""

    @property
    def counts(self) -> ChangeCounts:
        """How many rows the feed has. Reads the keys of the changed rows, once."""

    def to_reader(self) -> ArrowStream:
        """Return the rows as a stream, for `pyarrow.RecordBatchReader.from_stream` and others."""

    def to_batches(self) -> BatchIterator:
        """Return the rows in batches, each fetched when it is asked for. `iter` does the same."""

    def to_table(self) -> pa.Table:
        """Return all rows."""

    def to_pandas(self, **options: object) -> pd.DataFrame:
        """Return all rows as a pandas frame.

        Args:
            **options: Options of `pyarrow.Table.to_pandas`.

        Returns:
            The frame.
        """

    def to_polars(self) -> pl.DataFrame:
        """Return all rows as a polars frame."""

    def slices(self, num_parts: int) -> list[list[_Slice]]:
        """Divide the feed into parts, each of which is a list of slices.

        `ChangeFeed.parts` of the package makes objects of them that another process can read.

        Args:
            num_parts: The largest number of parts.

        Returns:
            The slices of each part, none of which is empty.

        Raises:
            InvalidInputError: `num_parts` is below 1.
        """

    def __iter__(self) -> BatchIterator: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

@final
class FlushedFeed:
    """The changes of flushes between two positions. Made by `Table.changes(level="flushed")`.

    A feed has the net change of each key for each generation, shard by shard, and within a shard
    in the order of generations. Of a generation it has the images before, then the images
    after. Every read of it returns the same rows. It has `__arrow_c_stream__`, so what reads Arrow
    reads it; iterating over it reads batches.

    Example:
        feed = table.changes(level="flushed", since=position)
        position = feed.until
    """

    @property
    def since(self) -> str | None:
        """The position behind which the feed starts. None: the changes that are left."""

    @property
    def until(self) -> str:
        """The position behind the last change: the `since` of the next feed."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table, then `_change_type`, `_shard` and `_generation`."""

    @property
    def counts(self) -> ChangeCounts:
        """How many rows the feed has. With a filter it is read for that."""

    def to_reader(self) -> pa.RecordBatchReader:
        """Start a read and return it as a reader of pyarrow, which can be read once."""

    def to_batches(self) -> BatchIterator:
        """Return the changes in batches, each fetched when it is asked for. `iter` is the same."""

    def to_table(self) -> pa.Table:
        """Return all changes."""

    def to_pandas(self, **options: object) -> pd.DataFrame:
        """Return all changes as a pandas frame.

        Args:
            **options: Options of `pyarrow.Table.to_pandas`.

        Returns:
            The frame.
        """

    def to_polars(self) -> pl.DataFrame:
        """Return all changes as a polars frame."""

    def __iter__(self) -> BatchIterator: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

@final
class InputFeed:
    """The events between two positions, not yet read. Made by `Table.changes(level="input")`.

    A feed has every upsert and every delete as it came, shard by shard, and within a shard in the
    order of arrival. Every read of it returns the same rows. It has `__arrow_c_stream__`, so what
    reads Arrow reads it; iterating over it reads batches.

    Example:
        feed = table.changes(level="input", since=position)
        position = feed.until
    """

    @property
    def since(self) -> str | None:
        """The position behind which the feed starts. None: the events that no compaction moved."""

    @property
    def until(self) -> str:
        """The position behind the last event: the `since` of the next feed."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table, then `_change_type`, `_shard`, `_generation` and `_row`."""

    def to_reader(self) -> pa.RecordBatchReader:
        """Start a read and return it as a reader of pyarrow, which can be read once."""

    def to_batches(self) -> BatchIterator:
        """Return the events in batches, each fetched when it is asked for. `iter` does the same."""

    def to_table(self) -> pa.Table:
        """Return all events."""

    def to_pandas(self, **options: object) -> pd.DataFrame:
        """Return all events as a pandas frame.

        Args:
            **options: Options of `pyarrow.Table.to_pandas`.

        Returns:
            The frame.
        """

    def to_polars(self) -> pl.DataFrame:
        """Return all events as a polars frame."""

    def __iter__(self) -> BatchIterator: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

@final
class ChangeVersion:
    """A version of the base table that changes rows.

    Attributes:
        version: Its number.
        timestamp: When it was committed.
        operation: Lance's name of the commit. None where several versions are one step, because
            those in between were cleaned up, or where it is not recorded.
        is_stored: Whether a compaction stored its changes. Else they are derived.
    """

    @property
    def version(self) -> int: ...
    @property
    def timestamp(self) -> datetime: ...
    @property
    def operation(self) -> str | None: ...
    @property
    def is_stored(self) -> bool: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class ChangeCounts:
    """How many rows a change feed has.

    Attributes:
        num_inserted: Inserted rows.
        num_updated: Updated rows: the images after an update.
        num_deleted: Deleted rows.
        num_rows: Rows of the feed. An update is two rows: its images before and after.
    """

    @property
    def num_inserted(self) -> int: ...
    @property
    def num_updated(self) -> int: ...
    @property
    def num_deleted(self) -> int: ...
    @property
    def num_rows(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class ConsumerInfo:
    """A consumer of a table's changes.

    Attributes:
        name: Its name.
        position: The version behind which it goes on. Clean-ups leave this version.
        timestamp: When it moved there. None where that is not recorded.
    """

    @property
    def name(self) -> str: ...
    @property
    def position(self) -> int: ...
    @property
    def timestamp(self) -> datetime | None: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class FlushedConsumer:
    """A consumer of the changes of a table's flushes.

    Attributes:
        name: Its name.
        position: The position behind which it goes on. Collections leave the changes behind it.
        timestamp: When it moved there.
    """

    @property
    def name(self) -> str: ...
    @property
    def position(self) -> str: ...
    @property
    def timestamp(self) -> datetime: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class BatchIterator:
    """The batches of one read. Errors keep their type; memory is bounded by what is read ahead."""

    def __iter__(self) -> Self: ...
    def __next__(self) -> pa.RecordBatch: ...

@final
class ArrowStream:
    """A stream of record batches that is read once."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...
    def __arrow_c_schema__(self) -> object: ...

@final
class ArrowArray:
    """An Arrow array, for `pyarrow.array` and others."""

    def __arrow_c_array__(
        self, requested_schema: object | None = None
    ) -> tuple[object, object]: ...
    def __len__(self) -> int: ...

@final
class WriteResult:
    """What a write of `Table` did.

    Attributes:
        num_rows: Rows written, or keys deleted.
        num_shards: Shards that took them.
        num_wal_entries: WAL entries that hold them.
        num_shards_already_written: Shards that had recorded the transaction id, and took nothing.
    """

    @property
    def num_rows(self) -> int: ...
    @property
    def num_shards(self) -> int: ...
    @property
    def num_wal_entries(self) -> int: ...
    @property
    def num_shards_already_written(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class Acknowledged:
    """What a put of a job promised when it returned.

    Attributes:
        num_rows: Rows accepted.
        durable: Whether the rows are in the WAL, on disk where the job syncs files.
        indexed: Whether the keys are in the key index.
        already_written: Whether the shard had recorded the transaction id, and took nothing.
    """

    @property
    def num_rows(self) -> int: ...
    @property
    def durable(self) -> bool: ...
    @property
    def indexed(self) -> bool: ...
    @property
    def already_written(self) -> bool: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class Garbage:
    """A file, or the folder of an SSTable or of stored changes, that no reader needs.

    Attributes:
        kind: What it is.
        path: Its path relative to the table.
        reason: Why no reader needs it.
        bytes: Its size.
    """

    @property
    def kind(
        self,
    ) -> Literal[
        "compacted SSTable",
        "orphan SSTable",
        "WAL entry",
        "shard manifest",
        "record index run",
        "deletion vectors",
        "merged rows",
        "staged write",
        "published changes",
        "stored changes",
        "remembered deletes",
        "base files",
    ]: ...
    @property
    def path(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def bytes(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class CollectionResult:
    """What a collection removed, or with `dry_run` would remove.

    Attributes:
        garbage: Each thing, with its reason.
        bytes: The size of all of it.
        num_pinned_sstables: SSTables that stay because this process is reading them.
    """

    @property
    def garbage(self) -> list[Garbage]: ...
    @property
    def bytes(self) -> int: ...
    @property
    def num_pinned_sstables(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class CompactedSsTable:
    """What a compaction did with one SSTable, and why.

    Attributes:
        shard_id: The id of its shard.
        generation: Its age in the shard, from 1.
        num_rows: Rows of its data file.
        num_live_rows: Rows that the base table gets.
        num_tombstones: Deleted keys.
        bytes: Size of its data file; 0 where it is not known.
        treatment: Which way it went: "link", "rewrite" or "drop".
        reason: Why it went that way.
    """

    @property
    def shard_id(self) -> str: ...
    @property
    def generation(self) -> int: ...
    @property
    def num_rows(self) -> int: ...
    @property
    def num_live_rows(self) -> int: ...
    @property
    def num_tombstones(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def treatment(self) -> Literal["link", "rewrite", "drop"]: ...
    @property
    def reason(self) -> str: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class CompactedIndex:
    """What a compaction did to an index of the base table.

    Attributes:
        name: Its name.
        linked_rows: Rows whose entries in the indexes of SSTables became segments as they are.
        built_rows: Rows that were read to build a segment.
        unindexed_rows: Rows of the base table that the index does not cover.
        segments: Its segments now.
        reason: Why rows are not covered, or why the index of a linked SSTable was left behind and
            its rows were read. None where neither is the case.
    """

    @property
    def name(self) -> str: ...
    @property
    def linked_rows(self) -> int: ...
    @property
    def built_rows(self) -> int: ...
    @property
    def unindexed_rows(self) -> int: ...
    @property
    def segments(self) -> int: ...
    @property
    def reason(self) -> str | None: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class CompactionResult:
    """What a compaction did, or with `dry_run` would do.

    Attributes:
        num_generations: Generations moved into the base table, of all shards.
        num_sstables_linked: SSTables whose data file became a base fragment.
        num_sstables_rewritten: SSTables whose live rows were written to a new file.
        num_sstables_dropped: SSTables without a live row.
        num_rows_written: Rows that the base table got, in linked files or written.
        num_rows_deleted: Base rows that were superseded or deleted.
        num_late_rows: Rows of SSTables that lost by the merge rule against rows that had arrived
            before them. Rows that lost within one flush are not counted. 0 without a rule.
        copied_bytes: Bytes of linked files that the storage could not link and copied.
        num_fragments_added: Fragments that the commit added.
        num_fragments_rewritten: Base fragments that were rewritten for their dead rows.
        base_version: The version of the base table that contains all this.
        num_rows_in_logs: Rows that stay in logs, superseded ones and tombstones included. None with
            `count_logs=False`, or where a log could not be read.
        sstables: Each SSTable, and why it went which way.
        indexes: Each index of the base table that got a segment or lacks rows.
    """

    @property
    def num_generations(self) -> int: ...
    @property
    def num_sstables_linked(self) -> int: ...
    @property
    def num_sstables_rewritten(self) -> int: ...
    @property
    def num_sstables_dropped(self) -> int: ...
    @property
    def num_rows_written(self) -> int: ...
    @property
    def num_rows_deleted(self) -> int: ...
    @property
    def num_late_rows(self) -> int: ...
    @property
    def copied_bytes(self) -> int: ...
    @property
    def num_fragments_added(self) -> int: ...
    @property
    def num_fragments_rewritten(self) -> int: ...
    @property
    def base_version(self) -> int: ...
    @property
    def num_rows_in_logs(self) -> int | None: ...
    @property
    def sstables(self) -> list[CompactedSsTable]: ...
    @property
    def indexes(self) -> list[CompactedIndex]: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class FlushResult:
    """What a flush of a table's logs did.

    Attributes:
        num_rows: Rows that were flushed, superseded ones and tombstones included.
        bytes: Bytes that their logs had in storage.
        elapsed_ms: Milliseconds that the call took.
        flushed: Each log that was flushed.
        skipped: Each log that was left alone, and why.
    """

    @property
    def num_rows(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def elapsed_ms(self) -> int: ...
    @property
    def flushed(self) -> list[FlushedLog]: ...
    @property
    def skipped(self) -> list[SkippedLog]: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class FlushedLog:
    """A log whose rows were moved into SSTables.

    Attributes:
        shard_id: The shard.
        ordinal: The shard's ordinal; None where its manifest records none.
        generation: The generation of the newest SSTable.
        num_rows: Rows, superseded ones and tombstones included.
        bytes: Bytes that the log had in storage.
    """

    @property
    def shard_id(self) -> str: ...
    @property
    def ordinal(self) -> int | None: ...
    @property
    def generation(self) -> int: ...
    @property
    def num_rows(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class SkippedLog:
    """A log that a flush left alone.

    Attributes:
        shard_id: The shard.
        ordinal: The shard's ordinal; None where its manifest records none.
        num_entries: Log entries that no flush has covered, fence sentinels included.
        bytes: Bytes of these entries in storage.
        reason: Why the log was left alone.
    """

    @property
    def shard_id(self) -> str: ...
    @property
    def ordinal(self) -> int | None: ...
    @property
    def num_entries(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def reason(self) -> str: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class SsTable:
    """A flushed SSTable.

    Attributes:
        generation: Its age in the shard, from 1.
        path: Its folder in the shard.
        num_rows: Number of rows, superseded ones and tombstones included. None where it is not
            recorded.
    """

    @property
    def generation(self) -> int: ...
    @property
    def path(self) -> str: ...
    @property
    def num_rows(self) -> int | None: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class Shard:
    """A shard as its manifest describes it.

    Attributes:
        ordinal: Its number in the table's sharding. None for a shard of another program, whose rows
            `Table.compact` moves into the base table.
        shard_id: Its id.
        writer_epoch: The epoch of its present or last writer; 0 before the first claim.
        current_generation: The generation of its next flush.
        sstables: The flushed SSTables that are not compacted, oldest first.
        replay_after_wal_position: The last WAL entry that a flush has covered.
        last_wal_position: The highest WAL entry that the manifest records.
    """

    @property
    def ordinal(self) -> int | None: ...
    @property
    def shard_id(self) -> str: ...
    @property
    def writer_epoch(self) -> int: ...
    @property
    def current_generation(self) -> int: ...
    @property
    def sstables(self) -> list[SsTable]: ...
    @property
    def replay_after_wal_position(self) -> int: ...
    @property
    def last_wal_position(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class TableStats:
    """A table's counters at one moment.

    Attributes:
        base_version: The version of the base table.
        num_base_rows: Live rows of the base table.
        num_shards: Number of shards.
        num_sstables: Flushed SSTables that are not compacted.
        num_sstable_rows: Rows of these SSTables, superseded ones and tombstones included.
        num_log_rows: Rows that are in logs alone, superseded ones and tombstones included.
        log_bytes: Bytes of these logs in storage.
        logs: The log of each shard, by ordinal.
        merge_rule: As `Table.merge_rule`.
    """

    @property
    def base_version(self) -> int: ...
    @property
    def num_base_rows(self) -> int: ...
    @property
    def num_shards(self) -> int: ...
    @property
    def num_sstables(self) -> int: ...
    @property
    def num_sstable_rows(self) -> int: ...
    @property
    def num_log_rows(self) -> int: ...
    @property
    def log_bytes(self) -> int: ...
    @property
    def logs(self) -> list[ShardLog]: ...
    @property
    def merge_rule(self) -> MergeRule | None: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class ShardLog:
    """The rows of a shard that are in its log alone.

    Attributes:
        shard_id: The shard.
        ordinal: The shard's ordinal; None where its manifest records none.
        num_rows: Rows, superseded ones and tombstones included.
        bytes: Bytes of the log in storage, fence sentinels included.
        is_released: Whether the shard's claim is released, so that a flush by another process
            stops no job.
    """

    @property
    def shard_id(self) -> str: ...
    @property
    def ordinal(self) -> int | None: ...
    @property
    def num_rows(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def is_released(self) -> bool: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class DeletionVectorResult:
    """What a look-up of deletion-vector mode wrote.

    Attributes:
        num_sstables: SSTables that were looked up, each with a file.
        num_fragments: Fragments of the base table that were read, counted once for each SSTable.
        bytes: The size of all files.
        elapsed_ms: Milliseconds that the look-up took.
    """

    @property
    def num_sstables(self) -> int: ...
    @property
    def num_fragments(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def elapsed_ms(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class RecordIndexReport:
    """The contents of a record index, or what a check of it found.

    Attributes:
        base_version: The version of the base table that the index was compared with.
        num_runs: Sorted runs that lookups read.
        num_stale_runs: Sorted runs that no query needs.
        num_entries: Entries of all runs.
        bytes: Bytes of their pages.
        num_fragments_covered: Fragments of the base table that the index covers.
        num_fragments_uncovered: Fragments whose rows are looked up without the index.
        damage: A sentence for each thing that is wrong; `Table.create_record_index` repairs it.
    """

    @property
    def base_version(self) -> int: ...
    @property
    def num_runs(self) -> int: ...
    @property
    def num_stale_runs(self) -> int: ...
    @property
    def num_entries(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def num_fragments_covered(self) -> int: ...
    @property
    def num_fragments_uncovered(self) -> int: ...
    @property
    def damage(self) -> list[str]: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class TableIndex:
    """An index of the base table.

    Attributes:
        name: Its name.
        columns: The indexed columns.
        type: Its type, by the name that `Table.create_index` takes.
        metric: The metric of an index of vectors. None for other types.
        indexed_rows: Rows of the base table that the index covers.
        unindexed_rows: Rows of the base table that it does not cover. A read looks at these
            without the index; `Table.optimize_indexes` adds them.
        segments: Parts of the index, each with files of its own. A read looks into all of them.
        unindexed_because: Why rows are not covered: the index has no model yet, or the last
            compaction of this process failed to cover them. None where all rows are covered, and
            where no compaction came since.
    """

    @property
    def name(self) -> str: ...
    @property
    def columns(self) -> list[str]: ...
    @property
    def type(self) -> str: ...
    @property
    def metric(self) -> _Metric | None: ...
    @property
    def indexed_rows(self) -> int: ...
    @property
    def unindexed_rows(self) -> int: ...
    @property
    def segments(self) -> int: ...
    @property
    def unindexed_because(self) -> str | None: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class OptimizedIndex:
    """What `Table.optimize_indexes` did to an index.

    Attributes:
        name: Its name.
        added_rows: Rows of the base table that it covers now and did not cover before.
        segments_before: Its segments before.
        segments: Its segments now.
    """

    @property
    def name(self) -> str: ...
    @property
    def added_rows(self) -> int: ...
    @property
    def segments_before(self) -> int: ...
    @property
    def segments(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class TableVersion:
    """A version of the base table.

    Attributes:
        version: Its number.
        timestamp: When it was committed.
        operation: Lance's name of the commit. None where it is not recorded.
        num_compacted_shards: Shards whose generations the commit moved into the base table. More
            than 0 for a compaction.
    """

    @property
    def version(self) -> int: ...
    @property
    def timestamp(self) -> datetime: ...
    @property
    def operation(self) -> str | None: ...
    @property
    def num_compacted_shards(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class SsTableReport:
    """What `Admin.verify_sstables` found in an SSTable, or in a range of missing generations.

    Deletes that the table remembers (`delete_retention`) are files in the form of an SSTable. Each
    folder of them has a report too, where all shards are verified.

    Attributes:
        shard_id: The id of the shard; zeros for remembered deletes.
        generation: Its age in the shard; the oldest one of missing generations; 0 for remembered
            deletes.
        path: Its folder in the shard; empty for missing generations; for remembered deletes their
            folder in the table.
        num_files: Files that have a checksum.
        bytes: The size of these files.
        unchecked: Files with its rows that have no checksum, as in an SSTable that Lance wrote.
        damage: Each file that differs from its checksum or cannot be read, and how; or why the
            SSTable cannot be opened.
    """

    @property
    def shard_id(self) -> str: ...
    @property
    def generation(self) -> int: ...
    @property
    def path(self) -> str: ...
    @property
    def num_files(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def unchecked(self) -> list[str]: ...
    @property
    def damage(self) -> list[str]: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class RelistReport:
    """What `Admin.relist_sstables` did in a shard of which generations were missing.

    Attributes:
        shard_id: The id of the shard.
        relisted: Generations that the shard manifest lists again, oldest first.
        missing: Generations that are still missing, each with the reason.
    """

    @property
    def shard_id(self) -> str: ...
    @property
    def relisted(self) -> list[int]: ...
    @property
    def missing(self) -> list[str]: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class WalReport:
    """The part of a shard's log that no flush has covered.

    Attributes:
        shard_id: The id of the shard.
        replay_after_wal_position: The last entry that a flush has covered; the report starts behind
            it.
        last_wal_position: The highest entry, where the report ends.
        writer_epoch: The epoch of the shard's writer, or of the truncation.
        first_damaged_position: The first damaged entry. None for a log without damage.
        findings: Of `verify_wal`, the first damaged entry and all behind it. Of `truncate_wal`, the
            dropped entries.
    """

    @property
    def shard_id(self) -> str: ...
    @property
    def replay_after_wal_position(self) -> int: ...
    @property
    def last_wal_position(self) -> int: ...
    @property
    def writer_epoch(self) -> int: ...
    @property
    def first_damaged_position(self) -> int | None: ...
    @property
    def findings(self) -> list[WalFinding]: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class WalFinding:
    """One position of a shard's log.

    A damaged entry may record wrong values of `num_rows`, `generation` and `writer_epoch`. They are
    None where it records no value.

    Attributes:
        position: The position.
        kind: "intact" or the damage: "hole", "zero length", "zero filled", "cut short", "checksum",
            "misplaced", "too large", "no file", "undecodable", "no writer epoch", "epoch goes
            back", "generation goes back".
        detail: What was expected and found. None for an intact entry.
        bytes: Bytes that were read; none are read of an entry that is too large.
        num_rows: Number of rows. An intact entry of no rows is a fence sentinel.
        generation: The generation of the rows.
        writer_epoch: The epoch of the writer.
        copy: The path to which a truncation copied the entry.
    """

    @property
    def position(self) -> int: ...
    @property
    def kind(self) -> str: ...
    @property
    def detail(self) -> str | None: ...
    @property
    def bytes(self) -> int: ...
    @property
    def num_rows(self) -> int | None: ...
    @property
    def generation(self) -> int | None: ...
    @property
    def writer_epoch(self) -> int | None: ...
    @property
    def copy(self) -> str | None: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class JobStats:
    """A job's counters, from its start to one moment.

    Attributes:
        shard_id: The id of the shard.
        writer_epoch: The epoch that the job holds.
        num_puts: Puts and deletes accepted.
        num_rows: Rows accepted, tombstones included.
        num_wal_entries: WAL entries appended.
        num_wal_batches: Puts in those entries. Divided by `num_wal_entries` it is the mean size of
            a group commit.
        wal_bytes: Bytes of the rows in those entries.
        wal_position: Position of the newest entry; 0 before the first.
        durable_wait_p50_us: Median of the microseconds that durable puts waited for their entry.
        durable_wait_p99_us: 99th percentile of these waits, in microseconds.
        num_flushes: MemTables flushed.
        flushed_bytes: Bytes in memory of those MemTables.
        flush_ms: Milliseconds that those flushes took.
        active_generation: Generation of the active MemTable.
        num_active_rows: Rows in the active MemTable.
        num_active_batches: Puts of those rows, also of earlier jobs. The next claim reads about as
            many WAL entries.
        num_frozen_memtables: MemTables that wait for their flush.
        num_uncompacted_generations: Flushed generations that wait for compaction.
        memtable_bytes: Bytes in active and frozen MemTables.
        num_unindexed_rows: Rows that wait for the key index: the index lag.
        backpressure_ms: Sum of the milliseconds that puts waited for memory or for a compaction.
        num_backpressure_puts: Puts that have waited so.
        num_waiting_puts: Puts that wait so now.
        num_compactions: Compactions by the job's maintenance that moved an SSTable.
        num_compacted_generations: Generations that they moved, of all shards.
        num_collections: Collections of garbage by the job's maintenance.
        collected_bytes: Bytes that they removed.
        num_deletion_vector_files: Files of deletion vectors written for flushed SSTables.
        maintenance_ms: Milliseconds that maintenance took.
        num_maintenance_errors: Rounds of maintenance that failed.
        last_maintenance_error: Why the newest round failed. None where it did not.
    """

    @property
    def shard_id(self) -> str: ...
    @property
    def writer_epoch(self) -> int: ...
    @property
    def num_puts(self) -> int: ...
    @property
    def num_rows(self) -> int: ...
    @property
    def num_wal_entries(self) -> int: ...
    @property
    def num_wal_batches(self) -> int: ...
    @property
    def wal_bytes(self) -> int: ...
    @property
    def wal_position(self) -> int: ...
    @property
    def durable_wait_p50_us(self) -> int: ...
    @property
    def durable_wait_p99_us(self) -> int: ...
    @property
    def num_flushes(self) -> int: ...
    @property
    def flushed_bytes(self) -> int: ...
    @property
    def flush_ms(self) -> int: ...
    @property
    def active_generation(self) -> int: ...
    @property
    def num_active_rows(self) -> int: ...
    @property
    def num_active_batches(self) -> int: ...
    @property
    def num_frozen_memtables(self) -> int: ...
    @property
    def num_uncompacted_generations(self) -> int: ...
    @property
    def memtable_bytes(self) -> int: ...
    @property
    def num_unindexed_rows(self) -> int: ...
    @property
    def backpressure_ms(self) -> int: ...
    @property
    def num_backpressure_puts(self) -> int: ...
    @property
    def num_waiting_puts(self) -> int: ...
    @property
    def num_compactions(self) -> int: ...
    @property
    def num_compacted_generations(self) -> int: ...
    @property
    def num_collections(self) -> int: ...
    @property
    def collected_bytes(self) -> int: ...
    @property
    def num_deletion_vector_files(self) -> int: ...
    @property
    def maintenance_ms(self) -> int: ...
    @property
    def num_maintenance_errors(self) -> int: ...
    @property
    def last_maintenance_error(self) -> str | None: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]
