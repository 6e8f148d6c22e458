"""The page of the roaring table.

Owns: the text, and that rows of earlier runs stay until they are measured again.
Does not own: figures.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from benches.write.machine import commit, load, machine, now, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benches.roaring.croaring import Figures

RESULTS = Path(__file__).parent.parent / "RESULTS-roaring.md"
STEPS = ("add", "serialize", "deserialize", "contains")
WORDS = (
    "# Roaring bitmaps, the table of PIP-16",
    "",
    "Written by `make bench-roaring`; do not edit. Numbers come at random, so `add` and",
    "`contains` measure the memory of the machine as much as the library. The Java figures are",
    "those that PIP-16 published, of another machine. Both sides take turns, each in a process of",
    "its own, which serializes and deserializes five times, each into fresh memory, and counts the",
    "median; of several turns the median counts.",
)
FIGURES = (
    "| rate / max | step | Java, ms | `roaring`, ms | CRoaring, ms | Java / ours | ours / C |",
    "| --- | --- | --- | --- | --- | --- | --- |",
)
SIZES = (
    "| rate / max | bytes | without headers | 8 KiB x ceil(max / 65,536) | measured |",
    "| --- | --- | --- | --- | --- |",
)


def name_of(row: tuple[int, int]) -> str:
    """Name a row as the page does."""
    percent, most = row
    return f"{percent} % / {most:,}"


def lines_of(
    row: tuple[int, int], java: Sequence[float], sides: tuple[Figures, Figures], turns: int
) -> list[str]:
    """Return the lines of a row: one for each step, then a line for its size."""
    name, (rust, c) = name_of(row), sides
    lines = [
        f"| {name} | {step} | {published:,} | {us:,.2f} | {them:,.2f} | "
        f"{published / us:,.1f} | {us / them:.2f} |"
        for step, published, us, them in zip(STEPS, java, rust.ms, c.ms, strict=True)
    ]
    containers = -(-row[1] // 65_536)
    bare = rust.bytes - 8 - 8 * containers
    where = f"{commit()}, {now()}, load {load()}, turns {turns}"
    size = f"| {name} | {rust.bytes:,} | {bare:,} | {containers * 8192:,} | {where} |"
    return [*lines, size]


class Page:
    """The present page, with the rows of earlier runs."""

    def __init__(self, rows: list[tuple[int, int]], path: Path) -> None:
        """Read these rows from the page."""
        self.path = path
        self.names = [name_of(row) for row in rows]
        self.lines: dict[str, list[str]] = {name: [] for name in self.names}
        for line in path.read_text().splitlines() if path.exists() else ():
            name = line.removeprefix("| ").partition(" | ")[0]
            if name in self.lines:
                self.lines[name].append(line)

    def put(self, row: tuple[int, int], lines: list[str]) -> None:
        """Replace a row and write the page."""
        self.lines[name_of(row)] = lines
        there = [self.lines[name] for name in self.names if self.lines[name]]
        text = [
            *WORDS,
            "",
            *table(machine(self.path.parent)),
            "",
            *FIGURES,
            *(line for row in there for line in row[: len(STEPS)]),
            "",
            *SIZES,
            *(line for row in there for line in row[len(STEPS) :]),
            "",
        ]
        self.path.write_text("\n".join(text))
