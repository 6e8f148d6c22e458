"""The first lines of a user who comes from Delta: aliases, conditions, Delta's names.

Owns: `alias`, `update`, `delete` with a condition, `vacuum`, `detail`, `optimize`, and the refusals
that name the way. Not here: extra columns (test_extra_columns), task_writer (test_task_writer).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql import functions as sf

import lancemem
from lancemem.spark import LancememTable
from lancemem.spark.conditions import _columns_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("n", pa.int32()),
        pa.field("of it", pa.float32()),
    ]
)


@pytest.fixture
def people(spark: SparkSession, table_uri: str) -> LancememTable:
    table = LancememTable.create(
        spark, table_uri, schema=SCHEMA, primary_key="id", sharding=lancemem.bucket("id", 2)
    )
    rows = [
        {"id": n, "name": f"p{n}", "n": None if n == 9 else n, "of it": n / 2} for n in range(10)
    ]
    table.handle.upsert(pa.Table.from_pylist(rows, SCHEMA))
    return table


def names(table: LancememTable) -> dict[int, str]:
    return {row.id: row.name for row in table.toDF(["id", "name"]).collect()}


def test_a_merge_with_aliases_runs_as_in_deltas_page(
    spark: SparkSession, people: LancememTable
) -> None:
    updates = spark.createDataFrame(
        [(1, "new 1", 1, 0.0), (20, "new 20", 2, 0.0)], "id long, name string, n int, `of it` float"
    )
    done = (
        people.alias("people")
        .merge(updates.alias("updates"), "people.id = updates.id")
        .whenMatchedUpdate(set={"name": "updates.name", "n": "people.n + updates.n"})
        .whenNotMatchedInsertAll()
        .execute()
    )
    assert (done.num_rows_updated, done.num_rows_inserted) == (1, 1)
    found = {row.id: (row.name, row.n) for row in people.toDF().collect()}
    assert (found[1], found[20]) == (("new 1", 2), ("new 20", 2))
    # Without the alias "s" would be taken for the source.
    turned = people.alias("s").merge(updates.alias("t"), "t.id = s.id")
    turned.whenMatchedDelete("s.name = 'new 1' AND t.name = 'new 1'").execute()
    assert 1 not in names(people)
    assert people.alias("p").toDF().select("p.id").count() == 10
    with pytest.raises(lancemem.InvalidInputError, match="the table has the alias 'people'"):
        people.alias("people").merge(updates, "t.id = s.id")
    with pytest.raises(lancemem.InvalidInputError, match=r"is text, such as 't\.id = s\.id'"):
        people.merge(updates, sf.expr("t.id = s.id"))


def test_an_alias_shares_the_running_jobs(people: LancememTable) -> None:
    named = people.alias("p")
    with people.start_jobs():
        with pytest.raises(lancemem.InvalidInputError, match="run already"):
            named.start_jobs()
        named.upsert(people.toDF().where("id = 1").selectExpr("id", "'x' name", "n", "`of it`"))
        assert named.stats().jobs.keys() == people.stats().jobs.keys() != set()
    assert names(people)[1] == "x"


def test_rows_are_deleted_by_a_condition_of_spark(
    spark: SparkSession, people: LancememTable
) -> None:
    # Spark's division: the engine's own would keep no fraction.
    assert people.delete("n / 10 > 0.75").num_rows == 1
    assert people.delete(sf.col("name").isin("p0", "p1")).num_rows == 2
    assert people.delete(condition="`of it` = 1.0").num_rows == 1
    assert people.alias("p").delete("p.n = 3 OR upper(p.name) = 'P4'").num_rows == 2
    assert people.delete("false").num_rows == 0
    assert sorted(names(people)) == [5, 6, 7, 9]
    keys = spark.createDataFrame([(5, "ignored")], "id long, other string")
    assert people.delete(keys).num_rows == 1
    for given in ((), (keys, "true")):
        with pytest.raises(lancemem.InvalidInputError, match="pass the condition 'true'"):
            people.delete(*given[:1], condition=given[1] if given else None)
    with pytest.raises(TypeError, match="got list"):
        people.delete([6])  # type: ignore[arg-type]
    assert people.delete("true", txn_app_id="load", txn_version=1).num_rows == 3
    assert names(people) == {}


def test_a_condition_reads_only_its_columns(people: LancememTable) -> None:
    rows = people.toDF()
    assert _columns_of(rows, "n > 1 AND `of it` IS NULL") == ["n", "of it"]
    assert _columns_of(rows.alias("p"), "p.name = 'x'") == ["name"]
    assert _columns_of(rows, "true") == []


def test_columns_are_updated_where_a_condition_holds(people: LancememTable) -> None:
    done = people.update("n >= 8", {"name": "concat(name, '!')", "n": "n + 1L"})
    assert done.num_rows == 1
    assert people.update(set={"of it": sf.lit(0.5)}).num_rows == 10
    named = people.alias("p").update(sf.col("p.id") == 2, {"name": "p.name || p.n"})
    assert named.num_rows == 1
    found = {row.id: tuple(row)[1:] for row in people.toDF().collect()}
    assert (found[8], found[9], found[2]) == (("p8!", 9, 0.5), ("p9", None, 0.5), ("p22", 2, 0.5))


def test_a_repeated_update_changes_nothing(people: LancememTable) -> None:
    for already in (0, 2):
        done = people.update(None, {"n": "n + 1"}, txn_app_id="raise", txn_version=1)
        assert done.num_shards_already_written == already
    assert {row.n for row in people.toDF().where("id = 3").collect()} == {4}


def test_an_update_that_cannot_be_made_is_refused(
    spark: SparkSession, people: LancememTable, table_uri: str
) -> None:
    for given, message in (
        ({}, "at least one column"),
        ({"id": "1"}, "key column 'id' cannot be updated"),
        ({"nope": "1"}, "has no column 'nope'"),
        ({"n": "array(1)"}, "column 'n' is int"),
    ):
        with pytest.raises(lancemem.InvalidInputError, match=message):
            people.update("true", given)
    with pytest.raises(lancemem.InvalidInputError, match="column 'n' is int, which cannot hold"):
        people.update("id = 1", {"n": "1.5"})
    lancemem.create_table(f"{table_uri}-log", SCHEMA)
    log = LancememTable.forPath(spark, f"{table_uri}-log")
    for write in (lambda: log.update("true", {"n": "1"}), lambda: log.delete("true")):
        with pytest.raises(lancemem.InvalidInputError, match="has no primary key"):
            write()
    assert names(people) == {n: f"p{n}" for n in range(10)}


def test_the_table_is_described_and_maintained_by_deltas_names(people: LancememTable) -> None:
    [before] = people.detail().collect()
    assert (before.format, before.location, before.primaryKey) == ("lancemem", people.uri, ["id"])
    assert (before.numShards, before.numBaseRows, before.numLogRows) == (2, 0, 10)
    assert f"{before.name}.lance" == people.uri.rpartition("/")[2]
    people.flush()
    assert people.optimize().executeCompaction().num_rows_written == 10
    [after] = people.detail().collect()
    assert (after.numBaseRows, after.numLogRows) == (10, 0)
    assert after.version > before.version
    assert after.lastModified >= before.lastModified
    assert people.vacuum(0).bytes > 0
    assert people.vacuum().bytes == 0
    assert people.toDF().count() == 10


def test_calls_of_delta_without_a_counterpart_name_the_way(
    spark: SparkSession, people: LancememTable
) -> None:
    ways: tuple[tuple[Callable[[], object], str], ...] = (
        (lambda: LancememTable.forName(spark, "people"), r"LancememTable\.forPath\(spark, path\)"),
        (lambda: people.optimize().where("id = 1"), r"call executeCompaction\(\)"),
        (lambda: people.optimize().executeZOrderBy("name"), r"create_index\(column"),
        (lambda: people.restoreToVersion(1), r"docs/repair\.md"),
    )
    for call, way in ways:
        with pytest.raises(lancemem.InvalidInputError, match=way):
            call()


def test_jobs_have_a_description(spark: SparkSession, people: LancememTable) -> None:
    context = spark.sparkContext
    seen: list[str | None] = []
    really = people._write

    def write(*given: Any, **named: Any) -> Any:  # noqa: ANN401 - passed on
        seen.append(context.getLocalProperty("spark.job.description"))
        return really(*given, **named)

    people._write = write  # type: ignore[method-assign]
    rows = people.toDF().where("id = 1")
    name = people.uri.rpartition("/")[2].removesuffix(".lance")
    people.upsert(rows)
    people.update("id = 1", {"n": "3"})
    people.delete("id = 1")
    people.merge(rows, "t.id = s.id").whenMatchedDelete().execute()
    verbs = ("upsert into", "update of", "delete from", "merge into")
    assert seen == [f"lancemem {verb} {name}" for verb in verbs]
    assert context.getLocalProperty("spark.job.description") is None
    context.setJobDescription("mine")
    try:
        people.upsert(rows)
        assert seen[-1] == context.getLocalProperty("spark.job.description") == "mine"
    finally:
        context.setLocalProperty("spark.job.description", None)  # type: ignore[arg-type]


def test_plans_of_reads_name_the_table(spark: SparkSession, people: LancememTable) -> None:
    name = people.uri.rpartition("/")[2].removesuffix(".lance")
    for frame, text in (
        (people.toDF(splits=1), f"lancemem read of {name}"),
        (people.lookup(spark.range(1).toDF("id")), f"lancemem lookup in {name}"),
    ):
        assert text in frame._jdf.queryExecution().toString()
