"""The reference of lancemem's Python surface.

Data goes in as any object with `__arrow_c_stream__` or `__arrow_c_array__`: pyarrow tables and
batches, pandas and polars frames. It is copied once; nothing of the caller's is kept.

Errors are `LancememError`. The exceptions are an argument of a wrong Python type or sign
(`TypeError`, `ValueError`, `OverflowError`) and a stream that its producer breaks (`OSError`); then
too nothing is written.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from os import PathLike
from types import TracebackType
from typing import Any, Literal, Protocol, Self, TypeAlias, final

import pandas as pd  # noqa: TID253 - a stub is never run
import polars as pl  # noqa: TID253
import pyarrow as pa
import pyarrow.compute as pc

from lancemem.dataset import TableDataset

__all__ = [
    "Acknowledged",
    "Admin",
    "ArrowArray",
    "ArrowStream",
    "BatchIterator",
    "BulkWriter",
    "CollectionResult",
    "CommitResult",
    "CompactedSsTable",
    "CompactionResult",
    "CorruptionError",
    "DeletionVectorResult",
    "Endpoint",
    "ForkedHandleError",
    "Garbage",
    "InternalError",
    "InvalidInputError",
    "Job",
    "JobStats",
    "JobStoppedError",
    "LancememError",
    "RecordIndexReport",
    "RelistReport",
    "RemoteJob",
    "RetryableError",
    "Scan",
    "Shard",
    "Sharding",
    "Snapshot",
    "SnapshotMemTable",
    "SnapshotShard",
    "SsTable",
    "SsTableReport",
    "StagedSsTable",
    "StaleTxnError",
    "Table",
    "TableExistsError",
    "TableNotFoundError",
    "TableStats",
    "TableVersion",
    "WalFinding",
    "WalReport",
    "WriteResult",
    "WriterConfig",
    "WriterFencedError",
    "__version__",
    "bucket",
    "connect_job",
    "create_table",
    "enable",
    "open_table",
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
# Rows with the key columns, or values of a key of one column, or tuples of several.
_Keys: TypeAlias = _Data | Iterable[Any]
_Filter: TypeAlias = str | pc.Expression
# An application, such as the id of a streaming query, and the version of what it writes.
_Txn: TypeAlias = tuple[str, int]
_Consistency: TypeAlias = Literal["flushed", "durable", "live"]
# What becomes of a key without a row.
_Missing: TypeAlias = Literal["drop", "null", "raise"]

class LancememError(Exception):
    """Any failure of lancemem. Where its table is known, a note (`__notes__`) names it."""

class InvalidInputError(LancememError, ValueError):
    """The call or its data cannot be accepted; nothing was written. Fix it and call again."""

class TableNotFoundError(InvalidInputError, FileNotFoundError):
    """There is no table at this address. Create it, or correct the address."""

class TableExistsError(InvalidInputError, FileExistsError):
    """A table exists at this address. Open it, or choose another address."""

class WriterFencedError(LancememError):
    """Another job took the shard. Stop, or start a job to take it back."""

class StaleTxnError(LancememError):
    """A newer version of the application is written. Stop: this write comes too late."""

class JobStoppedError(LancememError):
    """The job cannot go on. Start a new one: it replays everything that is durable."""

class RetryableError(LancememError):
    """The storage failed or was contended. Call again."""

class CorruptionError(LancememError):
    """Stored bytes are damaged or missing; nothing was skipped. The text names the place."""

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
    storage_options: dict[str, str] | None = None,
) -> Table:
    """Create an empty table with its shards; one whose creation was interrupted is finished.

    Args:
        uri: A path, which becomes an absolute one, a `file://` URL with its escapes, or `s3://`.
        schema: An Arrow schema. Key columns become not nullable.
        primary_key: The key columns in key order: integers, bool, `utf8`, `large_utf8`, `binary` or
            `large_binary`. Without it the table is append-only.
        sharding: How rows are spread over shards (default: one shard).
        config: The defaults of every job of the table.
        storage_options: Those of pylance, such as `aws_access_key_id` (docs/object-stores.md). Base
            table and shards share them. No error, log line or `repr` shows the secret ones.

    Raises:
        TableExistsError: A table exists at `uri`, or another process created it at the same time.
        InvalidInputError: The key cannot be used, or Lance could not store or read a column as it
            is: dictionaries with indices of less than 32 bits, structs without fields, lists of a
            fixed size of anything but numbers and booleans, blobs and JSON, columns without a name.

    Example:
        table = lancemem.create_table("board.lance", schema, primary_key="id")
    """

def open_table(
    uri: str | PathLike[str],
    *,
    storage_options: dict[str, str] | None = None,
    verify_sstables: bool = True,
) -> Table:
    """Open a table. Writes nothing.

    The files of a flushed SSTable on a local disk are compared with their checksums when its rows
    are read first, where they have at most 32 MiB, and when it is compacted. One that differs
    raises `CorruptionError`, which names it.

    Args:
        uri: As in `create_table`.
        storage_options: As in `create_table`.
        verify_sstables: With False, rows that can be decoded are trusted, no bloom filter is
            consulted, and a compaction by this handle takes the rows over. For a caller who has to
            save what is left of a damaged table.

    Raises:
        TableNotFoundError: There is no table at `uri`.
        InvalidInputError: The table is a Lance table without a MemWAL index (see `enable`), has
            columns that `create_table` refuses, or may not be read.

    Example:
        table = lancemem.open_table("board.lance")
    """

def enable(
    uri: str | PathLike[str],
    *,
    sharding: Sharding | None = None,
    config: WriterConfig | None = None,
    storage_options: dict[str, str] | None = None,
    verify_sstables: bool = True,
) -> Table:
    """Enable a Lance table with a primary key in its field metadata, and open it.

    Commits the MemWAL index to the table and creates its shards. A table that has the index is
    opened as it is.

    Args:
        uri: As in `create_table`.
        sharding: How rows are spread over shards (default: one shard).
        config: The defaults of every job of the table.
        storage_options: As in `create_table`.
        verify_sstables: As in `open_table`.

    Raises:
        TableNotFoundError: There is no table at `uri`.
        InvalidInputError: The table has no primary key, is enabled with another sharding or other
            settings, or has columns that `create_table` refuses. Also where the MemWAL index was
            dropped while rows lay above it.

    Example:
        table = lancemem.enable("board.lance", sharding=lancemem.bucket("id", 4))
    """

def connect_job(
    location: str, token: str, tls_root_certificates: str | PathLike[str] | None = None
) -> RemoteJob:
    """Connect to a job that another process offers with `Job.serve`.

    `location` and `token` are those of its `Endpoint`. A location with TLS, `grpc+tls://..`, needs
    `tls_root_certificates`: the path of a PEM file with the certificate that signed the server's.

    Raises `InvalidInputError` where the token is refused, or certificates are named for a location
    without TLS; `RetryableError` where nobody answers.
    """

def bucket(column: str, buckets: int) -> Sharding:
    """Shard rows by the hash of `column`, which is part of the key, into 1 to 1,024 buckets.

    The column has integers, booleans or text, as keys may have.
    """

def unsharded() -> Sharding:
    """Keep all rows in one shard."""

@final
class Sharding:
    """How rows are spread over shards. Made by `bucket` and `unsharded`."""

    @property
    def num_shards(self) -> int: ...
    @property
    def column(self) -> str | None: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class WriterConfig:
    """Settings of a job; those that are None come from the table."""

    def __new__(
        cls,
        *,
        durable: bool | None = None,
        sync_index: bool | None = None,
        key_index: Literal["hash", "skip_list"] | None = None,
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
        maintenance: bool | None = None,
        maintenance_generations: int | None = None,
        maintenance_interval: timedelta | None = None,
        maintenance_older_than: timedelta | None = None,
        maintenance_bytes_per_second: int | Literal["unlimited"] | None = None,
    ) -> Self:
        """Name the settings to change.

        A duration is a `timedelta` of whole milliseconds. Zero is never "no limit".

        Args:
            durable: A put returns only when its rows are in the WAL. Default: True.
            sync_index: A put returns only when its keys are in the key index. Without it a
                background task indexes them, and reads that need the index do the rest. Default:
                True.
            key_index: The structure of the key index (docs/decisions/0006). Default: "hash".
            fsync: On a local disk, file and folder are synced before a put counts as durable.
                Without it a put survives a killed process but not a power cut. Default: True.
            max_memtable_rows: Rows at which a MemTable is frozen and flushed. Default: 100,000.
            max_memtable_bytes: Bytes at which a MemTable is frozen and flushed. Default: 256 MiB.
            max_memtable_batches: Puts at which a MemTable is frozen and flushed. Default: 8,000.
            max_wal_buffer_bytes: Bytes of rows that a job without `durable` may keep back from the
                WAL. Default: 10 MiB.
            max_wal_flush_interval: How long such rows may wait for the WAL. Default: 100 ms.
            max_unflushed_memtable_bytes: Memory above which puts wait for a flush. Default: 1 GiB.
            max_uncompacted_generations: Flushed generations of the shard above which puts wait for
                a compaction. Default: 1,000.
            max_compaction_wait: How long a put waits for that compaction before it raises
                `RetryableError`. Default: 1 minute.
            idle_flush_interval: A MemTable that got no put for this long is flushed; "never"
                switches that off. Default: 1 minute.
            maintenance: A task beside the job compacts the table and collects its garbage. Default:
                False.
            maintenance_generations: Flushed generations of the shard at which that task compacts.
                Default: 8.
            maintenance_interval: How long fewer generations wait for it. Default: 1 minute.
            maintenance_older_than: How long garbage has not been needed before it is removed.
                Default: 1 hour.
            maintenance_bytes_per_second: What its compactions read and write at most. Default:
                "unlimited".

        Raises:
            InvalidInputError: It names the setting, also where zero would switch something off.
        """

    def __getnewargs_ex__(self) -> tuple[tuple[()], dict[str, object]]: ...
    @property
    def durable(self) -> bool | None: ...
    @property
    def sync_index(self) -> bool | None: ...
    @property
    def key_index(self) -> str | None: ...
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
    @property
    def maintenance(self) -> bool | None: ...
    @property
    def maintenance_generations(self) -> int | None: ...
    @property
    def maintenance_interval(self) -> timedelta | None: ...
    @property
    def maintenance_older_than(self) -> timedelta | None: ...
    @property
    def maintenance_bytes_per_second(self) -> int | Literal["unlimited"] | None: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class Table:
    """A Lance table with shards that take upserts.

    Belongs to the process that opened it: in a fork every call raises `ForkedHandleError`.
    """

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
    def admin(self) -> Admin:
        """Verification and repair: of logs, SSTables and the record index."""

    def refresh(self) -> None:
        """Look at the newest version of the base table, so that `schema` has its columns.

        Reads and writes do so by themselves. Raises `InvalidInputError` where another table was
        made at `uri` since this one was opened, or columns changed in a way that its rows cannot
        follow: open it again.
        """

    def upsert(
        self, data: _Data, *, txn: _Txn | None = None, round_floats: bool = False
    ) -> WriteResult:
        """Add or replace rows by key, routed to their shards. Returns when all are durable.

        Values are cast where none changes. Doubles of a vector (a fixed-size list of `float` or
        `halffloat`) are rounded to the nearest; those of another `float` column only with
        `round_floats`. A `double` column whose values are whole numbers goes into an integer
        column, as pandas makes one where a value is missing.

        With a `txn` each shard takes its rows once: they are durable together with the transaction
        id, and a shard that has recorded it takes nothing. Raises `StaleTxnError` where a shard has
        a newer version of the application. Of applications whose name starts with "once:" a shard
        remembers the 128 whose names sort last.

        Claims each shard for the length of the call, in turn with other calls of any process; a
        shard that another writer takes first is claimed again. A program that writes often uses
        `start_job`.

        Raises:
            InvalidInputError: it names column and row, and nothing is written.
            RetryableError: other writers had a shard for a minute; nothing of the call is in that
                shard, other shards may have their rows.
            JobStoppedError: whether the rows of a shard are written is not known.
        """

    def delete(self, keys: _Keys, *, txn: _Txn | None = None) -> WriteResult:
        """Delete the rows with these keys, whether they exist or not; `txn` as in `upsert`.

        `keys` as in `get`.
        """

    def apply(
        self,
        data: _Data,
        deletes: _Array,
        *,
        txn: _Txn | None = None,
        round_floats: bool = False,
    ) -> WriteResult:
        """Delete the keys of the rows whose value in `deletes` is true, and upsert the others.

        Rows take effect in their order. Of a row that deletes only the key counts. `txn` and
        `round_floats` as in `upsert`.
        """

    def txn_version(self, app_id: str, *, shard: int | str) -> int | None:
        """Return the newest version that an application has written durably to a shard.

        Args:
            app_id: The application, the first part of `txn`.
            shard: The shard, by ordinal or id.

        Returns:
            The version; None where the shard has recorded none of the application.
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

        In each shard all SSTables appear at once, durably; shards follow one another. A job that
        runs in one of the shards is fenced. `write`, at most 200 bytes, names the bulk write where
        another process may `abort` it: the first of the two calls decides. Without `txn` an SSTable
        that was committed before stays where it is, also after a compaction; a shard remembers the
        newest 128.

        Args:
            sstables: What `BulkWriter.finish` returned, in the order in which the rows apply.
            write: A name of the bulk write.
            txn: As in `upsert`.

        Raises:
            InvalidInputError: The bulk write was aborted, or an SSTable is missing or was written
                more than six days ago: `collect_garbage` removes staged SSTables after a week.
        """

    def abort(self, sstables: Sequence[StagedSsTable], *, write: str) -> bool:
        """Abort a bulk write: remove its staged SSTables, unless a commit of `write` has begun.

        SSTables that are older than six days stay for `collect_garbage`. SSTables that are gone
        count as removed.

        Returns:
            Whether the bulk write is aborted.

        Raises:
            InvalidInputError: With nothing removed, where an SSTable was committed under another
                name.
        """

    def shard_ordinals(self, data: _Data) -> ArrowArray:
        """Return the shard ordinal of every row as int32. `data` has the sharding column."""

    def start_job(
        self,
        *,
        shard: int | str,
        config: WriterConfig | None = None,
        maintenance: bool | None = None,
    ) -> Job:
        """Claim a shard, named by ordinal or id, and start its job.

        A job that ran before is fenced. Rows that were durable are in memory again.
        `maintenance` replaces that setting of `config` and of the table.
        """

    def scan(
        self,
        columns: Sequence[str] | None = None,
        filter: _Filter | None = None,  # noqa: A002
        limit: int | None = None,
        offset: int = 0,
        *,
        consistency: _Consistency = "durable",
        jobs: Sequence[Job | RemoteJob] | None = None,
    ) -> Scan:
        """Prepare a read of the newest row of every key.

        `filter` is a SQL condition or a pyarrow expression; conditions on null are null, as in
        SQL. `offset` rows are left out first; rows have no order. `consistency`: "flushed" reads
        the base table and flushed SSTables; "durable" also the WAL, so every acknowledged durable
        write of any process; "live" also the MemTables of `jobs`, which SSTable in this process
        or, as `connect_job` gives them, in another; the other levels take none. A job that is
        closed raises `JobStoppedError`.
        """

    def snapshot(
        self,
        *,
        consistency: _Consistency = "durable",
        jobs: Sequence[Job | RemoteJob] | None = None,
        token: str | None = None,
    ) -> Snapshot:
        """Take a snapshot of the table, to read it more than once.

        `token` is the name of one that was taken before, here or in another process
        (`Snapshot.token`). It can be opened again as long as `collect_garbage` and Lance's clean-up
        leave its files: after `older_than` it may raise `InvalidInputError`. This handle keeps the
        newest one open until it collects.
        """

    def to_dataset(
        self,
        *,
        consistency: _Consistency = "durable",
        jobs: Sequence[Job | RemoteJob] | None = None,
    ) -> TableDataset:
        """Return the table as a `pyarrow.dataset.Dataset`, for DuckDB, polars and pyarrow.

        Columns and conditions of their queries are pushed into the scan. Every scan of the
        dataset reads a snapshot of its own; `snapshot().to_dataset()` reads one.
        """

    def __datafusion_table_provider__(self, session: object) -> object:
        """Serve the queries of a DataFusion session: `session.register_table("board", table)`.

        Each scan of a query reads a snapshot of its own, with every acknowledged durable write of
        any process. Needs the package datafusion, version 54.
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

        A key that is there twice gives its row twice.

        Args:
            keys: Rows with the key columns. Where the key is one column, also an Arrow array or
                anything that gives its values, such as a list, a range or a numpy array. Where it
                has several, also a list of tuples in their order.
            columns: The columns of the result. Default: all of them.
            missing: What becomes of a key without a row. "drop" leaves it out. "null" gives a row
                in its place that has the key and is null in the other columns, which are nullable
                then. "raise" raises.
            consistency: As in `scan`.
            jobs: As in `scan`.

        Raises:
            InvalidInputError: With `missing="raise"`, where keys have no row. It names the number
                of these keys and the first five.

        Example:
            ```python
            rows = table.get([3, 7])
            one_row_a_key = table.get([3, 7], missing="null")
            ```
        """

    def compact(
        self,
        *,
        mode: Literal["auto", "link", "rewrite"] = "auto",
        dry_run: bool = False,
        update_indexes: bool = False,
        max_dead_share: float | None = None,
        bytes_per_second: int | None = None,
    ) -> CompactionResult:
        """Move every flushed SSTable into the base table, all shards in one commit.

        The result says for each SSTable what became of it and why. What follows the move are
        commits of their own, which change no row.

        Args:
            mode: "link" makes the data file of an SSTable a base fragment as it is. "rewrite"
                writes its live rows anew, with those of other SSTables. "auto" decides for each
                SSTable.
            dry_run: Look, and write nothing.
            update_indexes: The table's own indexes take up the new rows.
            max_dead_share: Lance rewrites base fragments in which more than this share of the rows
                is dead. With "auto" an SSTable with that many is rewritten when it is moved.
                Default: 0.5.
            bytes_per_second: Limit on what is read of the base table and of the SSTables, and on
                what is written. None is no limit.

        Raises:
            InvalidInputError: `bytes_per_second` is 0, or another argument cannot be used.
        """

    def alter(self, *, deletion_vectors: bool) -> int:
        """Change a setting of the table.

        In deletion-vector mode a look-up beside each flush records, by position, which rows the new
        SSTable supersedes. Reads of the level `"flushed"` then compare no keys, not even the first
        one of a process. Nothing is rewritten.

        A job enters the mode when it starts. `upsert`, `delete` and bulk writes leave the look-up
        to the next job, to `write_deletion_vectors` or to `python -m lancemem maintain`. Rows
        without a look-up are compared by key.

        Args:
            deletion_vectors: True enters the mode, and looks up every flushed SSTable before the
                call returns. False compacts every flushed SSTable first, and leaves the mode.

        Returns:
            The version of the base table that records the setting.

        Raises:
            InvalidInputError: The table has no primary key.

        Example:
            >>> table.alter(deletion_vectors=True)
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
            >>> table.alter_column("count", pa.int64())
        """

    def collect_garbage(
        self, *, dry_run: bool = False, older_than: timedelta | None = None
    ) -> CollectionResult:
        """Remove what nobody has needed for `older_than`, by default an hour.

        That is: runs that the base table contains, WAL entries whose rows are in SSTables,
        left-overs of failed flushes, shard manifests of more than a day ago, and files of the base
        table that no version names and that are a week old. Jobs and readers of any process go on
        meanwhile; a read that lasts longer than `older_than` may fail in another process, in this
        one its runs stay. `dry_run` only lists each thing with its reason, and writes nothing.

        Raises `InvalidInputError`, with nothing removed, where the clock of this process and the
        clock of the table's store are more than a quarter of `older_than` apart; a minute is always
        allowed, more than an hour never.
        """

    def shards(self) -> list[Shard]:
        """Describe every shard, by ordinal."""

    def stats(self) -> TableStats:
        """Count what lies above the base table."""

    def create_record_index(self) -> RecordIndexReport:
        """Create the record index of the base table. One that exists is made anew.

        `get` and compactions find the base rows of keys in it, for keys of one column and of
        several. Compactions keep it up from then on.

        Returns:
            A report of the new index.

        Raises:
            InvalidInputError: The table has no primary key.

        Example:
            >>> table.create_record_index()
        """

    def drop_record_index(self) -> None:
        """Drop the record index, if there is one. `get` and compactions then read key columns.

        Readers that have the index open may go on with it: `collect_garbage` removes its files. A
        compaction that runs meanwhile does not bring the index back.

        Raises:
            InvalidInputError: The table has no primary key.
        """

    @property
    def deletion_vectors(self) -> bool:
        """Whether deletion-vector mode is on, at the newest version that this handle has seen."""

    def write_deletion_vectors(self, *, shard: int | str | None = None) -> DeletionVectorResult:
        """Look up which rows each flushed SSTable supersedes, where nobody has yet.

        `shard`, by ordinal or id, is the only one whose SSTables are looked up. Raises
        `InvalidInputError` where the mode is off.
        """

    def history(self, limit: int | None = None) -> list[TableVersion]:
        """Describe the newest `limit` versions of the base table, newest first.

        Upserts make none: rows reach the base table with a compaction.
        """

@final
class Admin:
    """Verification and repair of a table: `Table.admin`.

    Belongs to the process that opened the table, as the table does.
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

    def verify_sstables(self, shard: int | str | None = None) -> list[SsTableReport]:
        """Compare every file of uncompacted SSTables with its checksum; write nothing.

        All bytes are read, on an object store too. SSTables that Lance wrote have no checksums. An
        SSTable that is compacted meanwhile is left out where its files are gone. Generations that
        were flushed and are missing are reported as damage too.

        Args:
            shard: The only shard to verify, by ordinal or id. Default: every shard.

        Returns:
            A report for each SSTable, and for each range of missing generations.

        Raises:
            InvalidInputError: There is no such shard.
            RetryableError: A fault that may pass. The error names the file.
        """

    def verify_record_index(self) -> RecordIndexReport:
        """Compare the record index with the base table, entry by entry; write nothing.

        Returns:
            A report, whose `damage` is empty for a correct index. `Table.create_record_index`
            repairs a damaged one.

        Raises:
            InvalidInputError: The table has no primary key.
        """

    def relist_sstables(self, shard: int | str | None = None) -> list[RelistReport]:
        """List SSTables again whose rows the base table lost, and that are still on storage.

        A version from before a compaction was restored, or the base table was copied before its
        shards: reads, writes and compactions raise `CorruptionError`, "base table older than its
        shards". Every file of an SSTable is compared with its checksum first. Running jobs go on.
        Rows that were put later go on hiding those that come back.

        Args:
            shard: The only shard to repair, by ordinal or id. Default: every shard.

        Returns:
            A report for each shard of which generations were missing. The table can be used when
            none of them is missing any more.

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
    """The one writer of a shard while it runs. Usable from several threads; a context manager."""

    @property
    def shard_id(self) -> str: ...
    def put(
        self,
        data: _Data,
        *,
        durable: bool | None = None,
        sync_index: bool | None = None,
        txn: _Txn | None = None,
        round_floats: bool = False,
    ) -> Acknowledged:
        """Add or replace rows of this shard, all of them or none.

        With a `txn` the rows are written only where the shard has not recorded it; see
        `Table.upsert`, also for `round_floats`.

        `durable` and `sync_index` replace the job's settings for this put; docs/write-path.md
        says what each promises. Raises `InvalidInputError`, which names column and row, or the
        bound where the rows are more than 4 GiB.
        """

    def delete(
        self,
        keys: _Keys,
        *,
        durable: bool | None = None,
        sync_index: bool | None = None,
        txn: _Txn | None = None,
    ) -> Acknowledged:
        """Delete keys of this shard, whether they exist or not; otherwise as `put`."""

    def apply(
        self,
        data: _Data,
        deletes: _Array,
        *,
        durable: bool | None = None,
        sync_index: bool | None = None,
        txn: _Txn | None = None,
        round_floats: bool = False,
    ) -> Acknowledged:
        """Put and delete in one step, in the order of the rows; see `Table.apply` and `put`."""

    def flush(self) -> None:
        """Flush what was put; returns when the shard manifest lists it."""

    def close(self, *, flush: bool | None = False) -> None:
        """End the job when every put is durable. Without `flush` rows stay in the WAL.

        `None`, for a job that was started for a few rows: they are flushed where the log has become
        so long that the next job of the shard would be slow to start, more than 63 puts or 32 MiB.
        A flush that fails is then a warning, as the rows are durable.

        An error is how the job ended, and a later call that asks the same raises it again. Where
        the storage kept it from flushing it is `JobStoppedError`: the next job has the rows. So it
        is for a job that was closed without `flush`.
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
            address: Where to listen; port 0 takes a free one.
            token: What a reader must have, 16 to 4,096 characters. Default: 256 random bits.
            tls: The paths of a certificate and of its private key, in PEM form. Without it rows and
                token can be read on the way.
            max_streams: Reads that run at a time.
            stall_timeout: A read whose reader takes nothing for this long ends with an error. Until
                then it keeps the rows that it has yet to send in this job's memory, beyond the
                job's budget. Default: 30 seconds.

        Raises:
            InvalidInputError: The address cannot be bound, or an argument cannot be used.
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

@final
class Snapshot:
    """One consistent snapshot of a table. Its reads agree, whatever is written meanwhile.

    It holds the rows that were in memory and the open files of the others, as long as it lives.
    """

    @property
    def schema(self) -> pa.Schema: ...
    @property
    def base_version(self) -> int:
        """The version of the base table."""

    @property
    def num_base_fragments(self) -> int:
        """Fragments of the base table, which are what a read can be divided by."""

    @property
    def shards(self) -> list[SnapshotShard]:
        """What lies above the base table."""

    @property
    def token(self) -> str | None:
        """The token by which any process can open this snapshot: `table.snapshot(token=...)`.

        None where the snapshot shows rows of a running job that storage does not have.
        """

    def scan(
        self,
        columns: Sequence[str] | None = None,
        filter: _Filter | None = None,  # noqa: A002
        limit: int | None = None,
        offset: int = 0,
        *,
        part: tuple[int, int] | None = None,
    ) -> Scan:
        """Prepare a read of the snapshot; arguments as for `Table.scan`.

        `part=(i, n)` reads part i of n, counted from 0. The n parts have all rows, each once, and
        can be read by different processes that open the snapshot by its token. `limit` and `offset`
        count within the part.
        """

    def get(
        self,
        keys: _Keys,
        columns: Sequence[str] | None = None,
        *,
        missing: _Missing = "drop",
    ) -> pa.Table:
        """Return the rows of `keys`, as `Table.get` does."""

    def count_rows(self, filter: _Filter | None = None) -> int:  # noqa: A002
        """Count the rows that meet `filter`."""

    def to_dataset(self) -> TableDataset:
        """Return the snapshot as a `pyarrow.dataset.Dataset`."""

    def __datafusion_table_provider__(self, session: object) -> object:
        """Serve the queries of a DataFusion session from this snapshot."""

@final
class SnapshotShard:
    """What a snapshot pinned of one shard: a manifest version, generations of its SSTables."""

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
    """Rows in memory that a snapshot pinned; `num_rows` counts superseded rows and tombstones."""

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
        ```python
        writer = table.bulk_writer()
        for batch in batches:
            writer.upsert(batch)
        table.commit(writer.finish())
        ```
    """

    def upsert(self, data: _Data, *, round_floats: bool = False) -> None:
        """Add rows, routed to their shards; `round_floats` as in `Table.upsert`.

        Waiting rows are written first where they would fill a MemTable together with these. After
        an error none of these rows is staged, and all earlier ones are.
        """

    def delete(self, keys: _Data) -> None:
        """Add keys to delete."""

    def apply(self, data: _Data, deletes: _Array, *, round_floats: bool = False) -> None:
        """Add rows and keys to delete; see `Table.apply`."""

    def finish(self) -> list[StagedSsTable]:
        """Write the remaining rows and return all SSTables, those of a shard in row order.

        After an error no row is lost: call it again.
        """

@final
class StagedSsTable:
    """An SSTable that no manifest lists; any process can commit it. Can be pickled."""

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
    """What a commit did.

    `num_shards_already_written` counts shards that had recorded its transaction id or all its
    SSTables.
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
    """Where a job is offered; a context manager. Its `repr` does not show the token."""

    @property
    def location(self) -> str:
        """Return what `connect_job` and `pyarrow.flight.connect` take."""

    @property
    def token(self) -> str:
        """Return the secret that a reader must have."""

    def close(self) -> None:
        """End the endpoint: reads that SSTable fail, and nobody listens any more."""

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

    A read raises `JobStoppedError` where the job is closed, gone or fenced, and never shows rows
    of before. What was read once stays here, so that the next read fetches new rows only.
    """

    @property
    def location(self) -> str: ...
    @property
    def shard_id(self) -> str: ...

@final
class Scan:
    """A read that has not begun.

    Every call below takes a consistent snapshot of its own; a scan of a `Snapshot` reads that
    snapshot.
    """

    @property
    def schema(self) -> pa.Schema:
        """The columns of the result. Raises `InvalidInputError` as a read would."""

    def to_reader(self) -> ArrowStream:
        """Return the rows as a stream, for `pyarrow.RecordBatchReader.from_stream` and others."""

    def to_batches(self) -> BatchIterator:
        """Return the rows in batches, each fetched when it is asked for; so does `iter`."""

    def to_table(self) -> pa.Table:
        """Return all rows."""

    def to_pandas(self, **options: object) -> pd.DataFrame:
        """Return all rows as a pandas frame; options are those of `pyarrow.Table.to_pandas`."""

    def to_polars(self) -> pl.DataFrame:
        """Return all rows as a polars frame."""

    def count_rows(self) -> int:
        """Count the rows without reading columns that no condition needs."""

    def explain(self, analyze: bool = False) -> str:
        """Return the plan as text; with `analyze` run it first and add rows and times."""

    def __iter__(self) -> BatchIterator: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

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
    """What a write did: rows, shards that took them, WAL entries that hold them.

    `num_shards_already_written` counts shards that had recorded its transaction id and took
    nothing.
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
    """What a put promised when it returned.

    `already_written`: its transaction id said that this was written before, and nothing was.
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
    """One thing that nobody needs: a file or, for an SSTable, a folder, relative to the table."""

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
        "staged write",
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

    `num_pinned_sstables` counts SSTables that would go but that this process is reading.
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
    """One SSTable of a compaction: which way it went, and why."""

    @property
    def shard_id(self) -> str: ...
    @property
    def generation(self) -> int: ...
    @property
    def num_rows(self) -> int:
        """Rows of its data file."""

    @property
    def num_live_rows(self) -> int:
        """Rows that the base table gets."""

    @property
    def num_tombstones(self) -> int: ...
    @property
    def bytes(self) -> int:
        """Size of its data file; 0 where it is not known."""

    @property
    def treatment(self) -> Literal["link", "rewrite", "drop"]: ...
    @property
    def reason(self) -> str: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class CompactionResult:
    """What a compaction did, or with `dry_run` would do.

    `num_rows_written` counts the rows that the base table got, in linked files or written;
    `copied_bytes` those of linked files that the storage could not link.
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
    def copied_bytes(self) -> int: ...
    @property
    def num_fragments_added(self) -> int: ...
    @property
    def num_fragments_rewritten(self) -> int: ...
    @property
    def base_version(self) -> int: ...
    @property
    def sstables(self) -> list[CompactedSsTable]: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class SsTable:
    """A flushed SSTable; `num_rows` counts superseded rows and tombstones."""

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
    """A shard as its manifest describes it; `sstables` are those not compacted.

    `ordinal` is None for a shard that is not of the table's sharding: another program opened it,
    and `Table.compact` moves its rows into the base table.
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
    """A table at one moment; `num_sstable_rows` counts superseded rows and tombstones."""

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
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class DeletionVectorResult:
    """What a step of deletion-vector mode wrote.

    It wrote one file for each of `num_sstables`; the files have `bytes` together. It looked at
    `num_fragments` of the base table, counted once for each SSTable.
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
    """What a record index has, or what a check found.

    `num_runs` sorted runs cover `num_fragments_covered` fragments of `base_version`. They have
    `num_entries` in `bytes`. Rows of `num_fragments_uncovered` are looked up without the index. No
    query needs `num_stale_runs`. `damage`: a sentence for each thing that is wrong;
    `Table.create_record_index` repairs it.
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
class TableVersion:
    """One version of the base table.

    `operation` is what Lance calls the commit; None where it is not recorded. With
    `num_compacted_shards` more than 0 it was a compaction.
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
    """What `Admin.verify_sstables` found in one SSTable, or of generations that are missing.

    `path`: its folder in the shard; empty for missing generations, the oldest of which is
    `generation`. `num_files` have a checksum, and `bytes` together. `unchecked`:
    files that its rows come from and that have none, as in an SSTable that lance wrote. `damage`:
    each file that is another one by now, or cannot be read, and how, or why the SSTable cannot be
    opened.
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

    `relisted`: generations that the shard manifest lists again. `missing`: those that are still
    missing, each with the reason.
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
    """What stands in a shard's log behind the entry `replay_after_wal_position`.

    `findings`: of `verify_wal`, the first damaged entry and all behind it; of `truncate_wal`, the
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

    `kind` is "intact" or the damage: "hole", "zero length", "zero filled", "cut short",
    "checksum", "misplaced", "too large", "no file", "undecodable", "no writer epoch",
    "epoch goes back", "generation goes back". What a damaged entry records of `num_rows`,
    `generation` and `writer_epoch` may be wrong; None where it records nothing. An intact entry of
    no rows is a fence sentinel. `bytes`: as many as were read, none of one that is too large.
    `copy`: where a cut put the bytes.
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
    """A job's counters at one moment."""

    @property
    def shard_id(self) -> str: ...
    @property
    def writer_epoch(self) -> int: ...
    @property
    def num_puts(self) -> int:
        """Puts and deletes accepted."""

    @property
    def num_rows(self) -> int:
        """Rows accepted, tombstones included."""

    @property
    def num_wal_entries(self) -> int: ...
    @property
    def num_wal_batches(self) -> int:
        """Puts in those entries; by `num_wal_entries` it is the mean size of a group commit."""

    @property
    def wal_bytes(self) -> int:
        """Bytes of the rows in those entries."""

    @property
    def wal_position(self) -> int:
        """Position of the newest entry; 0 before the first."""

    @property
    def durable_wait_p50_us(self) -> int:
        """Median of the microseconds that durable puts waited for their entry."""

    @property
    def durable_wait_p99_us(self) -> int:
        """99th percentile of the same."""

    @property
    def num_flushes(self) -> int:
        """MemTables flushed."""

    @property
    def flushed_bytes(self) -> int:
        """Bytes in memory of those MemTables."""

    @property
    def flush_ms(self) -> int:
        """Milliseconds that those flushes took."""

    @property
    def active_generation(self) -> int: ...
    @property
    def num_active_rows(self) -> int: ...
    @property
    def num_active_batches(self) -> int:
        """Puts whose rows those are, also of earlier jobs: a claim reads about as many entries."""

    @property
    def num_frozen_memtables(self) -> int:
        """MemTables that wait for their flush."""

    @property
    def num_uncompacted_generations(self) -> int:
        """Flushed generations that wait for compaction."""

    @property
    def memtable_bytes(self) -> int:
        """Bytes in active and frozen MemTables."""

    @property
    def num_unindexed_rows(self) -> int:
        """Rows that wait for the key index: the index lag."""

    @property
    def backpressure_ms(self) -> int:
        """Milliseconds that puts waited for room, added up."""

    @property
    def num_backpressure_puts(self) -> int:
        """Puts that waited for room."""

    @property
    def num_waiting_puts(self) -> int:
        """Puts that wait for room now."""

    @property
    def num_compactions(self) -> int:
        """Compactions by the job's maintenance that moved something."""

    @property
    def num_compacted_generations(self) -> int:
        """Generations that they moved, of all shards."""

    @property
    def num_collections(self) -> int:
        """Collections of garbage by the job's maintenance."""

    @property
    def collected_bytes(self) -> int:
        """Bytes that they removed."""

    @property
    def num_deletion_vector_files(self) -> int:
        """Files of deletion vectors that were written for flushed SSTables."""

    @property
    def maintenance_ms(self) -> int:
        """Milliseconds that maintenance took."""

    @property
    def num_maintenance_errors(self) -> int:
        """Rounds of maintenance that failed."""

    @property
    def last_maintenance_error(self) -> str | None:
        """Why the newest round failed; None where it did not."""

    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]
