"""One round: a table, its processes, their kills and stops, and their findings.

Owns: the processes and their fates. They are forks of this one, which has imported everything and
has started nothing, so that a life costs milliseconds. Does not own: what they do.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from . import shape
from .ending import Ending
from .foreign import Pylance
from .oracle import Oracle
from .reads import Reader
from .role import Role, Told, fault
from .upkeep import Maintainer
from .writing import WRITERS, Writer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ROLES: tuple[tuple[str, type[Role], int], ...] = (
    ("writer", Writer, WRITERS),
    ("reader", Reader, 2),
    ("maintainer", Maintainer, 2),
    ("pylance", Pylance, 1),
)
KILLED = 0.45
LONGEST_STOP_SECONDS = 0.4
# How long a role may take to end its last step.
END_SECONDS = 60
FINAL_SECONDS = 240
DAY = 86_400
# Offsets of clocks: none, a little, and more than any grace period.
OFFSETS = (0, 0, 0, -2, 3, -3_600, 3_600, 8 * DAY)
# pylance removes files of unfinished commits after seven days of its own clock.
PYLANCE_OFFSETS = (0, 0, -2, 3, -3_600, 3_600)


@dataclass
class Outcome:
    """The result of a round."""

    seed: str
    shape: shape.Shape
    folder: Path
    kills: int = 0
    stops: int = 0
    acknowledged: int = 0
    faults: list[dict[str, Any]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        """Return the result in one line, and each fault in one more."""
        verdict = f"{len(self.faults)} faults" if self.faults else "right"
        fates = f"{self.kills} kills, {self.stops} stops"
        lines = [f"seed {self.seed}: {verdict}; {fates}, {self.acknowledged} acks; {self.shape}"]
        lines += [f"  {json.dumps(each)[:1_500]}" for each in self.faults[:8]]
        if self.faults:
            lines.append(f"  kept in {self.folder}; again: make chaos ROUNDS=1 SEED={self.seed}")
        return "\n".join(lines)


class Process:
    """A fork that calls one function and ends."""

    def __init__(self, log: Path, what: Callable[[], None]) -> None:
        self.pid = os.fork()
        self.code: int | None = None
        if self.pid:
            return
        code = 1
        try:
            out = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            os.dup2(out, 1)
            os.dup2(out, 2)
            os.environ["LANCEMEM_THREADS"] = "2"
            what()
            code = 0
        except BaseException as error:  # noqa: BLE001 - it goes to the log, whatever it is
            fault(
                "a process died", error=repr(error)[:1_000], trace=traceback.format_exc()[-2_000:]
            )
        finally:
            os._exit(code)

    def has_ended(self) -> bool:
        """Return whether it has ended, and store its exit code."""
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
        return self.code is not None

    def signal(self, number: int) -> None:
        """Send a signal, if it still runs."""
        if not self.has_ended():
            os.kill(self.pid, number)

    def wait(self, seconds: float) -> bool:
        """Wait for its end; kill it and return False where it does not end."""
        deadline = time.monotonic() + seconds
        while not self.has_ended():
            if time.monotonic() > deadline:
                self.signal(signal.SIGKILL)
                os.waitpid(self.pid, 0)
                self.code = -signal.SIGKILL
                return False
            time.sleep(0.01)
        return True


class Round:
    """A round that runs."""

    def __init__(self, seed: str, seconds: float, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.seconds, self.folder, self.log = seconds, folder, folder / "log"
        self.uri = str(folder / "table.lance")
        self.chance = random.Random(f"round {seed}")  # noqa: S311 - a fixed seed is the point
        self.outcome = Outcome(seed, shape.draw(seed), folder)
        self.oracle = Oracle(folder / "oracle", create=True)
        self.lives = 0
        self.running: list[tuple[str, type[Role], int, Process]] = []

    def run(self) -> Outcome:
        """Create the table, run and kill the processes, check the table."""
        made = Process(self.log, lambda: shape.make(self.uri, self.outcome.shape))
        if made.wait(FINAL_SECONDS) and made.code == 0:
            for name, role, count in ROLES:
                for index in range(count):
                    self.start(name, role, index)
            try:
                self.disturb()
            finally:
                self.end()
            self.last_look()
        self.collect()
        return self.outcome

    def start(self, name: str, role: type[Role], index: int) -> None:
        """Start a life of a role, with a clock of its own."""
        self.lives += 1
        told = Told(
            uri=self.uri,
            folder=self.folder,
            seed=self.outcome.seed,
            name=f"{name}{index}",
            index=index,
            life=self.lives,
            shape=self.outcome.shape,
            clock_offset_seconds=self.chance.choice(
                PYLANCE_OFFSETS if role is Pylance else OFFSETS
            ),
        )
        self.running.append((name, role, index, Process(self.log, lambda: role(told).run())))

    def disturb(self) -> None:
        """Kill and stop processes at random; each that ends is followed by another life."""
        deadline = time.monotonic() + self.seconds
        while time.monotonic() < deadline:
            time.sleep(self.chance.uniform(0.05, 0.5))
            place = self.chance.randrange(len(self.running))
            name, role, index, process = self.running[place]
            if not process.has_ended():
                if self.chance.random() >= KILLED:
                    process.signal(signal.SIGSTOP)
                    time.sleep(self.chance.uniform(0.02, LONGEST_STOP_SECONDS))
                    process.signal(signal.SIGCONT)
                    self.outcome.stops += 1
                    continue
                process.signal(signal.SIGKILL)
                process.wait(END_SECONDS)
                self.outcome.kills += 1
            del self.running[place]
            self.start(name, role, index)

    def end(self) -> None:
        """Let every process end its step; a process that does not end is a fault."""
        self.oracle.end()
        for name, _, index, process in self.running:
            if not process.wait(END_SECONDS):
                self.found({"what": "hangs at the end", "process": f"{name}{index}"})

    def last_look(self) -> None:
        """Undo a restore that a kill left, and compare all ways to read the table."""
        told = Told(
            self.uri, self.folder, self.outcome.seed, "ending", 0, self.lives, self.outcome.shape
        )
        for role in (Pylance, Ending):
            process = Process(self.log, lambda role=role: role(told).run())  # type: ignore[misc]
            if not process.wait(FINAL_SECONDS):
                self.found({"what": "the last look hangs", "role": role.__name__})

    def collect(self) -> None:
        """Collect the log lines of the processes."""
        for line in self.log.read_text(errors="replace").splitlines():
            if not line.startswith("{"):
                continue
            said = json.loads(line)
            if said["kind"] == "fault":
                self.found(said)
            elif said["kind"] == "end":
                name = said["name"].rstrip("0123456789")
                self.outcome.counts.update({f"{name} {k}": v for k, v in said["counts"].items()})
        self.outcome.acknowledged = int(self.oracle.acked.sum())
        if not self.outcome.faults:
            shutil.rmtree(self.folder)

    def found(self, what: dict[str, Any]) -> None:
        """Keep a fault."""
        self.outcome.faults.append(what)
