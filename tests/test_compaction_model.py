"""Random programs with every kind of maintenance between the writes, against a Python dict.

Owns: that no maintenance, lancemem's or Lance's, in turn or in parallel, changes what any level of
consistency shows, also with a damaged SSTable. Not here: the machine and its model (test_model).
"""

from __future__ import annotations

import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import lance
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lancemem
from tests.test_compaction import perhaps_lost
from tests.test_model import KEYS, SHARDS, _Machine

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import MakeTable

NOW = timedelta(0)
Step = tuple[Any, ...]


class _Maintained(_Machine):
    """A table whose maintenance is part of the program."""

    def compact_by(self, mode: Literal["auto", "link", "rewrite"], share: float) -> None:
        planned = self.table.compact(mode=mode, dry_run=True)
        done = self.table.compact(mode=mode, max_dead_share=share)
        assert (done.num_rows_written, done.num_rows_deleted) == (
            planned.num_rows_written,
            planned.num_rows_deleted,
        )
        assert sum(run.num_live_rows for run in done.sstables) == done.num_rows_written

    def compact_by_lance(self) -> None:
        dataset = lance.dataset(self.table.uri)
        before = sorted(map(str, dataset.to_table().to_pylist()))
        dataset.optimize.compact_files(materialize_deletions_threshold=0.0)
        after = lance.dataset(self.table.uri).to_table()
        assert sorted(map(str, after.to_pylist())) == before

    def build_index(self, column: str) -> None:
        name = self.key_names[0] if column == "key" else column
        dataset = lance.dataset(self.table.uri)
        if dataset.count_rows():
            dataset.create_scalar_index(name, "BTREE", replace=True)

    def append_by_lance(self, number: int) -> None:
        """Add rows under keys that no job of a shard writes: another program may change them."""
        keys = [key for key in others(self.key_fields, number) if key not in self.others]
        new = self.rows([(key, (None, None)) for key in keys])
        schema = lance.dataset(self.table.uri).schema
        new = pa.table([new[name] for name in schema.names], schema=schema)
        lance.write_dataset(new, self.table.uri, mode="append")
        self.others.update(keys)

    def compact_beside_lance(self, number: int) -> None:
        """Let lance delete rows during a compaction; the loser of the race raises an error."""
        self.append_by_lance(number)
        self.put_and_flush_all(number)
        # So that both have to delete rows of one fragment.
        self.table.compact()
        self.compact_by_lance()
        self.put_and_flush_all(number + 1)

        def delete() -> None:
            for key in others(self.key_fields, number):
                with perhaps_lost():
                    lance.dataset(self.table.uri).delete(f"id = {key[0]!r}")
                    self.others.remove(key)

        self.at_once(self.table.compact, delete)

    def compact_twice(self) -> None:
        self.at_once(self.table.compact, lancemem.open_table(self.table.uri).compact)

    def put_and_flush_all(self, value: int) -> None:
        self.put([(key, ("z", value)) for key in self.keys])
        self.flush_all()

    def flush_all(self) -> None:
        for shard in range(SHARDS):
            self.flush(shard)

    def at_once(self, *calls: Callable[[], object]) -> None:
        with ThreadPoolExecutor(len(calls)) as pool:
            for call in [pool.submit(call) for call in calls]:
                call.result(60)
        self.scan("flushed")

    def damage_run(self, which: int, at: int) -> None:
        """Flip a bit in a file of an SSTable: it is named or not needed, and never compacted."""
        # So that nothing is being written.
        self.flush_all()
        where = "data/*" if which % 2 else "**/*"
        files = sorted(Path(self.table.uri).glob(f"_mem_wal/*/*_gen_*/{where}"))
        files = [path for path in files if path.is_file() and path.stat().st_size]
        if not files:
            return
        path = files[which % len(files)]
        whole = path.read_bytes()
        # Rows stand at the beginning of their file.
        place = at % (min(len(whole), 160) if which % 2 else len(whole))
        damaged = bytearray(whole)
        damaged[place] ^= 1 << (at % 8)
        replace(path, damaged)
        self.forget()
        with suppress(lancemem.CorruptionError):
            self.scan("flushed")
        with suppress(lancemem.CorruptionError):
            self.table.compact()
        replace(path, whole)
        self.forget()
        self.scan("flushed")

    def update_indexes(self) -> None:
        self.table.compact(update_indexes=True)

    def collect(self) -> None:
        self.table.collect_garbage(older_than=NOW)

    def clean_up_by_lance(self) -> None:
        lance.dataset(self.table.uri).cleanup_old_versions(older_than=NOW)

    def switch_deletion_vectors(self, on: bool) -> None:
        self.table.alter(deletion_vectors=on)

    def look_up(self) -> None:
        if self.table.deletion_vectors:
            self.table.write_deletion_vectors()

    def forget(self) -> None:
        """Read with a new handle, without a cache of earlier reads."""
        self.table = lancemem.open_table(self.table.uri)

    def check_base(self) -> None:
        """Compare filtered reads of the base, which may use an index, with a plain one."""
        dataset = lance.dataset(self.table.uri)
        plain = dataset.to_table()
        keys = [tuple(row[name] for name in self.key_names) for row in plain.to_pylist()]
        assert len(keys) == len(set(keys)) == dataset.count_rows(), "a key is in the base twice"
        for value in range(4):
            want = sum(1 for found in plain["value"].to_pylist() if found == value)
            assert dataset.to_table(filter=f"value = {value}").num_rows == want
        dataset.validate()  # type: ignore[no-untyped-call]


def others(fields: list[pa.Field], number: int) -> list[tuple[Any, ...]]:
    """Return keys that test_model never draws."""
    numbers = range(1_000 + 10 * number, 1_010 + 10 * number)
    return [
        tuple(n if pa.types.is_integer(field.type) else f"other {n}" for field in fields)
        for n in numbers
    ]


def replace(path: Path, content: bytes | bytearray) -> None:
    """Write a new file: a hard link would share the bytes with its other name."""
    path.unlink()
    path.write_bytes(content)


def programs(kind: str) -> st.SearchStrategy[list[Step]]:
    keys = st.sampled_from(KEYS[kind][1])
    payloads = st.tuples(st.none() | st.sampled_from("xyz"), st.none() | st.integers(0, 3))
    changes = st.lists(st.tuples(keys, payloads), min_size=1, max_size=6)
    levels = ["flushed", "durable", "live"]
    shards = st.integers(0, SHARDS - 1)
    step = st.one_of(
        st.tuples(st.just("put"), changes),
        st.tuples(st.just("put"), changes),
        st.tuples(st.just("delete"), st.lists(keys, min_size=1, max_size=4)),
        st.tuples(st.just("flush"), shards),
        st.tuples(st.just("flush"), shards),
        st.tuples(
            st.just("compact_by"),
            st.sampled_from(["auto", "link", "link", "rewrite"]),
            st.sampled_from([0.0, 0.5, 1.0]),
        ),
        st.tuples(st.just("compact_by_lance")),
        st.tuples(st.just("append_by_lance"), st.integers(0, 2)),
        st.tuples(st.just("compact_beside_lance"), st.integers(0, 2)),
        st.tuples(st.just("compact_twice")),
        st.tuples(st.just("damage_run"), st.integers(0, 1 << 30), st.integers(0, 1 << 30)),
        st.tuples(st.just("build_index"), st.sampled_from(["key", "value"])),
        st.tuples(st.just("update_indexes")),
        st.tuples(st.just("collect")),
        st.tuples(st.just("switch_deletion_vectors"), st.sampled_from([True, True, False])),
        st.tuples(st.just("look_up")),
        st.tuples(st.just("forget")),
        st.tuples(st.just("clean_up_by_lance")),
        st.tuples(st.just("reopen"), st.booleans()),
        st.tuples(st.just("take_over")),
        st.tuples(st.just("scan"), st.sampled_from(levels)),
        st.tuples(st.just("check_base")),
        st.tuples(st.just("check_all")),
    )
    return st.lists(step, min_size=12, max_size=24)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("kind", KEYS)
def test_no_maintenance_changes_what_a_reader_sees(kind: str) -> None:
    @settings(
        max_examples=30,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(program=programs(kind), durable=st.booleans())
    def run(program: list[Step], durable: bool) -> None:
        with tempfile.TemporaryDirectory() as folder:
            machine = _Maintained(folder, kind, durable)
            for name, *arguments in program:
                getattr(machine, name)(*arguments)
            machine.check_all()
            machine.reopen(flush=True)
            machine.compact_by("auto", 0.5)
            machine.collect()
            machine.check_all()
            machine.check_base()
            for job in machine.jobs:
                job.close()

    run()


def test_the_rows_of_the_base_are_the_rows_of_the_table(make_table: MakeTable) -> None:
    """B16: after a compaction the base table alone counts right, for readers without lancemem."""
    table = make_table()
    for step in range(5):
        data = pa.table([[1, 2, 3 + step], ["a"] * 3, [0.0] * 3], schema=table.schema)
        table.upsert(data)
        with table.start_job(shard=0) as job:
            job.flush()
        table.compact(mode="link" if step % 2 else "rewrite")
        assert lance.dataset(table.uri).count_rows() == table.scan().count_rows() == 3 + step
