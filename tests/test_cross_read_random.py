"""lancemem and pylance 14.0.2 take turns on one shard at random, and both read what a dict holds.

Owns: random lives of a shard that both write: puts and deletes of either, the SSTables that either
flushes, lancemem's compactions between them; every read of either. Not here: single cases, and
where pylance is known to be wrong (test_cross_read).
"""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, Any

import pytest

from tests.keyed_rows import KeyedRows, empty_table
from tests.seeds import seed

lance = pytest.importorskip("lance")

from tests.upstream import AT_ONCE, flushed_rows  # noqa: E402 - after the check that it is there

if TYPE_CHECKING:
    import lancemem
    from tests.conftest import MakeTable

LIVES = int(os.environ.get("LANCEMEM_LIVES", "100"))
KINDS = ["int64", "utf8", "two columns"]
TURNS = 4
KEYS = 60


class Shard:
    """A table of one shard that both write, and what it should hold."""

    def __init__(self, table: lancemem.Table, rows: KeyedRows, chance: random.Random) -> None:
        self.table, self.rows, self.chance = table, rows, chance
        self.values = 0

    def some(self) -> list[int]:
        """Choose keys."""
        return self.chance.sample(range(KEYS), self.chance.randrange(1, KEYS // 2))

    def write(self, writer: Any) -> None:  # noqa: ANN401 - a job, or pylance's writer: same calls
        """Put or delete a few times."""
        for _ in range(self.chance.randrange(1, 4)):
            if self.chance.randrange(3) == 0:
                writer.delete(self.rows.forget(self.some()))
            else:
                self.values += 1
                writer.put(self.rows.replace(self.some(), f"value {self.values}"))

    def turn_of_lancemem(self) -> None:
        """Write through a job, which leaves an SSTable or entries of the log."""
        flush = self.chance.randrange(2) == 0
        job = self.table.start_job(shard=0)
        self.write(job)
        live = self.table.scan(consistency="live", jobs=[job]).to_table()
        assert self.rows.of(live) == self.rows.rows
        job.close(flush=flush)

    def turn_of_pylance(self) -> None:
        """Write through pylance, which replays lancemem's log first and flushes when closed."""
        shard_id = self.table.shards()[0].shard_id
        with lance.dataset(self.table.uri).mem_wal_writer(shard_id, **AT_ONCE) as writer:
            assert self.rows.of(writer.lsm_scanner().to_table()) == self.rows.rows
            self.write(writer)
            assert self.rows.of(writer.lsm_scanner().to_table()) == self.rows.rows
            # The writer is still open: the rows that it acknowledged are in the log alone.
            self.check()

    def check(self) -> None:
        """Compare what lancemem reads, as a scan and by key."""
        assert self.rows.of(self.table.scan().to_table()) == self.rows.rows
        assert self.rows.of(self.table.get(self.rows.keys(range(KEYS)))) == self.rows.rows

    def check_flushed(self) -> None:
        """Compare what both read where every row of the log is in SSTables."""
        self.table.start_job(shard=0).close(flush=True)
        assert self.rows.of(flushed_rows(self.table)) == self.rows.rows
        flushed = self.table.scan(consistency="flushed").to_table()
        assert self.rows.of(flushed) == self.rows.rows


@pytest.mark.parametrize("kind", KINDS)
def test_what_either_wrote_both_read(kind: str, make_table: MakeTable) -> None:
    first = 1_000_000 * int(seed())
    for life in range(LIVES * KINDS.index(kind) // 3, LIVES * (KINDS.index(kind) + 1) // 3):
        print(f"life {life}")  # noqa: T201 - where a failure is
        table, key = empty_table(make_table, kind)
        chance = random.Random(first + life)  # noqa: S311 - a fixed seed is the point
        shard = Shard(table, KeyedRows(table, key), chance)
        for _ in range(TURNS):
            chance.choice([shard.turn_of_lancemem, shard.turn_of_pylance])()
            shard.check()
            if chance.randrange(3) == 0:
                table.compact()
                shard.check()
        shard.check_flushed()
