"""One file an engine: how it is opened, put to and closed.

Owns: the contract `Peer`. Does not own: the timed part (`cases`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pyarrow as pa

    from benches.write.data import KeyKind


class Peer(Protocol):
    """An engine with an open table that takes Arrow batches, not durable."""

    def __init__(self, folder: Path, kind: KeyKind) -> None: ...
    @property
    def put(self) -> Callable[[pa.RecordBatch], object]:
        """Put one batch; a property, so that a peer can return its bound method."""

    def close(self) -> None:
        """Flush every row to a file that readers find, and end."""
