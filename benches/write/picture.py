"""One picture: rows a second of lancemem and of each peer, bursts beside sustained rates.

Owns: docs/images/write.png, with its own background so that it is readable on light and dark pages.
Each panel has absolute values on a linear axis from zero. Does not own: the numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt

from benches.write.stats import spread

if TYPE_CHECKING:
    from pathlib import Path

    from benches.write.stats import Comparison

INK, GROUND, GRID = "#1f2933", "#f7f8fa", "#cbd2d9"
COLOURS = {"int64": "#0b6e99", "utf8 uuid": "#c2571a", "composite": "#5b7f2b"}
OURS, THEIRS = "#0b6e99", "#c2571a"
# The bars of a panel: a bench and its sustained counterpart.
PARTS = {"burst": "", "with flush\nand close": "-sustained"}
COLUMNS = 5
TITLE = (
    "put from Python, not durable: million rows a second beside each peer "
    "(int64 keys at random unless named)"
)
# Panels of the second row: other keys, then the key-value engines.
OTHERS = [("put", "utf8 uuid", "random"), ("put", "composite", "random")]
BATCH = 1_000


@dataclass(frozen=True)
class Panel:
    """One panel: its title and its comparisons, a burst and a sustained rate."""

    title: str
    parts: dict[str, Comparison]


def panels(found: dict[str, list[Comparison]]) -> list[Panel]:
    """Choose what is drawn: every batch size of one key, other keys, the key-value engines.

    Args:
        found: The comparisons by their benches.

    Returns:
        The panels; those whose figures were not measured are left out.
    """
    chosen = [
        (f"pylance, batch {line.facts['batch']:,}", "put", line)
        for line in found.get("put", [])
        if (line.facts["kind"], line.facts["order"]) == ("int64", "random")
    ]
    chosen += [
        (f"pylance, {kind}, batch {BATCH:,}", bench, line)
        for bench, kind, order in OTHERS
        for line in found.get(bench, [])
        if (line.facts["kind"], line.facts["order"], line.facts["batch"]) == (kind, order, BATCH)
    ]
    chosen += [
        (f"{line.peer}, {line.facts['order']}, batch {BATCH:,}", "key-value", line)
        for line in found.get("key-value", [])
        if line.peer == "RocksDB" or line.facts["order"] == "random"
    ]
    made = []
    for title, bench, burst in chosen:
        parts = {}
        for name, suffix in PARTS.items():
            lines = found.get(f"{bench}{suffix}", [])
            same = [it for it in lines if (it.label, it.peer) == (burst.label, burst.peer)]
            if same:
                parts[name] = same[0]
        made.append(Panel(title, parts))
    return made


def draw(found: dict[str, list[Comparison]], path: Path) -> bool:
    """Draw the picture, if its figures were measured."""
    chosen = panels(found)
    if not chosen:
        return False
    rows = -(-len(chosen) // COLUMNS)
    figure, grid = plt.subplots(
        rows, COLUMNS, figsize=(12.5, 3.1 * rows), facecolor=GROUND, layout="constrained",
        squeeze=False,
    )  # fmt: skip
    every = list(grid.flat)
    for axes, panel in zip(every, chosen, strict=False):
        _draw_panel(axes, panel)
    for axes in every[len(chosen) :]:
        axes.set_visible(False)
    figure.suptitle(TITLE, color=INK, size=12)
    figure.legend(*every[0].get_legend_handles_labels(), loc="outside lower center", ncols=2,
                  facecolor=GROUND, edgecolor=GRID, labelcolor=INK, fontsize=9)  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, facecolor=GROUND)
    plt.close(figure)
    return True


def style(axes: Any, title: str) -> None:  # noqa: ANN401 - matplotlib's axes
    """Give axes the look of the pictures."""
    axes.set_facecolor(GROUND)
    axes.set_title(title, color=INK, size=10)
    axes.tick_params(colors=INK)
    axes.grid(visible=True, axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(INK)


def _draw_panel(axes: Any, panel: Panel) -> None:  # noqa: ANN401 - as above
    """Draw two pairs of bars, with the range of the samples."""
    style(axes, panel.title)
    for side, colour, shift in (("lancemem", OURS, -0.2), ("peer", THEIRS, 0.2)):
        samples = [it.ours if side == "lancemem" else it.theirs for it in panel.parts.values()]
        found = [spread(values) for values in samples]
        middle = [it.median / 1e6 for it in found]
        errors = [
            [(it.median - it.least) / 1e6 for it in found],
            [(it.most - it.median) / 1e6 for it in found],
        ]
        places = [place + shift for place in range(len(found))]
        drawn = axes.bar(places, middle, 0.38, yerr=errors, color=colour, label=side,
                         ecolor=INK, error_kw={"linewidth": 0.8}, capsize=2)  # fmt: skip
        labels = [f"{value:.2g}" if value < 10 else f"{value:.0f}" for value in middle]
        axes.bar_label(drawn, labels=labels, padding=2, color=INK, size=8)
    axes.set_xticks(range(len(panel.parts)), list(panel.parts), fontsize=8)
    # In this order: a limit that is set ends the margins of later calls.
    axes.margins(y=0.15)
    axes.set_ylim(bottom=0)
