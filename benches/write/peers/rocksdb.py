"""RocksDB by rocksdict: write batches of raw bytes, WAL off.

Owns: how RocksDB is opened, and Arrow rows as its write batches. Does not own: the timed part.

The key is the int64 in big endian with the sign flipped, so that bytes order as numbers do. A write
buffer has 256 MB, as a MemTable of the other engines. One thread writes, so the concurrent
MemTable, which costs atomics, is off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocksdict import Options, Rdict, WriteBatch, WriteOptions

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

WRITE_BUFFER = 256 << 20


def pairs_of(batch: pa.RecordBatch) -> list[tuple[bytes, bytes]]:
    """Encode int64 keys; take payloads as they are."""
    keys = batch.column("id").to_pylist()
    payloads = batch.column("payload").to_pylist()
    return [
        ((key ^ -(1 << 63)).to_bytes(8, "big", signed=True), payload)
        for key, payload in zip(keys, payloads, strict=True)
    ]


def write_batch(pairs: list[tuple[bytes, bytes]]) -> WriteBatch:
    """Make a write batch, which a write consumes."""
    made = WriteBatch(raw_mode=True)
    for key, value in pairs:
        made.put(key, value)
    return made


class RocksDbPeer:
    """A fresh database that writes batches without a log."""

    def __init__(self, folder: Path) -> None:
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_write_buffer_size(WRITE_BUFFER)
        options.set_allow_concurrent_memtable_write(False)
        self.database = Rdict(str(folder / "rocksdb"), options)
        self.options = WriteOptions()
        # A property, which the stubs of rocksdict call a method.
        setattr(self.options, "disable_wal", True)  # noqa: B010 - as the line above says

    def write(self, batch: WriteBatch) -> None:
        """Write one batch."""
        self.database.write(batch, self.options)

    def close(self) -> None:
        """Flush, because a database without a log loses its rows otherwise, and close."""
        self.database.flush()
        self.database.close()
