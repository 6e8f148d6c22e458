"""Fast upserts and consistent reads on Lance tables.

Owns the public names of the package. The extension module implements them, and its stub
`_lancemem.pyi` is the reference of what is taken over unchanged; `table`, `scan`, `snapshot` and
`catalog` add what a Python program expects of a table. Does not own Spark, PyTorch or pyarrow's
datasets: see `lancemem.spark`, `lancemem.torch` and `Table.to_dataset`. Importing this package
starts no thread and loads neither pandas nor pyarrow.
"""

from typing import TYPE_CHECKING

from lancemem._lancemem import (
    Acknowledged,
    Admin,
    ArrowArray,
    ArrowStream,
    BatchIterator,
    BulkWriter,
    CollectionResult,
    CommitResult,
    CompactedSsTable,
    CompactionResult,
    CorruptionError,
    DeletionVectorResult,
    Endpoint,
    FlushedLog,
    FlushResult,
    ForkedHandleError,
    Garbage,
    InternalError,
    InvalidInputError,
    Job,
    JobStats,
    JobStoppedError,
    LancememError,
    MaintenanceConfig,
    RecordIndexReport,
    RelistReport,
    RemoteJob,
    RetryableError,
    Shard,
    ShardHeldError,
    Sharding,
    ShardLog,
    SkippedLog,
    SnapshotMemTable,
    SnapshotShard,
    SsTable,
    SsTableReport,
    StagedSsTable,
    StaleTxnError,
    TableExistsError,
    TableNotFoundError,
    TableStats,
    TableVersion,
    WalFinding,
    WalReport,
    WriterConfig,
    WriteResult,
    WriterFencedError,
    WriterStats,
    __version__,
    bucket,
    connect_job,
    unsharded,
)
from lancemem.catalog import create_table, drop_table, enable, exists, open_table
from lancemem.merge import MergeBuilder, MergeResult
from lancemem.scan import Scan
from lancemem.sharding import ShardingAdvice, advise_sharding
from lancemem.snapshot import Snapshot
from lancemem.table import Table
from lancemem.writer import TableWriter

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
    "FlushResult",
    "FlushedLog",
    "ForkedHandleError",
    "Garbage",
    "InternalError",
    "InvalidInputError",
    "Job",
    "JobStats",
    "JobStoppedError",
    "LancememError",
    "MaintenanceConfig",
    "MergeBuilder",
    "MergeResult",
    "RecordIndexReport",
    "RelistReport",
    "RemoteJob",
    "RetryableError",
    "Scan",
    "Shard",
    "ShardHeldError",
    "ShardLog",
    "Sharding",
    "ShardingAdvice",
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
    "advise_sharding",
    "bucket",
    "connect_job",
    "create_table",
    "drop_table",
    "enable",
    "exists",
    "open_table",
    "unsharded",
]

if not TYPE_CHECKING:  # A type checker reports unknown names itself.

    def __getattr__(name: str) -> object:
        """Name the way for a name of pylance or lancedb."""
        from lancemem.other_names import way_of_module  # noqa: PLC0415 - an error alone needs it

        raise AttributeError(way_of_module(name), name=name)
