"""A table's whole life on S3, beside pylance with the same options."""

from __future__ import annotations

import logging
import pickle
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

import lance
import pyarrow as pa
import pytest

import lancemem

from .conftest import SCHEMA, Place, rows

if TYPE_CHECKING:
    from collections.abc import Iterable

LEVELS: tuple[Literal["flushed", "durable", "live"], ...] = ("flushed", "durable", "live")


@pytest.fixture
def table(place: Place) -> lancemem.Table:
    """Create an empty table with two shards."""
    return lancemem.create_table(
        place.uri,
        SCHEMA,
        primary_key="id",
        sharding=lancemem.bucket("id", 2),
        storage_options=place.options,
    )


@pytest.fixture
def single(place: Place) -> lancemem.Table:
    """Create an empty table with one shard."""
    return lancemem.create_table(place.uri, SCHEMA, primary_key="id", storage_options=place.options)


def found(data: pa.Table) -> dict[int, str]:
    return dict(zip(data["id"].to_pylist(), data["name"].to_pylist(), strict=True))


def named(ids: Iterable[int], name: str) -> dict[int, str]:
    return dict.fromkeys(ids, name)


def test_what_is_upserted_deleted_and_compacted_is_read(
    table: lancemem.Table, place: Place
) -> None:
    table.upsert(rows(range(100), "one"))
    table.upsert(rows(range(50, 150), "two"))
    table.delete(pa.table({"id": [0, 149]}))
    expected = {**named(range(1, 50), "one"), **named(range(50, 149), "two")}
    other = lancemem.open_table(place.uri, storage_options=place.options)
    assert found(other.scan().to_table()) == expected
    assert other.get(pa.table({"id": [149, 60, 1]}))["name"].to_pylist() == ["two", "one"]
    flush(table)
    assert found(other.scan(consistency="flushed").to_table()) == expected
    done = other.compact()
    assert (done.num_generations, done.num_rows_written) == (2, 148)
    assert found(table.scan(consistency="flushed").to_table()) == expected
    assert table.stats().num_sstables == 0
    base = lance.dataset(place.uri, storage_options=place.options)
    assert found(base.to_table()) == expected


def test_a_table_of_rows_is_replaced_pickled_and_dropped(place: Place) -> None:
    s3: Any = {"storage_options": place.options}
    assert not lancemem.exists(place.uri, **s3)
    with pytest.raises(lancemem.TableNotFoundError):
        lancemem.drop_table(place.uri, **s3)
    table = lancemem.create_table(place.uri, rows(range(9), "one"), primary_key="id", **s3)
    again = pickle.loads(pickle.dumps(table))  # noqa: S301 - our own
    assert (len(table), len(again)) == (9, 9)
    assert lancemem.exists(place.uri, **s3)
    assert lancemem.create_table(place.uri, SCHEMA, primary_key="id", exist_ok=True, **s3).uri
    kept = lancemem.create_table(f"{place.uri}2", rows(range(2), "two"), primary_key="id", **s3)
    new = lancemem.create_table(
        place.uri, rows(range(3), "new"), primary_key="id", mode="overwrite", **s3
    )
    assert found(new.to_table()) == named(range(3), "new")
    assert new.to_lance().count_rows() == 0
    lancemem.drop_table(place.uri, **s3)
    assert not lancemem.exists(place.uri, **s3)
    assert found(kept.to_table()) == named(range(2), "two")


def test_the_files_of_sstables_are_compared_by_verify_sstables(
    single: lancemem.Table, place: Place
) -> None:
    with single.start_job(shard=0) as job:
        job.put(rows(range(100), "one"))
        job.flush()
    [report] = single.admin.verify_sstables()
    assert (report.num_files, report.damage) == (4, [])
    assert report.bytes > 1_000
    other = lancemem.open_table(place.uri, storage_options=place.options)
    assert other.admin.verify_sstables(0) == [report]


def test_a_first_get_is_right_whatever_was_written_since_the_table_was_opened(
    table: lancemem.Table, place: Place
) -> None:
    keys = pa.table({"id": [149, 60, 1, 0, 500, 75]})
    expected: dict[int, str] = {}

    def check(*handles: lancemem.Table) -> None:
        for handle in handles:
            for _ in range(2):
                found = handle.get(keys, columns=["name", "id"])
                wanted = [(key, expected[key]) for key in keys["id"].to_pylist() if key in expected]
                lists = (found["id"].to_pylist(), found["name"].to_pylist())
                assert list(zip(*lists, strict=True)) == wanted

    def opened() -> lancemem.Table:
        return lancemem.open_table(place.uri, storage_options=place.options)

    early = [opened() for _ in range(4)]
    table.upsert(rows(range(100), "one"))
    expected |= named(range(100), "one")
    check(early[0], opened())
    flush(table)
    table.compact()
    check(early[1], opened())
    table.upsert(rows(range(50, 150), "two"))
    table.delete(pa.table({"id": [0, 149]}))
    expected |= named(range(50, 149), "two")
    del expected[0]
    check(early[2], opened())
    flush(table)
    check(early[3], opened())
    with pytest.raises(lancemem.InvalidInputError, match="column 'none' is not in the table"):
        opened().get(keys, columns=["none"])


def flush(table: lancemem.Table) -> None:
    for shard in (0, 1):
        with table.start_job(shard=shard) as job:
            job.flush()


def test_each_level_shows_what_it_promises(single: lancemem.Table, place: Place) -> None:
    quiet = lancemem.WriterConfig(max_wal_flush_interval=timedelta(minutes=10))
    with single.start_job(shard=0, config=quiet) as job:
        job.put(rows(range(10), "flushed"))
        job.flush()
        job.put(rows(range(5, 15), "durable"))
        job.put(rows(range(10, 20), "memory"), durable=False)
        flushed = named(range(10), "flushed")
        durable = {**flushed, **named(range(5, 15), "durable")}
        live = {**durable, **named(range(10, 20), "memory")}
        for level, expected in zip(LEVELS, (flushed, durable, live), strict=True):
            other = lancemem.open_table(place.uri, storage_options=place.options)
            scan = other.scan(consistency=level, jobs=[job] if level == "live" else [])
            assert found(scan.to_table()) == expected, level
            assert scan.count_rows() == len(expected), level


def test_a_table_of_pylance_takes_upserts_and_is_read_by_it(place: Place) -> None:
    key = {"lance-schema:unenforced-primary-key": "true"}
    schema = pa.schema([SCHEMA.field("id").with_metadata(key), SCHEMA.field("name")])
    lance.write_dataset(
        rows(range(20), "base").cast(schema), place.uri, storage_options=place.options
    )
    table = lancemem.enable(place.uri, storage_options=place.options)
    with table.start_job(shard=0) as job:
        job.put(rows(range(10, 30), "newer"))
        job.close(flush=True)
    expected = {**named(range(10), "base"), **named(range(10, 30), "newer")}
    assert found(table.scan().to_table()) == expected
    run = table.shards()[0]
    folder = f"{place.uri}/_mem_wal/{run.shard_id}/{run.sstables[0].path}"
    flushed = lance.dataset(folder, storage_options=place.options)
    assert flushed.count_rows() == 20
    table.compact()
    base = lance.dataset(place.uri, storage_options=place.options)
    assert found(base.to_table(columns=["id", "name"])) == expected


def test_what_only_a_local_disk_can_do_is_off_without_a_word(
    single: lancemem.Table, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="lancemem"):
        for fsync in (False, True):
            config = lancemem.WriterConfig(fsync=fsync)
            with single.start_job(shard=0, config=config) as job:
                assert job.put(rows(range(5), f"fsync={fsync}")).durable
                job.flush()
        single.compact()
    assert caplog.records == []
    assert not [r for r in place.log() if "unsynced" in r["path"]]
    assert found(single.scan().to_table()) == named(range(5), "fsync=True")


def test_a_place_without_a_table_is_an_input_error(place: Place) -> None:
    with pytest.raises(lancemem.InvalidInputError, match="opening table s3://"):
        lancemem.open_table(place.uri, storage_options=place.options)


def test_a_bucket_that_is_not_there_and_an_option_that_says_nothing_are_no_passing_faults(
    place: Place,
) -> None:
    nowhere = place.uri.replace(place.bucket, f"{place.bucket}-gone")
    with pytest.raises(lancemem.TableNotFoundError):
        lancemem.open_table(nowhere, storage_options=place.options)
    with pytest.raises(lancemem.InvalidInputError, match="NoSuchBucket"):
        lancemem.create_table(nowhere, SCHEMA, primary_key="id", storage_options=place.options)
    options = place.options | {"timeout": "banana"}
    with pytest.raises(lancemem.InvalidInputError, match="banana"):
        lancemem.open_table(place.uri, storage_options=options)
    with pytest.raises(lancemem.InvalidInputError, match="banana"):
        lancemem.create_table(place.uri, SCHEMA, primary_key="id", storage_options=options)
