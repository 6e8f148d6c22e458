"""SSTables that carry indexes of their base table: made at the flush, searched, read by pylance.

Owns: that a search by them returns what a search of all rows does, over updates, deletes, reopened
and compacted tables; what a damaged index file does; and that pylance uses them. Does not own the
files and models of each kind of index: see `rust/engine/src/sstable/tests/indexes.rs`.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.mem_wal import LsmVectorSearchPlanner

import lancemem
from tests.upstream import snapshots

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.conftest import MakeTable

WIDTH = 16
# Enough for an index of two partitions.
BASE_ROWS = 600
# Rows of which an SSTable is not small, so that its index has the partitions of the base table's.
LARGE_ROWS = 17_000
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("vec", pa.list_(pa.float32(), WIDTH)),
        pa.field("text", pa.string()),
    ]
)
INDEXES: dict[str, dict[str, Any]] = {
    "IVF_FLAT": {},
    "IVF_PQ": {"num_sub_vectors": 4},
    "IVF_SQ": {},
    "IVF_RQ": {},
    "IVF_HNSW_SQ": {},
}
Model = dict[int, np.ndarray]


def drawn(ids: Iterable[int], seed: int = 0) -> Model:
    """Draw a vector for each id."""
    ids = list(ids)
    chance = np.random.default_rng([seed, len(ids)])
    return dict(zip(ids, chance.standard_normal((len(ids), WIDTH)).astype(np.float32), strict=True))


def rows(of: Model) -> pa.Table:
    values = np.concatenate([*of.values(), np.zeros(0, np.float32)])
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(values), WIDTH)
    texts = [f"word{number % 7} row{number}" for number in of]
    return pa.table({"id": list(of), "vec": vectors, "text": texts}, schema=SCHEMA)


def keys(ids: Iterable[int]) -> pa.Table:
    return pa.table({"id": pa.array(list(ids), pa.int64())})


def brute_force(model: Model, query: np.ndarray, k: int) -> list[int]:
    ids = np.array(list(model))
    distances = ((np.stack(list(model.values())) - query) ** 2).sum(axis=1)
    return [int(number) for number in ids[np.lexsort((ids, distances))[:k]]]


def found(table: lancemem.Table, query: np.ndarray, k: int, **options: Any) -> list[int]:  # noqa: ANN401
    options = {"nprobes": 2} | options
    result = table.search(query, k=k, columns=["id"], **options).to_table()
    return [int(number) for number in result["id"].to_pylist()]


def indexed(make_table: MakeTable, kind: str, model: Model, **options: Any) -> lancemem.Table:  # noqa: ANN401
    """Create a table whose base has the rows of `model` and an index of `kind`."""
    table = make_table(SCHEMA, **options)
    table.upsert(rows(model))
    table.flush()
    table.compact()
    base = lance.dataset(table.uri)
    base.create_index("vec", kind, name="vec_idx", num_partitions=2, **INDEXES[kind])
    return lancemem.open_table(table.uri)


def write(table: lancemem.Table, model: Model, of: Model, deleted: Iterable[int] = ()) -> None:
    """Write rows and deletes as one SSTable, and apply them to `model`."""
    deleted = list(deleted)
    with table.start_job(shard=0) as job:
        job.put(rows(of))
        if deleted:
            job.delete(keys(deleted))
        job.flush()
    model.update(of)
    for number in deleted:
        model.pop(number, None)


def folders(table: lancemem.Table) -> list[Path]:
    [shard] = table.shards()
    shard_folder = Path(table.uri) / "_mem_wal" / shard.shard_id
    return [shard_folder / sstable.path for sstable in shard.sstables]


def index_names(folder: Path) -> list[str]:
    return sorted(index.name for index in lance.dataset(str(folder)).describe_indices())


@pytest.mark.parametrize("kind", INDEXES)
def test_a_search_by_the_indexes_of_sstables_returns_newest_rows_alone(
    make_table: MakeTable, kind: str
) -> None:
    model = drawn(range(BASE_ROWS))
    table = indexed(make_table, kind, model)
    write(table, model, drawn(range(500, 900), 1), deleted=range(0, 600, 10))
    write(table, model, drawn(range(850, 1000), 2), deleted=range(700, 720))
    write(table, model, drawn(range(100, 140), 3))
    write(table, model, drawn(range(880, 920), 4))
    queries = [*drawn(range(8), 9).values(), model[130], model[860], model[905]]
    for reader in (table, lancemem.open_table(table.uri)):
        # A fast search asks every index; by default small SSTables are compared in memory.
        plan = reader.search(queries[0], k=10, fast_search=True).explain()
        assert plan.count("IndexSearchExec: SSTable") == 4, plan
        plan = reader.search(queries[0], k=10).explain()
        assert plan.count("FlatSearchExec: SSTable") == 4, plan
        for query in queries:
            right = brute_force(model, query, 10)
            assert found(reader, query, 10, exact=True) == right
            for fast in (True, False):
                search = reader.search(query, k=10, refine_factor=30, nprobes=2, fast_search=fast)
                result = search.to_table()
                ids = [int(number) for number in result["id"].to_pylist()]
                assert len(set(ids)) == 10
                assert set(ids) <= set(model), "no deleted row"
                assert len(set(ids) & set(right)) >= 9, (ids, right)
                stored = np.array([row.values.to_numpy() for row in result["vec"]])
                assert (stored == np.stack([model[number] for number in ids])).all(), "newest rows"


def test_nearest_rows_that_a_newer_sstable_moves_away_are_never_returned(
    make_table: MakeTable,
) -> None:
    model = drawn(range(BASE_ROWS))
    table = indexed(make_table, "IVF_FLAT", model)
    query = np.full(WIDTH, 5, np.float32)
    near = {number: query + np.float32(0.001) * (number - 1000) for number in range(1000, 1300)}
    write(table, model, near)
    write(table, model, drawn(range(1000, 1150), 5), deleted=range(1150, 1290))
    right = list(range(1290, 1300))
    assert brute_force(model, query, 10) == right
    for fast in (True, False):
        assert found(table, query, 10, fast_search=fast) == right
    # A scan to its end caches the positions of superseded rows, which are then left out.
    table.scan().to_table()
    for fast in (True, False):
        plan = table.search(query, k=10, fast_search=fast).explain()
        assert "dead=290" in plan, plan
        assert found(table, query, 10, fast_search=fast) == right


def test_an_sstable_without_a_newest_row_costs_an_index_one_more_question(
    make_table: MakeTable,
) -> None:
    model = drawn(range(BASE_ROWS))
    table = indexed(make_table, "IVF_FLAT", model)
    query = np.full(WIDTH, 5, np.float32)
    write(table, model, dict.fromkeys(range(1000, 1400), query))
    moved = drawn(range(1000, 1400), 5)
    write(table, model, moved)
    for fast in (True, False):
        assert found(table, query, 10, fast_search=fast) == brute_force(model, query, 10)
    assert "pruned" not in table.search(query, k=10).explain()
    # Once a scan has found its dead rows, the SSTable is left out of searches.
    table.scan().to_table()
    plan = table.search(query, k=10).explain()
    assert plan.count("SSTable") == 2, plan
    assert "newer rows of their keys hide all its rows" in plan, plan
    for fast in (True, False):
        assert found(table, query, 10, fast_search=fast) == brute_force(model, query, 10)


def test_deletion_vectors_spare_a_search_the_comparison_of_keys(make_table: MakeTable) -> None:
    model = drawn(range(BASE_ROWS))
    table = indexed(make_table, "IVF_FLAT", model)
    table.alter(deletion_vectors=True)
    write(table, model, drawn(range(500, 700), 1))
    write(table, model, drawn(range(500, 700), 2))
    table.write_deletion_vectors()
    query = model[650]
    plan = lancemem.open_table(table.uri).search(query, k=10).explain()
    assert "newer rows of their keys hide all its rows" in plan, plan
    assert "IndexSearchExec: base" in plan, plan
    assert "dead=100" in plan, plan
    for fast in (True, False):
        assert found(table, query, 10, fast_search=fast) == brute_force(model, query, 10)


def test_rows_in_memory_supersede_rows_of_small_sstables(make_table: MakeTable) -> None:
    model = drawn(range(BASE_ROWS))
    table = indexed(make_table, "IVF_FLAT", model)
    query = np.full(WIDTH, 5, np.float32)
    write(table, model, dict.fromkeys(range(1000, 1100), query))
    table.upsert(rows(moved := drawn(range(1000, 1099), 5)))
    model.update(moved)
    table.delete(keys([1010]))
    del model[1010]
    plan = table.search(query, k=10).explain()
    assert "FlatSearchExec: SSTable" in plan, plan
    assert "FlatSearchExec: MemTable" in plan, plan
    for exact in (True, False):
        nearest = found(table, query, 10, exact=exact)
        assert nearest == brute_force(model, query, 10)
        assert nearest[0] == 1099


def test_a_result_has_every_column_of_rows_that_were_compared_in_memory(
    make_table: MakeTable,
) -> None:
    model = drawn(range(BASE_ROWS))
    table = indexed(make_table, "IVF_FLAT", model)
    write(table, model, drawn(range(700, 800), 5))
    table.upsert(rows(drawn(range(800, 900), 6)))
    for columns in (None, ["text"], ["vec", "id"]):
        for number in (710, 810):
            table.search(model.get(number, np.ones(WIDTH)), k=3, columns=columns).to_table()
    text = table.search(model[750], k=1, columns=["text"]).to_table()["text"].to_pylist()
    assert text == [f"word{50 % 7} row750"]


def test_more_rows_are_asked_for_than_the_sstable_has(make_table: MakeTable) -> None:
    model = drawn(range(BASE_ROWS))
    table = indexed(make_table, "IVF_FLAT", model)
    write(table, model, drawn(range(590, 620), 6), deleted=[600])
    query = model[610]
    assert found(table, query, 1000) == brute_force(model, query, 1000)


@pytest.mark.parametrize("kind", INDEXES)
def test_a_large_sstable_has_the_partitions_of_the_base_and_pylance_reads_them(
    make_table: MakeTable, kind: str
) -> None:
    model = drawn(range(BASE_ROWS))
    table = indexed(make_table, kind, model)
    large = drawn(range(10_000, 10_000 + LARGE_ROWS), 7)
    write(table, model, large)
    [folder] = folders(table)
    sstable = lance.dataset(str(folder))
    assert [index.name for index in sstable.describe_indices()] == ["vec_idx"]
    statistics = sstable.stats.index_stats("vec_idx")
    assert statistics["num_unindexed_rows"] == 0
    assert statistics["indices"][0]["num_partitions"] == 2
    for number in (10_000, 18_500, 26_999):
        nearest = {"column": "vec", "q": large[number], "k": 1, "refine_factor": 20, "nprobes": 2}
        by_pylance = sstable.to_table(columns=["id"], nearest=nearest, fast_search=True)
        assert by_pylance["id"].to_pylist() == [number]
        assert found(table, large[number], 1, refine_factor=20, nprobes=2) == [number]


def test_pylances_search_over_a_shard_finds_the_rows_of_its_sstables(
    make_table: MakeTable,
) -> None:
    model = {number: np.full(WIDTH, number, np.float32) for number in range(BASE_ROWS)}
    table = indexed(make_table, "IVF_PQ", model)
    moved = {number: vector + 100_000 for number, vector in model.items() if number % 5 == 0}
    fresh = {number: np.full(WIDTH, 100_000 + number, np.float32) for number in range(5000, 5100)}
    write(table, model, moved | fresh)
    planner = LsmVectorSearchPlanner(
        lance.dataset(table.uri), snapshots(table), "vec", pk_columns=["id"], distance_type="l2"
    )
    for number in (5, 595, 5050):
        query = model[number]
        by_pylance = planner.plan_search(pa.array(query), k=1).to_table()["id"].to_pylist()
        assert by_pylance == found(table, query, 1) == [number]


def test_scalar_and_text_indexes_are_carried_too(make_table: MakeTable) -> None:
    model = drawn(range(BASE_ROWS))
    table = indexed(make_table, "IVF_FLAT", model)
    base = lance.dataset(table.uri)
    base.create_scalar_index("text", "INVERTED", name="text_idx")
    base.create_scalar_index("id", "BTREE", name="id_idx")
    table = lancemem.open_table(table.uri)
    write(table, model, drawn(range(2000, 2100), 8))
    [folder] = folders(table)
    assert index_names(folder) == ["id_idx", "text_idx", "vec_idx"]
    sstable = lance.dataset(str(folder))
    words = sstable.to_table(columns=["id"], full_text_query="row2042", fast_search=True)
    assert words["id"].to_pylist() == [2042]
    assert sstable.to_table(columns=["id"], filter="id = 2042")["id"].to_pylist() == [2042]


def test_an_index_that_the_table_gets_while_a_job_runs_is_in_its_next_sstables(
    make_table: MakeTable,
) -> None:
    table = make_table(SCHEMA)
    table.upsert(rows(drawn(range(BASE_ROWS))))
    table.flush()
    table.compact()
    with table.start_job(shard=0) as job:
        job.put(rows(drawn(range(700, 710))))
        job.flush()
        lance.dataset(table.uri).create_index("vec", "IVF_FLAT", num_partitions=2)
        # The job looks for a newer version of the base table at the end of a flush.
        for first in (710, 720):
            job.put(rows(drawn(range(first, first + 10))))
            job.flush()
        first_folder, *_, last_folder = folders(table)
        assert index_names(first_folder) == []
        assert index_names(last_folder) == ["vec_idx"]


def test_a_writer_may_leave_indexes_out(make_table: MakeTable) -> None:
    model = drawn(range(BASE_ROWS))
    table = indexed(make_table, "IVF_FLAT", model)
    with table.start_job(shard=0, config=lancemem.WriterConfig(index_flushed=False)) as job:
        job.put(rows(plain := drawn(range(650, 700), 10)))
        job.flush()
    model.update(plain)
    [folder] = folders(table)
    assert not (folder / "_indices").exists()
    plan = table.search(model[660], k=5).explain()
    assert "IndexSearchExec: SSTable" not in plan, plan
    assert found(table, model[660], 5) == brute_force(model, model[660], 5)


def test_the_sstables_of_a_bulk_write_are_indexed(make_table: MakeTable) -> None:
    model = drawn(range(BASE_ROWS))
    table = indexed(make_table, "IVF_FLAT", model)
    bulk = table.bulk_writer()
    bulk.upsert(rows(loaded := drawn(range(800, 900), 11)))
    table.commit(bulk.finish())
    model.update(loaded)
    [folder] = folders(table)
    assert index_names(folder) == ["vec_idx"]
    assert found(table, model[850], 5) == brute_force(model, model[850], 5)


def test_a_fast_search_finds_rows_of_indexed_sstables(make_table: MakeTable) -> None:
    model = drawn(range(BASE_ROWS))
    table = indexed(make_table, "IVF_FLAT", model)
    write(table, model, drawn(range(800, 900), 12))
    table.upsert(rows(waiting := drawn([901], 13)))
    assert found(table, model[850], 1, fast_search=True) == [850]
    assert found(table, waiting[901], 1, fast_search=True) != [901], "rows in memory have no index"
    assert found(table, waiting[901], 1) == [901]


def test_a_condition_holds_of_the_newest_row(make_table: MakeTable) -> None:
    model = drawn(range(BASE_ROWS))
    table = indexed(make_table, "IVF_FLAT", model)
    write(table, model, drawn(range(550, 700), 14))
    write(table, model, drawn(range(600, 620), 15), deleted=[630])
    odd = {number: vector for number, vector in model.items() if number % 2 and number > 560}
    for number in (575, 605, 651):
        right = brute_force(odd, model[number], 10)
        assert found(table, model[number], 10, filter="id % 2 = 1 and id > 560") == right


def test_rows_of_a_compacted_sstable_are_found_and_its_indexes_are_collected(
    make_table: MakeTable,
) -> None:
    model = drawn(range(BASE_ROWS))
    table = indexed(make_table, "IVF_FLAT", model)
    write(table, model, drawn(range(10_000, 10_000 + LARGE_ROWS), 16))
    [folder] = folders(table)
    assert list(folder.glob("_indices/*/*.idx"))
    query = model[20_000]
    before = found(table, query, 10, exact=True)
    table.compact(update_indexes=False)
    assert found(table, query, 10, exact=True) == before
    assert found(table, query, 10) == before, "fragments without an index are read"
    assert lance.dataset(table.uri).stats.index_stats("vec_idx")["num_unindexed_rows"] > 0
    del table
    lancemem.open_table(str(folder.parents[2])).collect_garbage(older_than=timedelta(0))
    assert not folder.exists()


def test_a_damaged_index_file_is_named_and_costs_no_row(make_table: MakeTable) -> None:
    model = drawn(range(BASE_ROWS))
    table = indexed(make_table, "IVF_FLAT", model)
    write(table, model, drawn(range(700, 800), 17))
    [folder] = folders(table)
    [path] = folder.glob("_indices/*/auxiliary.idx")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    name = str(path.relative_to(folder))

    table = lancemem.open_table(table.uri)
    [report] = table.admin.verify_sstables()
    assert len(report.damage) == 1
    assert report.damage[0].startswith(f"{name}: ")
    with pytest.raises(lancemem.CorruptionError, match=r"auxiliary\.idx"):
        found(table, model[750], 1, fast_search=True)
    # Neither search reads the index: the SSTable is small.
    for exact in (True, False):
        assert found(table, model[750], 5, exact=exact) == brute_force(model, model[750], 5)
    assert table.count_rows() == len(model)
    # A compaction leaves the damaged index behind, and reads the rows instead.
    (done,) = table.compact().indexes
    assert (done.linked_rows, done.built_rows, done.unindexed_rows) == (0, 100, 0)
    assert "auxiliary.idx" in str(done.reason)
    assert found(table, model[750], 5) == brute_force(model, model[750], 5)


def test_an_sstable_of_older_columns_is_read_instead(make_table: MakeTable) -> None:
    model = drawn(range(BASE_ROWS))
    table = indexed(make_table, "IVF_FLAT", model)
    write(table, model, drawn(range(700, 800), 18))
    lance.dataset(table.uri).alter_columns({"path": "vec", "name": "embedding"})  # type: ignore[dict-item]
    table = lancemem.open_table(table.uri)
    plan = table.search(model[750], k=3).explain()
    assert "IndexSearchExec: SSTable" not in plan, plan
    assert found(table, model[750], 5) == brute_force(model, model[750], 5)


def test_an_sstable_of_deletes_alone_hides_rows(make_table: MakeTable) -> None:
    model = drawn(range(BASE_ROWS))
    table = indexed(make_table, "IVF_FLAT", model)
    write(table, model, drawn(range(700, 720), 19))
    with table.start_job(shard=0) as job:
        job.delete(keys([705, 3]))
        job.flush()
    gone = model.pop(705), model.pop(3)
    for query in gone:
        assert found(table, query, 5) == brute_force(model, query, 5)
