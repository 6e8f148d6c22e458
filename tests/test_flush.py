"""Rows of logs reach the base table, and so every reader of Lance.

Owns: which logs a flush takes, which it leaves to a running job, and what flushes, compactions and
counters report about logs. Not here: the flush of a running job (test_jobs), what a compaction does
with an SSTable (test_compaction).
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import textwrap
import threading
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lancemem
from lancemem.__main__ import main
from tests.upstream import AT_ONCE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import MakeTable

# Far more than any wait here takes, and less than pytest's own limit.
PATIENCE_SECONDS = 50
NOW = timedelta(0)
MAY_RUN = "is not released: a job may run there"

# A process that holds a job with a row in its log, puts another when it is told to, and says how
# that went.
JOB = """
    import os
    import sys
    import pyarrow as pa
    import lancemem

    table = lancemem.open_table(sys.argv[1])
    job = table.start_job(shard=0)
    row = {"id": [1], "name": ["before"], "value": [0.5]}
    job.put(pa.table(row, schema=table.schema))
    print("running", flush=True)
    for end in sys.stdin:
        if end == "kill\\n":
            os._exit(0)
        job.put(pa.table(row | {"name": ["after"]}, schema=table.schema))
        print("put", flush=True)
        job.close()
        break
"""


def rows(table: lancemem.Table, ids: range, name: str = "a") -> pa.Table:
    values = [list(ids), [name] * len(ids), [float(i) for i in ids]]
    return pa.table(values, schema=table.schema)


def ordinals(table: lancemem.Table, ids: range) -> list[int]:
    return [each.as_py() for each in pa.array(table.shard_ordinals(rows(table, ids)))]


def lance_rows(table: lancemem.Table) -> int:
    return lance.dataset(table.uri).count_rows()


def manifests(table: lancemem.Table) -> list[Path]:
    return sorted(Path(table.uri, "_mem_wal").glob("*/manifest/*.binpb"))


@contextmanager
def job_elsewhere(table: lancemem.Table) -> Iterator[subprocess.Popen[str]]:
    """Run a job in another process, which has a row in its log when this returns."""
    command = [sys.executable, "-c", textwrap.dedent(JOB), table.uri]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    running: subprocess.Popen[str] = subprocess.Popen(command, text=True, **pipes)  # type: ignore[call-overload] # noqa: S603
    try:
        assert running.stdout is not None
        assert running.stdout.readline() == "running\n", running.communicate()
        yield running
    finally:
        running.kill()
        running.communicate()


def maintain_once(
    table: lancemem.Table, capsys: pytest.CaptureFixture[str], *options: str, code: int = 0
) -> str:
    assert main(["maintain", table.uri, "--once", *options]) == code
    return capsys.readouterr().out


# --- rows reach Lance ---


@pytest.mark.parametrize("shards", [1, 4])
def test_rows_of_an_upsert_reach_lance_by_one_call(make_table: MakeTable, shards: int) -> None:
    table = make_table(sharding=lancemem.bucket("id", shards))
    table.upsert(rows(table, range(1000)))
    assert lance_rows(table) == 0
    result = table.compact(flush=True)
    assert (result.num_rows_written, result.num_rows_in_logs) == (1000, 0)
    assert lance_rows(table) == 1000


def test_rows_of_an_upsert_reach_lance_by_maintenance_alone_within_its_interval(
    make_table: MakeTable,
) -> None:
    table = make_table(sharding=lancemem.bucket("id", 2))
    table.upsert(rows(table, range(1000)))
    options = ["--interval", "0.2", "--flush-idle", "0.5"]
    command = [sys.executable, "-m", "lancemem", "maintain", table.uri, *options]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603 - ours
    try:
        waits = threading.Event()
        for _ in range(PATIENCE_SECONDS * 10):
            if lance_rows(table) == 1000:
                break
            waits.wait(0.1)
        assert lance_rows(table) == 1000
    finally:
        running.kill()
        out, _ = running.communicate()
    assert sum(map(int, re.findall(r"flushed \d logs: (\d+) rows, ", out))) == 1000


def test_rows_of_a_job_that_was_closed_reach_lance_by_maintenance(
    table: lancemem.Table, capsys: pytest.CaptureFixture[str]
) -> None:
    with table.start_job(shard=0) as job:
        job.put(rows(table, range(10)))
    [log] = table.stats().logs
    assert (log.num_rows, log.is_released) == (10, True)
    out = maintain_once(table, capsys, "--flush-idle", "0")
    assert out.startswith("flushed 1 logs: 10 rows, ")
    assert lance_rows(table) == 10


def test_deletes_and_replaced_rows_are_flushed_too(table: lancemem.Table) -> None:
    table.upsert(rows(table, range(10)))
    table.compact(flush=True)
    table.upsert(rows(table, range(5), "b"))
    table.delete(list(range(8, 10)))
    flushed = table.flush()
    assert flushed.num_rows == 7
    assert table.compact().num_rows_in_logs == 0
    names = lance.dataset(table.uri).to_table(columns=["id", "name"]).to_pylist()
    found = {row["id"]: row["name"] for row in names}
    assert found == {n: "b" if n < 5 else "a" for n in range(8)}


# --- which logs are flushed ---


def test_a_flush_of_an_empty_table_writes_nothing(table: lancemem.Table) -> None:
    before = manifests(table)
    for idle_for in (None, NOW):
        result = table.flush(idle_for=idle_for)
        assert (result.num_rows, result.flushed, result.skipped) == (0, [], [])
    assert manifests(table) == before


def test_a_second_flush_finds_nothing_and_claims_no_shard(table: lancemem.Table) -> None:
    table.upsert(rows(table, range(10)))
    [log] = table.flush().flushed
    assert (log.ordinal, log.generation, log.num_rows) == (0, 1, 10)
    assert log.bytes > 0
    before = manifests(table)
    assert table.flush().flushed == []
    assert table.flush(idle_for=NOW).flushed == []
    assert manifests(table) == before
    assert table.scan(consistency="flushed").count_rows() == 10


def test_only_shards_with_rows_in_their_logs_are_claimed(make_table: MakeTable) -> None:
    table = make_table(sharding=lancemem.bucket("id", 4))
    table.upsert(rows(table, range(1)))
    [ordinal] = ordinals(table, range(1))
    epochs = {shard.ordinal: shard.writer_epoch for shard in table.shards()}
    [log] = table.flush().flushed
    assert log.ordinal == ordinal
    after = {shard.ordinal: shard.writer_epoch for shard in table.shards()}
    assert after == epochs | {ordinal: epochs[ordinal] + 1}


def test_a_flush_goes_through_a_running_job_of_the_process_as_an_upsert_does(
    table: lancemem.Table,
) -> None:
    with table.start_job(shard=0) as job:
        job.put(rows(table, range(10)))
        assert table.flush().num_rows == 10
        assert table.scan(consistency="flushed").count_rows() == 10
        job.put(rows(table, range(1), "late"))
        assert table.get([0])["name"].to_pylist() == ["late"]


def test_an_idle_flush_leaves_a_running_job_alone(table: lancemem.Table) -> None:
    with table.start_job(shard=0) as job:
        job.put(rows(table, range(10)))
        result = table.flush(idle_for=NOW)
        assert result.flushed == []
        [log] = result.skipped
        assert (log.ordinal, log.num_entries) == (0, 2)
        assert MAY_RUN in log.reason
        job.put(rows(table, range(10), "b"))
        assert not table.stats().logs[0].is_released
    assert set(table.scan().to_table()["name"].to_pylist()) == {"b"}


def test_an_idle_flush_leaves_a_log_with_a_young_entry_alone(table: lancemem.Table) -> None:
    table.upsert(rows(table, range(10)))
    result = table.flush(idle_for=timedelta(hours=1))
    assert result.flushed == []
    [log] = result.skipped
    assert log.reason.endswith("less than 3600.0 s")
    assert table.flush(idle_for=NOW).num_rows == 10


def test_a_job_that_follows_an_upsert_is_not_taken_for_released(table: lancemem.Table) -> None:
    table.upsert(rows(table, range(10)))
    assert table.stats().logs[0].is_released
    with table.start_job(shard=0) as job:
        [log] = table.stats().logs
        assert (log.num_rows, log.is_released) == (10, False)
        assert table.flush(idle_for=NOW).flushed == []
        job.put(rows(table, range(5), "b"))
    assert table.stats().logs[0].is_released


def test_a_job_that_is_closed_twice_is_released_once(table: lancemem.Table) -> None:
    job = table.start_job(shard=0)
    job.put(rows(table, range(10)))
    before = len(manifests(table))
    job.close()
    job.close()
    assert len(manifests(table)) == before + 1


def test_the_end_of_a_fenced_job_releases_no_claim_of_its_successor(
    table: lancemem.Table,
) -> None:
    job = table.start_job(shard=0)
    job.put(rows(table, range(10)))
    successor = table.start_job(shard=0)
    before = manifests(table)
    job.close()
    assert manifests(table) == before
    assert not table.stats().logs[0].is_released
    successor.put(rows(table, range(1), "b"))
    successor.close()


def test_a_job_without_rows_in_its_log_releases_its_claim_at_its_end(table: lancemem.Table) -> None:
    job = table.start_job(shard=0)
    job.put(rows(table, range(10)))
    job.flush()
    before = len(manifests(table))
    job.close()
    # Without the record an upsert of another process would take the job for a running one.
    assert len(manifests(table)) == before + 1
    assert table.stats().logs[0].is_released


def test_the_end_of_a_job_whose_table_is_gone_writes_nothing(
    table_uri: str, schema: pa.Schema
) -> None:
    table = lancemem.create_table(table_uri, schema, primary_key="id")
    job = table.start_job(shard=0)
    job.put(rows(table, range(1)))
    shutil.rmtree(table_uri)
    job.close()
    assert not Path(table_uri).exists()
    with pytest.raises(lancemem.InvalidInputError, match="looking for the newest version"):
        table.flush()
    assert not Path(table_uri).exists()


def test_the_end_of_a_job_writes_nothing_into_the_next_table_at_its_place(
    table_uri: str, schema: pa.Schema
) -> None:
    table = lancemem.create_table(table_uri, schema, primary_key="id")
    job = table.start_job(shard=0)
    job.put(rows(table, range(1)))
    shutil.rmtree(table_uri)
    again = lancemem.create_table(table_uri, schema, primary_key="id")
    before = manifests(again)
    job.close()
    assert manifests(again) == before
    assert len(again.shards()) == 1


# --- jobs of other processes ---


def test_maintenance_leaves_a_job_of_another_process_alone(
    table: lancemem.Table, capsys: pytest.CaptureFixture[str]
) -> None:
    with job_elsewhere(table) as running:
        out = maintain_once(table, capsys, "--flush-idle", "0")
        assert out.startswith("left the log of shard 0 alone (2 entries, ")
        assert MAY_RUN in out.splitlines()[0]
        assert lance_rows(table) == 0
        said, errors = running.communicate("put\n", timeout=PATIENCE_SECONDS)
        assert (running.returncode, said, errors) == (0, "put\n", "")
    out = maintain_once(table, capsys, "--flush-idle", "0")
    assert out.startswith("flushed 1 logs: 2 rows, ")
    assert lance.dataset(table.uri).to_table()["name"].to_pylist() == ["after"]


def test_the_log_of_a_killed_process_waits_for_a_flush_that_may_stop_a_job(
    table: lancemem.Table,
) -> None:
    with job_elsewhere(table) as running:
        running.communicate("kill\n", timeout=PATIENCE_SECONDS)
    assert table.flush(idle_for=NOW).flushed == []
    with pytest.raises(lancemem.ShardHeldError, match="was killed"):
        table.flush()
    assert table.flush(take_over=True).num_rows == 1
    assert table.compact().num_rows_written == 1


def test_an_upsert_after_a_killed_process_releases_the_log(table: lancemem.Table) -> None:
    with job_elsewhere(table) as running:
        running.communicate("kill\n", timeout=PATIENCE_SECONDS)
    with pytest.raises(lancemem.ShardHeldError, match="was killed"):
        table.upsert(rows(table, range(2, 4)))
    table.upsert(rows(table, range(2, 4)), take_over=True)
    assert table.flush(idle_for=NOW).num_rows == 3


def test_a_writer_of_lance_keeps_the_release_of_the_claim_before_and_is_left_alone(
    table: lancemem.Table,
) -> None:
    table.upsert(rows(table, range(10)))
    [shard] = table.shards()
    base: Any = lance.dataset(table.uri)
    writer = base.mem_wal_writer(shard.shard_id, **AT_ONCE)
    writer.put(rows(table, range(10, 12), "lance"))
    assert not table.stats().logs[0].is_released
    assert table.flush(idle_for=NOW).flushed == []
    writer.put(rows(table, range(12, 14), "lance"))
    writer.close()
    assert table.scan().count_rows() == 14


# --- reports ---


def test_a_compaction_says_how_many_rows_it_leaves_in_logs(table: lancemem.Table) -> None:
    with table.start_job(shard=0) as job:
        job.put(rows(table, range(10)))
        job.flush()
        job.put(rows(table, range(5, 12), "b"))
        result = table.compact()
        assert (result.num_rows_written, result.num_rows_in_logs) == (10, 7)
        assert table.compact(dry_run=True).num_rows_in_logs == 7
        assert table.compact(count_logs=False).num_rows_in_logs is None
    with pytest.raises(lancemem.InvalidInputError, match="pass one of the two"):
        table.compact(dry_run=True, flush=True)


def test_counters_of_a_table_tell_the_rows_and_bytes_of_each_log(make_table: MakeTable) -> None:
    table = make_table(sharding=lancemem.bucket("id", 2))
    assert table.stats().num_log_rows == 0
    table.upsert(rows(table, range(100)))
    stats = table.stats()
    found = ordinals(table, range(100))
    assert [log.num_rows for log in stats.logs] == [found.count(0), found.count(1)]
    assert stats.num_log_rows == 100
    assert stats.log_bytes == sum(log.bytes for log in stats.logs) > 100 * 8
    table.compact(flush=True)
    after = table.stats()
    assert (after.num_log_rows, after.num_base_rows) == (0, 100)


def test_a_log_that_is_damaged_is_named_and_stops_no_maintenance(
    make_table: MakeTable, capsys: pytest.CaptureFixture[str]
) -> None:
    table = make_table(sharding=lancemem.bucket("id", 2))
    table.upsert(rows(table, range(100)))
    [shard, _] = table.shards()
    [*_, entry] = sorted(
        Path(table.uri, "_mem_wal", shard.shard_id, "wal").iterdir(),
        key=lambda path: path.stat().st_size,
    )
    entry.write_bytes(entry.read_bytes()[:-20])
    with pytest.raises(lancemem.CorruptionError):
        table.flush()
    assert table.compact().num_rows_in_logs is None
    # All else is done; the exit code tells a scheduler that a person is needed.
    out = maintain_once(table, capsys, "--flush-idle", "0", code=2)
    assert "left the log of shard 0 alone" in out
    assert "damaged" in out
    assert 0 < lance_rows(table) < 100


def test_maintenance_flushes_no_log_where_it_is_told_so(
    table: lancemem.Table, capsys: pytest.CaptureFixture[str]
) -> None:
    table.upsert(rows(table, range(10)))
    out = maintain_once(table, capsys, "--no-flush-idle")
    assert out.startswith("nothing to compact; ")
    assert table.stats().num_log_rows == 10
