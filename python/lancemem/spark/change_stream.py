"""The changes of a table as a stream of Spark: micro-batches of versions, each change once.

Owns the offsets of the stream, the limits of a micro-batch, and the pin of its consumer. Does not
own the options or the read of a part (`change_feed`).

An offset is `{"version": v, "snapshot": n}`:

    v = -1          nothing was read: the start of a stream without a starting version
    n >= 0          n fragments of the table of version v were read, as inserts
    n = -1          everything up to version v was read

A micro-batch is a pure function of its two offsets, because versions never change. So a batch that
Spark repeats after a failure has the same rows, also where its commit log was lost.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from pyspark.sql.datasource import DataSourceStreamReader

import lancemem
from lancemem import _lancemem
from lancemem.spark import change_feed

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxFiles,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )

    HAS_LIMITS = True
except ImportError:  # before PySpark 4.2
    HAS_LIMITS = False

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition

    from lancemem.change_feed import ChangeFeedPart

# One part for each fragment: the steps in which a snapshot can be divided.
_EVERY_FRAGMENT = 1 << 16
_WHOLE = -1
_NOTHING = -1


class Offset(NamedTuple):
    """How far a stream has read."""

    version: int
    snapshot: int = _WHOLE

    @classmethod
    def of(cls, json: dict[str, Any]) -> Self:
        """Parse what Spark has stored."""
        return cls(int(json["version"]), int(json["snapshot"]))

    def json(self) -> dict[str, int]:
        """Return what Spark stores."""
        return {"version": self.version, "snapshot": self.snapshot}


@dataclass(frozen=True)
class _Limits:
    """The largest micro-batch; None is no limit. A batch has at least one version or fragment."""

    versions: int | None = None
    rows: int | None = None

    def __bool__(self) -> bool:
        return self.versions is not None or self.rows is not None


class _Changes:
    """The stream without Spark's methods, which differ between its versions."""

    def __init__(self, options: change_feed.Options, uri: str, schema: pa.Schema) -> None:
        self._options, self._schema = options, schema
        self._read = options.read(uri, schema.names)
        self._table = lancemem.open_table(uri)
        self._fails = options.flag("failOnDataLoss", default=True)
        self._consumer = options.text("consumer")
        self._target: int | None = None
        self._limits = {
            name: options.number(name)
            for name in ("maxVersionsPerTrigger", "maxRowsPerTrigger", "maxBytesPerTrigger")
        }
        # Checks every option, and that the start is left.
        self._feed(options.since())

    def first(self) -> Offset:
        """Return where the stream starts. The same for each restart of its first batch."""
        since = self._options.since()
        if since is None:
            return Offset(_NOTHING)
        return Offset(self._feed(since).since or 0)

    def newest(self) -> int:
        """Return the newest version, or the one at which an `AvailableNow` stream ends."""
        if self._target is not None:
            return self._target
        return self._table.snapshot(consistency="flushed").base_version

    def stop_at_newest(self) -> None:
        """Read nothing that is committed from now on."""
        self._target = self.newest()

    def limits(self) -> _Limits:
        """Return the limits of the options, with bytes as rows of the table's average size."""
        rows, most_bytes = self._limits["maxRowsPerTrigger"], self._limits["maxBytesPerTrigger"]
        if most_bytes is not None:
            by_bytes = max(1, most_bytes // self._bytes_of_row())
            rows = by_bytes if rows is None else min(rows, by_bytes)
        return _Limits(self._limits["maxVersionsPerTrigger"], rows)

    def next(self, start: Offset, limits: _Limits) -> Offset:
        """Return the end of the micro-batch that starts at `start`."""
        newest = self.newest()
        if start.version > newest:
            return start
        if start.version == _NOTHING or start.snapshot != _WHOLE:
            version = newest if start.version == _NOTHING else start.version
            self._pin(version)
            return self._through_snapshot(Offset(version, max(start.snapshot, 0)), limits)
        self._pin(start.version)
        return self._through_versions(start, newest, limits)

    def parts(self, start: Offset, end: Offset) -> list[ChangeFeedPart]:
        """Return the parts between two offsets."""
        parts: list[ChangeFeedPart] = []
        since = start
        if start.version == _NOTHING:
            since = Offset(end.version, 0)
        if since.snapshot != _WHOLE:
            fragments = self._feed(None, since.version).parts(_EVERY_FRAGMENT)
            is_inside = end.version == since.version and end.snapshot != _WHOLE
            parts += fragments[since.snapshot : end.snapshot if is_inside else None]
        if end.version > since.version:
            parts += self._feed(since.version, end.version).parts(self._read.most_parts)
        return parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one part."""
        return change_feed.read_partition(self._read, partition, self._schema)

    def done(self, end: Offset) -> None:
        """Move the consumer: the stream needs no version before this one any more."""
        if end.version != _NOTHING:
            self._pin(end.version)

    def _pin(self, version: int) -> None:
        if self._consumer is None or version == 0:
            return
        known = _lancemem.changes_consumer(self._table, self._consumer)
        if known is None or known.position is None or known.position < version:
            _lancemem.move_changes_consumer(self._table, self._consumer, version)

    def _through_snapshot(self, start: Offset, limits: _Limits) -> Offset:
        if limits.rows is None:
            return Offset(start.version)
        fragments = self._feed(None, start.version).parts(_EVERY_FRAGMENT)
        rows, done = 0, start.snapshot
        for part in fragments[start.snapshot :]:
            rows += part.to_feed().counts.num_rows
            if done > start.snapshot and rows > limits.rows:
                return Offset(start.version, done)
            done += 1
        return Offset(start.version)

    def _through_versions(self, start: Offset, newest: int, limits: _Limits) -> Offset:
        if start.version == newest:
            return start
        feed = self._feed(start.version, newest)
        changed = [it.version for it in feed.versions]
        if not changed:
            return start
        if not limits:
            return Offset(feed.until)
        end, rows = feed.since or 0, 0
        for number, version in enumerate(changed):
            if limits.versions is not None and number == limits.versions:
                return Offset(end)
            if limits.rows is not None:
                rows += self._feed(end, version).counts.num_rows
                if number > 0 and rows > limits.rows:
                    return Offset(end)
            end = version
        return Offset(feed.until)

    def _feed(self, since: Any, until: int | None = None) -> lancemem.ChangeFeed:  # noqa: ANN401 - a version, a time or None
        try:
            return self._read.feed(self._table, since, until)
        except lancemem.ChangesExpiredError as error:
            if self._fails:
                raise
            oldest = error.oldest if until is None else min(error.oldest, until)
            warnings.warn(
                f"table {self._read.uri}: changes behind version {since} were cleaned up; the "
                f"stream goes on behind version {oldest}, because failOnDataLoss is false",
                stacklevel=2,
            )
            return self._read.feed(self._table, oldest, until)

    def _bytes_of_row(self) -> int:
        snapshot = self._table.snapshot(consistency="flushed")
        return max(1, snapshot.stored_bytes // max(1, snapshot.count_rows()))


class _StreamReader(DataSourceStreamReader):
    """What every version of Spark calls."""

    def __init__(self, options: change_feed.Options, uri: str, schema: pa.Schema) -> None:
        self._changes = _Changes(options, uri, schema)
        # The newest offset that Spark has named.
        self._reached: Offset | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Return where the stream starts."""
        return self._changes.first().json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Divide a micro-batch."""
        self._reached = Offset.of(end)
        return change_feed.partitions_of(self._changes.parts(Offset.of(start), self._reached))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one part."""
        return self._changes.read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Let clean-ups remove the versions before `end`."""
        self._reached = Offset.of(end)
        self._changes.done(self._reached)


if HAS_LIMITS:

    class ChangeStreamReader(_StreamReader, SupportsTriggerAvailableNow):
        """The stream, in micro-batches of a limited size."""

        def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
            """Return one of the limits: Spark passes it back, and all of them hold."""
            limits = self._changes.limits()
            if limits.versions is not None:
                return ReadMaxFiles(limits.versions)
            if self._changes._limits["maxBytesPerTrigger"] is not None:  # noqa: SLF001 - the same module
                return ReadMaxBytes(self._changes._limits["maxBytesPerTrigger"])  # noqa: SLF001
            return ReadAllAvailable() if limits.rows is None else ReadMaxRows(limits.rows)

        def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, int]:  # noqa: N802 - Spark's name
            """Return the end of the next micro-batch."""
            is_all = isinstance(limit, ReadAllAvailable)
            limits = _Limits() if is_all else self._changes.limits()
            return self._changes.next(Offset.of(start), limits).json()

        def reportLatestOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
            """Return the newest version, for the progress of the query."""
            return Offset(self._changes.newest()).json()

        def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
            """End the stream at the version that is newest now."""
            self._changes.stop_at_newest()

else:

    class ChangeStreamReader(_StreamReader):  # type: ignore[no-redef]
        """The stream before PySpark 4.2, which does not say where a micro-batch starts.

        The limits hold from the second micro-batch of a run on: the first one has everything that
        is there.
        """

        def latestOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
            """Return the end of the next micro-batch."""
            if self._reached is None:
                return Offset(self._changes.newest()).json()
            return self._changes.next(self._reached, self._changes.limits()).json()
