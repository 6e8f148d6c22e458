"""`Table`: a table in Python.

Owns the class, its pickle and its description. Does not own its reads (`reads`), its updates
(`updates`), its indexes (`indexes`), its change feeds (`change_feed`), or the functions that make
and open tables (`catalog`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, Self

from lancemem import _lancemem, preview
from lancemem.change_feed import TableChangeFeeds
from lancemem.indexes import TableIndexes
from lancemem.other_names import way_of_table
from lancemem.reads import TableReads
from lancemem.updates import TableUpdates
from lancemem.writer import TableWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from lancemem._lancemem import MaintenanceConfig, WriterConfig

__all__ = ["Table"]

# Columns that a description names.
_NAMED = 12


class Table(TableReads, TableUpdates, TableIndexes, TableChangeFeeds):
    """A Lance table with shards that take upserts. Made by `create_table`, `open_table`, `enable`.

    A table has `__arrow_c_stream__`, so what reads Arrow reads it. Iterating over it reads batches,
    `len` counts its rows. It can be pickled: another process opens it by its URI, with its
    `storage_options`, which are part of the pickle. As a context manager it does nothing: there is
    nothing to close.

    The handle belongs to the process that opened it. In a fork every call raises
    `ForkedHandleError`.

    Attributes:
        uri: The address of the table.
        primary_key: The key columns in key order. Empty for an append-only table.
        sharding: How rows are spread over shards. None where the table records no sharding.
        merge_rule: How the events of a key become one row. None where the last event wins.

    Example:
        table = lancemem.open_table("board.lance")
        table.upsert([{"id": 3, "name": "Ada"}])
        table.to_pandas(filter="id < 10")
    """

    @classmethod
    def _of(
        cls,
        handle: _lancemem.Table,
        storage_options: dict[str, str] | None,
        verify_sstables: bool = True,
    ) -> Self:
        table = cls(handle)
        table._storage_options, table._verify_sstables = storage_options, verify_sstables
        return table

    def writer(  # noqa: D102 - the extension has the docstring
        self,
        config: WriterConfig | None = None,
        *,
        maintenance: MaintenanceConfig | bool | None = None,
    ) -> TableWriter:
        handle = super().writer(config, maintenance=maintenance)
        return TableWriter._of(handle, self)  # noqa: SLF001 - the same package

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    def __reduce__(self) -> tuple[Callable[..., Table], tuple[Any, ...]]:
        """Pickle how the table was opened."""
        return _opened, (self.uri, self._storage_options, self._verify_sstables)

    if not TYPE_CHECKING:  # A type checker reports unknown names itself.

        def __getattr__(self, name: str) -> NoReturn:
            """Name the way for a name of pylance or lancedb."""
            raise AttributeError(way_of_table(name), name=name, obj=self)

    def __repr__(self) -> str:
        names = self.schema.names
        more = f", and {len(names) - _NAMED} more columns" if len(names) > _NAMED else ""
        columns = f"columns={names[:_NAMED]}{more}, primary_key={self.primary_key}"
        return f'Table("{self.uri}", {columns}{self._sizes()})'

    def _sizes(self) -> str:
        """Count rows by `stats`. Rows that a newer row replaces are among them."""
        try:
            stats = self.stats(count_logs=False)
        except _lancemem.LancememError:
            return ""
        return f", base_rows={stats.num_base_rows}, sstable_rows={stats.num_sstable_rows}"

    def _repr_html_(self) -> str:
        return preview.of_rows(repr(self), self.head(preview.ROWS))


def _opened(uri: str, storage_options: dict[str, str] | None, verify_sstables: bool) -> Table:
    handle = _lancemem.open_table(
        uri, storage_options=storage_options, verify_sstables=verify_sstables
    )
    return Table._of(handle, storage_options, verify_sstables)  # noqa: SLF001 - the same module
