"""Replay: what a job reads back from the WAL of a process that died, against pylance's reopen.

Owns: the state that is left, copied for each sample, and that both sides hold all of its rows.
Does not own: leaving it and opening it, which `children` do.
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
# Above what is left, for the writer as for the reopen, so that neither side flushes any of it.
LIMITS = {"max_memtable_rows": 2 * ROWS}


def _leave(settings: Settings, engine: str) -> Path:
    folder = settings.folder / f"left-by-{engine}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    run_child(folder, f"leave-{engine}", entries=ENTRIES, batch=BATCH, limits=LIMITS)
    return folder


def _side(left: Path, engine: str) -> Side:
    def sample(folder: Path) -> Sample:
        shutil.copytree(left, folder, dirs_exist_ok=True)
        found = run_child(folder, f"reopen-{engine}", limits=LIMITS)
        if found["rows"] != ROWS:
            raise RuntimeError(f"{engine} replayed {found['rows']} of {ROWS} rows")
        return {"rows/s": ROWS / found["seconds"], "ms": found["seconds"] * 1e3}

    return sample


def run(settings: Settings) -> list[Comparison]:
    """Replay 100 entries of 1,000 rows."""
    sides = {name: _side(_leave(settings, name), name) for name in ("lancemem", "pylance")}
    found = interleave(settings, sides)
    took = [f"{spread(column(found[name], 'ms')).median:.1f}" for name in sides]
    return [
        Comparison(
            bench="replay",
            label=f"{ENTRIES} entries, {ROWS:,} rows, {payload_bytes(ROWS) / 1e6:.1f} MB",
            peer="pylance",
            unit="rows/s",
            ours=column(found["lancemem"], "rows/s"),
            theirs=column(found["pylance"], "rows/s"),
            goal=Goal(4.0),
            notes=[("ms", took[0], took[1])],
        )
    ]
