"""Vector searches of many rows in memory, by lists with the centroids of the base table's index.

Owns: that lists are used where they may be and change no row but its place among the nearest,
`sync_search_index` with and without `durable`, each with what is seen and what a crash leaves, and
an index that comes and goes. Not here: small MemTables, which are compared whole (test_search).
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import lancemem
from lancemem import _lancemem
from tests import seeds
from tests.searches import (
    FLOATS,
    Vector,
    add_index,
    base_of,
    brute_force,
    check_exact,
    check_true,
    found_by,
    rows_of,
    schema_of,
    to_base,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pyarrow as pa

# Rows are assigned in blocks of 1,024.
COUNT = 2_600
ASSIGNED = 2_048
LONG = timedelta(hours=1)
WIDTH = 4
PARTS = 64
# Centroids on a line, ten apart.
CENTROIDS = np.repeat(np.arange(PARTS, dtype=np.float32)[:, None] * 10, WIDTH, axis=1)
SCHEMA = schema_of(width=WIDTH)
# Nearest to the centroid 30, though rows of the centroid 40 are as near.
QUERY = np.full(WIDTH, 34.9, np.float32)


@pytest.fixture(autouse=True)
def lists_of_few_rows() -> Iterator[None]:
    """Assign rows to lists whatever the bytes of their vectors."""
    _lancemem._set_memory_index_bounds(vector_bytes=1)
    yield
    _lancemem._set_memory_index_bounds()


def config(*, durable: bool = True, sync: bool = True) -> lancemem.WriterConfig:
    """Give the settings of one cell; rows of a put that is not durable stay out of the log."""
    return lancemem.WriterConfig(
        fsync=False, durable=durable, sync_search_index=sync, max_wal_flush_interval=LONG
    )


def on_the_line(seed: int, count: int) -> Vector:
    """Draw vectors near a line, on which the centroids are."""
    numbers = np.random.default_rng(seed)
    places = numbers.uniform(0, 10 * PARTS - 10, (count, 1))
    return (places + numbers.normal(size=(count, WIDTH))).astype(np.float32)


def table_at(uri: str, schema: pa.Schema = SCHEMA, metric: str = "l2") -> lancemem.Table:
    """Create a table with an indexed base table."""
    fast = lancemem.WriterConfig(fsync=False)
    table = lancemem.create_table(uri, schema, primary_key="id", config=fast)
    table.upsert(rows_of(range(300), list(on_the_line(1, 300)), schema))
    to_base(table)
    kind = schema.field("vec").type.value_type.to_pandas_dtype()
    centroids = CENTROIDS.astype(kind)
    if metric == "cosine":
        centroids = np.random.default_rng(3).normal(size=(PARTS, WIDTH)).astype(kind)
    add_index(table, "IVF_FLAT", metric, num_partitions=PARTS, ivf_centroids=centroids)
    return lancemem.open_table(uri)


@pytest.fixture
def table(tmp_path: Path) -> lancemem.Table:
    """Give a table with an indexed base table."""
    return table_at(str(tmp_path / "t.lance"))


def by_lists(search: Any) -> bool:  # noqa: ANN401 - a search
    return f"in {PARTS} lists of the base's index" in search.explain()


def until(reached: Callable[[], bool]) -> None:
    """Repeat until `reached`; the timeout of the test ends it otherwise."""
    while not reached():
        threading.Event().wait(0.01)


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("sync", [True, False])
def test_rows_are_found_at_once_whoever_assigns_them(
    table: lancemem.Table, *, durable: bool, sync: bool
) -> None:
    model = dict(enumerate(on_the_line(1, 300)))
    with table.start_job(shard=0, config=config(durable=durable, sync=sync)) as job:
        new = on_the_line(2, COUNT)
        job.put(rows_of(range(100, 100 + COUNT), list(new), SCHEMA))
        model.update(zip(range(100, 100 + COUNT), new, strict=True))
        after_put = job.stats().memtable_bytes
        live: Any = {"consistency": "live", "k": 20}
        for query in [QUERY, *new[::500]]:
            found = found_by(table.search(query, **live))
            check_true(found, model, query)
            assert len(found) == 20
            exact = table.search(query, exact=True, metric="l2", **live)
            assert not by_lists(exact)
            check_exact(found_by(exact), model, query, 20)
        assert by_lists(table.search(QUERY, **live))
        if sync:
            assert job.stats().memtable_bytes == after_put, "the put assigned its rows"
        else:
            # The search began it; another one is as good meanwhile.
            until(lambda: job.stats().memtable_bytes >= after_put + 4 * ASSIGNED)
        near = table.search(QUERY, nprobes=1, **live)
        few = found_by(near)
        check_true(few, model, QUERY)
        assert len(few) == 20
        assigned = set(range(100, 100 + ASSIGNED))
        other = {key for key in assigned if model[key].mean() > 35.2}
        assert not other & {key for key, _ in few}, "rows of the next partition are not read"
        assert other & {key for key, _ in brute_force(model, QUERY, 20)}
        job.flush()
        assert job.stats().memtable_bytes == 0, "lists leave the account with their rows"
        check_exact(found_by(table.search(QUERY, exact=True, **live)), model, QUERY, 20)


def test_recall_by_default_is_that_of_all_rows_of_the_line(table: lancemem.Table) -> None:
    model = dict(enumerate(on_the_line(1, 300)))
    with table.start_job(shard=0, config=config()) as job:
        new = on_the_line(2, 5_000)
        job.put(rows_of(range(5_000), list(new), SCHEMA))
        model.update(enumerate(new))
        right = []
        for query in on_the_line(9, 40):
            search = table.search(query, consistency="live")
            keys = {key for key, _ in found_by(search)}
            right.append(len(keys & {key for key, _ in brute_force(model, query, 10)}) / 10)
        assert np.mean(right) >= 0.97


@pytest.mark.parametrize("nprobes", [1, 3, None])
def test_neither_a_stale_row_nor_a_deleted_one_is_found_and_none_is_missing(
    table: lancemem.Table, nprobes: int | None
) -> None:
    chance = random.Random(f"{seeds.seed()} {nprobes}")  # noqa: S311 - a program of writes
    model = dict(enumerate(on_the_line(1, 300)))
    with table.start_job(shard=0, config=config()) as job:
        for turn in range(8):
            keys = chance.sample(range(4_000), 900)
            new = on_the_line(10 + turn, len(keys))
            job.put(rows_of(keys, list(new), SCHEMA))
            model.update(zip(keys, new, strict=True))
            # The rows that a search would find first move away, or are deleted.
            nearest = [key for key, _ in brute_force(model, QUERY, 60)]
            job.delete(nearest[:20])
            for key in nearest[:20]:
                del model[key]
            away = on_the_line(20 + turn, 40)
            job.put(rows_of(nearest[20:], list(away), SCHEMA))
            model.update(zip(nearest[20:], away, strict=True))
            for k in (1, 10, 300):
                found = found_by(table.search(QUERY, k=k, nprobes=nprobes, consistency="live"))
                check_true(found, model, QUERY)
                assert len(found) == min(k, len(model)), "rows are missing"
            if turn == 5:
                job.flush()
    found = found_by(table.search(QUERY, k=len(model) + 9, nprobes=nprobes, exact=True))
    check_exact(found, model, QUERY, len(model))


def test_a_filter_holds_of_every_row_and_few_rows_are_found_among_all(
    table: lancemem.Table,
) -> None:
    with table.start_job(shard=0, config=config()) as job:
        new = on_the_line(2, COUNT)
        job.put(rows_of(range(COUNT), list(new), SCHEMA))
        model = dict(enumerate(new))
        conditions: list[tuple[str, Callable[[int], bool]]] = [
            ("tag = 1", lambda key: key % 4 == 1),
            ("id < 9", lambda key: key < 9),
            ("id < 0", lambda key: key < 0),
            ("tag > 1 AND id >= 2000", lambda key: key % 4 > 1 and key >= 2000),
        ]
        for condition, admits in conditions:
            kept = {key: row for key, row in model.items() if admits(key)}
            found = found_by(table.search(QUERY, filter=condition, nprobes=2, consistency="live"))
            check_true(found, kept, QUERY)
            assert len(found) == min(10, len(kept))


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("metric", ["l2", "cosine", "dot"])
def test_every_type_of_floats_and_every_metric_has_lists(
    name: str, metric: str, tmp_path: Path
) -> None:
    value, numpy_type = FLOATS[name]
    schema = schema_of(width=WIDTH, value=value)
    table = table_at(str(tmp_path / "t.lance"), schema, metric)
    numbers = np.random.default_rng(5)
    new: list[Vector | None] = list(numbers.normal(size=(COUNT, WIDTH)).astype(numpy_type))
    new[7], new[8], new[9] = None, np.full(WIDTH, np.nan), np.zeros(WIDTH)
    with table.start_job(shard=0, config=config()) as job:
        job.put(rows_of(range(COUNT), new, schema))
        query = numbers.normal(size=WIDTH).astype(numpy_type)
        search = table.search(query, consistency="live", minimum_nprobes=2)
        assert by_lists(search)
        model = dict(enumerate(new))
        found = found_by(search)
        keys = [key for key, _ in found]
        assert len(set(keys)) == 10
        assert not {7, 8} & set(keys)
        exact = table.search(query, consistency="live", exact=True, k=COUNT)
        distance_of = dict(found_by(exact))
        assert all(distance_of[key] == distance for key, distance in found), "the same bits"
        best = [key for key, _ in brute_force(model, query, 10, metric)]
        assert len(set(best) & set(keys)) >= 5


def test_an_index_that_comes_and_goes_while_rows_are_in_memory(tmp_path: Path) -> None:
    fast = lancemem.WriterConfig(fsync=False)
    table = lancemem.create_table(str(tmp_path / "t"), SCHEMA, primary_key="id", config=fast)
    table.upsert(rows_of(range(300), list(on_the_line(1, 300)), SCHEMA))
    to_base(table)
    model = dict(enumerate(on_the_line(1, 300)))

    def check(*, lists: bool) -> None:
        search = table.search(QUERY, consistency="live")
        assert by_lists(search) == lists
        check_exact(found_by(search), model, QUERY, 10)

    with table.start_job(shard=0, config=config()) as job:
        new = on_the_line(2, COUNT)
        job.put(rows_of(range(COUNT), list(new), SCHEMA))
        model.update(enumerate(new))
        check(lists=False)
        table.create_index("vec", "IVF_FLAT", metric="l2", num_partitions=PARTS)
        check(lists=True)
        more = on_the_line(3, COUNT)
        job.put(rows_of(range(1_000, 1_000 + COUNT), list(more), SCHEMA))
        model.update(zip(range(1_000, 1_000 + COUNT), more, strict=True))
        check(lists=True)
        # Another model: lists by the old centroids are of no use.
        base_of(table).create_index(
            "vec", "IVF_FLAT", metric="l2", num_partitions=4, replace=True, name="vec_idx"
        )
        search = table.search(QUERY, consistency="live")
        assert "in 4 lists of the base's index" in search.explain()
        check_exact(found_by(search), model, QUERY, 10)
        table.drop_index("vec_idx")
        check(lists=False)
    check(lists=False)


def test_other_threads_write_while_lists_are_searched(table: lancemem.Table) -> None:
    new = on_the_line(4, 6_000)
    failures: list[BaseException] = []
    with table.start_job(shard=0, config=config(sync=False)) as job:

        def put(first: int) -> None:
            keys = range(first, first + 300)
            job.put(rows_of(keys, list(new[first : first + 300]), SCHEMA))

        def write() -> None:
            for first in range(300, 6_000, 300):
                put(first)

        def search() -> None:
            try:
                while writer.is_alive():
                    found = found_by(table.search(QUERY, k=30, nprobes=2, consistency="live"))
                    keys = [key for key, _ in found]
                    assert len(found) == 30
                    assert len(set(keys)) == 30
            except BaseException as error:  # noqa: BLE001 - shown by the test
                failures.append(error)

        put(0)
        writer = threading.Thread(target=write)
        readers = [threading.Thread(target=search) for _ in range(3)]
        for thread in [writer, *readers]:
            thread.start()
        for thread in [writer, *readers]:
            thread.join()
        assert failures == []
        model = dict(enumerate(new))
        found = found_by(table.search(QUERY, k=30, consistency="live"))
        check_true(found, model, QUERY)


CHILD = """
import os, signal, sys
import lancemem
from lancemem import _lancemem
from tests.searches import found_by, rows_of
from tests.test_memory_lists import COUNT, QUERY, SCHEMA, by_lists, config, on_the_line
_lancemem._set_memory_index_bounds(vector_bytes=1)
durable, sync = sys.argv[2] == "True", sys.argv[3] == "True"
table = lancemem.open_table(sys.argv[1])
job = table.start_job(shard=0, config=config(durable=durable, sync=sync))
job.put(rows_of(range(1000, 1000 + COUNT), list(on_the_line(6, COUNT)), SCHEMA))
search = table.search(QUERY, consistency="live", nprobes=2)
assert by_lists(search)
assert len(found_by(search)) == 10
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("sync", [True, False])
def test_a_crash_leaves_the_vectors_of_durable_rows_and_of_no_other(
    table: lancemem.Table, *, durable: bool, sync: bool
) -> None:
    command = [sys.executable, "-c", CHILD, table.uri, str(durable), str(sync)]
    child = subprocess.run(command, timeout=120, check=False)  # noqa: S603
    assert child.returncode == -signal.SIGKILL
    model = dict(enumerate(on_the_line(1, 300)))
    if durable:
        model.update(zip(range(1000, 1000 + COUNT), on_the_line(6, COUNT), strict=True))
    again = lancemem.open_table(table.uri)
    search = again.search(QUERY)
    assert by_lists(search) == durable
    for _ in range(3):
        check_exact(found_by(again.search(QUERY)), model, QUERY, 10)
    assert again.count_rows() == len(model)
