"""The offsets of a stream of changes, asked as Spark asks for them, without Spark.

Owns: which versions and fragments a micro-batch has, the pin of its consumer at each step, lost
versions, and the interface of PySpark 4.1. Not here: whole streams (test_change_stream).
"""

from __future__ import annotations

import pickle
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql.datasource import CaseInsensitiveDict

import lancemem
from lancemem.spark import change_stream
from lancemem.spark.source import LancememDataSource

if TYPE_CHECKING:
    from tests.conftest import MakeTable

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.int64())])
Json = dict[str, Any]

with_limits = pytest.mark.skipif(
    not hasattr(change_stream, "_NewReader"), reason="PySpark 4.1 passes no limit"
)


@pytest.fixture
def table(make_table: MakeTable) -> lancemem.Table:
    return make_table(SCHEMA)


def put(table: lancemem.Table, rows: dict[int, int]) -> int:
    """Write rows into the base table, and return the version that has them."""
    before = lance.dataset(table.uri).version
    table.upsert(pa.table({"id": list(rows), "v": list(rows.values())}, schema=SCHEMA))
    table.compact(flush=True)
    # A compaction may rewrite fragments behind its commit, which changes no row.
    [changed] = table.changes(before).versions
    return changed.version


def clean_up(table: lancemem.Table) -> None:
    lance.dataset(table.uri).cleanup_old_versions(timedelta(0), error_if_tagged_old_versions=False)


def reader(table: lancemem.Table, **options: str) -> Any:  # noqa: ANN401 - of Spark's version
    """Make the reader of a stream, as a driver does that starts or restarts."""
    given = CaseInsensitiveDict({"path": table.uri, "readChangeFeed": "true", **options})
    source = LancememDataSource(given)
    return source.streamReader(source.schema())


def reader_of_4_1(table: lancemem.Table, **options: str) -> Any:  # noqa: ANN401
    made = reader(table, **options)
    given = CaseInsensitiveDict(options)
    schema = LancememDataSource(
        CaseInsensitiveDict({"path": table.uri, "readChangeFeed": "true"})
    ).schema()
    return change_stream._OldReader(made._uri, given, schema)


def latest(stream: Any, start: Json) -> Json:  # noqa: ANN401
    """Ask for the end of a micro-batch with the limits of the options."""
    found: Json = stream.latestOffset(start, stream.getDefaultReadLimit())
    return found


def keys(stream: Any, start: Json, end: Json) -> list[tuple[str, int]]:  # noqa: ANN401
    """Read a micro-batch in tasks, and return kinds and keys."""
    found: list[tuple[str, int]] = []
    for partition in stream.partitions(start, end):
        # What a task gets.
        there, part = pickle.loads(pickle.dumps((stream, partition)))  # noqa: S301 - made here
        for batch in there.read(part):
            found += zip(batch["_change_type"].to_pylist(), batch["id"].to_pylist(), strict=True)
    return sorted(found)


def positions(table: lancemem.Table) -> dict[str, int]:
    return {consumer.name: consumer.position for consumer in table.changes_consumers()}


@with_limits
def test_a_micro_batch_is_the_same_for_each_driver_that_plans_it(table: lancemem.Table) -> None:
    put(table, {n: n for n in range(3)})
    stream = reader(table)
    start = stream.initialOffset()
    end = latest(stream, start)
    changed = put(table, {0: 1, 5: 5})
    snapshot = [("insert", n) for n in range(3)]
    assert keys(stream, start, end) == keys(reader(table), start, end) == snapshot
    later = latest(reader(table), end)
    assert later["version"] >= changed
    second = [("insert", 5), ("update_postimage", 0), ("update_preimage", 0)]
    assert keys(reader(table), end, later) == second
    assert latest(stream, later) == later
    assert keys(stream, later, later) == []


@with_limits
def test_limits_hold_together(table: lancemem.Table) -> None:
    versions = [put(table, {n: n, 100 + n: n}) for n in range(4)]
    options = {"startingVersion": str(versions[0])}
    stream = reader(table, maxVersionsPerTrigger="3", maxRowsPerTrigger="4", **options)
    start = stream.initialOffset()
    assert start == {"version": versions[0] - 1, "snapshot": -1}
    ends = []
    while (end := latest(stream, start)) != start:
        ends.append(len(keys(stream, start, end)))
        start = end
    assert [rows for rows in ends if rows] == [4, 4]
    # Trigger.AvailableNow ends at what is there when it starts.
    stream = reader(table, **options)
    stream.prepareForTriggerAvailableNow()
    put(table, {7: 7})
    end = latest(stream, stream.initialOffset())
    assert len(keys(stream, stream.initialOffset(), end)) == 8
    assert latest(stream, end) == end


@with_limits
def test_a_consumer_is_pinned_before_a_batch_is_planned_and_moves_behind_it(
    table: lancemem.Table,
) -> None:
    first = put(table, {1: 1})
    stream = reader(table, consumer="mirror")
    start = stream.initialOffset()
    snapshot = latest(stream, start)
    assert positions(table) == {"mirror": snapshot["version"]}
    assert snapshot["version"] >= first
    put(table, {2: 2})
    clean_up(table)
    assert keys(reader(table, consumer="mirror"), start, snapshot) == [("insert", 1)]
    end = latest(stream, snapshot)
    # The batch is planned and not done: a clean-up leaves both its ends.
    pinned = {"mirror": snapshot["version"], "mirror.planned": end["version"]}
    assert positions(table) == pinned
    put(table, {3: 3})
    clean_up(table)
    stream = reader(table, consumer="mirror")
    assert keys(stream, snapshot, end) == [("insert", 2)]
    # Spark commits a batch when it has stored the offsets of the next one.
    later = latest(stream, end)
    stream.commit(end)
    assert positions(table) == {"mirror": end["version"], "mirror.planned": later["version"]}
    stream.commit(snapshot)
    assert positions(table)["mirror"] == end["version"], "a consumer never moves back"
    # Nothing is planned behind the last batch.
    assert latest(stream, later) == later
    assert positions(table) == {"mirror": later["version"]}
    stream.commit(later)
    assert positions(table) == {"mirror": later["version"]}


def test_a_restart_on_pyspark_4_1_leaves_the_consumer_at_what_is_stored(
    table: lancemem.Table,
) -> None:
    """There Spark names no start: the reader must not take the newest version for it."""
    put(table, {1: 1})
    stream = reader_of_4_1(table, consumer="mirror")
    first = stream.latestOffset()
    assert positions(table) == {"mirror": first["version"]}
    assert keys(stream, stream.initialOffset(), first) == [("insert", 1)]
    stream.commit(first)
    put(table, {2: 2})
    stream = reader_of_4_1(table, consumer="mirror")
    second = stream.latestOffset()
    assert positions(table)["mirror"] == first["version"]
    # The driver dies here, and old versions are removed.
    put(table, {3: 3})
    clean_up(table)
    stream = reader_of_4_1(table, consumer="mirror")
    third = stream.latestOffset()
    assert third["version"] > second["version"]
    assert keys(stream, first, third) == [("insert", 2), ("insert", 3)]
    stream.commit(third)
    assert positions(table) == {"mirror": third["version"]}
    # From the second micro-batch of a run on, the start is known.
    put(table, {4: 4})
    fourth = stream.latestOffset()
    assert keys(stream, third, fourth) == [("insert", 4)]


def test_limits_on_pyspark_4_1_hold_from_the_second_batch_on(table: lancemem.Table) -> None:
    put(table, {1: 1})
    stream = reader_of_4_1(table, maxVersionsPerTrigger="1")
    start = stream.latestOffset()
    assert keys(stream, stream.initialOffset(), start) == [("insert", 1)]
    for n in (2, 3):
        put(table, {n: n})
    found = []
    while (end := stream.latestOffset()) != start:
        found.append(keys(stream, start, end))
        start = end
    assert [batch for batch in found if batch] == [[("insert", 2)], [("insert", 3)]]


@with_limits
@pytest.mark.filterwarnings("ignore:.*failOnDataLoss")
def test_a_snapshot_whose_version_is_lost_is_an_error_or_is_left_out(
    table: lancemem.Table,
) -> None:
    put(table, {0: 0})
    rows = pa.table({"id": [1, 2], "v": [1, 2]}, schema=SCHEMA)
    lance.write_dataset(rows, table.uri, mode="append")
    stream = reader(table, maxRowsPerTrigger="1")
    start = stream.initialOffset()
    middle = latest(stream, start)
    assert middle["snapshot"] == 1
    put(table, {3: 3})
    clean_up(table)
    with pytest.raises(lancemem.LancememError, match="cleaned up"):
        latest(reader(table, maxRowsPerTrigger="1"), middle)
    lax = reader(table, maxRowsPerTrigger="1", failOnDataLoss="false")
    with pytest.warns(UserWarning, match="failOnDataLoss"):
        end = latest(lax, middle)
    with pytest.warns(UserWarning, match="failOnDataLoss"):
        assert keys(lax, middle, end) == []
    put(table, {4: 4})
    found = []
    while (newer := latest(lax, end)) != end:
        found += keys(lax, end, newer)
        end = newer
    assert ("insert", 4) in found


@with_limits
@pytest.mark.filterwarnings("ignore:.*failOnDataLoss")
def test_a_planned_batch_whose_end_is_lost_is_an_error_or_is_left_out(
    table: lancemem.Table,
) -> None:
    """A stream without a consumer, whose start a tag of another program happens to keep."""
    first = put(table, {1: 1})
    lance.dataset(table.uri).tags.create("kept", first)
    stream = reader(table, startingVersion=str(first + 1))
    start = stream.initialOffset()
    put(table, {2: 2})
    end = latest(stream, start)
    put(table, {3: 3})
    put(table, {4: 4})
    clean_up(table)
    with pytest.raises(lancemem.LancememError, match="cleaned up"):
        keys(reader(table, startingVersion=str(first + 1)), start, end)
    lax = reader(table, failOnDataLoss="false")
    assert keys(lax, start, end) == []
    put(table, {5: 5})
    assert keys(lax, end, latest(lax, end)) == [("insert", 5)]


def test_a_table_without_a_key_is_a_stream_too(make_table: MakeTable) -> None:
    table = make_table(SCHEMA, primary_key=[])
    rows = pa.table({"id": [1, 1], "v": [1, 1]}, schema=SCHEMA)
    lance.write_dataset(rows, table.uri, mode="append")
    stream = reader_of_4_1(table)
    end = stream.latestOffset()
    assert keys(stream, stream.initialOffset(), end) == [("insert", 1), ("insert", 1)]
    lance.dataset(table.uri).delete("id = 1")
    later = stream.latestOffset()
    assert keys(stream, end, later) == [("delete", 1), ("delete", 1)]
