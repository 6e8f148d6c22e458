"""The page of the roaring table.

Owns: the text, and that rows of earlier runs stay until they are measured again.
Does not own: figures.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from benches.write.machine import commit, load, machine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benches.roaring.croaring import Figures

RESULTS = Path(__file__).parent.parent / "RESULTS-roaring.md"
STEPS = ("add", "serialize", "deserialize", "contains")
FIGURES = (
    "| rate / max | step | Java, ms | `roaring`, ms | CRoaring, ms | Java / ours | ours / C |",
    "| --- | --- | --- | --- | --- | --- | --- |",
)
SIZES = (
    "| rate / max | bytes | without headers | 8 KiB x ceil(max / 65,536) | commit, end, load |",
    "| --- | --- | --- | --- | --- |",
)


def name_of(percent: int, most: int) -> str:
    """Name a row as the page does."""
    return f"{percent} % / {most:,}"


def lines_of(
    percent: int, most: int, java: Sequence[float], rust: Figures, c: Figures
) -> list[str]:
    """Give the lines of a row: one a step, then that of its size."""
    name = name_of(percent, most)
    lines = [
        f"| {name} | {step} | {published:,} | {us:,.2f} | {them:,.2f} | "
        f"{published / us:,.1f} | {us / them:.2f} |"
        for step, published, us, them in zip(STEPS, java, rust.ms, c.ms, strict=True)
    ]
    containers = -(-most // 65_536)
    bare = rust.bytes - 8 - 8 * containers
    where = f"{commit()}, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {load()}"
    size = f"| {name} | {rust.bytes:,} | {bare:,} | {containers * 8192:,} | {where} |"
    return [*lines, size]


class Page:
    """The page as it stands, with the rows of earlier runs."""

    def __init__(self, words: list[str], rows: list[tuple[int, int]]) -> None:
        """Read what is there."""
        self.words = words
        self.names = [name_of(*row) for row in rows]
        self.lines: dict[str, list[str]] = {name: [] for name in self.names}
        for line in RESULTS.read_text().splitlines() if RESULTS.exists() else ():
            name = line.removeprefix("| ").partition(" | ")[0]
            if name in self.lines:
                self.lines[name].append(line)

    def put(self, percent: int, most: int, lines: list[str]) -> None:
        """Replace a row and write the page."""
        self.lines[name_of(percent, most)] = lines
        there = [self.lines[name] for name in self.names if self.lines[name]]
        facts = machine(RESULTS.parent).items()
        text = [
            "# Roaring bitmaps, the table of PIP-16",
            "",
            "Written by `make bench-roaring`; do not edit.",
            *self.words,
            "",
            "| machine | |",
            "| --- | --- |",
            *(f"| {fact} | {value} |" for fact, value in facts),
            "",
            *FIGURES,
            *(line for row in there for line in row[: len(STEPS)]),
            "",
            *SIZES,
            *(line for row in there for line in row[len(STEPS) :]),
            "",
        ]
        RESULTS.write_text("\n".join(text))
