"""`python -m benches.compact`: compaction beside `merge_insert` of the same rows.

Owns: the command line, the cases and the page. Does not own: clocks (`measure`), tables
(`tables`), statistics (`benches.write.stats`).
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benches import pages
from benches.compact import measure, tables
from benches.write.machine import machine, measured, versions
from benches.write.stats import Comparison, Goal, spread

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

ROOT = Path(__file__).parents[2]
OUT = ROOT / "out" / "bench-compact"
SHARE = 0.1
ROWS, QUICK_ROWS = 10_000_000, 1_000_000
PAIRS, QUICK_PAIRS = 5, 3
MEMORY_MIB = 512
WHOLE = "put, flush and compaction, end to end"


@dataclass
class Case:
    """One comparison: the rows of `merge_insert` by call, and lancemem's side of it."""

    parts: list[pa.Table]
    ours: Callable[[measure.Side], Path]
    # How many times as fast it should be; None without a goal.
    fast: float | None


@dataclass
class Found:
    """The contents of the page."""

    lines: list[str]
    memory: dict[str, float]
    latency: list[tuple[float, float]]
    flushed: tuple[int, int]
    look_up: tuple[float, int]
    steps: str


def main() -> None:
    """Run everything, print it, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m benches.compact", description=__doc__)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_ROWS:,} rows; writes to out/")
    parser.add_argument("--pairs", type=int)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--folder", type=Path, default=OUT)
    pages.add_option(parser)
    chosen = parser.parse_args()
    usual = (OUT if chosen.quick else ROOT / "benches") / "RESULTS-compact.md"
    page = pages.place(usual, chosen.results)
    base_rows = chosen.rows or (QUICK_ROWS if chosen.quick else ROWS)
    pairs = chosen.pairs or (QUICK_PAIRS if chosen.quick else PAIRS)
    chosen.folder.mkdir(parents=True, exist_ok=True)
    OUT.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="tables-", dir=chosen.folder.resolve()))
    try:
        text = _run(folder, base_rows, pairs)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    page.write_text(text)
    sys.stdout.write(text)


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _run(folder: Path, base_rows: int, pairs: int) -> str:
    _say(f"base table of {base_rows:,} rows")
    base = tables.make_base(folder / "base.lance", base_rows)
    changed = tables.updates(base_rows, SHARE, seed=7)
    single = tables.with_runs(base, changed, shards=1, generations=1)
    many = tables.with_runs(base, changed, shards=4, generations=4)
    flushed = tables.written(tables.sizes(base), tables.sizes(single))
    quarter = -(-len(changed) // 4)
    quarters = [changed.slice(i * quarter, quarter) for i in range(4)]
    covered, look_up = measure.look_up(single)
    cases = {
        WHOLE: Case([changed], partial(measure.write_and_compact, base, changed), None),
        "1 SSTable, linked": Case([changed], partial(measure.compact, single, "link"), 5.0),
        "1 SSTable, linked, in deletion-vector mode": Case(
            [changed], partial(measure.compact, covered, "link"), 5.0
        ),
        "1 SSTable, rewritten": Case([changed], partial(measure.compact, single, "rewrite"), None),
        "16 SSTables of 4 shards, one commit, against 4 calls": Case(
            quarters, partial(measure.compact, many, "link"), 1.0
        ),
    }
    lines: list[str] = []
    steps = ""
    for title, case in cases.items():
        _say(title)
        pair = _measured(base, case, base_rows, pairs)
        lines += _lines(title, pair, changed.nbytes, case.fast)
        if title == WHOLE:
            steps = _steps(pair.ours)
    memory = {
        "10 % of the rows in 1 SSTable": measure.peak_memory(single, "link"),
        f"all {base_rows:,} keys in 16 SSTables of 4 shards": _memory_of_all(base, base_rows),
    }
    latency = [
        (
            measure.put_latency(base, 5, compacting=False),
            measure.put_latency(base, 5, compacting=True),
        )
        for _ in range(pairs)
    ]
    found = Found(lines, memory, latency, (flushed, changed.nbytes), look_up, steps)
    return _page(folder, base_rows, found)


def _measured(base: Path, case: Case, base_rows: int, pairs: int) -> measure.Pair:
    """Run both sides in turn, and scan each table right after."""
    pair = measure.Pair()
    for turn in range(pairs):
        both: list[Callable[[], Path]] = [
            partial(case.ours, pair.ours),
            partial(measure.merge_insert, base, case.parts, pair.theirs),
        ]
        # The side that goes first alternates.
        done = [call() for call in (both if turn % 2 == 0 else both[::-1])]
        ours, theirs = done if turn % 2 == 0 else done[::-1]
        for _ in range(3):
            seen = measure.scan(ours, pair.ours), measure.scan(theirs, pair.theirs)
            if seen != (base_rows, base_rows):
                message = f"the tables have {seen} rows, not {base_rows}"
                raise AssertionError(message)
        tables.remove(ours)
        tables.remove(theirs)
    return pair


def _steps(ours: measure.Side) -> str:
    """Name the parts of the time from the first put to the commit."""
    parts = {
        name: np.median(ours.values[f"{name} seconds"]) for name in ("put", "flush", "compact")
    }
    told = ", ".join(f"{name} {seconds:.3f} s" for name, seconds in parts.items())
    return f"The steps of the first lines, each the median: {told}."


def _memory_of_all(base: Path, base_rows: int) -> float:
    everything = tables.updates(base_rows, 1.0, seed=11)
    runs = tables.with_runs(base, everything, shards=4, generations=4)
    del everything
    try:
        return measure.peak_memory(runs, "link")
    finally:
        tables.remove(runs)


def _lines(title: str, pair: measure.Pair, changed: int, fast: float | None) -> list[str]:
    ours, theirs = pair.ours.values, pair.theirs.values
    is_goal = fast is not None
    time = Comparison(
        "compact", title, "merge_insert", "s", ours["seconds"], theirs["seconds"],
        Goal(fast) if fast is not None else None, inverse=True,
    )  # fmt: skip
    scan = Comparison(
        "compact", title, "merge_insert", "s", ours["scan seconds"], theirs["scan seconds"],
        Goal(1.05, at_least=False) if is_goal else None,
    )  # fmt: skip
    out = []
    for what, comparison in (("time, times faster", time), ("scan right after, ratio", scan)):
        ratio, low, high = comparison.interval()
        a, b = spread(comparison.ours), spread(comparison.theirs)
        goal = comparison.goal.text() if comparison.goal else "-"
        out.append(
            f"| {title}: {what} | {a.median:.3f} s ({a.least:.3f} to {a.most:.3f}) | "
            f"{b.median:.3f} s ({b.least:.3f} to {b.most:.3f}) | "
            f"**{ratio:.2f}** ({low:.2f} to {high:.2f}) | {comparison.faster()} | {goal} | "
            f"{comparison.verdict()} |"
        )
    own, peer = np.median(ours["bytes"]), np.median(theirs["bytes"])
    out.append(
        f"| {title}: bytes written by the commit | {own / 1e6:.1f} MB | {peer / 1e6:.1f} MB | "
        f"{own / changed:.2f} of the bytes changed, peer {peer / changed:.2f} | | "
        f"{'at most 1.2x' if is_goal else '-'} | "
        f"{('yes' if own <= 1.2 * changed else 'no') if is_goal else '-'} |"
    )
    return out


def _page(folder: Path, base_rows: int, found: Found) -> str:
    facts = machine(folder) | {name: versions()[name] for name in ("lancemem", "pylance")}
    quiet, busy = (float(np.median(side)) for side in zip(*found.latency, strict=True))
    intro = (
        "Written by `make bench-compact`; do not edit. Both sides of a line ran in turn, pair\n"
        "after pair, on copies of the same tables; who goes first changes. lancemem syncs what it\n"
        f"commits, merge_insert does not. The base has {base_rows:,} rows (int64 key, float64,\n"
        f"{tables.TEXT_BYTES} random bytes) in fragments of {tables.CHUNK_ROWS:,}; {SHARE:.0%} of\n"
        "them are updated at random. `merge_insert` writes the rows; a compaction moves rows that\n"
        'are written already, so the lines "end to end" are the comparison of the whole work. A\n'
        "side is named as faster only if the interval leaves out 1."
    )
    flushed, changed = found.flushed
    flush = (
        f"The flush before wrote {flushed / 1e6:.1f} MB for {changed / 1e6:.1f} MB of changed\n"
        "rows in memory: the log, the SSTable, its key index and its bloom filter."
    )
    beside = (
        "In deletion-vector mode the SSTable's look-up, beside the writer and before the clock\n"
        f"of the compaction, took {found.look_up[0]:.3f} s and wrote "
        f"{found.look_up[1] / 1e6:.1f} MB."
    )
    met = "yes" if busy <= 2 * quiet else "no"
    head = [
        "# Compaction against merge_insert",
        "",
        intro,
        "",
        *measured(facts),
        "",
        "| what | lancemem | merge_insert | ratio (95 % interval) | faster | goal | met |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        *found.lines,
        "",
        found.steps,
        "",
        flush,
        "",
        beside,
        "",
        "| peak memory of the process that compacts | MiB | goal | met |",
        "| --- | --- | --- | --- |",
        *(
            f"| {what} | {mib:.0f} | under {MEMORY_MIB} | {'yes' if mib < MEMORY_MIB else 'no'} |"
            for what, mib in found.memory.items()
        ),
        "",
        "| durable puts of 100 rows, p99 | ms | goal | met |",
        "| --- | --- | --- | --- |",
        f"| alone | {quiet:.2f} | | |",
        f"| beside compactions without a pause | {busy:.2f} ({busy / quiet:.1f}x) | 2x | {met} |",
        "",
    ]
    return "\n".join(head)


if __name__ == "__main__":
    main()
