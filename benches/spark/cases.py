"""The measurements, each beside Spark without lancemem.

Owns the data and the two sides of each case. Does not own the session or the report.
"""

from __future__ import annotations

import shutil
import statistics
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

import lancemem
from benches.spark.engines import DDL, seconds
from lancemem.spark import LancememTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

COLUMNS = ["id", "concat('name-', lpad(id, 10, '0')) name", "id / 3 v", "cast(id % 1000 as int) k"]
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("v", pa.float64()),
        pa.field("k", pa.int32()),
    ]
)


def rows(spark: SparkSession, start: int, end: int, parts: int = 4) -> DataFrame:
    """Make rows of four columns, 39 bytes each."""
    return spark.range(start, end, 1, parts).selectExpr(*COLUMNS)


def count_only(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Move every batch across the boundary and do nothing else."""
    seen = sum(batch.num_rows for batch in batches)
    yield pa.RecordBatch.from_pydict({"n": pa.array([seen], pa.int64())})


def interleaved(rounds: int, *sides: Callable[[], Any]) -> list[float]:
    """Run each side once, then time the sides in turn; return the median of each."""
    # The first run also contains Spark's compilation of the plan, and the imports of Python.
    for side in sides:
        side()
    times = [[seconds(side) for side in sides] for _ in range(rounds)]
    return [statistics.median(column) for column in zip(*times, strict=True)]


def create(spark: SparkSession, folder: Path, name: str) -> LancememTable:
    """Make an empty table of four shards."""
    uri = folder / name
    shutil.rmtree(uri, ignore_errors=True)
    return LancememTable.create(
        spark, str(uri), schema=SCHEMA, primary_key="id", sharding=lancemem.bucket("id", 4)
    )


def million_rows_a_second(count: int, took: float) -> str:
    """Write a rate."""
    return f"{count / took / 1e6:.2f} M rows/s"


def upsert(spark: SparkSession, folder: Path, scale: int, rounds: int) -> list[str]:
    """Bulk upsert, durable, and the staged write of the format, beside counting."""
    count = 5_000_000 // scale

    def counted() -> None:
        rows(spark, 0, count).mapInArrow(count_only, "n long").collect()

    def upserted() -> None:
        create(spark, folder, "upsert").upsert(rows(spark, 0, count))

    def saved() -> None:
        table = create(spark, folder, "format")
        rows(spark, 0, count).write.format("lancemem").mode("append").save(table.uri)

    alone, by_upsert, by_format = interleaved(rounds, counted, upserted, saved)
    beside = f"{million_rows_a_second(count, alone)} (`mapInArrow` that counts)"
    return [
        (
            f"| {name} of {count:,} rows x 4 columns, 4 shards, durable | "
            f"{million_rows_a_second(count, took)} | {beside} | {alone / took:.0%} |"
        )
        for name, took in (("`upsert`", by_upsert), ('`format("lancemem")`', by_format))
    ]


class _ReadyReader(DataSourceReader):
    def __init__(self, count: int) -> None:
        self._count = count

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        del partition
        a_batch = 65_536
        ids = pa.array(range(a_batch), pa.int64())
        names = pa.array([f"name-{n:010}" for n in range(a_batch)])
        values, kinds = pa.array([0.5] * a_batch), pa.array([1] * a_batch, pa.int32())
        names_of = ["id", "name", "v", "k"]
        batch = pa.RecordBatch.from_arrays([ids, names, values, kinds], names=names_of)
        for start in range(0, self._count, a_batch):
            yield batch.slice(0, min(a_batch, self._count - start))


class ReadyBatches(DataSource):
    """A source with prepared batches: the upper bound of a Python data source."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "ready_batches"

    def schema(self) -> str:
        """Return the columns of the case."""
        return DDL

    def reader(self, schema: Any) -> _ReadyReader:  # noqa: ANN401 - Spark's StructType
        """Make the reader."""
        del schema
        return _ReadyReader(int(self.options["rows"]))


def read(spark: SparkSession, folder: Path, scale: int, rounds: int) -> list[str]:
    """Read a table of which a tenth is newer than the base, beside ready batches."""
    count = 10_000_000 // scale
    table = create(spark, folder, "read")
    table.upsert(rows(spark, 0, count))
    table.flush()
    table.compact()
    table.upsert(rows(spark, 0, count // 10))
    spark.dataSource.register(ReadyBatches)

    def drained(frame: DataFrame) -> None:
        frame.write.format("noop").mode("overwrite").save()

    def ready() -> None:
        drained(spark.read.format("ready_batches").option("rows", count).load())

    def merged() -> None:
        drained(spark.read.format("lancemem").load(table.uri))

    alone, ours = interleaved(rounds, ready, merged)
    line = (
        f"| read of {count:,} rows, a tenth newer than the base | "
        f"{million_rows_a_second(count, ours)} | {million_rows_a_second(count, alone)} "
        f"(a source that has its batches ready) | {alone / ours:.0%} |"
    )
    return [line]


CASES = {"upsert": upsert, "read": read}
