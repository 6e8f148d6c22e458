"""Writes of the Spark side on a storage that fails, and beside writers that claim their shards.

Owns, without a Spark session: the format's two phases, and SSTables that are staged. Not here: puts
(tests/spark/test_running_jobs).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

import lancemem
from lancemem.spark import source, writer

if TYPE_CHECKING:
    from tests.conftest import MakeTable

PLAN = writer.WritePlan(("id", "name", "value"), ("id",))
TXN = ("app:load", 1)
BUSY = lancemem.RetryableError("the storage is busy")
TAKEN = lancemem.WriterFencedError("another writer took the shard")

Faults = list[tuple[str, lancemem.LancememError]]


class Failing:
    """A table with one failing call, which fails before or after its effect."""

    def __init__(self, table: lancemem.Table, call: str, faults: Faults) -> None:
        self._table, self._call, self._faults = table, call, faults

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever a table has
        does = getattr(self._table, name)
        return does if name != self._call else lambda *given, **named: self._do(does, given, named)

    def _do(self, does: Any, given: Any, named: Any) -> Any:  # noqa: ANN401 - of any call
        when, error = self._faults.pop(0) if self._faults else ("", None)
        if error is not None and when == "before":
            raise error
        done = does(*given, **named)
        if error is not None:
            raise error
        return done


@pytest.fixture
def table(make_table: MakeTable) -> lancemem.Table:
    return make_table(sharding=lancemem.bucket("id", 2))


def rows(ids: range, name: str) -> pa.RecordBatch:
    columns = {"id": list(ids), "name": [name] * len(ids), "value": [0.5] * len(ids)}
    return pa.RecordBatch.from_pydict(columns)


def found(table: lancemem.Table) -> dict[int, str]:
    stored = lancemem.open_table(table.uri).scan().to_table()
    return dict(zip(stored["id"].to_pylist(), stored["name"].to_pylist(), strict=True))


def let_fail(monkeypatch: pytest.MonkeyPatch, call: str, faults: Faults) -> None:
    """Let a call of every table that is opened from now on fail as often as there are faults."""
    really = lancemem.open_table

    def opened(uri: str, **options: Any) -> Failing:  # noqa: ANN401 - as they come
        return Failing(really(uri, **options), call, faults)

    monkeypatch.setattr(lancemem, "open_table", opened)


def writer_of(table: lancemem.Table, *, overwrite: bool = False) -> source._BatchWriter:
    return source._BatchWriter(source._Write(table.uri, PLAN, overwrite=overwrite), TXN)


def test_a_commit_outlives_passing_faults_of_the_storage(
    table: lancemem.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = writer_of(table)
    staged = writer.write(iter([rows(range(8), "a")]))
    faults: Faults = [("before", BUSY), ("behind", BUSY)]
    with monkeypatch.context() as patched:
        let_fail(patched, "commit", faults)
        writer.commit([staged, None])
    assert faults == []
    assert found(table) == dict.fromkeys(range(8), "a")
    assert [len(shard.sstables) for shard in table.shards()] == [1, 1], "each SSTable once"


def test_a_commit_that_replaces_all_rows_outlives_them_too(
    table: lancemem.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.upsert(rows(range(8), "old"))
    writer = writer_of(table, overwrite=True)
    staged = writer.write(iter([rows(range(4), "new")]))
    faults: Faults = [("before", BUSY), ("before", TAKEN)]
    with monkeypatch.context() as patched:
        let_fail(patched, "bulk_writer", faults)
        writer.commit([staged])
    assert faults == []
    assert found(table) == dict.fromkeys(range(4), "new")


def test_a_task_of_the_format_that_loses_its_turn_at_a_shard_begins_again(
    table: lancemem.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults: Faults = [("before", TAKEN)]
    writer = writer_of(table)
    with monkeypatch.context() as patched:
        let_fail(patched, "bulk_writer", faults)
        staged = writer.write(iter([rows(range(8), "a")]))
    assert faults == []
    writer.commit([staged])
    assert found(table) == dict.fromkeys(range(8), "a")


def test_many_rows_that_lose_their_turn_at_a_shard_are_written_once(
    table: lancemem.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "SINGLE_PUT_BYTES", 0)
    # The check of the rows, and the bulk writer of each shard.
    faults: Faults = [("before", TAKEN), ("before", BUSY), ("behind", TAKEN)]
    failing: Any = Failing(table, "bulk_writer", faults)
    given = pa.Table.from_batches([rows(range(8), "a")])
    done = writer.write_here(failing, PLAN, given, None, TXN, None)
    assert faults == []
    assert [(report["sstables"], report["wal_entries"]) for report in done] == [(1, 0)] * 2
    assert found(table) == dict.fromkeys(range(8), "a")
