"""Each row once: failed and repeated tasks, late zombies, restarted streams, concurrent writers.

Owns: stories inside one Spark, compared with plain Python at the end. Killed processes are in
test_kills.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark import TaskContext

import lancemem
from lancemem.spark import LancememTable, transactions, writer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("v", pa.int64()),
        pa.field("seq", pa.int64()),
    ]
)
DDL = "id long, v long, seq long"
# Puts at which a task flushes the log of its shard.
LONG_LOG_PUTS = 64


@pytest.fixture(autouse=True)
def in_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tasks also write DataFrames that are small enough for the driver."""
    monkeypatch.setattr("lancemem.spark.table.DRIVER_BYTES", 0)


@pytest.fixture
def table(spark: SparkSession, table_uri: str) -> LancememTable:
    return LancememTable.create(
        spark, table_uri, schema=SCHEMA, primary_key="id", sharding=lancemem.bucket("id", 2)
    )


def stored(table: LancememTable) -> dict[int, int]:
    found = lancemem.open_table(table.uri).scan().to_table()
    ids = found["id"].to_pylist()
    assert len(ids) == len(set(ids)), "a key has one row"
    return dict(zip(ids, found["v"].to_pylist(), strict=True))


def numbers(spark: SparkSession, end: int, v: str = "id") -> DataFrame:
    return spark.range(0, end, 1, 2).selectExpr("id", f"{v} v", "0L seq")


def failing_once(frame: DataFrame, folder: Path, after: int) -> DataFrame:
    """Let the first attempt of each task fail behind its `after`th batch."""
    folder.mkdir()
    place = str(folder)

    def pass_or_fail(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        for number, batch in enumerate(batches):
            if number == after and context.attemptNumber() == 0:
                Path(place, f"failed-{context.partitionId()}").touch()
                raise RuntimeError("this attempt fails")
            yield batch

    return frame.mapInArrow(pass_or_fail, frame.schema)


def test_tasks_that_fail_halfway_and_are_repeated_write_each_row_once(
    spark: SparkSession, table: LancememTable, tmp_path: Path
) -> None:
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    try:
        frame = failing_once(numbers(spark, 1000, "id * 2"), tmp_path / "upsert", after=2)
        assert table.upsert(frame).num_rows == 1000
        by_format = failing_once(numbers(spark, 500, "-id"), tmp_path / "format", after=1)
        by_format.write.format("lancemem").mode("append").save(table.uri)
    finally:
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "65536")
    for way in ("upsert", "format"):
        assert len(list((tmp_path / way).glob("failed-*"))) == 2, way
    assert stored(table) == {n: -n if n < 500 else 2 * n for n in range(1000)}


@pytest.mark.usefixtures("spark")
def test_a_task_that_dies_behind_its_write_is_repeated_and_writes_nothing(
    table: LancememTable,
) -> None:
    plan = writer.WritePlan(tuple(SCHEMA.names), ("id",))
    task = writer.shard_writer(table.uri, plan, ("app:x", 1))
    shard = int(pa.array(table._table.shard_ordinals(pa.table({"id": [1]})))[0].as_py())

    def write(value: int) -> dict[str, Any]:
        row = {"id": 1, "v": value, "seq": 0, "_lancemem_shard": shard}
        batch = pa.RecordBatch.from_pylist([row])
        batch = batch.set_column(3, "_lancemem_shard", pa.array([shard], pa.int32()))
        report: dict[str, Any] = next(task(iter([batch]))).to_pylist()[0]
        return report

    assert not write(10)["already_written"]
    assert write(11)["already_written"]
    zombie = writer.shard_writer(table.uri, plan, ("app:x", 0))
    task = zombie
    with pytest.raises(lancemem.StaleTxnError, match="too late"):
        write(12)
    assert stored(table) == {1: 10}


@pytest.mark.usefixtures("spark")
def test_a_shard_that_takes_many_small_batches_keeps_its_log_short(table: LancememTable) -> None:
    plan = writer.WritePlan(tuple(SCHEMA.names), ("id",))
    batches = 2 * LONG_LOG_PUTS + 3
    shard = int(pa.array(table._table.shard_ordinals(pa.table({"id": [0]})))[0].as_py())
    for number in range(batches):
        columns = {"id": [0, 1 + number], "v": [number, 0], "seq": [0, 0]}
        rows = pa.table(columns, schema=SCHEMA)
        writer.write_here(table._table, plan, rows, None, ("app:x", number), None)
        with table._table.start_job(shard=shard) as job:
            assert job.stats().num_active_batches < LONG_LOG_PUTS
    assert len(table.shards()[shard].sstables) == 2
    assert stored(table) == {0: batches - 1} | dict.fromkeys(range(1, 1 + batches), 0)


def test_many_rows_go_into_sstables_that_are_committed_once(
    spark: SparkSession, table: LancememTable
) -> None:
    wide = numbers(spark, 1_600_000, "id + 1")
    done = table.upsert(wide, txn_app_id="load", txn_version=1)
    assert (done.num_rows, done.num_shards, done.num_wal_entries) == (1_600_000, 2, 0)
    assert done.num_sstables >= 2
    again = table.upsert(numbers(spark, 1_600_000, "-1"), txn_app_id="load", txn_version=1)
    assert (again.num_shards_already_written, again.num_sstables) == (2, 0)
    found = table.toDF().selectExpr("count(*)", "sum(v - id)", "max(v)").collect()
    assert found == [(1_600_000, 1_600_000, 1_600_000)]


def test_the_last_version_of_a_key_wins_within_a_batch_however_it_is_shuffled(
    spark: SparkSession, table: LancememTable
) -> None:
    chance = random.Random(5)  # noqa: S311 - a seed
    events = [(chance.randrange(40), chance.randrange(10**6), seq) for seq in range(2000)]
    chance.shuffle(events)
    table.upsert(spark.createDataFrame(events, DDL).repartition(5), sequence_by="seq")
    expected: dict[int, tuple[int, int]] = {}
    for key, value, seq in events:
        expected[key] = max(expected.get(key, (-1, 0)), (seq, value))
    assert stored(table) == {key: value for key, (_, value) in expected.items()}


def test_late_changes_are_left_out_whatever_call_brings_them(
    spark: SparkSession, table: LancememTable
) -> None:
    chance = random.Random(6)  # noqa: S311 - a seed
    events = [(chance.randrange(50), seq * 10, seq, "U") for seq in range(600)]
    chance.shuffle(events)
    late = written = 0
    for start in range(0, 600, 200):
        part = spark.createDataFrame(events[start : start + 200], DDL + ", op string")
        done = table.apply_changes(part, op_column="op", sequence_by="seq", keep_newest=True)
        late += done.num_late_changes
        written += done.num_upserts
    in_order = sorted(events, key=lambda event: event[2])
    newest = {key: value for key, value, _, _ in in_order}
    assert stored(table) == newest
    assert late > 0
    assert written == 600 - late
    with pytest.raises(lancemem.InvalidInputError, match="no column 'lsn'"):
        table.apply_changes(part, op_column="op", sequence_by="lsn", keep_newest=True)


@pytest.mark.parametrize(
    ("expression", "of"),
    [
        ("named_struct('a', id)", "struct<a:bigint>"),
        ("array(id)", "array<bigint>"),
        ("string(id) collate UTF8_LCASE", "string collate UTF8_LCASE"),
    ],
)
def test_a_sequence_without_one_order_is_refused_however_few_rows_there_are(
    spark: SparkSession, table: LancememTable, expression: str, of: str, tmp_path: Path
) -> None:
    rows = spark.range(3).selectExpr("id", "1L v", "1L seq", f"{expression} at", "'U' op")
    message = re.escape(f"sequence_by names column 'at' of type {of}")
    with pytest.raises(lancemem.InvalidInputError, match=message):
        table.upsert(rows.drop("op"), sequence_by="at")
    with pytest.raises(lancemem.InvalidInputError, match=message):
        table.apply_changes(rows, op_column="op", sequence_by="at")
    stream = spark.readStream.format("rate").load().selectExpr("value id", "1L v", "1L seq")
    stream = stream.selectExpr("*", f"{expression} at")
    with pytest.raises(lancemem.InvalidInputError, match=message):
        table.stream_upsert(stream, sequence_by="at", checkpoint=str(tmp_path))
    assert stored(table) == {}


@pytest.mark.parametrize("driver_bytes", [0, 1 << 20])
def test_two_writers_of_the_same_keys_leave_one_row_a_key(
    spark: SparkSession,
    table: LancememTable,
    monkeypatch: pytest.MonkeyPatch,
    driver_bytes: int,
) -> None:
    monkeypatch.setattr("lancemem.spark.table.DRIVER_BYTES", driver_bytes)
    failures: list[BaseException] = []

    def write(writer: int) -> None:
        try:
            for number in range(4):
                table.upsert(numbers(spark, 200, f"{writer * 1000 + number}L"))
        except BaseException as error:  # noqa: BLE001 - it is shown by the test's thread
            failures.append(error)

    writers = [threading.Thread(target=write, args=(number,)) for number in (1, 2)]
    for thread in writers:
        thread.start()
    for thread in writers:
        thread.join(120)
    assert failures == []
    found = stored(table)
    assert set(found) == set(range(200))
    # The last batch of one of the two writers is the last write of each shard.
    ordinals = pa.array(table._table.shard_ordinals(pa.table({"id": list(found)}))).to_pylist()
    for shard in (0, 1):
        values = {
            found[key] for key, ordinal in zip(found, ordinals, strict=True) if ordinal == shard
        }
        assert values in ({1003}, {2003})


def write_events(folder: Path, number: int, events: list[dict[str, Any]]) -> None:
    folder.mkdir(exist_ok=True)
    staged = folder.parent / f"{number:05}.json"
    staged.write_text("\n".join(json.dumps(event) for event in events))
    # Spark orders files by their time, which two files of one moment share.
    os.utime(staged, (number, number))
    staged.rename(folder / staged.name)


def source(spark: SparkSession, folder: Path) -> DataFrame:
    reader = spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1)
    return reader.json(str(folder))


@pytest.mark.parametrize("way", ["stream_upsert", "format"])
def test_a_stream_whose_log_lost_the_last_batch_writes_it_once(
    spark: SparkSession, table: LancememTable, tmp_path: Path, way: str
) -> None:
    """The driver dies between the sink's commit and Spark's log; the stream restarts."""
    events, checkpoint = tmp_path / "events", tmp_path / "checkpoint"
    for number in range(3):
        write_events(
            events,
            number,
            [{"id": n, "v": number * 100 + n, "seq": number} for n in range(number, 20)],
        )

    def run() -> None:
        rows = source(spark, events)
        if way == "format":
            writer = rows.writeStream.format("lancemem").trigger(availableNow=True)
            query = writer.option("checkpointLocation", str(checkpoint)).start(table.uri)
        else:
            query = table.stream_upsert(
                rows, checkpoint=str(checkpoint), trigger={"availableNow": True}
            )
        assert query.awaitTermination(120)

    run()
    query_id = json.loads((checkpoint / "metadata").read_text())["id"]
    expected = {n: min(n, 2) * 100 + n for n in range(20)}
    assert stored(table) == expected
    assert {table._table.txn_version(f"stream:{query_id}", shard=shard) for shard in (0, 1)} == {2}
    # The state that Spark would find after the crash.
    for name in ("2", ".2.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)
    # Newer rows of another writer: a second write of the batch would supersede them.
    table.upsert(spark.createDataFrame([(5, -5, 9)], DDL))
    write_events(events, 3, [{"id": 99, "v": 99, "seq": 3}])
    run()
    assert stored(table) == expected | {5: -5, 99: 99}
    # A zombie of an earlier batch.
    late = transactions.of_micro_batch(query_id, 1)
    with pytest.raises(lancemem.StaleTxnError):
        table._table.upsert(pa.table({"id": [1], "v": [0], "seq": [0]}, schema=SCHEMA), txn=late)
    shutil.rmtree(checkpoint)


def test_two_streams_upsert_the_same_keys_at_once(
    spark: SparkSession, table: LancememTable, tmp_path: Path
) -> None:
    queries = []
    for stream in (1, 2):
        events = tmp_path / f"events{stream}"
        for number in range(3):
            rows = [{"id": n, "v": stream * 1000 + number, "seq": number} for n in range(50)]
            write_events(events, number, rows)
        queries.append(
            table.stream_upsert(
                source(spark, events),
                checkpoint=str(tmp_path / f"checkpoint{stream}"),
                trigger={"availableNow": True},
            )
        )
    deadline = time.monotonic() + 120
    for query in queries:
        assert query.awaitTermination(int(deadline - time.monotonic()))
        assert query.exception() is None
    found = stored(table)
    assert set(found) == set(range(50))
    assert set(found.values()) <= {1002, 2002}
