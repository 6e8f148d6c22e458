"""The data source `lancemem`: reads, filters, both phases of a write, and what it refuses."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark import TaskContext

import lancemem
from lancemem.spark import LancememTable, reader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("v", pa.float64()),
    ]
)


def rows(spark: SparkSession, start: int, end: int, v: str = "id / 2") -> DataFrame:
    return spark.range(start, end, 1, 3).selectExpr(
        "id", "concat('n', id % 3) name", f"cast({v} as double) v"
    )


def save(frame: DataFrame, uri: str, **options: str) -> None:
    frame.write.format("lancemem").mode("append").options(**options).save(uri)


def stored(uri: str) -> dict[int, float | None]:
    found = lancemem.open_table(uri).scan().to_table()
    return dict(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))


def test_a_table_is_created_upserted_deleted_from_and_replaced_by_the_format_alone(
    spark: SparkSession, table_uri: str
) -> None:
    with pytest.raises(Exception, match="primaryKey"):
        save(rows(spark, 0, 10), table_uri)
    save(rows(spark, 0, 1000), table_uri, primaryKey="id", shards="4")
    save(rows(spark, 500, 1500, "-id"), table_uri)
    save(spark.range(0, 100).toDF("id"), table_uri, op="delete")
    expected = {n: n / 2 for n in range(100, 500)} | {n: float(-n) for n in range(500, 1500)}
    assert stored(table_uri) == expected
    changes = spark.createDataFrame(
        [(100, "x", 1.0, "U"), (101, None, None, "D")], "id long, name string, v double, op string"
    )
    save(changes, table_uri, opColumn="op")
    del expected[101]
    assert stored(table_uri) == expected | {100: 1.0}
    rows(spark, 90, 110).write.format("lancemem").mode("overwrite").save(table_uri)
    assert stored(table_uri) == {n: n / 2 for n in range(90, 110)}
    table = lancemem.open_table(table_uri)
    table.compact()
    assert stored(table_uri) == {n: n / 2 for n in range(90, 110)}
    for option in ({"op": "delete"}, {"opColumn": "op"}):
        writer = changes.write.format("lancemem").mode("overwrite").options(**option)
        with pytest.raises(Exception, match="replaces all rows"):
            writer.save(table_uri)
    assert stored(table_uri) == {n: n / 2 for n in range(90, 110)}


def test_a_table_that_changes_create_has_no_column_of_operations(
    spark: SparkSession, table_uri: str
) -> None:
    changes = spark.createDataFrame(
        [(1, "n", 1.0, "I"), (2, "n", 2.0, "U"), (3, None, None, "D")],
        "id long, name string, v double, op string",
    )
    with pytest.raises(Exception, match="no column 'kind'"):
        save(changes, table_uri, primaryKey="id", opColumn="kind")
    assert not Path(table_uri).exists()
    for _ in range(2):
        save(changes, table_uri, primaryKey="id", opColumn="op")
    assert pa.schema(lancemem.open_table(table_uri).schema).names == SCHEMA.names
    assert stored(table_uri) == {1: 1.0, 2: 2.0}


def test_a_batch_with_a_transaction_of_its_application_is_written_once(
    spark: SparkSession, table_uri: str
) -> None:
    txn = {"txnAppId": "nightly", "txnVersion": "3"}
    save(rows(spark, 0, 10), table_uri, primaryKey="id", **txn)
    save(rows(spark, 0, 10, "-1"), table_uri, **txn)
    assert stored(table_uri) == {n: n / 2 for n in range(10)}
    with pytest.raises(Exception, match="comes too late"):
        save(rows(spark, 0, 10, "-1"), table_uri, txnAppId="nightly", txnVersion="2")
    with pytest.raises(Exception, match="go together"):
        save(rows(spark, 0, 10), table_uri, txnAppId="nightly")


@pytest.mark.parametrize("pushdown", ["true", "false"])
def test_reads_prune_and_one_frame_answers_many_queries_whether_spark_may_push_or_not(
    spark: SparkSession, table_uri: str, pushdown: str
) -> None:
    LancememTable.create(
        spark, table_uri, schema=SCHEMA, primary_key="id", sharding=lancemem.bucket("id", 2)
    ).upsert(rows(spark, 0, 100))
    before = spark.conf.get(PUSHDOWN) or "false"
    spark.conf.set(PUSHDOWN, pushdown)
    try:
        read = spark.read.format("lancemem").load(table_uri)
        assert read.columns == SCHEMA.names
        assert read.count() == 100
        some = read.where("v > 10 and name = 'n1' and id in (22, 25, 28, 97, 98)").select("v", "id")
        assert sorted(map(tuple, some.collect())) == [
            (11.0, 22),
            (12.5, 25),
            (14.0, 28),
            (48.5, 97),
        ]
        assert read.where("id = 5 or v = 3").count() == 2
        assert read.count() == 100
        narrow = spark.read.format("lancemem").option("columns", "v, id").load(table_uri)
        assert narrow.where("id < 2").sort("id").collect() == [(0.0, 0), (0.5, 1)]
        pruned = spark.read.format("lancemem").schema("id long").load(table_uri)
        assert pruned.agg({"id": "sum"}).collect() == [(4950,)]
        engine = spark.read.format("lancemem").option("where", "id % 10 = 3").load(table_uri)
        assert engine.count() == 10
    finally:
        spark.conf.set(PUSHDOWN, before)


def test_what_spark_cannot_do_here_says_what_to_do_instead(
    spark: SparkSession, table_uri: str
) -> None:
    save(rows(spark, 0, 10), table_uri, primaryKey="id")
    spark.sql(f"create temporary view t using lancemem options (path '{table_uri}')")
    assert spark.sql("select count(*) from t where id < 5").collect() == [(5,)]
    spark.sql("insert into t select 100L, 'x', 1d")
    assert spark.sql("select v from t where id = 100").collect() == [(1.0,)]
    # Another program may leave such a name: the JVM creates it without asking the format.
    spark._jsparkSession.sql(
        "create table catalogued (id long, name string, v double) using lancemem"
    )
    for statement in ("select * from catalogued", "insert into catalogued select 1L, 'x', 1d"):
        with pytest.raises(Exception, match="TEMPORARY VIEW"):
            spark.sql(statement).collect()
    merge = "merge into catalogued t using t s on t.id = s.id when matched then delete"
    with pytest.raises(Exception, match=r"(?i)merge|not support"):
        spark.sql(merge)
    spark.sql("drop table catalogued")
    spark.sql("drop view t")
    cases: list[tuple[Callable[[], object], str]] = [
        (lambda: spark.read.format("lancemem").load(), "needs a path"),
        (lambda: spark.read.format("lancemem").schema("nope int").load(table_uri).count(), "nope"),
        (lambda: spark.read.format("lancemem").schema("id int").load(table_uri).count(), "bigint"),
        (lambda: save(rows(spark, 0, 1).drop("v"), table_uri), "no column 'v'"),
        (lambda: save(rows(spark, 0, 1), table_uri, op="merge"), "got 'merge'"),
        (
            lambda: save(rows(spark, 0, 1), table_uri + "2", primaryKey="id", shards="four"),
            "option shards is a whole number of at least 1, got 'four'",
        ),
        (lambda: save(rows(spark, 0, 1), table_uri, opp="x"), "unknown option 'opp'"),
        (lambda: save(rows(spark, 0, 1), table_uri, op="delete", opColumn="name"), "give one of"),
        (lambda: save(rows(spark, 0, 1), table_uri + "2", op="merge", primaryKey="id"), "got 'm"),
        (lambda: save(rows(spark, 0, 1), table_uri, opColumn=""), "opColumn names a column"),
        (lambda: save(rows(spark, 0, 1), table_uri, primaryKey="v"), "the primary key 'id', not"),
        (lambda: save(rows(spark, 0, 1), table_uri, primaryKey="id", shards="7"), "1 shards, not"),
        (lambda: spark.read.format("lancemem").load([table_uri, table_uri]), "needs one path"),
        (
            lambda: (
                spark.readStream.format("lancemem")
                .load(table_uri)
                .writeStream.format("noop")
                .option("checkpointLocation", table_uri + "-c")
                .start()
                .awaitTermination(60)
            ),
            "readChangeFeed",
        ),
    ]
    for call, message in cases:
        with pytest.raises(Exception, match=message):
            call()
    assert not Path(table_uri + "2").exists()


def test_no_name_of_sparks_catalogue_is_made_for_a_table_and_nothing_is_written(
    spark: SparkSession, table_uri: str, tmp_path: Path
) -> None:
    few = rows(spark, 0, 5)
    path = str(tmp_path / "named.lance")
    columns = "id long, name string, v double"
    writer = few.write.format("lancemem").mode("append").option("primaryKey", "id")
    stream = spark.readStream.format("rate").load().selectExpr("value id", "'x' name", "0d v")
    streaming = stream.writeStream.format("lancemem").option("checkpointLocation", table_uri + "-c")
    options = f"options (path '{path}', primaryKey 'id')"
    makers: dict[str, Callable[[], object]] = {
        "saveAsTable": lambda: writer.saveAsTable("made"),
        "saveAsTable with a path": lambda: writer.option("path", path).saveAsTable("made"),
        "saveAsTable of a format": lambda: few.write.saveAsTable("made", format="lancemem"),
        "writeTo": lambda: few.writeTo("made").using("lancemem").option("path", path).create(),
        "toTable": lambda: streaming.toTable("made"),
        "toTable with a path": lambda: streaming.option("path", path).toTable("made"),
        "createTable": lambda: spark.catalog.createTable("made", path, "lancemem"),
        "create table": lambda: spark.sql(f"create table made ({columns}) using lancemem"),
        "of a select": lambda: spark.sql(
            f"create or replace table made using `lancemem` {options}\nas select 1L id, 'x' name"
        ),
        "in lines": lambda: spark.sql(
            f"/* view */ CREATE TABLE made -- a view\nUSING lancemem {options}"
        ),
    }
    for name, make in makers.items():
        with pytest.raises(lancemem.InvalidInputError, match=r"save\(path\).*TEMPORARY VIEW"):
            make()
        assert not spark.catalog.tableExists("made"), name
        assert not Path(path).exists(), name
    # The error that a program gets which runs SQL without the wrapper.
    save(few, path, primaryKey="id")
    for text in (f"create table made using lancemem location '{path}'",
                 "create table made using lancemem as select 1L id"):  # fmt: skip
        with pytest.raises(Exception, match=r"save\(path\)"):
            spark._jsparkSession.sql(text)
        assert not spark.catalog.tableExists("made")
    spark.sql("create table other using parquet as select 'USING lancemem' t")
    spark.sql("drop table other")


def test_a_lance_table_is_read_and_written_once_it_is_enabled(
    spark: SparkSession, table_uri: str
) -> None:
    key = {b"lance-schema:unenforced-primary-key": b"true"}
    schema = SCHEMA.set(0, SCHEMA.field("id").with_metadata(key))
    data = pa.table({"id": [1], "name": ["n"], "v": [0.5]}, schema=schema)
    pytest.importorskip("lance").write_dataset(data, table_uri)
    for use in (
        lambda: LancememTable.forPath(spark, table_uri),
        lambda: spark.read.format("lancemem").load(table_uri).count(),
        lambda: save(rows(spark, 1, 3), table_uri),
        lambda: save(rows(spark, 1, 3), table_uri, primaryKey="id"),
    ):
        with pytest.raises(Exception, match="without a MemWAL index"):
            use()
    LancememTable.enable(spark, table_uri)
    save(rows(spark, 1, 3), table_uri)
    assert spark.read.format("lancemem").load(table_uri).count() == 2


def test_a_table_without_a_key_goes_by_none(spark: SparkSession, table_uri: str) -> None:
    lancemem.create_table(table_uri, SCHEMA)
    save(rows(spark, 0, 2), table_uri, op="append")
    table = LancememTable.forPath(spark, table_uri)
    for call in (
        lambda: table.delete(spark.range(1)),
        lambda: table.lookup(spark.range(1)),
        lambda: (
            rows(spark, 0, 1)
            .write.format("lancemem")
            .mode("overwrite")
            .option("op", "append")
            .save(table_uri)
        ),
    ):
        with pytest.raises(Exception, match="no primary key"):
            call()
    assert table.toDF().count() == 2


# Folders of SSTables without a generation, which only a commit assigns.
STAGED = "*_gen_0"


def failing_behind_the_others(frame: DataFrame, uri: str, runs: int) -> DataFrame:
    """Let the last of three tasks fail when so many SSTables were staged."""

    def fail(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        yield from batches
        if context.partitionId() < 2:
            return
        end = time.monotonic() + 60
        while len(list(Path(uri).rglob(STAGED))) < runs and time.monotonic() < end:
            time.sleep(0.01)
        # Spark hears of them a moment later.
        time.sleep(1)
        raise RuntimeError(f"{len(list(Path(uri).rglob(STAGED)))} runs are staged")

    return frame.mapInArrow(fail, frame.schema)


def test_a_write_whose_task_fails_leaves_nothing_behind(
    spark: SparkSession, table_uri: str
) -> None:
    save(rows(spark, 0, 10), table_uri, primaryKey="id")
    linked = set(Path(table_uri).rglob(STAGED))
    # One SSTable of each task but the last.
    runs = len(linked) + 2
    broken = failing_behind_the_others(rows(spark, 0, 3000), table_uri, runs)
    with pytest.raises(Exception, match=f"{runs} runs are staged"):
        save(broken, table_uri)
    assert stored(table_uri) == {n: n / 2 for n in range(10)}
    assert set(Path(table_uri).rglob(STAGED)) == linked, "what the other tasks staged is removed"


def test_a_large_table_is_divided_by_rows_of_its_sstables(
    spark: SparkSession, table_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = LancememTable.create(spark, table_uri, schema=spark.range(0).schema, primary_key="id")
    table.upsert(spark.range(40_000))
    table.upsert(spark.range(30_000, 50_000))
    table.delete(spark.range(0, 100))
    table.flush()
    assert table.toDF().rdd.getNumPartitions() == 1, "one task reads a small table"
    monkeypatch.setattr(reader, "BYTES_WORTH_A_TASK", 1_000)
    most = reader.TASKS_A_PROCESSOR * spark.sparkContext.defaultParallelism
    frame = table.toDF()
    parts = lancemem.open_table(table_uri).snapshot().num_parts
    assert frame.rdd.getNumPartitions() == min(most, parts) > 1
    assert sorted(row.id for row in frame.collect()) == list(range(100, 50_000))
    even = table.toDF(where="id % 2 = 0", splits=5)
    assert even.rdd.getNumPartitions() == 5
    assert even.count() == 24_950
    assert table.toDF(splits=1).rdd.getNumPartitions() == 1
    # Spark starts processes of other kinds for a format, one after the other.
    assert "BatchScan" not in even._jdf.queryExecution().simpleString()


def test_many_rows_that_a_rule_merges_are_read_by_one_task_until_they_are_compacted(
    spark: SparkSession, table_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "BYTES_WORTH_A_TASK", 1_000)
    table = LancememTable.create(
        spark,
        table_uri,
        schema=spark.range(0).selectExpr("id", "nullif(id, -1) AS n").schema,
        primary_key="id",
        merge_engine="aggregation",
        aggregates={"n": "sum"},
    )
    for first in (0, 40_000):
        table.upsert(spark.range(first, first + 40_000).selectExpr("id", "id AS n"))
        table.compact(flush=True)
    assert table.toDF().rdd.getNumPartitions() == 2
    table.upsert(spark.range(1_000).selectExpr("id", "1L AS n"))
    table.flush()
    assert table.toDF().rdd.getNumPartitions() > 1, "few rows are merged by each task"
    table.upsert(spark.range(20_000).selectExpr("id", "1L AS n"))
    table.flush()
    frame = table.toDF()
    assert frame.rdd.getNumPartitions() == 1
    [total] = frame.selectExpr("sum(n) AS n").collect()
    assert total.n == sum(range(80_000)) + 21_000
    table.compact()
    assert table.toDF().rdd.getNumPartitions() > 1


def test_each_task_of_a_divided_frame_reads_a_part_of_the_snapshot_of_the_call(
    spark: SparkSession, table_uri: str
) -> None:
    table = LancememTable.create(spark, table_uri, schema=spark.range(0).schema, primary_key="id")
    table.upsert(spark.range(100_000))
    table.flush()
    for splits in (2, 3):
        frame = table.toDF(splits=splits)
        parts = [len(part) for part in frame.rdd.glom().collect()]
        assert (len(parts), sum(parts)) == (splits, 100_000)
        assert min(parts) > 0
    table.delete(spark.range(0, 10))
    assert frame.count() == 100_000, "the frame has the rows of the time of its call"
    assert table.toDF(splits=3).count() == 99_990


def test_a_table_is_not_taken_for_small_in_a_join(spark: SparkSession, table_uri: str) -> None:
    table = LancememTable.create(spark, table_uri, schema=spark.range(0).schema, primary_key="id")
    table.upsert(spark.range(1_000))
    big = spark.createDataFrame([(number,) for number in range(0, 2_000, 10)], "id long")
    for frame in (
        table.toDF(),
        table.toDF(splits=2),
        spark.read.format("lancemem").load(table_uri),
    ):
        joined = frame.join(big, "id")
        assert "BroadcastHashJoin" not in joined._jdf.queryExecution().simpleString()
        assert joined.count() == 100


def test_a_read_is_divided_by_fragments_and_its_parts_share_a_snapshot(
    spark: SparkSession, table_uri: str
) -> None:
    table = LancememTable.create(spark, table_uri, schema=spark.range(0).schema, primary_key="id")
    for start in range(0, 400, 100):
        table.upsert(spark.range(start, start + 100))
        table.flush()
        table.compact()
    table.upsert(spark.range(400, 450))
    frame = spark.read.format("lancemem").option("splits", 8).load(table_uri)
    assert frame.rdd.getNumPartitions() > 1
    assert table.toDF().rdd.getNumPartitions() == 1
    assert sorted(row.id for row in frame.collect()) == list(range(450))
    late = table.toDF(where="id >= 300", splits=3)
    assert late.rdd.getNumPartitions() == 3
    assert sorted(row.id for row in late.collect()) == list(range(300, 450))
    fresh = table.toDF()
    assert fresh.count() == 450
    table.delete(spark.range(0, 10))
    assert fresh.count() == 440
    assert table.toDF(splits=8).count() == 440
    assert frame.count() == 450, "all queries of a divided frame read one snapshot"
    with pytest.raises(lancemem.InvalidInputError, match="splits is at least 1"):
        table.toDF(splits=0)
    with pytest.raises(Exception, match="splits is a whole number"):
        spark.read.format("lancemem").option("splits", "many").load(table_uri).count()


def test_rows_without_columns_are_as_many_as_rows(spark: SparkSession, table_uri: str) -> None:
    save(rows(spark, 0, 7), table_uri, primaryKey="id")
    table = LancememTable.forPath(spark, table_uri)
    for none in (
        table.toDF(columns=[]),
        table.toDF(columns=[], splits=2),
        table.toDF(columns=[], where="id >= 0"),
        table.lookup(spark.range(0, 9).toDF("id"), columns=[]),
    ):
        assert (none.columns, none.count()) == ([], 7)
