"""The report of one soak in out/soak, and the totals of all soaks in docs/soak/README.md.

Owns: the wanted number of tries of each layer, the page of a soak, and the totals, to which each
soak adds its numbers. Does not own: the checks (`soak`).
"""

from __future__ import annotations

import datetime as dt
import os
import re
from dataclasses import dataclass
from pathlib import Path

from benches.write.machine import commit

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "out" / "soak"
SUM = ROOT / "docs" / "soak" / "README.md"
NOTHING = "nothing"


@dataclass(frozen=True)
class Wanted:
    """A layer by its name on pages, and the number of tries that a soak wants."""

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
    """The result of a layer."""

    name: str
    tries: int
    seconds: float
    failed: str = ""


def write(rows: list[Row], lives: str, seed: int) -> Path:
    """Write the page of a soak, and add it to the totals."""
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
    PAGES.mkdir(parents=True, exist_ok=True)
    page = _free(tried[:7])
    page.write_text("\n".join([*lines, ""]))
    add_up(rows, tried[:7])
    return page


def _free(name: str) -> Path:
    """Find an unused name of a page: a commit may be soaked more than once."""
    number = 1
    while (page := PAGES / (f"{name}-{number}.md" if number > 1 else f"{name}.md")).exists():
        number += 1
    return page


@dataclass
class Total:
    """The tries of a layer in all soaks, and the commits on which it failed."""

    tries: int = 0
    minutes: float = 0.0
    found: frozenset[str] = frozenset()


def _totals() -> dict[str, Total]:
    """Read the totals of the soaks so far, by the title of the layer."""
    text = SUM.read_text() if SUM.exists() else ""
    found = re.findall(
        r"^\| ([^|]+) \| [\d,]* \| ([\d,]+) \| ([\d.]+) \| ([^|]+) \|$", text, re.MULTILINE
    )
    return {
        title: Total(
            int(tries.replace(",", "")),
            float(minutes),
            frozenset(() if what == NOTHING else what.split(", ")),
        )
        for title, tries, minutes, what in found
    }


def _line(title: str, asked: str, total: Total) -> str:
    found = ", ".join(sorted(total.found)) or NOTHING
    return f"| {title} | {asked} | {total.tries:,} | {total.minutes:.1f} | {found} |"


def add_up(rows: list[Row], tried: str) -> None:
    """Add the rows of a soak of a commit to the totals."""
    totals = _totals()
    for row in rows:
        total = totals.setdefault(WANTED[row.name].title, Total())
        total.tries += row.tries
        # In the same form as on the page of the soak.
        total.minutes += round(row.seconds / 60, 1)
        total.found |= {tried} if row.failed else set()
    lines = [
        "# Soaks",
        "",
        "What all soaks have tried together. `make soak` writes the report of one soak to",
        "`out/soak` and adds its rows to this table. *Found on* lists the commits on which a soak",
        "failed.",
        "",
        "| what | wanted | so far | minutes | found on |",
        "| --- | ---: | ---: | ---: | --- |",
    ]
    lines += [
        _line(wanted.title, f"{wanted.tries:,}", totals.pop(wanted.title, Total()))
        for wanted in WANTED.values()
    ]
    # Layers that soaks no longer run, or run in another way.
    lines += [_line(title, "", totals[title]) for title in sorted(totals)]
    SUM.parent.mkdir(parents=True, exist_ok=True)
    SUM.write_text("\n".join([*lines, ""]))
