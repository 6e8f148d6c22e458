"""Random programs of tables whose rule makes a row of several events, against a fold in Python.

Owns: that every level of consistency, projection, filter, look-up and count shows what a plain fold
over the events of each key gives, and that the feed of changes leads from version to version.
Not here: rules that choose (test_merge_model), what a rule refuses (test_combining), each function
by itself (the core's tests).
"""

from __future__ import annotations

from typing import Any, ClassVar

import pyarrow as pa
import pytest
from hypothesis import strategies as st

from tests.rule_machine import (
    KEYS,
    Event,
    Row,
    RuleMachine,
    Step,
    run_programs,
    steps_of_every_rule,
)

SCHEMA = pa.schema(
    [
        pa.field("a", pa.int64()),
        pa.field("k", pa.int64(), nullable=False),
        pa.field("s", pa.string()),
        pa.field("ts", pa.int64()),
        pa.field("g", pa.string()),
        pa.field("h", pa.int32()),
        pa.field("total", pa.int64()),
        pa.field("top", pa.float64()),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("n", pa.int64()),
    ]
)
GROUP = ["ts", "g", "h"]
LONGEST = "tests.merge_functions:longest"
FUNCTIONS = {"total": "sum", "top": "max", "tags": "collect", "n": "count"}
RULES: dict[str, dict[str, Any]] = {
    "columns alone": {"merge_engine": "partial_update"},
    "a group": {"merge_engine": "partial_update", "sequence_groups": {"ts": ["g", "h"]}},
    "a group and functions": {
        "merge_engine": "partial_update",
        "sequence_groups": {"ts": ["g", "h"]},
        "aggregates": FUNCTIONS,
    },
    "deletes that do nothing": {"merge_engine": "partial_update", "deletes": "ignore"},
    "functions": {"merge_engine": "aggregation", "aggregates": FUNCTIONS},
    "functions of users": {
        "merge_engine": "aggregation",
        "aggregates": FUNCTIONS,
        "merge_functions": {"s": LONGEST},
    },
}


# --- the model: a fold over the events of a key, from the first to the last ---


def merged(events: list[Event], rule: dict[str, Any]) -> Row | None:
    """The row of a key after its events, oldest first."""
    row: Row | None = None
    for kind, given_row in events:
        if kind == "base":
            row = dict(given_row)
        elif kind == "delete":
            row = row if rule.get("deletes") == "ignore" else None
        elif kind == "replace" or row is None:
            row = first(given_row, rule, whole=kind == "replace")
        else:
            add(row, given_row, rule, keeps=kind == "keep")
    return row


def first(given_row: Row, rule: dict[str, Any], *, whole: bool) -> Row:
    row = {name: given_row.get(name) for name in SCHEMA.names}
    if "n" in rule.get("aggregates", {}):
        row["n"] = 1
    if not whole and "sequence_groups" in rule and given_row.get("ts") is None:
        row.update(dict.fromkeys(GROUP))
    return row


def add(row: Row, given_row: Row, rule: dict[str, Any], *, keeps: bool) -> None:
    functions = rule.get("aggregates", {}) | rule.get("merge_functions", {})
    for name, value in given_row.items():
        if name == "k" or (name in GROUP and "sequence_groups" in rule):
            continue
        if name in functions:
            row[name] = combined(functions[name], row[name], value)
        elif rule["merge_engine"] == "aggregation" or keeps:
            row[name] = row[name] if value is None else value
        else:
            row[name] = value
    if "n" in functions:
        row["n"] = (row["n"] or 0) + 1
    ts = given_row.get("ts")
    if "sequence_groups" in rule and ts is not None and (row["ts"] is None or ts >= row["ts"]):
        row.update({name: given_row[name] for name in GROUP})


def combined(function: str, older: Any, newer: Any) -> Any:  # noqa: ANN401 - of any column
    if older is None or newer is None:
        return newer if older is None else older
    if function == LONGEST:
        return newer if len(newer) > len(older) else older
    return max(older, newer) if function == "max" else older + newer


class _Machine(RuleMachine):
    schema = SCHEMA
    # Columns without the sequence of their group (paimon #10134).
    narrow: ClassVar = [["h", "k"], ["total"], ["tags", "g"]]
    looked_up = "h"
    filters: ClassVar = [
        ("a > 1", lambda row: row["a"] is not None and row["a"] > 1),
        ("total = 3", lambda row: row["total"] == 3),
        ("g IS NULL", lambda row: row["g"] is None),
        ("k = 1", lambda row: row["k"] == 1),
        ("k > 1 AND h = 1", lambda row: row["k"] > 1 and row["h"] == 1),
    ]

    def fold(self, life: list[Event]) -> Row | None:
        return merged(life, self.rule)

    def writable(self, columns: list[str]) -> list[str]:
        """These columns as a put can give them: whole groups, and no count."""
        if self.rule["merge_engine"] == "partial_update" and "sequence_groups" in self.rule:
            is_given = any(name in GROUP for name in columns)
            columns = [name for name in columns if name not in GROUP] + GROUP * is_given
        counts = "n" in self.rule.get("aggregates", {})
        return ["k", *(name for name in columns if name != "k" and not (counts and name == "n"))]

    def rows_of(self, events: list[Event], columns: list[str]) -> pa.Table:
        schema = pa.schema([SCHEMA.field(name) for name in columns])
        rows = [{name: row[name] for name in columns} for _, row in events]
        return pa.Table.from_pylist(rows, schema=schema)

    def only(self, rows: list[Row], columns: list[str]) -> list[Row]:
        return [{name: row[name] for name in columns} for row in rows]

    # --- steps ---

    def put(self, rows: list[Row], columns: list[str], keeps: bool) -> None:
        columns = self.writable(columns)
        keeps = keeps and self.rule["merge_engine"] == "partial_update"
        kind = "keep" if keeps else "put"
        for job, events in self.each_shard([(kind, row) for row in self.only(rows, columns)]):
            job.put(self.rows_of(events, columns), nulls="keep" if keeps else None)

    def replace(self, rows: list[Row]) -> None:
        columns = self.writable(SCHEMA.names)
        for job, events in self.each_shard([("replace", row) for row in self.only(rows, columns)]):
            job.put(self.rows_of(events, columns), replace=True)

    def delete(self, keys: list[int]) -> None:
        for job, events in self.each_shard([("delete", {"k": key}) for key in keys]):
            job.delete([row["k"] for _, row in events])

    def apply(self, rows: list[Row], columns: list[str], deletes: list[bool]) -> None:
        columns = self.writable(columns)
        events: list[Event] = []
        for row, deletes_it in zip(self.only(rows, columns), deletes, strict=False):
            events.append(("delete" if deletes_it else "put", row))
        for job, mine in self.each_shard(events):
            mask = pa.array([kind == "delete" for kind, _ in mine])
            job.apply(self.rows_of(mine, columns), mask)

    def upsert(self, rows: list[Row], columns: list[str]) -> None:
        """A call on the table, which goes through the jobs."""
        columns = self.writable(columns)
        events: list[Event] = [("put", row) for row in self.only(rows, columns)]
        self.each_shard(events)
        self.table.upsert(self.rows_of(events, columns))

    def bulk(self, rows: list[Row], columns: list[str]) -> None:
        columns = self.writable(columns)
        events: list[Event] = [("put", row) for row in self.only(rows, columns)]
        self.commit_bulk(events, self.rows_of(events, columns))


def rows() -> st.SearchStrategy[list[Row]]:
    row = st.fixed_dictionaries(
        {
            "a": st.none() | st.integers(0, 3),
            "k": st.sampled_from(KEYS),
            "s": st.none() | st.sampled_from(["", "a", "a\x00"]),
            "ts": st.none() | st.integers(0, 3),
            "g": st.none() | st.sampled_from(["x", "y"]),
            "h": st.none() | st.integers(-1, 2),
            "total": st.none() | st.integers(-1, 3),
            "top": st.none() | st.sampled_from([0.5, 1.5, -2.0]),
            "tags": st.none() | st.lists(st.sampled_from(["p", "q"]), max_size=2),
            "n": st.none() | st.integers(0, 2),
        }
    )
    return st.lists(row, min_size=1, max_size=6)


def steps() -> list[st.SearchStrategy[Step]]:
    keys = st.lists(st.sampled_from(KEYS), min_size=1, max_size=3)
    columns = st.lists(st.sampled_from(SCHEMA.names), max_size=6, unique=True)
    deletes = st.lists(st.booleans(), min_size=6, max_size=6)
    put = st.tuples(st.just("put"), rows(), columns, st.booleans())
    return [
        put,
        put,
        st.tuples(st.just("upsert"), rows(), columns),
        st.tuples(st.just("replace"), rows()),
        st.tuples(st.just("delete"), keys),
        st.tuples(st.just("apply"), rows(), columns, deletes),
        st.tuples(st.just("bulk"), rows(), columns),
        *steps_of_every_rule(),
    ]


@pytest.mark.parametrize("name", RULES)
def test_a_table_that_merges_events_agrees_with_a_fold_after_any_program(name: str) -> None:
    run_programs(lambda folder: _Machine(folder, RULES[name]), steps())
