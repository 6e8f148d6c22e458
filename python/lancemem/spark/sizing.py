"""How large a DataFrame is, as far as Spark knows.

Owns Spark's estimate, and which plans have none. What a size decides is the callers'.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

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


def cached_bytes(computed: DataFrame) -> int:
    """Return the bytes of a persisted DataFrame, all of which was computed before its plan."""
    plan = computed._jdf.queryExecution().optimizedPlan()  # noqa: SLF001 - as above
    return int(str(plan.stats().sizeInBytes()))


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
