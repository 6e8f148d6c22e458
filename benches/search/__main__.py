"""`python -m benches.search`: vector search beside pylance's, and how soon a put is found.

Owns: the command line, the order of the measurements and the page. Does not own: the tables
(`tables`), the waits of puts (`freshness`), the cases of writes and batches (`writes`), or
statistics (`benches.write.stats`).
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from benches import pages
from benches.search import freshness, linking, tables, writes
from benches.search.timing import median_ms
from benches.write.machine import machine, measured, versions
from benches.write.stats import Comparison, Goal, spread

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[2]
OUT = ROOT / "out" / "bench-search"
PAIRS, QUICK_PAIRS = 7, 3
PUTS, QUICK_PUTS = 200, 50
# Factors that are tried until the planner finds what a compacted copy finds.
OVERFETCH = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
SLACK = 0.005
HEADING = (
    "| beside | lancemem, ms | peer, ms | ratio (95 % interval) | faster | goal | met "
    "| recall@10, lancemem | peer |"
)


class Side(Protocol):
    """A table that is searched."""

    def search(self, query: tables.Vectors) -> list[int]:
        """Return the ids of the nearest rows."""


@dataclass
class Found:
    """What was measured."""

    # Milliseconds of a search, the median of each round, by side.
    rounds: dict[str, list[float]] = field(default_factory=dict)
    recall: dict[str, float] = field(default_factory=dict)
    overfetch: float = 1.0
    theirs_is_right: bool = True
    # The same rows after a compaction, in lancemem's table and in the copy.
    compacted: dict[str, list[float]] = field(default_factory=dict)
    compacted_recall: float = 0.0
    fresh: freshness.Waits = field(default_factory=dict)
    linking: linking.Linking = field(default_factory=linking.Linking)
    # The lines of writes and batches.
    writes: list[str] = field(default_factory=list)


def main() -> None:
    """Run everything, print it, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m benches.search", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows; writes to out/")
    parser.add_argument("--pairs", type=int)
    parser.add_argument("--folder", type=Path, default=OUT)
    pages.add_option(parser)
    chosen = parser.parse_args()
    usual = (OUT if chosen.quick else ROOT / "benches") / "RESULTS-search.md"
    page = pages.place(usual, chosen.results)
    chosen.folder.mkdir(parents=True, exist_ok=True)
    OUT.mkdir(parents=True, exist_ok=True)
    sizes = tables.Sizes().quick() if chosen.quick else tables.Sizes()
    pairs = chosen.pairs or (QUICK_PAIRS if chosen.quick else PAIRS)
    folder = Path(tempfile.mkdtemp(prefix="tables-", dir=chosen.folder.resolve()))
    try:
        found = Found()
        _say("acknowledged to found")
        found.fresh = freshness.measure(folder, sizes, QUICK_PUTS if chosen.quick else PUTS)
        _searches(folder, sizes, pairs, found)
        _say("linked indexes")
        found.linking = linking.measure(folder, sizes, pairs)
        counts = writes.Counts.of(quick=chosen.quick)
        found.writes = writes.measure(folder, counts, pairs, _say)
        text = _page(folder, sizes, found)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    page.write_text(text)
    sys.stdout.write(text)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _searches(folder: Path, sizes: tables.Sizes, pairs: int, found: Found) -> None:
    """Search three tables of the same rows in turn."""
    _say("the rows")
    data = tables.Data(sizes)
    _say("lancemem's table")
    ours = tables.Lancemem(folder, data, sizes)
    _say("the compacted copy")
    copy = tables.Compacted(folder, ours.table, sizes)
    _say("pylance's table with SSTables")
    planner = tables.Planner(folder, data, sizes)
    sides: dict[str, Side] = {"ours": ours, "copy": copy, "planner": planner}
    for name in ("ours", "copy"):
        found.recall[name] = data.recall([sides[name].search(query) for query in data.queries])
    _choose_overfetch(planner, data, found)
    found.rounds = _in_turn(sides, data, pairs)
    _say("after a compaction")
    ours.job.close()
    ours.table.compact(flush=True)
    found.compacted_recall = data.recall([ours.search(query) for query in data.queries])
    found.compacted = _in_turn({"ours": ours, "copy": copy}, data, pairs)


def _in_turn(sides: Mapping[str, Side], data: tables.Data, pairs: int) -> dict[str, list[float]]:
    """Search for all queries by each side, round after round."""
    rounds: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(pairs):
        _say(f"round {turn + 1} of {pairs}")
        # The side that goes first alternates.
        for name in list(sides) if turn % 2 == 0 else list(sides)[::-1]:
            rounds[name].append(median_ms(sides[name].search, data.queries))
    return rounds


def _choose_overfetch(planner: tables.Planner, data: tables.Data, found: Found) -> None:
    """Take the smallest factor by which the planner finds what a compacted copy finds."""
    for factor in OVERFETCH:
        planner.overfetch = found.overfetch = factor
        answers = [planner.search(query) for query in data.queries]
        found.recall["planner"] = data.recall(answers)
        if factor == 1.0:
            found.recall["planner at 1"] = found.recall["planner"]
        found.theirs_is_right = found.recall["planner"] >= found.recall["copy"] - SLACK
        if found.theirs_is_right:
            return


def _page(folder: Path, sizes: tables.Sizes, found: Found) -> str:
    facts = machine(folder) | {name: versions()[name] for name in ("lancemem", "pylance")}
    unlike = "" if found.theirs_is_right else ", which does not reach the recall of the copy"
    planner = f"LsmVectorSearchPlanner, overfetch_factor {found.overfetch:g}{unlike}"
    copy = f"pylance, compacted copy, refine_factor {tables.REFINE_FACTOR}"
    return "\n".join(
        [
            "# Vector search",
            "",
            _text(sizes, found),
            "",
            *measured(facts),
            "",
            HEADING,
            f"|{' --- |' * 9}",
            _line(copy, "copy", Goal(2, at_least=False), found),
            _line(planner, "planner", Goal(0.5, at_least=False), found),
            _compacted_line(found),
            "",
            *freshness.lines(found.fresh, sizes.memory_rows),
            *found.writes,
            "",
            "What a compaction takes longer that links the index of its SSTable, beside pylance's",
            "update of the index after a compaction without the link:",
            "",
            *found.linking.lines(),
            "",
        ]
    )


def _text(sizes: tables.Sizes, found: Found) -> str:
    return f"""\
A base table of {sizes.base:,} rows of {tables.WIDTH} float32 with an IVF_PQ index
({sizes.partitions} partitions, {tables.SUB_VECTORS} sub-vectors), {sizes.sstables} SSTables of
{sizes.sstable_rows:,} rows and {sizes.memory_rows:,} rows in memory, which update a tenth of the
base. lancemem searches with its defaults. The compacted copy has the same newest rows in one Lance
table, with the index rebuilt. The planner's table was written by pylance: its SSTables have graphs,
and its last part is flushed, because the planner searches no MemTable. At overfetch_factor 1 the
planner's recall is {found.recall["planner at 1"]:.3f}. A search asks for the {tables.K} nearest
rows. All sides ran in turn; a round is the median of {sizes.queries} searches."""


def _line(title: str, side: str, goal: Goal, found: Found) -> str:
    recall = (found.recall["ours"], found.recall[side])
    return _compared(title, side, goal, (found.rounds["ours"], found.rounds[side]), recall)


def _compacted_line(found: Found) -> str:
    title = "after a compaction, whose index segments are linked: the same copy"
    recall = (found.compacted_recall, found.recall["copy"])
    sides = (found.compacted["ours"], found.compacted["copy"])
    return _compared(title, "copy", Goal(1.3, at_least=False), sides, recall)


def _compared(
    title: str,
    side: str,
    goal: Goal,
    times: tuple[list[float], list[float]],
    recall: tuple[float, float],
) -> str:
    ours, theirs = times
    comparison = Comparison("search", title, side, "ms", ours, theirs, goal)
    ratio, low, high = comparison.interval()
    return (
        f"| {title} | {spread(ours).median:.2f} | {spread(theirs).median:.2f} | "
        f"**{ratio:.2f}** ({low:.2f} to {high:.2f}) | {comparison.faster()} | {goal.text()} | "
        f"{comparison.verdict()} | {recall[0]:.3f} | {recall[1]:.3f} |"
    )


if __name__ == "__main__":
    main()
