"""Tables that change under Spark: columns that come and go, and another table in the same place.

Owns: that a session which has used a table uses its present state. Not here: older rows under new
columns (test_schema_change).
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

import lancemem
from lancemem.spark import LancememTable

lance = pytest.importorskip("lance")

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

# Enough rows that tasks write them, not the driver.
MANY = 200_000


@pytest.fixture
def table(spark: SparkSession, table_uri: str) -> LancememTable:
    return made(spark, table_uri)


def made(spark: SparkSession, uri: str) -> LancememTable:
    return LancememTable.create(
        spark, uri, schema="id long, v long", primary_key="id", sharding=lancemem.bucket("id", 2)
    )


def flights(spark: SparkSession, number: int, v: int) -> DataFrame:
    return spark.range(number).selectExpr("id", f"{v}L v")


def add_gate(table: LancememTable) -> None:
    lance.dataset(table.uri).add_columns(pa.field("gate", pa.string()))


def first(table: LancememTable) -> Row:
    return table.toDF(where="id = 0").collect()[0]


@pytest.mark.parametrize("number", [1, MANY])
def test_a_column_that_was_added_is_written_by_the_next_upsert(
    spark: SparkSession, table: LancememTable, number: int
) -> None:
    table.upsert(flights(spark, number, 1))
    add_gate(table)
    table.upsert(flights(spark, number, 2).selectExpr("*", "'A1' gate"))
    assert first(table).asDict() == {"id": 0, "v": 2, "gate": "A1"}
    assert table.toDF(splits=2).where("gate = 'A1'").count() == number


def test_a_column_that_was_added_is_written_through_running_jobs(
    spark: SparkSession, table: LancememTable
) -> None:
    with table.start_jobs():
        table.upsert(flights(spark, 1, 1))
        add_gate(table)
        table.upsert(flights(spark, 1, 2).selectExpr("*", "'A1' gate"))
        with pytest.raises(lancemem.InvalidInputError, match="no column 'gate'"):
            table.upsert(flights(spark, 1, 3))
    assert first(table).gate == "A1"


def test_a_merge_has_the_columns_that_the_table_has_now(
    spark: SparkSession, table: LancememTable
) -> None:
    table.upsert(flights(spark, 1, 1))

    def merge(v: int) -> None:
        source = spark.sql(f"select 0L id, {v}L v")
        table.merge(source, "t.id = s.id").whenMatchedUpdate(set={"v": "t.v + s.v"}).execute()

    merge(10)
    add_gate(table)
    table.upsert(flights(spark, 1, 11).selectExpr("*", "'A1' gate"))
    merge(100)
    assert first(table).asDict() == {"id": 0, "v": 111, "gate": "A1"}
    lance.dataset(table.uri).drop_columns(["gate"])
    merge(1000)
    assert first(table).asDict() == {"id": 0, "v": 1111}


@pytest.mark.parametrize("number", [3, MANY])
def test_a_table_that_was_deleted_and_made_again_is_the_new_one(
    spark: SparkSession, table_uri: str, number: int
) -> None:
    for v in (1, 2):
        shutil.rmtree(table_uri, ignore_errors=True)
        table = made(spark, table_uri)
        table.upsert(flights(spark, number, v))
        assert [row.v for row in table.toDF().select("v").distinct().collect()] == [v]
        assert [row.v for row in table.lookup(spark.range(1)).collect()] == [v]
        assert table.toDF(splits=2).count() == number
