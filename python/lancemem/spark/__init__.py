"""lancemem for PySpark: upserts that route themselves to shards, and reads at a chosen consistency.

Owns what a Spark user imports. It is the only package that imports pyspark, and it uses only the
public names of ``lancemem``; the engine's work happens in the tasks, inside those names.
"""

try:
    import pyspark as _pyspark  # noqa: F401 - asked for first, so that its absence is named
except ModuleNotFoundError as _error:
    raise ModuleNotFoundError(
        "lancemem.spark needs PySpark and Java 17: pip install 'lancemem[spark]', or add [spark] "
        "to the path of the wheel that you install",
        name=_error.name,
    ) from _error

from lancemem.spark.bulk import TASK_REPORT, TaskWriter, task_writer
from lancemem.spark.catalogue import refuse_names
from lancemem.spark.session import configure
from lancemem.spark.table import (
    ChangesResult,
    DeleteResult,
    LancememTable,
    LancememTableStats,
    MergeBuilder,
    MergeResult,
    ShardJobs,
    StreamStats,
    UpsertResult,
)
from lancemem.spark.tables import open_cached
from lancemem.spark.task_errors import error_of
from lancemem.spark.transactions import streaming_query_id

__all__ = [
    "TASK_REPORT",
    "ChangesResult",
    "DeleteResult",
    "LancememTable",
    "LancememTableStats",
    "MergeBuilder",
    "MergeResult",
    "ShardJobs",
    "StreamStats",
    "TaskWriter",
    "UpsertResult",
    "configure",
    "error_of",
    "open_cached",
    "streaming_query_id",
    "task_writer",
]

refuse_names()
