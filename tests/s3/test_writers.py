"""Writers in their own processes: killed, and fenced."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import lancemem

from .conftest import SCHEMA, Place, rows
from .running import environment
from .writer import ROWS

if TYPE_CHECKING:
    from collections.abc import Iterator


class Writer:
    """A running writer and its output so far."""

    def __init__(self, place: Place, name: str, flush_every: int) -> None:
        self.child = subprocess.Popen(
            [sys.executable, "-m", "tests.s3.writer"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment(),
            text=True,
        )
        told = {"uri": place.uri, "options": place.options, "name": name}
        self.started = self.acknowledged = 0
        self.tell(json.dumps({**told, "flush_every": flush_every}))

    def tell(self, line: str) -> None:
        """Send it a line; it may have ended."""
        assert self.child.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.child.stdin.write(f"{line}\n")
            self.child.stdin.flush()

    def lines(self) -> Iterator[tuple[str, int]]:
        """Yield its output, until it ends. It is one put ahead, however fast the store is."""
        assert self.child.stdout is not None
        for line in self.child.stdout:
            event, number = line.split()
            if event == "start":
                self.started = int(number)
            if event == "ack":
                self.acknowledged = int(number)
                self.tell("go on")
            yield event, int(number)

    def wait_for(self, event: str, number: int) -> None:
        """Read on until a line of output."""
        assert (event, number) in self.lines(), f"it never said '{event} {number}'"

    def end(self) -> None:
        """Kill it and read the rest of its output."""
        self.child.kill()
        for _ in self.lines():
            pass
        self.child.wait(30)
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.child.stdin.close()
        self.child.stdout.close()


@pytest.fixture
def table(place: Place) -> lancemem.Table:
    """Create an empty table with one shard."""
    return lancemem.create_table(place.uri, SCHEMA, primary_key="id", storage_options=place.options)


def turns(table: lancemem.Table) -> list[int]:
    """Return the turns whose rows are in the table, each of them whole."""
    ids = sorted(table.scan().to_table()["id"].to_pylist())
    found = sorted({i // ROWS for i in ids})
    assert ids == [turn * ROWS + row for turn in found for row in range(ROWS)]
    return found


def test_a_killed_writer_loses_nothing_that_it_acknowledged(
    table: lancemem.Table, place: Place
) -> None:
    for flush_every in (1_000_000, 4):
        before = len(turns(table))
        writer = Writer(place, "killed", flush_every)
        try:
            writer.wait_for("ack", before + 9)
        finally:
            writer.end()
        last = turns(table)
        assert last == list(range(1, len(last) + 1)), "no hole"
        assert max(writer.acknowledged, before) <= len(last) <= max(writer.started, before)
    with table.start_job(shard=0) as job:
        job.put(rows(range(1), "after"))
        job.flush()
    assert len(turns_of_killed(table)) == len(last)


def turns_of_killed(table: lancemem.Table) -> list[int]:
    """Return the turns of the killed writers alone."""
    ids = table.scan(filter="name = 'killed'").to_table()["id"].to_pylist()
    return sorted({i // ROWS for i in ids})


def test_of_two_processes_the_later_claim_has_the_shard(
    table: lancemem.Table, place: Place
) -> None:
    first = Writer(place, "first", 1_000_000)
    try:
        first.wait_for("ack", 5)
        second = Writer(place, "second", 1_000_000)
        try:
            second.wait_for("ack", 1)
            first.wait_for("fenced", 0)
            second.wait_for("ack", 5)
        finally:
            second.end()
    finally:
        first.end()
    assert first.acknowledged >= 5
    names = table.scan().to_table().group_by("name").aggregate([("id", "count")])
    rows_of = dict(zip(names["name"].to_pylist(), names["id_count"].to_pylist(), strict=True))
    # The second writer writes the same keys again, over the rows that the first acknowledged.
    written = max(first.acknowledged, second.acknowledged)
    assert sum(rows_of.values()) in {written * ROWS, (written + 1) * ROWS}
    assert rows_of["second"] >= second.acknowledged * ROWS
    assert table.shards()[0].writer_epoch == 2
