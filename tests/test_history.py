"""`Table.history`: the versions of the base table as a person reads them.

Owns: their order, their limit and the count of compacted shards. Not here: the same in Spark
(test_spark_table), reading an old version (test_time_travel).
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import lance
import pyarrow as pa

if TYPE_CHECKING:
    import lancemem


def test_history_is_newest_first_and_names_compactions(table: lancemem.Table) -> None:
    created = table.history()
    for step in range(2):
        table.upsert(pa.table([[step], ["a"], [1.0]], schema=table.schema))
        assert len(table.history()) == len(created) + step, "an upsert makes no version"
        table.start_job(shard=0).close(flush=True)
        table.compact()
    history = table.history()
    assert history[2:] == created
    assert [version.num_compacted_shards for version in history[:2]] == [1, 1]
    assert [version.version for version in history] == list(range(len(history), 0, -1))
    assert table.history(1) == history[:1]
    assert table.history(0) == []
    now = datetime.now(tz=UTC)
    assert all(now - version.timestamp < timedelta(minutes=5) for version in history)


def test_history_has_the_commits_of_other_programs(table: lancemem.Table) -> None:
    rows = pa.table([[1], ["a"], [1.0]], schema=table.schema)
    lance.write_dataset(rows, table.uri, mode="append")
    newest = table.history(1)[0]
    assert (newest.operation, newest.num_compacted_shards) == ("Append", 0)
    assert newest.version == table.stats().base_version
