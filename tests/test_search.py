"""`Table.search` and `scan(nearest=)`: what each argument does, and the columns of the result.

Owns: the forms of a query, every option, order and ties, rows without a distance, types of vectors.
Not here: input that is refused (test_search_input), kinds of tables, levels and snapshots
(test_search_tables), random programs (test_search_model).
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lancemem
from tests.searches import (
    FLOATS,
    METRICS,
    WIDTH,
    Metric,
    Vector,
    add_index,
    array_of,
    brute_force,
    check_exact,
    check_true,
    found_by,
    on_every_level,
    random_vectors,
    rows_of,
    schema_of,
    to_base,
    whole_vectors,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import MakeTable

COUNT = 300
VECTORS = random_vectors(np.random.default_rng(1), COUNT + 120)
# The rows 0 to 39 were replaced twice, 40 to 79 once, 80 to 99 deleted.
NEWEST: dict[int, Vector | None] = {
    **dict(enumerate(VECTORS[:COUNT])),
    **dict(enumerate(VECTORS[COUNT : COUNT + 80])),
    **dict(enumerate(VECTORS[COUNT + 80 : COUNT + 120])),
    **dict.fromkeys(range(80, 100)),
}
QUERY = random_vectors(np.random.default_rng(2), 1)[0]
QUERIES = random_vectors(np.random.default_rng(3), 5)
# All partitions and many candidates: an index of so few rows then finds the right ones.
THOROUGH: dict[str, Any] = {"nprobes": 10, "refine_factor": 30}


@pytest.fixture
def table(make_table: MakeTable) -> lancemem.Table:
    """Give a table with rows in the base table, in an SSTable and in the log."""
    table = make_table(schema_of())
    numbers = VECTORS[COUNT:]
    on_every_level(
        table,
        [
            rows_of(range(COUNT), VECTORS[:COUNT]),
            rows_of(range(80), numbers[:80]),
            rows_of(range(40), numbers[80:120]),
        ],
    )
    table.delete(range(80, 100))
    return table


@pytest.fixture
def indexed(table: lancemem.Table) -> lancemem.Table:
    """Give the same table, with a table index over its base."""
    add_index(table)
    return table


def ids(scan: Any) -> list[int]:  # noqa: ANN401 - a scan
    numbers: list[int] = scan.to_table()["id"].to_pylist()
    return numbers


def nearest_ids(query: Vector, k: int, metric: str = "l2") -> list[int]:
    return [key for key, _ in brute_force(NEWEST, query, k, metric)]


# --- the answer ---


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("exact", [True, False])
def test_a_search_finds_the_nearest_of_the_newest_rows(
    exact: bool,
    metric: Metric,
    table: lancemem.Table,
) -> None:
    found = found_by(table.search(QUERY, k=20, metric=metric, exact=exact))
    check_exact(found, NEWEST, QUERY, 20, metric)
    assert [key for key, _ in found] == nearest_ids(QUERY, 20, metric)


@pytest.mark.parametrize("kind", ["IVF_FLAT", "IVF_PQ", "IVF_SQ", "IVF_HNSW_SQ"])
def test_an_index_of_the_base_decides_speed_and_not_which_rows_exist(
    kind: str, table: lancemem.Table
) -> None:
    add_index(table, kind)
    check_exact(found_by(table.search(QUERY, exact=True)), NEWEST, QUERY, 10)
    check_exact(found_by(table.search(QUERY, **THOROUGH)), NEWEST, QUERY, 10)
    plain = found_by(table.search(QUERY))
    check_true(plain, NEWEST, QUERY)
    assert len(plain) == 10


def test_each_distance_is_the_exact_one_whatever_the_index_reports(
    indexed: lancemem.Table,
) -> None:
    for query in QUERIES:
        check_true(found_by(indexed.search(query, k=50, refine_factor=1)), NEWEST, query)


def test_k_above_the_number_of_rows_returns_all_rows(indexed: lancemem.Table) -> None:
    for exact in (True, False):
        found = found_by(indexed.search(QUERY, k=10_000, exact=exact))
        check_exact(found, NEWEST, QUERY, 10_000)
        assert len(found) == COUNT - 20


def test_a_table_without_rows_has_no_nearest_ones(make_table: MakeTable) -> None:
    found = make_table(schema_of()).search(QUERY).to_table()
    assert found.num_rows == 0
    assert found.column_names == ["id", "tag", "vec", "_distance"]


# --- the forms of a query and of a result ---


@pytest.mark.parametrize(
    "form",
    [
        np.asarray,
        lambda query: query.astype(np.float64),
        lambda query: query.tolist(),
        lambda query: tuple(query.tolist()),
        pa.array,
        lambda query: pa.array(query.tolist(), pa.float64()),
        lambda query: pa.chunked_array([query[:3], query[3:]]),
    ],
    ids=["numpy", "float64", "list", "tuple", "arrow", "arrow of float64", "chunks"],
)
def test_a_vector_comes_in_each_form(form: Callable[[Vector], Any], table: lancemem.Table) -> None:
    assert ids(table.search(form(QUERY), k=5)) == nearest_ids(QUERY, 5)


@pytest.mark.parametrize(
    "form",
    [
        np.asarray,
        lambda queries: queries.tolist(),
        list,
        lambda queries: array_of(list(queries), pa.list_(pa.float32(), WIDTH)),
        lambda queries: pa.array(queries.tolist(), pa.list_(pa.float32())),
        lambda queries: pa.array(queries.tolist()),
    ],
    ids=["numpy", "lists", "list of arrays", "fixed-size lists", "arrow lists", "doubles"],
)
def test_a_batch_comes_in_each_form_and_names_the_query_of_each_row(
    form: Callable[[Vector], Any], table: lancemem.Table
) -> None:
    found = table.search(form(QUERIES), k=4, columns=["id"]).to_table()
    assert found.column_names == ["query_index", "id", "_distance"]
    assert found.schema.field("query_index").type == pa.int32()
    assert found["query_index"].to_pylist() == [n for n in range(5) for _ in range(4)]
    for number, query in enumerate(QUERIES):
        one = found.filter(pc.equal(found["query_index"], number))
        assert one["id"].to_pylist() == nearest_ids(query, 4)


def test_a_batch_of_one_has_the_column_of_a_batch(table: lancemem.Table) -> None:
    found = table.search([QUERY.tolist()], k=3).to_table()
    assert found["query_index"].to_pylist() == [0, 0, 0]
    assert found["id"].to_pylist() == nearest_ids(QUERY, 3)


def test_a_batch_takes_every_option_as_one_vector_does(indexed: lancemem.Table) -> None:
    options: dict[str, Any] = {"k": 5, "filter": "tag = 1", "offset": 2, "exact": True}
    found = indexed.search(QUERIES, columns=["id"], **options).to_table()
    for number, query in enumerate(QUERIES):
        one = found.filter(pc.equal(found["query_index"], number))["id"].to_pylist()
        assert one == ids(indexed.search(query, columns=["id"], **options))
    batch = indexed.search(QUERIES, columns=["id"]).to_table()
    assert batch.num_rows == 50


def test_the_result_has_the_columns_asked_for_in_their_order_and_the_distance_last(
    table: lancemem.Table,
) -> None:
    found = table.search(QUERY, columns=["tag", "id"]).to_table()
    assert found.column_names == ["tag", "id", "_distance"]
    assert found.schema.field("_distance").type == pa.float32()
    assert found["id"].to_pylist() == nearest_ids(QUERY, 10)
    whole = table.search(QUERY).to_table()
    assert whole.column_names == ["id", "tag", "vec", "_distance"]
    newest = table.get(whole["id"].combine_chunks())
    assert whole.drop_columns(["_distance"]).to_pylist() == newest.to_pylist()


def test_a_search_has_the_forms_of_a_scan(table: lancemem.Table) -> None:
    search = table.search(QUERY, k=3, columns=["id"])
    expected = nearest_ids(QUERY, 3)
    assert isinstance(search, lancemem.Scan)
    assert search.schema.names == ["id", "_distance"]
    assert search.to_pandas()["id"].tolist() == expected
    assert search.to_polars()["id"].to_list() == expected
    assert pa.Table.from_batches(search.to_batches())["id"].to_pylist() == expected
    assert pa.Table.from_batches(search)["id"].to_pylist() == expected
    assert pa.RecordBatchReader.from_stream(search).read_all()["id"].to_pylist() == expected
    assert search.to_reader().read_all()["id"].to_pylist() == expected
    assert search.count_rows() == 3
    assert ids(pickle.loads(pickle.dumps(search))) == expected  # noqa: S301
    assert search._repr_html_().count("<tr>") == 4


def test_a_description_shows_the_beginning_of_the_vector(table: lancemem.Table) -> None:
    shown = repr(table.search([0.5] * WIDTH, k=3, filter="tag = 1"))
    assert shown.startswith(f'Scan("{table.uri}", query=[0.5, 0.5, ')
    assert "k=3, filter='tag = 1'" in shown
    assert "exact" not in shown
    assert len(repr(table.search(np.zeros(2_000)))) < 300 + len(table.uri)


def test_the_plan_names_the_index_that_is_used(indexed: lancemem.Table) -> None:
    assert "vec_idx" in indexed.search(QUERY).explain()
    assert "vec_idx" not in indexed.search(QUERY, exact=True).explain()
    assert "vec_idx" not in indexed.search(QUERY, metric="cosine").explain()
    assert "rows" in indexed.search(QUERY).explain(analyze=True)


# --- order, ties and rows without a distance ---


@pytest.mark.parametrize("metric", ["l2", "dot"])
def test_equal_distances_come_in_the_order_of_the_key_wherever_rows_are(
    metric: Metric,
    make_table: MakeTable,
) -> None:
    vectors = whole_vectors(np.random.default_rng(4), 120, 2)
    model = {number - 60: vector for number, vector in enumerate(vectors)}
    shuffled = np.random.default_rng(5).permutation(list(model)).tolist()
    parts = [
        rows_of(part, [model[key] for key in part], schema_of(width=2))
        for part in (shuffled[:50], shuffled[50:90], shuffled[90:])
    ]
    table = make_table(schema_of(width=2))
    on_every_level(table, parts)
    for k in (1, 7, 30, 120):
        found = found_by(table.search([1, 0], k=k, metric=metric, exact=True))
        assert found == brute_force(model, np.array([1, 0]), k, metric)


def test_the_same_vector_in_every_row_gives_the_smallest_keys(make_table: MakeTable) -> None:
    table = make_table(schema_of())
    rows = rows_of(range(-20, 40), [np.ones(WIDTH)] * 60)
    on_every_level(table, [rows.slice(40), rows.slice(20, 20), rows.slice(0, 20)])
    assert ids(table.search(np.ones(WIDTH), k=25, exact=True)) == list(range(-20, 5))


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("index", [None, "IVF_FLAT", "IVF_PQ"])
def test_rows_without_a_distance_are_never_found(
    index: str | None,
    metric: Metric,
    make_table: MakeTable,
) -> None:
    # An index of PQ needs 256 vectors.
    count = 500
    vectors: list[Vector | None] = list(random_vectors(np.random.default_rng(6), count))
    for place in range(0, count, 10):
        vectors[place] = None
        vectors[place + 1] = np.full(WIDTH, np.nan)
        vectors[place + 2] = np.zeros(WIDTH)
        vectors[place + 3] = np.array([np.nan, *[0.0] * (WIDTH - 1)])
    model = dict(enumerate(vectors))
    table = make_table(schema_of())
    rows = rows_of(model, vectors)
    table.upsert(rows.slice(0, 480))
    to_base(table)
    if index is not None:
        add_index(table, index, metric)
    table.upsert(rows.slice(480))
    for exact in (True, False):
        found = found_by(table.search(QUERY, k=count, metric=metric, exact=exact))
        check_exact(found, model, QUERY, count, metric)
        assert len(found) == (300 if metric == "cosine" else 350)


def test_a_row_whose_vector_became_null_is_not_found_again(table: lancemem.Table) -> None:
    first = nearest_ids(QUERY, 3)
    table.upsert(rows_of(first, [None] * 3))
    assert ids(table.search(QUERY, k=7)) == nearest_ids(QUERY, 10)[3:]


# --- the options ---


def test_a_filter_holds_for_the_newest_row_before_the_nearest_are_chosen(
    indexed: lancemem.Table,
) -> None:
    tags = {number: number % 4 for number in NEWEST}
    for exact in (True, False):
        found = found_by(indexed.search(QUERY, filter="tag = 3", k=15, exact=exact))
        model = {key: vector for key, vector in NEWEST.items() if tags[key] == 3}
        check_true(found, model, QUERY)
        assert len(found) == 15
    moved = nearest_ids(QUERY, 1)
    newer = pa.table({"id": moved, "tag": [7], "vec": [NEWEST[moved[0]]]}, schema=schema_of())
    indexed.upsert(newer)
    old = f"tag = {moved[0] % 4}"
    assert moved[0] not in ids(indexed.search(QUERY, filter=old, exact=True))
    assert ids(indexed.search(QUERY, filter="tag = 7")) == moved
    assert ids(indexed.search(QUERY, filter=pc.field("tag") == 7)) == moved


def test_a_filter_that_few_rows_meet_still_fills_the_result(indexed: lancemem.Table) -> None:
    wanted = "id >= 290 OR id = 5"
    assert sorted(ids(indexed.search(QUERY, filter=wanted, k=20))) == [5, *range(290, 300)]
    assert ids(indexed.search(QUERY, filter="id = 85")) == []
    assert ids(indexed.search(QUERY, filter="tag > 99")) == []


def test_a_filter_is_checked_of_rows_in_memory_without_a_scan_unless_it_can_fail(
    make_table: MakeTable,
) -> None:
    table = make_table(schema_of())
    # Many puts, each a batch in memory, and updates among them.
    for first in range(0, 60, 5):
        table.upsert(rows_of(range(first, first + 5), VECTORS[first : first + 5]))
    table.upsert(rows_of(range(10, 20), VECTORS[100:110]))
    table.upsert(pa.table({"id": [30], "tag": [None], "vec": [VECTORS[30]]}, schema=schema_of()))
    model: dict[int, Vector | None] = dict(enumerate(VECTORS[:60]))
    model.update(zip(range(10, 20), VECTORS[100:110], strict=True))
    tags = {number: number % 5 for number in range(60)} | {n: (n - 10) % 4 for n in range(10, 20)}
    del tags[30]
    for condition, admitted, node in [
        ("tag = 1", {1}, "FlatSearchExec: MemTable"),
        ("tag < 9 AND id >= 0", set(range(9)), "FlatSearchExec: MemTable"),
        ("12 / (tag + 1) = 6", {1}, "DistanceExec"),
        ("tag = 77", set[int](), "FlatSearchExec: MemTable"),
    ]:
        search = table.search(QUERY, filter=condition, k=12)
        assert node in search.explain()
        right = {key: model[key] for key, tag in tags.items() if tag in admitted}
        check_exact(found_by(search), right, QUERY, 12)


def test_a_filter_may_compute(indexed: lancemem.Table) -> None:
    found = found_by(indexed.search(QUERY, filter="id % 7 = 2 AND tag + 1 > 1", exact=True))
    model = {key: row for key, row in NEWEST.items() if key % 7 == 2 and key % 4 > 0}
    check_exact(found, model, QUERY, 10)


def test_without_prefilter_the_condition_is_asked_of_the_k_nearest(table: lancemem.Table) -> None:
    nearest = nearest_ids(QUERY, 12)
    kept = [key for key in nearest if key % 4 == 1]
    assert ids(table.search(QUERY, k=12, filter="tag = 1", prefilter=False)) == kept
    assert ids(table.search(QUERY, k=12, prefilter=False)) == nearest
    assert table.search(QUERY, k=12, filter="tag > 9", prefilter=False).count_rows() == 0


@pytest.mark.parametrize("exact", [True, False])
def test_a_distance_range_has_its_lower_bound_and_not_its_upper_one(
    exact: bool, make_table: MakeTable
) -> None:
    table = make_table(schema_of(width=2))
    rows = rows_of(range(20), [np.array([number, 0]) for number in range(20)], schema_of(width=2))
    on_every_level(table, [rows.slice(12), rows.slice(6, 6), rows.slice(0, 6)])

    def between(lower: float | None, upper: float | None, k: int = 30) -> list[int]:
        bounds = (lower, upper)
        return ids(table.search([0, 0], k=k, distance_range=bounds, exact=exact))

    assert between(4, 25) == [2, 3, 4]
    assert between(None, 9) == [0, 1, 2]
    assert between(289, None) == [17, 18, 19]
    assert between(4, None, k=2) == [2, 3]
    assert between(None, None, k=2) == [0, 1]
    assert between(5, 9) == []


def test_a_distance_range_keeps_what_an_index_would_report_beside_it(
    indexed: lancemem.Table,
) -> None:
    far = brute_force(NEWEST, QUERY, 30)
    bounds = (far[10][1] - 1e-3, far[20][1] + 1e-3)
    expected = [key for key, distance in far if bounds[0] <= distance < bounds[1]]
    assert ids(indexed.search(QUERY, k=50, distance_range=bounds, exact=True)) == expected
    found = indexed.search(QUERY, k=50, distance_range=bounds, **THOROUGH)
    assert ids(found) == expected


def test_an_offset_skips_the_nearest_rows(table: lancemem.Table) -> None:
    nearest = nearest_ids(QUERY, 20)
    assert ids(table.search(QUERY, k=5, offset=10)) == nearest[10:15]
    assert ids(table.search(QUERY, k=5, offset=0)) == nearest[:5]
    assert ids(table.search(QUERY, k=5, offset=1_000)) == []


def test_the_metric_is_that_of_the_index_unless_named(table: lancemem.Table) -> None:
    assert ids(table.search(QUERY, exact=True)) == nearest_ids(QUERY, 10, "l2")
    add_index(table, "IVF_FLAT", "cosine")
    found = found_by(table.search(QUERY, **THOROUGH))
    check_exact(found, NEWEST, QUERY, 10, "cosine")
    check_exact(found_by(table.search(QUERY, exact=True)), NEWEST, QUERY, 10, "cosine")
    check_exact(found_by(table.search(QUERY, metric="dot")), NEWEST, QUERY, 10, "dot")


@pytest.mark.parametrize(
    "options",
    [
        {"nprobes": 1},
        {"minimum_nprobes": 1, "maximum_nprobes": 2},
        {"minimum_nprobes": 2},
        {"maximum_nprobes": 1},
        {"refine_factor": 1},
        {"refine_factor": 10, "nprobes": 2},
        {"ef": 64},
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["IVF_PQ", "IVF_HNSW_SQ"])
def test_the_options_of_an_index_cost_recall_at_most(
    kind: str, options: dict[str, Any], table: lancemem.Table
) -> None:
    add_index(table, kind)
    found = found_by(table.search(QUERY, **options))
    check_true(found, NEWEST, QUERY)
    assert len(found) <= 10
    # They say how an index is read, so without one they change nothing.
    check_exact(found_by(table.search(QUERY, exact=True, **options)), NEWEST, QUERY, 10)


def test_a_fast_search_finds_only_rows_that_the_index_covers(indexed: lancemem.Table) -> None:
    found = found_by(indexed.search(QUERY, k=COUNT, fast_search=True, **THOROUGH))
    assert sorted(key for key, _ in found) == list(range(100, COUNT))
    check_true(found, NEWEST, QUERY)


# --- types of vectors ---


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("metric", METRICS)
def test_vectors_of_each_float_type_are_searched_on_every_level(
    name: str,
    metric: Metric,
    make_table: MakeTable,
) -> None:
    value, numbers = FLOATS[name]
    schema = schema_of(value=value)
    vectors = whole_vectors(np.random.default_rng(7), 90).astype(numbers)
    rows = rows_of(range(90), list(vectors), schema)
    table = make_table(schema)
    on_every_level(table, [rows.slice(0, 30), rows.slice(30, 30), rows.slice(60)])
    found = found_by(table.search(vectors[11], metric=metric, exact=True))
    check_exact(found, dict(enumerate(vectors)), vectors[11], 10, metric)


def test_bytes_are_compared_by_their_bits(make_table: MakeTable) -> None:
    schema = schema_of(value=pa.uint8(), width=4)
    vectors = np.random.default_rng(8).integers(0, 256, (60, 4), np.uint8)
    rows = rows_of(range(60), list(vectors), schema)
    table = make_table(schema)
    on_every_level(table, [rows.slice(0, 20), rows.slice(20, 20), rows.slice(40)])
    differing = np.unpackbits(vectors ^ vectors[3], axis=1).sum(axis=1)
    expected = sorted(zip(differing.tolist(), range(60), strict=True))[:10]
    found = found_by(table.search(vectors[3], column="vec", metric="hamming"))
    assert [(distance, key) for key, distance in found] == expected


def test_the_column_may_be_left_out_where_one_has_the_width(make_table: MakeTable) -> None:
    schema = schema_of(pa.field("short", pa.list_(pa.float32(), 2)))
    table = make_table(schema)
    short = [[float(number), 0.0] for number in range(10)]
    rows = rows_of(range(10), list(VECTORS[:10]))
    table.upsert(rows.append_column(schema.field("short"), array_of(short, schema[3].type)))
    assert ids(table.search([7.2, 0], k=2)) == [7, 8]
    assert ids(table.search(VECTORS[4], k=1)) == [4]
    assert ids(table.search([7.2, 0], k=2, column="short")) == [7, 8]


# --- scan(nearest=) ---


def test_a_scan_takes_the_nearest_of_pylance(indexed: lancemem.Table) -> None:
    asked = {"column": "vec", "q": QUERY, "k": 6}
    found = indexed.scan(nearest={**asked, "use_index": False})
    assert found_by(found) == found_by(indexed.search(QUERY, column="vec", k=6, exact=True))
    assert found.to_table().column_names == ["id", "tag", "vec", "_distance"]
    more = {"metric": "cosine", "distance_range": (None, 0.9), **THOROUGH}
    found = indexed.scan(["id"], "tag = 2", nearest={**asked, **more})
    assert found_by(found) == found_by(indexed.search(QUERY, k=6, filter="tag = 2", **more))
    kept = [key for key in nearest_ids(QUERY, 6) if key % 4 == 2]
    exact = {**asked, "use_index": False}
    assert ids(indexed.scan(filter="tag = 2", nearest=exact, prefilter=False)) == kept


@pytest.mark.parametrize(
    "more",
    [
        {"minimum_nprobes": 1, "maximum_nprobes": 5},
        {"nprobes": 5, "refine_factor": 20},
        {"ef": 50},
    ],
)
def test_a_scan_takes_the_options_of_an_index_in_pylances_form(
    more: dict[str, Any], indexed: lancemem.Table
) -> None:
    nearest = {"column": "vec", "q": QUERY.tolist(), "k": 5, **more}
    assert ids(indexed.scan(nearest=nearest)) == ids(indexed.search(QUERY, k=5, **more))


def test_a_scan_of_a_batch_and_its_pickle_are_those_of_a_search(table: lancemem.Table) -> None:
    scan = table.scan(["id"], nearest={"column": "vec", "q": QUERIES, "k": 2})
    expected = table.search(QUERIES, columns=["id"], k=2).to_table()
    assert scan.to_table().equals(expected)
    assert pickle.loads(pickle.dumps(scan)).to_table().equals(expected)  # noqa: S301
    assert scan.schema.names == ["query_index", "id", "_distance"]


def test_a_search_without_a_vector_names_the_way(table: lancemem.Table) -> None:
    for source in (table, table.snapshot()):
        with pytest.raises(lancemem.InvalidInputError, match=r"scan\(filter=\.\.\.\)"):
            source.search()
    with pytest.raises(AttributeError, match=r"search\(vector, k=\.\.\.\)"):
        table.search(QUERY).limit(3)  # type: ignore[attr-defined]
