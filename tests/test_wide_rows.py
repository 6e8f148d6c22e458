"""Rows so wide that the usual number of rows is too large for one batch.

Owns: the size of batches of scans, and lookups of more than the 2 GiB of a column that Arrow's
plain strings can count. Does not own: how much memory a job takes (`durability/test_memory`).
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute
import pytest

import lancemem

if TYPE_CHECKING:
    from tests.conftest import MakeTable

MIB = 1 << 20
ROWS = 600
# Maximum number of rows of a MiB in a first batch: half a GiB.
MAX_BATCH_ROWS = 512


@pytest.fixture
def wide(make_table: MakeTable) -> lancemem.Table:
    """Give a table of documents of a MiB each, which hardly compress, in one SSTable."""
    columns = [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("document", pa.string()),
        pa.field("value", pa.int64()),
    ]
    table, chance = make_table(pa.schema(columns), ["id"]), random.Random(7)  # noqa: S311 - a test
    config = lancemem.WriterConfig(max_memtable_bytes=1 << 30, max_unflushed_memtable_bytes=2 << 30)
    with table.start_job(shard=0, config=config) as job:
        for first in range(0, ROWS, 50):
            numbers = range(first, first + 50)
            documents = [chance.randbytes(MIB // 2).hex() for _ in numbers]
            job.put(pa.table({"id": numbers, "document": documents, "value": numbers}))
        job.flush()
    return table


def batches(table: lancemem.Table, columns: list[str] | None = None) -> list[int]:
    """Give the rows of each batch of a scan that finds all rows with their values."""
    rows = list(pa.RecordBatchReader.from_stream(table.scan(columns)))
    found = pa.Table.from_batches(rows)
    assert sorted(found["value"].to_pylist()) == list(range(ROWS))
    if "document" in found.column_names:
        assert {len(text) for text in found["document"].to_pylist()} == {MIB}
    return [batch.num_rows for batch in rows]


def test_a_scan_of_wide_rows_has_few_of_them_in_a_batch(wide: lancemem.Table) -> None:
    assert len(wide.shards()[0].sstables) == 1
    of_run = batches(wide)
    assert wide.compact().num_rows_written == ROWS
    of_base = batches(wide)
    for rows in (of_run, of_base):
        assert max(rows) <= MAX_BATCH_ROWS, "the first by an estimate"
        assert rows[-1] <= MAX_BATCH_ROWS // 4, "the last by what was learned"
    assert batches(wide, ["value"]) == [ROWS], "narrow columns come as ever"


def test_rows_in_memory_leave_before_they_are_too_many(make_table: MakeTable) -> None:
    table, text = make_table(), "x" * MIB
    with table.start_job(shard=0) as job:
        for number in range(0, 160, 2):
            names, values = [text] * 2, [float(number), number + 1.0]
            job.put(pa.table({"id": [number, number + 1], "name": names, "value": values}))
        read = pa.RecordBatchReader.from_stream(table.scan(consistency="live", jobs=[job]))
        rows = [batch.num_rows for batch in read]
    assert sum(rows) == 160
    assert max(rows) <= 64


def test_a_lookup_of_more_than_a_batch_can_have_comes_in_several(make_table: MakeTable) -> None:
    table = make_table()
    table.upsert(pa.table({"id": [1, 2], "name": ["a" * (3 * MIB), "b"], "value": [1.0, 2.0]}))
    keys = [1, 2] * 700
    found = table.get(keys)
    assert found["id"].to_pylist() == keys
    assert found["value"].to_pylist() == [float(key) for key in keys]
    lengths = pa.compute.binary_length(found["name"]).to_pylist()
    assert lengths == [3 * MIB, 1] * 700
    assert found["name"].num_chunks > 1
