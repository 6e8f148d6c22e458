"""Runs `writer` in a process that cannot outlive the test.

Owns: starting it, with or without the log of calls, and reading its output. Does not own: the
meaning of the output.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import disk
from .calls import MARKS, Call, Mark, marks_of, read_calls

if TYPE_CHECKING:
    from collections.abc import Mapping

TIMEOUT_SECONDS = 240
TABLE = "table.lance"
TESTS = Path(__file__).parents[1]


@dataclass(frozen=True)
class Logged:
    """A life of a writer that ended by itself: its calls and the events between them."""

    folders: tuple[str, ...]
    calls: list[Call] = field(repr=False)
    marks: list[Mark] = field(repr=False)

    def disk(self) -> disk.Disk:
        """Return the disk as it was before the first call."""
        return disk.Disk(*self.folders)

    def at(self, event: str, number: int = 0) -> int:
        """Return the place of an event among the calls."""
        places = [m.at for m in self.marks if (m.event, m.number) == (event, number)]
        assert places, f"the child never said '{event} {number}'"
        return places[0]


def command(program: str, *arguments: str) -> list[str]:
    """Return the full name of a module of this package, wherever the tests were started."""
    return [sys.executable, "-m", f"{__package__}.{program}", *arguments]


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment in which a child finds this package."""
    top = Path(__file__).parents[len(str(__package__).split("."))]
    return {**os.environ, "PYTHONPATH": str(top), **(more or {})}


def run_logged(
    library: Path, root: Path, steps: list[list[Any]], folders: tuple[str, ...] = (TABLE,)
) -> Logged:
    """Let a writer do `steps` on `root/table.lance` and read the log of its calls.

    `folders` are in `root` before, empty and safe on the disk.
    """
    for folder in folders:
        (root / folder).mkdir(parents=True)
    root.mkdir(exist_ok=True)
    log = root.with_suffix(".log")
    ended = subprocess.run(  # noqa: S603 - our own program
        command("writer", str(root / TABLE), str(root / MARKS)),
        input=json.dumps(steps),
        env=environment(
            {"LD_PRELOAD": str(library), "SYSCALLS_ROOT": str(root), "SYSCALLS_LOG": str(log)}
        ),
        timeout=TIMEOUT_SECONDS,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    found = read_calls(log, root)
    logged = Logged(folders, found, marks_of(found))
    replayed = logged.disk()
    for call in found:
        replayed.apply(call)
    assert replayed.now() == disk.read_back(root), "the log does not explain what is on the disk"
    return logged
