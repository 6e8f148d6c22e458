"""Rows of a table as PyTorch tensors.

Owns the iterable and the map-style dataset, and which rank and worker a process is. Does not own
the read, or which parts a reader reads (`loading`). The only module that imports torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from lancemem._lancemem import InvalidInputError
from lancemem.loading import KeyRows, PinnedSnapshot, Reader, of_size, shuffled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow.dataset as pds

    from lancemem.table import Table

__all__ = ["KeyDataset", "ScanDataset", "to_tensors"]


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

    Use `DataLoader(dataset, batch_size=None)`. The dataset pins the snapshot that it finds when it
    is made, and every epoch, worker and rank reads that snapshot until `refresh`. Readers divide it
    by parts: each reads its own rows alone, and each key comes once. All ranks need the same
    `num_workers` and `shuffle`; otherwise rows are left out or come twice.

    Ranks take `rank` and `world_size` from `torch.distributed` where that is initialized. Each rank
    is a process of its own: pass one `snapshot` token to all of them, so that they divide the same
    rows.

    Attributes:
        token: The token of the pinned snapshot. None for a "live" one with rows of jobs.

    Example:
        dataset = ScanDataset(table, ["features", "label"], batch_size=256, shuffle=True, seed=7)
        loader = DataLoader(dataset, batch_size=None, num_workers=4)
        for epoch in range(3):
            dataset.set_epoch(epoch)
            for batch in loader: ...
    """

    def __init__(  # noqa: PLR0913 - the arguments of a scan and those of a loader
        self,
        table: Table | str,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        filter: str | pds.Expression | None = None,  # noqa: A002
        *,
        consistency: str = "durable",
        batch_size: int = 1024,
        shuffle: bool = False,
        seed: int = 0,
        shuffle_rows: int = 65_536,
        rank: int | None = None,
        world_size: int | None = None,
        snapshot: str | None = None,
        transform: Callable[[pa.RecordBatch], Any] = to_tensors,
        storage_options: dict[str, str] | None = None,
    ) -> None:
        """Describe the read, and pin its snapshot.

        Args:
            table: The table, or its URI.
            columns: As in `Table.scan`.
            filter: As in `Table.scan`.
            consistency: As in `Table.scan`. A "live" read with rows of jobs takes no workers.
            batch_size: Rows of an item. The last item of each reader may have fewer.
            shuffle: Read parts in a random order, and order each `shuffle_rows` rows at random.
            seed: The seed of the order, at least 0. One seed and epoch give one order where all
                rows are in the base table. Rows in SSTables and logs are read in parallel, so their
                order differs from read to read; `compact(flush=True)` moves them.
            shuffle_rows: Rows that a reader keeps in memory to shuffle them.
            rank: The rank of this process. Default: of `torch.distributed`, or 0.
            world_size: The number of ranks. Default: of `torch.distributed`, or 1.
            snapshot: The token of the snapshot to read. Default: the newest.
            transform: Makes an item of a batch.
            storage_options: As in `open_table`: each worker opens the table with them.
        """
        super().__init__()
        for name, value in (("batch_size", batch_size), ("shuffle_rows", shuffle_rows)):
            if value < 1:
                raise InvalidInputError(f"{name} must be at least 1, got {value}")
        if seed < 0:
            raise InvalidInputError(f"seed must be at least 0, got {seed}")
        self._reader = _rank(rank, world_size)
        self._columns = columns
        if columns is not None and not isinstance(columns, (str, Mapping)):
            self._columns = list(columns)
        self._filter = filter
        self._batch_size = batch_size
        self._shuffle_rows = shuffle_rows if shuffle else 0
        self._seed = seed
        # In shared memory: a loader with persistent workers pickles its dataset once.
        self._epoch = torch.zeros(1, dtype=torch.int64).share_memory_()
        self._transform = transform
        self._rows: int | None = None
        self._pinned = PinnedSnapshot(
            table, consistency=consistency, token=snapshot, storage_options=storage_options
        )

    @property
    def token(self) -> str | None:
        """The token of the pinned snapshot, for `snapshot=` of other ranks."""
        return self._pinned.token

    def refresh(self) -> None:
        """Pin the newest snapshot. A loader with persistent workers has to be made anew."""
        self._pinned.refresh()
        self._rows = None

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of the next iteration, as `DistributedSampler.set_epoch` does.

        Persistent workers of a loader see the epoch too.
        """
        if epoch < 0:
            raise InvalidInputError(f"epoch must be at least 0, got {epoch}")
        self._epoch[0] = epoch

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Share the epoch of a pickle with the workers of this process."""
        self.__dict__.update(state)
        self._epoch.share_memory_()

    def __len__(self) -> int:
        """Count the items of this rank.

        Exact where one process reads. Several readers divide rows by storage, not by number: then
        the count is that of equal shares, and each reader may end with an item of fewer rows. A
        loader whose length was asked for warns where more items come.
        """
        if self._rows is None:
            self._rows = self._pinned.open().scan(filter=self._filter).count_rows()
        return ceil(self._rows / (self._reader.world_size * self._batch_size))

    def __iter__(self) -> Iterator[Any]:
        """Read the snapshot, or the part of this rank and worker."""
        worker = get_worker_info()
        reader = self._reader
        if worker is not None:
            reader = reader._replace(worker=worker.id, workers=worker.num_workers)
        for batch in of_size(self._batches(reader), self._batch_size):
            yield self._transform(batch)

    def _batches(self, reader: Reader) -> Iterator[pa.RecordBatch]:
        parts = reader.parts(shuffle=self._shuffle_rows > 0)
        if not self._shuffle_rows:
            return self._read(parts)
        random = reader.random(self._seed, int(self._epoch))
        order = [parts[number] for number in random.permutation(len(parts))]
        return shuffled(self._read(order), self._shuffle_rows, random)

    def _read(self, parts: Iterable[tuple[int, int] | None]) -> Iterator[pa.RecordBatch]:
        snapshot = self._pinned.open()
        for part in parts:
            yield from snapshot.scan(self._columns, self._filter, part=part).to_batches()


class KeyDataset(Dataset):  # type: ignore[misc, type-arg, unused-ignore]
    """Rows of a table by the number of their key: a map-style dataset, for samplers of PyTorch.

    An item is a dictionary of the values of one row, which `default_collate` makes a batch of. It
    takes no null and no time: leave such columns out, or pass `collate_fn`. A `DataLoader` asks for
    the rows of a batch in one call. All workers read the snapshot that is pinned when the dataset
    is made. Datasets of one snapshot number its keys alike, so ranks divide them by
    `DistributedSampler`.

    Example:
        dataset = KeyDataset(table, columns=["features", "label"])
        loader = DataLoader(dataset, batch_size=256, shuffle=True, num_workers=4)
    """

    def __init__(
        self,
        table: Table | str,
        keys: object = None,
        columns: Sequence[str] | None = None,
        *,
        snapshot: str | None = None,
        storage_options: dict[str, str] | None = None,
    ) -> None:
        """Pin a snapshot, and take the keys.

        Args:
            table: The table, or its URI.
            keys: The keys in their order: Arrow data with the key columns, or, for a key of one
                column, an Arrow array or a list of its values. Default: all keys of the snapshot in
                ascending order. Keys are kept in memory.
            columns: The columns of a row. Default: all.
            snapshot: The token of the snapshot to read. Default: the newest.
            storage_options: As in `open_table`.
        """
        super().__init__()
        pinned = PinnedSnapshot(table, token=snapshot, storage_options=storage_options)
        self._rows = KeyRows(pinned, keys, columns)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int | Sequence[int]) -> dict[str, Any]:
        """Read one row, or a batch of rows that a `BatchSampler` names."""
        if isinstance(index, Sequence):
            columns, rows = self._read(index)
            return {name: _at(values, rows) for name, values in columns.items()}
        [item] = self.__getitems__([index])
        return item

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """Read the rows of a batch in one call."""
        columns, rows = self._read(indices)
        return [{name: values[row] for name, values in columns.items()} for row in rows]

    def _read(self, indices: Sequence[int]) -> tuple[dict[str, Any], list[int]]:
        batch, rows = self._rows.read(indices)
        return to_tensors(batch), rows


def _at(values: Any, rows: list[int]) -> Any:  # noqa: ANN401 - a tensor or a list
    return [values[row] for row in rows] if isinstance(values, list) else values[rows]


def _rank(rank: int | None, world_size: int | None) -> Reader:
    """Return this process as a reader without workers."""
    if rank is None and world_size is None:
        distributed = torch.distributed
        if distributed.is_available() and distributed.is_initialized():
            return Reader(distributed.get_rank(), distributed.get_world_size())
        return Reader()
    if rank is None or world_size is None or not 0 <= rank < world_size:
        raise InvalidInputError(
            f"rank and world_size go together, and rank is below world_size; got rank={rank}, "
            f"world_size={world_size}"
        )
    return Reader(rank, world_size)
