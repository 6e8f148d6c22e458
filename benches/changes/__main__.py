"""`python -m benches.changes`: change feeds beside deltalake's change data feed.

Owns: the command line, the order of the measurements and the page. Does not own: the tables
(`tables`), statistics (`benches.write.stats`).
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benches import pages
from benches.changes import tables
from benches.write.machine import machine, measured, versions
from benches.write.stats import Comparison, Goal, spread

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
OUT = ROOT / "out" / "bench-changes"
# Rows, commits, rows of a commit, pairs of measurements.
FULL = (2_000_000, 10, 200_000, 7)
QUICK = (200_000, 5, 20_000, 3)
HEADING = "| what, beside | lancemem, s | peer, s | ratio (95 % interval) | faster | goal | met |"


def main() -> None:
    """Run everything, print it, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m benches.changes", description=__doc__)
    parser.add_argument("--full", action="store_true", help=f"{FULL[0]:,} rows; writes to benches/")
    parser.add_argument("--folder", type=Path, default=OUT)
    pages.add_option(parser)
    chosen = parser.parse_args()
    usual = (ROOT / "benches" if chosen.full else OUT) / "RESULTS-changes.md"
    page = pages.place(usual, chosen.results)
    chosen.folder.mkdir(parents=True, exist_ok=True)
    OUT.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="tables-", dir=chosen.folder.resolve()))
    try:
        text = _run(folder, *(FULL if chosen.full else QUICK))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    page.write_text(text)
    sys.stdout.write(text)


def _run(folder: Path, base_rows: int, commits: int, count: int, pairs: int) -> str:
    writes: dict[str, list[float]] = {"ours": [], "stored": [], "theirs": []}
    reads: dict[str, list[float]] = {"ours": [], "stored": [], "theirs": []}
    scans: list[float] = []
    changed = [tables.updates(base_rows, count, number) for number in range(1, commits + 1)]
    base = tables.rows(np.arange(base_rows), 0)
    for turn in range(pairs):
        place = folder / str(turn)
        place.mkdir()
        ours, stored = tables.Lancemem(place, base), tables.Lancemem(place, base, stored=True)
        sides: dict[str, tables.Side] = {"ours": ours, "stored": stored}
        if tables.HAS_DELTA:
            sides["theirs"] = tables.Delta(place, base)
        # The side that goes first alternates.
        order = list(sides) if turn % 2 == 0 else list(sides)[::-1]
        for name in order:
            writes[name].append(_commits(sides[name], changed))
        if ours.is_stored() or not stored.is_stored():
            message = "a table has the changes of the other form"
            raise AssertionError(message)
        found = set()
        for name in order:
            begun = time.perf_counter()
            found.add(sides[name].read())
            reads[name].append(time.perf_counter() - begun)
        if len(found) != 1:
            message = f"the feeds have {sorted(found)} rows"
            raise AssertionError(message)
        scans.append(_seconds(ours.scan))
        shutil.rmtree(place)
    return _page(folder, (base_rows, commits, count), writes, reads, scans)


def _commits(side: tables.Side, changed: list[Any]) -> float:
    begun = time.perf_counter()
    for rows in changed:
        side.commit(rows)
    return time.perf_counter() - begun


def _seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def _page(
    folder: Path,
    sizes: tuple[int, int, int],
    writes: dict[str, list[float]],
    reads: dict[str, list[float]],
    scans: list[float],
) -> str:
    base_rows, commits, count = sizes
    both = {
        name: [write + read for write, read in zip(writes[name], reads[name], strict=True)]
        for name in writes
    }
    lines = [
        _line("a plain scan of the whole table", reads["ours"], scans, None, "scan"),
        _line("the commits, stored", writes["stored"], writes["ours"], None, "derived"),
        _line("one read of the changes, stored", reads["stored"], reads["ours"], None, "derived"),
    ]
    if tables.HAS_DELTA:
        lines += [
            _line("the commits", writes["ours"], writes["theirs"], None, "deltalake"),
            _line("one read of the changes", reads["ours"], reads["theirs"], Goal(1), "deltalake"),
            _line("the commits and one read", both["ours"], both["theirs"], Goal(5), "deltalake"),
            _line("the commits, stored", writes["stored"], writes["theirs"], Goal(1), "deltalake"),
            _line(
                "one read of the changes, stored",
                reads["stored"],
                reads["theirs"],
                Goal(1),
                "deltalake",
            ),
        ]
    of = versions()
    facts = machine(folder) | {name: of[name] for name in ("lancemem", "pylance", "deltalake")}
    return "\n".join(
        [
            "# Change feeds",
            "",
            f"{commits} commits of {count:,} updates by key of {base_rows:,} rows (int64 key,",
            "text, float64, int32), then their changes, read once. All sides ran in turn.",
            "Changes are derived, or stored by the compactions where a line says so.",
            "" if tables.HAS_DELTA else "deltalake is not installed, so it has no lines.",
            "",
            *measured(facts),
            "",
            HEADING,
            "| --- | --- | --- | --- | --- | --- | --- |",
            *lines,
            "",
        ]
    )


def _line(title: str, ours: list[float], theirs: list[float], goal: Goal | None, peer: str) -> str:
    comparison = Comparison("changes", title, peer, "s", ours, theirs, goal, inverse=True)
    ratio, low, high = comparison.interval()
    own, other = spread(ours), spread(theirs)
    told = f"{goal.text()} | {comparison.verdict()}" if goal else "- | -"
    return (
        f"| {title}, {peer} | {own.median:.3f} | {other.median:.3f} | "
        f"**{ratio:.2f}** ({low:.2f} to {high:.2f}) | {comparison.faster()} | {told} |"
    )


if __name__ == "__main__":
    main()
