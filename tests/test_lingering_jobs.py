"""Calls without a writer share a job that lingers for a second: beside processes, forks and kills.

Owns: what another process, a job of the same process, a fork and a kill find after an upsert.
Not here: races of calls (`test_upserts_at_once`), or what one process sees of its own calls (the
engine's chapter `lingering`).
"""

from __future__ import annotations

import logging
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from typing import TYPE_CHECKING

import pyarrow as pa

import lancemem
from tests.programs import IN_A_FORK, run_python

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest

# One upsert for each line of its input, acknowledged by a line of its output.
WRITER = """
    import sys
    import pyarrow as pa
    import lancemem

    table = lancemem.open_table(sys.argv[1])
    for line in sys.stdin:
        key = int(line)
        table.upsert(pa.table({"id": [key], "name": ["a"], "value": [0.5]}))
        print(key, flush=True)
"""


class Writer:
    """Another process that upserts the keys that it is given."""

    def __init__(self, table: lancemem.Table) -> None:
        command = [sys.executable, "-c", textwrap.dedent(WRITER), table.uri]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.process: subprocess.Popen[str] = subprocess.Popen(  # type: ignore[call-overload] # noqa: S603
            command, text=True, **pipes
        )

    def upsert(self, key: int) -> None:
        """Return once the row is acknowledged."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{key}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == f"{key}\n"

    def end(self) -> None:
        """Let it end by itself."""
        _, errors = self.process.communicate(timeout=50)
        assert (self.process.returncode, errors) == (0, "")


def rows(keys: Iterable[int]) -> pa.Table:
    ids = list(keys)
    return pa.table({"id": ids, "name": ["a"] * len(ids), "value": [0.5] * len(ids)})


def ids(table: lancemem.Table, **options: object) -> list[int]:
    found = table.scan(**options).to_table()  # type: ignore[arg-type]
    return sorted(found["id"].to_pylist())


def epoch(table: lancemem.Table) -> int:
    return table.shards()[0].writer_epoch


def test_upserts_in_a_loop_claim_once(
    table: lancemem.Table, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="lancemem"):
        for key in range(5):
            assert table.upsert(rows([key])).num_wal_entries == 1
        table.delete([0])
        lancemem.open_table(table.uri).apply(rows([1, 9]), pa.array([True, False]))
    lines = [record.getMessage() for record in caplog.records if record.name == "lancemem"]
    assert [line.split()[0] for line in lines] == ["claimed"]
    assert (epoch(table), ids(table)) == (1, [2, 3, 4, 9])


def test_two_processes_that_alternate_wait_for_no_claim_of_each_other(
    table: lancemem.Table,
) -> None:
    other = Writer(table)
    other.upsert(0)
    begun = time.monotonic()
    for key in range(1, 31, 3):
        table.upsert(rows([key]))
        table.upsert(rows([key + 1]))
        other.upsert(key + 2)
    # A claim without rows is left alone for three seconds; none of these is one.
    assert time.monotonic() - begun < 20
    other.end()
    assert ids(table) == list(range(31))
    assert table.stats().num_log_rows == 31
    # The second of two calls in a row claims nothing.
    assert epoch(table) == 1 + 2 * 10


def test_a_job_of_the_same_process_takes_the_shard_of_an_upsert_without_an_error(
    table: lancemem.Table,
) -> None:
    table.upsert(rows([1]))
    with table.start_job(shard=0) as job:
        assert job.stats().num_active_rows == 1
        job.put(rows([2]))
        table.upsert(rows([3]))
        assert epoch(table) == 2
    table.upsert(rows([4]))
    with table.writer() as writer:
        writer.put(rows([5]))
        table.upsert(rows([6]))
    table.upsert(rows([7]))
    assert epoch(table) == 5
    assert ids(table) == list(range(1, 8))


def test_a_job_of_another_process_takes_the_shard_and_the_next_upsert_takes_it_back(
    table: lancemem.Table,
) -> None:
    table.upsert(rows([1]))
    taken = run_python(
        """
        import sys
        import lancemem, pyarrow as pa

        with lancemem.open_table(sys.argv[1]).start_job(shard=0) as job:
            job.put(pa.table({"id": [2], "name": ["a"], "value": [0.5]}))
        """,
        table.uri,
    )
    assert (taken.returncode, taken.stderr) == (0, "")
    table.upsert(rows([3]))
    assert (epoch(table), ids(table)) == (3, [1, 2, 3])


def test_a_live_read_shows_no_memory_of_a_lingering_job(table: lancemem.Table) -> None:
    other = Writer(table)
    for key in range(0, 6, 2):
        table.upsert(rows([key]))
        other.upsert(key + 1)
        assert ids(table, consistency="live") == list(range(key + 2))
    other.end()


def test_a_fork_claims_for_itself_and_the_parent_goes_on(table: lancemem.Table) -> None:
    done = run_python(
        """
        import lancemem, pyarrow as pa

        def upsert(key):
            rows = pa.table({"id": [key], "name": ["a"], "value": [0.5]})
            return lancemem.open_table(sys.argv[1]).upsert(rows).num_rows

        def child(answers):
            answers.send(sum(upsert(key) for key in (10, 11)))

        print(upsert(1), upsert(2))
        print(in_a_fork(child), upsert(3))
        """,
        table.uri,
        before=IN_A_FORK,
    )
    assert done.stdout.split() == ["1", "1", "2", "0", "1"], done.stderr
    assert (epoch(table), ids(table)) == (3, [1, 2, 3, 10, 11])


def test_rows_of_a_process_that_is_killed_are_there_and_its_shard_is_free_at_once(
    table: lancemem.Table,
) -> None:
    other = Writer(table)
    other.upsert(1)
    other.upsert(2)
    other.process.send_signal(signal.SIGKILL)
    assert other.process.wait(timeout=10) == -signal.SIGKILL
    begun = time.monotonic()
    table.upsert(rows([3]))
    assert time.monotonic() - begun < 3, "the claim of the killed process has its rows"
    assert ids(table) == [1, 2, 3]
    assert table.stats().logs[0].is_released
    other.process.communicate()


def test_a_process_that_ends_right_after_an_upsert_ends_at_once(table: lancemem.Table) -> None:
    begun = time.monotonic()
    other = Writer(table)
    other.upsert(1)
    other.end()
    assert time.monotonic() - begun < 20
    assert ids(table) == [1]


def test_a_table_that_was_restored_from_a_copy_gets_a_claim_of_its_own(
    table: lancemem.Table,
) -> None:
    """The log of the copy ends before the newest entry of the lingering job."""
    table.upsert(rows([1]))
    copy = f"{table.uri}.copy"
    shutil.copytree(table.uri, copy)
    table.upsert(rows([2]))
    shutil.rmtree(table.uri)
    shutil.move(copy, table.uri)
    again = lancemem.open_table(table.uri)
    again.upsert(rows([3]))
    assert ids(lancemem.open_table(table.uri)) == [1, 3]
    assert again.admin.verify_wal(shard=0).first_damaged_position is None
