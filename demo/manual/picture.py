"""The picture and the histogram of a run.

Owns the drawing, on paper and in a terminal. Does not own the measurements.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib as mpl

# Chosen before pyplot is imported: a demo must not need a display.
mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

    from demo.manual.measures import EditTimes

# Milliseconds; the last bin has everything above its edge.
EDGES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
BAR = 40
COLOUR = "#c8553d"
OTHER_COLOUR = "#2a6f97"


def bins_of(values: Sequence[float]) -> list[tuple[str, int]]:
    """Count the values of each bin; 0 has a bin of its own."""
    edges = [0.0, *map(float, EDGES)]
    places = np.searchsorted(edges, np.asarray(values, dtype=np.float64), side="left")
    names = [
        "0",
        *(f"to {edge:,}" for edge in EDGES),
        f"over {EDGES[-1]:,}",
    ]
    counts = np.bincount(places, minlength=len(names)).tolist()
    return list(zip(names, counts, strict=True))


def histogram(values: Sequence[float]) -> str:
    """Return the histogram as lines of text."""
    bins = bins_of(values)
    most = max(1, *(count for _, count in bins))
    return "\n".join(
        f"  {name:>10} ms {count:5} {'#' * -(-count * BAR // most)}" for name, count in bins
    )


def draw(path: Path, times: Sequence[EditTimes], title: str) -> None:
    """Write the picture of a run to `path`."""
    figure, (bars, line, taken) = plt.subplots(3, 1, figsize=(9, 9))
    bins = bins_of([it.fresh_ms for it in times if it.fresh_ms is not None])
    bars.bar([name for name, _ in bins], [count for _, count in bins], color=COLOUR)
    bars.set_ylabel("edits")
    bars.tick_params(axis="x", labelrotation=30)
    bars.set_xlabel("acknowledged to found by another process, ms")
    bars.set_title(title)
    numbers = [it.number for it in times if it.fresh_ms is not None]
    line.plot(
        numbers,
        [it.fresh_ms for it in times if it.fresh_ms is not None],
        "o",
        markersize=3,
        alpha=0.6,
        color=COLOUR,
    )
    line.set_ylabel("acknowledged to found, ms")
    line.set_ylim(bottom=0)
    line.yaxis.set_major_formatter("{x:g}")
    _mark_releases(line, times)
    taken.plot(
        [it.number for it in times],
        [it.write_s for it in times],
        "o",
        markersize=3,
        alpha=0.6,
        color=OTHER_COLOUR,
    )
    taken.set_ylabel("file written to acknowledged, s")
    taken.set_ylim(bottom=0)
    taken.set_xlabel("edit")
    _mark_releases(taken, times)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _mark_releases(axes: Axes, times: Sequence[EditTimes]) -> None:
    seen = ""
    for it in times:
        if it.release != seen:
            seen = it.release
            axes.axvline(it.number, color="grey", linewidth=0.8, linestyle=":")
            axes.text(
                it.number,
                0.98,
                f" {seen}",
                transform=axes.get_xaxis_transform(),
                va="top",
                fontsize=8,
            )
