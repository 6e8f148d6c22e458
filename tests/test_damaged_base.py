"""A file of the base table that is truncated or missing: damage by name, not a retryable error.

Owns the errors of reads. Does not own damage of an SSTable (`test_damaged_runs`) or of the log
(`test_repair`).
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest

import lancemem

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import MakeTable

ROWS = 2_000


@pytest.fixture
def uri(table: lancemem.Table) -> str:
    """Give a table whose rows are all in the base, in one file, of which some are deleted."""
    names = [f"name {number}" for number in range(ROWS)]
    table.upsert(pa.table({"id": range(ROWS), "name": names, "value": [0.5] * ROWS}))
    with table.start_job(shard=0) as job:
        job.flush()
    table.compact()
    dataset = lance.dataset(table.uri)
    dataset.delete("id < 10")
    return table.uri


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 3])


def end_lost(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:-20] + bytes(20))


def all_rows(table: lancemem.Table) -> object:
    return table.scan().to_table()


def counted(table: lancemem.Table) -> object:
    return table.scan(filter="value > 0").count_rows()


def looked_up(table: lancemem.Table) -> object:
    return table.get([7, 700])


READS = [all_rows, counted, looked_up]
DAMAGES = [Path.unlink, cut, end_lost]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("pattern", ["data/*.lance", "_deletions/*"])
def test_a_damaged_file_of_the_base_is_named_by_every_read(
    uri: str,
    pattern: str,
    read: Callable[[lancemem.Table], object],
    damage: Callable[[Path], None],
) -> None:
    [path] = Path(uri).glob(pattern)
    damage(path)
    with pytest.raises(lancemem.CorruptionError, match="the base table is damaged") as caught:
        read(lancemem.open_table(uri))
    if damage is Path.unlink:
        assert path.name in str(caught.value)


def test_a_handle_that_has_read_a_file_before_names_its_damage(uri: str) -> None:
    table = lancemem.open_table(uri)
    assert table.scan(["id"]).to_table().num_rows == ROWS - 10
    [path] = Path(uri).glob("data/*.lance")
    cut(path)
    for read in (all_rows, looked_up):
        with pytest.raises(lancemem.CorruptionError, match="the base table is damaged"):
            read(table)


@pytest.mark.parametrize("damage", [Path.unlink, cut])
def test_a_damaged_file_of_the_index_on_the_key_is_named(
    uri: str, damage: Callable[[Path], None]
) -> None:
    lance.dataset(uri).create_scalar_index("id", "BTREE")
    for path in Path(uri).glob("_indices/*/*.lance"):
        damage(path)
    with pytest.raises(lancemem.CorruptionError, match="the base table is damaged"):
        looked_up(lancemem.open_table(uri))


def test_a_flipped_bit_in_what_tells_where_the_rows_are_is_no_fault_that_may_pass(
    uri: str,
) -> None:
    """Damage that still decodes is not found: docs/guarantees.md lists this limit."""
    [path] = Path(uri).glob("data/*.lance")
    whole = path.read_bytes()
    refused = 0
    for at in range(len(whole) - 400, len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << at % 8
        path.write_bytes(damaged)
        try:
            assert all_rows(lancemem.open_table(uri))
        except lancemem.CorruptionError:
            refused += 1
        except lancemem.InvalidInputError as error:
            # The text is the same as for a file that a later Lance wrote.
            assert "Not supported" in str(error)  # noqa: PT017 - not every bit gives this one
            refused += 1
    assert refused > 100


def test_damage_that_lances_readers_panic_on_is_named_with_the_file(uri: str) -> None:
    """No read ends in a panic or an internal error."""
    [path] = Path(uri).glob("data/*.lance")
    whole = path.read_bytes()
    texts = []
    for at in range(len(whole) - 1_200, len(whole) - 40, 3):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x5A]) + whole[at + 1 :])
        for read in READS:
            try:
                read(lancemem.open_table(uri))
            except lancemem.CorruptionError as error:
                texts.append(str(error))
            except lancemem.InvalidInputError as error:
                assert "Not supported" in str(error)  # noqa: PT017 - not every byte gives this one
    assert sum(path.name in text for text in texts) > len(texts) // 2
    assert any("its reader panicked" in text for text in texts)


@pytest.mark.parametrize("damage", [cut, end_lost])
def test_a_table_whose_newest_manifest_is_cut_says_so_when_it_is_opened(
    uri: str, damage: Callable[[Path], None]
) -> None:
    newest = min((Path(uri) / "_versions").iterdir())  # their numbers count down
    damage(newest)
    with pytest.raises(lancemem.CorruptionError, match="the base table is damaged"):
        lancemem.open_table(uri)


@pytest.mark.parametrize("damage", [cut, end_lost])
def test_an_open_handle_and_a_job_name_a_damaged_newest_manifest_and_go_on_once_it_is_mended(
    uri: str, damage: Callable[[Path], None]
) -> None:
    table = lancemem.open_table(uri)
    row = pa.table({"id": [ROWS], "name": ["new"], "value": [1.0]})
    with table.start_job(shard=0) as job:
        lance.dataset(uri).delete("id < 20")
        manifest = min((Path(uri) / "_versions").iterdir())  # their numbers count down
        whole = manifest.read_bytes()
        damage(manifest)
        for read in (all_rows, counted, looked_up, lancemem.Table.history):
            with pytest.raises(lancemem.CorruptionError, match="the base table is damaged"):
                read(table)
        job.put(row)
        with pytest.raises(lancemem.CorruptionError, match="the base table is damaged"):
            job.flush()
        manifest.write_bytes(whole)
        job.flush()
    assert table.scan().count_rows() == ROWS - 20 + 1
    assert [version.operation for version in table.history(limit=1)] == ["Delete"]


def test_a_compaction_stops_at_a_damaged_file_and_commits_nothing(uri: str) -> None:
    table = lancemem.open_table(uri)
    table.upsert(pa.table({"id": [700], "name": ["new"], "value": [1.0]}))
    with table.start_job(shard=0) as job:
        job.flush()
    version = table.stats().base_version
    [path] = Path(uri).glob("data/*.lance")
    cut(path)
    with pytest.raises(lancemem.CorruptionError, match="the base table is damaged"):
        lancemem.open_table(uri).compact()
    assert lancemem.open_table(uri).stats().base_version == version


def test_a_snapshot_of_a_version_that_was_cleaned_up_names_what_to_read(uri: str) -> None:
    table = lancemem.open_table(uri)
    snapshot = table.snapshot()
    dataset = lance.dataset(uri)
    dataset.optimize.compact_files(materialize_deletions_threshold=0.0)
    dataset.cleanup_old_versions(timedelta(0), delete_unverified=True)
    with pytest.raises(lancemem.CorruptionError, match="read the newest version"):
        snapshot.scan().to_table()
    assert table.scan().to_table().num_rows == ROWS - 10


def test_a_compaction_goes_on_behind_a_clean_up_by_another_program(make_table: MakeTable) -> None:
    table = make_table()
    for step in range(6):
        ids = range(step * ROWS, (step + 1) * ROWS)
        table.upsert(pa.table({"id": ids, "name": [f"n{i}" for i in ids], "value": [0.5] * ROWS}))
        table.start_job(shard=0).close(flush=True)
        table.compact()
    table.upsert(pa.table({"id": [700], "name": ["new"], "value": [1.0]}))
    table.start_job(shard=0).close(flush=True)
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(table.compact, bytes_per_second=40_000)
        time.sleep(0.5)  # so that it is in the middle; the test holds wherever it is
        dataset = lance.dataset(table.uri)
        dataset.optimize.compact_files()
        dataset.cleanup_old_versions(timedelta(0), delete_unverified=True)
        done = slow.result(120)
    assert done.num_generations == 1
    assert table.get([700])["name"].to_pylist() == ["new"]
    assert table.scan().count_rows() == 6 * ROWS
