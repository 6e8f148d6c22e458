"""Upserts of one row in a loop without a writer.

Owns: `upsert` (with and without fsync), beside a job that is started and closed for each row.
Does not own: the work itself, which `children` does in a process whose fsyncs are counted.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from benches.write.fsync import run_child
from benches.write.runner import Sample, Settings, column, interleave
from benches.write.stats import Comparison, Goal, spread

if TYPE_CHECKING:
    from pathlib import Path


def _sample(folder: Path, *, calls: int, fsync: bool) -> Sample:
    return run_child(folder, "upserts-beside-jobs", calls=calls, fsync=fsync)


def _median(samples: list[Sample], key: str) -> str:
    return f"{spread(column(samples, key)).median:.3g}"


def run(settings: Settings) -> list[Comparison]:
    """Compare the p50 of `Table.upsert` with that of a job for each row, in turn."""
    found_all = []
    calls = 60 if settings.quick else 200
    for fsync in (True, False):
        both = partial(_sample, calls=calls, fsync=fsync)
        measured = interleave(settings, {"both": both})["both"]
        notes = [
            (heading, _median(measured, f"upsert {key}"), _median(measured, f"job {key}"))
            for heading, key in (("fsyncs a call", "fsyncs"), ("p99 ms", "p99"))
        ]
        made = Comparison(
            bench="upsert",
            label=f"upsert in a loop, one row, {'with' if fsync else 'without'} fsync",
            peer="start_job, put, close",
            unit="ms p50",
            ours=column(measured, "upsert p50"),
            theirs=column(measured, "job p50"),
            goal=Goal(0.5, at_least=False),
            notes=notes,
        )
        settings.say(f"  {made.label}: {made.interval()[0]:.2f}x")
        found_all.append(made)
    return found_all
