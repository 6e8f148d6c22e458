"""Indexes of linked SSTables as segments of the base table's indexes.

Owns: which indexes a compaction links, that their answers stay the same, that no dead row is in
them, and what happens where the base table's index has another model. Does not own the flush of
indexes, which `tests/test_sstable_indexes.py` has.
"""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pytest

import lancemem
from tests.test_sstable_indexes import (
    BASE_ROWS,
    INDEXES,
    LARGE_ROWS,
    SCHEMA,
    Model,
    brute_force,
    drawn,
    folders,
    found,
    indexed,
    rows,
    write,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.conftest import MakeTable

FIRST = 10_000
LINKED = ("IVF_FLAT", "IVF_PQ", "IVF_SQ", "IVF_RQ")
# More segments of one index are merged.
MAX_SEGMENTS = 8


def compacted(done: lancemem.CompactionResult, name: str) -> lancemem.CompactedIndex:
    [index] = [index for index in done.indexes if index.name == name]
    return index


def large(seed: int, count: int = LARGE_ROWS) -> Model:
    return drawn(range(FIRST, FIRST + count), seed)


def by_codes(dataset: lance.LanceDataset, query: np.ndarray, k: int) -> dict[int, float]:
    """Give the distances that pylance computes of the codes in an index alone."""
    nearest = {"column": "vec", "q": query, "k": k, "nprobes": 2}
    condition = f"id >= {FIRST}"
    result = dataset.to_table(
        columns=["id"], nearest=nearest, filter=condition, prefilter=True, fast_search=True
    )
    return dict(zip(result["id"].to_pylist(), result["_distance"].to_pylist(), strict=True))


def uncovered(table: lancemem.Table) -> dict[str, int]:
    base = lance.dataset(table.uri)
    names = [index.name for index in table.indexes()]
    return {name: base.stats.index_stats(name)["num_unindexed_rows"] for name in names}


def ids_of(table: lancemem.Table, condition: str) -> list[int]:
    result = lance.dataset(table.uri).to_table(columns=["id"], filter=condition)
    return sorted(int(number) for number in result["id"].to_pylist())


def words(table: lancemem.Table, text: str) -> list[int]:
    base = lance.dataset(table.uri)
    result = base.to_table(columns=["id"], full_text_query=text, fast_search=True)
    return sorted(int(number) for number in result["id"].to_pylist())


@pytest.mark.parametrize("kind", LINKED)
def test_the_codes_of_a_linked_index_are_those_of_the_sstable(
    make_table: MakeTable, kind: str
) -> None:
    model = drawn(range(BASE_ROWS))
    table = indexed(make_table, kind, model)
    write(table, model, large(1))
    query = drawn([0], 2)[0]
    [folder] = folders(table)
    before = by_codes(lance.dataset(str(folder)), query, 200)
    index = compacted(table.compact(), "vec_idx")
    assert (index.linked_rows, index.built_rows, index.unindexed_rows) == (LARGE_ROWS, 0, 0)
    assert (index.segments, index.reason) == (2, None)
    assert by_codes(lance.dataset(table.uri), query, 200) == before
    assert uncovered(table) == {"vec_idx": 0}
    statistics = lance.dataset(table.uri).stats.index_stats("vec_idx")
    assert statistics["num_indices"] == 2
    assert statistics["num_indexed_rows"] == len(model)


@pytest.mark.parametrize("kind", INDEXES)
def test_a_search_returns_the_same_rows_after_a_compaction(
    make_table: MakeTable, kind: str
) -> None:
    model = drawn(range(BASE_ROWS))
    table = indexed(make_table, kind, model)
    write(table, model, drawn(range(500, 900), 3) | large(3))
    moved = drawn(range(FIRST, FIRST + 3000), 4)
    write(table, model, moved, deleted=range(FIRST + 3000, FIRST + 3500))
    queries = [*drawn(range(6), 5).values(), model[FIRST + 10], model[700]]
    exact = [found(table, query, 10, exact=True) for query in queries]
    assert exact == [brute_force(model, query, 10) for query in queries]

    done = compacted(table.compact(mode="link"), "vec_idx")
    assert done.unindexed_rows == 0
    if kind in LINKED:
        assert done.linked_rows == LARGE_ROWS + 400 - 3500, "live rows of the large SSTable"
        assert done.built_rows == 3000, "the small SSTable has one partition"
        assert "other partitions" in str(done.reason)
    else:
        assert (done.linked_rows, done.reason) == (0, "graphs are built of rows")
    for reader in (table, lancemem.open_table(table.uri)):
        for query, right in zip(queries, exact, strict=True):
            assert found(reader, query, 10, exact=True) == right
            ids = found(reader, query, 10, refine_factor=30)
            assert len(set(ids)) == 10
            assert set(ids) <= set(model), "no deleted row"
            assert len(set(ids) & set(right)) >= 9, (ids, right)


@pytest.mark.parametrize("kind", LINKED)
def test_pylance_never_gets_a_dead_row_of_a_linked_sstable(
    make_table: MakeTable, kind: str
) -> None:
    model = drawn(range(BASE_ROWS))
    table = indexed(make_table, kind, model)
    write(table, model, old := large(6))
    gone = range(FIRST, FIRST + 200)
    moved = {number: old[number] + 100 for number in range(FIRST + 200, FIRST + 400)}
    write(table, model, moved, deleted=gone)
    assert table.compact(mode="link").num_sstables_linked == 2
    base = lance.dataset(table.uri)
    for number in (FIRST, FIRST + 150, FIRST + 210, FIRST + 399):
        nearest = {"column": "vec", "q": old[number], "k": 400, "nprobes": 2}
        result = base.to_table(columns=["id", "vec"], nearest=nearest, fast_search=True)
        ids = [int(each) for each in result["id"].to_pylist()]
        assert len(ids) == len(set(ids)) == 400
        assert set(ids) <= set(model)
        stored = np.array([row.values.to_numpy() for row in result["vec"]])
        assert (stored == np.stack([model[each] for each in ids])).all(), "newest rows"


def test_scalar_and_text_indexes_are_linked_and_pylance_uses_them(make_table: MakeTable) -> None:
    model = drawn(range(BASE_ROWS))
    table = make_table(SCHEMA, sharding=lancemem.unsharded())
    table.upsert(rows(model))
    table.compact(flush=True)
    base = lance.dataset(table.uri)
    base.create_scalar_index("id", "BTREE", name="by_id")
    base.create_scalar_index("text", "BITMAP", name="by_text")
    base.create_scalar_index("text", "INVERTED", name="words")
    base.create_scalar_index("text", "NGRAM", name="parts")
    table = lancemem.open_table(table.uri)
    write(table, model, drawn(range(550, 2000), 7), deleted=range(50))
    write(table, model, drawn(range(600, 650), 8), deleted=range(700, 720))
    conditions = ["id in (1, 601, 710, 1999)", "text = 'word5 row705'", "text = 'word0 row1400'"]
    conditions += ["contains(text, 'row19')", "id >= 640 and id < 730", "text is null"]
    before = [ids_by_scan(table, condition) for condition in conditions]

    done = table.compact(mode="link")
    for name in ("by_id", "by_text", "words"):
        index = compacted(done, name)
        assert (index.linked_rows, index.built_rows, index.reason) == (1450 - 20, 0, None), name
    index = compacted(done, "parts")
    assert (index.linked_rows, index.built_rows) == (0, 1450 - 20)
    assert index.reason == "indexes of this type are built of rows"
    assert uncovered(table) == {"by_id": 0, "by_text": 0, "parts": 0, "words": 0}
    assert [ids_by_scan(table, condition) for condition in conditions] == before
    assert [ids_of(table, condition) for condition in conditions] == before
    base = lance.dataset(table.uri)
    for condition, name in [("id = 1999", "by_id"), ("text = 'word4 row1999'", "by_text")]:
        plan = base.scanner(filter=condition, columns=["vec"]).explain_plan(True)
        assert "ScalarIndexQuery" in plan, plan
        assert name in plan, plan
    assert words(table, "row1999") == [1999]
    assert words(table, "row705") == words(table, "row10") == [], "dead rows have no words"
    assert words(table, "word3") == sorted(number for number in model if number % 7 == 3)


def ids_by_scan(table: lancemem.Table, condition: str) -> list[int]:
    result = table.scan(filter=condition, columns=["id"]).to_table()
    return sorted(int(number) for number in result["id"].to_pylist())


@pytest.mark.parametrize(
    ("kind", "again", "reason"),
    [
        ("IVF_PQ", "IVF_PQ", "the SSTable's index has other partitions"),
        ("IVF_PQ", "IVF_SQ", "the SSTable's index has other partitions"),
        ("IVF_SQ", "IVF_HNSW_SQ", "graphs are built of rows"),
    ],
)
def test_rows_are_encoded_by_the_present_model_where_the_base_was_trained_again(
    make_table: MakeTable, kind: str, again: str, reason: str
) -> None:
    model = drawn(range(BASE_ROWS))
    table = indexed(make_table, kind, model)
    write(table, model, large(9))
    base = lance.dataset(table.uri)
    base.create_index(
        "vec", again, name="vec_idx", num_partitions=2, replace=True, **INDEXES[again]
    )
    index = compacted(table.compact(), "vec_idx")
    assert (index.linked_rows, index.built_rows) == (0, LARGE_ROWS)
    assert (index.unindexed_rows, index.reason) == (0, reason)
    # Lance merges segments of one model only.
    [merged] = table.optimize_indexes(num_indices_to_merge=2)
    assert (merged.segments_before, merged.segments) == (2, 1)
    query = model[FIRST + 77]
    assert found(table, query, 1, refine_factor=30) == [FIRST + 77]
    assert [index.type for index in table.indexes()] == [again]


def test_an_index_of_the_same_vectors_with_another_codebook_is_not_linked(
    make_table: MakeTable,
) -> None:
    model = drawn(range(BASE_ROWS))
    table = indexed(make_table, "IVF_PQ", model)
    base = lance.dataset(table.uri)
    centroids = base.centroids(index_name="vec_idx")
    write(table, model, large(10))
    lance.dataset(table.uri).create_index(
        "vec",
        "IVF_PQ",
        name="vec_idx",
        replace=True,
        num_partitions=2,
        ivf_centroids=centroids,
        **INDEXES["IVF_PQ"],
    )
    index = compacted(table.compact(), "vec_idx")
    assert (index.linked_rows, index.built_rows) == (0, LARGE_ROWS)
    assert index.reason == "the SSTable's index has another model"


def test_a_tokenizer_that_changed_is_never_mixed(make_table: MakeTable) -> None:
    model = drawn(range(BASE_ROWS))
    table = indexed(make_table, "IVF_FLAT", model)
    lance.dataset(table.uri).create_scalar_index("text", "INVERTED", name="words")
    table = lancemem.open_table(table.uri)
    write(table, model, drawn(range(700, 800), 11))
    lance.dataset(table.uri).create_scalar_index(
        "text",
        "INVERTED",
        name="words",
        replace=True,
        base_tokenizer="whitespace",
        lower_case=False,
    )
    index = compacted(table.compact(), "words")
    assert (index.linked_rows, index.built_rows, index.unindexed_rows) == (0, 100, 0)
    assert index.reason == "the SSTable's index has another tokenizer"
    assert words(table, "row750") == [750]


def test_fragments_that_a_compaction_left_alone_are_covered_by_the_next(
    make_table: MakeTable,
) -> None:
    model = drawn(range(BASE_ROWS))
    table = indexed(make_table, "IVF_SQ", model)
    write(table, model, large(12))
    assert table.compact(update_indexes=False).indexes == []
    assert uncovered(table) == {"vec_idx": LARGE_ROWS}
    lance.write_dataset(rows(more := drawn(range(5000, 5100), 13)), table.uri, mode="append")
    model.update(more)
    index = compacted(table.compact(), "vec_idx")
    assert (index.linked_rows, index.built_rows) == (0, LARGE_ROWS + 100)
    assert uncovered(table) == {"vec_idx": 0}
    assert found(table, model[5050], 1, fast_search=True) == [5050]


def test_after_many_rounds_there_are_few_segments_and_every_answer_is_right(
    make_table: MakeTable,
) -> None:
    model = drawn(range(BASE_ROWS))
    table = indexed(make_table, "IVF_FLAT", model)
    base = lance.dataset(table.uri)
    base.create_scalar_index("text", "INVERTED", name="words")
    base.create_scalar_index("id", "BTREE", name="by_id")
    chance = np.random.default_rng(14)
    seen = 0
    for turn in range(14):
        first = int(chance.integers(0, 1500))
        count = int(chance.integers(50, 300))
        deleted = {int(each) for each in chance.integers(0, 1500, 20)}
        table = lancemem.open_table(table.uri)
        write(table, model, drawn(range(first, first + count), 100 + turn), deleted=deleted)
        table.compact(mode="link" if turn % 3 else "rewrite")
        assert set(uncovered(table).values()) == {0}, turn
        segments = [index.segments for index in table.indexes()]
        assert max(segments) <= MAX_SEGMENTS, segments
        seen = max(seen, *segments)
        for query in (model[next(iter(model))], drawn([0], turn)[0]):
            right = brute_force(model, query, 10)
            assert found(table, query, 10) == found(table, query, 10, fast_search=True) == right
        assert words(table, f"word{turn % 7}") == sorted(i for i in model if i % 7 == turn % 7)
        assert ids_of(table, "id >= 700 and id < 900") == sorted(i for i in model if 700 <= i < 900)
    assert seen > 4, "segments pile up before they are merged"


@pytest.mark.parametrize(
    "mode", ["append-only", "deletion vectors", "stored changes", "two shards"]
)
def test_tables_of_every_mode_link_indexes(mode: str, make_table: MakeTable) -> None:
    if mode == "append-only":
        table = make_table(SCHEMA, [], sharding=lancemem.unsharded())
    elif mode == "two shards":
        table = make_table(SCHEMA, sharding=lancemem.bucket("id", 2))
    elif mode == "stored changes":
        table = make_table(SCHEMA, changelog="stored")
    else:
        table = make_table(SCHEMA)
        table.alter(deletion_vectors=True)
    table.upsert(rows(model := drawn(range(300), 18)))
    table.compact(flush=True)
    table.create_index("text", "BITMAP")
    table.create_index("vec", "IVF_FLAT", num_partitions=2)
    table.upsert(rows(more := drawn(range(300, 400), 19)))
    model.update(more)
    table.flush()
    if mode == "deletion vectors":
        table.write_deletion_vectors()
    done = table.compact(mode="link")
    text, vec = compacted(done, "text_idx"), compacted(done, "vec_idx")
    assert (text.linked_rows, text.built_rows, text.unindexed_rows) == (100, 0, 0)
    assert (vec.linked_rows, vec.built_rows, vec.unindexed_rows) == (0, 100, 0)
    assert ids_of(table, f"text = 'word{350 % 7} row350'") == [350]
    assert found(table, model[350], 5, fast_search=True) == brute_force(model, model[350], 5)


def test_a_collection_keeps_the_files_of_segments(make_table: MakeTable) -> None:
    model = drawn(range(BASE_ROWS))
    table = indexed(make_table, "IVF_FLAT", model)
    write(table, model, large(15))
    table.compact()
    [folder] = [folder.parent for folder in Path(table.uri).glob("_mem_wal/*/*_gen_*/_indices")]
    table.collect_garbage(older_than=timedelta(0))
    uri = table.uri
    del table
    lancemem.open_table(uri).collect_garbage(older_than=timedelta(0))
    assert not folder.exists()
    lance.dataset(uri).cleanup_old_versions(timedelta(0), delete_unverified=True)
    query = model[FIRST + 5]
    assert found(lancemem.open_table(uri), query, 5, fast_search=True) == brute_force(
        model, query, 5
    )


def test_an_index_without_a_model_says_why_rows_are_not_covered(make_table: MakeTable) -> None:
    table = make_table(SCHEMA)
    lance.dataset(table.uri).create_index("vec", "IVF_PQ", num_partitions=1, num_sub_vectors=4)
    table = lancemem.open_table(table.uri)
    table.upsert(rows(drawn(range(300), 16)))
    index = compacted(table.compact(flush=True), "vec_idx")
    assert (index.unindexed_rows, index.linked_rows, index.built_rows) == (300, 0, 0)
    [listed] = table.indexes()
    assert listed.unindexed_because == index.reason
    assert "optimize_indexes trains it" in str(index.reason)
    table.optimize_indexes()
    [listed] = table.indexes()
    assert (listed.unindexed_rows, listed.unindexed_because) == (0, None)


def beside(work: Iterable[Any], stop: threading.Event, failed: list[BaseException]) -> None:
    """Run the steps of `work` over and over; a refused commit is no failure of lancemem."""
    for step in work:
        if stop.is_set():
            return
        try:
            step()
        except Exception as error:  # noqa: BLE001 - pylance raises several types
            text = str(error).lower()
            if "conflict" not in text and "concurrent" not in text:
                failed.append(error)
                return


def test_commits_of_pylance_beside_compactions_never_spoil_an_index(make_table: MakeTable) -> None:
    model = drawn(range(BASE_ROWS))
    table = indexed(make_table, "IVF_FLAT", model)
    uri = table.uri
    lance.dataset(uri).create_scalar_index("id", "BTREE", name="by_id")
    stop = threading.Event()
    failed: list[BaseException] = []

    def replace() -> None:
        lance.dataset(uri).create_index(
            "vec", "IVF_FLAT", name="vec_idx", num_partitions=2, replace=True
        )

    def optimize() -> None:
        lance.dataset(uri).optimize.optimize_indices()

    def compact_files() -> None:
        lance.dataset(uri).optimize.compact_files(target_rows_per_fragment=2000)

    def delete() -> None:
        lance.dataset(uri).delete("id = 3")

    steps = [replace, optimize, compact_files, delete] * 200
    thread = threading.Thread(target=beside, args=(steps, stop, failed))
    thread.start()
    try:
        for turn in range(10):
            first = 600 + 100 * turn
            write(table, model, drawn(range(first, first + 150), 200 + turn), deleted=[first - 1])
            table.compact(mode="link" if turn % 2 else "auto")
    finally:
        stop.set()
        thread.join()
    assert failed == []
    model.pop(3, None)
    table = lancemem.open_table(uri)
    lance.dataset(uri).delete("id = 3")
    table.compact()
    assert set(uncovered(table).values()) == {0}
    for query in drawn(range(5), 17).values():
        right = brute_force(model, query, 10)
        assert found(table, query, 10) == found(table, query, 10, fast_search=True) == right
    assert ids_of(table, "id >= 0") == sorted(model)
    assert lance.dataset(uri).count_rows() == len(model)
