"""Fast upserts and consistent reads on Lance tables.

Owns the public names of the package. The extension module implements them, and its stub
`_lancemem.pyi` is the reference of what is taken over unchanged; `table`, `scan`, `snapshot`,
`indexes`, `change_feed`, `change_consumer` and `catalog` add what a Python program expects of a
table. Does not own Spark, PyTorch or pyarrow's datasets: see `lancemem.spark`, `lancemem.torch` and
`Table.to_dataset`. Importing this package starts no thread and loads neither pandas nor pyarrow.
"""

import sys
from typing import TYPE_CHECKING

from lancemem import agg, query
from lancemem._lancemem import (
    Acknowledged,
    Admin,
    ArrowArray,
    ArrowStream,
    BatchIterator,
    BulkWriter,
    ChangeCounts,
    ChangesExpiredError,
    ChangesUnavailableError,
    ChangeVersion,
    CollectionResult,
    CommitResult,
    CompactedIndex,
    CompactedSsTable,
    CompactionResult,
    ConsumerInfo,
    CorruptionError,
    DeletionVectorResult,
    Endpoint,
    FlushedConsumer,
    FlushedFeed,
    FlushedLog,
    FlushResult,
    ForkedHandleError,
    Garbage,
    InputFeed,
    InternalError,
    InvalidInputError,
    Job,
    JobStats,
    JobStoppedError,
    LancememError,
    MaintenanceConfig,
    MergeRule,
    OptimizedIndex,
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
    TableIndex,
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
from lancemem.change_consumer import ChangesConsumer
from lancemem.change_feed import ChangeFeed, ChangeFeedPart
from lancemem.flushed_consumer import FlushedChangesConsumer
from lancemem.merge import MergeBuilder, MergeResult
from lancemem.merge_functions import check_merge_function
from lancemem.progress import Progress
from lancemem.query_text import RRF
from lancemem.scan import Scan
from lancemem.sharding import ShardingAdvice, advise_sharding
from lancemem.snapshot import Snapshot
from lancemem.table import Table
from lancemem.writer import TableWriter

__all__ = [
    "RRF",
    "Acknowledged",
    "Admin",
    "ArrowArray",
    "ArrowStream",
    "BatchIterator",
    "BulkWriter",
    "ChangeCounts",
    "ChangeFeed",
    "ChangeFeedPart",
    "ChangeVersion",
    "ChangesConsumer",
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
    "FlushedChangesConsumer",
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
    "MergeBuilder",
    "MergeResult",
    "MergeRule",
    "OptimizedIndex",
    "Progress",
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
    "advise_sharding",
    "agg",
    "bucket",
    "check_merge_function",
    "connect_job",
    "create_table",
    "drop_table",
    "enable",
    "exists",
    "open_table",
    "query",
    "unsharded",
]

if not TYPE_CHECKING:  # A type checker reports unknown names itself.

    def __getattr__(name: str) -> object:
        """Name the way for a name of pylance or lancedb."""
        from lancemem.other_names import way_of_module  # noqa: PLC0415 - an error alone needs it

        raise AttributeError(way_of_module(name), name=name, obj=sys.modules[__name__])
