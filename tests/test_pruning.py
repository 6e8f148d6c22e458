"""What a scan leaves out because of its condition, and that no row is missing.

Owns: shards left out by bucket, SSTables by the range of their keys and by their bloom filter,
MemTables by their key index, fragments and SSTables without a live row; and that a filtered read
equals the unfiltered read with the condition applied to its rows.
Not here: which conditions are valid (test_filters).
"""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pytest

import lancemem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.conftest import MakeTable

Row: TypeAlias = dict[str, Any]
# SQL, and the same condition as a function of one row.
Condition: TypeAlias = "tuple[str, Callable[[Row], bool]]"

KINDS = {
    "int64": ["id"],
    "text": ["name"],
    "composite": ["id", "name"],
}


def schema_of(kind: str) -> pa.Schema:
    key = KINDS[kind]
    return pa.schema(
        [
            pa.field("id", pa.int64(), nullable="id" not in key),
            pa.field("name", pa.string(), nullable="name" not in key),
            pa.field("value", pa.int64()),
        ]
    )


def rows(numbers: Iterable[int], value: int) -> pa.Table:
    numbers = list(numbers)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "name": [f"n{number:04}" for number in numbers],
            "value": pa.array([(value + number) % 50 for number in numbers], pa.int64()),
        }
    )


def keys(kind: str, numbers: Iterable[int]) -> pa.Table:
    return rows(numbers, 0).select(KINDS[kind])


def layered(make_table: MakeTable, kind: str, buckets: int | None) -> lancemem.Table:
    """Return a table with a base, SSTables over ranges and all keys, deletes, and a WAL tail."""
    sharding = lancemem.bucket(KINDS[kind][0], buckets) if buckets else lancemem.unsharded()
    config = lancemem.WriterConfig(fsync=False)
    table = make_table(schema_of(kind), KINDS[kind], sharding=sharding, config=config)

    def flush() -> None:
        for shard in table.shards():
            table.start_job(shard=shard.shard_id).close(flush=True)

    table.upsert(rows(range(400), 0))
    flush()
    table.compact()
    for start in (0, 100, 300):
        table.upsert(rows(range(start, start + 100, 3), start + 1))
        flush()
    table.upsert(rows(range(5, 500, 11), 7))
    table.delete(keys(kind, range(150, 190)))
    flush()
    table.delete(keys(kind, range(0, 400, 37)))
    table.upsert(rows(range(360, 420), 9))
    return table


def in_order(found: Iterable[Row]) -> list[Row]:
    return sorted(found, key=lambda row: (row["id"], row["name"]))


def a_condition(choose: random.Random) -> Condition:
    number, other = choose.randrange(-5, 520), choose.randrange(-5, 520)
    low, high = min(number, other), max(number, other)
    few = [choose.randrange(-5, 520) for _ in range(choose.randrange(1, 7))]
    names = [f"n{n:04}" for n in few]
    in_names = ", ".join(f"'{name}'" for name in names)
    simple: list[Condition] = [
        (f"id = {number}", lambda row: bool(row["id"] == number)),
        (f"id >= {number}", lambda row: bool(row["id"] >= number)),
        (f"id < {number}", lambda row: bool(row["id"] < number)),
        (f"id BETWEEN {low} AND {high}", lambda row: bool(low <= row["id"] <= high)),
        (f"id IN ({', '.join(map(str, few))})", lambda row: row["id"] in few),
        (f"name = 'n{number:04}'", lambda row: bool(row["name"] == f"n{number:04}")),
        (f"name IN ({in_names})", lambda row: row["name"] in names),
        (f"name <= 'n{number:04}'", lambda row: bool(row["name"] <= f"n{number:04}")),
        (f"value < {number % 50}", lambda row: bool(row["value"] < number % 50)),
    ]
    return choose.choice(simple)


def a_combination(choose: random.Random) -> Condition:
    sql, holds = a_condition(choose)
    for _ in range(choose.randrange(3)):
        more, also = a_condition(choose)
        if choose.random() < 0.7:
            sql, holds = f"({sql}) AND ({more})", both(holds, also)
        else:
            sql, holds = f"({sql}) OR ({more})", either(holds, also)
    return sql, holds


def both(left: Callable[[Row], bool], right: Callable[[Row], bool]) -> Callable[[Row], bool]:
    return lambda row: left(row) and right(row)


def either(left: Callable[[Row], bool], right: Callable[[Row], bool]) -> Callable[[Row], bool]:
    return lambda row: left(row) or right(row)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("buckets", [None, 3])
def test_random_conditions_keep_the_rows_that_an_unpruned_read_keeps(
    kind: str, buckets: int | None, make_table: MakeTable
) -> None:
    written = layered(make_table, kind, buckets)
    everything = written.scan().to_table().to_pylist()
    assert len(everything) > 300
    choose = random.Random(f"{kind} {buckets}")  # noqa: S311 - a seed that is kept
    table = written
    pruned = 0
    for number in range(60):
        # A table that was just opened has cached nothing; later it has cached keys and masks.
        table = lancemem.open_table(written.uri) if number % 6 == 0 else table
        sql, holds = a_combination(choose)
        scan = table.scan(filter=sql)
        pruned += "pruned:" in scan.explain()
        expected = in_order(row for row in everything if holds(row))
        assert in_order(scan.to_table().to_pylist()) == expected, sql
        assert table.scan(filter=sql).count_rows() == len(expected), sql
        if number == 40:
            assert table.scan().count_rows() == len(everything)
    assert pruned > 10


def left_out(table: lancemem.Table, condition: str) -> list[str]:
    return re.findall(r"pruned: (.*)", table.scan(filter=condition).explain())


def test_only_the_shard_of_a_bucket_is_read_for_a_key(make_table: MakeTable) -> None:
    table = layered(make_table, "int64", 4)
    for condition in ("id = 7", "id IN (7, 7)", "id = 7 AND value >= 0"):
        out = left_out(table, condition)
        assert sum("bucket" in line for line in out) == 3 * 5, out
    [owner] = pa.array(table.shard_ordinals(keys("int64", [7]))).to_pylist()
    assert all(table.shards()[owner].shard_id not in line for line in out if "bucket" in line)
    assert left_out(table, "value = 7") == left_out(table, "id > 7 OR value = 1") == []


def test_an_sstable_is_left_out_by_the_range_of_its_keys_once_they_are_known(
    make_table: MakeTable,
) -> None:
    table = layered(make_table, "text", None)
    assert table.scan().count_rows() > 0
    out = left_out(table, "name > 'n0250' AND name < 'n0290'")
    assert len(out) == 3, out
    assert all("SSTable" in line for line in out)
    assert len(left_out(table, "name > 'n0600'")) == 4
    assert left_out(table, "name > 'n0000'") == []


def test_an_sstable_is_left_out_by_its_bloom_filter_before_its_keys_are_read(
    make_table: MakeTable,
) -> None:
    table = lancemem.open_table(layered(make_table, "composite", None).uri)
    out = left_out(table, "id = 1001 AND name = 'n1001'")
    assert len([line for line in out if "SSTable" in line]) == 4
    assert len([line for line in out if "MemTable" in line]) == 1
    assert left_out(table, "id = 3 AND name > 'n'") == []


def test_a_deleted_key_stays_deleted_where_its_tombstone_is_all_that_is_left(
    make_table: MakeTable,
) -> None:
    """The SSTable of the tombstone has the key, so it is read although it yields no row."""
    for buckets in (None, 3):
        table = layered(make_table, "int64", buckets)
        for _ in range(2):
            assert table.scan(filter="id = 160").count_rows() == 0
            assert table.scan(filter="id IN (37, 160, 161, 12)").to_table().num_rows == 1
            assert table.scan(filter="id BETWEEN 150 AND 189").count_rows() == 0
            table.scan().count_rows()


@pytest.mark.parametrize("vectors", [False, True])
def test_fragments_and_sstables_without_a_live_row_are_not_read_again(
    vectors: bool, make_table: MakeTable
) -> None:
    table = make_table(schema_of("int64"), ["id"], config=lancemem.WriterConfig(fsync=False))
    if vectors:
        table.alter(deletion_vectors=True)

    def write(numbers: range, value: int, *, deletes: bool = False) -> None:
        job = table.start_job(shard=table.shards()[0].shard_id)
        if deletes:
            job.delete(keys("int64", numbers))
        else:
            job.put(rows(numbers, value))
        job.close(flush=True)

    def fragments_read() -> int:
        return sum(map(int, re.findall(r"num_fragments=(\d+)", table.scan().explain())))

    for start in (0, 100):
        write(range(start, start + 100), 0)
        table.compact()
    write(range(40), 1)
    write(range(40), 2)
    write(range(30, 220), 3)
    write(range(30, 35), 0, deletes=True)
    expected = {number: (2 if number < 30 else 3) + number for number in range(220)}
    for number in range(30, 35):
        del expected[number]

    def read(filter: str | None = None) -> dict[int, int]:  # noqa: A002 - the name of scan
        found = table.scan(columns=["id", "value"], filter=filter).to_table()
        assert len(found) == len(set(found["id"].to_pylist())), "a key came twice"
        return dict(zip(found["id"].to_pylist(), found["value"].to_pylist(), strict=True))

    expected = {number: value % 50 for number, value in expected.items()}
    assert read() == expected
    # Two fragments of the base, the first of four SSTables, and the SSTable that only deletes.
    assert fragments_read() == 2
    assert len(left_out(table, "value >= 0")) == 2
    assert read() == expected
    assert read("value > 25") == {key: value for key, value in expected.items() if value > 25}
    assert table.scan().count_rows() == len(expected)
    snapshot = table.snapshot()
    parts = [snapshot.scan(part=(part, 3)).to_table().num_rows for part in range(3)]
    assert sum(parts) == len(expected)
    table.upsert(rows(range(50), 9))
    expected |= {number: (9 + number) % 50 for number in range(50)}
    assert read() == expected
    assert read() == expected
