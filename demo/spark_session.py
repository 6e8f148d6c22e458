"""The Spark session of a demo.

Owns: the settings that keep Spark quiet and its shuffles as wide as the table. Does not own: what
runs in it, or its end.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from lancemem.spark import configure


def start_spark(master: str, app_name: str, shards: int) -> SparkSession:
    """Start a session at `master` whose shuffles have a partition for each of `shards`."""
    builder = configure(SparkSession.builder.master(master).appName(app_name))
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": str(shards),
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
