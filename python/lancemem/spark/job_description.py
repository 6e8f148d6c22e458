"""What Spark's UI shows as the description of a job.

Owns: the description for the length of a verb, and the name of a task's function in a plan. A
description that the user gave stays. Does not own the description of jobs that Spark runs later: an
action on `toDF()` has Spark's own, and its plan shows which table it reads.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from lancemem.spark import transactions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from pyspark.sql import SparkSession

    Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

DESCRIPTION = "spark.job.description"


@contextmanager
def described(spark: SparkSession, verb: str, uri: str) -> Iterator[None]:
    """Describe the jobs of this thread, such as "lancemem upsert into people"."""
    context = spark.sparkContext
    given = context.getLocalProperty(DESCRIPTION)
    batch = context.getLocalProperty(transactions.BATCH_ID)
    # Spark itself describes a micro-batch, by ids without a name of a table.
    if given and batch is None:
        yield
        return
    text = f"lancemem {verb} {table_name(uri)}"
    context.setLocalProperty(DESCRIPTION, text if batch is None else f"{text}, batch {batch}")
    try:
        yield
    finally:
        # None removes the property. Its type in pyspark is that of a present one.
        context.setLocalProperty(DESCRIPTION, given)  # type: ignore[arg-type]


def table_name(uri: str) -> str:
    """Return the name of a table: the last part of its address."""
    return uri.rstrip("/").rpartition("/")[2].removesuffix(".lance")


def named_task(task: Task, verb: str, uri: str) -> Task:
    """Name the function of `mapInArrow`, which plans show, such as "lancemem read of people"."""
    # Spark describes a job when an action runs it, and takes no description with a plan.
    task.__name__ = f"lancemem {verb} {table_name(uri)}"
    return task
