"""The Spark session of the examples, on this machine."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from lancemem.spark import configure

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def session_and_folder() -> Iterator[tuple[SparkSession, Path]]:
    """Start a session, and give a folder that is removed at the end."""
    builder = SparkSession.builder.master("local[2]").appName("lancemem example")
    builder = builder.config("spark.ui.enabled", "false").config("spark.log.level", "ERROR")
    spark = configure(builder.config("spark.sql.shuffle.partitions", "2")).getOrCreate()
    with tempfile.TemporaryDirectory() as folder:
        yield spark, Path(folder)
    spark.stop()
