"""A table beside a dictionary of the rows that it should have, for keys of several types.

Owns: the keys, and upserts and deletes that go to both. Not here: what is checked, or when
anything is flushed (the tests).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import lancemem
    from tests.conftest import MakeTable

Key = tuple[Any, ...]

KEYS: dict[str, tuple[list[pa.Field], Callable[[int], Key]]] = {
    "int64": ([pa.field("id", pa.int64(), nullable=False)], lambda n: (n - 500,)),
    "uint8": ([pa.field("id", pa.uint8(), nullable=False)], lambda n: (n % 256,)),
    "utf8": (
        [pa.field("id", pa.string(), nullable=False)],
        lambda n: ("" if n == 0 else f"a\0{n}" * (n % 4 + 1),),
    ),
    "binary": ([pa.field("id", pa.binary(), nullable=False)], lambda n: (n.to_bytes(3, "little"),)),
    "two columns": (
        [
            pa.field("a", pa.string(), nullable=False),
            pa.field("b", pa.int32(), nullable=False),
        ],
        lambda n: (f"k{n % 30}", n // 30 - 5),
    ),
}


class KeyedRows:
    """A table of a key and a column `value`, and the rows that it should have."""

    def __init__(self, table: lancemem.Table, key: Callable[[int], Key]) -> None:
        self.table, self.key = table, key
        self.rows: dict[Key, str] = {}

    def put(self, numbers: Iterable[int], value: str, job: lancemem.Job | None = None) -> None:
        """Upsert a row for each number, through `job` where there is one."""
        new = self.replace(numbers, value)
        if job is None:
            self.table.upsert(new)
        else:
            job.put(new)

    def delete(self, numbers: Iterable[int]) -> None:
        """Delete the key of each number."""
        self.table.delete(self.forget(numbers))

    def replace(self, numbers: Iterable[int], value: str) -> pa.Table:
        """Note a row for each number, and return the rows for another writer."""
        new = {self.key(n): value for n in numbers}
        self.rows.update(new)
        return self.batch(new)

    def forget(self, numbers: Iterable[int]) -> pa.Table:
        """Note that the key of each number is gone, and return the keys."""
        gone = self.keys(numbers)
        for key in _tuples(gone):
            self.rows.pop(key, None)
        return gone

    def keys(self, numbers: Iterable[int]) -> pa.Table:
        """Give the key of each number."""
        keys = {self.key(n): "" for n in numbers}
        return self.batch(keys).drop_columns(["value"])

    def of(self, found: pa.Table) -> dict[Key, str]:
        """Return rows that were read in the form of the notes; a key that comes twice fails."""
        keys = list(_tuples(found.select(self.table.primary_key)))
        rows = dict(zip(keys, found.column("value").to_pylist(), strict=True))
        assert len(rows) == len(keys), "a key was read twice"
        return rows

    def batch(self, rows: dict[Key, str]) -> pa.Table:
        """Give rows as the table has them."""
        names = range(len(self.table.primary_key))
        columns: list[list[Any]] = [[key[place] for key in rows] for place in names]
        return pa.table([*columns, list(rows.values())], schema=pa.schema(self.table.schema))


def _tuples(table: pa.Table) -> Iterator[Key]:
    return zip(*(column.to_pylist() for column in table.columns), strict=True)


def empty_table(make_table: MakeTable, kind: str) -> tuple[lancemem.Table, Callable[[int], Key]]:
    """Create a table with a key of this kind; also gives the key of a number."""
    fields, key = KEYS[kind]
    schema = pa.schema([*fields, pa.field("value", pa.string())])
    return make_table(schema, [field.name for field in fields]), key
