"""`update` and `merge` in tables that merge rows: columns that are assigned, and what is refused.

Owns: which columns such a call writes, when it reads the table, and one clear error for each
assignment that would be combined with the stored value. Does not own the clauses of a merge
elsewhere (test_ways_in), or how rows are merged (test_combining).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import lancemem

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import MakeTable

SCHEMA = pa.schema(
    [
        pa.field("k", pa.int64(), nullable=False),
        pa.field("ts", pa.int64()),
        pa.field("g", pa.string()),
        pa.field("v", pa.int64()),
        pa.field("w", pa.int64()),
        pa.field("total", pa.int64()),
        pa.field("last", pa.string()),
    ]
)
RULE: dict[str, Any] = {
    "merge_engine": "partial_update",
    "sequence_groups": {"ts": ["g"]},
    "aggregates": {"total": "sum", "last": "last_value"},
}
SUM: dict[str, Any] = {"merge_engine": "aggregation", "aggregates": {"v": "sum"}}
WAYS = pytest.mark.parametrize("flushed", [False, True])


def row(k: int, **values: object) -> dict[str, Any]:
    return dict.fromkeys(SCHEMA.names) | {"k": k} | values


def made(make_table: MakeTable, flushed: bool) -> lancemem.Table:
    """Give a table of three rows, whose totals are the sums of two puts."""
    table = make_table(SCHEMA, **RULE)
    first = {"ts": 10, "g": "a", "v": 1, "w": 1, "total": 5, "last": "x"}
    table.upsert([{"k": k, **first} for k in (1, 2)])
    table.upsert(pa.table({"k": [1, 2, 3], "total": [5, 5, 5]}))
    if flushed:
        table.compact(flush=True)
    return table


STORED = {"ts": 10, "g": "a", "v": 1, "w": 1, "total": 10, "last": "x"}


def rows(table: lancemem.Table) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.scan(order_by="k").to_table().to_pylist()
    return found


# --- updates ---


@WAYS
def test_an_update_writes_the_columns_that_change(make_table: MakeTable, flushed: bool) -> None:
    table = made(make_table, flushed)
    assert table.update({"v": "v + 10"}, where="k <= 2").num_rows == 2
    table.update(values={"w": None}, where="k = 2")
    expected = [row(1, **STORED | {"v": 11}), row(2, **STORED | {"v": 11, "w": None})]
    assert rows(table) == [*expected, row(3, total=5)]
    table.compact(flush=True)
    assert rows(table) == [*expected, row(3, total=5)]


def test_an_update_of_a_group_gives_it_whole(make_table: MakeTable) -> None:
    table = made(make_table, flushed=False)
    table.update({"ts": "ts + 1", "g": "upper(g)"}, where="k = 1")
    # A smaller sequence loses, as that of a put.
    table.update({"ts": "ts - 5", "g": "'late'"}, where="k = 2")
    assert [each["g"] for each in rows(table)] == ["A", "a", None]


# --- merges ---

SOURCE = pa.table({"k": [1, 2, 9], "v": [100, 200, 900], "w": [7, 7, 7], "op": ["U", "D", "I"]})


@WAYS
def test_a_merge_writes_the_columns_that_its_clauses_give(
    make_table: MakeTable, flushed: bool
) -> None:
    table = made(make_table, flushed)
    done = (
        table.merge(SOURCE)
        .when_matched_delete("source.op = 'D'")
        .when_matched_update({"v": "target.v + source.v"})
        .when_not_matched_insert({"k": "source.k", "w": "source.w", "total": "1", "last": "'new'"})
        .execute()
    )
    assert (done.num_rows_updated, done.num_rows_inserted, done.num_rows_deleted) == (1, 1, 1)
    # The update gives no total, and writes none: 10 stays 10.
    expected = [row(1, **STORED | {"v": 101}), row(3, total=5), row(9, w=7, total=1, last="new")]
    assert rows(table) == expected
    table.compact(flush=True)
    assert rows(table) == expected


def test_a_clause_of_all_columns_takes_those_of_the_source(make_table: MakeTable) -> None:
    table = made(make_table, flushed=False)
    merge = table.merge(SOURCE).when_matched_update_all("source.op = 'U'")
    merge.when_not_matched_insert_all().execute()
    expected = [row(1, **STORED | {"v": 100, "w": 7}), row(2, **STORED), row(3, total=5)]
    assert rows(table) == [*expected, row(9, v=900, w=7)]


VALUES = {"v": "source.v", "w": "source.w + 1"}
PUTS: dict[str, Callable[[Any], Any]] = {
    "all columns": lambda it: it.when_matched_update_all().when_not_matched_insert_all(),
    "the same values": lambda it: it.when_not_matched_insert(
        {"k": "source.k", **VALUES}
    ).when_matched_update(VALUES),
}


@pytest.mark.parametrize("puts", PUTS)
def test_a_merge_that_puts_each_row_reads_nothing(
    make_table: MakeTable, puts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(make_table, flushed=True)
    monkeypatch.delattr("lancemem.merge_rows.joined")
    done = PUTS[puts](table.merge(SOURCE.drop_columns(["op"]))).execute(txn=("loader", 1))
    assert (done.matched, done.num_rows_inserted) == (False, 3)
    w = 8 if puts == "the same values" else 7
    expected = [row(k, **STORED | {"v": k * 100, "w": w}) for k in (1, 2)]
    assert rows(table) == [*expected, row(3, total=5), row(9, v=900, w=w)]


READS: dict[str, Callable[[Any], Any]] = {
    "the target": lambda it: it.when_matched_update({"v": "target.v + 1"}).when_not_matched_insert(
        {"k": "source.k", "v": "target.v + 1"}
    ),
    "other values": lambda it: it.when_matched_update({"v": "1"}).when_not_matched_insert(
        {"k": "source.k", "v": "2"}
    ),
    "an update alone": lambda it: it.when_matched_update({"v": "1"}),
    "a condition": lambda it: it.when_matched_update(
        {"v": "1"}, "source.op = 'U'"
    ).when_not_matched_insert({"k": "source.k", "v": "1"}),
}


@pytest.mark.parametrize("reads", READS)
def test_a_merge_that_depends_on_stored_rows_reads_them(make_table: MakeTable, reads: str) -> None:
    table = made(make_table, flushed=False)
    assert READS[reads](table.merge(SOURCE)).execute().matched
    found = {each["k"]: each["v"] for each in rows(table)}
    inserted = {"the target": None, "other values": 2, "a condition": 1}
    assert found.get(9) == inserted.get(reads)
    assert (9 in found) == (reads in inserted)
    assert found[1] == (2 if reads == "the target" else 1)


def test_a_group_that_one_clause_leaves_out_stays(make_table: MakeTable) -> None:
    table = made(make_table, flushed=False)
    source = pa.table({"k": [1, 2, 3], "ts": [20, 20, 20], "op": ["g", "v", "v"]})
    (
        table.merge(source)
        .when_matched_update({"ts": "source.ts", "g": "'new'"}, "source.op = 'g'")
        .when_matched_update({"v": "5"})
        .execute()
    )
    assert rows(table) == [
        row(1, **STORED | {"ts": 20, "g": "new"}),
        row(2, **STORED | {"v": 5}),
        row(3, total=5, v=5),
    ]


# --- what is refused ---

REFUSED: dict[str, tuple[dict[str, Any], Callable[[Any], object], str]] = {
    "an update of a sum": (
        RULE,
        lambda it: it.update({"total": "total + 1"}),
        "column 'total' has the function 'sum'.*replace=True",
    ),
    "a value of a sum": (RULE, lambda it: it.update(values={"total": 1}), "'total'.*'sum'"),
    "a clause that assigns a sum": (
        RULE,
        lambda it: it.merge(SOURCE).when_matched_update({"total": "source.v"}),
        "'total'.*'sum'.*replace=True",
    ),
    "all columns of a source with a sum": (
        RULE,
        lambda it: it.merge(pa.table({"k": [1], "total": [1]})).when_matched_update_all(),
        "'total'.*'sum'.*replace=True",
    ),
    "a part of a group": (
        RULE,
        lambda it: it.update({"g": "'b'"}),
        "column 'g' is of the sequence group ts, g.*assign 'ts' too",
    ),
    "a clause with a part of a group": (
        RULE,
        lambda it: it.merge(SOURCE).when_matched_update({"ts": "7"}),
        "'ts' is of the sequence group ts, g.*assign 'g' too",
    ),
    "an insert with a part of a group": (
        RULE,
        lambda it: it.merge(SOURCE).when_not_matched_insert({"k": "source.k", "g": "'b'"}),
        "assign 'ts' too",
    ),
    "an update of an aggregation": (
        SUM,
        lambda it: it.update({"w": "1"}),
        r"merge_engine='aggregation'.*upsert\(rows, replace=True\)",
    ),
    "a merge into an aggregation": (
        SUM,
        lambda it: it.merge(SOURCE).when_matched_delete().execute(),
        r"merge_engine='aggregation'.*upsert\(rows, replace=True\)",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_would_be_combined_with_the_stored_value_is_refused(
    make_table: MakeTable, case: str
) -> None:
    rule, call, words = REFUSED[case]
    table = make_table(SCHEMA, **rule)
    table.upsert(pa.table({"k": [1], "v": [5], "w": [1]}))
    with pytest.raises(lancemem.InvalidInputError, match=words) as caught:
        call(table)
    assert table.uri in str(caught.value)
    assert rows(table) == [row(1, v=5, w=1)]
