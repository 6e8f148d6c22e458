"""`Table.changes`: the changes between versions of the base table, whole or in parts.

Owns what a feed is in Python beyond the extension: its arguments, its pickle, its parts. Does not
own how changes are derived (the extension), or consumers (`change_consumer`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, overload

from lancemem import _lancemem
from lancemem.change_consumer import ChangesConsumer
from lancemem.flushed_consumer import FlushedChangesConsumer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from lancemem._lancemem import (
        ConsumerInfo,
        FlushedConsumer,
        FlushedFeed,
        InputFeed,
        _Filter,
        _RowKinds,
        _Slice,
        _State,
    )

__all__ = ["ChangeFeed", "ChangeFeedPart", "TableChangeFeeds"]

_LEVEL = "committed"
_FLUSHED = "flushed"
_INPUT = "input"


class TableChangeFeeds(_lancemem.Table):
    """The change feeds of `Table`, and their consumers."""

    _storage_options: dict[str, str] | None = None

    @overload
    def changes(
        self,
        since: _State | None = None,
        until: _State | None = None,
        columns: Sequence[str] | None = None,
        filter: _Filter | None = None,
        *,
        level: Literal["committed"] = "committed",
        skip_unchanged: bool = False,
        row_kinds: _RowKinds = "delta",
    ) -> ChangeFeed: ...
    @overload
    def changes(
        self,
        since: str | None = None,
        until: str | None = None,
        columns: Sequence[str] | None = None,
        filter: _Filter | None = None,
        *,
        level: Literal["flushed"],
        skip_unchanged: bool = False,
        row_kinds: _RowKinds = "delta",
    ) -> FlushedFeed: ...
    @overload
    def changes(
        self,
        since: str | None = None,
        until: str | None = None,
        columns: Sequence[str] | None = None,
        filter: _Filter | None = None,
        *,
        level: Literal["input"],
    ) -> InputFeed: ...
    def changes(  # noqa: PLR0913 - each narrows the feed
        self,
        since: _State | str | None = None,
        until: _State | str | None = None,
        columns: Sequence[str] | None = None,
        filter: _Filter | None = None,  # noqa: A002
        *,
        level: str = _LEVEL,
        skip_unchanged: bool = False,
        row_kinds: _RowKinds = "delta",
    ) -> ChangeFeed | FlushedFeed | InputFeed:
        """Describe the inserts, updates and deletes between two versions of the base table.

        Rows reach the base table with a compaction. A feed has the net change of each key for each
        version. It is derived from the versions, also from those that other programs commit, or
        read from what a compaction stored (`alter(changelog="stored")`). Docs: docs/changes.md.

        Args:
            since: The version that the caller has: the feed starts behind it. A datetime is the
                newest version that was committed by then. 0 is the table before its first version.
                Default: every row of `until` is an insert.
            until: The version that the feed reaches, or a datetime. Default: the newest version.
            columns: Columns of the table in the result. Default: all.
            filter: As the `filter` of `scan`. It sees both images of an update, which the feed has
                where one of them meets it.
            level: "committed", the changes of versions. "flushed", the net change of each key for
                each flush, which a table with `changelog="flushed"` stores. "input", the upserts
                and deletes as they came, before any compaction. With these two `since` and `until`
                are positions, which are the `until` of earlier feeds. The default of `since` is
                every change that is left, or every event that no compaction has moved. A filter of
                level "input" leaves a delete out only where it is false with null in all columns
                but the key.
            skip_unchanged: Leave out an update whose images are equal in the columns of the feed.
                Default: False.
            row_kinds: The values of `_change_type`. "delta" has `insert`, `update_preimage`,
                `update_postimage` and `delete`; "flink" has `+I`, `-U`, `+U` and `-D`.

        Returns:
            A feed that has not been read. With level "flushed" a `FlushedFeed`, with level "input"
            an `InputFeed`.

        Raises:
            ChangesExpiredError: The version of `since` was cleaned up and the changes behind it are
                not stored, or changes or events behind its position were collected.
            ChangesUnavailableError: The changes of a version cannot be derived, or those behind a
                position were never stored, because the table got the property later.
            InvalidInputError: A version never was, `since` is after `until`, an argument has no
                such value, a column is not in the table, the table has a column with one of the
                names that a feed adds, or it stores no changes of flushes.
            RetryableError: The storage failed.

        Example:
            feed = table.changes(since=41)
            mirror.apply_changes(feed, txn=("mirror", feed.until))
            position = feed.until
        """
        if level == _INPUT:
            if skip_unchanged or row_kinds != "delta":
                raise _lancemem.InvalidInputError(
                    'a change feed of level "input" has no images before: leave out skip_unchanged '
                    "and row_kinds"
                )
            positions = _positions(level, since=since, until=until)
            return _lancemem.input_change_feed(self, **positions, columns=columns, filter=filter)
        given: dict[str, Any] = {"columns": columns, "filter": filter}
        given |= {"skip_unchanged": skip_unchanged, "row_kinds": row_kinds}
        if level == _FLUSHED:
            given |= _positions(level, since=since, until=until)
            return _lancemem.flushed_change_feed(self, **given)
        if level != _LEVEL:
            raise _lancemem.InvalidInputError(
                f'the level of a change feed is "{_LEVEL}", the changes of versions, '
                f'"{_FLUSHED}", the changes of flushes, or "{_INPUT}", the upserts and '
                f"deletes as they came, got {level!r}"
            )
        handle = _lancemem.change_feed(self, _state(since), _state(until), **given)
        return ChangeFeed._of(handle, self, given)  # noqa: SLF001 - the same module

    @overload
    def changes_consumer(
        self,
        name: str,
        *,
        since: _State | None = None,
        level: Literal["committed"] = "committed",
        columns: Sequence[str] | None = None,
        filter: _Filter | None = None,
        skip_unchanged: bool = False,
        row_kinds: _RowKinds = "delta",
    ) -> ChangesConsumer: ...
    @overload
    def changes_consumer(
        self,
        name: str,
        *,
        since: str | None = None,
        level: Literal["flushed"],
        columns: Sequence[str] | None = None,
        filter: _Filter | None = None,
        skip_unchanged: bool = False,
        row_kinds: _RowKinds = "delta",
    ) -> FlushedChangesConsumer: ...
    def changes_consumer(  # noqa: PLR0913 - each narrows its feeds
        self,
        name: str,
        *,
        since: _State | str | None = None,
        level: str = _LEVEL,
        columns: Sequence[str] | None = None,
        filter: _Filter | None = None,  # noqa: A002
        skip_unchanged: bool = False,
        row_kinds: _RowKinds = "delta",
    ) -> ChangesConsumer | FlushedChangesConsumer:
        """Open a named reader of changes, whose position is stored with the table.

        Clean-ups of old versions leave the version behind which the consumer goes on. Where
        versions after it are gone, the next feed has their net change. **A consumer that is no
        longer needed has to be dropped**, because its version keeps its files.

        Args:
            name: Its name: letters, digits, ".", "-" and "_". One process at a time uses it.
            since: Where a new consumer starts, as in `changes`. Ignored where the consumer has a
                position. Default: with every row of the table as an insert; at level "flushed" with
                the changes that are left, which a collection may remove before the first `commit`.
            level: "committed" or "flushed", as in `changes`. With "flushed" collections leave the
                changes behind the position of the consumer.
            columns: As in `changes`.
            filter: As in `changes`.
            skip_unchanged: As in `changes`.
            row_kinds: As in `changes`.

        Returns:
            The consumer, which is a context manager. With level "flushed" a
            `FlushedChangesConsumer`.

        Raises:
            ChangesExpiredError: The version of `since` was cleaned up.
            ChangesUnavailableError: The changes of a version behind the position cannot be derived,
                or were never stored. Read the table as a whole; at the levels of versions then
                `move_changes_consumer(name, error.version)`.
            InvalidInputError: No consumer can have that name, or an argument is none of `changes`.
            RetryableError: The storage failed.

        Example:
            with table.changes_consumer("orders-to-search") as consumer:
                while feed := consumer.poll():
                    index(feed.to_table())
                    consumer.commit(feed)
        """
        given: dict[str, Any] = {"columns": columns, "filter": filter}
        given |= {"skip_unchanged": skip_unchanged, "row_kinds": row_kinds}
        if level == _FLUSHED:
            start = _positions(level, since=since)["since"]
            return FlushedChangesConsumer._of(self, name, start, given)  # noqa: SLF001
        _refuse_level_of_consumers(level)
        return ChangesConsumer._of(self, name, _state(since), given)  # noqa: SLF001

    @overload
    def changes_consumers(
        self, *, level: Literal["committed"] = "committed"
    ) -> list[ConsumerInfo]: ...
    @overload
    def changes_consumers(self, *, level: Literal["flushed"]) -> list[FlushedConsumer]: ...
    def changes_consumers(
        self, *, level: str = _LEVEL
    ) -> list[ConsumerInfo] | list[FlushedConsumer]:
        """List the consumers of the table's changes, by name.

        Args:
            level: Of which level, "committed" or "flushed". Default: "committed".

        Returns:
            The consumers with their positions.

        Raises:
            RetryableError: The storage failed.

        Example:
            [(consumer.name, consumer.position) for consumer in table.changes_consumers()]
        """
        if level == _FLUSHED:
            return _lancemem.flushed_consumers(self)
        _refuse_level_of_consumers(level)
        return _lancemem.changes_consumers(self)

    def changes_consumer_info(self, name: str) -> ConsumerInfo | None:
        """Look up a consumer of the table's changes.

        Args:
            name: The name of the consumer.

        Returns:
            The consumer with its position, or None if the table has no such consumer.

        Raises:
            InvalidInputError: No consumer can have that name.
            RetryableError: The storage failed.

        Example:
            table.changes_consumer_info("orders-to-search")
        """
        return _lancemem.changes_consumer(self, name)

    def move_changes_consumer(self, name: str, position: int) -> None:
        """Move a consumer to a version, or create it there. `ChangesConsumer.commit` does this too.

        For readers that store how far they are themselves, such as a stream of Spark.

        Args:
            name: The name of the consumer.
            position: The version behind which it goes on, which clean-ups leave from here on.

        Raises:
            ChangesExpiredError: The version was cleaned up.
            InvalidInputError: No consumer can have that name, the version never was, or the
                consumer is at a later version.
            RetryableError: The storage failed.

        Example:
            table.move_changes_consumer("orders-to-search", 41)
        """
        _lancemem.move_changes_consumer(self, name, position)

    def drop_changes_consumer(self, name: str, *, level: str = _LEVEL) -> None:
        """Drop a consumer: clean-ups may remove what it kept.

        Args:
            name: The name of the consumer.
            level: Its level, "committed" or "flushed". Default: "committed".

        Raises:
            InvalidInputError: There is no consumer of that name.
            RetryableError: The storage failed.

        Example:
            table.drop_changes_consumer("orders-to-search")
        """
        if level == _FLUSHED:
            _lancemem.drop_flushed_consumer(self, name)
            return
        _refuse_level_of_consumers(level)
        _lancemem.drop_changes_consumer(self, name)


class ChangeFeed(_lancemem.ChangeFeed):
    """The changes between two versions of the base table. Made by `Table.changes`.

    Version by version, a feed has the images of changed rows before, then the images after. Every
    read of it returns the same rows. It has `__arrow_c_stream__`, so what reads Arrow reads it;
    iterating over it reads batches. It can be pickled.

    Attributes:
        since: The version behind which it starts. None: the table of `until` as inserts.
        until: The version that it reaches: the `since` of the next feed.
        schema: The columns of the table, then `_change_type`, `_commit_version` and
            `_commit_timestamp`.
        versions: The versions that change rows, the oldest first.
        counts: How many rows it has.

    Example:
        feed = table.changes(since=41)
        feed.to_pandas()
    """

    _table: Any
    _arguments: dict[str, Any]

    @classmethod
    def _of(
        cls, handle: _lancemem.ChangeFeed, table: _lancemem.Table, arguments: dict[str, Any]
    ) -> ChangeFeed:
        feed = cls(handle)
        feed._table, feed._arguments = table, arguments
        return feed

    def to_reader(self) -> pa.RecordBatchReader:
        """Start a read and return it as a reader of pyarrow, which can be read once.

        Errors that occur while it is read are pyarrow's. `to_batches` keeps lancemem's.

        Returns:
            A reader, which fetches batches while it is read.

        Raises:
            ForkedHandleError: The feed was made before a fork of the process.

        Example:
            with table.changes(since=41).to_reader() as reader:
                pyarrow.dataset.write_dataset(reader, "changes", format="parquet")
        """
        import pyarrow as pa  # noqa: PLC0415 - `import lancemem` does not load it

        return pa.RecordBatchReader.from_stream(super().to_reader())

    def parts(self, num_parts: int) -> list[ChangeFeedPart]:
        """Divide the feed by fragments into parts that other processes can read.

        Every change is in one part. The parts in their order have the rows of the feed in its
        order. A part reads the values of its own rows, and the keys of the rows that they may be
        paired with.

        Args:
            num_parts: The largest number of parts. There are fewer where fewer fragments changed.

        Returns:
            The parts, each of which can be pickled. None for a feed without changes.

        Raises:
            InvalidInputError: `num_parts` is below 1.

        Example:
            with ProcessPoolExecutor() as pool:
                tables = pool.map(pyarrow.table, feed.parts(8))
        """
        options = self._table._storage_options  # noqa: SLF001 - a class of this package
        return [
            ChangeFeedPart(self._table.uri, self.until, slices, self._arguments, options)
            for slices in self.slices(num_parts)
        ]

    def __repr__(self) -> str:
        return f'ChangeFeed("{self._table.uri}", since={self.since}, until={self.until})'

    def __reduce__(self) -> tuple[Callable[..., ChangeFeed], tuple[Any, ...]]:
        """Pickle the table, the versions and the arguments."""
        return _described, (self._table, self.since, self.until, self._arguments)


@dataclass(frozen=True)
class ChangeFeedPart:
    """A part of a `ChangeFeed`, which another process can read. Made by `ChangeFeed.parts`.

    Attributes:
        uri: The URI of the table.
        until: The version that the feed reaches.
        slices: Of each version its number, the version before, and the fragments of the part.
        arguments: The columns, the filter and the forms of the feed.

    Example:
        pyarrow.table(part)
    """

    uri: str
    until: int
    slices: list[_Slice]
    arguments: dict[str, Any]
    _storage_options: dict[str, str] | None = field(default=None, repr=False)

    def to_feed(
        self,
        storage_options: dict[str, str] | None = None,
        *,
        table: _lancemem.Table | None = None,
    ) -> _lancemem.ChangeFeed:
        """Open the table and describe the changes of the part.

        Args:
            storage_options: Options of the table's store. Default: those of the table of the feed.
            table: A handle of the table, where the process has one. Default: the table is opened.

        Returns:
            The changes, not yet read.

        Raises:
            ChangesExpiredError: A version of the part was cleaned up.
            InvalidInputError: Another table is at the URI.
            RetryableError: The storage failed.

        Example:
            part.to_feed().counts
        """
        if table is None:
            options = storage_options if storage_options is not None else self._storage_options
            table = _lancemem.open_table(self.uri, storage_options=options)
        return _lancemem.change_feed_of_slices(table, self.until, self.slices, **self.arguments)

    def to_reader(self, storage_options: dict[str, str] | None = None) -> pa.RecordBatchReader:
        """Open the table and read the changes of the part.

        Args:
            storage_options: As in `to_feed`.

        Returns:
            A reader, which fetches batches while it is read.

        Raises:
            LancememError: As in `to_feed`.

        Example:
            for batch in part.to_reader():
                print(batch.num_rows)
        """
        import pyarrow as pa  # noqa: PLC0415 - `import lancemem` does not load it

        return pa.RecordBatchReader.from_stream(self.to_feed(storage_options).to_reader())

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Export the changes of the part as a stream of Arrow's C interface."""
        return self.to_feed().__arrow_c_stream__(requested_schema)


def refuse_level(level: str) -> None:
    """Refuse a level that a stream of Spark does not read.

    Args:
        level: The level.

    Raises:
        InvalidInputError: It is not "committed".
    """
    if level != _LEVEL:
        raise _lancemem.InvalidInputError(
            f'here the level of a change feed is "{_LEVEL}", the changes of versions, got '
            f'{level!r}; `Table.changes` and a batch of Spark read levels "{_FLUSHED}" '
            f'and "{_INPUT}"'
        )


def _refuse_level_of_consumers(level: str) -> None:
    if level != _LEVEL:
        raise _lancemem.InvalidInputError(
            f'the level of a consumer is "{_LEVEL}" or "{_FLUSHED}", got {level!r}'
        )


def _positions(level: str, **given: _State | str | None) -> dict[str, Any]:
    positions: dict[str, Any] = {}
    for name, position in given.items():
        if position is not None and not isinstance(position, str):
            raise _lancemem.InvalidInputError(
                f'{name}: level "{level}" starts and ends at a position, the `until` of an earlier '
                f"feed of that level, got {position!r}"
            )
        positions[name] = position
    return positions


def _state(given: Any) -> Any:  # noqa: ANN401 - the extension refuses what is no state
    # As Python does, a time without a zone is local time.
    return given.astimezone(UTC) if isinstance(given, datetime) else given


def _described(
    table: TableChangeFeeds, since: int | None, until: int, arguments: dict[str, Any]
) -> ChangeFeed:
    return table.changes(since, until, **arguments)
