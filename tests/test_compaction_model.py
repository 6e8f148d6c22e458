"""Random programs with every kind of maintenance between the writes, against a Python dict.

Owns: that no maintenance, ours or Lance's, changes what any level of consistency shows. Not here:
the machine and its model, which are those of test_model.
"""

from __future__ import annotations

import tempfile
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

import lance
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lancemem
from tests.test_model import KEYS, SHARDS, _Machine

if TYPE_CHECKING:
    from tests.conftest import MakeTable

NOW = timedelta(0)
Step = tuple[Any, ...]


class _Maintained(_Machine):
    """A table whose maintenance is part of the program."""

    def compact_by(self, mode: Literal["auto", "adopt", "rewrite"], share: float) -> None:
        planned = self.table.compact(mode=mode, dry_run=True)
        done = self.table.compact(mode=mode, max_dead_share=share)
        assert (done.rows_written, done.rows_deleted) == (
            planned.rows_written,
            planned.rows_deleted,
        )
        assert sum(run.live_rows for run in done.runs) == done.rows_written

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

    def update_indexes(self) -> None:
        self.table.compact(update_indexes=True)

    def collect(self) -> None:
        self.table.collect_garbage(older_than=NOW)

    def clean_up_by_lance(self) -> None:
        lance.dataset(self.table.uri).cleanup_old_versions(older_than=NOW)

    def switch_deletion_vectors(self, on: bool) -> None:
        self.table.set_deletion_vectors(on)

    def look_up(self) -> None:
        if self.table.deletion_vectors:
            self.table.write_deletion_vectors()

    def forget(self) -> None:
        """Read with nothing in memory of earlier reads, what storage has decides."""
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
            st.sampled_from(["auto", "adopt", "adopt", "rewrite"]),
            st.sampled_from([0.0, 0.5, 1.0]),
        ),
        st.tuples(st.just("compact_by_lance")),
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
    """B16: after a compaction the base itself counts right, for readers that know nothing else."""
    table = make_table()
    for step in range(5):
        data = pa.table([[1, 2, 3 + step], ["a"] * 3, [0.0] * 3], schema=table.schema)
        table.upsert(data)
        with table.start_job(shard=0) as job:
            job.flush()
        table.compact(mode="adopt" if step % 2 else "rewrite")
        assert lance.dataset(table.uri).count_rows() == table.scan().count_rows() == 3 + step
