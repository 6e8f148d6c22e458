"""Loaders of training data: pinned snapshots, parts of readers, batches of a size, rows by number.

Owns the logic without torch, and the datasets of `lancemem.torch` where torch is installed. Not
here: tensors of single columns (`test_ways_in`), or how a snapshot is divided (`test_snapshots`).
"""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lancemem
from lancemem.loading import KeyRows, PinnedSnapshot, Reader, of_size, shuffled
from tests.programs import run_python

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.conftest import MakeTable

ROWS = 1_000
# A test of this process may have loaded pylance, which warns of every fork.
forks = pytest.mark.filterwarnings("ignore:lance is not fork-safe:UserWarning")

# Each worker loads torch anew, which takes seconds.
START_ANEW = [pytest.param(start, marks=pytest.mark.slow) for start in ("spawn", "forkserver")]


def rows(ids: range | list[int]) -> pa.Table:
    return pa.table({"id": list(ids), "name": ["a"] * len(ids), "value": [0.5] * len(ids)})


@pytest.fixture
def full(make_table: MakeTable) -> lancemem.Table:
    """Give a table with rows in its base table, in SSTables and in its logs."""
    table = make_table(sharding=lancemem.bucket("id", 4))
    table.upsert(rows(range(ROWS // 2)))
    table.flush()
    table.compact()
    table.upsert(rows(range(ROWS // 2, ROWS - 100)))
    table.flush()
    table.upsert(rows(range(ROWS - 100, ROWS)))
    return table


def batches_of(sizes: list[int]) -> list[pa.RecordBatch]:
    start, made = 0, []
    for size in sizes:
        made.append(pa.record_batch({"n": pa.array(range(start, start + size), pa.int64())}))
        start += size
    return made


# --- plain logic ---


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize(("world_size", "workers"), [(1, 1), (1, 3), (2, 1), (3, 4)])
def test_readers_read_every_part_once(*, world_size: int, workers: int, shuffle: bool) -> None:
    readers = [
        Reader(rank, world_size, worker, workers)
        for rank in range(world_size)
        for worker in range(workers)
    ]
    parts = [part for reader in readers for part in reader.parts(shuffle=shuffle)]
    if len(parts) == 1:
        assert parts == [None]
        return
    totals = {part[1] for part in parts if part is not None}
    assert totals == {len(parts)}
    assert sorted(part[0] for part in parts if part is not None) == list(range(len(parts)))


@pytest.mark.parametrize("sizes", [[], [0], [5], [64, 1, 0, 200], [1] * 70])
def test_batches_have_the_size_but_for_the_last(sizes: list[int]) -> None:
    found = list(of_size(batches_of(sizes), 32))
    assert [batch.num_rows for batch in found[:-1]] == [32] * (len(found) - 1)
    values = [value for batch in found for value in batch["n"].to_pylist()]
    assert values == list(range(sum(sizes)))


def test_a_seed_and_an_epoch_give_one_order_and_others_give_another() -> None:
    def order(seed: int, epoch: int, worker: int = 0) -> list[int]:
        random = Reader(worker=worker, workers=2).random(seed, epoch)
        found = shuffled(batches_of([100, 100, 57]), 128, random)
        return [value for batch in found for value in batch["n"].to_pylist()]

    first = order(1, 0)
    assert sorted(first) == list(range(257))
    assert first != list(range(257))
    assert order(1, 0) == first
    assert first not in (order(2, 0), order(1, 1), order(1, 0, worker=1))
    assert max(first[:128]) < 128, "rows stay in their window"


# --- rows of a table ---


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_readers_of_a_pinned_snapshot_read_each_key_once(
    workers: int, full: lancemem.Table
) -> None:
    pinned = pickle.loads(pickle.dumps(PinnedSnapshot(full)))  # noqa: S301 - our own
    full.upsert(rows([ROWS]))
    full.delete([1])
    ids: list[int] = []
    for worker in range(workers):
        for part in Reader(worker=worker, workers=workers).parts():
            ids += pinned.open().scan(["id"], part=part).to_table()["id"].to_pylist()
    assert sorted(ids) == list(range(ROWS))
    pinned.refresh()
    assert pinned.open().count_rows() == ROWS


def test_a_snapshot_is_pinned_by_its_token_and_by_a_uri(full: lancemem.Table) -> None:
    first = PinnedSnapshot(full)
    full.delete(list(range(10)))
    assert PinnedSnapshot(full.uri, token=first.token).open().count_rows() == ROWS
    assert PinnedSnapshot(full.uri).open().count_rows() == ROWS - 10


def test_a_live_snapshot_stays_in_its_process(table: lancemem.Table) -> None:
    with table.start_job() as job:
        job.put(rows([1]), durable=False)
        pinned = PinnedSnapshot(table, consistency="live")
        assert pinned.open().count_rows() == 1
        moved = pickle.loads(pickle.dumps(pinned))  # noqa: S301 - our own
        if pinned.token is None:
            with pytest.raises(lancemem.InvalidInputError, match="stays in its process"):
                moved.open()


def test_rows_are_read_by_the_number_of_their_key(full: lancemem.Table) -> None:
    found = KeyRows(PinnedSnapshot(full), [7, 3, 900], ["id", "value"])
    assert len(found) == 3
    batch, numbers = found.read([2, 0, 2, -2])
    assert batch.schema.names == ["id", "value"]
    ids = batch["id"].to_pylist()
    assert [ids[number] for number in numbers] == [900, 7, 900, 3]
    with pytest.raises(IndexError, match="3 keys"):
        found.read([3])
    every = KeyRows(PinnedSnapshot(full))
    batch, numbers = every.read(list(range(len(every))))
    assert sorted(batch["id"].to_pylist()) == list(range(ROWS))
    assert numbers == list(range(ROWS))
    moved = pickle.loads(pickle.dumps(found))  # noqa: S301 - our own
    assert moved.read([0])[0]["id"].to_pylist() == [7]
    assert KeyRows(PinnedSnapshot(full), pa.table({"id": [5]})).read([0])[0].num_rows == 1
    assert KeyRows(PinnedSnapshot(full), np.array([5, 6])).read([1])[0]["id"].to_pylist() == [6]
    with pytest.raises(lancemem.InvalidInputError, match="no column 'id'"):
        KeyRows(PinnedSnapshot(full), pa.table({"other": [5]}))
    with pytest.raises(lancemem.InvalidInputError):
        KeyRows(PinnedSnapshot(full), [ROWS + 5]).read([0])


def test_processes_number_the_keys_of_a_snapshot_alike(full: lancemem.Table) -> None:
    numbered = KeyRows(PinnedSnapshot(full)).read(range(ROWS))
    ids = numbered[0]["id"].to_pylist()
    assert [ids[row] for row in numbered[1]] == list(range(ROWS))
    few = KeyRows(PinnedSnapshot(full), [7, 3])
    assert few.read([np.int64(1), np.int8(-2)])[0]["id"].to_pylist() == [3, 7]
    with pytest.raises(TypeError):
        few.read(["1"])  # type: ignore[list-item]


# --- torch ---


def ids_of(loader: Iterable[dict[str, Any]]) -> list[int]:
    """Return the ids of all batches, in their order."""
    return [number for batch in loader for number in batch["id"].tolist()]


@forks
def test_torch_reads_every_row_once_by_workers_and_ranks(full: lancemem.Table) -> None:
    data = torch_data()
    from lancemem.torch import ScanDataset  # noqa: PLC0415

    single = ScanDataset(full, ["id"], batch_size=64)
    assert len(single) == len(list(single)) == 16
    for workers in (0, 2):
        for shuffle in (False, True):
            ids: list[int] = []
            for rank in range(2):
                dataset = ScanDataset(
                    full.uri, ["id"], batch_size=64, shuffle=shuffle, seed=3, rank=rank,
                    world_size=2, snapshot=single.token,
                )  # fmt: skip
                loader = data.DataLoader(dataset, batch_size=None, num_workers=workers)
                ids += ids_of(loader)
            assert sorted(ids) == list(range(ROWS))
    for arguments, text in (
        ({"rank": 1}, "go together"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
    ):
        with pytest.raises(lancemem.InvalidInputError, match=text):
            ScanDataset(full, **arguments)  # type: ignore[arg-type]


@forks
@pytest.mark.parametrize("start", ["fork", *START_ANEW])
def test_torch_workers_start_in_every_way(start: str, full: lancemem.Table) -> None:
    data = torch_data()
    from lancemem.torch import KeyDataset, ScanDataset  # noqa: PLC0415

    with_two = {"num_workers": 2, "multiprocessing_context": start}
    scanned = ScanDataset(full, {"id": "id", "double": "value * 2"}, pc.field("id") >= 10)
    batches = list(data.DataLoader(scanned, batch_size=None, **with_two))
    assert sorted(ids_of(batches)) == list(range(10, ROWS))
    assert {value for batch in batches for value in batch["double"].tolist()} == {1.0}
    sampled = KeyDataset(full, columns=["id"])
    loader = data.DataLoader(sampled, batch_size=64, shuffle=True, **with_two)
    assert sorted(ids_of(loader)) == list(range(ROWS))
    with pytest.raises(lancemem.InvalidInputError, match="'nothing'"):
        list(data.DataLoader(ScanDataset(full, ["nothing"]), batch_size=None, **with_two))


@forks
@pytest.mark.parametrize("workers", [0, 2])
def test_torch_shuffles_each_epoch_anew_and_alike(workers: int, full: lancemem.Table) -> None:
    data = torch_data()
    from lancemem.torch import ScanDataset  # noqa: PLC0415

    full.compact(flush=True)

    def orders(seed: int) -> list[list[int]]:
        dataset = ScanDataset(full, ["id"], batch_size=64, shuffle=True, seed=seed)
        dataset = pickle.loads(pickle.dumps(dataset))  # noqa: S301 - our own
        loader = data.DataLoader(
            dataset, batch_size=None, num_workers=workers, persistent_workers=workers > 0
        )
        found = []
        for epoch in (0, 1, 0):
            dataset.set_epoch(epoch)
            found.append(ids_of(loader))
        return found

    first, second, again = orders(1)
    assert first == again
    assert first != second
    assert sorted(first) == sorted(second) == list(range(ROWS))
    assert orders(1) == [first, second, first]
    assert orders(2)[0] != first


@pytest.mark.slow
def test_torch_ranks_take_their_part_from_the_process_group(
    full: lancemem.Table, tmp_path: Path
) -> None:
    torch_data()
    from lancemem.torch import ScanDataset  # noqa: PLC0415

    program = """
        import sys
        import torch
        from torch.utils.data import DataLoader, DistributedSampler
        from lancemem.torch import KeyDataset, ScanDataset

        uri, token, store, rank = sys.argv[1:]
        torch.distributed.init_process_group(
            "gloo", init_method=f"file://{store}", rank=int(rank), world_size=2
        )
        scanned = ScanDataset(uri, ["id"], batch_size=64, snapshot=token)
        loaders = [DataLoader(scanned, batch_size=None, num_workers=1)]
        sampled = KeyDataset(uri, columns=["id"], snapshot=token)
        sampler = DistributedSampler(sampled, seed=5)
        loaders.append(DataLoader(sampled, batch_size=50, sampler=sampler))
        for loader in loaders:
            print("ids", *(number for batch in loader for number in batch["id"].tolist()))
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
        """
    token = ScanDataset(full).token
    full.delete(list(range(10)))

    def run(rank: int) -> list[list[int]]:
        ended = run_python(program, full.uri, str(token), str(tmp_path / "store"), str(rank))
        assert ended.returncode == 0, ended.stderr
        # Gloo prints lines of its own.
        lines = [line.split() for line in ended.stdout.splitlines() if line.startswith("ids ")]
        return [[int(number) for number in numbers] for _, *numbers in lines]

    with ThreadPoolExecutor(2) as ranks:
        first, second = ranks.map(run, range(2))
    for one, other in zip(first, second, strict=True):
        assert min(len(one), len(other)) > 0
        assert sorted(one + other) == list(range(ROWS))


@forks
def test_torch_samples_rows_by_key(full: lancemem.Table) -> None:
    data = torch_data()
    from lancemem.torch import KeyDataset  # noqa: PLC0415

    dataset = KeyDataset(full, columns=["id", "name", "value"])
    assert len(dataset) == ROWS
    assert dataset[7] == {"id": 7, "name": "a", "value": 0.5}
    assert dataset[-1]["id"] == ROWS - 1
    with pytest.raises(IndexError):
        dataset[ROWS]
    for workers in (0, 2):
        loader = data.DataLoader(dataset, batch_size=100, shuffle=True, num_workers=workers)
        assert sorted(ids_of(loader)) == list(range(ROWS))
    batch = dataset[[5, 3, 5]]
    assert batch["id"].tolist() == [5, 3, 5]
    assert batch["name"] == ["a"] * 3
    batches = data.BatchSampler(data.RandomSampler(dataset), 300, drop_last=False)
    whole = list(data.DataLoader(dataset, batch_size=None, sampler=batches, num_workers=2))
    assert [len(batch["id"]) for batch in whole] == [300, 300, 300, 100]
    assert sorted(ids_of(whole)) == list(range(ROWS))
    fifth, _ = data.random_split(dataset, [0.2, 0.8])
    assert len(ids_of(data.DataLoader(fifth, batch_size=64))) == ROWS // 5
    assert list(data.DataLoader(KeyDataset(full, pa.array([], pa.int64())))) == []


def torch_data() -> Any:  # noqa: ANN401 - a module that may be missing
    """Return torch's loaders."""
    reason = "torch is not among the tools of the tests"
    return pytest.importorskip("torch.utils.data", reason=reason)
