"""Instants, dates and times of day in conditions, whatever zone and unit a column has.

Owns: that an instant is the same beside a column of another zone, and that a time keeps its value
beside a column of another unit. Rows are in the log, in an SSTable, and in the base table with and
without an index. Not here: numbers (`test_constants`).
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pds
import pytest

import lancemem
from tests.tiers import TIERS, ids, place

if TYPE_CHECKING:
    from tests.conftest import MakeTable

ZONES = ["UTC", "Europe/Paris", "America/New_York", "+05:30"]
UTC = dt.UTC
NOON = dt.datetime(2024, 1, 1, 12, tzinfo=UTC)
HOURS = [NOON + dt.timedelta(hours=hour) for hour in (-1, 0, 1)]


def times(of: pa.DataType, values: list[Any]) -> pa.Table:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("t", of)])
    columns = {"id": range(len(values)), "t": pa.array(values, of)}
    return pa.table(columns, schema=schema)


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("tier", TIERS)
def test_an_instant_is_one_beside_a_column_of_every_zone(
    tier: str, unit: str, zone: str, make_table: MakeTable
) -> None:
    rows = times(pa.timestamp(unit, zone), HOURS)
    table = place(make_table(rows.schema), rows, tier, "t")
    for noon in (
        "TIMESTAMPTZ '2024-01-01T12:00:00Z'",
        "TIMESTAMPTZ '2024-01-01 07:00:00-05:00'",
        "TIMESTAMP WITH TIME ZONE '2024-01-01T12:00:00+00:00'",
        "TIMESTAMP '2024-01-01T12:00:00Z'",
        "'2024-01-01T12:00:00Z'",
        "to_timestamp('2024-01-01T12:00:00Z')",
        "to_timestamp(1704110400)",
        "to_timestamp_millis(1704110400000)",
        "arrow_cast('2024-01-01T12:00:00Z', 'Timestamp(Microsecond, Some(\"UTC\"))')",
        "(TIMESTAMPTZ '2024-01-01T11:00:00Z' + INTERVAL '1 hour')",
        "date_trunc('hour', TIMESTAMPTZ '2024-01-01T12:34:56Z')",
    ):
        assert ids(table, f"t = {noon}") == [1], noon
        assert ids(table, f"t <> {noon}") == [0, 2], noon
        assert ids(table, f"{noon} < t") == [2], noon
        assert ids(table, f"t BETWEEN {noon} AND {noon}") == [1], noon
        assert ids(table, f"t NOT BETWEEN {noon} AND {noon}") == [0, 2], noon
        assert ids(table, f"t IN ({noon}, TIMESTAMPTZ '1970-01-01T00:00:00Z')") == [1], noon
        assert ids(table, f"CASE t WHEN {noon} THEN true END") == [1], noon
        if noon.startswith("'"):
            continue
        assert ids(table, f"coalesce(t, {noon}) = {noon}") == [1], noon
        assert ids(table, f"CASE WHEN id = 2 THEN t ELSE {noon} END > {noon}") == [2], noon
    assert ids(table, "date_trunc('minute', t) <= TIMESTAMPTZ '2024-01-01T12:00:00Z'") == [0, 1]
    assert ids(table, "t < now() AND t > now() - INTERVAL '1000 months'") == [0, 1, 2]
    assert ids(table, "t > now()") == []
    later = "t - TIMESTAMPTZ '2024-01-01T12:00:00Z' > INTERVAL '10 minutes'"
    assert ids(table, later) == [2]


@pytest.mark.parametrize("zone", ZONES)
def test_now_is_this_instant_in_every_zone(zone: str, make_table: MakeTable) -> None:
    now = dt.datetime.now(UTC)
    around = [now + dt.timedelta(minutes=minutes) for minutes in (-20, 20)]
    rows = times(pa.timestamp("us", zone), around)
    table = place(make_table(rows.schema), rows, "log")
    for condition in ("t < now()", "now() > t", "t < current_timestamp", "NOT t >= now()"):
        assert ids(table, condition) == [0], condition
    assert ids(table, "t BETWEEN now() - INTERVAL '30 minutes' AND now()") == [0]
    assert ids(table, "date_trunc('second', t) > now()") == [1]


@pytest.mark.parametrize("zone", ["Europe/Paris", "America/New_York"])
def test_a_time_without_a_zone_is_one_of_the_columns_zone(zone: str, make_table: MakeTable) -> None:
    here = ZoneInfo(zone)
    hours = [dt.datetime(2024, 7, 1, hour, tzinfo=here) for hour in (11, 12, 13)]
    rows = times(pa.timestamp("us", zone), hours)
    table = place(make_table(rows.schema), rows, "log")
    for noon in ("'2024-07-01T12:00:00'", "TIMESTAMP '2024-07-01 12:00:00'"):
        assert ids(table, f"t = {noon}") == [1], noon
        assert ids(table, f"t > {noon}") == [2], noon
        assert ids(table, f"t IN ({noon})") == [1], noon


@pytest.mark.parametrize("tier", TIERS)
def test_an_instant_beside_times_without_a_zone_is_its_time_in_utc(
    tier: str, make_table: MakeTable
) -> None:
    rows = times(pa.timestamp("us"), [hour.replace(tzinfo=None) for hour in HOURS])
    table = place(make_table(rows.schema), rows, tier, "t")
    for noon in ("TIMESTAMPTZ '2024-01-01T13:00:00+01:00'", "'2024-01-01T13:00:00+01:00'"):
        assert ids(table, f"t = {noon}") == [1]
        assert ids(table, f"t > {noon}") == [2]
    assert ids(table, "t < now()") == [0, 1, 2]


NANOS = 1_704_110_400 * 10**9


@pytest.mark.parametrize("tier", TIERS)
def test_a_coarser_time_is_compared_exactly_with_nanoseconds(
    tier: str, make_table: MakeTable
) -> None:
    import polars as pl

    rows = times(pa.timestamp("ns"), [NANOS, NANOS + 1, NANOS + 999])
    table = place(make_table(rows.schema), rows, tier, "t")
    naive = NOON.replace(tzinfo=None)
    micros = pa.scalar(naive, pa.timestamp("us"))
    text = "arrow_cast('2024-01-01T12:00:00', 'Timestamp(Microsecond, None)')"
    for sql, expression, right in (
        (f"t = {text}", pc.field("t") == micros, [0]),
        (f"t IN ({text})", pc.field("t").isin([micros]), [0]),
        (f"t <= {text}", pc.field("t") <= micros, [0]),
        (f"t > {text}", pc.field("t") > micros, [1, 2]),
        (f"t <> {text}", pc.field("t") != micros, [1, 2]),
        (f"t NOT IN ({text})", ~pc.field("t").isin([micros]), [1, 2]),
        ("t = DATE '2024-01-01'", None, []),
    ):
        assert ids(table, sql) == right, sql
        if expression is None:
            continue
        assert sorted(table.to_dataset().to_table(filter=expression)["id"].to_pylist()) == right
    # polars itself converts between the two units; it does the same over pyarrow's dataset.
    frames = [pl.scan_pyarrow_dataset(it) for it in (table.to_dataset(), pds.dataset(rows))]
    for part in (pl.col("t").is_in([naive]), pl.col("t") > naive, pl.col("t") == naive):
        found, right = (frame.filter(part).collect()["id"].to_list() for frame in frames)
        assert sorted(found) == right


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
@pytest.mark.parametrize("tier", TIERS)
def test_a_finer_time_is_compared_exactly_with_every_unit(
    tier: str, unit: str, make_table: MakeTable
) -> None:
    seconds = [dt.datetime(1969, 12, 31, 23, 59, second) for second in (58, 59)]  # noqa: DTZ001
    seconds.append(dt.datetime(1970, 1, 1))  # noqa: DTZ001
    rows = times(pa.timestamp(unit), seconds)
    table = place(make_table(rows.schema), rows, tier, "t")
    between = "TIMESTAMP '1969-12-31T23:59:58.000000500'"
    same_as = f"arrow_cast({between}, 'Timestamp(Nanosecond, None)')"
    for late in (between, same_as, "'1969-12-31T23:59:58.000000500'"):
        assert ids(table, f"t = {late}") == [], late
        assert ids(table, f"t <> {late}") == [0, 1, 2], late
        assert ids(table, f"t < {late}") == [0], late
        assert ids(table, f"t <= {late}") == [0], late
        assert ids(table, f"t >= {late}") == [1, 2], late
        assert ids(table, f"{late} < t") == [1, 2], late
        assert ids(table, f"t IN ({late})") == [], late
        assert ids(table, f"t NOT IN ({late})") == [0, 1, 2], late
        assert ids(table, f"t BETWEEN {late} AND '2024-01-01'") == [1, 2], late
    assert ids(table, f"CAST(t AS TIMESTAMP(9)) > {between}") == [1, 2]
    assert ids(table, f"CAST(t AS TIMESTAMP(9)) = {between}") == []


@pytest.mark.parametrize("of", [pa.timestamp("us"), pa.timestamp("us", "Europe/Paris"),
                                pa.timestamp("s"), pa.date32()], ids=str)  # fmt: skip
@pytest.mark.parametrize("tier", TIERS)
def test_times_that_no_nanosecond_reaches_are_compared(
    tier: str, of: pa.DataType, make_table: MakeTable
) -> None:
    days: list[Any] = [dt.date(1, 1, 1), dt.date(2024, 1, 1), dt.date(9999, 12, 31)]
    if of != pa.date32():
        zone = UTC if of.tz else None
        days = [dt.datetime(day.year, day.month, day.day, 12, tzinfo=zone) for day in days]
    rows = times(of, days)
    table = place(make_table(rows.schema), rows, tier, "t")
    assert ids(table, "t > now()") == [2]
    assert ids(table, "t <= now()") == [0, 1]
    assert ids(table, "t BETWEEN TIMESTAMP '2023-01-01' AND now()") == [1]
    assert ids(table, "t >= '9999-12-31'") == [2]
    assert ids(table, "t >= DATE '9999-12-31'") == [2]
    assert ids(table, "t >= TIMESTAMP '9999-12-31'") == [2]
    assert ids(table, "t < TIMESTAMP '0001-01-03 00:00:00'") == [0]
    assert ids(table, "t > now() AND now() < '9999-12-31'") == [2]
    assert ids(table, "t > DATE '1500-01-01'") == [1, 2]
    assert ids(table, "CASE WHEN t > now() THEN t END > TIMESTAMP '9000-01-01'") == [2]


@pytest.mark.parametrize("tier", TIERS)
def test_dates_are_compared_exactly_with_times(tier: str, make_table: MakeTable) -> None:
    rows = times(pa.date32(), [dt.date(2023, 12, 31), dt.date(2024, 1, 1), dt.date(2024, 1, 2)])
    table = place(make_table(rows.schema), rows, tier, "t")
    for noon in ("TIMESTAMP '2024-01-01 12:00:00'", "TIMESTAMPTZ '2024-01-01T12:00:00Z'",
                 "'2024-01-01T12:00:00'"):  # fmt: skip
        assert ids(table, f"t = {noon}") == [], noon
        assert ids(table, f"t < {noon}") == [0, 1], noon
        assert ids(table, f"t >= {noon}") == [2], noon
    assert ids(table, "t = '2024-01-01'") == [1]
    assert ids(table, "t IN ('2024-01-01', '2024-01-02')") == [1, 2]
    assert ids(table, "t BETWEEN '2024-01-01' AND TIMESTAMP '2024-01-01 23:59:59'") == [1]


def test_engines_that_hand_their_conditions_on_keep_the_instant(make_table: MakeTable) -> None:
    import polars as pl

    rows = times(pa.timestamp("us", "Europe/Paris"), HOURS)
    table = place(make_table(rows.schema), rows, "log")
    dataset, memory = table.to_dataset(), pds.dataset(rows)
    noon = pa.scalar(NOON, pa.timestamp("us", "UTC"))
    for condition in (pc.field("t") >= noon, pc.field("t").isin([noon]), pc.field("t") >= NOON):
        right = memory.to_table(filter=condition)["id"].to_pylist()
        assert sorted(dataset.to_table(filter=condition)["id"].to_pylist()) == right
    # polars pushes down another instant than it means; it does the same over pyarrow's dataset.
    here = pl.lit(dt.datetime(2024, 1, 1, 13)).dt.replace_time_zone("Europe/Paris")  # noqa: DTZ001
    frames = [pl.scan_pyarrow_dataset(it) for it in (dataset, memory)]
    kept, right = (frame.filter(pl.col("t") >= here).collect()["id"].to_list() for frame in frames)
    assert sorted(kept) == right
    with duckdb.connect() as connection:
        connection.execute("SET timezone = 'UTC'")
        connection.register("times", dataset)
        found = connection.sql(
            "SELECT id FROM times WHERE t > TIMESTAMPTZ '2024-01-01 12:00:00+00'"
        )
        assert found.fetchall() == [(2,)]


def test_a_time_that_a_zone_skips_is_refused(make_table: MakeTable) -> None:
    rows = times(pa.timestamp("us", "Europe/Paris"), HOURS)
    table = place(make_table(rows.schema), rows, "log")
    with pytest.raises(lancemem.InvalidInputError, match="TIMESTAMPTZ"):
        table.scan(filter="t = '2024-03-31T02:30:00'").count_rows()
