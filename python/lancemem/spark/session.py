"""The Spark session settings that lancemem needs or profits from.

Owns `configure` and the check of the Python that tasks will run under. It starts no session, and it
leaves every setting that it does not name as the user made it.
"""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Spark's own 10,000 rows make the JVM boundary about twice as dear a row; more gains nothing.
ARROW_BATCH_ROWS = 65_536


def configure(builder: SparkSession.Builder) -> SparkSession.Builder:
    """Prepare a session builder for lancemem and return it.

    Sets the rows of one Arrow batch and the session time zone (UTC: the zone that timestamps carry
    across the boundary), and makes tasks run under this Python unless ``PYSPARK_PYTHON`` is set.
    """
    _settle_task_python()
    return builder.config(
        "spark.sql.execution.arrow.maxRecordsPerBatch", str(ARROW_BATCH_ROWS)
    ).config("spark.sql.session.timeZone", "UTC")


def _settle_task_python() -> None:
    """Let tasks run under the driver's Python; warn if the user chose another one on this machine.

    Without ``PYSPARK_PYTHON``, Spark starts whatever ``python3`` is first on the path, which in a
    virtual environment is often one without lancemem.
    """
    chosen = os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    found = shutil.which(chosen)
    # A name that this machine does not know may well exist on the executors.
    if found is None or _environment(found) == _environment(sys.executable):
        return
    warnings.warn(
        f"PYSPARK_PYTHON is {chosen}, which is not the environment of {sys.executable}: "
        "Spark tasks need lancemem, pyarrow and pandas installed there too",
        stacklevel=3,
    )


def _environment(executable: str) -> Path:
    # Links are not followed: every virtual environment links to the same interpreter.
    return Path(executable).absolute().parent
