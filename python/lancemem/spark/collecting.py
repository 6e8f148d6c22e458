"""Rows of a DataFrame as Arrow, on the driver and in tasks.

Owns what makes Spark give rows that it has, whatever their columns are called. How many may come
is `sizing` and the caller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import types as st

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame


def to_arrow(rows: DataFrame) -> pa.Table:
    """Collect a DataFrame.

    Spark's own `toArrow` refuses a null whose parts are never null, as of a struct made by IF.
    """
    loose = [_nullable(field.dataType) for field in rows.schema.fields]
    if all(to == field.dataType for to, field in zip(loose, rows.schema.fields, strict=True)):
        return rows.toArrow()
    columns = [
        rows[quoted(name)].cast(kind).alias(name)
        for name, kind in zip(rows.columns, loose, strict=True)
    ]
    return rows.select(*columns).toArrow()


def map_in_arrow(
    rows: DataFrame,
    function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    schema: st.StructType | str,
) -> DataFrame:
    """Let tasks make other rows of these.

    Spark's own `mapInArrow` takes a dot in a name for the way into a struct.
    """
    names = rows.columns
    if not any("." in name or "`" in name for name in names):
        return rows.mapInArrow(function, schema)

    def named(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from function(batch.rename_columns(names) for batch in batches)

    return rows.toDF(*map(str, range(len(names)))).mapInArrow(named, schema)


def quoted(name: str) -> str:
    """Return a column's name as Spark's words for columns have it: a dot is part of it."""
    return f"`{name.replace('`', '``')}`"


def _nullable(kind: st.DataType) -> st.DataType:
    """Return the same type with parts that may be null."""
    if isinstance(kind, st.StructType):
        parts = [
            st.StructField(part.name, _nullable(part.dataType), metadata=part.metadata)
            for part in kind.fields
        ]
        return st.StructType(parts)
    if isinstance(kind, st.ArrayType):
        return st.ArrayType(_nullable(kind.elementType))
    if isinstance(kind, st.MapType):
        return st.MapType(kind.keyType, _nullable(kind.valueType))
    return kind
