"""Spark's filters as the engine's SQL.

Owns which filters mean the same to both; every other one stays with Spark, which applies what was
not taken. It reads nothing.
"""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql import datasource as ds

_COMPARISONS: dict[type[ds.Filter], str] = {
    ds.EqualTo: "=",
    ds.GreaterThan: ">",
    ds.GreaterThanOrEqual: ">=",
    ds.LessThan: "<",
    ds.LessThanOrEqual: "<=",
}
_TEXT: dict[type[ds.Filter], str] = {
    ds.StringStartsWith: "starts_with",
    ds.StringEndsWith: "ends_with",
    ds.StringContains: "contains",
}
# Longer lists are cheaper to apply to rows than to plan.
_MOST_VALUES = 1_000


def to_sql(  # noqa: PLR0911 - one line a kind of filter
    condition: ds.Filter, schema: pa.Schema
) -> str | None:
    """Return the condition in the engine's SQL, or None where it would not mean the same."""
    if isinstance(condition, ds.Not):
        inner = to_sql(condition.child, schema)
        return None if inner is None else f"NOT ({inner})"
    attribute: tuple[str, ...] = getattr(condition, "attribute", ())
    if len(attribute) != 1 or attribute[0] not in schema.names:
        return None
    field = schema.field(attribute[0])
    column = '"' + field.name.replace('"', '""') + '"'
    if isinstance(condition, ds.IsNull):
        return f"{column} IS NULL"
    if isinstance(condition, ds.IsNotNull):
        return f"{column} IS NOT NULL"
    if isinstance(condition, ds.In):
        return _in(column, condition.value, field.type)
    value = _literal(getattr(condition, "value", None), field.type)
    if value is None:
        return None
    operator = _COMPARISONS.get(type(condition))
    if operator is not None:
        return f"{column} {operator} {value}"
    function = _TEXT.get(type(condition))
    return f"{function}({column}, {value})" if function and _is_text(field.type) else None


def _in(column: str, values: tuple[Any, ...], data_type: pa.DataType) -> str | None:
    literals = [_literal(value, data_type) for value in values]
    if not literals or len(literals) > _MOST_VALUES or None in literals:
        return None
    return f"{column} IN ({', '.join(literal for literal in literals if literal)})"


def _literal(value: Any, data_type: pa.DataType) -> str | None:  # noqa: ANN401, PLR0911 - a value
    """Write a value of a column's type; None for one that the two would compare differently."""
    types = pa.types
    if isinstance(value, bool):
        return str(value).lower() if types.is_boolean(data_type) else None
    if isinstance(value, int) and types.is_integer(data_type):
        return str(value)
    if isinstance(value, float) and types.is_floating(data_type):
        # Zero has two signs and not-a-number no order: Spark and Arrow disagree on both.
        usual = math.isfinite(value) and value != 0 and types.is_float64(data_type)
        return repr(value) if usual else None
    if isinstance(value, str) and _is_text(data_type):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, Decimal) and types.is_decimal(data_type):
        return f"arrow_cast('{value}', 'Decimal128({data_type.precision}, {data_type.scale})')"
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return f"DATE '{value.isoformat()}'" if types.is_date32(data_type) else None
    return None


def _is_text(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_string(data_type) or pa.types.is_large_string(data_type))
