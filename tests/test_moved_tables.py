"""Tables that were copied, cloned, overwritten, deleted or robbed of their index beside lancemem.

Owns: that no row of one table gets into another table at its address or into a copy, and that a
call that cannot go on raises an error. Not here: changes of columns (test_schema_change).
"""

from __future__ import annotations

import shutil
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

INDEX = "__lance_mem_wal"


def rows(ids: range | list[int], name: str) -> pa.Table:
    return pa.table({"id": list(ids), "name": [name] * len(ids), "value": [0.5] * len(ids)})


def names(table: lancemem.Table) -> dict[int, str]:
    found = table.scan().to_table()
    return dict(zip(found["id"].to_pylist(), found["name"].to_pylist(), strict=True))


def flush_all(table: lancemem.Table) -> None:
    """Flush the shards of the table's sharding; shards of an earlier sharding may be there too."""
    sharding = table.sharding
    assert sharding is not None
    for shard in range(sharding.num_shards):
        table.start_job(shard=shard).close(flush=True)


def drain(table: lancemem.Table) -> None:
    """Leave nothing above the base table."""
    flush_all(table)
    table.compact()


def restored(uri: str, version: int) -> lancemem.Table:
    there: Any = lance.dataset(uri, version=version)
    there.restore()
    return lancemem.open_table(uri)


def replace_index(uri: str, **sharding: Any) -> None:  # noqa: ANN401 - as pylance has it
    """Replace lancemem's MemWAL index by an index that pylance makes."""
    base: Any = lance.dataset(uri)
    base.drop_index(INDEX)
    base.initialize_mem_wal(**sharding)


def key_of(table: lancemem.Table, shard: int) -> int:
    """Find the first key of a bucket."""
    ordinals = pa.array(table.shard_ordinals(pa.table({"id": range(100)}))).to_pylist()
    return next(key for key, ordinal in enumerate(ordinals) if ordinal == shard)


def copied_without_shards(table: lancemem.Table, place: str) -> str:
    shutil.copytree(table.uri, place, ignore=shutil.ignore_patterns("_mem_wal"))
    return place


def cloned(table: lancemem.Table, place: str) -> str:
    base = lance.dataset(table.uri)
    base.shallow_clone(place, base.version)
    return place


def branched(table: lancemem.Table, _place: str) -> str:
    lance.dataset(table.uri).create_branch("other")
    return f"{table.uri}/tree/other"


@pytest.mark.parametrize("taken", [copied_without_shards, cloned, branched])
def test_what_is_flushed_into_a_copy_counts_from_where_the_table_was_compacted(
    taken: Callable[[lancemem.Table, str], str], make_table: MakeTable, tmp_path: Path
) -> None:
    table = make_table()
    for number in range(3):
        with table.start_job(shard=0) as job:
            job.put(rows([number], "first"))
            job.flush()
    table.compact()

    copy = lancemem.open_table(taken(table, str(tmp_path / "copy")))
    wanted = dict.fromkeys(range(3), "first")
    with copy.start_job(shard=0) as job:
        for number in range(10, 15):
            job.put(rows([number], "copy"))
            job.flush()
            wanted[number] = "copy"
            assert names(copy) == wanted
    copy.compact()
    assert names(copy) == wanted
    assert lance.dataset(copy.uri).count_rows() == len(wanted)
    assert names(table) == dict.fromkeys(range(3), "first")


def test_a_shard_that_is_older_than_its_table_takes_no_rows(
    make_table: MakeTable, tmp_path: Path
) -> None:
    table = make_table()
    shutil.copytree(Path(table.uri, "_mem_wal"), tmp_path / "backup")
    for number in range(2):
        with table.start_job(shard=0) as job:
            job.put(rows([number], "a"))
            job.flush()
    table.compact()
    shutil.rmtree(Path(table.uri, "_mem_wal"))
    shutil.copytree(tmp_path / "backup", Path(table.uri, "_mem_wal"))
    again = lancemem.open_table(table.uri)
    assert main(["verify-wal", table.uri]) == 1
    with pytest.raises(lancemem.CorruptionError, match="older than its table"):
        again.start_job(shard=0)
    assert names(again) == {0: "a", 1: "a"}


def test_rows_above_a_table_whose_index_was_dropped_are_not_read_in_another_way(
    make_table: MakeTable,
) -> None:
    table = make_table(sharding=lancemem.bucket("id", 4))
    table.upsert(rows(range(6), "a"))
    base = lance.dataset(table.uri)
    before = base.version
    base.drop_index(INDEX)
    for sharding in (None, lancemem.unsharded(), lancemem.bucket("id", 4)):
        with pytest.raises(lancemem.InvalidInputError, match="rows of a time when it had one"):
            lancemem.enable(table.uri, sharding=sharding)
    assert INDEX not in {index.name for index in lance.dataset(table.uri).describe_indices()}
    assert names(restored(table.uri, before)) == dict.fromkeys(range(6), "a")


def test_a_table_that_was_compacted_to_the_end_is_enabled_anew_under_any_sharding(
    make_table: MakeTable,
) -> None:
    table = make_table(sharding=lancemem.bucket("id", 4))
    table.upsert(rows(range(6), "a"))
    drain(table)
    lance.dataset(table.uri).drop_index(INDEX)
    again = lancemem.enable(table.uri, sharding=lancemem.bucket("id", 2))
    again.upsert(rows(range(3), "b"))
    # The buckets that this handle has cached are outdated.
    for ask in (
        lambda: table.upsert(rows([1], "lost")),
        lambda: table.start_job(shard=0),
        lambda: table.scan().to_table(),
        lambda: table.get([1]),
        table.refresh,
    ):
        with pytest.raises(lancemem.InvalidInputError, match="was replaced by another one"):
            ask()
    wanted = {number: "b" if number < 3 else "a" for number in range(6)}
    assert names(again) == wanted
    drain(again)
    assert names(again) == wanted
    again.delete(pa.table({"id": range(6)}))
    assert again.scan().count_rows() == again.get(pa.table({"id": range(6)})).num_rows == 0


def test_a_job_from_before_an_overwrite_writes_nothing_into_the_table_that_was_enabled_then(
    make_table: MakeTable,
) -> None:
    table = make_table()
    table.upsert(rows([1], "old"))
    job = table.start_job(shard=0)
    job.flush()
    table.compact()
    lance.write_dataset(rows([2], "new").cast(table.schema), table.uri, mode="overwrite")
    again = lancemem.enable(table.uri)
    with pytest.raises((lancemem.WriterFencedError, lancemem.JobStoppedError)):
        job.put(rows([3], "lost"))
    again.upsert(rows([4], "new"))
    assert names(lancemem.open_table(table.uri)) == {2: "new", 4: "new"}


def test_a_job_of_a_table_that_was_deleted_and_made_again_writes_nothing_into_the_new_one(
    table_uri: str, schema: pa.Schema
) -> None:
    job = lancemem.create_table(table_uri, schema, primary_key="id").start_job(shard=0)
    job.put(rows([1], "old"))
    shutil.rmtree(table_uri)
    new = lancemem.create_table(table_uri, schema, primary_key="id")
    new.upsert(rows([1], "new"))
    running = new.start_job(shard=0)
    with pytest.raises(lancemem.JobStoppedError, match="is gone"):
        job.put(rows([1, 2], "lost"))
    running.put(rows([3], "new"))
    with pytest.raises(lancemem.LancememError):
        new.scan(consistency="live", jobs=[job]).to_table()
    assert names(new) == {1: "new", 3: "new"}
    assert len(lancemem.open_table(table_uri).shards()) == 1


def test_a_job_of_the_table_before_is_no_job_of_this_one(table_uri: str, schema: pa.Schema) -> None:
    job = lancemem.create_table(table_uri, schema, primary_key="id").start_job(shard=0)
    job.put(rows([1], "old"))
    shutil.rmtree(table_uri)
    new = lancemem.create_table(table_uri, schema, primary_key="id")
    new.upsert(rows([100], "new"))
    with pytest.raises(lancemem.InvalidInputError, match="another table at that location"):
        new.scan(consistency="live", jobs=[job]).to_table()
    assert names(new) == {100: "new"}


def test_nothing_is_made_beside_rows_that_a_removed_table_left(
    table_uri: str, schema: pa.Schema
) -> None:
    lancemem.create_table(table_uri, schema, primary_key="id").upsert(rows([1], "old"))
    for left in ("data", "_versions", "_transactions", "_indices"):
        shutil.rmtree(Path(table_uri, left), ignore_errors=True)
    with pytest.raises(lancemem.InvalidInputError, match="rows of a time when it had one"):
        lancemem.create_table(table_uri, schema, primary_key="id")
    assert not Path(table_uri, "_versions").exists()


def test_a_put_after_the_table_is_gone_is_not_acknowledged(
    table_uri: str, schema: pa.Schema
) -> None:
    table = lancemem.create_table(table_uri, schema, primary_key="id")
    job = table.start_job(shard=0)
    job.put(rows([1], "a"))
    shutil.rmtree(table_uri)
    with pytest.raises(lancemem.JobStoppedError, match="is gone"):
        job.put(rows([2], "a"))
    assert not Path(table_uri).exists()
    for ask in (lambda: table.scan().to_table(), table.compact, lambda: table.start_job(shard=0)):
        with pytest.raises(lancemem.InvalidInputError, match="looking for the newest version"):
            ask()
        assert not Path(table_uri).exists()


def of_two_and_then_of_four_buckets(make_table: MakeTable) -> tuple[lancemem.Table, int]:
    """Return a table whose index was replaced, and the version that has the earlier index."""
    uri = make_table(sharding=lancemem.bucket("id", 2)).uri
    before = lance.dataset(uri).version
    lance.dataset(uri).drop_index(INDEX)
    return lancemem.enable(uri, sharding=lancemem.bucket("id", 4)), before


def assert_refused(table: lancemem.Table) -> None:
    """Assert that rows of four buckets are neither read nor added to under an index of two."""
    for ask in (
        lambda: table.scan().to_table(),
        lambda: table.scan(filter="id = 7").count_rows(),
        lambda: table.get([1]),
        lambda: table.upsert(rows([1], "lost")),
        lambda: table.delete([1]),
        table.bulk_writer,
        lambda: table.start_job(shard=1),
    ):
        with pytest.raises(lancemem.InvalidInputError, match=r"num_buckets=4.*num_buckets=2"):
            ask()


@pytest.mark.parametrize("flush", [False, True])
def test_rows_of_a_sharding_are_not_read_and_not_added_to_under_another_that_was_restored(
    make_table: MakeTable, flush: bool
) -> None:
    table, before = of_two_and_then_of_four_buckets(make_table)
    table.upsert(rows(range(8), "a"))
    if flush:
        flush_all(table)
    later = lance.dataset(table.uri).version
    older = restored(table.uri, before)
    assert older.sharding == lancemem.bucket("id", 2)
    assert_refused(older)
    for found in older.shards()[:2]:
        with pytest.raises(lancemem.InvalidInputError, match="num_buckets=4"):
            older.start_job(shard=found.shard_id)
    if flush:
        with pytest.raises(lancemem.InvalidInputError, match="num_buckets=4"):
            older.compact()

    again = restored(table.uri, later)
    assert names(again) == dict.fromkeys(range(8), "a")
    again.upsert(rows(range(4), "b"))
    again.delete([7])
    assert names(again) == {number: "b" if number < 4 else "a" for number in range(7)}


def test_rows_of_a_sharding_are_not_read_under_an_index_that_pylance_made(
    make_table: MakeTable,
) -> None:
    table = make_table(sharding=lancemem.bucket("id", 4))
    table.upsert(rows(range(8), "a"))
    before = lance.dataset(table.uri).version
    replace_index(table.uri, bucket_column="id", num_buckets=2)
    assert_refused(lancemem.open_table(table.uri))
    assert names(restored(table.uri, before)) == dict.fromkeys(range(8), "a")


def test_shards_without_rows_become_those_of_an_index_that_pylance_made(
    make_table: MakeTable,
) -> None:
    table = make_table(sharding=lancemem.bucket("id", 4))
    table.upsert(rows(range(8), "a"))
    drain(table)
    earlier = table.start_job(shard=3)
    replace_index(table.uri, bucket_column="id", num_buckets=2)

    again = lancemem.open_table(table.uri)
    assert names(again) == dict.fromkeys(range(8), "a")
    again.upsert(rows(range(6), "b"))
    again.delete([7])
    wanted = {number: "b" if number < 6 else "a" for number in range(7)}
    assert names(again) == wanted
    with pytest.raises(lancemem.WriterFencedError):
        earlier.put(rows([7], "lost"))
    drain(again)
    assert names(lancemem.open_table(table.uri)) == wanted


def test_a_call_that_is_refused_for_the_rows_of_one_shard_fences_no_job_of_another(
    make_table: MakeTable,
) -> None:
    table, before = of_two_and_then_of_four_buckets(make_table)
    shards = {number: key_of(table, number) for number in range(4)}
    table.upsert(rows([shards[3]], "a"))
    later = lance.dataset(table.uri).version
    jobs = [table.start_job(shard=number) for number in range(3)]
    assert_refused(restored(table.uri, before))
    again = restored(table.uri, later)
    for number, job in enumerate(jobs):
        job.put(rows([shards[number]], "b"))
    assert names(again) == {key: "a" if number == 3 else "b" for number, key in shards.items()}


def test_a_shard_without_rows_is_started_by_its_id_under_the_index_that_was_restored(
    make_table: MakeTable,
) -> None:
    table, before = of_two_and_then_of_four_buckets(make_table)
    drain(table)
    older = restored(table.uri, before)
    shard = next(shard for shard in older.shards() if shard.ordinal == 1)
    with older.start_job(shard=shard.shard_id) as job:
        job.put(rows([key_of(older, 1)], "a"))
    assert set(names(older).values()) == {"a"}


def test_rows_that_were_staged_under_another_sharding_are_not_committed(
    make_table: MakeTable,
) -> None:
    uri = make_table(sharding=lancemem.bucket("id", 2)).uri
    bulk = lancemem.open_table(uri).bulk_writer()
    bulk.upsert(rows(range(8), "staged"))
    sstables = bulk.finish()
    before = lance.dataset(uri).version
    lance.dataset(uri).drop_index(INDEX)
    table = lancemem.enable(uri, sharding=lancemem.bucket("id", 4))
    with pytest.raises(lancemem.InvalidInputError, match=r"num_buckets=2.*num_buckets=4.*again"):
        table.commit(sstables)
    assert names(table) == {}
    assert not any(shard.sstables for shard in table.shards())
    older = restored(uri, before)
    assert older.commit(sstables).num_rows == 8
    assert names(older) == dict.fromkeys(range(8), "staged")
    drain(older)
    assert lance.dataset(uri).count_rows() == 8


def test_a_write_that_was_interrupted_is_completed_under_another_sharding(
    make_table: MakeTable,
) -> None:
    table = make_table(sharding=lancemem.bucket("id", 4))
    whole = rows(range(40), "new")
    done = [key_of(table, 0)]
    with table.start_job(shard=0) as job:
        job.put(rows(done, "old"), txn=("app", 4))
        job.put(rows(done, "new"), txn=("app", 5))
    drain(table)
    lance.dataset(table.uri).drop_index(INDEX)
    again = lancemem.enable(table.uri, sharding=lancemem.bucket("id", 2))
    with pytest.raises(lancemem.StaleTxnError):
        again.upsert(rows(done, "old"), txn=("app", 3))
    assert again.upsert(rows(done, "old"), txn=("app", 4)).num_shards_already_written == 1
    assert again.upsert(whole, txn=("app", 5)).num_rows == 40
    assert again.upsert(whole, txn=("app", 5)).num_shards_already_written == 2
    assert names(again) == dict.fromkeys(range(40), "new")


def test_a_shard_of_buckets_takes_no_rows_for_an_index_that_has_no_sharding(
    make_table: MakeTable,
) -> None:
    table = make_table(sharding=lancemem.bucket("id", 4))
    table.upsert(rows(range(8), "a"))
    before = lance.dataset(table.uri).version
    replace_index(table.uri)
    other = lancemem.open_table(table.uri)
    assert other.sharding is None
    for shard in other.shards():
        with pytest.raises(lancemem.InvalidInputError, match="the table's index has none"):
            other.start_job(shard=shard.shard_id)
    again = restored(table.uri, before)
    again.upsert(rows(range(4), "b"))
    assert names(again) == {number: "b" if number < 4 else "a" for number in range(8)}


def test_pylance_keeps_what_a_shard_says_of_its_sharding(make_table: MakeTable) -> None:
    table, before = of_two_and_then_of_four_buckets(make_table)
    base: Any = lance.dataset(table.uri)
    shard = table.shards()[3]
    writer = base.mem_wal_writer(shard.shard_id, durable_write=True, max_wal_flush_interval_ms=1)
    writer.put(rows([7], "a").to_batches()[0])
    writer.close()
    assert names(table) == {7: "a"}
    assert_refused(restored(table.uri, before))
