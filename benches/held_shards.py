"""What a call costs beside a job of another process, and what the end of a job costs.

Owns the figures of decision 0029. Does not own calls in a loop (`benches.write --only upsert`).

    python -m benches.held_shards [--rounds 50]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

import lancemem

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEMA = pa.schema([("id", pa.int64()), ("value", pa.float64())])
ROW = pa.table({"id": [1], "value": [0.5]}, schema=SCHEMA)
# A process that starts a job for each line of its input. The job before it is fenced or closed.
JOBS = """
    import sys
    import lancemem

    table = lancemem.open_table(sys.argv[1])
    for line in sys.stdin:
        job = table.start_job(shard=0)
        print("running", flush=True)
"""


def milliseconds(call: Callable[[], object]) -> float:
    """Time one call."""
    begun = time.perf_counter()
    call()
    return 1000 * (time.perf_counter() - begun)


def refused(table: lancemem.Table) -> None:
    """Call beside the job, which has to be left alone."""
    try:
        table.upsert(ROW)
    except lancemem.ShardHeldError:
        return
    raise AssertionError("the call was not refused")


def beside_jobs(uri: str, rounds: int) -> dict[str, list[float]]:
    """Call beside a job of another process, in turn with and without `take_over`."""
    table = lancemem.create_table(uri, SCHEMA, primary_key="id")
    command = [sys.executable, "-c", textwrap.dedent(JOBS), uri]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    jobs: subprocess.Popen[str] = subprocess.Popen(command, text=True, **pipes)  # type: ignore[call-overload] # noqa: S603
    times: dict[str, list[float]] = {"a refused call": [], "a call that takes over": []}
    try:
        for _ in range(rounds):
            assert jobs.stdin is not None and jobs.stdout is not None  # noqa: S101, PT018
            jobs.stdin.write("start\n")
            jobs.stdin.flush()
            jobs.stdout.readline()
            times["a refused call"].append(milliseconds(lambda: refused(table)))
            insists = milliseconds(lambda: table.upsert(ROW, take_over=True))
            times["a call that takes over"].append(insists)
    finally:
        jobs.kill()
        jobs.communicate()
    return times


def ends(uri: str, rounds: int) -> dict[str, list[float]]:
    """Close jobs with and without a row in their log."""
    table = lancemem.create_table(uri, SCHEMA, primary_key="id")
    times: dict[str, list[float]] = {"the end of a job with rows": [], "without rows": []}
    for _ in range(rounds):
        for name, measured in times.items():
            job = table.start_job(shard=0)
            job.put(ROW)
            if name == "without rows":
                job.flush()
            measured.append(milliseconds(job.close))
    return times


def main() -> None:
    """Print the median and the range of each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        times = beside_jobs(str(Path(folder, "calls")), rounds)
        times |= ends(str(Path(folder, "ends")), rounds)
    print("| | p50 ms | min | max |\n| --- | --- | --- | --- |")
    for name, each in times.items():
        print(f"| {name} | {statistics.median(each):.1f} | {min(each):.1f} | {max(each):.1f} |")


if __name__ == "__main__":
    main()
