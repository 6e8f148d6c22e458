"""Maintenance as `LancememTable` offers it: flush, compaction, settings and collection.

Owns the calls, and the Spark job that looks up before a compaction, shard by shard, which rows
flushed SSTables supersede. Does not own what a flush, a compaction or a collection does: see
`lancemem.Table`. The driver makes every commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pyarrow as pa

import lancemem
from lancemem.progress import Steps
from lancemem.spark import transactions
from lancemem.spark.driver_jobs import own_shards
from lancemem.spark.job_description import described
from lancemem.spark.session import check_workers
from lancemem.spark.tables import open_cached
from lancemem.spark.task_errors import own_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import timedelta
    from types import EllipsisType

    from pyspark.sql import SparkSession

    from lancemem.spark.driver_jobs import ShardJobs

    Progress = Callable[[lancemem.Progress], object] | bool | None

_REPORT_DDL = "num_sstables long"


class MaintenanceCalls:
    """The calls of `LancememTable` that keep a table small."""

    _spark: SparkSession
    _table: lancemem.Table
    _running_jobs: Callable[[], ShardJobs | None]

    def flush(self) -> None:
        """Move the log of every shard into a flushed SSTable.

        A job that runs elsewhere is fenced.
        """
        with Steps(None) as steps:
            self._flush(steps)

    def compact(
        self,
        *,
        flush: bool = False,
        count_logs: bool = True,
        update_indexes: bool = True,
        progress: Progress = None,
    ) -> lancemem.CompactionResult:
        """Move what was flushed into the base table, in one commit by the driver.

        In deletion-vector mode one task per shard looks up first what its SSTables supersede, and
        the driver reads no keys.

        Args:
            flush: Call `flush` first, so that every row reaches the base table. Default: False.
            count_logs: Count the rows that stay in logs, which reads them. Default: True.
            update_indexes: Let the table's own indexes cover the new rows. Default: True.
            progress: A function of one `lancemem.Progress`, or True for bars of tqdm, as in
                `lancemem.Table.compact`. The function runs on the driver, on the thread of the
                call. What tasks do is reported before and after their job. Default: nothing is
                shown.

        Returns:
            A report that lists what became of each SSTable, and why.

        Raises:
            InvalidInputError: `progress` is neither a function nor a bool.
            ModuleNotFoundError: Bars are asked for, and tqdm is not installed.

        Example:
            table.compact(flush=True)
            table.compact(progress=True)
        """
        with Steps(progress) as steps:
            if flush:
                self._flush(steps)
            if self._table.deletion_vectors:
                with described(self._spark, "compaction of", self._table.uri), own_errors():
                    check_workers(self._spark)
                    look_up(self._spark, self._table, steps)
            return self._table.compact(
                count_logs=count_logs, update_indexes=update_indexes, progress=steps.function
            )

    def alter(
        self,
        *,
        deletion_vectors: bool | None = None,
        changelog: Literal["stored", "flushed"] | EllipsisType | None = ...,
        changelog_retention: timedelta | None = None,
    ) -> int:
        """Change settings of the table, as `lancemem.Table.alter` does. Runs on the driver.

        Args:
            deletion_vectors: Whether deletion-vector mode is on. Default: as it is.
            changelog: "stored" stores the changes of each compaction, "flushed" the changes of each
                flush, None ends that. Default: as it is.
            changelog_retention: How long stored changes are kept. Default: as it is.

        Returns:
            The version of the base table that records the settings.

        Raises:
            InvalidInputError: No setting is named, or one cannot be used.
        """
        return self._table.alter(
            deletion_vectors=deletion_vectors,
            changelog=changelog,
            changelog_retention=changelog_retention,
        )

    def collect_garbage(
        self,
        *,
        dry_run: bool = False,
        older_than: timedelta | None = None,
        progress: Progress = None,
    ) -> lancemem.CollectionResult:
        """Remove what no reader has needed for `older_than`. Runs on the driver.

        Executors that read a snapshot for longer than that may fail: the driver does not see their
        reads.

        Args:
            dry_run: List each thing with its reason, and write nothing. Default: False.
            older_than: How long a thing must have been unneeded. Default: 1 hour.
            progress: As in `compact`.

        Returns:
            What was removed, each thing with its reason.

        Raises:
            InvalidInputError: As in `lancemem.Table.collect_garbage`.
        """
        return self._table.collect_garbage(
            dry_run=dry_run, older_than=older_than, progress=progress
        )

    def _flush(self, steps: Steps) -> None:
        """Flush every shard, and report each."""
        shards = own_shards(self._table)
        steps.report("flush logs", 0, len(shards), "logs")
        if (jobs := self._running_jobs()) is not None:
            jobs.flush()
            steps.report("flush logs", len(shards), len(shards), "logs")
            return
        for done, shard in enumerate(shards, start=1):
            self._table.start_job(shard=shard.shard_id).close(flush=True)
            steps.report("flush logs", done, len(shards), "logs")


def look_up(spark: SparkSession, table: lancemem.Table, steps: Steps) -> int:
    """Look up what the SSTables of every shard supersede, a task a shard; return how many SSTables.

    A task that is repeated, or runs twice, finds the files of the first run.
    """
    uri, version = table.uri, lancemem.__version__
    behind = [shard for shard in table.shards() if shard.sstables]
    if not behind:
        return 0
    shards, total = [shard.shard_id for shard in behind], sum(len(each.sstables) for each in behind)

    def look_up_shards(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        transactions.check_version(version)
        done = 0
        for batch in batches:
            for place in batch["id"].to_pylist():
                done += open_cached(uri).write_deletion_vectors(shard=shards[place]).num_sstables
        yield pa.RecordBatch.from_pydict({"num_sstables": [done]})

    steps.report("write deletion vectors", 0, total, "SSTables")
    tasks = spark.range(0, len(shards), 1, len(shards))
    reports = tasks.mapInArrow(look_up_shards, _REPORT_DDL).collect()
    steps.report("write deletion vectors", total, total, "SSTables")
    return sum(report.num_sstables for report in reports)
