"""`TableWriter`: the writer of all shards of a table.

Owns what a writer is in Python beyond the extension: its scans have the forms of a scan of the
table, and it takes rows back. Does not own the writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lancemem import _lancemem, rule_calls
from lancemem.scan import Scan
from lancemem.updates import taken_back

if TYPE_CHECKING:
    from lancemem._lancemem import Acknowledged, _Columns, _Filter, _OrderBy, _Rows, _Txn
    from lancemem.table import Table

__all__ = ["TableWriter"]


class TableWriter(_lancemem.TableWriter):
    """The writer of all shards of a table; a context manager, which closes it.

    It routes each row to its shard, and holds a job for each shard that got rows. Several threads
    may use it. A writer that lost a shard to another writer takes no more rows of that shard: its
    calls raise `WriterFencedError`, and a new writer can claim the shard again.

    Example:
        with table.writer() as writer:
            writer.put(rows)
            writer.scan(filter="id > 7").to_pandas()
    """

    _table: Table

    @classmethod
    def _of(cls, handle: _lancemem.TableWriter, table: Table) -> TableWriter:
        writer = cls(handle)
        writer._table = table
        return writer

    def retract(  # noqa: PLR0913 - as `put`, all but one by name
        self,
        rows: _Rows,
        *,
        durable: bool | None = None,
        sync_index: bool | None = None,
        sync_search_index: bool | None = None,
        txn: _Txn | None = None,
        round_floats: bool = False,
    ) -> Acknowledged:
        """Take rows back, as `Table.retract` does.

        Args:
            rows: As in `Table.retract`.
            durable: As in `put`.
            sync_index: As in `put`.
            sync_search_index: As in `put`.
            txn: As in `put`.
            round_floats: As in `put`.

        Returns:
            As `put`.

        Raises:
            InvalidInputError: As in `Table.retract`.
            LancememError: As in `put`.

        Example:
            with pages.writer() as writer:
                writer.retract({"page": ["/"], "clicks": [3]})
        """
        rule_calls.refuse_retract(self._table)
        given, all_rows = taken_back(rows)
        how: dict[str, Any] = {"durable": durable, "sync_index": sync_index}
        how |= {"sync_search_index": sync_search_index, "txn": txn, "round_floats": round_floats}
        return self.apply(given, all_rows, **how)

    def scan(  # noqa: D102 - the extension has the docstring
        self,
        columns: _Columns | None = None,
        filter: _Filter | None = None,  # noqa: A002
        limit: int | None = None,
        offset: int = 0,
        *,
        order_by: _OrderBy | None = None,
    ) -> Scan:
        handle = super().scan(columns, filter, limit, offset, order_by=order_by)
        given: dict[str, Any] = {"columns": columns, "filter": filter, "limit": limit}
        # A live read of the table finds the jobs of its process, and so shows the same rows.
        given |= {"offset": offset, "order_by": order_by, "consistency": "live", "jobs": None}
        return Scan._of(handle, self._table, given)  # noqa: SLF001 - the same package
