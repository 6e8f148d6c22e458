"""Merge rules through Spark: the words of `LancememTable`, and the options of the format.

Owns how Spark describes a rule. Does not own which rules there are (tests/test_merge_rules.py).
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

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
