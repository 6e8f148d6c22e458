"""Files that are larger than any writer makes them: refused before a byte is read.

Owns: one file of each kind that is read whole, stretched by a hole of many GiB, or replaced by a
pipe, an endless device or a link to itself. Does not own: files whose bytes are damaged
(`test_damaged_files` and its like), or how Lance treats such files of the base table.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import lancemem
from tests.damages import told, unnamed

if TYPE_CHECKING:
    from collections.abc import Callable

# More than the limit of every kind of file. The hole takes no room on a disk.
LARGE = 6 << 30
EXPECTED = [*range(10, 600), *range(700, 720)]


def rows(numbers: range, value: float) -> pa.Table:
    names = [f"n{number}" for number in numbers]
    return pa.table({"id": list(numbers), "name": names, "value": [value] * len(names)})


def opened(table: lancemem.Table) -> lancemem.Table:
    return lancemem.open_table(table.uri)


def ids(table: lancemem.Table) -> list[int]:
    return sorted(opened(table).scan().to_table()["id"].to_pylist())


def file_of(table: lancemem.Table, pattern: str) -> Path:
    return max(Path(table.uri).glob(pattern))


def of_run(table: lancemem.Table, pattern: str) -> Path:
    """Give a file of the SSTable that is listed."""
    [sstable] = table.shards()[0].sstables
    return file_of(table, f"_mem_wal/*/{sstable.path}/{pattern}")


def stretch(path: Path) -> None:
    inside = path.read_bytes()
    path.unlink()  # it may be the second name of another file
    path.write_bytes(inside)
    os.truncate(path, LARGE)


@pytest.fixture
def full(table: lancemem.Table) -> lancemem.Table:
    """Return a table with base, record index, an SSTable with deletion vectors, and log entries."""
    with table.start_job(shard=0) as job:
        job.put(rows(range(600), 1.0))
        job.flush()
    table.compact()
    table.create_record_index()
    table.alter(deletion_vectors=True)
    with table.start_job(shard=0) as job:
        job.delete(rows(range(10), 0.0).select(["id"]))
        job.put(rows(range(700, 710), 2.0))
        job.flush()
    table.write_deletion_vectors()
    with table.start_job(shard=0) as job:
        job.put(rows(range(710, 720), 3.0))
    assert ids(table) == EXPECTED
    return opened(table)


def test_a_log_entry_is_named_by_readers_by_the_next_owner_and_by_a_check(
    full: lancemem.Table,
) -> None:
    position = full.admin.verify_wal(0).last_wal_position
    path = file_of(full, f"_mem_wal/*/wal/{f'{position:064b}'[::-1]}.arrow")
    stretch(path)
    name = f"WAL entry {position} of shard {full.shards()[0].shard_id} is damaged (too large)"
    for call in (opened(full).scan().to_table, opened(full).snapshot):
        assert unnamed(name, call) == "", call
    assert unnamed(name, opened(full).start_job, shard=0) == ""
    report = full.admin.verify_wal(0)
    assert report.first_damaged_position == position
    [finding] = report.findings
    assert (finding.kind, finding.bytes, finding.num_rows) == ("too large", 0, None)
    assert f"{LARGE} bytes" in (finding.detail or "")


def test_a_log_with_such_an_entry_is_truncated_once_the_entry_was_moved(
    full: lancemem.Table, tmp_path: Path
) -> None:
    position = full.admin.verify_wal(0).last_wal_position
    path = file_of(full, f"_mem_wal/*/wal/{f'{position:064b}'[::-1]}.arrow")
    stretch(path)
    epoch = full.shards()[0].writer_epoch
    with pytest.raises(lancemem.InvalidInputError, match="too large to be copied") as refused:
        full.admin.truncate_wal(0, from_position=position)
    assert str(path.relative_to(full.uri)) in str(refused.value)
    assert full.shards()[0].writer_epoch == epoch
    path.rename(tmp_path / "moved")
    assert full.admin.verify_wal(0).first_damaged_position is None
    assert ids(full) == EXPECTED[:-10]


def test_a_shard_manifest_is_named_by_readers_and_by_the_next_owner(full: lancemem.Table) -> None:
    path = file_of(full, "_mem_wal/*/manifest/*.binpb")
    newest = max(path.parent.glob("*.binpb"), key=lambda path: int(path.stem[::-1], 2))
    stretch(newest)
    table = opened(full)
    for call in (table.scan().to_table, table.snapshot, table.shards, table.compact):
        assert unnamed(f"{newest.name} is damaged (too large)", call) == "", call
    assert unnamed(f"{newest.name} is damaged (too large)", table.start_job, shard=0) == ""


def test_a_version_hint_is_not_trusted(full: lancemem.Table) -> None:
    stretch(file_of(full, "_mem_wal/*/manifest/version_hint.json"))
    assert ids(full) == EXPECTED
    opened(full).start_job(shard=0).close()


@pytest.mark.parametrize("pattern", ["_versions/*", "data/*"])
def test_an_sstable_is_named_by_every_read_of_it(full: lancemem.Table, pattern: str) -> None:
    path = of_run(full, pattern)
    stretch(path)
    sstable = path.parents[1].name
    assert unnamed(sstable, opened(full).scan().to_table) == ""
    assert unnamed(sstable, opened(full).get, [705]) == ""
    assert unnamed(sstable, opened(full).compact) == ""


def test_a_data_file_of_an_sstable_is_refused_by_its_size(full: lancemem.Table) -> None:
    path = of_run(full, "data/*")
    stretch(path)
    name = f"data/{path.name} of SSTable {path.parents[1].name}"
    assert unnamed(name, opened(full).scan().to_table) == ""
    with pytest.raises(lancemem.CorruptionError, match=r"\(too large\): file size differs from"):
        opened(full).scan().to_table()


def test_a_check_reads_no_file_whose_size_is_wrong(full: lancemem.Table) -> None:
    path = of_run(full, "data/*")
    whole = path.read_bytes()
    [report] = full.admin.verify_sstables()
    assert report.damage == []
    stretch(path)
    [stretched] = full.admin.verify_sstables()
    assert stretched.damage == [f"data/{path.name}: too large"]
    assert stretched.bytes == report.bytes - len(whole), "not a byte of it was read"
    assert unnamed(f"data/{path.name} of SSTable", opened(full).compact) == ""
    path.write_bytes(whole[:-1])
    [truncated] = full.admin.verify_sstables()
    assert truncated.damage == [f"data/{path.name}: cut short"]
    path.write_bytes(whole)
    assert full.admin.verify_sstables() == [report]


@pytest.mark.parametrize("pattern", ["data/*.lance", "_versions/*.manifest"])
def test_a_file_of_the_base_that_is_a_link_to_itself_is_named(
    full: lancemem.Table, pattern: str
) -> None:
    for path in Path(full.uri).glob(pattern):
        loop(path)
    with pytest.raises(lancemem.CorruptionError):
        opened(full).scan().to_table()


def test_a_bloom_filter_is_named_by_a_lookup(full: lancemem.Table) -> None:
    stretch(of_run(full, "bloom_filter.bin"))
    with pytest.raises(lancemem.CorruptionError, match=f"it has {LARGE} bytes"):
        opened(full).get(list(range(700, 705)))


@pytest.mark.parametrize(
    "pattern",
    [
        "_lancemem/deletion_vectors/*/*.binpb",
        "_lancemem/record_index/runs/*.binpb",
    ],
)
def test_what_can_be_done_without_is_left_out_with_a_warning(
    full: lancemem.Table, pattern: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = file_of(full, pattern)
    answer = full.get([0, 10, 599, 705])
    stretch(path)
    table = opened(full)
    assert ids(table) == EXPECTED
    assert table.get([0, 10, 599, 705]) == answer
    assert f"it has {LARGE} bytes" in told(caplog)
    assert opened(full).compact().num_generations == 1
    assert ids(table) == EXPECTED


def test_a_decision_about_a_bulk_write_is_named(table: lancemem.Table) -> None:
    bulk = table.bulk_writer()
    bulk.upsert(rows(range(10), 1.0))
    staged = bulk.finish()
    table.commit(staged, write="w")
    stretch(file_of(table, "_lancemem/staged/w"))
    for call in (opened(table).commit, opened(table).abort):
        said = unnamed("_lancemem/staged/w is damaged (too large)", call, staged, write="w")
        assert said == "", call
    assert ids(table) == list(range(10))


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def endless(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def remove(path: Path) -> None:
    if path.is_dir():
        path.rmdir()
    else:
        path.unlink()


@pytest.mark.parametrize("instead", [pipe, endless, folder, loop])
def test_a_log_entry_or_a_manifest_that_is_no_file_is_named(
    full: lancemem.Table, instead: Callable[[Path], None], tmp_path: Path
) -> None:
    for pattern in ("_mem_wal/*/wal/*.arrow", "_mem_wal/*/manifest/*.binpb"):
        found = Path(full.uri).glob(pattern)
        path = max(found, key=lambda path: int(path.stem[::-1], 2))
        copy = tmp_path / path.name
        shutil.copy2(path, copy)
        instead(path)
        assert unnamed("is damaged (no file)", opened(full).scan().to_table) == ""
        assert unnamed("is damaged (no file)", opened(full).start_job, shard=0) == ""
        remove(path)
        copy.rename(path)
    assert ids(full) == EXPECTED


@pytest.mark.parametrize("instead", [pipe, endless, folder, loop])
def test_a_log_with_an_entry_that_is_no_file_is_truncated_once_the_entry_was_moved(
    full: lancemem.Table, instead: Callable[[Path], None]
) -> None:
    with opened(full).start_job(shard=0) as job:
        job.put(rows(range(720, 730), 4.0))
    position = full.admin.verify_wal(0).last_wal_position - 1
    path = file_of(full, f"_mem_wal/*/wal/{f'{position:064b}'[::-1]}.arrow")
    instead(path)
    epoch = full.shards()[0].writer_epoch
    assert [finding.kind for finding in full.admin.verify_wal(0).findings] == ["no file", "intact"]
    with pytest.raises(
        lancemem.InvalidInputError, match="not a file that can be copied"
    ) as refused:
        full.admin.truncate_wal(0, from_position=position)
    assert str(path.relative_to(full.uri)) in str(refused.value)
    assert full.shards()[0].writer_epoch == epoch
    remove(path)
    assert [finding.kind for finding in full.admin.verify_wal(0).findings] == ["hole", "intact"]
    assert full.admin.truncate_wal(0, from_position=position).findings
    opened(full).start_job(shard=0).close()


@pytest.mark.parametrize("instead", [pipe, endless, folder, loop])
@pytest.mark.parametrize(
    "pattern",
    [
        "_mem_wal/*/manifest/version_hint.json",
        "_lancemem/deletion_vectors/*/*.binpb",
        "_lancemem/record_index/runs/*.binpb",
        "_lancemem/record_index/*/page_data.lance",
    ],
)
def test_what_can_be_done_without_may_be_no_file(
    full: lancemem.Table, pattern: str, instead: Callable[[Path], None]
) -> None:
    answer = full.get([0, 10, 599, 705])
    instead(file_of(full, pattern))
    assert ids(full) == EXPECTED
    assert opened(full).get([0, 10, 599, 705]) == answer
    assert opened(full).compact().num_generations == 1
    assert ids(full) == EXPECTED


@pytest.mark.parametrize("instead", [pipe, endless, folder, loop])
@pytest.mark.parametrize("pattern", ["data/*", "bloom_filter.bin", "_pk_index/page_data.lance"])
def test_a_file_of_an_sstable_that_is_no_file_is_named(
    full: lancemem.Table, pattern: str, instead: Callable[[Path], None]
) -> None:
    path = of_run(full, pattern)
    instead(path)
    name = f"{path.name} of SSTable"
    [report] = opened(full).admin.verify_sstables()
    assert [line.endswith(": no file") for line in report.damage] == [True], report.damage
    assert unnamed(name, opened(full).compact) == ""
    if pattern == "data/*":
        assert unnamed(name, opened(full).scan().to_table) == ""


def test_a_manifest_of_an_sstable_that_is_a_pipe_is_named(full: lancemem.Table) -> None:
    path = of_run(full, "_versions/*")
    pipe(path)
    assert unnamed(path.parents[1].name, opened(full).scan().to_table) == ""
    assert unnamed(path.parents[1].name, opened(full).compact) == ""
