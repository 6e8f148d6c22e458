"""Files that are damaged behind an open handle: no damaged byte is written down.

Owns: pages of the record index and files of SSTables that a handle verified while they were whole.
What such a handle writes, compactions and deletion vectors, is read again first (docs/repair.md).
Does not own: what its reads show meanwhile, or damage that a handle finds when it opens a file
(`test_damaged_files`, `test_damaged_runs`).
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import lancemem
from tests.damages import damages, positions, unnamed

if TYPE_CHECKING:
    from collections.abc import Iterator

ROWS = 600
# Few enough that they are looked up in the record index.
CHANGED = range(0, ROWS, 10)
FILES = ["data/*", "_deletions/*"]


def rows(numbers: range, value: float) -> pa.Table:
    names = [f"n{number}" for number in numbers]
    return pa.table({"id": list(numbers), "name": names, "value": [value] * len(names)})


def read(table: lancemem.Table) -> pa.Table:
    return lancemem.open_table(table.uri).scan().to_table().sort_by("id")


@pytest.fixture
def changed(table: lancemem.Table) -> lancemem.Table:
    """Give a table with an index, and an SSTable that changes some rows and one of them twice."""
    with table.start_job(shard=0) as job:
        job.put(rows(range(ROWS), 1.0))
        job.flush()
        table.compact()
        table.create_record_index()
        job.put(rows(CHANGED, 2.0))
        job.put(rows(CHANGED[:1], 3.0))
        job.flush()
    table.alter(deletion_vectors=True)
    [vectors] = Path(table.uri).glob("_lancemem/deletion_vectors/*/*")
    vectors.unlink()
    return table


def file_of_run(table: lancemem.Table, pattern: str) -> Path:
    sstable = table.shards()[0].sstables[0].path
    [path] = Path(table.uri).glob(f"_mem_wal/*/{sstable}/{pattern}")
    return path


def damaged_since(
    table: lancemem.Table, path: Path, place: Path, every: int = 50
) -> Iterator[tuple[str, lancemem.Table, Path]]:
    """Damage a file behind handles that have read it.

    Yields the name of the damage, a handle of a copy of the table, and the file in it.
    """
    whole = path.read_bytes()
    for at in positions(len(whole))[::every]:
        for kind, content in damages(whole, at).items():
            if content != whole:
                shutil.copytree(table.uri, place)
                copy = lancemem.open_table(str(place))
                assert copy.get([7]).num_rows == 1
                of_copy = place / path.relative_to(table.uri)
                of_copy.write_bytes(content)
                yield f"{kind} at {at} of {path.name}", copy, of_copy
                shutil.rmtree(place)


@pytest.mark.parametrize("write_down", ["write_deletion_vectors", "compact"])
def test_no_row_is_written_down_from_pages_that_were_damaged_since(
    changed: lancemem.Table, write_down: str, tmp_path: Path
) -> None:
    [path] = Path(changed.uri).glob("_lancemem/record_index/*/page_data.lance")
    expected, wrong = read(changed), []
    for damage, copy, _ in damaged_since(changed, path, tmp_path / "copy.lance"):
        getattr(copy, write_down)()
        found = read(copy)
        wrong += [] if found == expected else [f"{damage}: {found.num_rows} rows of {ROWS}"]
    assert wrong == []


@pytest.mark.parametrize("pattern", FILES)
def test_no_row_is_written_down_of_an_sstable_that_was_damaged_since(
    changed: lancemem.Table, pattern: str, tmp_path: Path
) -> None:
    path = file_of_run(changed, pattern)
    whole, expected, wrong = path.read_bytes(), read(changed), []
    for damage, copy, of_copy in damaged_since(changed, path, tmp_path / "copy.lance", every=10):
        said = unnamed("SSTable", copy.write_deletion_vectors)
        of_copy.write_bytes(whole)
        found = read(copy)
        # A handle may have had all the bytes that it needs in memory.
        if found != expected or not (said or "no error").startswith("no error"):
            wrong.append(f"{damage}: {said}, and then {found.num_rows} rows of {ROWS}")
    assert wrong == []


@pytest.mark.parametrize("pattern", FILES)
def test_an_sstable_that_was_damaged_since_is_named_and_not_compacted(
    changed: lancemem.Table, pattern: str, tmp_path: Path
) -> None:
    path = file_of_run(changed, pattern)
    whole, expected = path.read_bytes(), read(changed)
    for damage, copy, of_copy in damaged_since(changed, path, tmp_path / "copy.lance"):
        assert unnamed(path.name, copy.compact) == "", damage
        of_copy.write_bytes(whole)
        assert read(copy) == expected, damage
