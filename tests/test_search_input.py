"""Searches that cannot be done, and what their errors say.

Owns: every argument of `Table.search`, `Snapshot.search` and `scan(nearest=)` that is refused. Not
here: what the arguments do (test_search).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import lancemem
from tests.searches import WIDTH, add_index, array_of, rows_of, schema_of, to_base

if TYPE_CHECKING:
    from tests.conftest import MakeTable

QUERY = [0.5] * WIDTH


@pytest.fixture
def table(make_table: MakeTable) -> lancemem.Table:
    """Give a table with one column of vectors, and rows in the base table and in the log."""
    counts = pa.list_(pa.int32(), WIDTH)
    table = make_table(schema_of(pa.field("counts", counts)))
    vectors = np.random.default_rng(1).normal(size=(20, WIDTH))
    rows = rows_of(range(20), list(vectors))
    rows = rows.append_column("counts", pa.array([[1] * WIDTH] * 20, counts))
    table.upsert(rows.slice(0, 10))
    to_base(table)
    table.upsert(rows.slice(10))
    return table


@pytest.fixture
def two_columns(make_table: MakeTable) -> lancemem.Table:
    """Give a table with two columns of vectors of one width."""
    other = pa.field("other", pa.list_(pa.float32(), WIDTH))
    table = make_table(schema_of(other))
    rows = rows_of(range(5), [np.ones(WIDTH)] * 5)
    table.upsert(rows.append_column(other, array_of([np.zeros(WIDTH)] * 5, other.type)))
    return table


def refused(*texts: str) -> Any:  # noqa: ANN401 - a context manager of pytest
    """Expect an error of the input that contains all of the texts."""
    pattern = "(?s)^" + "".join(f"(?=.*{re.escape(text)})" for text in texts)
    return pytest.raises(lancemem.InvalidInputError, match=pattern)


# --- the query ---


@pytest.mark.parametrize(
    "query",
    [
        [0.5] * 3,
        np.zeros(3),
        np.zeros((2, 3)),
        [[0.5] * 3],
        pa.array([0.5] * 3),
        pa.array([[0.5] * 3, [0.5] * 3]),
    ],
    ids=["list", "numpy", "batch of numpy", "lists", "arrow", "arrow lists"],
)
def test_a_query_of_another_width_names_both_widths(query: Any, table: lancemem.Table) -> None:  # noqa: ANN401
    with refused("vec", str(WIDTH)):
        table.search(query, column="vec").to_table()
    with pytest.raises(lancemem.InvalidInputError, match=r"\b3\b"):
        table.search(query, column="vec").to_table()
    with refused("vec", str(WIDTH)):
        table.search(query).to_table()


def test_vectors_of_a_batch_that_differ_in_width_are_refused(table: lancemem.Table) -> None:
    for query in ([QUERY, [0.5] * 3], pa.array([QUERY, [0.5] * 3])):
        with pytest.raises(lancemem.InvalidInputError, match=r"\b3\b"):
            table.search(query, column="vec").to_table()


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ([], "empty"),
        (np.zeros((0, WIDTH)), "empty"),
        (pa.array([], pa.float32()), "empty"),
        ([*QUERY[1:], float("nan")], "NaN"),
        (np.full(WIDTH, np.nan), "NaN"),
        ([QUERY, [*QUERY[1:], float("nan")]], "NaN"),
        ([*QUERY[1:], None], "null"),
        (pa.array([*QUERY[1:], None]), "null"),
        (pa.array([QUERY, None]), "null"),
    ],
)
def test_a_query_without_a_number_everywhere_is_refused(
    query: Any,  # noqa: ANN401
    text: str,
    table: lancemem.Table,
) -> None:
    for source in (table, table.snapshot()):
        with refused(text):
            source.search(query).to_table()


@pytest.mark.parametrize("query", [["a"] * WIDTH, 7, {"vec": 1}, object(), np.zeros((2, 2, WIDTH))])
def test_a_query_that_holds_no_vectors_is_refused(query: Any, table: lancemem.Table) -> None:  # noqa: ANN401
    with pytest.raises((lancemem.InvalidInputError, TypeError), match="vector"):
        table.search(query).to_table()


# --- the column ---


def test_a_column_that_cannot_be_searched_is_refused(table: lancemem.Table) -> None:
    with refused("vectors", "vec"):
        table.search(QUERY, column="vectors").to_table()
    for column in ("tag", "counts"):
        with refused(column, "vector"):
            table.search(QUERY, column=column).to_table()


def test_several_columns_of_the_width_have_to_be_told_apart(
    two_columns: lancemem.Table,
) -> None:
    with refused("vec", "other", "column="):
        two_columns.search(QUERY).to_table()
    assert two_columns.search(QUERY, column="other", k=2).count_rows() == 2


def test_a_table_without_vectors_says_what_a_vector_is(make_table: MakeTable) -> None:
    with pytest.raises(lancemem.InvalidInputError, match=r"(?i)fixed.?size"):
        make_table().search(QUERY).to_table()


# --- the numbers ---


@pytest.mark.parametrize("k", [0, -1])
def test_k_is_at_least_one(k: int, table: lancemem.Table) -> None:
    for source in (table, table.snapshot()):
        with pytest.raises((lancemem.InvalidInputError, OverflowError), match="k"):
            source.search(QUERY, k=k).to_table()


@pytest.mark.parametrize("name", ["nprobes", "minimum_nprobes", "maximum_nprobes"])
def test_at_least_one_partition_is_searched(name: str, table: lancemem.Table) -> None:
    options: dict[str, Any] = {name: 0}
    with refused(name):
        table.search(QUERY, **options).to_table()


@pytest.mark.parametrize(
    "options",
    [
        {"minimum_nprobes": 3, "maximum_nprobes": 2},
        {"refine_factor": 0},
        {"ef": 0},
        {"offset": -1},
    ],
    ids=str,
)
def test_a_number_that_makes_no_sense_is_refused_by_its_name(
    options: dict[str, Any], table: lancemem.Table
) -> None:
    with pytest.raises((lancemem.InvalidInputError, OverflowError), match=next(iter(options))):
        table.search(QUERY, **options).to_table()


@pytest.mark.parametrize(
    "bounds",
    [(2.0, 1.0), (1.0, 1.0), (float("nan"), None), (None, float("nan")), (1.0,), (1, 2, 3), 3.0],
    ids=str,
)
def test_a_distance_range_is_two_bounds_in_order(bounds: Any, table: lancemem.Table) -> None:  # noqa: ANN401
    with pytest.raises((lancemem.InvalidInputError, TypeError), match="distance_range"):
        table.search(QUERY, distance_range=bounds).to_table()


# --- the other arguments ---


@pytest.mark.parametrize("metric", ["euclid", "", "l1"])
def test_a_metric_that_is_none_lists_the_metrics(metric: Any, table: lancemem.Table) -> None:  # noqa: ANN401
    with refused("l2, cosine, dot, hamming"):
        table.search(QUERY, metric=metric).to_table()


def test_a_metric_that_the_numbers_do_not_have_is_refused(
    table: lancemem.Table, make_table: MakeTable
) -> None:
    with refused("hamming", "uint8"):
        table.search(QUERY, column="vec", metric="hamming").to_table()
    schema = schema_of(value=pa.uint8())
    of_bytes = make_table(schema)
    of_bytes.upsert(rows_of(range(3), [np.ones(WIDTH)] * 3, schema))
    with refused("hamming"):
        of_bytes.search([1] * WIDTH, column="vec", metric="cosine").to_table()


@pytest.mark.parametrize(
    ("condition", "text"),
    [("tag >", "tag >"), ("colour = 'red'", "colour"), ("(tag = 1", "tag = 1")],
)
def test_a_filter_that_cannot_be_parsed_is_refused(
    condition: str, text: str, table: lancemem.Table
) -> None:
    for prefilter in (True, False):
        with refused(text):
            table.search(QUERY, filter=condition, prefilter=prefilter).to_table()


def test_a_column_of_the_result_that_is_not_there_is_named(table: lancemem.Table) -> None:
    with refused("colour"):
        table.search(QUERY, columns=["id", "colour"]).to_table()


def test_a_fast_search_needs_an_index(make_table: MakeTable) -> None:
    table = make_table(schema_of())
    table.upsert(rows_of(range(300), list(np.random.default_rng(2).normal(size=(300, WIDTH)))))
    to_base(table)
    with refused("fast_search", "vec", "index"):
        table.search(QUERY, fast_search=True).to_table()
    add_index(table)
    assert table.search(QUERY, fast_search=True).count_rows() == 10
    with refused("fast_search", "exact"):
        table.search(QUERY, fast_search=True, exact=True).to_table()
    # Its index is of another metric, so no index is left.
    with refused("fast_search"):
        table.search(QUERY, fast_search=True, metric="cosine").to_table()


def test_the_level_and_the_jobs_are_those_of_a_scan(table: lancemem.Table) -> None:
    level: Any = "eventual"
    with refused("'flushed', 'durable' or 'live'"):
        table.search(QUERY, consistency=level).to_table()
    with table.start_job(shard=0) as job, refused("live"):
        table.search(QUERY, jobs=[job]).to_table()


# --- scan(nearest=) ---


@pytest.mark.parametrize(
    ("nearest", "texts"),
    [
        ({"column": "vec", "q": QUERY, "kk": 3}, ["kk"]),
        ({"column": "vec", "k": 3}, ["q"]),
        ({"column": "vec", "q": [0.5] * 3, "k": 3}, ["vec"]),
        ({"column": "vec", "q": QUERY, "k": 0}, ["k"]),
        ({"column": "vec", "q": QUERY, "metric": "l1"}, ["l2, cosine, dot, hamming"]),
        ({"column": "vec", "q": QUERY, "nprobes": 0}, ["nprobes"]),
        ({"column": "vector", "q": QUERY}, ["vector"]),
        ({}, ["q"]),
    ],
    ids=str,
)
def test_what_nearest_cannot_have_is_refused(
    nearest: dict[str, Any], texts: list[str], table: lancemem.Table
) -> None:
    with refused(*texts):
        table.scan(nearest=nearest).to_table()


def test_an_unknown_key_of_nearest_lists_the_known_ones(table: lancemem.Table) -> None:
    nearest = {"column": "vec", "q": QUERY, "top": 3}
    with refused("top", "column", "distance_range"):
        table.scan(nearest=nearest).to_table()


def test_nearest_is_a_dict(table: lancemem.Table) -> None:
    vector: Any = QUERY
    with pytest.raises((lancemem.InvalidInputError, TypeError)):
        table.scan(nearest=vector).to_table()
