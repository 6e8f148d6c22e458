"""The changes of a table as a stream: the snapshot first, then versions, each change once.

Owns: the size of micro-batches, restarts, the pin of a consumer, and a second table that a stream
keeps equal while drivers and executors are killed. Not here: options of a batch
(test_change_feed).
"""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa

import lancemem
from lancemem.spark import LancememTable, change_stream
from tests.spark.test_change_feed import SCHEMA, committed, rows, stored
from tests.spark.test_kills import MINUTES, drive

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

LIMITS_EACH_BATCH = getattr(change_stream, "SupportsTriggerAvailableNow", None) is not None


@pytest.fixture
def table(table_uri: str) -> lancemem.Table:
    return lancemem.create_table(
        table_uri, SCHEMA, primary_key=["id"], sharding=lancemem.bucket("id", 2)
    )


def stream(spark: SparkSession, uri: str, **options: Any) -> DataFrame:  # noqa: ANN401 - options
    reader = spark.readStream.format("lancemem").option("readChangeFeed", "true")
    return reader.options(**options).load(uri)


class Collected:
    """A sink that remembers the changes of each micro-batch by its number."""

    def __init__(self) -> None:
        self.batches: dict[int, list[tuple[Any, ...]]] = {}

    def take(self, batch: DataFrame, number: int) -> None:
        """Remember a micro-batch."""
        read = batch.select("id", "v", "_change_type", "_commit_version").collect()
        # A repeated micro-batch takes the place of its first attempt, as in an exact sink.
        self.batches[number] = sorted(map(tuple, read), key=str)

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """Return the changes of all micro-batches."""
        return sorted((row for batch in self.batches.values() for row in batch), key=str)


def run(frame: DataFrame, checkpoint: Path, take: Callable[[DataFrame, int], None]) -> None:
    """Read everything that is available now."""
    writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(240)


def derived(table: lancemem.Table, since: int | None, until: int | None = None) -> list[Any]:
    found = table.changes(since, until).to_table()
    columns = found.select(["id", "v", "_change_type", "_commit_version"]).to_pydict().values()
    return sorted(zip(*columns, strict=True), key=str)


def forget_last_commit(checkpoint: Path) -> None:
    """Leave the checkpoint as after a crash behind the sink's write."""
    commits = checkpoint / "commits"
    newest = max(int(path.name) for path in commits.iterdir() if path.name.isdecimal())
    for name in (str(newest), f".{newest}.crc"):
        (commits / name).unlink(missing_ok=True)


def offsets(checkpoint: Path) -> list[dict[str, int]]:
    """Return the offsets that Spark has logged, in the order of the micro-batches."""
    logged = [path for path in (checkpoint / "offsets").iterdir() if path.name.isdecimal()]
    in_order = sorted(logged, key=lambda path: int(path.name))
    return [json.loads(path.read_text().splitlines()[-1]) for path in in_order]


def test_the_snapshot_comes_first_then_each_version_and_a_restart_repeats_nothing(
    spark: SparkSession, table: lancemem.Table, tmp_path: Path
) -> None:
    first = committed(table, rows(range(20), 0))
    sink, checkpoint = Collected(), tmp_path / "checkpoint"
    run(stream(spark, table.uri), checkpoint, sink.take)
    assert sink.rows == derived(table, None)
    committed(table, rows([3, 30], 1), deleted=[4])
    second = committed(table, rows([3], 2), deleted=[30])
    run(stream(spark, table.uri), checkpoint, sink.take)
    expected = sorted(derived(table, None, first) + derived(table, first, second), key=str)
    assert sink.rows == expected
    # Nothing new: no row comes again.
    run(stream(spark, table.uri), checkpoint, sink.take)
    assert sink.rows == expected
    # A crash behind the sink's write: the batch comes again, with the same rows.
    forget_last_commit(checkpoint)
    committed(table, rows([77], 5))
    run(stream(spark, table.uri), checkpoint, sink.take)
    assert sink.rows == sorted(expected + derived(table, second), key=str)


def test_a_crash_in_the_first_batch_repeats_the_same_snapshot(
    spark: SparkSession, table: lancemem.Table, tmp_path: Path
) -> None:
    first = committed(table, rows(range(10), 0))
    sink, checkpoint = Collected(), tmp_path / "checkpoint"
    run(stream(spark, table.uri), checkpoint, sink.take)
    forget_last_commit(checkpoint)
    committed(table, rows(range(5), 1))
    run(stream(spark, table.uri), checkpoint, sink.take)
    assert sink.rows == sorted(derived(table, None, first) + derived(table, first), key=str)


def test_limits_divide_versions_and_the_snapshot(
    spark: SparkSession, table: lancemem.Table, tmp_path: Path
) -> None:
    parts = [committed(table, rows(range(20 * n, 20 * n + 20), n)) for n in range(4)]
    by_version = Collected()
    frame = stream(spark, table.uri, startingVersion=1, maxVersionsPerTrigger=1)
    run(frame, tmp_path / "versions", by_version.take)
    assert by_version.rows == derived(table, 0)
    by_rows = Collected()
    run(stream(spark, table.uri, maxRowsPerTrigger=25), tmp_path / "rows", by_rows.take)
    assert by_rows.rows == derived(table, None)
    by_bytes = Collected()
    run(stream(spark, table.uri, maxBytesPerTrigger=1), tmp_path / "bytes", by_bytes.take)
    assert by_bytes.rows == derived(table, None)
    if not LIMITS_EACH_BATCH:
        return
    versions = [{row[3] for row in batch} for batch in by_version.batches.values() if batch]
    assert [len(each) for each in versions] == [1] * len(parts)
    assert all(len(batch) <= 25 for batch in by_rows.batches.values())
    assert sum(map(bool, by_bytes.batches.values())) >= 4
    # Half of the snapshot was read; new versions follow the rest of it.
    assert [each["snapshot"] for each in offsets(tmp_path / "rows")][-1] == -1


def test_a_stopped_snapshot_goes_on_at_its_fragment(
    spark: SparkSession, table: lancemem.Table, tmp_path: Path
) -> None:
    for n in range(4):
        first = committed(table, rows(range(20 * n, 20 * n + 20), n))
    sink, checkpoint = Collected(), tmp_path / "checkpoint"

    def fail_at_the_second(batch: DataFrame, number: int) -> None:
        if number == 1:
            raise RuntimeError("the second micro-batch fails")
        sink.take(batch, number)

    frame = stream(spark, table.uri, maxRowsPerTrigger=20)
    if LIMITS_EACH_BATCH:
        with pytest.raises(Exception, match="the second micro-batch fails"):
            run(frame, checkpoint, fail_at_the_second)
    committed(table, rows([5, 500], 9))
    run(stream(spark, table.uri, maxRowsPerTrigger=20), checkpoint, sink.take)
    if LIMITS_EACH_BATCH:
        assert sink.rows == sorted(derived(table, None, first) + derived(table, first), key=str)
    else:
        assert sink.rows == derived(table, None)


def test_a_consumer_keeps_the_version_that_the_stream_needs(
    spark: SparkSession, table: lancemem.Table, tmp_path: Path
) -> None:
    pytest.importorskip("lance")
    committed(table, rows(range(10), 0))
    sink, checkpoint = Collected(), tmp_path / "checkpoint"
    run(stream(spark, table.uri, consumer="mirror"), checkpoint, sink.take)
    [consumer] = table.changes_consumers()
    assert consumer.name == "mirror"
    position = consumer.position
    committed(table, rows([1], 1), deleted=[2])
    last = committed(table, rows([3], 3))
    clean_up(table)
    run(stream(spark, table.uri, consumer="mirror"), checkpoint, sink.take)
    state = {row["id"]: row["v"] for row in stored(table.uri)}
    # The versions in between are gone, so the rest came as one net step.
    net = [row for row in sink.rows if row[3] > position]
    assert {row[0] for row in net if row[2] == "delete"} == {2}
    assert {row[0]: row[1] for row in net if row[2] == "update_postimage"} == {1: 1, 3: 3}
    assert state[1] == 1
    assert last >= position


def test_a_stream_whose_versions_were_cleaned_up_fails_or_goes_on_as_it_is_told(
    spark: SparkSession, table: lancemem.Table, tmp_path: Path
) -> None:
    pytest.importorskip("lance")
    first = committed(table, rows(range(10), 0))
    sink, checkpoint = Collected(), tmp_path / "checkpoint"
    run(stream(spark, table.uri, startingVersion=1), checkpoint, sink.take)
    committed(table, rows([1], 1))
    clean_up(table)
    with pytest.raises(Exception, match="ChangesExpiredError"):
        run(stream(spark, table.uri, startingVersion=1), checkpoint, sink.take)
    lax = {"startingVersion": "1", "failOnDataLoss": "false"}
    run(stream(spark, table.uri, **lax), checkpoint, sink.take)
    assert {row[3] for row in sink.rows} <= set(range(first + 1))
    committed(table, rows([2], 2))
    run(stream(spark, table.uri, **lax), checkpoint, sink.take)
    assert {row[1] for row in sink.rows if row[2] == "update_postimage"} == {2}


def clean_up(table: lancemem.Table) -> None:
    """Remove every old version that no consumer keeps, as a user does with pylance."""
    from datetime import timedelta  # noqa: PLC0415 - beside its use

    table.to_lance().cleanup_old_versions(timedelta(0), error_if_tagged_old_versions=False)


def test_a_column_that_comes_meanwhile_is_null_in_older_versions(
    spark: SparkSession, table: lancemem.Table, tmp_path: Path
) -> None:
    pytest.importorskip("lance")
    committed(table, rows(range(4), 0))
    table.to_lance().add_columns(pa.schema([pa.field("late", pa.int64())]))
    table.refresh()
    more = rows([9], 9).append_column("late", pa.array([7], pa.int64()))
    committed(table, more)
    found: list[tuple[int, int | None]] = []
    frame = stream(spark, table.uri, startingVersion=1, maxVersionsPerTrigger=1)
    run(
        frame.where("_change_type = 'insert'").select("id", "late"),
        tmp_path / "checkpoint",
        lambda batch, _: found.extend(map(tuple, batch.collect())),
    )
    assert sorted(found) == [(0, None), (1, None), (2, None), (3, None), (9, 7)]


def test_a_bad_stream_is_refused_before_it_starts(
    spark: SparkSession, table: lancemem.Table, tmp_path: Path
) -> None:
    with pytest.raises(Exception, match="maxVersionsPerTrigger is a whole number"):
        stream(spark, table.uri, maxVersionsPerTrigger=0)
    with pytest.raises(Exception, match="has the changes of a table"):
        run(
            spark.readStream.format("lancemem").load(table.uri),
            tmp_path / "rows",
            lambda *_: None,
        )
    with pytest.raises(Exception, match="unknown option 'endingversion'"):
        run(stream(spark, table.uri, endingVersion=1), tmp_path / "end", lambda *_: None)


def test_a_stream_keeps_a_second_table_equal(
    spark: SparkSession, table: lancemem.Table, tmp_path: Path
) -> None:
    mirror = LancememTable.create(
        spark, str(tmp_path / "mirror.lance"), schema=SCHEMA, primary_key="id"
    )
    for number in range(3):
        committed(table, rows(range(number, 30, 2), number), deleted=[number, 40])
        query = mirror.stream_upsert(
            stream(spark, table.uri),
            checkpoint=str(tmp_path / "checkpoint"),
            trigger={"availableNow": True},
        )
        assert query.awaitTermination(240)
        assert stored(mirror.uri) == stored(table.uri)


@pytest.mark.spark
@pytest.mark.timeout(60 * MINUTES + 60)
def test_a_pipeline_of_two_streams_survives_killed_drivers_and_executors(tmp_path: Path) -> None:
    """Stream A upserts into table 1, stream B applies its changes to table 2; processes die."""
    first = lancemem.create_table(
        str(tmp_path / "first.lance"),
        SCHEMA,
        primary_key=["id"],
        sharding=lancemem.bucket("id", 2),
    )
    second = lancemem.create_table(str(tmp_path / "second.lance"), SCHEMA, primary_key=["id"])
    events = tmp_path / "events"
    events.mkdir()
    expected: dict[int, int] = {}

    def add_events(number: int) -> None:
        values = {n: 100 * number + n for n in range(number, 60, 2)}
        lines = [{"id": n, "v": v, "name": f"n{n}"} for n, v in values.items()]
        path = events / f"{number}.json"
        path.write_text("\n".join(map(json.dumps, lines)))
        os.utime(path, (1000 + number, 1000 + number))
        expected.update(values)

    add_events(0)
    add_events(1)
    # The first run dies behind the second write of table 1, so the changes of that write are left
    # for the next run: it dies behind the write of them to table 2.
    for place, writes in (("first", "2"), ("second", "1")):
        done = drive("die_in_a_pipeline", tmp_path, "local[2]", place, writes)
        assert done.returncode == -signal.SIGKILL, done.stderr[-3000:]
    add_events(2)
    done = drive("kill_executors_of_a_pipeline", tmp_path, "local-cluster[2,1,1024]")
    assert done.returncode == 0, done.stderr[-3000:]
    assert "killed=0" not in done.stdout
    first.refresh()
    second.refresh()
    assert {row["id"]: row["v"] for row in stored(first.uri)} == expected
    assert stored(second.uri) == stored(first.uri)
