"""The program of a contender: it claims a shard, writes until fenced, and claims it again.

Owns: the calls of one contender, and a line before and after each call. Each line is one write, so
that a killed process leaves no half line. Does not own: the check of the history.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from typing import Any

import pyarrow as pa

import lancemem

SCHEMA = pa.schema([pa.field("key", pa.int64(), nullable=False), pa.field("value", pa.string())])
KEY = pa.schema([SCHEMA.field("key")])
KEYS = 4
# A few rows per MemTable, so that flushes happen.
CONFIG = lancemem.WriterConfig(max_memtable_rows=24)
WRITES_A_CLAIM = 30
MAX_PAUSE_SECONDS = 0.03
# One in this many writes is followed by a compaction.
COMPACT_EVERY = 40


def say(event: str, **more: Any) -> None:  # noqa: ANN401 - what JSON can hold
    """Print an event and its time, on the clock that the processes of a machine share."""
    line = json.dumps({"event": event, "at": time.monotonic(), **more})
    os.write(1, f"{line}\n".encode())


class Contender:
    """One of the processes that claim the shard."""

    def __init__(self, told: dict[str, Any]) -> None:
        self.name: str = told["name"]
        self.claims: int = told["claims"]
        self.table = lancemem.open_table(told["uri"], storage_options=told["options"])
        self.chance = random.Random(told["seed"])  # noqa: S311 - a fixed seed is the point
        self.written = 0

    def run(self) -> None:
        """Claim the shard again and again, for the given number of claims."""
        while True:
            time.sleep(self.chance.uniform(0, MAX_PAUSE_SECONDS))
            self.read()
            try:
                with self.table.start_job(shard=0, config=CONFIG) as job:
                    epoch = job.stats().writer_epoch
                    say("claimed", epoch=epoch)
                    if epoch >= self.claims:
                        return
                    self.hold(job)
            except lancemem.WriterFencedError:
                say("fenced")

    def hold(self, job: lancemem.Job) -> None:
        """Write and read, until another process has the shard."""
        for _ in range(WRITES_A_CLAIM):
            self.written += 1
            key, value = self.chance.randrange(KEYS), f"{self.name}-{self.written}"
            say("write", key=key, value=value)
            job.put(pa.table({"key": [key], "value": [value]}, schema=SCHEMA))
            say("written", key=key, value=value)
            self.read()
            if self.chance.randrange(COMPACT_EVERY) == 0:
                say("compacted", generations=self.table.compact().num_generations)

    def read(self) -> None:
        """Read all keys, by key or in a scan."""
        begin = time.monotonic()
        if self.chance.randrange(2) == 0:
            found = self.table.get(pa.table({"key": range(KEYS)}, schema=KEY))
        else:
            found = self.table.scan().to_table()
        pairs = zip(found["key"].to_pylist(), found["value"].to_pylist(), strict=True)
        say("read", begin=begin, found=list(pairs))


if __name__ == "__main__":
    Contender(json.loads(sys.stdin.readline())).run()
