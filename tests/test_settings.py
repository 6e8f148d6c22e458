"""The settings of a job in two classes: the write path, and the maintenance beside it.

Owns: which class has which setting, their defaults, how a job's settings lie over the table's, and
that an error names the setting. Not here: what the task of maintenance does (test_maintenance).
"""

from __future__ import annotations

import inspect
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import lancemem

if TYPE_CHECKING:
    from tests.conftest import MakeTable

MINUTE = timedelta(minutes=1)
MILLISECOND = timedelta(milliseconds=1)
WRITER_DEFAULTS: dict[str, Any] = {
    "durable": True,
    "sync_index": True,
    "sync_search_index": False,
    "key_index": "hash",
    "index_flushed": True,
    "fsync": True,
    "max_memtable_rows": 100_000,
    "max_memtable_bytes": 256 << 20,
    "max_memtable_batches": 8_000,
    "max_wal_buffer_bytes": 10 << 20,
    "max_wal_flush_interval": timedelta(milliseconds=100),
    "max_unflushed_memtable_bytes": 1 << 30,
    "max_uncompacted_generations": 1_000,
    "max_compaction_wait": MINUTE,
    "idle_flush_interval": MINUTE,
}
MAINTENANCE_DEFAULTS: dict[str, Any] = {
    "generations": 8,
    "interval": MINUTE,
    "older_than": timedelta(hours=1),
    "bytes_per_second": "unlimited",
}
# Far more than a compaction takes, and less than pytest's own limit.
PATIENCE_SECONDS = 50


def compacts(table: lancemem.Table, maintenance: lancemem.MaintenanceConfig | bool | None) -> bool:
    """Flush once in a job with `maintenance`. Whether a task beside it compacts."""
    with table.start_job(shard=0, maintenance=maintenance) as job:
        job.put(pa.table({"id": [1], "name": ["a"], "value": [0.5]}, schema=table.schema))
        job.flush()
        rounds = PATIENCE_SECONDS * 100 if maintenance is not False else 20
        for _ in range(rounds):
            if job.stats().num_compacted_generations > 0:
                return True
            threading.Event().wait(0.01)
    return False


def test_each_setting_is_of_one_class() -> None:
    writer = inspect.signature(lancemem.WriterConfig).parameters
    maintenance = inspect.signature(lancemem.MaintenanceConfig).parameters
    assert list(writer) == list(WRITER_DEFAULTS)
    assert list(maintenance) == ["enabled", *MAINTENANCE_DEFAULTS]
    with pytest.raises(TypeError, match="maintenance"):
        lancemem.WriterConfig(maintenance=True)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="durable"):
        lancemem.MaintenanceConfig(durable=True)  # type: ignore[call-arg]


def test_a_setting_that_is_left_out_is_none_and_not_shown() -> None:
    for settings_class in (lancemem.WriterConfig, lancemem.MaintenanceConfig):
        config = settings_class()
        settings = inspect.signature(settings_class).parameters
        assert {getattr(config, name) for name in settings} == {None}
        assert repr(config) == f"{settings_class.__name__}()"
    config = lancemem.MaintenanceConfig(generations=4)
    assert repr(config) == "MaintenanceConfig(generations=4)"
    assert config == lancemem.MaintenanceConfig(generations=4)
    assert config != lancemem.MaintenanceConfig(generations=4, enabled=True)


def test_a_table_stores_the_defaults_of_both_classes(make_table: MakeTable) -> None:
    uri = make_table().uri
    lancemem.enable(uri, maintenance=False)
    # `enable` refuses settings that differ from those that the table stores.
    for name, value in WRITER_DEFAULTS.items():
        lancemem.enable(uri, config=lancemem.WriterConfig(**{name: value}))
    for name, value in MAINTENANCE_DEFAULTS.items():
        same = lancemem.MaintenanceConfig(**{"enabled": False, name: value})
        lancemem.enable(uri, maintenance=same)
    others: list[lancemem.MaintenanceConfig | bool] = [
        True,
        lancemem.MaintenanceConfig(),
        lancemem.MaintenanceConfig(enabled=False, generations=9),
        lancemem.MaintenanceConfig(enabled=False, older_than=MINUTE),
    ]
    for other in others:
        with pytest.raises(lancemem.InvalidInputError, match=r"start_job\(maintenance=\)"):
            lancemem.enable(uri, maintenance=other)


def test_a_table_stores_the_settings_that_it_is_created_with(make_table: MakeTable) -> None:
    config = lancemem.WriterConfig(max_memtable_rows=7)
    maintenance = lancemem.MaintenanceConfig(generations=3, bytes_per_second=1_000)
    uri = make_table(config=config, maintenance=maintenance).uri
    lancemem.enable(uri, config=config, maintenance=maintenance)
    lancemem.enable(uri, maintenance=True)
    others: list[lancemem.MaintenanceConfig | bool] = [
        False,
        lancemem.MaintenanceConfig(generations=4),
    ]
    for other in others:
        with pytest.raises(lancemem.InvalidInputError, match="has other settings"):
            lancemem.enable(uri, maintenance=other)


def test_true_starts_the_task_with_the_settings_of_the_table(make_table: MakeTable) -> None:
    stored = lancemem.MaintenanceConfig(enabled=False, generations=1)
    uri = make_table(maintenance=stored).uri
    assert compacts(lancemem.open_table(uri), maintenance=True)
    assert not compacts(lancemem.open_table(uri), maintenance=False)


def test_settings_of_a_job_lie_over_those_of_the_table(make_table: MakeTable) -> None:
    # By the table's settings the task waits an hour for a hundred generations.
    rare = lancemem.MaintenanceConfig(generations=100, interval=timedelta(hours=1))
    assert compacts(make_table(maintenance=rare), lancemem.MaintenanceConfig(generations=1))
    assert compacts(make_table(maintenance=rare), lancemem.MaintenanceConfig(interval=MILLISECOND))


def test_an_error_names_the_setting_with_the_wrong_value(table: lancemem.Table) -> None:
    with pytest.raises(lancemem.InvalidInputError, match=r"^generations: .*-1 is too small"):
        lancemem.MaintenanceConfig(generations=-1)
    with pytest.raises(lancemem.InvalidInputError, match=r"^older_than: .*whole milliseconds"):
        lancemem.MaintenanceConfig(older_than=timedelta(microseconds=1))
    with pytest.raises(lancemem.InvalidInputError, match=r"^bytes_per_second: .*'unlimited'"):
        lancemem.MaintenanceConfig(bytes_per_second=0)
    with pytest.raises(TypeError, match=r"interval.*expected a timedelta"):
        lancemem.MaintenanceConfig(interval=60)  # type: ignore[arg-type]
    text = "^interval of MaintenanceConfig must be at least 1 ms, got 0"
    with pytest.raises(lancemem.InvalidInputError, match=text):
        table.start_job(shard=0, maintenance=lancemem.MaintenanceConfig(interval=timedelta(0)))
    text = "maintenance.*expected a bool or a MaintenanceConfig, such as .*, got str"
    with pytest.raises(TypeError, match=text):
        table.start_job(shard=0, maintenance="on")  # type: ignore[arg-type]
    # A refused start claims nothing.
    assert table.shards()[0].writer_epoch == 0
