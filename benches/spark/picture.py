"""One picture of benches/RESULTS-spark.md: rates beside Spark's own, and times beside engines.

    python -m benches.spark.picture

Owns: docs/images/spark.png, and the lines of the page that it reads. Each panel has absolute values
on a linear axis from zero. Does not own: the numbers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt

from benches.write.picture import GRID, GROUND, INK, OURS, THEIRS, style

RESULTS = Path(__file__).parents[1] / "RESULTS-spark.md"
PICTURE = Path(__file__).parents[2] / "docs" / "images" / "spark.png"
# By the first words of a line: the label of its bars.
RATES = {"`upsert`": "upsert", '`format("lancemem")`': "format write", "read": "read"}
# By the start of a line: the title of a panel, and the unit of its times.
CASES = {
    r"micro-batch of": "a micro-batch, ms",
    r"\d+ writers": "4 writers, s",
    r"[\d,]+ rows, 10 upserts": "load and read, s",
}
ALONE = "Spark alone"


@dataclass
class Rate:
    """One case of one session, in million rows a second."""

    case: str
    lancemem: float
    alone: float


@dataclass
class Time:
    """One engine in one case: its time in the unit of the case, None if it was not done."""

    case: str
    engine: str
    time: float | None
    text: str


def rows_of(page: str) -> list[list[str]]:
    """Return the cells of every line of the page's tables."""
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def rates(rows: list[list[str]]) -> list[Rate]:
    """Return the rate of each line that has one, beside Spark's."""
    found = []
    for cells in rows:
        case = next((name for start, name in RATES.items() if cells[0].startswith(start)), None)
        if case is not None and "M rows/s" in cells[1]:
            ours, alone = (float(cell.split()[0]) for cell in cells[1:3])
            found.append(Rate(case, ours, alone))
    return found


def times(rows: list[list[str]]) -> list[Time]:
    """Return the time of each engine in each case, lancemem's too."""
    found = []
    for cells in rows:
        case = next((name for start, name in CASES.items() if re.match(start, cells[0])), None)
        if case is None:
            continue
        engine = cells[1].split(" (")[0].split(":")[0].split(" `")[0]
        number = cells[2].split()[0]
        time = float(number) if number.replace(".", "").isdigit() else None
        text = f"{time:,g}" if time is not None else cells[2].split(":")[0]
        found.append(Time(case, engine, time, text))
    return found


def draw(page: str, path: Path) -> None:
    """Draw the picture."""
    rows = rows_of(page)
    figure, panels = plt.subplots(
        2, 2, figsize=(11, 6.4), facecolor=GROUND, layout="constrained", squeeze=False
    )
    first, *others = panels.flat
    _draw_rates(first, rates(rows))
    found = times(rows)
    for axes, title in zip(others, CASES.values(), strict=True):
        _draw_times(axes, title, [line for line in found if line.case == title])
    figure.suptitle("lancemem inside Spark, local[2]", color=INK, size=14)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, facecolor=GROUND)
    plt.close(figure)


def _draw_rates(axes: Any, found: list[Rate]) -> None:  # noqa: ANN401 - matplotlib's
    style(axes, "million rows a second")
    for shift, name, values, colour in (
        (-0.2, "lancemem", [line.lancemem for line in found], OURS),
        (0.2, ALONE, [line.alone for line in found], THEIRS),
    ):
        places = [place + shift for place in range(len(found))]
        drawn = axes.bar(places, values, 0.38, color=colour, label=name)
        axes.bar_label(drawn, fmt="%.2f", padding=2, color=INK, size=9)
    axes.set_xticks(range(len(found)), [line.case for line in found])
    # In this order: a limit that is set ends the margins of later calls.
    axes.margins(y=0.15)
    axes.set_ylim(bottom=0)
    axes.legend(facecolor=GROUND, edgecolor=GRID, labelcolor=INK, fontsize=9)


def _draw_times(axes: Any, title: str, found: list[Time]) -> None:  # noqa: ANN401 - as above
    style(axes, title)
    axes.grid(visible=False, axis="y")
    axes.grid(visible=True, axis="x", color=GRID, linewidth=0.8)
    colours = [OURS if line.engine.startswith("lancemem") else THEIRS for line in found]
    names = [line.engine for line in found]
    drawn = axes.barh(names, [line.time or 0 for line in found], color=colours)
    axes.bar_label(drawn, labels=[line.text for line in found], padding=3, color=INK, size=9)
    axes.margins(x=0.2)
    axes.set_xlim(left=0)
    axes.tick_params(axis="y", labelsize=8)
    axes.invert_yaxis()


if __name__ == "__main__":
    draw(RESULTS.read_text(), PICTURE)
    print(PICTURE)
