"""Streams into a table: each micro-batch once, whatever is repeated.

Owns the query that `stream_upsert` starts, and the metrics of each micro-batch in its progress.
Spark gives a repeated micro-batch its old number and a restarted query its old id. The two are the
transaction id of the batch in every shard. Does not own the writing of rows: see `writer`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as sf
from pyspark.sql.types import TimestampNTZType, TimestampType

from lancemem.spark import transactions
from lancemem.spark.size_estimate import UNKNOWN_BYTES, is_estimated, quoted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from lancemem.spark.table import LancememTable
    from lancemem.spark.writer import WritePlan

# The name of the metrics in the `observedMetrics` of a query's progress.
METRICS = "lancemem"


@dataclass(frozen=True)
class StreamStats:
    """How far a stream is: the newest micro-batch with rows among those that Spark remembers.

    `newest` is the largest `sequence_by` of those rows. `lag_ms`, for a timestamp, is how much
    older it was than the micro-batch. Both are None before the first micro-batch, and without
    `sequence_by`.
    """

    query_id: str
    name: str | None
    is_active: bool
    batch_id: int | None = None
    num_rows: int = 0
    rows_per_second: float | None = None
    newest: Any = None
    lag_ms: int | None = None


def progress(query: StreamingQuery) -> StreamStats:
    """Return how far a query of `stream_upsert` is."""
    known = StreamStats(str(query.id), query.name, query.isActive)
    for batch in reversed(query.recentProgress):
        told = batch["observedMetrics"].get(METRICS)
        if told is None or not told["num_rows"]:
            continue
        metrics = told.asDict()
        return replace(
            known,
            batch_id=batch["batchId"],
            num_rows=metrics["num_rows"],
            rows_per_second=batch["processedRowsPerSecond"],
            newest=metrics.get("newest"),
            lag_ms=metrics.get("lag_ms"),
        )
    return known


def start(  # noqa: PLR0913, PLR0917 - what makes a stream, in the order of the user's call
    table: LancememTable,
    rows: DataFrame,
    plan: WritePlan,
    sequence_by: str | None,
    checkpoint: str,
    trigger: str | Mapping[str, str | bool] | None,
    query_name: str | None,
    output_mode: str,
) -> StreamingQuery:
    """Start the query."""
    size = None if is_estimated(rows, output_mode) else UNKNOWN_BYTES

    def write_batch(batch: DataFrame, batch_id: int) -> None:
        txn = transactions.of_micro_batch(
            transactions.streaming_query_id(batch.sparkSession), batch_id
        )
        with table._described("stream into"):  # noqa: SLF001 - the same package
            table._write(batch, plan, sequence_by, txn, size=size)  # noqa: SLF001

    observed = _observed(rows, sequence_by)
    writer = observed.writeStream.foreachBatch(write_batch).outputMode(output_mode)
    writer = writer.option("checkpointLocation", checkpoint)
    if query_name is not None:
        writer = writer.queryName(query_name)
    if isinstance(trigger, str):
        writer = writer.trigger(processingTime=trigger)
    elif trigger is not None:
        writer = writer.trigger(**trigger)  # type: ignore[arg-type]
    return writer.start()


def _observed(rows: DataFrame, sequence_by: str | None) -> DataFrame:
    """Count the rows of each micro-batch, and measure how far behind the newest of them is."""
    metrics = [sf.count(sf.lit(1)).alias("num_rows")]
    if sequence_by is not None:
        sequence = rows[quoted(sequence_by)]
        metrics.append(sf.max(sequence).alias("newest"))
        if isinstance(rows.schema[sequence_by].dataType, TimestampType | TimestampNTZType):
            # Spark takes the time of the batch as an argument of an aggregate only.
            at = sequence.cast(TimestampType())
            lag = sf.unix_millis(sf.current_timestamp()) - sf.unix_millis(at)
            metrics.append(sf.min(lag).alias("lag_ms"))
    return rows.observe(METRICS, *metrics)
