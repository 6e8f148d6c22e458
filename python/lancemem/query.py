"""Full-text queries, to be combined: words, phrases, and logic above them.

Owns the builders and the form of each query. Does not own their meaning, which is the engine's.
The names of the attributes are those of lancedb's query classes, which a search takes as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["boolean", "boost", "match", "multi_match", "phrase"]


@dataclass(frozen=True)
class _Match:
    query: str
    column: str | None
    boost: float
    operator: str


@dataclass(frozen=True)
class _Phrase:
    query: str
    column: str | None
    slop: int


@dataclass(frozen=True)
class _MultiMatch:
    query: str
    columns: tuple[str, ...]
    boosts: tuple[float, ...] | None
    operator: str


@dataclass(frozen=True)
class _Boost:
    positive: Any
    negative: Any
    negative_boost: float


@dataclass(frozen=True)
class _Boolean:
    must: tuple[Any, ...]
    should: tuple[Any, ...]
    must_not: tuple[Any, ...]


def match(
    query: str,
    column: str | None = None,
    *,
    boost: float = 1.0,
    operator: Literal["OR", "AND"] = "OR",
) -> _Match:
    """Ask for rows with words of a text.

    Args:
        query: The words. The tokenizer of the column's index splits them.
        column: The column. Default: the columns of the search.
        boost: A factor of the score. Default: 1.
        operator: "OR" for any of the words, "AND" for all. Default: "OR".

    Returns:
        A query for `Table.search`.

    Raises:
        InvalidInputError: Raised by the search: the text is empty, or `boost` is negative.

    Example:
        table.search(lancemem.query.match("snapshot isolation", operator="AND"))
    """
    return _Match(query, column, boost, operator)


def phrase(query: str, column: str | None = None, *, slop: int = 0) -> _Phrase:
    """Ask for rows with the words of a text next to each other, in their order.

    Args:
        query: The phrase.
        column: The column, whose index needs `with_position=True`. Default: the column of the
            search.
        slop: How many positions may lie between two words beside those of the text. Default: 0.

    Returns:
        A query for `Table.search`.

    Raises:
        InvalidInputError: Raised by the search: the index has no positions.

    Example:
        table.search(lancemem.query.phrase("write ahead log", "body"))
    """
    return _Phrase(query, column, slop)


def multi_match(
    query: str,
    columns: Sequence[str],
    *,
    boosts: Sequence[float] | None = None,
    operator: Literal["OR", "AND"] = "OR",
) -> _MultiMatch:
    """Ask for rows with words of a text in any of several columns; the best column scores.

    Args:
        query: The words.
        columns: The columns.
        boosts: A factor for the score of each column. Default: 1 for all.
        operator: As in `match`, within each column. Default: "OR".

    Returns:
        A query for `Table.search`.

    Raises:
        InvalidInputError: Raised by the search: `boosts` has another length than `columns`.

    Example:
        table.search(lancemem.query.multi_match("vacuum", ["title", "body"], boosts=[2, 1]))
    """
    return _MultiMatch(query, tuple(columns), None if boosts is None else tuple(boosts), operator)


def boost(positive: object, negative: object, *, negative_boost: float = 0.5) -> _Boost:
    """Ask for the rows of one query, and lower the scores of those that another query finds too.

    Args:
        positive: The query that finds rows.
        negative: The query that lowers scores.
        negative_boost: How much of the score of `negative` is taken off. Default: 0.5.

    Returns:
        A query for `Table.search`.

    Raises:
        InvalidInputError: Raised by the search: `negative_boost` is negative.

    Example:
        table.search(lancemem.query.boost(query.match("index"), query.match("deprecated")))
    """
    return _Boost(positive, negative, negative_boost)


def boolean(
    must: Sequence[object] = (), should: Sequence[object] = (), must_not: Sequence[object] = ()
) -> _Boolean:
    """Combine queries by logic.

    Args:
        must: Queries that all find a row of the result. Their scores are added.
        should: Queries whose scores are added where they find the row. Without `must` at least one
            of them finds a row of the result.
        must_not: Queries that find no row of the result.

    Returns:
        A query for `Table.search`.

    Raises:
        InvalidInputError: Raised by the search: `must` and `should` are both empty.

    Example:
        table.search(query.boolean(must=[query.match("log")], must_not=[query.phrase("log in")]))
    """
    return _Boolean(tuple(must), tuple(should), tuple(must_not))
