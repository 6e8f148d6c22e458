"""Search over kinds of tables, levels of consistency, snapshots, and columns that change.

Owns: several shards, keys of every kind and none, what each level shows, a search of a snapshot
while rows change, and vectors of older columns. Not here: the arguments (test_search), random
programs (test_search_model).
"""

from __future__ import annotations

import pickle
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import lancemem
from tests.programs import run_python
from tests.searches import (
    WIDTH,
    Vector,
    add_index,
    array_of,
    base_of,
    brute_force,
    check_exact,
    check_true,
    found_by,
    on_every_level,
    random_vectors,
    rows_of,
    schema_of,
    to_base,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import MakeTable

COUNT = 320
VECTORS = random_vectors(np.random.default_rng(11), COUNT)
QUERY = random_vectors(np.random.default_rng(12), 1)[0]
# In memory until the job is flushed: nothing is written to the log within a test.
IN_MEMORY = lancemem.WriterConfig(
    durable=False, max_wal_flush_interval=timedelta(hours=1), max_wal_buffer_bytes=1 << 30
)


def near(distance: float) -> Vector:
    """Give a vector at this distance from the query; the other vectors are farther away."""
    return QUERY + np.array([distance**0.5, *[0.0] * (WIDTH - 1)], np.float32)


def ids(scan: Any) -> list[int]:  # noqa: ANN401 - a scan
    numbers: list[int] = scan.to_table()["id"].to_pylist()
    return numbers


def filled(make_table: MakeTable, **options: Any) -> lancemem.Table:  # noqa: ANN401
    """Give a table whose base has all rows and an index."""
    table = make_table(schema_of(), **options)
    table.upsert(rows_of(range(COUNT), list(VECTORS)))
    to_base(table)
    add_index(table)
    return table


# --- kinds of tables ---


@pytest.mark.parametrize("shards", [2, 5])
def test_rows_of_every_shard_are_candidates(shards: int, make_table: MakeTable) -> None:
    table = filled(make_table, sharding=lancemem.bucket("id", shards))
    model: dict[int, Vector | None] = dict(enumerate(VECTORS))
    newer = random_vectors(np.random.default_rng(13), 120)
    for first, flushed in ((0, True), (40, True), (80, False)):
        some = dict(zip(range(first, first + 60), newer[first : first + 60], strict=False))
        table.upsert(rows_of(some, list(some.values())))
        model.update(some)
        if flushed:
            table.flush()
    table.delete([3, 50, 200])
    model |= dict.fromkeys([3, 50, 200])
    check_exact(found_by(table.search(QUERY, k=40, exact=True)), model, QUERY, 40)
    plain = found_by(table.search(QUERY, k=40))
    check_true(plain, model, QUERY)
    assert len(plain) == 40
    to_base(table)
    check_exact(found_by(table.search(QUERY, k=40, exact=True)), model, QUERY, 40)


@pytest.mark.parametrize("index", [None, "IVF_PQ"])
def test_a_table_without_a_key_is_searched_too(index: str | None, make_table: MakeTable) -> None:
    table = make_table(schema_of(), primary_key=[])
    # A row that comes twice is two rows.
    rows = rows_of(range(COUNT), list(VECTORS))
    table.upsert(rows.slice(0, 300))
    to_base(table)
    if index is not None:
        add_index(table, index)
    table.upsert(rows.slice(300))
    table.flush()
    table.upsert(rows_of([1_000, 1_000], [near(0.25), near(0.25)]))
    model = {**dict(enumerate(VECTORS)), 1_000: near(0.25)}
    expected = [1_000, *(key for key, _ in brute_force(model, QUERY, 9) if key != 1_000)]
    assert ids(table.search(QUERY, k=9, exact=True)) == [1_000, *expected[:8]]
    found = found_by(table.search(QUERY, k=9))
    assert [key for key, _ in found[:2]] == [1_000, 1_000]
    assert len(found) == 9


KEYS: dict[str, tuple[list[pa.Field], Callable[[int], tuple[Any, ...]]]] = {
    "text": (
        [pa.field("name", pa.string(), nullable=False)],
        lambda n: ("" if n == 0 else f"{n % 10}é\0{n}",),
    ),
    "bytes": (
        [pa.field("name", pa.binary(), nullable=False)],
        lambda n: ((n * 37 % COUNT).to_bytes(2, "big"),),
    ),
    "integers below zero": (
        [pa.field("n", pa.int32(), nullable=False)],
        lambda n: (n * 7 % COUNT - 160,),
    ),
    "two columns": (
        [
            pa.field("a", pa.string(), nullable=False),
            pa.field("b", pa.int64(), nullable=False),
        ],
        lambda n: (f"k{n % 7}", 100 - n),
    ),
}


@pytest.mark.parametrize("kind", KEYS)
def test_rows_of_every_kind_of_key_are_found_and_ordered_by_it(
    kind: str, make_table: MakeTable
) -> None:
    fields, key = KEYS[kind]
    vectors = pa.field("vec", pa.list_(pa.float32(), WIDTH))
    schema = pa.schema([*fields, vectors])
    names = [field.name for field in fields]
    # Every tenth row has the same vector, so that the order of keys shows.
    values = [np.ones(WIDTH, np.float32) if n % 10 == 0 else VECTORS[n] for n in range(COUNT)]
    model: dict[tuple[Any, ...], Vector | None] = {key(n): values[n] for n in range(COUNT)}
    assert len(model) == COUNT

    def rows(numbers: range, of: list[Vector]) -> pa.Table:
        columns = [
            pa.array([key(n)[place] for n in numbers], field.type)
            for place, field in enumerate(fields)
        ]
        return pa.table([*columns, array_of(of, vectors.type)], schema=schema)

    table = make_table(schema, names)
    stale = [QUERY] * COUNT
    on_every_level(
        table,
        [
            rows(range(COUNT), stale[:200] + values[200:]),
            rows(range(100, 200), values[100:200]),
            rows(range(100), values[:100]),
        ],
    )
    found = found_by(table.search(np.ones(WIDTH), k=40, exact=True), names)
    ties = sorted(key(n) for n in range(0, COUNT, 10))
    assert [each for each, _ in found[:32]] == ties
    check_exact(found, model, np.ones(WIDTH), 40)
    check_exact(found_by(table.search(QUERY, exact=True), names), model, QUERY, 10)


# --- what a level shows ---


def test_a_level_decides_which_rows_are_searched(make_table: MakeTable) -> None:
    table = filled(make_table)
    table.upsert(rows_of([1_000], [near(0.3)]))
    table.flush()
    table.upsert(rows_of([1_001], [near(0.2)]))
    with table.start_job(shard=0, config=IN_MEMORY) as job:
        job.put(rows_of([1_002], [near(0.1)]))
        level: dict[str, Any] = {"k": 3, "exact": True}
        assert ids(table.search(QUERY, consistency="flushed", **level))[0] == 1_000
        assert ids(table.search(QUERY, **level))[:2] == [1_001, 1_000]
        live = [1_002, 1_001, 1_000]
        assert ids(table.search(QUERY, consistency="live", **level)) == live
        assert ids(table.search(QUERY, consistency="live", k=3)) == live
        assert ids(table.search(QUERY, consistency="live", jobs=[job], **level)) == live
        nearest = {"column": "vec", "q": QUERY, "k": 3}
        assert ids(table.scan(nearest=nearest, consistency="live", jobs=[job])) == live
        search = table.search(QUERY, consistency="live")
        with pytest.raises(TypeError, match="live"):
            pickle.dumps(search)


def test_a_put_is_found_by_the_search_that_follows_it(make_table: MakeTable) -> None:
    table = filled(make_table)
    with table.start_job(shard=0) as job:
        for number in range(1, 6):
            job.put(rows_of([2_000 + number], [near(1 / 2**number)]))
            expected = [2_000 + newer for newer in range(number, 0, -1)]
            assert ids(table.search(QUERY, k=number)) == expected
        job.delete(pa.table({"id": [2_005]}))
        assert ids(table.search(QUERY, k=1)) == [2_004]
        job.put(rows_of([2_004], [near(9_000)]))
        assert ids(table.search(QUERY, k=1)) == [2_003]


def test_another_process_finds_an_acknowledged_put(make_table: MakeTable) -> None:
    table = filled(make_table)
    with table.start_job(shard=0) as job:
        job.put(rows_of([7_000], [near(0.1)]))
        ended = run_python(
            """
            import json, sys
            import lancemem
            table = lancemem.open_table(sys.argv[1])
            print(table.search(json.loads(sys.argv[2]), k=1).to_table()["id"].to_pylist())
            """,
            table.uri,
            str(QUERY.tolist()),
        )
    assert ended.stdout.strip() == "[7000]", ended.stderr


# --- snapshots ---


def test_a_snapshot_finds_the_same_rows_while_the_table_changes(make_table: MakeTable) -> None:
    table = filled(make_table)
    table.upsert(rows_of([1_000, 5], [near(0.2), near(0.3)]))
    snapshot = table.snapshot()
    options: list[dict[str, Any]] = [{"exact": True}, {}, {"filter": "tag = 1", "exact": True}]
    before = [snapshot.search(QUERY, **each).to_table() for each in options]
    assert before[0]["id"].to_pylist()[:2] == [1_000, 5]
    steps: list[Callable[[], object]] = [
        lambda: table.upsert(rows_of([1_001], [near(0.1)])),
        lambda: table.delete([1_000, 5]),
        table.flush,
        table.compact,
        lambda: table.upsert(rows_of([1_000], [near(0.1)])),
        lambda: add_index(table, "IVF_SQ", "cosine"),
        lambda: to_base(table),
    ]
    for step in steps:
        step()
        for each, expected in zip(options, before, strict=True):
            if each.get("exact"):
                assert snapshot.search(QUERY, **each).to_table().equals(expected)
            assert ids(snapshot.search(QUERY, **each)) == expected["id"].to_pylist()
    assert ids(table.search(QUERY, k=2, metric="l2", exact=True))[:2] == [1_000, 1_001]


def test_a_snapshot_is_searched_by_its_token_elsewhere(make_table: MakeTable) -> None:
    table = filled(make_table)
    table.upsert(rows_of([1_000], [near(0.2)]))
    snapshot = table.snapshot()
    expected = snapshot.search(QUERY, exact=True).to_table()
    table.upsert(rows_of([1_001], [near(0.1)]))
    other = lancemem.open_table(table.uri).snapshot(token=snapshot.token)
    assert other.search(QUERY, exact=True).to_table().equals(expected)
    search = pickle.loads(pickle.dumps(snapshot.search(QUERY, exact=True)))  # noqa: S301
    assert search.to_table().equals(expected)
    batch = snapshot.search([QUERY, near(1)], k=2, exact=True).to_table()
    assert batch["query_index"].to_pylist() == [0, 0, 1, 1]
    assert "Snapshot(" in repr(snapshot.search(QUERY))


def test_an_older_version_has_the_vectors_of_that_time(make_table: MakeTable) -> None:
    table = filled(make_table)
    version = base_of(table).version
    table.upsert(rows_of([1_000], [near(0.1)]))
    to_base(table)
    then = table.snapshot(version=version)
    check_exact(found_by(then.search(QUERY, exact=True)), dict(enumerate(VECTORS)), QUERY, 10)
    assert ids(table.search(QUERY, k=1)) == [1_000]


# --- columns that change ---


def on_older_columns(make_table: MakeTable) -> tuple[lancemem.Table, dict[int, Vector | None]]:
    """Give a table with rows on every level, and the vectors that it should have."""
    table = make_table(schema_of())
    rows = rows_of(range(90), list(VECTORS[:90]))
    on_every_level(table, [rows.slice(0, 50), rows.slice(30, 40), rows.slice(60)])
    return table, dict(enumerate(VECTORS[:90]))


def test_a_renamed_column_is_searched_on_every_level(make_table: MakeTable) -> None:
    table, model = on_older_columns(make_table)
    base_of(table).alter_columns({"path": "vec", "name": "embedding"})
    table.refresh()
    for query in (table.search(QUERY, exact=True), table.search(QUERY, column="embedding")):
        check_exact(found_by(query), model, QUERY, 10)
    with pytest.raises(lancemem.InvalidInputError, match="vec"):
        table.search(QUERY, column="vec").to_table()
    table.upsert(pa.table({"id": [500], "tag": [0], "embedding": [near(0.1)]}, table.schema))
    assert ids(table.search(QUERY, k=1)) == [500]


def test_an_index_of_a_renamed_column_is_still_used_for_it(make_table: MakeTable) -> None:
    table = filled(make_table)
    table.upsert(rows_of([1_000], [near(0.1)]))
    base_of(table).alter_columns({"path": "vec", "name": "embedding"})
    table.refresh()
    model: dict[int, Vector | None] = {**dict(enumerate(VECTORS)), 1_000: near(0.1)}
    found = found_by(table.search(QUERY))
    check_true(found, model, QUERY)
    assert len(found) == 10
    assert found[0][0] == 1_000


def test_a_column_that_older_rows_lack_finds_newer_rows_alone(make_table: MakeTable) -> None:
    table, _ = on_older_columns(make_table)
    added = pa.field("second", pa.list_(pa.float32(), 2))
    base_of(table).add_columns(pa.schema([added]))
    table.refresh()
    assert table.search([0, 0], column="second").count_rows() == 0
    rows = rows_of(range(5), [None] * 5)
    second = array_of([np.array([float(n), 0]) for n in range(5)], added.type)
    table.upsert(rows.append_column(added, second))
    assert ids(table.search([3.2, 0])) == [3, 4, 2, 1, 0]
    table.flush()
    assert ids(table.search([3.2, 0], exact=True)) == [3, 4, 2, 1, 0]
    to_base(table)
    assert ids(table.search([3.2, 0])) == [3, 4, 2, 1, 0]


def test_a_filter_on_a_column_that_was_added_holds_for_older_rows(make_table: MakeTable) -> None:
    table, model = on_older_columns(make_table)
    base_of(table).add_columns(pa.schema([pa.field("lang", pa.string())]))
    table.refresh()
    check_exact(found_by(table.search(QUERY, filter="lang IS NULL", exact=True)), model, QUERY, 10)
    assert ids(table.search(QUERY, filter="lang = 'en'")) == []


def test_a_column_that_was_dropped_and_made_again_has_no_old_vector(
    make_table: MakeTable,
) -> None:
    table, _ = on_older_columns(make_table)
    base_of(table).drop_columns(["vec"])
    base_of(table).add_columns(pa.schema([schema_of().field("vec")]))
    table.refresh()
    assert table.search(QUERY).count_rows() == 0
    table.upsert(rows_of([3], [near(0.5)]))
    assert ids(table.search(QUERY)) == [3]
