"""Six kinds of damage at many positions of each small file beside log and SSTables: no wrong row.

Owns: pages and publications of the record index, deletion vectors of SSTables, and files whose
bytes no call trusts. Does not own: bulk writes and transaction ids (`test_damaged_writes`), damage
behind an open handle (`test_damaged_since`), log entries and shard manifests (`damage_everywhere`
of the core), files of SSTables (`sstable::tests::damage`), or the base table (`test_damaged_base`).
"""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import lancemem
from tests.damages import EVERYWHERE, damaged, told

if TYPE_CHECKING:
    from collections.abc import Callable

ASKED = [0, 7, 299, 300, 305, 599, 600]
# Few enough that they are looked up in the record index.
CHANGED = range(0, 600, 10)
VECTORS = "deletion_vectors/*/*.binpb"
PUBLICATIONS = "record_index/runs/*.binpb"
PAGES = ["page_data.lance", "page_lookup.lance"]
MADE = ["built", "linked"]
# The second file of a kind is damaged at a fourth of the positions of the first.
FEWER = 1 if EVERYWHERE else 4


def rows(numbers: range, value: float) -> pa.Table:
    names = [f"n{number}" for number in numbers]
    return pa.table({"id": list(numbers), "name": names, "value": [value] * len(names)})


def put_run(table: lancemem.Table, numbers: range, value: float) -> None:
    with table.start_job(shard=0) as job:
        job.put(rows(numbers, value))
        job.flush()


def opened(table: lancemem.Table) -> lancemem.Table:
    return lancemem.open_table(table.uri)


def read(table: lancemem.Table) -> pa.Table:
    return opened(table).scan().to_table().sort_by("id")


def below(table: lancemem.Table, pattern: str) -> list[Path]:
    return sorted((Path(table.uri) / "_lancemem").glob(pattern))


def is_by_position(table: lancemem.Table) -> bool:
    """Whether a read needs only the files of deletion vectors."""
    plan = opened(table).scan(consistency="flushed").explain()
    return "NewestRowsExec: by position" in plan and "NewestRowsExec: by key" not in plan


@pytest.fixture
def copy_of(tmp_path: Path) -> Callable[[lancemem.Table], lancemem.Table]:
    """Give a function that copies a table as it is, over the copy before."""
    place = tmp_path / "copy.lance"

    def copy(table: lancemem.Table) -> lancemem.Table:
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(table.uri, place)
        return lancemem.open_table(str(place))

    return copy


def check_written_down(
    copied: Callable[[], lancemem.Table], expected: pa.Table, damage: str
) -> None:
    """Let copies of a damaged table compact and write deletion vectors: the rows stay the same."""
    copy = copied()
    assert copy.write_deletion_vectors().num_sstables == 1, damage
    assert is_by_position(copy), damage
    assert read(copy) == expected, damage
    copy = copied()
    copy.compact()
    assert read(copy) == expected, damage


@pytest.fixture
def indexed(table: lancemem.Table) -> lancemem.Table:
    """Return a table of two fragments: one with built pages, one with linked pages."""
    put_run(table, range(300), 1.0)
    table.compact()
    table.create_record_index()
    put_run(table, range(300, 600), 1.0)
    table.compact()
    return opened(table)


def publication(table: lancemem.Table, made: str) -> Path:
    """Give the file that publishes the SSTable whose pages were built or linked."""
    first, second = below(table, PUBLICATIONS)
    # Linked pages are a second name of the SSTable's own file.
    first_is = "linked" if pages_of(first, PAGES[0]).stat().st_nlink > 1 else "built"
    return first if first_is == made else second


def pages_of(publication: Path, file: str) -> Path:
    return publication.parents[1] / publication.stem / file


@pytest.mark.parametrize("file", PAGES)
@pytest.mark.parametrize("made", MADE)
def test_damage_anywhere_in_pages_is_named_and_changes_no_answer(
    indexed: lancemem.Table, made: str, file: str, caplog: pytest.LogCaptureFixture
) -> None:
    path, answer = pages_of(publication(indexed, made), file), indexed.get(ASKED)

    def check(damage: str) -> None:
        table = opened(indexed)
        assert table.get(ASKED) == answer, damage
        found = table.admin.verify_record_index().damage[0]
        assert path.parent.name in found, damage
        assert file in found, damage
        lines = told(caplog)
        assert "the record index cannot be read" in lines, damage
        assert file in lines, damage

    for damage in damaged(path, every=1 if made == "built" else FEWER):
        check(damage)
    assert opened(indexed).admin.verify_record_index().damage == []
    path.unlink()
    check("missing")


@pytest.mark.parametrize("file", PAGES)
@pytest.mark.parametrize("made", MADE)
def test_nothing_is_written_down_from_damaged_pages(
    indexed: lancemem.Table,
    made: str,
    file: str,
    copy_of: Callable[[lancemem.Table], lancemem.Table],
) -> None:
    path = pages_of(publication(indexed, made), file)
    indexed.alter(deletion_vectors=True)
    put_run(indexed, CHANGED, 2.0)
    for vectors in below(indexed, VECTORS):
        vectors.unlink()
    expected = read(indexed)
    for damage in damaged(path, every=50):
        check_written_down(partial(copy_of, indexed), expected, damage)


@pytest.mark.parametrize("made", MADE)
def test_damage_anywhere_in_a_publication_is_named_and_changes_no_answer(
    indexed: lancemem.Table, made: str, caplog: pytest.LogCaptureFixture
) -> None:
    path, answer = publication(indexed, made), indexed.get(ASKED)
    for damage in damaged(path, every=1 if made == "built" else FEWER):
        table = opened(indexed)
        assert table.get(ASKED) == answer, damage
        report = table.admin.verify_record_index()
        assert [path.stem in line for line in report.damage] == [True], damage
        assert report.num_fragments_uncovered == 1, damage
        assert path.name in told(caplog), damage
    assert opened(indexed).admin.verify_record_index().damage == []
    path.unlink()
    report = opened(indexed).admin.verify_record_index()
    assert (report.damage, report.num_fragments_uncovered) == ([], 1), (
        "as if it had not been published"
    )
    assert opened(indexed).get(ASKED) == answer


@pytest.mark.parametrize("made", MADE)
def test_a_compaction_and_a_rebuild_do_without_a_damaged_publication(
    indexed: lancemem.Table, made: str, copy_of: Callable[[lancemem.Table], lancemem.Table]
) -> None:
    path = publication(indexed, made)
    put_run(indexed, CHANGED, 2.0)
    expected = read(indexed)
    for damage in damaged(path, every=50):
        copy = copy_of(indexed)
        copy.compact()
        assert read(copy) == expected, damage
        report = copy.admin.verify_record_index()
        assert [path.stem in line for line in report.damage] == [True], damage
        assert report.num_fragments_uncovered == 0, damage
        copy.create_record_index()
        assert opened(copy).admin.verify_record_index().damage == [], damage
        assert path.stem not in [file.stem for file in below(copy, PUBLICATIONS)], damage


@pytest.fixture
def vectored(table: lancemem.Table) -> lancemem.Table:
    """Give a table with two SSTables above its base that name the rows they supersede."""
    put_run(table, range(200), 1.0)
    table.compact()
    table.alter(deletion_vectors=True)
    put_run(table, range(100), 2.0)
    with table.start_job(shard=0) as job:
        job.put(rows(range(20), 3.0))
        job.delete(rows(range(50, 120), 0.0).select(["id"]))
        job.flush()
    table.write_deletion_vectors()
    assert len(below(table, VECTORS)) == 2
    assert is_by_position(table)
    return opened(table)


def vectors_of(table: lancemem.Table, sstable: str) -> Path:
    older, newer = table.shards()[0].sstables
    folder = {"older": older, "newer": newer}[sstable].path
    [path] = below(table, f"deletion_vectors/*/{folder}.*.binpb")
    return path


@pytest.mark.parametrize("sstable", ["older", "newer"])
def test_damage_anywhere_in_deletion_vectors_is_named_and_neither_hides_nor_shows_a_row(
    vectored: lancemem.Table, sstable: str, caplog: pytest.LogCaptureFixture
) -> None:
    path, expected = vectors_of(vectored, sstable), read(vectored)
    assert expected.num_rows == 130
    for damage in damaged(path, every=1 if sstable == "newer" else FEWER):
        assert read(vectored) == expected, damage
        assert path.name in told(caplog), damage
    assert is_by_position(vectored)
    path.unlink()
    assert read(vectored) == expected


@pytest.mark.parametrize("sstable", ["older", "newer"])
def test_counts_parts_and_compactions_do_without_damaged_deletion_vectors(
    vectored: lancemem.Table, sstable: str, copy_of: Callable[[lancemem.Table], lancemem.Table]
) -> None:
    expected = read(vectored)
    for damage in damaged(vectors_of(vectored, sstable), every=50):
        table = opened(vectored)
        assert table.scan(consistency="flushed").count_rows() == 130, damage
        assert table.scan(filter="value > 1", consistency="flushed").count_rows() == 50, damage
        snapshot = table.snapshot(consistency="flushed")
        parts = [snapshot.scan(part=(place, 3)).to_table() for place in range(3)]
        assert pa.concat_tables(parts).sort_by("id") == expected, damage
        check_written_down(partial(copy_of, vectored), expected, damage)


@pytest.fixture
def noted(table: lancemem.Table) -> lancemem.Table:
    """Return a table with a copy of an entry that a truncation dropped, and an unsynced shard."""
    table.upsert(rows(range(20), 1.0))
    with table.start_job(shard=0) as job:
        job.put(rows(range(5), 2.0))
    last = table.admin.verify_wal(0).last_wal_position
    [path] = Path(table.uri).rglob(f"wal/{f'{last:064b}'[::-1]}.arrow")
    path.write_bytes(path.read_bytes()[:-20])
    table.admin.truncate_wal(0, from_position=last)
    table.start_job(shard=0, config=lancemem.WriterConfig(fsync=False)).close()
    return opened(table)


@pytest.mark.parametrize(
    "pattern", ["_lancemem/dropped/*/*/*", "_lancemem/unsynced/*", "_mem_wal/*/*/version_hint.json"]
)
def test_damage_of_files_that_no_call_trusts_changes_nothing(
    noted: lancemem.Table, pattern: str
) -> None:
    [path] = Path(noted.uri).glob(pattern)
    expected = rows(range(20), 1.0).to_pylist()
    for damage in damaged(path):
        assert read(noted).to_pylist() == expected, damage
    for damage in damaged(path, every=20):
        assert opened(noted).admin.verify_wal(0).first_damaged_position is None, damage
        # A job that syncs also syncs the files of an earlier job, whatever the note records.
        opened(noted).start_job(shard=0).close()
        [note] = Path(noted.uri).glob("_lancemem/unsynced/*")
        epoch = opened(noted).shards()[0].writer_epoch
        assert f"\nsynced through epoch {epoch}\n" in note.read_text(), damage
        assert read(noted).to_pylist() == expected, damage
