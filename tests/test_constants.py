"""Constants in conditions keep the value that is written, whatever the type of the column.

Owns: numbers beside decimals, integers and floats, in the log, in an SSTable and in the base table
with and without an index, compared with Python's own numbers. Not here: times (`test_instants`).
"""

from __future__ import annotations

import operator
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lancemem
from tests.tiers import TIERS, ids, place

if TYPE_CHECKING:
    from tests.conftest import MakeTable

OPERATORS = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
SWAPPED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
FIRST = Fraction("2.01")
LARGEST = "9999999999999999999999999999.9999999999"

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("price", pa.decimal128(10, 2)),
        ("big", pa.decimal128(38, 10)),
        ("whole", pa.decimal128(38, 0)),
        ("tiny", pa.decimal128(38, 38)),
    ]
)
VALUES: dict[str, list[str | None]] = {
    "price": ["2.01", "-0.01", "261.91", None, "1234.56", "99999999.99", "0", "8191.07"],
    "big": [LARGEST, f"-{LARGEST}", "0.0000000001", "2", None, "3.5", "0", "-1e-10"],
    "whole": ["9" * 38, "-" + "9" * 38, "0", None, "1", "2", "3", "4"],
    "tiny": ["0." + "9" * 38, "-0." + "9" * 38, "0", None, "0.5", "0.1", "-0.1", "1e-38"],
}
CONSTANTS = {
    "price": [
        *("2.01", "2.005", "-0.01", "261.91", "99999999.99", "1e3", "1e20", "-1e-50", "0.0", "7"),
        *("2.0100000000000000000000000000000000000000001", "123456789.5", "-1e70"),
    ],
    "big": [LARGEST, "2.0", "3.5", "0.0000000001", "1e3", "-1e20", "1e50", "2", "0.00000000005"],
    "whole": ["9" * 38, "9" * 39, "1e37", "0.5", "2.0", "-1e40", "18446744073709551616"],
    "tiny": ["0." + "9" * 38, "0.5", "0.1", "1.5", "1e-38", "1e-39", "0." + "9" * 60],
}


def exact(text: str | None) -> Decimal | None:
    return None if text is None else Decimal(text)


def decimals() -> pa.Table:
    with localcontext() as context:
        context.prec = 80
        columns = {
            name: pa.array([exact(text) for text in texts], SCHEMA.field(name).type)
            for name, texts in VALUES.items()
        }
    return pa.table({"id": range(8), **columns}, schema=SCHEMA)


def wanted(column: str, keeps: Any) -> list[int]:  # noqa: ANN401
    """Return the ids of the rows whose value `keeps` takes, by exact arithmetic."""
    values = enumerate(VALUES[column])
    return [row for row, text in values if text is not None and keeps(Fraction(text))]


@pytest.fixture(params=TIERS)
def placed(request: pytest.FixtureRequest, make_table: MakeTable) -> lancemem.Table:
    """Return a table of decimals in each of the tiers."""
    return place(make_table(SCHEMA), decimals(), request.param, "price", "big", "whole")


@pytest.mark.parametrize("column", VALUES)
def test_a_decimal_is_compared_with_the_number_that_is_written(
    column: str, placed: lancemem.Table
) -> None:
    for text in CONSTANTS[column]:
        number = Fraction(text)
        for name, compare in OPERATORS.items():
            right = wanted(column, lambda value, c=compare, n=number: c(value, n))
            assert ids(placed, f"{column} {name} {text}") == right, (name, text)
            assert ids(placed, f"{text} {SWAPPED[name]} {column}") == right, (name, text)
            not_right = wanted(column, lambda value, c=compare, n=number: not c(value, n))
            assert ids(placed, f"NOT ({column} {name} {text})") == not_right, (name, text)
        same = wanted(column, lambda value, n=number: value == n)
        assert ids(placed, f"{column} IS NOT DISTINCT FROM {text}") == same, text
        assert ids(placed, f"CASE {column} WHEN {text} THEN true END") == same, text
        assert ids(placed, f"({column} = {text}) IS NULL") == nulls(column), text
        assert ids(placed, f"{column} = '{text}'") == same, text


def nulls(column: str) -> list[int]:
    return [row for row, text in enumerate(VALUES[column]) if text is None]


@pytest.mark.parametrize("column", VALUES)
def test_lists_and_ranges_of_numbers_are_exact(column: str, placed: lancemem.Table) -> None:
    texts = CONSTANTS[column]
    numbers = {Fraction(text) for text in texts}
    listed = ", ".join(texts)
    assert ids(placed, f"{column} IN ({listed})") == wanted(column, lambda v: v in numbers)
    assert ids(placed, f"{column} NOT IN ({listed})") == wanted(column, lambda v: v not in numbers)
    assert ids(placed, f"{column} IN ({listed}, NULL)") == wanted(column, lambda v: v in numbers)
    assert ids(placed, f"{column} NOT IN ({listed}, NULL)") == []
    for low in texts:
        for high in texts:
            least, greatest = Fraction(low), Fraction(high)
            inside = wanted(column, lambda v, a=least, b=greatest: a <= v <= b)
            outside = wanted(column, lambda v, a=least, b=greatest: not a <= v <= b)
            assert ids(placed, f"{column} BETWEEN {low} AND {high}") == inside, (low, high)
            assert ids(placed, f"{column} NOT BETWEEN {low} AND {high}") == outside, (low, high)


@pytest.mark.parametrize(
    ("condition", "column", "keeps"),
    [
        ("price * 2 > 3.5", "price", lambda v: v * 2 > Fraction("3.5")),
        ("price * 1.1 = 2.211", "price", lambda v: v * Fraction("1.1") == Fraction("2.211")),
        ("price + 0.005 > 2.01", "price", lambda v: v + Fraction("0.005") > Fraction("2.01")),
        ("261.91 - price = 0.0", "price", lambda v: v == Fraction("261.91")),
        ("price = 2 * 1.005", "price", lambda v: v == FIRST),
        ("-price < -2.01", "price", lambda v: -v < Fraction("-2.01")),
        ("abs(price) = 0.01", "price", lambda v: abs(v) == Fraction("0.01")),
        ("big * 2 > 3.5", "big", lambda v: v * 2 > Fraction("3.5")),
        ("big * 1.5 > 3.0", "big", lambda v: v * Fraction("1.5") > 3),
        ("big + 1 > 3.5", "big", lambda v: v + 1 > Fraction("3.5")),
        ("big - 0.5 >= 3", "big", lambda v: v - Fraction("0.5") >= 3),
        ("tiny * 3 > 1.5", "tiny", lambda v: v * 3 > Fraction("1.5")),
        ("CASE WHEN price > 2 THEN price ELSE 0.1 END = 2.01", "price", lambda v: v == FIRST),
        ("coalesce(price, 261.91) = 2.01", "price", lambda v: v == FIRST),
        ("CAST(price AS DECIMAL(12,3)) = 2.0100", "price", lambda v: v == FIRST),
        ("CAST(price AS DECIMAL(12,3)) < 2.0101", "price", lambda v: v < Fraction("2.0101")),
        ("price = CAST(261.91 AS DECIMAL(10,2))", "price", lambda v: v == Fraction("261.91")),
        ("price = CAST('261.91' AS DECIMAL(10,2))", "price", lambda v: v == Fraction("261.91")),
        ("CAST(price AS DOUBLE) > 2.005", "price", lambda v: v > Fraction("2.005")),
        ("price > CAST(2.005 AS DOUBLE)", "price", lambda v: v > Fraction("2.005")),
        ("price > 1e300", "price", lambda _: False),
        ("price > 1e-300", "price", lambda v: v > 0),
    ],
)  # fmt: skip
def test_arithmetic_of_decimals_and_numbers_is_exact(
    condition: str,
    column: str,
    keeps: Any,  # noqa: ANN401
    placed: lancemem.Table,
) -> None:
    assert ids(placed, condition) == wanted(column, keeps)


def test_two_decimals_are_compared_however_large_their_values_are(placed: lancemem.Table) -> None:
    def pairs(left: str, right: str) -> list[int]:
        both = enumerate(zip(VALUES[left], VALUES[right], strict=True))
        return [row for row, (a, b) in both if a and b and Fraction(a) > Fraction(b)]

    for left, right in (("whole", "price"), ("price", "whole"), ("big", "price"), ("whole", "big")):
        assert ids(placed, f"{left} > {right}") == pairs(left, right)


def test_decimals_in_expressions_are_exact(placed: lancemem.Table) -> None:
    import polars as pl

    price, big = pc.field("price"), pc.field("big")
    cent = Decimal("261.91")
    right = wanted("price", lambda value: value == Fraction(cent))
    dataset = placed.to_dataset()
    for read in (lambda e: ids(placed, e), lambda e: dataset.to_table(filter=e)["id"].to_pylist()):
        assert read(price == pa.scalar(cent, pa.decimal128(10, 2))) == right
        assert read(price.isin(pa.array([cent], pa.decimal128(10, 2)))) == right
        two = pa.scalar(Decimal("3.5"), pa.decimal128(38, 10))
        assert sorted(read(big > two)) == wanted("big", lambda value: value > Fraction("3.5"))
    frame = pl.scan_pyarrow_dataset(dataset).filter(pl.col("price") == cent)
    assert frame.collect()["id"].to_list() == right
    with duckdb.connect() as connection:
        connection.register("prices", dataset)
        found = connection.sql("SELECT id FROM prices WHERE price = 261.91")
        assert found.fetchall() == [(row,) for row in right]


FLOATS = [0.1, 0.30000000000000004, 0.3, 16777216.0, 16777217.0, 1e300, -0.5, None]


@pytest.mark.parametrize("tier", TIERS)
def test_a_number_beside_floats_is_the_nearest_float64(tier: str, make_table: MakeTable) -> None:
    schema = pa.schema(
        [pa.field("id", pa.int64(), nullable=False), ("d", pa.float64()), ("s", pa.float32())]
    )
    singles = pa.array([v if v is None or abs(v) < 1e38 else 2.0 for v in FLOATS], pa.float64())
    narrow = singles.cast(pa.float32(), safe=False)
    columns = {"id": range(8), "d": FLOATS, "s": narrow}
    table = place(make_table(schema), pa.table(columns, schema=schema), tier, "d", "s")
    stored = {"d": FLOATS, "s": narrow.to_pylist()}
    texts = ["0.1", "0.3", "16777217", "16777217.0", "16777216", "1e300", "-0.5", "1e3", "1e-320"]
    texts.append("0.1000000000000000055511151231257827021181583404541015625")
    texts.append("0." + "1" * 90)
    for column, values in stored.items():
        for text in texts:
            for name, compare in OPERATORS.items():
                right = [
                    row
                    for row, value in enumerate(values)
                    if value is not None and compare(value, float(text))
                ]
                assert ids(table, f"{column} {name} {text}") == right, (column, name, text)
            same = [row for row, value in enumerate(values) if value == float(text)]
            assert ids(table, f"{column} IN ({text}, 123.5)") == same, (column, text)
    assert ids(table, "d = 0.1 + 0.2") == [1]
    assert ids(table, "s = CAST(0.1 AS REAL)") == [0]


INTEGERS = [2**63 - 1, 2**53, 2**53 + 1, -(2**63), 0, 3, None, -3]


@pytest.mark.parametrize("tier", TIERS)
def test_an_integer_is_compared_exactly_with_every_number(tier: str, make_table: MakeTable) -> None:
    schema = pa.schema(
        [pa.field("id", pa.int64(), nullable=False), ("i", pa.int64()), ("u", pa.uint64())]
    )
    unsigned = [None if value is None else value + 2**63 for value in INTEGERS]
    columns = {"id": range(8), "i": INTEGERS, "u": unsigned}
    table = place(make_table(schema), pa.table(columns, schema=schema), tier, "i", "u")
    texts = ["9007199254740992.0", "9007199254740993", "2.5", "-2.5", "3.0", "1e30", "-1e30"]
    texts += [
        "9223372036854775807.5",
        "18446744073709551615",
        "18446744073709551616",
        "-1",
        "1e300",
    ]
    texts += ["CAST(9007199254740992 AS DOUBLE)"]
    for column, values in (("i", INTEGERS), ("u", unsigned)):
        for text in texts:
            number = Fraction(2**53 if text.startswith("CAST") else text)
            for name, compare in OPERATORS.items():
                right = [
                    row
                    for row, value in enumerate(values)
                    if value is not None and compare(value, number)
                ]
                assert ids(table, f"{column} {name} {text}") == right, (column, name, text)
                assert ids(table, f"{text} {SWAPPED[name]} {column}") == right, (name, text)
        inside = ids(table, f"{column} BETWEEN -2.5 AND 9007199254740992.5")
        assert inside == [
            row
            for row, value in enumerate(values)
            if value is not None and Fraction("-2.5") <= value <= Fraction("9007199254740992.5")
        ]


def test_a_column_that_is_a_word_of_sql_is_named_with_its_quotes(make_table: MakeTable) -> None:
    names = ["copy", "explain", "struct"]
    schema = pa.schema([pa.field("id", pa.int64()), *(pa.field(n, pa.int64()) for n in names)])
    table = make_table(schema)
    table.upsert(pa.table({"id": [1], "copy": [5], "explain": [5], "struct": [5]}))
    for name in names:
        with pytest.raises(lancemem.InvalidInputError, match=f'write the column as "{name}"'):
            table.scan(filter=f"{name} = 5 AND id = 1").count_rows()
        assert ids(table, f'id = 1 AND "{name}" = 5') == [1]
    with pytest.raises(lancemem.InvalidInputError, match="the filter 'copy === 5' is not valid"):
        table.scan(filter="copy === 5").count_rows()
