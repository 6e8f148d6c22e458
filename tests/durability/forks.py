"""The program that forks a writer for each request, so that no life waits for its imports.

Owns: one child at a time, armed to end by SIGKILL behind a chosen call, and how it ended. It runs
with `syscalls.c` preloaded and never uses lancemem itself, so that a fork has one thread. Does not
own: which call, or what must be there afterwards (`test_kill_points`).
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import traceback
from typing import Any

import pyarrow as pa

from .writer import Writer


def live(request: dict[str, Any], said: int) -> None:
    """Be the child: live until killed, or to the end of the steps."""
    os.dup2(said, sys.stdout.fileno())
    call, pattern = (request[name].encode() for name in ("call", "pattern"))
    ctypes.CDLL(os.environ["LD_PRELOAD"]).kill_behind(
        call, pattern, ctypes.c_long(request["calls"])
    )
    Writer(request["uri"], None).do(request["steps"])


def main() -> None:
    """Answer each line of standard input with a line: how the child ended and what it said."""
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
        with os.fdopen(here) as pipe:
            said = pipe.read().splitlines()
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        sys.stdout.write(json.dumps({"status": status, "said": said}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
