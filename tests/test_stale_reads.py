"""Stale reads that other systems have returned, each story run twenty times.

Owns: stories in which a reader could miss what was acknowledged, or see what was replaced, while
a flush, a compaction or another writer is at work. Not here: the same on faulty storage
(rust/core/tests), or after kills (tests/durability).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import lance
import numpy as np
import pyarrow as pa
import pytest

import lancemem

if TYPE_CHECKING:
    from tests.conftest import MakeTable

TIMES = 20
KEYS, PUT_ROWS = 400_000, 100_000


def keyed(kind: str) -> tuple[pa.Schema, list[str], pa.Table]:
    """Give the schema, its key, and all keys, in an order that follows no key."""
    random = np.random.default_rng(11)
    text = pa.array([f"{number:032x}" for number in random.permutation(KEYS).tolist()])
    fields = [pa.field("id", pa.string(), nullable=False)]
    columns = [text]
    if kind == "composite":
        fields.append(pa.field("sub", pa.int64(), nullable=False))
        columns.append(pa.array(random.integers(0, 1 << 40, KEYS)))
    names = [field.name for field in fields]
    schema = pa.schema([*fields, pa.field("round", pa.int64())])
    return schema, names, pa.table(columns, schema=pa.schema(fields))


def of_round(keys: pa.Table, number: int) -> pa.Table:
    return keys.append_column("round", pa.array(np.full(keys.num_rows, number, np.int64)))


def rounds(seen: pa.Table) -> list[tuple[int, int]]:
    """Count the rows of each round."""
    counts = seen.column("round").value_counts().to_pylist()
    return [(count["values"], count["counts"]) for count in counts]


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("kind", ["text", "composite"])
def test_b1_no_replaced_row_comes_back_where_keys_are_put_while_sstables_are_flushed(
    kind: str, make_table: MakeTable
) -> None:
    schema, key, keys = keyed(kind)
    config = lancemem.WriterConfig(fsync=False, durable=False, max_memtable_rows=PUT_ROWS)
    table = make_table(schema, key, config=config)
    puts = [keys.slice(start, PUT_ROWS) for start in range(0, KEYS, PUT_ROWS)]
    for number in range(TIMES):
        job = table.start_job(shard=0)
        for put in puts:
            job.put(of_round(put, number))
        live = table.scan(["round"], consistency="live", jobs=[job]).to_table()
        assert rounds(live) == [(number, KEYS)]
        job.close(flush=True)
        flushed = table.scan(["round"], consistency="flushed").to_table()
        assert rounds(flushed) == [(number, KEYS)]
        if number % 2:
            table.compact()


def rows(ids: range, value: float) -> pa.Table:
    size = len(ids)
    return pa.table(
        {"id": pa.array(ids, pa.int64()), "name": ["a"] * size, "value": [value] * size}
    )


def test_b2_no_acknowledged_row_is_missing_while_its_memtable_is_flushed(
    make_table: MakeTable,
) -> None:
    table = make_table(config=lancemem.WriterConfig(fsync=False, max_memtable_rows=100))
    for number in range(TIMES):
        job = table.start_job(shard=0)
        first = number * 300
        for start in range(first, first + 300, 60):
            # Each second put freezes a MemTable that is then on its way to storage.
            job.put(rows(range(start, start + 60), 1.0))
            seen = table.scan(["id"], consistency="live", jobs=[job]).count_rows()
            assert seen == start + 60
            assert table.scan(["id"]).count_rows() == start + 60
        job.close(flush=True)


def test_b3_a_row_of_the_base_table_is_not_hidden_by_an_sstable_that_it_contains(
    table: lancemem.Table,
) -> None:
    for number in range(TIMES):
        with table.start_job(shard=0) as job:
            job.put(rows(range(50), float(number)))
            job.flush()
        table.compact()
        lance.dataset(table.uri).update({"value": "-1.0"}, where="id = 7")
        expected = [-1.0 if number_of == 7 else float(number) for number_of in range(50)]
        for reader in (table, lancemem.open_table(table.uri)):
            got = reader.scan(["id", "value"]).to_table().sort_by("id")
            assert got.column("value").to_pylist() == expected
            key = pa.table({"id": pa.array([7], pa.int64())})
            assert reader.get(key).column("value").to_pylist() == [-1.0]


def test_b6_rows_of_another_shard_are_refused_and_leave_nothing(make_table: MakeTable) -> None:
    table = make_table(sharding=lancemem.bucket("id", 4))
    ids = range(TIMES * 20)
    keys = pa.table({"id": pa.array(ids, pa.int64())})
    owner = pa.array(table.shard_ordinals(keys)).to_pylist()
    for number in range(TIMES):
        shard = number % 4
        batch = rows(ids[number * 20 : number * 20 + 20], 1.0)
        mine = [owner[it] == shard for it in batch.column("id").to_pylist()]
        with table.start_job(shard=shard) as job:
            with pytest.raises(lancemem.InvalidInputError, match="shard"):
                job.put(batch)
            job.put(batch.filter(pa.array(mine)))
        table.upsert(batch)
        assert table.scan().count_rows() == number * 20 + 20


def test_b8_a_reader_that_lives_long_sees_what_others_commit_to_the_base_table(
    table: lancemem.Table,
) -> None:
    schema = lance.dataset(table.uri).schema
    with table.start_job(shard=0) as job:
        job.put(rows(range(10), 0.0))
        reader = lancemem.open_table(table.uri)
        for number in range(TIMES):
            new = rows(range(1_000 + number * 5, 1_005 + number * 5), 2.0)
            lance.write_dataset(new.cast(schema), table.uri, mode="append")
            expected = 10 + 5 * (number + 1)
            assert reader.scan().count_rows() == expected
            assert table.scan(consistency="live", jobs=[job]).count_rows() == expected
            key = pa.table({"id": pa.array([1_000 + number * 5], pa.int64())})
            assert reader.get(key).num_rows == 1


def test_a_snapshot_taken_after_an_acknowledged_put_of_any_writer_has_it(
    make_table: MakeTable,
) -> None:
    """A reader caches manifests and WAL tails; a cached one must not hide a later write."""
    table = make_table(
        sharding=lancemem.bucket("id", 4),
        config=lancemem.WriterConfig(fsync=False, max_memtable_rows=200),
    )
    reader = lancemem.open_table(table.uri)
    acknowledged = [0]

    def write() -> None:
        for first in range(0, 2_000, 40):
            table.upsert(rows(range(first, first + 40), 1.0))
            acknowledged[0] = first + 40
            if first % 400 == 0:
                table.compact()

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        while not writing.done():
            floor = acknowledged[0]
            snapshot = reader.snapshot()
            ids = snapshot.scan(["id"]).to_table().column("id").to_pylist()
            assert set(range(floor)) <= set(ids)
            assert len(ids) == len(set(ids))
        writing.result()
    assert reader.scan().count_rows() == 2_000
