"""lancemem: a job on the one shard of a fresh table.

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
