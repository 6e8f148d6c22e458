"""One engine in a Spark of its own, for the cases that need other releases of Spark.

    python -m benches.spark.engines ENGINE CASE FOLDER --rows N --batches N

Owns: how each engine lays, upserts and reads a table of the cases' columns, and the cases; prints
one line of JSON. Does not own: which engines run, under which Spark, or the report (`peers`).
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame

DDL = "id long, name string, v double, k int"
MICRO_ROWS = 1_000
WRITERS = 4
WARM = 2
# Settings of every session here: no web page, no progress, no log.
QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}
# An engine that refuses a commit this often in a row will not take it at all.
TRIES = 50


class Engine(ABC):
    """A table in a folder, and the operations of a bench."""

    packages: ClassVar[str] = ""
    # The columns of the table; the first one is its key.
    ddl: str = DDL

    def __init__(self, folder: Path) -> None:
        """Name the folder; no table is created yet."""
        self.place = str(folder / "table")
        self._session: SparkSession | None = None

    @property
    def spark(self) -> SparkSession:
        """The session, started with what the engine needs."""
        if self._session is None:
            folder = Path(self.place).parent
            settings = {
                **QUIET,
                "spark.driver.memory": "4g",
                "spark.local.dir": str(folder / "local"),
                "spark.sql.warehouse.dir": str(folder / "warehouse"),
                "spark.sql.shuffle.partitions": "4",
                "spark.default.parallelism": "4",
                **self.settings(),
            }
            if self.packages:
                settings["spark.jars.packages"] = self.packages
                settings["spark.jars.ivy"] = str(Path(".venv/ivy").absolute())
            builder = self.configured(SparkSession.builder.master("local[2]"))
            for name, value in settings.items():
                builder = builder.config(name, value)
            self._session = builder.getOrCreate()
        return self._session

    def configured(self, builder: SparkSession.Builder) -> SparkSession.Builder:
        """Prepare the builder further."""
        return builder

    def settings(self) -> dict[str, str]:
        """Name the settings of the session."""
        return {}

    @abstractmethod
    def lay(self, rows: DataFrame) -> None:
        """Make the table of these rows, as compact as the engine keeps one."""

    @abstractmethod
    def upsert(self, rows: DataFrame) -> None:
        """Insert the rows or replace the rows with their keys; durable on return."""

    @abstractmethod
    def read(self) -> None:
        """Read all rows and columns inside Spark, for one number."""


AnyEngine = TypeVar("AnyEngine", bound=Engine)


class Lancemem(Engine):
    """Ours: four shards, merge on read."""

    def configured(self, builder: SparkSession.Builder) -> SparkSession.Builder:
        """Add what lancemem asks for."""
        from lancemem.spark import configure  # noqa: PLC0415 - older Sparks have no lancemem

        return configure(builder)

    def _table(self) -> Any:  # noqa: ANN401 - imported late
        from lancemem.spark import LancememTable  # noqa: PLC0415 - as above

        return LancememTable.forPath(self.spark, self.place)

    def options(self) -> dict[str, Any]:
        """Name further properties of the table."""
        return {}

    def lay(self, rows: DataFrame) -> None:
        """Upsert, flush, compact."""
        import lancemem  # noqa: PLC0415 - as above
        from lancemem.spark import LancememTable  # noqa: PLC0415 - as above

        shards = lancemem.bucket("id", 4)
        schema = self.ddl.replace("id long", "id long not null")
        table = LancememTable.create(
            self.spark,
            self.place,
            schema=schema,
            primary_key="id",
            sharding=shards,
            **self.options(),
        )
        table.upsert(rows)
        table.flush()
        table.compact()

    def upsert(self, rows: DataFrame) -> None:
        """Write into the shards' logs."""
        self._table().upsert(rows)

    def read(self) -> None:
        """Merge on read."""
        _drain(self._table().toDF())


class RunningJobs(Lancemem):
    """Ours, with the jobs of the driver kept between the writes."""

    def __init__(self, folder: Path) -> None:
        """Start no job yet."""
        super().__init__(folder)
        self._writer: Any = None

    def lay(self, rows: DataFrame) -> None:
        """Lay the table, and start the jobs."""
        super().lay(rows)
        self._writer = self._table()
        self._writer.start_jobs()

    def upsert(self, rows: DataFrame) -> None:
        """Put into the jobs' MemTables, and into the log."""
        self._writer.upsert(rows)


class Collect(Engine):
    """No engine: the time in which Spark itself hands the rows to the driver."""

    def lay(self, rows: DataFrame) -> None:
        """Make nothing."""

    def upsert(self, rows: DataFrame) -> None:
        """Collect the rows, and drop them."""
        rows.toArrow()

    def read(self) -> None:
        """Refuse: there is nothing to read."""
        raise NotImplementedError


class Pylance(Engine):
    """Lance's merge_insert, in the driver: Lance has no upsert from PySpark."""

    def lay(self, rows: DataFrame) -> None:
        """Write a dataset."""
        import lance  # noqa: PLC0415 - only here

        lance.write_dataset(rows.toArrow(), self.place)

    def upsert(self, rows: DataFrame) -> None:
        """Collect the rows and merge them."""
        import lance  # noqa: PLC0415 - only here

        merge = lance.dataset(self.place).merge_insert("id")
        merge = merge.when_matched_update_all().when_not_matched_insert_all()
        merge.conflict_retries(0).execute(rows.toArrow())

    def read(self) -> None:
        """Refuse: there is nothing to compare inside Spark."""
        raise NotImplementedError


class Delta(Engine):
    """Delta's MERGE, with deletion vectors."""

    packages: ClassVar[str] = "io.delta:delta-spark_4.1_2.13:4.4.0"

    def settings(self) -> dict[str, str]:
        """Name extension and catalogue."""
        return {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.databricks.delta.properties.defaults.enableDeletionVectors": "true",
        }

    def lay(self, rows: DataFrame) -> None:
        """Write a table."""
        rows.write.format("delta").save(self.place)

    def clauses(self) -> str:
        """Name the clauses of a merge of `s` into `t`."""
        return "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"

    def upsert(self, rows: DataFrame) -> None:
        """Merge."""
        # Threads share the names of views.
        view = f"changes_{threading.get_ident()}"
        rows.createOrReplaceTempView(view)
        target = f"delta.`{self.place}`"
        self.spark.sql(f"MERGE INTO {target} t USING {view} s ON t.id = s.id {self.clauses()}")

    def read(self) -> None:
        """Scan."""
        _drain(self.spark.read.format("delta").load(self.place))


class Hudi(Engine):
    """Hudi's merge-on-read table with its default index and metadata table."""

    packages: ClassVar[str] = "org.apache.hudi:hudi-spark3.5-bundle_2.12:1.2.0"

    def settings(self) -> dict[str, str]:
        """Name serializer, extension and catalogue."""
        return {
            "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
            "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
            "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
        }

    def options(self) -> dict[str, str]:
        """Name the options of a write."""
        return {
            "hoodie.table.name": "t",
            "hoodie.datasource.write.table.type": "MERGE_ON_READ",
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.precombine.field": "k",
            "hoodie.datasource.write.partitionpath.field": "",
            "hoodie.datasource.write.keygenerator.class": (
                "org.apache.hudi.keygen.NonpartitionedKeyGenerator"
            ),
            "hoodie.upsert.shuffle.parallelism": "4",
            "hoodie.bulkinsert.shuffle.parallelism": "4",
        }

    def _write(self, rows: DataFrame, operation: str, mode: str) -> None:
        options = {**self.options(), "hoodie.datasource.write.operation": operation}
        rows.write.format("hudi").options(**options).mode(mode).save(self.place)

    def lay(self, rows: DataFrame) -> None:
        """Bulk insert."""
        self._write(rows, "bulk_insert", "overwrite")

    def upsert(self, rows: DataFrame) -> None:
        """Upsert."""
        self._write(rows, "upsert", "append")

    def read(self) -> None:
        """Take a snapshot."""
        _drain(self.spark.read.format("hudi").load(self.place).select("id", "name", "v", "k"))


class Paimon(Engine):
    """Paimon's primary-key table of four buckets, merge on read."""

    packages: ClassVar[str] = "org.apache.paimon:paimon-spark-3.5:0.9.0"

    def settings(self) -> dict[str, str]:
        """Name the catalogue."""
        return {
            "spark.sql.catalog.paimon": "org.apache.paimon.spark.SparkCatalog",
            "spark.sql.catalog.paimon.warehouse": self.place,
        }

    def options(self) -> dict[str, str]:
        """Name the properties of the table."""
        return {"primary-key": "id", "bucket": "4"}

    def lay(self, rows: DataFrame) -> None:
        """Create the table and insert."""
        self.spark.sql("CREATE DATABASE IF NOT EXISTS paimon.bench")
        columns = self.ddl.replace(" long", " BIGINT")
        properties = ", ".join(f"'{name}' = '{value}'" for name, value in self.options().items())
        self.spark.sql(f"CREATE TABLE paimon.bench.t ({columns}) TBLPROPERTIES ({properties})")
        self.upsert(rows)

    def upsert(self, rows: DataFrame) -> None:
        """Insert: a newer row replaces the older one of its key."""
        rows.writeTo("paimon.bench.t").append()

    def read(self) -> None:
        """Scan."""
        _drain(self.spark.table("paimon.bench.t"))


class LancememFeed(Lancemem):
    """Ours with stored changes. A commit is an upsert and a compaction."""

    def lay(self, rows: DataFrame) -> None:
        """Lay the table; the changes of later versions are stored."""
        import lancemem  # noqa: PLC0415 - as above

        super().lay(rows)
        table = lancemem.open_table(self.place)
        table.alter(changelog="stored")
        self._since = table.changes().until

    def upsert(self, rows: DataFrame) -> None:
        """Upsert, and move the rows into the base table."""
        super().upsert(rows)
        self._table().compact(flush=True)

    def read(self) -> None:
        """Read the changes of all commits."""
        reader = self.spark.read.format("lancemem").option("readChangeFeed", "true")
        _drain_changes(reader.option("startingVersion", self._since + 1).load(self.place))


class DeltaFeed(Delta):
    """Delta's MERGE with its change data feed."""

    def settings(self) -> dict[str, str]:
        """Turn the feed on for new tables."""
        feed = "spark.databricks.delta.properties.defaults.enableChangeDataFeed"
        return {**super().settings(), feed: "true"}

    def read(self) -> None:
        """Read the changes of all commits."""
        reader = self.spark.read.format("delta").option("readChangeFeed", "true")
        _drain_changes(reader.option("startingVersion", 1).load(self.place))


ENGINES: dict[str, type[Engine]] = {
    "lancemem": Lancemem,
    "lancemem-feed": LancememFeed,
    "delta-feed": DeltaFeed,
    "lancemem-jobs": RunningJobs,
    "collect": Collect,
    "pylance": Pylance,
    "delta": Delta,
    "hudi": Hudi,
    "paimon": Paimon,
}


def _drain(rows: DataFrame) -> None:
    # Delta's deletion vectors cannot be read into the format "noop".
    rows.selectExpr("bit_xor(xxhash64(id, name, v, k))").collect()


def _drain_changes(rows: DataFrame) -> None:
    hashed = "bit_xor(xxhash64(id, name, v, k, _change_type, _commit_version))"
    rows.selectExpr(hashed).collect()


def rows_of(spark: SparkSession, number: int, step: int, count: int, parts: int = 4) -> DataFrame:
    """Make version `number` of `count` rows, whose ids are `step` apart."""
    return spark.range(0, count, 1, parts).selectExpr(
        f"id * {step} + {number % step} id",
        f"concat('name-', lpad(id, 10, '{number % 10}')) name",
        f"id / {3 + number} v",
        f"cast({number} as int) k",
    )


def seconds(work: Callable[[], object]) -> float:
    """Time one call."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def micro(engine: Engine, rows: int, batches: int) -> dict[str, Any]:
    """Upsert micro-batches of 1,000 rows, one after the other."""
    engine.lay(rows_of(engine.spark, 0, 1, rows))

    def one(number: int) -> float:
        changed = rows_of(engine.spark, number, rows // MICRO_ROWS, MICRO_ROWS, 1)
        return seconds(lambda: engine.upsert(changed))

    times = [one(1 + number) for number in range(WARM + batches)]
    return {"seconds": times[WARM:]}


def writers(engine: Engine, rows: int, batches: int) -> dict[str, Any]:
    """Upsert small batches from several threads at once, each batch again until it is taken."""
    engine.lay(rows_of(engine.spark, 0, 1, rows))
    refused = 0
    count = threading.Lock()

    def write(writer: int) -> None:
        nonlocal refused
        for batch in range(batches):
            number = 1 + writer + batch * WRITERS
            changed = rows_of(engine.spark, number, rows // MICRO_ROWS, MICRO_ROWS, 1)
            for _ in range(TRIES):
                try:
                    engine.upsert(changed)
                    break
                except Exception:  # noqa: BLE001 - each engine refuses with errors of its own
                    with count:
                        refused += 1
            else:
                raise RuntimeError(f"batch {number} was refused {TRIES} times")

    def all_of_them() -> None:
        with ThreadPoolExecutor(WRITERS) as pool:
            list(pool.map(write, range(WRITERS)))

    return {"seconds": seconds(all_of_them), "refused": refused}


def changes(engine: Engine, rows: int, batches: int) -> dict[str, Any]:
    """Lay a table, commit a tenth of its rows `batches` times, and read the changes."""
    return load(engine, rows, batches, step=10)


def load(engine: Engine, rows: int, batches: int, step: int = 5) -> dict[str, Any]:
    """Lay a table, upsert a fifth of its rows `batches` times, and read everything."""
    spark = engine.spark
    spark.range(10).count()
    lay = seconds(lambda: engine.lay(rows_of(spark, 0, 1, rows)))

    def upserts() -> None:
        for number in range(1, 1 + batches):
            engine.upsert(rows_of(spark, number, step, rows // step))

    return {"lay": lay, "upserts": seconds(upserts), "read": seconds(engine.read)}


CASES = {"micro": micro, "writers": writers, "load": load, "changes": changes}


def run(
    engines: Mapping[str, type[AnyEngine]],
    cases: Mapping[str, Callable[[AnyEngine, int, int], dict[str, Any]]],
) -> None:
    """Run one case of one engine, as the command line has them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("engine", choices=sorted(engines))
    parser.add_argument("case", choices=sorted(cases))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--batches", type=int, required=True)
    chosen = parser.parse_args()
    engine = engines[chosen.engine](chosen.folder)
    found = cases[chosen.case](engine, chosen.rows, chosen.batches)
    print(json.dumps({"spark": engine.spark.version, **found}), flush=True)
    engine.spark.stop()


if __name__ == "__main__":
    run(ENGINES, CASES)
