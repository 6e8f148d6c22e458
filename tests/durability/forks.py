"""The program that forks a writer for each request, so that no life waits for its imports.

Owns: one child at a time; its end by SIGKILL, after a chosen call or some time after enough lines
of output; and how it ended. It never uses lancemem itself, so that a fork has one thread. Does not
own: which call or when, or which rows are there afterwards (`test_kill_points`, `test_kill`).
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
import traceback
from typing import Any

import pyarrow as pa

from .writer import Writer


def live(request: dict[str, Any], said: int) -> None:
    """Run the child until it is killed, or to the end of the steps."""
    os.dup2(said, sys.stdout.fileno())
    if behind := request.get("behind"):
        call, pattern = (behind[name].encode() for name in ("call", "pattern"))
        library = ctypes.CDLL(os.environ["LD_PRELOAD"])
        library.kill_behind(call, pattern, ctypes.c_long(behind["calls"]))
    Writer(request["uri"], None).do(request["steps"])


def watch(request: dict[str, Any], child: int, here: int) -> bytes:
    """Read the child's output until its death, and kill it at its time if one is set."""
    said = b""
    if after := request.get("after"):
        while said.count(b"\n") < after["lines"] and (more := os.read(here, 1 << 16)):
            said += more
        time.sleep(after["seconds"])
        os.kill(child, signal.SIGKILL)
    with os.fdopen(here, "rb") as pipe:
        return said + pipe.read()


def main() -> None:
    """Answer each line of standard input with a line: how the child ended and its output."""
    # The first table of a process waits for pandas, which takes longer than a life.
    pa.table({"id": [1]})
    for line in sys.stdin:
        request = json.loads(line)
        here, there = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                live(request, there)
                os._exit(0)
            except BaseException:  # noqa: BLE001 - a child must not go on as its parent
                traceback.print_exc()
                os._exit(1)
        os.close(there)
        said = watch(request, child, here).decode().splitlines()
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        sys.stdout.write(json.dumps({"status": status, "said": said}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
