"""Errors of Spark's tasks reach the caller as lancemem's exceptions, with their first line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.errors import PySparkException

import lancemem
from lancemem.spark import LancememTable, error_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), ("n", pa.int8()), ("x", pa.int64())]
)


@pytest.fixture
def table(spark: SparkSession, table_uri: str, monkeypatch: pytest.MonkeyPatch) -> LancememTable:
    monkeypatch.setattr("lancemem.spark.table.DRIVER_BYTES", 0)
    return LancememTable.create(spark, table_uri, schema=SCHEMA, primary_key="id")


def test_a_verb_raises_what_its_task_raised_with_sparks_error_as_cause(
    spark: SparkSession, table: LancememTable
) -> None:
    bad = spark.sql("select 1L id, 300 n, 5L x")
    good = spark.sql("select 1L id, 3 n, 5L x")
    changes = bad.selectExpr("*", "'I' op", "1 seq")
    table.upsert(good, txn_app_id="load", txn_version=7)
    refused = r"^column 'n' is of type int32, expected int8: row 0 has 300, which does not fit"
    cases: list[tuple[Any, type[Exception], str]] = [
        (lambda: table.upsert(bad), lancemem.InvalidInputError, refused),
        (
            lambda: table.apply_changes(changes, op_column="op", sequence_by="seq"),
            lancemem.InvalidInputError,
            refused,
        ),
        (
            lambda: table.merge(bad, "t.id = s.id").whenMatchedUpdate(set={"n": "s.n"}).execute(),
            lancemem.InvalidInputError,
            "^column 'n' is tinyint, which cannot hold the value 300",
        ),
        (
            lambda: table.upsert(good, txn_app_id="load", txn_version=6),
            lancemem.StaleTxnError,
            "too late",
        ),
        (
            lambda: table.delete(spark.sql("select cast(null as bigint) id")),
            lancemem.InvalidInputError,
            "^primary key column 'id' is null in row 0",
        ),
    ]
    for call, kind, message in cases:
        with pytest.raises(kind, match=message) as raised:
            call()
        assert type(raised.value) is kind
        assert isinstance(raised.value.__cause__, PySparkException)


def test_an_error_of_spark_that_a_user_gets_leads_to_lancemems(
    spark: SparkSession, table: LancememTable
) -> None:
    table.upsert(spark.sql("select 1L id, 3 n, 0L x"))
    bad = spark.sql("select 1L id, 300 n, 5L x").write.format("lancemem").mode("append")
    read = spark.read.format("lancemem").option("where", "1 / x = 1")
    cases: list[tuple[Callable[[], object], str]] = [
        (lambda: bad.save(table.uri), "row 0 has 300"),
        (lambda: bad.save(table.uri + "2"), "there is no table"),
        (lambda: table.toDF(where="1 / x = 1").collect(), "ivide"),
        (lambda: read.load(table.uri).count(), "ivide"),
    ]
    for call, message in cases:
        with pytest.raises(Exception, match=message) as raised:
            call()
        error = error_of(raised.value)
        assert error is not None
        assert message in str(error)
        assert len(str(error).splitlines()) == 1
    with pytest.raises(PySparkException) as other:
        spark.sql("select raise_error('column n') x").collect()
    assert error_of(other.value) is None
