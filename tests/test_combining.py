"""Tables whose rule makes a row of several events: public bugs of other systems, and refusals.

Owns: one story for each bug by name, and one clear error for each call that such a table refuses.
Does not own: random programs (test_combining_model), rules as options (test_merge_rules).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import pyarrow as pa
import pytest

import lancemem
from tests.served_rows import assert_live_reads_alone_show

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import MakeTable

Mode: TypeAlias = Literal["auto", "link", "rewrite"]

SCHEMA = pa.schema(
    [
        pa.field("k", pa.int64(), nullable=False),
        pa.field("ts", pa.int64()),
        pa.field("g", pa.string()),
        pa.field("v", pa.int64()),
        pa.field("w", pa.int64()),
    ]
)
PARTIAL: dict[str, Any] = {
    "merge_engine": "partial_update",
    "sequence_groups": {"ts": ["g"]},
}
SUM: dict[str, Any] = {"merge_engine": "aggregation", "aggregates": {"v": "sum", "w": "max"}}


def rows(table: lancemem.Table, text: str | None = None) -> list[dict[str, Any]]:
    found = table.scan(filter=text).to_table().to_pylist()
    return sorted(found, key=lambda row: str(row["k"]))


def row(k: int, **values: object) -> dict[str, Any]:
    return {"k": k, "ts": None, "g": None, "v": None, "w": None} | values


def put(table: lancemem.Table, k: int, **values: object) -> None:
    columns = {"k": pa.array([k])}
    for name, value in values.items():
        columns[name] = pa.array([value], type=SCHEMA.field(name).type)
    table.upsert(pa.table(columns))


def compact(table: lancemem.Table, mode: Mode = "auto") -> lancemem.CompactionResult:
    table.flush()
    return table.compact(mode=mode)


# --- public bugs of other systems ---


def test_paimon_4065_a_filter_never_meets_a_part_of_a_sum(make_table: MakeTable) -> None:
    table = make_table(SCHEMA, **SUM)
    for value in (1, 2):
        put(table, 1, v=value)
        table.flush()
    for text, expected in (("v = 3", [3]), ("v = 1", []), ("v = 2", [])):
        found = table.scan(["v"], filter=text)
        assert [row["v"] for row in found.to_table().to_pylist()] == expected
        assert found.count_rows() == len(expected)
    compact(table)
    put(table, 1, v=4)
    assert rows(table, "v = 3") == []
    assert rows(table, "v = 7") == [row(1, v=7)]


def test_paimon_10134_a_group_is_right_without_its_sequence_in_the_projection(
    make_table: MakeTable,
) -> None:
    table = make_table(SCHEMA, **PARTIAL)
    put(table, 1, ts=20, g="new")
    table.flush()
    put(table, 1, ts=10, g="old")
    assert table.scan(["g"]).to_table().to_pylist() == [{"g": "new"}]
    assert table.get([1], ["g"]).to_pylist() == [{"g": "new"}]


def test_hudi_12971_a_key_that_is_deleted_and_put_again_starts_from_nothing(
    make_table: MakeTable,
) -> None:
    table = make_table(SCHEMA, **PARTIAL)
    put(table, 1, v=1, w=1)
    table.flush()
    table.delete([1])
    put(table, 1, w=2)
    assert rows(table) == [row(1, w=2)]
    table.flush()
    assert rows(table) == [row(1, w=2)]
    compact(table)
    assert rows(table) == [row(1, w=2)]


def test_hudi_11726_10091_a_null_is_a_value_or_is_not_given_as_the_call_says(
    make_table: MakeTable,
) -> None:
    table = make_table(SCHEMA, **PARTIAL)
    put(table, 1, v=1, w=1)
    compact(table)
    table.upsert(pa.table({"k": [1], "v": pa.nulls(1, pa.int64()), "w": [5]}), nulls="keep")
    assert rows(table) == [row(1, v=1, w=5)]
    put(table, 1, v=None)
    assert rows(table) == [row(1, w=5)]


@pytest.mark.parametrize("rule", [PARTIAL, SUM])
@pytest.mark.parametrize("deletes", ["remove", "ignore", "refuse"])
def test_paimon_8858_4247_6718_a_delete_does_what_the_table_says(
    make_table: MakeTable, rule: dict[str, Any], deletes: str
) -> None:
    table = make_table(SCHEMA, **rule, deletes=deletes)
    put(table, 1, v=1)
    if deletes == "refuse":
        with pytest.raises(lancemem.InvalidInputError, match="deletes='refuse'"):
            table.delete([1])
    else:
        table.delete([1])
    expected = [] if deletes == "remove" else [row(1, v=1)]
    assert rows(table) == expected
    table.flush()
    compact(table)
    assert rows(table) == expected


def test_paimon_4588_a_delete_stays_after_the_flush_of_another_writer(
    make_table: MakeTable,
) -> None:
    table = make_table(SCHEMA, **PARTIAL)
    put(table, 1, v=1)
    compact(table)
    table.delete([1])
    with table.start_job() as job:
        job.put(pa.table({"k": [2], "v": [2]}))
        job.flush()
    compact(table)
    assert rows(table) == [row(2, v=2)]


def test_paimon_9666_a_batch_that_is_written_again_counts_once(make_table: MakeTable) -> None:
    table = make_table(SCHEMA, **SUM)
    data = pa.table({"k": [1], "v": [10]})
    for _ in range(2):
        table.upsert(data, txn=("stream", 1))
    table.flush()
    table.upsert(data, txn=("stream", 1))
    assert rows(table) == [row(1, v=10)]


@pytest.mark.parametrize("mode", ["auto", "link", "rewrite"])
def test_a_compaction_writes_each_merged_row_once(make_table: MakeTable, mode: Mode) -> None:
    table = make_table(SCHEMA, **SUM)
    table.upsert(pa.table({"k": list(range(100)), "v": [1] * 100}))
    table.flush()
    compact(table)
    table.upsert(pa.table({"k": [3, 4, 200], "v": [10, 20, 30]}))
    table.flush()
    put(table, 4, w=7)
    table.flush()
    result = compact(table, mode=mode)
    assert result.num_rows_deleted == 2
    assert table.count_rows() == 101
    found = {each["k"]: each for each in rows(table)}
    assert (found[3]["v"], found[4]["v"], found[4]["w"], found[200]["v"]) == (11, 21, 7, 30)
    lance = pytest.importorskip("lance")
    assert lance.dataset(table.uri).count_rows() == 101


def test_the_changes_of_a_compaction_have_the_merged_row(make_table: MakeTable) -> None:
    table = make_table(SCHEMA, **SUM)
    put(table, 1, v=1)
    compact(table)
    before = table.changes(since=None, until=None).until
    put(table, 1, v=2)
    compact(table)
    changes = table.changes(since=before).to_reader().read_all().to_pylist()
    images = sorted((change["_change_type"], change["v"]) for change in changes)
    assert images == [("update_postimage", 3), ("update_preimage", 1)]


def test_columns_that_are_added_and_dropped_keep_what_was_given(make_table: MakeTable) -> None:
    lance = pytest.importorskip("lance")
    table = make_table(SCHEMA, **PARTIAL)
    put(table, 1, v=1, w=2)
    table.flush()
    put(table, 1, w=3)
    lance.dataset(table.uri).add_columns(pa.field("x", pa.int64()))
    lance.dataset(table.uri).drop_columns(["v"])
    table.refresh()
    assert rows(table) == [{"k": 1, "ts": None, "g": None, "w": 3, "x": None}]
    table.upsert(pa.table({"k": [1], "x": [9]}))
    assert rows(table) == [{"k": 1, "ts": None, "g": None, "w": 3, "x": 9}]
    table.flush()
    compact(table)
    assert rows(table) == [{"k": 1, "ts": None, "g": None, "w": 3, "x": 9}]


def test_a_search_finds_merged_rows(make_table: MakeTable) -> None:
    schema = pa.schema(
        [
            pa.field("k", pa.int64(), nullable=False),
            pa.field("v", pa.list_(pa.float32(), 2)),
            pa.field("text", pa.string()),
        ]
    )
    table = make_table(schema, merge_engine="partial_update")
    vectors = pa.array([[1.0, 0.0], [5.0, 0.0]], type=pa.list_(pa.float32(), 2))
    table.upsert(pa.table({"k": [1, 2], "v": vectors}))
    table.flush()
    compact(table)
    table.upsert(pa.table({"k": [1, 2], "text": ["near", "far"]}))
    found = table.search([1.0, 0.0], column="v", k=2).to_table().to_pylist()
    assert [(each["k"], each["text"]) for each in found] == [(1, "near"), (2, "far")]


def test_a_served_job_gives_its_events_to_live_reads(make_table: MakeTable) -> None:
    table = make_table(SCHEMA, **SUM)
    put(table, 1, v=1)
    compact(table)
    puts = pa.table({"k": [1, 2, 2], "v": [5, 2, 3]})
    assert_live_reads_alone_show(table, "v", puts, {1: 6, 2: 5})


def test_a_snapshot_keeps_its_merged_rows(make_table: MakeTable) -> None:
    table = make_table(SCHEMA, **SUM)
    put(table, 1, v=1)
    table.flush()
    put(table, 1, v=2)
    snapshot = table.snapshot()
    put(table, 1, v=4)
    compact(table)
    assert snapshot.scan(["v"]).to_table().to_pylist() == [{"v": 3}]
    assert snapshot.get([1], ["v"]).to_pylist() == [{"v": 3}]
    assert table.sql("SELECT sum(v) AS v FROM t").to_table().to_pylist() == [{"v": 7}]


def test_pylance_reads_the_base_and_refuses_the_rows_above_it(make_table: MakeTable) -> None:
    lance = pytest.importorskip("lance")
    table = make_table(SCHEMA, **PARTIAL)
    put(table, 1, v=1)
    compact(table)
    put(table, 1, w=2)
    table.flush()
    assert lance.dataset(table.uri).to_table().to_pylist() == [row(1, v=1)]
    shard = table.shards()[0].shard_id
    with pytest.raises(Exception, match="at most one sharding spec, found 2"):
        lance.dataset(table.uri).mem_wal_writer(shard)
    compact(table)
    assert lance.dataset(table.uri).to_table().to_pylist() == [row(1, v=1, w=2)]


# --- refusals ---

REFUSED: dict[str, tuple[Callable[[lancemem.Table], object], str]] = {
    "the changes of flushes": (
        lambda table: table.alter(deletion_vectors=True, changelog="flushed"),
        "merge_engine",
    ),
    "the feed of events": (lambda table: table.changes(level="input"), 'level "input"'),
    "an unknown column": (lambda table: table.upsert(pa.table({"k": [1], "z": [2]})), "'z'"),
    "a put without a key": (lambda table: table.upsert(pa.table({"v": [1]})), "'k'"),
    "a null key": (
        lambda table: table.upsert(pa.table({"k": pa.nulls(1, pa.int64()), "v": [1]})),
        "null in row 0",
    ),
    "another policy of nulls": (
        lambda table: table.upsert(pa.table({"k": [1]}), nulls="never"),  # type: ignore[arg-type]
        "'set' or 'keep'",
    ),
    "a replace of some columns": (
        lambda table: table.upsert(pa.table({"k": [1], "v": [1]}), replace=True),
        "is missing in a replace",
    ),
}


@pytest.mark.parametrize("rule", [PARTIAL, SUM])
@pytest.mark.parametrize("call", REFUSED)
def test_what_such_a_table_cannot_do_is_refused_before_anything_is_written(
    make_table: MakeTable, call: str, rule: dict[str, Any]
) -> None:
    table = make_table(SCHEMA, **rule)
    put(table, 1, v=1)
    refused, found = REFUSED[call]
    with pytest.raises(lancemem.InvalidInputError, match=found):
        refused(table)
    assert rows(table) == [row(1, v=1)]


def test_a_put_gives_a_group_whole_or_not_at_all(make_table: MakeTable) -> None:
    table = make_table(SCHEMA, **PARTIAL)
    with pytest.raises(lancemem.InvalidInputError, match="all columns of a sequence group"):
        put(table, 1, g="a")
    put(table, 1, ts=None, g="a", v=1)
    assert rows(table) == [row(1, v=1)]


def test_nulls_are_kept_by_partial_updates_alone(make_table: MakeTable) -> None:
    for rule in (SUM, {}, {"merge_engine": "first_row"}):
        table = make_table(SCHEMA, **rule)
        whole = pa.table({name: pa.array([1]) for name in ("k", "ts", "v", "w")})
        with pytest.raises(lancemem.InvalidInputError, match="nulls='keep'"):
            table.upsert(whole.append_column("g", pa.array(["a"])), nulls="keep")
        assert rows(table) == []


# --- rows that are taken back ---

TOTALS = pa.schema(
    [
        pa.field("k", pa.int64(), nullable=False),
        pa.field("v", pa.int64()),
        pa.field("n", pa.int64()),
    ]
)
RETRACT: dict[str, Any] = {
    "merge_engine": "aggregation",
    "aggregates": {"v": "sum", "n": "count"},
    "deletes": "retract",
}


def taken_back(k: int, v: int) -> pa.Table:
    return pa.table({"k": pa.array([k]), "v": pa.array([v])})


@pytest.mark.parametrize("between", ["nothing", "flush", "compact"])
def test_paimon_4670_2561_4821_a_row_that_is_taken_back_counts_no_more_whatever_comes_first(
    make_table: MakeTable, between: str
) -> None:
    def step(table: lancemem.Table) -> None:
        if between == "compact":
            compact(table)
        elif between == "flush":
            table.flush()

    table = make_table(TOTALS, primary_key=["k"], **RETRACT)
    table.delete(taken_back(1, 5))
    step(table)
    assert rows(table) == [{"k": 1, "v": -5, "n": -1}], "its row has not come yet"
    table.upsert(taken_back(1, 5))
    step(table)
    assert rows(table) == [{"k": 1, "v": 0, "n": 0}]
    table.upsert(taken_back(1, 7))
    step(table)
    table.delete(taken_back(1, 7))
    compact(table)
    assert rows(table) == [{"k": 1, "v": 0, "n": 0}]
    assert table.count_rows("v = 0") == 1


def test_a_function_without_an_inverse_takes_nothing_back(make_table: MakeTable) -> None:
    highest = {**RETRACT, "aggregates": {"v": "max", "n": "count"}}
    with pytest.raises(lancemem.InvalidInputError, match=r"'v'.*cannot take back a value"):
        make_table(TOTALS, primary_key=["k"], **highest)


def test_a_retract_gives_no_count_and_leaves_the_table_as_it_was(make_table: MakeTable) -> None:
    table = make_table(TOTALS, primary_key=["k"], **RETRACT)
    table.upsert(taken_back(1, 5))
    with pytest.raises(lancemem.InvalidInputError, match="'n' counts rows and takes no values"):
        table.delete(pa.table({"k": [1], "v": [5], "n": [1]}))
    assert rows(table) == [{"k": 1, "v": 5, "n": 1}]
