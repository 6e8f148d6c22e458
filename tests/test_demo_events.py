"""The flight board's events and reference state: what must hold before any engine is involved."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from demo.events import (
    BOARD_SCHEMA,
    EVENT_SCHEMA,
    KEY,
    count_by_kind,
    derive_events,
    split_into_micro_batches,
)
from demo.flights import load_flights
from demo.reference import ExpectedCounts, compare, final_board

if TYPE_CHECKING:
    import pandas as pd

FLIGHTS = 12_000


@pytest.fixture(scope="module")
def flights() -> pd.DataFrame:
    return load_flights(FLIGHTS)


@pytest.fixture(scope="module")
def events(flights: pd.DataFrame) -> pa.Table:
    return derive_events(flights)


def replay(events: pa.Table) -> pa.Table:
    last = events.to_pandas().drop_duplicates(KEY, keep="last")
    return pa.Table.from_pandas(last[last["op"] != "D"], schema=BOARD_SCHEMA, preserve_index=False)


def test_the_whole_year_has_the_known_number_of_events_of_each_kind() -> None:
    counts = count_by_kind(derive_events(load_flights()))
    assert counts == {
        "scheduled": 336_776,
        "departed": 328_521,
        "arrived": 328_063,
        "cancelled": 8_255,
    }


def test_events_come_in_event_time_order_and_are_numbered(events: pa.Table) -> None:
    assert events.schema.equals(EVENT_SCHEMA)
    assert events["sequence"].to_pylist() == list(range(events.num_rows))
    assert events["updated_at"].to_pandas().is_monotonic_increasing


def test_every_flight_is_inserted_first_and_deleted_last(events: pa.Table) -> None:
    ops = events.group_by(KEY).aggregate([("op", "list")])["op_list"].to_pylist()
    assert len(ops) == FLIGHTS
    assert {"".join(ops_of_key) for ops_of_key in ops} <= {"IUU", "IU", "ID"}


def test_a_departure_shows_the_local_clock_of_the_source(flights: pd.DataFrame) -> None:
    left = flights[flights["dep_time"].notna()]
    local = left["departed_at"].dt.tz_convert("America/New_York")
    assert (local.dt.hour * 100 + local.dt.minute == left["dep_time"] % 2400).all()


def test_micro_batches_are_the_whole_stream_in_order(events: pa.Table) -> None:
    batches = list(split_into_micro_batches(events, 5))
    assert len(batches) == 5
    assert pa.concat_tables(batches).equals(events)


def test_replayed_events_give_the_state_computed_from_the_flights(
    flights: pd.DataFrame, events: pa.Table
) -> None:
    difference = compare(replay(events), final_board(flights))
    assert difference.is_empty, "\n".join(difference.lines)


def test_counts_after_the_last_micro_batch_are_those_of_the_final_board(
    flights: pd.DataFrame, events: pa.Table
) -> None:
    expected = ExpectedCounts()
    for batch in split_into_micro_batches(events, 4):
        counts = expected.apply(batch)
    board = final_board(flights)["status"].value_counts().to_pylist()
    assert counts == {pair["values"]: pair["counts"] for pair in board}


def test_compare_finds_missing_unexpected_repeated_and_changed(flights: pd.DataFrame) -> None:
    board = final_board(flights)
    tails = board["tailnum"].to_pylist()
    tails[20], tails[21] = None, "N00000"
    changed = board.set_column(
        board.schema.get_field_index("tailnum"), "tailnum", pa.array(tails, pa.string())
    )
    actual = pa.concat_tables([changed.slice(3), changed.slice(10, 2)])
    difference = compare(actual, board.slice(0, board.num_rows - 1))
    assert difference.missing_rows == 3
    assert difference.unexpected_rows == 1
    assert difference.repeated_keys == 2
    assert difference.differing_cells == 2
    assert any("expected" in line and "N00000" in line for line in difference.lines)
