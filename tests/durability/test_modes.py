"""The promises of each mode of a put after it has returned, while the process lives.

Owns: the column "after return" of the table in docs/write-path.md. Does not own: kills and power
cuts (test_kill, test_power_cut).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import lancemem

from . import oracle
from .children import TABLE
from .modes import DEFERRED, MODES, NOT_DURABLE, writer_config

if TYPE_CHECKING:
    from pathlib import Path

LAST = 12


@pytest.fixture
def table(tmp_path: Path) -> lancemem.Table:
    return lancemem.create_table(str(tmp_path / TABLE), oracle.SCHEMA, primary_key="id")


def live_state(table: lancemem.Table, job: lancemem.Job) -> oracle.State:
    return oracle.state_of(table.scan(consistency="live", jobs=[job]).to_table())


def stored_state(table: lancemem.Table) -> oracle.State:
    """Read as a process without a job of the table would."""
    return oracle.state_of(lancemem.open_table(table.uri).scan().to_table())


@pytest.mark.parametrize("mode", MODES)
def test_a_put_that_returned_is_in_every_scan_that_includes_its_job(
    table: lancemem.Table, mode: str
) -> None:
    every = oracle.states(LAST)
    with table.start_job(shard=0, config=writer_config(MODES[mode])) as job:
        for number in range(1, LAST + 1):
            oracle.apply(job, number)
            assert live_state(table, job) == every[number]


@pytest.mark.parametrize("mode", MODES)
def test_a_put_that_returned_is_seen_by_other_processes_where_it_said_durable(
    table: lancemem.Table, mode: str
) -> None:
    every = oracle.states(LAST)
    with table.start_job(shard=0, config=writer_config(MODES[mode])) as job:
        for number in range(1, LAST + 1):
            durable = oracle.apply(job, number)
            assert durable is MODES[mode]["durable"]
            assert stored_state(table) == (every[number] if durable else {})
    assert stored_state(table) == every[LAST]


@pytest.mark.parametrize("mode", MODES)
def test_a_put_that_returned_is_found_by_its_key_in_both_index_modes(
    table: lancemem.Table, mode: str
) -> None:
    with table.start_job(shard=0, config=writer_config(MODES[mode])) as job:
        for number in (1, 2, 3):
            oracle.apply(job, number)
            keys = pa.table({"id": [oracle.HEAD, *oracle.ids_of(number)]})
            found = table.get(keys, consistency="live", jobs=[job])
            assert found.column("value").to_pylist() == [number] * len(keys)


@pytest.mark.parametrize("mode", MODES)
def test_every_row_is_found_by_its_key_after_a_flush(table: lancemem.Table, mode: str) -> None:
    with table.start_job(shard=0, config=writer_config(MODES[mode])) as job:
        for number in (1, 2, 3):
            oracle.apply(job, number)
        job.flush()
        keys = pa.table({"id": [oracle.HEAD, *oracle.ids_of(1), *oracle.ids_of(3)]})
        found = oracle.state_of(table.get(keys))
    assert found == {key: oracle.states(3)[3][key] for key in keys.column("id").to_pylist()}


def test_a_durable_put_of_a_job_that_is_not_durable_takes_all_before_it_along(
    table: lancemem.Table,
) -> None:
    job = table.start_job(shard=0, config=writer_config(NOT_DURABLE))
    for number in (1, 2):
        assert not oracle.apply(job, number)
    assert stored_state(table) == {}
    last = {"id": [oracle.HEAD, *oracle.ids_of(3)], "value": [3] * (oracle.ROWS_PER_PUT + 1)}
    mode = {"durable": True, **DEFERRED}
    assert job.put(pa.table(last, schema=oracle.SCHEMA), **mode).durable
    assert stored_state(table) == oracle.states(3)[3]
    assert not oracle.apply(job, 4)
    assert stored_state(table) == oracle.states(3)[3]
    job.close()


@pytest.mark.parametrize("mode", MODES)
def test_a_put_says_whether_it_is_durable_and_whether_its_keys_are_indexed(
    table: lancemem.Table, mode: str
) -> None:
    settings = MODES[mode]
    rows = pa.table({"id": [1], "value": [1]}, schema=oracle.SCHEMA)
    with table.start_job(shard=0, config=writer_config(settings)) as job:
        for done in (job.put(rows), job.delete(rows.select(["id"]))):
            assert (done.num_rows, done.durable) == (1, settings["durable"])
            assert done.indexed is settings.get("sync_index", True)
