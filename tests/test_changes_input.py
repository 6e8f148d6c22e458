"""`Table.changes(level="input")`: each upsert and delete as it came, before any compaction.

Owns: the order of events, positions across flush, compaction, collection, take-over and bulk
writes, random programs of these, forms of a feed, bad input, the command line. Not here: changes of
versions (test_changes).
"""

from __future__ import annotations

import json
import random
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import lancemem
from lancemem.__main__ import main

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import MakeTable

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.int64())])
NOW = timedelta(0)
Event = tuple[str, int, int | None]
Place = tuple[str, int, int]


@pytest.fixture
def board(make_table: MakeTable) -> lancemem.Table:
    """Give a table of two columns."""
    return make_table(SCHEMA)


def put(table: lancemem.Table, values: list[tuple[int, int]]) -> None:
    """Upsert rows."""
    ids, rows = zip(*values, strict=True)
    table.upsert(pa.table({"id": list(ids), "v": list(rows)}, schema=SCHEMA))


def bulk(table: lancemem.Table, values: list[tuple[int, int]]) -> None:
    """Write rows as SSTables and commit them."""
    ids, rows = zip(*values, strict=True)
    writer = table.bulk_writer()
    writer.upsert(pa.table({"id": list(ids), "v": list(rows)}, schema=SCHEMA))
    table.commit(writer.finish())


def take_over(table: lancemem.Table) -> None:
    """Write to every shard by jobs that replay its log."""
    for shard in table.shards():
        with table.start_job(shard=shard.shard_id):
            pass


def read(feed: lancemem.InputFeed) -> list[tuple[Event, Place]]:
    """Read a feed: each event with its place."""
    return [
        (
            (row["_change_type"], row["id"], row["v"]),
            (row["_shard"], row["_generation"], row["_row"]),
        )
        for row in feed.to_table().to_pylist()
    ]


def told(feed: lancemem.InputFeed) -> list[Event]:
    """Read the events of a feed."""
    return [event for event, _ in read(feed)]


# --- events ---


def test_events_come_as_they_came(board: lancemem.Table) -> None:
    start = board.changes(level="input").until
    put(board, [(1, 10), (2, 20)])
    put(board, [(1, 11)])
    board.delete([2])
    feed = board.changes(start, level="input")
    assert feed.schema == pa.schema(
        [
            *SCHEMA,
            pa.field("_change_type", pa.string(), nullable=False),
            pa.field("_shard", pa.string(), nullable=False),
            pa.field("_generation", pa.int64(), nullable=False),
            pa.field("_row", pa.int64(), nullable=False),
        ]
    )
    expected = [("upsert", 1, 10), ("upsert", 2, 20), ("upsert", 1, 11), ("delete", 2, None)]
    before = read(feed)
    assert [event for event, _ in before] == expected
    (shard,) = board.shards()
    assert {place[0] for _, place in before} == {str(shard.shard_id)}
    board.flush()
    assert read(board.changes(start, level="input")) == before, "the SSTable has the same places"
    board.compact()
    assert read(board.changes(start, level="input")) == before, "its SSTable is not collected yet"
    put(board, [(3, 30)])
    assert told(board.changes(feed.until, level="input")) == [("upsert", 3, 30)]


def test_a_feed_has_many_forms(board: lancemem.Table) -> None:
    put(board, [(1, 10), (2, 20)])
    feed = board.changes(level="input")
    whole = feed.to_table()
    assert pa.table(feed) == whole
    assert feed.to_reader().read_all() == whole
    assert pa.Table.from_batches(list(feed), feed.schema) == whole
    assert pa.Table.from_batches(list(feed.to_batches()), feed.schema) == whole
    assert feed.to_pandas()["id"].tolist() == [1, 2]
    assert feed.to_polars()["id"].to_list() == [1, 2]
    assert feed.since is None
    assert feed.until in repr(feed)
    narrow = board.changes(level="input", columns=["v"], filter="id = 2").to_table()
    assert narrow.column_names == ["v", "_change_type", "_shard", "_generation", "_row"]
    assert narrow["v"].to_pylist() == [20]


def test_a_filter_keeps_a_delete_that_it_cannot_judge(board: lancemem.Table) -> None:
    put(board, [(1, 10), (2, 20)])
    board.delete([1])
    assert told(board.changes(level="input", filter="v > 15")) == [
        ("upsert", 2, 20),
        ("delete", 1, None),
    ]
    assert told(board.changes(level="input", filter="id = 2")) == [("upsert", 2, 20)]


def test_a_second_table_takes_events_as_they_are(
    board: lancemem.Table, make_table: MakeTable
) -> None:
    mirror = make_table(SCHEMA)
    put(board, [(1, 10), (2, 20)])
    put(board, [(1, 11)])
    board.delete([2])
    mirror.apply_changes(board.changes(level="input"))
    assert mirror.scan().to_table().to_pylist() == [{"id": 1, "v": 11}]


# --- positions ---


def test_events_that_were_compacted_and_collected_are_refused(board: lancemem.Table) -> None:
    start = board.changes(level="input").until
    put(board, [(1, 10)])
    board.flush()
    put(board, [(2, 20)])
    board.compact(flush=True)
    put(board, [(3, 30)])
    until = board.changes(level="input").until
    board.refresh()  # the version before pins its SSTables
    board.collect_garbage(older_than=NOW)
    (shard,) = board.shards()
    with pytest.raises(lancemem.ChangesExpiredError, match=str(shard.shard_id)) as refused:
        board.changes(start, level="input")
    assert refused.value.oldest == 3
    assert told(board.changes(level="input")) == [("upsert", 3, 30)]
    put(board, [(4, 40)])
    assert told(board.changes(until, level="input")) == [("upsert", 4, 40)]


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("collects", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_every_position_gives_each_later_event_once(
    make_table: MakeTable, seed: int, shards: int, collects: bool
) -> None:
    rng = random.Random(f"{seed} {shards}")  # noqa: S311 - a test
    grace = NOW if collects else timedelta(hours=1)
    sharding = lancemem.bucket("id", shards) if shards > 1 else lancemem.unsharded()
    table = make_table(SCHEMA, sharding=sharding)

    def some() -> list[tuple[int, int]]:
        return [(rng.randrange(8), rng.randrange(100)) for _ in range(rng.randrange(1, 6))]

    steps: list[Callable[[], Any]] = [
        lambda: put(table, some()),
        lambda: put(table, some()),
        lambda: table.delete([rng.randrange(8)]),
        table.flush,
        lambda: table.compact(flush=rng.random() < 0.5),
        lambda: take_over(table),
        lambda: bulk(table, some()),
        lambda: lancemem.open_table(table.uri).collect_garbage(older_than=grace),
    ]
    position = table.changes(level="input").until
    seen: list[tuple[Event, Place]] = []
    stops = [(position, 0)]
    for _ in range(24):
        rng.choice(steps)()
        feed = table.changes(position, level="input")
        seen += read(feed)
        position = feed.until
        stops.append((position, len(seen)))
    places = [place for _, place in seen]
    assert len(set(places)) == len(places), "each event came once"
    for shard in {place[0] for place in places}:
        of_shard = [place for place in places if place[0] == shard]
        assert of_shard == sorted(of_shard), "in the order of arrival"
    for place, (since, first) in enumerate(stops):
        until, last = rng.choice(stops[place:])
        try:
            feed = table.changes(since, until, level="input")
        except lancemem.ChangesExpiredError:
            assert collects
            continue
        assert sorted(read(feed), key=str) == sorted(seen[first:last], key=str)
    state: dict[int, int | None] = {}
    for (kind, key, value), _ in seen:
        if kind == "delete":
            state.pop(key, None)
        else:
            state[key] = value
    rows = table.scan().to_table().to_pylist()
    assert {row["id"]: row["v"] for row in rows} == state


# --- bad input ---


def test_what_a_feed_cannot_have_is_refused(board: lancemem.Table, make_table: MakeTable) -> None:
    start = board.changes(level="input").until
    put(board, [(1, 10)])
    end = board.changes(level="input").until
    other = make_table(SCHEMA)
    put(other, [(1, 10)])
    (shard,) = board.shards()
    refused: list[tuple[dict[str, Any], str]] = [
        ({"since": end, "until": start}, "after until"),
        ({"since": f"input1,{shard.shard_id}:1:2"}, "next event"),
        ({"until": f"input1,{shard.shard_id}:9:0"}, "next event"),
        ({"since": other.changes(level="input").until}, "another table"),
        ({"since": "41"}, "no position"),
        ({"since": ""}, "no position"),
        ({"since": 41}, "a position"),
        ({"columns": ["w"]}, "no column 'w'"),
        ({"columns": ["id", "id"]}, "named twice"),
        ({"columns": ["_row"]}, "leave it out"),
        ({"filter": "w > 1"}, "w"),
        ({"skip_unchanged": True}, "skip_unchanged"),
        ({"row_kinds": "flink"}, "row_kinds"),
    ]
    for arguments, text in refused:
        with pytest.raises(lancemem.InvalidInputError, match=text):
            board.changes(level="input", **arguments)
    wrong: Any = "input"
    with pytest.raises(lancemem.InvalidInputError, match="level"):
        board.changes_consumer("mirror", level=wrong)


def test_a_table_with_a_reserved_column_has_no_events(make_table: MakeTable) -> None:
    table = make_table(pa.schema([SCHEMA[0], pa.field("_row", pa.string())]))
    with pytest.raises(lancemem.InvalidInputError, match="rename the column"):
        table.changes(level="input")


# --- the command line ---


def test_the_command_line_prints_events(
    board: lancemem.Table, capsys: pytest.CaptureFixture[str]
) -> None:
    put(board, [(1, 10)])
    assert main(["changes", board.uri, "--level", "input", "--json"]) == 0
    printed = capsys.readouterr()
    (line,) = printed.out.splitlines()
    assert json.loads(line)["_change_type"] == "upsert"
    position = printed.err.split()[-1]
    board.delete([1])
    assert main(["changes", board.uri, "--level", "input", "--since", position]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.endswith(':1:1 delete {"id": 1, "v": null}')
    assert main(["changes", board.uri, "--level", "input", "--since", "3"]) == 2
