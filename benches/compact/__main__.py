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
from pathlib import Path
from typing import Any

import numpy as np

from benches.compact import measure, tables
from benches.write.machine import machine, measured, versions
from benches.write.stats import Comparison, Goal, spread

ROOT = Path(__file__).parents[2]
OUT = ROOT / "out" / "bench-compact"
SHARE = 0.1
ROWS, QUICK_ROWS = 10_000_000, 1_000_000
PAIRS, QUICK_PAIRS = 5, 3
MEMORY_MIB = 512


@dataclass
class Found:
    """The contents of the page."""

    lines: list[str]
    memory: dict[str, float]
    latency: list[tuple[float, float]]
    flushed: tuple[int, int]
    look_up: tuple[float, int]


def main() -> None:
    """Run everything, print it, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m benches.compact", description=__doc__)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_ROWS:,} rows; writes to out/")
    parser.add_argument("--pairs", type=int)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--folder", type=Path, default=OUT)
    chosen = parser.parse_args()
    base_rows = chosen.rows or (QUICK_ROWS if chosen.quick else ROWS)
    pairs = chosen.pairs or (QUICK_PAIRS if chosen.quick else PAIRS)
    chosen.folder.mkdir(parents=True, exist_ok=True)
    OUT.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="tables-", dir=chosen.folder.resolve()))
    try:
        text = _run(folder, base_rows, pairs)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    page = OUT / "RESULTS-compact.md" if chosen.quick else ROOT / "benches" / "RESULTS-compact.md"
    page.write_text(text)
    sys.stdout.write(text)


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _run(folder: Path, base_rows: int, pairs: int) -> str:
    _say(f"base table of {base_rows:,} rows")
    base = tables.make_base(folder, base_rows)
    changed = tables.updates(base_rows, SHARE, seed=7)
    single = tables.with_runs(base, changed, shards=1, generations=1)
    many = tables.with_runs(base, changed, shards=4, generations=4)
    flushed = tables.written(tables.sizes(base), tables.sizes(single))
    lines: list[str] = []
    quarter = -(-len(changed) // 4)
    covered, look_up = measure.look_up(single)
    cases = {
        "1 SSTable, linked": (single, "link", [changed]),
        "1 SSTable, linked, in deletion-vector mode": (covered, "link", [changed]),
        "1 SSTable, rewritten": (single, "rewrite", [changed]),
        "16 SSTables of 4 shards, one commit, against 4 calls": (
            many, "link", [changed.slice(i * quarter, quarter) for i in range(4)],
        ),
    }  # fmt: skip
    for title, (runs, mode, parts) in cases.items():
        _say(title)
        pair = measure.Pair()
        for turn in range(pairs):
            both = [
                lambda: measure.compact(runs, mode, pair.ours),  # noqa: B023
                lambda: measure.merge_insert(base, parts, pair.theirs),  # noqa: B023
            ]
            # The side that goes first alternates.
            done: list[Any] = [call() for call in (both if turn % 2 == 0 else both[::-1])]  # type: ignore[no-untyped-call]
            ours, theirs = done if turn % 2 == 0 else done[::-1]
            for _ in range(3):
                seen = measure.scan(ours, pair.ours), measure.scan(theirs, pair.theirs)
                if seen != (base_rows, base_rows):
                    message = f"the tables have {seen} rows, not {base_rows}"
                    raise AssertionError(message)
            tables.remove(ours)
            tables.remove(theirs)
        lines += _lines(title, pair, changed.nbytes, is_goal=mode == "link")
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
    found = Found(lines, memory, latency, (flushed, changed.nbytes), look_up)
    return _page(folder, base_rows, found)


def _memory_of_all(base: Path, base_rows: int) -> float:
    everything = tables.updates(base_rows, 1.0, seed=11)
    runs = tables.with_runs(base, everything, shards=4, generations=4)
    del everything
    try:
        return measure.peak_memory(runs, "link")
    finally:
        tables.remove(runs)


def _lines(title: str, pair: measure.Pair, changed: int, *, is_goal: bool) -> list[str]:
    ours, theirs = pair.ours.values, pair.theirs.values
    fast = 5.0 if "1 SSTable" in title else 1.0
    time = Comparison(
        "compact", title, "merge_insert", "s", ours["seconds"], theirs["seconds"],
        Goal(fast) if is_goal else None, inverse=True,
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
            f"**{ratio:.2f}** ({low:.2f} to {high:.2f}) | {goal} | {comparison.verdict()} |"
        )
    own, peer = np.median(ours["bytes"]), np.median(theirs["bytes"])
    out.append(
        f"| {title}: bytes written by the commit | {own / 1e6:.1f} MB | {peer / 1e6:.1f} MB | "
        f"{own / changed:.2f} of the bytes changed, peer {peer / changed:.2f} | "
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
        "them are updated at random."
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
        "| what | lancemem | merge_insert | ratio (95 % interval) | goal | met |",
        "| --- | --- | --- | --- | --- | --- |",
        *found.lines,
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
