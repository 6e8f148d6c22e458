"""Reads of a table: the calls of `Table` that return rows or count them.

Owns their Python forms. Does not own the scan, which the extension plans and runs.
"""

from __future__ import annotations

import functools
import operator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from lancemem import _lancemem
from lancemem.query_text import of_full_text
from lancemem.query_vectors import of_nearest
from lancemem.scan import Scan
from lancemem.snapshot import Snapshot, given_query

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import lance
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from lancemem._lancemem import (
        BatchIterator,
        Job,
        RemoteJob,
        _Columns,
        _Consistency,
        _DistanceRange,
        _Filter,
        _Metric,
        _OrderBy,
        _Query,
        _QueryType,
        _Rerank,
        _Text,
    )

    _Jobs = Sequence[Job | RemoteJob] | None

__all__ = ["TableReads"]

_P = ParamSpec("_P")
_T = TypeVar("_T")


# Arguments that other calls have, and what a read has for them.
_OF_READ = {"where": "takes a condition as filter=; where= is of update and delete"}
_OF_SEARCH = _OF_READ | {
    name: f"has no argument {name}=; it takes {way}"
    for name, way in {
        "limit": "the number of rows as k=",
        "n": "the number of rows as k=",
        "distance_type": "the metric as metric=",
        "select": "the columns as columns=",
        "vector": "the vector as its first argument",
    }.items()
}


def _names_own_arguments(
    ways: Mapping[str, str],
) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """Name a read's own argument where it gets one of another call, such as `where=`."""

    def decorated(call: Callable[_P, _T]) -> Callable[_P, _T]:
        @functools.wraps(call)
        def checked(*args: _P.args, **named: _P.kwargs) -> _T:
            for name in named:
                if name in ways:
                    raise _lancemem.InvalidInputError(f"{call.__name__} {ways[name]}")
            return call(*args, **named)

        return checked

    return decorated


class TableReads(_lancemem.Table):
    """The reads of `Table`."""

    _storage_options: dict[str, str] | None = None
    _verify_sstables: bool = True

    @_names_own_arguments(_OF_READ)
    def scan(  # noqa: PLR0913 - each is an argument of a read
        self,
        columns: _Columns | None = None,
        filter: _Filter | None = None,  # noqa: A002
        limit: int | None = None,
        offset: int = 0,
        *,
        order_by: _OrderBy | None = None,
        consistency: _Consistency = "durable",
        jobs: _Jobs = None,
        nearest: Mapping[str, Any] | None = None,
        full_text_query: _Text | Mapping[str, Any] | None = None,
        prefilter: bool = True,
    ) -> Scan:
        """Prepare a read of the newest row of every key.

        Each read of the scan takes a snapshot of its own. Rows come in no order without `order_by`.

        Args:
            columns: The columns of the result, or a SQL expression over the columns of the row for
                each column of the result, by its name (docs/reading.md). Default: all columns.
            filter: A SQL condition or a pyarrow expression (docs/reading.md). A condition on null
                is null, as in SQL. Default: every row.
            limit: The maximum number of rows. Default: no limit.
            offset: Number of rows that are skipped first. Without `order_by` by a key it cannot
                page, because rows have no order.
            order_by: Columns by which the rows are sorted, the first counts most: a name, `"-name"`
                or `("name", "desc")` for descending, or pylance's `ColumnOrdering`. Columns need
                not be in the result; a computed column counts before one of the table. Nulls come
                last in both directions. A sort reads all rows before it returns the first
                (docs/reading.md). Default: no order.
            consistency: "flushed" reads the base table and flushed SSTables. "durable" also reads
                the WAL, so every acknowledged durable write of any process. "live" also reads the
                MemTables of the jobs and writers of this process, and those of `jobs`.
            jobs: More running jobs of a "live" read: of other processes, as `connect_job` returns
                them. The other levels take none. The read raises `JobStoppedError` where a job of
                `jobs` is closed. Where another job took its shard, it raises `WriterFencedError`
                for a job of this process, and `JobStoppedError` for one of `connect_job`. A job of
                this process that is not among `jobs` is left out once it does not run any more.
            nearest: pylance's description of a search, a dict with `column`, `q` and the other
                arguments of `search` under their names, and `use_index`. The scan is then that
                search. Default: none.
            full_text_query: pylance's description of a full-text search: words, a query of
                `lancemem.query`, or a dict with `query` and `columns`. The scan is then that
                search, of `limit` rows, by default 10. Default: none.
            prefilter: As in `search`; used with `nearest` and `full_text_query` alone.

        Returns:
            A read that has not begun.

        Raises:
            InvalidInputError: The expression cannot be translated, or `jobs` does not go with
                `consistency`. Other faults of a condition or of an expression are raised when the
                rows are read.

        Example:
            table.scan(["id", "delay"], "delay > 15", limit=1_000).to_table()
            table.scan({"id": "id", "hours": "delay / 60.0"}).to_table()
            table.scan(order_by=["carrier", "-delay"], limit=10).to_table()
        """
        level: dict[str, Any] = {"consistency": consistency, "jobs": jobs}
        given = {"columns": columns, "filter": filter, "limit": limit, "offset": offset}
        given["order_by"] = order_by
        if full_text_query is not None:
            given = of_full_text(full_text_query, given, has_nearest=nearest is not None)
            return self.search(**given, prefilter=prefilter, **level)
        if nearest is not None:
            return self.search(**of_nearest(nearest, given), prefilter=prefilter, **level)
        handle = super().scan(columns, filter, limit, offset, order_by=order_by, **level)
        return Scan._of(handle, self._table(), {**given, **level})  # noqa: SLF001

    def sql(  # noqa: D102 - the extension has the docstring
        self, query: str, *, consistency: _Consistency = "durable", jobs: _Jobs = None
    ) -> Scan:
        level: dict[str, Any] = {"consistency": consistency, "jobs": jobs}
        handle = super().sql(query, **level)
        return Scan._of(handle, self._table(), {"query": query, **level}, "sql")  # noqa: SLF001

    @_names_own_arguments(_OF_SEARCH)
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
        consistency: _Consistency = "durable",
        jobs: _Jobs = None,
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
        level: dict[str, Any] = {"consistency": consistency, "jobs": jobs}
        query = given_query(query)
        handle = super().search(query, **given, **level)
        asked = {"query": query, **given, **level}
        return Scan._of(handle, self._table(), asked, "search")  # noqa: SLF001

    def snapshot(  # noqa: D102 - the extension has the docstring
        self,
        *,
        consistency: _Consistency = "durable",
        jobs: _Jobs = None,
        token: str | None = None,
        version: int | None = None,
        timestamp: datetime | None = None,
    ) -> Snapshot:
        if timestamp is not None:
            if not isinstance(timestamp, datetime):
                raise TypeError(
                    "timestamp: expected a datetime, such as datetime(2026, 1, 31, tzinfo=UTC), "
                    f"got {type(timestamp).__name__}"
                )
            # As Python does, a time without a zone is local time.
            timestamp = timestamp.astimezone(UTC)
        level: dict[str, Any] = {"consistency": consistency, "jobs": jobs, "token": token}
        handle = super().snapshot(**level, version=version, timestamp=timestamp)
        return Snapshot._of(handle, self._table())  # noqa: SLF001

    # --- all rows ---

    @_names_own_arguments(_OF_READ)
    def to_table(  # noqa: PLR0913 - the arguments of a scan
        self,
        columns: _Columns | None = None,
        filter: _Filter | None = None,  # noqa: A002
        limit: int | None = None,
        offset: int = 0,
        *,
        order_by: _OrderBy | None = None,
        consistency: _Consistency = "durable",
        jobs: _Jobs = None,
    ) -> pa.Table:
        """Read all rows that meet a condition.

        Args:
            columns: As in `scan`.
            filter: As in `scan`.
            limit: As in `scan`.
            offset: As in `scan`.
            order_by: As in `scan`. Default: no order.
            consistency: As in `scan`.
            jobs: As in `scan`.

        Returns:
            The rows.

        Raises:
            InvalidInputError: A column is not in the table, or the condition is not valid.

        Example:
            table.to_table(["id", "delay"], "delay > 15")
        """
        level: dict[str, Any] = {"consistency": consistency, "jobs": jobs}
        return self.scan(columns, filter, limit, offset, order_by=order_by, **level).to_table()

    @_names_own_arguments(_OF_READ)
    def to_pandas(
        self,
        columns: _Columns | None = None,
        filter: _Filter | None = None,  # noqa: A002
        *,
        order_by: _OrderBy | None = None,
        consistency: _Consistency = "durable",
        jobs: _Jobs = None,
        **options: object,
    ) -> pd.DataFrame:
        """Read all rows that meet a condition as a pandas frame.

        Args:
            columns: As in `scan`.
            filter: As in `scan`.
            order_by: As in `scan`. Default: no order.
            consistency: As in `scan`.
            jobs: As in `scan`.
            **options: Options of `pyarrow.Table.to_pandas`.

        Returns:
            The frame.

        Raises:
            InvalidInputError: As in `to_table`.

        Example:
            table.to_pandas(filter="id < 10", order_by="-id")
        """
        level: dict[str, Any] = {"consistency": consistency, "jobs": jobs}
        return self.scan(columns, filter, order_by=order_by, **level).to_pandas(**options)

    @_names_own_arguments(_OF_READ)
    def to_polars(
        self,
        columns: _Columns | None = None,
        filter: _Filter | None = None,  # noqa: A002
        *,
        order_by: _OrderBy | None = None,
        consistency: _Consistency = "durable",
        jobs: _Jobs = None,
    ) -> pl.DataFrame:
        """Read all rows that meet a condition as a polars frame.

        A lazy frame is `polars.scan_pyarrow_dataset(table.to_dataset())`.

        Args:
            columns: As in `scan`.
            filter: As in `scan`.
            order_by: As in `scan`. Default: no order.
            consistency: As in `scan`.
            jobs: As in `scan`.

        Returns:
            The frame.

        Raises:
            InvalidInputError: As in `to_table`.

        Example:
            table.to_polars(["id", "delay"], order_by="id")
        """
        level: dict[str, Any] = {"consistency": consistency, "jobs": jobs}
        return self.scan(columns, filter, order_by=order_by, **level).to_polars()

    # --- some rows, and their number ---

    def head(self, n: int = 5, columns: _Columns | None = None) -> pa.Table:
        """Read at most `n` rows, whichever come first: rows have no order.

        Args:
            n: The largest number of rows. Default: 5.
            columns: As in `scan`.

        Returns:
            The rows.

        Raises:
            InvalidInputError: `n` is negative, or a column is not in the table.

        Example:
            table.head(3).to_pandas()
        """
        if not hasattr(n, "__index__"):
            raise TypeError(f"n: expected a number of rows, such as 5, got {type(n).__name__}")
        if operator.index(n) < 0:
            raise _lancemem.InvalidInputError(f"head reads 0 rows or more, got n={n}")
        return self.scan(columns, limit=n).to_table()

    @_names_own_arguments(_OF_READ)
    def count_rows(
        self,
        filter: _Filter | None = None,  # noqa: A002
        *,
        consistency: _Consistency = "durable",
        jobs: _Jobs = None,
    ) -> int:
        """Count the rows that meet a condition, without reading columns that it does not need.

        Args:
            filter: As in `scan`. Default: every row.
            consistency: As in `scan`.
            jobs: As in `scan`.

        Returns:
            The number of rows.

        Raises:
            InvalidInputError: The condition is not valid.

        Example:
            table.count_rows("delay > 15")
        """
        return self.scan(filter=filter, consistency=consistency, jobs=jobs).count_rows()

    def __len__(self) -> int:
        """Count the rows, as `count_rows` does. Rows of jobs count once they are durable."""
        return self.count_rows()

    def __bool__(self) -> bool:
        """Return True: a table without rows is a table too, and asking this counts no rows."""
        return True

    # --- streams ---

    def to_reader(
        self,
        columns: _Columns | None = None,
        filter: _Filter | None = None,  # noqa: A002
    ) -> pa.RecordBatchReader:
        """Start a read and return it as a reader of pyarrow, as `Scan.to_reader` does.

        Args:
            columns: As in `scan`.
            filter: As in `scan`.

        Returns:
            A reader, which fetches batches while it is read.

        Raises:
            InvalidInputError: As in `to_table`.

        Example:
            with table.to_reader(["id"]) as reader:
                lance.write_dataset(reader, "copy.lance")
        """
        return self.scan(columns, filter).to_reader()

    def __iter__(self) -> BatchIterator:
        """Read all rows in batches, each fetched when it is asked for."""
        return iter(self.scan())

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Export all rows as a stream of Arrow's C interface."""
        return self.scan().__arrow_c_stream__(requested_schema)

    def to_lance(self) -> lance.LanceDataset:
        """Open the base table with pylance, which has to be installed.

        The dataset has the rows that compactions have moved into the base table. **Rows in logs and
        SSTables are not in it, and rows that those replace or delete still are.**
        `compact(flush=True)` moves them into the base table.

        Returns:
            A `lance.LanceDataset` of the newest version of the base table.

        Raises:
            ModuleNotFoundError: pylance is not installed.

        Example:
            table.compact(flush=True)
            table.to_lance().create_scalar_index("name", "BTREE")
        """
        try:
            import lance  # noqa: PLC0415 - it is no dependency
        except ModuleNotFoundError as error:
            message = "to_lance needs the package pylance: pip install pylance"
            raise ModuleNotFoundError(message, name=error.name) from error
        return lance.dataset(self.uri, storage_options=self._storage_options)

    def _table(self) -> Any:  # noqa: ANN401 - the class that has this one as a base
        return self
