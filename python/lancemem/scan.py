"""`Scan`: a read that has not begun, with the forms of its result.

Owns what a scan is in Python beyond the extension: its pickle, its preview, a reader of pyarrow.
Does not own the read.
"""

from __future__ import annotations

import reprlib
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from lancemem import _lancemem, preview
from lancemem.other_names import way_of_scan

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from lancemem.snapshot import Snapshot
    from lancemem.table import Table

__all__ = ["Scan"]

_Method = Literal["scan", "search", "sql"]

# Arguments that a description leaves out where they have these values.
_PLAIN = {
    "offset": 0,
    "consistency": "durable",
    "prefilter": True,
    "k": 10,
    "exact": False,
    "fast_search": False,
}


class Scan(_lancemem.Scan):
    """A read that has not begun. Each call reads a snapshot of its own, unless of a `Snapshot`.

    A scan has `__arrow_c_stream__`, so what reads Arrow reads it; iterating over it reads batches.
    It can be pickled: another process opens the table and describes the same read. That read of a
    table takes a snapshot of its own. A "live" scan cannot be pickled, because its jobs stay in
    their process.

    Example:
        scan = table.scan(["id", "delay"], "delay > 15")
        scan.to_pandas()
    """

    _source: Table | Snapshot
    _arguments: dict[str, Any]
    # The method of the source that describes the read.
    _method: _Method

    @classmethod
    def _of(
        cls,
        handle: _lancemem.Scan,
        source: Table | Snapshot,
        arguments: dict[str, Any],
        method: _Method = "scan",
    ) -> Scan:
        scan = cls(handle)
        scan._source, scan._arguments, scan._method = source, arguments, method
        return scan

    def to_reader(self) -> pa.RecordBatchReader:
        """Start the read and return it as a reader of pyarrow, which can be read once.

        Errors that occur while it is read are pyarrow's. `to_batches` keeps lancemem's.

        Returns:
            A reader, which fetches batches while it is read.

        Raises:
            InvalidInputError: The columns are not in the table, or the condition is not valid.

        Example:
            with table.scan().to_reader() as reader:
                pyarrow.dataset.write_dataset(reader, "copy", format="parquet")
        """
        import pyarrow as pa  # noqa: PLC0415 - `import lancemem` does not load it

        return pa.RecordBatchReader.from_stream(super().to_reader())

    def __repr__(self) -> str:
        source = f'"{self._source.uri}"' if hasattr(self._source, "uri") else repr(self._source)
        given = [
            f"{name}={_shown(name, value)}"
            for name, value in self._given().items()
            if name != "jobs"
        ]
        return f"Scan({', '.join([source, *given])})"

    def _repr_html_(self) -> str:
        if self._method != "scan":
            return preview.of_rows(repr(self), self._first(preview.ROWS))
        limit = min(preview.ROWS, self._arguments["limit"] or preview.ROWS)
        first = self._source.scan(**{**self._arguments, "limit": limit}).to_table()
        return preview.of_rows(repr(self), first)

    def _first(self, rows: int) -> pa.Table:
        """Read batches until they have `rows` rows, which a query cannot be told to stop at."""
        import pyarrow as pa  # noqa: PLC0415 - `import lancemem` does not load it

        read, batches = 0, []
        with self.to_reader() as reader:
            for batch in reader:
                batches.append(batch)
                read += batch.num_rows
                if read >= rows:
                    break
            return pa.Table.from_batches(batches, reader.schema)

    def __reduce__(self) -> tuple[Callable[..., Scan], tuple[Any, ...]]:
        """Pickle the source and the arguments."""
        if self._arguments.get("consistency") == "live":
            raise TypeError(
                "a scan with consistency='live' cannot be pickled: its jobs stay in their process; "
                "serve them (Job.serve) and scan there"
            )
        return _scanned, (self._source, self._arguments, self._method)

    def _given(self) -> dict[str, Any]:
        """Return the arguments without those that change nothing."""
        return {
            name: value
            for name, value in self._arguments.items()
            # An expression of pyarrow cannot be compared.
            if value is not None and not (name in _PLAIN and value == _PLAIN[name])
        }

    if not TYPE_CHECKING:  # A type checker reports unknown names itself.

        def __getattr__(self, name: str) -> NoReturn:
            """Name the way for a name of a query of lancedb."""
            raise AttributeError(way_of_scan(name), name=name, obj=self)


def _shown(name: str, value: object) -> str:
    """Describe an argument; vectors have hundreds of numbers."""
    if name not in {"query", "nearest"} or isinstance(value, str):
        return repr(value)
    return " ".join(reprlib.repr(value).split())


def _scanned(source: Table | Snapshot, arguments: dict[str, Any], method: _Method) -> Scan:
    scan: Scan = getattr(source, method)(**arguments)
    return scan
