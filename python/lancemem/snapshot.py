"""`Snapshot`: a consistent snapshot of a table, for any number of reads.

Owns what a snapshot is in Python beyond the extension: its scans and its pickle, which is its
token. Does not own the reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lancemem import _lancemem
from lancemem.scan import Scan

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lancemem._lancemem import (
        _Columns,
        _DistanceRange,
        _Filter,
        _Metric,
        _OrderBy,
        _Query,
        _QueryType,
        _Rerank,
        _Text,
    )
    from lancemem.table import Table

__all__ = ["Snapshot"]


class Snapshot(_lancemem.Snapshot):
    """A consistent snapshot of a table. Made by `Table.snapshot`.

    Every read of it returns the same rows. It can be pickled: another process opens the same
    snapshot by its token, as long as its files are there. A "live" snapshot with rows of jobs has
    no token and cannot be pickled.

    Attributes:
        schema: The columns of the table at this snapshot.

    Example:
        snapshot = table.snapshot()
        snapshot.count_rows("delay > 15")
    """

    _table: Table

    @classmethod
    def _of(cls, handle: _lancemem.Snapshot, table: Table) -> Snapshot:
        snapshot = cls(handle)
        snapshot._table = table
        return snapshot

    def scan(  # noqa: D102, PLR0913 - the extension has the docstring
        self,
        columns: _Columns | None = None,
        filter: _Filter | None = None,  # noqa: A002
        limit: int | None = None,
        offset: int = 0,
        *,
        order_by: _OrderBy | None = None,
        part: tuple[int, int] | None = None,
    ) -> Scan:
        handle = super().scan(columns, filter, limit, offset, order_by=order_by, part=part)
        given = {"filter": filter, "limit": limit, "offset": offset}
        given = {"columns": columns, **given, "order_by": order_by, "part": part}
        return Scan._of(handle, self, given)  # noqa: SLF001

    def search(  # noqa: D102, PLR0913 - the extension has the docstring
        self,
        query: _Query | None = None,
        *,
        query_type: _QueryType = "auto",
        text: _Text | None = None,
        text_columns: str | Sequence[str] | None = None,
        rerank: _Rerank | None = None,
        column: str | None = None,
        k: int = 10,
        columns: Sequence[str] | None = None,
        filter: _Filter | None = None,  # noqa: A002
        metric: _Metric | None = None,
        nprobes: int | None = None,
        minimum_nprobes: int | None = None,
        maximum_nprobes: int | None = None,
        ef: int | None = None,
        refine_factor: int | None = None,
        distance_range: _DistanceRange | None = None,
        prefilter: bool = True,
        exact: bool = False,
        fast_search: bool = False,
        offset: int = 0,
    ) -> Scan:
        given: dict[str, Any] = {
            "query_type": query_type,
            "text": text,
            "text_columns": text_columns,
            "rerank": rerank,
            "column": column,
            "k": k,
            "columns": columns,
            "filter": filter,
            "metric": metric,
            "nprobes": nprobes,
            "minimum_nprobes": minimum_nprobes,
            "maximum_nprobes": maximum_nprobes,
            "ef": ef,
            "refine_factor": refine_factor,
            "distance_range": distance_range,
            "prefilter": prefilter,
            "exact": exact,
            "fast_search": fast_search,
            "offset": offset,
        }
        vectors = given_query(query)
        handle = super().search(vectors, **given)
        return Scan._of(handle, self, {"query": vectors, **given}, "search")  # noqa: SLF001

    def sql(self, query: str) -> Scan:  # noqa: D102 - the extension has the docstring
        return Scan._of(super().sql(query), self, {"query": query}, "sql")  # noqa: SLF001

    def __reduce__(self) -> tuple[Callable[..., Snapshot], tuple[Any, ...]]:
        """Pickle the table and the token."""
        token = self.token
        if token is None:
            raise TypeError(
                "a live snapshot with rows of jobs has no token and cannot be pickled; take one "
                "with consistency='durable'"
            )
        return _opened, (self._table, token)


def given_query(query: _Query | None) -> _Query:
    """Return the query of a search; without one, name the way of a read without a search."""
    if query is None:
        raise _lancemem.InvalidInputError(
            "a search needs a vector, search([0.1, 0.2]), a list of vectors, or words; "
            "scan(filter=...) reads rows by a condition alone"
        )
    return query


def _opened(table: Table, token: str) -> Snapshot:
    return table.snapshot(token=token)
