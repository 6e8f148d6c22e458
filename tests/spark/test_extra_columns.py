"""Columns of a DataFrame that the table does not have: an error, ignored, or added to the table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

import lancemem
from lancemem.spark import LancememTable, error_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.int64())])
EXTRA = "column 'w' of the DataFrame is not in the table.*merge_schema.*ignore_extra_columns"


@pytest.fixture
def table(spark: SparkSession, table_uri: str) -> LancememTable:
    return LancememTable.create(
        spark, table_uri, schema=SCHEMA, primary_key="id", sharding=lancemem.bucket("id", 2)
    )


def rows(spark: SparkSession, *columns: str) -> DataFrame:
    return spark.range(4).selectExpr("id", "id * 10 v", *columns)


def test_an_extra_column_is_an_error_unless_it_is_ignored(
    spark: SparkSession, table: LancememTable, tmp_path: Path
) -> None:
    wide = rows(spark, "1 w", "id seq", "'U' op")
    ordered: dict[str, Any] = {"op_column": "op", "sequence_by": "seq"}
    with pytest.raises(lancemem.InvalidInputError, match=EXTRA):
        table.upsert(wide)
    with pytest.raises(lancemem.InvalidInputError, match=EXTRA):
        table.apply_changes(wide, **ordered)
    stream = spark.readStream.format("rate").load().selectExpr("value id", "value v", "1 w")
    with pytest.raises(lancemem.InvalidInputError, match=EXTRA):
        table.stream_upsert(stream, checkpoint=str(tmp_path))
    assert table.toDF().count() == 0
    # The columns that a call names are no extra columns.
    assert table.upsert(wide.drop("w", "op"), sequence_by="seq").num_rows == 4
    assert table.apply_changes(wide.drop("w"), **ordered).num_upserts == 4
    assert table.upsert(wide, ignore_extra_columns=True).num_rows == 4
    assert table.apply_changes(wide, **ordered, ignore_extra_columns=True).num_upserts == 4
    assert table.delete(wide.where("id = 3")).num_rows == 1
    merge = table.merge(wide, "t.id = s.id").whenMatchedUpdateAll("s.w = 1")
    assert merge.whenNotMatchedInsertAll().execute().num_rows_inserted == 1
    assert table.toDF().columns == ["id", "v"]


def test_the_format_refuses_an_extra_column_too(spark: SparkSession, table: LancememTable) -> None:
    wide = rows(spark, "1 w", "'U' op")

    def write(**options: str) -> None:
        writer = wide.write.format("lancemem").mode("append").option("opColumn", "op")
        writer.options(**options).save(table.uri)

    with pytest.raises(Exception, match="column 'w' of the DataFrame") as told:
        write()
    assert isinstance(error_of(told.value), lancemem.InvalidInputError)
    write(ignoreExtraColumns="true")
    deleted = wide.write.format("lancemem").mode("append").option("op", "delete")
    deleted.save(table.uri)
    assert table.toDF().count() == 0
    pytest.importorskip("lance")
    write(mergeSchema="true")
    assert {(row.id, row.w) for row in table.toDF().collect()} == {(n, 1) for n in range(4)}


def test_a_table_takes_new_columns_with_merge_schema(
    spark: SparkSession, table: LancememTable
) -> None:
    pytest.importorskip("lance")
    table.upsert(rows(spark))
    wide = rows(spark, "concat('w', id) w", "array(id) l", "id seq")
    with table.start_jobs():
        table.upsert(wide.where("id < 2"), sequence_by="seq", merge_schema=True)
    found = {row.id: (row.v, row.w, row.l) for row in table.toDF().collect()}
    assert found == {
        0: (0, "w0", [0]),
        1: (10, "w1", [1]),
        2: (20, None, None),
        3: (30, None, None),
    }
    assert table.schema.names == ["id", "v", "w", "l"]
    # No column is new, so none is added.
    before = table.handle.stats().base_version
    table.upsert(wide.drop("seq"), merge_schema=True)
    assert table.handle.stats().base_version == before
    changes = wide.selectExpr("*", "'U' op", "true flag")
    table.apply_changes(changes, op_column="op", sequence_by="seq", merge_schema=True)
    assert {row.flag for row in table.toDF().collect()} == {True}
