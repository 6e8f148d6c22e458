"""The pages of docs/soak: what one soak tried, and what all of them have tried together.

Owns: what a soak wants of each layer, the page of a soak and the sum of the pages. Does not own:
how anything is tried (`soak`).
"""

from __future__ import annotations

import datetime as dt
import os
import re
from dataclasses import dataclass
from pathlib import Path

from benches.write.machine import commit

PAGES = Path(__file__).parents[1] / "docs" / "soak"
SUM = PAGES / "README.md"
NOTHING = "nothing"


@dataclass(frozen=True)
class Wanted:
    """A layer by the name that pages give it, and how much of it a soak wants."""

    title: str
    tries: int


WANTED = {
    "model": Wanted("models of the protocol: four writers; three with two writes each", 2),
    "map": Wanted("random lives of a shard against a map", 200_000),
    "schedules": Wanted("orders of threads and tasks", 5_000_000),
    # An hour of each of the seven decoders.
    "fuzz": Wanted("minutes of a decoder with libFuzzer, under AddressSanitizer", 420),
    "damage": Wanted("log entries and manifests damaged in six ways at every position", 4),
    "damaged-runs": Wanted("each file of an SSTable damaged in six ways at every position", 1),
    "damaged-files": Wanted("stories of other files damaged in six ways at every position", 29),
    "kill-points": Wanted("kills behind chosen calls to the file system", 10_000),
    "kills": Wanted("kills at random times", 10_000),
    "cuts": Wanted("power cuts, about 60 a test", 100_000),
    "shortages": Wanted("shortages of space, handles, rights, time", 100),
    "takeovers": Wanted("takeovers between processes, a sixth of them on an S3 server", 10_000),
    "cross-read": Wanted("lives that lancemem and pylance write in turns", 2_000),
    "spark-kills": Wanted("kills of Spark's executors and of their Python", 500),
    "simulation": Wanted("lives of the simulation", 1_000_000),
}


@dataclass
class Row:
    """What became of a layer."""

    name: str
    tries: int
    seconds: float
    failed: str = ""


def write(rows: list[Row], lives: str, seed: int) -> Path:
    """Write the page of a soak, and the sum anew."""
    tried = commit()
    lines = [
        f"# Soak of {tried}",
        "",
        f"`make soak` on {dt.datetime.now(dt.UTC):%Y-%m-%d}, {os.cpu_count()} processors,",
        f"seeds from {seed}. Without a failure in n tries at most 3/n of all fail (95 %).",
        "",
        "| what | tries | minutes | found |",
        "| --- | ---: | ---: | --- |",
    ]
    for row in rows:
        title, found = WANTED[row.name].title, row.failed or NOTHING
        lines.append(f"| {title} | {row.tries:,} | {row.seconds / 60:.1f} | {found} |")
    if lives:
        lines += ["", "The simulation:", "", "```", lives.strip(), "```"]
    PAGES.mkdir(exist_ok=True)
    page = _free(tried[:7])
    page.write_text("\n".join([*lines, ""]))
    add_up()
    return page


def _free(name: str) -> Path:
    """Find a page that is not there: a commit may be soaked more than once."""
    number = 1
    while (page := PAGES / (f"{name}-{number}.md" if number > 1 else f"{name}.md")).exists():
        number += 1
    return page


def _rows(page: Path) -> list[tuple[str, int, float, str]]:
    found = re.findall(
        r"^\| ([^|]+) \| ([\d,]+) \| ([\d.]+) \| (.+) \|$", page.read_text(), re.MULTILINE
    )
    return [
        (title, int(tries.replace(",", "")), float(minutes), what)
        for title, tries, minutes, what in found
    ]


def _line(title: str, asked: str, rows: list[tuple[Path, str, int, float, str]]) -> str:
    """Add up the rows of a layer."""
    found = sorted({f"[{row[0].stem}]({row[0].name})" for row in rows if row[4] != NOTHING})
    tries, minutes = sum(row[2] for row in rows), sum(row[3] for row in rows)
    return f"| {title} | {asked} | {tries:,} | {minutes:.1f} | {', '.join(found) or NOTHING} |"


def add_up() -> None:
    """Write what all pages have tried together."""
    pages = sorted(page for page in PAGES.glob("*.md") if page != SUM)
    rows = [(page, *row) for page in pages for row in _rows(page)]
    lines = [
        "# Soaks",
        "",
        "What all soaks have tried together, each of the commit that its page names;",
        "written by `make soak`.",
        "",
        "| what | wanted | so far | minutes | found on |",
        "| --- | ---: | ---: | ---: | --- |",
    ]
    for wanted in WANTED.values():
        own = [row for row in rows if row[1] == wanted.title]
        lines.append(_line(wanted.title, f"{wanted.tries:,}", own))
    # What soaks no longer try, or try in another way.
    titles = {wanted.title for wanted in WANTED.values()}
    for title in sorted({row[1] for row in rows} - titles):
        own = [row for row in rows if row[1] == title]
        lines.append(_line(title, "", own))
    SUM.write_text("\n".join([*lines, ""]))


if __name__ == "__main__":
    add_up()
