"""Durable puts of one row through a table's writer: beside a job, and from several threads.

Owns: `writer` (one thread, with and without fsync) and `writer-threads` (four threads, one and four
shards). Does not own: the work itself, which `children` does in processes whose fsyncs are counted.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from benches.write.fsync import run_child
from benches.write.runner import Sample, Settings, Side, column, interleave
from benches.write.stats import Comparison, Goal, spread

if TYPE_CHECKING:
    from pathlib import Path

THREADS = 4
KEYS = ("p50", "p99", "fsyncs")


def _sample(folder: Path, *, role: str, options: dict[str, object]) -> Sample:
    return run_child(folder, role, **options)


def _child(role: str, **options: object) -> Side:
    return partial(_sample, role=role, options=options)


def _median(samples: list[Sample], key: str) -> str:
    return f"{spread(column(samples, key)).median:.3g}"


def run(settings: Settings) -> list[Comparison]:
    """Compare the p50 of `writer.put` with that of `job.put`, in one process, in turn."""
    found_all = []
    puts = 100 if settings.quick else 400
    for fsync in (True, False):
        both = _child("writer-beside-job", puts=puts, fsync=fsync)
        measured = interleave(settings, {"both": both})["both"]
        found = {
            side: [{key: sample[f"{side} {key}"] for key in KEYS} for sample in measured]
            for side in ("writer", "job")
        }
        notes = [
            (heading, _median(found["writer"], key), _median(found["job"], key))
            for heading, key in (("fsyncs a put", "fsyncs"), ("p99 ms", "p99"))
        ]
        made = Comparison(
            bench="writer",
            label=f"one row, {'with' if fsync else 'without'} fsync",
            peer="job.put",
            unit="ms p50",
            ours=column(found["writer"], "p50"),
            theirs=column(found["job"], "p50"),
            goal=Goal(1.3, at_least=False),
            notes=notes,
        )
        settings.say(f"  {made.label}: {made.interval()[0]:.2f}x")
        found_all.append(made)
    return found_all


def run_threads(settings: Settings) -> list[Comparison]:
    """Compare the rows a second of four threads through one writer with those of one thread."""
    found_all = []
    seconds = 0.3 if settings.quick else 1.0
    for shards in (1, THREADS):
        sides = {
            str(threads): _child("writer-threads", threads=threads, shards=shards, seconds=seconds)
            for threads in (THREADS, 1)
        }
        found = interleave(settings, sides)
        fsyncs = [f"{spread(column(found[name], 'fsyncs')).median:.2f}" for name in sides]
        made = Comparison(
            bench="writer-threads",
            label=f"{THREADS} threads, one row a put, {shards} shard{'s' if shards > 1 else ''}",
            peer="one thread",
            unit="rows/s",
            ours=column(found[str(THREADS)], "rows/s"),
            theirs=column(found["1"], "rows/s"),
            goal=Goal(2.0),
            notes=[("fsyncs a put", fsyncs[0], fsyncs[1])],
        )
        settings.say(f"  {made.label}: {made.interval()[0]:.2f}x")
        found_all.append(made)
    return found_all
