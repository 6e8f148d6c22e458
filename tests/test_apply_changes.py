"""`Table.apply_changes`: the rows of a feed, and of other change streams, into a table.

Owns: which operation does what, also in tables with a merge rule, the order of changes, and what is
refused before a row is written. Not here: what a feed consists of (test_changes).
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import lancemem

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import MakeTable


def rows(ids: list[int], value: float) -> pa.Table:
    columns = {"id": ids, "name": [f"n{key}" for key in ids], "value": [value] * len(ids)}
    return pa.table(columns)


def stored(table: lancemem.Table) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.scan().to_table().to_pylist()
    return sorted(found, key=lambda row: int(row["id"]))


def test_a_mirror_takes_feeds_as_they_are_and_a_repeated_one_once(make_table: MakeTable) -> None:
    table, mirror = make_table(), make_table()
    for number in range(3):
        table.upsert(rows([number, 10, 20 + number], float(number)))
        if number:
            table.delete([number - 1])
        table.compact(flush=True)
    first = table.changes(0, table.changes(0).versions[0].version)
    mirror.apply_changes(first, txn=("mirror", first.until))
    rest = table.changes(first.until)
    # Several versions at once: the newest change of a key wins, whatever the order of the rows.
    shuffled = rest.to_table().take(list(reversed(range(rest.counts.num_rows))))
    mirror.apply_changes(shuffled, txn=("mirror", rest.until))
    assert stored(mirror) == stored(table)
    again = mirror.apply_changes(shuffled, txn=("mirror", rest.until))
    assert again.num_shards_already_written == 1
    flink = table.changes(first.until, row_kinds="flink")
    mirror.apply_changes(flink)
    assert stored(mirror) == stored(table)


def test_columns_of_other_streams_are_named_and_rows_without_a_sequence_keep_their_order(
    make_table: MakeTable,
) -> None:
    table = make_table()
    changes = rows([1, 1, 2, 2], 1.0).append_column("op", pa.array(["I", "D", "D", "u"]))
    table.apply_changes(changes, op_column="op")
    assert [row["id"] for row in stored(table)] == [2]
    late = changes.append_column("lsn", pa.array([9, 1, 9, None], pa.int64()))
    table.apply_changes(late, op_column="op", sequence_by="lsn")
    assert [row["id"] for row in stored(table)] == [1]
    table.apply_changes(late.slice(0, 0), op_column="op", sequence_by="lsn")
    assert [row["id"] for row in stored(table)] == [1]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda given: given.drop_columns(["op"]), "no column 'op'"),
        (lambda given: given.drop_columns(["value"]), "no column 'value'"),
        (lambda given: given.append_column("more", pa.array([1, 2])), "'more'.* not in the table"),
        (
            lambda given: given.set_column(3, "op", pa.array(["U", "truncate"])),
            "'truncate', which is no operation",
        ),
    ],
)
def test_bad_changes_are_refused_before_a_row_is_written(
    table: lancemem.Table, change: Callable[[pa.Table], pa.Table], told: str
) -> None:
    given = rows([1, 2], 1.0).append_column("op", pa.array(["U", "U"]))
    with pytest.raises(lancemem.InvalidInputError, match=told):
        table.apply_changes(change(given), op_column="op")
    assert stored(table) == []
    assert table.shards()[0].writer_epoch == 0


def test_a_table_without_a_key_takes_no_changes(make_table: MakeTable) -> None:
    table = make_table(primary_key=[])
    with pytest.raises(lancemem.InvalidInputError, match="needs a primary key"):
        table.apply_changes(rows([1], 1.0), op_column="op")


# --- tables with a merge rule ---

PRICES = pa.schema(
    [pa.field("k", pa.int64(), nullable=False), ("ts", pa.int64()), ("v", pa.int64())]
)


def change(op: str, k: int, ts: int | None, v: int | None) -> dict[str, Any]:
    return {"op": op, "k": k, "ts": ts, "v": v}


def values(table: lancemem.Table) -> dict[int, int]:
    return {row["k"]: row["v"] for row in table.scan().to_table().to_pylist()}


@pytest.mark.parametrize("flushed", [False, True])
def test_a_delete_among_changes_has_the_sequence_of_its_row(
    make_table: MakeTable, flushed: bool
) -> None:
    table = make_table(PRICES, sequence_by="ts", delete_retention=timedelta(0))
    table.apply_changes([change("I", 1, 20, 1), change("I", 2, 20, 1)], op_column="op")
    if flushed:
        table.flush()
    # A late delete loses, whatever call brings it, and a late row loses against a delete.
    table.apply_changes([change("D", 1, 10, None), change("D", 2, 30, None)], op_column="op")
    table.apply_changes([change("U", 2, 25, 9)], op_column="op")
    assert values(table) == {1: 1}
    table.apply_changes([change("U", 2, 40, 7)], op_column="op")
    assert values(table) == {1: 1, 2: 7}


def test_a_delete_among_changes_needs_its_sequence(make_table: MakeTable) -> None:
    table = make_table(PRICES, sequence_by="ts", delete_retention=timedelta(0))
    bad = [change("I", 1, 20, 1), change("D", 2, None, None)]
    with pytest.raises(lancemem.InvalidInputError, match="'ts' is null in row 1"):
        table.apply_changes(bad, op_column="op")
    assert values(table) == {}


TOTALS = pa.schema(
    [pa.field("k", pa.int64(), nullable=False), ("v", pa.int64()), ("n", pa.int64())]
)
RULE: dict[str, Any] = {"merge_engine": "aggregation", "aggregates": {"v": "sum", "n": "count"}}


def test_sums_follow_the_rows_of_a_feed(make_table: MakeTable) -> None:
    """Each product moves between categories; the totals of a category are those of its rows."""
    products = make_table(pa.schema([("sku", pa.int64()), ("k", pa.int64()), ("v", pa.int64())]))
    totals = make_table(TOTALS, ["k"], **RULE, deletes="retract")
    since = 0
    for number in range(4):
        skus = range(6 + number)
        products.upsert([{"sku": n, "k": (n + number) % 3, "v": n * number + 1} for n in skus])
        products.delete([number])
        products.compact(flush=True)
        feed = products.changes(since)
        changes = feed.to_table().drop_columns(["sku"])
        totals.apply_changes(changes, txn=("totals", feed.until))
        # A repeated read of the feed changes nothing.
        totals.apply_changes(changes, txn=("totals", feed.until))
        since = feed.until
        expected: dict[int, list[int]] = {}
        for row in products.scan().to_table().to_pylist():
            total = expected.setdefault(row["k"], [0, 0])
            total[0], total[1] = total[0] + row["v"], total[1] + 1
        found = {row["k"]: [row["v"], row["n"]] for row in totals.scan().to_table().to_pylist()}
        assert {k: total for k, total in found.items() if total != [0, 0]} == expected


@pytest.mark.parametrize("names", ["flink", "delta"])
def test_rows_before_an_update_are_taken_back(make_table: MakeTable, names: str) -> None:
    table = make_table(TOTALS, **RULE, deletes="retract")
    old, new = {"flink": ("-U", "+U"), "delta": ("update_preimage", "update_postimage")}[names]
    ops = ["I", "I", old, new, "D"]
    changes = pa.table({"op": ops, "k": [1, 1, 1, 1, 1], "v": [5, 7, 5, 50, 7]})
    table.apply_changes(changes, op_column="op")
    assert table.get([1]).to_pylist() == [{"k": 1, "v": 50, "n": 1}]


@pytest.mark.parametrize("deletes", ["remove", "ignore", "refuse"])
def test_changes_are_no_input_of_sums_that_take_nothing_back(
    make_table: MakeTable, deletes: str
) -> None:
    table = make_table(TOTALS, **RULE, deletes=deletes)
    changes = pa.table({"op": ["U"], "k": [1], "v": [5]})
    with pytest.raises(lancemem.InvalidInputError, match=r"would add each image.*'retract'"):
        table.apply_changes(changes, op_column="op")
    assert table.count_rows() == 0


def test_changes_of_some_columns_leave_the_others(make_table: MakeTable) -> None:
    table = make_table(PRICES, merge_engine="partial_update")
    table.upsert([{"k": k, "ts": 1, "v": 1} for k in range(3)])
    changes = pa.table({"op": ["U", "-U", "D", "I"], "k": [0, 1, 2, 3], "v": [9, 8, None, 7]})
    table.apply_changes(changes, op_column="op")
    found = sorted(tuple(row.values()) for row in table.scan().to_table().to_pylist())
    assert found == [(0, 1, 9), (1, 1, 1), (3, None, 7)]
