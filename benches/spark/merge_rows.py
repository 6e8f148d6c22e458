"""The rows of the cases of merge engines, and what a right table holds after them.

Owns: the rules, the rows that a table is laid of, the batches of each case, the fold that is the
model, and the checksum by which tables are compared. Does not own: an engine, a time (both in
`merge_engines`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql.functions import expr

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

BATCH_ROWS = 1_000
# A batch of updates has every fifth key.
STEP = 5
# The keys of a stream lie together in places of this many, so that events meet.
HOT = 20
# The events of a stream are at random up to this many micro-batches late.
LATE = 10
# The time of the rows that a table is laid of. The first events are older.
LAID_TIME = 1_000_000


@dataclass(frozen=True)
class Rule:
    """What a case does: the columns of its table, and those that a batch gives."""

    name: str
    ddl: str
    gives: tuple[str, ...]

    @property
    def columns(self) -> list[str]:
        """The columns of the table."""
        return [column.split()[0] for column in self.ddl.split(", ")]

    @property
    def values(self) -> list[str]:
        """The columns without the key that a batch gives."""
        return [column for column in self.gives if column != "id"]


_COUNTED = "id long, name string, v double, n long, m long"
_TIMED = "id long, name string, v double, n long, ts long"
RULES = {
    rule.name: rule
    for rule in (
        Rule("partial", _COUNTED, ("id", "v", "n")),
        Rule("sum", _COUNTED, ("id", "n", "m")),
        Rule("late", _TIMED, ("id", "name", "v", "n", "ts")),
    )
}


def laid(spark: SparkSession, rule: Rule, rows: int) -> DataFrame:
    """Make the rows that the table is laid of: four columns and the key."""
    return spark.range(0, rows, 1, 4).selectExpr(
        "id",
        "concat('name-', lpad(id, 10, '0')) name",
        "id / 3 v",
        "id % 1000 n",
        f"cast({LAID_TIME} as bigint) ts" if rule.name == "late" else "id % 7 m",
    )


def batch(spark: SparkSession, rule: Rule, number: int, rows: int) -> DataFrame:
    """Make batch `number`, counted from 1, for a table of `rows` rows; no key comes twice."""
    if rule.name == "late":
        return _events(spark, number, rows)
    return (
        spark.range(0, rows // STEP, 1, 4)
        .selectExpr(
            f"id * {STEP} + {number % STEP} id",
            f"id / {3 + number} v",
            f"id + {number} n",
            f"id % 11 + {number} m",
        )
        .select(*rule.gives)
    )


def _events(spark: SparkSession, number: int, rows: int) -> DataFrame:
    """Make a micro-batch of random hot keys; no two events of a key have one time.

    No `lpad`: its width has no estimate in Spark, and lancemem writes small batches on the driver
    only by such an estimate. Rows of a file or of a list have one.
    """
    step = rows // BATCH_ROWS
    if step < 1 or number >= 1_000:
        raise ValueError(
            f"the stream is limited to 999 micro-batches and needs a table of {BATCH_ROWS:,} rows "
            f"or more, got micro-batch {number:,} and {rows:,} rows"
        )
    return spark.range(0, BATCH_ROWS, 1, 1).selectExpr(
        f"id * {step} + pmod(xxhash64(id, {number}), {min(HOT, step)}) id",
        f"concat('name-', {(1 + number % 9) * 10**9} + id) name",
        f"id / {3 + number} v",
        f"id + {number} n",
        f"{LAID_TIME} + ({number} - pmod(xxhash64({number}, id), {LATE})) * 1000 + {number} ts",
    )


def checksum(rows: DataFrame, rule: Rule) -> list[int]:
    """Read all rows and columns inside Spark, and return their number and one number for them."""
    hashed = f"bit_xor(xxhash64({', '.join(rule.columns)}))"
    # Delta's deletion vectors cannot be read into the format "noop".
    return list(rows.selectExpr("count(*)", hashed).collect()[0])


def folded(base: DataFrame, batches: Sequence[DataFrame], rule: Rule) -> DataFrame:
    """Fold the batches into the rows of the base by the rule, without an engine.

    The keys of the batches are keys of the base.
    """
    numbered = [rows.selectExpr("*", f"{number} number") for number, rows in enumerate(batches)]
    how = {"partial": "max_by({0}, number)", "sum": "sum({0})", "late": "max_by({0}, ts)"}
    events = reduce(lambda one, other: one.unionByName(other), numbered)
    tail = events.groupBy("id").agg(*_each(how[rule.name] + " new_{0}", rule.values))
    taken = {
        "partial": "coalesce(new_{0}, {0}) {0}",
        "sum": "{0} + coalesce(new_{0}, 0L) {0}",
        "late": "if(new_ts > ts, new_{0}, {0}) {0}",
    }
    kept = [name if name not in rule.values else taken[rule.name] for name in rule.columns]
    exprs = [text.format(name) for text, name in zip(kept, rule.columns, strict=True)]
    return base.join(tail, "id", "left").selectExpr(*exprs)


def _each(text: str, names: Sequence[str]) -> list[Column]:
    return [expr(text.format(name)) for name in names]
