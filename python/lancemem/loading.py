"""What a data loader of any framework needs: a pinned snapshot, parts of it, batches of a size.

Owns the snapshot that several processes open by its token, which process reads which parts, and the
order and the size of batches. Does not own tensors (`torch`), or how the rows of a snapshot are
divided: `Snapshot.scan(part=)` does that.
"""

from __future__ import annotations

import os
from operator import index
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsIndex

import pyarrow as pa

from lancemem._lancemem import InvalidInputError
from lancemem.catalog import open_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy as np

    from lancemem.snapshot import Snapshot
    from lancemem.table import Table

__all__ = ["KeyRows", "PinnedSnapshot", "Reader", "of_size", "shuffled"]

# Parts of a reader that shuffles: it reads them in a random order.
_SHUFFLED_PARTS = 4


class PinnedSnapshot:
    """A snapshot of a table that every process opens by its token, when it needs it.

    Pickled without its handles. A "live" snapshot with rows of jobs has no token, and belongs to
    the process that took it.
    """

    def __init__(
        self,
        table: Table | str,
        *,
        consistency: str = "durable",
        token: str | None = None,
        storage_options: dict[str, str] | None = None,
    ) -> None:
        """Take a snapshot of the table now, or the snapshot of `token`."""
        self._uri = table if isinstance(table, str) else table.uri
        if storage_options is None and not isinstance(table, str):
            storage_options = table._storage_options  # noqa: SLF001 - the same package
        self._storage_options = storage_options
        self._consistency = consistency
        self._table = None if isinstance(table, str) else (os.getpid(), table)
        self._snapshot: tuple[int, Snapshot] | None = None
        self.token = token
        if token is None:
            self.refresh()

    def refresh(self) -> None:
        """Take the newest snapshot."""
        snapshot = self._opened().snapshot(consistency=self._consistency)  # type: ignore[arg-type]
        self._snapshot = (os.getpid(), snapshot)
        self.token = snapshot.token

    def open(self) -> Snapshot:
        """Return the snapshot, opened in this process."""
        if self._snapshot is None or self._snapshot[0] != os.getpid():
            if self.token is None:
                raise InvalidInputError(
                    "a live snapshot with rows of jobs stays in its process: read it without "
                    "workers, or with consistency='durable'"
                )
            self._snapshot = (os.getpid(), self._opened().snapshot(token=self.token))
        return self._snapshot[1]

    def _opened(self) -> Table:
        if self._table is None or self._table[0] != os.getpid():
            opened = open_table(self._uri, storage_options=self._storage_options)
            self._table = (os.getpid(), opened)
        return self._table[1]

    def __getstate__(self) -> dict[str, Any]:
        """Leave handles out of the pickle: they belong to this process."""
        return {**self.__dict__, "_table": None, "_snapshot": None}


class Reader(NamedTuple):
    """One of the processes that divide a snapshot: worker `worker` of rank `rank`.

    Attributes:
        rank: The rank, counted from 0.
        world_size: The number of ranks.
        worker: The worker of the rank, counted from 0.
        workers: The number of workers of each rank.
    """

    rank: int = 0
    world_size: int = 1
    worker: int = 0
    workers: int = 1

    def parts(self, *, shuffle: bool = False) -> list[tuple[int, int] | None]:
        """Return the parts `(i, n)` that this reader reads. None is the whole snapshot.

        The parts of all readers are the n parts, each once.
        """
        each = _SHUFFLED_PARTS if shuffle else 1
        first = (self.rank * self.workers + self.worker) * each
        total = self.world_size * self.workers * each
        return [None] if total == 1 else [(first + piece, total) for piece in range(each)]

    def random(self, seed: int, epoch: int) -> np.random.Generator:
        """Return the random numbers of this reader in an epoch."""
        import numpy as np  # noqa: PLC0415 - only who shuffles needs it

        return np.random.default_rng([seed, epoch, self.rank, self.worker])


def of_size(batches: Iterable[pa.RecordBatch], size: int) -> Iterator[pa.RecordBatch]:
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


def shuffled(
    batches: Iterable[pa.RecordBatch], window: int, random: np.random.Generator
) -> Iterator[pa.RecordBatch]:
    """Order the rows of each `window` rows at random."""
    for rows in of_size(batches, window):
        yield rows.take(pa.array(random.permutation(rows.num_rows)))


class KeyRows:
    """The rows of a pinned snapshot by their number in a list of keys."""

    def __init__(
        self, pinned: PinnedSnapshot, keys: object = None, columns: Sequence[str] | None = None
    ) -> None:
        """Take the keys: an Arrow table or array, or a list for one column.

        Without `keys` these are all of the snapshot, in ascending order.

        Raises:
            InvalidInputError: The table has no primary key, or the keys lack a column of it.
        """
        snapshot = pinned.open()
        names = pinned._opened().primary_key  # noqa: SLF001 - the same module
        if not names:
            raise InvalidInputError("rows are read by key, and the table has no primary key")
        self._pinned = pinned
        self._columns = None if columns is None else list(columns)
        if keys is None:
            # In order: every process numbers the keys of a snapshot alike.
            self._keys = snapshot.scan(names, order_by=names).to_table()
        else:
            self._keys = _keys(keys, names)

    def __len__(self) -> int:
        return int(self._keys.num_rows)

    def read(self, indices: Sequence[SupportsIndex]) -> tuple[pa.RecordBatch, list[int]]:
        """Return the rows at `indices`, each once, and the row of each index.

        Raises:
            IndexError: There is no key of this number.
            InvalidInputError: A key has no row in the snapshot.
        """
        count = len(self)
        # Scalars of NumPy and PyTorch are indices too.
        numbers = map(index, indices)
        wanted = [number + count if number < 0 else number for number in numbers]
        if any(not 0 <= number < count for number in wanted):
            raise IndexError(f"there are {count} keys, asked for {list(indices)[:5]}")
        distinct = {number: row for row, number in enumerate(dict.fromkeys(wanted))}
        keys = self._keys.take(pa.array(list(distinct), pa.int64()))
        found = self._pinned.open().get(keys, self._columns, missing="raise")
        whole = found.combine_chunks()
        [rows] = whole.to_batches() or [pa.RecordBatch.from_pylist([], whole.schema)]
        return rows, [distinct[number] for number in wanted]


def _keys(keys: Any, names: list[str]) -> pa.Table:  # noqa: ANN401 - Arrow data or a list
    if hasattr(keys, "__arrow_c_stream__") and not isinstance(keys, pa.ChunkedArray):
        table = pa.table(keys)
        lacking = [name for name in names if name not in table.column_names]
        if lacking:
            raise InvalidInputError(f"the keys have no column {lacking[0]!r} of the primary key")
        return table.select(names)
    if len(names) > 1:
        raise InvalidInputError(
            f"the primary key has the columns {names}; pass the keys as an Arrow table"
        )
    is_arrow = isinstance(keys, (pa.Array, pa.ChunkedArray))
    return pa.table({names[0]: keys if is_arrow else pa.array(keys)})
