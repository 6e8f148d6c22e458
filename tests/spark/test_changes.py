"""The operations of a change stream, and that no other value becomes an upsert.

Owns: the names of usual change streams through `apply_changes`, on the driver and in tasks, and
through the format; which shards a refused or an empty change reaches. Not here: late and repeated
changes (test_exactly_once).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

import lancemem
from lancemem.spark import LancememTable

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    Row = tuple[int, int | None, str | None, int]

UPSERTS = (
    *("I", "i", "INSERT", "insert", "+I", "c", "r"),
    *("U", "u", "UPDATE", "update", "+U", "update_postimage"),
)
DELETES = ("D", "d", "DELETE", "delete", "-D")
BEFORE = ("-U", "update_preimage")


def frame(spark: SparkSession, rows: list[Row]) -> DataFrame:
    """Make rows that Spark estimates as few."""
    null = "CAST(NULL AS STRING)"
    values = [
        f"({key}, {'NULL' if v is None else v}, {null if op is None else repr(op)}, {seq})"
        for key, v, op, seq in rows
    ]
    made = spark.sql(f"SELECT * FROM VALUES {', '.join(values)} AS t (id, v, op, seq)")  # noqa: S608
    return made.selectExpr("bigint(id)", "bigint(v)", "op", "bigint(seq)")


def on_the_driver(table: LancememTable, changes: DataFrame) -> None:
    table.apply_changes(changes, op_column="op", sequence_by="seq")


def by_tasks(table: LancememTable, changes: DataFrame) -> None:
    """Apply as the format does, which always writes in tasks."""
    writer = changes.drop("seq").write.format("lancemem").mode("append")
    writer.option("opColumn", "op").save(table.uri)


@pytest.fixture
def table(spark: SparkSession, table_uri: str) -> LancememTable:
    schema = spark.createDataFrame([], "id long not null, v long").schema
    table = LancememTable.create(spark, table_uri, schema=schema, primary_key="id")
    table.upsert(spark.range(100, 200).selectExpr("id", "-1L v"))
    return table


def stored(table: LancememTable) -> dict[int, int]:
    found = lancemem.open_table(table.uri).scan().to_table()
    return dict(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))


@pytest.mark.parametrize("apply", [on_the_driver, by_tasks])
def test_the_names_of_usual_change_streams_are_understood(
    spark: SparkSession,
    table: LancememTable,
    apply: Callable[[LancememTable, DataFrame], None],
) -> None:
    upserts: list[Row] = [(100 + number, number, op, 0) for number, op in enumerate(UPSERTS)]
    deletes: list[Row] = [(120 + number, None, op, 0) for number, op in enumerate(DELETES)]
    before: list[Row] = [(130 + number, 7, op, 0) for number, op in enumerate(BEFORE)]
    apply(table, frame(spark, [*upserts, *deletes, *before]))
    expected = dict.fromkeys(range(100, 200), -1) | {key: value for key, value, _, _ in upserts}
    for key, _, _, _ in deletes:
        del expected[key]
    assert stored(table) == expected
    apply(table, frame(spark, before))
    assert stored(table) == expected


@pytest.mark.parametrize("apply", [on_the_driver, by_tasks])
@pytest.mark.parametrize("op", ["t", "", "Delete", None])
def test_an_unknown_operation_is_an_error_and_writes_nothing(
    spark: SparkSession,
    table: LancememTable,
    apply: Callable[[LancememTable, DataFrame], None],
    op: str | None,
) -> None:
    changes = frame(spark, [(100, 1, "U", 0), (101, 2, op, 0)])
    with pytest.raises(Exception, match=f"column 'op' has {op!r}, which is no operation") as caught:
        apply(table, changes)
    if apply is on_the_driver:
        assert isinstance(caught.value, lancemem.InvalidInputError)
    assert stored(table) == dict.fromkeys(range(100, 200), -1)


@pytest.fixture
def two_shards(spark: SparkSession, table_uri: str) -> LancememTable:
    schema = spark.createDataFrame([], "id long not null, v long not null").schema
    return LancememTable.create(
        spark, table_uri, schema=schema, primary_key="id", sharding=lancemem.bucket("id", 2)
    )


def one_of_each(table: LancememTable) -> list[int]:
    """Give a key of each of two shards."""
    shards = pa.array(table.handle.shard_ordinals(pa.table({"id": range(20)}))).to_pylist()
    return [shards.index(0), shards.index(1)]


def epochs(table: LancememTable) -> list[int]:
    return [shard.writer_epoch for shard in table.shards()]


@pytest.mark.parametrize(
    ("v", "op", "told"), [(1, "x", "which is no operation"), (None, "U", "column 'v' is null")]
)
def test_few_changes_that_one_shard_refuses_are_written_in_none(
    spark: SparkSession, two_shards: LancememTable, v: int | None, op: str, told: str
) -> None:
    good, bad = one_of_each(two_shards)
    with pytest.raises(lancemem.InvalidInputError, match=told):
        on_the_driver(two_shards, frame(spark, [(good, 1, "U", 0), (bad, v, op, 0)]))
    assert epochs(two_shards) == [0, 0]
    assert stored(two_shards) == {}


@pytest.mark.parametrize("driver_bytes", [0, 1 << 20])
def test_a_shard_of_which_only_rows_before_updates_come_is_not_claimed(
    spark: SparkSession,
    two_shards: LancememTable,
    monkeypatch: pytest.MonkeyPatch,
    driver_bytes: int,
) -> None:
    monkeypatch.setattr("lancemem.spark.table.DRIVER_BYTES", driver_bytes)
    changed, unchanged = one_of_each(two_shards)
    changes = frame(spark, [(changed, 5, "+U", 0), (unchanged, 7, "-U", 0)])
    done = two_shards.apply_changes(changes, op_column="op", sequence_by="seq")
    assert (done.num_upserts, done.num_shards) == (1, 1)
    assert epochs(two_shards) == [1, 0]
    on_the_driver(two_shards, changes.where("op = '-U'"))
    assert epochs(two_shards) == [1, 0]
    assert stored(two_shards) == {changed: 5}
