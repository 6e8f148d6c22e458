"""Compaction by links: which files move, which stay, and that pylance reads the result.

Owns: link, rewrite and drop of an SSTable, foreign commits in between, indexes, and the layout of
the written files. Not here: random programs (test_model, test_compaction_model), power cuts
(durability).
"""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

import lance
import pyarrow as pa
import pytest

import lancemem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conftest import MakeTable

ROWS = 1_000


def rows(schema: pa.Schema, ids: range | list[int], name: str) -> pa.Table:
    return pa.table(
        [list(ids), [f"{name}{i}" for i in ids], [float(i) for i in ids]], schema=schema
    )


def state(data: pa.Table) -> dict[int, str]:
    pairs = zip(data["id"].to_pylist(), data["name"].to_pylist(), strict=True)
    found = dict(pairs)
    assert len(found) == data.num_rows, "a key came twice"
    return found


def base_state(uri: str) -> dict[int, str]:
    return state(lance.dataset(uri).to_table())


def put(table: lancemem.Table, *puts: pa.Table, delete: list[int] | None = None) -> None:
    """Put the tables, delete the keys, and flush all as one SSTable of shard 0."""
    with table.start_job(shard=0) as job:
        for data in puts:
            job.put(data)
        if delete:
            job.delete(pa.table({"id": pa.array(delete, pa.int64())}))
        job.flush()


def data_files(uri: str) -> dict[str, tuple[int, int]]:
    """Inode and size of every data file of the base table."""
    found = {path.name: path.stat() for path in (Path(uri) / "data").iterdir()}
    return {name: (stat.st_ino, stat.st_size) for name, stat in found.items()}


def run_file(uri: str, table: lancemem.Table, generation: int) -> Path:
    shard = table.shards()[0]
    sstable = next(sstable for sstable in shard.sstables if sstable.generation == generation)
    (file,) = (Path(uri) / "_mem_wal" / shard.shard_id / sstable.path / "data").iterdir()
    return file


def test_an_sstable_becomes_a_fragment_without_a_byte_of_it_being_written(
    table: lancemem.Table,
) -> None:
    put(table, rows(table.schema, range(ROWS), "a"))
    file = run_file(table.uri, table, 1)
    before = file.read_bytes()
    result = table.compact()
    assert (result.num_generations, result.num_sstables_linked, result.num_sstables_rewritten) == (
        1,
        1,
        0,
    )
    assert (result.num_rows_written, result.num_rows_deleted, result.copied_bytes) == (ROWS, 0, 0)
    ((inode, size),) = data_files(table.uri).values()
    assert (inode, size) == (file.stat().st_ino, len(before))
    assert file.read_bytes() == before
    assert base_state(table.uri) == {i: f"a{i}" for i in range(ROWS)}


def test_a_linked_file_keeps_its_tombstone_column_under_no_field(table: lancemem.Table) -> None:
    put(table, rows(table.schema, range(10), "a"))
    table.compact()
    (fragment,) = lance.dataset(table.uri).get_fragments()
    (file,) = fragment.metadata.files
    assert list(file.fields) == [0, 1, 2, -2]
    assert list(file.column_indices) == [0, 1, 2, 3]
    assert fragment.metadata.deletion_file is None
    fragment_schema = lance.dataset(table.uri).schema
    assert fragment_schema.names == ["id", "name", "value"]


def test_dead_rows_of_the_base_are_a_bitmap_however_few_and_whatever_was_dead_before(
    table: lancemem.Table,
) -> None:
    put(table, rows(table.schema, range(10), "a"))
    table.compact(mode="link")
    for number, version in ((3, "b"), (8, "c"), (3, "d")):
        put(table, rows(table.schema, [number], version))
        table.compact(mode="link", max_dead_share=1.0)
        files = [it.deletion_file() for it in lance.dataset(table.uri).get_fragments()]
        assert files[0] is not None
        assert all(file.endswith(".bin") for file in files if file is not None)
    fragment = lance.dataset(table.uri).get_fragments()[0]
    assert (fragment.physical_rows, fragment.num_deletions) == (10, 2)
    expected = {number: f"a{number}" for number in range(10)} | {3: "d3", 8: "c8"}
    assert base_state(table.uri) == expected


def test_superseded_rows_and_tombstones_are_in_the_deletion_file_of_the_new_fragment(
    table: lancemem.Table,
) -> None:
    schema = table.schema
    put(table, rows(schema, range(10), "a"), rows(schema, range(5), "b"), delete=[7, 8, 99])
    assert table.compact(mode="link", max_dead_share=1.0).num_rows_written == 8
    (fragment,) = lance.dataset(table.uri).get_fragments()
    # 18 rows: ten, five and three tombstones; the first versions of 0 to 4, 7 and 8 are dead too.
    assert (fragment.physical_rows, fragment.num_deletions) == (18, 10)
    expected = {i: f"b{i}" for i in range(5)} | {i: f"a{i}" for i in (5, 6, 9)}
    assert base_state(table.uri) == expected
    assert lance.dataset(table.uri).count_rows() == len(expected)


def test_rows_that_a_newer_sstable_of_the_same_commit_supersedes_are_dead(
    table: lancemem.Table,
) -> None:
    schema = table.schema
    put(table, rows(schema, range(100), "a"))
    put(table, rows(schema, range(50, 150), "b"), delete=[0, 60])
    put(table, rows(schema, range(140, 160), "c"), delete=[1])
    versions = len(lance.dataset(table.uri).versions())
    result = table.compact(mode="link", max_dead_share=1.0)
    assert (result.num_generations, result.num_sstables_linked) == (3, 3)
    assert len(lance.dataset(table.uri).versions()) == versions + 1
    expected = {i: f"a{i}" for i in range(2, 50)} | {i: f"b{i}" for i in range(50, 140) if i != 60}
    expected |= {i: f"c{i}" for i in range(140, 160)}
    assert base_state(table.uri) == expected
    assert table.shards()[0].sstables == []


def test_one_generation_or_many_give_the_same_table(make_table: MakeTable) -> None:
    """B17: a tombstone hides older rows however the rows are divided into SSTables."""
    results = []
    for flush_each in (False, True):
        for mode in ("link", "rewrite"):
            table = make_table()
            schema = table.schema
            table.upsert(rows(schema, range(20), "base"))
            with table.start_job(shard=0) as job:
                job.flush()
            table.compact()
            with table.start_job(shard=0) as job:
                for step in range(4):
                    job.put(rows(schema, range(step, step + 6), f"s{step}-"))
                    job.delete(pa.table({"id": pa.array([step + 2, 15 + step], pa.int64())}))
                    if flush_each:
                        job.flush()
                job.flush()
            table.compact(mode=mode)
            results.append(base_state(table.uri))
    assert all(result == results[0] for result in results)
    assert len(results[0]) < 20


def test_deletes_of_keys_that_are_only_in_the_base_need_no_fragment(
    table: lancemem.Table,
) -> None:
    put(table, rows(table.schema, range(10), "a"))
    table.compact()
    put(table, delete=[3, 4, 77])
    result = table.compact()
    assert (result.num_sstables_dropped, result.num_rows_written, result.num_rows_deleted) == (
        1,
        0,
        2,
    )
    assert result.num_fragments_added == 0
    assert sorted(base_state(table.uri)) == [0, 1, 2, 5, 6, 7, 8, 9]
    put(table, delete=list(range(10)))
    assert table.compact().num_rows_deleted == 8
    assert base_state(table.uri) == {}
    assert lance.dataset(table.uri).get_fragments() == []
    put(table, rows(table.schema, range(3), "z"))
    table.compact()
    assert base_state(table.uri) == {0: "z0", 1: "z1", 2: "z2"}


def test_small_sstables_are_written_together_and_the_result_has_the_reason(
    table: lancemem.Table,
) -> None:
    for step in range(3):
        put(table, rows(table.schema, range(step * 10, step * 10 + 10), "a"))
    planned = table.compact(dry_run=True)
    assert planned.base_version == lance.dataset(table.uri).version
    assert [sstable.treatment for sstable in planned.sstables] == ["rewrite"] * 3
    assert "3 small SSTables" in planned.sstables[0].reason
    assert len(table.shards()[0].sstables) == 3, "a dry run changes nothing"
    done = table.compact()
    assert done.sstables == planned.sstables
    assert (done.num_sstables_rewritten, done.num_fragments_added, done.num_rows_written) == (
        3,
        1,
        30,
    )
    assert len(base_state(table.uri)) == 30


def test_an_sstable_of_mostly_dead_rows_is_rewritten(table: lancemem.Table) -> None:
    schema = table.schema
    put(table, *(rows(schema, range(100), f"v{i}-") for i in range(4)))
    (sstable,) = table.compact(dry_run=True).sstables
    assert (sstable.treatment, sstable.num_rows, sstable.num_live_rows) == ("rewrite", 400, 100)
    assert "300 of 400" in sstable.reason
    table.compact()
    (fragment,) = lance.dataset(table.uri).get_fragments()
    assert (fragment.physical_rows, fragment.num_deletions) == (100, 0)


def test_the_ways_are_checked(table: lancemem.Table) -> None:
    with pytest.raises(lancemem.InvalidInputError, match="'auto', 'link' or 'rewrite'"):
        table.compact(mode="merge")  # type: ignore[arg-type]
    with pytest.raises(lancemem.InvalidInputError, match="between 0 and 1"):
        table.compact(max_dead_share=2.0)
    assert table.compact().sstables == []


@pytest.mark.parametrize("mode", ["link", "rewrite"])
def test_a_column_that_is_never_null_survives_tombstones(
    make_table: MakeTable, mode: Literal["link", "rewrite"]
) -> None:
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("text", pa.string(), nullable=False),
            pa.field("number", pa.float64(), nullable=False),
            pa.field(
                "list", pa.list_(pa.field("item", pa.int32(), nullable=False)), nullable=False
            ),
            pa.field("pair", pa.struct([pa.field("a", pa.int8(), nullable=False)]), nullable=False),
        ]
    )
    table = make_table(schema)
    data = [
        {"id": i, "text": f"t{i}", "number": i / 2, "list": [i], "pair": {"a": i}}
        for i in range(50)
    ]
    put(table, pa.Table.from_pylist(data, schema=schema), delete=[3, 49, 60])
    table.compact(mode=mode)
    expected = [row for row in data if row["id"] not in (3, 49)]
    assert lance.dataset(table.uri).to_table().to_pylist() == expected
    assert lance.dataset(table.uri).take([0, 5]).to_pylist() == [expected[0], expected[5]]
    assert table.scan().to_table().num_rows == 48


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_pylance_reads_and_changes_a_table_of_linked_files(
    tmp_path: Path, schema: pa.Schema, version: str
) -> None:
    uri = str(tmp_path / "made_by_pylance.lance")
    key = {b"lance-schema:unenforced-primary-key": b"true"}
    schema = schema.set(0, schema.field(0).with_metadata(key))
    first = rows(schema, range(100), "base")
    lance.write_dataset(first, uri, data_storage_version=version)  # type: ignore[arg-type]
    table = lancemem.enable(uri)
    put(table, rows(table.schema, range(50, 150), "a"), delete=[0, 1, 149])
    assert table.compact(mode="link").num_sstables_linked == 1
    expected = {i: f"base{i}" for i in range(2, 50)} | {i: f"a{i}" for i in range(50, 149)}
    dataset = lance.dataset(uri)
    assert state(dataset.to_table()) == expected
    assert dataset.count_rows() == len(expected)
    assert dataset.count_rows("id >= 140") == 9
    assert dataset.to_table(filter="name = 'a77'")["id"].to_pylist() == [77]
    some = dataset.take([0, len(expected) - 1])
    assert set(some["id"].to_pylist()) <= set(expected)
    dataset.validate()  # type: ignore[no-untyped-call]

    dataset.create_scalar_index("id", "BTREE")
    assert dataset.to_table(filter="id = 120")["name"].to_pylist() == ["a120"]
    dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(
        rows(schema, [5, 120, 500], "m")
    )
    expected |= {5: "m5", 120: "m120", 500: "m500"}
    dataset.update({"name": "'u'"}, where="id = 60")
    dataset.delete("id = 61")
    expected[60] = "u"
    del expected[61]
    dataset.add_columns(pa.field("extra", pa.int64()))
    dataset.optimize.compact_files()
    dataset.optimize.optimize_indices()
    dataset = lance.dataset(uri)
    assert state(dataset.to_table()) == expected
    assert dataset.to_table(filter="id = 120")["name"].to_pylist() == ["m120"]
    dataset.drop_columns(["extra"])
    dataset.cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)
    assert base_state(uri) == expected
    assert state(lancemem.open_table(uri).scan().to_table()) == expected


def test_a_base_fragment_of_mostly_dead_rows_is_rewritten_in_a_commit_of_its_own(
    table: lancemem.Table,
) -> None:
    put(table, rows(table.schema, range(100), "a"))
    table.compact()
    put(table, rows(table.schema, range(70), "b"))
    before = lance.dataset(table.uri).version
    result = table.compact()
    assert result.num_fragments_rewritten == 1
    assert result.base_version > before + 1
    expected = {i: f"b{i}" for i in range(70)} | {i: f"a{i}" for i in range(70, 100)}
    for version in range(before + 1, result.base_version + 1):
        dataset = lance.dataset(table.uri, version=version)
        assert state(dataset.to_table()) == expected, "the rewrite changes no row"
    assert all(it.num_deletions == 0 for it in lance.dataset(table.uri).get_fragments())
    put(table, rows(table.schema, range(40), "c"))
    assert table.compact(max_dead_share=1.0).num_fragments_rewritten == 0
    assert len(base_state(table.uri)) == 100


@pytest.mark.parametrize("stable", [False, True])
def test_rows_that_no_index_covers_yet_are_found(
    tmp_path: Path, schema: pa.Schema, stable: bool
) -> None:
    uri = str(tmp_path / "indexed.lance")
    key = {b"lance-schema:unenforced-primary-key": b"true"}
    schema = schema.set(0, schema.field(0).with_metadata(key))
    lance.write_dataset(rows(schema, range(100), "base"), uri, enable_stable_row_ids=stable)
    dataset = lance.dataset(uri)
    dataset.create_scalar_index("id", "BTREE")
    dataset.create_scalar_index("name", "BITMAP")
    table = lancemem.enable(uri)
    put(table, rows(table.schema, range(90, 120), "a"), delete=[5])
    table.compact(mode="link", update_indexes=False)

    def check(unindexed: bool) -> None:
        dataset = lance.dataset(uri)
        for i, name in [(10, "base10"), (95, "a95"), (119, "a119")]:
            assert dataset.to_table(filter=f"id = {i}")["name"].to_pylist() == [name]
            assert dataset.to_table(filter=f"name = '{name}'")["id"].to_pylist() == [i]
        assert dataset.to_table(filter="id = 5").num_rows == 0
        assert dataset.to_table(filter="name = 'base95'").num_rows == 0
        left = dataset.stats.index_stats("id_idx")["num_unindexed_rows"]
        assert (left > 0) == unindexed

    check(unindexed=True)
    table.compact()
    check(unindexed=False)
    put(table, rows(table.schema, [95, 200], "c"))
    table.compact()
    assert lance.dataset(uri).to_table(filter="id = 95")["name"].to_pylist() == ["c95"]
    assert lance.dataset(uri).to_table(filter="name = 'c200'")["id"].to_pylist() == [200]


def test_a_table_of_two_shards_moves_in_one_commit(make_table: MakeTable) -> None:
    table = make_table(sharding=lancemem.bucket("id", 2))
    for step in range(2):
        data = rows(table.schema, range(step * 50, step * 50 + 100), f"s{step}-")
        table.upsert(data)
        for shard in range(2):
            with table.start_job(shard=shard) as job:
                job.flush()
    versions = lance.dataset(table.uri).version
    result = table.compact(mode="link", max_dead_share=1.0)
    assert (result.num_generations, result.base_version) == (4, versions + 1)
    expected = {i: f"s0-{i}" for i in range(50)} | {i: f"s1-{i}" for i in range(50, 150)}
    assert base_state(table.uri) == expected


class Racer(threading.Thread):
    """Commits to the base table again and again until it is told to stop."""

    def __init__(self, commit: Callable[[int], object], pause: float = 0.03) -> None:
        super().__init__(daemon=True)
        self.commit = commit
        self.pause = pause
        self.done = threading.Event()
        self.commits = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        """Commit, and keep an error for the test."""
        try:
            while not self.done.wait(self.pause):
                self.commit(self.commits)
                self.commits += 1
        except BaseException as error:  # noqa: BLE001 - told to the test
            self.failure = error

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.done.set()
        self.join(60)
        assert not self.is_alive()
        if self.failure is not None:
            raise self.failure


@contextmanager
def perhaps_lost() -> Iterator[None]:
    """Ignore a commit of lance that lost its race; the rest of the block is skipped."""
    try:
        yield
    except OSError as error:
        assert "conflict" in str(error).lower(), error  # noqa: PT017 - a lost race is fine


def test_appends_that_come_between_planning_and_commit_are_planned_for(
    table: lancemem.Table,
) -> None:
    """B15: positions and fragment ids of another version must not be carried over."""
    schema = lance.dataset(table.uri).schema

    def append(step: int) -> None:
        lance.write_dataset(rows(schema, [10_000 + step], "new"), table.uri, mode="append")

    put(table, rows(table.schema, range(ROWS), "base"))
    table.compact()
    with Racer(append) as racer:
        for step in range(5):
            put(table, rows(table.schema, range(step * 10, step * 10 + 500), f"s{step}-"))
            table.compact()
        seen = racer.commits
    assert seen > 0
    found = base_state(table.uri)
    new = {10_000 + step: f"new{10_000 + step}" for step in range(racer.commits)}
    assert {i: name for i, name in found.items() if i >= 10_000} == new
    for step in range(4):
        assert found[step * 10] == f"s{step}-{step * 10}"
    assert len(found) == ROWS + len(new)
    lance.dataset(table.uri).validate()  # type: ignore[no-untyped-call]


def test_deletes_index_builds_and_updates_of_pylance_between_planning_and_commit(
    table: lancemem.Table,
) -> None:
    put(table, rows(table.schema, range(ROWS), "base"))
    table.compact()
    deleted: set[int] = set()
    updated: set[int] = set()

    def change(step: int) -> None:
        dataset = lance.dataset(table.uri)
        key = 700 + step % (ROWS - 700)
        with perhaps_lost():
            if step % 3 == 0:
                dataset.delete(f"id = {key}")
                deleted.add(key)
            elif step % 3 == 1:
                dataset.create_scalar_index("value", "BTREE", replace=True)
            else:
                dataset.update({"name": "'updated'"}, where=f"id = {key}")
                updated.add(key)

    with Racer(change) as racer:
        for step in range(5):
            put(table, rows(table.schema, range(step * 10, step * 10 + 300), f"s{step}-"))
            table.compact()
    assert racer.commits > 0
    found = base_state(table.uri)
    assert all(found[i].startswith("s") for i in range(340))
    assert all(found[i] == f"base{i}" for i in range(340, 700))
    assert deleted.isdisjoint(found)
    assert all(found[i] == "updated" for i in updated - deleted)
    lance.dataset(table.uri).validate()  # type: ignore[no-untyped-call]


def test_rows_that_pylance_deletes_between_planning_and_commit_stay_deleted(
    table: lancemem.Table,
) -> None:
    """B15: the deletions of another version must not be carried over."""
    put(table, rows(table.schema, range(ROWS), "base"))
    table.compact()
    deleted: set[int] = set()

    def delete(step: int) -> None:
        key = 300 + step % (ROWS - 300)
        with perhaps_lost():
            lance.dataset(table.uri).delete(f"id = {key}")
            deleted.add(key)

    with Racer(delete, pause=0.01) as racer:
        for step in range(20):
            put(table, rows(table.schema, range(step, step + 100), f"s{step}-"))
            table.compact()
    assert racer.commits > 0
    found = base_state(table.uri)
    assert deleted.isdisjoint(found)
    assert len(found) == ROWS - len(deleted)


def test_two_compactors_lose_nothing_and_duplicate_nothing(table: lancemem.Table) -> None:
    """B14: the rows of a late compaction never land without its progress."""
    other = lancemem.open_table(table.uri)
    newest: dict[int, str] = {}
    # The other compactor runs at every moment: a fault would depend on the order of the two.
    racing = Racer(lambda _: other.compact(), pause=0.001)
    with table.start_job(shard=0) as job, racing as racer:
        for step in range(40):
            new = rows(table.schema, range(step * 5, step * 5 + 100), f"s{step}-")
            newest |= state(new)
            job.put(new)
            job.flush()
            table.compact()
            assert table.scan(consistency="flushed").count_rows() == len(newest)
        epoch = table.shards()[0].writer_epoch
        job.put(rows(table.schema, [1_000_000], "still the writer "))
    assert racer.commits > 0
    assert table.shards()[0].writer_epoch == epoch, "B23: the writer was not fenced"
    assert base_state(table.uri) == newest
    assert table.scan().count_rows() == len(newest) + 1


def test_a_refused_attempt_leaves_no_file_behind(table: lancemem.Table) -> None:
    put(table, rows(table.schema, range(ROWS), "base"))
    table.compact()
    schema = lance.dataset(table.uri).schema

    def append(step: int) -> None:
        lance.write_dataset(rows(schema, [10_000 + step], "new"), table.uri, mode="append")

    with Racer(append):
        for step in range(4):
            put(table, rows(table.schema, range(step, 300), f"s{step}-"))
            table.compact()
    dataset = lance.dataset(table.uri)
    named: set[str] = set()
    for version in dataset.versions():
        at = lance.dataset(table.uri, version=version["version"])
        for fragment in at.get_fragments():
            named |= {file.path for file in fragment.metadata.files}
    assert set(data_files(table.uri)) <= named


def test_an_sstable_of_yesterday_is_safe_from_a_clean_up_while_it_is_linked(
    table: lancemem.Table,
) -> None:
    """Lance's clean-up removes old files that no version lists; a linked file must be young."""
    put(table, rows(table.schema, range(10), "a"))
    file = run_file(table.uri, table, 1)
    os.utime(file, (0, 0))
    table.compact()
    assert file.stat().st_mtime > 0
    assert len(base_state(table.uri)) == 10


def test_sstables_of_a_table_without_a_key_are_linked_whole(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("v", pa.int64())])
    uri = str(tmp_path / "append_only.lance")
    table = lancemem.create_table(uri, schema, primary_key=[])
    for _ in range(2):
        with table.start_job(shard=0) as job:
            job.put(pa.table({"v": [1, 1, 2]}, schema=schema))
            job.flush()
    assert table.compact(mode="link").num_rows_written == 6
    assert sorted(lance.dataset(uri).to_table()["v"].to_pylist()) == [1, 1, 1, 1, 2, 2]
    assert table.scan().count_rows() == 6
