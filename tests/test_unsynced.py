"""The fsync note of a shard whose files may not be on disk, while jobs take turns at the shard.

Owns: which epochs the note records. Not here: what a power cut leaves (`durability`), or damage of
the note (`test_damaged_files`).
"""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import lancemem

if TYPE_CHECKING:
    from tests.conftest import MakeTable

UNSYNCED = lancemem.WriterConfig(fsync=False)


def rows(start: int) -> pa.Table:
    ids = range(start, start + 10)
    return pa.table({"id": ids, "name": ["n"] * 10, "value": [0.0] * 10})


def noted(table: lancemem.Table) -> int | None:
    """Return through which epoch the shard's files are on disk, as its note records."""
    [*notes] = Path(table.uri, "_lancemem/unsynced").glob("*")
    if not notes:
        return None
    return int(notes[0].read_text().splitlines()[1].rpartition(" ")[2])


def test_a_note_comes_with_the_first_job_that_does_not_sync_and_says_who_synced_since(
    make_table: MakeTable,
) -> None:
    table = make_table()
    epochs = []
    for config in (None, UNSYNCED, UNSYNCED, None, None, UNSYNCED, None):
        with table.start_job(shard=0, config=config) as job:
            job.put(rows(0))
        epochs.append((table.shards()[0].writer_epoch, noted(table)))
    first = epochs[0][0]
    assert [epoch - first for epoch, _ in epochs] == list(range(7))
    assert [None if note is None else max(0, note - first + 1) for _, note in epochs] == [
        None, 0, 0, 4, 5, 5, 7,
    ]  # fmt: skip


def start_syncing(table: lancemem.Table) -> None:
    with contextlib.suppress(lancemem.LancememError):
        table.start_job(shard=0)


def claimed_unsynced(table: lancemem.Table) -> lancemem.Job:
    """Start a job without syncs; a claim of the other one at the same moment may come first."""
    while True:
        with contextlib.suppress(lancemem.WriterFencedError):
            return table.start_job(shard=0, config=UNSYNCED)


@pytest.mark.parametrize("delay_ms", [0, 5, 10, 20, 40, 60, 80, 120])
def test_a_job_that_syncs_takes_no_note_of_one_that_took_its_shard_meanwhile(
    make_table: MakeTable, delay_ms: int
) -> None:
    table = make_table()
    with table.start_job(shard=0, config=UNSYNCED) as job:
        for start in range(0, 200, 10):
            job.put(rows(start))
            job.flush()
    first, second = lancemem.open_table(table.uri), lancemem.open_table(table.uri)
    syncing = threading.Thread(target=start_syncing, args=[first])
    syncing.start()
    time.sleep(delay_ms / 1000)
    job = claimed_unsynced(second)
    epoch = table.shards()[0].writer_epoch
    syncing.join()
    owner = table.shards()[0].writer_epoch
    through = noted(table)
    assert through is not None
    assert through < epoch or owner > epoch, (through, epoch, owner)
    job.close()
