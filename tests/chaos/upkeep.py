"""The maintainers of a round: compaction, collection, deletion vectors, the record index, checks.

Owns: calls that move rows and never change them. Does not own: commits of pylance (`foreign`).
"""

from __future__ import annotations

import time
from datetime import timedelta

import lancemem

from .role import READ, Role

TASKS = {
    "compact": 6,
    "collect": 4,
    "switch_vectors": 2,
    "write_vectors": 2,
    "record_index": 1,
    "check": 1,
    "plan": 1,
    "reopen": 1,
}
LONGEST_PAUSE_SECONDS = 0.03
# A collector refuses a larger offset of its clock.
CLOCK_IS_OFF_SECONDS = 1


class Maintainer(Role):
    """Maintains the table beside the other roles."""

    def step(self) -> None:
        """Do one task."""
        task = self.chance.choices(list(TASKS), list(TASKS.values()))[0]
        allowed: tuple[type[Exception], ...] = READ
        if task == "collect" and abs(self.told.clock_offset_seconds) >= CLOCK_IS_OFF_SECONDS:
            allowed = (lancemem.LancememError,)
        try:
            getattr(self, task)()
            self.counts[task] += 1
        except lancemem.LancememError as error:
            self.met(task, error, allowed)
        time.sleep(self.chance.uniform(0, LONGEST_PAUSE_SECONDS))

    def compact(self) -> None:
        """Compact with drawn settings."""
        result = self.table.compact(
            mode=self.chance.choice(["auto", "link", "rewrite"]),
            max_dead_share=self.chance.choice([None, 0.0, self.shape.max_dead_share]),
            update_indexes=self.chance.random() < 0.8,
            bytes_per_second=self.chance.choice([None, None, 3_000_000]),
        )
        self.counts["compacted generations"] += result.num_generations

    def collect(self) -> None:
        """Remove garbage, with hardly any grace period."""
        seconds = self.chance.choice([0, 0, 0.2, 1.5])
        self.table.collect_garbage(older_than=timedelta(seconds=seconds))

    def switch_vectors(self) -> None:
        """Set deletion-vector mode, mostly to what the round has."""
        keep = self.chance.random() < 0.8
        self.table.alter(deletion_vectors=self.shape.deletion_vectors == keep)

    def write_vectors(self) -> None:
        """Look up which rows each SSTable supersedes."""
        if self.table.deletion_vectors:
            self.table.write_deletion_vectors()

    def record_index(self) -> None:
        """Create the record index again."""
        if self.shape.record_index:
            self.table.create_record_index()

    def check(self) -> None:
        """Compare checksums; a collection may remove files during the check."""
        damaged = [text for report in self.table.admin.verify_sstables() for text in report.damage]
        damaged += self.table.admin.verify_record_index().damage
        self.counts["damage while running"] += len(damaged)

    def plan(self) -> None:
        """Plan a compaction."""
        self.table.compact(dry_run=True)

    def reopen(self) -> None:
        """Open a new handle."""
        self.table = self.opened()
