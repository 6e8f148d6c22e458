"""A damaged SSTable in Python: refused by reads and compactions, reported by verify_sstables.

Owns the methods, the command line and what stays as it was. Does not own each kind of damage in
each file: see `rust/engine/src/sstable/tests/damage.rs`.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import lance
import numpy as np
import pyarrow as pa
import pytest

import lancemem
from lancemem.__main__ import main

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS = 100
# From this number of rows on a lookup reads pages of the key index instead of all keys.
INDEXED_ROWS = 60_000
# A larger SSTable is not read whole when it is opened.
LARGE_BYTES = 33 << 20
LARGE = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("blob", pa.binary())])


def rows(first: int, count: int, value: float) -> pa.Table:
    numbers = range(first, first + count)
    names = [f"r{number}" for number in numbers]
    return pa.table({"id": list(numbers), "name": names, "value": [value] * count})


@pytest.fixture
def flushed(table: lancemem.Table) -> lancemem.Table:
    """Give a table with a compacted base, and an SSTable that replaces half of the rows."""
    with table.start_job(shard=0) as job:
        job.put(rows(0, ROWS, 1.0))
        job.flush()
        table.compact()
        job.put(rows(0, ROWS // 2, 2.0))
        job.put(rows(0, 1, 3.0))
        job.flush()
    return lancemem.open_table(table.uri)


def run_folder(table: lancemem.Table) -> Path:
    [shard] = table.shards()
    [sstable] = shard.sstables
    return Path(table.uri) / "_mem_wal" / shard.shard_id / sstable.path


def the_file(table: lancemem.Table, pattern: str) -> Path:
    [path] = run_folder(table).glob(pattern)
    return path


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_an_sstable_whose_files_are_of_another_place_is_refused(
    flushed: lancemem.Table, tmp_path: Path
) -> None:
    """The writer of an SSTable could otherwise make its readers open any file that they may."""
    folder = run_folder(flushed)
    outside = tmp_path / "outside.lance"
    folder.rename(outside)
    lance.dataset(outside).shallow_clone(str(folder), reference=1)
    table = lancemem.open_table(flushed.uri)
    for read in (lambda: table.scan().to_table(), lambda: table.get([1]), table.compact):
        with pytest.raises(lancemem.CorruptionError, match="files outside the SSTable's folder"):
            read()


FILES = ["data/*", "_deletions/*", "_versions/*", "bloom_filter.bin", "_pk_index/page_data.lance"]


@pytest.mark.parametrize("pattern", FILES)
def test_a_damaged_file_of_a_run_is_reported_and_never_compacted(
    flushed: lancemem.Table, pattern: str, capsys: pytest.CaptureFixture[str]
) -> None:
    [report] = flushed.admin.verify_sstables()
    assert (report.num_files, report.damage) == (5, [])
    assert main(["verify-sstables", flushed.uri]) == 0
    assert "1 SSTables: 5 files" in capsys.readouterr().out
    version = flushed.stats().base_version
    path = the_file(flushed, pattern)
    flip(path)

    [report] = flushed.admin.verify_sstables()
    name = str(path.relative_to(run_folder(flushed)))
    assert len(report.damage) == 1
    assert name in report.damage[0], report
    assert main(["verify-sstables", flushed.uri, "--shard", "0"]) == 1
    out = capsys.readouterr().out
    assert name in out
    assert "1 SSTables damaged" in out

    other = lancemem.open_table(flushed.uri)
    with pytest.raises(lancemem.CorruptionError, match=path.name):
        other.compact()
    assert other.stats().base_version == version
    assert len(other.shards()[0].sstables) == 1


@pytest.mark.parametrize("pattern", ["data/*", "_deletions/*", "_versions/*"])
@pytest.mark.parametrize(
    "read",
    [
        lambda table: table.scan().to_table(),
        lambda table: table.scan(["id"]).to_table(),
        lambda table: table.get([3]),
    ],
    ids=["scan", "keys", "get"],
)
def test_no_read_shows_rows_of_an_sstable_whose_data_is_damaged(
    flushed: lancemem.Table, pattern: str, read: Callable[[lancemem.Table], object]
) -> None:
    before = flushed.scan().to_table().sort_by("id")
    path = the_file(flushed, pattern)
    whole = path.read_bytes()
    flip(path)
    table = lancemem.open_table(flushed.uri)
    for _ in range(2):
        with pytest.raises(lancemem.CorruptionError, match=path.name) as raised:
            read(table)
        assert run_folder(flushed).name in str(raised.value)
    path.write_bytes(whole)
    assert table.scan().to_table().sort_by("id") == before


def test_a_lookup_trusts_no_damaged_key_index(table: lancemem.Table) -> None:
    with table.start_job(shard=0) as job:
        job.put(rows(0, INDEXED_ROWS, 1.0))
        job.flush()
    assert lancemem.open_table(table.uri).get([3]).num_rows == 1
    flip(the_file(table, "_pk_index/page_data.lance"))
    with pytest.raises(lancemem.CorruptionError, match="page_data"):
        lancemem.open_table(table.uri).get([3])


def test_what_is_left_of_a_damaged_sstable_is_read_and_compacted_without_verification(
    flushed: lancemem.Table,
) -> None:
    path = the_file(flushed, "data/*")
    content = path.read_bytes()
    at = content.index(b"r42")
    path.write_bytes(content[:at] + b"x42" + content[at + 3 :])
    with pytest.raises(lancemem.CorruptionError):
        lancemem.open_table(flushed.uri).scan().to_table()

    table = lancemem.open_table(flushed.uri, verify_sstables=False)
    names = table.scan(["name"], "id < 50").to_table().column("name").to_pylist()
    expected = ["x42" if number == 42 else f"r{number}" for number in range(50)]
    assert sorted(names) == sorted(expected)
    table.compact()
    again = lancemem.open_table(flushed.uri)
    assert again.get([42]).column("name").to_pylist() == ["x42"]
    assert again.admin.verify_sstables() == []


@pytest.mark.parametrize("pattern", ["bloom_filter.bin", "_pk_index/page_data.lance"])
def test_a_read_without_verification_needs_no_file_but_the_rows(
    flushed: lancemem.Table, pattern: str
) -> None:
    before = flushed.scan().to_table().sort_by("id")
    flip(the_file(flushed, pattern))
    table = lancemem.open_table(flushed.uri, verify_sstables=False)
    assert table.scan().to_table().sort_by("id") == before
    assert table.get(list(range(ROWS))).sort_by("id") == before
    assert table.scan(filter="id = 3").count_rows() == 1
    table.compact()
    assert lancemem.open_table(flushed.uri).scan().to_table().sort_by("id") == before


def test_a_read_without_verification_takes_a_manifest_whose_checksum_alone_is_damaged(
    flushed: lancemem.Table,
) -> None:
    before = flushed.scan().to_table().sort_by("id")
    path = the_file(flushed, "_versions/*")
    content = bytearray(path.read_bytes())
    # The last bytes of the message, which the footer follows.
    content[-17] ^= 1
    path.write_bytes(content)
    with pytest.raises(lancemem.CorruptionError, match="checksum"):
        lancemem.open_table(flushed.uri).scan().to_table()
    table = lancemem.open_table(flushed.uri, verify_sstables=False)
    assert table.scan().to_table().sort_by("id") == before


def large_rows(names: list[str], size: int) -> pa.Table:
    random = np.random.default_rng(7)
    return pa.table({"id": names, "blob": [random.bytes(size) for _ in names]}, schema=LARGE)


@pytest.fixture
def large(tmp_path: Path) -> lancemem.Table:
    """Give a table with twelve rows in its base, eight of which a large SSTable replaces."""
    table = lancemem.create_table(str(tmp_path / "t.lance"), LARGE, primary_key=["id"])
    with table.start_job(shard=0, config=lancemem.WriterConfig(durable=False, fsync=False)) as job:
        job.put(large_rows([f"key-{number:09}" for number in range(12)], 10))
        job.flush()
        table.compact()
        job.put(large_rows([f"key-{number:09}" for number in range(8)], LARGE_BYTES // 8))
        job.flush()
    return lancemem.open_table(table.uri)


def test_a_large_sstable_is_compared_when_it_is_compacted(large: lancemem.Table) -> None:
    flip(the_file(large, "data/*"))
    other = lancemem.open_table(large.uri)
    assert other.scan(["id"]).count_rows() == 12
    with pytest.raises(lancemem.CorruptionError, match="checksum"):
        other.compact()


def test_a_compaction_names_damage_beside_another_writer_that_commits_all_the_time(
    large: lancemem.Table,
) -> None:
    flip(the_file(large, "data/*"))
    ended = threading.Event()
    commits = 0

    def commit() -> None:
        nonlocal commits
        base = lance.dataset(large.uri)
        while not ended.wait(0.1):
            base.update_config({"turn": str(commits)})
            commits += 1

    beside = threading.Thread(target=commit)
    beside.start()
    try:
        with pytest.raises(lancemem.CorruptionError, match="checksum"):
            lancemem.open_table(large.uri).compact(bytes_per_second=LARGE_BYTES)
    finally:
        ended.set()
        beside.join()
    assert commits > 1


@pytest.mark.parametrize("is_by_vector", [False, True], ids=["by key", "by vector"])
def test_what_was_read_of_a_damaged_run_is_forgotten_when_its_file_is_brought_back(
    large: lancemem.Table, is_by_vector: bool
) -> None:
    expected = large.scan().to_table().sort_by("id")
    path = the_file(large, "data/*")
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"key-000000005", b"key-000000009"))
    table = lancemem.open_table(large.uri)
    # The file was not compared with its checksum: the cached keys are the damaged ones.
    ids = table.scan(["id"]).to_table().column("id").to_pylist()
    assert ids.count("key-000000005") == 1
    settle = (lambda: table.alter(deletion_vectors=True)) if is_by_vector else table.compact
    with pytest.raises(lancemem.CorruptionError, match="checksum"):
        settle()
    path.write_bytes(whole)
    assert table.admin.verify_sstables()[0].damage == []
    settle()
    assert table.scan().to_table().sort_by("id") == expected
    table.compact()
    assert table.scan().to_table().sort_by("id") == expected
    assert lancemem.open_table(large.uri).scan().to_table().sort_by("id") == expected


@pytest.mark.skipif(sys.platform != "linux", reason="needs a file whose reads fail with EIO")
def test_a_file_that_a_disk_cannot_read_is_damage(flushed: lancemem.Table) -> None:
    path = the_file(flushed, "data/*")
    path.unlink()
    # Its first page is not mapped, and a read of the page fails like a read of a bad sector.
    path.symlink_to("/proc/self/mem")
    [report] = flushed.admin.verify_sstables()
    assert report.damage == [f"data/{path.name}: unreadable"]
    with pytest.raises(lancemem.CorruptionError, match=f"data/{path.name}"):
        lancemem.open_table(flushed.uri).compact()


def test_a_file_that_cannot_be_read_is_named(flushed: lancemem.Table) -> None:
    path = the_file(flushed, "data/*")
    folder = path.parent.rename(path.parents[1] / "away")
    path.parent.touch()  # a file system that returns an error, and may recover
    with pytest.raises(lancemem.RetryableError, match=f"data/{path.name}"):
        flushed.admin.verify_sstables()
    path.parent.unlink()
    folder.rename(path.parent)
    [report] = flushed.admin.verify_sstables()
    assert report.damage == []


def test_verify_sstables_names_a_shard_that_is_not_there(flushed: lancemem.Table) -> None:
    with pytest.raises(lancemem.InvalidInputError, match="no shard 7"):
        flushed.admin.verify_sstables(7)
    absent = "00000000-0000-0000-0000-000000000000"
    with pytest.raises(lancemem.InvalidInputError, match=absent):
        flushed.admin.verify_sstables(absent)
    assert main(["verify-sstables", flushed.uri, "--shard", "7"]) == 2
