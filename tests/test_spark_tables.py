"""The table handles that a process caches for its tasks.

Owns the cache, without a Spark session. Not here: tables that change under a session
(tests/spark/test_schema_change).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from lancemem.spark import open_cached, tables
from tests.programs import IN_A_FORK, run_python

if TYPE_CHECKING:
    import lancemem
    from tests.conftest import MakeTable


def test_a_process_keeps_the_handles_of_the_tables_that_it_asked_for_last(
    make_table: MakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "_HANDLES", tables._Handles())
    uris = [make_table().uri for _ in range(tables.MAX_HANDLES + 1)]
    handles = [open_cached(uri) for uri in uris[:-1]]
    assert open_cached(uris[0]) is handles[0]
    open_cached(uris[-1])
    assert open_cached(uris[0]) is handles[0]
    assert open_cached(uris[1]) is not handles[1]
    assert len(tables._HANDLES.tables) == tables.MAX_HANDLES
    assert handles[1].scan().count_rows() == 0, "who has a handle goes on with it"


def test_a_fork_opens_its_tables_itself(table: lancemem.Table) -> None:
    ended = run_python(
        """
        from lancemem.spark import open_cached

        def child(answers):
            answers.send(open_cached(sys.argv[1]).scan().count_rows())

        parents = open_cached(sys.argv[1])
        print(in_a_fork(child), parents is open_cached(sys.argv[1]))
        """,
        table.uri,
        before=IN_A_FORK,
    )
    assert ended.stdout.split() == ["0", "0", "True"], ended.stderr
