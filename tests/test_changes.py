"""`Table.changes`: what a feed has, its forms, its arguments, and its consumers.

Owns: changes of lancemem and of pylance, the public bugs of other feeds, schema changes, bad input,
parts in other processes, consumers, the command line. Not here: random programs (test_changes_law),
Spark (tests/spark).
"""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lancemem
from lancemem.__main__ import main

if TYPE_CHECKING:
    from tests.conftest import MakeTable

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.int64())])
Event = tuple[str, int, int | None]


@pytest.fixture
def board(make_table: MakeTable) -> lancemem.Table:
    """Give a table of two columns."""
    return make_table(SCHEMA)


def put(table: lancemem.Table, values: dict[int, int | None], deleted: tuple[int, ...] = ()) -> int:
    """Upsert rows, delete keys, move both into the base table, and return its version."""
    if values:
        rows = {"id": list(values), "v": list(values.values())}
        table.upsert(pa.table(rows, schema=SCHEMA))
    if deleted:
        table.delete(list(deleted))
    table.compact(flush=True)
    return newest(table)


def newest(table: lancemem.Table) -> int:
    """Return the newest version of the base table."""
    return lance.dataset(table.uri).version


def events(feed: lancemem.ChangeFeed) -> list[Event]:
    """Read a feed; its rows sorted."""
    rows = feed.to_table().to_pylist()
    return sorted((row["_change_type"], row["id"], row["v"]) for row in rows)


def clean_up(table: lancemem.Table) -> None:
    """Remove all versions but the newest and the tagged ones, as another program would."""
    dataset = lance.dataset(table.uri)
    dataset.cleanup_old_versions(older_than=timedelta(0), error_if_tagged_old_versions=False)


# --- what a feed has ---


def test_a_feed_has_both_images_with_version_and_time(board: lancemem.Table) -> None:
    since = put(board, {1: 10, 2: 20, 3: 30})
    before = datetime.now(tz=UTC) - timedelta(minutes=5)
    until = put(board, {2: 21, 4: 40}, deleted=(1,))
    feed = board.changes(since)
    assert feed.schema == pa.schema(
        [
            *SCHEMA,
            pa.field("_change_type", pa.string(), nullable=False),
            pa.field("_commit_version", pa.int64(), nullable=False),
            pa.field("_commit_timestamp", pa.timestamp("us", "UTC"), nullable=False),
        ]
    )
    assert events(feed) == [
        ("delete", 1, 10),
        ("insert", 4, 40),
        ("update_postimage", 2, 21),
        ("update_preimage", 2, 20),
    ]
    (version,) = feed.versions
    # A compaction may rewrite fragments behind its commit, which changes no row.
    assert since < version.version <= until
    assert version.operation == "Update"
    assert version.timestamp > before
    rows = feed.to_table()
    assert set(rows["_commit_version"].to_pylist()) == {version.version}
    assert set(rows["_commit_timestamp"].to_pylist()) == {version.timestamp}
    kinds = rows["_change_type"].to_pylist()
    images = [kind in {"delete", "update_preimage"} for kind in kinds]
    assert images == sorted(images, reverse=True), "images before come first"
    counts = feed.counts
    assert (counts.num_inserted, counts.num_updated, counts.num_deleted) == (1, 1, 1)
    assert counts.num_rows == rows.num_rows == 4


def test_a_feed_has_many_forms(board: lancemem.Table) -> None:
    since = put(board, {1: 10})
    put(board, {1: 11, 2: 20})
    feed = board.changes(since)
    whole = feed.to_table()
    assert pa.table(feed) == whole
    assert pa.RecordBatchReader.from_stream(feed).read_all() == whole
    assert feed.to_reader().read_all() == whole
    assert pa.Table.from_batches(list(feed), feed.schema) == whole
    assert pa.Table.from_batches(list(feed.to_batches()), feed.schema) == whole
    assert feed.to_pandas()["id"].tolist() == whole["id"].to_pylist()
    assert feed.to_polars()["id"].to_list() == whole["id"].to_pylist()
    again = pickle.loads(pickle.dumps(feed))  # noqa: S301 - made here
    assert again.to_table() == whole
    assert repr(feed) == f'ChangeFeed("{board.uri}", since={since}, until={feed.until})'


def test_without_since_the_table_is_inserts(board: lancemem.Table) -> None:
    put(board, {1: 10, 2: 20})
    until = put(board, {1: 11}, deleted=(2,))
    feed = board.changes()
    assert (feed.since, feed.until) == (None, until)
    assert events(feed) == [("insert", 1, 11)]
    assert events(board.changes(since=until)) == []
    assert board.changes(since=until).versions == []
    assert [event for event in events(board.changes(since=0)) if event[0] == "delete"] == [
        ("delete", 2, 20)
    ]


def test_columns_and_kinds_are_chosen(board: lancemem.Table) -> None:
    since = put(board, {1: 10, 2: 20})
    put(board, {1: 11, 3: 30}, deleted=(2,))
    feed = board.changes(since, columns=["v"], row_kinds="flink")
    rows = feed.to_table()
    assert rows.column_names[:2] == ["v", "_change_type"]
    assert sorted(zip(rows["_change_type"].to_pylist(), rows["v"].to_pylist(), strict=True)) == [
        ("+I", 30),
        ("+U", 11),
        ("-D", 20),
        ("-U", 10),
    ]
    assert board.changes(since, columns=[]).to_table().num_rows == 4


@pytest.mark.parametrize("condition", ["v > 25", pc.field("v") > 25])
def test_a_filter_sees_both_images(board: lancemem.Table, condition: Any) -> None:  # noqa: ANN401
    since = put(board, {1: 10, 2: 20, 3: 30, 4: 40})
    put(board, {1: 30, 2: 5, 3: 1, 9: 50}, deleted=(4,))
    feed = board.changes(since, filter=condition)
    assert events(feed) == [
        ("delete", 4, 40),
        ("insert", 9, 50),
        ("update_postimage", 1, 30),
        ("update_postimage", 3, 1),
        ("update_preimage", 1, 10),
        ("update_preimage", 3, 30),
    ]
    assert feed.counts.num_rows == 6


def test_rows_above_the_base_table_are_no_changes_yet(board: lancemem.Table) -> None:
    """Hudi 17607, 1396: a feed that passes an unfinished compaction."""
    since = put(board, {1: 10})
    board.upsert(pa.table({"id": [2], "v": [20]}, schema=SCHEMA))
    assert board.changes(since).to_table().num_rows == 0
    board.flush()
    assert board.changes(since).to_table().num_rows == 0
    board.compact()
    assert events(board.changes(since)) == [("insert", 2, 20)]


def test_index_settings_and_rewrites_are_no_changes(board: lancemem.Table) -> None:
    """DuckLake 185: changes beside compacted files."""
    since = put(board, {key: key for key in range(100)})
    middle = put(board, {1: -1}, deleted=tuple(range(50, 100)))
    lance.dataset(board.uri).create_scalar_index("id", "BTREE")
    lance.dataset(board.uri).update_config({"other": "program"})
    lance.dataset(board.uri).optimize.compact_files(materialize_deletions_threshold=0.0)
    assert board.changes(middle).versions == []
    assert board.changes(middle).to_table().num_rows == 0
    put(board, {1: -2})
    assert events(board.changes(middle)) == [
        ("update_postimage", 1, -2),
        ("update_preimage", 1, -1),
    ]
    assert [version.operation for version in board.changes(since).versions] == ["Update"] * 2


def test_commits_of_pylance_are_changes(board: lancemem.Table) -> None:
    since = put(board, {1: 10, 2: 20, 3: 30})
    rows = pa.table({"id": [4], "v": [40]}, schema=SCHEMA)
    lance.write_dataset(rows, board.uri, mode="append")
    lance.dataset(board.uri).delete("id = 1")
    lance.dataset(board.uri).update({"v": "v + 1"}, where="id = 2")
    merge = lance.dataset(board.uri).merge_insert("id")
    merge.when_matched_update_all().when_not_matched_insert_all().execute(
        pa.table({"id": [3, 5], "v": [31, 50]}, schema=SCHEMA)
    )
    feed = board.changes(since)
    assert [version.operation for version in feed.versions] == [
        "Append",
        "Delete",
        "Update",
        "Update",
    ]
    assert events(feed) == [
        ("delete", 1, 10),
        ("insert", 4, 40),
        ("insert", 5, 50),
        ("update_postimage", 2, 21),
        ("update_postimage", 3, 31),
        ("update_preimage", 2, 20),
        ("update_preimage", 3, 30),
    ]


def test_overwrite_and_restore_are_changes(board: lancemem.Table) -> None:
    first = put(board, {1: 10, 2: 20})
    second = put(board, {2: 21, 3: 30})
    lance.dataset(board.uri, version=first).restore()  # type: ignore[no-untyped-call]
    board.refresh()
    assert events(board.changes(second)) == [
        ("delete", 3, 30),
        ("update_postimage", 2, 20),
        ("update_preimage", 2, 21),
    ]
    restored = newest(board)
    rows = pa.table({"id": [2, 9], "v": [22, 90]}, schema=SCHEMA)
    lance.write_dataset(rows, board.uri, mode="overwrite")
    lance.dataset(board.uri, version=restored).restore()  # type: ignore[no-untyped-call]
    again = board.changes(restored)
    assert [version.operation for version in again.versions] == ["Overwrite", "Restore"]
    assert events(again) == [
        ("delete", 1, 10),
        ("delete", 9, 90),
        ("insert", 1, 10),
        ("insert", 9, 90),
        ("update_postimage", 2, 20),
        ("update_postimage", 2, 22),
        ("update_preimage", 2, 20),
        ("update_preimage", 2, 22),
    ]


def test_a_table_without_a_key_has_inserts_and_deletes(make_table: MakeTable) -> None:
    table = make_table(SCHEMA, primary_key=[])
    since = put(table, {1: 10, 2: 20})
    lance.dataset(table.uri).update({"v": "v + 1"}, where="id = 2")
    put(table, {1: 10})
    assert events(table.changes(since)) == [("delete", 2, 20), ("insert", 1, 10), ("insert", 2, 21)]


# --- public bugs of other feeds, held here ---


def test_paimon_5724_8204_8206_a_row_that_is_put_again_after_its_delete_is_an_insert(
    board: lancemem.Table,
) -> None:
    put(board, {1: 10, 2: 20})
    since = newest(board)
    deleted = put(board, {}, deleted=(1,))
    put(board, {1: 10})
    assert events(board.changes(since, deleted)) == [("delete", 1, 10)]
    assert events(board.changes(deleted)) == [("insert", 1, 10)]


def test_delta_1963_an_update_that_changes_nothing_is_a_pair_unless_told(
    board: lancemem.Table,
) -> None:
    since = put(board, {1: 10, 2: None})
    put(board, {1: 10, 2: None})
    assert board.changes(since).counts.num_updated == 2
    skipped = board.changes(since, skip_unchanged=True)
    assert skipped.to_table().num_rows == skipped.counts.num_rows == 0
    put(board, {1: 11})
    keys = board.changes(since, columns=["id"], skip_unchanged=True)
    assert keys.to_table().num_rows == 0, "the columns of the feed are compared"


def test_delta_4391_a_state_and_the_feed_behind_it_have_no_version_twice(
    board: lancemem.Table,
) -> None:
    put(board, {1: 10})
    snapshot = board.snapshot(version=newest(board))
    put(board, {2: 20})
    since = snapshot.base_version
    assert events(board.changes(since)) == [("insert", 2, 20)]


@pytest.mark.parametrize("mode", ["link", "rewrite"])
def test_trino_23620_images_before_are_there_with_deletion_vectors(
    board: lancemem.Table,
    mode: Any,  # noqa: ANN401
) -> None:
    board.alter(deletion_vectors=True)
    since = put(board, {1: 10, 2: 20})
    board.upsert(pa.table({"id": [2, 3], "v": [21, 30]}, schema=SCHEMA))
    board.flush()
    board.delete([3])
    board.flush()
    board.write_deletion_vectors()
    board.compact(mode=mode)
    assert events(board.changes(since)) == [
        ("update_postimage", 2, 21),
        ("update_preimage", 2, 20),
    ]


def test_delta_rs_3392_a_start_that_was_cleaned_up_names_the_oldest_version(
    board: lancemem.Table,
) -> None:
    since = put(board, {1: 10})
    last = put(board, {1: 11})
    clean_up(board)
    for start in (since, 0, datetime.fromtimestamp(0, tz=UTC)):
        with pytest.raises(lancemem.ChangesExpiredError, match="oldest version left") as refused:
            board.changes(start)
        assert refused.value.oldest == last
    assert not isinstance(refused.value, lancemem.InvalidInputError)
    assert events(board.changes()) == [("insert", 1, 11)]


def test_delta_rs_3097_a_start_may_be_a_time(board: lancemem.Table) -> None:
    put(board, {1: 10})
    history = {version.version: version.timestamp for version in board.history()}
    last = put(board, {2: 20})
    assert events(board.changes(history[last - 1])) == [("insert", 2, 20)]
    assert events(board.changes(datetime.fromtimestamp(0, tz=UTC))) == [
        ("insert", 1, 10),
        ("insert", 2, 20),
    ]
    # A time without a zone is local time.
    local = history[last - 1].astimezone().replace(tzinfo=None)
    assert board.changes(local).since == last - 1
    assert board.changes(until=history[last - 1]).until == last - 1
    assert board.changes(datetime.now(tz=UTC) + timedelta(days=1)).since == last


def test_delta_rs_3165_the_last_version_alone_is_a_feed(board: lancemem.Table) -> None:
    put(board, {1: 10})
    last = put(board, {2: 20})
    assert events(board.changes(last - 1, last)) == [("insert", 2, 20)]


# --- columns that change ---


def test_rows_come_with_the_columns_of_the_last_version(board: lancemem.Table) -> None:
    """Delta 1507, 1349: a schema change between the versions."""
    first = put(board, {1: 10, 2: 20})
    dataset = lance.dataset(board.uri)
    dataset.add_columns(pa.schema([pa.field("n", pa.int32())]))
    lance.dataset(board.uri).alter_columns({"path": "v", "name": "w"})  # type: ignore[dict-item]
    board.refresh()
    assert board.changes(first).versions == [], "no row changed"
    rows = pa.table({"id": [1], "w": [11], "n": [5]}, schema=board.schema)
    board.upsert(rows)
    board.compact(flush=True)
    added = newest(board)
    feed = board.changes(first)
    assert feed.schema.names[:3] == ["id", "w", "n"]
    found = [(row["_change_type"], row["w"], row["n"]) for row in feed.to_table().to_pylist()]
    assert found == [("update_preimage", 10, None), ("update_postimage", 11, 5)]
    lance.dataset(board.uri).drop_columns(["n"])
    board.refresh()
    assert board.changes(first).schema.names[:2] == ["id", "w"]
    assert board.changes(first, added).schema.names[:3] == ["id", "w", "n"]
    assert board.changes(added).versions == []


def test_a_widened_column_is_no_change(make_table: MakeTable) -> None:
    narrow = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.int32())])
    table = make_table(narrow)
    table.upsert(pa.table({"id": [1], "v": [10]}, schema=narrow))
    table.compact(flush=True)
    since = newest(table)
    table.alter_column("v", pa.int64())
    assert table.changes(since).versions == []
    put(table, {1: 2**40})
    assert events(table.changes(since)) == [
        ("update_postimage", 1, 2**40),
        ("update_preimage", 1, 10),
    ]


def test_versions_that_do_not_fit_the_columns_are_unavailable(board: lancemem.Table) -> None:
    since = put(board, {1: 10})
    rows = pa.table({"id": [1], "v": ["ten"]}, schema=pa.schema([SCHEMA[0], ("v", pa.string())]))
    lance.write_dataset(rows, board.uri, mode="overwrite")
    version = newest(board)
    lance.dataset(board.uri, version=since).restore()  # type: ignore[no-untyped-call]
    with pytest.raises(lancemem.ChangesUnavailableError, match="column 'v'") as refused:
        board.changes(since)
    assert (refused.value.version, refused.value.operation) == (version, "Overwrite")
    assert events(board.changes()) == [("insert", 1, 10)]


# --- bad input ---


def test_what_a_feed_cannot_have_is_refused(board: lancemem.Table) -> None:
    last = put(board, {1: 10})
    for arguments, text in [
        ({"since": last, "until": last - 1}, "after until"),
        ({"since": last + 1}, f"no version {last + 1}"),
        ({"until": last + 1}, f"no version {last + 1}"),
        ({"since": -1}, "since: expected a number from 0"),
        ({"columns": ["w"]}, "no column 'w'"),
        ({"columns": ["id", "id"]}, "named twice"),
        ({"columns": ["_commit_version"]}, "leave it out"),
        ({"filter": "w > 1"}, "w"),
        ({"level": "flushed"}, "level"),
        ({"row_kinds": "debezium"}, "row_kinds"),
    ]:
        with pytest.raises(lancemem.InvalidInputError, match=text):
            board.changes(**arguments)  # type: ignore[arg-type]
    for since in ("41", 1.5):
        with pytest.raises(TypeError, match="a version or a datetime"):
            board.changes(since)  # type: ignore[call-overload]
    with pytest.raises(lancemem.InvalidInputError, match="num_parts is at least 1"):
        board.changes().parts(0)
    with pytest.raises(lancemem.InvalidInputError, match="num_parts"):
        board.changes().parts(-1)


def test_a_table_with_a_reserved_column_has_no_feed(make_table: MakeTable) -> None:
    schema = pa.schema([SCHEMA[0], pa.field("_change_type", pa.string())])
    table = make_table(schema)
    with pytest.raises(lancemem.InvalidInputError, match="rename the column"):
        table.changes()


# --- parts ---


def test_parts_are_read_by_other_processes(board: lancemem.Table) -> None:
    since = put(board, {key: key for key in range(20)})
    put(board, {key: -key for key in range(10)}, deleted=(15,))
    put(board, {key: key for key in range(5, 30)})
    feed = board.changes(since, filter="v != 3")
    whole = feed.to_table()
    for num_parts in (1, 2, 3, 50):
        parts = pickle.loads(pickle.dumps(feed.parts(num_parts)))  # noqa: S301 - made here
        assert 0 < len(parts) <= num_parts
        assert pa.concat_tables(map(pa.table, parts)) == whole
        assert sum(part.to_feed().counts.num_rows for part in parts) == whole.num_rows
    script = (
        "import pickle, sys, pyarrow as pa; "
        "print(sum(part.to_reader().read_all().num_rows for part in "
        "pickle.load(sys.stdin.buffer)))"
    )
    done = subprocess.run(  # noqa: S603 - this Python
        [sys.executable, "-c", script],
        input=pickle.dumps(feed.parts(3)),
        capture_output=True,
        check=True,
    )
    assert int(done.stdout) == whole.num_rows
    assert board.changes(feed.until).parts(3) == []


def test_a_part_of_another_table_is_refused(board: lancemem.Table) -> None:
    since = put(board, {1: 10})
    put(board, {1: 11})
    (part,) = board.changes(since).parts(1)
    lancemem.drop_table(board.uri)
    again = lancemem.create_table(board.uri, SCHEMA, primary_key=["id"])
    while newest(again) < part.until:
        lance.dataset(again.uri).update_config({"commit": str(newest(again))})
    with pytest.raises(lancemem.InvalidInputError, match="of another table"):
        part.to_reader()


# --- consumers ---


def test_a_consumer_goes_on_behind_its_position(board: lancemem.Table) -> None:
    first = put(board, {1: 10})
    with board.changes_consumer("search") as consumer:
        begins_at = consumer.position
        assert begins_at is None
        assert board.changes_consumers() == []
        feed = consumer.poll()
        assert feed is not None
        assert events(feed) == [("insert", 1, 10)]
        consumer.commit(feed)
        assert consumer.position == first
        assert consumer.poll() is None
    second = put(board, {1: 11})
    third = put(board, {2: 20})
    with board.changes_consumer("search", since=0) as consumer:
        assert consumer.position == first, "since is for a new consumer"
        feed = consumer.poll(max_versions=1)
        assert feed is not None
        assert (feed.since, feed.until) == (first, second)
        again = consumer.poll()
        assert again is not None
        assert (again.since, again.until) == (first, third)
        consumer.commit()
    (info,) = board.changes_consumers()
    assert (info.name, info.position) == ("search", third)
    assert info.timestamp is not None
    assert datetime.now(tz=UTC) - info.timestamp < timedelta(minutes=5)
    board.drop_changes_consumer("search")
    assert board.changes_consumers() == []


def test_paimon_5819_a_clean_up_leaves_what_a_consumer_needs(board: lancemem.Table) -> None:
    since = put(board, {1: 10, 2: 20, 3: 30})
    consumer = board.changes_consumer("search", since=since)
    put(board, {1: 11, 4: 40})
    put(board, {1: 10, 2: 21}, deleted=(3, 4))
    clean_up(board)
    board.collect_garbage()
    feed = consumer.poll()
    assert feed is not None
    # One net step: 1 went back to its value, and 4 came and went.
    assert events(feed) == [
        ("delete", 3, 30),
        ("update_postimage", 2, 21),
        ("update_preimage", 2, 20),
    ]
    assert [version.operation for version in feed.versions] == [None]
    consumer.commit(feed)
    put(board, {1: 12})
    clean_up(board)
    with pytest.raises(lancemem.ChangesExpiredError):
        board.changes(since)


def test_a_net_step_of_a_table_without_a_key_leaves_out_rows_that_moved(
    make_table: MakeTable,
) -> None:
    table = make_table(SCHEMA, primary_key=[])
    since = put(table, {1: 10, 2: 20})
    put(table, {1: 10, 3: 30})
    table.changes_consumer("search", since=since)
    lance.dataset(table.uri).delete("id = 2")
    lance.dataset(table.uri).optimize.compact_files()
    clean_up(table)
    feed = table.changes(since)
    assert events(feed) == [("delete", 2, 20), ("insert", 1, 10), ("insert", 3, 30)]
    assert pa.concat_tables(map(pa.table, feed.parts(3))) == feed.to_table()


def test_a_consumer_moves_over_versions_that_change_no_row(board: lancemem.Table) -> None:
    since = put(board, {1: 10})
    consumer = board.changes_consumer("search", since=since)
    lance.dataset(board.uri).update_config({"other": "program"})
    assert consumer.poll() is None
    assert consumer.position == newest(board) == since + 1


def test_consumers_refuse_what_they_cannot_do(board: lancemem.Table) -> None:
    since = put(board, {1: 10})
    last = put(board, {1: 11})
    for name in ("", "a/b", "a b", ".."):
        with pytest.raises(lancemem.InvalidInputError, match="name of a consumer"):
            board.changes_consumer(name)
    with pytest.raises(lancemem.InvalidInputError, match="no consumer 'search'"):
        board.drop_changes_consumer("search")
    with pytest.raises(lancemem.InvalidInputError, match="no version"):
        board.changes_consumer("search", since=last + 1)
    assert board.changes_consumers() == []
    consumer = board.changes_consumer("search", since=since)
    with pytest.raises(lancemem.InvalidInputError, match="polled no feed"):
        consumer.commit()
    for limit in (0, -1):
        with pytest.raises(lancemem.InvalidInputError, match="max_versions is at least 1"):
            consumer.poll(limit)
    other = board.changes_consumer("search")
    slow = consumer.poll(max_versions=1)
    put(board, {1: 12})
    other.poll()
    other.commit()
    with pytest.raises(lancemem.InvalidInputError, match="another process moved it"):
        consumer.commit(slow)
    consumer.close()
    with pytest.raises(lancemem.InvalidInputError, match="is closed"):
        consumer.poll()


# --- the command line ---


def test_the_command_line_prints_changes(
    board: lancemem.Table, capsys: pytest.CaptureFixture[str]
) -> None:
    since = put(board, {1: 10})
    until = put(board, {1: 11})
    assert main(["changes", board.uri, "--since", str(since), "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["_change_type"], row["id"], row["v"]) for row in rows] == [
        ("update_preimage", 1, 10),
        ("update_postimage", 1, 11),
    ]
    assert main(["changes", board.uri, "--until", str(until), "--filter", "v = 11"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"{until} ")
    assert line.endswith(' insert {"id": 1, "v": 11}')
    assert main(["changes", board.uri, "--follow", "--until", "1"]) == 2
    assert main(["changes", board.uri, "--since", "99"]) == 2


def test_the_command_line_follows_new_versions(board: lancemem.Table) -> None:
    since = put(board, {1: 10})
    command = [sys.executable, "-m", "lancemem", "changes", board.uri, "--since", str(since)]
    with subprocess.Popen(  # noqa: S603 - this Python
        [*command, "--follow", "--json", "--interval", "0.1"], stdout=subprocess.PIPE, text=True
    ) as follower:
        assert follower.stdout is not None
        put(board, {2: 20})
        assert json.loads(follower.stdout.readline())["id"] == 2
        put(board, {3: 30})
        assert json.loads(follower.stdout.readline())["id"] == 3
        follower.terminate()
        assert follower.wait(30) == 0
