"""Columns that change under handles and jobs which are in use.

Owns: what a reader and a writer see at their next call, whichever call took over the new columns
first. Not here: what each change of columns does to rows (test_schema_change).
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import lancemem

lance = pytest.importorskip("lance")

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import MakeTable

PUTTERS = 4
TURNS = 12


def test_a_handle_that_has_read_reads_on_after_a_column_was_widened(make_table: MakeTable) -> None:
    narrow = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("n", pa.int32())])
    reads: list[Callable[[lancemem.Table], int]] = [
        lambda table: table.scan().to_table().num_rows,
        lambda table: table.scan().count_rows(),
        lambda table: table.get([1, 2]).num_rows,
        lambda table: table.snapshot().count_rows(),
        lambda table: int(table.to_dataset().to_table().num_rows),
    ]
    table = make_table(narrow)
    table.upsert(pa.table({"id": [1], "n": [1]}, schema=narrow))
    others = [lancemem.open_table(table.uri) for _ in reads]
    assert [other.scan().count_rows() for other in others] == [1] * len(reads)
    table.alter_column("n", pa.int64())
    table.upsert(pa.table({"id": [2], "n": [2**40]}))
    assert [read(other) for read, other in zip(reads, others, strict=True)] == [2] * len(reads)


def test_puts_of_a_new_column_fit_whichever_of_them_takes_it_up(make_table: MakeTable) -> None:
    table = make_table(pa.schema([pa.field("id", pa.int64(), nullable=False)]))
    with table.start_job(shard=0) as job, ThreadPoolExecutor(PUTTERS) as threads:
        for turn in range(TURNS):
            lance.dataset(table.uri).add_columns(pa.field(f"c{turn}", pa.int64()))
            columns = {f"c{number}": [number] for number in range(turn + 1)}
            together = threading.Barrier(PUTTERS)

            def put(number: int, row: pa.Table, together: threading.Barrier) -> None:
                together.wait(30)
                job.put(row.set_column(0, "id", pa.array([number])))

            row = pa.table({"id": [0]} | columns)
            asked = [threads.submit(put, number, row, together) for number in range(PUTTERS)]
            for answer in asked:
                answer.result(60)
    assert table.scan().to_table()[f"c{TURNS - 1}"].to_pylist() == [TURNS - 1] * PUTTERS
