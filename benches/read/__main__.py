"""`python -m benches.read`: scans, lookups, freshness, memory and depth of reads, beside Lance.

Owns: the command line, the cases and the page. Does not own: clocks (`scans`, `lookup`,
`freshness`, `memory`, `depth`), tables (`tables`), statistics (`benches.write.stats`).
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from benches import pages
from benches.read import depth, freshness, lookup, memory, scans, tables
from benches.write.machine import machine, measured, versions
from benches.write.runner import Settings
from benches.write.stats import Comparison, spread

ROOT = Path(__file__).parents[2]
OUT = ROOT / "out" / "bench-read"
ROWS, QUICK_ROWS = [1_000_000, 10_000_000], [200_000]
MEMORY_ROWS, QUICK_MEMORY_ROWS = 20_000_000, 1_000_000
PAIRS, QUICK_PAIRS = 7, 3
CASES = ("scan", "delete", "filter", "lookup", "freshness", "memory", "depth")

INTRO = """\
Written by `make bench-read`; do not edit. Both sides of a line ran in turn, pair after pair, in one
process over the same files, which are in the page cache. A ratio is the median over pairs, with
its 95 % interval by bootstrap. A goal counts as met or missed only if the whole interval lies on
one side of it. Rows are a key, an int64 and 100 random bytes; `int64` keys count up, `scattered`
ones are random integers of 64 bits. `first` is the first scan of a snapshot by a newly opened table
that has cached the keys of its SSTables; `again` is a later scan of the same snapshot, which has
cached the positions of its dead rows. A count beside "plain Lance" is a scan of its keys that
counts them; Lance's `count_rows()` reads the metadata of the base table alone. A side is named as
faster only if the interval leaves out 1."""


@dataclass
class Found:
    """The contents of the page."""

    lines: list[Comparison] = field(default_factory=list)
    lookups: list[Comparison] = field(default_factory=list)
    freshness: freshness.Freshness | None = None
    memory: list[memory.Scanned] = field(default_factory=list)
    depth: list[depth.Depth] = field(default_factory=list)


def main() -> None:
    """Run everything, print it, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m benches.read", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rows; writes to out/")
    parser.add_argument("--only", choices=CASES, action="append")
    parser.add_argument("--pairs", type=int)
    parser.add_argument("--rows", type=int, action="append")
    parser.add_argument("--kind", choices=tables.KINDS, action="append")
    parser.add_argument("--folder", type=Path, default=OUT)
    pages.add_option(parser)
    chosen = parser.parse_args()
    partial = chosen.quick or chosen.only or chosen.rows or chosen.kind
    usual = (OUT if partial else ROOT / "benches") / "RESULTS-read.md"
    place = pages.place(usual, chosen.results)
    pairs = chosen.pairs or (QUICK_PAIRS if chosen.quick else PAIRS)
    chosen.folder.mkdir(parents=True, exist_ok=True)
    OUT.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="tables-", dir=chosen.folder.resolve()))
    settings = Settings(folder, pairs=pairs, quick=chosen.quick, limit=600.0)
    sizes = chosen.rows or (QUICK_ROWS if chosen.quick else ROWS)
    try:
        found = run(settings, chosen.only or CASES, sizes, chosen.kind or tables.KINDS)
        text = page(folder, found)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    place.write_text(text)
    sys.stdout.write(text)


def run(
    settings: Settings, cases: tuple[str, ...] | list[str], sizes: list[int], kinds: tuple[str, ...]
) -> Found:
    """Run the cases, over each size and kind of key."""
    found = Found()
    for base_rows in sizes:
        for kind in kinds:
            settings.say(f"{kind}, {base_rows:,} rows")
            if "scan" in cases:
                for above in (tables.MEMTABLE, tables.FOUR, tables.SIXTEEN):
                    settings.say(f"  {above.label}")
                    peer = base_rows <= ROWS[0]
                    found.lines += scans.newer(settings, kind, base_rows, above, peer=peer)
            if "delete" in cases:
                found.lines += scans.deletes(settings, kind, base_rows)
            if "filter" in cases:
                found.lines += scans.filtered(settings, kind, base_rows)
            if "lookup" in cases and base_rows <= ROWS[0]:
                found.lookups += lookup.compare(settings, kind, base_rows)
    _once(settings, cases, found)
    return found


def _once(settings: Settings, cases: tuple[str, ...] | list[str], found: Found) -> None:
    """Run the cases that have a table of their own."""
    if "freshness" in cases:
        settings.say("freshness")
        found.freshness = freshness.measure(settings, 3.0 if settings.quick else 20.0)
    if "memory" in cases:
        settings.say("memory")
        size = QUICK_MEMORY_ROWS if settings.quick else MEMORY_ROWS
        found.memory = memory.measure(settings, size)
    if "depth" in cases:
        settings.say("depth")
        found.depth = depth.measure(settings)


def page(folder: Path, found: Found) -> str:
    """Make the page."""
    facts = machine(folder) | {name: versions()[name] for name in ("lancemem", "pylance")}
    lines = [
        "# Reads against Lance",
        "",
        INTRO,
        "",
        *measured(facts),
    ]
    if found.lines:
        lines += ["", *_table(found.lines)]
    if found.lookups:
        lines += ["", *_lookups(found.lookups)]
    if found.freshness is not None:
        lines += ["", *_freshness(found.freshness)]
    if found.memory:
        lines += ["", *_memory(found.memory)]
    if found.depth:
        lines += ["", *depth.section(found.depth)]
    return "\n".join(lines) + "\n"


def _side(values: list[float]) -> str:
    of = spread(values)
    return f"{of.median:.2f} ({of.least:.2f} to {of.most:.2f})"


def _table(comparisons: list[Comparison]) -> list[str]:
    heads = (
        "| scan | peer | lancemem, ms | peer, ms | ratio (95 % interval) | faster | pairs | goal "
        "| met |"
    )
    lines = [heads, "|" + " --- |" * 9]
    for line in comparisons:
        ratio, low, high = line.interval()
        of = "times faster" if line.inverse else "of its time"
        goal = line.goal.text() if line.goal else ""
        lines.append(
            f"| {line.label} | {line.peer} | {_side(line.ours)} | {_side(line.theirs)} | "
            f"**{ratio:.2f}** {of} ({low:.2f} to {high:.2f}) | {line.faster()} | "
            f"{len(line.ours)} | {goal} | {line.verdict()} |"
        )
    return lines


def _lookups(comparisons: list[Comparison]) -> list[str]:
    heads = (
        "| lookup | peer | lancemem, ms | peer, ms | times faster | faster | pairs | goal, ms "
        "| met |"
    )
    lines = [heads, "|" + " --- |" * 9]
    for line in comparisons:
        ratio, low, high = line.interval()
        goal = line.facts["goal ms"]
        lines.append(
            f"| {line.label} | {line.peer} | {_side(line.ours)} | {_side(line.theirs)} | "
            f"**{ratio:.2f}** ({low:.2f} to {high:.2f}) | {line.faster()} | {len(line.ours)} | "
            f"at most {goal:g} | "
            f"{'yes' if spread(line.ours).median <= goal else 'no'} |"
        )
    return lines


def _freshness(found: freshness.Freshness) -> list[str]:
    lines = [
        (
            f"From acknowledged to visible in another process, beside {found.rows_a_second:,.0f} "
            f"durable rows/s; {found.reads:,} reads."
        ),
        "",
        "| freshness | ms | goal | met |",
        "| --- | --- | --- | --- |",
    ]
    for name, value in (("p50", found.p50), ("p99", found.p99)):
        goal = freshness.GOAL_MS[name]
        met = "yes" if value <= goal else "no"
        lines.append(f"| {name} | {value:.1f} | at most {goal:g} | {met} |")
    return lines


def _memory(scanned: list[memory.Scanned]) -> list[str]:
    heads = "| full scan of a process | peak, MiB | goal | met | first batch, ms | goal | met |"
    lines = [heads, "|" + " --- |" * 7]
    for it in scanned:
        of = f"{it.rows:,} rows, 10 % newer in 4 SSTables, {it.turn}"
        if it.side != "lancemem":
            of = f"{it.side}: the base of {it.rows:,} rows, {it.turn}"
            lines.append(f"| {of} | {it.peak_mib:.0f} | | | {it.first_batch_ms:.1f} | | |")
            continue
        small = it.peak_mib <= memory.GOAL_MIB
        early = it.first_batch_ms <= memory.GOAL_FIRST_BATCH_MS
        lines.append(
            f"| {of} | {it.peak_mib:.0f} | "
            f"under {memory.GOAL_MIB:.0f} | {'yes' if small else 'no'} | "
            f"{it.first_batch_ms:.1f} | under {memory.GOAL_FIRST_BATCH_MS:.0f} | "
            f"{'yes' if early else 'no'} |"
        )
    return lines


if __name__ == "__main__":
    main()
