"""The writing side: edits as files, which a structured stream of Spark applies to the table.

Owns the Spark session, the table, the stream and the instant at which each edit is acknowledged. A
micro-batch is one file, and `apply_changes` gives it the transaction id of the stream, so that a
repeated one changes nothing. The jobs of the driver run meanwhile, and compact beside the writes.

Does not own edits, searches or measurements.
"""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Self

import pyarrow.parquet as pq

import lancemem
from demo.manual.corpus import KEY
from demo.spark_session import start_spark
from lancemem.spark import LancememTable, streaming_query_id

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    import pyarrow as pa
    from pyspark.sql import DataFrame

SHARDS = 2
# Small, so that rows are flushed, compacted and replaced many times in a few minutes.
MEMTABLE_ROWS = 250
GENERATIONS = 3
PARTITIONS = 16
GIVE_UP_SECONDS = 300.0


class StreamStoppedError(Exception):
    """The stream ended, or an edit was not acknowledged in time."""


class EditStream:
    """The table and the stream that writes it; a context manager that ends both with Spark."""

    def __init__(self, folder: Path, schema: pa.Schema, master: str) -> None:
        """Start Spark, and create the table."""
        self._spark = start_spark(master, "lancemem search demo", SHARDS)
        self.folder = folder
        self._edits = folder / "edits"
        self._edits.mkdir()
        self._acknowledged = threading.Event()
        self._at_ns = 0
        self.table = LancememTable.create(
            self._spark,
            str(folder / "manual.lance"),
            schema=schema,
            primary_key=KEY,
            sharding=lancemem.bucket("file", SHARDS),
            config=lancemem.WriterConfig(max_memtable_rows=MEMTABLE_ROWS),
        )
        maintenance = lancemem.MaintenanceConfig(
            generations=GENERATIONS, interval=timedelta(seconds=10)
        )
        self._jobs = self.table.start_jobs(maintenance=maintenance)

    def start(self, sample: Path) -> None:
        """Start the stream of the files that `publish` will write; `sample` has their columns."""
        rows = (
            self._spark.readStream.schema(self._spark.read.parquet(str(sample)).schema)
            .option("maxFilesPerTrigger", 1)
            .parquet(str(self._edits))
        )
        writer = rows.writeStream.foreachBatch(self._write)
        checkpoint = str(self.folder / "checkpoint")
        self._query = writer.option("checkpointLocation", checkpoint).start()

    def publish(self, number: int, changes: pa.Table) -> float:
        """Write an edit as a file and wait for its acknowledgement; return its seconds."""
        started = time.monotonic_ns()
        self._acknowledged.clear()
        hidden = self._edits / f".{number:04}.parquet"
        pq.write_table(changes, hidden)
        hidden.rename(self._edits / f"{number:04}.parquet")
        give_up = time.monotonic() + GIVE_UP_SECONDS
        while not self._acknowledged.wait(timeout=1):
            if not self._query.isActive:
                raise StreamStoppedError(str(self._query.exception()))
            if time.monotonic() > give_up:
                raise StreamStoppedError(f"edit {number} was not acknowledged")
        return (self._at_ns - started) / 1e9

    @property
    def acknowledged_at(self) -> int:
        """The instant at which the newest edit was acknowledged, in nanoseconds."""
        return self._at_ns

    def index_texts(self) -> None:
        """Make a text index of the rows so far; later rows are found all the same."""
        self.table.compact(flush=True)
        self.table.handle.create_index("text", "INVERTED")

    def index_vectors(self) -> None:
        """Make an index of the vectors so far, which decide its partitions."""
        self.table.compact(flush=True)
        self.table.handle.create_index(
            "vector", "IVF_FLAT", metric="cosine", num_partitions=PARTITIONS
        )

    def tiers(self) -> str:
        """Return where the rows are: in the base table, in SSTables or in logs."""
        stats = self.table.handle.stats()
        return (
            f"rows: {stats.num_base_rows:,} base, {stats.num_sstable_rows:,} in "
            f"{stats.num_sstables} SSTables, {stats.num_log_rows:,} in logs"
        )

    def _write(self, rows: DataFrame, batch_id: int) -> None:
        self.table.apply_changes(
            rows,
            op_column="op",
            sequence_by="edit",
            txn_app_id=streaming_query_id(rows.sparkSession),
            txn_version=batch_id,
        )
        self._at_ns = time.monotonic_ns()
        self._acknowledged.set()

    def stop_writing(self) -> None:
        """End the stream, then its jobs."""
        self._query.stop()
        self._jobs.close()

    def __enter__(self) -> Self:
        """Return the stream."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End everything, whatever state it is in."""
        for query in self._spark.streams.active:
            query.stop()
        self._jobs.close()
        self._spark.stop()
