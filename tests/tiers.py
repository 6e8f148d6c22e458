"""A table whose rows are in one place: the log, an SSTable, the base table, or an indexed base.

Owns: how rows get there. Not here: the queries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import lance

if TYPE_CHECKING:
    import pyarrow as pa

    import lancemem

TIERS = ("log", "sstable", "base", "indexed")


def place(table: lancemem.Table, rows: pa.Table, tier: str, *indexed: str) -> lancemem.Table:
    """Write `rows` and bring them into `tier`; the columns `indexed` get an index there."""
    table.upsert(rows)
    if tier == "log":
        return table
    with table.start_job(shard=0) as job:
        job.flush()
    if tier == "sstable":
        return table
    table.compact()
    if tier == "indexed":
        for column in indexed:
            lance.dataset(table.uri).create_scalar_index(column, "BTREE")
    return table


def ids(table: lancemem.Table, condition: object) -> list[int]:
    """Return the ids of the rows that meet `condition`, and check that a count agrees."""
    found = table.scan(["id"], condition).to_table()
    assert table.scan(filter=condition).count_rows() == found.num_rows
    return sorted(found["id"].to_pylist())
