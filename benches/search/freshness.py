"""How soon a search finds a row whose put was acknowledged, in the same process and in another.

Owns: the tables, the waits and their lines on the page. Does not own: the other measurements
(`__main__`). `python -m benches.search.freshness URI ROWS PUTS` is the other process: it searches
for the row of each number that it reads until it finds it, and answers with a line.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from functools import partial
from typing import IO, TYPE_CHECKING, Any, cast

import numpy as np

import lancemem
from benches.search import tables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LEVELS = ("durable", "live")
ELSEWHERE = "durable, another process"
# Milliseconds, of the median.
GOALS = {"durable": 1.0, "live": 1.0, ELSEWHERE: 5.0}
MAX_SECONDS = 10.0

Waits = dict[str, list[float]]


def measure(folder: Path, sizes: tables.Sizes, puts: int) -> Waits:
    """Put one row after another above rows in memory, and search for each at once."""
    waits: Waits = {}
    for level in LEVELS:
        with _job(folder, sizes.memory_rows, puts) as (job, vectors, table):
            found_here = partial(_find, table, vectors, level)
            waits[level] = _waits(job, vectors, sizes.memory_rows, found_here)
    with _job(folder, sizes.memory_rows, puts) as (job, vectors, table):
        told = [table.uri, str(sizes.memory_rows), str(puts)]
        with _other_process(told) as found_elsewhere:
            waits[ELSEWHERE] = _waits(job, vectors, sizes.memory_rows, found_elsewhere)
    return waits


def lines(waits: Waits, memory_rows: int) -> list[str]:
    """The lines of the page."""
    return [
        "From the acknowledgement of a put to the search that finds its row, above",
        f"{memory_rows:,} rows in memory:",
        "",
        "| level | p50, ms | p99, ms | goal, p50 | met |",
        "| --- | --- | --- | --- | --- |",
        *(_line(level, of) for level, of in waits.items()),
    ]


def _line(level: str, waits: list[float]) -> str:
    p50, p99 = np.percentile(waits, [50, 99])
    met = "yes" if p50 <= GOALS[level] else "no"
    return f"| {level} | {p50:.2f} | {p99:.2f} | at most {GOALS[level]:g} | {met} |"


def _vectors(rows: int, puts: int) -> tables.Vectors:
    """Draw the same vectors in every process."""
    random = np.random.default_rng(11)
    return random.normal(size=(rows + puts, tables.WIDTH)).astype(np.float32)


@contextmanager
def _job(
    folder: Path, rows: int, puts: int
) -> Iterator[tuple[lancemem.Job, tables.Vectors, lancemem.Table]]:
    """Give a job with `rows` rows in memory."""
    uri = folder / "fresh.lance"
    table = lancemem.create_table(uri, tables.SCHEMA, primary_key="id", config=tables.CONFIG)
    vectors = _vectors(rows, puts)
    with table.start_job(shard=0) as job:
        for put in tables.puts(np.arange(rows), vectors[:rows]):
            job.put(put)
        yield job, vectors, table
    shutil.rmtree(uri)


def _waits(
    job: lancemem.Job, vectors: tables.Vectors, rows: int, until_found: Callable[[int], None]
) -> list[float]:
    """Put every row above the first ones, and time the milliseconds until it is found."""
    waits = []
    for number in range(rows, len(vectors)):
        job.put(tables.rows([number], vectors[number : number + 1]))
        begun = time.perf_counter()
        until_found(number)
        waits.append((time.perf_counter() - begun) * 1e3)
    return waits


@contextmanager
def _other_process(told: list[str]) -> Iterator[Callable[[int], None]]:
    """Give a call that returns when another process has found the row of a number."""
    command = [sys.executable, "-m", "benches.search.freshness", *told]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as other:  # noqa: S603
        numbers, answers = cast("IO[str]", other.stdin), cast("IO[str]", other.stdout)

        def wait() -> None:
            if not answers.readline():
                message = f"the other process ended with {other.wait()}"
                raise AssertionError(message)

        def until_found(number: int) -> None:
            print(number, file=numbers, flush=True)
            wait()

        wait()
        yield until_found
        numbers.close()


def _find(table: lancemem.Table, vectors: tables.Vectors, level: str, number: int) -> None:
    """Search until the row of this number is the nearest to its vector."""
    query = vectors[number]
    begun = time.perf_counter()
    consistency = cast("Any", level)
    while (passed := time.perf_counter() - begun) < MAX_SECONDS:
        search = table.search(query, k=1, columns=["id"], consistency=consistency)
        if search.to_table()["id"].to_pylist() == [number]:
            return
    message = f"row {number} is not found {passed:.0f} s after its put was acknowledged"
    raise AssertionError(message)


def main() -> None:
    """Search for the rows that another process puts."""
    uri, rows, puts = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    table, vectors = lancemem.open_table(uri), _vectors(rows, puts)
    _find(table, vectors, "durable", 0)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        number = int(line)
        _find(table, vectors, "durable", number)
        sys.stdout.write("found\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
