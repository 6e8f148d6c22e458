"""The expected board, computed with pandas, and the comparison of a real board with it.

Owns the expected state and the cell-for-cell difference. The final state comes from the flights and
not from the events, so a mistake in the event stream cannot hide. It uses neither Spark nor
lancemem.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd  # noqa: TID253 - the demo works in pandas
import pyarrow as pa
import pyarrow.compute as pc

from demo.events import BOARD_SCHEMA, KEY, LATE_MINUTES

SHOWN_PER_KIND = 5


@dataclass(frozen=True)
class Difference:
    """How a board differs from the expected one, in counts and in lines for a person."""

    missing_rows: int
    unexpected_rows: int
    repeated_keys: int
    differing_cells: int
    lines: tuple[str, ...]

    @property
    def is_empty(self) -> bool:
        """True if the boards are equal row for row and cell for cell."""
        return not (
            self.missing_rows or self.unexpected_rows or self.repeated_keys or self.differing_cells
        )


def final_board(flights: pd.DataFrame) -> pa.Table:
    """The board after the last event: every flight that left, once, as it was last seen."""
    left = flights[flights["dep_time"].notna()]
    has_arrived = left["arr_time"].notna()
    remark = np.select(
        [
            has_arrived & left["air_time"].isna(),
            has_arrived & (left["arr_delay"] >= LATE_MINUTES),
            ~has_arrived & (left["dep_delay"] >= LATE_MINUTES),
        ],
        ["diverted", "late arrival", "late departure"],
        "",
    )
    board = left.rename(
        columns={
            "distance": "distance_miles",
            "dep_delay": "departure_delay_minutes",
            "arr_delay": "arrival_delay_minutes",
            "air_time": "air_minutes",
        }
    ).assign(
        status=np.where(has_arrived, "arrived", "departed"),
        remark=pd.Series(remark, index=left.index).replace({"": None}),
        updated_at=left["arrived_at"].fillna(left["departed_at"]),
    )
    return pa.Table.from_pandas(board, schema=BOARD_SCHEMA, preserve_index=False)


class ExpectedCounts:
    """Rows on the board by status while the stream is replayed, micro-batch by micro-batch."""

    def __init__(self) -> None:
        """Start with an empty board."""
        self._status_of: dict[tuple[object, ...], str] = {}

    def apply(self, events: pa.Table) -> dict[str, int]:
        """Replay `events` and count what is on the board after them."""
        ordered = events.select([*KEY, "status", "op", "sequence"]).sort_by("sequence").to_pandas()
        last = ordered.drop_duplicates(KEY, keep="last")
        keys = last[KEY].itertuples(index=False, name=None)
        for key, status, op in zip(keys, last["status"], last["op"], strict=True):
            if op == "D":
                self._status_of.pop(key, None)
            else:
                self._status_of[key] = status
        counts = pd.Series(self._status_of.values(), dtype="object").value_counts()
        return {str(status): int(count) for status, count in counts.items()}


def compare(actual: pa.Table, expected: pa.Table) -> Difference:
    """Compare two boards row for row and cell for cell; the order of rows does not matter."""
    actual = actual.select(BOARD_SCHEMA.names).cast(BOARD_SCHEMA)
    places = _keys_with_place(expected, "expected").merge(
        _keys_with_place(actual, "actual"), how="outer", on=KEY
    )
    missing = places[places["actual"].isna()]
    unexpected = places[places["expected"].isna()]
    repeated = places[places.duplicated(KEY)]
    lines = [
        *_describe_keys("missing", missing),
        *_describe_keys("unexpected", unexpected),
        *_describe_keys("more than once", repeated),
    ]
    both = places.dropna(subset=["expected", "actual"])
    cells, cell_lines = _compare_cells(
        expected.take(pa.array(both["expected"].astype("int64"))),
        actual.take(pa.array(both["actual"].astype("int64"))),
    )
    return Difference(len(missing), len(unexpected), len(repeated), cells, (*lines, *cell_lines))


def _keys_with_place(board: pa.Table, name: str) -> pd.DataFrame:
    keys: pd.DataFrame = board.select(KEY).to_pandas()
    return keys.assign(**{name: np.arange(len(keys))})


def _describe_keys(what: str, rows: pd.DataFrame) -> list[str]:
    if rows.empty:
        return []
    shown = rows[KEY].head(SHOWN_PER_KIND).itertuples(index=False, name=None)
    return [f"{len(rows):,} rows {what}, first ones:", *(f"  {key}" for key in shown)]


def _compare_cells(expected: pa.Table, actual: pa.Table) -> tuple[int, list[str]]:
    """Count the cells that differ between tables whose rows are aligned."""
    cells = 0
    lines: list[str] = []
    for name in BOARD_SCHEMA.names:
        differs = _differs(expected[name], actual[name])
        count = int(pc.sum(differs).as_py() or 0)
        if count == 0:
            continue
        cells += count
        lines.append(f"{count:,} cells differ in column {name}, first ones:")
        for place in pc.indices_nonzero(differs)[:SHOWN_PER_KIND].to_pylist():
            key = tuple(expected[part][place].as_py() for part in KEY)
            want, got = expected[name][place].as_py(), actual[name][place].as_py()
            lines.append(f"  {key}: expected {want!r}, found {got!r}")
    return cells, lines


def _differs(expected: pa.ChunkedArray, actual: pa.ChunkedArray) -> pa.ChunkedArray:
    # A plain comparison is null where either side is null, so nulls are compared separately.
    unequal_values = pc.fill_null(pc.not_equal(expected, actual), fill_value=False)
    return pc.or_(pc.xor(expected.is_null(), actual.is_null()), unequal_values)
