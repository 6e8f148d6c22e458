"""Jobs as their callers use them: takeover, threads, forks, sudden death.

Owns: which job may write, which rows survive the death of a process, which rows each level of
consistency shows while a job runs, and forks. Not here: random programs (test_model), jobs of
pylance (test_cross_read).
"""

from __future__ import annotations

import secrets
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
import pytest

import lancemem
from tests.programs import IN_A_FORK, run_python

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.conftest import MakeTable

LEVELS: tuple[Literal["flushed", "durable", "live"], ...] = ("flushed", "durable", "live")

# Nothing but a close or a flush makes rows of this job durable.
NOT_DURABLE = lancemem.WriterConfig(
    durable=False, max_wal_flush_interval=timedelta(hours=1), max_wal_buffer_bytes=1 << 30
)


def rows(ids: Sequence[int], name: str = "a") -> pa.Table:
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "name": [name] * len(ids),
            "value": [n / 2 for n in ids],
        }
    )


def ids_of(table: pa.Table) -> list[int]:
    return sorted(table.column("id").to_pylist())


def of(level: str, *jobs: lancemem.Job) -> list[lancemem.Job]:
    """Choose the jobs that a read at this level takes."""
    return list(jobs) if level == "live" else []


def seen(table: lancemem.Table, *jobs: lancemem.Job) -> dict[str, list[int]]:
    """Read the ids that each level shows."""
    return {
        level: ids_of(table.scan(["id"], consistency=level, jobs=of(level, *jobs)).to_table())
        for level in LEVELS
    }


def files_of(table: lancemem.Table) -> dict[str, int]:
    """List every file of a table with its size."""
    found = (path for path in Path(table.uri).rglob("*") if path.is_file())
    return {str(path): path.stat().st_size for path in found}


# --- takeovers ---


def test_the_second_job_of_a_shard_fences_the_first(table: lancemem.Table) -> None:
    first = table.start_job(shard=0)
    first.put(rows([1]))
    second = table.start_job(shard=0)
    second.put(rows([2]))
    with pytest.raises(lancemem.WriterFencedError):
        first.put(rows([3]))
    with pytest.raises(lancemem.WriterFencedError):
        first.delete(rows([1]).select(["id"]))
    with pytest.raises(lancemem.WriterFencedError):
        first.flush()
    second.put(rows([4]))
    second.close()
    assert ids_of(table.scan().to_table()) == [1, 2, 4]


def test_the_first_to_put_after_a_takeover_learns_of_it_without_a_put_of_the_second(
    table: lancemem.Table,
) -> None:
    first = table.start_job(shard=0)
    second = table.start_job(shard=0)
    with pytest.raises(lancemem.WriterFencedError):
        first.put(rows([1]))
    second.close()
    assert ids_of(table.scan().to_table()) == []


def test_a_fenced_job_may_be_started_again_and_takes_the_shard_back(table: lancemem.Table) -> None:
    first, second = table.start_job(shard=0), table.start_job(shard=0)
    third = table.start_job(shard=0)
    epochs = [job.stats().writer_epoch for job in (first, second, third)]
    assert epochs == sorted(set(epochs))
    third.put(rows([1]))
    with pytest.raises(lancemem.WriterFencedError):
        second.put(rows([2]))


def test_jobs_of_different_shards_do_not_fence_each_other(make_table: MakeTable) -> None:
    table = make_table(sharding=lancemem.bucket("id", 2))
    every = rows(range(20))
    ordinals = pa.array(table.shard_ordinals(every)).to_pylist()
    jobs = [table.start_job(shard=shard) for shard in (0, 1)]
    for _ in range(3):
        for shard, job in enumerate(jobs):
            job.put(every.filter(pa.array([ordinal == shard for ordinal in ordinals])))
    assert ids_of(table.scan(consistency="live", jobs=jobs).to_table()) == list(range(20))


def test_a_job_is_named_by_ordinal_or_by_id(table: lancemem.Table) -> None:
    shard = table.shards()[0].shard_id
    with table.start_job(shard=0) as job:
        assert job.shard_id == shard
    with table.start_job(shard=shard) as job:
        assert job.shard_id == shard


def test_a_job_ends_with_its_block_and_takes_no_more_rows(table: lancemem.Table) -> None:
    with table.start_job(shard=0) as job:
        job.put(rows([1]))
    with pytest.raises(lancemem.JobStoppedError):
        job.put(rows([2]))
    with pytest.raises(lancemem.JobStoppedError):
        job.flush()
    job.close()
    assert ids_of(table.scan().to_table()) == [1]


def test_a_closed_job_writes_nothing_any_more(table: lancemem.Table) -> None:
    """A flush still runs or waits when the job is closed, so there is something to wait for."""
    for flush in (False, True):
        job = table.start_job(shard=0, config=lancemem.WriterConfig(max_memtable_rows=10))
        for first in range(0, 40, 10):
            job.put(rows(range(first, first + 10)))
        job.close(flush=flush)
        closed = files_of(table)
        time.sleep(0.2)
        assert files_of(table) == closed
    assert ids_of(table.scan(consistency="flushed").to_table()) == list(range(40))


def test_an_error_inside_the_block_is_not_swallowed_and_ends_the_job(
    table: lancemem.Table,
) -> None:
    job = table.start_job(shard=0)

    def fail_inside() -> None:
        with job:
            job.put(rows([1]))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_inside()
    with pytest.raises(lancemem.JobStoppedError):
        job.put(rows([2]))
    assert ids_of(table.scan().to_table()) == [1]


# --- what each level shows ---


def test_levels_show_what_is_flushed_what_is_durable_and_what_is_live(
    table: lancemem.Table,
) -> None:
    with table.start_job(shard=0) as job:
        job.put(rows([1]))
        job.flush()
        assert job.put(rows([2])).durable
    job = table.start_job(shard=0, config=NOT_DURABLE)
    assert not job.put(rows([3])).durable
    assert seen(table, job) == {"flushed": [1], "durable": [1, 2], "live": [1, 2, 3]}
    # A live read finds the jobs of this process without their names.
    assert seen(table) == {"flushed": [1], "durable": [1, 2], "live": [1, 2, 3]}

    job.delete(rows([1]).select(["id"]))
    assert seen(table, job) == {"flushed": [1], "durable": [1, 2], "live": [2, 3]}
    job.close()
    assert seen(table) == {"flushed": [1], "durable": [2, 3], "live": [2, 3]}
    table.start_job(shard=0).close(flush=True)
    assert seen(table) == {"flushed": [2, 3], "durable": [2, 3], "live": [2, 3]}


def test_a_flush_makes_rows_of_a_job_that_is_not_durable_visible_to_all(
    table: lancemem.Table,
) -> None:
    with table.start_job(shard=0, config=NOT_DURABLE) as job:
        job.put(rows([1, 2]))
        assert seen(table)["durable"] == []
        job.flush()
        assert seen(lancemem.open_table(table.uri))["flushed"] == [1, 2]


def test_a_level_that_shows_no_rows_of_jobs_takes_none(table: lancemem.Table) -> None:
    key = rows([1]).select(["id"])
    with table.start_job(shard=0) as job:
        reads: list[Callable[[], object]] = [
            lambda: table.scan(jobs=[job]),
            lambda: table.snapshot(consistency="flushed", jobs=[job]),
            lambda: table.snapshot(token=table.snapshot().token, consistency="live", jobs=[job]),
            lambda: table.to_dataset(jobs=[job]),
            lambda: table.get(key, jobs=[job]),
            lambda: table.get(key, missing="null", jobs=[job]),
        ]
        for read in reads:
            with pytest.raises(lancemem.InvalidInputError, match="jobs="):
                read()


def test_get_sees_the_same_levels_as_scan(table: lancemem.Table) -> None:
    table.upsert(rows([1], "durable"))
    job = table.start_job(shard=0, config=NOT_DURABLE)
    job.put(rows([1], "live"))
    key = rows([1]).select(["id"])
    names = {
        level: table.get(key, ["name"], consistency=level, jobs=of(level, job))["name"].to_pylist()
        for level in LEVELS
    }
    assert names == {"flushed": [], "durable": ["durable"], "live": ["live"]}
    job.close()


def test_a_stream_shows_the_snapshot_of_its_beginning(table: lancemem.Table) -> None:
    job = table.start_job(shard=0)
    job.put(rows(range(1000), "before"))
    scan = table.scan(consistency="live", jobs=[job])
    stream = pa.RecordBatchReader.from_stream(scan.to_reader())
    job.put(rows(range(2000), "after"))
    job.flush()
    table.compact()
    assert set(stream.read_all().column("name").to_pylist()) == {"before"}
    assert set(scan.to_table().column("name").to_pylist()) == {"after"}
    job.close()


def test_a_live_read_refuses_a_closed_job_and_one_of_another_table(
    table: lancemem.Table, tmp_path: Path
) -> None:
    other = lancemem.create_table(
        str(tmp_path / "other.lance"), table.schema, primary_key=table.primary_key
    )
    with other.start_job(shard=0) as job:
        job.put(rows([7]))
        with pytest.raises(lancemem.InvalidInputError, match=r"writes to table .*other\.lance"):
            seen(table, job)
        assert seen(lancemem.open_table(other.uri), job)["live"] == [7]
    with pytest.raises(lancemem.JobStoppedError, match="is closed"):
        seen(other, job)
    with pytest.raises(lancemem.JobStoppedError, match="is closed"):
        job.serve()


def test_a_live_read_of_a_job_that_was_idle_when_it_was_fenced_says_so(
    table: lancemem.Table,
) -> None:
    idle = table.start_job(shard=0)
    idle.put(rows([1]))
    with table.start_job(shard=0) as successor:
        successor.put(rows([2]))
        with pytest.raises(lancemem.WriterFencedError):
            table.scan(consistency="live", jobs=[idle]).to_table()


# --- threads ---


def test_threads_put_through_one_job_and_every_acknowledged_row_is_there(
    make_table: MakeTable,
) -> None:
    table = make_table(config=lancemem.WriterConfig(max_memtable_rows=100))
    job = table.start_job(shard=0)

    def put_some(thread: int) -> int:
        return sum(
            job.put(rows(range(first, first + 10), f"thread {thread}")).num_rows
            for first in range(thread * 200, (thread + 1) * 200, 10)
        )

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(put_some, range(4))) == 800
    live = table.scan(consistency="live", jobs=[job]).to_table()
    assert ids_of(live) == list(range(800))
    assert ids_of(table.scan().to_table()) == list(range(800))
    assert (job.stats().num_puts, job.stats().num_rows) == (80, 800)
    job.close(flush=True)
    assert seen(table)["flushed"] == list(range(800))


def test_readers_never_see_less_than_was_acknowledged_while_others_write(
    make_table: MakeTable,
) -> None:
    """PEERS B2: pylance hides acknowledged rows while a MemTable is being flushed."""
    table = make_table(config=lancemem.WriterConfig(fsync=False, max_memtable_rows=50))
    job = table.start_job(shard=0)
    acknowledged = [0]

    def write() -> None:
        for first in range(0, 1000, 10):
            job.put(rows(range(first, first + 10)))
            acknowledged[0] = first + 10
            if first % 250 == 0:
                table.compact()

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        while not writing.done():
            floor = acknowledged[0]
            live = ids_of(table.scan(["id"], consistency="live", jobs=[job]).to_table())
            durable = ids_of(table.scan(["id"]).to_table())
            assert live[:floor] == durable[:floor] == list(range(floor))
            assert live == list(range(len(live)))
        writing.result()
    job.close()
    assert table.scan().count_rows() == 1000


# --- death ---


def test_every_acknowledged_row_survives_the_kill_of_its_process(table: lancemem.Table) -> None:
    died = run_python(
        """
        import os, signal, sys, threading
        import lancemem, pyarrow as pa
        schema = lancemem.open_table(sys.argv[1]).schema
        config = lancemem.WriterConfig(max_memtable_rows=64)
        job = lancemem.open_table(sys.argv[1]).start_job(shard=0, config=config)
        acknowledged = threading.Semaphore(0)

        def put(thread):
            for number in range(thread, 4_000_000, 4):
                ids = [2 * number, 2 * number + 1]
                data = {"id": ids, "name": [str(thread)] * 2, "value": [0.5, None]}
                job.put(pa.table(data, schema=schema))
                os.write(1, b"%d\\n%d\\n" % tuple(ids))
                acknowledged.release()

        for thread in range(4):
            threading.Thread(target=put, args=[thread], daemon=True).start()
        for _ in range(150):
            acknowledged.acquire()
        os.kill(os.getpid(), signal.SIGKILL)
        """,
        table.uri,
    )
    assert died.returncode == -9, died.stderr
    acknowledged = {int(line) for line in died.stdout.splitlines()}
    assert len(acknowledged) >= 300

    found = set(ids_of(table.scan().to_table()))
    assert acknowledged <= found
    # A put that was in flight is there whole or not at all.
    assert all((number ^ 1) in found for number in found)
    with table.start_job(shard=0) as job:
        assert set(ids_of(table.scan(consistency="live", jobs=[job]).to_table())) == found
        job.flush()
    table.compact()
    assert set(ids_of(table.scan(consistency="flushed").to_table())) == found


def test_rows_that_were_not_durable_are_gone_after_a_kill_and_the_table_is_whole(
    table: lancemem.Table,
) -> None:
    table.upsert(rows([1]))
    died = run_python(
        """
        import os, signal, sys
        from datetime import timedelta
        import lancemem, pyarrow as pa
        table = lancemem.open_table(sys.argv[1])
        config = lancemem.WriterConfig(
            durable=False, max_wal_flush_interval=timedelta(hours=1), max_wal_buffer_bytes=1 << 30
        )
        job = table.start_job(shard=0, config=config)
        job.put(pa.table({"id": [2], "name": ["a"], "value": [1.0]}))
        assert table.scan(consistency="live", jobs=[job]).count_rows() == 2
        os.kill(os.getpid(), signal.SIGKILL)
        """,
        table.uri,
    )
    assert died.returncode == -9, died.stderr
    assert seen(table) == {"flushed": [], "durable": [1], "live": [1]}
    # The claim of a killed job is not released.
    table.upsert(rows([3]), take_over=True)
    assert seen(table)["durable"] == [1, 3]


def test_a_job_that_is_forgotten_at_exit_does_not_hang_the_process(table: lancemem.Table) -> None:
    ended = run_python(
        """
        import sys
        import lancemem, pyarrow as pa
        job = lancemem.open_table(sys.argv[1]).start_job(shard=0)
        job.put(pa.table({"id": [2], "name": ["a"], "value": [1.0]}))
        """,
        table.uri,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert seen(table)["durable"] == [2]


# --- jobs of one write ---


def test_small_writes_that_add_up_leave_a_short_log(table: lancemem.Table) -> None:
    for number in range(150):
        table.upsert(rows([number]))
        if number % 10 == 0:
            table.delete(rows([number]).select(["id"]))
    with table.start_job(shard=0) as job:
        assert job.stats().num_active_batches < 64
    assert len(table.shards()[0].sstables) == 2
    assert seen(table)["durable"] == [number for number in range(150) if number % 10]


def test_a_large_write_leaves_no_log(table: lancemem.Table) -> None:
    table.upsert(rows([1], "a" * (15 << 20)))
    assert table.shards()[0].sstables == []
    for number in (2, 3):
        table.upsert(rows([number], "a" * (15 << 20)))
    assert len(table.shards()[0].sstables) == 1
    assert seen(table)["flushed"] == [1, 2, 3]


def test_a_write_is_done_although_its_long_log_cannot_be_flushed(table: lancemem.Table) -> None:
    for number in range(63):
        table.upsert(rows([number], secrets.token_hex(2_000)))
    done = run_python(
        """
        import logging, resource, signal, sys
        import lancemem, pyarrow as pa
        logging.basicConfig(format="%(message)s")
        table = lancemem.open_table(sys.argv[1])
        # A WAL entry of one row fits, an SSTable of 64 does not.
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 10, 64 << 10))
        for number in (63, 64):
            table.upsert(pa.table({"id": [number], "name": ["a"], "value": [1.0]}))
        """,
        table.uri,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("a long log could not be flushed") == 2, done.stderr
    assert table.shards()[0].sstables == []
    table.upsert(rows([65]))
    assert len(table.shards()[0].sstables) == 1
    assert seen(table)["flushed"] == list(range(66))


# --- forks ---


def test_a_forked_child_is_told_to_open_the_table_again_and_can(table: lancemem.Table) -> None:
    """PySpark forks its workers. This forks in a process of its own, where a hang is harmless."""
    table.upsert(rows([1]))
    ended = run_python(
        """
        import lancemem, pyarrow as pa

        one = pa.table({"id": [5], "name": ["child"], "value": [1.0]})
        table = lancemem.open_table(sys.argv[1])
        job = table.start_job(shard=0)
        scan = table.scan()
        assert scan.count_rows() == 1

        def child(answers):
            told = []
            calls = {
                "upsert": lambda: table.upsert(one), "get": lambda: table.get(one.select(["id"])),
                "delete": lambda: table.delete(one.select(["id"])), "shards": table.shards,
                "scan": lambda: table.scan().to_table(), "old scan": scan.to_table,
                "stats": table.stats, "compact": table.compact,
                "start_job": lambda: table.start_job(shard=0),
                "put": lambda: job.put(one), "flush": job.flush, "close": job.close,
            }
            for name, call in calls.items():
                try:
                    call()
                    told.append(f"{name}: nothing")
                except lancemem.ForkedHandleError:
                    pass
                except BaseException as error:
                    told.append(f"{name}: {error!r}")
            fresh = lancemem.open_table(sys.argv[1])
            # The parent's job runs.
            fresh.upsert(one, take_over=True)
            told.append(fresh.scan().count_rows())
            answers.send(told)

        print(in_a_fork(child), lancemem.open_table(sys.argv[1]).scan().count_rows())
        """,
        table.uri,
        before=IN_A_FORK,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == ["[2]", "0 2"]


def test_a_forked_child_that_drops_handles_of_its_parent_ends_nothing(
    table: lancemem.Table,
) -> None:
    """Locks that the parent's threads hold at the fork are never released in the child."""
    ended = run_python(
        """
        import gc, threading
        import lancemem, pyarrow as pa

        one = pa.table({"id": [5], "name": ["parent"], "value": [1.0]})
        table = lancemem.open_table(sys.argv[1])
        job = table.start_job(shard=0)
        job.put(one)
        endpoint = job.serve()
        held = [
            job, endpoint, table, table.bulk_writer(), table.snapshot(), table.scan(),
            iter(table.scan()), table.scan().to_reader(),
            pa.RecordBatchReader.from_stream(table.scan().to_reader()),
            lancemem.connect_job(endpoint.location, endpoint.token),
        ]
        del table, job, endpoint
        ended = threading.Event()

        def write():
            while not ended.is_set():
                held[0].put(one)

        writing = threading.Thread(target=write)
        writing.start()

        def child(answers):
            held.clear()
            gc.collect()
            answers.send("dropped")

        for _ in range(10):
            assert in_a_fork(child) == 0
        ended.set()
        writing.join()
        read = held[2].scan(consistency="live", jobs=[held[-1]])
        print(read.to_table()["name"].to_pylist())
        """,
        table.uri,
        before=IN_A_FORK,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == ["dropped"] * 10 + ["['parent']"]


def test_importing_lancemem_starts_no_thread_and_loads_no_heavy_package() -> None:
    if not Path("/proc/self/task").exists():
        pytest.skip("threads are counted in /proc")
    ended = run_python(
        """
        import os, sys
        import lancemem
        heavy = {"pyarrow", "pandas", "polars", "pyspark", "numpy"} & set(sys.modules)
        print(len(os.listdir("/proc/self/task")), sorted(heavy))
        """
    )
    assert (ended.stdout, ended.stderr) == ("1 []\n", "")


def test_threads_that_write_through_one_handle_take_turns(make_table: MakeTable) -> None:
    table = make_table(sharding=lancemem.bucket("id", 2))

    def write(number: int) -> None:
        for step in range(10):
            row = {"id": [number, 7], "name": [f"{number} {step}"] * 2, "value": [0.0] * 2}
            table.upsert(pa.table(row))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(write, range(4)))
    found = table.scan().to_table().to_pylist()
    assert {row["id"]: row["name"] for row in found if row["id"] != 7} == {
        number: f"{number} 9" for number in range(4)
    }
    assert len(found) == 5


def test_a_job_by_its_ordinal_reads_no_manifest_of_another_shard(make_table: MakeTable) -> None:
    """With 1,024 shards it would be 1,024 reads; here one manifest cannot be read at all."""
    table = make_table(sharding=lancemem.bucket("id", 8))
    of_one, of_other = (shard.shard_id for shard in table.shards()[:2])
    for manifest in Path(table.uri, "_mem_wal", of_other, "manifest").iterdir():
        manifest.write_bytes(b"damaged")
    with table.start_job(shard=0) as job:
        assert job.shard_id == of_one
    assert table.admin.verify_wal(0).shard_id == of_one
    for call in (lambda: table.start_job(shard=1), table.shards):
        with pytest.raises(lancemem.CorruptionError):
            call()
    for ordinal in (8, -1):
        with pytest.raises(lancemem.CorruptionError):
            table.start_job(shard=ordinal)
