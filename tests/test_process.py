"""The process around the engine: signals, its end, log handlers, open files.

Owns: that signals, exits and log handlers around a call neither hang nor end the process, and lose
no result. Not here: forks and sudden death (test_jobs), waiting calls and Ctrl-C (test_waiting).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

import lancemem
from tests.programs import run_python

if TYPE_CHECKING:
    from tests.conftest import MakeTable


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_handler_of_a_signal_may_call_what_the_interrupted_call_holds(
    make_table: MakeTable,
) -> None:
    """A service may close its job on SIGTERM in the middle of any call."""
    done = run_python(
        """
        import faulthandler, os, signal, sys, threading
        import pyarrow as pa
        import lancemem

        faulthandler.dump_traceback_later(40, exit=True)
        table = lancemem.open_table(sys.argv[1])
        job = table.start_job(shard=0)
        n = 400_000
        for k in range(4):
            ids = range(k * n, (k + 1) * n)
            some = pa.table({"id": ids, "name": ["a" * 40] * n, "value": [0.0] * n})
            job.put(some, durable=False)
        closed = []
        signal.signal(signal.SIGTERM, lambda *_: (job.close(), closed.append(True)))
        threading.Timer(0.15, os.kill, (os.getpid(), signal.SIGTERM)).start()
        job.close(flush=True)
        while not closed:
            signal.sigtimedwait([], 0.01)
        print(table.scan().count_rows())
        """,
        make_table().uri,
    )
    assert done.stdout.strip() == "1600000", done.stderr


def test_a_thread_that_is_in_a_call_when_the_interpreter_ends_does_not_take_it_down(
    make_table: MakeTable,
) -> None:
    done = run_python(
        """
        import sys, threading, time
        import pyarrow as pa
        import lancemem

        table = lancemem.open_table(sys.argv[1])
        job = table.start_job(shard=0)
        row = pa.table({"id": [1], "name": ["a"], "value": [0.0]})
        job.put(row)

        def work():
            while True:
                table.scan().to_table()
                job.put(row)

        for _ in range(4):
            threading.Thread(target=work, daemon=True).start()
        time.sleep(0.5)
        print("the end")
        """,
        make_table().uri,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "the end"), done.stderr


def test_a_broken_log_handler_takes_no_result_away(make_table: MakeTable) -> None:
    done = run_python(
        """
        import logging, sys
        import pyarrow as pa
        import lancemem

        class Broken(logging.Filter):
            def filter(self, record):
                raise ValueError("a broken filter")

        logging.getLogger("lancemem").addFilter(Broken())
        logging.getLogger("lancemem").setLevel(logging.INFO)
        job = lancemem.open_table(sys.argv[1]).start_job(shard=0)
        with job.serve() as endpoint:
            print(endpoint.location)
        """,
        make_table().uri,
    )
    assert done.stdout.startswith("grpc://"), done.stderr
    assert "a broken filter" in done.stderr


def test_lookups_into_many_sstables_keep_few_files_open(make_table: MakeTable) -> None:
    table = make_table(config=lancemem.WriterConfig(fsync=False, max_uncompacted_generations=1000))
    with table.start_job(shard=0) as job:
        for number in range(200):
            job.put(pa.table({"id": [number], "name": ["a"], "value": [0.5]}))
            job.flush()
    before = open_files()
    for number in range(200):
        assert table.get([number]).num_rows == 1
    assert open_files() <= before + 140


def test_the_threads_on_which_lance_decodes_are_there_before_they_are_needed(
    make_table: MakeTable,
) -> None:
    """Lance waits for ever where it cannot start them at the first call that needs them."""
    done = run_python(
        """
        import pathlib, sys
        import lancemem

        lancemem.open_table(sys.argv[1])
        tasks = pathlib.Path("/proc/self/task").iterdir()
        print({task.joinpath("comm").read_text() for task in tasks})
        """,
        make_table().uri,
    )
    assert "lance-cpu" in done.stdout, done.stderr


def test_a_number_of_threads_that_is_none_or_cannot_be_had_is_told(make_table: MakeTable) -> None:
    done = run_python(
        """
        import os, resource, sys
        import lancemem

        def told(threads, kind):
            os.environ["LANCEMEM_THREADS"] = threads
            try:
                lancemem.open_table(sys.argv[1])
            except kind as error:
                return str(error)

        for threads in ("0", "-1", "four", "", "1025", "100000"):
            text = told(threads, lancemem.InvalidInputError)
            assert f'LANCEMEM_THREADS is "{threads}"' in text, text
            assert "from 1 to 1024" in text, text
        # Their stacks are 8 MiB each.
        before = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (4 << 30, before[1]))
        text = told("1000", lancemem.RetryableError)
        assert "of 1003 threads" in text, text
        os.environ["LANCEMEM_THREADS"] = "2"
        print(lancemem.open_table(sys.argv[1]).scan().count_rows())
        """,
        make_table().uri,
    )
    assert done.stdout.strip() == "0", done.stderr
