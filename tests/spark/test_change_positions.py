"""Levels "flushed" and "input" of a change feed in Spark: a batch between two positions.

Owns: each change in one task, the order in which `apply_changes` takes them, SQL, what is refused.
Not here: level "committed" (test_change_feed), what the levels promise (tests/test_changes_flushed,
tests/test_changes_input).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

import lancemem
from lancemem.spark import LancememTable
from tests.spark.test_change_feed import SCHEMA, rows

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

LEVELS = ("flushed", "input")


@pytest.fixture
def table(table_uri: str) -> lancemem.Table:
    """Give a table of three shards with two flushes, and two events in its logs."""
    table = lancemem.create_table(
        table_uri,
        SCHEMA,
        primary_key=["id"],
        sharding=lancemem.bucket("id", 3),
        changelog="flushed",
    )
    table.upsert(rows(range(20), 0))
    table.flush()
    table.upsert(rows([*range(5), 20], 1))
    table.upsert(rows([3], 2))
    table.delete([7, 20])
    table.flush()
    table.upsert(rows([1], 3))
    table.delete([2])
    return table


def feed(spark: SparkSession, uri: str, **options: Any) -> DataFrame:  # noqa: ANN401 - options
    reader = spark.read.format("lancemem").option("readChangeFeed", "true")
    return reader.options(**options).load(uri)


def told(rows: pa.Table) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in rows.to_pylist()), key=str)


def seen(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, frame.collect()), key=str)


def content(table: lancemem.Table) -> list[dict[str, Any]]:
    return sorted(table.scan().to_table().to_pylist(), key=lambda row: row["id"])


@pytest.mark.parametrize("level", LEVELS)
def test_tasks_read_each_change_once(
    spark: SparkSession,
    table: lancemem.Table,
    level: Any,  # noqa: ANN401 - one of LEVELS
) -> None:
    start = table.changes(level=level).until
    whole = table.changes(level=level).to_table()
    assert seen(feed(spark, table.uri, changelogLevel=level)) == told(whole)
    table.upsert(rows([100, 1], 9))
    table.flush()
    later = feed(spark, table.uri, changelogLevel=level, startingPosition=start)
    expected = told(table.changes(start, level=level).to_table())
    assert later.rdd.getNumPartitions() == 3
    # The DataFrame ends where it was made.
    table.upsert(rows([101], 9))
    table.flush()
    assert seen(later) == expected
    narrow = feed(
        spark, table.uri, changelogLevel=level, columns="v,_change_type", where="id % 2 = 1"
    )
    asked = table.changes(columns=["v"], filter="id % 2 = 1", level=level).to_table()
    names = [name for name in asked.schema.names if name not in ("v", "_change_type")]
    assert narrow.columns == ["v", "_change_type", *names]
    assert seen(narrow) == told(asked.select(narrow.columns))


@pytest.mark.parametrize("level", LEVELS)
def test_changes_keep_a_second_table_equal(
    spark: SparkSession, table: lancemem.Table, tmp_path: Path, level: str
) -> None:
    mirror = LancememTable.create(
        spark, str(tmp_path / "mirror.lance"), schema=SCHEMA, primary_key="id"
    )
    table.flush()
    source = LancememTable.forPath(spark, table.uri)
    # The order of the rows of a DataFrame is not the order of the changes.
    mirror.apply_changes(source.changes(level=level).repartition(5))
    assert content(lancemem.open_table(mirror.uri)) == content(table)


def test_images_and_kinds_of_flushes_are_options(
    spark: SparkSession, table: lancemem.Table
) -> None:
    table.upsert(rows([5], 0))
    table.flush()
    options = {"skipUnchanged": "true", "rowKinds": "flink"}
    frame = feed(spark, table.uri, changelogLevel="flushed", **options)
    expected = table.changes(level="flushed", skip_unchanged=True, row_kinds="flink").to_table()
    assert seen(frame) == told(expected)
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW flushes USING lancemem OPTIONS (path '{table.uri}', "
        "readChangeFeed 'true', changelogLevel 'flushed')"
    )
    kinds = spark.sql("SELECT _change_type, count(*) FROM flushes GROUP BY 1").collect()
    counted = table.changes(level="flushed").to_table()["_change_type"].value_counts().to_pylist()
    assert dict(map(tuple, kinds)) == {each["values"]: each["counts"] for each in counted}


def test_what_a_level_has_not_is_refused(
    spark: SparkSession, table: lancemem.Table, tmp_path: Path
) -> None:
    with pytest.raises(Exception, match="unknown option 'startingversion'"):
        feed(spark, table.uri, changelogLevel="flushed", startingVersion=1)
    with pytest.raises(Exception, match="is no position of level"):
        feed(spark, table.uri, changelogLevel="input", startingPosition="41")
    with pytest.raises(Exception, match="leave out skip_unchanged"):
        feed(spark, table.uri, changelogLevel="input", skipUnchanged="true")
    with pytest.raises(Exception, match="here the level of a change feed is"):
        feed(spark, table.uri, changelogLevel="all")
    with pytest.raises(lancemem.InvalidInputError, match="leave out splits"):
        LancememTable.forPath(spark, table.uri).changes(level="input", splits=2)
    stream = spark.readStream.format("lancemem").option("readChangeFeed", "true")
    read = stream.option("changelogLevel", "flushed").load(table.uri)
    writer = read.writeStream.option("checkpointLocation", str(tmp_path))
    query = writer.foreachBatch(lambda *_: None).start()
    with pytest.raises(Exception, match="here the level of a change feed is"):
        query.awaitTermination(60)
