"""Jobs that stay between a driver's writes: claimed once, given back, taken again, read by others.

Owns: `LancememTable.start_jobs`. Not here: repeated writes (test_exactly_once).
"""

from __future__ import annotations

import itertools
import math
import random
import subprocess
import sys
import time
from datetime import timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark import StorageLevel

import lancemem
from lancemem.spark import LancememTable, writer
from tests.spark.test_exactly_once import DDL, SCHEMA, source, stored, write_events

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

# Another process that reads the rows of served jobs.
READER = """
import sys
import lancemem
uri, token, *locations = sys.argv[1:]
jobs = [lancemem.connect_job(location, token) for location in locations]
print(lancemem.open_table(uri).scan(consistency="live", jobs=jobs).count_rows())
"""


@pytest.fixture
def table(spark: SparkSession, table_uri: str) -> LancememTable:
    return LancememTable.create(
        spark, table_uri, schema=SCHEMA, primary_key="id", sharding=lancemem.bucket("id", 2)
    )


def rows(spark: SparkSession, ids: range, v: int) -> DataFrame:
    return spark.createDataFrame([(n, v, v) for n in ids], DDL)


def epochs(table: LancememTable) -> list[int]:
    return [shard.writer_epoch for shard in lancemem.open_table(table.uri).shards()]


def test_writes_through_running_jobs_claim_each_shard_once(
    spark: SparkSession, table: LancememTable
) -> None:
    with table.start_jobs() as jobs:
        for number in range(5):
            done = table.upsert(rows(spark, range(20), number))
            assert (done.num_rows, done.num_shards, done.num_wal_entries) == (20, 2, 2)
        assert stored(table) == dict.fromkeys(range(20), 4), "acknowledged is durable"
        table.flush()
        assert [len(shard.sstables) for shard in table.shards()] == [1, 1]
        table.delete(rows(spark, range(5), 0))
        assert epochs(table) == [1, 1]
        assert {shard: job.num_puts for shard, job in jobs.stats().items()} == {0: 6, 1: 6}
        with pytest.raises(lancemem.InvalidInputError, match="jobs of this object run"):
            table.start_jobs()
    assert stored(table) == dict.fromkeys(range(5, 20), 4)
    table.upsert(rows(spark, range(20), 9))
    assert stored(table) == dict.fromkeys(range(20), 9), "without jobs it goes on"
    assert epochs(table) == [2, 2]


def test_a_shard_that_another_writer_took_is_claimed_again_and_loses_no_row(
    spark: SparkSession, table: LancememTable
) -> None:
    other = LancememTable.forPath(spark, table.uri)
    expected: dict[int, int] = {}
    chance = random.Random(3)  # noqa: S311 - a seed
    with table.start_jobs(), other.start_jobs():
        for number in range(12):
            start = chance.randrange(30)
            writer = chance.choice([table, other])
            writer.upsert(rows(spark, range(start, start + 10), number))
            expected |= dict.fromkeys(range(start, start + 10), number)
            assert stored(table) == expected
    assert stored(table) == expected


@pytest.mark.parametrize("bound", ["DRIVER_ROWS", "DRIVER_PEEK_BYTES"])
def test_a_large_write_between_small_ones_is_written_by_tasks(
    spark: SparkSession, table: LancememTable, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    with table.start_jobs() as jobs:
        table.upsert(rows(spark, range(10), 1))
        monkeypatch.setattr(f"lancemem.spark.table.{bound}", 9)
        # Spark has no size of what a function returns; the rows of a list have one.
        large = rows(spark, range(5, 15), 2).mapInArrow(lambda batches: batches, DDL)
        table.upsert(large)
        assert jobs.stats() == {}, "the tasks have the shards"
        monkeypatch.undo()
        table.upsert(rows(spark, range(12, 20), 3))
        assert len(jobs.stats()) == 2
    expected = dict.fromkeys(range(5), 1) | dict.fromkeys(range(5, 12), 2)
    assert stored(table) == expected | dict.fromkeys(range(12, 20), 3)


def test_rows_of_unknown_size_are_computed_once(spark: SparkSession, table: LancememTable) -> None:
    computed = spark.sparkContext.accumulator(0)

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            computed.add(batch.num_rows)
            yield batch

    with table.start_jobs() as jobs:
        table.upsert(rows(spark, range(8), 1).mapInArrow(count, DDL))
        assert len(jobs.stats()) == 2, "the driver wrote them"
    assert computed.value == 8


def test_rows_that_the_user_keeps_stay_kept(spark: SparkSession, table: LancememTable) -> None:
    kept = rows(spark, range(8), 1).mapInArrow(lambda batches: batches, DDL).persist()
    try:
        assert kept.count() == 8
        level = kept.storageLevel
        with table.start_jobs():
            table.upsert(kept)
        assert kept.storageLevel == level != StorageLevel.NONE
    finally:
        kept.unpersist()


def test_a_refused_write_leaves_the_jobs_running(spark: SparkSession, table: LancememTable) -> None:
    with table.start_jobs():
        table.upsert(rows(spark, range(4), 1), txn_app_id="load", txn_version=7)
        again = table.upsert(rows(spark, range(4), 2), txn_app_id="load", txn_version=7)
        assert (again.num_shards_already_written, again.num_wal_entries) == (2, 0)
        with pytest.raises(lancemem.StaleTxnError, match="load"):
            table.upsert(rows(spark, range(4), 3), txn_app_id="load", txn_version=6)
        table.upsert(rows(spark, range(4, 6), 4))
        assert epochs(table) == [1, 1]
    assert stored(table) == dict.fromkeys(range(4), 1) | {4: 4, 5: 4}


def test_a_write_by_the_driver_outlives_passing_faults_of_the_storage(
    spark: SparkSession, table: LancememTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = [lancemem.RetryableError("the disk is busy")] * 2
    write = writer._put

    def put(*arguments: Any) -> None:  # noqa: ANN401
        write(*arguments)
        if faults:
            raise faults.pop()

    monkeypatch.setattr("lancemem.spark.writer._put", put)
    with table.start_jobs() as jobs:
        done = table.upsert(rows(spark, range(4), 1))
        assert sum(job.num_puts for job in jobs.stats().values()) == 2, "each shard once"
    assert faults == []
    assert done.num_shards_already_written > 0
    assert stored(table) == dict.fromkeys(range(4), 1)


def test_late_changes_are_left_out_by_the_rows_in_the_jobs_memory(
    spark: SparkSession, table: LancememTable
) -> None:
    def change(seq: int | None) -> DataFrame:
        return spark.createDataFrame([(1, (seq or 0) * 10, seq, "U")], f"{DDL}, op string")

    with table.start_jobs():
        late = [
            table.apply_changes(
                change(seq), op_column="op", sequence_by="seq", keep_newest=True
            ).num_late_changes
            for seq in (None, 3, 1, None, 5, None, 4)
        ]
    assert late == [0, 0, 1, 1, 0, 1, 1]
    assert stored(table) == {1: 50}


def test_a_sequence_that_is_no_number_is_the_newest_in_any_order(
    spark: SparkSession, table_uri: str
) -> None:
    schema = "id long, at double"
    for order in ((float("nan"), 5.0, 7.0), (5.0, float("nan"), 7.0), (7.0, 5.0, float("nan"))):
        table = LancememTable.create(
            spark, f"{table_uri}-{order[0]}", schema=schema, primary_key="id"
        )
        for at in order:
            change = spark.createDataFrame([(1, at, "U")], f"{schema}, op string")
            table.apply_changes(change, op_column="op", sequence_by="at", keep_newest=True)
        assert [math.isnan(row.at) for row in table.toDF().collect()] == [True], order


@pytest.mark.parametrize("driver_bytes", [0, 1 << 20])
def test_a_sequence_of_another_unit_and_zone_than_the_sessions_is_compared(
    spark: SparkSession, table_uri: str, monkeypatch: pytest.MonkeyPatch, driver_bytes: int
) -> None:
    monkeypatch.setattr("lancemem.spark.table.DRIVER_BYTES", driver_bytes)
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("ns", tz="UTC"))])
    table = LancememTable.create(spark, table_uri, schema=schema, primary_key="id")
    late = []
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        for hour in (12, 11, 13):
            change = spark.sql(f"select 1L id, timestamp'2024-01-01 {hour}:00:00' at, 'U' op")
            options: dict[str, Any] = {"op_column": "op", "sequence_by": "at", "keep_newest": True}
            late.append(table.apply_changes(change, **options).num_late_changes)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert late == [0, 1, 0]
    [newest] = lancemem.open_table(table_uri).scan().to_table()["at"].to_pylist()
    assert newest.isoformat() == "2024-01-01T18:00:00+00:00"


def test_a_stream_through_running_jobs_writes_each_batch_once_and_says_how_far_it_is(
    spark: SparkSession, table: LancememTable, tmp_path: Path
) -> None:
    events, checkpoint = tmp_path / "events", tmp_path / "checkpoint"
    for number in range(4):
        written = [{"id": n, "v": number, "seq": 10 * number + n} for n in range(number, 9)]
        write_events(events, number, written)

    def run() -> None:
        query = table.stream_upsert(
            source(spark, events),
            checkpoint=str(checkpoint),
            trigger={"availableNow": True},
            sequence_by="seq",
            query_name="board",
        )
        assert query.awaitTermination(120)

    with table.start_jobs():
        run()
        [stream] = table.stats().streams
        assert (stream.name, stream.batch_id, stream.num_rows) == ("board", 3, 6)
        assert (stream.newest, stream.lag_ms, stream.is_active) == (38, None, False)
        assert sorted(table.stats().jobs) == [0, 1]
        for name in ("3", ".3.crc"):
            (checkpoint / "commits" / name).unlink(missing_ok=True)
        # A second write of the last batch would hide this row.
        table.upsert(rows(spark, range(5, 6), -5))
        run()
        assert epochs(table) == [1, 1]
    assert stored(table) == {0: 0, 1: 1, 2: 2} | dict.fromkeys(range(3, 9), 3) | {5: -5}


def test_another_process_reads_what_the_jobs_hold_also_after_they_were_started_again(
    spark: SparkSession, table: LancememTable
) -> None:
    def count(endpoints: dict[int, lancemem.Endpoint]) -> int:
        locations = [endpoint.location for endpoint in endpoints.values()]
        token = endpoints[0].token
        command = [sys.executable, "-c", READER, table.uri, token, *locations]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)  # noqa: S603
        assert done.returncode == 0, done.stderr
        return int(done.stdout)

    with table.start_jobs() as jobs:
        assert jobs.endpoints == {}
        with pytest.raises(lancemem.InvalidInputError, match="at least 16 characters"):
            jobs.serve(token="short")  # noqa: S106 - for the test
        assert jobs.endpoints == {}
        endpoints = jobs.serve(token="sixteen-characters-and-more")  # noqa: S106 - for the test
        table.upsert(rows(spark, range(30), 1))
        assert count(endpoints) == 30
        jobs.release()
        assert jobs.endpoints == {}
        table.upsert(rows(spark, range(60), 2))
        again = jobs.endpoints
        assert [each.location for each in again.values()] == [
            each.location for each in endpoints.values()
        ]
        assert count(again) == 60
        with pytest.raises(lancemem.InvalidInputError, match="at least 16 characters"):
            jobs.serve(token="short")  # noqa: S106 - for the test
        renewed = jobs.serve(token="another-token-for-all-of-them")  # noqa: S106 - for the test
        assert {each.token for each in renewed.values()} == {"another-token-for-all-of-them"}
        assert count(renewed) == 60
    assert jobs.endpoints == {}


def test_a_live_dataframe_has_the_rows_in_the_jobs_memory(
    spark: SparkSession, table: LancememTable
) -> None:
    config = lancemem.WriterConfig(max_wal_flush_interval=timedelta(hours=1))
    with table.start_jobs(config) as jobs:
        endpoints = jobs.serve()
        table.upsert(rows(spark, range(20), 1))
        for shard in (0, 1):
            ids = [key for key in range(30) if owned(table, key) == shard]
            values = {"id": ids, "v": [2] * len(ids), "seq": [2] * len(ids)}
            with jobs.lend(shard) as job:
                job.put(pa.table(values, schema=SCHEMA), durable=False)
        live = table.toDF(["id", "v"], "id < 25", "live", jobs=endpoints)
        assert {tuple(row) for row in live.collect()} == {(n, 2) for n in range(25)}
        assert table.toDF(consistency="live", jobs=endpoints.values()).count() == 30
        assert {row.v for row in table.toDF().collect()} == {1}
        with pytest.raises(lancemem.InvalidInputError, match="jobs go with consistency='live'"):
            table.toDF(jobs=endpoints)
        with pytest.raises(lancemem.InvalidInputError, match="jobs go with splits=1"):
            table.toDF(consistency="live", jobs=endpoints, splits=2)
    with pytest.raises(Exception, match=r"RetryableError|JobStoppedError"):
        live.collect()
    with pytest.raises(lancemem.RetryableError):
        table.toDF(consistency="live", jobs=endpoints)


def test_jobs_with_maintenance_compact_what_they_flushed(
    spark: SparkSession, table: LancememTable
) -> None:
    maintenance = lancemem.MaintenanceConfig(generations=1, interval=timedelta(milliseconds=50))
    with table.start_jobs(maintenance=maintenance):
        table.upsert(rows(spark, range(30), 1))
        table.flush()
        deadline = time.monotonic() + 60
        while table.stats().table.num_base_rows < 30 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert table.stats().table.num_base_rows == 30
    assert stored(table) == dict.fromkeys(range(30), 1)


def test_empty_shards_of_a_larger_sharding_before_are_left_alone_by_a_flush(
    spark: SparkSession, table_uri: str
) -> None:
    lance = pytest.importorskip("lance")
    LancememTable.create(
        spark, table_uri, schema=SCHEMA, primary_key="id", sharding=lancemem.bucket("id", 4)
    )
    lance.dataset(table_uri).drop_index("__lance_mem_wal")
    table = LancememTable.enable(spark, table_uri, sharding=lancemem.bucket("id", 2))
    table.upsert(rows(spark, range(20), 1))
    table.flush()
    with table.start_jobs() as jobs:
        table.upsert(rows(spark, range(20), 2))
        table.flush()
        assert sorted(jobs.serve()) == [0, 1]
    assert [len(shard.sstables) for shard in table.shards()[:2]] == [2, 2]
    assert stored(table) == dict.fromkeys(range(20), 2)


def test_a_driver_that_never_closes_its_jobs_loses_nothing(
    spark: SparkSession, table: LancememTable
) -> None:
    config = lancemem.WriterConfig(durable=False)
    jobs = table.start_jobs(config)
    table.upsert(rows(spark, range(50), 1))
    assert stored(table) == dict.fromkeys(range(50), 1)
    with lancemem.open_table(table.uri).start_job(shard=0) as job:
        job.delete(pa.table({"id": pa.array([n for n in range(50) if owned(table, n) == 0])}))
    jobs.close()
    assert stored(table) == {n: 1 for n in range(50) if owned(table, n) == 1}


def owned(table: LancememTable, key: int) -> int:
    [shard] = pa.array(table._table.shard_ordinals(pa.table({"id": [key]}))).to_pylist()
    return int(shard)


@pytest.mark.parametrize(("faults", "tries"), [(writer.FAULTS, 3), (1, 2), (0, 1)])
def test_a_fault_that_does_not_pass_is_told_after_a_while(
    monkeypatch: pytest.MonkeyPatch, faults: int, tries: int
) -> None:
    moments = itertools.count(step=0.4 * writer.FAULT_SECONDS)
    clock = SimpleNamespace(monotonic=lambda: next(moments), sleep=lambda _: None)
    monkeypatch.setattr("lancemem.spark.writer.time", clock)
    tried = []

    def write() -> None:
        tried.append("once more")
        raise lancemem.RetryableError("the disk is busy")

    with pytest.raises(lancemem.RetryableError, match="busy"):
        writer.try_again(write, faults)
    assert len(tried) == tries
