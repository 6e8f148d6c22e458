"""Conditions: SQL and pyarrow expressions, and the text of a refusal.

Owns: that both forms keep the same rows, before and after rows are flushed and compacted; values of
every type; refusals. Not here: engines that push their conditions down (test_ways_in).
"""

from __future__ import annotations

import datetime as dt
import decimal
import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lancemem
from tests.programs import run_python

if TYPE_CHECKING:
    from tests.conftest import MakeTable

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("Name", pa.string()),
        pa.field("value", pa.float64()),
        pa.field("small", pa.int32()),
        pa.field("unsigned", pa.uint32()),
        pa.field("flag", pa.bool_()),
        pa.field("day", pa.date32()),
        pa.field("at", pa.timestamp("us")),
        pa.field("at_utc", pa.timestamp("us", "UTC")),
        pa.field("price", pa.decimal128(10, 2)),
        pa.field("large", pa.large_string()),
        pa.field("raw", pa.binary()),
        pa.field("vector", pa.list_(pa.float32(), 2)),
    ]
)
UTC = dt.UTC
F = pc.field


def row(number: int, **changes: Any) -> dict[str, Any]:  # noqa: ANN401
    day = dt.datetime(2020, 1, 1, 12) + dt.timedelta(days=number)  # noqa: DTZ001
    usual = {
        "id": number,
        "Name": f"n{number}",
        "value": number / 2,
        "small": -number,
        "unsigned": 4_000_000_000 + number,
        "flag": number % 2 == 0,
        "day": day.date(),
        "at": day,
        "at_utc": day.replace(tzinfo=UTC),
        "price": decimal.Decimal(number) / 4,
        "large": f"L{number}",
        "raw": bytes([number]),
        "vector": [0.0, float(number)],
    }
    return {**usual, **changes}


def rows(*numbers: int, **changes: Any) -> pa.Table:  # noqa: ANN401
    return pa.Table.from_pylist([row(number, **changes) for number in numbers], schema=SCHEMA)


def ids(table: lancemem.Table, condition: object) -> list[int]:
    found = table.scan(["id"], condition).to_table()
    assert table.scan(filter=condition).count_rows() == found.num_rows
    return sorted(found.column("id").to_pylist())


@pytest.fixture
def layered(make_table: MakeTable) -> lancemem.Table:
    """Give ids 0 to 7: in the base table, an SSTable, the log; each place has older rows too."""
    table = make_table(SCHEMA)
    with table.start_job(shard=0) as job:
        job.put(rows(*range(8), Name="old", value=-1.0, flag=None, day=None))
        job.put(rows(0, 1, 2))
        job.flush()
    table.compact()
    with table.start_job(shard=0) as job:
        job.put(rows(3, 4, 5))
        job.flush()
        job.put(rows(6, 7))
        job.put(pa.Table.from_pylist([row(7, Name=None, value=None)], schema=SCHEMA))
    return table


# An expression, the same in SQL, and the ids that it keeps.
SAME: dict[str, tuple[pc.Expression, str, list[int]]] = {
    "key": (F("id") == 3, "id = 3", [3]),
    "key range": ((F("id") >= 2) & (F("id") < 5), "id >= 2 AND id < 5", [2, 3, 4]),
    "either": ((F("id") == 1) | (F("Name") == "n6"), "id = 1 OR Name = 'n6'", [1, 6]),
    "not": (~(F("value") > 1), "NOT value > 1", [0, 1, 2]),
    "not equal": (F("Name") != "n1", "Name <> 'n1'", [0, 2, 3, 4, 5, 6]),
    "in": (F("Name").isin(["n1", "n4", "old"]), "Name IN ('n1', 'n4', 'old')", [1, 4]),
    "not in": (~F("Name").isin(["n1", "n4"]), "Name NOT IN ('n1', 'n4')", [0, 2, 3, 5, 6]),
    "null": (F("value").is_null(), "value IS NULL", [7]),
    "not null": (F("value").is_valid() & (F("id") > 4), "value IS NOT NULL AND id > 4", [5, 6]),
    "equal to null": (pc.equal(F("Name"), pa.scalar(None, pa.string())), "Name = NULL", []),
    "bool": (F("flag") & (F("id") < 3), "flag AND id < 3", [0, 2]),
    "bool value": (F("flag") == pc.scalar(False), "flag = false", [1, 3, 5, 7]),
    "int32": (F("small") == pa.scalar(-4, pa.int32()), "small = -4", [4]),
    "wider constant": (F("small") < -5, "small < -5", [6, 7]),
    "uint32": (
        F("unsigned") == pa.scalar(4_000_000_005, pa.uint32()),
        "unsigned = 4000000005",
        [5],
    ),
    "date": (F("day") > dt.date(2020, 1, 6), "day > DATE '2020-01-06'", [6, 7]),
    "timestamp": (
        F("at") > dt.datetime(2020, 1, 6, 12),  # noqa: DTZ001
        "at > TIMESTAMP '2020-01-06 12:00:00'",
        [6, 7],
    ),
    "timestamp in a zone": (
        F("at_utc")
        <= pa.scalar(dt.datetime(2020, 1, 2, 12, tzinfo=UTC), SCHEMA.field("at_utc").type),
        "at_utc <= TIMESTAMP '2020-01-02T12:00:00Z'",
        [0, 1],
    ),
    "decimal": (F("price") > decimal.Decimal("1.25"), "price > 1.25", [6, 7]),
    "large text": (F("large") == "L3", "large = 'L3'", [3]),
    "bytes": (F("raw") == b"\x04", "raw = X'04'", [4]),
    "prefix": (pc.starts_with(F("Name"), "n"), "Name LIKE 'n%'", [0, 1, 2, 3, 4, 5, 6]),
    "sum": (F("value") + F("value") == 4.0, "value + value = 4.0", [4]),
    "case": (
        pc.if_else(F("id") < 4, F("flag"), ~F("flag")),
        "CASE WHEN id < 4 THEN flag ELSE NOT flag END",
        [0, 2, 5, 7],
    ),
    "constant": (pc.scalar(True), "true", list(range(8))),
}


@pytest.mark.parametrize("name", SAME)
def test_an_expression_and_sql_keep_the_same_rows_in_every_layer(
    name: str, layered: lancemem.Table
) -> None:
    expression, sql, expected = SAME[name]
    assert ids(layered, sql) == expected
    assert ids(layered, expression) == expected
    layered.compact()
    assert ids(layered, expression) == expected


def test_an_expression_is_pushed_as_far_as_the_same_sql(layered: lancemem.Table) -> None:
    expression = (F("id") > 3) & F("Name").isin(["n1", "n4", "n5", "n6"])
    sql = "id > 3 AND Name IN ('n1', 'n4', 'n5', 'n6')"
    by_expression = layered.scan(["id"], expression).explain()
    assert by_expression == layered.scan(["id"], sql).explain()
    assert "FilterExec" in by_expression or "full_filter" in by_expression


def test_a_condition_that_only_a_superseded_row_meets_finds_nothing(
    make_table: MakeTable,
) -> None:
    """B18: a superseded row is not shown where the newer row of its key fails the condition."""
    table = make_table()
    table.upsert(pa.table({"id": range(4), "name": ["old"] * 4, "value": [0.0] * 4}))
    with table.start_job(shard=0) as job:
        job.flush()
    table.compact()
    with table.start_job(shard=0) as job:
        job.put(pa.table([[0, 1], ["new"] * 2, [1.0] * 2], schema=table.schema))
        job.flush()
        job.put(pa.table([[2], ["new"], [1.0]], schema=table.schema))
        job.delete(pa.table({"id": pa.array([3], pa.int64())}))
        for condition in ("name = 'old'", "upper(name) = 'OLD'", "value < 1 AND name = 'old'"):
            for scan in (
                table.scan(filter=condition),
                table.scan(filter=condition, consistency="live", jobs=[job]),
            ):
                assert scan.to_table().num_rows == scan.count_rows() == 0
            flushed = table.scan(["id"], condition, consistency="flushed").to_table()
            assert sorted(flushed["id"].to_pylist()) == [2, 3]


REFUSED: dict[str, tuple[object, str]] = {
    "unknown column": (
        F("gone") == 1,
        r"pass it as a SQL string: No match for FieldRef.Name\(gone\)",
    ),
    "column of vectors": (
        F("vector").is_null(),
        r"pass it as a SQL string: column 'vector' has a type that pyarrow cannot encode",
    ),
    "function": (pc.utf8_lower(F("Name")) == "n1", "pass it as a SQL string: .*utf8_lower"),
    "option": (
        pc.starts_with(F("Name"), "N", ignore_case=True),
        "'starts_with' has option case_sensitivity=CASE_INSENSITIVE",
    ),
    "null in a list": (F("Name").isin(["n1", None]), "null in the list of IN"),
    "no condition": (F("id") + 1, "BOOLEAN"),
    "number": (3, "must be a SQL string or a pyarrow expression, got int"),
    "sql": ("id ===", "the filter 'id ===' is not valid"),
    "unknown column in sql": ("gone = 1", "gone"),
    "a parameter": ("id = ?", "cannot have a placeholder without a value$"),
    "an aggregate": ("sum(id) > 1", "cannot have an aggregate$"),
    "a window": ("row_number() OVER () > 1", "cannot have a window function$"),
    "a subquery": ("id > (SELECT 1)", "cannot have a subquery$"),
    "a subquery in a list": ("id IN (SELECT 1)", "cannot have a subquery$"),
    "existence": ("NOT EXISTS (SELECT 1)", "cannot have a subquery$"),
    "a type without its like": ("id = TIME '05:00:00'", "not valid|planning the filter"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_says_why_and_what_to_do(name: str, layered: lancemem.Table) -> None:
    condition, text = REFUSED[name]
    with pytest.raises(lancemem.InvalidInputError) as refused:
        layered.scan(filter=condition).to_table()
    # What pytest matches has the note with the table behind the text.
    assert re.search(text, str(refused.value))


def test_a_polars_expression_is_refused_with_the_ways_that_work(layered: lancemem.Table) -> None:
    import polars as pl

    with pytest.raises(lancemem.InvalidInputError, match=r"SQL string .*scan_pyarrow_dataset"):
        layered.scan(filter=pl.col("id") == 3)


class Forged:
    """Has the interface of an expression and returns arbitrary bytes."""

    def __init__(self, message: bytes) -> None:
        self.message = message

    def to_substrait(self, _schema: pa.Schema) -> bytes:
        """Return the bytes, as pyarrow's expressions do."""
        return self.message


def test_forged_messages_are_refused(layered: lancemem.Table) -> None:
    good = bytes((F("id") == 3).to_substrait(pa.schema([SCHEMA.field("id")])))
    assert ids(layered, Forged(good)) == [3]
    for message in (b"", b"\xff" * 100, good[:-30], good + b"\x1a\x05", b"\0" * (5 << 20)):
        with pytest.raises(lancemem.InvalidInputError, match="pass it as a SQL string"):
            layered.scan(filter=Forged(message)).to_table()


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ("u = 18446744073709551615", [2**64 - 1]),
        ("u < 18446744073709551616", [2**53 + 1, 2**64 - 1]),
        ("u = 9007199254740992", []),
        ("u = 9007199254740992.0", []),
        ("u > 9007199254740992.5", [2**53 + 1, 2**64 - 1]),
    ],
)
def test_integers_of_64_bits_are_exact_beside_every_constant(
    make_table: MakeTable, condition: str, found: list[int]
) -> None:
    schema = pa.schema([pa.field("u", pa.uint64(), nullable=False)])
    table = make_table(schema, ["u"])
    table.upsert(pa.table({"u": [2**53 + 1, 2**64 - 1]}, schema=schema))
    assert sorted(table.scan(filter=condition).to_table()["u"].to_pylist()) == found


def test_a_condition_that_is_negated_over_and_over_is_refused_at_once(
    make_table: MakeTable,
) -> None:
    table = make_table()
    table.upsert(pa.table({"id": [1], "name": ["a"], "value": [1.0]}))
    assert table.scan(filter="NOT (" * 16 + "id > 0" + ")" * 16).count_rows() == 1
    assert table.scan(filter=" AND ".join(["NOT (id > 1)"] * 100)).count_rows() == 1
    for spelled in ("NOT (", "not  (", "NOT(", "(NOT ("):
        with pytest.raises(lancemem.InvalidInputError, match=r"16 conditions in NOT \( \)"):
            table.scan(filter=spelled * 45 + "id > 0" + ")" * 90).count_rows()


def test_a_chain_that_pyarrow_cannot_write_down_is_refused_and_a_dataset_applies_it(
    make_table: MakeTable,
) -> None:
    table = make_table()
    table.upsert(pa.table({"id": [1, 2], "name": ["(" * 99, '"'], "value": [1.0, 2.0]}))
    chain = F("id") > 1
    for number in range(11):
        chain &= F("id") != 100 + number
    assert ids(table, chain & (F("name") != "(" * 99)) == [2]
    for number in range(60):  # pyarrow's message doubles with each part
        chain &= F("id") != 200 + number
    with pytest.raises(lancemem.InvalidInputError, match=r"SQL string: it has \d+ levels"):
        table.scan(filter=chain)
    assert table.to_dataset().to_table(filter=chain)["id"].to_pylist() == [2]
    assert ids(table, F("id").isin(list(range(50_000)))) == [1, 2]


def test_a_chain_of_operators_without_end_is_refused(make_table: MakeTable) -> None:
    table = make_table()
    table.upsert(pa.table({"id": [1], "name": ["a"], "value": [1.0]}))
    # Lance by itself accepts 500 in a read of an SSTable or of the base table.
    either = " OR ".join(f"id = {number} OR name = 'n{number}'" for number in range(450))
    both = " AND ".join(f"id <> {number} AND name <> 'n{number}'" for number in range(450, 900))
    for _ in range(2):
        assert table.scan(filter=either).count_rows() == 1
        assert table.scan(filter=both).count_rows() == 1
        table.compact()
    for operator in (" OR id = 1", " AND id <> 7", " OR id = 1 + 2 * 3"):
        with pytest.raises(lancemem.InvalidInputError, match="1000 operators in a chain"):
            table.scan(filter="id = 1" + operator * 1_500).count_rows()
    endless = " OR ".join(f"id = {number}" for number in range(100_000))
    lists = ", ".join(map(str, range(5_000)))
    for hidden in (
        endless,
        f"NOT ({endless})",
        f"({endless}) IS NULL",
        f"CASE WHEN {endless} THEN true END",
        "id IN (1" + " + 1" * 100_000 + ")",
        "id" + "::bigint" * 100_000 + " = 1",
        "id = 1" + " IS NOT NULL" * 100_000,
        "id > 0" + "+0" * 3_000,
        "id > 0" + "-id" * 3_000,
    ):
        with pytest.raises(lancemem.InvalidInputError, match="1000 operators in a chain"):
            table.scan(filter=hidden).count_rows()
    assert table.scan(filter=f"id IN ({lists})").count_rows() == 1
    parts = [f"id <> {number}" for number in range(10, 4_000)]
    while len(parts) > 1:
        pairs = zip(parts[::2], [*parts[1::2], "true"], strict=False)
        parts = [f"({one} AND {other})" for one, other in pairs]
    assert table.scan(filter=parts[0]).count_rows() == 1


def test_a_thread_with_a_small_stack_reads_with_any_condition(make_table: MakeTable) -> None:
    # A stack overflow ends the process, so the threads run in a child process.
    table = make_table()
    table.upsert(pa.table({"id": [1, 2], "name": ["a", "b"], "value": [1.0, 2.0]}))
    chain = " OR ".join(f"name = 'n{number}'" for number in range(900))
    program = f"""
        import sys, threading
        import lancemem

        table = lancemem.open_table(sys.argv[1])

        def read():
            scan = table.scan(filter="id = 2 OR {chain}")
            print(scan.count_rows(), sum(len(batch) for batch in scan), len(table.get([1, 2])))

        for kib in (256, 2048):
            threading.stack_size(kib << 10)
            thread = threading.Thread(target=read)
            thread.start()
            thread.join()
    """
    done = run_python(program, table.uri)
    assert (done.returncode, done.stdout) == (0, "1 1 2\n" * 2), done.stderr


def test_the_time_of_a_condition_is_that_of_its_read(make_table: MakeTable) -> None:
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("at", pa.timestamp("us", tz="UTC"))])
    table = make_table(schema)
    now = dt.datetime.now(dt.UTC)
    hours = [now + dt.timedelta(hours=hour) for hour in (-1, 1)]
    table.upsert(pa.table({"id": [1, 2], "at": hours}, schema=table.schema))
    assert table.scan(filter="at < now()").to_table()["id"].to_pylist() == [1]
    assert table.scan(filter="at > now() - interval '1 day'").count_rows() == 2
    assert table.scan(filter="at::date >= current_date - 1").count_rows() == 2


def test_arithmetic_that_does_not_fit_its_type_is_an_error(make_table: MakeTable) -> None:
    schema = pa.schema([pa.field("id", pa.int64()), *(pa.field(n, pa.int32()) for n in "ab")])
    table = make_table(schema)
    large = 1_500_000_000
    table.upsert(pa.table({"id": [1], "a": [large], "b": [large]}, schema=table.schema))
    for condition in ("a + b > 0", "a * b > 0", "-a - b < 0", F("a") + F("b") > 0):
        with pytest.raises(lancemem.InvalidInputError, match=r"(?i)overflow"):
            table.scan(filter=condition).count_rows()
    assert table.scan(filter="CAST(a AS bigint) + b > 0").count_rows() == 1


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("value = 0.0", 2),
        ("value = -0.0", 2),
        ("value <> 0.0", 0),
        ("value < 0.0", 0),
        ("0.0 > value", 0),
        ("value >= 0.0", 2),
        ("value <= -0.0", 2),
        ("value > -0.0", 0),
        ("value IN (0.0, 7.0)", 2),
        ("value BETWEEN 0.0 AND 1.0", 2),
        ("value BETWEEN -1.0 AND -0.0", 2),
        ("0.0 BETWEEN value AND value", 2),
        ("-0.0 NOT BETWEEN value AND value", 0),
        ("value IS NOT DISTINCT FROM 0.0", 2),
        ("value IS NOT DISTINCT FROM -0.0", 2),
        ("value IS DISTINCT FROM 0.0", 0),
        ("0.0 = -value", 2),
        ("0.0 = round(value)", 2),
        ("1.0 / value > 0.0", 1),
        (F("value") == 0.0, 2),
    ],
)
def test_both_zeros_are_one_number_in_every_layer(
    condition: object, expected: int, make_table: MakeTable
) -> None:
    table = make_table()
    table.upsert(pa.table({"id": [1, 2], "name": ["a", "b"], "value": [0.0, -0.0]}))
    assert table.scan(filter=condition).count_rows() == expected
    with table.start_job(shard=0) as job:
        job.flush()
    assert table.scan(filter=condition).count_rows() == expected
    table.compact()
    assert table.scan(filter=condition).count_rows() == expected


def test_a_null_in_a_list_is_an_unknown_value(make_table: MakeTable) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("x", pa.int64())])
    table = make_table(schema)
    table.upsert(pa.table({"id": [1, 2, 3, 4], "x": [1, 2, 3, None]}, schema=schema))
    for condition, wanted in {
        "x IN (1, 2) AND x NOT IN (3, NULL)": [],
        "x NOT IN (3, NULL)": [],
        "(x IN (1, 2) AND x NOT IN (3, NULL)) IS NULL": [1, 2, 4],
        "x IN (1, 2, NULL) AND x IN (2, 3, NULL)": [2],
        "(x IN (1, NULL) AND x IN (2, NULL)) IS NULL": [1, 2, 3, 4],
        "(x IN (1, NULL) OR x IN (2)) IS NULL": [3, 4],
        "NOT (x IN (1, NULL) OR x IN (2))": [],
        "NOT (x NOT IN (1, 2) OR x IN (3, NULL))": [],
        "x IN (NULL)": [],
        "x IN (CAST(NULL AS INT), 3)": [3],
        "x NOT IN (NULL) IS NULL": [1, 2, 3, 4],
        "x IN (1, 2) AND x NOT IN (3, NULL + 1)": [],
        "x IN (1, 2) AND x NOT IN (3, NULLIF(1, 1))": [],
        "x IN (1, 2) AND x NOT IN (3, TRY_CAST(NULL AS BIGINT))": [],
        "x IN (id, 7)": [1, 2, 3],
        "NULL": [],
        "CASE WHEN x > 1 THEN NULL END": [],
        "(NULL) IS NULL": [1, 2, 3, 4],
    }.items():
        scan = table.scan(["id"], condition)
        assert sorted(scan.to_table()["id"].to_pylist()) == wanted, condition


def test_decimals_of_hundreds_are_compared_by_their_values(make_table: MakeTable) -> None:
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("x", pa.decimal128(10, -2))])
    table = make_table(schema)
    hundreds = [decimal.Decimal(100 * number) for number in (1, 2, 3)]
    table.upsert(pa.table({"id": [1, 2, 3], "x": hundreds}, schema=table.schema))
    for condition, wanted in {
        "x > 200": [3],
        "x = 100": [1],
        "x IN (100, 300)": [1, 3],
        "x BETWEEN 0 AND 250": [1, 2],
        "x <> 100.5": [1, 2, 3],
    }.items():
        scan = table.scan(["id"], condition)
        assert sorted(scan.to_table()["id"].to_pylist()) == wanted, condition


def test_a_date_beside_a_time_of_utc_is_compared_where_no_nanosecond_reaches(
    make_table: MakeTable,
) -> None:
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("at", pa.timestamp("us", "UTC"))])
    table = make_table(schema)
    times = [dt.datetime(year, 1, 1, tzinfo=dt.UTC) for year in (2023, 2025, 9999)]
    table.upsert(pa.table({"id": [1, 2, 3], "at": times}, schema=table.schema))
    for condition, wanted in {
        "at > DATE '2024-01-01'": [2, 3],
        "at <= DATE '2025-01-01'": [1, 2],
        "at = TIMESTAMP '2025-01-01 00:00:00'": [2],
    }.items():
        scan = table.scan(["id"], condition)
        assert sorted(scan.to_table()["id"].to_pylist()) == wanted, condition


def test_a_column_that_no_expression_can_name_stands_in_no_others_way(
    make_table: MakeTable,
) -> None:
    columns = [pa.field("id", pa.int64()), pa.field("flag", pa.bool8()), ("time", pa.time64("us"))]
    table = make_table(pa.schema(columns))
    table.upsert(
        pa.table({"id": [1, 2], "flag": [None] * 2, "time": [None] * 2}, schema=table.schema)
    )
    assert table.scan(["id"], F("id") > 1).to_table().to_pylist() == [{"id": 2}]
    for name in ("flag", "time"):
        with pytest.raises(lancemem.InvalidInputError, match=f"column '{name}' has a type that"):
            table.scan(["id"], F(name).is_null())
        assert table.scan(["id"], f"{name} IS NULL").count_rows() == 2


@pytest.mark.parametrize("condition", ["substr(Name, 1, -1) = 'n'", "date_trunc('x', at) = at"])
def test_an_argument_that_a_function_does_not_take_is_the_callers(
    condition: str, layered: lancemem.Table
) -> None:
    with pytest.raises(lancemem.InvalidInputError):
        layered.scan(filter=condition).to_table()
