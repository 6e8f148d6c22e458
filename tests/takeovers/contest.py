"""Contenders for one shard, one of which sleeps now and then, and their output.

Owns: the processes, their stops in mid-call and kills, and the history of each key.
Does not own: the check of a history (`histories`).
"""

from __future__ import annotations

import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.s3.running import environment

from .contender import KEYS
from .histories import NOTHING, Operation

if TYPE_CHECKING:
    from pathlib import Path

CONTENDERS = 4
MAX_SLEEP_SECONDS = 0.15
KILLS = 0.1


@dataclass
class Contest:
    """The result of a contest."""

    epochs: list[int] = field(default_factory=list)
    fenced: int = 0
    unanswered: int = 0
    compacted: int = 0
    histories: list[list[Operation]] = field(default_factory=lambda: [[] for _ in range(KEYS)])

    def add(self, lines: list[str]) -> None:
        """Add the output of one process."""
        open_write: tuple[int, str, float] | None = None
        for line in lines:
            said = json.loads(line)
            if said["event"] == "claimed":
                self.epochs.append(said["epoch"])
            elif said["event"] == "fenced":
                self.fenced += 1
                self._unanswered(open_write)
                open_write = None
            elif said["event"] == "write":
                open_write = (said["key"], said["value"], said["at"])
            elif said["event"] == "written":
                assert open_write is not None
                written = Operation("write", said["value"], open_write[2], said["at"])
                self.histories[said["key"]].append(written)
                open_write = None
            elif said["event"] == "compacted":
                self.compacted += said["generations"]
            else:
                self._read(said)
        self._unanswered(open_write)

    def _unanswered(self, write: tuple[int, str, float] | None) -> None:
        if write is not None:
            key, value, begin = write
            self.unanswered += 1
            self.histories[key].append(Operation("write", value, begin, math.inf))

    def _read(self, said: dict[str, Any]) -> None:
        found = dict(said["found"])
        assert len(found) == len(said["found"]), f"a key was read twice: {said}"
        for key, history in enumerate(self.histories):
            history.append(Operation("read", found.get(key, NOTHING), said["begin"], said["at"]))


class Process:
    """A contender that runs."""

    def __init__(self, log: Path, told: dict[str, Any]) -> None:
        self.log, self.errors = log, log.with_suffix(".errors")
        with log.open("wb") as said, self.errors.open("wb") as errors:
            self.child = subprocess.Popen(
                [sys.executable, "-m", "tests.takeovers.contender"],
                stdin=subprocess.PIPE,
                stdout=said,
                stderr=errors,
                env=environment(),
            )
        assert self.child.stdin is not None
        self.child.stdin.write(f"{json.dumps(told)}\n".encode())
        self.child.stdin.close()

    def lines(self) -> list[str]:
        """Return its output."""
        return self.log.read_text().splitlines()

    def end(self) -> None:
        """Kill it, if it still runs."""
        self.child.kill()
        self.child.wait(30)


def _end_all(processes: list[Process]) -> None:
    for process in processes:
        process.end()


def run(folder: Path, told: dict[str, Any], seed: str, deadline_seconds: float) -> Contest:
    """Let processes take a shard from each other until it was claimed `told["claims"]` times.

    One contender at a time is stopped in the middle of a call while others claim the shard. It
    wakes up with its old claim. Some contenders are killed instead, and new ones replace them.
    """
    chance = random.Random(seed)  # noqa: S311 - a fixed seed is the point
    deadline = time.monotonic() + deadline_seconds
    every: list[Process] = []

    def start() -> Process:
        name = f"p{len(every)}"
        process = Process(folder / name, told | {"name": name, "seed": f"{seed} {name}"})
        every.append(process)
        return process

    with ExitStack() as ending:
        running = [start() for _ in range(CONTENDERS)]
        ending.callback(_end_all, every)
        while any(process.child.poll() is None for process in running):
            assert time.monotonic() < deadline, "no end"
            place = chance.randrange(CONTENDERS)
            if running[place].child.poll() is None:
                sleeper = running[place].child.pid
                os.kill(sleeper, signal.SIGSTOP)
                time.sleep(chance.uniform(0, MAX_SLEEP_SECONDS))
                os.kill(sleeper, signal.SIGCONT)
                if chance.random() < KILLS:
                    running[place].end()
                    running[place] = start()
            time.sleep(chance.uniform(0, MAX_SLEEP_SECONDS))
    contest = Contest()
    for process in every:
        ended = process.child.returncode
        assert ended in {0, -signal.SIGKILL}, f"{ended}: {process.errors.read_text()[-4000:]}"
        contest.add(process.lines())
    return contest
