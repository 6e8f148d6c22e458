"""Filters on many rows in memory, by columns that are ordered there.

Owns: that a filter by an ordered column shows the rows that it shows without the order, nulls and
NaN among the values; `sync_search_index` with and without `durable`, each with what is seen and
what a crash leaves; and an index that comes and goes. Not here: filters themselves (test_filters).
"""

from __future__ import annotations

import math
import random
import re
import signal
import subprocess
import sys
import threading
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import lancemem
from lancemem import _lancemem
from tests import seeds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

COUNT = 2_000
LONG = timedelta(hours=1)
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("n", pa.int32()),
        pa.field("x", pa.float64()),
        pa.field("name", pa.string()),
        pa.field("day", pa.date32()),
        pa.field("plain", pa.int64()),
        pa.field("vec", pa.list_(pa.float32(), 2)),
    ]
)
ORDERED = {"n": "BTREE", "x": "BTREE", "name": "BITMAP", "day": "BTREE"}
# Each wants few values of an ordered column.
FILTERS = [
    "n = 7",
    "7 = n AND plain > 3",
    "n IN (3, 900, -5)",
    "n IN (1, 2, 3, 4, 5, 6, 7)",
    "n > 990",
    "n BETWEEN 10 AND 15",
    "n >= 10 AND n < 15 AND name <> 'name 3'",
    "n = 7 AND n = 8",
    "n = 2 OR n = 9",
    "x = 0.0",
    "x = -0.0",
    "x > 998",
    "x < -0.5",
    "x = CAST('NaN' AS DOUBLE)",
    "x = CAST('Infinity' AS DOUBLE)",
    "name = 'name 3'",
    "name IN ('name 3', 'none', 'Köln')",
    "name > 'name 98'",
    "day = DATE '2024-01-05'",
    "day < DATE '2024-01-03' AND n > 500",
    "n = 7 AND 12 / plain = 3",
    "n = 7 AND x IS NULL",
    "NOT (n > 5)",
    "n = 100000",
]
# Any row may meet these, whatever an ordered column has.
OTHERS = [
    "n IS NULL",
    "n <> 5",
    "n IN (1, 2, 3, 4, 5, NULL)",
    "n = 5 OR plain = 2",
    "n + 1 = 8",
    "plain = 4",
    "name LIKE '%9'",
]


def set_bounds(rows: int | None) -> None:
    """Set the rows of a MemTable from which on filters ask its order."""
    _lancemem._set_memory_index_bounds(ordered_rows=rows)


@pytest.fixture(autouse=True)
def order_of_few_rows() -> Iterator[None]:
    """Order the rows of every MemTable."""
    set_bounds(1)
    yield
    set_bounds(None)


def config(*, durable: bool = True, sync: bool = True) -> lancemem.WriterConfig:
    """Give the settings of one cell; rows of a put that is not durable stay out of the log."""
    return lancemem.WriterConfig(
        fsync=False, durable=durable, sync_search_index=sync, max_wal_flush_interval=LONG
    )


def rows_of(keys: Any, seed: object) -> pa.Table:  # noqa: ANN401 - a range or a list
    """Draw rows; some values are null, and floats have a sign, an infinity and no number."""
    chance = random.Random(f"rows {seed}")  # noqa: S311
    odd = [math.nan, math.inf, -math.inf, 0.0, -0.0, -1.0]
    rows = []
    for key in keys:
        n = chance.randrange(1_000)
        rows.append(
            {
                "id": key,
                "n": None if chance.random() < 0.05 else n,
                "x": None if n % 20 == 1 else odd[n % 6] if n % 20 == 2 else float(n),
                "name": None if n % 9 == 0 else "Köln" if n % 50 == 1 else f"name {n % 100}",
                "day": None if n % 11 == 0 else date(2024, 1, 1 + n % 28),
                "plain": chance.randrange(1, 10),
                "vec": [float(n), chance.random()],
            }
        )
    return pa.Table.from_pylist(rows, schema=SCHEMA)


@pytest.fixture
def table(tmp_path: Path) -> lancemem.Table:
    """Give a table whose base table orders some columns."""
    fast = lancemem.WriterConfig(fsync=False)
    table = lancemem.create_table(str(tmp_path / "t"), SCHEMA, primary_key="id", config=fast)
    table.upsert(rows_of(range(200), 1))
    table.compact(flush=True)
    for column, kind in ORDERED.items():
        table.create_index(column, kind)
    return table


def answer(table: lancemem.Table, condition: str) -> list[str]:
    """Read rows by a condition, in a form in which a NaN equals itself."""
    found = table.scan(filter=condition, consistency="live").to_table()
    return sorted(repr(row) for row in found.to_pylist())


def without_order(table: lancemem.Table, condition: str) -> list[str]:
    """Read them as a small MemTable is read."""
    set_bounds(None)
    scan = table.scan(filter=condition, consistency="live")
    assert "in memory" not in scan.explain()
    found = answer(table, condition)
    set_bounds(1)
    return found


def check(table: lancemem.Table, *, used: bool = True) -> None:
    """Compare all conditions with a scan without the order."""
    for condition in FILTERS:
        plan = table.scan(filter=condition, consistency="live").explain()
        assert ("] in memory" in plan) == used or "EmptyExec" in plan, plan
        assert answer(table, condition) == without_order(table, condition), condition
    for condition in OTHERS:
        assert answer(table, condition) == without_order(table, condition), condition


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("sync", [True, False])
def test_rows_are_shown_at_once_whoever_orders_them(
    table: lancemem.Table, *, durable: bool, sync: bool
) -> None:
    with table.start_job(shard=0, config=config(durable=durable, sync=sync)) as job:
        new = rows_of(range(100, 100 + COUNT), 2)
        job.put(new)
        after_put = job.stats().memtable_bytes
        expected = [row["id"] for row in new.to_pylist() if row["n"] == 7]
        found = table.scan(["id"], filter="n = 7 AND id >= 100", consistency="live").to_table()
        assert sorted(found["id"].to_pylist()) == expected
        check(table)
        if sync:
            assert job.stats().memtable_bytes == after_put, "the put ordered its rows"
        else:
            until(lambda: job.stats().memtable_bytes > after_put)
        job.put(rows_of(range(50, 400), 3))
        job.delete(pa.table({"id": pa.array(range(380, 500), pa.int64())}))
        check(table)
        job.flush()
        assert job.stats().memtable_bytes == 0, "an order leaves the account with its rows"
        for condition in FILTERS:
            assert answer(table, condition) == without_order(table, condition)


def until(reached: Callable[[], bool]) -> None:
    """Repeat until `reached`; the timeout of the test ends it otherwise."""
    while not reached():
        threading.Event().wait(0.01)


def test_only_rows_that_may_meet_the_filter_are_evaluated(table: lancemem.Table) -> None:
    with table.start_job(shard=0, config=config()) as job:
        rows = rows_of(range(COUNT), 2)
        for first in range(0, COUNT, 500):
            job.put(rows.slice(first, 500))
        wanted = sum(row["n"] in (7, 8) for row in rows.to_pylist())
        scan = table.scan(["id"], filter="n IN (7, 8) AND plain > 5", consistency="live")
        plan = scan.explain(analyze=True)
        line = next(line for line in plan.splitlines() if "MemTableScanExec" in line)
        assert "ordered by [n] in memory" in line
        counted = re.search(r"output_rows=([\d.]+)", line)
        assert counted is not None, line
        assert int(counted[1]) == wanted
        # Most rows meet this one, so all are evaluated.
        plan = table.scan(["id"], filter="n > 5", consistency="live").explain(analyze=True)
        line = next(line for line in plan.splitlines() if "MemTableScanExec" in line)
        counted = re.search(r"output_rows=([\d.]+) ?(K?)", line)
        assert counted is not None, line
        assert float(counted[1]) * (1_000 if counted[2] else 1) == COUNT


def test_a_row_that_an_update_took_out_of_the_filter_is_not_shown(table: lancemem.Table) -> None:
    def row(key: int, n: int | None) -> pa.Table:
        one = {"id": key, "n": n, "plain": 1, "vec": [0.0, 0.0]}
        return pa.Table.from_pylist([one], schema=SCHEMA)

    with table.start_job(shard=0, config=config()) as job:
        job.put(rows_of(range(1_000, 3_000), 2))
        job.put(row(5, 5_000))
        assert answer(table, "n = 5000") == without_order(table, "n = 5000") != []
        job.put(row(5, None))
        assert answer(table, "n = 5000") == []
        job.put(row(5, 5_001))
        assert len(answer(table, "n >= 5000")) == 1
        job.flush()
        job.put(rows_of(range(1_000, 3_000), 2))
        job.put(row(5, 4_000))
        assert answer(table, "n >= 5000") == []
        job.delete([5])
        assert answer(table, "n >= 4000") == []


def test_a_vector_search_compares_the_rows_that_the_order_leaves(table: lancemem.Table) -> None:
    with table.start_job(shard=0, config=config()) as job:
        rows = rows_of(range(COUNT), 2)
        job.put(rows)
        for condition in ["n IN (7, 600)", "name = 'name 3' AND plain > 4", "n = 100000"]:
            search = table.search([500.0, 0.5], filter=condition, consistency="live")
            assert "] in memory" in search.explain()
            exact = table.search(
                [500.0, 0.5], filter=condition, consistency="live", exact=True, metric="l2"
            )
            assert "] in memory" not in exact.explain()
            assert search.to_table().to_pylist() == exact.to_table().to_pylist()


def test_an_order_that_comes_and_goes_while_rows_are_in_memory(table: lancemem.Table) -> None:
    with table.start_job(shard=0, config=config()) as job:
        job.put(rows_of(range(COUNT), 2))
        for condition in ["plain = 4 AND n = 7", "plain IN (3, 4) AND id < 40"]:
            expected = without_order(table, condition)
            assert answer(table, condition) == expected
        assert "[n, plain]" not in table.scan(filter="plain = 4 AND n = 7").explain()
        table.create_index("plain", "BITMAP")
        job.put(rows_of(range(COUNT, 2 * COUNT), 3))
        scan = table.scan(filter="plain = 4 AND n = 7", consistency="live")
        assert "ordered by [n, plain] in memory" in scan.explain()
        check(table)
        for name in [index.name for index in table.indexes()]:
            table.drop_index(name)
        check(table, used=False)


def test_other_threads_write_while_an_order_is_read(table: lancemem.Table) -> None:
    parts = [rows_of(range(first, first + 200), first) for first in range(0, 6_000, 200)]
    failures: list[BaseException] = []
    with table.start_job(shard=0, config=config(sync=False)) as job:

        def write() -> None:
            for number, part in enumerate(parts):
                job.put(part, sync_search_index=number % 2 == 0)

        def read() -> None:
            try:
                before = 0
                while writer.is_alive():
                    scan = table.scan(["id", "n"], filter="n < 20", consistency="live")
                    found = scan.to_table()
                    assert all(value < 20 for value in found["n"].to_pylist())
                    keys = found["id"].to_pylist()
                    assert len(set(keys)) == len(keys)
                    newer = sum(key >= 200 for key in keys)
                    assert newer >= before, "a row that was shown is missing"
                    before = newer
            except BaseException as error:  # noqa: BLE001 - shown by the test
                failures.append(error)

        writer = threading.Thread(target=write)
        readers = [threading.Thread(target=read) for _ in range(3)]
        for thread in [writer, *readers]:
            thread.start()
        for thread in [writer, *readers]:
            thread.join()
        assert failures == []
        check(table)


CHILD = """
import os, signal, sys
import lancemem
from tests.test_memory_order import config, rows_of, set_bounds
set_bounds(1)
durable, sync = sys.argv[2] == "True", sys.argv[3] == "True"
table = lancemem.open_table(sys.argv[1])
job = table.start_job(shard=0, config=config(durable=durable, sync=sync))
job.put(rows_of(range(1000, 3000), 5))
assert table.scan(filter="n = 7 AND id >= 1000", consistency="live").to_table().num_rows > 0
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("sync", [True, False])
def test_a_crash_leaves_the_values_of_durable_rows_and_of_no_other(
    table: lancemem.Table, *, durable: bool, sync: bool
) -> None:
    command = [sys.executable, "-c", CHILD, table.uri, str(durable), str(sync)]
    child = subprocess.run(command, timeout=120, check=False)  # noqa: S603
    assert child.returncode == -signal.SIGKILL
    again = lancemem.open_table(table.uri)
    rows = rows_of(range(1000, 3000), 5).to_pylist()
    expected = [row["id"] for row in rows if row["n"] == 7] if durable else []
    for _ in range(3):
        found = again.scan(["id"], filter="n = 7 AND id >= 1000").to_table()
        assert sorted(found["id"].to_pylist()) == expected


def test_random_programs_show_the_same_rows_with_and_without_an_order(
    table: lancemem.Table,
) -> None:
    chance = random.Random(f"{seeds.seed()} order")  # noqa: S311
    with table.start_job(shard=0, config=config(sync=False)) as job:
        for turn in range(12):
            keys = chance.sample(range(1_200), chance.choice([1, 40, 400]))
            job.put(rows_of(keys, f"{seeds.seed()} {turn}"), sync_search_index=turn % 3 == 0)
            if chance.random() < 0.5:
                gone = chance.sample(range(1_200), 30)
                job.delete(pa.table({"id": pa.array(gone, pa.int64())}))
            if chance.random() < 0.2:
                job.flush()
            for condition in chance.sample(FILTERS + OTHERS, 4):
                assert answer(table, condition) == without_order(table, condition), condition
