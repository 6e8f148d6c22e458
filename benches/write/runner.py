"""The interleaved run of two or more sides.

Owns: the alternation, folders that live for one sample, the time limit of a case, progress.
Does not own: the work of a sample, or the meaning of the numbers.
"""

from __future__ import annotations

import gc
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

# A measurement by name: "rows/s", "p50", "fsyncs".
Sample: TypeAlias = dict[str, float]
Side: TypeAlias = Callable[[Path], Sample]


@dataclass
class Settings:
    """The options of the command line."""

    folder: Path
    pairs: int = 7
    quick: bool = False
    # Seconds after which a case takes no further pair, whatever `pairs` says.
    limit: float = 60.0
    started: float = field(default_factory=time.monotonic)

    def say(self, text: str) -> None:
        """Print progress with the seconds since the start."""
        print(f"[{time.monotonic() - self.started:6.1f} s] {text}", flush=True)


def interleave(
    settings: Settings, sides: dict[str, Side], pairs: int | None = None
) -> dict[str, list[Sample]]:
    """Run every side once a round, in an order that turns each round, on fresh folders."""
    found: dict[str, list[Sample]] = {name: [] for name in sides}
    names = list(sides)
    begun = time.monotonic()
    wanted = pairs or settings.pairs
    for number in range(wanted):
        for name in names if number % 2 == 0 else reversed(names):
            found[name].append(_sample(settings.folder, sides[name]))
        if time.monotonic() - begun > settings.limit and number + 1 < wanted:
            settings.say(f"  time limit of the case after {number + 1} of {wanted} pairs")
            break
    return found


def _sample(folder: Path, side: Side) -> Sample:
    place = folder / "sample"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    gc.collect()
    gc.disable()
    try:
        return side(place)
    finally:
        gc.enable()
        shutil.rmtree(place, ignore_errors=True)


def column(samples: list[Sample], name: str) -> list[float]:
    """Take one measurement of every sample."""
    return [sample[name] for sample in samples]
