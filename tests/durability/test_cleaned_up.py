"""Commits and reads of a process, beside another process that commits and cleans old versions up.

Owns: the stories in which the other process cleans up while the first is stopped in the middle of a
call. No acknowledged change is undone, and no error reports damage. Does not own: the stop
(`stopped`), or which files Lance's clean-up removes.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest

import lancemem

from .stopped import SCHEMA, rows, stopped

if TYPE_CHECKING:
    from pathlib import Path

ROWS = 40
# Where a call is stopped: after its files and before the commit, or after Lance has compared the
# commit with the versions since the plan.
FILES = ("link", "data/*.lance")
INDEX_FILES = ("link", "_indices/*/*")
TRANSACTION = ("link", "_transactions/*.txn")
# The newest version was found in a listing, and is read next.
LISTED = ("look", "_versions/*.manifest")

# The first of many data files was opened.
OPENED = ("open", "data/*.lance")

WANTED = {key: "old" for key in range(1, ROWS) if key != 8} | {
    7: "new",
    ROWS: "above",
    1000: "theirs",
}


def flushed(table: lancemem.Table) -> None:
    """Flush what is in the log."""
    with table.start_job(shard=0) as job:
        job.flush()


def deleted(table: lancemem.Table, key: int) -> None:
    """Delete a key."""
    table.delete(pa.table({"id": pa.array([key], pa.int64())}))


@pytest.fixture
def table(tmp_path: Path) -> lancemem.Table:
    """Return a table with a dead row in its base, an index, and an SSTable above the base."""
    made = lancemem.create_table(str(tmp_path / "t.lance"), SCHEMA, primary_key="id")
    made.upsert(rows(list(range(ROWS)), "old"))
    flushed(made)
    made.compact(mode="link", max_dead_share=1.0)
    lance.dataset(made.uri).create_scalar_index("n", "BTREE")
    deleted(made, 0)
    flushed(made)
    made.compact(max_dead_share=1.0)
    made.upsert(rows([ROWS], "above"))
    flushed(made)
    return made


def append_and_clean_up(uri: str) -> None:
    """Append a row, and remove every version but the newest."""
    lance.write_dataset(rows([1000], "theirs"), uri, mode="append")
    cleaned = lance.dataset(uri).cleanup_old_versions(older_than=timedelta(0))
    assert cleaned.old_versions > 0


def change_and_clean_up(uri: str) -> None:
    """Replace a row and delete one, in a version that is cleaned up."""
    table = lancemem.open_table(uri)
    table.upsert(rows([7], "new"))
    deleted(table, 8)
    flushed(table)
    table.compact(max_dead_share=1.0)
    append_and_clean_up(uri)


def values(found: pa.Table) -> dict[int, str]:
    """Return the value of each key, each of which is there once."""
    keys = found.column("id").to_pylist()
    assert len(set(keys)) == len(keys), "a key is there twice"
    return dict(zip(keys, found.column("v").to_pylist(), strict=True))


@pytest.mark.parametrize(
    ("story", "arguments", "at"),
    [
        ("compact", {"max_dead_share": 0.0}, FILES),
        ("compact", {"max_dead_share": 0.0}, TRANSACTION),
        ("compact", {"max_dead_share": 1.0, "mode": "rewrite"}, FILES),
        ("compact", {"max_dead_share": 1.0, "mode": "rewrite"}, TRANSACTION),
        ("compact", {"max_dead_share": 1.0, "mode": "link"}, FILES),
        ("compact", {"max_dead_share": 1.0, "mode": "link"}, TRANSACTION),
        ("compact", {"max_dead_share": 1.0, "update_indexes": True}, INDEX_FILES),
        ("compact", {"max_dead_share": 1.0, "update_indexes": True}, TRANSACTION),
        ("alter_column", {"name": "n", "type": "int64"}, FILES),
        ("alter_column", {"name": "n", "type": "int64"}, TRANSACTION),
        ("alter", {"deletion_vectors": True}, TRANSACTION),
    ],
)
def test_no_commit_passes_over_a_version_that_was_cleaned_up(
    table: lancemem.Table,
    story: str,
    arguments: dict[str, object],
    at: tuple[str, str],
    syscalls_library: Path,
) -> None:
    """The update and the delete of the other process stay, whatever the first commits."""
    if story == "alter_column":
        lance.dataset(table.uri).drop_index("n_idx")
    elif "mode" not in arguments:
        # Leaves the commit that follows the compaction's own commit.
        table.compact(max_dead_share=1.0, update_indexes=False)
    with stopped(syscalls_library, table.uri, story, at, **arguments):
        change_and_clean_up(table.uri)
    fresh = lancemem.open_table(table.uri)
    assert values(fresh.scan().to_table()) == WANTED
    assert fresh.deletion_vectors == (story == "alter")
    assert (fresh.schema.field("n").type == pa.int64()) == (story == "alter_column")
    fresh.compact()
    assert values(fresh.scan().to_table()) == WANTED
    assert values(lance.dataset(table.uri).to_table()) == WANTED


def test_a_table_gets_its_index_without_passing_over_a_version_that_was_cleaned_up(
    syscalls_library: Path, tmp_path: Path
) -> None:
    """Appends and deletes of another process stay while the table gets its index."""
    uri = str(tmp_path / "t.lance")
    key = SCHEMA.field("id").with_metadata({"lance-schema:unenforced-primary-key": "true"})
    lance.write_dataset(rows(list(range(ROWS)), "old").cast(SCHEMA.set(0, key)), uri)
    with stopped(syscalls_library, uri, "enable", TRANSACTION):
        lance.dataset(uri).delete("id = 8")
        append_and_clean_up(uri)
    wanted = {key: "old" for key in range(ROWS) if key != 8} | {1000: "theirs"}
    assert values(lancemem.open_table(uri).scan().to_table()) == wanted
    assert values(lance.dataset(uri).to_table()) == wanted


@pytest.mark.parametrize("story", ["flush", "open"])
def test_a_version_that_is_cleaned_up_between_its_listing_and_its_read_is_no_damage(
    table: lancemem.Table, story: str, syscalls_library: Path
) -> None:
    """A flush and an open read the newest version instead."""
    with stopped(syscalls_library, table.uri, story, LISTED):
        append_and_clean_up(table.uri)
    found = values(lancemem.open_table(table.uri).scan().to_table())
    assert found[1000] == "theirs"
    assert (2000 in found) == (story == "flush")


@pytest.mark.parametrize("story", ["to_table", "count_rows", "get"])
def test_a_read_whose_version_is_cleaned_up_begins_again(
    table: lancemem.Table, story: str, syscalls_library: Path
) -> None:
    """A call that has returned no row reads the newest version instead."""
    for step in range(40):
        lance.write_dataset(rows([3000 + step], "theirs"), table.uri, mode="append")
    with stopped(syscalls_library, table.uri, story, OPENED):
        lance.dataset(table.uri).optimize.compact_files()
        append_and_clean_up(table.uri)
