"""`python -m benches.compact.one_row [ROWS ...]`: compactions of one row above a record index.

Owns: bases of several sizes, compactions of one row each by two processes in turn, and their cost:
time, processor time, bytes read and written. Does not own: compaction as such (`benches.compact`).
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import lance
import numpy as np
import pyarrow as pa

import lancemem
from benches.compact.tables import KEY

if TYPE_CHECKING:
    from collections.abc import Iterator

ROWS = [1_000_000, 10_000_000, 140_000_000]
CHUNK_ROWS = 1_000_000
COMPACTIONS = 18
"""By each process: the SSTables of single rows are merged twice."""
STEP = 7_368_787
"""Coprime to every number of rows here: each key once, in no order."""
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False, metadata=KEY)])


def main() -> None:
    """Measure each size, and compare them."""
    parser = argparse.ArgumentParser(prog="python -m benches.compact.one_row", description=__doc__)
    parser.add_argument("rows", type=int, nargs="*", default=ROWS)
    parser.add_argument("--compactions", type=int, default=COMPACTIONS)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        _compact(chosen.child, chosen.rows[0], chosen.compactions)
        return
    medians = []
    for rows in chosen.rows:
        folder = Path(tempfile.mkdtemp(prefix="one-row-", dir=chosen.folder))
        try:
            medians.append(_measure(folder / "t.lance", rows, chosen.compactions))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    _say(f"largest median / smallest: {max(medians) / min(medians):.2f}")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _keys(start: int, end: int, rows: int) -> np.ndarray:
    return (np.arange(start, end) * STEP) % rows


def _measure(uri: Path, rows: int, compactions: int) -> float:
    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, rows, CHUNK_ROWS):
            ids = _keys(start, min(start + CHUNK_ROWS, rows), rows)
            yield pa.record_batch([pa.array(ids)], schema=SCHEMA)

    reader = pa.RecordBatchReader.from_batches(SCHEMA, batches())
    lance.write_dataset(reader, str(uri), max_rows_per_file=CHUNK_ROWS)
    started, used = time.perf_counter(), time.process_time()
    report = lancemem.enable(str(uri)).create_record_index()
    wall, used = time.perf_counter() - started, time.process_time() - used
    index = report.bytes / 1e6
    _say(f"{rows:,} rows: index of {index:,.0f} MB, {report.num_runs} runs")
    _say(f"  built in {wall:.1f} s, {used:.1f} s of processor time")
    took = []
    for _ in range(2):
        command = [sys.executable, "-m", "benches.compact.one_row", str(rows)]
        command += ["--compactions", str(compactions), "--child", str(uri)]
        child = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
        figures = [line.split() for line in child.stdout.splitlines()]
        took += _report([[float(figure) for figure in line] for line in figures])
    median = statistics.median(took)
    _say(f"  median {median:.1f} ms")
    return median


def _report(turns: list[list[float]]) -> list[float]:
    """Print the figures of a process: of its first compaction, then of the others."""
    first, others = turns[0], list(zip(*turns[1:], strict=True))
    names = ["ms", "ms of processor time", "kB read", "kB written"]
    told = [f"{value:,.0f} {name}" for value, name in zip(first, names, strict=True)]
    _say(f"  first of a process: {', '.join(told)}")
    told = [
        f"{statistics.median(values):,.0f} (at most {max(values):,.0f}) {name}"
        for values, name in zip(others, names, strict=True)
    ]
    _say(f"  the others: {', '.join(told)}")
    return [turn[0] for turn in turns]


def _compact(uri: Path, rows: int, compactions: int) -> None:
    table = lancemem.open_table(str(uri))
    random = np.random.default_rng()
    for _ in range(compactions):
        table.upsert(pa.table([pa.array(random.integers(0, rows, 1))], schema=SCHEMA))
        with table.start_job(shard=0) as job:
            job.flush()
        before = _io()
        used, started = time.process_time(), time.perf_counter()
        table.compact()
        figures = [time.perf_counter() - started, time.process_time() - used]
        counted = [(after - was) / 1e3 for after, was in zip(_io(), before, strict=True)]
        _say(" ".join(str(figure) for figure in [*(1e3 * it for it in figures), *counted]))


def _io() -> tuple[int, int]:
    lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(lines["rchar"]), int(lines["wchar"])


if __name__ == "__main__":
    main()
