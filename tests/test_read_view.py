"""Read views: one cut, read as often as one likes.

Owns: that reads of a view agree, what a view names, and that it belongs to its process. Not here:
which rows a cut has at each level (test_jobs, test_model).
"""

from __future__ import annotations

import multiprocessing
from collections import Counter
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
    """Put 0 to 9 into the base table, 0 to 4 newer into a run, 0 to 1 newer into memory."""
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


READS: dict[str, Callable[[lancemem.ReadView], object]] = {
    "table": lambda view: by_id(view.scan().to_table()),
    "batches": lambda view: by_id(pa.Table.from_batches(view.scan().to_batches())),
    "filter": lambda view: by_id(view.scan(["id"], "name <> 'base'").to_table()),
    "count": lambda view: view.count_rows(),
    "count where": lambda view: view.count_rows("value >= 2"),
    "get": lambda view: view.get(keys(9, 0, 15, 3), ["name", "id"]).to_pylist(),
    "dataset": lambda view: by_id(view.to_dataset().to_table()),
    "positions": lambda view: (view.base_version, view.shards),
}


@pytest.mark.parametrize("read", READS)
def test_two_reads_of_a_view_agree_whatever_happens_to_the_table(
    read: str, table: lancemem.Table
) -> None:
    with filled(table) as job:
        view = table.pin()
        before = READS[read](view)
        keep_writing(table, job)
        assert READS[read](view) == before
        assert READS[read](table.pin()) != before


def test_a_view_reads_for_the_first_time_after_the_table_moved_on(table: lancemem.Table) -> None:
    with filled(table) as job:
        expected = by_id(table.scan().to_table())
        view = table.pin()
        keep_writing(table, job)
        assert by_id(view.scan().to_table()) == expected
        names = view.get(keys(*range(10)), ["name"]).column("name").to_pylist()
        assert names == ["memory"] * 2 + ["run"] * 3 + ["base"] * 5


def test_a_view_outlives_the_job_whose_memory_it_pinned(table: lancemem.Table) -> None:
    config = lancemem.WriterConfig(
        durable=False, max_wal_flush_interval_ms=3_600_000, max_wal_buffer_bytes=1 << 30
    )
    job = table.start_job(shard=0, config=config)
    job.put(rows(range(3)))
    view = table.pin(consistency="live", jobs=[job])
    assert table.pin().count_rows() == 0
    job.close()
    table.delete(keys(0, 1, 2))
    assert by_id(view.scan(["id"]).to_table()) == [{"id": 0}, {"id": 1}, {"id": 2}]


def test_each_level_pins_its_own_rows(table: lancemem.Table) -> None:
    with filled(table) as job:
        flushed = table.pin(consistency="flushed").get(keys(0), ["name"])
        assert flushed.to_pylist() == [{"name": "run"}]
        live = table.pin(consistency="live", jobs=[job]).get(keys(0), ["name"])
        assert live.to_pylist() == [{"name": "memory"}]
    with pytest.raises(lancemem.InvalidInputError, match="'flushed', 'durable' or 'live'"):
        table.pin(consistency="eventual")  # type: ignore[arg-type]


def test_a_view_names_what_it_pinned(table: lancemem.Table) -> None:
    with filled(table):
        view = table.pin()
        (shard,) = view.shards
        assert shard.shard_id == table.shards()[0].shard_id
        assert len(shard.sstables) == 1
        assert [memtable.rows for memtable in shard.memtables] == [2]
        assert shard.memtables[0].generation > shard.sstables[0]
        assert shard.manifest_version > 1
        assert view.base_version == table.stats().base_version
        assert view.schema == table.schema
        assert f"base_version={view.base_version}" in repr(view)
    flushed = table.pin(consistency="flushed").shards[0]
    assert flushed.memtables == []
    assert "PinnedShard(shard_id='" in repr(flushed).replace('"', "'")


def test_limit_and_offset_cut_a_view_into_pages(make_table: MakeTable) -> None:
    table = make_table(sharding=lancemem.bucket("id", 2))
    table.upsert(rows(range(30)))
    view = table.pin()
    assert view.scan(limit=7, offset=28).count_rows() == 2
    assert view.scan(limit=7, offset=28).to_table().num_rows == 2
    assert view.scan(offset=40).to_table().num_rows == 0
    assert table.scan(["id"], None, 5, 27).count_rows() == 3
    assert view.scan(["id"], "id < 10", 20, 4).to_table().num_rows == 6


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


def read_in_child(view: lancemem.ReadView, results: multiprocessing.Queue[str]) -> None:
    reads: list[Callable[[], object]] = [
        view.scan,
        view.count_rows,
        view.to_dataset,
        lambda: view.get(keys(1)),
    ]
    for read in reads:
        try:
            read()
        except lancemem.ForkedHandleError as error:
            results.put(str(error))


@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:lance is not fork-safe")
def test_a_view_that_crossed_a_fork_says_so(table: lancemem.Table) -> None:
    table.upsert(rows(range(3)))
    context = multiprocessing.get_context("fork")
    results: multiprocessing.Queue[str] = context.Queue()
    child = context.Process(target=read_in_child, args=(table.pin(), results))
    child.start()
    texts = [results.get(timeout=30) for _ in range(4)]
    child.join(30)
    assert child.exitcode == 0
    assert all("cannot be used in its fork" in text for text in texts)


def in_parts(view: lancemem.ReadView, parts: int, **options: Any) -> list[dict[str, Any]]:  # noqa: ANN401
    found = [view.scan(part=(index, parts), **options).to_table() for index in range(parts)]
    return by_id(pa.concat_tables(found))


def test_parts_of_a_view_have_all_its_rows_once(table: lancemem.Table) -> None:
    for start in range(0, 40, 10):
        table.upsert(rows(range(start, start + 10), "base"))
        with table.start_job(shard=0) as job:
            job.flush()
        table.compact(mode="adopt")
    job = filled(table)
    view = table.pin(consistency="live", jobs=[job])
    assert view.base_fragments > 3
    whole = by_id(view.scan().to_table())
    for parts in (1, 2, 3, 7, 20):
        assert in_parts(view, parts) == whole
        assert in_parts(view, parts, filter="name <> 'base' AND id % 2 = 0") == [
            row for row in whole if row["name"] != "base" and row["id"] % 2 == 0
        ]
        assert sum(view.scan(part=(i, parts)).count_rows() for i in range(parts)) == len(whole)
    # Whether an earlier read left positions behind makes no difference.
    assert in_parts(view, 3, columns=["id"]) == [{"id": row["id"]} for row in whole]
    for wrong in ((2, 2), (0, 0)):
        with pytest.raises(lancemem.InvalidInputError, match="no part"):
            view.scan(part=wrong)


def read_cut(uri: str, cut: str, parts: int) -> list[dict[str, Any]]:
    return in_parts(lancemem.open_table(uri).pin(cut=cut), parts)


@pytest.mark.parametrize("consistency", ["flushed", "durable"])
def test_another_process_pins_a_cut_by_its_name_whatever_came_after(
    table: lancemem.Table, consistency: Literal["flushed", "durable"]
) -> None:
    job = filled(table)
    view = table.pin(consistency=consistency)
    expected = by_id(view.scan().to_table())
    assert view.cut is not None
    keep_writing(table, job)
    table.collect_garbage()
    assert by_id(table.scan().to_table()) != expected
    assert read_cut(table.uri, view.cut, 2) == expected
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(read_cut, (table.uri, view.cut, 3)) == expected


def test_a_cut_with_rows_of_a_job_has_no_name(table: lancemem.Table) -> None:
    job = filled(table)
    assert table.pin(consistency="live", jobs=[job]).cut is None


def test_a_cut_that_is_gone_or_was_never_there_is_refused(table: lancemem.Table) -> None:
    filled(table).close()
    cut = table.pin().cut
    assert cut is not None
    base, shard = cut.split("/")
    shard_id, manifest, position = shard.split(":")
    for wrong in (
        "nonsense",
        f"999/{shard}",
        f"{base}/{shard_id}:999:{position}",
        f"{base}/{shard_id}:{manifest}:999",
        f"{base}/{shard}/{shard}",
    ):
        with pytest.raises(lancemem.InvalidInputError, match="cut"):
            table.pin(cut=wrong)
    for level in ("flushed", "live"):
        with pytest.raises(lancemem.InvalidInputError, match="leave out consistency="):
            table.pin(cut=table.pin().cut, consistency=level)
