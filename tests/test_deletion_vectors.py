"""Deletion-vector mode: the same rows, looked up or not, and no keys read once all are.

Owns: the switch, the look-up beside a job, by call and by command, changes of the base table and of
the files, and their collection. Not here: dead rows that a scan leaves in memory (test_snapshots),
random programs (test_compaction_model).
"""

from __future__ import annotations

import logging
import random
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lancemem
from tests.keyed_rows import KEYS, KeyedRows, empty_table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.conftest import MakeTable


class Model(KeyedRows):
    """A table of one shard in which every change becomes its own SSTable."""

    def put_run(self, numbers: Iterable[int], value: str) -> None:
        """Upsert a row for each number and flush them as one SSTable, without a look-up."""
        self.put(numbers, value)
        self.flush()

    def delete_run(self, numbers: Iterable[int]) -> None:
        """Delete the key of each number and flush that as one SSTable."""
        self.delete(numbers)
        self.flush()

    def flush(self) -> None:
        """Flush as a program does that does not support the mode."""
        on = self.table.deletion_vectors
        before = files(self.table)
        with self.table.start_job(shard=0) as job:
            job.flush()
        if on:
            for path in files(self.table) - before:
                path.unlink()

    def compact(self) -> None:
        """Move everything into the base table."""
        self.table.compact()

    def check(self, by: str | None = None) -> None:
        """Read with a new handle; `by` is how every source must find its newest rows."""
        for columns in (None, self.table.primary_key, ["value"]):
            table = lancemem.open_table(self.table.uri)
            scan = table.scan(columns, consistency="flushed")
            if by is not None:
                assert ways(scan.explain()) == {by}
            found = scan.to_table()
            names = [*table.primary_key, "value"] if columns is None else columns
            lists = [found[name].to_pylist() for name in names]
            rows = sorted(zip(*lists, strict=True))
            every = [(*key, value) for key, value in self.rows.items()]
            places = [[*table.primary_key, "value"].index(name) for name in names]
            assert rows == sorted(tuple(row[place] for place in places) for row in every)
        table = lancemem.open_table(self.table.uri)
        assert table.scan(consistency="flushed").count_rows() == len(self.rows)
        where = table.scan(filter="value >= 'b'", consistency="flushed").to_table()
        assert where.num_rows == sum(value >= "b" for value in self.rows.values())
        snapshot = table.snapshot(consistency="flushed")
        parts = [snapshot.scan(part=(i, 3)).to_table() for i in range(3)]
        assert sum(part.num_rows for part in parts) == len(self.rows)


def ways(plan: str) -> set[str]:
    """Return how the sources of a plan find their newest rows."""
    told = [line.split("NewestRowsExec: ")[1] for line in plan.splitlines() if "NewestRows" in line]
    return {way.split(",")[0].split(" [")[0] for way in told}


def files(table: lancemem.Table) -> set[Path]:
    return set((Path(table.uri) / "_lancemem" / "deletion_vectors").glob("*/*.binpb"))


@pytest.fixture(params=KEYS)
def model(request: pytest.FixtureRequest, make_table: MakeTable) -> Model:
    """Give an empty table for each kind of key."""
    return Model(*empty_table(make_table, request.param))


@pytest.fixture
def ints(make_table: MakeTable) -> Model:
    return Model(*empty_table(make_table, "int64"))


def test_reads_compare_no_key_over_a_life_of_upserts_deletes_and_compactions(model: Model) -> None:
    rng = random.Random(7)  # noqa: S311 - no secret
    model.put_run(range(1000), "a")
    model.compact()
    version = model.table.alter(deletion_vectors=True)
    assert model.table.alter(deletion_vectors=True) == version, "it was on already"
    for step in range(4):
        model.put_run(rng.sample(range(1200), 90), f"{'abcd'[step]}{step}")
        model.delete_run(rng.sample(range(1200), 40))
        model.check()
        done = model.table.write_deletion_vectors()
        assert (done.num_sstables, done.bytes > 0) == (2, True)
        model.check(by="by position")
        assert model.table.write_deletion_vectors().num_sstables == 0
        if step == 1:
            model.compact()
            model.check()
    model.table.alter(deletion_vectors=False)
    assert not lancemem.open_table(model.table.uri).deletion_vectors
    assert model.table.stats().num_sstables == 0
    model.check()


def test_no_key_comes_twice_while_the_mode_is_switched_and_sstables_are_looked_up(
    ints: Model,
) -> None:
    """Paimon #5874: right after the switch no deletion vector exists."""
    ints.put_run(range(500), "a")
    ints.compact()
    for step in range(3):
        ints.put_run(range(step * 100, step * 100 + 200), f"b{step}")
    ints.table.alter(deletion_vectors=True)
    ints.check(by="by position")
    written = sorted(files(ints.table))
    assert len(written) == 3
    kept = {path: path.read_bytes() for path in written}
    for present in range(8):
        for place, path in enumerate(written):
            path.unlink(missing_ok=True)
            if present >> place & 1:
                path.write_bytes(kept[path])
        ints.check(by="by position" if present == 7 else None)
    ints.table.alter(deletion_vectors=False)
    ints.check()
    ints.put_run(range(50), "c")
    ints.table.alter(deletion_vectors=True)
    ints.check(by="by position")


def test_a_job_looks_up_what_it_flushes(ints: Model) -> None:
    ints.put_run(range(100), "a")
    ints.compact()
    ints.table.alter(deletion_vectors=True)
    with ints.table.start_job(shard=0) as job:
        for step in range(3):
            ints.put(range(step * 10, step * 10 + 20), f"b{step}", job)
            job.flush()
        ints.put(range(5), "z", job)
        job.close(flush=True)
        stats = job.stats()
    assert (stats.num_maintenance_errors, stats.num_compactions) == (0, 0)
    assert stats.num_deletion_vector_files >= 1
    ints.check(by="by position")


def test_a_job_that_ends_right_behind_its_flush_has_looked_it_up(ints: Model) -> None:
    ints.put_run(range(100), "a")
    ints.compact()
    ints.table.alter(deletion_vectors=True)
    for step in range(3):
        with ints.table.start_job(shard=0) as job:
            ints.put(range(step * 10, step * 10 + 20), f"b{step}", job)
            job.flush()
        assert ints.table.write_deletion_vectors().num_sstables == 0
    ints.check(by="by position")


def test_rows_in_memory_lie_above_what_was_looked_up(ints: Model) -> None:
    ints.put_run(range(100), "a")
    ints.compact()
    ints.put_run(range(50), "b")
    ints.table.alter(deletion_vectors=True)
    ints.put(range(25, 75), "c")
    found = lancemem.open_table(ints.table.uri).scan().to_table()
    lists = (found["id"].to_pylist(), found["value"].to_pylist())
    assert sorted(zip(*lists, strict=True)) == sorted((k[0], v) for k, v in ints.rows.items())


@pytest.mark.filterwarnings("ignore:lance is not fork-safe")
def test_foreign_commits_and_lances_compaction_leave_every_read_right(ints: Model) -> None:
    for step in range(3):
        ints.put_run(range(step * 100, step * 100 + 150), "a")
        ints.compact()
    ints.put_run(range(50, 120), "b")
    ints.delete_run(range(300, 320))
    ints.table.alter(deletion_vectors=True)
    ints.check(by="by position")
    other = lance.write_dataset(
        pa.table(
            [[9_000, -450], ["x", "hidden: the SSTable has this key"]], schema=ints.table.schema
        ),
        ints.table.uri,
        mode="append",
    )
    ints.rows[(9_000,)] = "x"
    ints.check()
    ints.table.write_deletion_vectors()
    ints.check(by="by position")
    other.delete("id > 9000 or id < -480")
    ints.rows = {key: value for key, value in ints.rows.items() if -480 <= key[0] <= 9_000}
    ints.check(by="by position")
    other.update({"value": "'updated'"}, where="id >= -300 and id < -250")
    ints.rows |= {(n,): "updated" for n in range(-300, -250) if (n,) in ints.rows}
    ints.check()
    other.optimize.compact_files(target_rows_per_fragment=1_000_000)
    ints.check()
    ints.table.write_deletion_vectors()
    ints.check(by="by position")


def test_a_row_that_a_restored_version_shows_again_is_hidden_by_its_sstable(ints: Model) -> None:
    ints.put_run(range(100), "a")
    ints.compact()
    ints.table.alter(deletion_vectors=True)
    version = lance.dataset(ints.table.uri).version
    ints.put_run(range(50), "b")
    # The base rows are deleted when they are looked up, and come back afterwards.
    lance.dataset(ints.table.uri).delete("id < -480")
    ints.table.write_deletion_vectors()
    ints.check(by="by position")
    earlier: Any = lance.dataset(ints.table.uri).checkout_version(version)
    earlier.restore()
    ints.check(by="by position")


def test_a_damaged_file_is_left_out_and_told(ints: Model, caplog: pytest.LogCaptureFixture) -> None:
    ints.put_run(range(200), "a")
    ints.compact()
    ints.put_run(range(100), "b")
    ints.table.alter(deletion_vectors=True)
    (path,) = files(ints.table)
    whole = path.read_bytes()
    flipped = whole[:20] + bytes([whole[20] ^ 1]) + whole[21:]
    damaged = [whole[:-1], b"", flipped, b"\0" * len(whole)]
    for content in damaged:
        path.write_bytes(content)
        caplog.clear()
        with caplog.at_level(logging.WARNING, logger="lancemem"):
            ints.check()
        lines = [record.getMessage() for record in caplog.records]
        assert any(path.name in line for line in lines), lines
    # The next look-up makes up for it, in a file of its own.
    lancemem.open_table(ints.table.uri).write_deletion_vectors()
    assert len(files(ints.table)) == 2
    ints.check(by="by position")


def test_the_record_index_gives_the_same_positions(ints: Model) -> None:
    ints.put_run(range(2_000), "a")
    ints.compact()
    lance.dataset(ints.table.uri).delete("id > 1400")
    ints.rows = {key: value for key, value in ints.rows.items() if key[0] <= 1400}
    ints.table.create_record_index()
    ints.table.alter(deletion_vectors=True)
    ints.put_run(range(0, 4_000, 40), "b")
    ints.table.write_deletion_vectors()
    ints.check(by="by position")


def test_files_are_collected_after_their_sstable(ints: Model) -> None:
    ints.put_run(range(100), "a")
    ints.compact()
    ints.table.alter(deletion_vectors=True)
    ints.put_run(range(50), "b")
    ints.table.write_deletion_vectors()
    garbage = ints.table.collect_garbage(older_than=timedelta(0)).garbage
    assert "deletion vectors" not in {each.kind for each in garbage}
    assert len(files(ints.table)) == 1
    ints.compact()
    ints.check()
    garbage = ints.table.collect_garbage(older_than=timedelta(0)).garbage
    assert "deletion vectors" in {each.kind for each in garbage}
    assert files(ints.table) == set()
    ints.check()


def test_a_compaction_of_covered_sstables_reads_no_keys(ints: Model) -> None:
    """Keys of the base table: its data files are out of reach meanwhile, and none is rewritten."""
    ints.put_run(range(200), "a")
    ints.compact()
    ints.table.alter(deletion_vectors=True)
    ints.put_run(range(100, 300), "b")
    ints.delete_run(range(50))
    ints.table.write_deletion_vectors()
    root = Path(ints.table.uri)
    away = {path: path.with_suffix(".away") for path in (root / "data").glob("*.lance")}
    assert away
    for path, other in away.items():
        path.rename(other)
    table = lancemem.open_table(ints.table.uri)
    done = table.compact(mode="link", max_dead_share=1.0)
    assert (done.num_generations, done.num_rows_deleted) == (2, 150)
    for path, other in away.items():
        other.rename(path)
    ints.check()


def test_names_that_are_no_sstable_are_not_looked_at(ints: Model) -> None:
    ints.put_run(range(100), "a")
    ints.compact()
    ints.put_run(range(50), "b")
    ints.table.alter(deletion_vectors=True)
    (path,) = files(ints.table)
    for name in ("notes.txt", "x.binpb", f"{path.stem}.tmp"):
        (path.parent / name).write_text("not ours")
    ints.check(by="by position")
    ints.compact()
    ints.table.collect_garbage(older_than=timedelta(0))
    assert {each.name for each in path.parent.iterdir()} == {
        "notes.txt",
        "x.binpb",
        f"{path.stem}.tmp",
    }


def test_the_mode_needs_a_key_and_the_look_up_the_mode(ints: Model, tmp_path: Path) -> None:
    with pytest.raises(lancemem.InvalidInputError, match=r"mode of table .* is off"):
        ints.table.write_deletion_vectors()
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"v": [1]}), uri)
    with pytest.raises(lancemem.InvalidInputError, match="no primary key"):
        lancemem.enable(uri).alter(deletion_vectors=True)


def test_the_command_line_switches_looks_up_and_maintains(ints: Model) -> None:
    ints.put_run(range(100), "a")

    def command(*arguments: str) -> str:
        call = [sys.executable, "-m", "lancemem", *arguments, ints.table.uri]
        done = subprocess.run(call, capture_output=True, text=True, timeout=50, check=True)  # noqa: S603
        return done.stdout

    assert command("deletion-vectors", "on").startswith("deletion-vector mode is on; version ")
    ints.table = lancemem.open_table(ints.table.uri)
    ints.put_run(range(50), "b")
    told = command("deletion-vectors", "write")
    assert told.startswith("deletion vectors: looked up 1 SSTables, ")
    assert command("deletion-vectors", "write") == "deletion vectors: nothing to look up\n"
    ints.check(by="by position")
    assert "deletion vectors: nothing to look up\n" in command("maintain", "--once")
    assert command("deletion-vectors", "off").startswith("deletion-vector mode is off; version ")
    ints.check()
