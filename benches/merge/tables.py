"""Twin tables, one with a merge rule and one without, over the same rows.

Owns: the rules, the base that pylance writes, the newer rows with their place in event time, the
SSTables above the base, and the rows that a rule makes of both. Does not own: the measurements.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import lancemem
from benches.compact import tables

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False, metadata=tables.KEY),
        pa.field("ts", pa.int64()),
        pa.field("number", pa.float64()),
        pa.field("payload", pa.binary()),
    ]
)
RULES: dict[str, dict[str, Any]] = {
    "sequence_by": {"sequence_by": ["ts"]},
    "partial_update": {"merge_engine": "partial_update"},
    "aggregation": {
        "merge_engine": "aggregation",
        "aggregates": {"ts": "last_value", "number": "sum", "payload": "last_value"},
    },
}
# Rows of the base lie in the middle of event time: about half of the newer rows are late.
BASE_TIME, LAST_TIME = 500_000, 1_000_000


def rows(ids: np.ndarray, seed: int, times: np.ndarray | None = None) -> pa.Table:
    """Make rows of random numbers and bytes; without `times` all are of the base's time."""
    made = tables.rows(ids, seed)
    stamps = np.full(len(ids), BASE_TIME) if times is None else times
    columns = [made["id"], pa.array(stamps, pa.int64()), made["number"], made["text"]]
    return pa.table(columns, schema=SCHEMA)


def late_and_new(base_rows: int, share: float, seed: int) -> pa.Table:
    """Choose keys of the base at random; give them rows of random times."""
    random = np.random.default_rng(seed)
    ids = random.choice(base_rows, int(base_rows * share), replace=False)
    return rows(ids, seed + 1, random.integers(0, LAST_TIME, len(ids)))


def merged(base: Path, changed: pa.Table, rule: str) -> pa.Table:
    """Return the rows of the keys of `changed` that are no longer those of the base."""
    if rule == "sequence_by":
        return changed.filter(pa.array(changed["ts"].to_numpy() >= BASE_TIME))
    if rule == "partial_update":
        return changed
    stored = lance.dataset(str(base)).take(changed["id"].to_numpy(), ["number"])
    total = pc.add(stored["number"], changed["number"])
    return changed.set_column(SCHEMA.get_field_index("number"), SCHEMA.field("number"), total)


def make_base(folder: Path, base_rows: int) -> Path:
    """Write the base table with pylance."""
    return tables.make_base(folder / f"base-{base_rows}.lance", base_rows, rows)


def enable(path: Path, rule: str | None) -> lancemem.Table:
    """Enable a copy of the base with one of `RULES`, or without a rule."""
    return lancemem.enable(str(path), config=tables.CONFIG, **(RULES[rule] if rule else {}))


def above(
    base: Path, changed: pa.Table, sstables: int, rule: str | None, name: str | None = None
) -> Path:
    """Copy the base and flush the changed rows into SSTables above it."""
    path = tables.copy(base, name or rule or "plain")
    table = enable(path, rule)
    each = -(-changed.num_rows // sstables)
    with table.start_job(shard=0, config=tables.CONFIG) as job:
        for start in range(0, changed.num_rows, each):
            for batch in changed.slice(start, each).to_batches(max_chunksize=tables.PUT_ROWS):
                job.put(batch, durable=False)
            job.flush()
    return path
