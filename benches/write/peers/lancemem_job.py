"""lancemem: a job on the one shard of a fresh table, a writer of all its shards, or the table.

Owns: how lancemem is opened for every bench. Does not own: the timed part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lancemem
from benches.write.data import KeyKind, key_names, schema_of

if TYPE_CHECKING:
    from pathlib import Path


class LancememPeer:
    """A job with defaults, but neither durable nor synced unless asked: no peer syncs its log."""

    def __init__(self, folder: Path, kind: KeyKind, **settings: Any) -> None:  # noqa: ANN401
        self.uri = str(folder / "lancemem.lance")
        table = lancemem.create_table(self.uri, schema_of(kind), primary_key=key_names(kind))
        config = lancemem.WriterConfig(**{"durable": False, "fsync": False, **settings})
        self.job = table.start_job(shard=0, config=config)
        self.put = self.job.put

    def close(self) -> None:
        """Flush and end, as the close of pylance does."""
        self.job.close(flush=True)


def open_table(folder: Path, name: str, **settings: Any) -> lancemem.Table:  # noqa: ANN401
    """Create a table with an int64 key and one shard, whose jobs have these settings."""
    return lancemem.create_table(
        str(folder / f"{name}.lance"),
        schema_of("int64"),
        primary_key=key_names("int64"),
        config=lancemem.WriterConfig(**settings),
    )


def open_writer(folder: Path, shards: int, **settings: Any) -> lancemem.TableWriter:  # noqa: ANN401
    """Open a writer on a fresh table with an int64 key and so many shards."""
    table = lancemem.create_table(
        str(folder / "writer.lance"),
        schema_of("int64"),
        primary_key=key_names("int64"),
        sharding=lancemem.bucket("id", shards) if shards > 1 else None,
    )
    return table.writer(lancemem.WriterConfig(**settings))
