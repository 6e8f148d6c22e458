"""Deletion vectors before a compaction, written by tasks.

Owns the Spark job that looks up, shard by shard, which rows flushed SSTables supersede. Does not
own the commit that follows: the driver makes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

import lancemem
from lancemem.spark import transactions
from lancemem.spark.tables import open_cached

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

_REPORT_DDL = "num_sstables long"


def look_up(spark: SparkSession, table: lancemem.Table) -> int:
    """Look up what the SSTables of every shard supersede, a task a shard; return how many SSTables.

    A task that is repeated, or runs twice, finds the files of the first run.
    """
    uri, version = table.uri, lancemem.__version__
    shards = [shard.shard_id for shard in table.shards() if shard.sstables]
    if not shards:
        return 0

    def look_up_shards(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        transactions.check_version(version)
        done = 0
        for batch in batches:
            for place in batch["id"].to_pylist():
                done += open_cached(uri).write_deletion_vectors(shard=shards[place]).num_sstables
        yield pa.RecordBatch.from_pydict({"num_sstables": [done]})

    tasks = spark.range(0, len(shards), 1, len(shards))
    reports = tasks.mapInArrow(look_up_shards, _REPORT_DDL).collect()
    return sum(report.num_sstables for report in reports)
