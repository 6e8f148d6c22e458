"""Maintenance as a service: beside a running job, and as a process of its own.

Owns: that both compact and collect, report what they do, and stop on request. Not here: what a
compaction or a collection does (test_compaction, test_collect).
"""

from __future__ import annotations

import json
import logging
import random
import signal
import subprocess
import sys
import textwrap
import threading
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import lancemem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conftest import MakeTable

# Far more than any wait here takes, and less than pytest's own limit.
PATIENCE_SECONDS = 50
NOW = timedelta(0)


def rows(table: lancemem.Table, ids: range, name: str) -> pa.Table:
    values = [list(ids), [name] * len(ids), [float(i) for i in ids]]
    return pa.table(values, schema=table.schema)


def until(reached: Callable[[], bool]) -> None:
    """Poll until the condition holds; fail after far too long."""
    turn = threading.Event()
    for _ in range(PATIENCE_SECONDS * 100):
        if reached():
            return
        turn.wait(0.01)
    pytest.fail("it did not happen")


def flush(job: lancemem.Job, table: lancemem.Table, name: str) -> None:
    job.put(rows(table, range(10), name))
    job.flush()


def runs(table: lancemem.Table) -> int:
    return sum(len(shard.sstables) for shard in table.shards())


def test_a_job_with_maintenance_compacts_beside_its_puts_and_is_not_fenced(
    table: lancemem.Table,
) -> None:
    maintenance = lancemem.MaintenanceConfig(generations=4)
    with table.start_job(shard=0, maintenance=maintenance) as job:
        for step in range(10):
            flush(job, table, f"v{step}")
        until(lambda: job.stats().num_compactions >= 1)
        epoch = job.stats().writer_epoch
        job.put(rows(table, range(5), "last"))
        stats = job.stats()
        assert (stats.writer_epoch, stats.num_maintenance_errors) == (epoch, 0)
        assert stats.num_compacted_generations >= 4
        assert stats.last_maintenance_error is None
        assert "lancemem_job_compactions_total" in job.prometheus()
    assert table.stats().base_version > 1
    names = table.scan().to_table()["name"].to_pylist()
    assert sorted(names) == ["last"] * 5 + ["v9"] * 5


def test_a_job_without_maintenance_compacts_nothing(table: lancemem.Table) -> None:
    soon = timedelta(milliseconds=1)
    off = lancemem.MaintenanceConfig(enabled=False, generations=1, interval=soon)
    with table.start_job(shard=0, maintenance=off) as job:
        for step in range(3):
            flush(job, table, f"v{step}")
        assert job.stats().num_compactions == 0
        assert runs(table) == 3


def test_maintenance_is_a_setting_of_the_table_that_a_job_may_refuse(
    make_table: MakeTable,
) -> None:
    uri = make_table(maintenance=lancemem.MaintenanceConfig(generations=1)).uri
    table = lancemem.open_table(uri)
    with table.start_job(shard=0, maintenance=False) as job:
        flush(job, table, "a")
        assert runs(table) == 1
    with table.start_job(shard=0) as job:
        flush(job, table, "b")
        until(lambda: job.stats().num_compacted_generations == 2)
        until(lambda: job.stats().num_collections > 0)
    # A call that starts a job for a moment starts no maintenance task.
    table.upsert(rows(table, range(3), "c"))
    assert sorted(set(table.scan().to_table()["name"].to_pylist())) == ["b", "c"]


def test_a_failing_maintenance_is_told_and_no_put_fails(
    table: lancemem.Table, caplog: pytest.LogCaptureFixture
) -> None:
    # A file where the base table needs a folder.
    data = Path(table.uri) / "data"
    assert not data.exists()
    data.write_text("in the way")
    with (
        caplog.at_level(logging.WARNING, logger="lancemem"),
        table.start_job(shard=0, maintenance=lancemem.MaintenanceConfig(generations=1)) as job,
    ):
        flush(job, table, "a")
        until(lambda: job.stats().num_maintenance_errors > 0)
        error = job.stats().last_maintenance_error
        assert error is not None
        flush(job, table, "b")
        data.unlink()
        until(lambda: job.stats().num_compacted_generations == 2)
        until(lambda: job.stats().last_maintenance_error is None)
    lines = [record.getMessage() for record in caplog.records if record.name == "lancemem"]
    assert any("maintenance failed" in line for line in lines), lines


def published(table: lancemem.Table) -> dict[str, int]:
    """List the files that readers find others by: versions, manifests, the record index."""
    folders = [f"{table.uri}/_versions", f"{table.uri}/_lancemem", f"{table.uri}/_mem_wal"]
    names = [path for folder in folders for path in Path(folder).rglob("*.binpb")]
    names += Path(table.uri, "_versions").iterdir()
    return {str(path): path.stat().st_mtime_ns for path in names}


def test_maintenance_publishes_nothing_once_close_has_returned(make_table: MakeTable) -> None:
    moments = random.Random(1)  # noqa: S311 - not a secret
    for fsync in (True, False) * 15:
        config = lancemem.WriterConfig(fsync=fsync)
        maintenance = lancemem.MaintenanceConfig(generations=1, interval=timedelta(seconds=1))
        table = make_table()
        table.create_record_index()
        with table.start_job(shard=0, config=config, maintenance=maintenance) as job:
            for _ in range(2):
                flush(job, table, "a")
                threading.Event().wait(moments.random() * 0.03)
        before = published(table)
        threading.Event().wait(0.05)
        assert published(table) == before


def test_ctrl_c_ends_a_job_with_maintenance_and_its_process(tmp_path: Path) -> None:
    program = textwrap.dedent(
        """
        import sys
        import threading
        from datetime import timedelta
        import pyarrow as pa
        import lancemem

        schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
        table = lancemem.create_table(sys.argv[1], schema, primary_key="id")
        soon = timedelta(milliseconds=1)
        maintenance = lancemem.MaintenanceConfig(generations=1, interval=soon)
        step, told = 0, False
        with table.start_job(shard=0, maintenance=maintenance) as job:
            while True:
                job.put(pa.table({"id": [step]}, schema=schema))
                job.flush()
                step += 1
                if not told and job.stats().num_compactions > 0:
                    told = True
                    print("compacted", flush=True)
        """
    )
    uri = str(tmp_path / "t")
    with child([sys.executable, "-c", program, uri]) as running:
        assert line_of(running) == "compacted\n"
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=PATIENCE_SECONDS)
    assert running.returncode != 0
    assert said.rstrip().endswith("KeyboardInterrupt")
    ids = lancemem.open_table(uri).scan().to_table()["id"].to_pylist()
    assert sorted(ids) == list(range(len(ids)))


# --- python -m lancemem maintain ---


class child:  # noqa: N801 - a context manager, named as it reads
    """A process that does not outlive its test."""

    def __init__(self, command: list[str]) -> None:
        self._command = command

    def __enter__(self) -> subprocess.Popen[str]:
        self._running = subprocess.Popen(  # noqa: S603 - our own program
            self._command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        return self._running

    def __exit__(self, *_: object) -> None:
        self._running.kill()
        self._running.communicate()


def line_of(running: subprocess.Popen[str]) -> str:
    assert running.stdout is not None
    return running.stdout.readline()


def maintain(table: lancemem.Table, *options: str) -> child:
    return child([sys.executable, "-m", "lancemem", "maintain", table.uri, *options])


@pytest.fixture
def in_debt(table: lancemem.Table) -> Iterator[tuple[lancemem.Table, lancemem.Job]]:
    """Give a table with three flushed SSTables and the job that wrote them, still running."""
    with table.start_job(shard=0) as job:
        for step in range(3):
            flush(job, table, f"v{step}")
        yield table, job


def test_maintain_tells_what_it_did_round_by_round_and_stops_at_sigterm(
    in_debt: tuple[lancemem.Table, lancemem.Job],
) -> None:
    table, job = in_debt
    with maintain(table, "--interval", "0.05", "--older-than", "0") as running:
        assert line_of(running) == f"maintaining {table.uri} every 0.05 s\n"
        assert line_of(running).startswith("compacted 3 SSTables: ")
        assert line_of(running).startswith("collected ")
        assert line_of(running).startswith("nothing to compact; version ")
        flush(job, table, "later")
        for line in iter(lambda: line_of(running), ""):
            if line.startswith("compacted 1 SSTables: "):
                break
        running.send_signal(signal.SIGTERM)
        said, errors = running.communicate(timeout=PATIENCE_SECONDS)
    assert (running.returncode, errors) == (0, "")
    assert said.endswith("stopped\n")
    job.put(rows(table, range(10), "last"))
    assert set(table.scan().to_table()["name"].to_pylist()) == {"last"}


def test_maintain_once_does_one_round(in_debt: tuple[lancemem.Table, lancemem.Job]) -> None:
    table, _ = in_debt
    with maintain(table, "--once") as running:
        said, errors = running.communicate(timeout=PATIENCE_SECONDS)
    assert (running.returncode, errors) == (0, "")
    assert [line.split()[0] for line in said.splitlines()] == ["compacted", "collected"]
    assert runs(table) == 0


def test_maintain_keeps_to_its_rate_and_stops_in_the_middle_of_a_compaction(
    in_debt: tuple[lancemem.Table, lancemem.Job],
) -> None:
    table, job = in_debt
    table.compact()
    for name in ("w1", "w2", "w3"):
        flush(job, table, name)
    # The compaction has to read the keys of the base table: at a byte a second that takes minutes.
    with maintain(table, "--bytes-per-second", "1") as running:
        assert line_of(running).startswith("maintaining ")
        stopped = threading.Event()

        def wait_for_a_line() -> None:
            line_of(running)
            stopped.set()

        told = threading.Thread(target=wait_for_a_line)
        told.start()
        assert not stopped.wait(3), "it was faster than it may be"
        running.send_signal(signal.SIGTERM)
        told.join(PATIENCE_SECONDS)
        running.communicate(timeout=PATIENCE_SECONDS)
    assert running.returncode == 0
    assert runs(table) == 3, "nothing is half done"
    flush(job, table, "later")
    assert table.compact().num_generations == 4
    assert table.scan().count_rows() == 10


def test_maintain_once_fails_where_a_damaged_log_needs_a_person(table: lancemem.Table) -> None:
    for name in ("a", "b", "c"):
        with table.start_job(shard=0) as job:
            job.put(rows(table, range(3), name))
    entries = sorted(Path(table.uri).glob("_mem_wal/*/wal/*.arrow"))
    entries[len(entries) // 2].unlink()
    with maintain(table, "--once", "--flush-idle", "0", "--json") as running:
        said, _ = running.communicate(timeout=PATIENCE_SECONDS)
    assert running.returncode == 2
    told = json.loads(said)
    assert "is damaged (hole)" in told["error"]
    assert told["skipped_logs"] == 1


def test_maintain_names_an_error_that_needs_a_person_and_ends(tmp_path: Path) -> None:
    with child([sys.executable, "-m", "lancemem", "maintain", str(tmp_path / "none")]) as running:
        _, errors = running.communicate(timeout=PATIENCE_SECONDS)
    assert running.returncode == 2
    assert errors.startswith("TableNotFoundError: ")
