"""The measurements, one function each.

Owns: a clock around one call of either side, in turn. Does not own: the tables or the report.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import lance
import numpy as np

import lancemem
from benches.compact import tables

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pyarrow as pa

T = TypeVar("T")

# Not `ru_maxrss`: it remembers the process that started this one.
COMPACT_IN_A_CHILD = """
import sys, lancemem
lancemem.open_table(sys.argv[1]).compact(mode=sys.argv[2])
status = open("/proc/self/status").read()
print(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))
"""


@dataclass
class Side:
    """Measurements of one side, by their names."""

    values: dict[str, list[float]] = field(default_factory=dict)

    def add(self, name: str, value: float) -> None:
        """Keep one."""
        self.values.setdefault(name, []).append(value)

    def last(self) -> dict[str, float]:
        """Return the newest measurement of each name."""
        return {name: values[-1] for name, values in self.values.items()}


@dataclass
class Pair:
    """Both sides."""

    ours: Side = field(default_factory=Side)
    theirs: Side = field(default_factory=Side)


def _timed(call: Callable[[], T]) -> tuple[float, T]:
    gc.collect()
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def compact(runs: Path, mode: str, side: Side) -> Path:
    """Compact a copy of a table with SSTables; keep time and bytes. Returns the copy."""
    path = tables.copy(runs)
    table = lancemem.open_table(str(path))
    before = tables.sizes(path)
    seconds, _ = _timed(lambda: table.compact(mode=mode))  # type: ignore[arg-type]
    side.add("seconds", seconds)
    side.add("bytes", tables.written(before, tables.sizes(path)))
    return path


def write_and_compact(base: Path, changed: pa.Table, side: Side) -> Path:
    """Put rows above a copy of the base, flush and compact them; keep the time of each step.

    Nothing of the write happened before the clock starts but `enable`, which a table needs once.
    The rows are flushed with fsync.
    """
    path = tables.copy(base)
    table = lancemem.enable(str(path), config=tables.CONFIG)
    before = tables.sizes(path)
    batches = changed.to_batches(max_chunksize=tables.PUT_ROWS)
    # Its claim is part of the write.
    opened, job = _timed(lambda: table.start_job(shard=0, config=tables.CONFIG))

    def put() -> None:
        for batch in batches:
            job.put(batch, durable=False)

    written, _ = _timed(put)
    flushed, _ = _timed(lambda: job.close(flush=True))
    compacted, _ = _timed(table.compact)
    side.add("put seconds", opened + written)
    side.add("flush seconds", flushed)
    side.add("compact seconds", compacted)
    side.add("seconds", opened + written + flushed + compacted)
    side.add("bytes", tables.written(before, tables.sizes(path)))
    return path


def look_up(runs: Path) -> tuple[Path, tuple[float, int]]:
    """Switch a copy to deletion-vector mode; return it, and the seconds and bytes of that."""
    path = tables.copy(runs)
    table = lancemem.open_table(str(path))
    before = tables.sizes(path)
    seconds, _ = _timed(lambda: table.alter(deletion_vectors=True))
    return path, (seconds, tables.written(before, tables.sizes(path)))


def merge_insert(base: Path, parts: list[pa.Table], side: Side) -> Path:
    """Merge the same rows into a copy of the base, one call a part. Returns the copy."""
    path = tables.copy(base)
    before = tables.sizes(path)

    def merge() -> None:
        for part in parts:
            lance.dataset(str(path)).merge_insert(
                "id"
            ).when_matched_update_all().when_not_matched_insert_all().execute(part)

    seconds, _ = _timed(merge)
    side.add("seconds", seconds)
    side.add("bytes", tables.written(before, tables.sizes(path)))
    return path


def scan(path: Path, side: Side) -> int:
    """Read a whole table with pylance."""

    def read() -> int:
        return sum(batch.num_rows for batch in lance.dataset(str(path)).to_batches())

    seconds, count = _timed(read)
    side.add("scan seconds", seconds)
    return count


def peak_memory(runs: Path, mode: str) -> float:
    """Compact in a separate process; return the growth of its memory, in MiB."""
    path = tables.copy(runs)
    try:
        out = subprocess.run(  # noqa: S603 - our own interpreter
            [sys.executable, "-c", COMPACT_IN_A_CHILD, str(path), mode],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
    finally:
        tables.remove(path)
    return int(out.stdout) / 1024


def put_latency(base: Path, seconds: float, *, compacting: bool) -> float:
    """Put durable batches of 100 rows; return the 99th percentile in ms."""
    path = tables.copy(base)
    table = lancemem.enable(str(path))
    stop = threading.Event()

    def keep_compacting() -> None:
        while not stop.is_set():
            table.compact()

    worker = threading.Thread(target=keep_compacting)
    config = lancemem.WriterConfig(max_memtable_rows=20_000)
    waits = []
    try:
        with table.start_job(shard=0, config=config) as job:
            if compacting:
                worker.start()
            until = time.perf_counter() + seconds
            random = np.random.default_rng(5)
            while time.perf_counter() < until:
                batch = tables.rows(random.integers(0, 1_000_000, 100), 6)
                start = time.perf_counter()
                job.put(batch)
                waits.append(time.perf_counter() - start)
            stop.set()
            if compacting:
                worker.join()
    finally:
        tables.remove(path)
    return float(np.percentile(waits, 99)) * 1e3
