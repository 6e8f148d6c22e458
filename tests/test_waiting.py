"""A call that waits: its log lines, Ctrl-C, and its end.

Owns: the logger `lancemem`, signals, readers that pause. Not here: when a put waits (the core's
`backpressure`).
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest

import lancemem
from tests.programs import run_python

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import MakeTable

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.int64())])


def test_puts_that_wait_for_memory_are_logged_once_when_it_starts_and_once_when_it_ends(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = lancemem.create_table(str(tmp_path / "t"), SCHEMA, primary_key="id")
    config = lancemem.WriterConfig(durable=False, max_unflushed_memtable_bytes=1)
    with (
        caplog.at_level(logging.INFO, logger="lancemem"),
        table.start_job(shard=0, config=config) as job,
    ):
        shard = job.shard_id
        job.put(pa.table({"id": [1], "v": [1]}, schema=SCHEMA))
        job.put(pa.table({"id": [2], "v": [2]}, schema=SCHEMA))
    lines = [record.getMessage() for record in caplog.records if record.name == "lancemem"]
    starts = [line for line in lines if line.startswith("puts wait")]
    ends = [line for line in lines if line.startswith("puts go on")]
    assert (len(starts), len(ends)) == (1, 1)
    assert shard in starts[0]
    assert "waited_ms=" in ends[0]


def test_a_put_that_waits_ends_at_ctrl_c(tmp_path: Path) -> None:
    program = textwrap.dedent(
        """
        import sys
        import threading
        import time
        from datetime import timedelta
        import pyarrow as pa
        import lancemem

        schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
        table = lancemem.create_table(sys.argv[1], schema, primary_key="id")
        wait = timedelta(hours=3)
        config = lancemem.WriterConfig(max_uncompacted_generations=1, max_compaction_wait=wait)
        job = table.start_job(shard=0, config=config)
        job.put(pa.table({"id": [1]}, schema=schema))
        job.flush()


        def tell_when_it_waits():
            while job.stats().num_waiting_puts == 0:
                time.sleep(0.001)
            print("waiting", flush=True)


        threading.Thread(target=tell_when_it_waits, daemon=True).start()
        try:
            job.put(pa.table({"id": [2]}, schema=schema))
        except KeyboardInterrupt:
            print("interrupted", job.stats().num_waiting_puts, flush=True)
        """
    )
    child = subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, "-c", program, str(tmp_path / "t")], stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "waiting\n"
        child.send_signal(signal.SIGINT)
        said, _ = child.communicate(timeout=50)
    finally:
        child.kill()
    assert said == "interrupted 0\n"


@pytest.mark.parametrize("call", ["scan", "get", "compact"])
def test_a_scan_whose_batches_are_not_read_keeps_no_other_call_waiting(
    call: str, make_table: MakeTable
) -> None:
    """The pattern `for batch in table.scan(): table.get(...)` on a table of many large files."""
    key = pa.field("id", pa.int64(), nullable=False)
    table = make_table(pa.schema([key, ("blob", pa.binary())]))
    for first in range(0, 1200, 20):
        rows = pa.table(
            {"id": range(first, first + 20), "blob": [os.urandom(10_000) for _ in range(20)]},
            schema=pa.schema(table.schema),
        )
        lance.write_dataset(rows, table.uri, mode="append")
    done = run_python(
        """
        import os, sys
        # What is read ahead of a reader then fits into far fewer files than the table has.
        os.environ["LANCE_DEFAULT_IO_BUFFER_SIZE"] = "1000000"
        import faulthandler
        import pyarrow as pa
        import lancemem

        faulthandler.dump_traceback_later(40, exit=True)
        uri, call = sys.argv[1:]
        table = lancemem.open_table(uri)
        batches = iter(table.scan())
        first = next(batches)
        if call == "scan":
            assert table.scan(["id"]).to_table().num_rows == 1200
        elif call == "get":
            assert table.get(pa.table({"id": [5, 1199]})).num_rows == 2
        else:
            table.upsert(pa.table({"id": [1], "blob": [b"new"]}))
            with table.start_job(shard=0) as job:
                job.flush()
            assert table.compact().num_generations == 1
        print(first.num_rows + sum(batch.num_rows for batch in batches))
        """,
        table.uri,
        call,
    )
    assert done.stdout.strip() == "1200", done.stderr
