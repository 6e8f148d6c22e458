"""A scan of a large table: its peak memory and the time to its first batch, beside plain Lance.

Owns: child processes that read all batches and drop them. Lance reads the base table alone.
Does not own: the time of the whole scan (`scans`).
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import lance
import numpy as np

import lancemem
from benches.read import tables

if TYPE_CHECKING:
    from benches.write.runner import Settings

GOAL_MIB = 1_024.0
GOAL_FIRST_BATCH_MS = 100.0
CHUNK_ROWS = 1_000_000
RUNS = 4

# Not `ru_maxrss`: it remembers the process that started this one.
# `import lance` reads pyarrow's libraries before the clock starts, and so does the other side.
READER = """
import json, sys, time

import pyarrow

def memory():
    status = open("/proc/self/status").read()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))

side, turn = sys.argv[2:]
if side == "lancemem":
    import lancemem

    table = lancemem.open_table(sys.argv[1])
    read = table.scan
    if turn == "again":
        # The keys of the SSTables and the files' footers are in memory, the dead rows are not.
        table.scan(["id"], "tag < 0").count_rows()
else:
    import lance

    dataset = lance.dataset(sys.argv[1])
    read = dataset.to_batches
    if turn == "again":
        dataset.count_rows("tag < 0")
begun = time.perf_counter()
first, rows = None, 0
for batch in read():
    first = first or time.perf_counter() - begun
    rows += batch.num_rows
print(json.dumps([rows, first * 1e3, memory() / 1024]))
"""


@dataclass
class Scanned:
    """The cost of one scan."""

    side: str
    turn: str
    rows: int
    first_batch_ms: float
    peak_mib: float


def measure(settings: Settings, base_rows: int) -> list[Scanned]:
    """Scan a table with 10 % newer rows in four SSTables, cold and warm."""
    place = settings.folder / "table"
    uri = str(place / "t.lance")
    try:
        key = {b"lance-schema:unenforced-primary-key": b"true"}
        schema = tables.schema("int64")
        schema = schema.set(0, schema.field("id").with_metadata(key))
        for start in range(0, base_rows, CHUNK_ROWS):
            parts = (
                tables.rows("int64", np.arange(first, first + tables.PUT_ROWS)).cast(schema)
                for first in range(start, start + CHUNK_ROWS, tables.PUT_ROWS)
            )
            batches = (batch for part in parts for batch in part.to_batches())
            mode = "append" if start else "create"
            lance.write_dataset(batches, uri, schema=schema, mode=mode)
        config = lancemem.WriterConfig(
            durable=False, fsync=False, max_memtable_rows=4_000_000, max_memtable_bytes=1 << 30
        )
        table = lancemem.enable(uri, sharding=lancemem.unsharded(), config=config)
        tables.lay(table, "int64", base_rows, tables.FOUR).close(flush=True)
        sides = ("lancemem", "plain Lance")
        turns = ("opened anew", "again")
        return [_scan(uri, side, turn, base_rows) for turn in turns for side in sides]
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _scan(uri: str, side: str, turn: str, expected: int) -> Scanned:
    done = subprocess.run(  # noqa: S603 - our own interpreter
        [sys.executable, "-c", READER, uri, side, turn], check=True, capture_output=True, text=True
    )
    rows, first, peak = json.loads(done.stdout)
    if rows != expected:
        message = f"{rows} rows, not {expected}"
        raise RuntimeError(message)
    return Scanned(side, turn, rows, first, peak)
