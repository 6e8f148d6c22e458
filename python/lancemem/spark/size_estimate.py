"""How large a DataFrame is: as far as Spark knows, and in its rows.

Owns Spark's estimate, which plans have none, and the bytes of a row as a column of Spark's. What a
size decides is the callers'.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyspark.sql import types as st

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# An estimate above this is none: Spark takes what it does not know for as large as can be.
UNKNOWN_BYTES = 1 << 40

# Nodes of a plan that may give more rows than they take, of sizes that nobody knows, or wider ones.
_MAKES_ROWS = re.compile(
    r"^\W*(MapIn|PythonMapIn|FlatMap|MapPartitions|MapGroups|CoGroup|Generate|Script|\w+UDTF"
    r"|\w+EvalPython)",
    re.MULTILINE,
)
# Functions whose values may be much wider than what they are made of: Spark knows one width a type.
_WIDENS = re.compile(
    r"\b(UDF|pythonUDF\d*|repeat|space|lpad|rpad|array_repeat|sequence|collect_list|collect_set"
    r"|array_agg|listagg|string_agg)\("
)
# The bytes of each value of a type.
_FIXED: dict[type[st.DataType], int] = {
    st.NullType: 1,
    st.BooleanType: 1,
    st.ByteType: 1,
    st.ShortType: 2,
    st.IntegerType: 4,
    st.FloatType: 4,
    st.DateType: 4,
    st.LongType: 8,
    st.DoubleType: 8,
    st.TimestampType: 8,
    st.TimestampNTZType: 8,
    st.DayTimeIntervalType: 8,
    st.YearMonthIntervalType: 4,
    # Of Spark 4.1.
    **({st.TimeType: 8} if hasattr(st, "TimeType") else {}),
}
# Nodes that give a row of their source several times.
_REPEATS_ROWS = re.compile(r"^\W*(Join|Expand|TransformWith)", re.MULTILINE)
# Nodes that, in append mode, give rows of earlier micro-batches once they are complete.
_HOLDS_ROWS_BACK = re.compile(r"^\W*(Aggregate|Distinct)", re.MULTILINE)


def estimated_bytes(rows: DataFrame) -> int:
    """Return Spark's estimate of a DataFrame's size.

    Of what functions and generators make of rows Spark knows nothing, and takes the size of those
    rows, or a few bytes for a value: such an estimate is none.
    """
    plan = rows._jdf.queryExecution().optimizedPlan()  # noqa: SLF001 - no public name
    shown = _without_cached(str(plan.toString()))
    if _MAKES_ROWS.search(shown) or _WIDENS.search(shown):
        return UNKNOWN_BYTES
    return int(str(plan.stats().sizeInBytes()))


def _without_cached(plan: str) -> str:
    """Leave out how something persisted was made, of which Spark knows the size."""
    shown: list[str] = []
    below: int | None = None
    for line in plan.splitlines():
        depth = len(line) - len(line.lstrip(" :+-"))
        if below is not None and depth > below:
            continue
        below = depth if line.lstrip(" :+-").startswith("InMemoryRelation") else None
        shown.append(line)
    return "\n".join(shown)


def width(value: str, kind: st.DataType, depth: int = 0) -> str | None:
    """Return SQL for the bytes of a value, about; None of a type whose size Spark does not tell."""
    if isinstance(kind, st.StringType | st.CharType | st.VarcharType | st.BinaryType):
        return f"(coalesce(octet_length({value}), 0) + 8)"
    if (fixed := _fixed_width(kind)) is not None:
        return str(fixed)
    if isinstance(kind, st.StructType):
        parts = [width(f"{value}.{quoted(it.name)}", it.dataType, depth) for it in kind.fields]
        known = [part for part in parts if part is not None]
        return f"({' + '.join(known or ['0'])})" if len(known) == len(parts) else None
    if isinstance(kind, st.ArrayType):
        return _width_of_items(value, kind.elementType, depth)
    if isinstance(kind, st.MapType):
        keys = _width_of_items(f"map_keys({value})", kind.keyType, depth)
        values = _width_of_items(f"map_values({value})", kind.valueType, depth)
        return None if keys is None or values is None else f"({keys} + {values})"
    return None


def _width_of_items(values: str, kind: st.DataType, depth: int) -> str | None:
    if (fixed := _fixed_width(kind)) is not None:
        # Spark takes the size of a null for -1 in some of its modes.
        return f"(greatest(size({values}), 0) * {fixed} + 8)"
    item, total = f"item{depth}", f"total{depth}"
    each = width(item, kind, depth + 1)
    if each is None:
        return None
    added = f"aggregate({values}, 0L, ({total}, {item}) -> {total} + {each})"
    return f"(coalesce({added}, 0L) + 8)"


def _fixed_width(kind: st.DataType) -> int | None:
    """Return the bytes of each value of a type, where they are the same."""
    if isinstance(kind, st.DecimalType):
        return 16
    return _FIXED.get(type(kind))


def quoted(name: str) -> str:
    """Return a column's name as Spark's words for columns have it: a dot is part of it."""
    return f"`{name.replace('`', '``')}`"


def is_estimated(stream: DataFrame, output_mode: str = "update") -> bool:
    """Whether Spark's estimates of the micro-batches of a streaming DataFrame are some.

    A micro-batch does not show how it is made, and has the estimate of its source's rows. Of an
    aggregation in append mode those are none of its own: what a watermark completes comes later,
    also where nothing new is read. In update mode it gives at most a row for each that it reads.
    """
    plan = str(stream._jdf.queryExecution().analyzed().toString())  # noqa: SLF001 - no public name
    unknown = [_MAKES_ROWS, _REPEATS_ROWS, _WIDENS]
    if output_mode == "append":
        unknown.append(_HOLDS_ROWS_BACK)
    return not any(it.search(plan) for it in unknown)
