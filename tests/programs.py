"""Programs in a process of their own, for what would end or hang the tests themselves.

Owns: running a program, and the prologue with which it asks a fork of itself. Not here: programs;
each is in its test.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap

# A fork sends its answer, which is printed; its exit code is returned.
IN_A_FORK = """
import multiprocessing, sys

def in_a_fork(child):
    fork = multiprocessing.get_context("fork")
    here, there = fork.Pipe()
    process = fork.Process(target=child, args=[there])
    process.start()
    if not here.poll(30):
        process.kill()
        sys.exit("the child hangs")
    print(here.recv())
    process.join(10)
    return process.exitcode
"""


def run_python(body: str, *arguments: str, before: str = "") -> subprocess.CompletedProcess[str]:
    """Run a program in a process of its own that cannot outlive the test."""
    command = [sys.executable, "-c", before + textwrap.dedent(body), *arguments]
    return subprocess.run(  # noqa: S603 - the program is in the test
        command, check=False, timeout=50, capture_output=True, text=True
    )
