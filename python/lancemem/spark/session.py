"""The Spark session settings that lancemem needs or profits from.

Owns `configure` and the checks of the Python that tasks run under. It starts no session, and
changes no other setting of the user.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.errors import PythonException

import lancemem

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import SparkSession

# Spark's default of 10,000 rows doubles the cost of a row at the JVM boundary; more rows gain
# nothing.
ARROW_BATCH_ROWS = 65_536

_CHECKED: set[str] = set()
# What a task reports whose Python lacks a package.
_MISSING = re.compile(r"No module named '(\w+)")


def configure(builder: SparkSession.Builder) -> SparkSession.Builder:
    """Prepare a session builder for lancemem and return it.

    Sets the rows of one Arrow batch and the session time zone (UTC: the zone of timestamps in Arrow
    batches), and makes tasks run under this Python unless ``PYSPARK_PYTHON`` is set.
    """
    _settle_task_python()
    settings = {
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(ARROW_BATCH_ROWS),
        "spark.sql.session.timeZone": "UTC",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder


def check_workers(spark: SparkSession) -> None:
    """Fail early, once a session, where tasks run under a Python that cannot serve this driver."""
    application = spark.sparkContext.applicationId
    if application in _CHECKED:
        return

    def describe(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # Pickled by value, without a reference to lancemem: the task has to run where lancemem is
        # missing.
        import sys  # noqa: PLC0415

        import pyarrow as pa  # noqa: PLC0415

        for _ in batches:
            pass
        try:
            from lancemem import __version__ as version  # noqa: PLC0415
        except ImportError:
            version = ""
        row = {"python": sys.executable, "version": version}
        yield pa.RecordBatch.from_pylist([row])

    describe.__module__ = "__main__"
    try:
        rows = (
            spark.range(0, 1, 1, 1).mapInArrow(describe, "python string, version string").collect()
        )
    except PythonException as error:
        missing = _MISSING.search(str(error))
        if missing is None:
            raise
        raise lancemem.LancememError(
            f"Spark's tasks run under a Python that has no {missing.group(1)}. Start the session "
            "with lancemem.spark.configure(builder), or set PYSPARK_PYTHON to an interpreter that "
            "has pyarrow and lancemem on every node"
        ) from error
    for row in rows:
        if row.version != lancemem.__version__:
            have = f"lancemem {row.version}" if row.version else "no lancemem"
            raise lancemem.LancememError(
                f"Spark's tasks run under {row.python}, which has {have}; the driver has "
                f"{lancemem.__version__}. Set PYSPARK_PYTHON to an interpreter with the same "
                "version on every node, before the session starts"
            )
    _CHECKED.add(application)


def _settle_task_python() -> None:
    """Let tasks run under the driver's Python; warn if the user chose another one on this machine.

    Without ``PYSPARK_PYTHON``, Spark starts whatever ``python3`` is first on the path, which in a
    virtual environment is often one without lancemem.
    """
    chosen = os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    found = shutil.which(chosen)
    # A name that is not found on this machine may exist on the executors.
    if found is None or _environment(found) == _environment(sys.executable):
        return
    warnings.warn(
        f"PYSPARK_PYTHON is {chosen}, which is not the environment of {sys.executable}: "
        "Spark tasks need lancemem, pyarrow and pandas installed there too",
        stacklevel=3,
    )


def _environment(executable: str) -> Path:
    # Symbolic links are not followed: every virtual environment links to the same interpreter.
    # Parts such as `..` are removed, so that two spellings of a path are one environment.
    return Path(os.path.abspath(executable)).parent  # noqa: PTH100 - pathlib keeps `..`
