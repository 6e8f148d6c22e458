"""Durable puts: the cost of the log beside its lower bound, and beside pylance's log.

Owns: `durable` (fsync, one producer), `producers` (16 producers) and `unsynced` (no fsync).
Does not own: the work itself, which `children` does in processes whose fsyncs are counted.

On a machine whose processors are all busy an fsync seems to end with a tick of the scheduler; a p50
near a multiple of 4 ms hints at it. Trust the ratio of `durable` on a quiet machine only.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from benches.write.fsync import run_child
from benches.write.runner import Sample, Settings, Side, column, interleave
from benches.write.stats import Comparison, Goal, spread

if TYPE_CHECKING:
    from pathlib import Path

BATCH = 1_000
PRODUCERS = 16
KEYS = ("p50", "p99", "fsyncs")


def _child(role: str, **options: object) -> Side:
    def sample(folder: Path) -> Sample:
        return run_child(folder, role, **options)

    return sample


def _notes(found: dict[str, list[Sample]], peer: str) -> list[tuple[str, str, str]]:
    """Each side's fsyncs a put and its p99."""
    sides = ["lancemem", peer]
    fsyncs = [f"{spread(column(found[name], 'fsyncs')).median:.2f}" for name in sides]
    tails = [f"{spread(column(found[name], 'p99')).median:.2f}" for name in sides]
    return [("fsyncs a put", fsyncs[0], fsyncs[1]), ("p99 ms", tails[0], tails[1])]


def _entry_of_wal(settings: Settings, batch: int) -> Path:
    """One WAL entry as lancemem writes it, for the loop by hand to write again."""
    folder = settings.folder / "entry"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    run_child(folder, "durable-lancemem", puts=1, batch=batch, fsync=False)
    entries = folder.glob("*.lance/_mem_wal/*/wal/*.arrow")
    return max(entries, key=lambda path: path.stat().st_size)


def run(settings: Settings) -> list[Comparison]:
    """Compare the p50 of one producer with a loop of write, fsync, link, fsync of the folder."""
    found_all = []
    for batch in (1, BATCH):
        entry = _entry_of_wal(settings, batch)
        size = entry.stat().st_size
        puts = 40 if settings.quick else 120
        both = _child("durable-beside-hand", puts=puts, batch=batch, entry=str(entry))
        measured = interleave(settings, {"both": both})["both"]
        found = {
            name: [{key: sample[f"{side} {key}"] for key in KEYS} for sample in measured]
            for name, side in (("lancemem", "ours"), ("by hand", "hand"))
        }
        made = Comparison(
            bench="durable",
            label=f"batch {batch:,}, entries of {size:,} bytes",
            peer="by hand",
            unit="ms p50",
            ours=column(found["lancemem"], "p50"),
            theirs=column(found["by hand"], "p50"),
            goal=Goal(1.2, at_least=False),
            notes=_notes(found, "by hand"),
        )
        settings.say(f"  {made.label}: {made.interval()[0]:.2f}x")
        found_all.append(made)
    return found_all


def run_producers(settings: Settings) -> list[Comparison]:
    """Compare the rows a second of 16 threads with one thread."""
    found_all = []
    for batch in (100, BATCH):
        seconds = 0.3 if settings.quick else 1.0
        many = _child("producers", threads=PRODUCERS, batch=batch, seconds=seconds)
        one = _child("producers", threads=1, batch=batch, seconds=seconds)
        found = interleave(settings, {"16": many, "1": one})
        fsyncs = [f"{spread(column(found[name], 'fsyncs')).median:.2f}" for name in ("16", "1")]
        made = Comparison(
            bench="producers",
            label=f"{PRODUCERS} threads, batch {batch:,}",
            peer="one producer",
            unit="rows/s",
            ours=column(found["16"], "rows/s"),
            theirs=column(found["1"], "rows/s"),
            goal=Goal(10.0),
            notes=[("fsyncs a put", fsyncs[0], fsyncs[1])],
        )
        settings.say(f"  {made.label}: {made.interval()[0]:.2f}x")
        found_all.append(made)
    return found_all


def run_unsynced(settings: Settings) -> list[Comparison]:
    """Compare the p50 without fsync, where both survive a killed process only."""
    puts, waits = (100, 15) if settings.quick else (300, 25)
    slow, fast = "pylance, its interval of 100 ms", "pylance, interval of 1 ms"
    sides = {
        "lancemem": _child("durable-lancemem", puts=puts, batch=BATCH, fsync=False),
        slow: _child("durable-pylance", puts=waits, batch=BATCH, interval=None),
        fast: _child("durable-pylance", puts=puts, batch=BATCH, interval=1),
    }
    found = interleave(settings, sides)
    return [
        Comparison(
            bench="unsynced",
            label=f"batch {BATCH:,}",
            peer=name,
            unit="ms p50",
            ours=column(found["lancemem"], "p50"),
            theirs=column(found[name], "p50"),
            goal=goal,
            inverse=True,
            notes=_notes(found, name),
        )
        for name, goal in ((slow, Goal(20.0)), (fast, Goal(1.0)))
    ]
