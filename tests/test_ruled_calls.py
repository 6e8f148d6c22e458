"""Calls that a table with a merge rule refuses, because they would show or keep other rows.

Owns: one clear error for each such call, with nothing written. Does not own: which rules there are
(test_merge_rules), or which row a rule shows (test_merge_model).
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import lancemem
from tests.served_rows import assert_live_reads_alone_show

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import MakeTable

SCHEMA = pa.schema(
    [
        pa.field("k", pa.int64(), nullable=False),
        pa.field("ts", pa.int64()),
        pa.field("v", pa.int64()),
    ]
)
FIRST_ROW: dict[str, Any] = {"merge_engine": "first_row"}
SEQUENCE: dict[str, Any] = {"sequence_by": "ts"}
FORGETFUL: dict[str, Any] = {"sequence_by": "ts", "delete_retention": timedelta(0)}
RULES = [FIRST_ROW, SEQUENCE, FORGETFUL]
PARTIAL: dict[str, Any] = {"merge_engine": "partial_update"}
SUM: dict[str, Any] = {"merge_engine": "aggregation", "aggregates": {"v": "sum"}}
ALL_RULES = [*RULES, PARTIAL, SUM]


def row(k: int, ts: int, v: int) -> pa.Table:
    return pa.table({"k": [k], "ts": [ts], "v": [v]}, schema=SCHEMA)


def values(table: lancemem.Table) -> dict[int, int]:
    return {each["k"]: each["v"] for each in table.scan().to_table().to_pylist()}


# --- first_row: what changes a stored row would be hidden by it ---

CHANGES: dict[str, Callable[[lancemem.Table], object]] = {
    "an update": lambda table: table.update({"v": "v + 1"}),
    "an update of values": lambda table: table.update(values={"v": 9}, where="k = 1"),
    "a merge": lambda table: table.merge(row(1, 1, 9)).when_matched_update_all().execute(),
}


@pytest.mark.parametrize("call", CHANGES)
@pytest.mark.parametrize("flushed", [False, True])
def test_the_first_row_of_a_key_is_never_updated(
    make_table: MakeTable, call: str, flushed: bool
) -> None:
    table = make_table(SCHEMA, **FIRST_ROW)
    table.upsert(row(1, 1, 5))
    if flushed:
        table.flush()
        table.compact()
    with pytest.raises(lancemem.InvalidInputError, match="merge_engine='first_row'") as caught:
        CHANGES[call](table)
    assert table.uri in str(caught.value)
    assert "delete the keys and upsert" in str(caught.value)
    assert values(table) == {1: 5}
    # The way that the error names.
    table.delete([1])
    table.upsert(row(1, 1, 9))
    assert values(table) == {1: 9}


def test_updates_and_merges_of_sequenced_rows_work(make_table: MakeTable) -> None:
    table = make_table(SCHEMA, **SEQUENCE)
    table.upsert(row(1, 10, 5))
    table.flush()
    assert table.update({"v": "v + 1"}).num_rows == 1
    assert values(table) == {1: 6}
    # A merge writes events too: one with a smaller sequence loses.
    for ts, expected in ((20, 7), (15, 7)):
        source = row(1, ts, ts - 13)
        table.merge(source).when_matched_update_all().execute()
        assert values(table) == {1: expected}


@pytest.mark.parametrize("inserts", [False, True])
def test_a_merge_deletes_with_the_sequence_of_the_row_that_it_removes(
    make_table: MakeTable, inserts: bool
) -> None:
    table = make_table(SCHEMA, **SEQUENCE)
    table.upsert(row(1, 10, 5))
    table.upsert(row(2, 10, 5))
    merge = table.merge(pa.concat_tables([row(1, 3, 0), row(4, 3, 4)]))
    merge = merge.when_matched_delete("source.v = 0")
    done = (merge.when_not_matched_insert_all() if inserts else merge).execute()
    assert done.num_rows_deleted == 1
    left = {2: 5, 4: 4} if inserts else {2: 5}
    assert values(table) == left
    table.compact(flush=True)
    table.upsert(row(1, 9, 7))
    assert values(table) == left
    table.upsert(row(1, 11, 8))
    assert values(table) == {1: 8, **left}


# --- rows that are compared by age alone ---


@pytest.mark.parametrize("rule", ALL_RULES)
def test_changes_of_flushes_are_refused(
    make_table: MakeTable, table_uri: str, rule: dict[str, Any]
) -> None:
    table = make_table(SCHEMA, **rule)
    calls: list[Callable[[], object]] = [
        lambda: table.alter(changelog="flushed"),
        lambda: table.alter(deletion_vectors=True, changelog="flushed"),
        lambda: lancemem.create_table(
            table_uri, SCHEMA, primary_key="k", changelog="flushed", **rule
        ),
    ]
    for call in calls:
        with pytest.raises(lancemem.InvalidInputError, match=r"changes of flushes|deletion-vector"):
            call()
    assert table.changelog is None
    with pytest.raises(lancemem.LancememError):
        lancemem.open_table(table_uri)


def test_stored_changes_have_no_late_row(make_table: MakeTable) -> None:
    table = make_table(SCHEMA, **FORGETFUL)
    table.alter(changelog="stored")
    table.upsert(pa.concat_tables([row(1, 10, 1), row(2, 10, 1)]))
    table.flush()
    table.compact()
    since = table.changes(since=None).until
    table.upsert(pa.concat_tables([row(1, 5, 9), row(2, 20, 2)]))
    table.flush()
    table.compact()
    changes = table.changes(since=since).to_reader().read_all().to_pylist()
    found = sorted((each["_change_type"], each["k"], each["v"]) for each in changes)
    assert found == [("update_postimage", 2, 2), ("update_preimage", 2, 1)]


# --- deletes with a sequence ---


def test_a_delete_of_each_call_is_remembered(make_table: MakeTable) -> None:
    calls: list[Callable[[lancemem.Table], object]] = [
        lambda table: table.delete(pa.table({"k": [1], "ts": [20]})),
        lambda table: table.apply(row(1, 20, 0), pa.array([True])),
    ]
    for call in calls:
        table = make_table(SCHEMA, **SEQUENCE)
        table.upsert(row(1, 10, 1))
        call(table)
        table.flush()
        table.compact()
        table.upsert(row(1, 15, 2))
        assert values(table) == {}
        table.delete([1])
        table.upsert(row(1, 5, 3))
        assert values(table) == {1: 3}


def test_a_delete_with_a_part_of_its_sequence_is_refused(make_table: MakeTable) -> None:
    table = make_table(SCHEMA, sequence_by=["ts", "v"], delete_retention=timedelta(0))
    table.upsert(row(1, 10, 1))
    with pytest.raises(lancemem.InvalidInputError, match="sequence_by"):
        table.delete(pa.table({"k": [1], "ts": [20]}))
    assert values(table) == {1: 1}


# --- rows of memory alone ---


@pytest.mark.parametrize("rule", RULES)
def test_a_served_job_gives_its_rows_to_live_reads_alone(
    make_table: MakeTable, rule: dict[str, Any]
) -> None:
    table = make_table(SCHEMA, **rule)
    table.upsert(row(1, 10, 1))
    puts = pa.concat_tables([row(1, 5, 2), row(2, 5, 2), row(2, 3, 3)])
    assert_live_reads_alone_show(table, "v", puts, {1: 1, 2: 2})
