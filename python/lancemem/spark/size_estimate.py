"""How large a DataFrame is: Spark's estimate, and the bytes of its rows.

Owns Spark's estimate, the list of plans that Spark cannot estimate, and the bytes of a row as a
column. Does not own what a size decides: the callers do.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyspark.sql import types as st

if TYPE_CHECKING:
    from collections.abc import Iterator

    from py4j.java_gateway import JavaObject  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame

# From this size on an estimate means "unknown": Spark's default for an unknown size is huge.
UNKNOWN_BYTES = 1 << 40

# A list of more bytes is not counted to its end.
MAX_COUNTED_BYTES = 64 << 20

# Plan nodes that may yield more rows than they read, wider rows, or rows of unknown size.
_MAKES_ROWS = re.compile(
    r"^\W*(MapIn|PythonMapIn|FlatMap|MapPartitions|MapGroups|CoGroup|Generate|Script|\w+UDTF"
    r"|\w+EvalPython)",
    re.MULTILINE,
)
# Functions whose values may be much wider than their input: Spark assumes one width for each type.
_WIDENS = re.compile(
    r"\b(UDF|pythonUDF\d*|repeat|space|lpad|rpad|array_repeat|sequence|collect_list|collect_set"
    r"|array_agg|listagg|string_agg)\("
)
# Functions that take the length of their value: how many arguments they have, and which is the
# length.
_LENGTH_AT = {"lpad": (3, 1), "rpad": (3, 1), "repeat": (2, 1), "space": (1, 0)}
# A value is not wide up to this length: characters, or repetitions of the input.
MAX_LENGTH = 256
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
    # Exists from Spark 4.1 on.
    **({st.TimeType: 8} if hasattr(st, "TimeType") else {}),
}
# Nodes that may yield a row of their source several times.
_REPEATS_ROWS = re.compile(r"^\W*(Join|Expand|TransformWith)", re.MULTILINE)
# Nodes that, in append mode, yield rows of earlier micro-batches once they are complete.
_HOLDS_ROWS_BACK = re.compile(r"^\W*(Aggregate|Distinct)", re.MULTILINE)


def estimated_bytes(rows: DataFrame) -> int:
    """Return Spark's estimate of a DataFrame's size.

    Spark cannot estimate the output of functions and generators. It assumes the size of their
    input, or a few bytes for each value. `UNKNOWN_BYTES` is returned for such plans. Rows that
    `createDataFrame` took from a list have no estimate of Spark's: their bytes are counted.
    """
    plan = rows._jdf.queryExecution().optimizedPlan()  # noqa: SLF001 - no public name
    shown = _without_cached(str(plan.toString()))
    if _MAKES_ROWS.search(shown) or _widens(shown):
        return UNKNOWN_BYTES
    estimate = int(str(plan.stats().sizeInBytes()))
    if estimate >= UNKNOWN_BYTES and not _REPEATS_ROWS.search(shown):
        return sum(_bytes_of_leaf(leaf) for leaf in _items(plan.collectLeaves()))
    return estimate


def _bytes_of_leaf(leaf: JavaObject) -> int:
    """Return the size of a plan's source: Spark's, or of a list in the driver's memory."""
    if str(leaf.nodeName()) != "LogicalRDD":
        return int(str(leaf.stats().sizeInBytes()))
    rdd = leaf.rdd()
    while (parents := rdd.dependencies()).size() == 1:
        rdd = parents.apply(0).rdd()
    if parents.size() or str(rdd.getClass().getSimpleName()) != "ParallelCollectionRDD":
        return UNKNOWN_BYTES
    total = 0
    for partition in rdd.partitions():
        for pickled in _items(partition.values()):
            total += len(pickled) if isinstance(pickled, bytes) else UNKNOWN_BYTES
            # Each item is a call of the JVM.
            if total > MAX_COUNTED_BYTES:
                return UNKNOWN_BYTES
    return total


def _widens(plan: str) -> bool:
    """Whether a plan calls a function whose values may be much wider than Spark assumes."""
    return any(_is_wide(plan, call) for call in _WIDENS.finditer(plan))


def _is_wide(plan: str, call: re.Match[str]) -> bool:
    """Whether a call of such a function has no literal length, or one above `MAX_LENGTH`."""
    if call[1] not in _LENGTH_AT:
        return True
    count, place = _LENGTH_AT[call[1]]
    arguments = _arguments(plan, call.end())
    # In nested calls the lengths multiply.
    if len(arguments) != count or any(map(_WIDENS.search, arguments)):
        return True
    length = arguments[place]
    return not length.isdecimal() or int(length) > MAX_LENGTH


def _arguments(plan: str, start: int) -> list[str]:
    """Split the arguments of a call, as a plan shows it, at the commas of the call itself.

    A plan does not quote texts. A comma or a bracket in a text changes the number of arguments, so
    the caller treats the call as wide.
    """
    found: list[str] = []
    depth, begun = 0, start
    for place in range(start, len(plan)):
        letter = plan[place]
        if letter == "\n" or (depth == 0 and letter == ")"):
            return [*found, plan[begun:place].strip()]
        if depth == 0 and letter == ",":
            found.append(plan[begun:place].strip())
            begun = place + 1
        depth += (letter == "(") - (letter == ")")
    return found


def _items(of: JavaObject) -> Iterator[JavaObject]:
    return (of.apply(place) for place in range(of.size()))


def _without_cached(plan: str) -> str:
    """Leave out the plans below persisted DataFrames: Spark has the size of those."""
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
    """Return SQL for the approximate bytes of a value; None for a type that has no such SQL."""
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
        # Spark's `size` of a null is -1 in some of its modes.
        return f"(greatest(size({values}), 0) * {fixed} + 8)"
    item, total = f"item{depth}", f"total{depth}"
    each = width(item, kind, depth + 1)
    if each is None:
        return None
    added = f"aggregate({values}, 0L, ({total}, {item}) -> {total} + {each})"
    return f"(coalesce({added}, 0L) + 8)"


def _fixed_width(kind: st.DataType) -> int | None:
    """Return the bytes of a value, where all values of the type have the same width."""
    if isinstance(kind, st.DecimalType):
        return 16
    return _FIXED.get(type(kind))


def quoted(name: str) -> str:
    """Quote a column's name for Spark's SQL, so that a dot is part of the name."""
    return f"`{name.replace('`', '``')}`"


def is_estimated(stream: DataFrame, output_mode: str = "update") -> bool:
    """Whether Spark can estimate the micro-batches of a streaming DataFrame.

    A micro-batch does not show its plan, and has the estimate of its source's rows. That is wrong
    for an aggregation in append mode: its rows come when a watermark completes them, even where no
    new row is read. In update mode it yields at most one row for each row that it reads.
    """
    plan = str(stream._jdf.queryExecution().analyzed().toString())  # noqa: SLF001 - no public name
    unknown = [_MAKES_ROWS, _REPEATS_ROWS]
    if output_mode == "append":
        unknown.append(_HOLDS_ROWS_BACK)
    return not _widens(plan) and not any(it.search(plan) for it in unknown)
