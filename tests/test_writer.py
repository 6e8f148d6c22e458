"""One writer for the table: rows of every shard, beside jobs, calls and reads of the same process.

Owns: `Table.writer`, the jobs of a process that its calls and live reads find by themselves, and
`start_job` without a shard. Not here: jobs alone (test_jobs), or calls of several processes at once
(test_upserts_at_once).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest

import lancemem
from tests.programs import IN_A_FORK, run_python

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.conftest import MakeTable

SHARDS = 4
# Nothing but a close, a flush or a durable put makes rows durable.
NOT_DURABLE = lancemem.WriterConfig(
    durable=False, max_wal_flush_interval=timedelta(hours=1), max_wal_buffer_bytes=1 << 30
)
# A process that takes a shard and leaves it.
TAKE = """
import sys
import lancemem

lancemem.open_table(sys.argv[1]).start_job(shard=int(sys.argv[2])).close()
"""


def rows(ids: Iterable[int], name: str = "a") -> pa.Table:
    numbers = list(ids)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "name": [name] * len(numbers),
            "value": [n / 2 for n in numbers],
        }
    )


def ids_of(found: pa.Table) -> list[int]:
    return sorted(found["id"].to_pylist())


def durable(table: lancemem.Table) -> list[int]:
    """Read what another process would see."""
    return ids_of(lancemem.open_table(table.uri).scan(["id"]).to_table())


def live(table: lancemem.Table) -> list[int]:
    return ids_of(table.scan(["id"], consistency="live").to_table())


def epochs(table: lancemem.Table) -> list[int]:
    return [shard.writer_epoch for shard in table.shards()]


def by_shard(table: lancemem.Table, ids: Iterable[int]) -> list[list[int]]:
    """Divide ids by the ordinal of their shard."""
    numbers = list(ids)
    ordinals = pa.array(table.shard_ordinals(rows(numbers))).to_pylist()
    pairs = list(zip(numbers, ordinals, strict=True))
    return [[n for n, ordinal in pairs if ordinal == shard] for shard in range(SHARDS)]


def taken(table: lancemem.Table, shard: int) -> str:
    """Let another process take a shard; return the shard's id."""
    done = run_python(TAKE, table.uri, str(shard))
    assert done.returncode == 0, done.stderr
    return table.shards()[shard].shard_id


@pytest.fixture
def sharded(make_table: MakeTable) -> lancemem.Table:
    """Give an empty table of four shards."""
    return make_table(sharding=lancemem.bucket("id", SHARDS))


# --- rows of all shards ---


def test_one_writer_takes_the_rows_of_all_shards(sharded: lancemem.Table) -> None:
    before = epochs(sharded)
    with sharded.writer() as writer:
        assert epochs(sharded) == before, "a shard is claimed by its first rows"
        done = writer.put(rows(range(100)))
        assert (done.num_rows, done.durable, done.already_written) == (100, True, False)
        assert writer.delete(range(50, 100)).num_rows == 50
        changes = rows([1, 2, 200], "new")
        assert writer.apply(changes, pa.array([True, False, False])).num_rows == 3
        wanted = [0, *range(2, 50), 200]
        assert ids_of(writer.scan(["id"]).to_table()) == durable(sharded) == wanted
        found = writer.get([2, 200, 1], ["name"], missing="null")
        assert found["name"].to_pylist() == ["new", "new", None]
        assert epochs(sharded) == [epoch + 1 for epoch in before]
        stats = writer.stats()
        assert (stats.num_rows, len(stats.jobs)) == (153, SHARDS)
        assert stats.num_puts == sum(job.num_puts for job in stats.jobs)
        assert repr(writer) == f"TableWriter({sharded.uri!r}, num_shards=4)".replace("'", '"')
        writer.flush()
        assert sharded.stats().num_sstables == SHARDS
    sharded.compact()
    assert durable(sharded) == wanted


def test_a_shard_is_claimed_by_its_first_rows(sharded: lancemem.Table) -> None:
    before = epochs(sharded)
    groups = by_shard(sharded, range(40))
    with sharded.writer() as writer:
        writer.put(rows(groups[2]))
        assert writer.put(rows([])).num_rows == 0
        [job] = writer.stats().jobs
        assert job.shard_id == sharded.shards()[2].shard_id
    assert [after - first for after, first in zip(epochs(sharded), before, strict=True)] == [
        0,
        0,
        1,
        0,
    ]


def test_eight_threads_write_through_one_writer(sharded: lancemem.Table) -> None:
    before = epochs(sharded)

    def put_some(thread: int) -> int:
        starts = range(thread * 100, thread * 100 + 100, 10)
        return sum(writer.put(rows(range(start, start + 10))).num_rows for start in starts)

    with sharded.writer() as writer:
        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(put_some, range(8))) == 800
        assert writer.stats().num_rows == 800
        assert epochs(sharded) == [epoch + 1 for epoch in before], "threads started a job twice"
    assert durable(sharded) == list(range(800))


def test_an_input_error_leaves_nothing_written_in_any_shard(sharded: lancemem.Table) -> None:
    bad = pa.table({"id": range(40), "name": ["a"] * 40, "value": ["x"] * 40})
    missing = pa.table({"id": [*range(40), None], "name": ["a"] * 41, "value": [0.5] * 41})
    with sharded.writer() as writer:
        writer.put(rows([1]))
        for refused in (bad, missing):
            with pytest.raises(lancemem.InvalidInputError):
                writer.put(refused)
        assert durable(sharded) == [1]
        writer.put(rows([2]))
    assert durable(sharded) == [1, 2]


def test_a_transaction_id_is_taken_once_by_each_shard(sharded: lancemem.Table) -> None:
    groups = by_shard(sharded, range(40))
    with sharded.writer() as writer:
        assert writer.put(rows(groups[0]), txn=("loader", 1)).num_rows == len(groups[0])
        rest = writer.put(rows(range(40)), txn=("loader", 1))
        assert (rest.num_rows, rest.already_written) == (40 - len(groups[0]), False)
        again = writer.put(rows(range(40), "again"), txn=("loader", 1))
        assert (again.num_rows, again.already_written) == (0, True)
        assert sharded.upsert(rows(range(40)), txn=("loader", 1)).num_shards_already_written == 4
        with pytest.raises(lancemem.StaleTxnError):
            writer.put(rows(range(40)), txn=("loader", 0))
    assert durable(sharded) == list(range(40))


def test_a_writer_follows_columns_that_are_added(sharded: lancemem.Table) -> None:
    with sharded.writer() as writer:
        writer.put(rows(range(20)))
        lance.dataset(sharded.uri).add_columns(pa.field("score", pa.int64()))
        added = rows(range(10, 30)).append_column("score", pa.array(range(20), pa.int64()))
        assert writer.put(added).num_rows == 20
        found = writer.scan().to_table().sort_by("id")
        assert found["score"].to_pylist() == [None] * 10 + list(range(20))


# --- calls of the same process ---


def test_upsert_delete_and_apply_go_through_a_writer_and_do_not_fence_it(
    sharded: lancemem.Table,
) -> None:
    with sharded.writer(NOT_DURABLE) as writer:
        assert not writer.put(rows(range(40))).durable
        claimed = epochs(sharded)
        other = lancemem.open_table(sharded.uri)
        done = other.upsert(rows(range(40, 80)))
        assert (done.num_rows, done.num_shards, done.num_wal_entries) == (40, 4, 4)
        assert durable(sharded) == list(range(80)), "the call is durable, and all before it"
        assert other.delete(range(20)).num_rows == 20
        assert other.apply(rows([0, 20]), pa.array([False, True])).num_rows == 2
        assert durable(sharded) == [0, *range(21, 80)]
        assert epochs(sharded) == claimed
        assert writer.stats().num_rows == 40 + 40 + 20 + 2
        writer.put(rows([100]))
    assert durable(sharded) == [0, *range(21, 80), 100]


def test_an_upsert_goes_through_a_job_of_its_process(table: lancemem.Table) -> None:
    with table.start_job(config=NOT_DURABLE) as job:
        job.put(rows([1]))
        claimed = epochs(table)
        table.upsert(rows([2]))
        assert (durable(table), epochs(table)) == ([1, 2], claimed)
        job.put(rows([3]), durable=True)
    table.upsert(rows([4]))
    assert epochs(table) == [claimed[0] + 1], "a job that was closed takes no rows"
    assert durable(table) == [1, 2, 3, 4]


def test_an_upsert_claims_a_shard_that_another_process_took_from_a_job(
    table: lancemem.Table,
) -> None:
    job = table.start_job()
    job.put(rows([1]))
    taken(table, 0)
    assert table.upsert(rows([2])).num_rows == 1
    with pytest.raises(lancemem.WriterFencedError):
        job.put(rows([3]))
    table.upsert(rows([4]))
    assert durable(table) == [1, 2, 4]


def test_upserts_that_run_when_a_writer_starts_fence_nothing(sharded: lancemem.Table) -> None:
    def upsert(thread: int) -> None:
        own = lancemem.open_table(sharded.uri)
        for number in range(10):
            own.upsert(rows(range(1000 * thread + number * 8, 1000 * thread + number * 8 + 8)))

    def write(number: int) -> None:
        with sharded.writer() as writer:
            for start in range(0, 40, 8):
                first = 100_000 + number * 1000 + start
                writer.put(rows(range(first, first + 8)))

    with ThreadPoolExecutor(5) as pool:
        running = [pool.submit(upsert, thread) for thread in range(3)]
        running += [pool.submit(write, number) for number in range(2)]
        for each in running:
            each.result()
    assert len(durable(sharded)) == 3 * 80 + 2 * 40


# --- live reads ---


def test_a_live_read_finds_the_jobs_of_its_process(sharded: lancemem.Table) -> None:
    with sharded.writer(NOT_DURABLE) as writer:
        writer.put(rows(range(40)))
        assert (durable(sharded), live(sharded)) == ([], list(range(40)))
        other = lancemem.open_table(sharded.uri)
        assert live(other) == list(range(40))
        assert other.get([3], consistency="live").num_rows == 1
        assert other.snapshot(consistency="live").count_rows() == 40
        assert other.to_dataset(consistency="live").count_rows() == 40
        assert other.scan(consistency="flushed").count_rows() == 0
    assert durable(sharded) == live(sharded) == list(range(40))


def test_a_live_read_leaves_out_a_job_that_lost_its_shard(table: lancemem.Table) -> None:
    job = table.start_job(config=NOT_DURABLE)
    job.put(rows([1]), durable=True)
    job.put(rows([2]))
    assert live(table) == [1, 2]
    taken(table, 0)
    assert live(table) == [1], "what was not durable is lost"
    with pytest.raises(lancemem.WriterFencedError):
        table.scan(consistency="live", jobs=[job]).to_table()


# --- the end of a writer ---


def test_a_closed_writer_refuses(sharded: lancemem.Table) -> None:
    writer = sharded.writer(NOT_DURABLE)
    writer.put(rows(range(40)))
    writer.close(flush=True)
    writer.close(flush=True)
    calls: list[Callable[[], object]] = [
        lambda: writer.put(rows([1])),
        lambda: writer.put(rows([])),
        lambda: writer.delete([1]),
        lambda: writer.get([1]),
        writer.scan,
        writer.flush,
    ]
    for call in calls:
        with pytest.raises(lancemem.JobStoppedError, match="is closed; open a new one"):
            call()
    assert sharded.scan(consistency="flushed").count_rows() == 40


def test_a_block_that_raises_closes_the_writer(sharded: lancemem.Table) -> None:
    def fail(writer: lancemem.TableWriter) -> None:
        with writer:
            writer.put(rows(range(40)), durable=False)
            raise KeyError("mine")

    writer = sharded.writer()
    with pytest.raises(KeyError, match="mine"):
        fail(writer)
    with pytest.raises(lancemem.JobStoppedError):
        writer.put(rows([1]))
    assert durable(sharded) == list(range(40))


def test_a_writer_that_another_process_fenced_says_so_and_stays_stopped(
    table: lancemem.Table,
) -> None:
    writer = table.writer()
    writer.put(rows([1]))
    shard_id = taken(table, 0)
    claimed = epochs(table)
    for _ in range(3):
        with pytest.raises(lancemem.WriterFencedError, match="open a new writer") as raised:
            writer.put(rows([2]))
        assert shard_id in str(raised.value)
    calls: list[Callable[[], object]] = [lambda: writer.get([1]), writer.flush, writer.close]
    for call in calls:
        with pytest.raises(lancemem.WriterFencedError, match=shard_id):
            call()
    assert epochs(table) == claimed, "it claims nothing by itself"
    with table.writer() as again:
        again.put(rows([3]))
    assert durable(table) == [1, 3]


def test_a_put_over_several_shards_of_which_one_was_lost_names_both_sides(
    sharded: lancemem.Table,
) -> None:
    groups = by_shard(sharded, range(40, 80))
    writer = sharded.writer()
    writer.put(rows(range(40)))
    lost = taken(sharded, 2)
    with pytest.raises(lancemem.WriterFencedError) as raised:
        writer.put(rows(range(40, 80)))
    text = str(raised.value)
    assert f"those of shard {lost} are not acknowledged" in text
    written = text.partition("the rows of shards ")[2].partition(" are written")[0]
    kept = [shard.shard_id for shard in sharded.shards() if shard.shard_id != lost]
    assert sorted(written.split(", ")) == sorted(kept)
    there = [*range(40), *groups[0], *groups[1], *groups[3]]
    assert durable(sharded) == sorted(there)
    assert writer.put(rows(groups[0])).num_rows == len(groups[0]), "other shards go on"
    with pytest.raises(lancemem.WriterFencedError, match=lost):
        writer.close(flush=True)
    assert sharded.stats().num_sstables == SHARDS - 1, "the other jobs are closed"


# --- several writers and jobs of one process ---


def test_two_writers_of_one_process_share_the_jobs(sharded: lancemem.Table) -> None:
    first, second = sharded.writer(), lancemem.open_table(sharded.uri).writer()
    first.put(rows(range(40)))
    claimed = epochs(sharded)
    second.put(rows(range(40, 80)))
    assert epochs(sharded) == claimed
    assert first.stats().num_rows == second.stats().num_rows == 80
    assert ids_of(second.scan(["id"]).to_table()) == list(range(80))
    second.close()
    first.put(rows([100]))
    second = sharded.writer()
    second.put(rows([101]))
    first.close()
    second.put(rows(range(200, 240)))
    assert epochs(sharded) == [epoch + 1 for epoch in claimed], "it claims what the first gave back"
    second.close()
    assert durable(sharded) == [*range(80), 100, 101, *range(200, 240)]


def test_a_writer_that_shares_a_job_makes_its_rows_durable_and_leaves_it_running(
    table: lancemem.Table,
) -> None:
    with table.start_job(config=NOT_DURABLE) as job:
        with table.writer() as writer:
            assert not writer.put(rows([1])).durable, "the settings of the job apply"
            assert durable(table) == []
        assert durable(table) == [1]
        writer = table.writer()
        writer.put(rows([2]))
        writer.close(flush=True)
        assert table.scan(consistency="flushed").count_rows() == 2
        job.put(rows([3]))
    assert durable(table) == [1, 2, 3]


def test_a_writer_with_other_settings_than_a_running_job_is_refused(
    sharded: lancemem.Table,
) -> None:
    groups = by_shard(sharded, range(40))
    writer = sharded.writer(lancemem.WriterConfig(max_memtable_rows=500))
    with sharded.start_job(shard=1) as job:
        with pytest.raises(lancemem.InvalidInputError, match="a job with other settings runs"):
            sharded.writer(NOT_DURABLE)
        with pytest.raises(lancemem.InvalidInputError, match=job.shard_id):
            writer.put(rows(groups[1]))
        sharded.writer(lancemem.WriterConfig()).close()
        writer.put(rows(groups[0]))
        with sharded.writer() as shares:
            shares.put(rows(groups[1]))
    writer.put(rows(groups[1]))
    writer.close()
    with pytest.raises(lancemem.InvalidInputError, match="max_memtable_rows"):
        sharded.writer(lancemem.WriterConfig(max_memtable_rows=0))
    assert durable(sharded) == sorted(groups[0] + groups[1])


def test_a_job_takes_a_shard_from_a_writer_only_where_it_is_asked_to(
    table: lancemem.Table,
) -> None:
    writer = table.writer()
    writer.put(rows([1]))
    with table.start_job() as job:
        with pytest.raises(lancemem.WriterFencedError, match="open a new writer"):
            writer.put(rows([2]))
        table.upsert(rows([3]))
        job.put(rows([4]))
    with pytest.raises(lancemem.WriterFencedError):
        writer.put(rows([5]))
    assert durable(table) == [1, 3, 4]


def test_a_job_needs_no_shard_where_there_is_one(
    table: lancemem.Table, sharded: lancemem.Table
) -> None:
    with table.start_job() as job:
        assert job.shard_id == table.shards()[0].shard_id
    with pytest.raises(lancemem.InvalidInputError, match=r"4 shards, numbered from 0 to 3") as told:
        sharded.start_job()
    assert "table.writer()" in str(told.value)


def test_a_forked_child_has_no_writer_of_its_parent(table: lancemem.Table) -> None:
    ended = run_python(
        """
        import lancemem, pyarrow as pa

        def rows(number):
            return pa.table({"id": [number], "name": ["a"], "value": [1.0]})

        table = lancemem.open_table(sys.argv[1])
        writer = table.writer()
        writer.put(rows(1), durable=True)

        def child(answers):
            told = []
            for call in (
                lambda: writer.put(rows(9)), lambda: writer.delete([1]), writer.flush,
                writer.scan, lambda: writer.get([1]), writer.stats, writer.close,
            ):
                try:
                    call()
                    told.append("nothing")
                except lancemem.ForkedHandleError:
                    pass
            fresh = lancemem.open_table(sys.argv[1])
            # The parent's writer runs.
            fresh.upsert(rows(2), take_over=True)
            with fresh.writer() as own:
                own.put(rows(3))
                told.append(fresh.scan(consistency="live").count_rows())
            answers.send(told)

        assert in_a_fork(child) == 0
        try:
            writer.put(rows(4))
        except lancemem.WriterFencedError:
            print("fenced")
        """,
        table.uri,
        before=IN_A_FORK,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == ["[3]", "fenced"]
    assert durable(table) == [1, 2, 3]
