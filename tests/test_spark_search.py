"""`LancememTable.search` and `search_join` on a real Spark session.

Owns: the rows and the types of both, the snapshot that the tasks share, and input that is refused
on the driver. Not here: the search itself (test_search).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

import lancemem
from lancemem.spark import LancememTable, error_of
from lancemem.spark.search import QUERIES_A_CALL
from tests.searches import (
    WIDTH,
    Vector,
    add_index,
    array_of,
    brute_force,
    random_vectors,
    rows_of,
    schema_of,
    to_base,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COUNT = 320
VECTORS = random_vectors(np.random.default_rng(31), COUNT)
MODEL: dict[int, Vector | None] = dict(enumerate(VECTORS))
QUERY = random_vectors(np.random.default_rng(32), 1)[0]
QUERIES = random_vectors(np.random.default_rng(33), 12)
ASKED = "question int, embedding array<float>"


@pytest.fixture
def table(spark: SparkSession, table_uri: str) -> LancememTable:
    """Give a table with an index, and rows in the base table, SSTables and logs of two shards."""
    schema = schema_of(pa.field("at", pa.timestamp("us", tz="UTC")))
    made = LancememTable.create(
        spark,
        table_uri,
        schema=schema,
        primary_key="id",
        sharding=lancemem.bucket("id", 2),
    )
    rows = rows_of(range(COUNT), list(VECTORS))
    rows = rows.append_column(schema.field("at"), pa.array(range(COUNT), schema.field("at").type))
    handle = made.handle
    handle.upsert(rows.slice(0, 300))
    to_base(handle)
    add_index(handle)
    handle.upsert(rows.slice(290, 20))
    handle.flush()
    handle.upsert(rows.slice(305))
    return made


def asked(spark: SparkSession, queries: Vector = QUERIES) -> DataFrame:
    """Give questions with their vectors."""
    rows = [(number, query.tolist()) for number, query in enumerate(queries)]
    return spark.createDataFrame(rows, ASKED)


def expected(queries: Vector, k: int) -> dict[int, list[int]]:
    return {
        number: [key for key, _ in brute_force(MODEL, query, k)]
        for number, query in enumerate(queries)
    }


def answers(joined: DataFrame) -> dict[int, list[int]]:
    """Collect the ids of each question in the order of their ranks."""
    found: dict[int, list[int]] = {}
    for row in sorted(joined.collect(), key=lambda row: (row["question"], row["_rank"])):
        mine = found.setdefault(row["question"], [])
        assert row["_rank"] == len(mine)
        mine.append(row["id"])
    return found


# --- search ---


def test_a_search_is_a_dataframe_of_the_nearest_rows_in_order(table: LancememTable) -> None:
    found = table.search(QUERY, k=5, exact=True)
    assert found.schema.simpleString() == (
        "struct<id:bigint,tag:bigint,vec:array<float>,at:timestamp,_distance:float>"
    )
    rows = found.collect()
    assert [row["id"] for row in rows] == [key for key, _ in brute_force(MODEL, QUERY, 5)]
    distances = [row["_distance"] for row in rows]
    assert distances == sorted(distances)
    np.testing.assert_allclose(rows[0]["vec"], VECTORS[rows[0]["id"]])
    assert rows[0]["at"].timestamp() == pytest.approx(rows[0]["id"] / 1e6)


def test_a_search_takes_the_keywords_of_the_table(table: LancememTable) -> None:
    options: dict[str, Any] = {"k": 7, "filter": "tag = 1", "exact": True, "offset": 2}
    found = table.search(QUERY, columns=["tag", "id"], metric="cosine", **options)
    assert found.columns == ["tag", "id", "_distance"]
    engine = table.handle.search(QUERY, columns=["id"], metric="cosine", **options).to_table()
    assert [row["id"] for row in found.collect()] == engine["id"].to_pylist()
    bounds = (None, engine["_distance"][3].as_py())
    near = table.search(QUERY, metric="cosine", distance_range=bounds, **options)
    assert near.count() <= 3
    for more in ({"nprobes": 1}, {"refine_factor": 8}, {"prefilter": False, "filter": "tag = 1"}):
        kwargs: dict[str, Any] = more
        assert table.search(QUERY, **kwargs).count() <= 10


def test_a_batch_has_the_number_of_the_query_first(table: LancememTable) -> None:
    found = table.search(QUERIES, k=3, columns=["id"], exact=True)
    assert found.columns == ["query_index", "id", "_distance"]
    assert dict(found.dtypes)["query_index"] == "int"
    got: dict[int, list[int]] = {}
    for row in found.collect():
        got.setdefault(row["query_index"], []).append(row["id"])
    assert got == expected(QUERIES, 3)


def test_a_search_that_finds_no_row_has_its_columns(table: LancememTable) -> None:
    found = table.search(QUERY, filter="tag > 99")
    assert found.collect() == []
    assert found.columns == ["id", "tag", "vec", "at", "_distance"]


def test_a_dataframe_of_a_search_does_not_change_with_the_table(table: LancememTable) -> None:
    found = table.search(QUERY, k=1, columns=["id"])
    before = found.collect()
    table.handle.delete([before[0]["id"]])
    assert found.collect() == before
    assert table.search(QUERY, k=1, columns=["id"]).collect() != before


def test_a_search_sees_rows_of_jobs_that_run_on_the_driver(
    spark: SparkSession, table: LancememTable
) -> None:
    with table.start_jobs():
        row = (900, 0, QUERY.tolist(), None)
        columns = "id bigint, tag bigint, vec array<float>, at timestamp"
        table.upsert(spark.createDataFrame([row], columns))
        for level in ("durable", "live"):
            consistency: Any = level
            [found] = table.search(QUERY, k=1, consistency=consistency).collect()
            assert (found["id"], found["_distance"]) == (900, 0.0)


def test_an_alias_names_the_columns_of_a_search(table: LancememTable) -> None:
    found = table.alias("t").search(QUERY, k=2).selectExpr("t.id", "t._distance")
    assert found.count() == 2


def test_a_search_that_cannot_be_done_is_an_error_of_lancemem(table: LancememTable) -> None:
    with pytest.raises(lancemem.InvalidInputError, match=str(WIDTH)):
        table.search([0.5] * 3, column="vec")
    with pytest.raises(lancemem.InvalidInputError, match="no column 'colour'"):
        table.search(QUERY, columns=["colour"])
    with pytest.raises(lancemem.InvalidInputError, match="l2, cosine, dot, hamming"):
        table.search(QUERY, metric="l1")  # type: ignore[arg-type]


# --- search_join ---


def test_a_join_has_the_nearest_rows_of_each_row(spark: SparkSession, table: LancememTable) -> None:
    joined = table.search_join(asked(spark), on="embedding", k=4, columns=["id"], exact=True)
    assert joined.columns == ["question", "embedding", "id", "_distance", "_rank"]
    assert [kind for _, kind in joined.dtypes[2:]] == ["bigint", "float", "int"]
    assert answers(joined) == expected(QUERIES, 4)
    for row in joined.where("_rank = 0").collect():
        [(key, distance)] = brute_force(MODEL, np.array(row["embedding"]), 1)
        assert row["id"] == key
        assert row["_distance"] == pytest.approx(distance, rel=1e-5)


def test_a_join_has_all_columns_and_their_types(spark: SparkSession, table: LancememTable) -> None:
    joined = table.search_join(asked(spark), on="embedding", k=1)
    assert [name for name, _ in joined.dtypes] == [
        *("question", "embedding", "id", "tag", "vec", "at", "_distance", "_rank"),
    ]
    [row] = joined.where("question = 3").collect()
    np.testing.assert_allclose(row["vec"], VECTORS[row["id"]])
    assert row["tag"] == row["id"] % 4
    none = table.search_join(asked(spark), on="embedding", k=2, columns=[])
    assert none.columns == ["question", "embedding", "_distance", "_rank"]
    assert none.count() == 2 * len(QUERIES)


def test_a_left_join_keeps_rows_without_nearest_ones(
    spark: SparkSession, table: LancememTable
) -> None:
    some = [(n, None if n % 3 == 0 else query.tolist()) for n, query in enumerate(QUERIES)]
    queries = spark.createDataFrame(some, ASKED)
    inner = table.search_join(queries, on="embedding", k=2, columns=["id"], exact=True)
    wanted = {n: ids for n, ids in expected(QUERIES, 2).items() if n % 3}
    assert answers(inner) == wanted
    left = table.search_join(queries, on="embedding", k=2, columns=["id"], how="left", exact=True)
    alone = left.where("_rank IS NULL").collect()
    assert sorted(row["question"] for row in alone) == [0, 3, 6, 9]
    assert {(row["id"], row["_distance"]) for row in alone} == {(None, None)}
    assert answers(left.where("_rank IS NOT NULL")) == wanted
    nothing = table.search_join(queries, on="embedding", filter="tag > 99", how="left")
    assert nothing.count() == len(QUERIES)
    assert table.search_join(queries, on="embedding", filter="tag > 99").count() == 0


def test_a_join_takes_a_filter_and_a_metric(spark: SparkSession, table: LancememTable) -> None:
    joined = table.search_join(
        asked(spark), on="embedding", k=3, filter="tag = 2", metric="cosine", exact=True
    )
    model = {key: row for key, row in MODEL.items() if key % 4 == 2}
    wanted = {
        number: [key for key, _ in brute_force(model, query, 3, "cosine")]
        for number, query in enumerate(QUERIES)
    }
    assert answers(joined) == wanted


def test_doubles_of_spark_are_vectors_too(spark: SparkSession, table: LancememTable) -> None:
    rows = [(number, [float(x) for x in query]) for number, query in enumerate(QUERIES)]
    queries = spark.createDataFrame(rows, "question int, embedding array<double>")
    joined = table.search_join(queries, on="embedding", k=2, columns=["id"], exact=True)
    assert answers(joined) == expected(QUERIES, 2)


def test_a_join_of_more_rows_than_a_call_takes(spark: SparkSession, table: LancememTable) -> None:
    count = 2 * QUERIES_A_CALL + 100
    queries = random_vectors(np.random.default_rng(34), count)
    joined = table.search_join(
        asked(spark, queries).repartition(2), on="embedding", k=1, columns=["id"], exact=True
    )
    assert answers(joined) == expected(queries, 1)


def test_all_tasks_read_the_snapshot_of_the_call(spark: SparkSession, table: LancememTable) -> None:
    queries = asked(spark).repartition(3)
    joined = table.search_join(queries, on="embedding", k=3, columns=["id"], exact=True)
    table.handle.delete(range(0, COUNT, 2))
    table.compact(flush=True)
    assert answers(joined) == expected(QUERIES, 3)
    after = table.search_join(queries, on="embedding", k=3, columns=["id"], exact=True)
    assert all(key % 2 for ids in answers(after).values() for key in ids)


def test_a_join_of_no_rows_is_empty(spark: SparkSession, table: LancememTable) -> None:
    none = spark.createDataFrame([], ASKED)
    assert table.search_join(none, on="embedding").count() == 0


def test_names_with_a_dot_are_names(spark: SparkSession, table: LancememTable) -> None:
    queries = asked(spark).withColumnRenamed("embedding", "a.b")
    joined = table.search_join(queries, on="a.b", k=2, columns=["id"], exact=True)
    assert answers(joined) == expected(QUERIES, 2)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"on": "vector"}, "no column 'vector'; they have question, embedding"),
        ({"on": "question"}, "an array of numbers"),
        ({"on": "embedding", "column": "tag"}, "tag"),
        ({"on": "embedding", "column": "vectors"}, "vectors"),
        ({"on": "embedding", "columns": ["colour"]}, "no column 'colour'"),
        ({"on": "embedding", "k": 0}, "k"),
        ({"on": "embedding", "filter": "colour = 1"}, "colour"),
        ({"on": "embedding", "how": "outer"}, "'inner' or 'left', got 'outer'"),
        ({"on": "embedding", "metric": "l1"}, "l2, cosine, dot, hamming"),
    ],
    ids=str,
)
def test_a_join_that_cannot_be_done_is_refused_on_the_driver(
    arguments: dict[str, Any], text: str, spark: SparkSession, table: LancememTable
) -> None:
    with pytest.raises((lancemem.InvalidInputError, OverflowError), match=text):
        table.search_join(asked(spark), **arguments)


@pytest.mark.parametrize("name", ["id", "ID", "_distance", "_rank"])
def test_a_name_on_both_sides_says_how_to_rename_it(
    name: str, spark: SparkSession, table: LancememTable
) -> None:
    queries = asked(spark).withColumnRenamed("question", name)
    with pytest.raises(lancemem.InvalidInputError, match=rf"withColumnRenamed\('{name}'"):
        table.search_join(queries, on="embedding")
    renamed = queries.withColumnRenamed(name, f"query_{name.lstrip('_')}")
    assert table.search_join(renamed, on="embedding", k=1).count() == len(QUERIES)


def test_several_columns_of_vectors_have_to_be_told_apart(
    spark: SparkSession, table_uri: str
) -> None:
    other = pa.field("other", pa.list_(pa.float32(), WIDTH))
    schema = schema_of(other)
    table = LancememTable.create(spark, table_uri, schema=schema, primary_key="id")
    rows = rows_of(range(3), list(VECTORS[:3]))
    table.handle.upsert(rows.append_column(other, array_of(list(VECTORS[3:6]), other.type)))
    with pytest.raises(lancemem.InvalidInputError, match=r"vec, other hold vectors; .* column="):
        table.search_join(asked(spark), on="embedding")
    joined = table.search_join(asked(spark), on="embedding", column="other", k=1, columns=["id"])
    assert joined.count() == len(QUERIES)


@pytest.mark.parametrize("vector", [[0.5] * 3, [None, *[0.5] * (WIDTH - 1)]], ids=["width", "null"])
def test_a_vector_that_cannot_be_searched_is_an_error_of_the_action(
    vector: list[Any], spark: SparkSession, table: LancememTable
) -> None:
    queries = spark.createDataFrame([(1, vector)], ASKED)
    joined = table.search_join(queries, on="embedding")
    with pytest.raises(Exception, match="lancemem") as raised:
        joined.collect()
    assert isinstance(error_of(raised.value), lancemem.InvalidInputError)
