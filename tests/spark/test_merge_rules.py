"""Merge rules through Spark: the words of `LancememTable`, and the options of the format.

Owns how Spark describes a rule. Does not own which rules there are (tests/test_merge_rules.py).
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa

import lancemem
from lancemem.spark import LancememTable, merge_rules

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

DDL = "id long, ts long, v double"
SEQUENCED = {"primaryKey": "id", "sequenceBy": "ts", "deleteRetention": "3 days"}


def test_a_table_is_created_with_a_rule_and_keeps_it(spark: SparkSession, table_uri: str) -> None:
    table = LancememTable.create(
        spark, table_uri, schema=DDL, primary_key="id", merge_engine="first_row", sequence_by="ts"
    )
    rule = table.handle.merge_rule
    assert rule is not None
    assert (rule.merge_engine, rule.sequence_by) == ("first_row", ("ts",))
    again = LancememTable.enable(spark, table_uri, merge_engine="first_row", sequence_by=["ts"])
    assert again.handle.merge_rule == rule
    with pytest.raises(lancemem.InvalidInputError, match="a rule cannot be changed"):
        LancememTable.enable(spark, table_uri, merge_engine="deduplicate", sequence_by=["ts"])


def test_a_rule_that_cannot_be_is_refused_before_anything_is_written(
    spark: SparkSession, table_uri: str
) -> None:
    with pytest.raises(lancemem.InvalidInputError, match=r"column 'v'.*'count'.*int64"):
        LancememTable.create(
            spark,
            table_uri,
            schema=DDL,
            primary_key="id",
            merge_engine="aggregation",
            aggregates={"v": lancemem.agg.count()},
        )
    assert not Path(table_uri).exists()


def test_a_write_of_the_format_describes_the_rule_of_its_table(
    spark: SparkSession, table_uri: str
) -> None:
    lancemem.create_table(
        table_uri,
        LancememTable.create(spark, f"{table_uri}-like", schema=DDL, primary_key="id").schema,
        primary_key="id",
        sequence_by="ts",
        delete_retention=timedelta(days=3),
    )
    frame = spark.range(3).selectExpr("id", "id ts", "cast(id as double) v")
    writer = frame.write.format("lancemem").mode("append")
    with pytest.raises(Exception, match="a rule cannot be changed"):
        writer.options(**SEQUENCED, mergeEngine="first_row").save(table_uri)


OPTIONS: list[tuple[dict[str, str], dict[str, Any]]] = [
    ({}, {}),
    ({"primaryKey": "id"}, {}),
    ({"mergeEngine": "first_row"}, {"merge_engine": "first_row"}),
    ({"sequenceBy": "ts, v"}, {"sequence_by": ["ts", "v"]}),
    ({"aggregates": "v=sum, n = count"}, {"aggregates": {"v": "sum", "n": "count"}}),
    (
        {"sequenceGroups": "ts=v; day,n = a,b"},
        {"sequence_groups": {("ts",): ["v"], ("day", "n"): ["a", "b"]}},
    ),
    ({"deletes": "remove"}, {"deletes": "remove"}),
    ({"deleteRetention": "7 days"}, {"delete_retention": timedelta(days=7)}),
    ({"deleteRetention": "1 hour"}, {"delete_retention": timedelta(hours=1)}),
    ({"deleteRetention": "0 seconds"}, {"delete_retention": timedelta(0)}),
]


@pytest.mark.parametrize(("options", "arguments"), OPTIONS)
def test_options_are_the_arguments_of_create_table(
    options: dict[str, str], arguments: dict[str, Any]
) -> None:
    assert merge_rules.of_options(options) == arguments


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("aggregates", "v"),
        ("aggregates", "v=sum,"),
        ("aggregates", "=sum"),
        ("sequenceGroups", "ts="),
        ("deleteRetention", "7"),
        ("deleteRetention", "days 7"),
        ("deleteRetention", "7 moons"),
        ("deleteRetention", "99999999999999999999 days"),
    ],
)
def test_an_option_of_another_form_is_named(option: str, text: str) -> None:
    with pytest.raises(lancemem.InvalidInputError, match=option) as caught:
        merge_rules.of_options({option: text})
    assert repr(text) in str(caught.value)


def test_the_first_row_of_a_key_is_not_updated_through_spark(
    spark: SparkSession, table_uri: str
) -> None:
    table = LancememTable.create(
        spark, table_uri, schema=DDL, primary_key="id", merge_engine="first_row"
    )
    rows = spark.createDataFrame([(1, 1, 0.5)], DDL)
    table.upsert(rows)
    calls: list[Callable[[], object]] = [
        lambda: table.update("id = 1", {"v": "v + 1"}),
        lambda: table.merge(rows, "t.id = s.id").whenMatchedUpdateAll().execute(),
    ]
    for call in calls:
        with pytest.raises(lancemem.InvalidInputError, match="merge_engine='first_row'"):
            call()
    assert [tuple(row) for row in table.toDF().collect()] == [(1, 1, 0.5)]


def test_a_merge_deletes_with_the_sequence_of_the_row_that_it_removes(
    spark: SparkSession, table_uri: str
) -> None:
    table = LancememTable.create(spark, table_uri, schema=DDL, primary_key="id", sequence_by="ts")
    table.upsert(spark.createDataFrame([(1, 10, 0.5), (2, 10, 0.5)], DDL))
    source = spark.createDataFrame([(1, 3, 0.0), (3, 3, 3.0)], DDL)
    merge = table.merge(source, "t.id = s.id").whenMatchedDelete("s.v = 0")
    merge.whenNotMatchedInsertAll().execute()
    assert rows_of(table) == [(2, 10, 0.5), (3, 3, 3.0)]
    table.upsert(spark.createDataFrame([(1, 9, 0.7)], DDL))
    assert rows_of(table) == [(2, 10, 0.5), (3, 3, 3.0)]


def test_a_sequence_that_spark_cuts_is_not_written_again(
    spark: SparkSession, table_uri: str
) -> None:
    schema = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("ns")), ("v", pa.float64())])
    handle = lancemem.create_table(table_uri, schema, primary_key="id", sequence_by="ts")
    handle.upsert(pa.table([[1], [1_001], [0.5]], schema=schema))
    source = spark.createDataFrame([(1, 0.0)], "id long, v double")
    table = LancememTable.forPath(spark, table_uri)
    merge = table.merge(source, "t.id = s.id")
    calls: list[Callable[[], object]] = [
        lambda: merge.whenMatchedDelete().execute(),
        lambda: merge.whenMatchedUpdate(set={"v": "s.v"}).execute(),
        lambda: table.update("id = 1", {"v": "v + 1"}),
    ]
    for call in calls:
        with pytest.raises(lancemem.InvalidInputError, match=r"'ts' of sequence_by.*Spark cuts"):
            call()
    stored = handle.scan().to_table()
    assert (stored["ts"].cast("int64").to_pylist(), stored["v"].to_pylist()) == ([1_001], [0.5])
    assert handle.merge(pa.table({"id": [1]})).when_matched_delete().execute().num_rows_deleted == 1
    assert handle.count_rows() == 0


# --- rows that are merged ---


def combined(spark: SparkSession, uri: str, engine: Any, **rule: Any) -> LancememTable:  # noqa: ANN401
    schema = "id long, a long, b string, n long"
    return LancememTable.create(
        spark, uri, schema=schema, primary_key="id", merge_engine=engine, **rule
    )


def rows_of(table: LancememTable) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, table.toDF().collect()))


@pytest.mark.parametrize("few", [True, False], ids=["on the driver", "in tasks"])
def test_a_dataframe_with_some_columns_leaves_the_others(
    spark: SparkSession, table_uri: str, few: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not few:
        monkeypatch.setattr("lancemem.spark.table.DRIVER_BYTES", 0)
    table = combined(spark, table_uri, "partial_update")
    table.upsert(spark.range(2).selectExpr("id", "id + 10 a", "'old' b"))
    table.upsert(spark.range(1, 3).selectExpr("id", "'new' b"))
    assert rows_of(table) == [(0, 10, "old", None), (1, 11, "new", None), (2, None, "new", None)]
    table.compact()
    frame = spark.range(1).selectExpr("id", "7L n")
    frame.write.format("lancemem").mode("append").save(table_uri)
    table.refresh()
    assert rows_of(table)[0] == (0, 10, "old", 7)


def test_a_dataframe_without_a_key_column_names_it(spark: SparkSession, table_uri: str) -> None:
    table = combined(spark, table_uri, "partial_update")
    with pytest.raises(lancemem.InvalidInputError, match="no column 'id'"):
        table.upsert(spark.range(2).selectExpr("id + 10 a"))


def test_a_table_that_takes_whole_rows_still_misses_a_column(
    spark: SparkSession, table_uri: str
) -> None:
    table = LancememTable.create(
        spark, table_uri, schema=DDL, primary_key="id", merge_engine="first_row"
    )
    with pytest.raises(lancemem.InvalidInputError, match="no column 'v'"):
        table.upsert(spark.range(2).selectExpr("id", "id ts"))


def test_sums_add_up_and_a_transaction_counts_once(spark: SparkSession, table_uri: str) -> None:
    table = combined(spark, table_uri, "aggregation", aggregates={"a": "sum", "n": "sum"})
    for _ in range(2):
        rows = spark.range(2).selectExpr("id", "5L a", "1L n")
        table.upsert(rows, txn_app_id="loader", txn_version=1)
    table.upsert(spark.range(1).selectExpr("id", "2L a"))
    assert rows_of(table) == [(0, 7, None, 1), (1, 5, None, 1)]


def test_changes_of_rows_are_no_input_of_an_aggregation(
    spark: SparkSession, table_uri: str
) -> None:
    table = combined(spark, table_uri, "aggregation", aggregates={"a": "sum", "n": "sum"})
    changes = spark.range(2).selectExpr("id", "5L a", "'x' b", "1L n", "'U' op")
    with pytest.raises(lancemem.InvalidInputError, match="would add each image"):
        table.apply_changes(changes, op_column="op", sequence_by="n")
    assert rows_of(table) == []


def test_a_table_that_ignores_deletes_is_not_overwritten(
    spark: SparkSession, table_uri: str
) -> None:
    table = combined(spark, table_uri, "partial_update", deletes="ignore")
    table.upsert(spark.range(2).selectExpr("id", "5L a"))
    frame = spark.range(5, 6).selectExpr("id", "1L a")
    with pytest.raises(Exception, match="deletes='ignore'"):
        frame.write.format("lancemem").mode("overwrite").save(table_uri)
    assert rows_of(table) == [(0, 5, None, None), (1, 5, None, None)]
