"""The program of a child that writes many rows within a small memory budget.

Owns: the writing, and the figures on standard output: memory before the big puts and at its peak,
in bytes. Does not own: the limits (test_memory).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa

import lancemem

KIB = 1024
PAYLOAD_BYTES = 4096
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("data", pa.binary())])


def memory(name: str) -> int:
    """Read `VmRSS` or `VmHWM` of this process."""
    status = Path("/proc/self/status").read_text().splitlines()
    line = next(line for line in status if line.startswith(f"{name}:"))
    return int(line.split()[1]) * KIB


def batch(first: int, rows: int, chance: np.random.Generator) -> pa.RecordBatch:
    """Make a batch of random bytes, which do not compress."""
    data = pa.py_buffer(chance.bytes(rows * PAYLOAD_BYTES))
    offsets = pa.py_buffer(np.arange(rows + 1, dtype=np.int32) * PAYLOAD_BYTES)
    column = pa.Array.from_buffers(pa.binary(), rows, [None, offsets, data])
    ids = pa.array(np.arange(first, first + rows, dtype=np.int64))
    return pa.RecordBatch.from_arrays([ids, column], schema=SCHEMA)


def main() -> None:
    """Write and report."""
    uri, total, batch_bytes, settings = json.loads(sys.argv[1])
    table = lancemem.create_table(uri, SCHEMA, primary_key="id")
    job = table.start_job(shard=0, config=lancemem.WriterConfig(**settings))
    rows, chance = batch_bytes // PAYLOAD_BYTES, np.random.default_rng(1)
    job.put(batch(0, rows, chance))
    job.flush()
    before = memory("VmRSS")
    for number in range(1, total // batch_bytes + 1):
        job.put(batch(number * rows, rows, chance))
    peak = memory("VmHWM")
    stats = job.stats()
    job.close()
    print(json.dumps({"before": before, "peak": peak, "flushes": stats.num_flushes}))  # noqa: T201


if __name__ == "__main__":
    main()
