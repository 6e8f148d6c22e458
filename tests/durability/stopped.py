"""A process that is stopped after a chosen call to the file system, in the middle of its work.

Owns: the child's program, which stops itself once, and the parent's side: it waits for the stop,
runs a test's block meanwhile and lets the child go on. Does not own: which call, or the block.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa

import lancemem

from .children import TIMEOUT_SECONDS, command, environment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("v", pa.string()),
        pa.field("n", pa.int32()),
    ]
)


def rows(ids: list[int], value: str) -> pa.Table:
    """Return rows of the stories' table."""
    columns = {"id": ids, "v": [value] * len(ids), "n": [1] * len(ids)}
    return pa.table(columns, schema=SCHEMA)


def do(uri: str, story: str, arguments: dict[str, Any]) -> None:
    """Do one story, whose last call is stopped."""
    if story == "open":
        arm()
        lancemem.open_table(uri)
        return
    if story == "enable":
        arm()
        lancemem.enable(uri)
        return
    table = lancemem.open_table(uri)
    if story == "alter_column":
        arguments["type"] = pa.type_for_alias(arguments["type"])
    if story == "flush":
        job = table.start_job(shard=0)
        job.put(rows([2000], "put"))
        # A new version of the base, so that the job's flush reads it.
        lance.write_dataset(rows([1500], "theirs"), uri, mode="append")
        arm()
        job.flush()
        job.close()
        return
    arm()
    if story == "to_table":
        table.scan().to_table()
    elif story == "count_rows":
        table.scan(filter="id >= 0").count_rows()
    elif story == "get":
        table.get(pa.table({"id": pa.array([7, 8], pa.int64())}))
    else:
        getattr(table, story)(**arguments)


def arm() -> None:
    """Stop after the call that the environment names."""
    call, pattern = (os.environ[name].encode() for name in ("STOP_CALL", "STOP_PATTERN"))
    ctypes.CDLL(os.environ["LD_PRELOAD"]).stop_behind(call, pattern, ctypes.c_long(1))


@contextmanager
def stopped(
    library: Path, uri: str, story: str, at: tuple[str, str], **arguments: object
) -> Iterator[None]:
    """Start a story; the block runs while it is stopped, and afterwards it has to succeed.

    `at` is the call as `syscalls.c` names it, and the pattern of its path in the table's folder.
    """
    call, pattern = at
    preloaded = {
        "LD_PRELOAD": str(library),
        "SYSCALLS_ROOT": uri,
        "SYSCALLS_LOG": os.devnull,
        "STOP_CALL": call,
        "STOP_PATTERN": pattern,
    }
    with subprocess.Popen(  # noqa: S603 - our own program
        command("stopped", uri, story, json.dumps(arguments)),
        env=environment(preloaded),
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        try:
            assert child.stderr is not None
            _, status = os.waitpid(child.pid, os.WUNTRACED)
            assert os.WIFSTOPPED(status), f"it was never stopped: {child.stderr.read()}"
            yield
            child.send_signal(signal.SIGCONT)
            _, said = child.communicate(timeout=TIMEOUT_SECONDS)
            assert child.returncode == 0, said
        finally:
            child.kill()


if __name__ == "__main__":
    do(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))
