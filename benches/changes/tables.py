"""The tables of both sides: commits of random updates by key.

Owns: the rows, the commits, and how each side reads the changes of them. Does not own: clocks, or
the order of the measurements.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Protocol

import lance
import numpy as np
import pyarrow as pa

import lancemem

with contextlib.suppress(ImportError):
    import deltalake

if TYPE_CHECKING:
    from pathlib import Path

HAS_DELTA = "deltalake" in globals()
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("price", pa.float64()),
        pa.field("round", pa.int32()),
    ]
)


def rows(ids: np.ndarray, number: int) -> pa.Table:
    """Make the rows of a commit."""
    random = np.random.default_rng(number)
    columns = [
        pa.array(ids),
        pa.array([f"name-{key}-{number}" for key in ids]),
        pa.array(random.random(len(ids))),
        pa.array(np.full(len(ids), number, np.int32)),
    ]
    return pa.table(columns, schema=SCHEMA)


def updates(base_rows: int, count: int, number: int) -> pa.Table:
    """Choose keys at random, one in a hundred of them new, and give them new rows."""
    random = np.random.default_rng(1_000 + number)
    return rows(np.sort(random.choice(base_rows + base_rows // 100, count, replace=False)), number)


class Side(Protocol):
    """A table of one library."""

    def commit(self, changed: pa.Table) -> None:
        """Write rows by key and make them a version."""

    def read(self) -> int:
        """Read all changes behind the first version, and count them."""


class Lancemem:
    """A table of lancemem, whose changes are derived or stored."""

    def __init__(self, folder: Path, base: pa.Table, *, stored: bool = False) -> None:
        """Create the table with its rows in the base table."""
        self.uri = str(folder / ("stored.lance" if stored else "derived.lance"))
        self.table = lancemem.create_table(self.uri, SCHEMA, primary_key="id")
        self.commit(base)
        if stored:
            self.table.alter(changelog="stored")
        self.since = lance.dataset(self.uri).version

    def commit(self, changed: pa.Table) -> None:
        """Upsert and compact."""
        self.table.upsert(changed)
        self.table.compact(flush=True)

    def read(self) -> int:
        """Read the feed in batches."""
        return sum(batch.num_rows for batch in self.table.changes(self.since))

    def is_stored(self) -> bool:
        """Whether every version that changes rows has them stored."""
        return all(version.is_stored for version in self.table.changes(self.since).versions)

    def scan(self) -> int:
        """Read the whole table with pylance."""
        return sum(batch.num_rows for batch in lance.dataset(self.uri).to_batches())


class Delta:
    """A table of deltalake with a change data feed."""

    def __init__(self, folder: Path, base: pa.Table) -> None:
        """Create the table."""
        self.uri = str(folder / "theirs")
        deltalake.write_deltalake(
            self.uri, base, configuration={"delta.enableChangeDataFeed": "true"}
        )

    def commit(self, changed: pa.Table) -> None:
        """Merge by key."""
        merge = deltalake.DeltaTable(self.uri).merge(
            changed, predicate="t.id = s.id", source_alias="s", target_alias="t"
        )
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    def read(self) -> int:
        """Read the change data feed in batches."""
        feed = deltalake.DeltaTable(self.uri).load_cdf(starting_version=1)
        return sum(batch.num_rows for batch in pa.RecordBatchReader.from_stream(feed))
