"""Random names of files and folders are never repeated in forked children.

Owns: SSTables and base files that children of one process write. Not here: handles in a child
(`test_jobs`), or Spark's workers, which fork before anything is drawn.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import lancemem
from tests.programs import IN_A_FORK, run_python

if TYPE_CHECKING:
    from tests.conftest import MakeTable

# The parent has drawn random names: its compaction links an SSTable's file into the base table.
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
            bulk = lancemem.open_table(uri).bulk_writer()
            bulk.upsert(rows(start, 10))
            sstables = bulk.finish()
            answers.send([
                (r.shard_id, r.path, r.num_rows, r.in_memory_bytes, r.primary_key_bytes)
                for r in sstables
            ])

        for start in (100, 200):
            assert in_a_fork(child) == 0
        """,
        table.uri,
        before=IN_A_FORK + COMPACTED,
    )
    assert done.returncode == 0, done.stderr
    sstables = [
        lancemem.StagedSsTable(*sstable)
        for line in done.stdout.splitlines()
        for sstable in ast.literal_eval(line)
    ]
    assert len({sstable.path for sstable in sstables}) == 2, sstables
    assert lancemem.open_table(table.uri).commit(sstables).num_rows == 20
    ids = lancemem.open_table(table.uri).scan().to_table()["id"].to_pylist()
    assert sorted(ids) == [*range(3), *range(100, 110), *range(200, 210)]


def test_what_two_children_compact_one_after_the_other_is_all_there(make_table: MakeTable) -> None:
    """A linked base file has a name that lancemem draws, a deletion file one that Lance draws."""
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
