"""`python -m benches.write.bursts`: the same burst in new memory, and in memory used before.

Owns: eight bursts, one after the other, in one process, with the page faults of each. A MemTable
copies rows into memory. The first bursts get theirs from the system page by page, the later ones
from the allocator, which keeps what was freed for ten seconds. Does not own: the comparison with a
peer (`cases.put`).
"""

from __future__ import annotations

import argparse
import gc
import resource
import tempfile
import time
from pathlib import Path

from benches.write import machine
from benches.write.data import batches_of
from benches.write.peers.lancemem_job import LancememPeer

BURSTS = 8
ROWS = 200_000


def main() -> None:
    """Run the bursts of each batch size, and print a line each."""
    parser = argparse.ArgumentParser(prog="python -m benches.write.bursts")
    parser.add_argument("--batch", type=int, nargs="+", default=[1_000],
                        help="rows; only the first size begins in new memory")  # fmt: skip
    chosen = parser.parse_args()
    print(f"commit {machine.commit()}, new memory at {machine.new_memory()}")
    for size in chosen.batch:
        print(f"{ROWS:,} rows, int64 keys at random, batches of {size:,}, not durable")
        batches = batches_of("int64", "random", ROWS, size)
        for number in range(1, 1 + BURSTS):
            with tempfile.TemporaryDirectory() as folder:
                job = LancememPeer(Path(folder), "int64")
                gc.collect()
                faults, begun = _faults(), time.perf_counter()
                for batch in batches:
                    job.put(batch)
                taken, faults = time.perf_counter() - begun, _faults() - faults
                job.close()
            rate = ROWS / taken / 1e6
            print(
                f"  burst {number}: {rate:.1f} million rows/s, {faults:,} page faults", flush=True
            )


def _faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


if __name__ == "__main__":
    main()
