"""Random programs of tables whose rule chooses among the rows of a key, against a fold in Python.

Owns: that every level of consistency, projection, filter, look-up and count shows what a plain list
of the events of each key gives, and that the feed of changes leads from version to version.
Not here: what a rule refuses (the core's tests), plain tables (test_model), other writers.
"""

from __future__ import annotations

import math
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import lance
import pyarrow as pa
import pytest
from hypothesis import strategies as st

import lancemem
from tests.rule_machine import (
    KEYS,
    Event,
    Row,
    RuleMachine,
    Step,
    comparable,
    run_programs,
    steps_of_every_rule,
)

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = pa.schema(
    [
        pa.field("k", pa.int64(), nullable=False),
        pa.field("ts", pa.float64()),
        pa.field("v", pa.int64()),
        pa.field("n", pa.int32()),
        pa.field("s", pa.string()),
    ]
)
RULES: dict[str, dict[str, Any]] = {
    "last by sequence": {"sequence_by": ["ts"]},
    "last by two columns": {"sequence_by": ["n", "ts"], "delete_retention": timedelta(days=1)},
    "last by text": {"sequence_by": ["s"]},
    "last by sequence, no memory": {"sequence_by": ["ts"], "delete_retention": timedelta(0)},
    "first": {"merge_engine": "first_row"},
    "first by sequence": {"merge_engine": "first_row", "sequence_by": ["ts"]},
}


# --- the model: a list of events of each key ---


def rank(row: Row, names: list[str], null: int) -> tuple[Any, ...]:
    """The place of a row in event time: a null at one end, NaN above all numbers."""

    def of(value: object) -> tuple[Any, ...]:
        if value is None:
            return (null,)
        if isinstance(value, float) and math.isnan(value):
            return (0, 1)
        return (0, 0, value)

    return tuple(of(row.get(name)) for name in names)


def winner(life: list[Event], rule: dict[str, Any]) -> Event | None:
    """The event of a key that wins after its events, oldest first; None after a barrier."""
    live: list[Event] = []
    for event in life:
        live = [] if event[0] == "barrier" else [*live, event]
    if not live:
        return None
    names = rule.get("sequence_by", [])
    if rule.get("merge_engine") == "first_row":
        return min(live, key=lambda event: rank(event[1], names, null=1))
    best = live[0]
    for event in live[1:]:
        if rank(event[1], names, null=-1) >= rank(best[1], names, null=-1):
            best = event
    return best


class _Machine(RuleMachine):
    schema = SCHEMA
    # Columns without those that decide.
    narrow: ClassVar = [["v", "k"]]
    looked_up = "s"
    filters: ClassVar = [
        ("v > 1", lambda row: row["v"] is not None and row["v"] > 1),
        ("ts IS NULL", lambda row: row["ts"] is None),
        ("k = 1", lambda row: row["k"] == 1),
        ("k > 1 AND n = 1", lambda row: row["k"] > 1 and row["n"] == 1),
    ]

    def fold(self, life: list[Event]) -> Row | None:
        best = winner(life, self.rule)
        return best[1] if best is not None and best[0] != "delete" else None

    def buried(self, life: list[Event]) -> Event | None:
        # No other retention ends within a test.
        best = winner(life, self.rule)
        forgets = self.rule.get("delete_retention") == timedelta(0)
        return best if best is not None and best[0] == "delete" and not forgets else None

    def has_deletes_with_sequence(self) -> bool:
        return self.rule.get("merge_engine") != "first_row"

    # --- steps ---

    def put(self, rows: list[Row]) -> None:
        for job, events in self.each_shard([("put", row) for row in rows]):
            job.put(pa.Table.from_pylist([row for _, row in events], schema=SCHEMA))

    def delete(self, keys: list[int]) -> None:
        for job, events in self.each_shard([("barrier", {"k": key}) for key in keys]):
            job.delete([row["k"] for _, row in events])

    def delete_with_sequence(self, rows: list[Row]) -> None:
        names = self.rule.get("sequence_by", [])
        rows = [row for row in rows if any(row[name] is not None for name in names)]
        if not self.has_deletes_with_sequence() or not rows:
            return
        schema = pa.schema([column for column in SCHEMA if column.name in ("k", *names)])
        for job, events in self.each_shard([("delete", row) for row in rows]):
            job.delete(pa.Table.from_pylist([row for _, row in events], schema=schema))

    def apply(self, rows: list[Row], deletes: list[bool]) -> None:
        names = self.rule.get("sequence_by", [])
        events: list[Event] = []
        for row, deletes_it in zip(rows, deletes, strict=False):
            if not deletes_it:
                events.append(("put", row))
            elif not self.has_deletes_with_sequence():
                events.append(("barrier", row))
            elif any(row[name] is not None for name in names):
                events.append(("delete", row))
        for job, mine in self.each_shard(events):
            data = pa.Table.from_pylist([row for _, row in mine], schema=SCHEMA)
            job.apply(data, pa.array([kind != "put" for kind, _ in mine]))

    def collect(self) -> None:
        self.table.collect_garbage(older_than=timedelta(0))

    def bulk(self, rows: list[Row]) -> None:
        data = pa.Table.from_pylist(rows, schema=SCHEMA)
        self.commit_bulk([("put", row) for row in rows], data)


def rows() -> st.SearchStrategy[list[Row]]:
    row = st.fixed_dictionaries(
        {
            "k": st.sampled_from(KEYS),
            "ts": st.sampled_from([None, math.nan, -0.0, 0.0, 1.5, -math.inf]),
            "v": st.none() | st.integers(0, 3),
            "n": st.none() | st.integers(-1, 2),
            "s": st.none() | st.sampled_from(["", "a", "b", "a\x00"]),
        }
    )
    return st.lists(row, min_size=1, max_size=6)


def steps() -> list[st.SearchStrategy[Step]]:
    keys = st.lists(st.sampled_from(KEYS), min_size=1, max_size=3)
    put = st.tuples(st.just("put"), rows())
    return [
        put,
        put,
        st.tuples(st.just("delete"), keys),
        st.tuples(st.just("delete_with_sequence"), rows()),
        st.tuples(st.just("apply"), rows(), st.lists(st.booleans(), min_size=6, max_size=6)),
        st.tuples(st.just("bulk"), rows()),
        st.tuples(st.just("collect")),
        *steps_of_every_rule(),
    ]


@pytest.mark.parametrize("name", RULES)
def test_a_table_with_a_rule_agrees_with_a_list_of_events_after_any_program(name: str) -> None:
    run_programs(lambda folder: _Machine(folder, RULES[name]), steps())


# --- public bugs of other systems, one by one ---


def events(folder: Path, delete_retention: timedelta | None = None) -> lancemem.Table:
    return lancemem.create_table(
        f"{folder}/t.lance",
        SCHEMA,
        primary_key="k",
        sequence_by=["n"],
        delete_retention=delete_retention,
    )


def compact(table: lancemem.Table) -> int:
    table.flush()
    return table.compact().num_late_rows


def deletes(k: int, n: int) -> pa.Table:
    return pa.table({"k": [k], "n": pa.array([n], pa.int32())})


def row(k: int, n: int | None, v: int | None) -> pa.Table:
    return pa.Table.from_pylist([{"k": k, "n": n, "v": v, "ts": None, "s": None}], schema=SCHEMA)


def values(
    table: lancemem.Table,
    consistency: Literal["flushed", "durable", "live"] = "durable",
    *,
    jobs: list[lancemem.Job] | None = None,
    where: str | None = None,
) -> dict[int, int]:
    scan = table.scan(["k", "v"], where, consistency=consistency, jobs=jobs)
    found = scan.to_table().to_pylist()
    return {each["k"]: each["v"] for each in found}


def test_after_a_delete_without_a_sequence_smaller_sequences_count(tmp_path: Path) -> None:
    """Paimon #4767: rows loaded again with older times stayed invisible."""
    table = events(tmp_path)
    table.upsert(row(1, 100, 1))
    table.delete([1])
    for compacts in (False, True):
        if compacts:
            table.flush()
            table.compact()
        table.upsert(row(1, 5, 2))
        assert values(table) == {1: 2}
        table.delete([1])
        assert values(table) == {}


def test_a_delete_with_a_sequence_loses_against_a_greater_one(tmp_path: Path) -> None:
    """Paimon #5387, HUDI-2752: a delete has its place in event time too."""
    table = events(tmp_path)
    table.upsert(row(1, 10, 1))
    table.delete(deletes(1, 5))
    assert values(table) == {1: 1}
    table.delete(deletes(1, 20))
    assert values(table) == {}
    table.flush()
    table.upsert(row(1, 15, 2))
    assert values(table) == {}, "the row is older than the delete"
    table.upsert(row(1, 25, 3))
    assert values(table) == {1: 3}


def test_a_late_row_stays_dead_after_its_delete_was_compacted(tmp_path: Path) -> None:
    """Paimon #5387: a compaction dropped the delete, and a late insert came back to life."""
    table = events(tmp_path)
    table.upsert(row(1, 10, 1))
    compact(table)
    table.delete(deletes(1, 20))
    compact(table)
    for opened in (table, lancemem.open_table(table.uri)):
        opened.upsert(row(1, 15, 2))
        assert values(opened) == {}
        assert opened.get([1]).num_rows == 0
        assert opened.scan().count_rows() == 0
        assert compact(opened) == 1
        assert values(opened) == {}
    table.upsert(row(1, 20, 3))
    assert values(table) == {1: 3}, "the later one of equals"
    compact(table)
    assert values(table) == {1: 3}


def test_a_smaller_delete_changes_no_remembered_one(tmp_path: Path) -> None:
    """HUDI-2752: a delete block has the ordering value; a smaller delete changes nothing."""
    table = events(tmp_path)
    table.delete(deletes(1, 20))
    compact(table)
    table.delete(deletes(1, 5))
    compact(table)
    table.upsert(row(1, 10, 1))
    assert values(table) == {}
    table.delete(deletes(1, 30))
    compact(table)
    table.upsert(row(1, 25, 2))
    assert values(table) == {}
    table.upsert(row(1, 35, 3))
    assert values(table) == {1: 3}


def test_a_delete_without_a_sequence_forgets_one_that_was_compacted(tmp_path: Path) -> None:
    """Paimon #4767: "delete what is old, then load it again with smaller times" works at once."""
    table = events(tmp_path)
    table.delete(deletes(1, 20))
    compact(table)
    table.upsert(row(1, 5, 1))
    assert values(table) == {}
    table.delete([1])
    table.upsert(row(1, 5, 2))
    assert values(table) == {1: 2}
    compact(table)
    assert values(table) == {1: 2}
    table.delete([1])
    compact(table)
    table.upsert(row(1, 3, 3))
    assert values(table) == {1: 3}


def test_after_the_retention_a_compaction_forgets_a_delete(tmp_path: Path) -> None:
    table = events(tmp_path, timedelta(milliseconds=1))
    table.delete(deletes(1, 20))
    compact(table)
    table.upsert(row(1, 5, 1))
    assert values(table) == {}, "it counts until a compaction drops it"
    assert compact(table) == 1
    assert values(table) == {}, "a compaction changes no result"
    table.upsert(row(1, 5, 2))
    assert values(table) == {1: 2}
    compact(table)
    assert values(table) == {1: 2}


def test_bulk_rows_and_live_rows_lose_against_a_remembered_delete(tmp_path: Path) -> None:
    table = events(tmp_path)
    table.delete(deletes(1, 20))
    compact(table)
    writer = table.bulk_writer()
    writer.upsert(pa.concat_tables([row(1, 15, 1), row(2, 15, 2)]))
    table.commit(writer.finish())
    assert values(table) == {2: 2}
    with table.start_job() as job:
        job.put(row(1, 16, 3))
        assert values(table, "live", jobs=[job]) == {2: 2}
        snapshot = table.snapshot()
        parts = [snapshot.scan(["k"], part=(part, 2)).to_table()["k"] for part in range(2)]
        assert sorted(key for part in parts for key in part.to_pylist()) == [2]


def test_files_of_remembered_deletes_are_verified_and_collected(tmp_path: Path) -> None:
    table = events(tmp_path, timedelta(milliseconds=1))
    table.delete(deletes(1, 20))
    compact(table)
    (report,) = table.admin.verify_sstables()
    assert report.path.startswith("_lancemem/graves/")
    assert report.damage == []
    table.upsert(row(2, 1, 1))
    compact(table)
    assert table.admin.verify_sstables() == []
    kinds = [it.kind for it in table.collect_garbage(older_than=timedelta(0)).garbage]
    assert "remembered deletes" not in kinds, "an older version lists them"
    lance.dataset(table.uri).cleanup_old_versions(older_than=timedelta(0))
    kinds = [it.kind for it in table.collect_garbage(older_than=timedelta(0)).garbage]
    assert kinds.count("remembered deletes") == 1


def test_a_compaction_changes_no_result_where_sequences_are_equal(tmp_path: Path) -> None:
    """Paimon #5872, #5631: of equal sequences the last one wins, before and after a compaction."""
    table = events(tmp_path)
    for v in (1, 2):
        table.upsert(row(1, 7, v))
        table.flush()
    assert values(table) == {1: 2}
    table.upsert(row(1, 7, 3))
    assert values(table) == {1: 3}
    table.compact()
    assert values(table) == {1: 3}
    table.flush()
    table.compact()
    assert values(table) == {1: 3}


def test_a_filter_is_not_met_by_a_row_that_lost(tmp_path: Path) -> None:
    """Paimon #4065: a filter ran before the merge and showed an old version."""
    table = events(tmp_path)
    table.upsert(row(1, 9, 1))
    table.flush()
    table.upsert(row(1, 3, 2))
    table.flush()
    assert values(table, where="v = 2") == {}
    assert values(table, where="v = 1") == {1: 1}
    table.compact()
    assert values(table, where="v = 2") == {}
    assert values(table, where="v = 1") == {1: 1}


def test_an_insert_after_a_delete_of_the_same_batch_is_there(tmp_path: Path) -> None:
    """Hudi #12971: insert, delete, insert lost the last row."""
    table = events(tmp_path)
    data = pa.concat_tables([row(1, 1, 1), row(1, 2, None), row(1, 3, 3)])
    table.apply(data, pa.array([False, True, False]))
    assert values(table) == {1: 3}
    table.flush()
    table.compact()
    assert values(table) == {1: 3}


def test_a_late_row_in_a_linked_file_is_dead_and_counted(tmp_path: Path) -> None:
    """The base table keeps its row, and the row of the newer file dies within that file."""
    table = events(tmp_path)
    table.upsert(pa.concat_tables([row(1, 10, 1), row(2, 10, 1)]))
    table.flush()
    table.compact(mode="link")
    table.upsert(pa.concat_tables([row(1, 5, 2), row(2, 20, 2), row(3, 1, 2)]))
    table.flush()
    result = table.compact(mode="link")
    assert result.num_sstables_linked == 1
    assert result.num_late_rows == 1
    assert values(table) == {1: 1, 2: 2, 3: 2}
    assert table.get([1], ["v"]).to_pylist() == [{"v": 1}]


def test_the_first_row_stays_through_flushes_and_compactions(tmp_path: Path) -> None:
    table = lancemem.create_table(
        f"{tmp_path}/t.lance", SCHEMA, primary_key="k", merge_engine="first_row"
    )
    for v in range(3):
        table.upsert(row(1, 0, v))
        assert values(table) == {1: 0}
        table.flush()
        table.compact()
        assert values(table) == {1: 0}
    # A delete is a barrier: the next put is the first again (paimon #6718).
    table.delete([1])
    table.upsert(row(1, 0, 9))
    assert values(table) == {1: 9}
    table.flush()
    table.compact()
    assert values(table) == {1: 9}
    assert table.get([1], ["v"]).to_pylist() == [{"v": 9}]


def test_a_replay_of_the_log_chooses_the_same_row(tmp_path: Path) -> None:
    table = events(tmp_path)
    job = table.start_job()
    for n, v in ((3, 1), (9, 2), (4, 3)):
        job.put(row(1, n, v))
    job.delete([2])
    job.close(flush=False)
    assert values(lancemem.open_table(table.uri)) == {1: 2}
    job = lancemem.open_table(table.uri).start_job()
    assert values(table, "live", jobs=[job]) == {1: 2}
    job.close(flush=True)
    assert values(table, "flushed") == {1: 2}


def test_the_parts_of_a_read_have_each_row_once(tmp_path: Path) -> None:
    table = events(tmp_path)
    for round_ in range(3):
        # Every other round is late for the even keys.
        rows_ = [
            row(k, -round_ if k % 2 == 0 else round_, round_).to_pylist()[0] for k in range(40)
        ]
        table.upsert(pa.Table.from_pylist(rows_, schema=SCHEMA))
        table.flush()
        if round_ == 0:
            table.compact()
    expected = {k: 0 if k % 2 == 0 else 2 for k in range(40)}
    assert values(table) == expected
    snapshot = table.snapshot()
    assert snapshot.count_rows() == 40
    parts = [snapshot.scan(["k", "v"], part=(part, 3)).to_table().to_pylist() for part in range(3)]
    assert comparable([each for part in parts for each in part]) == comparable(
        [{"k": k, "v": v} for k, v in expected.items()]
    )


def test_a_search_finds_the_row_that_wins(tmp_path: Path) -> None:
    schema = pa.schema(
        [
            pa.field("k", pa.int64(), nullable=False),
            pa.field("n", pa.int64()),
            pa.field("e", pa.list_(pa.float32(), 2)),
        ]
    )
    table = lancemem.create_table(f"{tmp_path}/t.lance", schema, primary_key="k", sequence_by=["n"])

    def put(k: int, n: int, e: list[float]) -> None:
        table.upsert(pa.Table.from_pylist([{"k": k, "n": n, "e": e}], schema=schema))

    def nearest(query: list[float]) -> list[int]:
        return [
            each["k"] for each in table.search(query, k=1, columns=["k"]).to_table().to_pylist()
        ]

    put(1, 10, [0.0, 0.0])
    put(2, 10, [5.0, 5.0])
    table.flush()
    table.compact()
    # Late: the vector of key 1 stays where it was.
    put(1, 3, [9.0, 9.0])
    put(2, 20, [7.0, 7.0])
    for _ in range(3):
        assert nearest([9.0, 9.0]) == [2]
        assert nearest([0.0, 0.0]) == [1]
        table.flush()
        table.compact()


def test_words_are_those_of_the_row_that_wins(tmp_path: Path) -> None:
    """An index of the base table, one of an SSTable, and rows in memory, of which some lost."""
    schema = pa.schema(
        [
            pa.field("k", pa.int64(), nullable=False),
            pa.field("n", pa.int64()),
            pa.field("body", pa.string()),
        ]
    )
    table = lancemem.create_table(f"{tmp_path}/t.lance", schema, primary_key="k", sequence_by=["n"])

    def put(k: int, n: int, body: str) -> None:
        table.upsert(pa.Table.from_pylist([{"k": k, "n": n, "body": body}], schema=schema))

    def found(words: str, **how: Any) -> list[int]:  # noqa: ANN401 - whatever scans take
        rows_ = table.search(words, text_columns="body", k=10, columns=["k"], **how).to_table()
        return sorted(rows_["k"].to_pylist())

    put(1, 10, "apple")
    put(2, 10, "berry")
    table.flush()
    table.compact()
    table.create_index("body", "INVERTED")
    for step in range(3):
        # Late, and in time.
        put(1, 3 + step, "cherry")
        put(2, 20 + step, "damson")
        for exact in (False, True):
            assert found("apple", exact=exact) == [1]
            assert found("damson", exact=exact) == [2]
            assert found("cherry berry", exact=exact) == []
        table.flush()
        assert found("apple damson") == [1, 2]
        assert found("cherry berry") == []
        if step == 1:
            table.compact()
            assert found("apple damson") == [1, 2]
            assert found("cherry berry") == []
