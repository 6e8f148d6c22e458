"""The readers of a round: scans, lookups and snapshots at every level.

Owns: the kinds of reads, and that several reads of one snapshot agree. Does not own: what a read
may show (`verdict`).
"""

from __future__ import annotations

import time
from typing import Literal, TypeAlias

import pyarrow as pa

import lancemem

from .role import READ, Role, Told, fault
from .shape import FOREIGN_GROUP, Row
from .verdict import Judge

Level: TypeAlias = Literal["durable", "flushed"]
LEVELS: tuple[Level, ...] = ("durable", "durable", "flushed")
PARTS = 3
LONGEST_PAUSE_SECONDS = 0.2


class Reader(Role):
    """Reads until the round is over; its reads never go back."""

    def __init__(self, told: Told) -> None:
        super().__init__(told)
        self.judge = Judge(self.shape, self.layout, self.oracle.kinds)

    def step(self) -> None:
        """Read in one of three ways."""
        level = self.chance.choice(LEVELS)
        if self.chance.random() < 0.1:
            self.table = self.opened()
        how = self.chance.random()
        try:
            if how < 0.5:
                self.scan(self.table, level, "scan")
            elif how < 0.7:
                self.get(level)
            else:
                self.snapshot(level)
        except lancemem.LancememError as error:
            self.met("read", error, READ)
        except (OSError, pa.ArrowException) as error:
            # pyarrow raises its own error for a stream that fails in the middle.
            self.met("read", error, (OSError, pa.ArrowException))

    def scan(self, source: lancemem.Table, level: Level, where: str) -> list[Row]:
        """Read everything, and judge it."""
        before = self.oracle.moment()
        rows = self.shape.read(source.scan(consistency=level).to_table())
        after = self.oracle.moment()
        self.report(
            where, level, self.judge.faults(rows, (before, after), level=level, foreign=True)
        )
        self.counts["scans"] += 1
        return rows

    def get(self, level: Level) -> None:
        """Read all keys of the writers, in any order."""
        keys = list(self.layout.every_key)
        self.chance.shuffle(keys)
        before = self.oracle.moment()
        found = self.table.get(self.shape.keys(keys), missing="null", consistency=level)
        after = self.oracle.moment()
        # No row has a null there.
        has_row = found["g"].is_valid()
        if found.num_rows != len(keys):
            fault("a lookup lost keys", found=found.num_rows, missing=has_row.to_pylist().count(0))
        rows = self.shape.read(found.filter(has_row))
        self.report(
            "get", level, self.judge.faults(rows, (before, after), level=level, foreign=False)
        )
        self.counts["lookups"] += 1

    def snapshot(self, level: Level) -> None:
        """Read one snapshot in every way: all of them show the same rows."""
        before = self.oracle.moment()
        snapshot = self.table.snapshot(consistency=level)
        rows = self.shape.read(snapshot.scan().to_table())
        after = self.oracle.moment()
        faults = self.judge.faults(rows, (before, after), level=level, foreign=True, remember=False)
        self.report("snapshot", level, faults)
        if self.chance.random() < 0.5:
            time.sleep(self.chance.uniform(0, LONGEST_PAUSE_SECONDS))
        parts = [snapshot.scan(part=(part, PARTS)).to_table() for part in range(PARTS)]
        every = self.shape.keys(self.layout.every_key)
        ours = [row for row in rows if row[1] != FOREIGN_GROUP]
        even = [row for row in ours if row[2] % 2 == 0]
        agree = {
            "a second scan": (self.shape.read(snapshot.scan().to_table()), rows),
            "parts": ([row for part in parts for row in self.shape.read(part)], rows),
            "lookup": (self.shape.read(snapshot.get(every)), ours),
            "condition": (
                self.shape.read(snapshot.scan(filter="n % 2 = 0 AND g >= 0").to_table()),
                even,
            ),
        }
        if snapshot.token and self.chance.random() < 0.3:
            again = self.opened().snapshot(token=snapshot.token)
            agree["a snapshot by its token"] = (self.shape.read(again.scan().to_table()), rows)
        for what, (found, right) in agree.items():
            if sorted(found, key=repr) != sorted(right, key=repr):
                difference = set(map(repr, found)) ^ set(map(repr, right))
                fault(f"snapshot: {what} differs", level=level, difference=sorted(difference)[:6])
        if snapshot.count_rows() != len(rows):
            fault(
                "snapshot: count differs", level=level, count=snapshot.count_rows(), rows=len(rows)
            )
        self.counts["snapshots"] += 1

    @staticmethod
    def report(where: str, level: Level, faults: list[str]) -> None:
        """Write the faults of a read to the log."""
        for each in faults[:3]:
            fault(each, where=f"{where} {level}")
