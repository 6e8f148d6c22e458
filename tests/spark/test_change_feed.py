"""The changes of a table as a batch: options, SQL, `LancememTable.changes`, `apply_changes`.

Owns: what each option reads, that parts have each change once, and what is refused before anything
is read. Not here: streams (test_change_stream), and which rows are changes (tests/test_changes.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

import lancemem
from lancemem.spark import LancememTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("v", pa.int64()),
        pa.field("name", pa.string()),
    ]
)
ADDED = ["_change_type", "_commit_version", "_commit_timestamp"]

Change = tuple[int, int | None, str, int]


def rows(ids: range | list[int], v: int) -> pa.Table:
    keys = list(ids)
    names = [f"n{key}" for key in keys]
    return pa.table({"id": keys, "v": [v] * len(keys), "name": names}, schema=SCHEMA)


def committed(table: lancemem.Table, changed: pa.Table, deleted: list[int] | None = None) -> int:
    """Write, and move everything into the base table; return the version that has it."""
    table.upsert(changed)
    if deleted:
        table.delete(deleted)
    table.compact(flush=True)
    return table.changes().until


@pytest.fixture
def table(table_uri: str) -> lancemem.Table:
    return lancemem.create_table(
        table_uri, SCHEMA, primary_key=["id"], sharding=lancemem.bucket("id", 2)
    )


@pytest.fixture
def versions(table: lancemem.Table) -> list[int]:
    """Make three states: 20 rows; five of them changed and two new; three deleted, one back."""
    return [
        committed(table, rows(range(20), 0)),
        committed(table, rows([*range(5), 20, 21], 1)),
        committed(table, rows([7], 2), deleted=[0, 1, 20]),
    ]


def feed(spark: SparkSession, uri: str, **options: Any) -> DataFrame:  # noqa: ANN401 - options
    reader = spark.read.format("lancemem").option("readChangeFeed", "true")
    return reader.options(**options).load(uri)


def seen(frame: DataFrame) -> list[Change]:
    read = frame.select("id", "v", "_change_type", "_commit_version").collect()
    return sorted(map(tuple, read), key=str)


def derived(table: lancemem.Table, since: int | None, until: int | None = None) -> list[Change]:
    """Return what the engine derives, without Spark."""
    found = table.changes(since, until).to_table()
    columns = found.select(["id", "v", "_change_type", "_commit_version"]).to_pydict().values()
    return sorted(zip(*columns, strict=True), key=str)


def stored(uri: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = lancemem.open_table(uri).scan().to_table().to_pylist()
    return sorted(found, key=lambda row: int(row["id"]))


def test_the_versions_of_the_options_are_both_inclusive_and_each_change_comes_once(
    spark: SparkSession, table: lancemem.Table, versions: list[int]
) -> None:
    first, second, third = versions
    read = feed(spark, table.uri, startingVersion=first + 1, endingVersion=second, splits=4)
    assert read.columns == [*SCHEMA.names, *ADDED]
    assert seen(read) == derived(table, first, second)
    kinds = {row[0]: row[1] for row in read.groupBy("_change_type").count().collect()}
    assert kinds == {"update_preimage": 5, "update_postimage": 5, "insert": 2}
    later = feed(spark, table.uri, startingVersion=second + 1)
    assert seen(later) == derived(table, second, third)
    whole = feed(spark, table.uri)
    assert whole.count() == 19
    assert {row[0] for row in whole.select("_change_type").distinct().collect()} == {"insert"}
    assert seen(feed(spark, table.uri, startingVersion=0)) == derived(table, 0)
    # A feed without changes has its columns and no row.
    assert seen(feed(spark, table.uri, startingVersion=third + 1)) == []


def test_times_start_and_end_a_feed(
    spark: SparkSession, table: lancemem.Table, versions: list[int]
) -> None:
    times = {each.version: each.timestamp for each in table.history()}
    second = times[versions[1]].isoformat()
    read = feed(spark, table.uri, startingTimestamp=second, endingTimestamp=second)
    assert {row[3] for row in seen(read)} <= {versions[1]}
    assert seen(feed(spark, table.uri, startingTimestamp=second))
    at_start = times[min(times)].isoformat()
    assert seen(feed(spark, table.uri, startingTimestamp=at_start)) == derived(table, 0)


def test_columns_and_filters_reach_the_engine(
    spark: SparkSession, table: lancemem.Table, versions: list[int]
) -> None:
    since = versions[0]
    narrow = feed(spark, table.uri, startingVersion=since + 1, columns="v,id", where="v = 1")
    assert narrow.columns == ["v", "id", *ADDED]
    expected = table.changes(since, columns=["id"], filter="v = 1").to_table().num_rows
    assert narrow.count() == expected
    flink = feed(spark, table.uri, startingVersion=since + 1, rowKinds="flink")
    kinds = {row[0] for row in flink.select("_change_type").distinct().collect()}
    assert kinds <= {"+I", "-U", "+U", "-D"}
    reader = spark.read.format("lancemem").option("readChangeFeed", "true")
    chosen = reader.schema("_change_type string, id long").load(table.uri)
    assert chosen.groupBy("_change_type").count().collect() == [("insert", 19)]


def test_sql_reads_a_view_of_changes(
    spark: SparkSession, table: lancemem.Table, versions: list[int]
) -> None:
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW feed USING lancemem OPTIONS (path '{table.uri}', "
        f"readChangeFeed 'true', startingVersion '{versions[0] + 1}')"
    )
    found = spark.sql("SELECT count(*) FROM feed WHERE _change_type = 'delete'").collect()
    deleted = [row for row in derived(table, versions[0]) if row[2] == "delete"]
    assert found == [(len(deleted),)]


def test_changes_of_the_table_has_the_names_of_python_and_of_delta(
    spark: SparkSession, table: lancemem.Table, versions: list[int]
) -> None:
    board = LancememTable.forPath(spark, table.uri)
    expected = derived(table, versions[0], versions[1])
    by_python = board.changes(since=versions[0], until=versions[1])
    assert seen(by_python) == expected
    by_delta = board.changes(startingVersion=versions[0] + 1, endingVersion=versions[1])
    assert seen(by_delta) == expected
    newest = board.changes(since=versions[0])
    committed(table, rows([500], 9))
    # The versions are fixed by the call.
    assert seen(newest) == derived(table, versions[0], versions[2])
    with pytest.raises(lancemem.InvalidInputError, match="name the same end"):
        board.changes(since=1, startingVersion=2)
    with pytest.raises(lancemem.InvalidInputError, match="splits is at least 1"):
        board.changes(since=1, splits=0)


@pytest.mark.parametrize("driver_bytes", [0, 1 << 20])
def test_a_second_table_takes_the_rows_of_a_feed_as_they_are(
    spark: SparkSession,
    table: lancemem.Table,
    versions: list[int],
    monkeypatch: pytest.MonkeyPatch,
    driver_bytes: int,
) -> None:
    monkeypatch.setattr("lancemem.spark.table.DRIVER_BYTES", driver_bytes)
    board = LancememTable.forPath(spark, table.uri)
    uri = f"{table.uri}-mirror"
    mirror = LancememTable.create(spark, uri, schema=SCHEMA, primary_key="id")
    first = mirror.apply_changes(board.changes(until=versions[0]))
    assert (first.num_upserts, first.num_deletes) == (20, 0)
    # Two versions at once: the later change of a key wins.
    mirror.apply_changes(board.changes(since=versions[0]))
    assert stored(uri) == stored(table.uri)
    mirror.apply_changes(board.changes(since=versions[0], row_kinds="flink"))
    assert stored(uri) == stored(table.uri)
    plain = lancemem.create_table(f"{uri}-2", SCHEMA, primary_key=["id"])
    plain.apply_changes(table.changes(0), txn=("mirror", versions[2]))
    plain.apply_changes(table.changes(versions[0]).to_table())
    assert stored(plain.uri) == stored(table.uri)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"changelogLevel": "every"}, 'level of a change feed is "committed"'),
        ({"startingVersion": "-1"}, "startingVersion is a whole number of at least 0"),
        ({"startingVersion": "999"}, "no version 998"),
        ({"startingVersion": "4", "endingVersion": "1"}, "after until"),
        ({"startingVersion": "1", "startingTimestamp": "2026-01-01"}, "name the same end"),
        ({"startingTimestamp": "yesterday"}, "startingTimestamp is a time such as"),
        ({"columns": "id,nothing"}, "nothing"),
        ({"where": "nothing > 3"}, "nothing"),
        ({"rowKinds": "debezium"}, "row_kinds is"),
        ({"splits": "0"}, "splits is a whole number of at least 1"),
        ({"skipUnchanged": "perhaps"}, "skipUnchanged is true or false"),
        ({"maxRowsPerTrigger": "-5"}, "maxRowsPerTrigger is a whole number of at least 1"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss is true or false"),
        ({"consumer": "a/b"}, "a/b"),
        ({"consistency": "durable"}, "unknown option 'consistency'"),
    ],
)
@pytest.mark.usefixtures("versions")
def test_a_bad_option_is_an_error_of_the_load(
    spark: SparkSession, table: lancemem.Table, options: dict[str, str], told: str
) -> None:
    with pytest.raises(Exception, match=told):
        feed(spark, table.uri, **options)


def test_options_of_streams_are_refused_for_a_batch_and_changes_without_their_names(
    spark: SparkSession, table: lancemem.Table, versions: list[int]
) -> None:
    with pytest.raises(Exception, match="unknown option"):
        feed(spark, table.uri, maxVersionsPerTrigger="1").collect()
    board = LancememTable.forPath(spark, table.uri)
    changes = board.changes(since=versions[0])
    with pytest.raises(lancemem.InvalidInputError, match="changes need op_column"):
        board.apply_changes(changes.drop("_change_type"))
    with pytest.raises(lancemem.InvalidInputError, match="no column 'name'"):
        board.apply_changes(board.changes(since=versions[0], columns=["id", "v"]))


def test_a_table_with_a_column_of_a_feed_has_no_feed(spark: SparkSession, table_uri: str) -> None:
    schema = pa.schema([*SCHEMA, pa.field("_change_type", pa.string())])
    lancemem.create_table(table_uri, schema, primary_key=["id"])
    with pytest.raises(Exception, match="_change_type"):
        feed(spark, table_uri)
