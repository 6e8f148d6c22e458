"""Vectors in a table, brute force beside a search, and table indexes that pylance makes.

Owns: rows with vectors, the distances that a search has to report, and the comparison with them.
Not here: the tables, or what is searched (the tests).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import lance
import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import lancemem

Vector = Any  # an array of numpy
Key = Any
Metric = Literal["l2", "cosine", "dot", "hamming"]

WIDTH = 8
METRICS: tuple[Metric, ...] = ("l2", "cosine", "dot")
# Of float32 beside float64. Where terms cancel, the error is relative to the terms.
RELATIVE = 1e-5

FLOATS = {
    "float16": (pa.float16(), np.float16),
    "float32": (pa.float32(), np.float32),
    "float64": (pa.float64(), np.float64),
}


def schema_of(*more: pa.Field, width: int = WIDTH, value: pa.DataType | None = None) -> pa.Schema:
    """Give the columns of most tests: a key, a tag, a vector, and `more`."""
    vectors = pa.list_(pa.float32() if value is None else value, width)
    id_field = pa.field("id", pa.int64(), nullable=False)
    return pa.schema([id_field, pa.field("tag", pa.int64()), pa.field("vec", vectors), *more])


def array_of(vectors: Sequence[Vector | None], kind: pa.DataType) -> pa.Array:
    """Make a column of vectors, some of which may be null."""
    width, value = kind.list_size, kind.value_type
    none = np.zeros(width)
    flat = [none if vector is None else np.asarray(vector) for vector in vectors]
    values = np.stack(flat) if flat else np.zeros((0, width))
    mask = pa.array([vector is None for vector in vectors], pa.bool_())
    made = pa.array(values.astype(value.to_pandas_dtype()).ravel(), value)
    return pa.FixedSizeListArray.from_arrays(made, type=kind, mask=mask)


def rows_of(
    ids: Iterable[Key], vectors: Sequence[Vector | None], schema: pa.Schema | None = None
) -> pa.Table:
    """Make rows; the tag of a row is its number modulo 4."""
    schema = schema_of() if schema is None else schema
    ids = list(ids)
    tags = pa.array([number % 4 for number in range(len(ids))], pa.int64())
    columns = {"id": pa.array(ids, schema.field("id").type), "tag": tags}
    columns["vec"] = array_of(vectors, schema.field("vec").type)
    return pa.table(columns, schema=schema)


def random_vectors(random: np.random.Generator, count: int, width: int = WIDTH) -> Vector:
    """Draw vectors whose distances hardly ever tie."""
    return random.normal(size=(count, width)).astype(np.float32)


def whole_vectors(random: np.random.Generator, count: int, width: int = WIDTH) -> Vector:
    """Draw vectors of small whole numbers: their l2 and dot distances are exact, and often tie."""
    return random.integers(-3, 4, (count, width)).astype(np.float32)


def distances(query: Vector, vectors: Vector, metric: str) -> Vector:
    """Compute the distance of each vector in float64; NaN where it has none."""
    query, vectors = np.asarray(query, np.float64), np.asarray(vectors, np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        if metric == "l2":
            return ((vectors - query) ** 2).sum(axis=1)
        if metric == "dot":
            return 1 - vectors @ query
        norms = np.linalg.norm(vectors, axis=1) * np.linalg.norm(query)
        return 1 - (vectors @ query) / norms


def tolerance(query: Vector, metric: str, among: Sequence[Vector]) -> float:
    """Give the absolute error that float32 may leave where terms cancel."""
    if metric == "cosine":
        return RELATIVE
    finite = [vector for vector in among if np.isfinite(vector).all()]
    longest = max((float(np.linalg.norm(vector)) for vector in finite), default=0.0)
    length = float(np.linalg.norm(np.asarray(query, np.float64)))
    return RELATIVE * (longest + length) ** 2 if metric == "l2" else RELATIVE * longest * length


def brute_force(
    model: Mapping[Key, Vector | None], query: Vector, k: int, metric: str = "l2"
) -> list[tuple[Key, float]]:
    """Return the k nearest keys with their distances, equal distances by key."""
    held = {key: vector for key, vector in model.items() if vector is not None}
    if not held:
        return []
    found = distances(query, np.stack(list(held.values())), metric)
    pairs = [
        (float(distance), key)
        for key, distance in zip(held, found, strict=True)
        if not np.isnan(distance)
    ]
    return [(key, distance) for distance, key in sorted(pairs)[:k]]


def found_by(scan: Any, key: str | Sequence[str] = "id") -> list[tuple[Key, float]]:  # noqa: ANN401
    """Read a search: the keys and distances, in order."""
    table = scan.to_table()
    names = [key] if isinstance(key, str) else list(key)
    columns = [table[name].to_pylist() for name in names]
    keys = columns[0] if isinstance(key, str) else list(zip(*columns, strict=True))
    return list(zip(keys, table["_distance"].to_pylist(), strict=True))


def check_exact(
    found: list[tuple[Key, float]],
    model: Mapping[Key, Vector | None],
    query: Vector,
    k: int,
    metric: str = "l2",
) -> None:
    """Compare a search with brute force; keys may change places within the error of float32."""
    expected = brute_force(model, query, k, metric)
    check_true(found, model, query, metric)
    assert len(found) == len(expected)
    held = [vector for vector in model.values() if vector is not None]
    reported: Any = [distance for _, distance in found]
    np.testing.assert_allclose(
        reported,
        [distance for _, distance in expected],
        rtol=RELATIVE,
        atol=tolerance(query, metric, held),
    )


def check_true(
    found: list[tuple[Key, float]],
    model: Mapping[Key, Vector | None],
    query: Vector,
    metric: str = "l2",
) -> None:
    """Check that rows are the newest ones, with their distances, each once and in order."""
    keys = [key for key, _ in found]
    assert len(set(keys)) == len(keys), "a row was found twice"
    gone = [key for key in keys if model.get(key) is None]
    assert gone == [], "rows were found that are deleted or have no vector"
    reported: Any = [distance for _, distance in found]
    assert reported == sorted(reported)
    if not found:
        return
    vectors: Any = [model[key] for key in keys]
    np.testing.assert_allclose(
        reported,
        distances(query, np.stack(vectors), metric),
        rtol=RELATIVE,
        atol=tolerance(query, metric, vectors),
        err_msg="the distance is that of an older row",
    )


def add_index(
    table: lancemem.Table,
    kind: str = "IVF_PQ",
    metric: str = "l2",
    column: str = "vec",
    **more: Any,  # noqa: ANN401 - whatever pylance takes
) -> None:
    """Make a table index on the base table by pylance."""
    options: dict[str, Any] = {"num_partitions": 2}
    if kind.endswith("PQ"):
        options["num_sub_vectors"] = 4
    base_of(table).create_index(column, kind, metric=metric, replace=True, **options | more)


def base_of(table: lancemem.Table) -> Any:  # noqa: ANN401 - pylance has types of its own
    """Open the base table with pylance."""
    return lance.dataset(table.uri)


def optimize_indices(table: lancemem.Table) -> None:
    """Let pylance bring new rows of the base table into its indexes."""
    base_of(table).optimize.optimize_indices()


def compact_files(table: lancemem.Table) -> None:
    """Let pylance rewrite the fragments of the base table."""
    base_of(table).optimize.compact_files()


def to_base(table: lancemem.Table) -> None:
    """Move every row into the base table."""
    table.compact(flush=True)


def on_every_level(table: lancemem.Table, parts: Sequence[pa.Table]) -> None:
    """Write three parts, oldest first: into the base table, an SSTable and the log."""
    base, sstable, log = parts
    table.upsert(base)
    to_base(table)
    table.upsert(sstable)
    table.flush()
    table.upsert(log)
