"""pylance: a `ShardWriter` on a fresh dataset with MemWAL.

Owns: how pylance is opened for every bench. Does not own: the timed part.

MemTable limits are its defaults, which are lancemem's: 100,000 rows, 8,000 batches, 256 MB.
Settings are given to the writer, because pylance 14.0.2 does not read the settings of the table. A
put takes a `RecordBatch`; pylance's wrapper makes a reader of it, as it does for every caller.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import lance

from benches.write.data import KeyKind, schema_of

if TYPE_CHECKING:
    from pathlib import Path

SHARD = str(uuid.UUID(int=0x6C6E636D_656D_4000_8000_000000000001))


def make_dataset(uri: str, kind: KeyKind) -> Any:  # noqa: ANN401 - lance's dataset
    """Make an empty dataset that takes puts."""
    schema = schema_of(kind)
    dataset = lance.write_dataset(schema.empty_table(), uri, schema=schema)
    dataset.initialize_mem_wal(unsharded=True)
    return dataset


class PylancePeer:
    """A writer with defaults, but not durable unless asked."""

    def __init__(self, folder: Path, kind: KeyKind, **settings: Any) -> None:  # noqa: ANN401
        self.uri = str(folder / "pylance.lance")
        dataset = make_dataset(self.uri, kind)
        options = {"durable_write": False, **settings}
        self.writer: Any = dataset.mem_wal_writer(SHARD, **options)
        self.put = self.writer.put

    def close(self) -> None:
        """Flush and close, which pylance cannot do apart."""
        self.writer.close()
