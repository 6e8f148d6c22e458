"""`FlushedChangesConsumer`: a named reader of the changes of flushes, which keeps what it needs.

Owns which feed a consumer reads next, and when its position moves. Does not own the position
itself, a file of the table (the extension), or the feeds (`change_feed`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from lancemem import _lancemem

if TYPE_CHECKING:
    from types import TracebackType

    from lancemem._lancemem import FlushedFeed

__all__ = ["FlushedChangesConsumer"]


class FlushedChangesConsumer:
    """A named reader of the changes of flushes. Made by `changes_consumer(level="flushed")`.

    A consumer that ends between `poll` and `commit` reads the same changes again. So each change
    is seen once where the caller commits after it has stored the changes, and stores a repeated
    feed over the first: by key, or with `feed.until` as the transaction id.

    Attributes:
        name: Its name.
        position: The position behind which it goes on. None before the first commit of a consumer
            without `since`.

    Example:
        with table.changes_consumer("orders-to-search", level="flushed") as consumer:
            while feed := consumer.poll():
                index(feed.to_table())
                consumer.commit(feed)
    """

    _table: Any
    _arguments: dict[str, Any]
    _polled: FlushedFeed | None
    _is_closed: bool
    name: str
    position: str | None

    @classmethod
    def _of(
        cls, table: _lancemem.Table, name: str, since: str | None, arguments: dict[str, Any]
    ) -> FlushedChangesConsumer:
        consumer = cls()
        consumer._table, consumer._arguments = table, arguments
        consumer._polled, consumer._is_closed = None, False
        consumer.name = name
        known = _lancemem.flushed_consumer(table, name)
        consumer.position = since if known is None else known.position
        # Checks the arguments, also those of a consumer that has a position.
        consumer._feed()
        if known is None and since is not None:
            _lancemem.move_flushed_consumer(table, name, since)
        return consumer

    def poll(self) -> FlushedFeed | None:
        """Return the changes behind the position, or None where there are none.

        Without a `commit` in between, the next call returns the same changes, and later ones.

        Returns:
            The changes up to the last one that is published. None where there is none.

        Raises:
            ChangesExpiredError: A collection removed changes of a consumer without a position.
            InvalidInputError: The consumer is closed.
            RetryableError: The storage failed.

        Example:
            feed = consumer.poll()
        """
        self._refuse_closed()
        feed = self._feed()
        if feed.until == self.position:
            return None
        self._polled = feed
        return feed

    def commit(self, feed: FlushedFeed | None = None) -> None:
        """Store that the changes of a feed are processed: the consumer goes on behind it.

        Args:
            feed: A feed of `poll`. Default: the last one.

        Raises:
            InvalidInputError: No feed was polled, the consumer is closed, or another process moved
                it to a later position.
            RetryableError: The storage failed. Commit again.

        Example:
            consumer.commit(feed)
        """
        self._refuse_closed()
        feed = feed if feed is not None else self._polled
        if feed is None:
            raise _lancemem.InvalidInputError(
                f"consumer {self.name!r} has polled no feed to commit; call poll() first"
            )
        if feed.until != self.position:
            _lancemem.move_flushed_consumer(self._table, self.name, feed.until)
            self.position = feed.until
        self._polled = None

    def close(self) -> None:
        """End the use of the consumer. Its position stays, and keeps the changes behind it."""
        self._is_closed = True

    def _feed(self) -> FlushedFeed:
        feed: FlushedFeed = self._table.changes(self.position, level="flushed", **self._arguments)
        return feed

    def _refuse_closed(self) -> None:
        if self._is_closed:
            raise _lancemem.InvalidInputError(
                f"consumer {self.name!r} is closed; open it again with changes_consumer"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return (
            f'FlushedChangesConsumer("{self._table.uri}", {self.name!r}, position={self.position})'
        )
