"""`NamedConsumer`: what the consumers of all levels of change feeds do alike.

Owns the commit of a polled feed, and the end of the use of a consumer. Does not own which feed a
consumer reads next, or where its position is stored (`change_consumer`, `flushed_consumer`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from lancemem import _lancemem

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["NamedConsumer"]

Feed = TypeVar("Feed")
Position = TypeVar("Position", int, str)


class NamedConsumer(ABC, Generic[Feed, Position]):
    """A named reader of changes, whose position is stored with the table."""

    _table: Any
    _arguments: dict[str, Any]
    _polled: Any
    _is_closed: bool
    name: str
    position: Position | None

    def _begin(self, table: _lancemem.Table, name: str, arguments: dict[str, Any]) -> None:
        self._table, self._arguments = table, arguments
        self._polled, self._is_closed = None, False
        self.name, self.position = name, None

    @abstractmethod
    def _store(self, position: Position) -> None:
        """Store the position with the table."""

    def commit(self, feed: Feed | None = None) -> None:
        """Store that the changes of a feed are processed: the consumer goes on behind it.

        Args:
            feed: A feed of `poll`. Default: the last one.

        Raises:
            ChangesExpiredError: The version that a feed of level "committed" reaches was cleaned
                up.
            InvalidInputError: No feed was polled, the consumer is closed, or another process moved
                it to a later position.
            RetryableError: The storage failed. Commit again.

        Example:
            consumer.commit(feed)
        """
        self._refuse_closed()
        committed: Any = feed if feed is not None else self._polled
        if committed is None:
            raise _lancemem.InvalidInputError(
                f"consumer {self.name!r} has polled no feed to commit; call poll() first"
            )
        self._move(committed.until)
        self._polled = None

    def close(self) -> None:
        """End the use of the consumer. Its position stays, and keeps the changes behind it."""
        self._is_closed = True

    def _move(self, position: Position) -> None:
        if position != self.position:
            self._store(position)
            self.position = position

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
            f'{type(self).__name__}("{self._table.uri}", {self.name!r}, position={self.position})'
        )
