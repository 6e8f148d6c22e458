"""Numbers of another type than their column's: one rule for every way to write.

Owns: doubles for vectors, for other float columns and for integers, and the names of types in the
text of a refusal. Not here: other casts (`test_input`), Spark (`tests/spark/test_numbers`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import lancemem

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import MakeTable

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("v", pa.list_(pa.float32(), 3)),
        ("h", pa.list_(pa.float16(), 2)),
        ("x", pa.float32()),
        ("n", pa.int32()),
    ]
)
DOUBLES = [0.1, 1e-50, 16777217.0]
HALVES = [0.1, 1.0 + 2**-11 + 2**-30]
VALUES: dict[str, Any] = {"id": [1], "v": [DOUBLES], "h": [HALVES], "x": [0.5], "n": [7]}


def no_deletes(data: object) -> pa.Array:
    return pa.array([False] * len(pa.table(data)))


def staged(table: lancemem.Table, write: Callable[[lancemem.BulkWriter], object]) -> None:
    bulk = table.bulk_writer()
    write(bulk)
    table.commit(bulk.finish())


def in_a_job(table: lancemem.Table, write: Callable[[lancemem.Job], object]) -> None:
    with table.start_job(shard=0) as job:
        write(job)


WAYS: dict[str, Callable[..., object]] = {
    "upsert": lambda table, data, **how: table.upsert(data, **how),
    "apply": lambda table, data, **how: table.apply(data, no_deletes(data), **how),
    "job.put": lambda table, data, **how: in_a_job(table, lambda it: it.put(data, **how)),
    "job.apply": lambda table, data, **how: in_a_job(
        table, lambda it: it.apply(data, no_deletes(data), **how)
    ),
    "stage.upsert": lambda table, data, **how: staged(table, lambda it: it.upsert(data, **how)),
    "stage.apply": lambda table, data, **how: staged(
        table, lambda it: it.apply(data, no_deletes(data), **how)
    ),
}


def pandas_frame(values: dict[str, Any]) -> object:
    import pandas as pd

    return pd.DataFrame(values)


def polars_frame(values: dict[str, Any]) -> object:
    import polars as pl

    return pl.DataFrame(values)


FRAMES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "pyarrow": pa.table,
    "pandas": pandas_frame,
    "polars": polars_frame,
}


def row_of(table: lancemem.Table) -> dict[str, Any]:
    [row] = table.scan().to_table().to_pylist()
    return dict(row)


def nearest(values: list[float], kind: type[np.floating[Any]]) -> list[float]:
    return [float(kind(value)) for value in values]


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("way", WAYS)
def test_doubles_become_the_nearest_floats_of_a_vector_in_every_way(
    way: str, frame: str, make_table: MakeTable
) -> None:
    table = make_table(SCHEMA)
    WAYS[way](table, FRAMES[frame](VALUES))
    row = row_of(table)
    assert row["v"] == nearest(DOUBLES, np.float32)
    assert [float(half) for half in row["h"]] == nearest(HALVES, np.float16)
    assert (row["x"], row["n"]) == (0.5, 7)


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("way", WAYS)
def test_other_doubles_are_rounded_where_the_caller_says_so(
    way: str, frame: str, make_table: MakeTable
) -> None:
    table = make_table(SCHEMA)
    data = FRAMES[frame](VALUES | {"x": [0.1]})
    text = r"column 'x' is of type double, expected float: row 0 has 0.1, .*round_floats=True"
    with pytest.raises(lancemem.InvalidInputError, match=text):
        WAYS[way](table, data)
    assert table.scan().count_rows() == 0
    WAYS[way](table, data, round_floats=True)
    assert row_of(table)["x"] == float(np.float32(0.1))


@pytest.mark.parametrize("way", WAYS)
def test_a_finite_double_that_would_become_infinite_is_refused_by_its_row(
    way: str, make_table: MakeTable
) -> None:
    table = make_table(SCHEMA)
    two = {name: values * 2 for name, values in VALUES.items()} | {"id": [1, 2]}
    for name, value, how in (
        ("v", [0.1, 1e300, 0.1], {}),
        ("h", [0.1, 65536.0], {}),
        ("x", 1e300, {"round_floats": True}),
    ):
        with pytest.raises(
            lancemem.InvalidInputError, match=f"column '{name}' .* row 1 has a finite number"
        ):
            WAYS[way](table, pa.table(two | {name: [VALUES[name][0], value]}), **how)
    infinite = VALUES | {"v": [[float("inf"), float("-inf"), float("nan")]]}
    WAYS[way](table, pa.table(infinite))
    assert str(row_of(table)["v"]) == "[inf, -inf, nan]"


def test_doubles_in_the_vectors_of_structs_lists_and_maps_are_rounded(
    make_table: MakeTable,
) -> None:
    single, double = pa.list_(pa.float32(), 1), pa.list_(pa.float64())

    def schema(vector: pa.DataType, plain: pa.DataType) -> pa.Schema:
        return pa.schema(
            [
                pa.field("id", pa.int64(), nullable=False),
                ("s", pa.struct([("v", vector), ("x", plain)])),
                ("l", pa.list_(vector)),
                ("m", pa.map_(pa.string(), vector)),
            ]
        )

    table = make_table(schema(single, pa.float32()))
    row = {"id": 1, "s": {"v": [0.1], "x": 0.5}, "l": [[0.1], None], "m": [("k", [0.1])]}
    given = schema(double, pa.float64())
    table.upsert(pa.Table.from_pylist([row], schema=given))
    tenth = float(np.float32(0.1))
    kept = {"s": {"v": [tenth], "x": 0.5}, "l": [[tenth], None], "m": [("k", [tenth])]}
    assert row_of(table) == {"id": 1, **kept}
    exact = pa.Table.from_pylist([row | {"s": {"v": [0.1], "x": 0.1}}], schema=given)
    with pytest.raises(lancemem.InvalidInputError, match=r"column 's'.*round_floats=True"):
        table.upsert(exact)
    table.upsert(exact, round_floats=True)
    assert row_of(table)["s"] == {"v": [tenth], "x": tenth}


@pytest.mark.parametrize("way", WAYS)
def test_integers_that_pandas_holds_as_doubles_are_taken(way: str, make_table: MakeTable) -> None:
    table = make_table(SCHEMA.remove(2).remove(1))
    frame: Any = pandas_frame({"id": [1, 2], "x": np.array([0.5, 1.0], "f4"), "n": [1, None]})
    assert frame["n"].dtype == np.float64
    WAYS[way](table, frame)
    stored = table.scan().to_table().sort_by("id")["n"]
    assert stored == pa.chunked_array([pa.array([1, None], pa.int32())])
    for value, why in (
        (1.5, "row 1 has 1.5, which is not a whole number"),
        (float("nan"), "row 1 has NaN, which is not a whole number"),
        (2.0**40, "row 1 has 1099511627776, which is out of range"),
    ):
        bad = pa.table({"id": [1, 2], "x": pa.array([0.5, 1.0], pa.float32()), "n": [1.0, value]})
        with pytest.raises(lancemem.InvalidInputError, match=f"column 'n' .*{why}"):
            WAYS[way](table, bad)


def test_a_double_that_may_be_a_rounded_integer_is_refused(make_table: MakeTable) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64())])
    table = make_table(schema)
    table.upsert(pa.table({"id": [1], "n": [2.0**53 - 1]}))
    assert row_of(table)["n"] == 2**53 - 1
    with pytest.raises(lancemem.InvalidInputError, match="a double may have rounded"):
        table.upsert(pa.table({"id": [1], "n": [2.0**53]}))
    with pytest.raises(lancemem.InvalidInputError, match=r"column 'id' is of type double"):
        table.upsert(pa.table({"id": [1.0], "n": [1]}))


WHOLE: dict[str, Any] = {"id": [1], "v": [[1, 0, -7]], "h": [[2, 2048]], "x": [3], "n": [7]}


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("way", WAYS)
def test_whole_numbers_are_taken_for_floats_and_vectors_in_every_way(
    way: str, frame: str, make_table: MakeTable
) -> None:
    table = make_table(SCHEMA)
    WAYS[way](table, FRAMES[frame](WHOLE))
    row = row_of(table)
    assert (row["v"], row["x"], row["n"]) == ([1.0, 0.0, -7.0], 3.0, 7)
    assert [float(half) for half in row["h"]] == [2.0, 2048.0]


@pytest.mark.parametrize("way", WAYS)
def test_a_whole_number_that_no_float_holds_is_refused_by_its_row(
    way: str, make_table: MakeTable
) -> None:
    table = make_table(SCHEMA)
    two = {name: values * 2 for name, values in WHOLE.items()} | {"id": [1, 2]}
    for name, value in (
        ("v", [0, 2**24 + 1, 0]),
        ("h", [2049, 0]),
        ("h", [70_000, 0]),
        ("x", 2**24 + 1),
        ("x", 2**63 - 1),
        ("x", -(2**62) - 1),
    ):
        bad = pa.table(two | {name: [WHOLE[name][0], value]})
        text = f"column '{name}' .* row 1 has .*, which does not fit; give the values as floats"
        with pytest.raises(lancemem.InvalidInputError, match=text):
            WAYS[way](table, bad)
    assert table.scan().count_rows() == 0
    large = pa.table(WHOLE | {"x": pa.array([2**63], pa.uint64())})
    WAYS[way](table, large)
    assert row_of(table)["x"] == 2.0**63


def test_whole_numbers_inside_of_others_are_taken_and_keep_their_nulls(
    make_table: MakeTable,
) -> None:
    vector, numbers = pa.list_(pa.float32(), 2), pa.list_(pa.int64())

    def schema(vector: pa.DataType, plain: pa.DataType) -> pa.Schema:
        return pa.schema(
            [
                pa.field("id", pa.int64(), nullable=False),
                ("s", pa.struct([("v", vector), ("x", plain)])),
                ("l", pa.list_(vector)),
                ("f", pa.list_(plain)),
            ]
        )

    table = make_table(schema(vector, pa.float64()))
    row = {"id": 1, "s": {"v": None, "x": 1}, "l": [[1, 2], None], "f": [3, None, 5]}
    table.upsert(pa.Table.from_pylist([row], schema=schema(numbers, pa.int64())))
    assert row_of(table) == row
    none = row | {"s": None, "l": None, "f": []}
    table.upsert(pa.Table.from_pylist([none], schema=schema(numbers, pa.int64())))
    assert row_of(table) == none


TYPES = [
    pa.bool_(),
    pa.int8(),
    pa.uint64(),
    pa.float16(),
    pa.float32(),
    pa.float64(),
    pa.timestamp("us"),
    pa.timestamp("ns", "Europe/Berlin"),
    pa.date32(),
    pa.time32("ms"),
    pa.time64("ns"),
    pa.duration("s"),
    pa.binary(),
    pa.binary(4),
    pa.large_binary(),
    pa.string(),
    pa.large_string(),
    pa.list_(pa.int64()),
    pa.list_(pa.field("item", pa.int64(), nullable=False)),
    pa.large_list(pa.string()),
    pa.list_(pa.float32(), 3),
    pa.struct([("a", pa.int64()), pa.field("b", pa.string(), nullable=False)]),
    pa.map_(pa.string(), pa.int32()),
    pa.dictionary(pa.int32(), pa.string()),
    pa.decimal128(10, 2),
    pa.decimal256(50, 2),
]


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_a_refusal_names_a_type_as_pyarrow_does(kind: pa.DataType, make_table: MakeTable) -> None:
    table = make_table(pa.schema([pa.field("id", pa.int64(), nullable=False), ("odd", kind)]))
    with pytest.raises(lancemem.InvalidInputError) as refused:
        table.upsert(pa.table({"id": [1]}))
    assert f"column 'odd' of type {kind} is missing" in str(refused.value)
    other = pa.time64("us") if not pa.types.is_time(kind) else pa.duration("us")
    with pytest.raises(lancemem.InvalidInputError) as refused:
        table.upsert(pa.table({"id": [1], "odd": pa.array([5], other)}))
    assert f"column 'odd' is of type {other}, expected {kind}: " in str(refused.value)
