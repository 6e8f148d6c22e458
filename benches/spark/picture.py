"""One picture of benches/RESULTS-spark.md: shares of Spark's own rates, and times beside engines.

    python -m benches.spark.picture

Owns: docs/images/spark.png, and the lines of the page that it reads. Does not own: the numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt

from benches.write.picture import COLOURS, GROUND, INK, style

RESULTS = Path(__file__).parents[1] / "RESULTS-spark.md"
PICTURE = Path(__file__).parents[2] / "docs" / "images" / "spark.png"
# By the first words of a line: the label of the bar, and its goal in per cent.
SHARES = {
    "`upsert`": ("upsert", 50),
    '`format("lancemem")`': ("format write", 60),
    "read": ("read", 70),
}
CASES = {"micro-batch": "micro-batch", "4 writers": "4 writers", "10,000,000": "load and read"}


@dataclass
class Beside:
    """One engine in one case: how many times as long as lancemem it took, None if it did not."""

    case: str
    engine: str
    times: float | None
    text: str


def rows_of(page: str) -> list[list[str]]:
    """Return the cells of every line of the page's tables."""
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def shares(rows: list[list[str]]) -> list[tuple[str, float, int]]:
    """Return name, share and goal in per cent of each line that has a share."""
    return [
        (name, float(cells[3].rstrip("%")), goal)
        for cells in rows
        for start, (name, goal) in SHARES.items()
        if cells[0].startswith(start) and cells[3].endswith("%")
    ]


def beside(rows: list[list[str]]) -> list[Beside]:
    """Return the lines of the engines that are not lancemem."""
    found = []
    for cells in rows:
        case = next((name for start, name in CASES.items() if cells[0].startswith(start)), None)
        if case is None or cells[1].startswith(("lancemem", "Spark alone")):
            continue
        engine = " ".join(cells[1].split(" (")[0].split()[:2]).rstrip(",")
        times = float(cells[3].split()[0]) if cells[3] else None
        found.append(Beside(case, engine, times, f"{times:g} x" if times else cells[2]))
    return found


def draw(page: str, path: Path) -> None:
    """Draw the picture."""
    rows = rows_of(page)
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(11, 4.4), width_ratios=[1, 2], facecolor=GROUND, layout="constrained"
    )
    _draw_shares(left, shares(rows))
    _draw_beside(right, beside(rows))
    figure.suptitle("lancemem inside Spark, local[2]", color=INK, size=14)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, facecolor=GROUND)
    plt.close(figure)


def _draw_shares(axes: Any, found: list[tuple[str, float, int]]) -> None:  # noqa: ANN401 - matplotlib's
    style(axes, "share of the rate of Spark alone, %")
    names = [name for name, _, _ in found]
    drawn = axes.bar(names, [share for _, share, _ in found], color=COLOURS["int64"], width=0.6)
    axes.bar_label(drawn, fmt="%.0f", label_type="center", color="white", size=10)
    for place, (_, _, goal) in enumerate(found):
        axes.plot([place - 0.4, place + 0.4], [goal, goal], color="#b3261e", linewidth=1.6)
    axes.set_ylim(0, 100)


def _draw_beside(axes: Any, found: list[Beside]) -> None:  # noqa: ANN401 - as above
    style(axes, "times lancemem's time")
    names = [f"{line.engine}: {line.case}" for line in found]
    drawn = axes.barh(names, [line.times or 0 for line in found], color=COLOURS["utf8 uuid"])
    axes.bar_label(drawn, labels=[line.text for line in found], padding=3, color=INK, size=9)
    axes.axvline(1, color=INK, linewidth=1)
    axes.set_xscale("symlog", linthresh=1)
    axes.margins(x=0.25)
    axes.invert_yaxis()


if __name__ == "__main__":
    draw(RESULTS.read_text(), PICTURE)
    print(PICTURE)
