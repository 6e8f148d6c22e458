"""`ChangesConsumer`: a named reader of changes, whose position is stored with the table.

Owns which feed a consumer reads next. Does not own the commit (`named_consumer`), the position
itself, a tag on a version of the base table (the extension), or the feeds (`change_feed`).
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from lancemem import _lancemem
from lancemem.named_consumer import NamedConsumer

if TYPE_CHECKING:
    from lancemem._lancemem import _State
    from lancemem.change_feed import ChangeFeed

__all__ = ["ChangesConsumer"]


class ChangesConsumer(NamedConsumer["ChangeFeed", int]):
    """A named reader of a table's changes. Made by `Table.changes_consumer`.

    A consumer that ends between `poll` and `commit` reads the same changes again. So each change
    is seen once where the caller commits after it has stored the changes, and stores a repeated
    feed over the first: by key, or with `feed.until` as the version of the
    transaction id.

    Attributes:
        name: Its name.
        position: The version behind which it goes on. None before the first commit of a consumer
            without `since`.

    Example:
        with table.changes_consumer("orders-to-search") as consumer:
            while feed := consumer.poll():
                index(feed.to_table())
                consumer.commit(feed)
    """

    @classmethod
    def _of(
        cls,
        table: _lancemem.Table,
        name: str,
        since: _State | None,
        arguments: dict[str, Any],
    ) -> ChangesConsumer:
        consumer = cls()
        consumer._begin(table, name, arguments)
        known = _lancemem.changes_consumer(table, name)
        consumer.position = None if known is None else known.position
        # Checks the arguments, also those of a consumer that has a position.
        feed = consumer._feed(since if known is None else known.position)
        if known is None and feed.since is not None:
            # Version 0, before the first one, cannot be kept, and has no row.
            consumer.position = feed.since or None
            if consumer.position is not None:
                _lancemem.move_changes_consumer(table, name, consumer.position)
        return consumer

    def poll(self, max_versions: int | None = None) -> ChangeFeed | None:
        """Return the changes behind the position, or None if no row has changed.

        Without a `commit` in between, the next call returns the same changes, and those of newer
        versions.

        Args:
            max_versions: The largest number of versions that change rows in one feed. Default: no
                limit.

        Returns:
            The changes up to the newest version, or up to the limit. None where no row changed;
            then the position moves to the newest version, if there is one.

        Raises:
            ChangesUnavailableError: The changes of a version cannot be derived.
            InvalidInputError: `max_versions` is below 1, or the consumer is closed.
            RetryableError: The storage failed.

        Example:
            feed = consumer.poll(max_versions=10)
        """
        self._refuse_closed()
        if max_versions is not None and operator.index(max_versions) < 1:
            raise _lancemem.InvalidInputError(
                f"max_versions is at least 1, got {max_versions}; None is no limit"
            )
        feed = self._feed(self.position)
        changed = feed.versions
        if not changed and self.position is not None:
            # Nothing lies between, so the versions in between need not be kept.
            self._move(feed.until)
            return None
        if max_versions is not None and self.position is not None and len(changed) > max_versions:
            feed = self._feed(self.position, changed[max_versions - 1].version)
        self._polled = feed
        return feed

    def _feed(self, since: _State | None, until: int | None = None) -> ChangeFeed:
        feed: ChangeFeed = self._table.changes(since, until, **self._arguments)
        return feed

    def _store(self, position: int) -> None:
        _lancemem.move_changes_consumer(self._table, self.name, position)
