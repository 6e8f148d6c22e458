"""A base table that is older than its shards: restored by pylance, or copied before them.

Owns: that no acknowledged row goes missing without a word, the repairs, and what a collection
leaves for them. Not here: another index or another sharding under the rows (test_moved_tables), the
rule itself (`snapshot::missing` and `garbage` in rust/engine).
"""

from __future__ import annotations

import os
import shutil
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lancemem
from lancemem.__main__ import main

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import MakeTable

OLDER = "base table older than its shards"
NOW = timedelta(0)
DAY = 86_400


def rows(ids: range | list[int], name: str) -> pa.Table:
    return pa.table({"id": list(ids), "name": [name] * len(ids), "value": [0.5] * len(ids)})


def names(table: lancemem.Table, **options: Any) -> dict[int, str]:  # noqa: ANN401
    found = table.scan(**options).to_table()
    return dict(zip(found["id"].to_pylist(), found["name"].to_pylist(), strict=True))


def flush(table: lancemem.Table, ids: range | list[int], name: str) -> None:
    with table.start_job(shard=0) as job:
        job.put(rows(ids, name))
        job.flush()


def restore(table: lancemem.Table, version: int) -> None:
    there: Any = lance.dataset(table.uri, version=version)
    there.restore()


def shard_folder(table: lancemem.Table) -> Path:
    return Path(table.uri, "_mem_wal", table.shards()[0].shard_id)


def sstable_folders(table: lancemem.Table) -> dict[int, Path]:
    found = shard_folder(table).glob("*_gen_*")
    return {int(path.name.rpartition("_")[2]): path for path in found}


def listed(table: lancemem.Table) -> list[int]:
    return [sstable.generation for sstable in table.shards()[0].sstables]


@pytest.fixture
def compacted_twice(table: lancemem.Table) -> tuple[lancemem.Table, int]:
    """Give a table of two compactions and a row in the log, and the version behind the first."""
    flush(table, [1, 10], "first")
    table.compact()
    version = lance.dataset(table.uri).version
    flush(table, [2, 10], "second")
    table.compact()
    table.upsert(rows([3], "third"))
    return table, version


WHOLE = {1: "first", 2: "second", 3: "third", 10: "second"}

# Calls that would show a table without some of its rows, or write on top of it.
ASKS: dict[str, Callable[[lancemem.Table], object]] = {
    "scan": lambda table: table.scan().to_table(),
    "flushed scan": lambda table: table.scan(consistency="flushed").to_table(),
    "live scan": lambda table: table.scan(consistency="live").to_table(),
    "scan of one key": lambda table: table.scan(filter="id = 1").to_table(),
    "count": lambda table: table.scan().count_rows(),
    "get": lambda table: table.get([1]),
    "get of a missing key": lambda table: table.get([2]),
    "snapshot": lambda table: table.snapshot(),
    "upsert": lambda table: table.upsert(rows([4], "lost")),
    "delete": lambda table: table.delete([1]),
    "job": lambda table: table.start_job(shard=0),
    "compaction": lambda table: table.compact(),
    "planned compaction": lambda table: table.compact(dry_run=True),
    "check of the log": lambda table: table.admin.verify_wal(0),
}


@pytest.mark.parametrize("name", ASKS)
def test_a_restore_of_a_version_from_before_a_compaction_is_named(
    name: str, compacted_twice: tuple[lancemem.Table, int]
) -> None:
    table, version = compacted_twice
    assert names(table) == WHOLE
    restore(table, version)
    for handle in (table, lancemem.open_table(table.uri)):
        with pytest.raises(lancemem.CorruptionError, match=OLDER) as raised:
            ASKS[name](handle)
        message = str(raised.value)
        assert table.shards()[0].shard_id in message
        assert table.uri in message
        assert "generation 2: flushed" in message
        assert "relist-sstables" in message


def test_rows_are_all_there_again_once_their_sstables_are_listed(
    compacted_twice: tuple[lancemem.Table, int],
) -> None:
    table, version = compacted_twice
    restore(table, version)
    for ask in (table.compact, lambda: flush(table, [4], "lost"), table.compact):
        with pytest.raises(lancemem.CorruptionError, match=OLDER):
            ask()

    [report] = table.admin.relist_sstables()
    assert (report.relisted, report.missing) == ([2], [])
    assert report.shard_id == table.shards()[0].shard_id
    assert table.admin.relist_sstables() == []
    for handle in (table, lancemem.open_table(table.uri)):
        assert names(handle) == WHOLE
        assert handle.get([2, 10])["name"].to_pylist() == ["second"] * 2
    assert table.admin.verify_wal(0).findings == []
    assert [report.damage for report in table.admin.verify_sstables()] == [[]]
    flush(table, [4, 1], "later")
    wanted = WHOLE | {4: "later", 1: "later"}
    assert names(table) == wanted
    table.compact()
    assert names(lancemem.open_table(table.uri)) == wanted
    base = lance.dataset(table.uri).to_table()
    assert dict(zip(base["id"].to_pylist(), base["name"].to_pylist(), strict=True)) == wanted


def test_pylance_reads_and_writes_on_after_the_repair(
    compacted_twice: tuple[lancemem.Table, int],
) -> None:
    table, version = compacted_twice
    restore(table, version)
    table.admin.relist_sstables(0)
    shard_id = table.shards()[0].shard_id
    base: Any = lance.dataset(table.uri)
    with base.mem_wal_writer(shard_id, durable_write=True, max_wal_flush_interval_ms=1) as writer:
        found = writer.lsm_scanner().to_table()
        read = dict(zip(found["id"].to_pylist(), found["name"].to_pylist(), strict=True))
        assert read == WHOLE
        writer.put(rows([5], "pylance").cast(table.schema).to_batches()[0])
    assert names(table) == WHOLE | {5: "pylance"}


def test_rows_that_were_put_after_the_restore_go_on_hiding_those_that_come_back(
    compacted_twice: tuple[lancemem.Table, int],
) -> None:
    table, version = compacted_twice
    with table.start_job(shard=0) as job:
        restore(table, version)
        # A job that runs goes on: what it acknowledges is newer than all that is missing.
        job.put(rows([10, 20], "after"))
        job.flush()
        job.delete(pa.table({"id": [2]}))
        with pytest.raises(lancemem.CorruptionError, match=OLDER):
            table.scan(consistency="live", jobs=[job]).to_table()
        table.admin.relist_sstables()
        wanted = {1: "first", 3: "third", 10: "after", 20: "after"}
        assert names(table, consistency="live", jobs=[job]) == wanted
        assert names(table) == wanted
        job.put(rows([30], "after"))
        job.flush()
    assert listed(table) == [2, 3, 4]
    wanted[30] = "after"
    assert names(table) == wanted
    table.start_job(shard=0).close(flush=True)
    table.compact()
    assert names(lancemem.open_table(table.uri)) == wanted


def test_a_live_read_knows_what_was_listed_again_beside_its_job(
    compacted_twice: tuple[lancemem.Table, int],
) -> None:
    table, version = compacted_twice
    with table.start_job(shard=0) as job:
        restore(table, version)
        lancemem.open_table(table.uri).admin.relist_sstables()
        for handle in (table, lancemem.open_table(table.uri)):
            assert names(handle, consistency="live", jobs=[job]) == WHOLE


def test_the_newer_version_that_is_restored_has_all_rows(
    compacted_twice: tuple[lancemem.Table, int],
) -> None:
    table, version = compacted_twice
    newest = lance.dataset(table.uri).version
    restore(table, version)
    with pytest.raises(lancemem.CorruptionError, match=OLDER):
        names(table)
    restore(table, newest)
    assert names(table) == WHOLE
    assert table.admin.relist_sstables() == []


BASE = ("data", "_deletions", "_versions", "_transactions", "_indices")
SHARDS = ("_mem_wal", "_lancemem")


def copy(table: lancemem.Table, folders: tuple[str, ...], place: Path) -> None:
    for name in folders:
        if Path(table.uri, name).exists():
            shutil.copytree(Path(table.uri, name), place / name, dirs_exist_ok=True)


@pytest.mark.parametrize("is_base_first", [True, False], ids=["base first", "shards first"])
def test_a_copy_whose_parts_are_of_different_times_is_named_and_repaired(
    is_base_first: bool, make_table: MakeTable, tmp_path: Path
) -> None:
    table = make_table()
    flush(table, [1], "first")
    table.compact()
    flush(table, [2], "second")
    place = tmp_path / "copy.lance"
    copy(table, BASE if is_base_first else SHARDS, place)
    table.compact()
    table.upsert(rows([3], "third"))
    copy(table, SHARDS if is_base_first else BASE, place)

    copied = lancemem.open_table(str(place))
    if not is_base_first:
        # The base was copied later than the shards, and has all rows that they have flushed.
        assert names(copied) == {1: "first", 2: "second"}
        assert copied.admin.relist_sstables() == []
        copied.upsert(rows([4], "fourth"))
        assert names(copied) == {1: "first", 2: "second", 4: "fourth"}
        return
    for ask in (lambda: names(copied), copied.compact, lambda: copied.upsert(rows([4], "lost"))):
        with pytest.raises(lancemem.CorruptionError, match=OLDER):
            ask()
    copied.collect_garbage(older_than=NOW)
    assert [report.relisted for report in copied.admin.relist_sstables()] == [[2]]
    copied.upsert(rows([4], "fourth"))
    wanted = {1: "first", 2: "second", 3: "third", 4: "fourth"}
    assert names(copied) == wanted
    copied.start_job(shard=0).close(flush=True)
    copied.compact()
    assert names(lancemem.open_table(str(place))) == wanted
    assert names(table) == {1: "first", 2: "second", 3: "third"}


def make_old(table: lancemem.Table, seconds: int) -> None:
    for path in Path(table.uri).rglob("*"):
        if path.is_file():
            status = path.stat()
            os.utime(path, (status.st_atime - seconds, status.st_mtime - seconds))


def test_no_collection_removes_what_the_base_table_has_lost(
    compacted_twice: tuple[lancemem.Table, int],
) -> None:
    table, version = compacted_twice
    restore(table, version)
    make_old(table, 30 * DAY)
    for handle in (table, lancemem.open_table(table.uri)):
        kinds = {garbage.kind for garbage in handle.collect_garbage(older_than=NOW).garbage}
        assert "orphan SSTable" not in kinds
        assert "shard manifest" not in kinds
    assert list(sstable_folders(table)) == [2]
    assert [report.relisted for report in table.admin.relist_sstables()] == [[2]]
    assert names(table) == WHOLE
    table.start_job(shard=0).close(flush=True)
    table.compact()
    make_old(table, 30 * DAY)
    table.collect_garbage(older_than=NOW)
    assert sstable_folders(table) == {}
    assert names(table) == WHOLE


def test_a_staged_sstable_that_was_committed_is_found_under_its_own_name(
    make_table: MakeTable,
) -> None:
    table = make_table()
    version = lance.dataset(table.uri).version
    bulk = table.bulk_writer()
    bulk.upsert(rows([1], "staged"))
    table.commit(bulk.finish())
    flush(table, [2], "put")
    table.compact()
    restore(table, version)
    make_old(table, 30 * DAY)
    table.collect_garbage(older_than=NOW)
    assert set(sstable_folders(table)) == {0, 2}
    assert [report.relisted for report in table.admin.relist_sstables()] == [[1, 2]]
    assert names(table) == {1: "staged", 2: "put"}


def test_what_cannot_be_listed_is_said_and_given_up_on_purpose_only(
    table: lancemem.Table, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = lance.dataset(table.uri).version
    for number in range(1, 6):
        flush(table, [number], "a")
    folders = sstable_folders(table)
    table.compact()
    restore(table, empty)
    shutil.rmtree(folders[1])
    [data] = (folders[4] / "data").iterdir()
    content = bytearray(data.read_bytes())
    content[len(content) // 2] ^= 1
    data.unlink()  # the base table may share the file
    data.write_bytes(content)

    assert main(["verify-sstables", table.uri]) == 1
    assert "generations 1 to 5: flushed" in capsys.readouterr().out
    assert main(["verify-wal", table.uri]) == 1
    assert "generations 1 to 5: flushed" in capsys.readouterr().err
    assert main(["relist-sstables", table.uri]) == 1
    out = capsys.readouterr().out
    assert "generations listed again: 2, 3, 5" in out
    assert f"generation 1: the folder {folders[1].name} is missing" in out
    assert f"generation 4: {folders[4].name}: data/" in out
    assert listed(table) == [2, 3, 5]
    with pytest.raises(lancemem.CorruptionError, match="generation 1, generation 4: flushed"):
        names(table)

    for number in (1, 3, 5):
        with pytest.raises(lancemem.InvalidInputError, match=r"newest missing generation .* is 4"):
            table.admin.abandon_generations(0, through_generation=number)
    assert main(["abandon-generations", table.uri, "--shard", "0", "--through", "4"]) == 0
    assert "generations through 4 given up" in capsys.readouterr().out
    for handle in (table, lancemem.open_table(table.uri)):
        assert names(handle) == {2: "a", 3: "a", 5: "a"}
    with pytest.raises(lancemem.InvalidInputError, match=r"no generation .* is missing"):
        table.admin.abandon_generations(0, through_generation=4)
    assert main(["relist-sstables", table.uri]) == 0
    flush(table, [6], "b")
    table.compact()
    assert names(table) == {2: "a", 3: "a", 5: "a", 6: "b"}


def test_a_version_that_was_restored_to_be_rid_of_rows_stays_without_them(
    compacted_twice: tuple[lancemem.Table, int],
) -> None:
    table, version = compacted_twice
    restore(table, version)
    table.admin.abandon_generations(0, through_generation=2)
    wanted = {1: "first", 3: "third", 10: "first"}
    assert names(table) == wanted
    assert table.admin.verify_sstables() == []
    flush(table, [4], "fourth")
    table.compact()
    make_old(table, 30 * DAY)
    table.collect_garbage(older_than=NOW)
    assert names(lancemem.open_table(table.uri)) == wanted | {4: "fourth"}


def test_shards_are_repaired_and_given_up_one_by_one(make_table: MakeTable) -> None:
    table = make_table(sharding=lancemem.bucket("id", 3))
    version = lance.dataset(table.uri).version
    table.upsert(rows(range(30), "a"))
    for shard in range(3):
        table.start_job(shard=shard).close(flush=True)
    table.compact()
    restore(table, version)
    ordinals = pa.array(table.shard_ordinals(pa.table({"id": range(30)}))).to_pylist()
    assert [report.relisted for report in table.admin.relist_sstables(1)] == [[1]]
    with pytest.raises(lancemem.CorruptionError, match=OLDER):
        names(table)
    table.admin.abandon_generations(2, through_generation=1)
    with pytest.raises(lancemem.CorruptionError, match=table.shards()[0].shard_id):
        names(table)
    with pytest.raises(lancemem.InvalidInputError, match="no generation"):
        table.admin.abandon_generations(1, through_generation=1)
    assert [report.shard_id for report in table.admin.relist_sstables()] == [
        table.shards()[0].shard_id
    ]
    assert sorted(names(table)) == [key for key, shard in enumerate(ordinals) if shard != 2]


def test_a_folder_that_no_manifest_version_names_is_taken_where_it_is_the_only_one(
    compacted_twice: tuple[lancemem.Table, int],
) -> None:
    table, version = compacted_twice
    restore(table, version)
    manifests = list(shard_folder(table).glob("manifest/*.binpb"))
    # The bits of the version, the lowest first.
    manifests.sort(key=lambda path: int(path.stem[::-1], 2))
    for path in manifests[:-1]:
        path.unlink()
    folder = sstable_folders(table)[2]
    other = folder.with_name("0badc0de_gen_2")
    shutil.copytree(folder, other)
    [report] = table.admin.relist_sstables()
    assert report.relisted == []
    assert "no manifest version is left" in report.missing[0]
    shutil.rmtree(other)
    assert [report.relisted for report in table.admin.relist_sstables()] == [[2]]
    assert names(table) == WHOLE


def test_deletion_vectors_and_the_record_index_do_not_hide_rows_that_come_back(
    table: lancemem.Table,
) -> None:
    table.alter(deletion_vectors=True)
    flush(table, range(40), "first")
    table.compact()
    table.create_record_index()
    version = lance.dataset(table.uri).version
    flush(table, range(20), "second")
    table.compact()
    flush(table, range(10), "third")
    table.write_deletion_vectors()
    wanted = {key: "third" if key < 10 else "second" if key < 20 else "first" for key in range(40)}
    assert names(table) == wanted
    restore(table, version)
    with pytest.raises(lancemem.CorruptionError, match=OLDER):
        table.write_deletion_vectors()
    table.admin.relist_sstables()
    for handle in (table, lancemem.open_table(table.uri)):
        assert names(handle) == wanted
        found = handle.get(list(range(40)))
        assert dict(zip(found["id"].to_pylist(), found["name"].to_pylist(), strict=True)) == wanted
    table.write_deletion_vectors()
    assert names(table) == wanted
    table.compact()
    assert names(lancemem.open_table(table.uri)) == wanted
    assert table.admin.verify_record_index().damage == []
    assert lance.dataset(table.uri).count_rows() == 40


def test_a_table_whose_index_was_made_anew_after_it_was_compacted_is_not_damaged(
    make_table: MakeTable,
) -> None:
    table = make_table(sharding=lancemem.bucket("id", 2))
    for name in ("a", "b"):
        table.upsert(rows(range(8), name))
        for shard in range(2):
            table.start_job(shard=shard).close(flush=True)
        table.compact()
    lance.dataset(table.uri).drop_index("__lance_mem_wal")
    again = lancemem.enable(table.uri, sharding=lancemem.bucket("id", 2))
    assert names(again) == dict.fromkeys(range(8), "b")
    again.upsert(rows(range(4), "c"))
    again.start_job(shard=0).close(flush=True)
    assert [report.damage for report in again.admin.verify_sstables()] == [[]]
    again.collect_garbage(older_than=NOW)
    again.compact()
    assert names(again) == {key: "c" if key < 4 else "b" for key in range(8)}


def test_a_shard_that_pylance_made_is_judged_from_its_first_compaction_on(
    table: lancemem.Table,
) -> None:
    base: Any = lance.dataset(table.uri)
    shard_id = "9b2f0000-0000-4000-8000-000000000001"
    for number in (1, 2):
        with base.mem_wal_writer(shard_id, durable_write=True) as writer:
            writer.put(rows([number], "pylance").cast(table.schema).to_batches()[0])
        table.compact()
        if number == 1:
            version = lance.dataset(table.uri).version
    assert names(table) == {1: "pylance", 2: "pylance"}
    restore(table, version)
    with pytest.raises(lancemem.CorruptionError, match=rf"{shard_id}.*{OLDER}"):
        names(table)
    assert [report.relisted for report in table.admin.relist_sstables()] == [[2]]
    assert names(table) == {1: "pylance", 2: "pylance"}


def test_a_table_that_is_compacted_and_flushed_beside_its_readers_is_never_called_damaged(
    table: lancemem.Table,
) -> None:
    """A manifest that is older than the base, and a base that is older than the manifest."""
    reader = lancemem.open_table(table.uri)
    with table.start_job(shard=0) as job:
        for number in range(6):
            job.put(rows([number], "a"))
            job.flush()
            snapshot = reader.snapshot()
            table.compact()
            assert snapshot.scan().count_rows() == number + 1
            assert len(names(reader, consistency="live", jobs=[job])) == number + 1
            assert len(names(reader, consistency="flushed")) == number + 1
            assert reader.get([number]).num_rows == 1
    assert names(lancemem.open_table(table.uri)) == dict.fromkeys(range(6), "a")
