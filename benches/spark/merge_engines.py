"""One engine in a Spark of its own, for the cases of merge engines.

    python -m benches.spark.merge_engines ENGINE CASE FOLDER --rows N --batches N

Owns: how each engine keeps and merges a table under each rule, and the one measurement of all three
cases; prints one line of JSON. Does not own: rows and checksums (`merge_rows`), sessions and tables
(`engines`), which engines run or the report (`merge_peers`).
"""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.functions import lit

from benches.spark import engines, merge_rows
from benches.spark.engines import WARM, seconds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from benches.spark.merge_rows import Rule


class RuledEngine(engines.Engine):
    """An engine whose table follows the rule of a case."""

    rule: Rule

    def follow(self, rule: Rule) -> None:
        """Take the rule, before the table is laid."""
        self.rule = rule
        self.ddl = rule.ddl

    @abstractmethod
    def newest(self) -> DataFrame:
        """Return the merged rows, unread."""

    def read(self) -> None:
        """Read all merged rows and columns."""
        merge_rows.checksum(self.newest(), self.rule)

    def bytes(self) -> int:
        """Return the size of all files of the table."""
        return sum(path.stat().st_size for path in Path(self.place).rglob("*") if path.is_file())


class Lancemem(RuledEngine, engines.Lancemem):
    """Ours with a merge rule: a write reads nothing."""

    def options(self) -> dict[str, Any]:
        """Name the merge rule."""
        rules: dict[str, dict[str, Any]] = {
            "partial": {"merge_engine": "partial_update"},
            "sum": {"merge_engine": "aggregation", "aggregates": {"n": "sum", "m": "sum"}},
            "late": {"sequence_by": "ts"},
        }
        return rules[self.rule.name]

    def newest(self) -> DataFrame:
        """Merge on read."""
        rows: DataFrame = self._table().toDF()
        return rows


class RunningJobs(Lancemem, engines.RunningJobs):
    """Ours with a merge rule, with the jobs of the driver kept between the writes."""


class KeepNewest(Lancemem):
    """Ours without a rule: each write reads the stored rows first, and leaves late rows out."""

    def options(self) -> dict[str, Any]:
        """Name no rule."""
        if self.rule.name != "late":
            raise NotImplementedError("keep_newest is for events out of order")
        return {}

    def upsert(self, rows: DataFrame) -> None:
        """Apply the rows as changes."""
        changes = rows.withColumn("op", lit("U"))
        self._table().apply_changes(changes, op_column="op", sequence_by="ts", keep_newest=True)


class Fold(RuledEngine):
    """No engine: Spark folds the generated rows. Its checksum is that of the right rows."""

    def lay(self, rows: DataFrame) -> None:
        """Take the rows."""
        self._base = rows
        self._batches: list[DataFrame] = []

    def upsert(self, rows: DataFrame) -> None:
        """Take one batch more."""
        self._batches.append(rows)

    def newest(self) -> DataFrame:
        """Fold."""
        return merge_rows.folded(self._base, self._batches, self.rule)


class Delta(RuledEngine, engines.Delta):
    """Delta's MERGE, which reads the target."""

    def settings(self) -> dict[str, str]:
        """Keep the state of the table in as few tasks as all sessions shuffle into, not in 50."""
        return {**super().settings(), "spark.databricks.delta.snapshotPartitions": "4"}

    def clauses(self) -> str:
        """Set what the rule changes."""
        return merge_clauses(self.rule)

    def newest(self) -> DataFrame:
        """Scan."""
        return self.spark.read.format("delta").load(self.place)


class Hudi(RuledEngine, engines.Hudi):
    """Hudi: MERGE INTO a merge-on-read table, whose log blocks have the columns that were set.

    `sum` is copy on write, because MERGE INTO refuses `t.n + s.n` for merge on read. `late` is a
    plain upsert, ordered by event time.
    """

    def options(self) -> dict[str, str]:
        """Name the order of events, and for sums copy on write."""
        options = super().options()
        del options["hoodie.datasource.write.precombine.field"]
        mode = "hoodie.write.record.merge.mode"
        if self.rule.name == "late":
            options["hoodie.datasource.write.precombine.field"] = "ts"
            return {**options, mode: "EVENT_TIME_ORDERING"}
        if self.rule.name == "sum":
            options["hoodie.datasource.write.table.type"] = "COPY_ON_WRITE"
        return {**options, mode: "COMMIT_TIME_ORDERING"}

    def lay(self, rows: DataFrame) -> None:
        """Bulk insert, and name the table for SQL."""
        super().lay(rows)
        self.spark.sql(f"CREATE TABLE t USING hudi LOCATION '{self.place}'")

    def upsert(self, rows: DataFrame) -> None:
        """Merge, or upsert events."""
        if self.rule.name == "late":
            super().upsert(rows)
            return
        rows.createOrReplaceTempView("changes")
        clauses = merge_clauses(self.rule)
        self.spark.sql(f"MERGE INTO t USING changes s ON t.id = s.id {clauses}")

    def newest(self) -> DataFrame:
        """Take a snapshot."""
        return self.spark.read.format("hudi").load(self.place).select(*self.rule.columns)


class Paimon(RuledEngine, engines.Paimon):
    """Paimon's merge engines, merge on read."""

    def options(self) -> dict[str, str]:
        """Name the merge engine or the sequence."""
        rules = {
            "partial": {"merge-engine": "partial-update"},
            "sum": {
                "merge-engine": "aggregation",
                "fields.n.aggregate-function": "sum",
                "fields.m.aggregate-function": "sum",
            },
            "late": {"sequence.field": "ts"},
        }
        return {**super().options(), **rules[self.rule.name]}

    def upsert(self, rows: DataFrame) -> None:
        """Insert; a null is a column that is not given, or no input."""
        types = dict(column.split() for column in self.ddl.split(", "))
        for name in set(self.rule.columns) - set(rows.columns):
            rows = rows.withColumn(name, lit(None).cast(types[name]))
        super().upsert(rows.select(*self.rule.columns))

    def newest(self) -> DataFrame:
        """Scan."""
        return self.spark.table("paimon.bench.t")


def merge_clauses(rule: Rule) -> str:
    """Return the clauses of a MERGE of `s` into `t` that does what the rule does."""
    if rule.name == "late":
        return "WHEN MATCHED AND s.ts > t.ts THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    value = "t.{0} + s.{0}" if rule.name == "sum" else "s.{0}"
    sets = ", ".join(f"t.{name} = {value.format(name)}" for name in rule.values)
    names, values = ", ".join(rule.gives), ", ".join(f"s.{name}" for name in rule.gives)
    row = f"({names}) VALUES ({values})"
    return f"WHEN MATCHED THEN UPDATE SET {sets} WHEN NOT MATCHED THEN INSERT {row}"


ENGINES: dict[str, type[RuledEngine]] = {
    "fold": Fold,
    "lancemem": Lancemem,
    "lancemem-jobs": RunningJobs,
    "keep-newest": KeepNewest,
    "delta": Delta,
    "hudi": Hudi,
    "paimon": Paimon,
}


def measure(rule: Rule, engine: RuledEngine, rows: int, batches: int) -> dict[str, Any]:
    """Lay a table, write the batches, read everything. The first micro-batches only warm up."""
    engine.follow(rule)
    spark = engine.spark
    spark.range(10).count()
    lay = seconds(lambda: engine.lay(merge_rows.laid(spark, rule, rows)))
    warm = WARM if rule.name == "late" else 0

    def write(number: int) -> float:
        batch = merge_rows.batch(spark, rule, number, rows)
        return seconds(lambda: engine.upsert(batch))

    writes = [write(1 + number) for number in range(warm + batches)]
    found: list[int] = []
    read = seconds(lambda: found.extend(merge_rows.checksum(engine.newest(), rule)))
    return {
        "lay": lay, "writes": writes[warm:], "read": read, "bytes": engine.bytes(), "check": found,
    }  # fmt: skip


CASES = {name: partial(measure, rule) for name, rule in merge_rows.RULES.items()}

if __name__ == "__main__":
    engines.run(ENGINES, CASES)
