"""The base of every process of a round: the table, the oracle, its own clock, and a log.

Owns: the loop of a role, which errors it may meet, and its lines in the log. Does not own: what a
role does (`writing`, `reads`, `upkeep`, `foreign`).
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import time
import traceback
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import lancemem

from .oracle import Oracle
from .shape import Shape, layout

if TYPE_CHECKING:
    from pathlib import Path

# Errors of any call while other processes claim shards and remove old versions.
PASSING = (lancemem.RetryableError,)
# The error of a reader whose files were removed by a collection without a grace period.
READ = (lancemem.RetryableError, lancemem.CorruptionError, lancemem.InvalidInputError)
LONGEST_TEXT = 1_500


@dataclass(frozen=True)
class Told:
    """The parameters of a process."""

    uri: str
    folder: Path
    seed: str
    name: str
    index: int
    life: int
    shape: Shape
    clock_offset_seconds: int = 0

    @property
    def oracle(self) -> Path:
        """Name the file of the oracle."""
        return self.folder / "oracle"


def say(kind: str, **more: Any) -> None:  # noqa: ANN401 - what JSON can hold
    """Write one line of the log, in one call, so that a killed process leaves no half line."""
    line = json.dumps({"kind": kind, "process": os.getpid(), **more}, default=str)
    os.write(1, f"{line}\n".encode())


def fault(what: str, **more: Any) -> None:  # noqa: ANN401
    """Record a fault, which fails the round."""
    say("fault", what=what, **more)


def set_clock(offset_seconds: int) -> None:
    """Shift the wall clock of this process, where `clock.c` is loaded."""
    shift = getattr(ctypes.CDLL(None), "chaos_set_clock_offset", None)
    if shift is not None:
        shift(ctypes.c_longlong(offset_seconds))


class Role:
    """One process of a round, from its start to its end or its death."""

    def __init__(self, told: Told) -> None:
        set_clock(told.clock_offset_seconds)
        self.told, self.shape = told, told.shape
        self.oracle = Oracle(told.oracle)
        name = f"{told.seed} {told.name} {told.life}"
        self.chance = random.Random(name)  # noqa: S311 - a fixed seed is the point
        self.counts: Counter[str] = Counter()
        self.prepare()
        self.table = self.opened()
        self.layout = layout(self.table, self.shape)

    def prepare(self) -> None:
        """Prepare the place before the table can be opened."""

    def opened(self) -> lancemem.Table:
        """Open the table; repeat it while commits of another process make the open fail."""
        while True:
            try:
                return lancemem.open_table(self.told.uri)
            except READ as error:
                self.met("open", error, READ)
                if self.oracle.is_over and self.oracle.restores % 2 == 0:
                    raise
                time.sleep(0.05)

    def run(self) -> None:
        """Do one step after another until the round is over."""
        while not self.oracle.is_over:
            self.step()
        say("end", name=self.told.name, counts=self.counts)

    def step(self) -> None:
        """Do one thing."""
        raise NotImplementedError

    def met(self, what: str, error: Exception, allowed: tuple[type[Exception], ...]) -> None:
        """Count an error; an error that is not allowed here is a fault."""
        kind = f"{what}: {type(error).__name__}"
        self.counts[kind] += 1
        text = str(error)[:LONGEST_TEXT]
        if not isinstance(error, allowed):
            trace = traceback.format_exc()[-LONGEST_TEXT:]
            fault(
                "unexpected error", where=what, error=type(error).__name__, text=text, trace=trace
            )
        elif self.counts[kind] == 1:
            say("allowed", where=what, error=type(error).__name__, text=text)
