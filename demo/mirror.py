"""A second table that a stream of changes keeps equal to the board.

Owns the stream, and the lag: the seconds from a compaction of the board until the mirror has its
changes. Does not own the comparison of the two tables.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Self

from lancemem.spark import LancememTable

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

INTERVAL = "100 milliseconds"
POLL_SECONDS = 0.01
MAX_SECONDS = 300.0


class MirrorStoppedError(Exception):
    """The stream ended, or did not reach a version in time."""


class Mirror:
    """The second table, and the query that applies the board's changes to it."""

    def __init__(self, spark: SparkSession, board: LancememTable, folder: Path) -> None:
        """Create the table and start the stream."""
        self._board = board
        self.table = LancememTable.create(
            spark, str(folder / "mirror.lance"), schema=board.schema, primary_key=board.primary_key
        )
        reader = spark.readStream.format("lancemem").option("readChangeFeed", "true")
        self._query: StreamingQuery = self.table.stream_upsert(
            reader.option("consumer", "mirror").load(board.uri),
            checkpoint=str(folder / "mirror-checkpoint"),
            trigger=INTERVAL,
            query_name="mirror",
        )

    def catch_up(self) -> float:
        """Wait until the mirror has all changes of the board; return how many seconds it took."""
        started = time.perf_counter()
        wanted = self._board.handle.changes().until
        while self._reached() < wanted:
            if not self._query.isActive:
                raise MirrorStoppedError(str(self._query.exception()))
            if time.perf_counter() - started > MAX_SECONDS:
                raise MirrorStoppedError(f"version {wanted} is not in the mirror")
            time.sleep(POLL_SECONDS)
        return time.perf_counter() - started

    def _reached(self) -> int:
        """Return the version of the board up to which the mirror has its changes."""
        progress = self._query.lastProgress
        if progress is None:
            return -1
        end = progress["sources"][0]["endOffset"]
        offset = json.loads(end) if isinstance(end, str) else end
        is_whole = offset is not None and offset["snapshot"] == -1
        return int(offset["version"]) if is_whole else -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._query.stop()
