"""Maintenance from Spark: the progress of long calls, and indexes that a compaction leaves alone.

Owns: which stages `LancememTable.compact` and `collect_garbage` report, on which thread, and
`update_indexes=`. Not here: the stages of the engine (tests/test_progress.py), or what a compaction
does (tests/test_compaction.py).
"""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

import lancemem
from lancemem import Progress
from lancemem.spark import LancememTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def table(spark: SparkSession, table_uri: str) -> LancememTable:
    """Give a table of two shards whose base has 100 rows and whose logs have 20 newer ones."""
    table = LancememTable.create(
        spark,
        table_uri,
        schema="id long, carrier string",
        primary_key="id",
        sharding=lancemem.bucket("id", 2),
    )
    put(spark, table, 0, 100)
    table.compact(flush=True)
    put(spark, table, 0, 20)
    return table


def put(spark: SparkSession, table: LancememTable, start: int, end: int) -> None:
    table.upsert(spark.range(start, end).selectExpr("id", "concat('c', id % 4) carrier"))


def stages(events: list[Progress]) -> list[str]:
    """Return the stages in their order."""
    return list(dict.fromkeys(event.stage for event in events))


def test_a_compaction_reports_its_flush_its_tasks_and_its_stages(
    spark: SparkSession, table: LancememTable
) -> None:
    events: list[Progress] = []
    here, threads = threading.get_ident(), set()

    def follow(event: Progress) -> None:
        events.append(event)
        threads.add(threading.get_ident())

    table.compact(flush=True, progress=follow)
    assert stages(events)[:2] == ["flush logs", "verify SSTables"]
    assert [(at.done, at.total) for at in events if at.stage == "flush logs"] == [
        (0, 2),
        (1, 2),
        (2, 2),
    ]
    assert threads == {here}

    table.alter(deletion_vectors=True)
    put(spark, table, 0, 30)
    events.clear()
    table.compact(flush=True, progress=follow)
    assert stages(events)[:2] == ["flush logs", "write deletion vectors"]
    assert Progress("write deletion vectors", 2, 2, "SSTables") in events
    assert table.toDF().count() == 100


def test_logs_of_running_jobs_are_flushed_and_reported(
    spark: SparkSession, table: LancememTable
) -> None:
    events: list[Progress] = []
    with table.start_jobs():
        put(spark, table, 0, 5)
        moved = table.compact(flush=True, progress=events.append)
    assert moved.num_rows_in_logs == 0
    assert events[:2] == [
        Progress("flush logs", 0, 2, "logs"),
        Progress("flush logs", 2, 2, "logs"),
    ]


def test_a_collection_reports_its_stages(table: LancememTable) -> None:
    table.compact(flush=True)
    events: list[Progress] = []
    table.collect_garbage(older_than=timedelta(0), progress=events.append)
    assert stages(events) == ["list shards", "remove garbage"]


def test_bars_are_shown_on_the_driver(
    table: LancememTable, capsys: pytest.CaptureFixture[str]
) -> None:
    table.compact(flush=True, progress=True)
    shown = capsys.readouterr().err
    assert "flush logs: 100%" in shown
    assert "verify SSTables: 100%" in shown


@pytest.mark.parametrize("progress", [3, "bar"])
def test_what_is_neither_a_function_nor_a_bool_is_refused_before_anything_is_flushed(
    table: LancememTable,
    progress: Any,  # noqa: ANN401
) -> None:
    with pytest.raises(lancemem.InvalidInputError, match=r"a function of one lancemem\.Progress"):
        table.compact(flush=True, progress=progress)
    with pytest.raises(lancemem.InvalidInputError, match=r"a function of one lancemem\.Progress"):
        table.collect_garbage(progress=progress)
    assert table.compact().num_rows_in_logs == 20


def test_a_compaction_leaves_indexes_alone_when_told(
    spark: SparkSession, table: LancememTable
) -> None:
    table.create_index("carrier", "BITMAP")
    put(spark, table, 100, 140)
    table.compact(flush=True, update_indexes=False)
    assert table.handle.indexes()[0].unindexed_rows > 0
    table.optimize_indexes()
    put(spark, table, 140, 160)
    table.compact(flush=True)
    assert table.handle.indexes()[0].unindexed_rows == 0
