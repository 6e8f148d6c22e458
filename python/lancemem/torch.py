"""Rows of a table as PyTorch tensors.

Owns the iterable dataset and how the workers of a `DataLoader` divide a table. Does not own the
read. The only module that imports torch.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import torch
from torch.utils.data import IterableDataset, get_worker_info

from lancemem._lancemem import InvalidInputError
from lancemem.catalog import open_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow.dataset as pds

    from lancemem.table import Table

__all__ = ["ScanDataset", "to_tensors"]


def to_tensors(batch: pa.RecordBatch) -> dict[str, Any]:
    """Return a tensor for each column of numbers or of vectors, a list for every other column.

    A null in a column of floating-point numbers becomes NaN. A null in a column of integers or
    booleans, or in a vector, raises `InvalidInputError`.
    """
    return {
        name: _values(name, column)
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    }


def _values(name: str, column: pa.Array) -> Any:  # noqa: ANN401 - a tensor or a list
    of = column.type
    is_vector = pa.types.is_fixed_size_list(of)
    of_items = of.value_type if is_vector else of
    is_float = pa.types.is_floating(of_items)
    if not (is_float or pa.types.is_integer(of_items) or pa.types.is_boolean(of_items)):
        return column.to_pylist()
    items = column.flatten() if is_vector else column
    if (column.null_count or items.null_count) and (is_vector or not is_float):
        raise InvalidInputError(
            f"column '{name}' has nulls, which a tensor of {of} cannot hold; "
            f'filter them out with "{name} IS NOT NULL"'
        )
    # A copy: torch wants memory that it may write to.
    tensor = torch.from_numpy(items.to_numpy(zero_copy_only=False).copy())
    return tensor.reshape(len(column), of.list_size) if is_vector else tensor


class ScanDataset(IterableDataset):  # type: ignore[misc, type-arg, unused-ignore]
    """A scan of a table as an iterable dataset; each item is a batch.

    Use `DataLoader(dataset, batch_size=None)`. Each iteration reads its own snapshot. Several
    workers divide the shards: worker i of n yields the rows of the shards whose ordinal is i modulo
    n, so each key comes once, from one worker. All workers read the whole table. Where the table
    has fewer shards than workers, some workers yield nothing. Without a sharding column the first
    worker yields everything. Each worker opens the table in its own process.
    """

    def __init__(  # noqa: PLR0913 - the arguments of a scan and two more
        self,
        table: Table | str,
        columns: Sequence[str] | None = None,
        filter: str | pds.Expression | None = None,  # noqa: A002
        *,
        consistency: str = "durable",
        batch_size: int = 1024,
        transform: Callable[[pa.RecordBatch], Any] = to_tensors,
        storage_options: dict[str, str] | None = None,
    ) -> None:
        """Describe the read; `transform` makes an item of a batch of at most `batch_size` rows.

        `storage_options` are as in `open_table`: each worker opens the table with them.
        """
        super().__init__()
        if batch_size < 1:
            raise InvalidInputError(f"batch_size must be at least 1, got {batch_size}")
        self._uri = table if isinstance(table, str) else table.uri
        self._columns = None if columns is None else list(columns)
        self._filter = filter
        self._consistency = consistency
        self._batch_size = batch_size
        self._transform = transform
        self._storage_options = storage_options
        self._opened = None if isinstance(table, str) else (os.getpid(), table)

    def __getstate__(self) -> dict[str, Any]:
        """Leave the open table out of the pickle: it belongs to this process."""
        return {**self.__dict__, "_opened": None}

    def __iter__(self) -> Iterator[Any]:
        """Read the table, or this worker's part of it."""
        for batch in _of_size(self._rows(), self._batch_size):
            yield self._transform(batch)

    def _table(self) -> Table:
        if self._opened is None or self._opened[0] != os.getpid():
            options = self._storage_options
            opened = open_table(self._uri, storage_options=options)
            self._opened = (os.getpid(), opened)
        return self._opened[1]

    def _rows(self) -> Iterator[pa.RecordBatch]:
        table = self._table()
        worker = get_worker_info()
        if worker is None or worker.num_workers == 1:
            return iter(self._scan(table, self._columns))
        column = None if table.sharding is None else table.sharding.column
        if column is not None:
            return self._part(table, column, worker.id, worker.num_workers)
        return iter(self._scan(table, self._columns)) if worker.id == 0 else iter(())

    def _part(
        self, table: Table, column: str, worker: int, workers: int
    ) -> Iterator[pa.RecordBatch]:
        output = table.schema.names if self._columns is None else self._columns
        read = [*output, *([] if column in output else [column])]
        for batch in self._scan(table, read):
            ordinals = pa.array(table.shard_ordinals(batch)).to_numpy()
            own = batch.filter(pa.array(ordinals % workers == worker))
            yield own.select(output)

    def _scan(self, table: Table, columns: list[str] | None) -> Iterator[pa.RecordBatch]:
        scan = table.scan(columns, self._filter, consistency=self._consistency)  # type: ignore[arg-type]
        return scan.to_batches()


def _of_size(batches: Iterator[pa.RecordBatch], size: int) -> Iterator[pa.RecordBatch]:
    """Split and join batches so that all but the last have `size` rows."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if rows < size:
            continue
        joined = pa.concat_batches(waiting)
        whole = rows - rows % size
        for start in range(0, whole, size):
            yield joined.slice(start, size)
        waiting, rows = [joined.slice(whole)], rows - whole
    if rows:
        yield pa.concat_batches(waiting)
