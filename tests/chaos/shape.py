"""The table of a round: its settings, its keys and its rows, all drawn from the seed.

Owns: the properties of a round's table and which keys form a group. Does not own: the writers.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import lance
import pyarrow as pa

import lancemem

from .oracle import GROUPS, KEYS_PER_GROUP

if TYPE_CHECKING:
    from collections.abc import Sequence

Key: TypeAlias = tuple[Any, ...]
# A key, its group, the number of the operation and a text of the two.
Row: TypeAlias = tuple[Key, int, int, str]

CANDIDATES = 4_000
FIRST_FOREIGN = 10_000_000
# The group of a row that pylance writes.
FOREIGN_GROUP = -1
KEY_TYPES = {"int": pa.int64(), "text": pa.string(), "bytes": pa.binary()}
PRIMARY_KEY = {b"lance-schema:unenforced-primary-key": b"true"}
LANCE_OPTIONS: tuple[dict[str, Any] | None, ...] = (
    None,
    None,
    {"enable_stable_row_ids": True},
    {"data_storage_version": "2.0"},
    {"data_storage_version": "2.2"},
    {"enable_v2_manifest_paths": False},
)


@dataclass(frozen=True)
class Shape:
    """The properties of a table that the seed decides.

    Attributes:
        key: `int`, `text`, `bytes`, or `pair` for a key of two columns.
        shards: How many shards there are.
        deletion_vectors: Whether the table is in deletion-vector mode.
        record_index: Whether it has a record index.
        lance_options: Of `lance.write_dataset`, where pylance makes the table; None where
            lancemem does.
        memtable_rows: Rows at which a MemTable is flushed.
        fsync: Whether jobs sync.
        changes_columns: Whether pylance adds and drops columns.
        cleans_up: Whether pylance removes old versions.
        restores: Whether pylance restores old versions.
        max_dead_share: Of compactions.
    """

    key: str
    shards: int
    deletion_vectors: bool
    record_index: bool
    lance_options: dict[str, Any] | None
    memtable_rows: int
    fsync: bool
    changes_columns: bool
    cleans_up: bool
    restores: bool
    max_dead_share: float

    @property
    def key_columns(self) -> list[str]:
        """Name the key columns."""
        return ["k1", "k2"] if self.key == "pair" else ["k"]

    @property
    def schema(self) -> pa.Schema:
        """Give the columns that the table begins with."""
        if self.key == "pair":
            keys = [("k1", pa.int32()), ("k2", pa.string())]
        else:
            keys = [("k", KEY_TYPES[self.key])]
        return pa.schema(
            [
                *(pa.field(name, of, nullable=False) for name, of in keys),
                pa.field("g", pa.int32()),
                pa.field("n", pa.int64()),
                pa.field("text", pa.string()),
            ]
        )

    def key_of(self, number: int) -> Key:
        """Give a key; the numbers of a table give different ones."""
        if self.key == "int":
            return (number if number % 3 else number - (1 << 62),)
        if self.key == "text":
            return (f"k{number}" if number % 3 else f"é\x00{number}" + "z" * (number % 40),)
        if self.key == "bytes":
            return (b"\x00\xff" * (number % 5) + str(number).encode(),)
        return number % 5, f"s{number}"

    def foreign_key(self, number: int) -> Key:
        """Give the key of a row that pylance writes."""
        key = FIRST_FOREIGN + number
        if self.key == "int":
            return (key,)
        if self.key == "text":
            return (f"F{key}",)
        if self.key == "bytes":
            return (b"F%d" % key,)
        return key, "F"

    def condition(self, number: int) -> str:
        """Give an SQL condition that only this row of pylance's meets."""
        key = self.foreign_key(number)[0]
        if self.key == "pair":
            return f"k1 = {key}"
        if self.key == "int":
            return f"k = {key}"
        return f"k = '{key}'" if self.key == "text" else f"k = X'{key.hex()}'"

    def rows(self, rows: Sequence[Row]) -> pa.Table:
        """Give rows as a table of `schema`."""
        columns = [[row[0][place] for row in rows] for place in range(len(self.key_columns))]
        columns += [[row[place] for row in rows] for place in (1, 2, 3)]
        arrays = [pa.array(it, of.type) for it, of in zip(columns, self.schema, strict=True)]
        return pa.table(arrays, schema=self.schema)

    def keys(self, keys: Sequence[Key]) -> pa.Table:
        """Give keys as a table."""
        schema = pa.schema([self.schema.field(name) for name in self.key_columns])
        columns = [[key[place] for key in keys] for place in range(len(schema))]
        arrays = [pa.array(it, of.type) for it, of in zip(columns, schema, strict=True)]
        return pa.table(arrays, schema=schema)

    def read(self, table: pa.Table) -> list[Row]:
        """Give the rows of a table that was read."""
        keys = zip(*(table.column(name).to_pylist() for name in self.key_columns), strict=True)
        rest = (table.column(name).to_pylist() for name in ("g", "n", "text"))
        return list(zip(keys, *rest, strict=True))


def draw(seed: str) -> Shape:
    """Draw the shape of a round's table."""
    chance = random.Random(f"shape {seed}")  # noqa: S311 - a fixed seed is the point
    key = chance.choice(["int", "int", "text", "bytes", "pair"])
    changes_columns = chance.random() < 0.4
    return Shape(
        key=key,
        # Text and integers shard; bytes do not.
        shards=1 if key == "bytes" else chance.choice([1, 2, 3]),
        deletion_vectors=chance.random() < 0.5,
        record_index=chance.random() < 0.5,
        lance_options=chance.choice(LANCE_OPTIONS),
        memtable_rows=chance.choice([12, 40, 150]),
        fsync=chance.random() < 0.3,
        changes_columns=changes_columns,
        cleans_up=chance.random() < 0.5,
        # This layer does not test the columns of old versions.
        restores=not changes_columns and chance.random() < 0.4,
        max_dead_share=chance.choice([0.0, 0.3, 0.5, 1.0]),
    )


def make(uri: str, shape: Shape) -> None:
    """Make the table, by lancemem or by pylance according to the shape."""
    column = "k2" if shape.key == "pair" else "k"
    sharding = lancemem.unsharded() if shape.shards == 1 else lancemem.bucket(column, shape.shards)
    if shape.lance_options is None:
        table = lancemem.create_table(
            uri, shape.schema, primary_key=shape.key_columns, sharding=sharding
        )
    else:
        fields = [
            each.with_metadata(PRIMARY_KEY) if each.name in shape.key_columns else each
            for each in shape.schema
        ]
        lance.write_dataset(pa.schema(fields).empty_table(), uri, **shape.lance_options)
        table = lancemem.enable(uri, sharding=sharding)
    if shape.deletion_vectors:
        table.alter(deletion_vectors=True)
    if shape.record_index:
        table.create_record_index()


def text_of(group: int, number: int) -> str:
    """Return the text that an operation puts into its rows."""
    return f"{group}:{number}:" + "x" * ((group * 7 + number) % 60)


@dataclass(frozen=True)
class Layout:
    """Which keys form a group, and in which shard they are."""

    shards: tuple[int, ...]
    keys: tuple[tuple[Key, ...], ...]
    every_key: tuple[Key, ...] = field(repr=False)


def layout(table: lancemem.Table, shape: Shape) -> Layout:
    """Form the groups: the keys of a group are in one shard."""
    candidates = [shape.key_of(number) for number in range(CANDIDATES)]
    ordinals = [0] * CANDIDATES
    if shape.shards > 1:
        ordinals = pa.array(table.shard_ordinals(shape.keys(candidates))).to_pylist()
    by_shard: list[list[Key]] = [[] for _ in range(shape.shards)]
    for key, ordinal in zip(candidates, ordinals, strict=True):
        by_shard[ordinal].append(key)
    shards, groups = [], []
    for group in range(GROUPS):
        shard, turn = group % shape.shards, group // shape.shards
        shards.append(shard)
        groups.append(tuple(by_shard[shard][turn * KEYS_PER_GROUP :][:KEYS_PER_GROUP]))
    return Layout(tuple(shards), tuple(groups), tuple(key for keys in groups for key in keys))
