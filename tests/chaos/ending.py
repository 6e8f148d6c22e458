"""The final check of a round's table, when every process has ended.

Owns: that accelerators, a flush, a compaction and a collection change no row, that pylance reads
the same rows, and that a version from before a compaction is refused. Does not own: the reads
beside other processes (`reads`).
"""

from __future__ import annotations

import shutil
from datetime import timedelta

import lance

import lancemem

from .foreign import restore
from .reads import Reader
from .role import READ, fault, say
from .shape import FOREIGN_GROUP, Row

ACCELERATORS = (
    "_lancemem/record_index",
    "_lancemem/deletion_vectors",
    "_mem_wal/*/deletion_vectors",
)


class Ending(Reader):
    """Checks the table in every state on the way to the base table alone."""

    def run(self) -> None:
        """Check, and write the faults to the log."""
        rows = self.look("at the end")
        self.check()
        bare = self.without_accelerators()
        self.same(rows, self.shape.read(bare.scan().to_table()), "without accelerators")
        for shard in range(self.shape.shards):
            with self.table.start_job(
                shard=shard, config=lancemem.WriterConfig(fsync=False)
            ) as job:
                job.flush()
        self.same(rows, self.look("after a flush"), "after a flush")
        before = lance.dataset(self.told.uri).version
        compacted = self.table.compact().num_generations
        self.same(rows, self.look("after a compaction"), "after a compaction")
        dataset = lance.dataset(self.told.uri)
        self.same(rows, self.shape.read(dataset.to_table()), "pylance")
        dataset.validate()  # type: ignore[no-untyped-call]
        self.behind(before if compacted else None, rows)
        self.table.collect_garbage(older_than=timedelta(0))
        self.same(rows, self.look("after a collection"), "after a collection")
        say("end", name=self.told.name, rows=len(rows), counts=self.counts)

    def look(self, where: str) -> list[Row]:
        """Scan, count and look up by a new handle."""
        table = self.opened()
        rows = self.scan(table, "durable", where)
        if table.scan().count_rows() != len(rows):
            fault(f"{where}: the count is another", rows=len(rows))
        found = self.shape.read(table.get(self.shape.keys(self.layout.every_key)))
        self.same([row for row in rows if row[1] != FOREIGN_GROUP], found, f"lookup {where}")
        return sorted(rows, key=repr)

    def check(self) -> None:
        """Compare every checksum."""
        for shard in range(self.shape.shards):
            for finding in self.table.admin.verify_wal(shard).findings:
                fault("the log is damaged", shard=shard, finding=finding)
        for report in self.table.admin.verify_sstables():
            if report.damage:
                fault("an SSTable is damaged", damage=report.damage)
        if self.shape.record_index:
            for damage in self.table.admin.verify_record_index().damage:
                fault("the record index is damaged", damage=damage)

    def without_accelerators(self) -> lancemem.Table:
        """Copy the table without its accelerators."""
        copy = self.told.folder / "bare.lance"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.told.uri, copy)
        for pattern in ACCELERATORS:
            for folder in copy.glob(pattern):
                shutil.rmtree(folder)
        return lancemem.open_table(copy)

    def behind(self, version: int | None, right: list[Row]) -> None:
        """Restore the version before a compaction: it is refused, or all rows are there."""
        versions = {each["version"] for each in lance.dataset(self.told.uri).versions()}
        if version not in versions:
            return
        restore(self.told.uri, version)
        try:
            self.same(
                right,
                self.shape.read(lancemem.open_table(self.told.uri).scan().to_table()),
                "after a restore that was not refused",
            )
        except READ as error:
            self.met("restored", error, (lancemem.CorruptionError,))
        newest = lance.dataset(self.told.uri).version
        restore(self.told.uri, newest - 1)

    @staticmethod
    def same(right: list[Row], found: list[Row], where: str) -> None:
        """Compare rows, in any order."""
        if sorted(map(repr, right)) != sorted(map(repr, found)):
            difference = set(map(repr, right)) ^ set(map(repr, found))
            fault(f"other rows: {where}", difference=sorted(difference)[:6])
