"""`Table.snapshot(version=)` and `(timestamp=)`: the base table as it was.

Owns: the rows of an older version by scan, by key and by SQL, its token in another process, and
arguments that are refused. Not here: the list of versions (test_history).
"""

from __future__ import annotations

import pickle
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lancemem

if TYPE_CHECKING:
    from collections.abc import Callable

OLD = {1: "a", 2: "b", 3: "c", 4: "d"}


def moved(table: lancemem.Table, rows: dict[int, str], deleted: list[int]) -> int:
    """Write, compact, and return the version behind the compaction."""
    table.upsert([{"id": id, "name": name, "value": 0.0} for id, name in rows.items()])  # noqa: A001
    if deleted:
        table.delete(deleted)
    table.compact(flush=True)
    return table.history(1)[0].version


@pytest.fixture
def old(table: lancemem.Table) -> int:
    """Give the version behind the first of two compactions, with rows above the second."""
    version = moved(table, OLD, [])
    moved(table, {1: "a2", 5: "e"}, [2])
    table.upsert([{"id": 6, "name": "f", "value": 0.0}])
    return version


def names(rows: pa.Table) -> dict[int, str]:
    return dict(zip(rows["id"].to_pylist(), rows["name"].to_pylist(), strict=True))


def test_an_older_version_has_its_own_rows_by_every_way(table: lancemem.Table, old: int) -> None:
    before = table.snapshot(version=old)
    assert isinstance(before, lancemem.Snapshot)
    assert (before.base_version, before.shards) == (old, [])
    assert names(before.scan().to_table()) == OLD
    assert before.scan(["id"], "name > 'a'", order_by="-id").to_table()["id"].to_pylist() == [
        4,
        3,
        2,
    ]
    assert before.count_rows() == 4
    assert names(before.get([5, 2, 1])) == {2: "b", 1: "a"}
    assert before.sql("SELECT max(name) AS m FROM t").to_table().to_pylist() == [{"m": "d"}]
    assert before.to_dataset().count_rows() == 4
    expected = lance.dataset(table.uri, version=old).to_table()
    assert names(expected) == OLD
    assert names(table.to_table()) == {1: "a2", 3: "c", 4: "d", 5: "e", 6: "f"}


def test_the_newest_version_lacks_what_no_compaction_has_moved(
    table: lancemem.Table, old: int
) -> None:
    newest = table.snapshot(version=table.history(1)[0].version)
    assert newest.base_version > old
    assert names(newest.scan().to_table()) == {1: "a2", 3: "c", 4: "d", 5: "e"}


def test_the_record_index_and_deletion_vectors_answer_for_no_older_version(
    table: lancemem.Table, old: int
) -> None:
    table.alter(deletion_vectors=True)
    table.create_record_index()
    for _ in range(2):
        assert names(table.get([1, 2, 5, 6])) == {1: "a2", 5: "e", 6: "f"}
        assert names(table.snapshot(version=old).get([1, 2, 5, 6])) == {1: "a", 2: "b"}
        assert names(table.snapshot(version=old).scan().to_table()) == OLD


def test_a_version_before_a_column_was_added_has_its_own_columns(
    table: lancemem.Table, old: int
) -> None:
    lance.dataset(table.uri).add_columns(pa.field("more", pa.int64()))
    assert "more" in table.snapshot().schema.names
    before = table.snapshot(version=old)
    assert before.schema.names == ["id", "name", "value"]
    assert names(before.get([2])) == {2: "b"}
    with pytest.raises(lancemem.InvalidInputError, match="more"):
        before.scan(["more"]).to_table()


def test_every_time_is_its_version(table: lancemem.Table, old: int) -> None:
    history = table.history()
    for known in history:
        assert table.snapshot(timestamp=known.timestamp).base_version == known.version
        other_zone = known.timestamp.astimezone(timezone(timedelta(hours=5)))
        assert table.snapshot(timestamp=other_zone).base_version == known.version
        local = known.timestamp.astimezone().replace(tzinfo=None)
        assert table.snapshot(timestamp=local).base_version == known.version
    later = datetime.now(tz=UTC) + timedelta(hours=1)
    assert table.snapshot(timestamp=later).base_version == history[0].version > old


def counted(snapshot: lancemem.Snapshot) -> int:
    return snapshot.count_rows()


def test_another_process_opens_the_version_by_its_token(table: lancemem.Table, old: int) -> None:
    before = table.snapshot(version=old)
    assert before.token == str(old)
    again = lancemem.open_table(table.uri).snapshot(token=before.token)
    assert names(again.scan().to_table()) == OLD
    assert counted(pickle.loads(pickle.dumps(before))) == 4  # noqa: S301
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as other:
        assert other.submit(counted, before).result() == 4


def test_a_version_that_was_cleaned_up_is_refused_with_the_oldest_left(
    table: lancemem.Table, old: int
) -> None:
    lance.dataset(table.uri).cleanup_old_versions(timedelta(0), delete_unverified=True)
    left = table.history()[-1]
    assert left.version > old
    table = lancemem.open_table(table.uri)
    text = f"no version {old}, or it was cleaned up; the oldest version left is {left.version}"
    with pytest.raises(lancemem.InvalidInputError, match=text):
        table.snapshot(version=old)
    with pytest.raises(lancemem.InvalidInputError, match=f"oldest version left is {left.version}"):
        table.snapshot(timestamp=left.timestamp - timedelta(seconds=1))
    assert table.snapshot(timestamp=left.timestamp).base_version == left.version


REFUSED: dict[str, tuple[Callable[[lancemem.Table], Any], str]] = {
    "a later version": (lambda table: table.snapshot(version=1_000), "no version 1000"),
    "version 0": (lambda table: table.snapshot(version=0), "no version 0"),
    "an early time": (
        lambda table: table.snapshot(timestamp=datetime(1999, 1, 1, tzinfo=UTC)),
        "the oldest version left is 1, committed at",
    ),
    "both": (
        lambda table: table.snapshot(version=1, timestamp=datetime.now(tz=UTC)),
        "not both",
    ),
    "a level": (lambda table: table.snapshot(version=1, consistency="flushed"), "leave out"),
    "a token": (
        lambda table: table.snapshot(version=1, token=table.snapshot().token),
        "leave out",
    ),
    "a negative version": (lambda table: table.snapshot(version=-1), "version: expected a number"),
}


@pytest.mark.parametrize("call", REFUSED)
def test_what_does_not_go_with_a_version_is_refused(call: str, table: lancemem.Table) -> None:
    run, text = REFUSED[call]
    with pytest.raises(lancemem.InvalidInputError, match=text):
        run(table)


def test_jobs_do_not_go_with_a_version(table: lancemem.Table) -> None:
    with (
        table.start_job(shard=0) as job,
        pytest.raises(lancemem.InvalidInputError, match="leave out"),
    ):
        table.snapshot(version=1, consistency="live", jobs=[job])


def test_a_version_before_the_key_was_named_is_scanned_and_not_looked_up(table_uri: str) -> None:
    rows = pa.table({"id": pa.array([1, 2], pa.int64()), "name": ["a", "b"]})
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
    lance.write_dataset(rows.cast(schema), table_uri)
    table = lancemem.enable(table_uri, primary_key="id")
    before = table.snapshot(version=1)
    assert names(before.scan().to_table()) == {1: "a", 2: "b"}
    with pytest.raises(lancemem.InvalidInputError, match=r"version 1 .* has no primary key yet"):
        before.get([1])
