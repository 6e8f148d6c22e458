"""Parts of a snapshot's scan below many newer rows.

Owns: that the parts together have each row once, and read no source whose rows are all replaced.
Not here: the share of each part (the engine's own tests), or tasks of Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import lancemem

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

MANY = 40_000
SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])


def rows(ids: Iterable[int], value: int) -> pa.Table:
    ids = list(ids)
    return pa.table({"id": ids, "v": [value] * len(ids)}, schema=SCHEMA)


def values(tables: Iterable[pa.Table]) -> dict[int, int]:
    """Return the value of each id; refuse an id that two tables have."""
    found = pa.concat_tables(tables)
    by_id = dict(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))
    assert len(by_id) == found.num_rows, "two parts have the same row"
    return by_id


@pytest.fixture
def table(tmp_path: Path) -> lancemem.Table:
    """Two shards: a base table, and newer rows of all its keys in SSTables."""
    table = lancemem.create_table(
        str(tmp_path / "t"),
        SCHEMA,
        primary_key="id",
        sharding=lancemem.bucket("id", 2),
    )
    table.upsert(rows(range(MANY), 1))
    table.flush()
    table.compact()
    for value in (2, 3):
        table.upsert(rows(range(MANY), value))
        table.flush()
    table.upsert(rows(range(0, MANY, 2), 4))
    table.delete(pa.table({"id": [5, 7]}))
    table.flush()
    return table


def expected() -> dict[int, int]:
    even_and_odd = {n: 3 if n % 2 else 4 for n in range(MANY)}
    return {n: value for n, value in even_and_odd.items() if n not in {5, 7}}


def parts_of(snapshot: lancemem.Snapshot, count: int) -> list[lancemem.Scan]:
    return [snapshot.scan(part=(index, count)) for index in range(count)]


@pytest.mark.parametrize("count", [1, 2, 5, 16])
def test_parts_below_many_newer_rows_have_each_row_once(table: lancemem.Table, count: int) -> None:
    snapshot = table.snapshot()
    for _ in range(2):
        found = values(part.to_table() for part in parts_of(snapshot, count))
        assert found == expected()


def test_parts_read_no_source_whose_rows_are_all_replaced(table: lancemem.Table) -> None:
    snapshot = table.snapshot()
    plans = "\n".join(part.explain() for part in parts_of(snapshot, 3))
    reads = [line for line in plans.splitlines() if "LanceRead" in line]
    assert reads
    assert all("_mem_wal" in read for read in reads), "a part reads the base table"
    assert "newer rows of their keys hide all its rows" in plans


def test_rows_of_a_log_hide_rows_of_a_part(table: lancemem.Table) -> None:
    table.upsert(rows(range(10_000, 50_000), 9))
    hidden = dict.fromkeys(range(10000, 50000), 9)
    snapshot = table.snapshot()
    found = values(part.to_table() for part in parts_of(snapshot, 4))
    assert found == expected() | hidden
    even = values(
        snapshot.scan(filter="id % 2 = 0", part=(index, 4)).to_table() for index in range(4)
    )
    assert even == {n: v for n, v in (expected() | hidden).items() if n % 2 == 0}


def test_parts_with_few_newer_rows_have_each_row_once(table: lancemem.Table) -> None:
    table.compact()
    table.upsert(rows(range(100), 9))
    table.flush()
    found = values(part.to_table() for part in parts_of(table.snapshot(), 4))
    assert found == expected() | dict.fromkeys(range(100), 9)
