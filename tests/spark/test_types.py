"""Every type that both Spark and Lance support, to the table and back (list in docs/spark.md)."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

import lancemem
from lancemem.spark import LancememTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOON = dt.datetime(2024, 2, 29, 12, 0, 0, 123456)  # noqa: DTZ001 - Spark's session zone is UTC

# Name: type in the table, type in Spark, a value that has to survive the round trip.
TYPES: dict[str, tuple[pa.DataType, str, Any]] = {
    "boolean": (pa.bool_(), "boolean", True),
    "byte": (pa.int8(), "byte", -128),
    "short": (pa.int16(), "short", -32768),
    "int": (pa.int32(), "int", -(2**31)),
    "long": (pa.int64(), "long", -(2**63)),
    "uint8": (pa.uint8(), "short", 255),
    "uint16": (pa.uint16(), "int", 65535),
    "uint32": (pa.uint32(), "long", 2**32 - 1),
    "uint64": (pa.uint64(), "decimal(20,0)", Decimal(2**64 - 1)),
    "float16": (pa.float16(), "float", 1.5),
    "float": (pa.float32(), "float", 0.25),
    "double": (pa.float64(), "double", 1e300),
    "decimal": (pa.decimal128(38, 18), "decimal(38,18)", Decimal("1.500000000000000001")),
    "small_decimal": (pa.decimal128(5, 2), "decimal(5,2)", Decimal("-999.99")),
    "string": (pa.string(), "string", "naïve \N{GRINNING FACE}"),
    "large_string": (pa.large_string(), "string", "large"),
    "binary": (pa.binary(), "binary", bytearray(b"\x00\xff")),
    "large_binary": (pa.large_binary(), "binary", bytearray(b"\x01")),
    "fixed_binary": (pa.binary(4), "binary", bytearray(b"abcd")),
    "date": (pa.date32(), "date", dt.date(1582, 10, 15)),
    "timestamp": (pa.timestamp("us", tz="UTC"), "timestamp", NOON),
    "timestamp_ntz": (pa.timestamp("us"), "timestamp_ntz", NOON),
    "timestamp_ns": (pa.timestamp("ns"), "timestamp_ntz", NOON),
    "interval": (
        pa.duration("us"),
        "interval day to second",
        dt.timedelta(days=2, microseconds=5),
    ),
    "array": (pa.list_(pa.int32()), "array<int>", [1, None, 3]),
    "array_of_decimals": (
        pa.list_(pa.decimal128(10, 2)),
        "array<decimal(10,2)>",
        [Decimal("1.25")],
    ),
    "vector": (pa.list_(pa.float32(), 3), "array<float>", [1.0, 0.5, -2.0]),
    "half_vector": (pa.list_(pa.float16(), 2), "array<float>", [1.0, 0.5]),
    "struct": (
        pa.struct([("a", pa.int32()), ("b", pa.struct([("c", pa.large_string())]))]),
        "struct<a:int,b:struct<c:string>>",
        {"a": 1, "b": {"c": "x"}},
    ),
    "array_of_structs": (
        pa.list_(pa.struct([("a", pa.int64()), ("m", pa.decimal128(5, 1))])),
        "array<struct<a:bigint,m:decimal(5,1)>>",
        [{"a": 1, "m": Decimal("1.5")}, None],
    ),
    "timestamp_berlin": (pa.timestamp("us", tz="Europe/Berlin"), "timestamp", NOON),
    "interval_ns": (
        pa.duration("ns"),
        "interval day to second",
        dt.timedelta(days=2, microseconds=5),
    ),
    "struct_of_vectors": (
        pa.struct([("v", pa.list_(pa.float32(), 2)), ("h", pa.list_(pa.float16(), 2))]),
        "struct<v:array<float>,h:array<float>>",
        {"v": [1.0, 2.0], "h": None},
    ),
    "array_of_vectors": (pa.list_(pa.list_(pa.float32(), 2)), "array<array<float>>", [None]),
    "map": (pa.map_(pa.string(), pa.int32()), "map<string,int>", {"a": 1, "b": None}),
    "map_of_structs": (
        pa.map_(pa.int64(), pa.struct([("x", pa.large_string()), ("y", pa.list_(pa.int32()))])),
        "map<bigint,struct<x:string,y:array<int>>>",
        {7: {"x": "seven", "y": [7, None]}},
    ),
    "array_of_maps": (
        pa.list_(pa.map_(pa.string(), pa.uint8())),
        "array<map<string,smallint>>",
        [{"a": 255}, None],
    ),
}


def plain(value: Any) -> Any:  # noqa: ANN401 - a value of any type
    if hasattr(value, "asDict"):
        return value.asDict(recursive=True)
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list) else value


@pytest.fixture(scope="module")
def there_and_back(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, Any], dict[str, Any], dict[str, str], pa.Table]:
    uri = str(tmp_path_factory.mktemp("types") / "table.lance")
    schema = pa.schema(
        [pa.field("id", pa.int64(), nullable=False)]
        + [pa.field(name, arrow_type) for name, (arrow_type, _, _) in TYPES.items()]
    )
    table = LancememTable.create(spark, uri, schema=schema, primary_key="id")
    ddl = "id long, " + ", ".join(f"`{name}` {ddl}" for name, (_, ddl, _) in TYPES.items())
    values = [(1, *(value for _, _, value in TYPES.values())), (2, *[None] * len(TYPES))]
    table.upsert(spark.createDataFrame(values, ddl))
    read = table.toDF()
    full, nulls = (plain(row) for row in read.sort("id").collect())
    types = {field.name: field.dataType.simpleString() for field in read.schema}
    return full, nulls, types, lancemem.open_table(uri).scan().to_table()


@pytest.mark.spark
@pytest.mark.parametrize("name", TYPES)
def test_a_value_comes_back_as_it_went(
    there_and_back: tuple[dict[str, Any], dict[str, Any], dict[str, str], pa.Table], name: str
) -> None:
    full, nulls, types, stored = there_and_back
    arrow_type, ddl, value = TYPES[name]
    assert stored.schema.field(name).type == arrow_type or pa.types.is_nested(arrow_type)
    assert full[name] == value
    assert nulls[name] is None
    spark_names = {"byte": "tinyint", "short": "smallint", "long": "bigint"}
    assert types[name] == spark_names.get(ddl, ddl)


def test_a_vector_of_another_length_is_named_with_its_column_and_row(
    spark: SparkSession, table_uri: str
) -> None:
    frame = spark.createDataFrame([(1, [1.0, 2.0])], "id long, v array<float>")
    table = LancememTable.create(
        spark, table_uri, schema=frame.schema, primary_key="id", vectors={"v": 3}
    )
    assert table.schema.field("v").type == pa.list_(pa.float32(), 3)
    with pytest.raises(Exception, match="column 'v' holds vectors of 3 values, row 0 has 2"):
        table.upsert(frame)
    table.upsert(spark.createDataFrame([(1, [1.0, 2.0, 3.0]), (2, None)], frame.schema))
    assert table.toDF().sort("id").collect() == [(1, [1.0, 2.0, 3.0]), (2, None)]


def test_a_number_that_is_too_large_for_its_column_is_named(
    spark: SparkSession, table_uri: str
) -> None:
    half, wide = pa.float16(), pa.uint64()
    fields = {"h": half, "v": pa.list_(half, 2), "l": pa.list_(half), "u": wide, "b": pa.uint8()}
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            *map(pa.field, *zip(*fields.items(), strict=True)),
        ]
    )
    table = LancememTable.create(spark, table_uri, schema=schema, primary_key="id")
    ddl = "id long, h float, v array<float>, l array<float>, u decimal(20,0), b smallint"
    infinite = float("inf")
    fits: tuple[Any, ...] = (1, 1.5, [infinite, 0.1], [-infinite, None], Decimal(2**64 - 1), 255)
    table.upsert(spark.createDataFrame([fits], ddl))
    row = plain(table.toDF().collect()[0])
    assert (row["h"], row["v"][0], row["l"][0], row["u"], row["b"]) == (
        1.5,
        infinite,
        -infinite,
        Decimal(2**64 - 1),
        255,
    )
    beyond = {"h": 1e30, "v": [0.0, 1e30], "l": [1e30], "u": Decimal(2**64), "b": 256}
    for place, (name, value) in enumerate(beyond.items(), start=1):
        bad = (2, *fits[1:place], value, *fits[place + 1 :])
        frame = spark.createDataFrame([fits, bad], ddl).repartition(1)
        with pytest.raises(Exception, match=rf"column '{name}'.*row 1 .*fit"):
            table.upsert(frame)
    assert table.toDF().count() == 1


def test_vectors_inside_others_may_be_null(spark: SparkSession, table_uri: str) -> None:
    inside = pa.list_(pa.float32(), 2)
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("s", pa.struct([("a", pa.int32()), ("v", inside)])),
            pa.field("l", pa.list_(inside)),
            pa.field("m", pa.map_(pa.string(), inside)),
        ]
    )
    table = LancememTable.create(spark, table_uri, schema=schema, primary_key="id")
    ddl = (
        "id long, s struct<a:int,v:array<float>>, l array<array<float>>, m map<string,array<float>>"
    )
    batches: list[list[tuple[Any, ...]]] = [
        [(1, {"a": 1, "v": None}, [None], {"k": None}), (2, None, None, None)],
        [
            (3, None, None, None),
            (4, {"a": 4, "v": [1.0, 2.0]}, [[1.0, 2.0], None], {"k": [3.0, 4.0]}),
        ],
    ]
    for batch in batches:
        table.upsert(spark.createDataFrame(batch, ddl).repartition(1))
    read = [plain(row) for row in table.toDF().sort("id").collect()]
    assert [tuple(row.values()) for row in read] == [row for batch in batches for row in batch]
    bad = spark.createDataFrame([(5, {"a": 5, "v": [1.0]}, None, None)], ddl)
    with pytest.raises(Exception, match=r"column 's'.*has length 1"):
        table.upsert(bad)


def test_nested_parts_that_the_table_does_not_have_are_refused(
    spark: SparkSession, table_uri: str
) -> None:
    pair = pa.struct([("a", pa.int32()), ("b", pa.int32())])
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("x", pair)])
    table = LancememTable.create(spark, table_uri, schema=schema, primary_key="id")
    for names in ("'A', 1, 'B', 2", "'a', 1, 'bb', 2", "'a', 1, 'b', 2, 'c', 3", "'a', 1"):
        with pytest.raises(Exception, match="column 'x'"):
            table.upsert(spark.sql(f"select 1L id, named_struct({names}) x"))
    table.upsert(spark.sql("select 1L id, named_struct('b', 2, 'a', 1) x"))
    asked = spark.read.format("lancemem").schema("id long, x struct<a:int,b:int>")
    assert [plain(row) for row in asked.load(table_uri).collect()] == [
        {"id": 1, "x": {"a": 1, "b": 2}}
    ]


@pytest.mark.parametrize("data_type", ["interval year to month", "void"])
def test_a_type_that_a_table_cannot_hold_is_named(
    spark: SparkSession, table_uri: str, data_type: str
) -> None:
    schema = spark.sql(f"select 1L id, cast(null as {data_type}) odd").schema
    with pytest.raises(TypeError, match="column 'odd'"):
        LancememTable.create(spark, table_uri, schema=schema, primary_key="id")


ODD: dict[str, tuple[pa.DataType, Any]] = {
    "time32": (pa.time32("ms"), dt.time(1, 2, 3)),
    "time64": (pa.time64("us"), dt.time(1, 2, 3)),
    "decimal256": (pa.decimal256(50, 2), Decimal("1.25")),
    "in a struct": (pa.struct([("a", pa.list_(pa.time64("ns")))]), {"a": []}),
    "in a map": (pa.map_(pa.string(), pa.time32("s")), [("a", dt.time(1))]),
}


@pytest.mark.parametrize("name", ODD)
def test_a_column_that_spark_cannot_have_is_named_and_the_others_are_read_and_deleted_by(
    spark: SparkSession, table_uri: str, name: str
) -> None:
    kind, value = ODD[name]
    fields = [pa.field("id", pa.int64(), nullable=False), pa.field("odd", kind), ("n", pa.int64())]
    rows = pa.Table.from_pylist([{"id": 1, "odd": value, "n": 5}], schema=pa.schema(fields))
    lancemem.create_table(table_uri, rows.schema, primary_key=["id"]).upsert(rows)
    table = LancememTable.forPath(spark, table_uri)
    keys = spark.sql("select 1L id, 9L n")
    merge = table.merge(keys, "t.id = s.id").whenMatchedUpdate(set={"n": "s.n"})
    format_ = spark.read.format("lancemem")
    for read in (table.toDF, lambda: table.lookup(keys), merge.execute):
        with pytest.raises(lancemem.InvalidInputError, match=r"column 'odd' has .*columns="):
            read()
    with pytest.raises(Exception, match=r"column 'odd' has .*columns="):
        format_.load(table_uri)
    with pytest.raises(
        lancemem.InvalidInputError, match="column 'odd' is of type string, expected"
    ):
        table.upsert(keys.selectExpr("*", "'01:02:03' odd"))
    assert table.toDF(columns=["id", "n"]).collect() == [(1, 5)]
    assert table.lookup(keys, columns=["n"]).collect() == [(5,)]
    assert format_.option("columns", "id,n").load(table_uri).collect() == [(1, 5)]
    table.delete(keys)
    assert table.toDF(columns=["id"]).collect() == []
