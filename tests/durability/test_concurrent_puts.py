"""Threads that put in parallel: they share WAL entries, and other Python threads go on.

Owns: group commit and the release of the GIL, counted from Python, not timed. Does not own: which
rows are found afterwards (test_kill, test_jobs).
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pyarrow as pa

import lancemem

from . import oracle
from .children import TABLE

if TYPE_CHECKING:
    from pathlib import Path

THREADS = 8
PUTS_PER_THREAD = 40
WAIT_SECONDS = 30


def rows(number: int) -> pa.Table:
    return pa.table({"id": [number], "value": [number]}, schema=oracle.SCHEMA)


def new_table(folder: Path) -> lancemem.Table:
    return lancemem.create_table(str(folder / TABLE), oracle.SCHEMA, primary_key="id")


def test_durable_puts_of_eight_threads_share_wal_entries(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    job = table.start_job(shard=0)
    start = threading.Barrier(THREADS, timeout=WAIT_SECONDS)

    def put_some(thread: int) -> None:
        start.wait()
        for number in range(thread * PUTS_PER_THREAD, (thread + 1) * PUTS_PER_THREAD):
            assert job.put(rows(number)).durable

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(put_some, range(THREADS)))
    stats = job.stats()
    job.close()
    assert stats.num_puts == THREADS * PUTS_PER_THREAD
    # Sequential puts would each have their own entry.
    assert stats.num_wal_entries < stats.num_puts / 2
    assert table.scan().count_rows() == stats.num_rows == stats.num_puts


def test_other_python_code_runs_while_a_durable_put_waits(tmp_path: Path) -> None:
    job = new_table(tmp_path).start_job(shard=0)
    inside, done = threading.Event(), threading.Event()
    seen_inside = 0

    def put_some() -> None:
        for number in range(PUTS_PER_THREAD):
            batch = rows(number)
            inside.set()
            job.put(batch)
            inside.clear()
        done.set()

    with ThreadPoolExecutor(1) as pool:
        putting = pool.submit(put_some)
        # Each iteration that finds a put under way ran while that put waited: a put that kept the
        # GIL would let this thread run only before or after it.
        while not done.is_set():
            if inside.wait(0.001):
                job.stats()
                seen_inside += inside.is_set()
        putting.result(timeout=WAIT_SECONDS)
    job.close()
    assert seen_inside >= PUTS_PER_THREAD // 2
