"""Writes of Spark into tables that merge rows: whole rows, nulls, rows that are taken back.

Owns: the modes of upserts, streams and the format, retracts, changes, updates and merges, and tasks
of a user that give some of the columns. Does not own how rows are merged (tests/test_combining.py),
or rules as options (test_merge_rules).
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

import lancemem
from lancemem.spark import TASK_REPORT, LancememTable, task_writer
from tests.spark.test_exactly_once import write_events

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from lancemem.spark import ChangesResult

DDL = "id long, a long, b string, n long"
TOTALS: dict[str, Any] = {
    "merge_engine": "aggregation",
    "aggregates": {
        "a": "sum",
        "b": lancemem.agg.last_non_null_value(ignore_retract=True),
        "n": "count",
    },
}
RETRACT: dict[str, Any] = {**TOTALS, "deletes": "retract"}
PARTIAL: dict[str, Any] = {"merge_engine": "partial_update"}
Row = tuple[int, int | None, str | None, int | None]


def made(spark: SparkSession, uri: str, **rule: Any) -> LancememTable:  # noqa: ANN401
    sharding = lancemem.bucket("id", 2)
    return LancememTable.create(spark, uri, schema=DDL, primary_key="id", sharding=sharding, **rule)


def stored(table: LancememTable) -> list[Row]:
    found = lancemem.open_table(table.uri).scan(order_by="id").to_table().to_pylist()
    return [(row["id"], row["a"], row["b"], row["n"]) for row in found]


@pytest.fixture(params=["driver", "tasks"])
def where(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Write on the driver, or in tasks."""
    if request.param == "tasks":
        monkeypatch.setattr("lancemem.spark.table.DRIVER_BYTES", 0)
    return str(request.param)


def append(rows: DataFrame, uri: str, **options: str) -> None:
    rows.write.format("lancemem").mode("append").options(**options).save(uri)


# --- whole rows, and nulls that change nothing ---


@pytest.mark.usefixtures("where")
def test_whole_rows_set_totals_anew_and_nulls_are_kept(spark: SparkSession, table_uri: str) -> None:
    totals = made(spark, table_uri, **TOTALS)
    for _ in range(2):
        totals.upsert(spark.range(3).selectExpr("id", "5L a", "'x' b"))
    totals.upsert(spark.range(1).selectExpr("id", "1L a", "'y' b"), replace=True)
    assert stored(totals) == [(0, 1, "y", 1), (1, 10, "x", 2), (2, 10, "x", 2)]

    partial = made(spark, f"{table_uri}-partial", **PARTIAL)
    partial.upsert(spark.range(2).selectExpr("id", "5L a", "'x' b"))
    nulls = spark.range(2).selectExpr("id", "CAST(NULL AS LONG) a", "IF(id = 0, 'new', NULL) b")
    partial.upsert(nulls, nulls="keep")
    assert stored(partial) == [(0, 5, "new", None), (1, 5, "x", None)]
    partial.upsert(nulls)
    assert stored(partial) == [(0, None, "new", None), (1, None, None, None)]
    partial.upsert(spark.range(1).selectExpr("id", "7L a", "'all' b", "7L n"), replace=True)
    assert stored(partial)[0] == (0, 7, "all", 7)


def test_a_large_write_has_the_same_modes(
    spark: SparkSession, table_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lancemem.spark.table.DRIVER_BYTES", 0)
    # Every put of a task becomes a flushed SSTable.
    rows = spark.range(0, 400_000, 1, 2).selectExpr("id", "5L a", "repeat('x', 80) b")
    totals = made(spark, table_uri, **TOTALS)
    totals.upsert(rows)
    done = totals.upsert(rows.selectExpr("id", "1L a", "b"), replace=True)
    assert done.num_sstables >= 2
    found = lancemem.open_table(table_uri)
    assert found.count_rows("a = 1 AND n = 1") == 400_000


def test_the_format_has_the_same_modes_as_options(spark: SparkSession, table_uri: str) -> None:
    table = made(spark, table_uri, **PARTIAL)
    append(spark.range(2).selectExpr("id", "5L a", "'x' b"), table_uri)
    append(
        spark.range(1).selectExpr("id", "CAST(NULL AS LONG) a", "'y' b"), table_uri, nulls="keep"
    )
    assert stored(table) == [(0, 5, "y", None), (1, 5, "x", None)]
    whole = spark.range(1).selectExpr("id", "1L a", "'z' b", "CAST(NULL AS LONG) n")
    append(whole, table_uri, replace="true")
    assert stored(table)[0] == (0, 1, "z", None)


@pytest.mark.parametrize("way", ["stream_upsert", "format"])
def test_a_stream_keeps_what_a_null_does_not_give(
    spark: SparkSession, table_uri: str, tmp_path: Path, way: str
) -> None:
    table = made(spark, table_uri, **PARTIAL)
    write_events(tmp_path / "events", 0, [{"id": 0, "a": 5, "b": "x"}, {"id": 1, "a": 6}])
    write_events(tmp_path / "events", 1, [{"id": 0, "b": "y"}, {"id": 1, "b": "z"}])
    reader = spark.readStream.schema("id long, a long, b string").option("maxFilesPerTrigger", 1)
    rows, checkpoint = reader.json(str(tmp_path / "events")), str(tmp_path / "checkpoint")
    if way == "format":
        writer = rows.writeStream.format("lancemem").trigger(availableNow=True)
        writer = writer.option("checkpointLocation", checkpoint).option("nulls", "keep")
        query = writer.start(table_uri)
    else:
        query = table.stream_upsert(
            rows, checkpoint=checkpoint, trigger={"availableNow": True}, nulls="keep"
        )
    assert query.awaitTermination(120)
    assert stored(table) == [(0, 5, "y", None), (1, 6, "z", None)]


def test_a_stream_of_whole_rows_replaces_totals(
    spark: SparkSession, table_uri: str, tmp_path: Path
) -> None:
    table = made(spark, table_uri, **TOTALS)
    for number in range(3):
        write_events(tmp_path / "events", number, [{"id": 0, "a": 5 + number, "b": "x"}])
    reader = spark.readStream.schema("id long, a long, b string").option("maxFilesPerTrigger", 1)
    query = table.stream_upsert(
        reader.json(str(tmp_path / "events")),
        checkpoint=str(tmp_path / "checkpoint"),
        trigger={"availableNow": True},
        replace=True,
    )
    assert query.awaitTermination(120)
    assert stored(table) == [(0, 7, "x", 1)]


REFUSED: dict[str, tuple[dict[str, Any], Callable[[LancememTable, DataFrame], object], str]] = {
    "nulls of sums": (TOTALS, lambda t, df: t.upsert(df, nulls="keep"), "partial_update"),
    "nulls of the format": (
        TOTALS,
        lambda t, df: append(df, t.uri, nulls="keep"),
        "partial_update",
    ),
    "another policy": (
        PARTIAL,
        lambda t, df: t.upsert(df, nulls="drop"),  # type: ignore[arg-type]
        "'set' or 'keep', got 'drop'",
    ),
    "another policy of the format": (
        PARTIAL,
        lambda t, df: append(df, t.uri, nulls="drop"),
        "option nulls is 'set' or 'keep', got 'drop'",
    ),
    "a replace of some columns": (
        PARTIAL,
        lambda t, df: t.upsert(df.drop("b"), replace=True),
        "no column 'b'",
    ),
    "a count that is given": (
        TOTALS,
        lambda t, df: t.upsert(df.selectExpr("*", "1L n"), replace=True),
        "'n' counts rows",
    ),
    "deletes of whole rows": (
        PARTIAL,
        lambda t, df: append(df, t.uri, op="delete", replace="true"),
        "replace and nulls are of upserts",
    ),
    "changes of whole rows": (
        PARTIAL,
        lambda t, df: append(df.selectExpr("*", "'U' op"), t.uri, opColumn="op", nulls="keep"),
        "replace and nulls are of upserts",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_mode_that_a_table_or_a_write_does_not_have_is_refused(
    spark: SparkSession, table_uri: str, case: str
) -> None:
    rule, call, words = REFUSED[case]
    table = made(spark, table_uri, **rule)
    with pytest.raises(Exception, match=words):
        call(table, spark.range(1).selectExpr("id", "5L a", "'x' b"))
    assert stored(table) == []


# --- rows that are taken back ---


@pytest.mark.usefixtures("where")
def test_rows_are_taken_back_once(spark: SparkSession, table_uri: str) -> None:
    table = made(spark, table_uri, **RETRACT)
    for _ in range(2):
        table.upsert(spark.range(3).selectExpr("id", "5L a", "'x' b"))
    for again in (False, True):
        rows = spark.range(2).selectExpr("id", "5L a", "'x' b")
        done = table.retract(rows, txn_app_id="corrections", txn_version=1)
        assert (done.num_shards_already_written == done.num_shards) == again
    assert stored(table) == [(0, 5, "x", 1), (1, 5, "x", 1), (2, 10, "x", 2)]
    assert table.retract(spark.range(1).selectExpr("id", "5L a")).num_rows == 1
    # A delete is the same call in such a table, also through the format.
    table.delete(spark.range(1, 2).selectExpr("id", "5L a", "'ignored' more"))
    append(spark.range(2, 3).selectExpr("id", "1L a"), table_uri, op="delete")
    assert stored(table) == [(0, 0, "x", 0), (1, 0, "x", 0), (2, 9, "x", 1)]


def test_a_table_that_takes_nothing_back_names_the_option(
    spark: SparkSession, table_uri: str
) -> None:
    table = made(spark, table_uri, **TOTALS)
    with pytest.raises(lancemem.InvalidInputError, match="needs deletes='retract'"):
        table.retract(spark.range(1).selectExpr("id", "5L a"))
    taking = made(spark, f"{table_uri}-taking", **RETRACT)
    taking.upsert(spark.range(1).selectExpr("id", "5L a"))
    with pytest.raises(lancemem.InvalidInputError, match=r"retract\(rows\)"):
        taking.delete("a = 5")
    with pytest.raises(lancemem.InvalidInputError, match="'more' of the DataFrame"):
        taking.retract(spark.range(1).selectExpr("id", "5L a", "1 more"))
    assert stored(taking) == [(0, 5, None, 1)]


# --- changes ---


def changes(spark: SparkSession, rows: Sequence[tuple[str, int, int | None, int]]) -> DataFrame:
    return spark.createDataFrame(list(rows), "op string, id long, a long, n long").coalesce(1)


@pytest.mark.usefixtures("where")
def test_sums_follow_changes(spark: SparkSession, table_uri: str) -> None:
    rule = {**RETRACT, "aggregates": {**RETRACT["aggregates"], "n": "sum"}}
    table = made(spark, table_uri, **rule)
    rows = [("I", 0, 5, 1), ("I", 1, 6, 1), ("-U", 0, 5, 1), ("+U", 0, 50, 1), ("-D", 1, 6, 1)]
    frame = changes(spark, rows).selectExpr("*", "1 at")
    done = table.apply_changes(frame, op_column="op", sequence_by="at")
    assert (done.num_upserts, done.num_deletes) == (3, 2)
    assert stored(table) == [(0, 50, None, 1), (1, 0, None, 0)]
    append(frame.drop("at"), table_uri, opColumn="op")
    assert stored(table) == [(0, 100, None, 2), (1, 0, None, 0)]
    with pytest.raises(lancemem.InvalidInputError, match="leave keep_newest out"):
        table.apply_changes(frame.drop("at"), op_column="op", sequence_by="a", keep_newest=True)


def test_the_format_adds_up_no_images_either(spark: SparkSession, table_uri: str) -> None:
    table = made(spark, table_uri, **TOTALS)
    frame = changes(spark, [("U", 0, 5, 1)]).drop("n")
    with pytest.raises(Exception, match="would add each image"):
        append(frame, table_uri, opColumn="op")
    assert stored(table) == []


@pytest.mark.usefixtures("where")
def test_a_table_that_orders_events_reads_nothing_for_keep_newest(
    spark: SparkSession, table_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("lancemem.spark.writer._without_late")
    table = made(spark, table_uri, sequence_by="n", delete_retention=timedelta(0))

    def apply(*rows: tuple[str, int, int | None, int]) -> ChangesResult:
        frame = changes(spark, rows).selectExpr("*", "'x' b")
        return table.apply_changes(frame, op_column="op", sequence_by="n", keep_newest=True)

    apply(("I", 0, 1, 20), ("I", 1, 1, 20), ("I", 2, 1, 20))
    # A late delete and a late update lose; a late row loses against a delete.
    done = apply(("D", 0, None, 10), ("U", 1, 9, 10), ("D", 2, None, 30))
    assert (done.num_upserts, done.num_deletes, done.num_late_changes) == (1, 2, 0)
    apply(("U", 2, 9, 25))
    assert stored(table) == [(0, 1, "x", 20), (1, 1, "x", 20)]
    rows = spark.createDataFrame([(0, 7, "y", 15), (1, 7, "y", 25)], DDL)
    table.upsert(rows, sequence_by="n")
    assert stored(table) == [(0, 1, "x", 20), (1, 7, "y", 25)]


# --- updates and merges ---


@pytest.mark.usefixtures("where")
def test_an_update_and_a_merge_write_the_columns_that_change(
    spark: SparkSession, table_uri: str
) -> None:
    table = made(spark, table_uri, **PARTIAL, aggregates={"n": "sum"})
    for _ in range(2):
        table.upsert(spark.range(3).selectExpr("id", "id a", "'x' b", "1L n"))
    table.update("id = 0", {"a": "a + 7"})
    source = spark.range(1, 5).selectExpr("id", "10L a", "'s' b", "id = 2 gone")
    merge = table.merge(source, "t.id = s.id").whenMatchedDelete("s.gone")
    merge = merge.whenMatchedUpdate(set={"a": "t.a + s.a"})
    done = merge.whenNotMatchedInsert(values={"id": "s.id", "b": "s.b", "n": "3"}).execute()
    assert (done.num_rows_updated, done.num_rows_inserted, done.num_rows_deleted) == (1, 2, 1)
    new = [(3, None, "s", 3), (4, None, "s", 3)]
    assert stored(table) == [(0, 7, "x", 2), (1, 11, "x", 2), *new]


@pytest.mark.parametrize("values", [False, True], ids=["all columns", "the same values"])
@pytest.mark.usefixtures("where")
def test_a_merge_that_puts_each_row_reads_nothing(
    spark: SparkSession, table_uri: str, values: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("lancemem.spark.reader.join_by_key")
    table = made(spark, table_uri, **PARTIAL)
    table.upsert(spark.range(2).selectExpr("id", "id a", "'x' b", "1L n"))
    source = spark.range(1, 3).selectExpr("id", "10L a")
    merge = table.merge(source, "t.id = s.id")
    if values:
        given = {"a": "s.a + 1"}
        merge = merge.whenMatchedUpdate(set=given)
        merge = merge.whenNotMatchedInsert(values={"id": "s.id", **given})
    else:
        merge = merge.whenMatchedUpdateAll().whenNotMatchedInsertAll()
    assert not merge.execute().matched
    a = 11 if values else 10
    assert stored(table) == [(0, 0, "x", 1), (1, a, "x", 1), (2, a, None, None)]


def test_assignments_that_would_be_combined_are_refused(
    spark: SparkSession, table_uri: str
) -> None:
    partial = made(spark, table_uri, **PARTIAL, aggregates={"n": "sum"})
    totals = made(spark, f"{table_uri}-totals", **TOTALS)
    source = spark.range(1).selectExpr("id", "1L n")
    calls: list[tuple[Callable[[], object], str]] = [
        (lambda: partial.update("id = 0", {"n": "1"}), "column 'n' has the function 'sum'"),
        (
            lambda: partial.merge(source, "t.id = s.id").whenMatchedUpdateAll(),
            "column 'n' has the function 'sum'",
        ),
        (lambda: totals.update("id = 0", {"b": "'y'"}), r"upsert\(rows, replace=True\)"),
        (lambda: totals.merge(source, "t.id = s.id"), r"upsert\(rows, replace=True\)"),
    ]
    for call, words in calls:
        with pytest.raises(lancemem.InvalidInputError, match=words):
            call()


# --- tasks of a user ---


def reporting(
    uri: str, work: Callable[[Any, pa.RecordBatch], None]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with task_writer(uri) as writer:
            for batch in batches:
                work(writer, batch)
        yield writer.report()

    return run


def test_a_task_gives_other_columns_with_each_put(spark: SparkSession, table_uri: str) -> None:
    table = made(spark, table_uri, **PARTIAL)
    table.upsert(spark.range(4).selectExpr("id", "0L a", "'old' b", "0L n"))

    def work(writer: Any, batch: pa.RecordBatch) -> None:  # noqa: ANN401 - a task sends it by value
        writer.put(batch.select(["id", "a"]))
        writer.put(batch.select(["id", "b"]).slice(1, 1))
        writer.put(batch.select(["id", "n"]), nulls="keep")

    rows = spark.range(0, 4, 1, 1).selectExpr(
        "id", "id + 1 a", "'new' b", "CAST(IF(id = 3, 7, NULL) AS LONG) n"
    )
    table.commit(rows.mapInArrow(reporting(table_uri, work), TASK_REPORT))
    assert stored(table) == [(0, 1, "old", 0), (1, 2, "new", 0), (2, 3, "old", 0), (3, 4, "old", 7)]


def test_a_task_takes_rows_back_and_sets_others_anew(spark: SparkSession, table_uri: str) -> None:
    table = made(spark, table_uri, **RETRACT)
    for _ in range(2):
        table.upsert(spark.range(3).selectExpr("id", "5L a", "'x' b"))

    def work(writer: Any, batch: pa.RecordBatch) -> None:  # noqa: ANN401 - as above
        writer.retract(batch.select(["id", "a"]).slice(0, 1))
        writer.delete(batch.select(["id", "a"]).slice(1, 1))
        writer.put(batch.slice(2, 1), replace=True)

    rows = spark.range(0, 3, 1, 1).selectExpr("id", "5L a", "'y' b")
    table.commit(rows.mapInArrow(reporting(table_uri, work), TASK_REPORT))
    assert stored(table) == [(0, 5, "x", 1), (1, 5, "x", 1), (2, 5, "y", 1)]


def test_a_task_of_another_table_gives_whole_rows(spark: SparkSession, table_uri: str) -> None:
    table = made(spark, table_uri, merge_engine="first_row")
    rows = spark.range(1).selectExpr("id", "5L a")

    def put(writer: Any, batch: pa.RecordBatch) -> None:  # noqa: ANN401 - as above
        writer.put(batch)

    def retract(writer: Any, batch: pa.RecordBatch) -> None:  # noqa: ANN401 - as above
        writer.retract(batch)

    for work, words in ((put, "no column 'b'"), (retract, "merge_engine='first_row'")):
        with pytest.raises(lancemem.InvalidInputError, match=words):
            table.commit(rows.mapInArrow(reporting(table_uri, work), TASK_REPORT))
    assert stored(table) == []
