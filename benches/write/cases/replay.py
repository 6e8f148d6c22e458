"""Replay of the WAL of a process that died, against pylance's reopen.

Owns: the state that is left, copied for each sample, and the check that both sides have all of its
rows. lancemem is measured twice: without fsync, which is the durability of pylance and carries the
goal, and with it, its default, which syncs its claim before it counts. Does not own: leaving the
state and opening it, which `children` do.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from benches.write.data import payload_bytes
from benches.write.fsync import run_child
from benches.write.runner import Sample, Settings, Side, column, interleave
from benches.write.stats import Comparison, Goal, spread

if TYPE_CHECKING:
    from pathlib import Path

ENTRIES = 100
BATCH = 1_000
ROWS = ENTRIES * BATCH
# Above the size of the log, for the writer and the reopen, so that neither side flushes.
LIMITS = {"max_memtable_rows": 2 * ROWS}
SIDES: dict[str, tuple[str, dict[str, bool]]] = {
    "lancemem without fsync": ("lancemem", {"fsync": False}),
    "lancemem with fsync": ("lancemem", {"fsync": True}),
    "pylance": ("pylance", {}),
}


def _leave(settings: Settings, name: str) -> Path:
    folder = settings.folder / f"left-by-{name.replace(' ', '-')}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    engine, options = SIDES[name]
    run_child(folder, f"leave-{engine}", entries=ENTRIES, batch=BATCH, limits=LIMITS, **options)
    return folder


def _side(left: Path, name: str) -> Side:
    engine, options = SIDES[name]

    def sample(folder: Path) -> Sample:
        shutil.copytree(left, folder, dirs_exist_ok=True)
        found = run_child(folder, f"reopen-{engine}", limits=LIMITS, **options)
        if found["rows"] != ROWS:
            raise RuntimeError(f"{name} replayed {found['rows']} of {ROWS} rows")
        seconds = found["seconds"]
        return {"rows/s": ROWS / seconds, "ms": seconds * 1e3, "fsyncs": found["fsyncs"]}

    return sample


def run(settings: Settings) -> list[Comparison]:
    """Replay 100 entries of 1,000 rows."""
    sides = {name: _side(_leave(settings, name), name) for name in SIDES}
    found = interleave(settings, sides)

    def note(name: str, what: str, form: str) -> str:
        return format(spread(column(found[name], what)).median, form)

    return [
        Comparison(
            bench="replay",
            label=f"{ENTRIES} entries, {ROWS:,} rows, {payload_bytes(ROWS) / 1e6:.1f} MB, {name}",
            peer="pylance",
            unit="rows/s",
            ours=column(found[name], "rows/s"),
            theirs=column(found["pylance"], "rows/s"),
            goal=goal,
            notes=[
                ("ms", note(name, "ms", ".1f"), note("pylance", "ms", ".1f")),
                ("fsyncs", note(name, "fsyncs", ".0f"), note("pylance", "fsyncs", ".0f")),
            ],
        )
        for name, goal in (("lancemem without fsync", Goal(4.0)), ("lancemem with fsync", None))
    ]
