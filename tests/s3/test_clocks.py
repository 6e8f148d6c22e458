"""Clocks of a process and of an S3 server that are a week apart.

Owns: the calls that are refused then. Not here: how far clocks may be apart (unit tests of
`collect`), ages of files on a local disk (`test_collect`).
"""

from __future__ import annotations

from datetime import timedelta

import pytest

import lancemem

from . import server
from .conftest import SCHEMA, Place, rows

NOW = timedelta(0)


def removals(place: Place) -> list[str]:
    """Return the requests so far that could have removed an object."""
    of_bucket = [r for r in place.s3.log() if r["path"].startswith(f"/{place.bucket}")]
    return [r["path"] for r in of_bucket if r["method"] in {"DELETE", "POST"}]


@pytest.mark.parametrize("side", [server.BEHIND, server.AHEAD])
def test_a_collector_whose_clock_is_a_week_off_removes_nothing(place: Place, side: str) -> None:
    table = lancemem.create_table(
        place.uri, SCHEMA, primary_key="id", storage_options=place.options
    )
    with table.start_job(shard=0) as job:
        job.put(rows(range(10), "a"))
        job.flush()
    table.compact()
    before = removals(place)
    place.s3.switch(side)
    wrong = "ahead of" if side == server.BEHIND else "behind"
    with pytest.raises(lancemem.InvalidInputError, match=f"{wrong} the clock of the") as refused:
        table.collect_garbage(older_than=NOW)
    assert place.uri in str(refused.value)
    assert removals(place) == before
    assert table.collect_garbage(older_than=NOW, dry_run=True).garbage
    place.s3.switch("")
    assert table.collect_garbage(older_than=NOW).garbage
    assert table.scan().count_rows() == 10


def test_the_age_of_a_staged_sstable_is_by_the_clock_of_the_server(place: Place) -> None:
    table = lancemem.create_table(
        place.uri, SCHEMA, primary_key="id", storage_options=place.options
    )
    bulk = table.bulk_writer()
    bulk.upsert(rows(range(3), "a"))
    staged = bulk.finish()
    place.s3.switch(server.AHEAD)
    with pytest.raises(lancemem.InvalidInputError, match="more than six days ago"):
        table.commit(staged)
    place.s3.switch("")
    assert table.commit(staged).num_rows == 3
