"""The index of an SSTable becomes part of the base table's: linked, or made of its rows again.

Owns: the tables, the processor time of both ways and their lines on the page. Does not own: the
other measurements (`__main__`), or statistics (`benches.write.stats`).

Both ways start from one table with an SSTable. One compaction links the SSTable's index. Another
leaves it behind, and pylance's `optimize_indices` reads the rows and encodes them.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import lance
import numpy as np

import lancemem
from benches.search import tables
from benches.write.stats import Comparison, Goal, spread

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

GOAL = Goal(0.1, at_least=False)
HEADING = (
    "| an index covers the rows of a compaction | lancemem, CPU ms | peer, CPU ms "
    "| ratio (95 % interval) | less | goal | met |"
)


@dataclass
class Linking:
    """Milliseconds of processor time, one of each pair."""

    # A compaction that links the index, and one that leaves it behind.
    linked: list[float] = field(default_factory=list)
    without: list[float] = field(default_factory=list)
    appended: list[float] = field(default_factory=list)
    rows: int = 0

    def steps(self) -> list[float]:
        """What the link adds to a compaction."""
        bare = spread(self.without).median
        return [max(taken - bare, 0.0) for taken in self.linked]

    def lines(self) -> list[str]:
        """The lines of the page."""
        title = f"IVF_PQ, {self.rows:,} rows: link / optimize_indices(num_indices_to_merge=0)"
        steps = self.steps()
        compared = Comparison("search", title, "append", "ms", steps, self.appended, GOAL)
        ratio, low, high = compared.interval()
        line = (
            f"| {title} | {spread(steps).median:.1f} | {spread(self.appended).median:.1f} | "
            f"**{ratio:.2f}** ({low:.2f} to {high:.2f}) | {compared.faster()} | "
            f"{GOAL.text()} | {compared.verdict()} |"
        )
        return [HEADING, "| --- | --- | --- | --- | --- | --- |", line]


def measure(folder: Path, sizes: tables.Sizes, pairs: int) -> Linking:
    """Compact copies of one table, in turn with and without its indexes."""
    uri = folder / "linking.lance"
    random = np.random.default_rng(13)
    # An SSTable of fewer rows is small, and its index is not the base table's.
    count = max(sizes.sstable_rows, 16_384)
    base = min(sizes.base, 50_000)
    vectors = random.normal(size=(base + count, tables.WIDTH)).astype(np.float32)
    table = lancemem.create_table(str(uri), tables.SCHEMA, primary_key="id", config=tables.CONFIG)
    with table.start_job(shard=0) as job:
        for put in tables.puts(np.arange(base), vectors[:base]):
            job.put(put)
        job.flush()
    table.compact()
    tables.add_index(str(uri), sizes)
    with table.start_job(shard=0) as job:
        for put in tables.puts(np.arange(base, base + count), vectors[base:]):
            job.put(put)
        job.flush()
    del table
    found = Linking(rows=count)
    for turn in range(pairs + 1):
        _pair(uri, found, first=turn % 2 == 0)
        if turn == 0:
            # The first pair warms everything up.
            found = Linking(rows=count)
    return found


def _pair(uri: Path, found: Linking, *, first: bool) -> None:
    for links in (first, not first):
        copy = uri.with_name("linking-copy.lance")
        shutil.copytree(uri, copy)
        table = lancemem.open_table(str(copy))
        taken = _cpu_ms(partial(table.compact, update_indexes=links))
        if links:
            found.linked.append(taken)
        else:
            found.without.append(taken)
            optimize = lance.dataset(str(copy)).optimize.optimize_indices
            found.appended.append(_cpu_ms(partial(optimize, num_indices_to_merge=0)))
        [index] = table.indexes()
        if (index.unindexed_rows, index.segments) != (0, 2):
            message = f"{index} does not cover all rows in two segments"
            raise AssertionError(message)
        shutil.rmtree(copy)


def _cpu_ms(call: Callable[[], object]) -> float:
    begun = time.process_time()
    call()
    return (time.process_time() - begun) * 1e3
