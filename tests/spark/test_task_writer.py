"""`task_writer`: rows that a user's own tasks write, and that the driver commits, each once.

Owns: failed and repeated tasks, repeated micro-batches with other partitions, commits that were cut
short. Tables without a key show each row that is written twice. Not here: the engine's bulk writes.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark import TaskContext

import lancemem
from lancemem.spark import (
    TASK_REPORT,
    LancememTable,
    bulk,
    error_of,
    streaming_query_id,
    task_writer,
)
from tests.spark.test_exactly_once import SCHEMA, source, write_events

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@pytest.fixture
def table(spark: SparkSession, table_uri: str) -> LancememTable:
    return LancememTable.create(
        spark, table_uri, schema=SCHEMA, primary_key="id", sharding=lancemem.bucket("id", 2)
    )


@pytest.fixture
def log(spark: SparkSession, table_uri: str) -> LancememTable:
    """Return a table without a key."""
    lancemem.create_table(f"{table_uri}-log", SCHEMA)
    return LancememTable.forPath(spark, f"{table_uri}-log")


def writing(uri: str) -> Task:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with task_writer(uri) as writer:
            for batch in batches:
                writer.put(batch)
        yield writer.report()

    return write


def reports(rows: DataFrame, uri: str) -> DataFrame:
    return rows.mapInArrow(writing(uri), TASK_REPORT)


def numbers(spark: SparkSession, end: int, v: str = "id", tasks: int = 3) -> DataFrame:
    return spark.range(0, end, 1, tasks).selectExpr("id", f"{v} v", "0L seq")


def stored(table: LancememTable) -> dict[int, int]:
    found = lancemem.open_table(table.uri).scan().to_table()
    ids = found["id"].to_pylist()
    assert len(ids) == len(set(ids)), "a key has one row"
    return dict(zip(ids, found["v"].to_pylist(), strict=True))


def test_rows_of_many_tasks_appear_together(spark: SparkSession, table: LancememTable) -> None:
    table.upsert(numbers(spark, 10, "-1"))
    waiting = reports(numbers(spark, 1000, "id * 2"), table.uri).persist()
    try:
        assert waiting.count() >= 3
        assert len(stored(table)) == 10, "staged rows are invisible"
        done = table.commit(waiting)
    finally:
        waiting.unpersist()
    assert (done.num_rows, done.num_shards) == (1000, 2)
    assert stored(table) == {n: 2 * n for n in range(1000)}


def test_a_task_deletes_and_writes_in_its_order(spark: SparkSession, table: LancememTable) -> None:
    table.upsert(numbers(spark, 10))
    uri = table.uri

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with task_writer(uri) as writer:
            for batch in batches:
                writer.put(batch)
                writer.delete(batch.slice(0, 6).select(["v", "id"]))
                writer.put(pa.Table.from_batches([batch.slice(0, 2)]))
        yield writer.report()

    table.commit(numbers(spark, 8, "id + 100", tasks=1).mapInArrow(write, TASK_REPORT))
    assert stored(table) == {n: n + 100 for n in (0, 1, 6, 7)} | {8: 8, 9: 9}


def test_tasks_that_fail_behind_their_write_are_repeated_and_write_each_row_once(
    spark: SparkSession, log: LancememTable, tmp_path: Path
) -> None:
    uri, folder = log.uri, str(tmp_path)

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with task_writer(uri) as writer:
            for batch in batches:
                writer.put(batch)
        report = writer.report()
        context = TaskContext.get()
        assert context is not None
        if context.attemptNumber() == 0:
            Path(folder, f"failed-{context.partitionId()}").write_text(str(report.num_rows))
            raise RuntimeError("this attempt fails")
        yield report

    done = log.commit(numbers(spark, 100).mapInArrow(write, TASK_REPORT))
    assert [path.read_text() for path in tmp_path.glob("failed-*")] == ["1"] * 3
    assert done.num_rows == 100
    assert sorted(row.id for row in log.toDF().collect()) == list(range(100))


def test_a_repeated_write_takes_nothing_however_its_rows_are_divided(
    spark: SparkSession, table: LancememTable
) -> None:
    first = reports(numbers(spark, 100), table.uri)
    table.commit(first, txn_app_id="query", txn_version=7)
    # Newer rows: a second write of the batch would supersede them.
    table.upsert(numbers(spark, 10, "-id"))
    for tasks in (1, 5):
        again = reports(numbers(spark, 100, tasks=tasks), table.uri)
        done = table.commit(again, txn_app_id="query", txn_version=7)
        assert (done.num_rows, done.num_shards_already_written) == (0, 2)
    late = reports(numbers(spark, 100, "0L"), table.uri)
    with pytest.raises(lancemem.StaleTxnError):
        table.commit(late, txn_app_id="query", txn_version=6)
    assert stored(table) == {n: -n if n < 10 else n for n in range(100)}


def test_a_commit_that_was_cut_short_is_completed_by_its_repetition(
    spark: SparkSession, table: LancememTable
) -> None:
    first = bulk.sstables_of(reports(numbers(spark, 100), table.uri))
    shard = first[0].shard_id
    part = [sstable for sstable in first if sstable.shard_id == shard]
    assert len(part) < len(first)
    # The driver dies behind the first shard.
    table.handle.commit(part, write=bulk.name_of(first), txn=("app:query", 0))
    again = reports(numbers(spark, 100, tasks=2), table.uri)
    done = table.commit(again, txn_app_id="query", txn_version=0)
    assert (done.num_shards, done.num_shards_already_written) == (1, 1)
    assert stored(table) == {n: n for n in range(100)}
    sstables = sum(len(each.sstables) for each in table.shards())
    assert sstables == len(part) + done.num_sstables


def test_a_stream_whose_log_lost_the_last_batch_writes_it_once(
    spark: SparkSession, log: LancememTable, tmp_path: Path
) -> None:
    events, checkpoint = tmp_path / "events", tmp_path / "checkpoint"
    for number in range(3):
        rows = [{"id": n, "v": number, "seq": number} for n in range(20)]
        write_events(events, number, rows)
    tasks = iter([1, 2, 3, 5, 1])

    def write_batch(rows: DataFrame, batch_id: int) -> None:
        query_id = streaming_query_id(rows.sparkSession)
        divided = reports(rows.repartition(next(tasks)), log.uri)
        log.commit(divided, txn_app_id=query_id, txn_version=batch_id)

    def run() -> None:
        writer = source(spark, events).writeStream.foreachBatch(write_batch)
        writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        assert writer.start().awaitTermination(120)

    run()
    # The state that Spark would find after a crash between the commit and its own log.
    for name in ("2", ".2.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)
    write_events(events, 3, [{"id": 99, "v": 3, "seq": 3}])
    run()
    found = Counter((row.id, row.v) for row in log.toDF().collect())
    assert found == Counter([(n, number) for number in range(3) for n in range(20)] + [(99, 3)])
    query_id = json.loads((checkpoint / "metadata").read_text())["id"]
    assert log.handle.txn_version(f"app:{query_id}", shard=0) == 3


def test_what_a_task_or_a_commit_cannot_use_is_refused(
    spark: SparkSession, table: LancememTable
) -> None:
    uri = table.uri
    with pytest.raises(lancemem.InvalidInputError, match=r"yield writer\.report\(\)"):
        table.commit(numbers(spark, 3))
    with pytest.raises(lancemem.InvalidInputError, match="call this in the function of foreach"):
        streaming_query_id(spark)
    row: dict[str, Any] = {"id": 1, "v": 1, "seq": 1}
    writer = task_writer(uri)
    with pytest.raises(lancemem.InvalidInputError, match="'extra' of the rows is not in the table"):
        writer.put(pa.RecordBatch.from_pylist([row | {"extra": 1}]))
    with pytest.raises(lancemem.InvalidInputError, match="the rows have no column 'seq'"):
        writer.put(pa.RecordBatch.from_pylist([{"id": 1, "v": 1}]))
    with pytest.raises(TypeError, match="got list"):
        writer.put([row])
    assert writer.report().num_rows == 0
    with pytest.raises(lancemem.InvalidInputError, match="writer of this task is closed"):
        writer.put(pa.RecordBatch.from_pylist([row]))
    failed = task_writer(uri)
    failed.put(pa.RecordBatch.from_pylist([row], schema=SCHEMA))
    with pytest.raises(RuntimeError), failed:
        raise RuntimeError
    with pytest.raises(lancemem.InvalidInputError, match="writer of this task is closed"):
        failed.report()
    too_few = spark.range(3).selectExpr("id", "id v")
    with pytest.raises(lancemem.InvalidInputError, match="the rows have no column 'seq'") as told:
        table.commit(reports(too_few, uri))
    assert error_of(told.value) is told.value
    assert stored(table) == {}
    assert table.commit(reports(numbers(spark, 0), uri)).num_rows == 0
