"""`python -m benches.write.bursts`: the same burst in new memory, and in memory used before.

Owns: eight bursts of `cases.put`, one after the other, in one process. A MemTable copies rows into
memory. The first burst gets its memory from the system page by page, the later bursts get theirs
from the allocator, which keeps freed memory for ten seconds. Does not own: the burst, or the
comparison with a peer.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from benches.write import machine
from benches.write.cases import put
from benches.write.data import batches_of
from benches.write.peers.lancemem_job import LancememPeer
from benches.write.runner import Settings, interleave

BURSTS = 8
BATCH_ROWS = 1_000


def main() -> None:
    """Run the bursts, and print a line each."""
    rows = put.ROWS[BATCH_ROWS]
    print(f"commit {machine.commit()}, new memory at {machine.new_memory()}")
    print(f"{rows:,} rows, int64 keys at random, batches of {BATCH_ROWS:,}, not durable")
    batches = batches_of("int64", "random", rows, BATCH_ROWS)
    burst = put.side(LancememPeer, "int64", batches, rows)
    with tempfile.TemporaryDirectory() as folder:
        bursts = interleave(Settings(Path(folder)), {"burst": burst}, BURSTS)["burst"]
    for number, found in enumerate(bursts, start=1):
        rate, faults = found["rows/s"] / 1e6, found["page faults"]
        print(f"burst {number}: {rate:.1f} million rows/s, {faults:,.0f} page faults")


if __name__ == "__main__":
    main()
