"""`changelog="flushed"` and `Table.changes(level="flushed")`: the net change of each key per flush.

Owns: random programs of writes, compactions and take-overs, racing publishers and kills, the
property on new and living tables, forms of a feed, retention, pylance beside it, bad input, the
command line. Not here: changes of versions (test_changes), the stories of the engine (rust/engine).
"""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lancemem
from lancemem.__main__ import main

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import MakeTable

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.int64())])
NOW = timedelta(0)
Change = tuple[str, int, int | None]


@pytest.fixture
def board(make_table: MakeTable) -> lancemem.Table:
    """Give a table of two columns that stores the changes of its flushes."""
    return make_table(SCHEMA, changelog="flushed")


def put(table: lancemem.Table, values: dict[int, int | None]) -> None:
    """Upsert rows."""
    rows = {"id": list(values), "v": list(values.values())}
    table.upsert(pa.table(rows, schema=SCHEMA))


def bulk(table: lancemem.Table, values: dict[int, int | None]) -> None:
    """Write rows as SSTables and commit them."""
    writer = table.bulk_writer()
    writer.upsert(pa.table({"id": list(values), "v": list(values.values())}, schema=SCHEMA))
    table.commit(writer.finish())


def by_job(table: lancemem.Table, values: dict[int, int | None]) -> None:
    """Write rows of the first shard by a job, which flushes and looks up at its end."""
    with table.start_job(shard=0) as job:
        job.put(pa.table({"id": list(values), "v": list(values.values())}, schema=SCHEMA))


def told(feed: lancemem.FlushedFeed) -> list[Change]:
    """Read the changes of a feed."""
    rows = feed.to_table().to_pylist()
    return [(row["_change_type"], row["id"], row["v"]) for row in rows]


def net(feed: lancemem.FlushedFeed) -> list[Change]:
    """Read the changes of a feed in the order of their keys."""
    return sorted(told(feed), key=lambda change: (change[1], change[0]))


def applied(state: dict[int, int | None], changes: list[Change]) -> dict[int, int | None]:
    """Apply changes, each of which has to fit the state."""
    state = dict(state)
    for kind, key, value in changes:
        if kind in {"insert", "update_postimage"}:
            assert key not in state, (kind, key)
            state[key] = value
        else:
            assert kind in {"delete", "update_preimage"}
            assert state.pop(key, "absent") == value, (kind, key)
    return state


def rows_of(table: lancemem.Table, consistency: Any = "flushed") -> dict[int, int | None]:  # noqa: ANN401
    """Return the rows of a scan."""
    rows = table.scan(consistency=consistency).to_table().to_pylist()
    return {row["id"]: row["v"] for row in rows}


def changelog(table: lancemem.Table) -> Path:
    """Return the folder of stored changes."""
    return Path(table.uri) / "_lancemem" / "changelog"


def published(table: lancemem.Table) -> list[str]:
    """Return shard and generation of each file that publishes changes."""
    return sorted(
        f"{path.parent.name}:{int(path.stem)}" for path in changelog(table).glob("*/*.binpb")
    )


def folders(table: lancemem.Table) -> set[str]:
    """Return the folders of change rows."""
    found = changelog(table).glob("*/*")
    return {f"{path.parent.name}/{path.name}" for path in found if path.is_dir()}


# --- changes ---


def test_a_flush_has_both_images(board: lancemem.Table) -> None:
    assert board.deletion_vectors, "the mode comes with the property"
    start = board.changes(level="flushed").until
    put(board, {1: 10, 2: 20, 3: 30})
    assert told(board.changes(start, level="flushed")) == [], "rows in a log are no changes"
    board.flush()
    feed = board.changes(start, level="flushed")
    assert feed.schema == pa.schema(
        [
            *SCHEMA,
            pa.field("_change_type", pa.string(), nullable=False),
            pa.field("_shard", pa.string(), nullable=False),
            pa.field("_generation", pa.int64(), nullable=False),
        ]
    )
    assert told(feed) == [("insert", 1, 10), ("insert", 2, 20), ("insert", 3, 30)]
    board.compact()
    put(board, {1: 11, 2: 20})
    put(board, {1: 12, 4: 40})
    board.delete([3, 9])
    board.flush()
    later = board.changes(feed.until, level="flushed")
    expected = [
        ("update_postimage", 1, 12),
        ("update_preimage", 1, 10),
        ("update_postimage", 2, 20),
        ("update_preimage", 2, 20),
        ("delete", 3, 30),
        ("insert", 4, 40),
    ]
    assert net(later) == expected
    counts = later.counts
    found = (counts.num_inserted, counts.num_updated, counts.num_deleted, counts.num_rows)
    assert found == (1, 2, 1, 6)
    board.compact()
    assert net(board.changes(feed.until, later.until, level="flushed")) == expected
    (shard,) = board.shards()
    assert later.to_table()["_shard"].unique().to_pylist() == [str(shard.shard_id)]
    assert later.to_table()["_generation"].unique().to_pylist() == [2]


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("seed", range(4))
def test_the_changes_of_every_program_give_its_rows(
    make_table: MakeTable, seed: int, shards: int
) -> None:
    rng = random.Random(f"flushed {seed} {shards}")  # noqa: S311 - a test
    sharding = lancemem.bucket("id", shards) if shards > 1 else lancemem.unsharded()
    table = make_table(SCHEMA, sharding=sharding, changelog="flushed")
    other = lancemem.open_table(table.uri)

    def some() -> dict[int, int | None]:
        ids = [rng.randrange(10) for _ in range(rng.randrange(1, 6))]
        return {key: rng.choice([None, rng.randrange(5)]) for key in ids}

    def both() -> None:
        with ThreadPoolExecutor(2) as pool:
            writes = [pool.submit(put, of, some()) for of in (table, other)]
        for write in writes:
            write.result()

    steps: list[Callable[[], Any]] = [
        lambda: put(table, some()),
        lambda: put(other, some()),
        lambda: table.delete([rng.randrange(10)]),
        lambda: table.update({"v": "v + 1"}, where=f"id < {rng.randrange(10)}"),
        both,
        table.flush,
        other.flush,
        table.write_deletion_vectors,
        lambda: bulk(table, some()),
        lambda: table.compact(
            flush=rng.random() < 0.5, mode=rng.choice(["auto", "link", "rewrite"])
        ),
        other.compact,
        lambda: lancemem.open_table(table.uri).collect_garbage(older_than=NOW),
    ]
    if shards == 1:
        steps.append(lambda: by_job(table, some()))
    position = table.changes(level="flushed").until
    state: dict[int, int | None] = {}
    seen: list[Change] = []
    stops = [(position, 0)]
    for _ in range(30):
        rng.choice(steps)()
        feed = rng.choice([table, other]).changes(position, level="flushed")
        seen += told(feed)
        state = applied(state, told(feed))
        position = feed.until
        stops.append((position, len(seen)))
    table.write_deletion_vectors()
    feed = table.changes(position, level="flushed")
    assert applied(state, told(feed)) == rows_of(table)
    table.flush()
    feed = table.changes(position, level="flushed")
    state = applied(state, told(feed))
    assert state == rows_of(table, "durable") == rows_of(table)
    assert applied({}, told(table.changes(level="flushed"))) == state, "the retention is a week"
    for place, (since, first) in enumerate(stops):
        until, last = rng.choice(stops[place:])
        found = told(table.changes(since, until, level="flushed"))
        assert sorted(found, key=str) == sorted(seen[first:last], key=str)
    names = published(table)
    assert len(names) == len(set(names))
    mirror = make_table(SCHEMA)
    mirror.apply_changes(table.changes(level="flushed"))
    assert rows_of(mirror, "durable") == state


def test_a_feed_has_many_forms(board: lancemem.Table) -> None:
    put(board, {1: 10, 2: 20})
    board.flush()
    feed = board.changes(level="flushed")
    whole = feed.to_table()
    assert pa.table(feed) == whole
    assert feed.to_reader().read_all() == whole
    assert pa.Table.from_batches(list(feed), feed.schema) == whole
    assert pa.Table.from_batches(list(feed.to_batches()), feed.schema) == whole
    assert feed.to_pandas()["id"].tolist() == [1, 2]
    assert feed.to_polars()["id"].to_list() == [1, 2]
    assert feed.since is None
    assert feed.until in repr(feed)


def test_a_condition_sees_both_images(board: lancemem.Table) -> None:
    put(board, {1: 10, 2: 20, 3: 30})
    board.flush()
    since = board.changes(level="flushed").until
    put(board, {1: 99, 2: 20})
    board.delete([3])
    board.flush()
    left = board.changes(since, filter="v = 10", level="flushed")
    assert net(left) == [("update_postimage", 1, 99), ("update_preimage", 1, 10)]
    assert left.counts.num_rows == 2
    changed = board.changes(since, level="flushed", skip_unchanged=True)
    assert {key for _, key, _ in told(changed)} == {1, 3}
    kinds = board.changes(since, columns=["v"], level="flushed", row_kinds="flink").to_table()
    assert kinds.column_names == ["v", "_change_type", "_shard", "_generation"]
    assert sorted(kinds["_change_type"].to_pylist()) == ["+U", "+U", "-D", "-U", "-U"]


@pytest.mark.parametrize("name", ["d", "st", "l", "t", "b"])
def test_values_of_each_type_are_stored_as_they_are(name: str, make_table: MakeTable) -> None:
    types: dict[str, tuple[pa.DataType, list[Any]]] = {
        "b": (pa.binary(), [b"\0", None, b""]),
        "d": (pa.decimal128(10, 2), [1, None, 3]),
        "t": (pa.timestamp("us", "UTC"), [1, None, 3]),
        "l": (pa.list_(pa.int64()), [[1, 2], [], None]),
        "st": (pa.struct([("x", pa.int64())]), [{"x": 1}, None, {"x": None}]),
    }
    of_type, values = types[name]
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", of_type)])
    table = make_table(schema, changelog="flushed")
    rows = pa.table([pa.array([1, 2, 3]), pa.array(values, of_type)], schema=schema)
    table.upsert(rows)
    table.compact(flush=True)
    since = table.changes(level="flushed").until
    table.upsert(pa.table([pa.array([1, 2, 4]), rows["v"]], schema=schema))
    table.flush()
    found = table.changes(since, level="flushed").to_table().sort_by("id")
    assert (
        found["v"].cast(of_type).to_pylist()
        == [value for value in rows["v"].to_pylist()[:2] for _ in "ab"] + rows["v"].to_pylist()[2:]
    )


def test_changes_follow_the_columns_of_the_table(make_table: MakeTable) -> None:
    narrow = pa.schema([SCHEMA[0], pa.field("v", pa.int32())])
    table = make_table(narrow, changelog="flushed")
    table.upsert(pa.table({"id": [1], "v": [10]}, schema=narrow))
    table.compact(flush=True)
    lance.dataset(table.uri).add_columns(pa.schema([("w", pa.int32())]))
    wide = pa.schema([*narrow, pa.field("w", pa.int32())])
    table.upsert(pa.table({"id": [1], "v": [11], "w": [5]}, schema=wide))
    table.compact(flush=True)
    table.alter_column("v", pa.int64())
    found = table.changes(level="flushed").to_table()
    assert found.schema.field("v").type == pa.int64()
    images = [(row["_change_type"], row["v"], row["w"]) for row in found.to_pylist()]
    assert images == [
        ("insert", 10, None),
        ("update_preimage", 10, None),
        ("update_postimage", 11, 5),
    ]
    lance.dataset(table.uri).drop_columns(["w"])
    assert "w" not in lancemem.open_table(table.uri).changes(level="flushed").schema.names


def test_a_table_that_gets_a_reserved_column_is_not_compacted(board: lancemem.Table) -> None:
    put(board, {1: 10})
    board.compact(flush=True)
    lance.dataset(board.uri).add_columns(pa.schema([("_row", pa.int64())]))
    board.upsert(pa.table({"id": [2], "v": [20], "_row": [5]}))
    with pytest.raises(lancemem.InvalidInputError, match="changelog=None"):
        board.compact(flush=True)
    assert board.count_rows() == 2
    board.alter(changelog=None)
    board.compact(flush=True)
    assert lance.dataset(board.uri).count_rows() == 2


@pytest.mark.parametrize("key", [["k"], ["a", "k"]])
def test_keys_of_text_and_of_several_columns(make_table: MakeTable, key: list[str]) -> None:
    fields = [pa.field("a", pa.int32(), nullable=False), pa.field("k", pa.string(), nullable=False)]
    schema = pa.schema([*fields[-len(key) :], pa.field("v", pa.int64())])
    table = make_table(schema, key, changelog="flushed", sharding=lancemem.bucket(key[0], 2))
    rng = random.Random(3)  # noqa: S311 - a test
    for step in range(25):
        numbers = {rng.randrange(12) for _ in range(4)}
        rows = [{"a": it % 3, "k": "x" * (it % 5) * 7 + str(it), "v": step} for it in numbers]
        batch = pa.Table.from_pylist(rows).select(schema.names).cast(schema)
        if rng.random() < 0.7:
            table.upsert(batch)
        else:
            table.delete(batch.select(key))
        if rng.random() < 0.6:
            table.flush()
        if rng.random() < 0.2:
            table.compact(mode=rng.choice(["link", "rewrite"]))
    table.flush()
    state: dict[tuple[Any, ...], int] = {}
    for row in table.changes(level="flushed").to_table().to_pylist():
        values = tuple(row[name] for name in key)
        if row["_change_type"] in {"insert", "update_postimage"}:
            assert values not in state
            state[values] = row["v"]
        else:
            assert state.pop(values) == row["v"]
    rows = table.scan().to_table().to_pylist()
    assert state == {tuple(row[name] for name in key): row["v"] for row in rows}


# --- publishers ---


def test_racing_publishers_publish_each_generation_once(make_table: MakeTable) -> None:
    table = make_table(SCHEMA, changelog="flushed", sharding=lancemem.bucket("id", 2))
    for value in range(4):
        put(table, dict.fromkeys(range(20), value))
        table.flush()
    expected = net(table.changes(level="flushed"))
    shutil.rmtree(changelog(table))
    handles = [lancemem.open_table(table.uri) for _ in range(6)]
    with ThreadPoolExecutor(len(handles)) as pool:
        list(pool.map(lambda of: of.write_deletion_vectors(), handles[:4]))
        list(pool.map(lambda of: of.compact(), handles[4:]))
    assert len(published(table)) == 8
    assert len(folders(table)) == 8, "the others removed their rows"
    assert net(table.changes(level="flushed")) == expected


def test_a_compaction_of_an_sstable_without_changes_stores_them_first(
    board: lancemem.Table,
) -> None:
    put(board, {1: 10, 2: 20})
    board.flush()
    put(board, {1: 11})
    board.flush()
    expected = told(board.changes(level="flushed"))
    shutil.rmtree(changelog(board))
    assert told(board.changes(level="flushed")) == []
    lancemem.open_table(board.uri).compact()
    assert told(board.changes(level="flushed")) == expected


def test_rows_without_a_publication_are_no_changes(board: lancemem.Table) -> None:
    put(board, {1: 10})
    board.flush()
    (file,) = changelog(board).glob("*/*.binpb")
    file.unlink()
    assert told(board.changes(level="flushed")) == []
    before = folders(board)
    board.compact()
    assert told(board.changes(level="flushed")) == [("insert", 1, 10)]
    assert len(folders(board)) == 2
    board.collect_garbage(older_than=NOW)
    assert folders(board).isdisjoint(before)
    assert told(board.changes(level="flushed")) == [("insert", 1, 10)]


WRITER = """
    import sys
    import lancemem, pyarrow as pa

    table = lancemem.open_table(sys.argv[1])
    print("started", flush=True)
    step = int(sys.argv[2])
    while True:
        step += 1
        ids = [(step * 7 + place) % 50 for place in range(10)]
        table.upsert(pa.table({"id": pa.array(ids), "v": pa.array([step] * 10)}))
        table.delete([step % 50])
        table.flush()
        if step % 3 == 0:
            table.compact()
"""


def test_a_killed_writer_leaves_each_change_once(board: lancemem.Table, tmp_path: Path) -> None:
    script = tmp_path / "writer.py"
    script.write_text(textwrap.dedent(WRITER))
    rng = random.Random("kills")  # noqa: S311 - a test
    state: dict[int, int | None] = {}
    position = board.changes(level="flushed").until
    for attempt in range(4):
        command = [sys.executable, str(script), board.uri, str(attempt * 1000)]
        writer = subprocess.Popen(command, stdout=subprocess.PIPE)  # noqa: S603
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(0.3 + rng.random())
        writer.send_signal(signal.SIGKILL)
        writer.communicate()
        table = lancemem.open_table(board.uri)
        feed = table.changes(position, level="flushed")
        state, position = applied(state, told(feed)), feed.until
        table.compact(flush=True)
        feed = table.changes(position, level="flushed")
        state, position = applied(state, told(feed)), feed.until
        assert state == rows_of(table, "durable")
    names = published(board)
    assert len(names) == len(set(names))


# --- the property ---


def test_the_property_on_a_living_table(make_table: MakeTable) -> None:
    table = make_table(SCHEMA)
    (shard,) = table.shards()
    early = f"flushed1,{shard.shard_id}:1"
    with pytest.raises(lancemem.InvalidInputError, match='changelog="flushed"'):
        table.changes(level="flushed")
    with pytest.raises(lancemem.InvalidInputError, match="deletion_vectors=True"):
        table.alter(changelog="flushed")
    put(table, {1: 10, 2: 20})
    table.compact(flush=True)
    put(table, {1: 11})
    table.flush()
    table.alter(deletion_vectors=True, changelog="flushed")
    found = [table.changelog]
    assert net(table.changes(level="flushed")) == [
        ("update_postimage", 1, 11),
        ("update_preimage", 1, 10),
    ]
    with pytest.raises(lancemem.ChangesUnavailableError, match="later") as refused:
        table.changes(early, level="flushed")
    assert (refused.value.version, refused.value.operation) == (1, "flushed")
    with pytest.raises(lancemem.InvalidInputError, match="changelog=None"):
        table.alter(deletion_vectors=False)
    table.alter(deletion_vectors=False, changelog=None)
    assert [*found, table.changelog] == ["flushed", None]
    assert not table.deletion_vectors


def test_changes_go_after_the_retention(board: lancemem.Table) -> None:
    start = board.changes(level="flushed").until
    for value in range(3):
        put(board, {1: value})
        board.flush()
        if value < 2:
            board.compact()
    board.collect_garbage(older_than=NOW)
    assert len(published(board)) == 3
    board.alter(changelog_retention=NOW)
    board.collect_garbage(older_than=NOW)
    assert len(published(board)) == 1, "the last SSTable is not moved yet"
    with pytest.raises(lancemem.ChangesExpiredError, match="retention") as refused:
        board.changes(start, level="flushed")
    assert refused.value.oldest == 3
    assert net(board.changes(level="flushed")) == [
        ("update_postimage", 1, 2),
        ("update_preimage", 1, 1),
    ]
    until = board.changes(level="flushed").until
    board.compact()
    board.collect_garbage(older_than=NOW)
    assert published(board) == []
    assert folders(board) == set()
    assert told(board.changes(until, level="flushed")) == []


def test_a_consumer_keeps_the_changes_that_it_needs(board: lancemem.Table) -> None:
    board.alter(changelog_retention=NOW)
    start = board.changes(level="flushed").until
    state: dict[int, int | None] = {}
    with board.changes_consumer("mirror", level="flushed", since=start) as consumer:
        assert consumer.poll() is None
        for value in range(3):
            put(board, {1: value, value: 7})
            board.compact(flush=True)
            board.collect_garbage(older_than=NOW)
        assert len(published(board)) == 3
        feed = consumer.poll()
        assert feed is not None
        state = applied(state, told(feed))
        put(board, {9: 9})
        board.compact(flush=True)
        again = consumer.poll()
        assert again is not None
        assert len(told(again)) == len(told(feed)) + 1, "nothing was committed"
        consumer.commit(feed)
    assert state == {0: 7, 1: 2, 2: 7}
    (known,) = board.changes_consumers(level="flushed")
    assert (known.name, known.position) == ("mirror", feed.until)
    board.collect_garbage(older_than=NOW)
    assert len(published(board)) == 1
    consumer = lancemem.open_table(board.uri).changes_consumer("mirror", level="flushed")
    while later := consumer.poll():
        state = applied(state, told(later))
        consumer.commit()
    assert state == rows_of(board)
    with pytest.raises(lancemem.InvalidInputError, match="never moves back"):
        board.changes_consumer("mirror", level="flushed").commit(feed)
    board.drop_changes_consumer("mirror", level="flushed")
    with pytest.raises(lancemem.InvalidInputError, match="no consumer"):
        board.drop_changes_consumer("mirror", level="flushed")
    board.collect_garbage(older_than=NOW)
    assert published(board) == []
    assert board.changes_consumers(level="flushed") == []
    with pytest.raises(lancemem.InvalidInputError, match="cannot be the name"):
        board.changes_consumer("../x", level="flushed", since=start)


def test_pylance_sees_none_of_it(board: lancemem.Table) -> None:
    put(board, {1: 10, 2: 20})
    board.flush()
    board.compact()
    dataset = lance.dataset(board.uri)
    assert dataset.config()["lancemem.changelog"] == "flushed"
    assert dataset.count_rows() == 2
    since = board.changes(level="flushed").until
    dataset.delete("id = 2")
    dataset.optimize.compact_files()
    dataset.cleanup_old_versions(older_than=NOW)
    assert told(board.changes(since, level="flushed")) == [], "its commits are of versions alone"
    put(board, {1: 11, 2: 21})
    board.flush()
    assert net(board.changes(since, level="flushed")) == [
        ("update_postimage", 1, 11),
        ("update_preimage", 1, 10),
        ("insert", 2, 21),
    ]


# --- bad input ---


def test_what_a_feed_cannot_have_is_refused(board: lancemem.Table, make_table: MakeTable) -> None:
    start = board.changes(level="flushed").until
    put(board, {1: 10})
    board.flush()
    end = board.changes(level="flushed").until
    other = make_table(SCHEMA, changelog="flushed")
    (shard,) = board.shards()
    refused: list[tuple[dict[str, Any], str]] = [
        ({"since": end, "until": start}, "after until"),
        ({"since": f"flushed1,{shard.shard_id}:9"}, "next generation"),
        ({"until": f"flushed1,{shard.shard_id}:9"}, "next generation"),
        ({"since": other.changes(level="flushed").until}, "another table"),
        ({"since": board.changes(level="input").until}, "no position"),
        ({"since": ""}, "no position"),
        ({"since": 41}, "a position"),
        ({"columns": ["w"]}, "no column 'w'"),
        ({"columns": ["id", "id"]}, "named twice"),
        ({"columns": ["_generation"]}, "leave it out"),
        ({"filter": "w > 1"}, "w"),
        ({"row_kinds": "other"}, "row_kinds"),
    ]
    for arguments, text in refused:
        with pytest.raises(lancemem.InvalidInputError, match=text):
            board.changes(level="flushed", **arguments)
    wrong: Any = "net"
    with pytest.raises(lancemem.InvalidInputError, match='"flushed"'):
        board.changes(level=wrong)
    with pytest.raises(lancemem.InvalidInputError, match="level"):
        board.changes_consumer("mirror", level=wrong)


def test_tables_that_cannot_have_the_level_are_refused(table_uri: str) -> None:
    with pytest.raises(lancemem.InvalidInputError, match="no primary key"):
        lancemem.create_table(table_uri, SCHEMA, changelog="flushed")
    for name in ("_shard", "_row", "_change_type", "_generation"):
        reserved = pa.schema([SCHEMA[0], pa.field(name, pa.string())])
        with pytest.raises(lancemem.InvalidInputError, match=name):
            lancemem.create_table(table_uri, reserved, primary_key="id", changelog="flushed")
    assert not lancemem.exists(table_uri), "nothing was written"


def test_damaged_changes_are_an_error(board: lancemem.Table) -> None:
    put(board, {1: 10})
    board.flush()
    (file,) = changelog(board).glob("*/*.binpb")
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(lancemem.CorruptionError, match="checksum"):
        board.changes(level="flushed").to_table()
    file.write_bytes(content)
    assert told(board.changes(level="flushed")) == [("insert", 1, 10)]
    (data,) = changelog(board).glob("*/*/data/*.lance")
    rows = bytearray(data.read_bytes())
    rows[len(rows) // 2] ^= 1
    data.write_bytes(rows)
    with pytest.raises(lancemem.CorruptionError):
        lancemem.open_table(board.uri).changes(level="flushed").to_table()


# --- the command line ---


def test_the_command_line_prints_changes(
    board: lancemem.Table, capsys: pytest.CaptureFixture[str]
) -> None:
    put(board, {1: 10})
    board.flush()
    assert main(["changes", board.uri, "--level", "flushed", "--json"]) == 0
    printed = capsys.readouterr()
    (line,) = printed.out.splitlines()
    assert json.loads(line)["_change_type"] == "insert"
    position = printed.err.split()[-1]
    board.delete([1])
    board.flush()
    assert main(["changes", board.uri, "--level", "flushed", "--since", position]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.endswith(':2 delete {"id": 1, "v": 10}')
    assert main(["changes", board.uri, "--level", "flushed", "--since", "3"]) == 2
