"""SlateDB on a local folder, acknowledged from memory.

Owns: how SlateDB is opened and its event loop. Does not own: what is timed.

`Db.write` returns when the rows are readable; its WAL follows each 100 ms in the background, as
that of a job that is not durable does. All calls of a sample run in one coroutine, so that no event
loop is entered per write.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from slatedb.uniffi import DbBuilder, ObjectStore, WriteBatch

if TYPE_CHECKING:
    from pathlib import Path


def write_batch(pairs: list[tuple[bytes, bytes]]) -> Any:  # noqa: ANN401 - no types
    """Make a write batch, which a write consumes."""
    made = WriteBatch()
    for key, value in pairs:
        made.put(key, value)
    return made


def time_writes(
    folder: Path, rows: list[list[tuple[bytes, bytes]]], *, build: bool
) -> tuple[float, float]:
    """Write all rows to a fresh database.

    Returns the seconds of the writes, and those of writes and shutdown. With `build` write batches
    are built inside the timed part.
    """
    return asyncio.run(_time_writes(folder, rows, build=build))


async def _time_writes(
    folder: Path, rows: list[list[tuple[bytes, bytes]]], *, build: bool
) -> tuple[float, float]:
    store = ObjectStore.resolve("file:///")
    database = await DbBuilder(str(folder / "slatedb").lstrip("/"), store).build()
    ready = [] if build else [write_batch(pairs) for pairs in rows]
    begun = time.perf_counter()
    if build:
        for pairs in rows:
            await database.write(write_batch(pairs))
    else:
        for batch in ready:
            await database.write(batch)
    written = time.perf_counter()
    await database.shutdown()
    return written - begun, time.perf_counter() - begun
