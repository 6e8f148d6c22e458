"""The writers of a round: jobs that end in every way, single calls, and bulk writes.

Owns: operations on the groups of one writer, recorded in the oracle before and after each call.
Does not own: rows of pylance.
"""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING

import pyarrow as pa

import lancemem

from .oracle import GROUPS, KEYS_PER_GROUP, Kind
from .role import PASSING, READ, Role, Told, fault
from .shape import Row, text_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

WRITERS = 3
DELETES = 0.2
LONGEST_PAUSE_SECONDS = 0.02
# Age from which on a staged SSTable cannot be committed.
OLDEST_LINKED_SECONDS = 6 * 86_400
# A group, the number of its operation, and the effect of the operation.
Operation = tuple[int, int, Kind]


class Writer(Role):
    """Writes its own groups; no other process writes them."""

    def __init__(self, told: Told) -> None:
        super().__init__(told)
        shards = self.shape.shards
        self.own = [each for each in range(GROUPS) if each // shards % WRITERS == told.index]
        # Written, and possibly not durable yet.
        self.pending: dict[int, int] = {}
        self.job_errors: tuple[type[Exception], ...] = (
            lancemem.WriterFencedError,
            lancemem.JobStoppedError,
            *self.call_errors(),
        )

    def call_errors(self) -> tuple[type[Exception], ...]:
        """Name the errors that a call for the whole table may meet."""
        changing = (lancemem.InvalidInputError,) if self.shape.changes_columns else ()
        # While an older version is restored, its shards are ahead of it, and a write raises an
        # error.
        behind = (lancemem.CorruptionError,) if self.shape.restores else ()
        return (*PASSING, *changing, *behind)

    def bulk_errors(self) -> tuple[type[Exception], ...]:
        """Name the errors that a bulk write may meet: a fenced bulk write is not repeated."""
        # By a clock that is a week ahead, an SSTable that was just written is old enough to be
        # collected.
        is_ahead = self.told.clock_offset_seconds > OLDEST_LINKED_SECONDS
        old = (lancemem.InvalidInputError,) if is_ahead else ()
        return (*self.call_errors(), lancemem.WriterFencedError, *old)

    def step(self) -> None:
        """Write with a call, in bulk or in a job."""
        if self.chance.random() < 0.15:
            self.call()
        else:
            self.job()

    def call(self) -> None:
        """Write to all shards at once, each by a claim of its own."""
        begun = self.begin(self.chance.sample(self.own, self.chance.randint(1, 6)))
        in_bulk = self.chance.random() < 0.3
        try:
            rows, deletes = self.rows_of(begun), self.deletes_of(begun)
            if in_bulk:
                bulk = self.table.bulk_writer()
                bulk.apply(rows, deletes)
                self.table.commit(bulk.finish(), write=f"{self.told.name}-{time.monotonic_ns()}")
            else:
                # Calls and jobs of all roles take the shards from each other.
                self.table.apply(rows, deletes, take_over=True)
        except lancemem.LancememError as error:
            errors = self.bulk_errors() if in_bulk else self.call_errors()
            self.met("bulk" if in_bulk else "apply", error, errors)
            self.refresh()
            return
        self.acknowledge((group, number) for group, number, _ in begun)
        self.counts["bulk writes" if in_bulk else "calls"] += 1

    def job(self) -> None:
        """Run a job for some puts and end it in one of the ways that a program may."""
        shard = self.chance.randrange(self.shape.shards)
        own = [group for group in self.own if self.layout.shards[group] == shard]
        self.pending.clear()
        try:
            job = self.table.start_job(
                shard=shard, config=self.config(), maintenance=self.maintenance()
            )
        except lancemem.LancememError as error:
            self.met("start_job", error, self.job_errors)
            self.refresh()
            return
        self.counts["claims"] += 1
        try:
            for _ in range(self.chance.randint(1, 40)):
                if self.oracle.is_over:
                    break
                self.put(job, own)
                self.beside(job, own)
            self.leave(job)
        except lancemem.LancememError as error:
            self.met("job", error, self.job_errors)
            self.refresh()

    def put(self, job: lancemem.Job, own: list[int]) -> None:
        """Put and delete some groups, by `apply` or by both verbs."""
        begun = self.begin(self.chance.sample(own, self.chance.randint(1, min(3, len(own)))))
        durable = self.chance.choice([None, True, False])
        if self.chance.random() < 0.3:
            parts = [begun]
        else:
            parts = [[one for one in begun if one[2] == kind] for kind in Kind]
        for part in filter(None, parts):
            kinds = {kind for _, _, kind in part}
            if len(parts) == 1:
                done = job.apply(self.rows_of(part), self.deletes_of(part), durable=durable)
            elif kinds == {Kind.PUT}:
                done = job.put(self.rows_of(part), durable=durable)
            else:
                keys = [key for group, _, _ in part for key in self.layout.keys[group]]
                done = job.delete(self.shape.keys(keys), durable=durable)
            self.pending |= {group: number for group, number, _ in part}
            if done.durable:
                self.acknowledge_pending()
        self.counts["puts"] += 1

    def beside(self, job: lancemem.Job, own: list[int]) -> None:
        """Now and then flush, read the job's own rows, or pause."""
        if self.chance.random() < 0.1:
            job.flush()
            self.acknowledge_pending()
            self.counts["flushes"] += 1
        if self.chance.random() < 0.1:
            self.read_own(job, self.chance.choice(own))
        if self.chance.random() < 0.2:
            time.sleep(self.chance.uniform(0, LONGEST_PAUSE_SECONDS))

    def read_own(self, job: lancemem.Job, group: int) -> None:
        """Read a group live: the last operation of this job is shown at once."""
        keys = self.shape.keys(self.layout.keys[group])
        try:
            found = self.table.get(keys, consistency="live", jobs=[job])
        except lancemem.LancememError as error:
            self.met("live get", error, (*self.job_errors, *READ))
            return
        number = int(self.oracle.begun[group])
        if number == 0 or number not in {self.pending.get(group), self.oracle.acked[group]}:
            return
        put = self.oracle.kinds[group][number] == Kind.PUT
        right = [number] * KEYS_PER_GROUP if put else []
        if found["n"].to_pylist() != right:
            fault("a live read lacks its job's put", group=group, found=str(found), right=right)

    def leave(self, job: lancemem.Job) -> None:
        """Close the job, flush and drop it, or leave it to the next writer of the shard."""
        how = self.chance.random()
        if how < 0.5:
            job.close(flush=self.chance.choice([True, False, None]))
            self.acknowledge_pending()
        elif how < 0.6:
            job.flush()
            self.acknowledge_pending()

    def begin(self, groups: Sequence[int]) -> list[Operation]:
        """Begin an operation of each group."""
        begun = []
        for group in groups:
            if not self.oracle.is_full(group):
                kind = Kind.DELETE if self.chance.random() < DELETES else Kind.PUT
                begun.append((group, self.oracle.begin(group, kind), kind))
        return begun

    def acknowledge_pending(self) -> None:
        """Record that all rows written so far are durable."""
        self.acknowledge(self.pending.items())
        self.pending.clear()

    def acknowledge(self, operations: Iterable[tuple[int, int]]) -> None:
        """Record that operations are durable."""
        for group, number in operations:
            self.oracle.acked[group] = number

    def rows_of(self, operations: Sequence[Operation]) -> pa.Table:
        """Give the rows of operations, with nulls in columns that were added meanwhile."""
        rows: list[Row] = [
            (key, group, number, text_of(group, number))
            for group, number, _ in operations
            for key in self.layout.keys[group]
        ]
        table = self.shape.rows(rows)
        for column in self.table.schema:
            if column.name not in table.column_names:
                table = table.append_column(column, pa.nulls(table.num_rows, column.type))
        return table

    @staticmethod
    def deletes_of(operations: Sequence[Operation]) -> pa.Array:
        """Return for each row whether it is deleted."""
        return pa.array(
            [kind == Kind.DELETE for _, _, kind in operations for _ in range(KEYS_PER_GROUP)]
        )

    def refresh(self) -> None:
        """Read the columns, which pylance may have changed."""
        try:
            self.table.refresh()
        except lancemem.LancememError as error:
            self.met("refresh", error, READ)

    def config(self) -> lancemem.WriterConfig:
        """Draw the settings of a job."""
        chance = self.chance
        return lancemem.WriterConfig(
            durable=chance.random() < 0.6,
            sync_index=chance.random() < 0.6,
            fsync=self.shape.fsync,
            max_memtable_rows=self.shape.memtable_rows,
            key_index=chance.choice(["hash", "skip_list"]),
            max_wal_flush_interval=_ms(chance.choice([1, 20, 100])),
            idle_flush_interval=chance.choice(["never", _ms(30), _ms(60_000)]),
            max_unflushed_memtable_bytes=64 << 20,
        )

    def maintenance(self) -> lancemem.MaintenanceConfig:
        """Draw whether and when a task beside a job compacts and collects."""
        chance = self.chance
        return lancemem.MaintenanceConfig(
            enabled=chance.random() < 0.3,
            generations=2,
            interval=_ms(chance.choice([50, 60_000])),
            older_than=_ms(chance.choice([0, 50, 1_000])),
        )


def _ms(milliseconds: int) -> timedelta:
    return timedelta(milliseconds=milliseconds)
