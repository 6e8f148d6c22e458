"""One picture of a run: events a second, freshness, and the lag of the second table over time.

Owns the drawing. Does not own the measurements.
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

    from demo.measures import MicroBatch

WRITE_COLOUR = "#2a6f97"
FRESHNESS_COLOUR = "#c8553d"
MIRROR_COLOUR = "#588157"


def draw(path: Path, micro_batches: Sequence[MicroBatch], title: str) -> None:
    """Write the picture of a run to `path`."""
    figure, (rate, freshness, mirror) = plt.subplots(3, 1, sharex=True, figsize=(9, 8))
    rate.bar(
        [batch.started_s for batch in micro_batches],
        [batch.events_per_second for batch in micro_batches],
        width=[batch.write_s for batch in micro_batches],
        align="edge",
        color=WRITE_COLOUR,
    )
    rate.set_ylabel("events a second")
    rate.set_ylim(bottom=0)
    rate.yaxis.set_major_formatter("{x:,.0f}")
    rate.set_title(title)
    seconds = [batch.probed_s for batch in micro_batches for _ in batch.freshness_ms]
    values = [value for batch in micro_batches for value in batch.freshness_ms]
    freshness.plot(seconds, values, "o", markersize=3, alpha=0.5, color=FRESHNESS_COLOUR)
    if values:
        _mark_percentiles(freshness, values)
    freshness.set_ylabel("acknowledged to seen, ms")
    freshness.set_ylim(bottom=0)
    freshness.yaxis.set_major_formatter("{x:g}")
    mirror.plot(
        [batch.probed_s for batch in micro_batches],
        [batch.mirror_lag_s for batch in micro_batches],
        "o-",
        markersize=4,
        color=MIRROR_COLOUR,
    )
    mirror.set_ylabel("mirror behind, s")
    mirror.set_ylim(bottom=0)
    mirror.set_xlabel("seconds since the first micro-batch")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _mark_percentiles(axes: Axes, values: Sequence[float]) -> None:
    for percent, style in ((50, "-"), (99, "--")):
        value = float(np.percentile(values, percent))
        axes.axhline(
            value, linestyle=style, linewidth=1, color="black", label=f"p{percent} {value:.1f} ms"
        )
    axes.legend(loc="upper right")
