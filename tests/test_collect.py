"""Collection of garbage: what goes, what stays, and that jobs and readers go on meanwhile.

Owns: the conditions on a real table with jobs, readers and other programs. Not here: the rules on
numbers (unit tests of `collect`), random programs (test_compaction_model).
"""

from __future__ import annotations

import os
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import lance
import pyarrow as pa
import pytest

import lancemem

if TYPE_CHECKING:
    from tests.conftest import MakeTable

NOW = timedelta(0)
DAY = 24 * 3600


def rows(schema: pa.Schema, ids: range | list[int], name: str) -> pa.Table:
    return pa.table(
        [list(ids), [f"{name}{i}" for i in ids], [float(i) for i in ids]], schema=schema
    )


def flush(table: lancemem.Table, ids: range, name: str) -> None:
    with table.start_job(shard=0) as job:
        job.put(rows(table.schema, ids, name))
        job.flush()


def shard_folder(table: lancemem.Table) -> Path:
    return Path(table.uri) / "_mem_wal" / table.shards()[0].shard_id


def run_folders(table: lancemem.Table) -> set[str]:
    return {path.name for path in shard_folder(table).iterdir() if "_gen_" in path.name}


def files(folder: str | Path) -> set[str]:
    return {str(path) for path in Path(folder).rglob("*") if path.is_file()}


def make_old(table: lancemem.Table, seconds: float) -> None:
    """Make every file of the shard, and every decision about a bulk write, older."""
    decided = Path(table.uri) / "_lancemem" / "staged"
    for path in [*shard_folder(table).rglob("*"), *decided.rglob("*")]:
        then = path.stat().st_mtime - seconds
        os.utime(path, (then, then))


def kinds(result: lancemem.CollectionResult) -> Counter[str]:
    return Counter(garbage.kind for garbage in result.garbage)


def names(table: lancemem.Table) -> dict[int, str]:
    data = table.scan().to_table()
    found = dict(zip(data["id"].to_pylist(), data["name"].to_pylist(), strict=True))
    assert len(found) == data.num_rows
    return found


def test_a_dry_run_lists_each_thing_with_its_reason_and_removes_nothing(
    table: lancemem.Table,
) -> None:
    for step in range(3):
        flush(table, range(step, step + 10), "a")
    table.compact()
    before = files(table.uri)
    planned = table.collect_garbage(dry_run=True, older_than=NOW)
    assert files(table.uri) == before
    found = kinds(planned)
    assert found["compacted SSTable"] == 3
    assert found["WAL entry"] == 2  # the highest entry stays, and so do sentinels
    assert all(garbage.reason for garbage in planned.garbage)
    assert planned.bytes == sum(garbage.bytes for garbage in planned.garbage) > 0
    done = table.collect_garbage(older_than=NOW)
    assert sorted(it.path for it in done.garbage) == sorted(it.path for it in planned.garbage)
    assert run_folders(table) == set()
    assert table.collect_garbage(older_than=NOW).garbage == []
    assert len(names(table)) == 12


def test_nothing_goes_before_the_grace_period_is_over(table: lancemem.Table) -> None:
    flush(table, range(10), "a")
    table.compact()
    assert table.collect_garbage().garbage == []
    make_old(table, 2 * 3600)
    assert kinds(table.collect_garbage())["compacted SSTable"] == 1


def test_the_grace_period_counts_from_the_end_of_use_and_not_from_the_flush(
    table: lancemem.Table,
) -> None:
    flush(table, range(10), "a")
    make_old(table, 2 * 3600)  # flushed two hours ago,
    table.compact()  # moved now
    assert table.collect_garbage().garbage == []
    assert len(run_folders(table)) == 1


def test_an_sstable_that_was_flushed_and_compacted_a_moment_ago_stays_in_an_old_table_too(
    table: lancemem.Table,
) -> None:
    flush(table, range(10), "a")
    make_old(table, 2 * 3600)
    flush(table, range(20), "b")
    snapshot = lancemem.open_table(table.uri).snapshot(consistency="flushed")
    token = snapshot.token
    del snapshot
    table.compact()
    assert "compacted SSTable" not in kinds(table.collect_garbage())
    # Another process may hold no more than the name of a snapshot.
    again = lancemem.open_table(table.uri).snapshot(token=token)
    assert again.scan().count_rows() == 20
    del again
    make_old(table, 2 * 3600)
    assert kinds(table.collect_garbage())["compacted SSTable"] == 2


def test_the_snapshot_that_a_handle_caches_holds_no_sstable_back(
    table: lancemem.Table,
) -> None:
    flush(table, range(10), "a")
    first = table.snapshot(token=table.snapshot(consistency="flushed").token)
    table.compact()
    make_old(table, 2 * 3600)
    assert table.collect_garbage().num_pinned_sstables == 1
    assert first.scan().count_rows() == 10
    del first
    assert kinds(table.collect_garbage())["compacted SSTable"] == 1


def test_a_staged_sstable_of_last_week_is_not_committed_any_more(table: lancemem.Table) -> None:
    bulk = table.bulk_writer()
    bulk.upsert(rows(table.schema, range(3), "a"))
    staged = bulk.finish()
    make_old(table, 6 * DAY + 60)
    with pytest.raises(lancemem.InvalidInputError, match="more than six days ago"):
        table.commit(staged)
    make_old(table, DAY)
    table.upsert(rows(table.schema, range(3), "b"))
    assert set(names(table).values()) == {"b0", "b1", "b2"}


def test_a_staged_sstable_that_is_committed_again_is_there_once(table: lancemem.Table) -> None:
    bulk = table.bulk_writer()
    bulk.upsert(rows(table.schema, range(3), "a"))
    staged = bulk.finish()
    assert table.commit(staged + staged).num_sstables == 1
    table.upsert(rows(table.schema, range(1), "b"))
    assert table.commit(staged).num_shards_already_written == 1
    assert names(table) == {0: "b0", 1: "a1", 2: "a2"}


@pytest.mark.parametrize("mode", ["link", "rewrite"])
def test_a_staged_sstable_that_is_committed_again_after_a_compaction_hides_no_newer_rows(
    table: lancemem.Table, mode: Literal["link", "rewrite"]
) -> None:
    first, second = table.bulk_writer(), table.bulk_writer()
    first.upsert(rows(table.schema, range(3), "a"))
    second.upsert(rows(table.schema, range(2, 5), "c"))
    compacted, new = first.finish(), second.finish()
    # The data of a large SSTable are there long before its other files.
    for path in Path(table.uri).glob("_mem_wal/*/*_gen_0/data/*"):
        os.utime(path, (time.time() - 3600,) * 2)
    table.commit(compacted)
    table.upsert(rows(table.schema, range(1), "b"))
    table.start_job(shard=0).close(flush=True)
    # A commit touches the files of an SSTable, so that Lance's clean-up leaves them.
    assert table.compact(mode=mode).num_generations == 2
    running = table.start_job(shard=0)
    assert table.commit(compacted).num_shards_already_written == 1
    running.put(rows(table.schema, range(1, 2), "b"))
    running.close()
    committed = table.commit(compacted + new)
    assert (committed.num_sstables, committed.num_rows, committed.num_shards_already_written) == (
        1,
        3,
        0,
    )
    assert names(table) == {0: "b0", 1: "b1", 2: "c2", 3: "c3", 4: "c4"}


@pytest.mark.parametrize("txn", [("load", 1), None])
def test_a_commit_is_repeated_after_its_sstables_were_compacted_and_collected(
    table: lancemem.Table, txn: tuple[str, int] | None
) -> None:
    bulk = table.bulk_writer()
    bulk.upsert(rows(table.schema, range(3), "a"))
    staged = bulk.finish()
    assert table.commit(staged, txn=txn).num_sstables == 1
    table.compact()
    table.upsert(rows(table.schema, range(1), "b"))
    make_old(table, 8 * DAY)
    assert kinds(table.collect_garbage())["orphan SSTable"] == 1
    assert table.commit(staged, txn=txn).num_shards_already_written == 1
    assert names(table) == {0: "b0", 1: "a1", 2: "a2"}
    with pytest.raises(lancemem.InvalidInputError, match="is missing"):
        table.commit(staged, txn=("other", 1))


def test_the_decision_about_a_bulk_write_of_last_week_is_collected(table: lancemem.Table) -> None:
    def staged(name: str) -> list[lancemem.StagedSsTable]:
        bulk = table.bulk_writer()
        bulk.upsert(rows(table.schema, range(3), name))
        return bulk.finish()

    committed, aborted = staged("a"), staged("b")
    table.commit(committed, write="one")
    assert table.abort(aborted, write="other")
    make_old(table, 6 * DAY)
    assert "staged write" not in kinds(table.collect_garbage())
    make_old(table, DAY + 2 * 3600)
    assert kinds(table.collect_garbage())["staged write"] == 2
    assert not table.abort(committed, write="one")
    assert table.commit(committed, write="one").num_shards_already_written == 1
    with pytest.raises(lancemem.LancememError, match="staged SSTable"):
        table.commit(aborted, write="other")
    assert names(table) == {0: "a0", 1: "a1", 2: "a2"}


def test_an_sstable_that_was_committed_is_not_aborted_although_it_is_compacted(
    table: lancemem.Table,
) -> None:
    bulk = table.bulk_writer()
    bulk.upsert(rows(table.schema, range(3), "a"))
    staged = bulk.finish()
    table.commit(staged)
    table.compact()
    for handle in (table, lancemem.open_table(table.uri)):
        with pytest.raises(
            lancemem.InvalidInputError, match="is committed: its bulk write cannot be aborted"
        ):
            handle.abort(staged, write="late")
    assert names(table) == {0: "a0", 1: "a1", 2: "a2"}


def test_a_name_of_a_bulk_write_that_no_file_can_have_is_refused(table: lancemem.Table) -> None:
    for name in ("", "a/b", "x" * 201, "\u00e9" * 101):
        with pytest.raises(lancemem.InvalidInputError, match="cannot name a bulk write"):
            table.abort([], write=name)
    assert table.abort([], write="x" * 200)


def test_no_sstable_is_aborted_through_a_link_to_a_folder_elsewhere(
    table: lancemem.Table, tmp_path: Path
) -> None:
    bulk = table.bulk_writer()
    bulk.upsert(rows(table.schema, range(3), "a"))
    staged = bulk.finish()
    shard = Path(table.uri, "_mem_wal", staged[0].shard_id)
    elsewhere = shard.rename(tmp_path / "elsewhere")
    shard.symlink_to(elsewhere)
    with pytest.raises(lancemem.InvalidInputError, match="it leads to"):
        table.abort(staged, write="w")
    assert (elsewhere / staged[0].path / "bloom_filter.bin").exists()


def test_what_a_reader_or_a_job_needs_stays(table: lancemem.Table) -> None:
    flush(table, range(10), "a")
    with table.start_job(shard=0) as job:
        job.put(rows(table.schema, range(5, 15), "b"))
        table.collect_garbage(older_than=NOW)
        assert len(names(lancemem.open_table(table.uri))) == 15
    table.collect_garbage(older_than=NOW)
    assert len(names(lancemem.open_table(table.uri))) == 15
    assert len(run_folders(table)) == 1


def test_a_stream_that_is_being_read_keeps_its_sstables(make_table: MakeTable) -> None:
    config = lancemem.WriterConfig(max_memtable_rows=1_000_000)
    table = make_table(config=config)
    flush(table, range(200_000), "a")
    flush(table, range(100_000, 300_000), "b")
    stream = pa.RecordBatchReader.from_stream(table.scan(consistency="flushed").to_reader())
    first = stream.read_next_batch()
    other = lancemem.open_table(table.uri)
    other.compact()
    pinned = other.collect_garbage(older_than=NOW)
    assert pinned.num_pinned_sstables == 2
    assert len(run_folders(table)) == 2
    assert first.num_rows + sum(batch.num_rows for batch in stream) == 300_000
    del stream, first
    table.scan(consistency="flushed").count_rows()  # the other handle drops its SSTables too
    assert kinds(other.collect_garbage(older_than=NOW))["compacted SSTable"] == 2


def test_a_snapshot_keeps_its_sstables_from_a_collection_of_the_table_under_another_name(
    table: lancemem.Table, tmp_path: Path
) -> None:
    flush(table, range(10), "a")
    snapshot = table.snapshot(consistency="flushed")
    link = tmp_path / "link"
    link.symlink_to(table.uri, target_is_directory=True)
    for name in (str(link), f"file://{link}"):
        other = lancemem.open_table(name)
        other.compact()
        assert other.collect_garbage(older_than=NOW).num_pinned_sstables == 1
        assert snapshot.scan().to_table().num_rows == 10
    del snapshot
    table.scan(consistency="flushed").count_rows()
    assert kinds(other.collect_garbage(older_than=NOW))["compacted SSTable"] == 1


def test_a_stream_with_a_condition_keeps_its_sstables_from_its_own_table_too(
    make_table: MakeTable,
) -> None:
    table = make_table(config=lancemem.WriterConfig(max_memtable_rows=1_000_000))
    flush(table, range(200_000), "a")
    flush(table, range(100_000, 300_000), "b")
    scan = table.scan(filter="id >= 0", consistency="flushed")
    stream = pa.RecordBatchReader.from_stream(scan.to_reader())
    first = stream.read_next_batch()
    del scan
    table.compact()
    assert table.collect_garbage(older_than=NOW).num_pinned_sstables == 2
    assert first.num_rows + sum(batch.num_rows for batch in stream) == 300_000
    del stream, first
    assert kinds(table.collect_garbage(older_than=NOW))["compacted SSTable"] == 2


def test_a_writer_that_slept_finds_the_slot_behind_its_last_entry_taken(
    table: lancemem.Table,
) -> None:
    """B1: a fenced writer must never acknowledge a row below the covered position as durable."""
    sleeper = table.start_job(shard=0)
    sleeper.put(rows(table.schema, range(5), "sleeper"))
    for step in range(3):  # three successors, so that its own fence is not the newest
        flush(table, range(step, step + 5), f"s{step}-")
    table.compact()
    collected = table.collect_garbage(older_than=NOW)
    assert kinds(collected)["WAL entry"] > 0
    with pytest.raises(lancemem.WriterFencedError):
        sleeper.put(rows(table.schema, [99], "lost"))
    assert 99 not in names(lancemem.open_table(table.uri))


def test_fences_go_after_a_week_but_for_the_newest(table: lancemem.Table) -> None:
    for step in range(4):
        flush(table, range(step, step + 5), "a")
    table.compact()
    table.collect_garbage(older_than=NOW)
    left = len(list((shard_folder(table) / "wal").iterdir()))
    assert left >= 4
    make_old(table, 8 * DAY)
    table.collect_garbage(older_than=NOW)
    assert len(list((shard_folder(table) / "wal").iterdir())) in (1, 2)
    flush(table, range(100, 105), "b")
    assert len(names(lancemem.open_table(table.uri))) == 13


def test_a_job_goes_on_through_collections_and_so_does_its_successor(
    table: lancemem.Table,
) -> None:
    """B12: no covered entry is replayed, and no other entry is gone."""
    expected: dict[int, str] = {}
    for life in range(3):
        job = table.start_job(shard=0)
        for step in range(6):
            ids = range(step * 3, step * 3 + 10)
            job.put(rows(table.schema, ids, f"l{life}s{step}-"))
            expected |= {i: f"l{life}s{step}-{i}" for i in ids}
            if step % 2:
                job.flush()
            if step % 3 == 2:
                table.compact()
            table.collect_garbage(older_than=NOW)
        # No close: the next life takes the shard over.
        assert names(lancemem.open_table(table.uri)) == expected
    job = table.start_job(shard=0)
    other = table.start_job(shard=0)
    table.collect_garbage(older_than=NOW)
    other.put(rows(table.schema, [1], "other"))
    with pytest.raises(lancemem.WriterFencedError):
        job.put(rows(table.schema, [2], "job"))
    assert names(lancemem.open_table(table.uri)) == expected | {1: "other1"}


def test_a_reader_that_paused_reads_on_behind_what_was_collected(table: lancemem.Table) -> None:
    reader = lancemem.open_table(table.uri)
    with table.start_job(shard=0) as job:
        job.put(rows(table.schema, range(5), "a"))
        assert len(names(reader)) == 5
        job.put(rows(table.schema, range(5, 10), "b"))
        job.put(rows(table.schema, range(10, 15), "c"))
        job.flush()
        job.put(rows(table.schema, range(15, 20), "d"))
        table.compact()
        assert kinds(table.collect_garbage(older_than=NOW))["WAL entry"] > 0
        assert len(names(reader)) == 20


def test_a_left_over_of_a_failed_flush_goes_once_its_generation_was_flushed(
    table: lancemem.Table,
) -> None:
    flush(table, range(5), "a")
    folder = shard_folder(table)
    for name in ("0badc0de_gen_1", "0badc0de_gen_2"):
        (folder / name / "data").mkdir(parents=True)
        (folder / name / "data" / "x.lance").write_bytes(b"half a file")
    (folder / "notes").mkdir()
    (folder / "notes" / "keep.txt").write_text("not ours")
    assert kinds(table.collect_garbage(older_than=NOW))["orphan SSTable"] == 1
    assert (folder / "0badc0de_gen_2").exists(), "the flush of generation 2 may be running"
    assert not (folder / "0badc0de_gen_1").exists()
    assert (folder / "notes" / "keep.txt").exists()
    flush(table, range(5), "b")
    assert kinds(table.collect_garbage(older_than=NOW))["orphan SSTable"] == 1
    assert len(names(table)) == 5


def test_nothing_outside_the_table_is_removed(table: lancemem.Table, tmp_path: Path) -> None:
    flush(table, range(5), "a")
    outside = tmp_path / "precious"
    outside.mkdir()
    (outside / "file").write_text("precious")
    link = shard_folder(table) / "0badc0de_gen_1"
    link.symlink_to(outside, target_is_directory=True)
    with pytest.raises(
        lancemem.InvalidInputError, match="removes only files inside of the table's folder"
    ):
        table.collect_garbage(older_than=NOW)
    assert (outside / "file").read_text() == "precious"


# Files of these names would be garbage in a folder of the table.
LINKED = {
    "_lancemem/staged": "0123456789abcdef",
    "_lancemem/deletion_vectors/{shard}": "0badc0de_gen_1.0123456789abcdef.binpb",
    "_mem_wal/{shard}/wal": f"{1:064b}"[::-1] + ".arrow",
    "data": "0badc0de.lance",
    "_indices": "0badc0de/x.txt",
    "_deletions": "1-1-1.bin",
}


@pytest.mark.parametrize("place", LINKED)
def test_no_file_is_removed_through_a_link_to_a_folder_elsewhere(
    table: lancemem.Table, tmp_path: Path, place: str
) -> None:
    flush(table, range(5), "a")
    table.compact()
    folder = Path(table.uri) / place.format(shard=shard_folder(table).name)
    outside = tmp_path / "precious"
    if folder.exists():
        folder.rename(outside)
    file = outside / LINKED[place]
    file.parent.mkdir(parents=True, exist_ok=True)
    if not file.exists():
        file.write_text("precious")
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.symlink_to(outside, target_is_directory=True)
    make_old(table, 30 * DAY)
    for path in outside.rglob("*"):
        os.utime(path, (time.time() - 30 * DAY,) * 2)
    before = sorted(outside.rglob("*"))
    try:
        table.collect_garbage(older_than=NOW)
    except lancemem.InvalidInputError as error:
        assert "removes only files inside of the table's folder" in str(error)  # noqa: PT017 - or nothing is
    assert sorted(outside.rglob("*")) == before
    assert len(names(lancemem.open_table(table.uri))) == 5


def test_foreign_files_beside_decisions_about_bulk_writes_stay(
    table: lancemem.Table,
) -> None:
    folder = Path(table.uri) / "_lancemem" / "staged"
    (folder / "sub").mkdir(parents=True)
    (folder / "0123456789abcdef").write_text("link")
    (folder / "sub" / "notes").write_text("not ours")
    make_old(table, 30 * DAY)
    assert kinds(table.collect_garbage(older_than=NOW))["staged write"] == 1
    assert [path.name for path in folder.rglob("*")] == ["sub", "notes"]


@pytest.mark.parametrize("fsync", [True, False])
@pytest.mark.parametrize(
    "folder", ["_mem_wal/*/*_gen_1", "data", "_transactions", "_mem_wal/*/wal"]
)
def test_a_pipe_in_a_folder_of_the_table_is_never_opened(
    make_table: MakeTable, folder: str, *, fsync: bool
) -> None:
    table = make_table(config=lancemem.WriterConfig(fsync=fsync))
    for step in range(3):
        flush(table, range(step, step + 10), "a")
        table.compact()
    place = next(Path(table.uri).glob(folder))
    os.mkfifo(place / "pipe")
    (place / "endless").symlink_to("/dev/zero")
    assert kinds(table.collect_garbage(older_than=NOW))["compacted SSTable"] == 3
    assert run_folders(table) == set()
    assert len(names(lancemem.open_table(table.uri))) == 12


def test_a_collection_names_a_link_to_itself_and_goes_on_without_it(
    table: lancemem.Table,
) -> None:
    for step in range(3):
        flush(table, range(step, step + 10), "a")
    table.compact()
    link = next(shard_folder(table).glob("*_gen_1")) / "loop"
    link.symlink_to("loop")
    with pytest.raises(lancemem.CorruptionError, match="loop"):
        table.collect_garbage(older_than=NOW)
    link.unlink()
    assert kinds(table.collect_garbage(older_than=NOW))["compacted SSTable"] == 3


def test_old_manifests_go_and_the_newest_stay_without_a_gap(table: lancemem.Table) -> None:
    for step in range(8):
        flush(table, range(step, step + 3), "a")
    folder = shard_folder(table) / "manifest"
    before = len(list(folder.glob("*.binpb")))
    assert kinds(table.collect_garbage(older_than=NOW))["shard manifest"] == 0
    make_old(table, 2 * DAY)
    gone = kinds(table.collect_garbage(older_than=NOW))["shard manifest"]
    assert gone == before - 10
    left = sorted(int(path.stem[::-1], 2) for path in folder.glob("*.binpb"))
    assert left == list(range(left[0], left[0] + 10))
    (folder / "version_hint.json").unlink()
    flush(lancemem.open_table(table.uri), range(50, 55), "b")
    assert len(names(lancemem.open_table(table.uri))) == 15


def test_a_crash_in_the_middle_leaves_a_table_that_works_and_can_be_collected(
    table: lancemem.Table,
) -> None:
    for step in range(3):
        flush(table, range(step, step + 10), "a")
    table.compact()
    planned = table.collect_garbage(dry_run=True, older_than=NOW).garbage
    for garbage in planned[::2]:
        path = Path(table.uri) / garbage.path
        if path.is_dir():
            next(file for file in path.rglob("*") if file.is_file()).unlink()
        else:
            path.unlink()
    fresh = lancemem.open_table(table.uri)
    assert len(names(fresh)) == 12
    flush(fresh, range(20, 25), "b")
    fresh.collect_garbage(older_than=NOW)
    assert len(names(fresh)) == 17
    assert len(run_folders(fresh)) == 1


def test_pylance_opens_and_writes_a_shard_whose_log_was_collected(table: lancemem.Table) -> None:
    for step in range(3):
        flush(table, range(step, step + 10), "a")
    table.compact()
    assert table.collect_garbage(older_than=NOW).garbage
    shard = table.shards()[0].shard_id
    writer = lance.dataset(table.uri).mem_wal_writer(shard, max_wal_flush_interval_ms=1)
    writer.put(rows(table.schema, [500], "pylance").to_batches()[0])
    writer.close()
    assert names(lancemem.open_table(table.uri))[500] == "pylance500"
    flush(table, range(600, 601), "b")
    assert len(names(lancemem.open_table(table.uri))) == 14


def test_files_of_the_base_that_no_version_names_go_after_a_week(table: lancemem.Table) -> None:
    flush(table, range(5), "a")
    table.compact()
    data = Path(table.uri) / "data"
    fresh, old = data / ("0" * 24 + "a" * 26 + ".lance"), data / ("1" * 24 + "b" * 26 + ".lance")
    for path in (fresh, old):
        path.write_bytes(b"an attempt that lost")
    then = time.time() - 8 * DAY
    os.utime(old, (then, then))
    result = table.collect_garbage(older_than=NOW)
    assert kinds(result)["base files"] == 1
    assert fresh.exists()
    assert not old.exists()
    assert len(names(table)) == 5
