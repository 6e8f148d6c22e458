"""Doubles from Spark for columns of floats and integers: every way to write, as from Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

import lancemem
from lancemem.spark import LancememTable, error_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("v", pa.list_(pa.float32(), 3)),
        ("h", pa.list_(pa.float16(), 2)),
        ("x", pa.float32()),
        ("n", pa.int64()),
    ]
)
DOUBLES = "array(0.1d, 1e-50d, 16777217d) v, array(0.1d, 1d) h"


def insert(table: LancememTable, rows: DataFrame, rounds: bool) -> object:
    merge = table.merge(rows, "t.id = s.id").whenMatchedDelete("false").whenNotMatchedInsertAll()
    return merge.execute(round_floats=rounds)


def update(table: LancememTable, rows: DataFrame, rounds: bool) -> object:
    table.handle.upsert(pa.Table.from_pylist([{"id": 1}], schema=SCHEMA))
    values = {name: f"s.{name}" for name in SCHEMA.names[1:]}
    merge = table.merge(rows, "t.id = s.id").whenMatchedUpdate(set=values)
    return merge.execute(round_floats=rounds)


def save(table: LancememTable, rows: DataFrame, rounds: bool) -> None:
    writer = rows.write.format("lancemem").mode("append").option("roundFloats", rounds)
    writer.save(table.uri)


WAYS: dict[str, Any] = {
    "upsert": lambda table, rows, rounds: table.upsert(rows, round_floats=rounds),
    "tasks": lambda table, rows, rounds: table.upsert(
        rows.mapInArrow(lambda batches: batches, rows.schema), round_floats=rounds
    ),
    "changes": lambda table, rows, rounds: table.apply_changes(
        rows.selectExpr("*", "'I' op", "1 seq"),
        op_column="op",
        sequence_by="seq",
        round_floats=rounds,
    ),
    "merge, inserted": insert,
    "merge, updated": update,
    "format": save,
}


@pytest.fixture
def table(spark: SparkSession, table_uri: str) -> LancememTable:
    return LancememTable.create(spark, table_uri, schema=SCHEMA, primary_key="id")


def stored(table: LancememTable) -> dict[str, Any]:
    rows = lancemem.open_table(table.uri).scan().to_table().to_pylist()
    return dict(rows[0]) if rows and rows[0]["v"] is not None else {}


@pytest.mark.parametrize("way", WAYS)
def test_doubles_are_rounded_in_vectors_and_elsewhere_where_the_caller_says_so(
    spark: SparkSession, table: LancememTable, way: str
) -> None:
    vector = [float(np.float32(value)) for value in (0.1, 1e-50, 16777217.0)]
    WAYS[way](table, spark.sql(f"select 1L id, {DOUBLES}, 0.5d x, 7d n"), False)
    row = stored(table)
    assert row["v"] == vector
    assert [float(half) for half in row["h"]] == [float(np.float16(0.1)), 1.0]
    assert (row["x"], row["n"]) == (0.5, 7)
    table.delete(spark.sql("select 1L id"))
    for x, n, text in (
        ("0.1d", "7d", r"column 'x' .*0\.1.*round_floats=True"),
        ("0.5d", "7.5d", r"column 'n' .*7\.5"),
        ("0.5d", "9007199254740992d", r"column 'n' .*9(007199254740992|\.007199254740992E15)"),
    ):
        with pytest.raises(Exception, match="column") as raised:
            WAYS[way](table, spark.sql(f"select 1L id, {DOUBLES}, {x} x, {n} n"), False)
        error = error_of(raised.value)
        assert isinstance(error, lancemem.InvalidInputError)
        assert raised.value is error or way == "format"
        with pytest.raises(lancemem.InvalidInputError, match=text):
            raise error
        assert stored(table) == {}
    WAYS[way](table, spark.sql(f"select 1L id, {DOUBLES}, 0.1d x, cast(null as double) n"), True)
    assert (stored(table)["x"], stored(table)["n"]) == (float(np.float32(0.1)), None)
    table.delete(spark.sql("select 1L id"))
    bad = spark.sql("select 1L id, array(1e300d, 0d, 0d) v, null h, 0.5f x, 7L n")
    with pytest.raises(Exception, match=r"column 'v'|1\.0E300"):
        WAYS[way](table, bad, True)


def test_a_stream_follows_the_same_rule(
    spark: SparkSession, table: LancememTable, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "rows.json").write_text('{"id": 1, "v": [0.1, 0.2, 0.3], "x": 0.1}\n')
    ddl = "id long, v array<double>, x double"
    source = spark.readStream.schema(ddl).json(str(tmp_path / "in"))
    rows = source.selectExpr("id", "v", "cast(null as array<double>) h", "x", "7d n")
    for rounds in (False, True):
        query = table.stream_upsert(
            rows,
            checkpoint=str(tmp_path / "checkpoint"),
            trigger={"availableNow": True},
            round_floats=rounds,
        )
        if rounds:
            assert query.awaitTermination(120)
            continue
        with pytest.raises(Exception, match="round_floats=True") as raised:
            query.awaitTermination(120)
        assert isinstance(error_of(raised.value), lancemem.InvalidInputError)
    row = stored(table)
    assert row["v"] == [float(np.float32(value)) for value in (0.1, 0.2, 0.3)]
    assert (row["x"], row["n"]) == (float(np.float32(0.1)), 7)
