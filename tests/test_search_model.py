"""Random programs of writes and maintenance, each step followed by searches beside brute force.

Owns: that a search agrees with a dict of the newest rows wherever they are, that neither a flush
nor a compaction changes an exact answer, that rows which an index still names are never in the way,
and recall beside pylance. Not here: single options (test_search, test_search_tables).
"""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pytest

import lancemem
from tests import seeds
from tests.searches import (
    METRICS,
    WIDTH,
    Metric,
    Vector,
    add_index,
    array_of,
    brute_force,
    check_exact,
    check_true,
    compact_files,
    found_by,
    on_every_level,
    optimize_indices,
    random_vectors,
    rows_of,
    schema_of,
    to_base,
    whole_vectors,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pyarrow as pa

    from tests.conftest import MakeTable

ROUNDS = int(os.environ.get("LANCEMEM_SEARCH_ROUNDS", "1"))
STEPS = 14
# An index of PQ needs 256 vectors.
BASE_ROWS = 400
KEYS = 500
INDEXES: dict[str, Metric] = {
    "IVF_PQ": "l2",
    "IVF_FLAT": "dot",
    "IVF_SQ": "cosine",
    "IVF_HNSW_SQ": "l2",
}
# The condition as the engine takes it, and as Python does.
FILTERS = [
    (None, "True"),
    ("tag = 1", "tag == 1"),
    ("tag <> 2 AND id < 250", "tag != 2 and id < 250"),
    ("id % 50 = 7", "id % 50 == 7"),
    ("tag > 100", "tag > 100"),
]


class Machine:
    """A table beside the rows that it should have, and the steps of a program."""

    def __init__(self, uri: str, index: str, shards: int, chance: random.Random) -> None:
        self.index, self.metric, self.chance = index, INDEXES[index], chance
        self.numbers = np.random.default_rng(chance.randrange(1 << 32))
        self.rows: dict[int, tuple[Vector | None, int]] = {}
        config = lancemem.WriterConfig(fsync=False)
        sharding = lancemem.bucket("id", shards)
        self.table = lancemem.create_table(
            uri, schema_of(), primary_key="id", sharding=sharding, config=config
        )
        self.write(range(BASE_ROWS), odd=False)
        to_base(self.table)
        add_index(self.table, index, self.metric)

    def write(self, keys: Any, *, odd: bool = True) -> None:  # noqa: ANN401 - a range or a list
        """Upsert rows; with `odd` some have no vector, or none that has a distance."""
        keys = list(keys)
        draw = whole_vectors if self.metric != "cosine" else random_vectors
        vectors: list[Vector | None] = list(draw(self.numbers, len(keys)))
        for place in range(len(keys)):
            kind = self.chance.random() if odd else 1.0
            if kind < 0.05:
                vectors[place] = None
            elif kind < 0.08:
                vectors[place] = np.full(WIDTH, np.nan)
            elif kind < 0.11:
                vectors[place] = np.zeros(WIDTH)
        new = rows_of(keys, vectors)
        self.table.upsert(new)
        tags = new["tag"].to_pylist()
        for key, vector, tag in zip(keys, vectors, tags, strict=True):
            self.rows[key] = (vector, tag)

    # --- steps ---

    def put(self) -> None:
        """Write some rows anew and add some."""
        self.write(self.chance.sample(range(KEYS), self.chance.randint(1, 40)))

    def put_near(self) -> None:
        """Move the rows away that a search would find first."""
        query = self.query()
        keys = [key for key, _ in brute_force(self.model(), query, 25, self.metric)]
        self.write(keys)

    def delete(self) -> None:
        """Delete keys, of which the table may not have all."""
        keys = self.chance.sample(range(KEYS), self.chance.randint(1, 30))
        self.table.delete(keys)
        for key in keys:
            self.rows.pop(key, None)

    def flush(self) -> None:
        """Move the logs into SSTables."""
        self.table.flush()

    def compact(self) -> None:
        """Move the SSTables into the base table, beside the index."""
        self.table.compact()

    def optimize_indices(self) -> None:
        """Let pylance bring new rows of the base table into its index."""
        optimize_indices(self.table)

    def reopen(self) -> None:
        """Go on with a handle that has cached nothing."""
        self.table = lancemem.open_table(self.table.uri)

    # --- checks ---

    def query(self) -> Vector:
        """Draw a vector, near to rows and not one of them."""
        query = whole_vectors(self.numbers, 1)[0]
        return query + np.float32(1.0 if not query.any() else 0.0)

    def model(self, condition: str = "True") -> dict[int, Vector | None]:
        """Give the vectors of the rows that meet a condition of Python."""
        return {
            key: vector
            for key, (vector, tag) in self.rows.items()
            if eval(condition, {"id": key, "tag": tag})  # noqa: S307 - one of FILTERS
        }

    def check(self) -> None:
        """Search with a condition, exactly and by the index."""
        condition, in_python = self.chance.choice(FILTERS)
        model, query = self.model(in_python), self.query()
        k = self.chance.choice([1, 5, 10, 60])
        options: dict[str, Any] = {"filter": condition, "k": k}
        exact = found_by(self.table.search(query, exact=True, **options))
        check_exact(exact, model, query, k, self.metric)
        expected = brute_force(model, query, k, self.metric)
        if self.metric != "cosine":
            # Whole numbers: float32 makes no error, and equal distances come by key.
            assert exact == expected
        plain = found_by(self.table.search(query, **options))
        check_true(plain, model, query, self.metric)
        assert len(plain) == len(expected), "rows are missing"
        other = self.chance.choice(METRICS)
        found = found_by(self.table.search(query, metric=other, exact=True, **options))
        check_exact(found, model, query, k, other)


@pytest.mark.parametrize("shards", [1, 2, 3])
@pytest.mark.parametrize("index", INDEXES)
def test_a_search_agrees_with_brute_force_after_every_step(
    index: str, shards: int, tmp_path: Path
) -> None:
    for turn in range(ROUNDS):
        chance = random.Random(f"{seeds.seed()} {turn} {index} {shards}")  # noqa: S311
        machine = Machine(str(tmp_path / f"{turn}.lance"), index, shards, chance)
        steps = [
            machine.put,
            machine.put,
            machine.put_near,
            machine.delete,
            machine.flush,
            machine.compact,
            machine.optimize_indices,
            machine.reopen,
        ]
        machine.check()
        for _ in range(STEPS):
            chance.choice(steps)()
            machine.check()
        to_base(machine.table)
        machine.check()


# --- invariance ---


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("index", [None, "IVF_PQ"])
def test_neither_a_flush_nor_a_compaction_changes_an_exact_answer(
    index: str | None, metric: Metric, make_table: MakeTable
) -> None:
    width = 32
    vectors = random_vectors(np.random.default_rng(21), 900, width)
    rows = rows_of(range(900), list(vectors), schema_of(width=width))
    table = make_table(schema_of(width=width), sharding=lancemem.bucket("id", 2))
    on_every_level(table, [rows.slice(0, 500), rows.slice(400, 300), rows.slice(600)])
    if index is not None:
        add_index(table, index, metric)
    table.upsert(rows_of(range(100), list(vectors[450:550]), schema_of(width=width)))
    table.delete(range(100, 150))
    queries = random_vectors(np.random.default_rng(22), 3, width)
    options: dict[str, Any] = {"k": 40, "exact": True, "metric": metric}

    def answers(source: lancemem.Table | lancemem.Snapshot) -> list[pa.Table]:
        filtered = source.search(queries[2], filter="tag < 3", **options)
        searches = [*(source.search(query, **options) for query in queries), filtered]
        return [search.to_table() for search in searches]

    pinned = table.snapshot()
    token = pinned.token
    expected = answers(table)
    steps: list[Callable[[], object]] = [
        lambda: None,
        table.flush,
        table.compact,
        lambda: optimize_indices(table),
        lambda: compact_files(table),
    ]
    for step in steps:
        step()
        other = lancemem.open_table(table.uri)
        sources: list[lancemem.Table | lancemem.Snapshot] = [table, pinned, other]
        sources.append(other.snapshot(token=token))
        for source in sources:
            for found, before in zip(answers(source), expected, strict=True):
                # The same rows, and distances that are equal bit by bit.
                assert found.equals(before)


# --- rows that an index still names ---


def crowded() -> tuple[Vector, Vector, list[int]]:
    """Draw a query, 3,000 vectors of which 1,000 crowd around it, and the ten next nearest."""
    numbers = np.random.default_rng(23)
    width = 16
    query = numbers.normal(size=width).astype(np.float32)
    directions = numbers.normal(size=(3_000, width))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    lengths = np.concatenate(
        [np.linspace(0.1, 1, 1_000), np.linspace(2, 2.5, 10), np.linspace(9, 20, 1_990)]
    )
    vectors = (query + directions * lengths[:, None]).astype(np.float32)
    return query, vectors, list(range(1_000, 1_010))


@pytest.mark.parametrize("kind", ["IVF_PQ", "IVF_SQ"])
def test_ten_of_ten_are_right_after_the_thousand_best_moved_away(
    kind: str, make_table: MakeTable
) -> None:
    query, vectors, right = crowded()
    schema = schema_of(width=16)
    table = make_table(schema)
    table.upsert(rows_of(range(3_000), list(vectors), schema))
    to_base(table)
    add_index(table, kind)
    before = [key for key, _ in found_by(table.search(query))]
    assert set(before) <= set(range(1_000))
    away = vectors[:1_000] + np.float32(1_000)
    table.upsert(rows_of(range(1_000), list(away), schema))
    model = {**dict(enumerate(vectors)), **dict(enumerate(away))}
    assert [key for key, _ in brute_force(model, query, 10)] == right

    def check() -> None:
        for handle in (table, lancemem.open_table(table.uri)):
            assert [key for key, _ in found_by(handle.search(query))] == right
            batch = handle.search([query, query], columns=["id"]).to_table()
            assert batch["id"].to_pylist() == right * 2
            even = [key for key in right if key % 2 == 0]
            few = found_by(handle.search(query, filter="id % 2 = 0 AND id < 1010", k=5))
            assert [key for key, _ in few] == even

    check()
    table.flush()
    check()
    table.compact()
    check()


def test_ten_of_ten_are_right_after_the_thousand_best_were_deleted(make_table: MakeTable) -> None:
    query, vectors, right = crowded()
    schema = schema_of(width=16)
    table = make_table(schema)
    table.upsert(rows_of(range(3_000), list(vectors), schema))
    to_base(table)
    add_index(table)
    # The base table has deleted rows before the others die.
    table.delete(range(2_900, 3_000))
    table.compact(flush=True)
    table.delete(range(1_000))
    for step in (lambda: None, table.flush, table.compact):
        step()
        for handle in (table, lancemem.open_table(table.uri)):
            assert [key for key, _ in found_by(handle.search(query))] == right
    # The base table has deleted them, and has no other rows.
    assert [key for key, _ in found_by(table.search(query, fast_search=True))] == right
    even = [key for key in right if key % 2 == 0]
    few = found_by(table.search(query, filter="id % 2 = 0 AND id < 1010", k=5))
    assert [key for key, _ in few] == even


def test_an_older_version_of_a_row_in_an_sstable_is_not_in_the_way(make_table: MakeTable) -> None:
    query, vectors, right = crowded()
    schema = schema_of(width=16)
    table = make_table(schema)
    # The crowd is in two SSTables, and its newest rows are in the log.
    for first in (0, 500):
        crowd = vectors[first : first + 500]
        table.upsert(rows_of(range(first, first + 500), list(crowd), schema))
        table.flush()
    away = vectors[:1_000] + np.float32(1_000)
    table.upsert(rows_of(range(1_000), list(away), schema))
    table.upsert(rows_of(range(1_000, 3_000), list(vectors[1_000:]), schema))
    assert [key for key, _ in found_by(table.search(query))] == right


# --- recall ---


def clustered(count: int, width: int) -> Vector:
    """Draw vectors in clusters, as embeddings are."""
    numbers = np.random.default_rng(24)
    centers = numbers.normal(size=(40, width)) * 3
    chosen = numbers.integers(0, len(centers), count)
    return (centers[chosen] + numbers.normal(size=(count, width))).astype(np.float32)


def recall(found: list[list[int]], right: list[list[int]]) -> float:
    pairs = zip(found, right, strict=True)
    return float(np.mean([len(set(one) & set(other)) / len(other) for one, other in pairs]))


def codebook(vectors: Vector, centroids: Vector) -> Vector:
    """Give 256 codes for 8 sub-vectors: what vectors are away from their nearest centroid."""
    distances = ((vectors[:, None] - centroids[None]) ** 2).sum(axis=2)
    away = vectors - centroids[distances.argmin(axis=1)]
    return np.ascontiguousarray(away.reshape(len(vectors), 8, -1).transpose(1, 0, 2))


@pytest.mark.parametrize("kind", ["IVF_PQ", "IVF_SQ", "IVF_HNSW_SQ"])
def test_recall_is_that_of_the_index_rebuilt_by_pylance(
    kind: str, make_table: MakeTable, tmp_path: Path
) -> None:
    width, count = 32, 4_000
    vectors = clustered(count + 600, width)
    schema = schema_of(width=width)
    table = make_table(schema)
    # The same model on both sides: k-means begins at random.
    centroids = vectors[:1_600:100]
    options: dict[str, Any] = {"num_partitions": 16, "ivf_centroids": centroids}
    if kind == "IVF_PQ":
        options |= {"num_sub_vectors": 8, "pq_codebook": codebook(vectors[:4_096:16], centroids)}
    table.upsert(rows_of(range(count), list(vectors[:count]), schema))
    to_base(table)
    add_index(table, kind, **options)
    table.upsert(rows_of(range(400), list(vectors[count : count + 400]), schema))
    table.flush()
    table.upsert(rows_of(range(300, 500), list(vectors[count + 400 :]), schema))
    table.delete(range(3_900, count))
    final = table.to_table()
    rebuilt = lance.write_dataset(final, str(tmp_path / "final.lance"))
    rebuilt.create_index("vec", kind, metric="l2", **options)
    model = dict(zip(final["id"].to_pylist(), np.stack(final["vec"].to_numpy()), strict=True))
    queries = clustered(count + 50, width)[count:] + np.float32(0.1)
    right = [[key for key, _ in brute_force(model, query, 10)] for query in queries]

    def theirs(query: Vector) -> list[int]:
        asked = {"column": "vec", "q": query, "k": 10, "nprobes": 6, "refine_factor": 4}
        found: list[int] = rebuilt.to_table(columns=["id"], nearest=asked)["id"].to_pylist()
        return found

    def ours(query: Vector) -> list[int]:
        return [key for key, _ in found_by(table.search(query, nprobes=6))]

    goal = recall([theirs(query) for query in queries], right) - 0.005
    assert recall([ours(query) for query in queries], right) >= goal
    to_base(table)
    assert recall([ours(query) for query in queries], right) >= goal


def test_a_batch_finds_what_its_vectors_find_alone(make_table: MakeTable) -> None:
    vectors = clustered(1_200, 16)
    schema = schema_of(width=16)
    table = make_table(schema)
    rows = rows_of(range(1_200), list(vectors), schema)
    on_every_level(table, [rows.slice(0, 800), rows.slice(700, 300), rows.slice(900)])
    add_index(table)
    queries = vectors[:40] + np.float32(0.05)
    for options in ({"exact": True}, {"filter": "tag = 2"}, {}):
        more: dict[str, Any] = options
        batch = table.search(array_of(list(queries), schema.field("vec").type), **more).to_table()
        numbers = batch["query_index"].to_pylist()
        assert numbers == sorted(numbers)
        model = dict(enumerate(vectors))
        kept = {key: row for key, row in model.items() if "filter" not in more or key % 4 == 2}
        keys, distances = batch["id"].to_pylist(), batch["_distance"].to_pylist()
        for number, query in enumerate(queries):
            mine = [place for place, each in enumerate(numbers) if each == number]
            found = [(keys[place], distances[place]) for place in mine]
            check_true(found, kept, query)
            assert len(found) == 10
            if "exact" in more:
                alone = found_by(table.search(query, exact=True))
                assert [key for key, _ in found] == [key for key, _ in alone]
