"""pylance's own readers and writers, which tests compare with lancemem.

Owns: the shards of a table and their SSTables in pylance's form, as pylance cannot list them, and
the settings of its writer. Not here: the expected rows (the tests).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lance
from lance.mem_wal import LsmScanner, ShardSnapshot

if TYPE_CHECKING:
    import pyarrow as pa

    import lancemem

# How pylance's writer is opened: its defaults wait 100 ms for every put.
AT_ONCE: dict[str, Any] = {"durable_write": True, "max_wal_flush_interval_ms": 1}


def snapshots(table: lancemem.Table) -> list[Any]:
    """Describe each shard with its SSTables."""
    found: list[Any] = []
    for shard in table.shards():
        snapshot: Any = ShardSnapshot(shard.shard_id)
        snapshot.with_current_generation(shard.current_generation)
        for sstable in shard.sstables:
            snapshot.with_sstable(sstable.generation, sstable.path)
        found.append(snapshot)
    return found


def flushed_rows(table: lancemem.Table) -> pa.Table:
    """Read the base table and the SSTables above it."""
    return LsmScanner.from_snapshots(lance.dataset(table.uri), snapshots(table)).to_table()
