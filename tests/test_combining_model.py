"""Random programs of tables whose rule makes a row of several events, against a fold in Python.

Owns: that every level of consistency, projection, filter, look-up and count shows what a plain fold
over the events of each key gives, and that the feed of changes leads from version to version.
Not here: rules that choose (test_merge_model), what a rule refuses (test_combining), each function
by itself (the core's tests).
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

Row: TypeAlias = dict[str, Any]
Event: TypeAlias = tuple[Literal["base", "put", "keep", "replace", "delete"], Row]
Step: TypeAlias = tuple[Any, ...]

SHARDS = 2
KEYS = [0, 1, 2, 3, -(2**40)]
SCHEMA = pa.schema(
    [
        pa.field("a", pa.int64()),
        pa.field("k", pa.int64(), nullable=False),
        pa.field("s", pa.string()),
        pa.field("ts", pa.int64()),
        pa.field("g", pa.string()),
        pa.field("h", pa.int32()),
        pa.field("total", pa.int64()),
        pa.field("top", pa.float64()),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("n", pa.int64()),
    ]
)
GROUP = ["ts", "g", "h"]
FUNCTIONS = {"total": "sum", "top": "max", "tags": "collect", "n": "count"}
RULES: dict[str, dict[str, Any]] = {
    "columns alone": {"merge_engine": "partial_update"},
    "a group": {"merge_engine": "partial_update", "sequence_groups": {"ts": ["g", "h"]}},
    "a group and functions": {
        "merge_engine": "partial_update",
        "sequence_groups": {"ts": ["g", "h"]},
        "aggregates": FUNCTIONS,
    },
    "deletes that do nothing": {"merge_engine": "partial_update", "deletes": "ignore"},
    "functions": {"merge_engine": "aggregation", "aggregates": FUNCTIONS},
}


# --- the model: a fold over the events of a key, from the first to the last ---


def merged(events: list[Event], rule: dict[str, Any]) -> Row | None:
    """The row of a key after its events, oldest first."""
    row: Row | None = None
    for kind, given_row in events:
        if kind == "base":
            row = dict(given_row)
        elif kind == "delete":
            row = row if rule.get("deletes") == "ignore" else None
        elif kind == "replace" or row is None:
            row = first(given_row, rule, whole=kind == "replace")
        else:
            add(row, given_row, rule, keeps=kind == "keep")
    return row


def first(given_row: Row, rule: dict[str, Any], *, whole: bool) -> Row:
    row = {name: given_row.get(name) for name in SCHEMA.names}
    if "n" in rule.get("aggregates", {}):
        row["n"] = 1
    if not whole and "sequence_groups" in rule and given_row.get("ts") is None:
        row.update(dict.fromkeys(GROUP))
    return row


def add(row: Row, given_row: Row, rule: dict[str, Any], *, keeps: bool) -> None:
    functions = rule.get("aggregates", {})
    for name, value in given_row.items():
        if name == "k" or (name in GROUP and "sequence_groups" in rule):
            continue
        if name in functions:
            row[name] = combined(functions[name], row[name], value)
        elif rule["merge_engine"] == "aggregation" or keeps:
            row[name] = row[name] if value is None else value
        else:
            row[name] = value
    if "n" in functions:
        row["n"] = (row["n"] or 0) + 1
    ts = given_row.get("ts")
    if "sequence_groups" in rule and ts is not None and (row["ts"] is None or ts >= row["ts"]):
        row.update({name: given_row[name] for name in GROUP})


def combined(function: str, older: Any, newer: Any) -> Any:  # noqa: ANN401 - of any column
    if older is None or newer is None:
        return newer if older is None else older
    return max(older, newer) if function == "max" else older + newer


@dataclass
class _ModelShard:
    """The rows of the base table, and the events above them."""

    base: dict[int, Row] = field(default_factory=dict)
    events: list[tuple[int, Event]] = field(default_factory=list)
    flushed: int = 0

    def state(self, rule: dict[str, Any], count: int | None = None) -> dict[int, Row]:
        lives: dict[int, list[Event]] = {k: [("base", row)] for k, row in self.base.items()}
        for key, event in self.events[:count]:
            lives.setdefault(key, []).append(event)
        rows = {key: merged(life, rule) for key, life in lives.items()}
        return {key: row for key, row in rows.items() if row is not None}

    def compact(self, rule: dict[str, Any]) -> None:
        self.base = self.state(rule, self.flushed)
        self.events, self.flushed = self.events[self.flushed :], 0


def comparable(rows: list[Row]) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in rows)


class _Machine:
    """A real table with a job per shard, beside its model."""

    def __init__(self, folder: str, rule: dict[str, Any]) -> None:
        self.rule = rule
        # No idle flush, so that the model knows what is flushed.
        self.config = lancemem.WriterConfig(fsync=False, idle_flush_interval="never")
        self.table = lancemem.create_table(
            f"{folder}/t.lance",
            SCHEMA,
            primary_key="k",
            sharding=lancemem.bucket("k", SHARDS),
            config=self.config,
            **rule,
        )
        self.shards = [_ModelShard() for _ in range(SHARDS)]
        ordinals = pa.array(self.table.shard_ordinals(pa.table({"k": KEYS}))).to_pylist()
        self.shard_of = dict(zip(KEYS, ordinals, strict=True))
        self.jobs: list[lancemem.Job] = []
        self.start_jobs()

    def start_jobs(self) -> None:
        self.jobs = [self.table.start_job(shard=shard) for shard in range(SHARDS)]

    def writable(self, columns: list[str]) -> list[str]:
        """These columns as a put can give them: whole groups, and no count."""
        if self.rule["merge_engine"] == "partial_update" and "sequence_groups" in self.rule:
            is_given = any(name in GROUP for name in columns)
            columns = [name for name in columns if name not in GROUP] + GROUP * is_given
        counts = "n" in self.rule.get("aggregates", {})
        return ["k", *(name for name in columns if name != "k" and not (counts and name == "n"))]

    def _each_shard(self, events: list[Event]) -> list[tuple[lancemem.Job, list[Event]]]:
        parts = []
        for shard, model in enumerate(self.shards):
            mine = [event for event in events if self.shard_of[event[1]["k"]] == shard]
            if mine:
                model.events += [(event[1]["k"], event) for event in mine]
                parts.append((self.jobs[shard], mine))
        return parts

    def rows_of(self, events: list[Event], columns: list[str]) -> pa.Table:
        schema = pa.schema([SCHEMA.field(name) for name in columns])
        rows = [{name: row[name] for name in columns} for _, row in events]
        return pa.Table.from_pylist(rows, schema=schema)

    def only(self, rows: list[Row], columns: list[str]) -> list[Row]:
        return [{name: row[name] for name in columns} for row in rows]

    # --- steps ---

    def put(self, rows: list[Row], columns: list[str], keeps: bool) -> None:
        columns = self.writable(columns)
        keeps = keeps and self.rule["merge_engine"] == "partial_update"
        kind: Literal["put", "keep"] = "keep" if keeps else "put"
        for job, events in self._each_shard([(kind, row) for row in self.only(rows, columns)]):
            job.put(self.rows_of(events, columns), nulls="keep" if keeps else None)

    def replace(self, rows: list[Row]) -> None:
        columns = self.writable(SCHEMA.names)
        for job, events in self._each_shard([("replace", row) for row in self.only(rows, columns)]):
            job.put(self.rows_of(events, columns), replace=True)

    def delete(self, keys: list[int]) -> None:
        for job, events in self._each_shard([("delete", {"k": key}) for key in keys]):
            job.delete([row["k"] for _, row in events])

    def apply(self, rows: list[Row], columns: list[str], deletes: list[bool]) -> None:
        columns = self.writable(columns)
        events: list[Event] = []
        for row, deletes_it in zip(self.only(rows, columns), deletes, strict=False):
            events.append(("delete" if deletes_it else "put", row))
        for job, mine in self._each_shard(events):
            mask = pa.array([kind == "delete" for kind, _ in mine])
            job.apply(self.rows_of(mine, columns), mask)

    def upsert(self, rows: list[Row], columns: list[str]) -> None:
        """A call on the table, which goes through the jobs."""
        columns = self.writable(columns)
        events: list[Event] = [("put", row) for row in self.only(rows, columns)]
        self._each_shard(events)
        self.table.upsert(self.rows_of(events, columns))

    def flush(self, shard: int) -> None:
        self.jobs[shard].flush()
        self.shards[shard].flushed = len(self.shards[shard].events)

    def compact(self, mode: Literal["auto", "link", "rewrite"]) -> None:
        before = self.table.changes(since=None, until=None).until
        state = self.base_rows()
        self.table.compact(mode=mode)
        for model in self.shards:
            model.compact(self.rule)
        self.check_changes(before, state)

    def reopen(self, flush: bool) -> None:
        for job in self.jobs:
            job.close(flush=flush)
        if flush:
            for model in self.shards:
                model.flushed = len(model.events)
        self.table = lancemem.open_table(self.table.uri)
        self.start_jobs()

    def bulk(self, rows: list[Row], columns: list[str]) -> None:
        """Rows that are committed as SSTables: the newest of their shards."""
        self.reopen(flush=True)
        for job in self.jobs:
            job.close()
        columns = self.writable(columns)
        events: list[Event] = [("put", row) for row in self.only(rows, columns)]
        writer = self.table.bulk_writer()
        writer.upsert(self.rows_of(events, columns))
        self.table.commit(writer.finish())
        self._each_shard(events)
        for model in self.shards:
            model.flushed = len(model.events)
        self.start_jobs()

    # --- checks ---

    def base_rows(self) -> list[Row]:
        rows = [row for model in self.shards for row in model.base.values()]
        return [{name: row.get(name) for name in SCHEMA.names} for row in rows]

    def check_changes(self, since: int, before: list[Row]) -> None:
        """What the feed says leads from the rows before a compaction to those after it."""
        rows = comparable(before)
        changes = self.table.changes(since=since).to_reader().read_all().to_pylist()
        for kinds, change_rows in (
            (("delete", "update_preimage"), rows.remove),
            (("insert", "update_postimage"), rows.append),
        ):
            for change in changes:
                if change["_change_type"] in kinds:
                    image = {name: change[name] for name in SCHEMA.names}
                    change_rows(comparable([image])[0])
        assert sorted(rows) == comparable(self.base_rows())

    def check(self, level: Literal["flushed", "durable", "live"]) -> None:
        state: dict[int, Row] = {}
        for shard, model in enumerate(self.shards):
            if level == "flushed":
                self.see_flushed(shard)
            state |= model.state(self.rule, model.flushed if level == "flushed" else None)
        rows = list(state.values())
        read: dict[str, Any] = {"consistency": level}
        if level == "live":
            read["jobs"] = self.jobs
        assert comparable(self.table.scan(**read).to_table().to_pylist()) == comparable(rows)
        # Columns without the sequence of their group (paimon #10134).
        for columns in (["h", "k"], ["total"], ["tags", "g"]):
            narrow = self.table.scan(columns, **read).to_table().to_pylist()
            assert comparable(narrow) == comparable(self.only(rows, columns)), columns
        assert self.table.scan(**read).count_rows() == len(rows)
        self.check_filters(rows, read)
        got = self.table.get(pa.table({"k": KEYS}), **read).to_pylist()
        in_order = [state[key] for key in KEYS if key in state]
        assert [repr(row) for row in got] == [repr(row) for row in in_order]
        narrow = self.table.get(KEYS[1:3], ["h"], **read).to_pylist()
        assert narrow == [{"h": row["h"]} for row in in_order if row["k"] in KEYS[1:3]]

    def see_flushed(self, shard: int) -> None:
        """Note what is flushed. A job that starts with a log may flush it by itself."""
        model = self.shards[shard]
        seen = self.table.scan(consistency="flushed").to_table().to_pylist()
        part = comparable([row for row in seen if self.shard_of[row["k"]] == shard])
        for count in range(model.flushed, len(model.events) + 1):
            if comparable(list(model.state(self.rule, count).values())) == part:
                model.flushed = count
                return
        raise AssertionError(f"the flushed rows of shard {shard} are no state of it: {part}")

    def check_filters(self, rows: list[Row], read: dict[str, Any]) -> None:
        """A filter never meets a part of a row (paimon #4065)."""
        for text, passes in (
            ("a > 1", lambda row: row["a"] is not None and row["a"] > 1),
            ("total = 3", lambda row: row["total"] == 3),
            ("g IS NULL", lambda row: row["g"] is None),
            ("k = 1", lambda row: row["k"] == 1),
            ("k > 1 AND h = 1", lambda row: row["k"] > 1 and row["h"] == 1),
        ):
            expected = [row for row in rows if passes(row)]
            found = self.table.scan(filter=text, **read)
            assert comparable(found.to_table().to_pylist()) == comparable(expected), text
            assert found.count_rows() == len(expected), text

    def check_all(self) -> None:
        for level in ("flushed", "durable", "live"):
            self.check(level)


def rows() -> st.SearchStrategy[list[Row]]:
    row = st.fixed_dictionaries(
        {
            "a": st.none() | st.integers(0, 3),
            "k": st.sampled_from(KEYS),
            "s": st.none() | st.sampled_from(["", "a", "a\x00"]),
            "ts": st.none() | st.integers(0, 3),
            "g": st.none() | st.sampled_from(["x", "y"]),
            "h": st.none() | st.integers(-1, 2),
            "total": st.none() | st.integers(-1, 3),
            "top": st.none() | st.sampled_from([0.5, 1.5, -2.0]),
            "tags": st.none() | st.lists(st.sampled_from(["p", "q"]), max_size=2),
            "n": st.none() | st.integers(0, 2),
        }
    )
    return st.lists(row, min_size=1, max_size=6)


def programs() -> st.SearchStrategy[list[Step]]:
    keys = st.lists(st.sampled_from(KEYS), min_size=1, max_size=3)
    columns = st.lists(st.sampled_from(SCHEMA.names), max_size=6, unique=True)
    step = st.one_of(
        st.tuples(st.just("put"), rows(), columns, st.booleans()),
        st.tuples(st.just("put"), rows(), columns, st.booleans()),
        st.tuples(st.just("upsert"), rows(), columns),
        st.tuples(st.just("replace"), rows()),
        st.tuples(st.just("delete"), keys),
        st.tuples(
            st.just("apply"), rows(), columns, st.lists(st.booleans(), min_size=6, max_size=6)
        ),
        st.tuples(st.just("flush"), st.integers(0, SHARDS - 1)),
        st.tuples(st.just("flush"), st.integers(0, SHARDS - 1)),
        st.tuples(st.just("compact"), st.sampled_from(["auto", "link", "rewrite"])),
        st.tuples(st.just("reopen"), st.booleans()),
        st.tuples(st.just("bulk"), rows(), columns),
        st.tuples(st.just("check_all")),
    )
    return st.lists(step, min_size=8, max_size=18)


@pytest.mark.parametrize("name", RULES)
def test_a_table_that_merges_events_agrees_with_a_fold_after_any_program(name: str) -> None:
    @settings(
        max_examples=25,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(program=programs())
    def run(program: list[Step]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            machine = _Machine(folder, RULES[name])
            for step, *arguments in program:
                getattr(machine, step)(*arguments)
            machine.check_all()
            machine.reopen(flush=True)
            machine.compact("auto")
            machine.check_all()
            for job in machine.jobs:
                job.close()

    run()
