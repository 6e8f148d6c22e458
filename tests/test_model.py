"""Random programs of writes, flushes, compactions and reopenings against a Python dict.

Owns: that every level of consistency shows exactly the state after some prefix of the puts, and the
minimum length of that prefix. Not here: what is accepted (test_input), processes and threads
(test_jobs), other writers (test_cross_read).
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lancemem

Key: TypeAlias = tuple[Any, ...]
Payload: TypeAlias = tuple[str | None, int | None]
State: TypeAlias = dict[Key, Payload]
Step: TypeAlias = tuple[Any, ...]
Level: TypeAlias = Literal["flushed", "durable", "live"]

SHARDS = 2
COLUMNS = [pa.field("name", pa.string()), pa.field("value", pa.int64())]

# Small sets, so that keys repeat; with the edge cases of encodings and orders.
INTEGERS = [0, 1, 2, 3, 5, 255, 256, -1, -(2**63), 2**63 - 1]
STRINGS = ["", "a", "b", "ab", "a\x00", "é", "日本語", "a" * 40, "A", "zz"]
KEYS: dict[str, tuple[list[pa.Field], list[Key]]] = {
    "int64": ([pa.field("id", pa.int64(), nullable=False)], [(n,) for n in INTEGERS]),
    "string": ([pa.field("id", pa.string(), nullable=False)], [(text,) for text in STRINGS]),
    "composite": (
        [pa.field("id", pa.int64(), nullable=False), pa.field("sub", pa.string(), nullable=False)],
        [(n, text) for n in INTEGERS[:4] for text in STRINGS[:3]],
    ),
}


@dataclass
class _ModelShard:
    """All the states of a shard, and the oldest state that each level may show."""

    states: list[State] = field(default_factory=lambda: [{}])
    at_least: dict[Level, int] = field(default_factory=lambda: {"flushed": 0, "durable": 0})

    @property
    def newest(self) -> State:
        return self.states[-1]

    def show(self, level: Level, seen: State) -> None:
        """Check that a read shows a state no older than promised, nor than one seen before."""
        if level == "live":
            assert seen == self.newest
            return
        first = self.at_least[level]
        assert seen in self.states[first:], f"{level} shows a state that never was, or an old one"
        self.at_least[level] = self.states.index(seen, first)

    def promise(self, *levels: Level) -> None:
        for level in levels:
            self.at_least[level] = len(self.states) - 1


class _Machine:
    """A real table with a job per shard, beside its model."""

    def __init__(self, folder: str, kind: str, durable: bool) -> None:
        self.key_fields, self.keys = KEYS[kind]
        self.key_names = [column.name for column in self.key_fields]
        self.schema = pa.schema(self.key_fields + COLUMNS)
        self.durable = durable
        self.config = lancemem.WriterConfig(durable=durable, fsync=False, max_memtable_rows=8)
        self.table = lancemem.create_table(
            f"{folder}/t.lance",
            self.schema,
            primary_key=self.key_names,
            sharding=lancemem.bucket("id", SHARDS),
            config=self.config,
        )
        self.shards = [_ModelShard() for _ in range(SHARDS)]
        ordinals = pa.array(self.table.shard_ordinals(self.key_table(self.keys))).to_pylist()
        self.shard_of = dict(zip(self.keys, ordinals, strict=True))
        self.jobs: list[lancemem.Job] = []
        # Rows that another program put into the base, under keys that no program here writes.
        self.others: set[Key] = set()
        self.start_jobs()

    def start_jobs(self) -> None:
        self.jobs = [self.table.start_job(shard=shard) for shard in range(SHARDS)]

    def key_table(self, keys: list[Key]) -> pa.Table:
        columns = [[key[i] for key in keys] for i in range(len(self.key_names))]
        return pa.table(columns, schema=pa.schema(self.key_fields))

    def rows(self, changes: list[tuple[Key, Payload]]) -> pa.Table:
        rows = [
            dict(zip(self.schema.names, (*key, *payload), strict=True)) for key, payload in changes
        ]
        return pa.Table.from_pylist(rows, schema=self.schema)

    def state_of(self, table: pa.Table) -> State:
        width = len(self.key_names)
        rows = [tuple(row.values()) for row in table.select(self.schema.names).to_pylist()]
        state = {row[:width]: row[width:] for row in rows}
        assert len(state) == len(rows), "a key came twice"
        others = state.keys() - set(self.keys)
        assert others <= self.others, "a row of another program came back"
        return {key: row for key, row in state.items() if key not in others}

    def split(self, state: State) -> list[State]:
        return [
            {key: row for key, row in state.items() if self.shard_of[key] == shard}
            for shard in range(SHARDS)
        ]

    # --- steps ---

    def put(self, changes: list[tuple[Key, Payload]]) -> None:
        for shard, model in enumerate(self.shards):
            mine = [change for change in changes if self.shard_of[change[0]] == shard]
            if mine:
                acknowledged = self.jobs[shard].put(self.rows(mine))
                assert (acknowledged.num_rows, acknowledged.durable) == (len(mine), self.durable)
                model.states.append(model.newest | dict(mine))
                if self.durable:
                    model.promise("durable")

    def delete(self, keys: list[Key]) -> None:
        for shard, model in enumerate(self.shards):
            mine = [key for key in keys if self.shard_of[key] == shard]
            if mine:
                self.jobs[shard].delete(self.key_table(mine))
                model.states.append(
                    {key: row for key, row in model.newest.items() if key not in mine}
                )
                if self.durable:
                    model.promise("durable")

    def flush(self, shard: int) -> None:
        self.jobs[shard].flush()
        self.shards[shard].promise("flushed", "durable")

    def compact(self) -> None:
        self.table.compact()

    def reopen(self, flush: bool) -> None:
        for job, model in zip(self.jobs, self.shards, strict=True):
            job.close(flush=flush)
            model.promise("durable")
            if flush:
                model.promise("flushed")
        self.table = lancemem.open_table(self.table.uri)
        self.start_jobs()

    def take_over(self) -> None:
        """Start jobs that fence the running jobs; only durable jobs lose no row then."""
        if self.durable:
            self.start_jobs()

    def upsert(self, changes: list[tuple[Key, Payload]]) -> None:
        self.reopen(flush=False)
        self.table.upsert(self.rows(changes))
        for model, mine in zip(self.shards, self.split(dict(changes)), strict=True):
            if mine:
                model.states.append(model.newest | mine)
                model.promise("durable")
        self.start_jobs()

    def scan(self, level: Level) -> None:
        jobs = self.jobs if level == "live" else None
        seen = self.state_of(self.table.scan(consistency=level, jobs=jobs).to_table())
        for model, part in zip(self.shards, self.split(seen), strict=True):
            model.show(level, part)

    def check_all(self) -> None:
        """Compare reads of every shape at the level that shows everything."""
        newest = self.shards[0].newest | self.shards[1].newest
        for level in ("flushed", "durable", "live"):
            self.scan(level)
        live: dict[str, Any] = {"consistency": "live", "jobs": self.jobs}
        rows = len(newest) + len(self.others)
        assert self.table.scan(**live).count_rows() == rows

        big = {key: row for key, row in newest.items() if row[1] is not None and row[1] > 1}
        assert self.state_of(self.table.scan(filter="value > 1", **live).to_table()) == big
        assert self.table.scan(filter="value > 1", **live).count_rows() == len(big)
        assert self.table.scan(["name"], limit=3, **live).to_table().num_rows == min(3, rows)

        got = self.table.get(self.key_table(self.keys), **live)
        assert self.state_of(got) == newest
        in_order = [tuple(row.values()) for row in got.select(self.key_names).to_pylist()]
        assert in_order == [key for key in self.keys if key in newest]


def programs(kind: str) -> st.SearchStrategy[list[Step]]:
    keys = st.sampled_from(KEYS[kind][1])
    payloads = st.tuples(st.none() | st.sampled_from("xyz"), st.none() | st.integers(0, 3))
    changes = st.lists(st.tuples(keys, payloads), min_size=1, max_size=6)
    levels: list[Level] = ["flushed", "durable", "live"]
    step = st.one_of(
        st.tuples(st.just("put"), changes),
        st.tuples(st.just("put"), changes),
        st.tuples(st.just("delete"), st.lists(keys, min_size=1, max_size=4)),
        st.tuples(st.just("flush"), st.integers(0, SHARDS - 1)),
        st.tuples(st.just("compact")),
        st.tuples(st.just("reopen"), st.booleans()),
        st.tuples(st.just("take_over")),
        st.tuples(st.just("upsert"), changes),
        st.tuples(st.just("scan"), st.sampled_from(levels)),
        st.tuples(st.just("check_all")),
    )
    return st.lists(step, min_size=10, max_size=20)


@pytest.mark.parametrize("kind", KEYS)
def test_a_table_agrees_with_a_dict_after_any_program(kind: str) -> None:
    @settings(
        max_examples=40,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(program=programs(kind), durable=st.booleans())
    def run(program: list[Step], durable: bool) -> None:
        with tempfile.TemporaryDirectory() as folder:
            machine = _Machine(folder, kind, durable)
            for name, *arguments in program:
                getattr(machine, name)(*arguments)
            machine.check_all()
            machine.reopen(flush=True)
            machine.compact()
            machine.check_all()
            for job in machine.jobs:
                job.close()

    run()
