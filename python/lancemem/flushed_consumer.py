"""`FlushedChangesConsumer`: a named reader of the changes of flushes, which keeps what it needs.

Owns which feed a consumer reads next. Does not own the commit (`named_consumer`), the position
itself, a file of the table (the extension), or the feeds (`change_feed`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lancemem import _lancemem
from lancemem.named_consumer import NamedConsumer

if TYPE_CHECKING:
    from lancemem._lancemem import FlushedFeed

__all__ = ["FlushedChangesConsumer"]


class FlushedChangesConsumer(NamedConsumer["FlushedFeed", str]):
    """A named reader of the changes of flushes. Made by `changes_consumer(level="flushed")`.

    A consumer that ends between `poll` and `commit` reads the same changes again. So each change
    is seen once where the caller commits after it has stored the changes, and stores a repeated
    feed over the first, by key. `feed.until` is text, and no version of a transaction id.

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

    @classmethod
    def _of(
        cls, table: _lancemem.Table, name: str, since: str | None, arguments: dict[str, Any]
    ) -> FlushedChangesConsumer:
        consumer = cls()
        consumer._begin(table, name, arguments)
        known = _lancemem.flushed_consumer(table, name)
        consumer.position = since if known is None else known.position
        # Checks the arguments, also those of a consumer that has a position.
        consumer._feed()
        if known is None and since is not None:
            _lancemem.move_flushed_consumer(table, name, since)
        return consumer

    def poll(self) -> FlushedFeed | None:
        """Return the changes behind the position, or None if no row has changed.

        Without a `commit` in between, the next call returns the same changes, and later ones. A
        consumer without a position gets the changes that are left: those that a collection has
        removed are left out without an error.

        Returns:
            The changes up to the last published one, or None if no row has changed.

        Raises:
            ChangesUnavailableError: The table stored no changes of flushes for a while, so those
                behind the position were never stored.
            InvalidInputError: The consumer is closed, or the table stores no changes of flushes.
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

    def _feed(self) -> FlushedFeed:
        feed: FlushedFeed = self._table.changes(self.position, level="flushed", **self._arguments)
        return feed

    def _store(self, position: str) -> None:
        _lancemem.move_flushed_consumer(self._table, self.name, position)
