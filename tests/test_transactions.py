"""Transaction ids and staged SSTables: a write with a transaction id happens once.

Owns: the table's side, routed over shards, and that pylance reads and goes on writing such a
table. Not here: every step of one shard between put and manifest (the core's tests), Spark.
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import lancemem

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import MakeTable


def rows(numbers: range, value: float) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "name": [str(n) for n in numbers],
            "value": [float(value)] * len(numbers),
        }
    )


def stored(table: lancemem.Table) -> dict[int, float]:
    found = lancemem.open_table(table.uri).scan().to_table()
    return dict(zip(found["id"].to_pylist(), found["value"].to_pylist(), strict=True))


@pytest.fixture
def table(make_table: MakeTable) -> lancemem.Table:
    return make_table(sharding=lancemem.bucket("id", 4))


def test_a_write_with_a_transaction_id_is_done_once_and_a_late_one_is_refused(
    table: lancemem.Table,
) -> None:
    first = table.upsert(rows(range(100), 1), txn=("query", 7))
    assert (first.num_rows, first.num_shards, first.num_shards_already_written) == (100, 4, 0)
    again = lancemem.open_table(table.uri).upsert(rows(range(100), 2), txn=("query", 7))
    assert (
        again.num_rows,
        again.num_shards,
        again.num_wal_entries,
        again.num_shards_already_written,
    ) == (0, 0, 0, 4)
    epochs = [shard.writer_epoch for shard in table.shards()]
    with pytest.raises(lancemem.StaleTxnError, match="version 6 of application 'query'"):
        table.upsert(rows(range(100), 3), txn=("query", 6))
    assert [shard.writer_epoch for shard in table.shards()] == epochs, "no job was fenced"
    assert table.upsert(rows(range(50), 4), txn=("query", 8)).num_rows == 50
    assert table.upsert(rows(range(50, 60), 5), txn=("other", 1)).num_rows == 10
    expected = dict.fromkeys(range(50), 4.0) | dict.fromkeys(range(50, 60), 5.0)
    assert stored(table) == expected | dict.fromkeys(range(60, 100), 1.0)


def test_transaction_ids_survive_flush_compaction_and_the_loss_of_the_log(
    table: lancemem.Table, tmp_path: Path
) -> None:
    table.upsert(rows(range(100), 1), txn=("query", 7))
    for shard in range(4):
        table.start_job(shard=shard).close(flush=True)
    table.compact()
    for entry in tmp_path.rglob("wal/*.arrow"):
        entry.unlink()
    again = lancemem.open_table(table.uri)
    assert [again.txn_version("query", shard=shard) for shard in range(4)] == [7] * 4
    assert again.upsert(rows(range(100), 2), txn=("query", 7)).num_shards_already_written == 4
    assert stored(table) == dict.fromkeys(range(100), 1.0)


def test_a_write_that_reached_some_shards_is_completed_by_its_repetition(
    table: lancemem.Table,
) -> None:
    data = rows(range(100), 1)
    ordinals = pa.array(table.shard_ordinals(data)).to_pylist()
    for shard in (0, 2):
        part = data.filter([ordinal == shard for ordinal in ordinals])
        with table.start_job(shard=shard) as job:
            assert not job.put(part, txn=("query", 1)).already_written
    table.delete(data.slice(0, 4).select(["id"]))
    done = table.upsert(data, txn=("query", 1))
    assert (done.num_shards, done.num_shards_already_written) == (2, 2)
    written = {n for n, ordinal in enumerate(ordinals) if ordinal in (1, 3) or n >= 4}
    assert set(stored(table)) == written


def test_puts_and_deletes_of_one_call_take_effect_in_their_order(table: lancemem.Table) -> None:
    table.upsert(rows(range(10), 1))
    numbers = [1, 2, 2, 3, 3, 11]
    changes = pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "name": pa.array([None] * 6, pa.string()),
            "value": [None, 5.0, None, None, 6.0, 7.0],
        }
    )
    deletes = pa.array([True, False, True, True, False, False])
    assert table.apply(changes, deletes, txn=("cdc", 1)).num_rows == 6
    kept = dict.fromkeys((0, 4, 5, 6, 7, 8, 9), 1.0)
    assert stored(table) == kept | {3: 6.0, 11: 7.0}
    with pytest.raises(lancemem.InvalidInputError, match="expected bool"):
        table.apply(changes, pa.array([1, 0, 0, 0, 0, 0]))


def test_staged_rows_are_seen_when_they_are_committed_and_then_win(table: lancemem.Table) -> None:
    table.upsert(rows(range(20), 1))
    first, second = table.bulk_writer(), table.bulk_writer()
    first.upsert(rows(range(10, 30), 2))
    first.delete(rows(range(5), 0).select(["id"]))
    second.upsert(rows(range(25, 35), 3))
    sstables = pickle.loads(pickle.dumps(first.finish() + second.finish()))  # noqa: S301 - our own
    assert stored(table) == dict.fromkeys(range(20), 1.0)
    committed = lancemem.open_table(table.uri).commit(sstables, txn=("load", 1))
    assert (committed.num_rows, committed.num_shards, committed.num_sstables) == (
        35,
        4,
        len(sstables),
    )
    expected = dict.fromkeys(range(5, 10), 1.0) | dict.fromkeys(range(10, 25), 2.0)
    expected |= dict.fromkeys(range(25, 35), 3.0)
    assert stored(table) == expected
    table.upsert(rows(range(30, 31), 9))
    table.compact()
    assert stored(table) == expected | {30: 9.0}
    assert table.commit(sstables, txn=("load", 1)).num_shards_already_written == 4
    assert stored(table) == expected | {30: 9.0}


def test_a_bulk_write_is_committed_or_aborted_by_the_first_of_the_two_calls(
    table: lancemem.Table, tmp_path: Path
) -> None:
    def stage() -> list[lancemem.StagedSsTable]:
        staged = table.bulk_writer()
        staged.upsert(rows(range(40), 1))
        return staged.finish()

    committed, aborted = stage(), stage()
    assert table.abort(aborted, write="b")
    assert not [sstable for sstable in aborted if list(tmp_path.rglob(sstable.path))]
    assert table.abort(aborted, write="b")
    with pytest.raises(lancemem.InvalidInputError, match="was aborted"):
        table.commit(aborted, write="b")
    assert stored(table) == {}
    table.commit(committed, write="a")
    assert not table.abort(committed, write="a")
    assert stored(table) == dict.fromkeys(range(40), 1.0)
    with pytest.raises(lancemem.InvalidInputError, match=r"staged SSTable .* is missing"):
        table.commit(aborted, write="c")


def test_pylance_reads_a_table_with_transaction_ids_goes_on_writing_and_keeps_them(
    make_table: MakeTable,
) -> None:
    lance = pytest.importorskip("lance")
    from tests.upstream import flushed_rows  # noqa: PLC0415 - pylance may be missing

    table = make_table()
    table.upsert(rows(range(10), 1), txn=("flushed", 1))
    table.start_job(shard=0).close(flush=True)
    staged = table.bulk_writer()
    staged.upsert(rows(range(5, 15), 2))
    table.commit(staged.finish(), txn=("linked", 2))
    table.upsert(rows(range(20, 25), 3), txn=("logged", 3))
    shard = table.shards()[0]

    dataset = lance.dataset(table.uri)
    writer = dataset.mem_wal_writer(shard.shard_id, durable_write=True, max_wal_flush_interval_ms=1)
    writer.put(rows(range(30, 32), 4).to_batches()[0])
    writer.close()

    after = lancemem.open_table(table.uri)
    expected = dict.fromkeys(range(5), 1.0) | dict.fromkeys(range(5, 15), 2.0)
    expected |= dict.fromkeys(range(20, 25), 3.0) | dict.fromkeys((30, 31), 4.0)
    assert stored(after) == expected
    assert [after.txn_version(name, shard=0) for name in ("flushed", "linked")] == [1, 2]

    after.start_job(shard=0).close(flush=True)
    found = flushed_rows(after)
    seen = dict(zip(found["id"].to_pylist(), found["value"].to_pylist(), strict=True))
    assert seen == expected


def test_committed_sstables_and_other_folders_are_never_aborted(
    table: lancemem.Table,
) -> None:
    staged = table.bulk_writer()
    staged.upsert(rows(range(40), 1))
    sstables = staged.finish()
    table.commit(sstables)
    with pytest.raises(
        lancemem.InvalidInputError, match="is committed: its bulk write cannot be aborted"
    ):
        table.abort(sstables, write="of another name")
    for name in ("manifest", "wal", "..", "00000000_gen_1"):
        sstable = lancemem.StagedSsTable(sstables[0].shard_id, name, 1, 1, 1)
        with pytest.raises(
            lancemem.InvalidInputError, match="is not the folder of a staged SSTable"
        ):
            table.abort([sstable], write="w")
    assert stored(lancemem.open_table(table.uri)) == dict.fromkeys(range(40), 1.0)


def test_a_bulk_write_that_could_not_write_has_all_rows_and_goes_on(
    table: lancemem.Table, tmp_path: Path
) -> None:
    table.upsert(rows(range(40), 0))
    stage = table.bulk_writer()
    stage.upsert(rows(range(40), 1))
    [folder] = tmp_path.rglob("_mem_wal")
    aside = folder.with_name("aside")
    folder.rename(aside)
    folder.write_bytes(b"no folder")
    for _ in range(2):
        with pytest.raises(lancemem.LancememError):
            stage.finish()
    folder.unlink()
    aside.rename(folder)
    stage.upsert(rows(range(40, 50), 1))
    staged = stage.finish()
    assert sum(sstable.num_rows for sstable in staged) == 50
    table.commit(staged)
    assert stored(table) == dict.fromkeys(range(50), 1.0)


def test_rows_that_a_bulk_write_refuses_leave_the_rows_before_them(table: lancemem.Table) -> None:
    stage = table.bulk_writer()
    stage.upsert(rows(range(40), 1))
    with pytest.raises(lancemem.InvalidInputError, match="'id' is null in row 0"):
        stage.upsert(pa.table({"id": pa.array([None], pa.int64()), "value": [1.0]}))
    table.commit(stage.finish())
    assert stored(table) == dict.fromkeys(range(40), 1.0)
