"""A stream out of order in Spark: `sequence_by` beside `keep_newest`, which reads before it writes.

Owns: the micro-batches, both sides in turn in one Spark, and the check that both tables have the
same rows. Does not own: the page.
"""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.functions import lit

from benches.merge import tables
from benches.write.stats import Comparison, Goal
from lancemem.spark import LancememTable, configure

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from benches.write.runner import Settings

BATCH_ROWS, BATCHES, QUICK_BATCHES = 1_000, 200, 20
KEYS = 100_000


def _batches(count: int) -> list[pa.Table]:
    """Make rows of random keys, whose times are at random up to ten batches late."""
    random = np.random.default_rng(17)
    out = []
    for number in range(count):
        ids = random.choice(KEYS, BATCH_ROWS, replace=False)
        times = (number - random.integers(0, 10, BATCH_ROWS)) * BATCH_ROWS + np.arange(BATCH_ROWS)
        out.append(tables.rows(ids, number, times))
    return out


def measure(settings: Settings) -> Comparison:
    """Write the micro-batches into both tables, batch by batch in turn."""
    count = QUICK_BATCHES if settings.quick else BATCHES
    builder = configure(SparkSession.builder.master("local[2]").appName("bench-merge"))
    spark = builder.config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    ruled_uri, read_uri = (str(settings.folder / f"{name}.lance") for name in ("ruled", "read"))
    ruled = LancememTable.create(
        spark, ruled_uri, schema=tables.SCHEMA, primary_key="id", sequence_by=["ts"]
    )
    read = LancememTable.create(spark, read_uri, schema=tables.SCHEMA, primary_key="id")
    ours: list[float] = []
    theirs: list[float] = []
    try:
        for number, batch in enumerate(_batches(count)):
            rows = _frame(spark, settings.folder, number, batch)
            steps = [
                (ours, lambda rows=rows: ruled.upsert(rows)),
                (theirs, lambda rows=rows: _keep_newest(read, rows)),
            ]
            for times, step in steps if number % 2 == 0 else reversed(steps):
                begun = time.perf_counter()
                step()
                times.append(time.perf_counter() - begun)
        _same(ruled.toDF(), read.toDF())
    finally:
        spark.stop()
        for uri in (ruled_uri, read_uri):
            shutil.rmtree(uri, ignore_errors=True)
    # The first batches start the processes of both sides.
    warm = min(3, count - 1)
    return Comparison(
        "stream", f"{count} micro-batches of {BATCH_ROWS:,} rows out of order, Spark, one",
        "`keep_newest` on a table without a rule", "s", ours[warm:], theirs[warm:], Goal(3.0),
        inverse=True,
    )  # fmt: skip


def _keep_newest(table: LancememTable, rows: DataFrame) -> None:
    changes = rows.withColumn("op", lit("U"))
    table.apply_changes(changes, op_column="op", sequence_by="ts", keep_newest=True)


def _frame(spark: SparkSession, folder: Path, number: int, batch: pa.Table) -> DataFrame:
    """Write the batch as Parquet, so that both sides read the same file."""
    path = folder / f"batch-{number}.parquet"
    pq.write_table(batch.cast(tables.SCHEMA.remove_metadata()), path)
    return spark.read.parquet(str(path))


def _same(one: DataFrame, other: DataFrame) -> None:
    left, right = (
        sorted((row["id"], row["ts"], row["number"]) for row in frame.collect())
        for frame in (one, other)
    )
    if left != right:
        raise AssertionError("both tables got the same rows, and show others")
