"""Six kinds of damage at many positions of the records that make a write happen exactly once.

Owns: decisions about bulk writes, staged SSTables before their commit, and transaction ids in log
entries and in shard manifests. Does not own: entries and manifests without transaction ids
(`damage_everywhere` of the core), or the files of a listed SSTable (`sstable::tests::damage`).
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import lancemem
from tests.damages import damaged, unnamed

TXN = ("load", 7)


def rows(numbers: range, value: float) -> pa.Table:
    names = [f"n{number}" for number in numbers]
    return pa.table({"id": list(numbers), "name": names, "value": [value] * len(names)})


def opened(table: lancemem.Table) -> lancemem.Table:
    return lancemem.open_table(table.uri)


def read(table: lancemem.Table) -> pa.Table:
    return opened(table).scan().to_table().sort_by("id")


def epoch(table: lancemem.Table) -> int:
    return table.shards()[0].writer_epoch


def file_of(table: lancemem.Table, pattern: str) -> Path:
    [path] = Path(table.uri).glob(pattern)
    return path


@pytest.fixture
def staged(table: lancemem.Table) -> lancemem.StagedSsTable:
    """Stage rows for a table that has ten; together they are thirty."""
    table.upsert(rows(range(10), 1.0))
    bulk = table.bulk_writer()
    bulk.upsert(rows(range(5, 30), 2.0))
    [sstable] = bulk.finish()
    return sstable


@pytest.mark.parametrize("decision", [b"link\n", b"discard\n"])
def test_a_damaged_decision_is_named_and_neither_committed_nor_aborted(
    table: lancemem.Table, staged: lancemem.StagedSsTable, decision: bytes
) -> None:
    path = Path(table.uri) / "_lancemem" / "staged" / "w"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(decision)  # and the call that decided went no further
    before, owner, said = read(table), epoch(table), []
    for damage in damaged(path):
        for call in (opened(table).commit, opened(table).abort):
            told = unnamed("_lancemem/staged/w", call, [staged], write="w")
            said += [f"{call.__name__}, {damage}: {told}"] if told else []
        assert read(table) == before, damage
        assert epoch(table) == owner, damage
        assert file_of(table, f"_mem_wal/*/{staged.path}/data/*").exists(), damage
    assert said == []
    assert table.abort([staged], write="w") == (decision == b"discard\n")


def test_a_commit_whose_decision_was_damaged_since_is_never_called_aborted(
    table: lancemem.Table, staged: lancemem.StagedSsTable
) -> None:
    table.commit([staged], write="w", txn=TXN)
    committed, owner, said = read(table), epoch(table), []
    assert committed.num_rows == 30
    for damage in damaged(file_of(table, "_lancemem/staged/w")):
        told = unnamed("_lancemem/staged/w", opened(table).commit, [staged], write="w", txn=TXN)
        said += [f"{damage}: {told}"] if told else []
        assert read(table) == committed, damage
        assert epoch(table) == owner, damage
    assert said == []
    assert table.commit([staged], write="w", txn=TXN).num_shards_already_written == 1


def test_a_staged_sstable_whose_manifest_is_damaged_is_named_and_not_committed(
    table: lancemem.Table, staged: lancemem.StagedSsTable
) -> None:
    before, owner = read(table), epoch(table)
    path = file_of(table, f"_mem_wal/*/{staged.path}/_versions/*")
    whole = path.read_bytes()
    # No call reads the version in the last bytes.
    for damage in damaged(path, but_last=8):
        assert unnamed(staged.path, opened(table).commit, [staged]) == "", damage
    path.unlink()
    assert unnamed(staged.path, opened(table).commit, [staged]) == "", "missing"
    assert (read(table), epoch(table)) == (before, owner)
    path.write_bytes(whole)
    table.commit([staged])
    assert read(table).num_rows == 30


@pytest.mark.parametrize(
    "pattern", ["data/*", "bloom_filter.bin", "_pk_index/page_data*", "_pk_index/page_lookup*"]
)
def test_an_sstable_that_was_damaged_before_its_commit_is_named_and_never_compacted(
    table: lancemem.Table, staged: lancemem.StagedSsTable, pattern: str, tmp_path: Path
) -> None:
    path = file_of(table, f"_mem_wal/*/{staged.path}/{pattern}")
    for damage in damaged(path, every=100):
        shutil.copytree(table.uri, tmp_path / "copy.lance")
        copy = lancemem.open_table(str(tmp_path / "copy.lance"))
        if unnamed(path.name, copy.commit, [staged]):
            [report] = [
                sstable
                for sstable in opened(copy).admin.verify_sstables()
                if sstable.path == staged.path
            ]
            assert [path.name in line for line in report.damage] == [True], damage
            assert unnamed(path.name, opened(copy).compact) == "", damage
        shutil.rmtree(copy.uri)


def test_damage_anywhere_in_an_entry_with_a_transaction_id_is_named_and_repeats_no_write(
    table: lancemem.Table,
) -> None:
    table.upsert(rows(range(20), 1.0), txn=TXN)
    entries = Path(table.uri).rglob("wal/*.arrow")
    [path] = [path for path in entries if b"lmemmrk1" in path.read_bytes()]
    again, owner, name = rows(range(20), 2.0), epoch(table), "WAL entry 2 of shard"
    # Without the bytes behind its stream it is an entry that lance could write.
    end = path.read_bytes().index(b"\4\0\0\0load")
    for damage in damaged(path):
        if not damage.startswith(f"cut at {end} "):
            other = opened(table)
            assert unnamed(name, other.txn_version, TXN[0], shard=0) == "", damage
            assert unnamed(name, other.upsert, again, txn=TXN) == "", damage
    assert epoch(table) == owner
    assert opened(table).upsert(again, txn=TXN).num_shards_already_written == 1


def test_damage_anywhere_in_a_manifest_with_a_transaction_id_is_named_and_repeats_no_write(
    table: lancemem.Table,
) -> None:
    table.upsert(rows(range(20), 1.0), txn=TXN)
    table.start_job(shard=0).close(flush=True)
    versions = Path(table.uri).rglob("manifest/*.binpb")
    path = max(versions, key=lambda version: int(version.stem[::-1], 2))
    assert b"lancemem:mark:load" in path.read_bytes()
    again = rows(range(20), 2.0)
    for damage in damaged(path):
        other = opened(table)
        assert unnamed(path.name, other.txn_version, TXN[0], shard=0) == "", damage
        assert unnamed(path.name, other.upsert, again, txn=TXN) == "", damage
    assert opened(table).upsert(again, txn=TXN).num_shards_already_written == 1
    assert set(read(table)["value"].to_pylist()) == {1.0}
