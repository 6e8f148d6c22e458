"""Streams into a table: each micro-batch once, whatever is repeated.

Owns the query that `stream_upsert` starts. Spark gives a repeated micro-batch its old number and a
restarted query its old id, and the two are the mark of the batch in every shard.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lancemem.spark import marks

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from lancemem.spark.table import LancememTable
    from lancemem.spark.writing import WritePlan


def start(  # noqa: PLR0913, PLR0917 - what makes a stream, in the order of the user's call
    table: LancememTable,
    rows: DataFrame,
    plan: WritePlan,
    sequence_by: str | None,
    checkpoint: str,
    trigger: str | Mapping[str, str | bool] | None,
    query_name: str | None,
) -> StreamingQuery:
    """Start the query."""

    def write_batch(batch: DataFrame, batch_id: int) -> None:
        mark = marks.of_micro_batch(marks.streaming_query_id(batch.sparkSession), batch_id)
        table._write(batch, plan, sequence_by, mark)  # noqa: SLF001 - the same package

    writer = rows.writeStream.foreachBatch(write_batch).outputMode("update")
    writer = writer.option("checkpointLocation", checkpoint)
    if query_name is not None:
        writer = writer.queryName(query_name)
    if isinstance(trigger, str):
        writer = writer.trigger(processingTime=trigger)
    elif trigger is not None:
        writer = writer.trigger(**trigger)  # type: ignore[arg-type]
    return writer.start()
