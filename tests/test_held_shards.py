"""Calls beside a job of another process: refused before anything is written, or told to take over.

Owns: `ShardHeldError`, `take_over=` and what releases a claim. Not here: jobs and calls of one
process (`test_writer`), calls without a job beside them (`test_upserts_at_once`), idle flushes
(`test_flush`).
"""

from __future__ import annotations

import pickle
import subprocess
import sys
import textwrap
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import lancemem
from tests.programs import run_python

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conftest import MakeTable

# A process with a job on a shard. It puts a row for each line of its input, and says how that went.
JOB = """
    import os
    import sys
    import pyarrow as pa
    import lancemem

    table = lancemem.open_table(sys.argv[1])
    job = table.start_job(shard=int(sys.argv[2]))
    key = int(sys.argv[3])
    print("running", flush=True)
    for line in sys.stdin:
        if line == "kill\\n":
            os._exit(0)
        try:
            job.put(pa.table({"id": [key], "name": ["job"], "value": [0.5]}, schema=table.schema))
            print("put", flush=True)
        except lancemem.WriterFencedError:
            print("fenced", flush=True)
        if line == "last\\n":
            job.close()
            print("closed", flush=True)
            break
"""
CLOSE = """
    import sys
    import lancemem

    with lancemem.open_table(sys.argv[1]).start_job(shard=0):
        pass
"""


def rows(ids: list[int] | range, name: str = "call") -> pa.Table:
    return pa.table({"id": list(ids), "name": [name] * len(ids), "value": [0.5] * len(ids)})


def names(table: lancemem.Table) -> dict[int, str]:
    found = table.to_table(["id", "name"])
    return dict(zip(found["id"].to_pylist(), found["name"].to_pylist(), strict=True))


def epochs(table: lancemem.Table) -> list[int]:
    return [shard.writer_epoch for shard in table.shards()]


class JobElsewhere:
    """The job of another process."""

    def __init__(self, table: lancemem.Table, shard: int, key: int) -> None:
        body = textwrap.dedent(JOB)
        command = [sys.executable, "-c", body, table.uri, str(shard), str(key)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process: subprocess.Popen[str] = subprocess.Popen(command, text=True, **pipes)  # type: ignore[call-overload] # noqa: S603
        assert self.answer() == "running"

    def answer(self) -> str:
        """Return the next line that it prints."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def asked(self, line: str) -> str:
        """Return its answer to a line."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.answer()

    def killed(self) -> None:
        """Let it end without a close."""
        self.process.communicate("kill\n", timeout=50)


@contextmanager
def job_elsewhere(table: lancemem.Table, shard: int = 0, key: int = 1) -> Iterator[JobElsewhere]:
    running = JobElsewhere(table, shard, key)
    try:
        yield running
    finally:
        running.process.kill()
        running.process.communicate()


CALLS: dict[str, Callable[[lancemem.Table, bool], object]] = {
    "upsert": lambda table, take_over: table.upsert(rows([2]), take_over=take_over),
    "delete": lambda table, take_over: table.delete([2], take_over=take_over),
    "delete where": lambda table, take_over: table.delete(where="true", take_over=take_over),
    "apply": lambda table, take_over: table.apply(
        rows([2]), pa.array([False]), take_over=take_over
    ),
    "update": lambda table, take_over: table.update({"name": "'new'"}, take_over=take_over),
    "merge": lambda table, take_over: (
        table.merge(rows([2]))
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute(take_over=take_over)
    ),
    "flush": lambda table, take_over: table.flush(take_over=take_over),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_call_beside_a_job_of_another_process_is_refused_and_the_job_goes_on(
    call: str, table: lancemem.Table
) -> None:
    with job_elsewhere(table) as job:
        assert job.asked("put") == "put"
        before = (epochs(table), names(table))
        with pytest.raises(lancemem.ShardHeldError, match="take_over=True") as refused:
            CALLS[call](table, False)
        [shard] = table.shards()
        assert shard.shard_id in str(refused.value)
        assert f"writer epoch {shard.writer_epoch}" in str(refused.value)
        assert (epochs(table), names(table)) == before
        assert job.asked("last") == "put"
        assert job.answer() == "closed"
    # The job released its claim when it was closed.
    CALLS[call](table, False)


@pytest.mark.parametrize("call", CALLS)
def test_a_call_that_insists_stops_the_job_and_loses_no_row(
    call: str, table: lancemem.Table
) -> None:
    table.upsert(rows([7], "kept"))
    with job_elsewhere(table) as job:
        assert job.asked("put") == "put"
        CALLS[call](table, True)
        assert job.asked("put") == "fenced"
    if call != "delete where":
        assert {1, 7} <= set(names(table))
    # The claim of the call is released, so the next call need not insist.
    table.upsert(rows([3]))


def test_a_job_that_has_put_nothing_is_not_stopped_either(table: lancemem.Table) -> None:
    with job_elsewhere(table) as job:
        with pytest.raises(lancemem.ShardHeldError):
            table.upsert(rows([2]))
        assert table.flush().flushed == [], "its log has no row"
        assert job.asked("last") == "put"
        assert job.answer() == "closed"
    assert names(table) == {1: "job"}


def test_a_job_that_was_closed_without_a_row_is_in_no_way(table: lancemem.Table) -> None:
    done = run_python(CLOSE, table.uri)
    assert (done.returncode, done.stderr) == (0, "")
    assert table.upsert(rows([2])).num_rows == 1


def test_the_claim_of_a_killed_process_is_taken_over_once(table: lancemem.Table) -> None:
    with job_elsewhere(table) as job:
        assert job.asked("put") == "put"
        job.killed()
    with pytest.raises(lancemem.ShardHeldError, match="was killed"):
        table.upsert(rows([2]))
    table.upsert(rows([2]), take_over=True)
    table.upsert(rows([3]))
    assert names(table) == {1: "job", 2: "call", 3: "call"}


def test_a_call_to_several_shards_writes_to_none_where_one_is_held(make_table: MakeTable) -> None:
    table = make_table(sharding=lancemem.bucket("id", 4))
    wanted = rows(range(40))
    ordinals = pa.array(table.shard_ordinals(wanted)).to_pylist()
    assert set(ordinals) == {0, 1, 2, 3}
    with job_elsewhere(table, shard=2, key=ordinals.index(2)) as job:
        with pytest.raises(lancemem.ShardHeldError):
            table.upsert(wanted)
        assert table.count_rows() == 0
        assert job.asked("put") == "put"
        free = [key for key, ordinal in enumerate(ordinals) if ordinal != 2]
        assert table.upsert(rows(free)).num_shards == 3
        with pytest.raises(lancemem.ShardHeldError):
            table.flush()
        assert table.stats(count_logs=False).num_sstables == 0, "nothing was flushed"
        assert table.upsert(wanted, take_over=True).num_shards == 4
        assert job.asked("put") == "fenced"
    assert table.count_rows() == 40


def test_a_call_of_the_process_of_a_job_goes_through_it_as_before(table: lancemem.Table) -> None:
    with table.start_job() as job:
        job.put(rows([1]))
        table.upsert(rows([2]))
        job.put(rows([3]))
    dropped = table.start_job()
    del dropped
    table.upsert(rows([4]))
    assert set(names(table)) == {1, 2, 3, 4}


def test_an_idle_flush_and_taking_over_do_not_go_together(table: lancemem.Table) -> None:
    from datetime import timedelta  # noqa: PLC0415 - this test alone

    with pytest.raises(lancemem.InvalidInputError, match="idle_for"):
        table.flush(idle_for=timedelta(0), take_over=True)


def test_the_error_says_what_to_do_and_can_be_pickled(table: lancemem.Table) -> None:
    with job_elsewhere(table), pytest.raises(lancemem.ShardHeldError) as refused:
        table.upsert(rows([2]))
    error = refused.value
    assert isinstance(error, lancemem.LancememError)
    assert not isinstance(error, (lancemem.InvalidInputError, lancemem.RetryableError))
    assert str(pickle.loads(pickle.dumps(error))) == str(error)  # noqa: S301 - our own
