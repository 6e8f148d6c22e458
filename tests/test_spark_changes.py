"""The Spark side's own logic that needs no session: change order and types at the boundary."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql import types as st

import lancemem
from lancemem.spark.arrow_types import (
    arrow_schema,
    cast_batch,
    spark_arrow_schema,
    spark_schema,
    table_batch,
)
from lancemem.spark.catalogue import makes_a_name
from lancemem.spark.task_errors import as_raised, error_of
from lancemem.spark.writer import WritePlan, change_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.conftest import MakeTable

SCHEMA = pa.schema(
    [("id", pa.int64()), ("name", pa.string()), ("v", pa.int64()), ("op", pa.string())]
)


PLAN = WritePlan(("id", "name", "v"), ("id", "name"), op_column="op")


@pytest.mark.parametrize("seed", range(5))
def test_changes_of_one_batch_end_as_if_done_one_by_one(make_table: MakeTable, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - a test needs a seed, not a secret
    rows: list[dict[str, Any]] = [
        {"id": chance.randrange(6), "name": chance.choice("ab"), "v": n, "op": chance.choice("IUD")}
        for n in range(200)
    ]
    expected: dict[tuple[int, str], int] = {}
    for row in rows:
        key = (row["id"], row["name"])
        if row["op"] == "D":
            expected.pop(key, None)
        else:
            expected[key] = row["v"]
    table = make_table(SCHEMA.remove(3), primary_key=["id", "name"])
    batch = pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
    change = change_of(PLAN, pa.schema(table.schema), batch)
    table.apply(change.rows, change.deletes)
    found = table.scan().to_table().to_pylist()
    assert {(row["id"], row["name"]): row["v"] for row in found} == expected
    assert change.inserts.to_pylist() == [row["op"] == "I" for row in rows]


@pytest.mark.parametrize(
    ("ops", "deletes"),
    [
        ("UIc", [False] * 3),
        ("Dd", [True] * 2),
        (["DELETE", "delete", "insert"], [True, True, False]),
        (["-U", "+U", "update_preimage", "-D"], [False, True]),
        (["-U"], []),
    ],
)
def test_the_meaning_of_each_operation(ops: str | list[str], deletes: list[bool]) -> None:
    assert change_of(PLAN, SCHEMA, batch_of(ops)).deletes.to_pylist() == deletes


@pytest.mark.parametrize("op", ["t", "", "Delete", None])
def test_an_unknown_operation_is_no_upsert(op: str | None) -> None:
    with pytest.raises(lancemem.InvalidInputError, match=f"column 'op' has {op!r}, which is no"):
        change_of(PLAN, SCHEMA, batch_of(["U", op, "D"]))


def batch_of(ops: Iterable[str | None]) -> pa.RecordBatch:
    rows = [{"id": 1, "name": "a", "v": 0, "op": op} for op in ops]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def test_types_that_spark_refuses_are_cast_to_ones_it_takes() -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "vector": pa.array([[1.0, 2.0]], pa.list_(pa.float16(), 2)),
            "big": pa.array([2**64 - 1], pa.uint64()),
            "small": pa.array([255], pa.uint8()),
            "at": pa.array([1_700_000_000_123_456_789], pa.timestamp("ns", tz="UTC")),
            "text": pa.array(["x"], pa.large_string()),
            "word": pa.array(["y"]).dictionary_encode(),
        }
    )
    schema = spark_arrow_schema(batch.schema)
    cast = cast_batch(batch, schema)
    assert cast.schema.equals(schema)
    assert cast["vector"].to_pylist() == [[1.0, 2.0]]
    assert int(cast["big"][0].as_py()) == 2**64 - 1
    assert cast["at"].cast(pa.int64()).to_pylist() == [1_700_000_000_123_456]
    assert spark_schema(schema)["vector"].dataType == st.ArrayType(st.FloatType())


def test_vectors_are_made_of_lists_of_their_length_null_ones_included() -> None:
    lists = pa.list_(pa.field("element", pa.float32()))
    # Spark sends a batch whose lists are all null without a buffer of values.
    no_values = pa.Array.from_buffers(pa.float32(), 0, [None, None])
    offsets = [pa.py_buffer(b"\0"), pa.py_buffer(b"\0" * 8)]
    null = pa.ListArray.from_buffers(lists, 1, offsets, children=[no_values])
    mixed = pa.array([None, [1.0, 2.0], None, [3.0, None], [5.0, 6.0]], lists)
    for wanted in (pa.list_(pa.float32(), 2), pa.list_(pa.float16(), 2)):
        schema = pa.schema([("v", wanted)])
        for column in (null, mixed, mixed.slice(1), mixed.slice(3), mixed.slice(0, 1)):
            made = table_batch(pa.RecordBatch.from_arrays([column], names=["v"]), schema)
            made.validate(full=True)
            assert made.schema.field("v").type == wanted
            assert made["v"].to_pylist() == column.to_pylist()


def test_parts_of_nested_columns_are_left_to_the_engine() -> None:
    pair = pa.struct([("a", pa.int32()), ("b", pa.dictionary(pa.int32(), pa.string()))])
    here = pa.struct([("b", pa.string()), ("a", pa.int64())])
    other = pa.struct([("A", pa.int32()), ("b", pa.string())])
    ntz, zoned = pa.timestamp("us"), pa.timestamp("us", tz="UTC")
    half, single = pa.list_(pa.float16(), 2), pa.list_(pa.float32())
    words = pa.dictionary(pa.int32(), pa.string())
    for wanted, have, made in (
        (pair, here, pa.struct([("b", words), ("a", pa.int64())])),
        (pair, other, pa.struct([("A", pa.int32()), ("b", words)])),
        (pa.list_(pair), pa.list_(other), pa.list_(pa.struct([("A", pa.int32()), ("b", words)]))),
        (pa.struct([("at", ntz)]), pa.struct([("at", zoned)]), pa.struct([("at", zoned)])),
        (pa.struct([("v", half)]), pa.struct([("v", single)]),
         pa.struct([("v", pa.list_(pa.float16()))])),
        (pa.map_(pa.string(), pa.uint64()), pa.map_(pa.string(), pa.decimal128(20, 0)),
         pa.map_(pa.string(), pa.uint64())),
    ):  # fmt: skip
        column = pa.nulls(2, have)
        batch = pa.RecordBatch.from_arrays([column], names=["x"])
        assert table_batch(batch, pa.schema([("x", wanted)])).schema.field("x").type == made


def test_doubles_for_halves_that_are_no_vectors_are_left_to_the_engine() -> None:
    schema = pa.schema([("h", pa.float16()), ("v", pa.list_(pa.float16(), 1))])
    doubles = pa.record_batch({"h": [0.1], "v": [[0.1]]})
    made = table_batch(doubles, schema)
    assert made.schema.types == [pa.float64(), pa.list_(pa.float16(), 1)]
    singles = pa.record_batch({"h": pa.array([0.1], pa.float32()), "v": [[0.1]]})
    assert table_batch(singles, schema).schema.types == schema.types


@pytest.mark.parametrize(
    ("statement", "makes"),
    [
        ("CREATE TABLE t (id long) USING lancemem", True),
        ("create or replace table if not exists a.b\nusing `lancemem` location '/x'", True),
        ("replace table t using lancemem as select 1", True),
        ("-- a comment\n/* view */ CREATE EXTERNAL TABLE t USING LanceMem;", True),
        ("create temporary view t using lancemem options (path '/table using')", False),
        ("create table t using parquet as select 'using lancemem' v", False),
        ("create table t using lancemem2", False),
        ("insert into t select 1", False),
        ("select * from t -- create table t using lancemem", False),
    ],
)
def test_a_statement_that_makes_a_name_in_the_catalogue_is_told(
    statement: str, makes: bool
) -> None:
    assert makes_a_name(statement) == makes


def test_an_error_of_spark_gives_the_one_that_a_task_raised() -> None:
    trace = (
        "An exception was thrown from the Python worker.\nTraceback (most recent call last):\n"
        '  File "x.py", line 1, in f\nlancemem.RetryableError: busy\n\nDuring handling:\n'
        "lancemem.WriterFencedError: shard 3 was taken: by epoch 4\ntable: /t.lance\n"
    )
    error = error_of(RuntimeError(trace))
    assert type(error) is lancemem.WriterFencedError
    assert str(error) == "shard 3 was taken: by epoch 4"
    assert error.__notes__ == ["table: /t.lance"]
    told = RuntimeError(f"[USER_RAISED_EXCEPTION] {as_raised('column n')} SQLSTATE: P0001")
    assert (type(error_of(told)), str(error_of(told))) == (lancemem.InvalidInputError, "column n")
    for other in ("lancemem.nothing: x", "a lancemem.Table: x", "ValueError: x"):
        assert error_of(RuntimeError(other)) is None


def test_a_spark_schema_survives_the_way_to_arrow_and_back() -> None:
    schema = st.StructType(
        [
            st.StructField("id", st.LongType(), nullable=False),
            st.StructField("at", st.TimestampType()),
            st.StructField("wall", st.TimestampNTZType()),
            st.StructField("price", st.DecimalType(12, 2)),
            st.StructField("tags", st.ArrayType(st.StringType(), containsNull=False)),
            st.StructField("by_name", st.MapType(st.StringType(), st.IntegerType())),
            st.StructField("pair", st.StructType([st.StructField("left", st.ByteType())])),
        ]
    )
    assert spark_schema(spark_arrow_schema(arrow_schema(schema))) == schema


def test_a_spark_type_without_a_place_names_its_column() -> None:
    schema = st.StructType([st.StructField("odd", st.NullType())])
    with pytest.raises(TypeError, match="column 'odd'"):
        arrow_schema(schema)
