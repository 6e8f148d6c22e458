"""Indexes of the base table as `LancememTable` creates, lists, updates and drops them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

import lancemem
from lancemem.spark import LancememTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DDL = "id long, carrier string, vec array<float>"


@pytest.fixture
def table(spark: SparkSession, table_uri: str) -> LancememTable:
    """Give a table whose base has 300 rows."""
    table = LancememTable.create(
        spark,
        table_uri,
        schema=DDL,
        primary_key="id",
        sharding=lancemem.bucket("id", 2),
        vectors={"vec": 8},
    )
    put(spark, table, 0, 300)
    return table


def put(spark: SparkSession, table: LancememTable, start: int, end: int) -> None:
    """Write rows and bring them into the base table, whose indexes stay as they are."""
    vector = ", ".join(f"cast(id * {place + 1} as float)" for place in range(8))
    rows = spark.range(start, end).selectExpr(
        "id", "concat('c', id % 4) carrier", f"array({vector}) vec"
    )
    table.upsert(rows)
    table.handle.compact(flush=True, update_indexes=False)


def test_indexes_of_a_table_are_created_listed_updated_and_dropped(
    spark: SparkSession, table: LancememTable
) -> None:
    made = table.create_index("carrier", "BITMAP")
    assert (made.name, made.indexed_rows) == ("carrier_idx", 300)
    table.create_index("vec", "IVF_PQ", name="vectors", metric="cosine", num_partitions=1)
    put(spark, table, 300, 340)
    listed = table.indexes()
    assert listed.columns[:4] == ["name", "columns", "type", "metric"]
    assert [(row.name, row.type, row.metric, row.unindexed_rows) for row in listed.collect()] == [
        ("carrier_idx", "BITMAP", None, 40),
        ("vectors", "IVF_PQ", "cosine", 40),
    ]
    assert [each.added_rows for each in table.optimize_indexes()] == [40, 40]
    assert table.indexes().where("unindexed_rows > 0").count() == 0
    assert table.toDF(where="carrier = 'c1'").count() == 85
    table.upsert(table.toDF(where="id < 8"))
    assert {index.unindexed_rows for index in table.compact(flush=True).indexes} == {0}
    table.drop_index("vectors")
    assert [row.name for row in table.indexes().collect()] == ["carrier_idx"]
    table.drop_index("carrier_idx")
    assert table.indexes().collect() == []


def test_what_a_table_refuses_spark_refuses(table: LancememTable) -> None:
    with pytest.raises(lancemem.InvalidInputError, match="column 'nope' is not in table"):
        table.create_index("nope", "BTREE")
    with pytest.raises(lancemem.InvalidInputError, match="its indexes: none"):
        table.drop_index("nope")
