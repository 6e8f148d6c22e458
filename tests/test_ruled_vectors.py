"""Deletion-vector mode of tables with a merge rule: looked up beside the writer, the same rows.

Owns: that a reader takes what the look-up stored, believes it for the very sources that it was made
of, and shows the same rows with it, without it and after damage. Does not own: random programs,
which switch the mode too (test_merge_model, test_combining_model), or the mode itself
(test_deletion_vectors).
"""

from __future__ import annotations

import zlib
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import lancemem

if TYPE_CHECKING:
    from tests.conftest import MakeTable

lance = pytest.importorskip("lance")

SCHEMA = pa.schema(
    [
        pa.field("k", pa.int64(), nullable=False),
        pa.field("ts", pa.int64()),
        pa.field("v", pa.int64()),
    ]
)
SEQUENCE: dict[str, Any] = {"sequence_by": "ts", "delete_retention": timedelta(0)}
REMEMBERING: dict[str, Any] = {"sequence_by": "ts"}
FIRST_ROW: dict[str, Any] = {"merge_engine": "first_row"}
PARTIAL: dict[str, Any] = {"merge_engine": "partial_update"}
SUM: dict[str, Any] = {"merge_engine": "aggregation", "aggregates": {"v": "sum"}}
COMBINING = [PARTIAL, SUM]
RULES = [SEQUENCE, REMEMBERING, FIRST_ROW, *COMBINING]


def row(k: int, ts: int, v: int) -> dict[str, int]:
    return {"k": k, "ts": ts, "v": v}


def flushed(table: lancemem.Table, *rows: dict[str, Any]) -> None:
    names = [name for name in SCHEMA.names if name in rows[0]]
    schema = pa.schema([SCHEMA.field(name) for name in names])
    table.upsert(pa.Table.from_pylist(list(rows), schema=schema))
    table.flush()


def rows_of(table: lancemem.Table) -> list[dict[str, Any]]:
    """What a process that has read nothing before shows of the flushed rows."""
    scan = lancemem.open_table(table.uri).scan(consistency="flushed")
    rows = scan.to_table().to_pylist()
    assert scan.count_rows() == len(rows)
    return sorted(rows, key=lambda each: int(each["k"]))


def merged_files(table: lancemem.Table) -> list[Path]:
    return sorted(Path(table.uri).glob("_lancemem/merged/*/*.arrow"))


def with_two_sstables(make_table: MakeTable, rule: dict[str, Any]) -> lancemem.Table:
    """A base table with keys 1 to 3, then an SSTable over 1 and 2, then one over 2 and 4."""
    table = make_table(SCHEMA, **rule)
    flushed(table, row(1, 10, 1), row(2, 10, 2), row(3, 10, 3))
    table.compact()
    flushed(table, row(1, 5, 10), row(2, 20, 20))
    flushed(table, row(2, 15, 200), row(4, 1, 4))
    return table


EXPECTED = {
    "deduplicate": [row(1, 10, 1), row(2, 20, 20), row(3, 10, 3), row(4, 1, 4)],
    "first_row": [row(1, 10, 1), row(2, 10, 2), row(3, 10, 3), row(4, 1, 4)],
    "partial_update": [row(1, 5, 10), row(2, 15, 200), row(3, 10, 3), row(4, 1, 4)],
    "aggregation": [row(1, 5, 11), row(2, 15, 222), row(3, 10, 3), row(4, 1, 4)],
}


def expected(rule: dict[str, Any]) -> list[dict[str, int]]:
    return EXPECTED[rule.get("merge_engine", "deduplicate")]


@pytest.mark.parametrize("rule", RULES)
def test_a_looked_up_table_shows_the_rows_that_it_shows_without_the_mode(
    make_table: MakeTable, rule: dict[str, Any]
) -> None:
    table = with_two_sstables(make_table, rule)
    assert rows_of(table) == expected(rule)
    table.alter(deletion_vectors=True)
    assert rows_of(table) == expected(rule)
    for wanted in expected(rule):
        narrow = table.scan(["v"], filter=f"v = {wanted['v']}", consistency="flushed")
        assert narrow.to_table().to_pylist() == [{"v": wanted["v"]}]
    table.compact()
    assert rows_of(table) == expected(rule)
    assert lance.dataset(table.uri).count_rows() == len(expected(rule))
    table.alter(deletion_vectors=False)
    assert rows_of(table) == expected(rule)


@pytest.mark.parametrize("rule", RULES)
def test_a_flush_after_the_look_up_is_compared_and_then_looked_up(
    make_table: MakeTable, rule: dict[str, Any]
) -> None:
    table = with_two_sstables(make_table, rule)
    table.alter(deletion_vectors=True)
    flushed(table, row(3, 7, 30), row(5, 1, 5))
    third = {
        "deduplicate": row(3, 10, 3),
        "first_row": row(3, 10, 3),
        "partial_update": row(3, 7, 30),
        "aggregation": row(3, 7, 33),
    }[rule.get("merge_engine", "deduplicate")]
    wanted = [*expected(rule)[:2], third, row(4, 1, 4), row(5, 1, 5)]
    assert rows_of(table) == wanted
    table.write_deletion_vectors()
    assert rows_of(table) == wanted
    assert table.write_deletion_vectors().num_sstables == 0, "nothing is missing any more"


@pytest.mark.parametrize(("rule", "late"), [(SEQUENCE, 2), (FIRST_ROW, 3)])
def test_a_compaction_of_looked_up_sstables_reads_no_row_of_the_base(
    make_table: MakeTable, rule: dict[str, Any], late: int
) -> None:
    table = with_two_sstables(make_table, rule)
    table.alter(deletion_vectors=True)
    # The base table's data files are out of reach meanwhile, and none is rewritten.
    away = {path: path.with_suffix(".away") for path in Path(table.uri).glob("data/*.lance")}
    for path, other in away.items():
        path.rename(other)
    result = lancemem.open_table(table.uri).compact(mode="link", max_dead_share=1.0)
    for path, other in away.items():
        other.rename(path)
    assert result.num_late_rows == late
    assert rows_of(table) == expected(rule)


def test_a_late_row_shows_once_another_program_deletes_the_row_that_beat_it(
    make_table: MakeTable,
) -> None:
    table = with_two_sstables(make_table, SEQUENCE)
    table.alter(deletion_vectors=True)
    lance.dataset(table.uri).delete("k = 1")
    wanted = [row(1, 5, 10), *expected(SEQUENCE)[1:]]
    assert rows_of(table) == wanted, "the look-up knows the fragment with another deletion file"
    table.write_deletion_vectors()
    assert rows_of(table) == wanted
    before = lance.dataset(table.uri).version - 1
    old = lance.dataset(table.uri, version=before)
    old.restore()
    assert rows_of(table) == expected(SEQUENCE), "the row that beats it is there again"
    table.write_deletion_vectors()
    assert rows_of(table) == expected(SEQUENCE)


def test_a_delete_without_a_sequence_lets_an_earlier_one_win(make_table: MakeTable) -> None:
    table = make_table(SCHEMA, **SEQUENCE)
    flushed(table, row(1, 10, 1))
    table.compact()
    table.alter(deletion_vectors=True)
    table.delete([1])
    table.flush()
    table.write_deletion_vectors()
    assert rows_of(table) == []
    flushed(table, row(1, 3, 3))
    table.write_deletion_vectors()
    assert rows_of(table) == [row(1, 3, 3)]
    table.compact()
    assert rows_of(table) == [row(1, 3, 3)]


def test_a_remembered_delete_counts_whatever_was_looked_up(make_table: MakeTable) -> None:
    table = make_table(SCHEMA, **REMEMBERING)
    flushed(table, row(1, 10, 1), row(2, 10, 2))
    table.compact()
    table.alter(deletion_vectors=True)
    table.delete(pa.table({"k": [1], "ts": [20]}))
    table.flush()
    table.compact()
    flushed(table, row(1, 15, 15), row(2, 5, 20))
    table.write_deletion_vectors()
    assert rows_of(table) == [row(2, 10, 2)]
    flushed(table, row(1, 30, 30))
    table.write_deletion_vectors()
    assert rows_of(table) == [row(1, 30, 30), row(2, 10, 2)]
    table.compact()
    assert rows_of(table) == [row(1, 30, 30), row(2, 10, 2)]


@pytest.mark.parametrize("rule", RULES)
def test_rows_in_memory_are_compared_with_looked_up_ones(
    make_table: MakeTable, rule: dict[str, Any]
) -> None:
    table = with_two_sstables(make_table, rule)
    table.alter(deletion_vectors=True)
    with table.start_job() as job:
        job.put(pa.Table.from_pylist([row(1, 7, 100), row(6, 1, 6)], schema=SCHEMA))
        first = {
            "deduplicate": row(1, 10, 1),
            "first_row": row(1, 10, 1),
            "partial_update": row(1, 7, 100),
            "aggregation": row(1, 7, 111),
        }[rule.get("merge_engine", "deduplicate")]
        live = table.scan(consistency="live", jobs=[job]).to_table().to_pylist()
        wanted = [first, *expected(rule)[1:], row(6, 1, 6)]
        assert sorted(live, key=lambda each: int(each["k"])) == wanted


@pytest.mark.parametrize("rule", COMBINING)
def test_a_reader_takes_the_stored_merged_rows(make_table: MakeTable, rule: dict[str, Any]) -> None:
    table = with_two_sstables(make_table, rule)
    assert merged_files(table) == []
    table.alter(deletion_vectors=True)
    (stored,) = merged_files(table)
    assert rows_of(table) == expected(rule)
    content = stored.read_bytes()
    merged = expected(rule)[1]["v"]
    other = content[:-4].replace(merged.to_bytes(8, "little"), (merged + 1).to_bytes(8, "little"))
    stored.write_bytes(other + zlib.crc32(other).to_bytes(4, "little"))
    shown = {each["k"]: each["v"] for each in rows_of(table)}
    assert shown[2] == merged + 1, "the reader merges nothing itself"
    for damaged in (content[:-1], content[:100], bytes(len(content)), b""):
        stored.write_bytes(damaged)
        assert rows_of(table) == expected(rule), "a damaged file covers nothing"
    stored.unlink()
    assert rows_of(table) == expected(rule)
    table.write_deletion_vectors()
    assert merged_files(table) == [stored]
    assert stored.read_bytes() == content


@pytest.mark.parametrize("rule", COMBINING)
def test_stored_merged_rows_belong_to_one_version_of_the_columns(
    make_table: MakeTable, rule: dict[str, Any]
) -> None:
    table = with_two_sstables(make_table, rule)
    table.alter(deletion_vectors=True)
    before = merged_files(table)
    dataset = lance.dataset(table.uri)
    dataset.add_columns(pa.schema([pa.field("note", pa.string())]))
    dataset.alter_columns({"path": "v", "name": "value"})
    wanted = [
        {"k": each["k"], "ts": each["ts"], "value": each["v"], "note": None}
        for each in expected(rule)
    ]
    assert rows_of(table) == wanted
    table.write_deletion_vectors()
    assert set(merged_files(table)) > set(before)
    assert rows_of(table) == wanted


def test_merged_rows_of_an_older_sstable_are_collected(make_table: MakeTable) -> None:
    table = with_two_sstables(make_table, SUM)
    table.alter(deletion_vectors=True)
    flushed(table, row(3, 7, 30))
    table.write_deletion_vectors()
    assert len(merged_files(table)) == 2
    garbage = table.collect_garbage(older_than=timedelta(0)).garbage
    assert "merged rows" in {each.kind for each in garbage}
    (newest,) = merged_files(table)
    assert rows_of(table)[2] == row(3, 7, 33)
    table.compact()
    table.collect_garbage(older_than=timedelta(0))
    assert not newest.exists()
    assert rows_of(table)[2] == row(3, 7, 33)


def test_a_rule_is_given_to_a_lance_table_in_the_mode(make_table: MakeTable) -> None:
    table = make_table(SCHEMA)
    flushed(table, row(1, 10, 1))
    table.compact()
    table.alter(deletion_vectors=True)
    lance.dataset(table.uri).drop_index("__lance_mem_wal")
    ruled = lancemem.enable(table.uri, **SUM)
    assert ruled.deletion_vectors
    flushed(ruled, {"k": 1, "v": 5})
    ruled.write_deletion_vectors()
    assert rows_of(ruled) == [row(1, 10, 6)]
