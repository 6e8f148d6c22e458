"""Tables that are open in this process.

Owns the one handle a process that tasks share, and that it is of the table which is there now.
PySpark keeps a Python worker for many tasks, and an open handle knows what it has read: its
SSTables, its logs, its newest version.
"""

from __future__ import annotations

import os
import threading

import lancemem

# A worker that stays for days may meet more tables than its memory holds.
MOST_HANDLES = 8


class _Handles:
    """The handles of this process, the one that was asked for last at the end."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.tables: dict[str, lancemem.Table] = {}
        self.parents: list[dict[str, lancemem.Table]] = []

    def begin_anew(self) -> None:
        """Leave everything to the parent of this fork: its handles are no good here."""
        self.parents.append(self.tables)
        self.lock, self.tables = threading.Lock(), {}

    def get(self, uri: str) -> lancemem.Table | None:
        with self.lock:
            return self.tables.get(uri)

    def keep(self, uri: str, table: lancemem.Table) -> None:
        """Keep a handle, and let go of those that nobody has asked for the longest."""
        with self.lock:
            self.tables.pop(uri, None)
            self.tables[uri] = table
            for oldest in list(self.tables)[:-MOST_HANDLES]:
                del self.tables[oldest]


_HANDLES = _Handles()
os.register_at_fork(after_in_child=_HANDLES.begin_anew)


def open_cached(uri: str) -> lancemem.Table:
    """Return the handle of the table at `uri`, opened once a process; made for UDFs.

    The handle sees every later write, and has the columns that the table has now. Where another
    table was made at `uri` since, it is opened again. A process keeps the handles of the eight
    tables that it asked for last.
    """
    table = _HANDLES.get(uri)
    if table is not None:
        try:
            table.refresh()
        except lancemem.InvalidInputError:
            # It is another table, or has columns that rows of before cannot follow.
            table = None
    if table is None:
        table = lancemem.open_table(uri)
    _HANDLES.keep(uri, table)
    return table
