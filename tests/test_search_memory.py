"""Full-text search of rows in memory: the index of a MemTable, and who fills it.

Owns: scores by such an index, `sync_search_index` with and without `durable`, each with what is
seen and what a crash leaves, and the bytes of the index. Not here: queries (test_search_text).
"""

from __future__ import annotations

import signal
import subprocess
import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

import lancemem
from lancemem import query
from tests.texts import check_same, draw, fresh_index, rows_of, schema_of, scores_of, seeded

if TYPE_CHECKING:
    from pathlib import Path

# More than the rows that are read without an index.
COUNT = 2_500
ALL = 100_000
LONG = timedelta(hours=1)


def config(*, durable: bool, sync: bool) -> lancemem.WriterConfig:
    """Give the settings of one cell; rows of a put that is not durable stay out of the log."""
    return lancemem.WriterConfig(
        fsync=False, durable=durable, sync_search_index=sync, max_wal_flush_interval=LONG
    )


@pytest.fixture
def table(tmp_path: Path) -> lancemem.Table:
    """Give a table with an indexed base table."""
    chance = seeded(1)
    fast = lancemem.WriterConfig(fsync=False)
    uri = str(tmp_path / "t.lance")
    table = lancemem.create_table(uri, schema_of(), primary_key="id", config=fast)
    table.upsert(rows_of({key: draw(chance) for key in range(50)}))
    table.compact(flush=True)
    table.create_index("body", "INVERTED", with_position=True)
    return table


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("sync", [True, False])
def test_rows_are_found_at_once_whoever_indexes_them(
    table: lancemem.Table, *, durable: bool, sync: bool
) -> None:
    chance = seeded(2)
    rows = {key: draw(chance) for key in range(20, 20 + COUNT)}
    with table.start_job(shard=0, config=config(durable=durable, sync=sync)) as job:
        job.put(rows_of(rows))
        after_put = job.stats().memtable_bytes
        live: Any = {"consistency": "live", "text_columns": "body", "k": ALL}
        found = table.search("log merge", **live)
        assert "by index in memory" in found.explain()
        fresh = fresh_index(table.to_table(consistency="live"), ["body"], with_position=True)
        check_same(found.to_table(), scores_of(fresh, "log merge", ["body"]))
        after_search = job.stats().memtable_bytes
        assert (after_search == after_put) == sync, "the index was filled by the put, or not"
        phrase = query.phrase("write ahead", "body")
        with_phrase = table.search(phrase, consistency="live", k=ALL).to_table()
        check_same(with_phrase, scores_of(fresh, _phrase()))
        changed = {key: draw(chance) for key in range(100, 180)}
        job.put(rows_of(changed))
        job.delete(list(range(200, 260)))
        fresh = fresh_index(table.to_table(consistency="live"), ["body"], with_position=True)
        check_same(found.to_table(), scores_of(fresh, "log merge", ["body"]))
        job.flush()
        check_same(found.to_table(), scores_of(fresh, "log merge", ["body"]))
        assert job.stats().memtable_bytes == 0, "an index leaves the account with its rows"


def _phrase() -> object:
    import lance.query as of_lance  # noqa: PLC0415 - one query of pylance

    return of_lance.PhraseQuery("write ahead", "body")


def test_one_put_overrides_the_setting_of_its_job(table: lancemem.Table) -> None:
    chance = seeded(4)
    with table.start_job(shard=0, config=config(durable=True, sync=False)) as job:
        plain = rows_of({key: draw(chance) for key in range(1_000)})
        job.put(plain)
        before = job.stats().memtable_bytes
        job.put(plain)
        without = job.stats().memtable_bytes - before
        before = job.stats().memtable_bytes
        job.put(plain, sync_search_index=True)
        assert job.stats().memtable_bytes - before > without


CHILD = """
import os, random, signal, sys
import lancemem
from datetime import timedelta
from tests.texts import rows_of
durable, sync = sys.argv[2] == "True", sys.argv[3] == "True"
table = lancemem.open_table(sys.argv[1])
config = lancemem.WriterConfig(
    fsync=False, durable=durable, sync_search_index=sync, max_wal_flush_interval=timedelta(hours=1)
)
job = table.start_job(shard=0, config=config)
job.put(rows_of({key: ("crash", "crashed words") for key in range(1000, 3500)}))
found = table.search("crashed", text_columns="body", consistency="live", k=9).to_table()
assert found.num_rows == 9
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("sync", [True, False])
def test_a_crash_leaves_the_words_of_durable_rows_and_of_no_other(
    table: lancemem.Table, *, durable: bool, sync: bool
) -> None:
    arguments = [table.uri, str(durable), str(sync)]
    command = [sys.executable, "-c", CHILD, *arguments]
    child = subprocess.run(command, timeout=120, check=False)  # noqa: S603
    assert child.returncode == -signal.SIGKILL
    again = lancemem.open_table(table.uri)
    found = again.search("crashed", text_columns="body", k=ALL).to_table()
    assert found.num_rows == (2_500 if durable else 0)
    fresh = fresh_index(again.to_table(), ["body"], with_position=True)
    check_same(found, scores_of(fresh, "crashed", ["body"]))
    log = again.search("log", text_columns="body", k=ALL).to_table()
    check_same(log, scores_of(fresh, "log", ["body"]))
