"""One picture: how many times as fast as each peer, by batch size.

Owns: docs/images/write.png, with its own background so that it is readable on light and dark pages.
Does not own: the numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt

if TYPE_CHECKING:
    from pathlib import Path

    from benches.write.stats import Comparison

INK, GROUND, GRID = "#1f2933", "#f7f8fa", "#cbd2d9"
COLOURS = {"int64": "#0b6e99", "utf8 uuid": "#c2571a", "composite": "#5b7f2b"}
STYLES = {"sequential": ("-", "o"), "random": ("--", "s"), "updates": (":", "^")}


def draw(found: dict[str, list[Comparison]], path: Path) -> bool:
    """Draw the picture, if its figures were measured."""
    puts, others = found.get("put", []), found.get("key-value", [])
    if not puts:
        return False
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(11, 4.8), width_ratios=[2, 1], facecolor=GROUND, layout="constrained"
    )
    _draw_puts(left, puts)
    _draw_peers(right, others)
    figure.suptitle("put from Python, not durable: lancemem beside its peers", color=INK, size=14)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, facecolor=GROUND)
    plt.close(figure)
    return True


def style(axes: Any, title: str) -> None:  # noqa: ANN401 - matplotlib's axes
    """Give axes the look of the pictures."""
    axes.set_facecolor(GROUND)
    axes.set_title(title, color=INK, size=11)
    axes.tick_params(colors=INK)
    axes.grid(visible=True, axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(INK)


def _draw_puts(axes: Any, puts: list[Comparison]) -> None:  # noqa: ANN401 - as above
    style(axes, "times as fast as pylance's ShardWriter")
    lines: dict[tuple[str, str], list[Comparison]] = {}
    for line in puts:
        lines.setdefault((line.facts["kind"], line.facts["order"]), []).append(line)
    for (kind, order), group in lines.items():
        stroke, mark = STYLES[order]
        sizes = [line.facts["batch"] for line in group]
        found = [line.interval() for line in group]
        middle = [ratio for ratio, _, _ in found]
        errors = [[m - low for m, low, _ in found], [high - m for m, _, high in found]]
        look = {"color": COLOURS[kind], "linestyle": stroke, "marker": mark, "markersize": 5}
        label = f"{kind}, {order}"
        axes.errorbar(
            sizes, middle, yerr=errors, linewidth=1.6, elinewidth=0.7, label=label, **look
        )
    goal = puts[0].goal
    if goal is not None:
        axes.axhline(goal.bound, color="#b3261e", linewidth=1.2)
        axes.annotate(f"goal {goal.bound:g}x", (1, goal.bound), xytext=(0, 4),
                      textcoords="offset points", color="#b3261e", size=9)  # fmt: skip
    axes.axhline(1, color=INK, linewidth=1)
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_xticks([1, 10, 100, 1_000, 10_000], ["1", "10", "100", "1,000", "10,000"])
    axes.set_xlabel("rows a batch", color=INK)
    axes.set_ylabel("lancemem / pylance, rows/s", color=INK)
    axes.legend(fontsize=8, ncols=3, facecolor=GROUND, edgecolor=GRID, labelcolor=INK)


def _draw_peers(axes: Any, others: list[Comparison]) -> None:  # noqa: ANN401 - as above
    """Ratios against the key-value engines; each comes from a separate run with lancemem."""
    style(axes, "key-value engines, batch 1,000")
    names = [f"{line.peer}\n{line.facts['order']}" for line in others]
    found = [line.interval() for line in others]
    middle = [ratio for ratio, _, _ in found]
    errors = [[m - low for m, low, _ in found], [high - m for m, _, high in found]]
    look = {"color": COLOURS["int64"], "width": 0.62, "ecolor": INK, "capsize": 3}
    drawn = axes.bar(names, middle, yerr=errors, **look)
    axes.bar_label(drawn, labels=[f"{ratio:.1f}x" for ratio in middle], label_type="center",
                   color="white", size=9)  # fmt: skip
    if others and others[0].goal is not None:
        axes.axhline(others[0].goal.bound, color="#b3261e", linewidth=1.2)
    axes.axhline(1, color=INK, linewidth=1)
    axes.tick_params(axis="x", labelsize=8)
