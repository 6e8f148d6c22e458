"""Tables that are open in this process.

Owns the one handle a process that tasks share, and that it is of the table which is there now.
PySpark keeps a Python worker for many tasks, and an open handle knows what it has read: its runs,
its logs, its newest version.
"""

from __future__ import annotations

import os

import lancemem

_OPEN: dict[tuple[int, str], lancemem.Table] = {}


def open_cached(uri: str) -> lancemem.Table:
    """Return the handle of the table at `uri`, opened once a process; made for UDFs.

    The handle sees every later write, and has the columns that the table has now. Where another
    table was made at `uri` since, it is opened again.
    """
    # A fork has its parent's dictionary, whose handles belong to the parent.
    place = (os.getpid(), uri)
    table = _OPEN.get(place)
    if table is not None:
        try:
            table.refresh()
        except lancemem.InvalidInputError:
            # It is another table, or has columns that rows of before cannot follow.
            table = None
    if table is None:
        table = _OPEN[place] = lancemem.open_table(uri, adopt=False)
    return table
