"""What an index of vectors costs writers, and what a batch saves searches.

Owns: the cases of puts, flushes and batches, each with its two sides, and their lines of the page.
Does not own: the searches of one vector (`__main__`), rows and tables (`tables`), or statistics
(`benches.write.stats`).

All figures are seconds of processor time: the work of an index may run beside the call.
"""

from __future__ import annotations

import shutil
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa

import lancemem
from benches.search import tables
from benches.write.stats import Comparison, Goal, spread

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

WRITTEN, QUICK_WRITTEN = 20_000, 2_000
BASE, QUICK_BASE = 20_000, 4_000
QUERIES, QUICK_QUERIES = 1_000, 100
# Rows that the searches of a batch compare, all of them fresh.
FRESH, QUICK_FRESH = 100_000, 4_000
PUT_ROWS = 1_000
HEADING = (
    "| case | beside | lancemem, CPU s | beside, CPU s | ratio (95 % interval) | less | goal "
    "| met |"
)
RULE = f"|{' --- |' * 8}"


@dataclass(frozen=True)
class Case:
    """The same work by two sides. A call does it once and returns its seconds."""

    title: str
    peer: str
    goal: Goal
    ours: Callable[[], float]
    theirs: Callable[[], float]


@dataclass(frozen=True)
class Counts:
    """How much is written and searched."""

    base: int = BASE
    written: int = WRITTEN
    queries: int = QUERIES
    fresh: int = FRESH

    @staticmethod
    def of(*, quick: bool) -> Counts:
        """Give the counts of a run."""
        if not quick:
            return Counts()
        return Counts(QUICK_BASE, QUICK_WRITTEN, QUICK_QUERIES, QUICK_FRESH)


def measure(folder: Path, counts: Counts, pairs: int, say: Callable[[str], None]) -> list[str]:
    """Run all cases in turn and return the lines of the page."""
    data = _Data(folder, counts)
    lines = ["", HEADING, RULE]
    for case in _cases(data):
        ours: list[float] = []
        theirs: list[float] = []
        for turn in range(pairs):
            say(f"{case.title} beside {case.peer}, round {turn + 1} of {pairs}")
            sides = [(ours, case.ours), (theirs, case.theirs)]
            # The side that goes first alternates.
            for seconds, run in sides if turn % 2 == 0 else sides[::-1]:
                seconds.append(run())
        lines.append(_line(case, ours, theirs))
    data.close()
    return lines


def _line(case: Case, ours: list[float], theirs: list[float]) -> str:
    comparison = Comparison("search", case.title, case.peer, "s", ours, theirs, case.goal)
    ratio, low, high = comparison.interval()
    return (
        f"| {case.title} | {case.peer} | {spread(ours).median:.3f} | {spread(theirs).median:.3f} "
        f"| **{ratio:.2f}** ({low:.2f} to {high:.2f}) | {comparison.faster()} | {case.goal.text()} "
        f"| {comparison.verdict()} |"
    )


def _cases(data: _Data) -> list[Case]:
    rows = f"{data.counts.written:,} x {tables.WIDTH}"
    put, put_sync = (f"put of {rows}, vector index {when}" for when in ("deferred", "sync"))
    flush = f"flush of {rows} with IVF_PQ"
    batch = f"batch of {data.counts.queries:,} queries above {data.counts.fresh:,} fresh rows"
    return [
        Case(
            put,
            "no index",
            Goal(1.1, at_least=False),
            lambda: data.put(indexed=True),
            lambda: data.put(indexed=False),
        ),
        Case(
            put_sync,
            "no index",
            Goal(1 / 0.3, at_least=False),
            lambda: data.put(indexed=True, sync=True),
            lambda: data.put(indexed=False),
        ),
        Case(
            put,
            "pylance, maintained index",
            Goal(1 / 30, at_least=False),
            lambda: data.put(indexed=True),
            data.put_by_pylance,
        ),
        Case(
            flush,
            "no index",
            Goal(3.5, at_least=False),
            lambda: data.flush(indexed=True),
            lambda: data.flush(indexed=False),
        ),
        Case(batch, "a loop of searches", Goal(1 / 8, at_least=False), data.batch, data.loop),
    ]


class _Data:
    """The rows, one table for each side, and the work."""

    def __init__(self, folder: Path, counts: Counts) -> None:
        sizes = tables.Sizes(
            base=counts.base,
            sstables=0,
            memory_rows=counts.written,
            partitions=max(counts.base // 1_000, 2),
            queries=counts.queries,
        )
        self.counts, self.folder, self.sizes = counts, folder, sizes
        self.rows = tables.Data(sizes)
        self.queries = self.rows.queries
        self.tables = {indexed: self._table(indexed=indexed) for indexed in (True, False)}
        self.searched = self._fresh()

    def _table(self, *, indexed: bool) -> lancemem.Table:
        uri = str(self.folder / f"writes-{indexed}.lance")
        table = lancemem.create_table(uri, tables.SCHEMA, primary_key="id", config=tables.CONFIG)
        for put in tables.puts(range(self.counts.base), self.rows.base):
            table.upsert(put)
        table.compact(flush=True)
        if indexed:
            tables.add_index(uri, self.sizes)
        return lancemem.open_table(uri)

    def _fresh(self) -> lancemem.Table:
        uri = str(self.folder / "fresh.lance")
        table = lancemem.create_table(uri, tables.SCHEMA, primary_key="id", config=tables.CONFIG)
        self.job = table.start_job(shard=0)
        for put in tables.puts(range(self.counts.fresh), self.rows.draw(self.counts.fresh)):
            self.job.put(put)
        return table

    def close(self) -> None:
        """End the job of the fresh rows."""
        self.job.close()

    def _puts(self) -> list[pa.Table]:
        [ids], [vectors] = self.rows.parts, self.rows.part_vectors
        starts = range(0, len(ids), PUT_ROWS)
        return [tables.rows(ids[at : at + PUT_ROWS], vectors[at : at + PUT_ROWS]) for at in starts]

    def put(self, *, indexed: bool, sync: bool = False) -> float:
        """Put all rows into a job, and give them up."""
        return self._written(indexed=indexed, sync=sync)[0]

    def flush(self, *, indexed: bool) -> float:
        """Flush all rows to an SSTable; the puts before it do not count."""
        return self._written(indexed=indexed)[1]

    def _written(self, *, indexed: bool, sync: bool = False) -> tuple[float, float]:
        puts = self._puts()
        table = self.tables[indexed]
        with table.start_job(shard=0) as job:
            begun = time.process_time()
            for put in puts:
                job.put(put, sync_search_index=sync)
            written = time.process_time()
            job.flush()
            flushed = time.process_time()
        # The next round begins with the same table.
        table.compact()
        return written - begun, flushed - written

    def put_by_pylance(self) -> float:
        """Put all rows into pylance's writer, which maintains a graph in memory."""
        uri = str(self.folder / f"theirs-{uuid.uuid4()}.lance")
        key = tables.SCHEMA.field("id").with_metadata(
            {tables.PRIMARY_KEY: "true", f"{tables.PRIMARY_KEY}:position": "1"}
        )
        schema = pa.schema([key, tables.SCHEMA.field("vec")])
        base = tables.rows(range(self.counts.base), self.rows.base).cast(schema)
        lance.write_dataset(base, uri)
        tables.add_index(uri, self.sizes)
        dataset: Any = lance.dataset(uri)
        dataset.initialize_mem_wal(
            unsharded=True,
            maintained_indexes=["vec_idx"],
            max_memtable_rows=self.counts.written * 2,
        )
        puts = [put.cast(schema) for put in self._puts()]
        writer = lance.dataset(uri).mem_wal_writer(str(uuid.uuid4()), durable_write=False)
        with writer as writer:
            begun = time.process_time()
            for put in puts:
                writer.put(put)
        # The graph is built beside the puts, and is complete when the writer is closed.
        seconds = time.process_time() - begun
        shutil.rmtree(uri)
        return seconds

    def batch(self) -> float:
        """Search for all queries at once, as a task of a join does."""
        begun = time.process_time()
        found = self.searched.search(self.queries, k=tables.K, columns=["id"], consistency="live")
        rows = found.to_table().num_rows
        seconds = time.process_time() - begun
        if rows != (expected := tables.K * len(self.queries)):
            message = f"a batch found {rows} rows, expected {expected}"
            raise AssertionError(message)
        return seconds

    def loop(self) -> float:
        """Search for one query after the other."""
        begun = time.process_time()
        for query in self.queries:
            search = self.searched.search(query, k=tables.K, columns=["id"], consistency="live")
            search.to_table()
        return time.process_time() - begun
