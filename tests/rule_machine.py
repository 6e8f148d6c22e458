"""A table with a merge rule beside a list of its events: what the model tests of rules share.

Owns: the model of a shard, the steps that every rule has, the checks after them, and the run of
random programs. Does not own: what a rule makes of the events of a key, or the steps that only some
rules have (test_merge_model, test_combining_model).
"""

from __future__ import annotations

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeAlias

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lancemem

Row: TypeAlias = dict[str, Any]
# A row of the base table has the kind "base"; each rule has kinds of its own.
Event: TypeAlias = tuple[str, Row]
# The row that a key shows after its events, oldest first.
Fold: TypeAlias = Callable[[list[Event]], Row | None]
# The delete that the table remembers when a compaction moves these events.
Buried: TypeAlias = Callable[[list[Event]], Event | None]
Step: TypeAlias = tuple[Any, ...]
Filter: TypeAlias = tuple[str, Callable[[Row], bool]]

SHARDS = 2
KEYS = [0, 1, 2, 3, -(2**40)]


@dataclass
class ModelShard:
    """The rows of the base table, the deletes that it remembers, and the events above them."""

    fold: Fold
    buried: Buried
    base: dict[int, Row] = field(default_factory=dict)
    graves: dict[int, Event] = field(default_factory=dict)
    events: list[tuple[int, Event]] = field(default_factory=list)
    flushed: int = 0

    def lives(self, count: int | None = None) -> dict[int, list[Event]]:
        """Return the events of each key, of which the first `count` are above the base table."""
        lives: dict[int, list[Event]] = {key: [("base", row)] for key, row in self.base.items()}
        for key, event in [*self.graves.items(), *self.events[:count]]:
            lives.setdefault(key, []).append(event)
        return lives

    def state(self, count: int | None = None) -> dict[int, Row]:
        """Fold the base table and the first `count` events."""
        rows = {key: self.fold(life) for key, life in self.lives(count).items()}
        return {key: row for key, row in rows.items() if row is not None}

    def compact(self) -> None:
        """Move what is flushed into the base table."""
        buried = {key: self.buried(life) for key, life in self.lives(self.flushed).items()}
        self.base = self.state(self.flushed)
        self.graves = {key: event for key, event in buried.items() if event is not None}
        self.events, self.flushed = self.events[self.flushed :], 0


def comparable(rows: list[Row]) -> list[str]:
    """Give rows an order in which a NaN equals itself and 0.0 is not -0.0."""
    return sorted(repr(sorted(row.items())) for row in rows)


class RuleMachine(ABC):
    """A real table with a job per shard, beside its model."""

    schema: ClassVar[pa.Schema]
    # Projections of scans; columns that decide are left out of some.
    narrow: ClassVar[list[list[str]]]
    # The column of narrow look-ups.
    looked_up: ClassVar[str]
    filters: ClassVar[list[Filter]]

    def __init__(self, folder: str, rule: dict[str, Any]) -> None:
        self.rule = rule
        # No idle flush, so that the model knows what is flushed.
        self.config = lancemem.WriterConfig(fsync=False, idle_flush_interval="never")
        self.table = lancemem.create_table(
            f"{folder}/t.lance",
            self.schema,
            primary_key="k",
            sharding=lancemem.bucket("k", SHARDS),
            config=self.config,
            **rule,
        )
        self.shards = [ModelShard(self.fold, self.buried) for _ in range(SHARDS)]
        ordinals = pa.array(self.table.shard_ordinals(pa.table({"k": KEYS}))).to_pylist()
        self.shard_of = dict(zip(KEYS, ordinals, strict=True))
        self.jobs: list[lancemem.Job] = []
        self.start_jobs()

    @abstractmethod
    def fold(self, life: list[Event]) -> Row | None:
        """Make the row that a key shows after its events, oldest first."""

    def buried(self, life: list[Event]) -> Event | None:
        """Return the delete that the table remembers when a compaction moves these events."""
        del life
        return None

    def start_jobs(self) -> None:
        """Start a job for each shard."""
        self.jobs = [self.table.start_job(shard=shard) for shard in range(SHARDS)]

    def each_shard(self, events: list[Event]) -> list[tuple[lancemem.Job, list[Event]]]:
        """Note the events in the model, and divide them among the jobs."""
        parts = []
        for shard, model in enumerate(self.shards):
            mine = [event for event in events if self.shard_of[event[1]["k"]] == shard]
            if mine:
                model.events += [(event[1]["k"], event) for event in mine]
                parts.append((self.jobs[shard], mine))
        return parts

    # --- steps ---

    def flush(self, shard: int) -> None:
        """Flush the job of a shard."""
        self.jobs[shard].flush()
        self.shards[shard].flushed = len(self.shards[shard].events)

    def compact(self, mode: Literal["auto", "link", "rewrite"]) -> None:
        """Compact, and compare the feed of the changes with the model."""
        before = self.table.changes(since=None, until=None).until
        state = self.base_rows()
        self.table.compact(mode=mode)
        for model in self.shards:
            model.compact()
        self.check_changes(before, state)

    def vectors(self, on: bool) -> None:
        """Switch deletion-vector mode, or look up what is flushed where it is on."""
        if on:
            self.table.alter(deletion_vectors=True)
            self.table.write_deletion_vectors()
        elif self.table.deletion_vectors:
            before = self.table.changes(since=None, until=None).until
            state = self.base_rows()
            # It compacts first.
            self.table.alter(deletion_vectors=False)
            for model in self.shards:
                model.compact()
            self.check_changes(before, state)

    def reopen(self, flush: bool) -> None:
        """Close the jobs and open the table again."""
        for job in self.jobs:
            job.close(flush=flush)
        if flush:
            for model in self.shards:
                model.flushed = len(model.events)
        self.table = lancemem.open_table(self.table.uri)
        self.start_jobs()

    def commit_bulk(self, events: list[Event], rows: pa.Table) -> None:
        """Commit rows as SSTables: the newest of their shards."""
        self.reopen(flush=True)
        for job in self.jobs:
            job.close()
        writer = self.table.bulk_writer()
        writer.upsert(rows)
        self.table.commit(writer.finish())
        self.each_shard(events)
        for model in self.shards:
            model.flushed = len(model.events)
        self.start_jobs()

    # --- checks ---

    def base_rows(self) -> list[Row]:
        """Return the rows of the base table."""
        return [row for model in self.shards for row in model.base.values()]

    def check_changes(self, since: int, before: list[Row]) -> None:
        """Compare what the feed makes of the rows before a compaction with those after it."""
        rows = comparable(before)
        changes = self.table.changes(since=since).to_reader().read_all().to_pylist()
        for kinds, change_rows in (
            (("delete", "update_preimage"), rows.remove),
            (("insert", "update_postimage"), rows.append),
        ):
            for change in changes:
                if change["_change_type"] in kinds:
                    image = {name: change[name] for name in self.schema.names}
                    change_rows(comparable([image])[0])
        assert sorted(rows) == comparable(self.base_rows())

    def check(self, level: Literal["flushed", "durable", "live"]) -> None:
        """Compare scans, counts and look-ups with the model."""
        state: dict[int, Row] = {}
        for shard, model in enumerate(self.shards):
            if level == "flushed":
                self.see_flushed(shard)
            found = model.state(model.flushed if level == "flushed" else None)
            names = self.schema.names
            state |= {key: {name: row[name] for name in names} for key, row in found.items()}
        rows = list(state.values())
        read: dict[str, Any] = {"consistency": level}
        if level == "live":
            read["jobs"] = self.jobs
        assert comparable(self.table.scan(**read).to_table().to_pylist()) == comparable(rows)
        for columns in self.narrow:
            narrow = self.table.scan(columns, **read).to_table().to_pylist()
            expected = [{name: row[name] for name in columns} for row in rows]
            assert comparable(narrow) == comparable(expected), columns
        assert self.table.scan(**read).count_rows() == len(rows)
        self.check_filters(rows, read)
        got = self.table.get(pa.table({"k": KEYS}), **read).to_pylist()
        in_order = [state[key] for key in KEYS if key in state]
        assert [repr(row) for row in got] == [repr(row) for row in in_order]
        narrow = self.table.get(KEYS[1:3], [self.looked_up], **read).to_pylist()
        asked = [row for row in in_order if row["k"] in KEYS[1:3]]
        assert narrow == [{self.looked_up: row[self.looked_up]} for row in asked]

    def see_flushed(self, shard: int) -> None:
        """Note what is flushed. A job that starts with a log may flush it by itself."""
        model = self.shards[shard]
        seen = self.table.scan(consistency="flushed").to_table().to_pylist()
        part = comparable([row for row in seen if self.shard_of[row["k"]] == shard])
        for count in range(model.flushed, len(model.events) + 1):
            if comparable(list(model.state(count).values())) == part:
                model.flushed = count
                return
        raise AssertionError(f"the flushed rows of shard {shard} are no state of it: {part}")

    def check_filters(self, rows: list[Row], read: dict[str, Any]) -> None:
        """A filter meets whole rows of the rule, and no hidden row (paimon #4065)."""
        for text, passes in self.filters:
            expected = [row for row in rows if passes(row)]
            found = self.table.scan(filter=text, **read)
            assert comparable(found.to_table().to_pylist()) == comparable(expected), text
            assert found.count_rows() == len(expected), text

    def check_all(self) -> None:
        """Check every level of consistency."""
        for level in ("flushed", "durable", "live"):
            self.check(level)


def steps_of_every_rule() -> list[st.SearchStrategy[Step]]:
    """Return the steps that need no rows. A flush comes twice as often as the others."""
    flush = st.tuples(st.just("flush"), st.integers(0, SHARDS - 1))
    return [
        flush,
        flush,
        st.tuples(st.just("compact"), st.sampled_from(["auto", "link", "rewrite"])),
        st.tuples(st.just("vectors"), st.sampled_from([True, True, False])),
        st.tuples(st.just("reopen"), st.booleans()),
        st.tuples(st.just("check_all")),
    ]


def run_programs(
    machine_of: Callable[[str], RuleMachine], steps: list[st.SearchStrategy[Step]]
) -> None:
    """Run random programs of these steps, each in its own folder, and check the end of each."""

    @settings(
        max_examples=25,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(program=st.lists(st.one_of(*steps), min_size=8, max_size=18))
    def run(program: list[Step]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            machine = machine_of(folder)
            for step, *arguments in program:
                getattr(machine, step)(*arguments)
            machine.check_all()
            machine.reopen(flush=True)
            machine.compact("auto")
            machine.check_all()
            for job in machine.jobs:
                job.close()

    run()
