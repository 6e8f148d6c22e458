"""The reference of lancemem's Python surface.

Data goes in as any object with `__arrow_c_stream__` or `__arrow_c_array__`: pyarrow tables and
batches, pandas and polars frames. It is copied once; nothing of the caller's is kept.
"""

from collections.abc import Mapping, Sequence
from os import PathLike
from types import TracebackType
from typing import Literal, Protocol, Self, TypeAlias, final

import pyarrow as pa

__all__ = [
    "Acknowledged",
    "ArrowArray",
    "ArrowStream",
    "CompactionResult",
    "CorruptionError",
    "Endpoint",
    "ForkedHandleError",
    "InternalError",
    "InvalidInputError",
    "Job",
    "JobStats",
    "JobStoppedError",
    "LancememError",
    "RemoteJob",
    "RetryableError",
    "Scan",
    "Shard",
    "Sharding",
    "SsTable",
    "Table",
    "TableStats",
    "WalFinding",
    "WalReport",
    "WriteResult",
    "WriterConfig",
    "WriterFencedError",
    "__version__",
    "bucket",
    "connect_job",
    "create_table",
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
_Consistency: TypeAlias = Literal["flushed", "durable", "live"]

class LancememError(Exception):
    """Any failure of lancemem."""

class InvalidInputError(LancememError):
    """The call or its data cannot be accepted; nothing was written. Fix it and call again."""

class WriterFencedError(LancememError):
    """Another job took the shard. Stop, or start a job to take it back."""

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
    uri: str,
    schema: _Schema,
    *,
    primary_key: str | Sequence[str] | None = None,
    sharding: Sharding | None = None,
    config: WriterConfig | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Table:
    """Create an empty table with its shards.

    `schema` is an Arrow schema; key columns become not nullable. `primary_key` names them in key
    order: integers, bool, utf8, large_utf8, binary or large_binary; without it the table is
    append-only. `sharding` defaults to one shard. `config` becomes the default of every job.
    `storage_options` are those of pylance, such as `aws_access_key_id` (docs/object-stores.md);
    base table and shards share them, and no error, log line or `repr` shows the secret ones.

    Raises `InvalidInputError` where a table exists at `uri` or the key cannot be used.
    """

def open_table(
    uri: str,
    *,
    sharding: Sharding | None = None,
    config: WriterConfig | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Table:
    """Open a table; `storage_options` as for `create_table`.

    A Lance table with a primary key in its field metadata that has no MemWAL index yet gets one,
    with `sharding` (default: one shard) and `config`. A table that has one keeps its sharding;
    naming another raises `InvalidInputError`.
    """

def connect_job(
    location: str, token: str, tls_root_certificates: str | PathLike[str] | None = None
) -> RemoteJob:
    """Connect to a job that another process offers with `Job.serve`.

    `location` and `token` are those of its `Endpoint`. A location with TLS, `grpc+tls://..`, needs
    `tls_root_certificates`: the path of a PEM file with the certificate that signed the server's.

    Raises `InvalidInputError` where the token is refused, `RetryableError` where nobody answers.
    """

def bucket(column: str, buckets: int) -> Sharding:
    """Shard rows by the hash of `column`, which is part of the key, into 1 to 1,024 buckets."""

def unsharded() -> Sharding:
    """Keep all rows in one shard."""

@final
class Sharding:
    """How rows are spread over shards. Made by `bucket` and `unsharded`."""

    @property
    def shards(self) -> int: ...
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
        max_wal_flush_interval_ms: int | None = None,
        max_unflushed_memtable_bytes: int | None = None,
        max_uncompacted_generations: int | None = None,
        max_compaction_wait_ms: int | None = None,
        idle_flush_interval_ms: int | None = None,
    ) -> Self:
        """Name the settings to change.

        `durable`: a put returns only when its rows are in the WAL (default true).
        `sync_index`: a put returns only when its keys are in the key index (default true);
        without it a background task indexes them, and reads that need the index do the rest.
        `key_index`: the index's structure (default "hash"; docs/decisions/0006).
        `fsync`: on a local disk, file and folder are synced before that (default true); without
        it a put survives a killed process but not a power cut.
        `max_memtable_*`: limits at which a MemTable is frozen and flushed.
        `max_wal_buffer_bytes`, `max_wal_flush_interval_ms`: how long rows of a job that is not
        durable may wait for the WAL.
        `max_unflushed_memtable_bytes`: memory above which puts wait for a flush.
        `max_uncompacted_generations`: flushed generations of the shard above which puts wait for
        a compaction (default 1,000), for at most `max_compaction_wait_ms` (default 60,000), then
        they raise `RetryableError`.
        `idle_flush_interval_ms`: a MemTable that got no put for this long is flushed (default
        60,000; 0 for never).
        """

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
    def max_wal_flush_interval_ms(self) -> int | None: ...
    @property
    def max_unflushed_memtable_bytes(self) -> int | None: ...
    @property
    def max_uncompacted_generations(self) -> int | None: ...
    @property
    def max_compaction_wait_ms(self) -> int | None: ...
    @property
    def idle_flush_interval_ms(self) -> int | None: ...
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
    def schema(self) -> pa.Schema: ...
    @property
    def primary_key(self) -> list[str]: ...
    @property
    def sharding(self) -> Sharding | None: ...
    def upsert(self, data: _Data) -> WriteResult:
        """Add or replace rows by key, routed to their shards. Returns when all are durable.

        Claims each shard for the length of the call; a program that writes often uses
        `start_job`. Raises `InvalidInputError`, which names column and row, with nothing written.
        """

    def delete(self, keys: _Data) -> WriteResult:
        """Delete the rows with these keys, whether they exist or not."""

    def shard_ordinals(self, data: _Data) -> ArrowArray:
        """Return the shard ordinal of every row as int32. `data` has the sharding column."""

    def start_job(self, *, shard: int | str, config: WriterConfig | None = None) -> Job:
        """Claim a shard, named by ordinal or id, and start its job.

        A job that ran before is fenced. Rows that were durable are in memory again.
        """

    def scan(
        self,
        columns: Sequence[str] | None = None,
        filter: str | None = None,  # noqa: A002
        limit: int | None = None,
        *,
        consistency: _Consistency = "durable",
        jobs: Sequence[Job | RemoteJob] | None = None,
    ) -> Scan:
        """Prepare a read of the newest row of every key.

        `filter` is a SQL condition. `consistency`: "flushed" reads the base table and flushed
        runs; "durable" also the WAL, so every acknowledged durable write of any process; "live"
        also the MemTables of `jobs`, which run in this process or, as `connect_job` gives them, in
        another.
        """

    def get(
        self,
        keys: _Data,
        columns: Sequence[str] | None = None,
        *,
        consistency: _Consistency = "durable",
        jobs: Sequence[Job | RemoteJob] | None = None,
    ) -> pa.Table:
        """Return the newest rows of `keys`, in the order of the keys.

        Keys without a row are left out.
        """

    def compact(self) -> CompactionResult:
        """Move every flushed run into the base table, all shards in one commit."""

    def shards(self) -> list[Shard]:
        """Describe every shard, by ordinal."""

    def stats(self) -> TableStats:
        """Count what lies above the base table."""

    def check_wal(self, shard: int | str) -> WalReport:
        """Look for damage in a shard's log, named by ordinal or id, and write nothing.

        The findings start at the first damaged entry; a log without damage has none.
        """

    def cut_wal(self, shard: int | str, *, from_position: int) -> WalReport:
        """Drop a shard's log from an entry on, which `check_wal` reported as the first damaged.

        Every dropped entry is copied to `_lancemem/dropped/` first, and the report lists them.
        A job of the shard is fenced. Raises `InvalidInputError`, with nothing written, where an
        earlier entry is damaged too, where none is damaged or where the manifest covers the
        position. After `RetryableError` the cut may be half done: call again.
        """

@final
class Job:
    """The one writer of a shard while it runs. Usable from several threads; a context manager."""

    @property
    def shard_id(self) -> str: ...
    def put(
        self, data: _Data, *, durable: bool | None = None, sync_index: bool | None = None
    ) -> Acknowledged:
        """Add or replace rows of this shard, all of them or none.

        `durable` and `sync_index` replace the job's settings for this put; docs/write-path.md
        says what each promises. Raises `InvalidInputError`, which names column and row.
        """

    def delete(
        self, keys: _Data, *, durable: bool | None = None, sync_index: bool | None = None
    ) -> Acknowledged:
        """Delete keys of this shard, whether they exist or not; otherwise as `put`."""

    def flush(self) -> None:
        """Flush what was put; returns when the shard manifest lists it."""

    def close(self, *, flush: bool = False) -> None:
        """End the job when every put is durable. Without `flush` rows stay in the WAL."""

    def serve(
        self,
        address: str = "grpc://127.0.0.1:0",
        token: str | None = None,
        tls: tuple[str | PathLike[str], str | PathLike[str]] | None = None,
        *,
        max_streams: int = 16,
    ) -> Endpoint:
        """Offer the rows in this job's memory to other processes, over Arrow Flight.

        `address` is on the loopback interface unless told otherwise; port 0 takes a free one.
        `token`: what a reader must have, at least 16 characters; made of 256 random bits where
        absent. `tls`: the paths of a certificate and of its private key, in PEM form; without it
        rows and token can be read on the way. At most `max_streams` reads run at a time.
        The endpoint ends with the job or with `Endpoint.close`, not with the object.
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
class Endpoint:
    """Where a job is offered; a context manager. Its `repr` does not show the token."""

    @property
    def location(self) -> str:
        """Return what `connect_job` and `pyarrow.flight.connect` take."""

    @property
    def token(self) -> str:
        """Return the secret that a reader must have."""

    def close(self) -> None:
        """End the endpoint: reads that run fail, and nobody listens any more."""

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
    """A read that has not begun. Every call below pins a consistent cut of its own."""

    def to_reader(self) -> ArrowStream:
        """Return the rows as a stream, for `pyarrow.RecordBatchReader.from_stream` and others."""

    def to_table(self) -> pa.Table:
        """Return all rows."""

    def count_rows(self) -> int:
        """Count the rows without reading columns that no condition needs."""

    def explain(self) -> str:
        """Return the plan as text."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

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
    """What a write did: rows, shards that took them, WAL entries that hold them."""

    @property
    def rows(self) -> int: ...
    @property
    def shards(self) -> int: ...
    @property
    def wal_entries(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class Acknowledged:
    """What a put promised when it returned."""

    @property
    def rows(self) -> int: ...
    @property
    def durable(self) -> bool: ...
    @property
    def indexed(self) -> bool: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class CompactionResult:
    """What a compaction did."""

    @property
    def generations(self) -> int: ...
    @property
    def rows_written(self) -> int: ...
    @property
    def rows_deleted(self) -> int: ...
    @property
    def base_version(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class SsTable:
    """A flushed run; `rows` counts superseded rows and tombstones."""

    @property
    def generation(self) -> int: ...
    @property
    def path(self) -> str: ...
    @property
    def rows(self) -> int | None: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class Shard:
    """A shard as its manifest describes it; `sstables` are those not compacted."""

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
    """A table at one moment; `sstable_rows` counts superseded rows and tombstones."""

    @property
    def base_version(self) -> int: ...
    @property
    def base_rows(self) -> int: ...
    @property
    def shards(self) -> int: ...
    @property
    def sstables(self) -> int: ...
    @property
    def sstable_rows(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class WalReport:
    """What stands in a shard's log behind the entry `replay_after_wal_position`.

    `findings`: of a check, everything from the first damaged entry on; of a cut, what it dropped.
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
    "checksum", "undecodable", "no writer epoch", "epoch goes back", "generation goes back". What a
    damaged entry says of `rows`, `generation` and `writer_epoch` may be wrong; None where it says
    nothing. An intact entry of no rows is a fence sentinel. `copy`: where a cut put the bytes.
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
    def rows(self) -> int | None: ...
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
    def puts(self) -> int:
        """Puts and deletes accepted."""

    @property
    def rows(self) -> int:
        """Rows accepted, tombstones included."""

    @property
    def wal_entries(self) -> int: ...
    @property
    def wal_batches(self) -> int:
        """Puts in those entries; by `wal_entries` it is the mean size of a group commit."""

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
    def flushes(self) -> int:
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
    def active_rows(self) -> int: ...
    @property
    def frozen_memtables(self) -> int:
        """MemTables that wait for their flush."""

    @property
    def uncompacted_generations(self) -> int:
        """Flushed generations that wait for compaction."""

    @property
    def memtable_bytes(self) -> int:
        """Bytes in active and frozen MemTables."""

    @property
    def unindexed_rows(self) -> int:
        """Rows that wait for the key index: the index lag."""

    @property
    def backpressure_ms(self) -> int:
        """Milliseconds that puts waited for room, added up."""

    @property
    def backpressure_puts(self) -> int:
        """Puts that waited for room."""

    @property
    def waiting_puts(self) -> int:
        """Puts that wait for room now."""

    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]
