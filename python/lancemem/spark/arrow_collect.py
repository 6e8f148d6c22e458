"""Rows of a DataFrame as Arrow, on the driver and in tasks.

Owns the collection of rows whatever their columns are called, and the limit on the bytes that the
driver collects. Does not own which DataFrames are collected: see `size_estimate` and the callers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import types as st

from lancemem.spark.size_estimate import quoted, width

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame

# A row counts as one unit, and as one more for each `UNIT_BYTES` of it.
UNIT_BYTES = 128


def to_arrow(rows: DataFrame) -> pa.Table:
    """Collect a DataFrame.

    Spark's own `toArrow` refuses a null whose parts are never null, such as a struct made by IF.
    """
    loose = [_nullable(field.dataType) for field in rows.schema.fields]
    if all(to == field.dataType for to, field in zip(loose, rows.schema.fields, strict=True)):
        return rows.toArrow()
    columns = [
        rows[quoted(name)].cast(kind).alias(name)
        for name, kind in zip(rows.columns, loose, strict=True)
    ]
    return rows.select(*columns).toArrow()


def to_arrow_within(rows: DataFrame, most_bytes: int) -> pa.Table | None:
    """Collect a DataFrame of at most about `most_bytes` bytes; None for a larger one.

    Spark's estimate is not used: it counts the compressed bytes of a file. Spark's `limit` counts
    rows, so each row is preceded by as many empty rows as it has units of bytes. The limit then
    ends tasks before the row that exceeds the bound. The plan runs once; rows collected in vain are
    dropped.
    """
    most = most_bytes // UNIT_BYTES
    names = [f"c{place}" for place in range(len(rows.columns))]
    kinds = [field.dataType for field in rows.schema.fields]
    widths = [width(name, kind) for name, kind in zip(names, kinds, strict=True)]
    known = [each for each in widths if each is not None]
    if most == 0 or len(known) < len(widths):
        return None
    # Rows keep their order: the last row of a key wins.
    counted = rows.toDF(*names).selectExpr(
        "*",
        "monotonically_increasing_id() as place",
        f"cast(least(({' + '.join(['0L', *known])}) / {UNIT_BYTES}, {most}D) as int) as units",
    )
    filled = counted.selectExpr("*", "explode(sequence(units, 0, -1)) as unit")
    # A row that alone exceeds the bound is not copied again by the tasks.
    is_row = f"unit = 0 and units < {most}"
    values = [f"if({is_row}, {name}, null) as {name}" for name in names]
    found = to_arrow(filled.selectExpr(*values, "place", f"{is_row} as is_row").limit(most))
    if found.num_rows == most:
        return None
    found = found.filter(found["is_row"]).sort_by("place").drop_columns(["place", "is_row"])
    return found.rename_columns(rows.columns)


def map_in_arrow(
    rows: DataFrame,
    function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    schema: st.StructType | str,
) -> DataFrame:
    """Let tasks transform the rows of a DataFrame as Arrow batches.

    Spark's own `mapInArrow` reads a dot in a column name as the path into a struct.
    """
    names = rows.columns
    if not any("." in name or "`" in name for name in names):
        return rows.mapInArrow(function, schema)

    def named(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from function(batch.rename_columns(names) for batch in batches)

    return rows.toDF(*map(str, range(len(names)))).mapInArrow(named, schema)


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
