"""Fixtures that every Python test may ask for, and the report of the tests that failed."""

from __future__ import annotations

import os
import sys
import uuid
import warnings
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pytest
from hypothesis import Phase, settings

from tests import seeds

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    import lancemem

# Without shrinking: it takes minutes, and some callers only ask whether a program fails.
settings.register_profile("first-failure", phases=(Phase.explicit, Phase.generate))

# A session takes ten seconds to start and the first job ten more, on two busy cores.
SPARK_TIMEOUT_SECONDS = 600

QUIET_LOG4J = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %p %c: %m%n%ex
"""


class MakeTable(Protocol):
    """Creates a table in a folder of its own, each time it is called."""

    def __call__(
        self,
        schema: pa.Schema | None = None,
        primary_key: list[str] | None = None,
        **options: Any,  # noqa: ANN401 - whatever lancemem.create_table takes
    ) -> lancemem.Table:
        """Create it; the schema is `schema` unless told, the key is its first column."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what asks for a Spark session, before `-m` chooses, and give it time to start one."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")
        if item.get_closest_marker("spark") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SPARK_TIMEOUT_SECONDS))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print below the failures how to repeat each test that drew from a seed."""
    ended = terminalreporter.stats
    failed = [report.nodeid for kind in ("failed", "error") for report in ended.get(kind, ())]
    for again in filter(None, map(seeds.again, dict.fromkeys(failed))):
        terminalreporter.write_line(again)


@pytest.fixture
def table_uri(tmp_path: Path) -> str:
    """Name a place without a table."""
    return str(tmp_path / "table.lance")


@pytest.fixture
def schema() -> pa.Schema:
    """Return the schema of most tests: a key and two columns, one of them nullable."""
    return pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("name", pa.string()),
            pa.field("value", pa.float64()),
        ]
    )


@pytest.fixture
def make_table(tmp_path: Path, schema: pa.Schema) -> MakeTable:
    """Give a function that creates tables, for tests that want several or an unusual one."""
    import lancemem  # noqa: PLC0415 - tests that need no table run without the extension

    usual = schema

    def make(
        schema: pa.Schema | None = None,
        primary_key: list[str] | None = None,
        **options: Any,  # noqa: ANN401
    ) -> lancemem.Table:
        columns = usual if schema is None else schema
        key = [columns.names[0]] if primary_key is None else primary_key
        uri = str(tmp_path / f"{uuid.uuid4().hex}.lance")
        return lancemem.create_table(uri, columns, primary_key=key, **options)

    return make


@pytest.fixture
def table(make_table: MakeTable) -> lancemem.Table:
    """Give an empty, unsharded table of `schema`, keyed by `id`."""
    return make_table()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Start one local Spark of two cores for the whole run; it logs only errors.

    It starts before the first test that uses lancemem on the driver, because Spark forks to
    start its gateway and a fork of a process full of Rust threads can hang.
    """
    from pyspark.sql import SparkSession  # noqa: PLC0415 - most runs need no Spark

    home = tmp_path_factory.mktemp("spark")
    log4j = home / "log4j2.properties"
    log4j.write_text(QUIET_LOG4J)

    # Executors would take the first python3 on the PATH, which may have no pyarrow.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"

    builder = (
        SparkSession.builder.master("local[2,3]")
        .appName("lancemem tests")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={log4j}")
        .config("spark.log.level", "ERROR")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.local.dir", str(home / "local"))
        .config("spark.sql.warehouse.dir", str(home / "warehouse"))
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "65536")
    )
    with warnings.catch_warnings():
        # Test files that import pylance were collected, and it warns of every fork.
        warnings.filterwarnings("ignore", "lance is not fork-safe")
        session = builder.getOrCreate()
    yield session
    session.stop()
