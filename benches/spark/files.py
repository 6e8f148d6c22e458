"""Objects and open files after 1,000 micro-batches, with maintenance on.

Owns: the stream of batches, and `python -m lancemem maintain` beside it, as a person would run it.
Does not own: times (`cases`, `peers`).
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from benches.spark import cases

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 1_000
SAMPLES = 20
# Seconds: the defaults are 60 and 3,600, longer than the bench runs.
INTERVAL, OLDER_THAN = 2, 10


def measure(spark: SparkSession, folder: Path, scale: int, rounds: int) -> list[str]:
    """Upsert the batches both ways, and count on the way; once, whatever the rounds."""
    del rounds
    return [
        *_counted(spark, folder, 1_000 // scale, jobs=False),
        *_counted(spark, folder, 1_000 // scale, jobs=True),
    ]


def _counted(spark: SparkSession, folder: Path, batches: int, *, jobs: bool) -> list[str]:
    table = cases.create(spark, folder, "files")
    command = [sys.executable, "-m", "lancemem", "maintain", table.uri]
    command += ["--interval", str(INTERVAL), "--older-than", str(OLDER_THAN)]
    objects, handles = [], []
    with (
        subprocess.Popen(command, stdout=subprocess.DEVNULL) as maintainer,  # noqa: S603 - ours
        table.start_jobs() if jobs else nullcontext(),
    ):
        try:
            for number in range(1, 1 + batches):
                table.upsert(cases.rows(spark, number * 100, number * 100 + ROWS, 1))
                if number % (batches // SAMPLES) == 0:
                    objects.append(sum(1 for path in Path(table.uri).rglob("*") if path.is_file()))
                    handles.append(max(_handles(os.getpid()), _handles(maintainer.pid)))
        finally:
            maintainer.terminate()
    half = SAMPLES // 2
    way = "through running jobs" if jobs else "each with its claims"
    return [
        (
            f"| {what} after {batches:,} micro-batches of {ROWS:,} rows {way}, 4 shards, "
            f"maintenance every {INTERVAL} s, garbage after {OLDER_THAN} s | "
            f"at most {max(found[half:])} | at most {max(found[:half])} (in the first half) | |"
        )
        for what, found in (("objects", objects), ("open files of a process", handles))
    ]


def _handles(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))
