"""Writes of one process at one shard: in turn, and with one job where they follow each other.

Owns: claims, and the jobs that a driver keeps, as far as they need no Spark session. Not here:
writers of other processes (tests/spark).
"""

from __future__ import annotations

import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

import lancemem
from lancemem.spark import claim, writer
from lancemem.spark.driver_jobs import ShardJobs
from tests.programs import IN_A_FORK, run_python

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import MakeTable

PATIENCE = 30


def rows(ids: range, name: str) -> pa.Table:
    return pa.table({"id": ids, "name": [name] * len(ids), "value": [0.5] * len(ids)})


def found(table: lancemem.Table) -> dict[int, str]:
    stored = lancemem.open_table(table.uri).scan().to_table()
    return dict(zip(stored["id"].to_pylist(), stored["name"].to_pylist(), strict=True))


def epochs(table: lancemem.Table) -> list[int]:
    return [shard.writer_epoch for shard in lancemem.open_table(table.uri).shards()]


def two_writes(
    table: lancemem.Table, first: Callable[[lancemem.Job], object], second: pa.Table
) -> None:
    """Let `second` ask for the shard while `first` has it; each through a handle of its own."""
    began, go_on = threading.Event(), threading.Event()

    def write_first() -> None:
        with claim.claimed(table, 0) as job:
            began.set()
            assert go_on.wait(PATIENCE)
            first(job)

    def write_second() -> None:
        with claim.claimed(lancemem.open_table(table.uri), 0) as job:
            job.put(second, durable=True)

    with ThreadPoolExecutor(2) as threads:
        writes = [threads.submit(write_first)]
        assert began.wait(PATIENCE)
        writes.append(threads.submit(write_second))
        end = time.monotonic() + PATIENCE
        while claim._CLAIMS.claims[table.uri, 0].wanted < 2:
            assert time.monotonic() < end
            time.sleep(0.001)
        go_on.set()
        for write in writes:
            write.result(PATIENCE)


def test_a_write_that_waited_goes_on_with_the_job_of_the_one_before(table: lancemem.Table) -> None:
    two_writes(
        table, lambda job: job.put(rows(range(3), "one"), durable=True), rows(range(2, 5), "two")
    )
    assert found(table) == {0: "one", 1: "one", 2: "two", 3: "two", 4: "two"}
    assert epochs(table) == [1]
    assert claim._CLAIMS.claims == {}
    with claim.claimed(table, 0) as job:
        job.put(rows(range(1), "three"), durable=True)
    assert epochs(table) == [2], "no write waited, so the job had ended"


def test_a_job_that_failed_is_not_handed_on(table: lancemem.Table) -> None:
    def fail(job: lancemem.Job) -> None:
        job.put(rows(range(3), "one"), durable=True)
        raise ArithmeticError

    with pytest.raises(ArithmeticError):
        two_writes(table, fail, rows(range(2, 5), "two"))
    assert found(table) == {0: "one", 1: "one", 2: "two", 3: "two", 4: "two"}
    assert epochs(table) == [2]


def test_writes_of_many_threads_never_take_a_shard_from_each_other(
    make_table: MakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(sharding=lancemem.bucket("id", 2))
    plan = writer.WritePlan(("id", "name", "value"), ("id",))
    # A write that lost its shard would fail now, and not try again.
    monkeypatch.setattr(writer, "MAX_ATTEMPTS", 1)

    def write(who: int) -> None:
        handle = lancemem.open_table(table.uri)
        for number in range(10):
            change = rows(range(10 * who, 10 * who + 10), f"{number}")
            writer.write_here(handle, plan, change, None, (f"writer {who}", number), None)

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(write, range(6)))
    assert found(table) == dict.fromkeys(range(60), "9")


def write_here(table: lancemem.Table, change: pa.Table, number: int, *, by: str = "a") -> bool:
    """Write as a small DataFrame is. Return whether a shard had the write already."""
    plan = writer.WritePlan(("id", "name", "value"), ("id",))
    done = writer.write_here(table, plan, change, None, (f"writer {by}", number), None)
    return any(report["already_written"] for report in done)


def test_small_upserts_and_deletes_in_a_row_claim_once(table: lancemem.Table) -> None:
    for number in range(4):
        assert not write_here(table, rows(range(number, number + 2), f"{number}"), number)
    assert write_here(table, rows(range(9), "again"), 3)
    keys = pa.table({"id": [0, 7]})
    plan = writer.WritePlan(("id",), ("id",), deletes=True)
    [done] = writer.write_here(table, plan, keys, None, ("deletes", 1), None)
    assert (done["rows"], done["deletes"], done["wal_entries"]) == (2, 2, 1)
    assert found(table) == {1: "1", 2: "2", 3: "3", 4: "3"}
    assert epochs(table) == [1]
    with pytest.raises(lancemem.StaleTxnError, match="too late"):
        write_here(table, rows(range(1), "late"), 2)
    # An ordered write has a job of its own, and finds every row of the calls before it.
    plan = writer.WritePlan(("id", "name", "value"), ("id",), newer_by="value")
    older = rows(range(6), "older").set_column(2, "value", pa.array([0.1] * 6))
    [done] = writer.write_here(table, plan, older, "value", ("ordered", 1), None)
    assert (done["rows"], done["late"]) == (2, 4)
    assert epochs(table) == [2]
    assert not write_here(table, rows(range(1), "last"), 4)
    assert found(table) == {0: "last", 1: "1", 2: "2", 3: "3", 4: "3", 5: "older"}


def test_a_small_upsert_takes_the_shard_from_another_process_as_a_task_does(
    table: lancemem.Table,
) -> None:
    write_here(table, rows(range(2), "here"), 0)
    killed = run_python(
        """
        import os, sys
        import lancemem, pyarrow as pa

        job = lancemem.open_table(sys.argv[1]).start_job(shard=0)
        job.put(pa.table({"id": [1, 2], "name": ["there"] * 2, "value": [0.5] * 2}), durable=True)
        os._exit(0)
        """,
        table.uri,
    )
    assert (killed.returncode, killed.stderr) == (0, "")
    with pytest.raises(lancemem.ShardHeldError):
        table.upsert(rows(range(3, 4), "refused"))
    assert not write_here(table, rows(range(2, 4), "again"), 1)
    assert write_here(table, rows(range(2, 4), "again"), 1)
    assert found(table) == {0: "here", 1: "there", 2: "again", 3: "again"}


def test_a_small_upsert_waits_for_the_write_that_has_the_shard(table: lancemem.Table) -> None:
    """An ordered write compares with stored rows, and no row may come between that and its put."""
    began, go_on = threading.Event(), threading.Event()

    def ordered() -> None:
        with claim.claimed(table, 0) as job:
            began.set()
            assert go_on.wait(PATIENCE)
            job.put(rows(range(3), "ordered"), durable=True)

    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(ordered)
        assert began.wait(PATIENCE)
        second = threads.submit(write_here, table, rows(range(2, 5), "call"), 0)
        end = time.monotonic() + PATIENCE
        while claim._CLAIMS.claims[table.uri, 0].wanted < 2:
            assert time.monotonic() < end
            time.sleep(0.001)
        assert found(table) == {}
        go_on.set()
        first.result(PATIENCE)
        assert not second.result(PATIENCE)
    assert found(table) == {0: "ordered", 1: "ordered", 2: "call", 3: "call", 4: "call"}
    assert epochs(table) == [1], "the call went through the job of the write before it"
    assert claim._CLAIMS.claims == {}


def test_a_fork_takes_no_job_of_the_small_upserts_of_its_parent(table: lancemem.Table) -> None:
    ended = run_python(
        """
        import lancemem, pyarrow as pa
        from lancemem.spark import writer

        def write(number):
            plan = writer.WritePlan(("id", "name", "value"), ("id",))
            change = pa.table({"id": [number], "name": ["a"], "value": [1.0]})
            table = lancemem.open_table(sys.argv[1])
            writer.write_here(table, plan, change, None, ("writer", number), None)

        def child(answers):
            write(2)
            write(3)
            answers.send(lancemem.open_table(sys.argv[1]).scan().count_rows())

        write(1)
        print(in_a_fork(child))
        write(4)
        """,
        table.uri,
        before=IN_A_FORK,
    )
    assert ended.stdout.splitlines() == ["3", "0"], ended.stderr
    assert (ended.returncode, sorted(found(table))) == (0, [1, 2, 3, 4]), ended.stderr
    assert epochs(table) == [3]


def test_a_fork_has_claims_of_its_own(table: lancemem.Table) -> None:
    ended = run_python(
        """
        import lancemem, pyarrow as pa
        from lancemem.spark.claim import claimed

        one = pa.table({"id": [5], "name": ["child"], "value": [1.0]})

        def child(answers):
            table = lancemem.open_table(sys.argv[1])
            with claimed(table, 0) as job:
                job.put(one, durable=True)
            answers.send(table.scan().count_rows())

        with claimed(lancemem.open_table(sys.argv[1]), 0):
            print(in_a_fork(child))
        """,
        table.uri,
        before=IN_A_FORK,
    )
    assert ended.stdout.splitlines() == ["1", "0"], ended.stderr


@pytest.mark.parametrize("fails", [True, False])
def test_an_error_inside_the_block_of_running_jobs_is_not_hidden_by_their_close(
    fails: bool, make_table: MakeTable
) -> None:
    table = make_table()
    config = lancemem.WriterConfig(durable=False)
    [shard] = table.shards()
    wal = Path(table.uri, "_mem_wal", shard.shard_id, "wal")

    def block() -> None:
        with ShardJobs(table, config) as jobs:
            with jobs.lend(0) as job:
                job.put(rows(range(3), "lost"))
            shutil.rmtree(wal)
            wal.write_text("no folder")
            if fails:
                raise ValueError("what went wrong")

    with pytest.raises(ValueError if fails else lancemem.LancememError):
        block()
