"""Full-text search: scores beside a fresh pylance index, and what each argument does.

Owns: random programs of writes and maintenance, invariance, kinds of queries, filters, columns, and
input that is refused. Not here: hybrid searches (test_search_hybrid), vectors (test_search).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import lance
import lance.query as of_lance
import pyarrow as pa
import pytest

import lancemem
from lancemem import query
from tests import seeds
from tests.texts import (
    WORDS,
    Row,
    check_same,
    draw,
    fresh_index,
    rows_of,
    schema_of,
    scores_of,
    seeded,
)

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from tests.conftest import MakeTable

ROUNDS = int(os.environ.get("LANCEMEM_SEARCH_ROUNDS", "1"))
STEPS = 12
KEYS = 120
ALL = 10_000
FAST = lancemem.WriterConfig(fsync=False)


class Machine:
    """A table beside the rows that it should have, and the steps of a program."""

    def __init__(self, uri: str, shards: int, chance: random.Random) -> None:
        self.chance = chance
        self.rows: dict[int, Row] = {}
        sharding = lancemem.bucket("id", shards)
        self.table = lancemem.create_table(
            uri, schema_of(), primary_key="id", sharding=sharding, config=FAST
        )
        self.put(range(KEYS // 2))
        self.table.compact(flush=True)
        for column in ("title", "body"):
            self.table.create_index(column, "INVERTED", with_position=True)

    def put(self, keys: Any = None) -> None:  # noqa: ANN401 - a range or a list
        """Write some rows anew and add some."""
        if keys is None:
            keys = self.chance.sample(range(KEYS), self.chance.randint(1, 25))
        rows = {key: draw(self.chance) for key in keys}
        self.table.upsert(rows_of(rows))
        self.rows.update(rows)

    def delete(self) -> None:
        """Delete keys, of which the table may not have all."""
        keys = self.chance.sample(range(KEYS), self.chance.randint(1, 12))
        self.table.delete(keys)
        for key in keys:
            self.rows.pop(key, None)

    def flush(self) -> None:
        """Flush all rows in memory into SSTables."""
        self.table.flush()

    def compact(self) -> None:
        """Move rows into the base table, where no index covers them."""
        self.table.compact(flush=self.chance.random() < 0.5)

    def optimize(self) -> None:
        """Bring rows of the base table into its indexes."""
        self.table.optimize_indexes()

    def reopen(self) -> None:
        """Open the table anew."""
        self.table = lancemem.open_table(self.table.uri)

    def check(self) -> None:
        """Compare queries of several kinds with a fresh index over the newest rows."""
        fresh = fresh_index(rows_of(self.rows), ["title", "body"], with_position=True)
        words = " ".join(self.chance.choices(WORDS, k=self.chance.randint(1, 3)))
        for exact in (False, True):
            found = self.table.search(words, text_columns="body", k=ALL, exact=exact).to_table()
            check_same(found, scores_of(fresh, words, ["body"]))
        both = self.table.search(words, k=ALL, columns=["id"]).to_table()
        check_same(both, scores_of(fresh, of_lance.MultiMatchQuery(words, ["body", "title"])))
        pair = " ".join(self.chance.choices(WORDS[:7], k=2))
        phrase = self.table.search(query.phrase(pair, "body"), k=ALL).to_table()
        check_same(phrase, scores_of(fresh, of_lance.PhraseQuery(pair, "body")))


def everything(scan: lancemem.Scan) -> list[tuple[int, float]]:
    """Read a search: keys and scores, in order."""
    table = scan.to_table()
    return list(zip(table["id"].to_pylist(), table["_score"].to_pylist(), strict=True))


@pytest.mark.parametrize(("shards", "vectors"), [(1, False), (3, False), (2, True)])
@pytest.mark.parametrize("number", range(ROUNDS))
def test_scores_are_those_of_a_fresh_index_after_every_step(
    tmp_path: Path, shards: int, number: int, *, vectors: bool
) -> None:
    chance = seeded(f"{seeds.seed()} {number} {shards}")
    machine = Machine(str(tmp_path / "t.lance"), shards, chance)
    if vectors:
        machine.table.alter(deletion_vectors=True)
    machine.check()
    names = ["put", "put", "delete", "flush", "flush", "compact", "optimize", "reopen"]
    for _ in range(STEPS):
        getattr(machine, chance.choice(names))()
        machine.check()


def test_neither_a_flush_nor_a_compaction_nor_an_optimized_index_changes_a_score(
    tmp_path: Path,
) -> None:
    machine = Machine(str(tmp_path / "t.lance"), 2, seeded(3))
    for _ in range(4):
        machine.put()
    machine.delete()
    table = machine.table

    def answers() -> list[list[tuple[int, float]]]:
        asked = ["write log", query.phrase("ahead log"), query.match("merge flush", operator="AND")]
        return [everything(table.search(it, text_columns="body", k=ALL)) for it in asked]

    before = answers()
    assert all(before)
    for step in (table.flush, table.compact, table.optimize_indexes):
        step()
        for one, other in zip(before, answers(), strict=True):
            assert [key for key, _ in one] == [key for key, _ in other], step.__name__
            assert [score for _, score in one] == pytest.approx([score for _, score in other])
    assert everything(lancemem.open_table(table.uri).search("log", k=ALL, text_columns="body"))


@pytest.fixture
def table(make_table: MakeTable) -> lancemem.Table:
    """Give a table with texts in the base table, in an SSTable and in the log, and dead ones."""
    chance = seeded(11)
    table = make_table(schema_of(), config=FAST)
    table.upsert(rows_of({key: draw(chance) for key in range(60)}))
    table.compact(flush=True)
    table.create_index("title", "INVERTED", with_position=True)
    table.create_index("body", "INVERTED", with_position=True)
    table.upsert(rows_of({key: draw(chance) for key in range(40, 90)}))
    table.flush()
    table.upsert(rows_of({key: draw(chance) for key in range(80, 110)}))
    table.delete(range(10))
    return table


@pytest.fixture
def fresh(table: lancemem.Table) -> Any:  # noqa: ANN401 - a dataset of pylance
    """Give a fresh index over the rows of `table`."""
    return fresh_index(table.to_table(), ["title", "body"], with_position=True)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (
            query.match("write log", "body", operator="AND", boost=2.5),
            of_lance.MatchQuery(
                "write log", "body", operator=of_lance.FullTextOperator.AND, boost=2.5
            ),
        ),
        (query.match("log log merge", "body"), of_lance.MatchQuery("log log merge", "body")),
        (query.phrase("write ahead", "body"), of_lance.PhraseQuery("write ahead", "body")),
        (query.phrase("log and merge", "body"), of_lance.PhraseQuery("log and merge", "body")),
        (
            query.phrase("write merge", "body", slop=2),
            of_lance.PhraseQuery("write merge", "body", slop=2),
        ),
        (
            query.boost(query.match("log", "body"), query.match("merge", "body")),
            of_lance.BoostQuery(
                of_lance.MatchQuery("log", "body"), of_lance.MatchQuery("merge", "body")
            ),
        ),
        (
            query.multi_match("snapshot köln", ["body", "title"], boosts=[1, 3]),
            of_lance.MultiMatchQuery("snapshot köln", ["body", "title"], boosts=[1.0, 3.0]),
        ),
        (
            query.boolean(
                must=[query.match("log", "body")],
                should=[query.match("flush", "title")],
                must_not=[query.match("merge", "body")],
            ),
            of_lance.BooleanQuery(
                [
                    (of_lance.Occur.MUST, of_lance.MatchQuery("log", "body")),
                    (of_lance.Occur.SHOULD, of_lance.MatchQuery("flush", "title")),
                    (of_lance.Occur.MUST_NOT, of_lance.MatchQuery("merge", "body")),
                ]
            ),
        ),
        (
            query.boolean(should=[query.match("log", "body"), query.phrase("write ahead", "body")]),
            of_lance.BooleanQuery(
                [
                    (of_lance.Occur.SHOULD, of_lance.MatchQuery("log", "body")),
                    (of_lance.Occur.SHOULD, of_lance.PhraseQuery("write ahead", "body")),
                ]
            ),
        ),
    ],
    ids=["and", "or", "phrase", "gap", "slop", "boost", "multi", "boolean", "should"],
)
def test_a_query_of_each_kind_finds_and_scores_as_pylance_does(
    table: lancemem.Table,
    fresh: Any,  # noqa: ANN401 - a dataset of pylance
    ours: Any,  # noqa: ANN401 - a query
    theirs: Any,  # noqa: ANN401 - a query of pylance
) -> None:
    expected = scores_of(fresh, theirs)
    assert expected
    check_same(table.search(ours, k=ALL).to_table(), expected)
    check_same(table.search(ours, k=ALL, exact=True).to_table(), expected)


@pytest.mark.parametrize(
    "options",
    [
        {"base_tokenizer": "whitespace", "stem": False, "lower_case": False},
        {"base_tokenizer": "ngram"},
        {"base_tokenizer": "raw"},
        {"analyzer": "code"},
        {"block_size": 256},
        {"language": "German", "remove_stop_words": False},
    ],
    ids=["whitespace", "ngram", "raw", "code", "large blocks", "German"],
)
def test_every_tokenizer_splits_rows_without_an_index_as_it_splits_indexed_ones(
    make_table: MakeTable, options: dict[str, Any]
) -> None:
    chance = seeded(6)
    odd = {200: ("a", "writeLog"), 201: ("b", "write_ahead_log getLog2"), 202: ("c", "Write " * 90)}
    table = make_table(schema_of(), config=FAST)
    table.upsert(rows_of({key: draw(chance) for key in range(60)} | odd))
    table.compact(flush=True)
    lance.dataset(table.uri).create_scalar_index("body", "INVERTED", **options)
    table.refresh()
    more = {key + 10: row for key, row in odd.items()}
    table.upsert(rows_of({key: draw(chance) for key in range(40, 90)} | more))
    table.flush()
    table.upsert(rows_of({key: draw(chance) for key in range(80, 110)} | {300: odd[201]}))
    fresh = fresh_index(table.to_table(), ["body"], **options)
    for words in (
        "log",
        "write log",
        "writeLog",
        "write_ahead_log",
        "log log",
        "the köln",
        "Write",
    ):
        expected = scores_of(fresh, words, ["body"])
        for exact in (False, True):
            found = table.search(words, text_columns="body", k=ALL, exact=exact).to_table()
            check_same(found, expected)
    assert "by index=body_idx" in table.search("log", text_columns="body").explain()


def test_words_of_dead_rows_count_nowhere(make_table: MakeTable) -> None:
    table = make_table(schema_of(), config=FAST)
    table.upsert(rows_of(dict.fromkeys(range(50), ("old", "rare word"))))
    table.compact(flush=True)
    table.create_index("body", "INVERTED")
    table.upsert(rows_of(dict.fromkeys(range(49), ("new", "other words entirely"))))
    table.upsert(rows_of({99: ("new", "rare")}))
    expected = scores_of(fresh_index(table.to_table(), ["body"]), "rare", ["body"])
    assert sorted(expected) == [49, 99]
    check_same(table.search("rare", k=ALL).to_table(), expected)
    table.delete([49])
    assert table.search("rare").to_table()["id"].to_pylist() == [99]


@pytest.mark.parametrize("condition", ["tag = 1", "id > 70 AND tag <> 2", "10 / (id - 1) >= 0"])
def test_a_filter_chooses_among_the_newest_rows_and_changes_no_score(
    table: lancemem.Table, condition: str
) -> None:
    scores = dict(everything(table.search("log write", text_columns="body", k=ALL)))
    allowed = set(table.to_table(["id"], f"id <> 1 AND ({condition})")["id"].to_pylist())
    expected = {key: score for key, score in scores.items() if key in allowed}
    found = table.search(
        "log write", text_columns="body", k=ALL, filter=f"id <> 1 AND ({condition})"
    )
    check_same(found.to_table(), expected)
    few = table.search("log write", text_columns="body", k=3, filter=f"id <> 1 AND ({condition})")
    assert everything(few) == everything(found)[:3]


def test_a_filter_after_the_choice_may_leave_fewer_rows(table: lancemem.Table) -> None:
    best = everything(table.search("log", text_columns="body", k=8))
    found = table.search("log", text_columns="body", k=8, filter="tag = 1", prefilter=False)
    assert everything(found) == [(key, score) for key, score in best if key % 4 == 1]


def test_k_and_offset_page_through_the_rows_and_columns_come_as_asked(
    table: lancemem.Table,
) -> None:
    everyone = everything(table.search("log merge", text_columns="body", k=ALL))
    pages = [
        everything(table.search("log merge", text_columns="body", k=7, offset=start))
        for start in range(0, len(everyone), 7)
    ]
    assert [row for page in pages for row in page] == everyone
    found = table.search("log", text_columns="body", k=2, columns=["title"]).to_table()
    assert found.column_names == ["title", "_score"]
    assert found.schema.field("_score").type == pa.float32()
    assert table.search("nowhere", k=5).to_table().num_rows == 0
    assert table.search("the", k=5).to_table().num_rows == 0, "a stop word"


def test_a_snapshot_answers_the_same_again_and_a_level_says_what_is_seen(
    table: lancemem.Table,
) -> None:
    snapshot = table.snapshot()
    before = everything(snapshot.search("log", k=ALL, text_columns="body"))
    table.upsert(rows_of({500: ("log", "log log log")}))
    assert everything(snapshot.search("log", k=ALL, text_columns="body")) == before
    found = dict(everything(table.search("log", k=ALL, text_columns="body")))
    assert 500 in found
    flushed = table.search("log", k=ALL, text_columns="body", consistency="flushed")
    assert 500 not in dict(everything(flushed))
    scan = table.scan(["id"], full_text_query="log", limit=3)
    assert scan.to_table()["id"].to_pylist() == list(dict(everything(table.search("log", k=3))))


def test_explain_shows_which_sources_an_index_answers_for(table: lancemem.Table) -> None:
    text = table.search("log", text_columns="body").explain()
    assert "TextSearchExec: body=[log], k=10" in text
    assert "by index=body_idx of 1 segments" in text
    assert "1 sources read" in text, "the log"
    assert "index=" not in table.search("log", text_columns="body", exact=True).explain()


def test_fast_search_finds_the_rows_of_indexes_alone(table: lancemem.Table) -> None:
    table.upsert(rows_of({700: ("log", "log")}))
    found = dict(everything(table.search("log", text_columns="body", k=ALL, fast_search=True)))
    assert found
    assert 700 not in found


def test_a_table_without_a_key_is_searched_too(tmp_path: Path) -> None:
    chance = seeded(5)
    schema = schema_of()
    uri = str(tmp_path / "t.lance")
    table = lancemem.create_table(uri, schema, sharding=lancemem.unsharded())
    table.upsert(rows_of({key: draw(chance) for key in range(40)}))
    table.compact(flush=True)
    table.create_index("body", "INVERTED")
    table.upsert(rows_of({key: draw(chance) for key in range(40, 80)}))
    expected = scores_of(fresh_index(table.to_table(), ["body"]), "log merge", ["body"])
    found = dict(everything(table.search("log merge", k=ALL)))
    assert sorted(found) == sorted(expected)
    assert all(found[key] == pytest.approx(expected[key], rel=1e-5) for key in found)


def test_a_renamed_column_is_searched_under_its_new_name(table: lancemem.Table) -> None:
    before = everything(table.search("log", text_columns="body", k=ALL))
    lance.dataset(table.uri).alter_columns({"path": "body", "name": "content"})  # type: ignore[dict-item]
    table.refresh()
    after = everything(table.search("log", text_columns="content", k=ALL))
    assert [key for key, _ in before] == [key for key, _ in after]
    assert [score for _, score in before] == pytest.approx([score for _, score in after])


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ({"query": "  "}, "an empty text"),
        ({"query": "log", "k": 0}, "k: expected at least 1"),
        ({"query": "log", "text_columns": "nope"}, "column 'nope' is not in the table"),
        ({"query": "log", "text_columns": "tag"}, "'tag' holds int64, which is no text"),
        ({"query": "log", "columns": ["nope"]}, "column 'nope' is not in the table"),
        ({"query": "log", "filter": "nope = 1"}, "nope"),
        ({"query": "log", "filter": "title + 1"}, "filter"),
        ({"query": "log", "query_type": "vector"}, "needs a vector"),
        ({"query": "log", "query_type": "hybrid"}, "needs a vector beside its text"),
        ({"query": [1.0], "query_type": "fts"}, "needs words"),
        ({"query": [1.0], "query_type": "hybrid"}, "needs text="),
        ({"query": "log", "query_type": "words"}, "query_type: expected one of"),
        ({"query": "log", "rerank": lancemem.RRF()}, "only a hybrid search"),
        ({"query": query.boolean(must_not=["log"])}, "must_not alone"),
        ({"query": query.match("log", operator="XOR")}, "operator: expected"),  # type: ignore[arg-type]
        ({"query": query.phrase("a log")}, "searched in one column"),
        ({"query": of_lance.MatchQuery("log", "body")}, "build it with lancemem.query"),
        ({"query": "log", "exact": True, "fast_search": True}, "leave one out"),
    ],
)
def test_input_that_cannot_be_searched_for_is_refused_with_the_reason(
    table: lancemem.Table, arguments: dict[str, Any], fault: str
) -> None:
    with pytest.raises(lancemem.InvalidInputError, match=fault):
        table.search(**arguments).to_table()


def test_a_text_without_an_index_needs_its_column_and_a_phrase_needs_positions(
    make_table: MakeTable,
) -> None:
    table = make_table(schema_of(), config=FAST)
    table.upsert(rows_of({1: ("log", "write ahead log"), 2: ("log", "ahead write")}))
    with pytest.raises(lancemem.InvalidInputError, match="no INVERTED index"):
        table.search("log").to_table()
    assert len(everything(table.search("write", text_columns=["body"]))) == 2
    phrase = query.phrase("write ahead", "body")
    assert [key for key, _ in everything(table.search(phrase))] == [1]
    table.compact(flush=True)
    table.create_index("body", "INVERTED")
    with pytest.raises(lancemem.InvalidInputError, match="with_position=True"):
        table.search(phrase).to_table()
