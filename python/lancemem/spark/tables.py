"""Tables that are open in this process.

Owns one handle for each table of the process, which its tasks share, and the check that the same
table still exists. PySpark keeps a Python worker for many tasks, and an open handle caches what it
has read: SSTables, logs, the newest version.
"""

from __future__ import annotations

import os
import threading

import lancemem

# A worker that stays for days may open more tables than its memory holds.
MAX_HANDLES = 8


class _Handles:
    """The handles of this process, an LRU list: the most recently used at the end."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.tables: dict[str, lancemem.Table] = {}
        self.parents: list[dict[str, lancemem.Table]] = []

    def begin_anew(self) -> None:
        """Forget the parent's handles after a fork: they cannot be used here."""
        self.parents.append(self.tables)
        self.lock, self.tables = threading.Lock(), {}

    def get(self, uri: str) -> lancemem.Table | None:
        with self.lock:
            return self.tables.get(uri)

    def keep(self, uri: str, table: lancemem.Table) -> None:
        """Keep a handle, and evict the least recently used handles."""
        with self.lock:
            self.tables.pop(uri, None)
            self.tables[uri] = table
            for oldest in list(self.tables)[:-MAX_HANDLES]:
                del self.tables[oldest]


_HANDLES = _Handles()
os.register_at_fork(after_in_child=_HANDLES.begin_anew)


def open_cached(uri: str) -> lancemem.Table:
    """Return the handle of the table at `uri`, opened once a process. Use it in UDFs.

    The handle sees every later write, and has the present columns of the table. Where another table
    was created at `uri` since, it is opened again. A process keeps the handles of the eight most
    recently used tables.
    """
    table = _HANDLES.get(uri)
    if table is not None:
        try:
            table.refresh()
        except lancemem.InvalidInputError:
            # Another table is at `uri`, or its columns changed in a way that this handle cannot
            # follow.
            table = None
    if table is None:
        table = lancemem.open_table(uri)
    _HANDLES.keep(uri, table)
    return table
