"""Indexes of the base table: each type made here and used by pylance, and the other way round.

Owns: `create_index`, `indexes`, `drop_index` and `optimize_indexes`, beside jobs, compactions and
commits of pylance, and what they refuse. Not here: what a search finds, or Spark's calls
(test_spark_indexes).
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lancemem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.conftest import MakeTable

WIDTH = 16
ROWS = 600
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("vec", pa.list_(pa.float32(), WIDTH)),
        pa.field("bits", pa.list_(pa.uint8(), WIDTH)),
        pa.field("name", pa.string()),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("n", pa.int64()),
    ]
)
VECTOR_TYPES = (
    "IVF_FLAT",
    "IVF_PQ",
    "IVF_SQ",
    "IVF_RQ",
    "IVF_HNSW_FLAT",
    "IVF_HNSW_PQ",
    "IVF_HNSW_SQ",
)
# A type, its column, and a condition that pylance answers by it.
VALUE_TYPES = (
    ("BTREE", "n", "n = 3"),
    ("BITMAP", "n", "n = 3"),
    ("ZONEMAP", "n", "n = 3"),
    ("BLOOMFILTER", "n", "n = 3"),
    ("LABEL_LIST", "tags", "array_has(tags, 't1')"),
    ("NGRAM", "name", "contains(name, 'row 12')"),
)


def rows(start: int, end: int) -> pa.Table:
    """Return rows whose values follow from their ids."""
    numbers = np.arange(start, end)
    generator = np.random.default_rng(start)
    vectors = generator.random(len(numbers) * WIDTH, dtype=np.float32)
    bits = generator.integers(0, 255, len(numbers) * WIDTH, dtype=np.uint8)
    return pa.table(
        {
            "id": numbers,
            "vec": pa.FixedSizeListArray.from_arrays(pa.array(vectors), WIDTH),
            "bits": pa.FixedSizeListArray.from_arrays(pa.array(bits), WIDTH),
            "name": [f"row {number % 50}" for number in numbers],
            "tags": [[f"t{number % 5}", "all"] for number in numbers],
            "n": numbers % 7,
        },
        schema=SCHEMA,
    )


def put_in_base(table: lancemem.Table, start: int, end: int) -> None:
    """Write rows and bring them into the base table, and into no index of it."""
    table.upsert(rows(start, end))
    table.compact(flush=True, update_indexes=False)


@pytest.fixture
def filled(make_table: MakeTable) -> lancemem.Table:
    """Give a table whose base has 600 rows."""
    table = make_table(SCHEMA)
    put_in_base(table, 0, ROWS)
    return table


def only(table: lancemem.Table) -> lancemem.TableIndex:
    """Return the only index."""
    (index,) = table.indexes()
    return index


def named(table: lancemem.Table, name: str) -> lancemem.TableIndex:
    """Return the index of that name."""
    (index,) = [index for index in table.indexes() if index.name == name]
    return index


def types_of_pylance(table: lancemem.Table, version: int | None = None) -> dict[str, str]:
    """Return the types of the indexes by name, as pylance describes a version of the base table."""
    described = lance.dataset(table.uri, version=version).describe_indices()
    return {index.name: index.index_type for index in described if "mem_wal" not in index.name}


def used(table: lancemem.Table, condition: str) -> str:
    """Return how pylance reads the base table under a condition."""
    return table.to_lance().scanner(filter=condition).explain_plan()


def nearest() -> dict[str, Any]:
    """Return pylance's description of a search for the vector of row 5."""
    return {"column": "vec", "q": rows(0, ROWS)["vec"][5].as_py(), "k": 3}


@pytest.mark.parametrize("index_type", VECTOR_TYPES)
def test_pylance_searches_each_type_of_vector_index(
    index_type: str,
    filled: lancemem.Table,
) -> None:
    made = filled.create_index("vec", index_type, metric="cosine", num_partitions=2)
    assert (made.name, made.columns, made.type) == ("vec_idx", ["vec"], index_type)
    assert (made.metric, made.indexed_rows, made.unindexed_rows) == ("cosine", ROWS, 0)
    assert only(filled) == made
    base = filled.to_lance()
    assert types_of_pylance(filled) == {"vec_idx": index_type}
    assert base.stats.index_stats("vec_idx")["num_indexed_rows"] == ROWS
    plan = base.scanner(nearest=nearest()).explain_plan()
    assert "ANNSubIndex: name=vec_idx" in plan
    found = base.to_table(nearest={**nearest(), "nprobes": 2, "refine_factor": 10})
    assert found["id"][0].as_py() == 5


@pytest.mark.parametrize(("index_type", "column", "condition"), VALUE_TYPES)
def test_pylance_answers_conditions_by_each_type_of_scalar_index(
    index_type: str,
    column: str,
    condition: str,
    filled: lancemem.Table,
) -> None:
    before = filled.to_lance().count_rows(condition)
    made = filled.create_index(column, index_type.lower())
    assert (made.name, made.type, made.metric) == (f"{column}_idx", index_type, None)
    assert f"@{column}_idx(" in used(filled, condition)
    assert filled.to_lance().count_rows(condition) == before > 0
    if index_type != "LABEL_LIST":
        assert filled.scan(filter=condition).count_rows() == before


def test_pylance_searches_text_by_an_index_with_the_options_of_its_own(
    filled: lancemem.Table,
) -> None:
    made = filled.create_index(
        "name", "FTS", with_position=True, stem=False, language="German", max_token_length=None
    )
    assert (made.type, made.indexed_rows) == ("INVERTED", ROWS)
    found = filled.to_lance().to_table(
        full_text_query=lance.query.PhraseQuery("row 12", "name"), columns=["name"]
    )
    assert set(found["name"].to_pylist()) == {"row 12"}
    assert found.num_rows == ROWS // 50


def test_vectors_of_bytes_have_an_index_by_hamming_distance(filled: lancemem.Table) -> None:
    assert filled.create_index("bits", "IVF_FLAT", num_partitions=2).metric == "hamming"


def test_indexes_of_pylance_are_listed_updated_and_dropped_here(filled: lancemem.Table) -> None:
    base = lance.dataset(filled.uri)
    base.create_scalar_index("n", "BITMAP", name="by_n")
    base.create_index("vec", "IVF_PQ", metric="dot", num_partitions=2, num_sub_vectors=4)
    by_n, by_vec = filled.indexes()
    assert (by_n.name, by_n.type, by_n.columns, by_n.metric) == ("by_n", "BITMAP", ["n"], None)
    assert (by_vec.name, by_vec.type, by_vec.metric) == ("vec_idx", "IVF_PQ", "dot")
    put_in_base(filled, ROWS, ROWS + 40)
    changed = filled.optimize_indexes()
    assert [(each.name, each.added_rows) for each in changed] == [("by_n", 40), ("vec_idx", 40)]
    filled.drop_index("by_n")
    assert types_of_pylance(filled) == {"vec_idx": "IVF_PQ"}


def test_rows_that_a_compaction_does_not_index_wait_for_an_update(filled: lancemem.Table) -> None:
    filled.create_index("n", "BTREE")
    filled.create_index("vec", "IVF_FLAT", num_partitions=2)
    put_in_base(filled, ROWS, ROWS + 100)
    assert [(index.indexed_rows, index.unindexed_rows) for index in filled.indexes()] == [
        (ROWS, 100),
        (ROWS, 100),
    ]
    (changed,) = filled.optimize_indexes(["n_idx"])
    assert (changed.name, changed.added_rows, changed.segments_before) == ("n_idx", 100, 1)
    assert named(filled, "n_idx").unindexed_rows == 0
    assert named(filled, "vec_idx").unindexed_rows == 100
    assert [each.name for each in filled.optimize_indexes()] == ["vec_idx"]
    assert {index.unindexed_rows for index in filled.indexes()} == {0}
    assert filled.optimize_indexes() == []
    condition = "n = 3"
    expected = sum(number % 7 == 3 for number in range(ROWS + 100))
    assert filled.to_lance().count_rows(condition) == expected
    assert filled.scan(filter=condition).count_rows() == expected


def test_segments_are_merged_where_the_caller_asks_for_it(filled: lancemem.Table) -> None:
    filled.create_index("vec", "IVF_FLAT", num_partitions=2)
    for start in (ROWS, ROWS + 50):
        put_in_base(filled, start, start + 50)
        (added,) = filled.optimize_indexes("vec_idx", num_indices_to_merge=0)
        assert added.segments == added.segments_before + 1
    assert only(filled).segments == 3
    (merged,) = filled.optimize_indexes(num_indices_to_merge=3)
    assert (merged.segments_before, merged.segments, merged.added_rows) == (3, 1, 0)
    assert only(filled).indexed_rows == ROWS + 100


def test_a_compaction_updates_the_indexes(filled: lancemem.Table) -> None:
    filled.create_index("n", "BITMAP")
    filled.upsert(rows(ROWS, ROWS + 30))
    (done,) = filled.compact(flush=True).indexes
    assert (done.name, done.linked_rows, done.built_rows) == ("n_idx", 30, 0)
    assert (done.unindexed_rows, done.segments, done.reason) == (0, 2, None)
    assert only(filled).unindexed_rows == 0
    assert filled.compact().indexes == []


def test_rows_that_are_replaced_or_deleted_leave_the_counts_of_an_index(
    filled: lancemem.Table,
) -> None:
    filled.create_index("n", "BTREE")
    filled.upsert(rows(0, 10))
    filled.delete([20, 21])
    filled.compact(flush=True, update_indexes=False)
    index = only(filled)
    assert index.indexed_rows + index.unindexed_rows == ROWS - 2
    filled.optimize_indexes()
    assert (only(filled).indexed_rows, only(filled).unindexed_rows) == (ROWS - 2, 0)
    assert filled.scan(filter="n = 6").count_rows() == filled.to_lance().count_rows("n = 6")


def test_a_name_that_is_taken_is_refused_or_replaced(filled: lancemem.Table) -> None:
    filled.create_index("vec", "IVF_FLAT", num_partitions=2)
    with pytest.raises(lancemem.InvalidInputError, match="replace=True"):
        filled.create_index("vec", "IVF_SQ")
    replaced = filled.create_index("vec", "IVF_SQ", replace=True, num_partitions=1)
    assert (replaced.name, replaced.type) == ("vec_idx", "IVF_SQ")
    assert only(filled) == replaced
    assert filled.create_index("n", "BTREE").name == "n_idx"
    assert filled.create_index("n", "BITMAP").name == "n_idx_2"
    with pytest.raises(lancemem.InvalidInputError, match="is an index of column 'n'"):
        filled.create_index("name", "BTREE", name="n_idx", replace=True)


def test_a_dropped_index_is_gone_and_can_be_made_again(filled: lancemem.Table) -> None:
    filled.create_index("n", "BTREE", name="numbers")
    version = filled.history(1)[0].version
    filled.drop_index("numbers")
    assert filled.indexes() == []
    assert "numbers" not in used(filled, "n = 3")
    assert types_of_pylance(filled, version) == {"numbers": "BTree"}
    filled.create_index("n", "BTREE", name="numbers")
    assert only(filled).name == "numbers"


def test_rows_above_the_base_are_in_no_index_and_in_every_read(make_table: MakeTable) -> None:
    table = make_table(SCHEMA, sharding=lancemem.bucket("id", 2))
    put_in_base(table, 0, 400)
    with table.start_job(shard=0) as job:
        mine = rows(400, 500)
        ordinals = pa.array(table.shard_ordinals(mine)).to_numpy(zero_copy_only=False)
        mine = mine.filter(pa.array(ordinals == 0))
        job.put(mine)
        made = table.create_index("n", "BTREE")
        assert (made.indexed_rows, made.unindexed_rows) == (400, 0)
        job.put(mine)
        count = table.scan(filter="n >= 0", consistency="live").count_rows()
        assert count == 400 + mine.num_rows
    assert table.optimize_indexes() == []
    table.compact(flush=True, update_indexes=False)
    assert only(table).unindexed_rows == mine.num_rows
    table.optimize_indexes()
    assert only(table).indexed_rows == 400 + mine.num_rows


def test_an_index_is_made_beside_compactions_and_commits_of_pylance(
    filled: lancemem.Table,
) -> None:
    stop = threading.Event()
    failed: list[BaseException] = []

    def commit_beside() -> None:
        table, number = lancemem.open_table(filled.uri), ROWS
        try:
            while not stop.is_set():
                table.upsert(rows(number, number + 5))
                table.compact(flush=True)
                lance.dataset(filled.uri).update_config({"turn": str(number)})
                number += 5
        except BaseException as error:  # noqa: BLE001 - the test fails below
            failed.append(error)

    thread = threading.Thread(target=commit_beside)
    thread.start()
    try:
        for turn in range(3):
            filled.create_index("vec", "IVF_FLAT", name=f"v{turn}", num_partitions=2)
            filled.create_index("n", "BTREE", replace=True)
            filled.optimize_indexes()
            filled.drop_index(f"v{turn}")
    finally:
        stop.set()
        thread.join()
    assert failed == []
    assert [index.name for index in filled.indexes()] == ["n_idx"]
    filled.optimize_indexes()
    total = filled.count_rows()
    assert (only(filled).indexed_rows, only(filled).unindexed_rows) == (total, 0)


@pytest.mark.parametrize("mode", ["append-only", "deletion vectors", "stored changes"])
def test_tables_of_every_mode_have_indexes(mode: str, make_table: MakeTable) -> None:
    if mode == "append-only":
        table = make_table(SCHEMA, [], sharding=lancemem.unsharded())
    elif mode == "stored changes":
        table = make_table(SCHEMA, changelog="stored")
    else:
        table = make_table(SCHEMA)
        table.alter(deletion_vectors=True)
    put_in_base(table, 0, 50)
    table.create_index("n", "BITMAP")
    put_in_base(table, 50, 80)
    table.optimize_indexes()
    assert (only(table).indexed_rows, only(table).unindexed_rows) == (80, 0)
    assert table.scan(filter="n = 3").count_rows() == sum(i % 7 == 3 for i in range(80))
    assert table.changes().to_table().num_rows == 80 if mode == "stored changes" else True
    table.drop_index("n_idx")
    assert table.count_rows() == 80


def test_an_index_of_values_can_be_made_before_there_are_rows(make_table: MakeTable) -> None:
    table = make_table(SCHEMA)
    made = table.create_index("n", "BTREE")
    assert (made.indexed_rows, made.unindexed_rows) == (0, 0)
    put_in_base(table, 0, 30)
    (changed,) = table.optimize_indexes()
    assert changed.added_rows == 30


def test_too_few_vectors_are_refused_with_the_number_that_is_needed(make_table: MakeTable) -> None:
    table = make_table(SCHEMA)
    table.upsert(rows(0, 300))
    with pytest.raises(lancemem.InvalidInputError, match="at least 256 rows") as refused:
        table.create_index("vec", "IVF_PQ")
    assert "has 0; rows above the base table count after compact(flush=True)" in str(refused.value)
    with pytest.raises(lancemem.InvalidInputError, match="at least 1 rows"):
        table.create_index("vec", "IVF_FLAT")
    table.compact(flush=True)
    with pytest.raises(lancemem.InvalidInputError, match="partitions need at least 301 rows"):
        table.create_index("vec", "IVF_FLAT", num_partitions=301)
    nulls = pa.nulls(100, SCHEMA.field("vec").type)
    without = rows(0, 100).set_column(1, SCHEMA.field("vec"), nulls)
    table.upsert(without)
    table.compact(flush=True)
    with pytest.raises(lancemem.InvalidInputError, match=r"at least 256 rows .* has 200;"):
        table.create_index("vec", "IVF_PQ")
    assert table.indexes() == []
    assert table.create_index("vec", "IVF_PQ", num_bits=4).type == "IVF_PQ"


BAD: tuple[tuple[str, str, Mapping[str, Any], str], ...] = (
    ("nope", "BTREE", {}, "column 'nope' is not in table .*; it has id, vec, bits, name, tags, n"),
    ("n", "HNSW", {}, "index type: expected one of IVF_FLAT, .* got 'HNSW'"),
    ("vec", "BTREE", {}, "column 'vec' of table .* holds .*; an index of type BTREE takes numbers"),
    ("n", "IVF_PQ", {}, "column 'n' of table .* holds int64; .* takes fixed_size_list"),
    ("bits", "IVF_PQ", {}, "an index of type IVF_PQ takes fixed_size_list of float16"),
    ("n", "LABEL_LIST", {}, "takes lists"),
    ("n", "INVERTED", {}, "takes text, or lists of text"),
    ("tags", "NGRAM", {}, "takes text"),
    ("vec", "IVF_PQ", {"num_sub_vectors": 5}, "divides 16, the width of the vectors, got 5"),
    ("vec", "IVF_PQ", {"num_bits": 5}, "num_bits: expected 4 or 8, got 5"),
    ("vec", "IVF_FLAT", {"num_partitions": 0}, "num_partitions: expected a number from 1, got 0"),
    ("vec", "IVF_FLAT", {"metric": "hamming"}, "has no distance 'hamming'; use 'l2'"),
    ("bits", "IVF_FLAT", {"metric": "l2"}, "has no distance 'l2'; use 'hamming'"),
    ("vec", "IVF_FLAT", {"metric": "manhattan"}, "metric: expected one of l2, cosine"),
    ("vec", "IVF_HNSW_SQ", {"m": 2}, "m: expected a number from 4, got 2"),
    ("vec", "IVF_FLAT", {"m": 8}, "m: an index of type IVF_FLAT has no such option"),
    ("n", "BTREE", {"metric": "l2"}, "metric: an index of type BTREE has no such option"),
    ("n", "BTREE", {"max_token_length": None}, "max_token_length: an index of type BTREE"),
    ("name", "INVERTED", {"language": "Klingon"}, "no language 'Klingon'"),
    ("name", "INVERTED", {"base_tokenizer": "words"}, "full-text options: .*words"),
    ("n", "BTREE", {"name": "__lance_mem_wal"}, "cannot have the name '__lance_mem_wal'"),
    ("n", "BTREE", {"name": ""}, "cannot have the name ''"),
)


@pytest.mark.parametrize(("column", "index_type", "options", "why"), BAD)
def test_an_index_that_the_table_cannot_have_is_refused_before_it_is_built(
    column: str,
    index_type: str,
    options: dict[str, Any],
    why: str,
    filled: lancemem.Table,
) -> None:
    version = filled.stats().base_version
    with pytest.raises(lancemem.InvalidInputError, match=why):
        filled.create_index(column, index_type, **options)
    assert filled.stats().base_version == version


def test_a_name_that_no_index_has_is_refused_with_those_that_there_are(
    filled: lancemem.Table,
) -> None:
    with pytest.raises(lancemem.InvalidInputError, match="no index 'x_idx'; its indexes: none"):
        filled.drop_index("x_idx")
    filled.create_index("n", "BTREE")
    with pytest.raises(lancemem.InvalidInputError, match="no index 'x_idx'; its indexes: n_idx"):
        filled.optimize_indexes(["n_idx", "x_idx"])
    with pytest.raises(lancemem.InvalidInputError, match="belongs to the table format"):
        filled.drop_index("__lance_mem_wal")
    with pytest.raises(TypeError, match="colour"):
        filled.create_index("n", "BTREE", colour="red")  # type: ignore[call-arg]


def test_an_index_is_described_by_its_repr(filled: lancemem.Table) -> None:
    made = filled.create_index("n", "BITMAP")
    assert repr(made) == (
        'TableIndex(name="n_idx", columns=["n"], type="BITMAP", metric=None, '
        f"indexed_rows={ROWS}, unindexed_rows=0, segments=1, unindexed_because=None)"
    )
    assert "<th>type</th>" in made._repr_html_()  # type: ignore[attr-defined]
