"""The changes of a table as a stream of Spark, in micro-batches of versions.

Owns the offsets of the stream, the size of a micro-batch, and the pin of its consumer. Does not own
the options or the read of a part (`change_feed`).

An offset is `{"version": v, "snapshot": n}`. With n = -1 all changes up to version v were read.
With n >= 0 the stream reads the table of version v as inserts, and n of its fragments were read; v
is -1 until the first micro-batch chooses it. The rows between two offsets are a pure function of
versions that never change, so a micro-batch that Spark repeats has the same rows.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

import lancemem
from lancemem.spark import change_feed, transactions
from lancemem.spark.arrow_types import arrow_schema

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadMaxBytes,
        ReadMaxFiles,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # PySpark 4.1 asks for a latest offset without a start and a limit.
    SupportsTriggerAvailableNow = None  # type: ignore[assignment, misc]

# Whether this version of Spark tells a source where a micro-batch starts.
LIMITS_EACH_BATCH = SupportsTriggerAvailableNow is not None

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

    from lancemem.change_feed import ChangeFeed, ChangeFeedPart

# The engine's limit on the parts of a read. Up to it each fragment is a part, and an offset records
# the number of the part.
_MAX_PARTS = 1 << 16
_DONE = -1
_UNCHOSEN = -1

Json = dict[str, Any]


class Offset(NamedTuple):
    """A place in the stream."""

    version: int
    snapshot: int = _DONE

    @classmethod
    def of(cls, json: Json) -> Self:
        """Read what Spark stored."""
        return cls(int(json["version"]), int(json["snapshot"]))

    def json(self) -> Json:
        """Return what Spark stores."""
        return self._asdict()


@dataclass(frozen=True)
class Limits:
    """The largest micro-batch, of at least one version or fragment. None is no limit."""

    versions: int | None = None
    rows: int | None = None


class ChangeStream:
    """The micro-batches of a stream, in terms of offsets."""

    def __init__(self, uri: str, options: change_feed.FeedOptions, names: Sequence[str]) -> None:
        """Open the table; reads nothing."""
        self._uri, self._options, self._names = uri, options, tuple(names)
        self._table = lancemem.open_table(uri)
        # The version at which a stream of AvailableNow ends.
        self._last: int | None = None
        # Whether there may be a consumer of a planned micro-batch, also one of an earlier run.
        self._may_have_planned = True

    def first(self) -> Offset:
        """Return where the stream starts. A restart that repeats the first batch calls it again."""
        since = self._options.since
        if since is None:
            return Offset(_UNCHOSEN, 0)
        if isinstance(since, int):
            return Offset(since)
        feed = self._feed(since, None)
        return Offset(0 if feed is None or feed.since is None else feed.since)

    def newest(self) -> int:
        """Return the newest version, or the last one of a stream that ends."""
        if self._last is not None:
            return self._last
        # A feed of all rows compares no versions.
        return self._table.changes(columns=self._key_columns()).until

    def end_at_newest(self) -> None:
        """Read no version that is committed from now on."""
        self._last = self.newest()

    def limits(self) -> Limits:
        """Return the limits of the options; bytes count as rows of the table's average size."""
        rows, most_bytes = self._options.max_rows, self._options.max_bytes
        if most_bytes is not None:
            by_bytes = max(1, most_bytes // self._bytes_of_row())
            rows = by_bytes if rows is None else min(rows, by_bytes)
        return Limits(self._options.max_versions, rows)

    def end_of_batch(self, start: Offset, limits: Limits) -> Offset:
        """Return the end of the micro-batch that starts at `start`; `start` for no new version."""
        newest = self.newest()
        if start.version > newest and self._last is None:
            raise lancemem.InvalidInputError(
                f"table {self._uri}: the stream's checkpoint is at version {start.version}, the "
                f"table at version {newest}: another table is at this address; start the stream "
                "with a new checkpoint"
            )
        if start.snapshot != _DONE:
            version = newest if start.version == _UNCHOSEN else start.version
            self._pin(version)
            return self._through_snapshot(Offset(version, start.snapshot), limits)
        self._pin(start.version)
        end = self._through_versions(start, newest, limits) if newest > start.version else start
        self._pin_end(start.version, end.version)
        return end

    def end_of_unknown_start(self) -> Offset:
        """Return the end of a micro-batch that starts where a checkpoint says, which is not known.

        The consumer of an earlier run stays at its position: that run's changes behind it are not
        stored yet.
        """
        start, end = self.first(), Offset(self.newest())
        name = self._options.consumer
        known = None if name is None else self._table.changes_consumer_info(name)
        if known is not None:
            self._pin_end(known.position, end.version)
            return end
        pinned = end.version if start.version == _UNCHOSEN else start.version
        self._pin(pinned)
        self._pin_end(pinned, end.version)
        return end

    def parts(self, start: Offset, end: Offset) -> list[ChangeFeedPart]:
        """Return the parts between two offsets."""
        if start == end:
            return []
        parts: list[ChangeFeedPart] = []
        since = start.version
        if start.snapshot != _DONE:
            since = end.version if start.version == _UNCHOSEN else start.version
            stop = end.snapshot if end.version == since and end.snapshot != _DONE else None
            parts += self._fragments(since)[start.snapshot : stop]
        if end.version > since:
            feed = self._feed(since, end.version)
            parts += [] if feed is None else feed.parts(self._options.splits)
        return parts

    def done(self, end: Offset) -> None:
        """Let clean-ups remove the versions before `end`, whose changes are stored."""
        self._pin(end.version)
        self._unpin_end(end.version)

    def _through_snapshot(self, start: Offset, limits: Limits) -> Offset:
        if limits.rows is None:
            return Offset(start.version)
        rows, done = 0, start.snapshot
        for part in self._fragments(start.version)[start.snapshot :]:
            rows += part.to_feed(table=self._table).counts.num_rows
            if rows > limits.rows and done > start.snapshot:
                return Offset(start.version, done)
            done += 1
        return Offset(start.version)

    def _through_versions(self, start: Offset, newest: int, limits: Limits) -> Offset:
        """Versions without changes belong to a batch too: the stream must not need them later."""
        if limits == Limits():
            return Offset(newest)
        feed = self._feed(start.version, newest)
        rows, behind = 0, start.version if feed is None or feed.since is None else feed.since
        for number, change in enumerate([] if feed is None else feed.versions):
            if number == limits.versions:
                return Offset(behind)
            if limits.rows is not None:
                step = self._feed(behind, change.version)
                rows += 0 if step is None else step.counts.num_rows
                if rows > limits.rows and number > 0:
                    return Offset(behind)
            behind = change.version
        return Offset(newest)

    def _fragments(self, version: int) -> list[ChangeFeedPart]:
        """Return a part for each fragment of the table of a version."""
        feed = self._feed(None, version)
        return [] if feed is None else feed.parts(_MAX_PARTS)

    def _feed(self, since: Any, until: int | None) -> ChangeFeed | None:  # noqa: ANN401 - a state
        """Describe changes. None where their versions are gone and the stream goes on."""
        try:
            return self._options.feed(self._table, since, until, self._columns_at(until))
        except (lancemem.ChangesExpiredError, lancemem.InvalidInputError):
            left = sorted(each.version for each in self._table.history())
            first = max(since, 1) if isinstance(since, int) else left[0]
            if self._options.fails_on_data_loss or (first in left and until in {None, *left}):
                raise
            behind = next((version for version in left if version >= first), left[-1])
            warnings.warn(
                f"table {self._uri}: changes up to version {behind} were cleaned up before the "
                "stream read them; it goes on behind that version, because failOnDataLoss is false",
                stacklevel=2,
            )
            if until is not None and (until not in left or until <= behind):
                return None
            return self._options.feed(self._table, behind, until, self._columns_at(until))

    def _columns_at(self, until: int | None) -> list[str] | None:
        """Return the columns of the stream that the table has at a version."""
        names: Sequence[str] = self._names
        if until is not None:
            have = set(self._table.changes(until, until).schema.names)
            names = [name for name in names if name in have]
        return change_feed.own_columns(self._table, names)

    def _key_columns(self) -> list[str]:
        return list(self._table.primary_key) or change_feed.own_columns(self._table, []) or []

    def _bytes_of_row(self) -> int:
        snapshot = self._table.snapshot(consistency="flushed")
        return max(1, snapshot.stored_bytes // max(1, self._table.stats().num_base_rows))

    def _pin(self, version: int) -> None:
        """Move the consumer to a version, which clean-ups then leave. It never moves back."""
        if self._options.consumer is not None:
            self._move(self._options.consumer, version)

    def _move(self, name: str, version: int) -> None:
        known = self._table.changes_consumer_info(name)
        # Version 0, before the first one, cannot be kept, and has no row.
        if version < 1 or (known is not None and known.position >= version):
            return
        try:
            self._table.move_changes_consumer(name, version)
        except lancemem.ChangesExpiredError:
            if self._options.fails_on_data_loss:
                raise

    @property
    def _end_consumer(self) -> str | None:
        """The consumer that keeps the version at which a planned micro-batch ends.

        Spark has stored that version, and plans the batch between the same two again after a
        failure. So a clean-up must leave both.
        """
        name = self._options.consumer
        return None if name is None else f"{name}.planned"

    def _pin_end(self, start: int, end: int) -> None:
        name = self._end_consumer
        if name is None:
            return
        if end > start:
            self._move(name, end)
            self._may_have_planned = True
        else:
            self._unpin_end(end)

    def _unpin_end(self, version: int) -> None:
        """Drop the consumer of a planned micro-batch, where all up to `version` are done."""
        name = self._end_consumer
        if name is None or not self._may_have_planned:
            return
        planned = self._table.changes_consumer_info(name)
        if planned is None or planned.position <= version:
            self._may_have_planned = False
            if planned is not None:
                self._table.drop_changes_consumer(name)


class _StreamReader(DataSourceStreamReader):
    """What every version of Spark calls."""

    def __init__(self, uri: str, options: Mapping[str, str], schema: StructType) -> None:
        """Check the options. Tasks get this object too, so the table is opened when it is used."""
        self._uri, self._options = uri, change_feed.FeedOptions.of(options)
        self._schema, self._driver_version = arrow_schema(schema), lancemem.__version__
        self._opened: ChangeStream | None = None

    @property
    def _stream(self) -> ChangeStream:
        if self._opened is None:
            self._opened = ChangeStream(self._uri, self._options, self._schema.names)
        return self._opened

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_opened": None}

    def initialOffset(self) -> Json:  # noqa: N802 - Spark's name
        """Return where the stream starts."""
        return self._stream.first().json()

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        """Divide a micro-batch among tasks."""
        return change_feed.numbered(self._stream.parts(Offset.of(start), Offset.of(end)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one part."""
        transactions.check_version(self._driver_version)
        return change_feed.read_part(partition, self._schema)

    def commit(self, end: Json) -> None:
        """Move the consumer: Spark has stored that everything up to `end` is processed."""
        self._stream.done(Offset.of(end))


def stream_reader(
    uri: str, options: Mapping[str, str], schema: StructType
) -> DataSourceStreamReader:
    """Make the reader that this version of Spark takes."""
    kind = _OldReader if SupportsTriggerAvailableNow is None else _NewReader
    return kind(uri, options, schema)


class _OldReader(_StreamReader):
    """The reader for PySpark 4.1, which asks for a latest offset without a start and a limit.

    Its AvailableNow asks once and ends there. So the first micro-batch of each run has everything,
    and the limits hold from the second one on.
    """

    _reached: Offset | None = None
    _is_first = True

    def latestOffset(self) -> Json:  # type: ignore[override]  # noqa: N802 - Spark's name
        """Return the end of the next micro-batch."""
        if self._reached is None:
            self._reached, self._is_first = self._stream.end_of_unknown_start(), False
            return self._reached.json()
        start, limits = self._reached, Limits() if self._is_first else self._stream.limits()
        self._reached, self._is_first = self._stream.end_of_batch(start, limits), False
        if start.snapshot != _DONE and limits == Limits():
            # The rest of the snapshot, and what was committed since.
            self._reached = Offset(self._stream.newest())
        return self._reached.json()

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        """Divide a micro-batch. A query that restarts tells its last offset in this way first."""
        self._reached = Offset.of(end)
        return super().partitions(start, end)


if SupportsTriggerAvailableNow is not None:

    class _NewReader(_StreamReader, SupportsTriggerAvailableNow):
        """The reader for PySpark 4.2 and newer, which limits each micro-batch."""

        def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
            """Return one of the limits. Spark gives it back, and `latestOffset` keeps all."""
            options = self._options
            if options.max_versions is not None:
                return ReadMaxFiles(options.max_versions)
            if options.max_rows is not None:
                return ReadMaxRows(options.max_rows)
            if options.max_bytes is not None:
                return ReadMaxBytes(options.max_bytes)
            return ReadAllAvailable()

        def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802 - Spark's name
            """Return the end of the micro-batch that starts at `start`."""
            is_all = isinstance(limit, ReadAllAvailable)
            limits = Limits() if is_all else self._stream.limits()
            return self._stream.end_of_batch(Offset.of(start), limits).json()

        def reportLatestOffset(self) -> Json:  # noqa: N802 - Spark's name
            """Return the newest version, for the progress of the query."""
            return Offset(self._stream.newest()).json()

        def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
            """End the stream at the version that is newest now."""
            self._stream.end_at_newest()
