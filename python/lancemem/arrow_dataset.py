"""A table or a snapshot as a `pyarrow.dataset.Dataset`, for engines that read those.

Owns the pushdown: columns and conditions go into lancemem's scan, batches come back as a stream.
Does not own the scan. Loaded by `Table.to_dataset`: `import lancemem` does not load pyarrow.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, NoReturn, SupportsIndex

import pyarrow as pa
import pyarrow.dataset as pds
import pyarrow.fs

from lancemem._lancemem import InvalidInputError
from lancemem.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lancemem._lancemem import Job, RemoteJob
    from lancemem.scan import Scan
    from lancemem.snapshot import Snapshot

    Columns = Sequence[str] | Mapping[str, pds.Expression] | None
    from typing import Any, TypeAlias

    # What pyarrow calls an expression carries no types.
    Filter: TypeAlias = Any

__all__ = ["TableDataset"]

_INSTEAD = (
    "/no files: code that reads datasets below Python cannot read a lancemem table; "
    "use pyarrow.RecordBatchReader.from_stream(table.scan())"
)


class TableDataset(pds.UnionDataset):  # type: ignore[misc]
    """Rows of a table for DuckDB, polars and pyarrow. Made by `Table.to_dataset`.

    Every scanner reads a new snapshot; over a `Snapshot` all read that one. It has no fragments and
    its rows have no order. `batch_size` limits the rows of a batch; pyarrow's other options go to
    its scanner.
    """

    def __init__(
        self,
        source: Table | Snapshot,
        *,
        consistency: str | None = None,
        jobs: Sequence[Job | RemoteJob] | None = None,
        condition: pds.Expression | None = None,
    ) -> None:
        """Wrap `source`; `consistency` and `jobs` are a table's, `condition` is for all reads."""
        # C++ and Rust code that reads a dataset, as pyarrow's and Lance's does, reads this one.
        super().__init__(source.schema, [_unreadable(source.schema)])
        self._source = source
        self._options: dict[str, Any] = {}
        if isinstance(source, Table):
            self._options = {"consistency": consistency or "durable", "jobs": jobs}
        self._condition = condition

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table."""
        return self._source.schema

    # --- reads ---

    def scanner(
        self,
        columns: Columns = None,
        filter: Filter = None,  # noqa: A002
        **options: object,
    ) -> pds.Scanner:
        """Begin a read and return its scanner, which can be read once.

        `columns` are names, or expressions by name; `filter` is an expression or SQL. Names and
        condition are pushed into lancemem's scan. A condition that Substrait cannot carry is
        applied by pyarrow to the batches of a scan of all columns.
        """
        return self._scanner(columns, filter, None, options)

    def to_batches(
        self,
        columns: Columns = None,
        filter: Filter = None,  # noqa: A002
        **options: object,
    ) -> Iterator[pa.RecordBatch]:
        """Read in batches; arguments as for `scanner`."""
        batches: Iterator[pa.RecordBatch] = self.scanner(columns, filter, **options).to_reader()
        return batches

    def to_table(
        self,
        columns: Columns = None,
        filter: Filter = None,  # noqa: A002
        **options: object,
    ) -> pa.Table:
        """Read all rows; arguments as for `scanner`."""
        return self.scanner(columns, filter, **options).to_table()

    def count_rows(self, filter: Filter = None, **options: object) -> int:  # noqa: A002
        """Count the rows that meet `filter`."""
        rows: int = self.scanner([], filter, **options).count_rows()
        return rows

    def head(
        self,
        num_rows: int,
        columns: Columns = None,
        filter: Filter = None,  # noqa: A002
        **options: object,
    ) -> pa.Table:
        """Read `num_rows` rows, whichever come first."""
        return self._scanner(columns, filter, num_rows, options).head(num_rows)

    def filter(self, expression: pds.Expression) -> TableDataset:
        """Return the dataset of the rows that meet `expression`."""
        return type(self)(self._source, condition=self._and(expression), **self._options)

    def scan(
        self,
        columns: list[str] | None,
        filter: Filter,  # noqa: A002
        limit: int | None,
    ) -> Scan:
        """Prepare lancemem's scan. Every read of the dataset comes through here."""
        return self._source.scan(columns, filter, limit, **self._options)

    def _scanner(
        self,
        columns: Columns,
        condition: Filter,
        limit: int | None,
        options: dict[str, object],
    ) -> pds.Scanner:
        condition = self._and(condition)
        # Expressions may read any column, and so may a condition that pyarrow has to apply.
        names = None if columns is None or not isinstance(columns, list) else self._names(columns)
        try:
            reader = self._reader(names, condition, limit)
        except InvalidInputError:
            if not isinstance(condition, pds.Expression):
                raise
            reader = _in_batches(self._reader(None, None, None), options)
            return pds.Scanner.from_batches(reader, columns=columns, filter=condition, **options)
        reader = _in_batches(reader, options)
        is_as_asked = columns is None or names == columns
        asked = None if is_as_asked else columns
        return pds.Scanner.from_batches(reader, columns=asked, **options)

    def _reader(
        self, columns: list[str] | None, condition: Filter, limit: int | None
    ) -> pa.RecordBatchReader:
        return self.scan(columns, condition, limit).to_reader()

    def _names(self, columns: list[str]) -> list[str]:
        """List each column once. Rows without a column lose their number in Arrow's C stream."""
        return list(dict.fromkeys(columns)) or self.schema.names[:1]

    def _and(self, condition: Filter) -> Filter:
        if self._condition is None or condition is None:
            return condition if self._condition is None else self._condition
        if isinstance(condition, str):
            message = "a filtered dataset takes further conditions as pyarrow expressions"
            raise InvalidInputError(message)
        return self._condition & condition

    # --- refused: pyarrow's own methods would read its C++ dataset, which has no rows ---

    def get_fragments(self, filter: object = None) -> NoReturn:  # noqa: A002, ARG002
        """Refuse: a key may have rows in several sources, so no part can be read alone."""
        raise _none("fragments", "scanner()")

    def _get_fragments(self, filter: object) -> NoReturn:  # noqa: A002
        self.get_fragments(filter)

    @property
    def children(self) -> NoReturn:
        """Refuse: as for fragments."""
        raise _none("children", "scanner()")

    def __reduce__(self) -> NoReturn:
        """Refuse: jobs and snapshots stay in their process."""
        raise TypeError(
            "a dataset over a lancemem table is not pickled; open the table where it is read"
        )

    @property
    def partition_expression(self) -> NoReturn:
        """Refuse: a table has shards, not partitions."""
        raise _none("a partition expression", "filter()")

    def take(self, indices: object, **options: object) -> NoReturn:  # noqa: ARG002
        """Refuse: rows have no order."""
        raise _none("row numbers", "Table.get()")

    def sort_by(self, sorting: object, **options: object) -> NoReturn:  # noqa: ARG002
        """Refuse: sort the table that was read."""
        raise _none("an order", "to_table().sort_by()")

    def join(self, *arguments: object, **options: object) -> NoReturn:  # noqa: ARG002
        """Refuse: join the table that was read, or use SQL."""
        raise _none("joins", "to_table().join() or SQL in DuckDB or DataFusion")

    def join_asof(self, *arguments: object, **options: object) -> NoReturn:  # noqa: ARG002
        """Refuse: join the table that was read."""
        raise _none("joins", "to_table().join_asof()")

    def replace_schema(self, schema: object) -> NoReturn:  # noqa: ARG002
        """Refuse: the schema is the table's."""
        raise _none("another schema", "to_table().cast()")


def _unreadable(schema: pa.Schema) -> pds.Dataset:
    """Make a dataset of a missing file, whose name is the hint that its error shows.

    A file system in Python could raise a better error. But pyarrow's scanner holds the GIL while
    its threads open files: a deadlock.
    """
    format_ = pds.IpcFileFormat()
    file = format_.make_fragment(_INSTEAD, pyarrow.fs.LocalFileSystem())
    return pds.FileSystemDataset([file], schema, format_)


def _in_batches(reader: pa.RecordBatchReader, options: dict[str, object]) -> pa.RecordBatchReader:
    """Split batches that are too large; pyarrow passes the batches of a reader on as they are."""
    given = options.get("batch_size")
    if not isinstance(given, SupportsIndex):
        return reader
    size = operator.index(given)
    if size < 1:
        raise InvalidInputError(f"batch_size must be at least 1, got {size}")
    parts = (
        batch.slice(start, size) for batch in reader for start in range(0, batch.num_rows, size)
    )
    return pa.RecordBatchReader.from_batches(reader.schema, parts)


def _none(what: str, instead: str) -> NotImplementedError:
    return NotImplementedError(f"a dataset over a lancemem table has no {what}; use {instead}")
