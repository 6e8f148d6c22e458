"""Shards that another program opened beside the shards of the table's sharding, as lancedb does.

Owns: that a key is shown once whichever shards have it, that writes go on, and that a compaction
moves the rows of such shards. pylance's own writer makes them here. Not here: lancedb itself
(test_lancedb).
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lancemem
from lancemem.__main__ import main
from tests.upstream import AT_ONCE

if TYPE_CHECKING:
    from tests.conftest import MakeTable

SHARDINGS = [lancemem.unsharded(), lancemem.bucket("id", 2)]
# A key that the other program deletes each time.
DELETED = 9
FIRST, SECOND = (str(uuid.UUID(int=(number << 120) + (1 << 63))) for number in (1, 2))


def rows(ids: range | list[int], name: str) -> pa.Table:
    return pa.table({"id": list(ids), "name": [name] * len(ids), "value": [0.5] * len(ids)})


def names(table: Any, **options: Any) -> dict[int, str]:  # noqa: ANN401 - what can be scanned
    """Read all rows, and fail where a key comes twice."""
    found = table.scan(**options).to_table()
    keys = found["id"].to_pylist()
    assert len(set(keys)) == len(keys), sorted(keys)
    assert table.scan(**options).count_rows() == len(keys)
    return dict(zip(keys, found["name"].to_pylist(), strict=True))


def elsewhere(
    table: lancemem.Table,
    ids: range | list[int],
    name: str,
    shard: str = FIRST,
    *,
    flush: bool = False,
) -> Any:  # noqa: ANN401 - pylance's
    """Write rows to a shard that another program opens; its writer leaves them in the log."""
    base: Any = lance.dataset(table.uri)
    writer = base.mem_wal_writer(shard, **AT_ONCE)
    writer.put(rows(ids, name))
    writer.delete(pa.table({"id": pa.array([DELETED], pa.int64())}))
    if flush:
        writer.close()
    return writer


@pytest.mark.parametrize("sharding", SHARDINGS, ids=str)
@pytest.mark.parametrize("flush_own", [False, True])
@pytest.mark.parametrize("flush_other", [False, True])
def test_a_key_of_an_own_and_of_another_shard_is_shown_once_as_the_own_one_has_it(
    make_table: MakeTable,
    sharding: lancemem.Sharding,
    flush_own: bool,
    flush_other: bool,
) -> None:
    table = make_table(sharding=sharding)
    table.upsert(rows(range(5), "own"))
    if flush_own:
        for shard in range(sharding.num_shards):
            table.start_job(shard=shard).close(flush=True)
    _other = elsewhere(table, range(3, 8), "other", flush=flush_other)
    wanted = {n: "own" if n < 5 else "other" for n in range(8)}
    for handle in (table, lancemem.open_table(table.uri)):
        assert names(handle) == wanted
        assert handle.get(list(range(9)))["name"].to_pylist() == list(wanted.values())
        assert names(handle, filter="name = 'other'") == dict.fromkeys(range(5, 8), "other")
        assert names(handle, filter="id = 4") == {4: "own"}
        assert names(handle, columns=["name", "id"], filter="id = 6") == {6: "other"}
    pinned = table.snapshot()
    table.upsert(rows(range(8), "later"))
    assert names(pinned) == wanted


@pytest.mark.parametrize("sharding", SHARDINGS, ids=str)
def test_writes_go_on_beside_a_shard_of_another_program(
    make_table: MakeTable, sharding: lancemem.Sharding
) -> None:
    table = make_table(sharding=sharding)
    table.upsert(rows(range(3), "own"))
    _other = elsewhere(table, range(8), "other")
    assert table.upsert(rows([1, 7], "new")).num_rows == 2
    table.delete([6])
    table.apply(rows([5, 4], "applied"), pa.array([False, True]))
    bulk = table.bulk_writer()
    bulk.upsert(rows([3], "staged"))
    table.commit(bulk.finish())
    wanted = {0: "own", 1: "new", 2: "own", 3: "staged", 5: "applied", 7: "new"}
    assert names(table) == wanted
    table.compact()
    assert names(table) == wanted
    assert [shard.ordinal for shard in table.shards()] == [*range(sharding.num_shards), None]


@pytest.mark.parametrize("sharding", SHARDINGS, ids=str)
@pytest.mark.parametrize("flush", [False, True])
def test_a_compaction_takes_the_rows_of_another_shard_in_before_those_of_the_own_ones(
    make_table: MakeTable, sharding: lancemem.Sharding, flush: bool
) -> None:
    table = make_table(sharding=sharding)
    table.upsert(rows(range(10), "base"))
    for shard in range(sharding.num_shards):
        table.start_job(shard=shard).close(flush=True)
    table.compact()
    table.upsert(rows(range(2), "own"))
    _first = elsewhere(table, range(1, 4), "other", flush=flush)
    _second = elsewhere(table, range(3, 5), "second", SECOND)
    wanted = dict.fromkeys(range(9), "base") | {0: "own", 1: "own", 2: "other"}
    wanted |= {3: "second", 4: "second"}
    assert names(table) == wanted
    # The rows of own shards stay in their logs.
    table.compact()
    assert names(table) == wanted
    others = {shard.shard_id: shard for shard in table.shards() if shard.ordinal is None}
    assert sorted(others) == [FIRST, SECOND]
    assert not any(shard.sstables for shard in others.values())
    for shard in range(sharding.num_shards):
        table.start_job(shard=shard).close(flush=True)
    table.compact()
    assert names(table) == wanted
    assert lance.dataset(table.uri).count_rows() == len(wanted)
    # A foreign shard is empty then, and may be written again.
    _again = elsewhere(table, [2], "again")
    assert names(table) == wanted | {2: "again"}


def test_the_command_that_maintains_a_table_takes_another_shard_in(table: lancemem.Table) -> None:
    table.upsert(rows(range(3), "own"))
    _other = elsewhere(table, range(5), "other")
    assert main(["maintain", table.uri, "--once"]) == 0
    assert lance.dataset(table.uri).count_rows() == 5
    assert names(table) == {0: "own", 1: "own", 2: "own", 3: "other", 4: "other"}


def test_the_writer_of_a_shard_that_was_taken_in_is_fenced(table: lancemem.Table) -> None:
    table.upsert(rows(range(3), "own"))
    base: Any = lance.dataset(table.uri)
    writer = base.mem_wal_writer(FIRST, **AT_ONCE)
    writer.put(rows(range(5), "other"))
    table.compact()
    with pytest.raises(Exception, match=r"[Ff]enced"):
        writer.put(rows([9], "late"))
    assert names(table) == {n: "own" if n < 3 else "other" for n in range(5)}


def test_a_compaction_leaves_the_writer_of_an_empty_shard_alone(table: lancemem.Table) -> None:
    table.upsert(rows(range(3), "own"))
    base: Any = lance.dataset(table.uri)
    writer = base.mem_wal_writer(FIRST, **AT_ONCE)
    table.compact()
    writer.put(rows([9], "other"))
    writer.close()
    assert names(table)[9] == "other"


def test_a_table_that_is_only_enabled_is_left_to_programs_that_know_no_field_ids(
    table_uri: str, schema: pa.Schema
) -> None:
    key = {b"lance-schema:unenforced-primary-key": b"true"}
    columns = schema.set(0, schema.field(0).with_metadata(key))
    lance.write_dataset(rows(range(3), "base").cast(columns), table_uri)
    table = lancemem.enable(table_uri)
    assert names(table) == dict.fromkeys(range(3), "base")
    before = lance.dataset(table_uri)
    table.upsert(rows([3], "own"))
    # The commit that reserves field ids comes with the first rows above the base table.
    assert lance.dataset(table_uri).version == before.version + 1
