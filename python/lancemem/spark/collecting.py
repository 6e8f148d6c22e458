"""Rows of a DataFrame on the driver.

Owns what makes Spark give rows that it has. How many may come is `sizing` and the caller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import types as st

if TYPE_CHECKING:
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
        rows[f"`{name.replace('`', '``')}`"].cast(kind).alias(name)
        for name, kind in zip(rows.columns, loose, strict=True)
    ]
    return rows.select(*columns).toArrow()


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
