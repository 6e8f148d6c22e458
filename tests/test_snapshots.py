"""`Table.snapshot`: one snapshot, read any number of times.

Owns: that reads of a snapshot agree, its attributes, and that it belongs to its process. Not here:
which rows a snapshot has at each level (test_jobs, test_model).
"""

from __future__ import annotations

import multiprocessing
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

import lance
import numpy as np
import pyarrow as pa
import pytest

import lancemem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.conftest import MakeTable


def rows(ids: Iterable[int], name: str = "a") -> pa.Table:
    ids = list(ids)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "name": [name] * len(ids),
            "value": [n / 2 for n in ids],
        }
    )


def by_id(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=lambda row: row["id"])


def filled(table: lancemem.Table) -> lancemem.Job:
    """Put 0 to 9 into the base table, 0 to 4 newer into an SSTable, 0 to 1 newer into memory."""
    with table.start_job(shard=0) as job:
        job.put(rows(range(10), "base"))
        job.flush()
    table.compact()
    job = table.start_job(shard=0)
    job.put(rows(range(5), "run"))
    job.flush()
    job.put(rows(range(2), "memory"))
    return job


def keep_writing(table: lancemem.Table, job: lancemem.Job) -> None:
    """Replace, delete and add rows; flush and compact in between."""
    job.put(rows(range(4, 20), "later"))
    job.delete(pa.table({"id": [0, 9]}))
    job.flush()
    table.compact()
    job.put(rows([0, 1, 2], "last"))


def keys(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


READS: dict[str, Callable[[lancemem.Snapshot], object]] = {
    "table": lambda snapshot: by_id(snapshot.scan().to_table()),
    "batches": lambda snapshot: by_id(pa.Table.from_batches(snapshot.scan().to_batches())),
    "filter": lambda snapshot: by_id(snapshot.scan(["id"], "name <> 'base'").to_table()),
    "count": lambda snapshot: snapshot.count_rows(),
    "count where": lambda snapshot: snapshot.count_rows("value >= 2"),
    "get": lambda snapshot: snapshot.get(keys(9, 0, 15, 3), ["name", "id"]).to_pylist(),
    "dataset": lambda snapshot: by_id(snapshot.to_dataset().to_table()),
    "positions": lambda snapshot: (snapshot.base_version, snapshot.shards),
}


@pytest.mark.parametrize("read", READS)
def test_two_reads_of_a_snapshot_agree_whatever_happens_to_the_table(
    read: str, table: lancemem.Table
) -> None:
    with filled(table) as job:
        snapshot = table.snapshot()
        before = READS[read](snapshot)
        keep_writing(table, job)
        assert READS[read](snapshot) == before
        assert READS[read](table.snapshot()) != before


def test_a_snapshot_reads_for_the_first_time_after_the_table_moved_on(
    table: lancemem.Table,
) -> None:
    with filled(table) as job:
        expected = by_id(table.scan().to_table())
        snapshot = table.snapshot()
        keep_writing(table, job)
        assert by_id(snapshot.scan().to_table()) == expected
        names = snapshot.get(keys(*range(10)), ["name"]).column("name").to_pylist()
        assert names == ["memory"] * 2 + ["run"] * 3 + ["base"] * 5


def test_a_snapshot_outlives_the_job_whose_memory_it_holds(table: lancemem.Table) -> None:
    config = lancemem.WriterConfig(
        durable=False, max_wal_flush_interval=timedelta(hours=1), max_wal_buffer_bytes=1 << 30
    )
    job = table.start_job(shard=0, config=config)
    job.put(rows(range(3)))
    snapshot = table.snapshot(consistency="live", jobs=[job])
    assert table.snapshot().count_rows() == 0
    job.close()
    table.delete(keys(0, 1, 2))
    assert by_id(snapshot.scan(["id"]).to_table()) == [{"id": 0}, {"id": 1}, {"id": 2}]


def test_a_snapshot_of_each_level_has_its_own_rows(table: lancemem.Table) -> None:
    with filled(table) as job:
        flushed = table.snapshot(consistency="flushed").get(keys(0), ["name"])
        assert flushed.to_pylist() == [{"name": "run"}]
        live = table.snapshot(consistency="live", jobs=[job]).get(keys(0), ["name"])
        assert live.to_pylist() == [{"name": "memory"}]
    with pytest.raises(lancemem.InvalidInputError, match="'flushed', 'durable' or 'live'"):
        table.snapshot(consistency="eventual")  # type: ignore[arg-type]


def test_a_snapshot_names_its_versions(table: lancemem.Table) -> None:
    with filled(table):
        snapshot = table.snapshot()
        (shard,) = snapshot.shards
        assert shard.shard_id == table.shards()[0].shard_id
        assert len(shard.sstables) == 1
        assert [memtable.num_rows for memtable in shard.memtables] == [2]
        assert shard.memtables[0].generation > shard.sstables[0]
        assert shard.manifest_version > 1
        assert snapshot.base_version == table.stats().base_version
        assert snapshot.schema == table.schema
        assert f"base_version={snapshot.base_version}" in repr(snapshot)
    flushed = table.snapshot(consistency="flushed").shards[0]
    assert flushed.memtables == []
    assert "SnapshotShard(shard_id='" in repr(flushed).replace('"', "'")


def test_limit_and_offset_divide_a_snapshot_into_pages(make_table: MakeTable) -> None:
    table = make_table(sharding=lancemem.bucket("id", 2))
    table.upsert(rows(range(30)))
    snapshot = table.snapshot()
    assert snapshot.scan(limit=7, offset=28).count_rows() == 2
    assert snapshot.scan(limit=7, offset=28).to_table().num_rows == 2
    assert snapshot.scan(offset=40).to_table().num_rows == 0
    assert table.scan(["id"], None, 5, 27).count_rows() == 3
    assert snapshot.scan(["id"], "id < 10", 20, 4).to_table().num_rows == 6


def test_the_newest_source_of_a_large_scan_begins_and_the_others_follow(
    make_table: MakeTable,
) -> None:
    width, count = 1_024, 70_000
    vectors = pa.list_(pa.float32(), width)
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("vector", vectors)])

    def wide(ids: range, value: float) -> pa.RecordBatch:
        values = pa.array(np.full(len(ids) * width, value, np.float32))
        columns = [pa.array(ids, pa.int64()), pa.FixedSizeListArray.from_arrays(values, width)]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    table = make_table(schema)
    base = (wide(range(start, start + 1_000), 0) for start in range(0, count, 1_000))
    lance.write_dataset(base, table.uri, schema=table.schema, mode="append")
    with table.start_job(shard=0) as job:
        for value, ids in (1, range(100)), (2, range(50)):
            job.put(wide(ids, value))
            job.flush()
    begins = [line for line in table.scan().explain().splitlines() if "begins" in line]
    assert [line.count("all rows, SSTable") for line in begins] == [1]
    assert "begins" not in table.scan(["id"]).explain()
    sums: Counter[float] = Counter()
    for batch in table.scan():
        assert batch.schema.field("vector").type == vectors
        sums.update(batch["vector"].flatten().to_numpy()[::width].tolist())
    assert sums == {0: count - 100, 1: 50, 2: 50}


def read_in_child(snapshot: lancemem.Snapshot, results: multiprocessing.Queue[str]) -> None:
    reads: list[Callable[[], object]] = [
        snapshot.scan,
        snapshot.count_rows,
        snapshot.to_dataset,
        lambda: snapshot.get(keys(1)),
    ]
    for read in reads:
        try:
            read()
        except lancemem.ForkedHandleError as error:
            results.put(str(error))


@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:lance is not fork-safe")
def test_a_snapshot_that_crossed_a_fork_is_refused(table: lancemem.Table) -> None:
    table.upsert(rows(range(3)))
    context = multiprocessing.get_context("fork")
    results: multiprocessing.Queue[str] = context.Queue()
    child = context.Process(target=read_in_child, args=(table.snapshot(), results))
    child.start()
    texts = [results.get(timeout=30) for _ in range(4)]
    child.join(30)
    assert child.exitcode == 0
    assert all("cannot be used in its fork" in text for text in texts)


def in_parts(snapshot: lancemem.Snapshot, parts: int, **options: Any) -> list[dict[str, Any]]:  # noqa: ANN401
    found = [snapshot.scan(part=(index, parts), **options).to_table() for index in range(parts)]
    return by_id(pa.concat_tables(found))


def test_parts_of_a_snapshot_have_all_its_rows_once(table: lancemem.Table) -> None:
    for start in range(0, 40, 10):
        table.upsert(rows(range(start, start + 10), "base"))
        with table.start_job(shard=0) as job:
            job.flush()
        table.compact(mode="link")
    job = filled(table)
    snapshot = table.snapshot(consistency="live", jobs=[job])
    assert snapshot.num_base_fragments > 3
    whole = by_id(snapshot.scan().to_table())
    for parts in (1, 2, 3, 7, 20):
        assert in_parts(snapshot, parts) == whole
        assert in_parts(snapshot, parts, filter="name <> 'base' AND id % 2 = 0") == [
            row for row in whole if row["name"] != "base" and row["id"] % 2 == 0
        ]
        assert sum(snapshot.scan(part=(i, parts)).count_rows() for i in range(parts)) == len(whole)
    # Cached positions of an earlier read make no difference.
    assert in_parts(snapshot, 3, columns=["id"]) == [{"id": row["id"]} for row in whole]
    for wrong in ((2, 2), (0, 0)):
        with pytest.raises(lancemem.InvalidInputError, match="no part"):
            snapshot.scan(part=wrong)


def read_snapshot(uri: str, token: str, parts: int) -> list[dict[str, Any]]:
    return in_parts(lancemem.open_table(uri).snapshot(token=token), parts)


@pytest.mark.parametrize("consistency", ["flushed", "durable"])
def test_another_process_opens_a_snapshot_by_its_token_whatever_came_after(
    table: lancemem.Table, consistency: Literal["flushed", "durable"]
) -> None:
    job = filled(table)
    snapshot = table.snapshot(consistency=consistency)
    expected = by_id(snapshot.scan().to_table())
    assert snapshot.token is not None
    keep_writing(table, job)
    table.collect_garbage()
    assert by_id(table.scan().to_table()) != expected
    assert read_snapshot(table.uri, snapshot.token, 2) == expected
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(read_snapshot, (table.uri, snapshot.token, 3)) == expected


def test_a_snapshot_with_rows_of_a_job_has_no_token(table: lancemem.Table) -> None:
    job = filled(table)
    assert table.snapshot(consistency="live", jobs=[job]).token is None


def test_a_snapshot_that_is_gone_or_was_never_there_is_refused(table: lancemem.Table) -> None:
    filled(table).close()
    token = table.snapshot().token
    assert token is not None
    base, shard = token.split("/")
    shard_id, manifest, position = shard.split(":")
    for wrong in (
        "nonsense",
        f"999/{shard}",
        f"{base}/{shard_id}:999:{position}",
        f"{base}/{shard_id}:{manifest}:999",
        f"{base}/{shard}/{shard}",
    ):
        with pytest.raises(
            lancemem.InvalidInputError, match=r"token of a snapshot|cannot be read any more"
        ):
            table.snapshot(token=wrong)
    for level in ("flushed", "live"):
        with pytest.raises(lancemem.InvalidInputError, match="leave out consistency="):
            table.snapshot(token=table.snapshot().token, consistency=level)


@pytest.mark.parametrize("parts", [2, 3, 7])
def test_parts_cut_sstables_by_rows_and_have_each_row_once(
    make_table: MakeTable, parts: int
) -> None:
    table = make_table()
    table.upsert(rows(range(30_000), "base"))
    table.compact(flush=True)
    with table.start_job(shard=0) as job:
        job.put(rows(range(20_000, 50_000), "old"))
        job.delete(pa.table({"id": pa.array(range(0, 50_000, 7), pa.int64())}))
        job.flush()
        job.put(rows(range(25_000, 45_000), "new"))
        job.delete(pa.table({"id": pa.array(range(0, 50_000, 11), pa.int64())}))
        job.flush()
    table.upsert(rows(range(40_000, 40_100), "log"))
    snapshot = table.snapshot()
    assert snapshot.num_parts >= 7
    for condition in (None, "name = 'new'", "id % 3 = 0 AND name <> 'base'"):
        for columns in (None, ["id"], ["name"]):
            scans = [snapshot.scan(columns, condition, part=(part, parts)) for part in range(parts)]
            read = pa.concat_tables(scan.to_table() for scan in scans)
            whole = snapshot.scan(columns, condition).to_table()
            order = [(name, "ascending") for name in whole.column_names]
            assert read.sort_by(order).equals(whole.sort_by(order))
            assert sum(scan.count_rows() for scan in scans) == whole.num_rows
