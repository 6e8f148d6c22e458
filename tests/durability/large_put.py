"""The program of a child that makes one large put.

Owns: the put, and the figures on standard output: memory before it and at its peak, in bytes.
Does not own: the limits (test_memory).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa

import lancemem

from .budget import PAYLOAD_BYTES, SCHEMA, batch, memory

CHUNKS = 8


def main() -> None:
    """Put and report."""
    uri, total, shape = json.loads(sys.argv[1])
    table = lancemem.create_table(uri, SCHEMA, primary_key="id")
    job = table.start_job(shard=0)
    rows, chance = total // PAYLOAD_BYTES, np.random.default_rng(1)
    job.put(batch(0, 1, chance))
    part = rows // CHUNKS
    parts = (batch(number * part, part, chance) for number in range(CHUNKS))
    data: pa.RecordBatch | pa.Table | pa.RecordBatchReader
    if shape == "whole":
        data = batch(0, rows, chance)
    elif shape == "chunks":
        data = pa.Table.from_batches(list(parts))
    else:
        data = pa.RecordBatchReader.from_batches(SCHEMA, parts)
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = memory("VmRSS")
    job.put(data)
    peak = memory("VmHWM")
    job.close()
    print(json.dumps({"before": before, "peak": peak}))  # noqa: T201


if __name__ == "__main__":
    main()
