"""Statistics of pairs of measurements.

Owns: median, range, the ratio with its 95 % interval, and the verdict on a goal.
Does not own: how anything is measured, or how it is printed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np

Verdict: TypeAlias = Literal["yes", "no", "within noise", "no goal"]
RESAMPLES = 4_000


@dataclass(frozen=True)
class Goal:
    """A bound on a ratio. `at_least` bounds it from below, else from above."""

    bound: float
    at_least: bool = True

    def text(self) -> str:
        """Return the goal in the form of the tables."""
        return f"{'at least' if self.at_least else 'at most'} {self.bound:g}x"

    def judge(self, low: float, high: float) -> Verdict:
        """Judge by the whole interval: a goal that lies inside of it is neither met nor missed."""
        worst, best = (low, high) if self.at_least else (-high, -low)
        bound = self.bound if self.at_least else -self.bound
        if worst >= bound:
            return "yes"
        return "no" if best < bound else "within noise"


@dataclass(frozen=True)
class Spread:
    """Several measurements of one side."""

    median: float
    least: float
    most: float


def spread(values: list[float]) -> Spread:
    """Summarize one side."""
    return Spread(float(np.median(values)), min(values), max(values))


@dataclass
class Comparison:
    """One line of a table: pairs of measurements of the same work."""

    bench: str
    label: str
    peer: str
    unit: str
    ours: list[float]
    theirs: list[float]
    goal: Goal | None = None
    # For latencies ("lower" is the goal) the ratio is the peer's divided by lancemem's.
    inverse: bool = False
    # More columns, as (heading, lancemem, peer).
    notes: list[tuple[str, str, str]] = field(default_factory=list)
    # Properties for a picture: batch size, key kind and so on.
    facts: dict[str, Any] = field(default_factory=dict)

    def ratios(self) -> list[float]:
        """Divide pair by pair."""
        pairs = zip(self.ours, self.theirs, strict=True)
        return [theirs / ours if self.inverse else ours / theirs for ours, theirs in pairs]

    def interval(self) -> tuple[float, float, float]:
        """Compute the median ratio and its 95 % interval, by bootstrap over the pairs."""
        ratios = np.array(self.ratios())
        random = np.random.default_rng(95)
        picks = random.integers(0, len(ratios), (RESAMPLES, len(ratios)))
        low, high = np.percentile(np.median(ratios[picks], axis=1), [2.5, 97.5])
        return float(np.median(ratios)), float(low), float(high)

    def faster(self) -> str:
        """Name the side that is faster, by the whole interval; the peer where it wins."""
        _, low, high = self.interval()
        if low <= 1 <= high:
            return "within noise"
        # Of rates the larger is faster, of times the smaller.
        more_is_faster = self.inverse or self.unit.endswith("/s")
        return "lancemem" if (low > 1) == more_is_faster else self.peer

    def verdict(self) -> Verdict:
        """Return whether the goal is met."""
        if self.goal is None:
            return "no goal"
        _, low, high = self.interval()
        return self.goal.judge(low, high)
