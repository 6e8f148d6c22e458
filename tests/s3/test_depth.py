"""A read of a remote store sends many requests in parallel, not in sequence."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lancemem

from . import waves
from .conftest import SCHEMA, Place, rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .running import S3

KEYS = [1, 9, 25, 77]
# Round trips of a cold read: log and hints, manifests, SSTables, footers of their files, keys,
# rows.
DEEPEST = 6


@pytest.fixture(scope="module")
def proxy(s3: S3) -> Iterator[waves.Proxy]:
    """Start a proxy in front of the server."""
    with waves.proxy(s3) as started:
        yield started


def layered(place: Place, name: str, shards: int, runs: int) -> str:
    """Write base rows, some SSTables in each shard above them, and a log; return the URI."""
    uri = place.uri.replace("table", name)
    sharding, options = lancemem.bucket("id", shards), place.options
    table = lancemem.create_table(
        uri, SCHEMA, primary_key="id", sharding=sharding, storage_options=options
    )
    with contextlib.ExitStack() as open_jobs:
        jobs = [open_jobs.enter_context(table.start_job(shard=it)) for it in range(shards)]

        def put(first: int, name: str) -> None:
            batch = rows(range(first, 100), name)
            shard_of = pa.array(table.shard_ordinals(batch))
            for shard, job in enumerate(jobs):
                job.put(batch.filter(pc.equal(shard_of, shard)))

        for run in range(runs + 1):
            put(run, f"run {run}")
            for job in jobs:
                job.flush()
            if run == 0:
                table.compact()
        put(90, "log")
    assert table.stats().num_sstables == shards * runs
    return uri


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_cold_read_of_many_sstables_is_no_deeper_than_one_of_a_single_sstable(
    place: Place, proxy: waves.Proxy
) -> None:
    one, many = layered(place, "one", 1, 1), layered(place, "many", 2, 4)
    for what in ("scan", "count", "get"):
        of_one = proxy.read("lancemem", what, one, KEYS)
        of_many = proxy.read("lancemem", what, many, KEYS)
        assert of_one.rows == of_many.rows == (len(KEYS) if what == "get" else 100)
        assert len(of_many.read.requests) > len(of_one.read.requests)
        assert 0 < of_many.open.depth <= of_one.open.depth
        assert 0 < of_many.read.depth <= of_one.read.depth, "\n".join(of_many.read.waves())
        assert of_many.read.depth <= DEEPEST, "\n".join(of_many.read.waves())
