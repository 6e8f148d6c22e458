"""LancememTable on a real Spark session: routing, verbs, results, types."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.errors import AnalysisException
from pyspark.sql import functions as sf

import lancemem
from lancemem.spark import ChangesResult, DeleteResult, LancememTable, UpsertResult
from lancemem.spark.size_estimate import UNKNOWN_BYTES, estimated_bytes
from lancemem.spark.table import DRIVER_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.string(), nullable=False),
        pa.field("price", pa.decimal128(12, 2)),
        pa.field("at", pa.timestamp("us", tz="UTC")),
    ]
)


@pytest.fixture
def table(spark: SparkSession, table_uri: str) -> LancememTable:
    return LancememTable.create(
        spark,
        table_uri,
        schema=SCHEMA,
        primary_key=["id", "name"],
        sharding=lancemem.bucket("id", 4),
    )


def rows(spark: SparkSession, start: int, end: int, price: str) -> DataFrame:
    return spark.range(start, end).selectExpr(
        "timestamp_micros(id) at",
        f"if(id % 7 = 0, null, cast({price} as decimal(12,2))) price",
        "concat('n', id % 3) name",
        "id",
    )


@pytest.mark.parametrize(
    "condition",
    [
        "price = 261.91",
        "price IN (2.01, 8191.07)",
        "price BETWEEN 2.005 AND 261.91",
        "price * 2 > 523.815",
        "261.91 <> price",
        "price < 2.005",
    ],
)
@pytest.mark.parametrize("splits", [1, 2])
def test_a_condition_of_the_engine_keeps_the_rows_that_it_keeps_in_spark(
    condition: str, splits: int, spark: SparkSession, table: LancememTable
) -> None:
    prices = ["2.01", "2.00", "261.91", "8191.07", "9999999999.99"]
    frame = spark.createDataFrame(
        [(number, "a", Decimal(price), None) for number, price in enumerate(prices)],
        "id bigint, name string, price decimal(12, 2), at timestamp",
    )
    table.upsert(frame)
    found = table.toDF(["id"], where=condition, splits=splits).collect()
    assert {row.id for row in found} == {row.id for row in frame.where(condition).collect()}


def test_upsert_replaces_delete_removes_and_reads_agree(
    spark: SparkSession, table: LancememTable
) -> None:
    first = table.upsert(rows(spark, 0, 1000, "id / 4"))
    assert isinstance(first, UpsertResult)
    assert (first.num_rows, first.num_shards) == (1000, 4)
    assert first.num_wal_entries >= 4
    table.upsert(rows(spark, 500, 1500, "1.25"))
    gone = table.delete(rows(spark, 0, 100, "0").select("name", "id"))
    assert isinstance(gone, DeleteResult)
    assert gone.num_rows == 100
    read = LancememTable.forPath(spark, table.uri).toDF()
    assert read.columns == SCHEMA.names
    expected = (
        rows(spark, 100, 500, "id / 4")
        .unionByName(rows(spark, 500, 1500, "1.25"))
        .select(*SCHEMA.names)
    )
    assert sorted(map(tuple, read.collect())) == sorted(map(tuple, expected.collect()))


def test_changes_of_one_key_are_applied_in_sequence_order(
    spark: SparkSession, table: LancememTable
) -> None:
    changes = spark.createDataFrame(
        [(9, "I", 1, "a"), (1, "U", 3, "a"), (2, "D", 2, "a"), (7, "D", 4, "b"), (8, "I", 3, "b")],
        "price int, op string, seq int, name string",
    ).selectExpr("5L id", "name", "cast(price as decimal(12,2)) price", "null at", "op", "seq")
    changes = changes.withColumn("at", changes["at"].cast("timestamp"))
    done = table.apply_changes(changes.repartition(3), op_column="op", sequence_by="seq")
    assert done == ChangesResult(
        num_upserts=3, num_deletes=2, num_shards=1, num_wal_entries=done.num_wal_entries
    )
    assert [(r.id, r.name, r.price) for r in table.toDF().collect()] == [(5, "a", 1)]


def test_columns_that_are_missing_or_unknown_are_named(
    spark: SparkSession, table: LancememTable
) -> None:
    with pytest.raises(lancemem.InvalidInputError, match="no column 'at'"):
        table.upsert(rows(spark, 0, 1, "0").drop("at"))
    with pytest.raises(lancemem.InvalidInputError, match="no column 'nope'"):
        table.toDF(columns=["id", "nope"])
    wider = rows(spark, 0, 1, "0").selectExpr("*", "5 extra")
    with pytest.raises(lancemem.InvalidInputError, match="column 'extra' of the DataFrame"):
        table.upsert(wider)
    assert table.upsert(wider, ignore_extra_columns=True).num_rows == 1
    with pytest.raises(lancemem.InvalidInputError, match="column 'id' is named twice"):
        table.toDF(columns=["id", "id"])
    with pytest.raises(TypeError, match=r"got str; \['id'\] is a list of one"):
        table.toDF(columns="id")
    # The error is raised by the call itself, before any task.
    wrong: Any = "eventual"
    for splits in (1, 2):
        with pytest.raises(lancemem.InvalidInputError, match="No field named nope"):
            table.toDF(where="nope = 1", splits=splits)
        with pytest.raises(lancemem.InvalidInputError, match="'eventual'"):
            table.toDF(consistency=wrong, splits=splits)


def test_a_null_whose_parts_are_never_null_is_written_in_every_way(
    spark: SparkSession, table_uri: str
) -> None:
    never = "if(id % 2 = 0, null, named_struct('a', id))"
    given = spark.range(4).selectExpr(
        "id", f"{never} s", f"array({never}) l", f"map('k', {never}) m"
    )
    ways: dict[str, Callable[[LancememTable], object]] = {
        "few": lambda table: table.upsert(given),
        "many": lambda table: table.upsert(given.mapInArrow(lambda rows: rows, given.schema)),
        "merge": lambda table: (
            table.merge(given, "t.id = s.id").whenNotMatchedInsertAll().execute()
        ),
    }
    for name, write in ways.items():
        table = LancememTable.create(
            spark, f"{table_uri}-{name}", schema=given.schema, primary_key="id"
        )
        write(table)
        assert table.toDF().sort("id").collect() == given.sort("id").collect(), name


def test_what_functions_and_generators_make_of_rows_is_not_taken_for_small(
    spark: SparkSession,
) -> None:
    def many(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from [batch] * 1000

    few = spark.range(8).selectExpr("id", "id v")
    for grown in (
        few.mapInArrow(many, "id long, v long"),
        few.selectExpr("id", "explode(sequence(1, 1000000)) v").where("v > 3"),
        few.selectExpr("id", "repeat(cast(v as string), 1000000) v"),
        few.groupBy("id").agg(sf.collect_list("v").alias("v")),
        few.select("id", sf.udf(lambda _: "x" * 1_000_000)("v").alias("v")),
    ):
        assert estimated_bytes(grown) == UNKNOWN_BYTES
    assert estimated_bytes(few) < DRIVER_BYTES
    kept = few.mapInArrow(many, "id long, v long").persist()
    try:
        assert kept.count() == 8000
        assert DRIVER_BYTES > estimated_bytes(kept.select("id", "v")) > 8000
    finally:
        kept.unpersist()


def test_a_version_of_an_application_is_a_whole_number(
    spark: SparkSession, table: LancememTable
) -> None:
    for version in (1.2, "1.7", None, 1 << 70, -(1 << 70)):
        with pytest.raises(lancemem.InvalidInputError, match="txnVersion"):
            table.upsert(rows(spark, 0, 1, "0"), txn_app_id="a", txn_version=cast("int", version))
    with pytest.raises(lancemem.InvalidInputError, match="txnAppId has at most 252 bytes"):
        table.upsert(rows(spark, 0, 1, "0"), txn_app_id="a" * 253, txn_version=1)
    assert table.toDF().count() == 0


def test_a_column_that_a_merge_needs_for_itself_is_refused(
    spark: SparkSession, table: LancememTable
) -> None:
    source = rows(spark, 0, 1, "0").selectExpr("*", "'D' _lancemem_op")
    merge = table.merge(source, "t.id = s.id and t.name = s.name").whenNotMatchedInsertAll()
    with pytest.raises(lancemem.InvalidInputError, match="'_lancemem_op' is lancemem's own"):
        merge.execute()


@pytest.mark.parametrize("number", [3, 200_000])
def test_rows_are_appended_to_a_table_without_a_key(
    spark: SparkSession, table_uri: str, number: int
) -> None:
    lancemem.create_table(table_uri, pa.schema([pa.field("v", pa.int64())]))
    table = LancememTable.forPath(spark, table_uri)
    for _ in range(2):
        assert table.upsert(spark.range(number).selectExpr("id v")).num_rows == number
    assert table.toDF().count() == 2 * number


def test_tasks_write_rows_whose_lists_are_all_empty(spark: SparkSession, table_uri: str) -> None:
    ddl = "id long, items array<struct<sku: string, quantity: int>>"
    table = LancememTable.create(spark, table_uri, schema=ddl, primary_key="id")
    empty = f"CAST(array() AS {ddl.partition('items ')[2]}) AS items"
    frame = spark.range(300).selectExpr("id", empty)
    table.upsert(frame.mapInArrow(lambda batches: batches, frame.schema))
    assert table.toDF().where("size(items) = 0").count() == 300


def test_a_table_without_a_key_is_created(spark: SparkSession, table_uri: str) -> None:
    table = LancememTable.create(spark, table_uri, schema="v long", primary_key=None)
    for _ in range(2):
        table.upsert(spark.range(3).selectExpr("id AS v"))
    assert table.toDF().count() == 6


def test_clauses_of_a_merge_take_their_arguments_in_order_as_in_delta(
    spark: SparkSession, table_uri: str
) -> None:
    table = LancememTable.create(spark, table_uri, schema="id long, n long", primary_key="id")
    table.upsert(spark.range(2).selectExpr("id", "0 AS n"))
    source = spark.range(1, 4).selectExpr("id", "id * 10 AS n").alias("s")
    (
        table.alias("t")
        .merge(source, "t.id = s.id")
        .whenMatchedUpdate("s.n > 0", {"n": "s.n"})
        .whenNotMatchedInsert("s.n < 30", {"id": "s.id", "n": "s.n"})
        .execute()
    )
    assert {(row.id, row.n) for row in table.toDF().collect()} == {(0, 0), (1, 10), (2, 20)}
    merge = table.alias("t").merge(source, "t.id = s.id")
    for refused in (merge.whenMatchedUpdate, merge.whenNotMatchedInsert, merge.withSchemaEvolution):
        with pytest.raises(lancemem.InvalidInputError):
            refused()
    with pytest.raises(lancemem.InvalidInputError, match="anti join"):
        merge.whenNotMatchedBySourceUpdate(set={"n": "0"})


def test_calls_of_delta_without_a_counterpart_name_the_way(
    spark: SparkSession, table: LancememTable
) -> None:
    with pytest.raises(lancemem.InvalidInputError, match=r"LancememTable\.create"):
        LancememTable.createIfNotExists(spark)
    with pytest.raises(lancemem.InvalidInputError, match="upsert the rows"):
        LancememTable.convertToDelta(spark, "parquet.`/x`")
    with pytest.raises(lancemem.InvalidInputError, match="is int: give SQL as text"):
        table.update("id = 1", {"price": cast("Any", 5)})
    with pytest.raises(AnalysisException, match="snapshot"):
        spark.read.format("lancemem").option("versionAsOf", 1).load(table.uri).count()


def test_an_empty_dataframe_claims_no_shard(spark: SparkSession, table: LancememTable) -> None:
    assert table.upsert(rows(spark, 0, 0, "0")) == UpsertResult(
        num_rows=0, num_shards=0, num_wal_entries=0
    )


def test_a_projection_keeps_the_order_asked_for(spark: SparkSession, table: LancememTable) -> None:
    table.upsert(rows(spark, 1, 3, "1"))
    read = table.toDF(columns=["price", "id"])
    assert sorted(map(tuple, read.collect())) == [(1, 1), (1, 2)]


def test_garbage_is_listed_and_collected_from_the_driver(
    spark: SparkSession, table: LancememTable
) -> None:
    table.upsert(rows(spark, 0, 100, "1"))
    table.flush()
    table.compact()
    planned = table.collect_garbage(dry_run=True, older_than=timedelta(0))
    assert {garbage.kind for garbage in planned.garbage} >= {"compacted SSTable"}
    done = table.collect_garbage(older_than=timedelta(0))
    assert done.bytes > 0
    assert table.toDF().count() == 100
    again = table.collect_garbage(dry_run=True, older_than=timedelta(0))
    assert "compacted SSTable" not in {garbage.kind for garbage in again.garbage}


def test_history_lists_versions_newest_first_and_names_compactions(
    spark: SparkSession, table: LancememTable
) -> None:
    before = table.history().collect()
    for price in ("1", "2"):
        table.upsert(rows(spark, 0, 100, price))
        table.flush()
        table.compact()
    history = table.history().collect()
    versions = [row.version for row in history]
    assert versions == sorted(versions, reverse=True)
    compactions = [row for row in history if row.num_compacted_shards > 0]
    assert [row.num_compacted_shards for row in compactions] == [4, 4]
    assert {row.operation for row in compactions} == {"Update"}
    assert len(history) - len(before) == len(compactions)
    assert all(row.timestamp is not None for row in history)
    assert [row.version for row in table.history(1).collect()] == versions[:1]


def test_a_table_takes_its_schema_as_text(spark: SparkSession, table_uri: str) -> None:
    table = LancememTable.create(spark, table_uri, schema="id long, `a b` string", primary_key="id")
    table.upsert(spark.sql("SELECT 1L AS id, 'x' AS `a b`"))
    assert table.toDF(where="`a b` = 'x'").collect() == [(1, "x")]


def test_tasks_look_up_what_the_driver_compacts_in_deletion_vector_mode(
    spark: SparkSession, table: LancememTable
) -> None:
    table.upsert(rows(spark, 0, 1000, "1"))
    table.flush()
    table.compact()
    table.alter(deletion_vectors=True)
    table.upsert(rows(spark, 500, 1500, "2"))
    table.delete(rows(spark, 0, 100, "0").select("name", "id"))
    table.flush()
    vectors = Path(table.uri) / "_lancemem" / "deletion_vectors"
    for written in vectors.glob("*/*.binpb"):
        written.unlink()
    done = table.compact()
    looked_up = {path.parent.name for path in vectors.glob("*/*.binpb")}
    assert looked_up == {shard.shard_id for shard in table.shards()}
    assert (done.num_rows_written, done.num_rows_deleted) == (1000, 600)
    found = table.toDF().selectExpr("count(*) n", "count(distinct id) ids", "min(id) least")
    assert found.first() == (1400, 1400, 100)


def test_a_column_of_spark_in_the_place_of_a_condition_names_the_way(table: LancememTable) -> None:
    condition: Any = sf.col("id") > 3
    with pytest.raises(lancemem.InvalidInputError, match=r"toDF\(\).where\(column\)"):
        table.toDF(where=condition)


def test_a_path_in_the_place_of_a_table_names_the_way(
    spark: SparkSession, table: LancememTable
) -> None:
    path: Any = table.uri
    with pytest.raises(lancemem.InvalidInputError, match=r"forPath\(spark, path\) takes a path"):
        LancememTable(spark, path)
