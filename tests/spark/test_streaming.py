"""The progress of a stream into a table while it runs.

Owns: the metrics of each micro-batch, and missing columns. Not here: that each micro-batch is
written once (test_exactly_once).
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql import functions as sf

import lancemem
from lancemem.spark import LancememTable, writer
from lancemem.spark.size_estimate import is_estimated
from tests.spark.test_exactly_once import write_events

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), pa.field("at", pa.timestamp("us", tz="UTC"))]
)


@pytest.fixture
def table(spark: SparkSession, table_uri: str) -> LancememTable:
    return LancememTable.create(
        spark, table_uri, schema=SCHEMA, primary_key="id", sharding=lancemem.bucket("id", 2)
    )


def source(spark: SparkSession, folder: Path) -> DataFrame:
    reader = spark.readStream.schema("id long, at timestamp").option("maxFilesPerTrigger", 1)
    return reader.json(str(folder))


def test_the_progress_of_a_stream_has_its_rows_and_its_lag(
    spark: SparkSession, table: LancememTable, tmp_path: Path
) -> None:
    now = dt.datetime.now(dt.UTC)
    sizes = [5, 8, 3]
    newest = [now - dt.timedelta(minutes=10 - number) for number in range(3)]
    for number, size in enumerate(sizes):
        times = [newest[number] - dt.timedelta(seconds=n) for n in range(size)]
        events = [{"id": n, "at": at.isoformat()} for n, at in enumerate(times)]
        write_events(tmp_path / "events", number, events)
    query = table.stream_upsert(
        source(spark, tmp_path / "events"),
        checkpoint=str(tmp_path / "checkpoint"),
        trigger={"availableNow": True},
        sequence_by="at",
    )
    assert query.awaitTermination(120)
    told = [progress["observedMetrics"]["lancemem"] for progress in query.recentProgress]
    assert [batch["num_rows"] for batch in told if batch["num_rows"]] == sizes
    lags = [batch["lag_ms"] / 60_000 for batch in told if batch["num_rows"]]
    for number, lag in enumerate(lags):
        # Minutes, plus the time until the query read the row.
        assert 10 - number <= lag < 15 - number
    assert table.toDF().count() == max(sizes)


def test_rows_that_a_stream_makes_of_others_are_not_taken_for_few(
    spark: SparkSession, table: LancememTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(writer, "write_here")
    write_events(tmp_path / "events", 0, [{"id": 1, "at": "2024-01-01T00:00:00Z"}])
    rows = source(spark, tmp_path / "events")
    many = rows.selectExpr("explode(sequence(1L, 100000L)) id", "at")
    assert is_estimated(rows)
    assert not is_estimated(many)
    assert not is_estimated(rows.join(spark.range(9), "id"))
    query = table.stream_upsert(
        many, checkpoint=str(tmp_path / "checkpoint"), trigger={"availableNow": True}
    )
    assert query.awaitTermination(120)
    assert table.toDF().count() == 100_000


def test_rows_that_a_stream_gives_when_it_reads_nothing_are_not_taken_for_few(
    spark: SparkSession, table: LancememTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(writer, "write_here")
    first = [{"id": n, "at": "2024-01-01T00:00:00Z"} for n in range(9)]
    write_events(tmp_path / "events", 0, first)
    # The window is complete once this row is read, and its result comes in the next micro-batch.
    write_events(tmp_path / "events", 1, [{"id": 99, "at": "2024-01-02T00:00:00Z"}])
    events = source(spark, tmp_path / "events").withWatermark("at", "1 second")
    windows = events.groupBy(sf.window("at", "1 minute"), "id").agg(sf.max("at").alias("at"))
    rows = windows.select("id", "at")
    assert is_estimated(rows, "update")
    assert not is_estimated(rows, "append")
    sessions = events.groupBy(sf.session_window("at", "1 minute"), "id").agg(sf.max("at"))
    assert not is_estimated(sessions, "append")
    assert is_estimated(events.dropDuplicates(["id"]), "append")
    checkpoint = str(tmp_path / "checkpoint")
    query = table.stream_upsert(
        rows, checkpoint=checkpoint, trigger={"availableNow": True}, output_mode="append"
    )
    assert query.awaitTermination(120)
    assert {row.id for row in table.toDF().collect()} == set(range(9))


def test_a_stream_by_the_format_may_have_a_name(
    spark: SparkSession, table: LancememTable, tmp_path: Path
) -> None:
    write_events(tmp_path / "events", 0, [{"id": 1, "at": "2024-01-01T00:00:00Z"}])
    writer = source(spark, tmp_path / "events").writeStream.format("lancemem").queryName("named")
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    assert writer.trigger(availableNow=True).start(table.uri).awaitTermination(120)
    assert table.toDF().count() == 1


def test_an_outer_join_of_streams_is_written_in_its_mode(
    spark: SparkSession, table: LancememTable, tmp_path: Path
) -> None:
    write_events(tmp_path / "events", 0, [{"id": 1, "at": "2024-01-01T00:00:00Z"}])
    left = source(spark, tmp_path / "events").withWatermark("at", "1 second")
    right = source(spark, tmp_path / "events").selectExpr("id other", "at then")
    right = right.withWatermark("then", "1 second")
    joined = left.join(right, sf.expr("id = other and then = at"), "left_outer")
    rows = joined.select("id", "at")
    options: dict[str, Any] = {"checkpoint": str(tmp_path / "checkpoint"), "output_mode": "append"}
    query = table.stream_upsert(rows, trigger={"availableNow": True}, **options)
    assert query.awaitTermination(120)
    assert table.toDF().count() == 1
    with pytest.raises(lancemem.InvalidInputError, match="'update' or 'append', got 'complete'"):
        table.stream_upsert(rows, **(options | {"output_mode": "complete"}))


def test_a_stream_without_a_column_of_the_table_does_not_start(
    spark: SparkSession, table: LancememTable, tmp_path: Path
) -> None:
    write_events(tmp_path / "events", 0, [{"id": 1}])
    rows = source(spark, tmp_path / "events")
    with pytest.raises(lancemem.InvalidInputError, match="no column 'at'"):
        table.stream_upsert(rows.select("id"), checkpoint=str(tmp_path / "checkpoint"))
    with pytest.raises(lancemem.InvalidInputError, match="no column 'when'"):
        table.stream_upsert(rows, checkpoint=str(tmp_path / "checkpoint"), sequence_by="when")
