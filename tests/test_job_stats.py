"""The counters of a job, and the effect of its settings.

Owns: the counters and their Prometheus text; the mode of a single put; settings that override the
table's; the two key indexes side by side. Not here: what survives a death (durability), levels and
takeovers (test_jobs).
"""

from __future__ import annotations

import random
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from prometheus_client.parser import text_string_to_metric_families

import lancemem

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.conftest import MakeTable

# Nothing but a close, a flush or a durable put makes rows of this job durable.
NOT_DURABLE: dict[str, Any] = {
    "durable": False,
    "max_wal_flush_interval": timedelta(hours=1),
    "max_wal_buffer_bytes": 1 << 30,
}
# The second generation has to wait for a compaction, and no put waits.
NO_BACKLOG: dict[str, Any] = {
    "max_uncompacted_generations": 1,
    "max_compaction_wait": timedelta(0),
}
MILLISECOND = timedelta(milliseconds=1)

# Counters whose metric has another unit or another form than the field.
OTHER_METRICS: dict[str, tuple[str, dict[str, str], int]] = {
    "maintenance_ms": ("maintenance_seconds_total", {}, 1_000),
    "flush_ms": ("flush_seconds_total", {}, 1_000),
    "backpressure_ms": ("backpressure_seconds_total", {}, 1_000),
    "durable_wait_p50_us": ("durable_wait_seconds", {"quantile": "0.5"}, 1_000_000),
    "durable_wait_p99_us": ("durable_wait_seconds", {"quantile": "0.99"}, 1_000_000),
}
COUNTERS = {
    "puts",
    "rows",
    "wal_entries",
    "wal_batches",
    "wal_bytes",
    "flushes",
    "flushed_bytes",
    "backpressure_puts",
    "compactions",
    "compacted_generations",
    "collections",
    "collected_bytes",
    "deletion_vector_files",
    "maintenance_errors",
}
# Fields without a number.
TEXTS = {"shard_id", "last_maintenance_error"}
FIELDS = sorted(name for name in dir(lancemem.JobStats) if not name.startswith("_"))


def rows(ids: Sequence[int], name: str = "a") -> pa.Table:
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "name": [name] * len(ids),
            "value": [n / 2 for n in ids],
        }
    )


def keys(ids: Sequence[int]) -> pa.Table:
    return rows(ids).select(["id"])


def ids_of(table: pa.Table) -> list[int]:
    return sorted(table.column("id").to_pylist())


def start(table: lancemem.Table, **settings: Any) -> lancemem.Job:  # noqa: ANN401
    return table.start_job(shard=0, config=lancemem.WriterConfig(**settings))


def wait_until(condition: Callable[[], bool]) -> None:
    """Poll until a background task has done something; the test's time limit ends the wait."""
    while not condition():
        time.sleep(0.01)


# --- counters ---


def test_a_new_job_has_counted_nothing(table: lancemem.Table) -> None:
    with table.start_job(shard=0) as job:
        stats = job.stats()
        assert stats.shard_id == job.shard_id == table.shards()[0].shard_id
        counted = [name for name in FIELDS if getattr(stats, name) not in (0, None, stats.shard_id)]
        assert counted == ["active_generation", "writer_epoch"]


def test_puts_and_deletes_are_counted_with_their_rows_and_entries(table: lancemem.Table) -> None:
    with table.start_job(shard=0) as job:
        job.put(rows([1, 2, 3]))
        job.put(rows([4]))
        job.delete(keys([1, 2]))
        job.put(rows([]))
        stats = job.stats()
        assert (stats.num_puts, stats.num_rows, stats.num_active_rows) == (3, 6, 6)
        assert (stats.num_wal_entries, stats.num_wal_batches) == (3, 3)
        assert stats.wal_bytes > 0
        assert stats.wal_position == 4, "the job's fence sentinel stands at 1"
        assert stats.memtable_bytes > stats.wal_bytes, "keys and index count too"


def test_a_refused_put_is_not_counted(table: lancemem.Table) -> None:
    with table.start_job(shard=0) as job:
        job.put(rows([1]))
        before = job.stats()
        with pytest.raises(lancemem.InvalidInputError):
            job.put(pa.table({"id": [1], "no such column": [1]}))
        assert job.stats() == before


def test_puts_that_share_an_entry_are_one_group(table: lancemem.Table) -> None:
    with start(table, **NOT_DURABLE) as job:
        for n in range(5):
            job.put(rows([n]))
        assert job.stats().num_wal_entries == 0
        job.put(rows([5]), durable=True)
        stats = job.stats()
        assert (stats.num_wal_entries, stats.num_wal_batches) == (1, 6)


def test_only_puts_that_wait_for_the_disk_have_a_durable_wait(table: lancemem.Table) -> None:
    with start(table, **NOT_DURABLE) as job:
        job.put(rows([1]))
        stats = job.stats()
        assert (stats.durable_wait_p50_us, stats.durable_wait_p99_us) == (0, 0)
        for n in range(10):
            job.put(rows([n]), durable=True)
        stats = job.stats()
        assert 0 < stats.durable_wait_p50_us <= stats.durable_wait_p99_us


def test_a_synchronous_put_leaves_no_index_lag(table: lancemem.Table) -> None:
    with table.start_job(shard=0) as job:
        for n in range(10):
            job.put(rows([n, n + 1]))
            assert job.stats().num_unindexed_rows == 0


def test_the_index_lag_of_deferred_puts_goes_away_by_itself(table: lancemem.Table) -> None:
    with start(table, sync_index=False, **NOT_DURABLE) as job:
        for n in range(100):
            job.put(rows(range(n, n + 50)))
        assert job.stats().num_unindexed_rows <= 5_000
        wait_until(lambda: job.stats().num_unindexed_rows == 0)


def test_a_flush_is_counted_and_empties_the_memory(table: lancemem.Table) -> None:
    with table.start_job(shard=0) as job:
        job.put(rows(range(100)))
        before = job.stats()
        job.flush()
        after = job.stats()
        assert (after.num_flushes, after.flushed_bytes) == (1, before.memtable_bytes)
        assert (after.num_active_rows, after.num_frozen_memtables, after.memtable_bytes) == (
            0,
            0,
            0,
        )
        assert after.active_generation == before.active_generation + 1
        assert (before.num_uncompacted_generations, after.num_uncompacted_generations) == (0, 1)
        assert (after.num_puts, after.num_rows, after.wal_position) == (1, 100, before.wal_position)


def test_a_memtable_that_cannot_be_flushed_stays_frozen_and_readable(table: lancemem.Table) -> None:
    with table.start_job(shard=0) as job:
        job.put(rows([1]))
        shard = _shard_folder(table)
        (shard / "manifest").rename(shard / "away")
        (shard / "manifest").write_bytes(b"")
        with pytest.raises(lancemem.RetryableError):
            job.flush()
        job.put(rows([2]))
        stats = job.stats()
        assert (stats.num_frozen_memtables, stats.num_flushes, stats.num_active_rows) == (1, 0, 1)
        (shard / "manifest").unlink()
        (shard / "away").rename(shard / "manifest")
        job.flush()
        stats = job.stats()
        assert (stats.num_frozen_memtables, stats.num_flushes, stats.num_active_rows) == (0, 2, 0)
        assert ids_of(table.scan(consistency="flushed").to_table()) == [1, 2]


def _shard_folder(table: lancemem.Table) -> Path:
    from pathlib import Path  # noqa: PLC0415 - the one test that looks inside a table

    return Path(table.uri) / "_mem_wal" / table.shards()[0].shard_id


def test_a_put_that_waits_for_room_is_counted(table: lancemem.Table) -> None:
    with start(table, max_unflushed_memtable_bytes=1, **NOT_DURABLE) as job:
        for n in range(4):
            job.put(rows([n]))
        stats = job.stats()
        assert (stats.num_puts, stats.num_backpressure_puts, stats.num_waiting_puts) == (4, 3, 0)
        assert stats.num_flushes == 3
        assert ids_of(table.scan(consistency="live", jobs=[job]).to_table()) == [0, 1, 2, 3]


# --- the Prometheus text ---


@pytest.fixture
def busy(table: lancemem.Table) -> lancemem.Job:
    """Return a closed job whose counters are above 0, as far as this is certain."""
    job = start(table, max_unflushed_memtable_bytes=1, max_wal_flush_interval=timedelta(hours=1))
    for n in range(5):
        job.put(rows([n]))
    job.delete(keys([1]))
    job.flush()
    job.put(rows([7]))
    job.close()
    return job


def test_every_counter_is_in_the_prometheus_text_with_its_value(busy: lancemem.Job) -> None:
    stats = busy.stats()
    found = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(busy.prometheus())
        for sample in family.samples
    }
    expected: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for name in FIELDS:
        if name in TEXTS:
            continue
        metric = name.removeprefix("num_")
        metric = f"{metric}_total" if metric in COUNTERS else metric
        labels: dict[str, str] = {}
        metric, labels, parts = OTHER_METRICS.get(name, (metric, labels, 1))
        labelled = tuple(sorted({**labels, "shard": stats.shard_id}.items()))
        expected[f"lancemem_job_{metric}", labelled] = getattr(stats, name) / parts
    assert found == expected


def test_every_metric_has_a_help_and_a_type_that_fits_its_name(busy: lancemem.Job) -> None:
    text = busy.prometheus()
    families = list(text_string_to_metric_families(text))
    assert len({family.name for family in families}) == len(families)
    for family in families:
        assert family.documentation.endswith(".")
        assert family.type in {"counter", "gauge"}
        for sample in family.samples:
            assert sample.name.endswith("_total") is (family.type == "counter")
    lines = text.splitlines(keepends=True)
    assert all(line.endswith("\n") for line in lines), "the format ends every line"
    samples = [line for line in lines if not line.startswith("#")]
    assert len(lines) == len(samples) + 2 * len(families)


def test_the_texts_of_two_shards_differ_in_their_label(make_table: MakeTable) -> None:
    table = make_table(sharding=lancemem.bucket("id", 2))
    jobs = [table.start_job(shard=shard) for shard in (0, 1)]
    labels = [
        {
            sample.labels["shard"]
            for family in text_string_to_metric_families(job.prometheus())
            for sample in family.samples
        }
        for job in jobs
    ]
    assert labels == [{job.shard_id} for job in jobs]
    assert labels[0] != labels[1]


# --- the mode of one put ---


def test_a_put_that_is_not_durable_in_a_durable_job_returns_before_its_entry(
    table: lancemem.Table,
) -> None:
    with start(table, **{**NOT_DURABLE, "durable": True}) as job:
        assert not job.put(rows([1, 2]), durable=False).durable
        assert not job.delete(keys([1]), durable=False).durable
        assert job.stats().num_wal_entries == 0
        assert ids_of(table.scan().to_table()) == []
        assert ids_of(table.scan(consistency="live", jobs=[job]).to_table()) == [2]
        assert job.put(rows([3])).durable
        assert ids_of(table.scan().to_table()) == [2, 3]


def test_a_durable_put_in_a_job_that_is_not_returns_behind_its_entry(
    table: lancemem.Table,
) -> None:
    with start(table, **NOT_DURABLE) as job:
        assert not job.put(rows([1, 2])).durable
        assert ids_of(table.scan().to_table()) == []
        assert job.delete(keys([1]), durable=True).durable
        assert ids_of(table.scan().to_table()) == [2]


@pytest.mark.parametrize("of_job", [True, False])
def test_a_put_may_index_otherwise_than_its_job(table: lancemem.Table, of_job: bool) -> None:
    with start(table, sync_index=of_job, **NOT_DURABLE) as job:
        assert job.put(rows([1])).indexed is of_job
        assert job.put(rows([2]), sync_index=not of_job).indexed is not of_job
        found = table.get(keys([2, 1]), consistency="live", jobs=[job])
        assert found.column("id").to_pylist() == [2, 1]
        applied = job.apply(rows([3, 1]), pa.array([False, True]), sync_index=not of_job)
        assert applied.indexed is not of_job
        assert job.delete(keys([2]), sync_index=not of_job).indexed is not of_job
        found = table.get(keys([3, 2, 1]), consistency="live", jobs=[job])
        assert found.column("id").to_pylist() == [3]


# --- settings that override the table's ---


@pytest.mark.parametrize("of_table", [True, False])
def test_the_index_mode_of_the_table_holds_until_a_job_says_otherwise(
    make_table: MakeTable, of_table: bool
) -> None:
    uri = make_table(config=lancemem.WriterConfig(sync_index=of_table)).uri
    table = lancemem.open_table(uri)
    with table.start_job(shard=0) as job:
        assert job.put(rows([1])).indexed is of_table
    with start(table, sync_index=not of_table) as job:
        assert job.put(rows([2])).indexed is not of_table


def test_the_backlog_of_the_table_holds_until_a_job_says_otherwise(make_table: MakeTable) -> None:
    uri = make_table(config=lancemem.WriterConfig(**NO_BACKLOG)).uri
    table = lancemem.open_table(uri)
    with table.start_job(shard=0) as job:
        job.put(rows([1]))
        job.flush()
        with pytest.raises(lancemem.RetryableError):
            job.put(rows([2]))
    with start(table, max_uncompacted_generations=2) as job:
        job.put(rows([2]))
        job.flush()
        with pytest.raises(lancemem.RetryableError):
            job.put(rows([3]))
    assert ids_of(table.scan().to_table()) == [1, 2]


def test_the_idle_interval_of_the_table_holds_until_a_job_says_otherwise(
    make_table: MakeTable,
) -> None:
    uri = make_table(config=lancemem.WriterConfig(idle_flush_interval=MILLISECOND)).uri
    table = lancemem.open_table(uri)
    with start(table, idle_flush_interval="never") as never, table.start_job(shard=0) as job:
        assert never.stats().num_flushes == 0
        job.put(rows([1]))
        wait_until(lambda: job.stats().num_flushes == 1)
        assert ids_of(table.scan(consistency="flushed").to_table()) == [1]
    other = make_table(config=lancemem.WriterConfig(idle_flush_interval="never"))
    with start(other, idle_flush_interval=MILLISECOND) as job:
        job.put(rows([1]))
        wait_until(lambda: job.stats().num_flushes == 1)


def test_the_key_index_of_the_table_holds_for_its_jobs_and_another_can_follow(
    make_table: MakeTable,
) -> None:
    uri = make_table(config=lancemem.WriterConfig(key_index="skip_list")).uri
    table = lancemem.open_table(uri)
    with table.start_job(shard=0) as job:
        job.put(rows([1, 2, 1], "first"))
    with start(table, key_index="hash") as job:
        job.put(rows([2], "second"))
        found = table.get(keys([1, 2]), consistency="live", jobs=[job])
        assert found.column("name").to_pylist() == ["first", "second"]


def test_an_unknown_key_index_is_refused_by_its_name() -> None:
    with pytest.raises(lancemem.InvalidInputError, match="'hash' or 'skip_list', got 'btree'"):
        lancemem.WriterConfig(key_index="btree")  # type: ignore[arg-type]


def test_a_backlog_is_an_error_to_repeat_and_goes_away_with_a_compaction(
    table: lancemem.Table,
) -> None:
    with start(table, **NO_BACKLOG) as job:
        job.put(rows([1]))
        job.flush()
        before = job.stats()
        assert before.num_uncompacted_generations == 1
        for _ in range(2):
            with pytest.raises(lancemem.RetryableError, match="compact the table, or raise max_un"):
                job.put(rows([2]))
        after = job.stats()
        assert (after.num_puts, after.num_active_rows) == (before.num_puts, 0), (
            "nothing was written"
        )
        assert after.num_backpressure_puts == 2
        table.compact()
        job.put(rows([2]))
        assert job.stats().num_uncompacted_generations == 0
    assert ids_of(table.scan().to_table()) == [1, 2]


def test_a_memtable_that_gets_no_puts_is_flushed_by_itself(table: lancemem.Table) -> None:
    with start(table, idle_flush_interval=timedelta(milliseconds=5), **NOT_DURABLE) as job:
        for n in (1, 2):
            job.put(rows([n]))
            wait_until(lambda n=n: job.stats().num_flushes == n)  # type: ignore[misc]
        assert ids_of(table.scan(consistency="flushed").to_table()) == [1, 2]
        assert job.stats().active_generation == 3, "an empty MemTable is not flushed"


# --- the two key indexes ---


@pytest.mark.parametrize("sync_index", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_both_key_indexes_show_what_a_dict_would(
    make_table: MakeTable, seed: int, sync_index: bool
) -> None:
    chance = random.Random(seed)  # noqa: S311 - a fixed seed is the point
    settings = {**NOT_DURABLE, "sync_index": sync_index, "max_memtable_rows": 40}
    tables = [make_table(), make_table()]
    jobs = [
        start(table, key_index=index, **settings)
        for table, index in zip(tables, ("hash", "skip_list"), strict=True)
    ]
    model: dict[int, str] = {}
    for step in range(60):
        ids = [chance.randrange(-15, 15) for _ in range(chance.randrange(1, 12))]
        delete, flush = chance.random() < 0.3, chance.random() < 0.1
        for job in jobs:
            if delete:
                job.delete(keys(ids))
            else:
                job.put(rows(ids, f"step {step}"))
            if flush:
                job.flush()
        for key in ids:
            if delete:
                model.pop(key, None)
            else:
                model[key] = f"step {step}"
        if step % 5 == 0:
            for table, job in zip(tables, jobs, strict=True):
                _check(table, job, model)
    for table, job in zip(tables, jobs, strict=True):
        job.close(flush=True)
        assert _names(table.scan(consistency="flushed").to_table()) == model
        table.compact()
        assert _names(table.scan(consistency="flushed").to_table()) == model


def _check(table: lancemem.Table, job: lancemem.Job, model: dict[int, str]) -> None:
    assert _names(table.scan(consistency="live", jobs=[job]).to_table()) == model
    asked = list(range(-16, 16))
    found = table.get(keys(asked), consistency="live", jobs=[job])
    assert found.column("id").to_pylist() == [key for key in asked if key in model]
    assert _names(found) == model


def _names(table: pa.Table) -> dict[int, str]:
    ids = table.column("id").to_pylist()
    names = dict(zip(ids, table.column("name").to_pylist(), strict=True))
    assert len(names) == len(ids), "a key came twice"
    return names
