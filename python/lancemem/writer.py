"""`TableWriter`: the writer of all shards of a table.

Owns what a writer is in Python beyond the extension: its scans have the forms of a scan of the
table. Does not own the writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lancemem import _lancemem
from lancemem.scan import Scan

if TYPE_CHECKING:
    from lancemem._lancemem import _Columns, _Filter, _OrderBy
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
