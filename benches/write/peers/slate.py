"""SlateDB on a local folder, acknowledged from memory.

Owns: how SlateDB is opened and its event loop. Does not own: the timed part.

`Db.write` returns when the rows are readable; its WAL is written every 100 ms in the background, as
in a job that is not durable. All calls of a sample run in one coroutine, so that no event loop is
entered per write.
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


def time_writes(folder: Path, rows: list[list[tuple[bytes, bytes]]]) -> tuple[float, float, float]:
    """Write all rows to a fresh database.

    Returns the seconds of building the write batches, of writing them, and of the shutdown.
    """
    return asyncio.run(_time_writes(folder, rows))


async def _time_writes(
    folder: Path, rows: list[list[tuple[bytes, bytes]]]
) -> tuple[float, float, float]:
    store = ObjectStore.resolve("file:///")
    database = await DbBuilder(str(folder / "slatedb").lstrip("/"), store).build()
    begun = time.perf_counter()
    ready = [write_batch(pairs) for pairs in rows]
    built = time.perf_counter()
    for batch in ready:
        await database.write(batch)
    written = time.perf_counter()
    await database.shutdown()
    return built - begun, written - built, time.perf_counter() - written
