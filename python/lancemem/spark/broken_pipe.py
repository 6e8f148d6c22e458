"""The end of a read that Spark does not take to its end, as for `limit` and `show`.

Owns: the silence of a Python worker whose connection to Spark is closed. Such a worker ends, and
pyspark prints the trace of a BrokenPipeError for each of them. Does not own errors of a read.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

_T = TypeVar("_T")


def until_closed(items: Iterator[_T]) -> Iterator[_T]:
    """Yield the items that a task returns to Spark.

    Where Spark has closed the connection, pyspark closes this generator while it handles that
    error. The worker takes no more tasks, and what it prints from then on is about the connection.
    """
    try:
        yield from items
    except GeneratorExit as end:
        if isinstance(end.__context__, ConnectionError):
            sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - to the end
        raise
