"""A commit whose answer is lost on its way: it happened, so no call reports a failure."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import lance
import pyarrow as pa

import lancemem

from . import server

if TYPE_CHECKING:
    from .conftest import Place

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("count", pa.int32())])


def written(place: Place) -> lancemem.Table:
    """Make a table with rows in its base and in an SSTable."""
    table = lancemem.create_table(
        place.uri, SCHEMA, primary_key="id", storage_options=place.options
    )
    for name in (1, 2):
        table.upsert(pa.table({"id": [1, name], "count": [name, name]}, schema=SCHEMA))
        with table.start_job(shard=0) as job:
            job.flush()
        if name == 1:
            table.compact()
    return table


def newest(place: Place) -> int:
    return lance.dataset(place.uri, storage_options=place.options).version


def lose_one(place: Place, words: str = "_versions/") -> int:
    """Lose the answer to the next such write; return the number of requests before it."""
    place.s3.switch(server.LOSES + words)
    return len(place.log())


def was_lost(place: Place, before: int) -> bool:
    """Whether something was written, its answer lost, and the write repeated and refused."""
    writes: dict[str, list[int]] = {}
    for request in place.log()[before:]:
        if request["method"] == "PUT":
            writes.setdefault(request["path"], []).append(request["status"])
    return [500, 412] in writes.values()


def test_a_column_is_widened_once_and_the_caller_hears_of_it(place: Place) -> None:
    table = written(place)
    before = lose_one(place)
    version = table.alter_column("count", pa.int64())
    assert was_lost(place, before)
    assert version == newest(place)
    wide = table.scan().to_table()
    assert wide.schema.field("count").type == pa.int64()
    assert sorted(wide["count"].to_pylist()) == [2, 2]


def test_a_compaction_tells_what_it_did(place: Place) -> None:
    table = written(place)
    before = lose_one(place)
    done = table.compact()
    assert was_lost(place, before)
    assert (done.num_generations, done.base_version) == (1, newest(place))
    assert table.stats().num_sstables == 0
    assert sorted(table.scan().to_table()["count"].to_pylist()) == [2, 2]
    # A version lists its files, so a collection leaves them.
    table.collect_garbage(older_than=timedelta(0))
    fresh = lancemem.open_table(place.uri, storage_options=place.options)
    assert sorted(fresh.scan().to_table()["count"].to_pylist()) == [2, 2]


def test_a_mode_is_switched_once(place: Place) -> None:
    table = written(place)
    before = lose_one(place)
    version = table.alter(deletion_vectors=True)
    assert was_lost(place, before)
    assert version == newest(place)


def test_a_record_index_and_deletion_vectors_are_published_once(place: Place) -> None:
    table = written(place)
    before = lose_one(place, "record_index/runs/")
    report = table.create_record_index()
    assert was_lost(place, before)
    assert (report.num_runs, report.num_stale_runs) == (1, 0)
    assert table.admin.verify_record_index().damage == []
    before = lose_one(place, "deletion_vectors/")
    table.alter(deletion_vectors=True)
    assert was_lost(place, before)
    assert table.write_deletion_vectors().num_sstables == 0, "all are there"
    assert sorted(table.scan().to_table()["count"].to_pylist()) == [2, 2]
