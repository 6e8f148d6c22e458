"""`upsert`, `delete` and `apply` of several processes and handles at once: each succeeds, once.

Owns: calls that claim a shard for themselves, beside each other and beside jobs that claim it.
Not here: the order of the turns (the core's chapter `turns`), or jobs alone (`tests/takeovers`).
"""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import lancemem

if TYPE_CHECKING:
    from tests.conftest import MakeTable

WRITER = """
    import json, sys
    import pyarrow as pa
    import lancemem

    uri, me, calls, wanted = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    table = lancemem.open_table(uri)
    sys.stdin.readline()
    entries = 0
    for number in range(calls):
        key = 1000 * me + number
        rows = pa.table({"id": [key], "name": [f"{me}"], "value": [float(number)]})
        if wanted == "upsert":
            # The jobs of another process are taken over, as they take the shard over.
            done = table.upsert(rows, take_over=True)
        elif wanted == "apply":
            done = table.apply(rows, pa.array([False]), txn=(f"app {me}", number))
        else:
            table.upsert(rows)
            done = table.delete([key])
        assert done.num_rows == 1, done
        entries += done.num_wal_entries
    print(json.dumps(entries))
"""

JOBS = """
    import sys
    import lancemem

    table = lancemem.open_table(sys.argv[1])
    sys.stdin.readline()
    for _ in range(int(sys.argv[3])):
        try:
            table.start_job(shard=0).close()
        except lancemem.WriterFencedError:
            pass
    print(0)
"""


def started(body: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", textwrap.dedent(body), *map(str, arguments)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, text=True, **pipes)  # type: ignore[call-overload, no-any-return] # noqa: S603


def ended(processes: list[subprocess.Popen[str]]) -> list[int]:
    """Let them begin together and wait for all of them."""
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    outputs = [process.communicate(timeout=110) for process in processes]
    for process, (_, errors) in zip(processes, outputs, strict=True):
        assert process.returncode == 0, errors
    return [json.loads(output) for output, _ in outputs]


def rows_written(table: lancemem.Table) -> int:
    """Count rows of the log and of SSTables, superseded ones too; nothing is compacted."""
    table.start_job(shard=0).close(flush=True)
    return table.stats().num_sstable_rows


@pytest.mark.timeout(120)
@pytest.mark.parametrize("wanted", ["upsert", "apply", "delete"])
def test_calls_of_several_processes_all_succeed_and_write_each_row_once(
    wanted: str, table: lancemem.Table
) -> None:
    calls = 20
    assert ended([started(WRITER, table.uri, me, calls, wanted) for me in range(4)]) == [calls] * 4
    there = 0 if wanted == "delete" else 4 * calls
    assert table.scan().count_rows() == there
    assert rows_written(table) == 4 * calls * (2 if wanted == "delete" else 1)


@pytest.mark.timeout(120)
def test_calls_whose_shard_is_taken_by_jobs_write_each_row_once(table: lancemem.Table) -> None:
    calls = 15
    writers = [started(WRITER, table.uri, me, calls, "upsert") for me in range(2)]
    assert ended([*writers, started(JOBS, table.uri, 0, 8)]) == [calls, calls, 0]
    assert table.scan().count_rows() == 2 * calls
    assert rows_written(table) == 2 * calls


def test_threads_that_write_through_handles_of_their_own_all_succeed(
    make_table: MakeTable,
) -> None:
    table = make_table(sharding=lancemem.bucket("id", 2))
    failures: list[BaseException] = []

    def write(me: int) -> None:
        try:
            own = lancemem.open_table(table.uri)
            for number in range(10):
                keys = [1000 * me + number, 1000 * me + 500 + number]
                own.upsert(pa.table({"id": keys, "name": ["a"] * 2, "value": [0.5] * 2}))
        except BaseException as error:  # noqa: BLE001 - told by the test
            failures.append(error)

    threads = [threading.Thread(target=write, args=(me,)) for me in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert table.scan().count_rows() == 80


def test_a_log_that_many_calls_wrote_is_flushed_although_they_take_the_shard_from_each_other(
    table: lancemem.Table,
) -> None:
    other = lancemem.open_table(table.uri)
    for number in range(140):
        rows = pa.table({"id": [number], "name": ["a"], "value": [0.5]})
        (table if number % 2 else other).upsert(rows)
    entries = list(Path(table.uri, "_mem_wal").glob("*/wal/*"))
    assert len(entries) > 140
    assert table.stats().num_sstable_rows >= 128
