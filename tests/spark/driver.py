"""A Spark driver in a process of its own; tests run it: STORY FOLDER ARGUMENTS.

Owns: which of its processes it kills, and where it dies itself. Does not own: the expected rows.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import SparkSession

import lancemem
import lancemem.spark.table
from lancemem.spark import LancememTable, configure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("v", pa.int64()),
        pa.field("seq", pa.int64()),
    ]
)


# Seconds between the first rows and a kill.
LONGEST_WAIT_SECONDS = 0.5


def session(master: str, folder: Path) -> SparkSession:
    log4j = folder / "log4j2.properties"
    log4j.write_text("rootLogger.level = off\n")
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log4j}",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.shuffle.partitions": "2",
        "spark.executor.memory": "512m",
        "spark.speculation": "true",
        # So many dead executors would end the application otherwise.
        "spark.task.maxFailures": "8",
        "spark.deploy.maxExecutorRetries": "-1",
    }
    builder = SparkSession.builder.master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    return configure(builder).getOrCreate()


def processes(what: str) -> Iterator[tuple[int, bytes]]:
    """Every process with the text of a file in /proc; some processes end meanwhile."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            yield int(process.name), (process / what).read_bytes()


def executors(application: str) -> list[int]:
    """The executors of this driver's own application."""
    return [
        pid
        for pid, command in processes("cmdline")
        if b"CoarseGrainedExecutorBackend" in command
        and application.encode() in command.split(b"\0")
    ]


def children(parents: list[int]) -> list[int]:
    """The processes by their parent."""
    stats = processes("stat")
    # After the name, which may contain any characters: the state, then the parent.
    return [pid for pid, stat in stats if int(stat.rpartition(b")")[2].split()[1]) in parents]


def workers(application: str) -> list[int]:
    """The Python processes in which tasks run: an executor has a daemon that forks them."""
    return children(children(executors(application)))


# How many are killed at once. An executor ends its Python processes too, and restarts slowly.
VICTIMS: dict[str, Callable[[str], list[int]]] = {
    "all executors": executors,
    "a worker": lambda application: workers(application)[:1],
    "all workers": workers,
    "an executor": lambda application: executors(application)[:1],
}
SUMS = {"v": "sum", "seq": "max"}


def kill_in_mid_sum(folder: Path, master: str, rounds: str, seed: str) -> None:
    """Add to sums, and kill processes: an event that is written twice would count twice."""
    kill_in_mid_put(folder, master, rounds, seed, merge_engine="aggregation", aggregates=SUMS)


def kill_in_mid_put(folder: Path, master: str, rounds: str, seed: str, **rule: Any) -> None:  # noqa: ANN401 - of create
    """Upsert, and kill processes as soon as the first rows are in a log, or a little later."""
    spark = session(master, folder)
    lancemem.spark.table.DRIVER_BYTES = 0
    uri = str(folder / "table.lance")
    table = LancememTable.create(
        spark, uri, schema=SCHEMA, primary_key="id", sharding=lancemem.bucket("id", 4), **rule
    )
    table.upsert(spark.range(10).selectExpr("id", "0L v", "0L seq"))
    chance = random.Random(seed)  # noqa: S311 - a fixed seed is the point
    for number in range(int(rounds)):
        wait = chance.uniform(0, LONGEST_WAIT_SECONDS) if number else 0
        victims = list(VICTIMS.values())[number % len(VICTIMS)]
        killer = Killer(uri, partial(victims, spark.sparkContext.applicationId), wait)
        rows = spark.range(5000).selectExpr("id", f"id * {number + 3} v", f"{number + 1}L seq")
        killer.start()
        done = table.upsert(rows)
        killer.join()
        [read] = table.toDF(columns=["v"], splits=4).agg({"v": "sum"}).collect()
        print(  # noqa: T201 - the test reads it
            f"killed={killer.killed} rows={done.num_rows} shards={done.num_shards} sum={read[0]}"
        )
    spark.stop()


class Killer(threading.Thread):
    """Waits for a new log entry of a table, then some time, and kills the chosen processes."""

    def __init__(self, uri: str, victims: Callable[[], list[int]], wait: float) -> None:
        super().__init__()
        self.uri, self.victims, self.wait, self.killed = uri, victims, wait, 0
        self.before = self.entries()

    def entries(self) -> set[Path]:
        """Return the log entries of all shards."""
        return set(Path(self.uri).rglob("wal/*.arrow"))

    def run(self) -> None:
        """Do it."""
        deadline = time.monotonic() + 120
        while self.entries() == self.before and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(self.wait)
        for pid in self.victims():
            os.kill(pid, signal.SIGKILL)
            self.killed += 1


def die_behind_a_batch(folder: Path) -> None:
    """Stream until the second micro-batch is written, and die before Spark hears of it."""
    spark = session("local[2]", folder)
    table = LancememTable.forPath(spark, str(folder / "table.lance"))
    write, batches = table._write, []

    def write_and_die(rows: DataFrame, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - passed on
        reports = write(rows, *arguments, **named)
        batches.append(reports)
        if len(batches) == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return reports

    table._write = write_and_die  # type: ignore[method-assign]
    reader = spark.readStream.schema("id long, v long, seq long").option("maxFilesPerTrigger", 1)
    query = table.stream_upsert(
        reader.json(str(folder / "events")),
        checkpoint=str(folder / "checkpoint"),
        trigger={"availableNow": True},
    )
    query.awaitTermination()


def pipeline(spark: SparkSession, folder: Path) -> Iterator[tuple[LancememTable, Any]]:
    """Run stream A for one file, move its rows into the base table, run stream B; repeat."""
    first = LancememTable.forPath(spark, str(folder / "first.lance"))
    second = LancememTable.forPath(spark, str(folder / "second.lance"))
    ddl = "id long, v long, name string"
    for number in range(len(list((folder / "events").iterdir()))):
        # The files up to this one: a stream reads those that it has not read.
        names = f"{folder}/events/[0-{number}].json"
        events = spark.readStream.schema(ddl).json(names)
        read = spark.readStream.format("lancemem").option("readChangeFeed", "true")
        changes = read.option("consumer", "second").load(first.uri)
        for table, rows in ((first, events), (second, changes)):
            place = "first" if table is first else "second"
            query = table.stream_upsert(
                rows, checkpoint=str(folder / f"{place}-ck"), trigger={"availableNow": True}
            )
            yield table, query
            query.awaitTermination()
            if table is first:
                first.compact(flush=True)


def die_in_a_pipeline(folder: Path, master: str, place: str, last_write: str) -> None:
    """Die behind a numbered write of one of the two tables, before Spark hears of it."""
    spark = session(master, folder)
    uri, writes = str(folder / f"{place}.lance"), []
    write = LancememTable._write

    def write_and_die(table: LancememTable, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - passed on
        reports = write(table, *arguments, **named)
        if table.uri == uri:
            writes.append(reports)
        if len(writes) == int(last_write):
            os.kill(os.getpid(), signal.SIGKILL)
        return reports

    LancememTable._write = write_and_die  # type: ignore[assignment, method-assign]
    for _ in pipeline(spark, folder):
        pass


def kill_executors_of_a_pipeline(folder: Path, master: str) -> None:
    """Kill all executors while each of the queries runs."""
    spark = session(master, folder)
    lancemem.spark.table.DRIVER_BYTES = 0
    killed = 0
    for _, query in pipeline(spark, folder):
        time.sleep(LONGEST_WAIT_SECONDS)
        if query.isActive:
            for pid in executors(spark.sparkContext.applicationId):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed += 1
    print(f"killed={killed}")  # noqa: T201 - the test reads it
    spark.stop()


STORIES: dict[str, Callable[..., None]] = {
    "kill_in_mid_put": kill_in_mid_put,
    "kill_in_mid_sum": kill_in_mid_sum,
    "die_behind_a_batch": die_behind_a_batch,
    "die_in_a_pipeline": die_in_a_pipeline,
    "kill_executors_of_a_pipeline": kill_executors_of_a_pipeline,
}

if __name__ == "__main__":
    STORIES[sys.argv[1]](Path(sys.argv[2]), *sys.argv[3:])
