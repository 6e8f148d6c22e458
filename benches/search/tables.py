"""The tables of all sides: the same rows, in one place or in many.

Owns: the vectors, which rows are updated, how each side is laid out, and how it searches. Does not
own: clocks, or the order of the measurements.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
from lance.mem_wal import LsmVectorSearchPlanner, ShardSnapshot

import lancemem

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Vectors = Any  # an array of numpy

WIDTH = 384
K = 10
CLUSTERS = 1_000
PUT_ROWS = 10_000
SUB_VECTORS = 96
REFINE_FACTOR = 4
PRIMARY_KEY = "lance-schema:unenforced-primary-key"
VECTOR = pa.list_(pa.float32(), WIDTH)
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("vec", VECTOR)])
# Rows stay in memory until a flush is asked for.
CONFIG = lancemem.WriterConfig(
    fsync=False,
    max_memtable_rows=1_000_000,
    max_memtable_bytes=1 << 30,
    idle_flush_interval="never",
)


@dataclass(frozen=True)
class Sizes:
    """How many rows are where."""

    base: int = 300_000
    sstables: int = 4
    sstable_rows: int = 20_000
    memory_rows: int = 40_000
    partitions: int = 256
    queries: int = 40

    def quick(self) -> Sizes:
        """Give a tenth of each."""
        tenth = (self.base // 10, self.sstables, self.sstable_rows // 10, self.memory_rows // 10)
        return Sizes(*tenth, partitions=self.partitions // 10, queries=self.queries // 2)


class Data:
    """Vectors in clusters; a tenth of the base is updated by the parts above it."""

    def __init__(self, sizes: Sizes) -> None:
        """Draw all rows."""
        self._random = np.random.default_rng(7)
        self._centers = self._random.normal(size=(CLUSTERS, WIDTH)).astype(np.float32)
        above = sizes.sstables * sizes.sstable_rows + sizes.memory_rows
        updated = self._random.choice(sizes.base, sizes.base // 10, replace=False)
        new = np.arange(sizes.base, sizes.base + above - len(updated))
        newer = self._random.permutation(np.concatenate([updated, new]))
        ends = [sizes.sstable_rows * (number + 1) for number in range(sizes.sstables)]
        self.base = self.draw(sizes.base)
        # The ids of each SSTable, and of the rows in memory.
        self.parts = np.split(newer, ends)
        self.part_vectors = [self.draw(len(part)) for part in self.parts]
        self.final = np.concatenate([self.base, np.empty((len(new), WIDTH), np.float32)])
        for part, vectors in zip(self.parts, self.part_vectors, strict=True):
            self.final[part] = vectors
        self._squares = np.einsum("ij,ij->i", self.final, self.final)
        self.queries = self.draw(sizes.queries)
        self.right = [self._nearest(query) for query in self.queries]

    def draw(self, count: int) -> Vectors:
        """Draw vectors, each near to one of the centers."""
        chosen = self._random.integers(0, CLUSTERS, count)
        noise = self._random.normal(size=(count, WIDTH), scale=0.7).astype(np.float32)
        return self._centers[chosen] + noise

    def _nearest(self, query: Vectors) -> set[int]:
        """Find the ids of the right answer by brute force."""
        # |v - q|^2 less the same for all rows.
        distances = self._squares - 2 * (self.final @ query)
        return set(np.argpartition(distances, K)[:K].tolist())

    def recall(self, answers: list[list[int]]) -> float:
        """Compare the answers of a side with the right ones."""
        pairs = zip(answers, self.right, strict=True)
        return float(np.mean([len(set(answer) & right) / K for answer, right in pairs]))


def rows(ids: Vectors, vectors: Vectors) -> pa.Table:
    """Make rows."""
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), type=VECTOR)
    return pa.table([pa.array(ids, pa.int64()), column], schema=SCHEMA)


def puts(ids: Vectors, vectors: Vectors) -> Iterator[pa.Table]:
    """Make rows, a put at a time."""
    for start in range(0, len(ids), PUT_ROWS):
        yield rows(ids[start : start + PUT_ROWS], vectors[start : start + PUT_ROWS])


def add_index(uri: str, sizes: Sizes) -> None:
    """Make the index of every side."""
    lance.dataset(uri).create_index(
        "vec",
        "IVF_PQ",
        metric="l2",
        num_partitions=sizes.partitions,
        num_sub_vectors=SUB_VECTORS,
    )


class Lancemem:
    """The rows in the base table, in SSTables and in the memory of a job."""

    def __init__(self, folder: Path, data: Data, sizes: Sizes) -> None:
        """Write them; the job keeps the last part in memory."""
        self.uri = str(folder / "ours.lance")
        self.table = lancemem.create_table(self.uri, SCHEMA, primary_key="id", config=CONFIG)
        with self.table.start_job(shard=0) as job:
            for put in puts(np.arange(sizes.base), data.base):
                job.put(put)
            job.flush()
        self.table.compact()
        add_index(self.uri, sizes)
        self.job = self.table.start_job(shard=0)
        *flushed, memory = zip(data.parts, data.part_vectors, strict=True)
        for part, vectors in flushed:
            for put in puts(part, vectors):
                self.job.put(put)
            self.job.flush()
        for put in puts(*memory):
            self.job.put(put)

    def search(self, query: Vectors) -> list[int]:
        """Search with every default."""
        found: list[int] = (
            self.table.search(query, k=K, columns=["id"]).to_table()["id"].to_pylist()
        )
        return found


class Compacted:
    """A copy of the newest rows as a plain Lance table, with the index rebuilt."""

    def __init__(self, folder: Path, ours: lancemem.Table, sizes: Sizes) -> None:
        """Copy the rows."""
        uri = str(folder / "copy.lance")
        lance.write_dataset(ours.to_reader(), uri)
        add_index(uri, sizes)
        self.dataset = lance.dataset(uri)

    def search(self, query: Vectors) -> list[int]:
        """Search by pylance, with exact distances of the candidates."""
        nearest = {"column": "vec", "q": query, "k": K, "refine_factor": REFINE_FACTOR}
        found = self.dataset.to_table(columns=["id"], nearest=nearest)
        ids: list[int] = found["id"].to_pylist()
        return ids


class Planner:
    """The same parts written by pylance, whose SSTables have graphs, and its search of them."""

    def __init__(self, folder: Path, data: Data, sizes: Sizes) -> None:
        """Write them; pylance's planner searches no MemTable, so the last part is flushed too."""
        uri = str(folder / "theirs.lance")
        key = SCHEMA.field("id").with_metadata(
            {PRIMARY_KEY: "true", f"{PRIMARY_KEY}:position": "1"}
        )
        schema = pa.schema([key, SCHEMA.field("vec")])
        base = rows(np.arange(sizes.base), data.base).cast(schema)
        lance.write_dataset(base, uri)
        add_index(uri, sizes)
        lance.dataset(uri).initialize_mem_wal(unsharded=True)
        shard = str(uuid.uuid4())
        for part, vectors in zip(data.parts, data.part_vectors, strict=True):
            with lance.dataset(uri).mem_wal_writer(shard, durable_write=False) as writer:
                for put in puts(part, vectors):
                    writer.put(put.cast(schema))
        snapshot: Any = ShardSnapshot(shard)
        [found] = lancemem.open_table(uri).shards()
        for sstable in found.sstables:
            snapshot = snapshot.with_sstable(sstable.generation, sstable.path)
        self.sstables = len(found.sstables)
        self.planner = LsmVectorSearchPlanner(lance.dataset(uri), [snapshot], "vec")
        self.overfetch = 1.0

    def search(self, query: Vectors) -> list[int]:
        """Search with the factor that was chosen, and refine as the other sides do."""
        plan = self.planner.plan_search(
            pa.array(query),
            k=K,
            columns=["id"],
            refine_base_table=True,
            overfetch_factor=self.overfetch,
        )
        ids: list[int] = plan.to_table()["id"].to_pylist()
        return ids
