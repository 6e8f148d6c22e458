"""Properties of the server that the other tests rely on, and that the engine uses them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

import lancemem

from . import server
from .conftest import SCHEMA, Place, rows

if TYPE_CHECKING:
    from .running import S3

CREATE = {"If-None-Match": "*"}


def test_the_server_creates_an_object_once(place: Place) -> None:
    path = f"/{place.bucket}/object"
    assert place.s3.request("PUT", path, b"first", CREATE)[0] == 200
    assert place.s3.request("PUT", path, b"second", CREATE)[0] == 412
    assert place.s3.request("GET", path) == (200, b"first")


def test_of_many_that_create_an_object_at_once_one_succeeds(place: Place) -> None:
    def create(writer: int) -> int:
        return place.s3.request("PUT", f"/{place.bucket}/race", b"%d" % writer, CREATE)[0]

    with ThreadPoolExecutor(16) as threads:
        statuses = list(threads.map(create, range(16)))
    assert sorted(statuses) == [200] + [412] * 15
    winner = statuses.index(200)
    assert place.s3.request("GET", f"/{place.bucket}/race") == (200, b"%d" % winner)


def test_every_entry_sentinel_and_manifest_is_written_under_the_condition(place: Place) -> None:
    table = lancemem.create_table(
        place.uri, SCHEMA, primary_key="id", storage_options=place.options
    )
    for turn in range(2):
        with table.start_job(shard=0) as job:
            job.put(rows(range(10), f"turn {turn}"))
            job.flush()
            job.put(rows(range(5), f"late {turn}"))
    puts = [r for r in place.log() if r["method"] == "PUT"]
    entries = [r for r in puts if "/wal/" in r["path"]]
    manifests = [r for r in puts if "/manifest/" in r["path"] and "hint" not in r["path"]]
    # Two sentinels and two entries each; creation, two claims and two flushes.
    assert len(entries) == 6
    assert len(manifests) >= 5
    for request in entries + manifests:
        assert (request["condition"], request["status"]) == ("*", 200), request
    assert len({r["path"] for r in entries + manifests}) == len(entries + manifests)


def test_a_durable_put_is_one_request(place: Place) -> None:
    table = lancemem.create_table(
        place.uri, SCHEMA, primary_key="id", storage_options=place.options
    )
    with table.start_job(shard=0) as job:
        job.put(rows(range(1), "first"))
        before = len(place.log())
        for turn in range(5):
            job.put(rows(range(3), f"turn {turn}"))
        requests = place.log()[before:]
        assert [(r["method"], r["condition"], r["status"]) for r in requests] == [
            ("PUT", "*", 200)
        ] * 5


def test_a_server_that_ignores_conditions_gets_no_table_and_no_job(place: Place, s3: S3) -> None:
    s3.switch(server.UNCONDITIONAL)
    with pytest.raises(lancemem.InvalidInputError, match="conditional writes"):
        lancemem.create_table(place.uri, SCHEMA, primary_key="id", storage_options=place.options)
    puts = {r["path"] for r in place.log() if r["method"] == "PUT"}
    assert [path.rpartition("/")[2] for path in puts] == ["created_once"], "nothing but the proof"
    s3.switch("")
    lancemem.create_table(place.uri, SCHEMA, primary_key="id", storage_options=place.options)
