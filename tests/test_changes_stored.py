"""`changelog="stored"`: changes that compactions store, their life, and what pylance sees of them.

Owns: the setting, feeds of versions that are gone, retention and consumers, other writers beside
it, pylance beside the folder. Not here: random programs (test_changes_law), the stories of the
engine (rust/engine/tests), kills (tests/durability).
"""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lancemem

if TYPE_CHECKING:
    from tests.conftest import MakeTable

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.int64())])
NOW = timedelta(0)
TYPES = {
    "n": (pa.int32(), [1, None, -5]),
    "s": (pa.string(), ["a", None, "long" * 50]),
    "ls": (pa.large_string(), ["a", "", None]),
    "b": (pa.binary(), [b"\0", None, b""]),
    "d": (pa.decimal128(10, 2), [1, None, 3]),
    "t": (pa.timestamp("us", "UTC"), [1, None, 3]),
    "l": (pa.list_(pa.int64()), [[1, 2], [], None]),
    "st": (pa.struct([("x", pa.int64()), ("y", pa.string())]), [{"x": 1, "y": "z"}, None, {}]),
    "f": (pa.list_(pa.float32(), 2), [[1, 2], None, [3, 4]]),
    "dict": (pa.dictionary(pa.int32(), pa.string()), ["a", None, "a"]),
}


@pytest.fixture
def board(table_uri: str) -> lancemem.Table:
    """Give a table of two columns that stores its changes."""
    return lancemem.create_table(table_uri, SCHEMA, primary_key="id", changelog="stored")


def put(table: lancemem.Table, values: dict[int, int | None], deleted: tuple[int, ...] = ()) -> int:
    """Upsert rows, delete keys, move both into the base table, and return its version."""
    if values:
        rows = {"id": list(values), "v": list(values.values())}
        table.upsert(pa.table(rows, schema=SCHEMA))
    if deleted:
        table.delete(list(deleted))
    table.compact(flush=True)
    return lance.dataset(table.uri).version


def changelog(table: lancemem.Table) -> Path:
    """Return the folder of stored changes."""
    return Path(table.uri) / "_lancemem" / "changelog"


def folders(table: lancemem.Table) -> set[str]:
    """Return the names of the folders of change rows."""
    return {path.name for path in changelog(table).iterdir() if path.is_dir()}


def published(table: lancemem.Table) -> list[int]:
    """Return the published versions."""
    return sorted(int(path.stem.removeprefix("v")) for path in changelog(table).glob("v*.binpb"))


def clean_up(table: lancemem.Table) -> None:
    """Leave no version but the newest and those with a tag."""
    lance.dataset(table.uri).cleanup_old_versions(
        older_than=NOW, error_if_tagged_old_versions=False
    )


def test_the_setting_is_made_at_create_or_later(make_table: MakeTable, table_uri: str) -> None:
    table = make_table(SCHEMA, ["id"])
    found = [table.changelog]
    version = table.alter(changelog="stored")
    assert table.alter(changelog="stored") == version
    found += [table.changelog, lancemem.open_table(table.uri).changelog]
    assert table.alter(changelog=None) > version
    found += [table.changelog]
    table.alter(changelog="stored", deletion_vectors=True)
    found += [table.changelog]
    assert found == [None, "stored", "stored", None, "stored"]
    assert table.deletion_vectors
    config = lance.dataset(table.uri).config()
    assert config["lancemem.changelog"] == "stored"
    assert "lancemem.changelog_retention_ms" not in config
    table.alter(changelog_retention=timedelta(hours=1))
    assert lance.dataset(table.uri).config()["lancemem.changelog_retention_ms"] == "3600000"
    other = lancemem.create_table(f"{table_uri}-2", SCHEMA, changelog="stored")
    assert other.changelog == "stored"


def test_what_the_setting_cannot_be_is_refused(table_uri: str) -> None:
    wrong: Any = "input"
    with pytest.raises(lancemem.InvalidInputError, match='"stored"'):
        lancemem.create_table(table_uri, SCHEMA, changelog=wrong)
    reserved = pa.schema([("id", pa.int64()), ("_change_type", pa.string())])
    with pytest.raises(lancemem.InvalidInputError, match="_change_type"):
        lancemem.create_table(table_uri, reserved, primary_key="id", changelog="stored")
    assert not lancemem.exists(table_uri), "nothing was written"
    table = lancemem.create_table(table_uri, reserved, primary_key="id")
    version = lance.dataset(table_uri).version
    with pytest.raises(lancemem.InvalidInputError, match="_change_type"):
        table.alter(changelog="stored")
    with pytest.raises(lancemem.InvalidInputError, match='"stored"'):
        table.alter(changelog=wrong)
    with pytest.raises(lancemem.InvalidInputError, match="name a setting"):
        table.alter()
    number: Any = 5
    with pytest.raises(TypeError):
        table.alter(changelog=number)
    assert lance.dataset(table_uri).version == version


def test_a_table_that_got_a_reserved_column_is_compacted_without_its_changes(
    board: lancemem.Table,
) -> None:
    put(board, {1: 10})
    lance.dataset(board.uri).add_columns(pa.field("_change_type", pa.string()))
    before = folders(board)
    board.upsert(pa.table({"id": [2], "v": [20], "_change_type": ["y"]}))
    board.compact(flush=True)
    assert folders(board) == before
    assert board.count_rows() == 2


@pytest.mark.parametrize("mode", ["link", "rewrite"])
@pytest.mark.parametrize("name", TYPES)
def test_values_of_each_type_are_stored_as_they_are(name: str, mode: Any, table_uri: str) -> None:  # noqa: ANN401
    of_type, values = TYPES[name]
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", of_type)])
    table = lancemem.create_table(table_uri, schema, primary_key="id", changelog="stored")
    rows = pa.table([pa.array([1, 2, 3]), pa.array(values, of_type)], schema=schema)
    table.upsert(rows)
    table.flush()
    table.compact(mode=mode)
    since = lance.dataset(table_uri).version
    table.upsert(pa.table([pa.array([1, 2, 4]), rows["v"]], schema=schema))
    table.delete([3])
    table.flush()
    table.compact(mode=mode)
    feed = table.changes(since)
    assert [version.is_stored for version in feed.versions] == [True]
    stored, stored_counts = feed.to_table(), feed.counts
    shutil.rmtree(changelog(table))
    derived = table.changes(since).to_table()
    # The same values may come with another dictionary.
    assert (derived.schema, derived.to_pylist()) == (stored.schema, stored.to_pylist())
    assert table.changes(since).counts == stored_counts
    assert stored_counts.num_rows == 6


def test_changes_outlive_their_versions(board: lancemem.Table) -> None:
    since = put(board, {1: 10, 2: 20, 3: 30})
    put(board, {1: 11}, deleted=(3,))
    lance.dataset(board.uri).update_config({"other": "program"})
    put(board, {4: 40})
    feed = board.changes(since)
    rows, counts = feed.to_table(), feed.counts
    versions = [(it.version, it.timestamp, it.operation) for it in feed.versions]
    clean_up(board)
    assert len(lance.dataset(board.uri).versions()) == 1
    for table in (board, lancemem.open_table(board.uri)):
        feed = table.changes(since)
        assert feed.to_table() == rows
        assert feed.counts == counts
        assert [(it.version, it.timestamp, it.operation) for it in feed.versions] == versions
        parts = [pa.table(part) for part in feed.parts(4)]
        assert pa.concat_tables(parts) == rows
    assert board.changes(since, filter="v > 20").counts.num_rows == 2
    with pytest.raises(lancemem.ChangesExpiredError):
        board.changes(0)


def test_a_pinned_version_has_a_net_step_behind_it(board: lancemem.Table) -> None:
    since = put(board, {1: 10, 2: 20})
    board.changes_consumer("mirror", since=since).close()
    put(board, {1: 11})
    put(board, {1: 10}, deleted=(2,))
    clean_up(board)
    with board.changes_consumer("mirror") as consumer:
        feed = consumer.poll()
        assert feed is not None
        kinds = feed.to_table()["_change_type"].to_pylist()
        assert kinds == ["delete"], "1 is what it was"
        consumer.commit(feed)


def test_changes_go_after_the_retention_and_a_consumer_keeps_them(board: lancemem.Table) -> None:
    since = put(board, {1: 10})
    put(board, {1: 11})
    last = put(board, {1: 12})
    kept = published(board)
    board.collect_garbage(older_than=NOW)
    assert published(board)[: len(kept)] == kept, "seven days are the default"
    board.changes_consumer("mirror", since=since).close()
    board.alter(changelog_retention=NOW)
    there = folders(board)
    planned = board.collect_garbage(older_than=NOW, dry_run=True)
    assert "published changes" in [it.kind for it in planned.garbage]
    assert folders(board) == there, "a dry run removes nothing"
    board.collect_garbage(older_than=NOW)
    assert min(published(board)) == since + 1
    assert board.changes(since, last).counts.num_updated == 2
    board.drop_changes_consumer("mirror")
    collected = board.collect_garbage(older_than=NOW)
    kinds = [it.kind for it in collected.garbage]
    assert kinds.index("published changes") < kinds.index("stored changes")
    assert folders(board) == set()
    assert published(board) == [lance.dataset(board.uri).version]
    feed = board.changes(since, last)
    assert not any(version.is_stored for version in feed.versions), "the versions are left"
    assert feed.counts.num_updated == 2
    clean_up(board)
    with pytest.raises(lancemem.ChangesExpiredError):
        board.changes(since)


def test_a_collection_removes_what_no_version_names_and_nothing_else(
    board: lancemem.Table,
) -> None:
    put(board, {1: 10})
    named = folders(board)
    refused = changelog(board) / "00000000000000aa"
    (refused / "data").mkdir(parents=True)
    (refused / "changes.binpb").write_bytes(b"refused")
    other = changelog(board) / "of-another-program"
    other.mkdir()
    (other / "file").write_bytes(b"")
    board.collect_garbage()
    assert refused.exists(), "it is younger than the grace period"
    board.collect_garbage(older_than=NOW)
    assert not refused.exists()
    assert (other / "file").exists()
    assert folders(board) == named | {other.name}


def test_a_version_that_was_not_published_is_published_before_its_folder_is_judged(
    board: lancemem.Table,
) -> None:
    since = put(board, {1: 10})
    put(board, {1: 11})
    # As after a crash between the commit and the file that publishes it.
    for path in changelog(board).glob("v*.binpb"):
        path.unlink()
    table = lancemem.open_table(board.uri)
    table.collect_garbage(older_than=NOW)
    assert len(folders(table)) == 2
    assert published(table)[-1] == lance.dataset(table.uri).version
    clean_up(table)
    assert table.changes(since).counts.num_updated == 1


def test_two_handles_publish_the_same_bytes(board: lancemem.Table) -> None:
    put(board, {1: 10})
    before = {path: path.read_bytes() for path in changelog(board).glob("v*.binpb")}
    assert before
    for path in before:
        path.unlink()
    lancemem.open_table(board.uri).collect_garbage()
    after = {path: path.read_bytes() for path in changelog(board).glob("v*.binpb")}
    assert after == before


def test_pylance_neither_sees_stored_changes_nor_removes_them(board: lancemem.Table) -> None:
    since = put(board, {1: 10, 2: 20})
    put(board, {1: 11, 3: 30})
    dataset = lance.dataset(board.uri)
    assert dataset.schema.names == ["id", "v"]
    assert sorted(dataset.to_table()["id"].to_pylist()) == [1, 2, 3]
    before = {path: path.read_bytes() for path in changelog(board).rglob("*") if path.is_file()}
    dataset.delete("id = 2")
    dataset = lance.dataset(board.uri)
    dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(
        pa.table({"id": [3, 4], "v": [31, 40]}, schema=SCHEMA)
    )
    dataset = lance.dataset(board.uri)
    dataset.optimize.compact_files(materialize_deletions_threshold=0.0)
    lance.dataset(board.uri).cleanup_old_versions(older_than=NOW, delete_unverified=True)
    after = {path: path.read_bytes() for path in changelog(board).rglob("*") if path.is_file()}
    assert after == before
    with pytest.raises(lancemem.ChangesExpiredError):
        board.changes(since)
    behind = lance.dataset(board.uri).version
    put(board, {9: 90})
    assert board.changes(behind).counts.num_inserted == 1


def test_pylance_reads_change_rows_as_a_dataset(board: lancemem.Table) -> None:
    put(board, {1: 10, 2: 20})
    before = folders(board)
    put(board, {1: 11}, deleted=(2,))
    (name,) = folders(board) - before
    rows = lance.dataset(str(changelog(board) / name)).to_table()
    assert rows.schema.names == ["id", "v", "_change_type"]
    found = sorted(zip(*(rows[column].to_pylist() for column in rows.column_names), strict=True))
    assert found == [
        (1, 10, "update_preimage"),
        (1, 11, "update_postimage"),
        (2, 20, "delete"),
    ]


def test_the_transaction_of_the_commit_names_the_folder(board: lancemem.Table) -> None:
    version = put(board, {1: 10})
    (name,) = folders(board)
    found = []
    for number in range(1, version + 1):
        transaction = lance.dataset(board.uri).read_transaction(number)
        properties = (transaction and transaction.transaction_properties) or {}
        found += [value for key, value in properties.items() if key == "lancemem.changelog"]
    assert [value.partition("/")[0] for value in found] == [name]
