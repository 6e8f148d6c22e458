"""Scans of key columns alone, which read the cached keys of SSTables.

Owns: that they have the same rows as a scan of all columns, for keys of every kind, and when an
SSTable's file is read after all. Not here: how keys are compared (test_model).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import lancemem
from tests.keyed_rows import KEYS, KeyedRows, empty_table

if TYPE_CHECKING:
    from tests.conftest import MakeTable

RUNS = 3


def live(
    table: lancemem.Table,
    job: lancemem.Job,
    names: list[str],
    condition: str | None = None,
    limit: int | None = None,
) -> lancemem.Scan:
    return table.scan(names, condition, limit, consistency="live", jobs=[job])


def layered(make_table: MakeTable, kind: str) -> tuple[KeyedRows, lancemem.Job]:
    """Make a base, SSTables that replace and delete its keys and each other's, and a MemTable."""
    table, key = empty_table(make_table, kind)
    model = KeyedRows(table, key)
    with table.start_job(shard=0) as job:
        model.put(range(200), "base", job)
        job.flush()
    table.compact()
    job = table.start_job(shard=0)
    for run in range(RUNS):
        model.put(range(run, 220, 3 + run), f"run {run}", job)
        # The SSTable supersedes earlier rows of some keys, and has tombstones of others.
        model.put(range(run, 100, 3 + run), f"run {run} again", job)
        job.delete(model.forget(range(run, 200, 7)))
        job.flush()
    model.put(range(0, 230, 10), "memory", job)
    job.delete(model.forget(range(0, 200, 20)))
    return model, job


@pytest.mark.parametrize("kind", KEYS)
def test_a_scan_of_keys_alone_has_every_key_once(make_table: MakeTable, kind: str) -> None:
    model, job = layered(make_table, kind)
    expected = sorted(model.rows)
    with job:
        table = lancemem.open_table(model.table.uri)
        names = table.primary_key[::-1]
        for _ in ("first", "again"):
            scan = live(table, job, names)
            assert scan.explain().count("SsTableKeysExec") == RUNS
            found = scan.to_table()
            assert found.schema == table.scan(names).schema
            columns = [found[name].to_pylist() for name in table.primary_key]
            assert sorted(zip(*columns, strict=True)) == expected
        counted = lancemem.open_table(table.uri)
        count = live(counted, job, names[:1]).count_rows
        assert [count(), count()] == [len(expected)] * 2


def test_parts_and_limits_of_a_scan_of_keys_add_up(make_table: MakeTable) -> None:
    model, job = layered(make_table, "two columns")
    with job:
        table = lancemem.open_table(model.table.uri)
        snapshot = table.snapshot(consistency="live", jobs=[job])
        for _ in ("nothing in memory", "keys in memory"):
            parts = [snapshot.scan(["b"], part=(part, 3)).to_table() for part in range(3)]
            assert sum(part.num_rows for part in parts) == len(model.rows)
            most = snapshot.scan(["a", "b"], limit=150, offset=len(model.rows) - 100)
            assert most.to_table().num_rows == 100
            assert snapshot.scan(["a", "b"]).to_table().num_rows == len(model.rows)


def test_the_file_of_an_sstable_is_read_for_anything_but_keys(make_table: MakeTable) -> None:
    model, job = layered(make_table, "int64")
    with job:
        table = lancemem.open_table(model.table.uri)
        assert "SsTableKeysExec" not in live(table, job, ["id", "value"]).explain()
        assert "SsTableKeysExec" not in live(table, job, ["id"], "value = 'base'").explain()
        # Ten keys are too few to load the keys of every SSTable.
        assert "SsTableKeysExec" not in live(table, job, ["id"], limit=10).explain()
        assert live(table, job, ["id"]).to_table().num_rows == len(model.rows)
        assert "SsTableKeysExec" in live(table, job, ["id"], limit=10).explain()
