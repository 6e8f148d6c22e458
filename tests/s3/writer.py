"""The program of the writers that are killed or fenced: it puts and prints acknowledgements."""

from __future__ import annotations

import itertools
import json
import os
import sys

import lancemem

from .conftest import rows

ROWS = 3


def say(line: str) -> None:
    """Print a line in one write: a killed process leaves no half line."""
    os.write(1, f"{line}\n".encode())


def main() -> None:
    """Put `ROWS` rows for each line that comes, flush now and then, until killed or fenced."""
    told = json.loads(sys.stdin.readline())
    table = lancemem.open_table(told["uri"], storage_options=told["options"])
    job = table.start_job(shard=0)
    say("claimed 0")
    try:
        for turn in itertools.count(1):
            first = turn * ROWS
            say(f"start {turn}")
            job.put(rows(range(first, first + ROWS), told["name"]))
            say(f"ack {turn}")
            if turn % told["flush_every"] == 0:
                job.flush()
            if not sys.stdin.readline():
                return
    except lancemem.WriterFencedError:
        say("fenced 0")


if __name__ == "__main__":
    main()
