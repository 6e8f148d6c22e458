"""Merge functions in Spark: executors import what the driver names.

Owns: a module that is shipped to executors, and executors that lack it. Does not own: what
functions may do (tests/test_merge_functions.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

import lancemem
from lancemem.spark import LancememTable, error_of, merge_rules

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

DDL = "id long, v long, text string"
MODULE = """
import pyarrow.compute as pc


def add(older, newer):
    return pc.add(older, newer)


def longest(older, newer):
    return pc.if_else(pc.greater(pc.utf8_length(newer), pc.utf8_length(older)), newer, older)
"""


def write(folder: Path, name: str) -> str:
    path = folder / f"{name}.py"
    path.write_text(MODULE)
    return str(path)


def rows_of(table: LancememTable) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, table.toDF().collect()))


def test_functions_of_a_shipped_module_merge_in_tasks(
    spark: SparkSession, table_uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lancemem.spark.table.DRIVER_BYTES", 0)
    spark.sparkContext.addPyFile(write(tmp_path, "shipped_merges"))
    functions = {"v": "shipped_merges:add", "text": "shipped_merges:longest"}
    table = LancememTable.create(
        spark,
        table_uri,
        schema=DDL,
        primary_key="id",
        sharding=lancemem.bucket("id", 2),
        merge_engine="aggregation",
        merge_functions=functions,
    )
    table.upsert(spark.range(3).selectExpr("id", "id v", "'a' text"))
    table.upsert(spark.range(2).selectExpr("id", "10L v", "'bcd' text"))
    twice = spark.range(2).selectExpr("1L id", "100L v", "repeat('x', cast(id + 1 as int)) text")
    twice.write.format("lancemem").mode("append").save(table_uri)
    table.refresh()
    expected = [(0, 10, "bcd"), (1, 211, "bcd"), (2, 2, "a")]
    assert rows_of(table) == expected
    assert rows_of(LancememTable(spark, lancemem.open_table(table_uri))) == expected
    split = spark.read.format("lancemem").option("splits", "2").load(table_uri)
    assert sorted(map(tuple, split.collect())) == expected
    table.compact()
    table.refresh()
    assert rows_of(table) == expected
    assert table.handle.merge_rule is not None
    assert table.handle.merge_rule.merge_functions == functions


def test_the_format_creates_a_table_with_a_function(
    spark: SparkSession, table_uri: str, tmp_path: Path
) -> None:
    spark.sparkContext.addPyFile(write(tmp_path, "merges_of_the_format"))
    options = {
        "primaryKey": "id",
        "mergeEngine": "aggregation",
        "mergeFunctions": "v=merges_of_the_format:add",
    }
    # Columns of a literal alone are not nullable.
    frame = spark.range(3).selectExpr("id", "if(id < 0, null, 5L) v", "if(id < 0, null, 'a') text")
    for _ in range(2):
        frame.write.format("lancemem").mode("append").options(**options).save(table_uri)
    assert rows_of(LancememTable.forPath(spark, table_uri)) == [(n, 10, "a") for n in range(3)]
    other = options | {"mergeFunctions": "v=merges_of_the_format:longest"}
    writer = frame.write.format("lancemem").mode("append").options(**other)
    with pytest.raises(Exception, match="a rule cannot be changed"):
        writer.save(table_uri)


def test_a_task_without_the_module_names_the_function_and_the_way(
    spark: SparkSession, table_uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lancemem.spark.table.DRIVER_BYTES", 0)
    write(tmp_path, "only_on_the_driver")
    monkeypatch.syspath_prepend(tmp_path)
    table = LancememTable.create(
        spark,
        table_uri,
        schema=DDL,
        primary_key="id",
        merge_engine="aggregation",
        merge_functions={"v": "only_on_the_driver:add"},
    )
    rows = spark.range(3).selectExpr("id", "id v", "'a' text")
    with pytest.raises(lancemem.InvalidInputError) as refused:
        table.upsert(rows)
    for word in (table_uri, "'only_on_the_driver:add' of column 'v'", "--py-files"):
        assert word in str(refused.value)
    with pytest.raises(Exception, match="only_on_the_driver") as failed:
        spark.read.format("lancemem").load(table_uri).collect()
    assert isinstance(error_of(failed.value), lancemem.InvalidInputError)
    assert table.handle.count_rows() == 0


def test_the_option_of_the_format_is_text() -> None:
    text = "v=pkg.mod:add, text = pkg.mod:Texts.longest"
    assert merge_rules.of_options({"mergeFunctions": text}) == {
        "merge_functions": {"v": "pkg.mod:add", "text": "pkg.mod:Texts.longest"}
    }
    with pytest.raises(lancemem.InvalidInputError, match="mergeFunctions is of the form"):
        merge_rules.of_options({"mergeFunctions": "pkg.mod:add"})
