"""The end of the interpreter while daemon threads are in calls of lancemem.

Owns: that the process ends with exit code 0 and an empty stderr, whatever a daemon thread is in:
Python that a call runs, or any public call. Not here: forks (test_forks), exits that skip the
interpreter.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import pytest

import lancemem
from tests.programs import run_python

if TYPE_CHECKING:
    from tests.conftest import MakeTable

SET_UP = """
import builtins, os, sys, threading
import pyarrow as pa
import lancemem

table = lancemem.open_table(sys.argv[1])
rows = pa.table({"id": range(2000), "name": ["a" * 50] * 2000, "value": [0.5] * 2000})
table.upsert(rows)
entered = threading.Event()

class LetsGo:
    # Torn down last: each call lets go of the GIL, which another thread then asks for.
    def __del__(self, stat=os.stat):
        for _ in range(2000):
            stat("/")

builtins.lets_go = LetsGo()

def spin(*_, **__):
    entered.set()
    while True:
        pass

def at_the_end(*calls):
    for call in calls:
        threading.Thread(target=call, daemon=True).start()
"""

# In each case a call runs Python code: of pyarrow, a producer, a file name, a log filter or a list
# of keys.
INNER = {
    "to_table": "pa.table = spin; call = lambda: table.scan().to_table()",
    "to_pandas": "pa.table = spin; call = lambda: table.scan().to_pandas()",
    "to_polars": "import polars; polars.from_arrow = spin; call = lambda: table.scan().to_polars()",
    "iteration": "pa.record_batch = spin; call = lambda: next(iter(table.scan()))",
    "schema": "pa.schema = spin; call = lambda: table.schema",
    "get": "pa.table = spin; call = lambda: table.get([1])",
    "get of objects": "pa.array = spin; call = lambda: table.get([1])",
    "snapshot.get": "at = table.snapshot(); pa.table = spin; call = lambda: at.get([1])",
    "upsert of an object": """
        class Rows:
            __arrow_c_stream__ = spin
        call = lambda: table.upsert(Rows())
    """,
    "upsert of a stream": """
        def batches():
            yield rows.to_batches()[0]
            spin()
        stream = pa.RecordBatchReader.from_batches(rows.schema, batches())
        call = lambda: table.upsert(stream)
    """,
    "create_table": """
        class Schema:
            __arrow_c_schema__ = spin
        call = lambda: lancemem.create_table(sys.argv[1] + "2", Schema(), primary_key="id")
    """,
    "open_table": """
        class Place:
            __fspath__ = spin
        call = lambda: lancemem.open_table(Place())
    """,
    "a filter": """
        class Filter:
            to_substrait = spin
        call = lambda: table.scan(filter=Filter())
    """,
    "a function of progress": """
        call = lambda: table.admin.verify_record_index(progress=spin)
        table.compact(flush=True)
        table.create_record_index()
    """,
    "a merge function": """
        import types
        ending = types.ModuleType("ending")
        ending.merge = lambda older, newer: spin() if len(older) else newer
        sys.modules["ending"] = ending
        rule = {"merge_engine": "aggregation", "merge_functions": {"name": "ending:merge"}}
        merged = lancemem.create_table(sys.argv[1] + "3", rows.schema, primary_key="id", **rule)
        merged.upsert(rows)
        merged.upsert(rows)
        call = lambda: merged.scan().to_table()
    """,
    "a log filter": """
        import logging
        job = table.start_job(shard=0)
        logging.getLogger("lancemem").addFilter(spin)
        logging.getLogger("lancemem").setLevel(logging.INFO)
        call = job.serve
    """,
}


@pytest.mark.parametrize("inner", INNER)
def test_a_thread_that_python_ends_below_a_call_does_not_abort_the_process(
    inner: str, make_table: MakeTable
) -> None:
    body = textwrap.dedent(INNER[inner]) + "\nat_the_end(call)\nentered.wait()\nprint('the end')\n"
    done = run_python(body, make_table().uri, before=SET_UP)
    assert (done.returncode, done.stdout, done.stderr) == (0, "the end\n", "")


# Calls of one child, each in a loop in its own thread. `again` is another table.
GROUPS = {
    "scans": [
        "table.scan().to_table()",
        # Without pyarrow's threads: where one of them asks for the GIL at the end, it is gone, and
        # libarrow's exit handler waits for it for ever. No frame of lancemem is in that.
        "table.scan().to_pandas(use_threads=False)",
        "table.scan().to_polars()",
        "table.scan().count_rows()",
        "list(table.scan())",
        "list(table.scan().to_batches())",
    ],
    "reads": [
        "pa.RecordBatchReader.from_stream(table.scan()).read_all()",
        "table.scan().to_reader()",
        "table.scan().schema",
        "table.scan().explain()",
        "table.get([1, 2, 3])",
        "table.get([1, -1], missing='null')",
    ],
    "snapshots": [
        "table.snapshot()",
        "snapshot.scan().to_table()",
        "snapshot.get([1, 2])",
        "snapshot.get([1, 2], missing='null')",
        "snapshot.count_rows()",
        "snapshot.to_dataset().to_table()",
        "table.to_dataset().to_table()",
    ],
    "writes": [
        "table.upsert(rows)",
        "table.delete([1, 2])",
        "table.apply(rows, pa.array([False] * 2000))",
        "lancemem.open_table(sys.argv[1])",
        "lancemem.create_table(f'{sys.argv[1]}-{next(numbers)}', rows.schema, primary_key='id')",
        "table.txn_version('loader', shard=0)",
        "table.shard_ordinals(rows)",
    ],
    "first calls": [
        "table.head(5)",
        "table.sql('SELECT count(*) FROM t').to_table()",
        "again.update({'value': 'value + 1'})",
        "again.merge(rows).when_matched_update_all().execute()",
    ],
    "retracts": [
        "totals.retract(taken)",
        "adder.retract(taken)",
        "totals.upsert(taken)",
    ],
    "writers": [
        "writer.put(rows)",
        "writer.delete([1])",
        "writer.apply(rows, pa.array([False] * 2000))",
        "writer.scan().count_rows()",
        "writer.get([1, 2])",
        "writer.flush()",
        "writer.stats()",
        "again.writer().close()",
    ],
    "jobs": [
        "job.put(rows)",
        "job.put(rows, durable=False)",
        "job.delete([1])",
        "job.retract(rows)",
        "job.apply(rows, pa.array([False] * 2000))",
        "job.flush()",
        "job.stats()",
        "job.prometheus()",
        "again.start_job(shard=0).close()",
    ],
    "endpoints": [
        "job.serve().close()",
        "lancemem.connect_job(endpoint.location, endpoint.token)",
        "table.scan(consistency='live', jobs=[remote]).to_table()",
        "job.put(rows)",
    ],
    "bulk": [
        "again.commit(staged(again))",
        "again.abort(staged(again), write='w')",
        "again.bulk_writer().upsert(rows)",
        "again.bulk_writer().delete([1])",
        "again.bulk_writer().apply(rows, pa.array([False] * 2000))",
    ],
    "maintenance": [
        "table.compact()",
        "table.compact(progress=str)",
        "table.flush()",
        "table.collect_garbage()",
        "table.create_record_index()",
        "again.drop_record_index()",
        "table.admin.verify_record_index()",
        "table.upsert(rows)",
        "table.refresh()",
        "table.admin.truncate_wal(0, from_position=1 << 40)",
    ],
    "changes": [
        "table.changes().to_table()",
        "table.changes(since=1).counts",
        "table.changes_consumer('ours').poll()",
        "table.changes_consumers()",
        "table.changes_consumer_info('ours')",
        "table.move_changes_consumer('ours', 1)",
        "table.drop_changes_consumer('none')",
        "again.apply_changes(table.changes().to_table())",
    ],
    "searches": [
        "points.search([1.0, 0.5]).to_table()",
        "pinned.search([[1.0, 0.5], [2.0, 0.5]]).to_table()",
        "points.search('a', text_columns='body').to_table()",
        "points.search([1.0, 0.5], text='a', text_columns='body').to_table()",
        "points.create_index('vec', 'IVF_FLAT', num_partitions=2, replace=True)",
        "points.indexes()",
        "points.optimize_indexes()",
        "points.drop_index('vec_idx')",
    ],
    "descriptions": [
        "table.shards()",
        "table.stats()",
        "table.history()",
        "table.admin.verify_wal(0)",
        "table.admin.verify_sstables()",
        "table.alter_column('value', pa.float64())",
        "again.alter(deletion_vectors=True)",
        "again.write_deletion_vectors()",
        "table.admin.relist_sstables()",
        "table.admin.abandon_generations(0, through_generation=1)",
    ],
}
# Attributes and methods that only return a stored value, and pylance's own call.
NO_CALLS = {
    "to_lance",
    *(
        "uri",
        "primary_key",
        "sharding",
        "merge_rule",
        "admin",
        "shard_id",
        "schema",
        "location",
        "token",
    ),
    *(
        "deletion_vectors",
        "changelog",
        "base_version",
        "num_base_fragments",
        "num_parts",
        "stored_bytes",
    ),
}


@pytest.mark.parametrize("group", GROUPS)
def test_a_process_ends_whatever_call_its_daemon_threads_are_in(
    group: str, make_table: MakeTable
) -> None:
    body = """
    import itertools
    numbers = itertools.count()
    again = lancemem.create_table(sys.argv[1] + "-again", rows.schema, primary_key="id")
    snapshot = table.snapshot()
    group = sys.argv[2]
    writer = table.writer() if group == "writers" else None
    job = table.start_job(shard=0) if group in ("jobs", "endpoints") else None
    if group == "endpoints":
        endpoint = job.serve()
        remote = lancemem.connect_job(endpoint.location, endpoint.token)

    if group == "retracts":
        rule = {"merge_engine": "aggregation", "aggregates": {"value": "sum"}}
        taken = rows.select(["id", "value"])
        uri = sys.argv[1] + "-totals"
        totals = lancemem.create_table(
            uri, taken.schema, primary_key="id", deletes="retract", **rule
        )
        adder = totals.writer()

    if group == "searches":
        body = ("body", pa.string())
        vectors = pa.schema([("id", pa.int64()), body, ("vec", pa.list_(pa.float32(), 2))])
        points = lancemem.create_table(sys.argv[1] + "-points", vectors, primary_key="id")
        points.upsert([{"id": n, "body": "a b", "vec": [float(n), 0.5]} for n in range(500)])
        points.compact(flush=True)
        pinned = points.snapshot()

    def staged(table):
        bulk = table.bulk_writer()
        bulk.upsert(rows)
        return bulk.finish()

    def over_and_over(text, inside):
        call = compile(text, "<call>", "eval")
        def run():
            while True:
                inside.release()
                try:
                    eval(call)
                # Some take the shard from each other.
                except lancemem.LancememError:
                    pass
        return run

    inside = threading.Semaphore(0)
    at_the_end(*(over_and_over(text, inside) for text in sys.argv[3:]))
    for _ in range(8 * len(sys.argv[3:])):
        inside.acquire()
    print("the end")
    """
    done = run_python(body, make_table().uri, group, *GROUPS[group], before=SET_UP)
    assert (done.returncode, done.stdout, done.stderr) == (0, "the end\n", "")


def test_every_public_call_is_among_those() -> None:
    called = " ".join(call for calls in GROUPS.values() for call in calls) + " .finish("
    kinds = (lancemem.Table, lancemem.Job, lancemem.Snapshot, lancemem.BulkWriter, lancemem.Scan)
    more = (lancemem.TableWriter, lancemem.Admin, lancemem.Endpoint, lancemem.RemoteJob)
    for kind in (*kinds, *more):
        names = {name for name in dir(kind) if not name.startswith("_")} - NO_CALLS
        assert {name for name in names if f".{name}(" not in called} == set()
