"""Writers that are forked and killed, on request.

Owns: the running program `forks`, and that neither the program nor its child outlives the test.
Does not own: when a child is killed, or which rows must be there afterwards.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest

from .children import command, environment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# A guard against hangs, with time for a machine that runs other suites beside this one.
TIMEOUT_SECONDS = 240


class Forks:
    """The running `forks`, which gets the steps of a child and the moment of its kill."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def killed(self, **request: object) -> list[str]:
        """Let a child live until it is killed; return its output. A child that hangs fails."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()
        ready, _, _ = select.select([self.process.stdout], [], [], TIMEOUT_SECONDS)
        if not ready:
            os.killpg(self.process.pid, signal.SIGKILL)
            pytest.fail(f"the child hangs: {request}")
        died: dict[str, Any] = json.loads(self.process.stdout.readline())
        assert died["status"] == -signal.SIGKILL, f"the child ended by itself: {died}"
        said: list[str] = died["said"]
        return said


@contextmanager
def forks(more: Mapping[str, str] | None = None) -> Iterator[Forks]:
    """Start the program with additional environment variables, and end it."""
    with subprocess.Popen(  # noqa: S603 - our own program
        command("forks"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(more),
        start_new_session=True,
    ) as process:
        try:
            yield Forks(process)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
