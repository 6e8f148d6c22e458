"""The driver collects no more of a DataFrame than its bound, whatever Spark estimates."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

import lancemem
from lancemem.spark import LancememTable, writer
from lancemem.spark.arrow_collect import UNIT_BYTES, to_arrow, to_arrow_within
from lancemem.spark.size_estimate import UNKNOWN_BYTES, estimated_bytes
from lancemem.spark.table import DRIVER_BYTES, DRIVER_PEEK_BYTES

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

ROWS, WIDE = 400, "lorem ipsum " * 5_000


def small_looking(spark: SparkSession, folder: Path) -> DataFrame:
    """Read a file of a few KiB whose rows take 24 MiB."""
    folder.mkdir()
    rows = pa.table({"id": range(ROWS), "text": [WIDE] * ROWS})
    pq.write_table(rows, folder / "rows.parquet", compression="zstd", row_group_size=100)
    frame = spark.read.parquet(str(folder))
    assert estimated_bytes(frame) < DRIVER_BYTES < DRIVER_PEEK_BYTES < ROWS * len(WIDE)
    return frame


@pytest.mark.parametrize("jobs", [False, True])
def test_rows_that_only_look_few_are_written_by_tasks(
    jobs: bool,
    spark: SparkSession,
    table_uri: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = small_looking(spark, tmp_path / "in")
    table = LancememTable.create(
        spark,
        table_uri,
        schema=rows.schema,
        primary_key="id",
        sharding=lancemem.bucket("id", 2),
    )
    monkeypatch.delattr(writer, "write_here")
    if jobs:
        # Dictionary encoding makes it look small in Spark's memory too.
        unknown = rows.mapInArrow(lambda batches: batches, rows.schema)
        with table.start_jobs():
            assert table.upsert(unknown).num_rows == ROWS
    else:
        assert table.upsert(rows).num_rows == ROWS
        merged = table.merge(rows, "t.id = s.id").whenMatchedUpdate(set={"text": "s.text"})
        assert merged.execute().num_rows_updated == ROWS
    stored = lancemem.open_table(table_uri).scan()
    assert stored.count_rows() == ROWS
    assert {len(text) for text in stored.to_table()["text"].to_pylist()} == {len(WIDE)}


def test_a_bounded_collection_gives_the_rows_in_their_order_or_none(spark: SparkSession) -> None:
    rows = spark.range(0, 1000, 1, 3).selectExpr(
        "id `a.b`",
        "if(id % 3 = 0, null, 'name ' || id) s",
        "array(1f, null) v",
        "if(id % 2 = 0, null, array('a', null, 'bcd')) words",
        "map('k', array(named_struct('x', id, 'y z', 'yy'))) m",
        "named_struct('n', if(id % 2 = 0, null, named_struct('never', id))) st",
        "1.5BD d",
        "interval 1 day i",
        "binary('zz') b",
        "cast(null as void) nothing",
    )
    found = to_arrow_within(rows, DRIVER_PEEK_BYTES)
    assert found is not None
    assert found.to_pylist() == to_arrow(rows).to_pylist()
    assert found.schema.names == rows.columns
    assert to_arrow_within(rows, 1000 * UNIT_BYTES) is None
    assert to_arrow_within(rows, 9) is None
    empty = to_arrow_within(rows.where("`a.b` < 0"), DRIVER_PEEK_BYTES)
    assert empty is not None
    assert empty.num_rows == 0
    for many in (
        spark.range(10_000_000),
        spark.range(1).selectExpr("id", "repeat('x', 20000000) t"),
        spark.range(1).selectExpr("id", "sequence(1L, 3000000L) l"),
        spark.range(1).selectExpr("id", "map(1, array_repeat('x' || id, 2000000)) m"),
    ):
        assert to_arrow_within(many, DRIVER_PEEK_BYTES) is None


def test_a_small_number_of_characters_is_no_unknown_width(spark: SparkSession) -> None:
    """Ids that are padded are usual in micro-batches, and those are written by the driver."""
    rows = spark.range(1000)
    for known in (
        "concat('name-', lpad(id, 10, '0')) t",
        "rpad(concat(id, 'x'), 12, ' ') t",
        "repeat(cast(id as string), 3) t",
    ):
        assert estimated_bytes(rows.selectExpr("id", known)) < DRIVER_BYTES, known
    for unknown in (
        "lpad(id, 100000, '0') t",
        "lpad(id, cast(id as int), '0') t",
        "lpad(id, 10, ',') t",
        "repeat(repeat(cast(id as string), 200), 200) t",
        "concat(lpad(id, 10, '0'), space(cast(id as int))) t",
        "array_repeat(id, 3) t",
    ):
        assert estimated_bytes(rows.selectExpr("id", unknown)) == UNKNOWN_BYTES, unknown
