"""Rows in any form that a Python program has, as Arrow.

Owns the accepted forms beside Arrow's own protocols: frames, datasets, dicts, iterables of dicts
and of batches, and the errors of all others. Does not own casts to a table's columns: the engine
makes them. The extension calls `to_table` for data without an Arrow protocol. Loaded at the first
such call: `import lancemem` does not load pyarrow. Neither pandas nor polars is imported here; a
program that has a frame has imported its library.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from os import PathLike
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from lancemem._lancemem import InvalidInputError

if TYPE_CHECKING:
    from lancemem._lancemem import _Rows

__all__ = ["is_schema", "is_stream", "spooled", "to_reader", "to_table"]

_FORMS = (
    "expected Arrow data (an object with __arrow_c_stream__ or __arrow_c_array__, such as a "
    "pyarrow table, a pandas or a polars frame), a pyarrow dataset, a list of dicts, a dict of "
    "columns or an iterable of batches, got "
)
_FILE = "; read the file first: pyarrow.dataset.dataset(path), or a frame of pandas or polars"
_EMPTY = (
    "the {} is empty, so its columns are not known; pass an Arrow table without rows, or to "
    "create_table a schema"
)
# Metadata of pandas describes an index, which a table does not have.
_PANDAS = b"pandas"
_MIXED = (ValueError, TypeError, OverflowError, KeyError)


def is_schema(data: object) -> bool:
    """Whether `data` describes columns and has no rows."""
    return hasattr(data, "__arrow_c_schema__") and not _is_arrow(data)


def is_stream(data: object) -> bool:
    """Whether the rows of `data` need not be in memory, and may come once."""
    if type(data).__module__.partition(".")[0] in _FRAMES:
        return False
    return not isinstance(data, (pa.Table, pa.RecordBatch, Mapping, list, tuple))


def spooled(
    rows: Iterable[pa.RecordBatch], schema: pa.Schema, path: str
) -> Iterator[pa.RecordBatch]:
    """Read all rows into a file now, and return them from there one by one."""
    with pa.OSFile(path, "wb") as file, pa.ipc.new_stream(file, schema) as stream:
        for batch in rows:
            stream.write_batch(batch)
    return _spool(path)


def _spool(path: str) -> Iterator[pa.RecordBatch]:
    with pa.OSFile(path, "rb") as file, pa.ipc.open_stream(file) as stream:
        yield from stream


def to_table(data: _Rows) -> pa.Table:
    """Read `data` to its end. An error of an iterable that the caller wrote keeps its type."""
    return to_reader(data).read_all()


def to_reader(data: _Rows) -> pa.RecordBatchReader:
    """Return `data` as a stream of batches, which reads no further than it is asked to.

    Raises:
        InvalidInputError: `data` has none of the accepted forms, or no rows from which the columns
            could be learned.
    """
    library = type(data).__module__.partition(".")[0]
    if library in _FRAMES:
        return _FRAMES[library](data)
    if _is_arrow(data):
        return _of_arrow(data)
    if hasattr(data, "to_reader") or hasattr(data, "scanner"):
        scanner: Any = data if hasattr(data, "to_reader") else cast("Any", data).scanner()
        return scanner.to_reader()
    if isinstance(data, Mapping) and data:
        return _of_table(_of_columns(data))
    if isinstance(data, Iterable) and not isinstance(data, (str, bytes)):
        return _of_items(iter(data), type(data).__name__)
    way_out = _FILE if isinstance(data, (str, PathLike)) else ""
    raise InvalidInputError(_FORMS + type(data).__name__ + way_out)


def _is_arrow(data: object) -> bool:
    return hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__")


def _of_arrow(data: object) -> pa.RecordBatchReader:
    if hasattr(data, "__arrow_c_stream__"):
        return _made(pa.RecordBatchReader.from_stream, data)
    return _of_table(pa.Table.from_batches([_made(pa.record_batch, data)]))


def _of_table(table: pa.Table) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(table.schema, table.to_batches())


def _of_pandas(frame: Any) -> pa.RecordBatchReader:  # noqa: ANN401 - a frame of pandas
    """Take the levels of an index that have names as columns, and leave out an index without."""
    if not hasattr(frame, "columns"):
        raise InvalidInputError(f"{_FORMS}{type(frame).__name__}; make a frame with to_frame()")
    is_named = any(name is not None for name in frame.index.names)
    table = _made(pa.Table.from_pandas, frame, preserve_index=is_named)
    metadata = dict(table.schema.metadata or {})
    metadata.pop(_PANDAS, None)
    return _of_table(table.replace_schema_metadata(metadata or None))


def _of_polars(frame: Any) -> pa.RecordBatchReader:  # noqa: ANN401 - a frame of polars
    """Collect a lazy frame. Text becomes `large_string`, not the views that polars has inside."""
    frame = frame.collect() if hasattr(frame, "collect") else frame
    if not hasattr(frame, "columns"):
        raise InvalidInputError(f"{_FORMS}{type(frame).__name__}; make a frame with to_frame()")
    return _of_table(frame.to_arrow())


_FRAMES = {"pandas": _of_pandas, "polars": _of_polars}


def _of_items(items: Iterator[Any], form: str) -> pa.RecordBatchReader:
    """Read rows from dicts, or a stream from parts that are Arrow data themselves."""
    first = next(items, None)
    if first is None:
        raise InvalidInputError(_EMPTY.format(form))
    if isinstance(first, Mapping):
        return _of_table(_of_dicts([first, *items]))
    if not _is_arrow(first):
        raise InvalidInputError(f"{_FORMS}{form} of {type(first).__name__}")
    start = to_reader(first)
    return pa.RecordBatchReader.from_batches(
        start.schema, chain(start, _batches(items, start.schema))
    )


def _batches(parts: Iterator[Any], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for number, part in enumerate(parts, 1):
        if not _is_arrow(part):
            raise InvalidInputError(
                f"part {number} of the rows is {type(part).__name__}, not Arrow"
            )
        reader = to_reader(part)
        if not reader.schema.equals(schema):
            raise InvalidInputError(
                f"part {number} of the rows has the columns {_columns(reader.schema)}, part 0 has "
                f"{_columns(schema)}; give all parts one schema"
            )
        yield from reader


def _of_columns(columns: Mapping[Any, Any]) -> pa.Table:
    """Read a dict of columns. An array of two dimensions is a column of vectors."""
    for name, values in columns.items():
        if isinstance(values, (str, bytes, int, float)) or values is None:
            raise InvalidInputError(
                f"column {name!r} is {type(values).__name__}: a dict of columns has a list for "
                "each; put a dict that is one row into a list: [row]"
            )
    made = {name: _vectors(name, values) for name, values in columns.items()}
    return _made(pa.table, made)


def _vectors(name: object, values: Any) -> Any:  # noqa: ANN401 - a column in any form
    """Return an array of two dimensions as vectors of one width, and any other column as it is."""
    dimensions = getattr(values, "ndim", 1)
    if dimensions == 1 or not hasattr(values, "__array__"):
        return values
    if dimensions != 2 or values.shape[1] == 0:  # noqa: PLR2004 - rows and their numbers
        raise InvalidInputError(
            f"column {name!r} is an array of shape {tuple(values.shape)}; a column has one value a "
            "row, or one vector: reshape it to (rows, width)"
        )
    import numpy as np  # noqa: PLC0415 - it is loaded where such an array is

    items = _made(pa.array, np.asarray(values).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(items, values.shape[1])


def _of_dicts(rows: list[Any]) -> pa.Table:
    names = rows[0].keys()
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise InvalidInputError(f"row {number} is {type(row).__name__}, row 0 is a dict")
        if row.keys() != names:
            name = next(iter(names ^ row.keys()))
            lacks, has = (number, 0) if name in names else (0, number)
            raise InvalidInputError(
                f"row {lacks} has no value for {name!r}, row {has} has; give all rows the same "
                "keys, with None where there is no value"
            )
    return _made(pa.table, {name: _column(name, [row[name] for row in rows]) for name in names})


def _column(name: object, values: list[Any]) -> pa.Array:
    """Return the values of a column; a refusal names it, and the first row that is not as row 0."""
    try:
        return pa.array(values)
    except _MIXED as error:
        kinds = [type(value) for value in values]
        known = [kind for kind in kinds if kind is not type(None)]
        row = next((row for row, kind in enumerate(kinds) if kind is not known[0]), 0)
        told = f" (row {row} is {kinds[row].__name__})" if known and row else ""
        raise InvalidInputError(
            f"column {name!r} could not be read as Arrow{told}: {error}; pass an Arrow table with "
            "the types of its columns"
        ) from error


def _made(make: Any, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401
    """Call pyarrow; its refusal of the data becomes lancemem's."""
    try:
        return make(*arguments, **options)
    except OverflowError as error:
        raise InvalidInputError(
            f"the rows could not be read as Arrow: {error}; pass an Arrow table with the types of "
            "its columns"
        ) from error
    except _MIXED as error:
        one = "; a single vector is a column of one row: vector[None, :]"
        way = one if "expected length" in str(error) else ""
        raise InvalidInputError(f"the rows could not be read as Arrow: {error}{way}") from error


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)
