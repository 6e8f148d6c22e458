"""Hybrid search: one list of the rows nearest to a vector and of those that match a text.

Owns: fusion by reciprocal ranks, rerankers of the caller, columns, and input that is refused.
Not here: the two searches (test_search, test_search_text).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import lancemem
from tests.searches import WIDTH, array_of, random_vectors

if TYPE_CHECKING:
    from tests.conftest import MakeTable

WORDS = ["write", "log", "merge", "flush", "snapshot"]
QUERY = random_vectors(np.random.default_rng(2), 1)[0]
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("body", pa.string()),
        pa.field("vec", pa.list_(pa.float32(), WIDTH)),
    ]
)


def rows_of(ids: range, seed: int) -> pa.Table:
    """Make rows with texts and vectors."""
    random = np.random.default_rng(seed)
    bodies = [" ".join(random.choice(WORDS, random.integers(1, 9))) for _ in ids]
    vectors = array_of(list(random_vectors(random, len(ids))), SCHEMA.field("vec").type)
    return pa.table({"id": list(ids), "body": bodies, "vec": vectors}, SCHEMA)


@pytest.fixture
def table(make_table: MakeTable) -> lancemem.Table:
    """Give a table with rows in the base table, in an SSTable and in the log."""
    table = make_table(SCHEMA, config=lancemem.WriterConfig(fsync=False))
    table.upsert(rows_of(range(100), 1))
    table.compact(flush=True)
    table.create_index("body", "INVERTED")
    table.upsert(rows_of(range(70, 140), 2))
    table.flush()
    table.upsert(rows_of(range(120, 170), 3))
    table.delete(range(5))
    return table


def fused(table: Any, k: int, depth: int, rank: int = 60) -> list[tuple[int, float]]:  # noqa: ANN401
    """Fuse the two lists by reciprocal ranks, as the definition says."""
    snapshot = table.snapshot()
    lists = [
        snapshot.search(QUERY, k=depth, columns=["id"]).to_table()["id"].to_pylist(),
        snapshot.search("log merge", k=depth, columns=["id"]).to_table()["id"].to_pylist(),
    ]
    relevance: dict[int, float] = {}
    for found in lists:
        for place, key in enumerate(found):
            relevance[key] = relevance.get(key, 0.0) + 1 / (rank + place)
    ranked = sorted(relevance.items(), key=lambda pair: (-np.float32(pair[1]), pair[0]))
    return ranked[:k]


@pytest.mark.parametrize("rank", [60, 5])
def test_reciprocal_ranks_fuse_both_lists_of_one_snapshot(table: lancemem.Table, rank: int) -> None:
    found = table.search(QUERY, text="log merge", k=20, rerank=lancemem.RRF(k=rank)).to_table()
    names = ["id", "body", "vec", "_distance", "_score", "_relevance_score"]
    assert found.column_names == names
    expected = fused(table, 20, 80, rank)
    relevance = found["_relevance_score"].to_pylist()
    assert relevance == pytest.approx([score for _, score in expected], rel=1e-5)
    assert set(found["id"].to_pylist()) == {key for key, _ in expected}
    rows = {row["id"]: row["body"] for row in table.to_table(["id", "body"]).to_pylist()}
    assert found["body"].to_pylist() == [rows[key] for key in found["id"].to_pylist()]


def test_scores_are_null_where_only_the_other_search_found_the_row(table: lancemem.Table) -> None:
    table.upsert(pa.table({"id": [900], "body": ["rareword"], "vec": [None]}, SCHEMA))
    found = table.search(QUERY, text="rareword", k=5, columns=["body"]).to_table()
    assert found.column_names == ["body", "_distance", "_score", "_relevance_score"]
    rows = {row["body"]: row for row in found.to_pylist()}
    assert rows["rareword"]["_distance"] is None
    assert rows["rareword"]["_score"] > 0
    others = [row for row in found.to_pylist() if row["body"] != "rareword"]
    assert all(row["_score"] is None and row["_distance"] is not None for row in others)


def test_a_reranker_of_the_caller_gets_both_lists_and_decides(table: lancemem.Table) -> None:
    class ByKey:
        """Orders rows by their key, the largest first."""

        def rerank_hybrid(self, query: str, vectors: pa.Table, texts: pa.Table) -> pa.Table:
            assert query == "log merge"
            assert "_distance" in vectors.column_names
            assert "_score" in texts.column_names
            assert {"id", "body"} <= set(vectors.column_names) & set(texts.column_names)
            ids = sorted({*vectors["id"].to_pylist(), *texts["id"].to_pylist()})
            scores = pa.array([float(key) for key in ids], pa.float32())
            return pa.table({"id": ids, "_relevance_score": scores})

    for rerank in (ByKey(), ByKey().rerank_hybrid):
        scan = table.search(QUERY, text="log merge", k=6, offset=1, rerank=rerank)
        found = scan.to_table()
        assert found["_relevance_score"].to_pylist() == [
            float(key) for key in found["id"].to_pylist()
        ]
        assert found["id"].to_pylist() == sorted(found["id"].to_pylist(), reverse=True)
        assert found.num_rows == 6


def test_a_filter_holds_for_both_lists_and_a_snapshot_answers_again(table: lancemem.Table) -> None:
    snapshot = table.snapshot()
    scan = snapshot.search(QUERY, text="log merge", k=30, filter="id % 2 = 0")
    before = scan.to_table()
    assert all(key % 2 == 0 for key in before["id"].to_pylist())
    table.upsert(rows_of(range(170, 200), 9))
    assert scan.to_table() == before
    text = scan.explain()
    assert "FuseExec: reciprocal ranks" in text
    assert "TextSearchExec" in text


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ({"query": [QUERY, QUERY], "text": "log"}, "one vector"),
        ({"query": QUERY, "text": "  "}, "an empty text"),
        ({"query": QUERY, "text": 7}, "text: expected words"),
        ({"query": QUERY, "text": "log", "query_type": "vector"}, "makes a search hybrid"),
        ({"query": QUERY, "text": "log", "query_type": "fts"}, "needs words"),
        ({"query": "log", "text": "log"}, "whose query is a vector"),
        ({"query": QUERY, "text": "log", "rerank": "rrf"}, "rerank: expected lancemem.RRF"),
        ({"query": QUERY, "text": "log", "rerank": lancemem.RRF(k=0)}, "a positive number"),
        ({"query": QUERY, "text": "log", "rerank": lambda *_: None}, "expected an Arrow table"),
        ({"query": QUERY, "text": "log", "rerank": lambda _, one, __: one}, "_relevance_score"),
        ({"query": QUERY, "rerank": lancemem.RRF()}, "has no text"),
        ({"query": QUERY, "text": "log", "k": 0}, "k: expected at least 1"),
        ({"query": QUERY, "text": "log", "columns": ["nope"]}, "nope"),
    ],
)
def test_input_that_cannot_be_fused_is_refused_with_the_reason(
    table: lancemem.Table, arguments: dict[str, Any], fault: str
) -> None:
    with pytest.raises(lancemem.InvalidInputError, match=fault):
        table.search(**arguments).to_table()
