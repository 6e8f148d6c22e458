"""The program of the child processes: it runs given steps and prints acknowledgements.

Owns: the steps, and a line for each event that a promise depends on: `start 3`, `ack 3` for a
durable put, `took 3` for a put that is not durable, `flushed 3`, `closed 3`. Each line is one write
to standard output; with a second argument also to that file, where the log of calls shows it.
Does not own: the promises of the events.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
from datetime import timedelta
from typing import Any

import lancemem

from . import oracle
from .modes import writer_config


class Writer:
    """A table, at most one job, and how many operations were done."""

    def __init__(self, uri: str, marks: str | None) -> None:
        self.uri = uri
        self.done = 0
        self.job: lancemem.Job | None = None
        self.outputs = [1]
        if marks is not None:
            self.outputs.append(os.open(marks, os.O_WRONLY | os.O_CREAT | os.O_APPEND))

    def say(self, event: str) -> None:
        """Print an event and the number of operations before it."""
        for output in self.outputs:
            os.write(output, f"{event} {self.done}\n".encode())

    def create(self, config: dict[str, Any]) -> None:
        """Create the table."""
        settings = writer_config(config)
        lancemem.create_table(self.uri, oracle.SCHEMA, primary_key="id", config=settings)
        self.say("created")

    def resume(self, done: int) -> None:
        """Continue after the operations of an earlier process."""
        self.done = done

    def start_job(self, config: dict[str, Any]) -> None:
        """Start a job; a running job is fenced."""
        table = lancemem.open_table(self.uri)
        self.job = table.start_job(shard=0, config=writer_config(config))
        self.say("claimed")

    def operate(self, count: int | None) -> None:
        """Do `count` operations, or go on until killed."""
        assert self.job is not None
        for _ in itertools.count() if count is None else range(count):
            self.done += 1
            self.say("start")
            self.say("ack" if oracle.apply(self.job, self.done) else "took")

    def put_and_flush_until_killed(self, every: int) -> None:
        """Flush after `every` operations."""
        while True:
            self.operate(every)
            self.flush()

    def put_and_close_until_killed(self, every: int, config: dict[str, Any]) -> None:
        """Close a job and start the next after `every` operations."""
        while True:
            self.operate(every)
            self.close(flush=False)
            self.start_job(config)

    def flush(self) -> None:
        """Flush the job."""
        assert self.job is not None
        self.job.flush()
        self.say("flushed")

    def close(self, flush: bool) -> None:
        """Close the job."""
        assert self.job is not None
        self.job.close(flush=flush)
        self.say("closed")

    def compact(self) -> None:
        """Compact the table."""
        lancemem.open_table(self.uri).compact()
        self.say("compacted")

    def rewrite(self) -> None:
        """Let Lance rewrite the files of the base table, which syncs nothing."""
        import lance  # noqa: PLC0415 - the other steps do without it

        lance.dataset(self.uri).optimize.compact_files()
        self.say("rewritten")

    def collect(self) -> None:
        """Remove all garbage, however young."""
        lancemem.open_table(self.uri).collect_garbage(older_than=timedelta(0))
        self.say("collected")

    def do(self, steps: list[list[Any]]) -> None:
        """Do steps, each the name of a method and its arguments."""
        for name, *arguments in steps:
            getattr(self, name)(*arguments)


def main() -> None:
    """Do the steps that standard input lists."""
    writer = Writer(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None)
    writer.do(json.load(sys.stdin))


if __name__ == "__main__":
    main()
