"""Rows that meet a condition: their keys, and the rows that an update makes of them.

Owns: the reads of `delete` and `update` with a condition, whose conditions and values are Spark's
SQL. Does not own the write: the rows are written by key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as sf

import lancemem
from lancemem.rule_calls import is_partial, refuse_assignments, sequence_columns
from lancemem.spark.arrow_types import spark_arrow_schema, spark_schema
from lancemem.spark.assignment import Target, assigned
from lancemem.spark.size_estimate import quoted

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from pyspark.sql import DataFrame

    from lancemem.spark.table import LancememTable


def keys_where(table: LancememTable, condition: Column | str) -> DataFrame:
    """Read the keys of the rows that meet a condition."""
    key = table.primary_key
    read = {*key, *_columns_of(table.toDF(), condition)}
    rows = table.toDF([name for name in table.schema.names if name in read])
    return rows.where(condition).select(*map(quoted, key))


def updated_rows(
    table: LancememTable,
    condition: Column | str | None,
    values: Mapping[str, Column | str],
    *,
    round_floats: bool,
) -> DataFrame:
    """Read the rows that meet a condition, with new values in the columns that `values` names.

    In a table with `merge_engine="partial_update"` the rows have the key and these columns alone.
    """
    schema = pa.schema(table.schema)
    if not values:
        raise lancemem.InvalidInputError("an update needs at least one column to set")
    for name in values:
        if name in table.primary_key:
            raise lancemem.InvalidInputError(
                f"key column {name!r} cannot be updated: delete the row and insert another"
            )
        if name not in schema.names:
            raise lancemem.InvalidInputError(f"table {table.uri} has no column {name!r}")
    refuse_assignments(table.handle, list(values))
    refuse_cut_sequence(table, values)
    if is_partial(table.handle):
        given = [name for name in schema.names if name in table.primary_key or name in values]
        schema = pa.schema([schema.field(name) for name in given])
    rows = table.toDF()
    if condition is not None:
        rows = rows.where(condition)
    # A cast evaluates its value several times, and the value may come from a costly function.
    computed = rows.select(
        *[
            assigned_value(name, values.get(name, quoted(name))).alias(f"v{place}")
            for place, name in enumerate(schema.names)
        ]
    )
    types = spark_schema(spark_arrow_schema(schema))
    made = []
    for place, field in enumerate(schema):
        value = sf.col(f"v{place}")
        if field.name in values:
            target = Target(field.name, field.type, round_floats)
            value = assigned(value, computed.schema[place].dataType, types[place].dataType, target)
        made.append(value.alias(field.name))
    return computed.select(*made)


def refuse_cut_sequence(table: LancememTable, assigned: Container[str]) -> None:
    """Refuse to write the stored sequence of a row again where Spark has cut its value.

    The new event would be older than the stored row, and lose. `assigned` has the columns that get
    a new value.
    """
    for name in sequence_columns(table.handle):
        of = table.schema.field(name).type
        is_cut = pa.types.is_date64(of) or (pa.types.is_timestamp(of) and of.unit == "ns")
        if is_cut and name not in assigned:
            raise lancemem.InvalidInputError(
                f"table {table.uri}: column {name!r} of sequence_by is {of}, which Spark cuts: a "
                "delete clause or an update with the stored value would lose against the stored "
                "row; assign the column too, delete with LancememTable.delete, or take update and "
                "merge of lancemem.Table (LancememTable.handle)"
            )


def as_column(expression: Column | str) -> Column:
    """Return SQL or a Column as a Column."""
    return sf.expr(expression) if isinstance(expression, str) else expression


def assigned_value(name: str, value: Column | str) -> Column:
    """Return the value that a verb assigns to a column, as a Column."""
    if not isinstance(value, (str, Column)):
        raise lancemem.InvalidInputError(
            f"the value of column {name!r} is {type(value).__name__}: give SQL as text, or a "
            f"Column, such as lit({value!r})"
        )
    return as_column(value)


def _columns_of(rows: DataFrame, condition: Column | str) -> list[str]:
    """List the columns that a condition reads; all of them where the plan does not show it."""
    plan = rows.where(condition)._jdf.queryExecution().analyzed()  # noqa: SLF001 - no public name
    if plan.nodeName() != "Filter":
        return list(rows.columns)
    names, attributes = [], plan.references().iterator()
    while attributes.hasNext():
        names.append(str(attributes.next().name()))
    return names
