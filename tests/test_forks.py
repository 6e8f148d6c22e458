"""Names that a process draws: none comes again in the children that it forks.

Owns: runs and files of the base that children of one process write. Not here: handles in a child
(`test_jobs`), or Spark's workers, which fork before anything is drawn.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import lancemem
from tests.programs import IN_A_FORK, run_python

if TYPE_CHECKING:
    from tests.conftest import MakeTable

# The parent has drawn names: its compaction gives an SSTable's file one in the base table.
COMPACTED = """
import pyarrow as pa
import lancemem

def rows(start, count):
    ids = range(start, start + count)
    return pa.table({"id": ids, "name": [str(i) for i in ids], "value": [0.0] * count})

uri = sys.argv[1]
table = lancemem.open_table(uri)
with table.start_job(shard=0) as job:
    job.put(rows(0, 3))
    job.flush()
table.compact()
"""


def test_bulk_writes_of_two_children_have_folders_of_their_own(make_table: MakeTable) -> None:
    table = make_table()
    done = run_python(
        """
        def child(answers):
            stage = lancemem.open_table(uri).bulk_writer()
            stage.upsert(rows(start, 10))
            runs = stage.finish()
            answers.send([
                (r.shard_id, r.path, r.num_rows, r.in_memory_bytes, r.primary_key_bytes)
                for r in runs
            ])

        for start in (100, 200):
            assert in_a_fork(child) == 0
        """,
        table.uri,
        before=IN_A_FORK + COMPACTED,
    )
    assert done.returncode == 0, done.stderr
    runs = [
        lancemem.StagedSsTable(*run)
        for line in done.stdout.splitlines()
        for run in ast.literal_eval(line)
    ]
    assert len({run.path for run in runs}) == 2, runs
    assert lancemem.open_table(table.uri).commit(runs).num_rows == 20
    ids = lancemem.open_table(table.uri).scan().to_table()["id"].to_pylist()
    assert sorted(ids) == [*range(3), *range(100, 110), *range(200, 210)]


def test_what_two_children_compact_one_after_the_other_is_all_there(make_table: MakeTable) -> None:
    """A linked file of the base has a name of ours, a deletion file one that Lance draws."""
    table = make_table()
    done = run_python(
        """
        def child(answers):
            table = lancemem.open_table(uri)
            with table.start_job(shard=0) as job:
                job.put(rows(start, 20_000))
                job.delete(rows(start, 5).select(["id"]))
                job.flush()
            table.compact()
            with table.start_job(shard=0) as job:
                job.delete(rows(start + 5, 5).select(["id"]))
                job.flush()
            table.compact()
            table.create_record_index()
            answers.send(len(list(table.admin.verify_sstables())))

        for start in (100_000, 200_000, 300_000):
            assert in_a_fork(child) == 0
        """,
        table.uri,
        before=IN_A_FORK + COMPACTED,
    )
    assert done.returncode == 0, done.stderr
    again = lancemem.open_table(table.uri)
    ids = again.scan().to_table()["id"].to_pylist()
    starts = (100_000, 200_000, 300_000)
    expected = [*range(3), *(i for start in starts for i in range(start + 10, start + 20_000))]
    assert sorted(ids) == expected
    assert not again.admin.verify_record_index().damage
