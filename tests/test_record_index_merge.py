"""Runs of the record index that are merged: by level, without the base table.

Owns: which sorted runs a compaction merges, the reads and writes of a merge, damage, crashes, and
merges beside readers, other compactors and collectors. Not here: the index as such
(test_record_index), every way to merge some runs (`index::tests` in `rust/engine`).
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import lance
import numpy as np
import pyarrow as pa
import pytest

import lancemem
from tests.keyed_rows import KEYS, empty_table
from tests.test_record_index import Model, flush, folder, lookup, published, sound

if TYPE_CHECKING:
    from tests.conftest import MakeTable

FAN_IN = 8
DAY = 24 * 3600
IO_COUNTERS = Path("/proc/self/io")


@pytest.fixture(params=KEYS)
def model(request: pytest.FixtureRequest, make_table: MakeTable) -> Model:
    """Give an empty table with a record index for each kind of key."""
    model = Model(*empty_table(make_table, request.param))
    model.table.create_record_index()
    return model


@pytest.fixture
def ints(make_table: MakeTable) -> Model:
    """Return such a table with integer keys."""
    model = Model(*empty_table(make_table, "int64"))
    model.table.create_record_index()
    return model


def add_runs(model: Model, count: int, rows: int, first: int = 0) -> None:
    """Compact `count` times, `rows` new rows each; each compaction adds a sorted run."""
    for start in range(first, first + count * rows, rows):
        model.put(range(start, start + rows), f"from {start}")
        model.compact()


def physical_rows(table: lancemem.Table) -> int:
    return sum(fragment.physical_rows for fragment in lance.dataset(table.uri).get_fragments())


def test_eight_runs_of_a_level_become_one_with_every_entry(model: Model) -> None:
    add_runs(model, FAN_IN - 1, 25)
    model.put(range(0, 60, 3), "again")
    model.delete(range(1, 60, 7))
    assert len(published(model.table)) == FAN_IN - 1
    model.compact()
    report = sound(model.table)
    assert (report.num_runs, report.num_stale_runs, report.num_fragments_uncovered) == (1, 0, 0)
    assert report.num_entries == physical_rows(model.table), (
        "superseded and deleted rows have entries"
    )
    model.check(range(230))


def test_large_runs_are_left_alone_while_small_ones_are_merged(ints: Model) -> None:
    add_runs(ints, FAN_IN - 1, 9_000)
    large = published(ints.table)
    assert len(large) == FAN_IN - 1
    for step in range(3 * FAN_IN):
        ints.put([step * 1_000], f"v{step}")
        ints.compact()
        runs = published(ints.table)
        assert large < runs, "a compaction of one row rewrites none of them"
        assert len(runs) < 2 * FAN_IN
    ints.check(range(0, 70_000, 997))
    sound(ints.table)
    add_runs(ints, 1, 9_000, first=100_000)
    assert not large & published(ints.table), "the eighth fills their level"
    assert sound(ints.table).num_fragments_uncovered == 0
    ints.check(range(0, 110_000, 997))


@pytest.mark.skipif(not IO_COUNTERS.exists(), reason="counts what the kernel counts")
def test_a_compaction_of_one_row_reads_and_writes_little_of_a_large_index(
    make_table: MakeTable,
) -> None:
    table, _ = empty_table(make_table, "int64")
    rows, runs = 270_000, 7
    table.create_record_index()
    for start in range(0, runs * rows, rows):
        table.upsert(new_rows(table, np.arange(start, start + rows)))
        flush(table)
        table.compact()
    index = sum(path.stat().st_size for path in folder(table).rglob("*.lance"))
    assert (len(published(table)), index > 30_000_000) == (runs, True)
    for turn in range(2 * FAN_IN):
        # Another handle has an empty cache.
        other = lancemem.open_table(table.uri)
        other.upsert(new_rows(table, np.array([turn * 100_001])))
        flush(other)
        before = io_counters()
        other.compact()
        read, written = (after - was for after, was in zip(io_counters(), before, strict=True))
        assert read < 5_000_000, "a page of each run, never a run"
        assert written < 500_000
    assert sound(table).num_fragments_uncovered == 0
    assert lookup(table, new_rows(table, np.array([0, 100_001, 9_999_999]))) == {
        (0,): "x",
        (100_001,): "x",
    }


def new_rows(table: lancemem.Table, ids: np.ndarray) -> pa.Table:
    return pa.table([pa.array(ids), ["x"] * len(ids)], schema=table.schema)


def io_counters() -> tuple[int, int]:
    """Give the bytes that this process has read and written, by system calls."""
    lines = dict(line.split(": ") for line in IO_COUNTERS.read_text().splitlines())
    return int(lines["rchar"]), int(lines["wchar"])


@pytest.mark.filterwarnings("ignore:lance is not fork-safe")
def test_entries_of_fragments_that_are_gone_are_left_out(ints: Model) -> None:
    add_runs(ints, FAN_IN - 1, 100)
    other = lance.dataset(ints.table.uri)
    # The second and third fragment, whole, and half of the fourth.
    other.delete("id >= -400 and id < -150")
    ints.rows = {key: row for key, row in ints.rows.items() if not -400 <= key[0] < -150}
    assert len(lance.dataset(ints.table.uri).get_fragments()) == FAN_IN - 3
    # Two runs cover no live fragment any more: the level is full two compactions later.
    add_runs(ints, 3, 100, first=700)
    report = sound(ints.table)
    assert (report.num_runs, report.num_stale_runs, report.num_fragments_uncovered) == (1, 0, 0)
    assert report.num_entries == physical_rows(ints.table)
    ints.check(range(0, 1_000, 7))


@pytest.mark.filterwarnings("ignore:lance is not fork-safe")
def test_a_run_of_which_most_entries_are_dead_is_written_anew(ints: Model) -> None:
    add_runs(ints, FAN_IN, 2_000)
    (merged,) = published(ints.table)
    lance.dataset(ints.table.uri).delete("id < 11500 and id >= -500")
    ints.rows = {key: row for key, row in ints.rows.items() if key[0] >= 11_500}
    add_runs(ints, 1, 10, first=20_000)
    assert merged not in published(ints.table)
    assert sound(ints.table).num_entries == physical_rows(ints.table) == 4_010
    ints.check(range(11_900, 20_020, 11))


def test_a_damaged_run_is_made_anew_by_the_merge_that_meets_it(
    ints: Model, caplog: pytest.LogCaptureFixture
) -> None:
    add_runs(ints, FAN_IN - 1, 50)
    damaged = sorted(published(ints.table))[3]
    path = folder(ints.table) / damaged / "page_data.lance"
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 0x10
    path.unlink()  # it may be a link to an SSTable's own file
    path.write_bytes(content)
    ints.table = lancemem.open_table(ints.table.uri)
    with caplog.at_level(logging.WARNING, logger="lancemem"):
        add_runs(ints, 1, 50, first=2_000)
    lines = [record.getMessage() for record in caplog.records]
    named = [line for line in lines if damaged in line and "page_data.lance" in line]
    assert any("is rebuilt" in line for line in named), lines
    assert damaged not in published(ints.table)
    assert sound(ints.table).num_fragments_uncovered == 0
    ints.check(range(0, 2_100, 9))
    add_runs(ints, 1, 50, first=3_000)
    assert len(published(ints.table)) == 1, "the next compaction merges what is left"
    sound(ints.table)
    ints.check(range(0, 3_100, 9))


def test_a_merge_that_ends_before_its_runs_go_leaves_the_index_right(ints: Model) -> None:
    """The state after a crash between the publication and the removal."""
    add_runs(ints, FAN_IN - 1, 40)
    runs = folder(ints.table) / "runs"
    inputs = {path.name: path.read_bytes() for path in runs.iterdir()}
    add_runs(ints, 1, 40, first=1_000)
    (merged,) = published(ints.table)
    for name, content in inputs.items():
        (runs / name).write_bytes(content)
    ints.table = lancemem.open_table(ints.table.uri)
    report = sound(ints.table)
    assert (report.num_runs, report.num_stale_runs, report.num_fragments_uncovered) == (
        1,
        FAN_IN - 1,
        0,
    )
    ints.check(range(0, 1_100, 3))
    add_runs(ints, 1, 1, first=5_000)
    assert published(ints.table).isdisjoint(Path(name).stem for name in inputs)
    assert merged in published(ints.table)
    sound(ints.table)
    ints.check(range(0, 1_100, 3))


def test_a_merge_that_ends_before_its_publication_leaves_pages_to_collect(ints: Model) -> None:
    """The state after a crash between the files and the publication."""
    add_runs(ints, FAN_IN - 1, 40)
    runs = folder(ints.table) / "runs"
    inputs = {path.name: path.read_bytes() for path in runs.iterdir()}
    add_runs(ints, 1, 40, first=1_000)
    (merged,) = published(ints.table)
    for name, content in inputs.items():
        (runs / name).write_bytes(content)
    (runs / f"{merged}.binpb").unlink()
    ints.table = lancemem.open_table(ints.table.uri)
    assert sound(ints.table).num_fragments_uncovered == 1, "the newest fragment"
    ints.check(range(0, 1_100, 3))
    add_runs(ints, 1, 40, first=2_000)
    report = sound(ints.table)
    assert (report.num_runs, report.num_fragments_uncovered) == (1, 0)
    assert (folder(ints.table) / merged).exists()
    assert "record index run" not in collected(ints.table), "it may be of a merge that goes on"
    age(ints.table)
    assert "record index run" in collected(ints.table)
    assert not (folder(ints.table) / merged).exists()
    sound(ints.table)
    ints.check(range(0, 2_100, 3))


def age(table: lancemem.Table) -> None:
    """Make the present pages a day older, so that a collection removes them."""
    for path in folder(table).rglob("*.lance"):
        os.utime(path, (time.time() - DAY, time.time() - DAY))


def collected(table: lancemem.Table) -> set[str]:
    return {it.kind for it in table.collect_garbage(older_than=timedelta(0)).garbage}


def test_readers_that_hold_merged_runs_keep_working(ints: Model) -> None:
    add_runs(ints, FAN_IN - 1, 60)
    reader = lancemem.open_table(ints.table.uri)
    keys = ints.keys(range(0, 600, 5))
    with_index = reader.get(keys).num_rows
    old = published(ints.table)
    snapshot = reader.snapshot()
    add_runs(ints, 1, 60, first=5_000)
    assert not old & published(ints.table)
    assert (snapshot.get(keys).num_rows, reader.get(keys).num_rows) == (with_index, with_index)
    for name in old:
        shutil.rmtree(folder(ints.table) / name)
    assert (snapshot.get(keys).num_rows, reader.get(keys).num_rows) == (with_index, with_index)
    assert lancemem.open_table(ints.table.uri).get(keys).num_rows == with_index


def test_compactors_and_collectors_beside_each_other_leave_the_index_right(ints: Model) -> None:
    failures: list[BaseException] = []

    def run(work: str) -> None:
        try:
            table = lancemem.open_table(ints.table.uri)
            if work == "compact":
                table.compact()
            else:
                table.collect_garbage(older_than=timedelta(hours=1))
        except BaseException as error:  # noqa: BLE001 - shown below
            failures.append(error)

    for step in range(3 * FAN_IN):
        ints.put(range(step * 20, step * 20 + 30), f"v{step}")
        flush(ints.table)
        age(ints.table)
        beside = [threading.Thread(target=run, args=[it]) for it in ("compact", "compact", "")]
        for thread in beside:
            thread.start()
        for thread in beside:
            thread.join()
        assert failures == []
        assert lancemem.open_table(ints.table.uri).admin.verify_record_index().damage == []
        ints.check(range(0, 700, 23))
    add_runs(ints, 1, 5, first=9_000)
    report = sound(ints.table)
    assert (report.num_stale_runs, report.num_fragments_uncovered) == (0, 0)
    assert report.num_runs < 2 * FAN_IN
    ints.check(range(0, 700, 3))
