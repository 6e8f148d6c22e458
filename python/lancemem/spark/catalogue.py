"""Names in Spark's catalogue, which cannot refer to lancemem tables.

Owns: the refusal of `saveAsTable`, `writeTo`, `toTable`, `catalog.createTable` and `CREATE TABLE`
for the format lancemem. Spark hands a Python data source no path of a table in its catalogue. Spark
would create the name and even write rows to the option `path`, but no query could read the table by
its name. Spark does not ask the source first, so the methods of pyspark are wrapped. Does not own:
paths, views.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrameWriter, DataFrameWriterV2, SparkSession
from pyspark.sql.catalog import Catalog
from pyspark.sql.streaming.readwriter import DataStreamWriter

import lancemem

if TYPE_CHECKING:
    from collections.abc import Callable

REFUSED = "a table of Spark's catalogue loses the path of a lancemem table"
WAYS = (
    "write with df.write.format('lancemem').mode('append').save(path), "
    "writeStream.format('lancemem').start(path) or LancememTable, and give SQL a name with "
    "CREATE TEMPORARY VIEW ... USING lancemem OPTIONS (path '...')"
)
_FORMAT = "lancemem"
_CREATE = re.compile(
    r"^\s*(?:CREATE|REPLACE)\s(?:(?!\bVIEW\b).)*?\bTABLE\b.*?\bUSING\s+`?lancemem`?(?:\W|$)",
    re.IGNORECASE | re.DOTALL,
)
_TEXT = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|--[^\n]*|/\*.*?\*/", re.DOTALL)


def refuse_names() -> None:
    """Let pyspark refuse, in this process, catalogue names of the format lancemem."""
    if hasattr(DataFrameWriter.saveAsTable, "__wrapped__"):
        return
    for writer, chooser, makers in (
        (DataFrameWriter, "format", ("saveAsTable",)),
        (DataFrameWriterV2, "using", ("create", "replace", "createOrReplace")),
        (DataStreamWriter, "format", ("toTable",)),
    ):
        _replace(writer, chooser, _remembering)
        for maker in makers:
            _replace(writer, maker, _refusing)
    _replace(Catalog, "createTable", _refusing)
    _replace(SparkSession, "sql", _refusing_statements)


def _replace(owner: type, name: str, wrap: Callable[[Any], Any]) -> None:
    really = getattr(owner, name)
    setattr(owner, name, functools.wraps(really)(wrap(really)))


def _remembering(choose: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the method of a writer that names its format."""

    def chosen(writer: Any, source: str) -> Any:  # noqa: ANN401 - pyspark's writers
        writer._lancemem_source = source  # noqa: SLF001 - ours
        return choose(writer, source)

    return chosen


def _refusing(make: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a method that makes a name in the catalogue."""

    def made(writer: Any, *given: Any, **named: Any) -> Any:  # noqa: ANN401 - whatever it takes
        sources = (*given[1:], named.get("format"), named.get("source"))
        chosen = getattr(writer, "_lancemem_source", None)
        if _FORMAT in (*(it for it in sources if isinstance(it, str)), chosen):
            raise lancemem.InvalidInputError(f"{REFUSED}: {WAYS}")
        return make(writer, *given, **named)

    return made


def _refusing_statements(run: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the method that runs SQL."""

    def ran(spark: Any, *given: Any, **named: Any) -> Any:  # noqa: ANN401 - as above
        statement = given[0] if given else named.get("sqlQuery")
        if isinstance(statement, str) and makes_a_name(statement):
            raise lancemem.InvalidInputError(f"{REFUSED}: {WAYS}")
        return run(spark, *given, **named)

    return ran


def makes_a_name(statement: str) -> bool:
    """Whether a statement of SQL creates a table of the format lancemem in the catalogue."""
    return _CREATE.search(_TEXT.sub(" ", statement)) is not None
