"""`python -m benches.merge`: tables with a merge rule beside tables without one.

Owns: the command line, the order of the cases and the page. Does not own: clocks (`cases`,
`stream`), tables (`tables`), statistics (`benches.write.stats`).
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from benches import pages
from benches.merge import cases, stream, tables
from benches.write.machine import machine, measured, versions
from benches.write.runner import Settings
from benches.write.stats import Comparison, spread

ROOT = Path(__file__).parents[2]
OUT = ROOT / "out" / "bench-merge"
CASES = ("put", "scan", "get", "partial", "compact", "stream")
SCAN_ROWS, COMPACT_ROWS = 1_000_000, 10_000_000
QUICK_ROWS = 200_000
PAIRS, QUICK_PAIRS = 7, 3

INTRO = """\
Written by `make bench-merge`; do not edit. Both sides of a line ran in turn, pair after pair, on
copies of the same tables; who goes first changes. A ratio is the median over pairs, with its 95 %
interval by bootstrap. A goal counts as met or missed only if the whole interval lies on one side of
it. Tables have an int64 key, an int64 time, a float64 and 32 random bytes. A tenth of the keys has
a newer row; by `sequence_by` half of these are late, `partial_update` takes them whole, and
`aggregation` adds the float64 up. `first` is the first scan of a snapshot by a newly opened table,
`again` the next one of the same snapshot. In the stream each side is the median of its
micro-batches. `merge_insert` syncs nothing."""


def main() -> None:
    """Run the cases, print the page, and write it."""
    parser = argparse.ArgumentParser(prog="python -m benches.merge", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rows; writes to out/")
    parser.add_argument("--only", choices=CASES, action="append")
    parser.add_argument("--pairs", type=int)
    parser.add_argument("--folder", type=Path, default=OUT)
    pages.add_option(parser)
    chosen = parser.parse_args()
    partly = chosen.quick or chosen.only
    page = pages.place((OUT if partly else ROOT / "benches") / "RESULTS-merge.md", chosen.results)
    chosen.folder.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="tables-", dir=chosen.folder.resolve()))
    pairs = chosen.pairs or (QUICK_PAIRS if chosen.quick else PAIRS)
    settings = Settings(folder, pairs=pairs, quick=chosen.quick, limit=300.0)
    try:
        lines = run(settings, chosen.only or CASES)
        text = _page(folder, lines)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    page.write_text(text)
    sys.stdout.write(text)


def run(settings: Settings, chosen: tuple[str, ...] | list[str]) -> list[Comparison]:
    """Run the cases that were asked for."""
    few, many = (QUICK_ROWS,) * 2 if settings.quick else (SCAN_ROWS, COMPACT_ROWS)
    found: list[Comparison] = []
    if {"put", "scan", "get"} & set(chosen):
        base = tables.make_base(settings.folder, few)
        for rule in tables.RULES:
            settings.say(rule)
            found += cases.puts(settings, base, rule) if "put" in chosen else []
            found += cases.scans(settings, base, few, rule) if "scan" in chosen else []
            found += cases.lookups(settings, base, few, rule) if "get" in chosen else []
    if {"partial", "compact"} & set(chosen):
        base = settings.folder / f"base-{many}.lance"
        base = base if base.exists() else tables.make_base(settings.folder, many)
        settings.say("large base")
        found += cases.partial_puts(settings, base, many) if "partial" in chosen else []
        for rule in tables.RULES if "compact" in chosen else ():
            settings.say(rule)
            found += cases.compactions(settings, base, many, rule)
    if "stream" in chosen:
        settings.say("stream")
        found.append(stream.measure(settings))
    return found


def _page(folder: Path, lines: list[Comparison]) -> str:
    facts = machine(folder) | {name: versions()[name] for name in ("lancemem", "pylance")}
    head = "| what | beside | with the rule | beside it | ratio (95 % interval) | goal | met |"
    body = [_line(line) for line in lines]
    parts = ["# Merge rules", "", INTRO, "", *measured(facts), "", head, "| --- " * 7 + "|", *body]
    return "\n".join([*parts, ""])


def _line(line: Comparison) -> str:
    ratio, low, high = line.interval()
    ours, theirs = (_side(values, line.unit) for values in (line.ours, line.theirs))
    word = "times faster" if line.inverse else ""
    goal = line.goal.text() if line.goal else "-"
    return (
        f"| {line.label} | {line.peer} | {ours} | {theirs} | "
        f"**{ratio:.2f}** {word} ({low:.2f} to {high:.2f}) | {goal} | {line.verdict()} |"
    )


def _side(values: list[float], unit: str) -> str:
    found = spread(values)
    if unit == "s":
        return f"{found.median:.3f} s ({found.least:.3f} to {found.most:.3f})"
    digits = 0 if unit in ("rows/s", "bytes") else 2
    numbers = (f"{value:,.{digits}f}" for value in (found.median, found.least, found.most))
    median, least, most = numbers
    return f"{median} {unit} ({least} to {most})"


if __name__ == "__main__":
    main()
