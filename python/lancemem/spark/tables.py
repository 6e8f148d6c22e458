"""Tables that are open in this process.

Owns the one handle a process that tasks share. PySpark keeps a Python worker for many tasks, and
an open handle knows what it has read: its runs, its logs, its newest version.
"""

from __future__ import annotations

import os

import lancemem

_OPEN: dict[tuple[int, str], lancemem.Table] = {}


def open_cached(uri: str) -> lancemem.Table:
    """Return the handle of the table at `uri`, opened once a process; made for UDFs.

    The handle sees every later write. It keeps the columns that the table had when it was opened.
    """
    # A fork has its parent's dictionary, whose handles belong to the parent.
    place = (os.getpid(), uri)
    table = _OPEN.get(place)
    if table is None:
        table = _OPEN[place] = lancemem.open_table(uri)
    return table


def forget(uri: str) -> None:
    """Let the next `open_cached` open the table again."""
    _OPEN.pop((os.getpid(), uri), None)
