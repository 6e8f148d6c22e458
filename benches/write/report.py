"""The tables: on the screen, in a file that later runs add to, and in Markdown.

Owns: `results.json` beside the tables and the Markdown made of it. A bench that was not run again
keeps its numbers, with the commit and date of their run. Does not own: the meaning of the numbers.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from benches.write import machine
from benches.write.stats import Comparison, Goal, spread
from benches.write.titles import TITLES

if TYPE_CHECKING:
    from pathlib import Path

HEAD = """\
# The write path against its peers

Written by `make bench-write`; do not edit. Both sides of a line ran in turn, pair after pair, on
fresh tables. A ratio is the median over pairs, with its 95 % interval by bootstrap. A goal counts
as met or missed only if the whole interval lies on one side of it, and a side as faster only if
the interval leaves out 1. Absolute figures are the machine's; the ratio is the result. Rows are an
int64 key and 100 random bytes unless a line says otherwise; Arrow batches are built before the
clock starts. A burst ends with the last put; a sustained rate ends when the rows are flushed and
the side is closed.
"""


def show(found: list[Comparison]) -> None:
    """Print the tables of one case."""
    for title, lines in tables(found):
        print("\n".join([title, *lines]), flush=True)


def tables(found: list[Comparison]) -> list[tuple[str, list[str]]]:
    """Return the title and the lines of a table for each bench of a case."""
    benches: dict[str, list[Comparison]] = {}
    for line in found:
        benches.setdefault(line.bench, []).append(line)
    return [
        (f"{TITLES[bench][0].upper()}{TITLES[bench][1:]}", _table(lines))
        for bench, lines in benches.items()
    ]


def keep(store: Path, name: str, found: list[Comparison], *, quick: bool, folder: Path) -> None:
    """Put the results of one bench into the file."""
    everything = _read(store)
    everything[name] = {
        "commit": machine.commit(),
        "date": machine.now(),
        "load": machine.load(),
        "quick": quick,
        "machine": machine.machine(folder),
        "versions": machine.versions(),
        "comparisons": [asdict(line) for line in found],
    }
    store.write_text(json.dumps(everything, indent=1))


def load(store: Path) -> dict[str, list[Comparison]]:
    """Read the comparisons in the file, by their benches."""
    found: dict[str, list[Comparison]] = {}
    for kept in _read(store).values():
        for line in _comparisons(kept):
            found.setdefault(line.bench, []).append(line)
    return found


def write(store: Path, text: Path) -> None:
    """Write the Markdown."""
    everything = _read(store)
    newest = max(everything.values(), key=lambda kept: kept["date"])
    lines = [HEAD, *machine.table({**newest["machine"], **newest["versions"]})]
    for name in TITLES:
        if name in everything:
            kept = everything[name]
            for title, table in tables(_comparisons(kept)):
                lines += ["", f"## {title}", "", _source(kept), "", *table]
    text.parent.mkdir(parents=True, exist_ok=True)
    text.write_text("\n".join(lines) + "\n")


def _read(store: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(store.read_text()) if store.exists() else {}
    return found


def _comparisons(kept: dict[str, Any]) -> list[Comparison]:
    found = []
    for line in kept["comparisons"]:
        goal = Goal(**line["goal"]) if line["goal"] else None
        notes = [(heading, ours, theirs) for heading, ours, theirs in line["notes"]]
        found.append(Comparison(**{**line, "goal": goal, "notes": notes}))
    return found


def _source(kept: dict[str, Any]) -> str:
    quick = "A quick run, with few pairs: not a result. " if kept["quick"] else ""
    where = f"Commit {kept['commit']}, {kept['date']}"
    return f"{quick}{where}, load of the machine {kept['load']}."


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1_000 else f"{value:.3g}"


def _side(values: list[float]) -> str:
    found = spread(values)
    return f"{_number(found.median)} ({_number(found.least)} to {_number(found.most)})"


def _table(found: list[Comparison]) -> list[str]:
    """Make the lines of a table; all lines share the headings of the first."""
    first = found[0]
    more = [heading for heading, _, _ in first.notes]
    quotient = "peer / lancemem" if first.inverse else "lancemem / peer"
    heads = ["what", "peer", f"lancemem, {first.unit}", f"peer, {first.unit}", quotient]
    heads += ["faster", "pairs", "goal", "met", *(f"{heading}: lancemem, peer" for heading in more)]
    lines = [f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}"]
    for line in found:
        ratio, low, high = line.interval()
        cells = [line.label, line.peer, _side(line.ours), _side(line.theirs)]
        cells += [f"**{ratio:.2f}** ({low:.2f} to {high:.2f})", line.faster(), str(len(line.ours))]
        cells += [line.goal.text() if line.goal else "", line.verdict()]
        cells += [f"{ours}, {theirs}" for _, ours, theirs in line.notes]
        lines.append(f"| {' | '.join(cells)} |")
    return lines
