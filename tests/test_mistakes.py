"""Mistakes that users make, each answered in words that name the way out.

Owns: the type of the error, and the words for what to do next, of an engineer who comes from
pylance or lancedb, of a user of Delta, and of an engineer of machine learning. Does not own: names
of other libraries (test_first_call_lists), every refusal of rows (test_input), errors of Spark's
tasks (tests/spark/test_task_errors).
"""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import lance
import numpy as np
import pandas as pd  # noqa: TID253 - frames are among the mistakes
import polars as pl  # noqa: TID253
import pyarrow as pa
import pytest

import lancemem

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import MakeTable

Input = lancemem.InvalidInputError
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("name", pa.string()),
        ("score", pa.float32()),
        ("n", pa.int32()),
        ("vec", pa.list_(pa.float32(), 3)),
        ("at", pa.timestamp("us", "UTC")),
    ]
)
NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
ROW = {"id": 2, "name": "Grace", "score": 0.5, "n": 1, "vec": [1.0, 0.0, 0.0], "at": NOON}


def rows(**other: object) -> list[dict[str, Any]]:
    return [{**ROW, **other}]


def without(*names: str) -> list[dict[str, Any]]:
    return [{name: value for name, value in ROW.items() if name not in names}]


class Place(NamedTuple):
    """What a mistake is made with: a table of one row, an empty folder, and a table factory."""

    table: lancemem.Table
    folder: Path
    make: MakeTable


@pytest.fixture
def place(make_table: MakeTable, tmp_path: Path) -> Place:
    table = make_table(SCHEMA)
    table.upsert(rows(id=1))
    (tmp_path / "empty").mkdir()
    return Place(table, tmp_path / "empty", make_table)


class Mistake(NamedTuple):
    """A call, the error that it raises, and the words that name the way out."""

    call: Callable[[Place], object]
    error: type[Exception]
    words: str


def plain(place: Place) -> str:
    """Write a table with pylance alone."""
    uri = str(place.folder / "plain.lance")
    lance.write_dataset(pa.table({"id": [1], "name": ["Ada"]}), uri)
    return uri


def put_after_close(place: Place) -> None:
    job = place.table.start_job(shard=0)
    job.close()
    job.put(rows())


def write_after_close(place: Place) -> None:
    with place.table.writer() as writer:
        pass
    writer.put(rows())


def put_after_a_takeover(place: Place) -> None:
    with place.table.start_job(shard=0) as first, place.table.start_job(shard=0):
        first.put(rows())


def upsert_beside_a_killed_job(place: Place) -> None:
    program = (
        "import os, sys, lancemem;"
        "job = lancemem.open_table(sys.argv[1]).start_job(shard=0);"
        "os._exit(0)"
    )
    command = [sys.executable, "-c", program, place.table.uri]
    subprocess.run(command, check=True, timeout=60)  # noqa: S603 - the program above
    place.table.upsert(rows())


def put_into_another_shard(place: Place) -> None:
    table = place.make(SCHEMA, sharding=lancemem.bucket("id", 2))
    with table.start_job(shard=0) as job:
        job.put([row for id_ in range(20) for row in rows(id=id_)])


def start_a_job_without_its_shard(place: Place) -> None:
    place.make(SCHEMA, sharding=lancemem.bucket("id", 2)).start_job()


def live_read_of_one_job(place: Place) -> None:
    with place.table.start_job(shard=0) as job:
        place.table.scan(consistency="live", jobs=job)  # type: ignore[arg-type]


def search_lists_of_any_length(place: Place) -> None:
    people = [{"id": 1, "vec": [1.0, 0.0, 0.0]}]
    table = lancemem.create_table(place.folder / "lists.lance", people, primary_key="id")
    table.search([1.0, 0.0, 0.0]).to_table()


def loose(place: Place) -> Any:  # noqa: ANN401 - a name that a type checker would refuse
    """Return the table without its type."""
    return place.table


def of_no_key(place: Place) -> lancemem.Table:
    return lancemem.create_table(place.folder / "log.lance", [{"id": 1}])


def created(place: Place, *args: Any, **options: Any) -> object:  # noqa: ANN401
    return lancemem.create_table(place.folder / "new.lance", *args, **options)


ROWS = {
    "a column that is not in the table": Mistake(
        lambda it: it.table.upsert(rows(extra=1)),
        Input,
        "'extra' is not in the table; it has id, name, .*leave the column out, or add it",
    ),
    "a column that is left out": Mistake(
        lambda it: it.table.upsert(without("score")),
        Input,
        "'score' of type float is missing; .*nulls where there is no value, or .*update",
    ),
    "a key that is left out": Mistake(
        lambda it: it.table.upsert(without("id")), Input, "'id' of type int64 is missing; .*give"
    ),
    "a null key": Mistake(
        lambda it: it.table.upsert(rows(id=None)),
        Input,
        "key column 'id' is null in row 0; every row needs its key: fill it, or drop the row",
    ),
    "a key as text": Mistake(
        lambda it: it.table.upsert(rows(id="2")),
        Input,
        "'id' .*string.*convert the values to int64",
    ),
    "a key as a float": Mistake(
        lambda it: it.table.upsert(rows(id=2.0)),
        Input,
        "'id' .*double.*convert the values to int64",
    ),
    "a fraction for an integer": Mistake(
        lambda it: it.table.upsert(rows(n=1.5)),
        Input,
        "'n' is of type double, expected int32: row 0 has 1.5, which is not a whole number",
    ),
    "a number as text": Mistake(
        lambda it: it.table.upsert(rows(n="7")), Input, "'n' .*string.*convert the values to int32"
    ),
    "a text among numbers": Mistake(
        lambda it: it.table.upsert([*rows(), *rows(id=3, n="old")]),
        Input,
        r"column 'n' .*row 1 is str.*pass an Arrow table with the types",
    ),
    "a number beyond the column": Mistake(
        lambda it: it.table.upsert(rows(n=2**40)), Input, "'n' .*int32: row 0 has 1099511627776"
    ),
    "a double for a float": Mistake(
        lambda it: it.table.upsert(rows(score=0.1)), Input, "'score' .*0.1.*round_floats=True"
    ),
    "a whole number that a float cannot hold": Mistake(
        lambda it: it.table.upsert(rows(score=2**24 + 1)),
        Input,
        "'score' .*row 0 has 16777217, .*give the values as floats",
    ),
    "a vector that is too short": Mistake(
        lambda it: it.table.upsert(rows(vec=[1.0, 0.0])),
        Input,
        "'vec' .*a vector of 3 values in row 0 has length 2",
    ),
    "vectors of numpy that are too wide": Mistake(
        lambda it: it.table.upsert({**_columns(2), "vec": np.zeros((2, 4), np.float32)}),
        Input,
        "'vec' .*the column stores vectors of 3 values, the rows bring 4",
    ),
    "an array of three dimensions": Mistake(
        lambda it: it.table.upsert({**_columns(2), "vec": np.zeros((2, 1, 3), np.float32)}),
        Input,
        r"'vec' is an array of shape \(2, 1, 3\).*reshape it to \(rows, width\)",
    ),
    "a time without a zone": Mistake(
        lambda it: it.table.upsert(rows(at=NOON.replace(tzinfo=None))),
        Input,
        r"'at' .*tz=UTC.*give it one, such as datetime\(..., tzinfo=UTC\)",
    ),
    "a time as text": Mistake(
        lambda it: it.table.upsert(rows(at="2026-01-01T12:00:00Z")),
        Input,
        "'at' .*string.*convert the values to timestamp",
    ),
    "one row that is no list": Mistake(
        lambda it: it.table.upsert(dict(ROW)),
        Input,
        r"put a dict that is one row into a list: \[row",
    ),
    "rows as tuples": Mistake(
        lambda it: it.table.upsert([(1, "Ada")]),
        Input,
        "expected .*a list of dicts, a dict of columns.*, got list of tuple",
    ),
    "the path of a file": Mistake(
        lambda it: it.table.upsert("rows.parquet"),
        Input,
        r"got str; read the file first: pyarrow.dataset.dataset\(path\)",
    ),
    "a series": Mistake(
        lambda it: it.table.upsert(pd.Series([1])), Input, r"got Series; make a frame with to_frame"
    ),
    "no rows at all": Mistake(
        lambda it: it.table.upsert([]), Input, "the list is empty.*pass an Arrow table without rows"
    ),
}
TABLES = {
    "an upsert to a plain Lance table": Mistake(
        lambda it: lancemem.open_table(plain(it)), Input, r"call lancemem.enable\(uri"
    ),
    "a Lance table that is enabled without a key": Mistake(
        lambda it: lancemem.enable(plain(it)), Input, "name its key columns with primary_key="
    ),
    "a folder that is no table": Mistake(
        lambda it: lancemem.open_table(it.folder),
        lancemem.TableNotFoundError,
        "there is no table; check the address, or create one",
    ),
    "a table that exists": Mistake(
        lambda it: lancemem.create_table(it.table.uri, SCHEMA, primary_key="id"),
        lancemem.TableExistsError,
        r"exists; open it with lancemem.open_table\(uri\)",
    ),
    "a store that is not in the wheel": Mistake(
        lambda _: lancemem.open_table("gs://bucket/table"), Input, "use a path, file:// or s3://"
    ),
    "a key that is no column": Mistake(
        lambda it: created(it, SCHEMA, primary_key="ID"),
        Input,
        "'ID' is not in the schema; it has id",
    ),
    "a key of floats": Mistake(
        lambda it: created(it, SCHEMA, primary_key="score"),
        Input,
        "cannot be a primary key.*use an",
    ),
    "shards by a column that is no key": Mistake(
        lambda it: created(it, SCHEMA, primary_key="id", sharding=lancemem.bucket("name", 2)),
        Input,
        "'name' is not part of the primary key.*shard by a key column",
    ),
    "shards as a number": Mistake(
        lambda it: created(it, SCHEMA, primary_key="id", sharding=4),
        TypeError,
        r"sharding: expected lancemem.bucket\(column, number\) .*, got 4",
    ),
    "a table of nothing": Mistake(
        created, Input, r"needs rows, .*, or a schema: create_table\(uri, rows, primary_key="
    ),
    "a file in the place of a table": Mistake(
        lambda _: lancemem.open_table(__file__), Input, "is a file, and a table is a folder: read"
    ),
    "a lookup without a key": Mistake(
        lambda it: of_no_key(it).get([1]), Input, r"read rows by a condition.*primary_key="
    ),
}
WRITERS = {
    "a closed job": Mistake(put_after_close, lancemem.JobStoppedError, "closed; start a new one"),
    "a closed writer": Mistake(write_after_close, lancemem.JobStoppedError, "open a new one"),
    "a job that another one fenced": Mistake(
        put_after_a_takeover, lancemem.WriterFencedError, "start a new job to take the shard back"
    ),
    "a shard of a killed job": Mistake(
        upsert_beside_a_killed_job, lancemem.ShardHeldError, "take_over=True"
    ),
    "rows of another shard": Mistake(
        put_into_another_shard, Input, "a writer of the table sends each row to its shard"
    ),
    "a job without its shard": Mistake(
        start_a_job_without_its_shard, Input, r"name one with shard=, or .*table.writer\(\)"
    ),
    "seconds as a number": Mistake(
        lambda _: lancemem.WriterConfig(idle_flush_interval=5),  # type: ignore[arg-type]
        TypeError,
        "'idle_flush_interval': expected a timedelta, such as .*, or 'never', got int",
    ),
}
READS = {
    "a text in double quotes": Mistake(
        lambda it: it.table.count_rows('name = "Ada"'), Input, "a text has single quotes: 'Ada'"
    ),
    "a column with a typing error": Mistake(
        lambda it: it.table.to_table(["names"]),
        Input,
        "'names' is not in the table; it has id, name",
    ),
    "a condition of pandas": Mistake(
        lambda it: it.table.to_table(filter="id = 1 & n = 1"),
        Input,
        "join conditions by AND and OR",
    ),
    "a condition of polars": Mistake(
        lambda it: it.table.to_table(filter=pl.col("id") == 1),
        Input,
        "pass the filter as a SQL string or as a pyarrow expression",
    ),
    "text without quotes": Mistake(
        lambda it: it.table.update({"name": "Grace"}, where="id = 1"),
        Input,
        "in single quotes: 'Ada'",
    ),
    "a condition in the place of keys": Mistake(
        lambda it: it.table.delete("id = 1"), Input, "pass a condition as where="
    ),
    "a key that is no list": Mistake(
        lambda it: it.table.get(1),  # type: ignore[arg-type]
        Input,
        "put one key into a list",
    ),
    "a query of another width": Mistake(
        lambda it: it.table.search([1.0, 0.0]).to_table(), Input, "the table has 'vec' of width 3"
    ),
    "the limit of lancedb": Mistake(
        lambda it: loose(it).search([1.0, 0.0, 0.0], limit=3), Input, "number of rows as k="
    ),
    "the condition of update": Mistake(
        lambda it: loose(it).search([1.0, 0.0, 0.0], where="n > 1"), Input, "condition as filter="
    ),
    "a plain text as an expression": Mistake(
        lambda it: it.table.update({"name": "Ada Lovelace"}), Input, "a text has single quotes"
    ),
    "two quotes around a text": Mistake(
        lambda it: it.table.to_table(filter='name = "Ada"'),
        Input,
        "at.; a text has single quotes: 'Ada'",
    ),
    "a query that is text, without a text index": Mistake(
        lambda it: it.table.search("red shoes").to_table(),
        Input,
        r"needs text_columns=; create_index\(column, 'INVERTED'\)",
    ),
    "lists of any length as vectors": Mistake(
        search_lists_of_any_length, Input, r"create it with a schema.*pyarrow.list_\(.*, 3\)"
    ),
    "an index of too few vectors": Mistake(
        lambda it: it.table.create_index("vec", "IVF_PQ"),
        Input,
        r"count after compact\(flush=True\)",
    ),
    "the where of an update in a read": Mistake(
        lambda it: loose(it).to_table(where="n = 1"), Input, "takes a condition as filter="
    ),
    "a count by its name elsewhere": Mistake(
        lambda it: loose(it).count("n = 1"), AttributeError, r"count_rows\(filter\) counts rows"
    ),
    "a condition by a call of its own": Mistake(
        lambda it: loose(it).filter("n = 1"),
        AttributeError,
        r"scan\(filter=...\) takes a condition",
    ),
    "a table that is closed": Mistake(
        lambda it: loose(it).close(), AttributeError, "nothing to close; a writer and a job have"
    ),
    "a version that is not there": Mistake(
        lambda it: it.table.snapshot(version=99), Input, "the oldest version left is 1, the newest"
    ),
}
# Arguments of another type, as a program gives them that has the types of another library.
TYPES = {
    "a transaction id as a number": Mistake(
        lambda it: it.table.upsert(rows(), txn=4),  # type: ignore[arg-type]
        TypeError,
        r"'txn': expected a name and a version, such as txn=\('loader', 7\), got int",
    ),
    "a transaction id of texts": Mistake(
        lambda it: it.table.delete([1], txn=("loader", "7")),  # type: ignore[arg-type]
        TypeError,
        r"'txn': expected a name and a version, such as txn=\('loader', 7\), got tuple",
    ),
    "a transaction id beyond 64 bits": Mistake(
        lambda it: it.table.upsert(rows(), txn=("loader", 2**63)),
        Input,
        "txn: the version is an integer of 64 bits",
    ),
    "settings of a job as a dict": Mistake(
        lambda it: it.table.start_job(shard=0, config={}),  # type: ignore[arg-type]
        TypeError,
        r"'config': expected a WriterConfig, such as WriterConfig\(.*\), got dict",
    ),
    "settings of a writer as a dict": Mistake(
        lambda it: it.table.writer({"durable": False}),  # type: ignore[arg-type]
        TypeError,
        r"'config': expected a WriterConfig, such as WriterConfig\(.*\), got dict",
    ),
    "settings of a table as a dict": Mistake(
        lambda it: created(it, SCHEMA, primary_key="id", config={"fsync": False}),
        TypeError,
        r"'config': expected a WriterConfig, such as WriterConfig\(.*\), got dict",
    ),
    "maintenance as a number": Mistake(
        lambda it: it.table.start_job(shard=0, maintenance=8),  # type: ignore[arg-type]
        TypeError,
        r"'maintenance': expected a bool or a MaintenanceConfig, such as .*\(.*\), got int",
    ),
    "an age in seconds": Mistake(
        lambda it: it.table.collect_garbage(older_than=3600),  # type: ignore[arg-type]
        TypeError,
        r"'older_than': expected a timedelta, such as timedelta\(hours=1\), got int",
    ),
    "an age below 0": Mistake(
        lambda it: it.table.collect_garbage(older_than=dt.timedelta(-1)),
        Input,
        "older_than: expected a duration from 0, -1 day, 0:00:00 is too small",
    ),
    "an idle time in seconds": Mistake(
        lambda it: it.table.flush(idle_for=60),  # type: ignore[arg-type]
        TypeError,
        r"'idle_for': expected a timedelta, such as timedelta\(hours=1\), got int",
    ),
    "a retention in days": Mistake(
        lambda it: it.table.alter(changelog_retention=7),  # type: ignore[arg-type]
        TypeError,
        r"'changelog_retention': expected a timedelta, such as timedelta\(.*\), got int",
    ),
    "one job that is no list": Mistake(
        live_read_of_one_job,
        TypeError,
        r"'jobs': expected a list of jobs, .* jobs=\[job\], got Job",
    ),
    "the time of a snapshot as text": Mistake(
        lambda it: it.table.snapshot(timestamp="2026-01-31"),  # type: ignore[arg-type]
        TypeError,
        r"timestamp: expected a datetime, such as datetime\(2026, 1, 31, tzinfo=UTC\), got str",
    ),
    "an option of a store as a number": Mistake(
        lambda it: lancemem.open_table(
            it.table.uri,
            storage_options={"timeout": 5},  # type: ignore[dict-item]
        ),
        TypeError,
        "'storage_options': expected a text for 'timeout', such as 'timeout': '30', got int",
    ),
    "options of a store as a list": Mistake(
        lambda it: lancemem.exists(it.table.uri, storage_options=["timeout"]),  # type: ignore[arg-type]
        TypeError,
        "'storage_options': expected a dict of texts, such as {'aws_region': .*}, got list",
    ),
    "deletes as a list": Mistake(
        lambda it: it.table.apply(rows(), [True]),  # type: ignore[arg-type]
        Input,
        r"deletes: expected an Arrow array of bool, such as pyarrow.array\(.*\), got list",
    ),
    "functions of columns as a list": Mistake(
        lambda it: created(
            it, SCHEMA, primary_key="id", merge_engine="aggregation", aggregates=["n"]
        ),
        TypeError,
        "aggregates: expected a dict, such as {'clicks': 'sum'}, got list",
    ),
    "columns to set as a list": Mistake(
        lambda it: it.table.update(["n"]),  # type: ignore[arg-type]
        TypeError,
        r"set: expected a dict of columns and their SQL, such as {'n': 'n \+ 1'}, got list",
    ),
    "a number for SQL": Mistake(
        lambda it: it.table.update({"n": 5}),  # type: ignore[dict-item]
        TypeError,
        "set: expected SQL for column 'n', such as '5', got int",
    ),
    "a number for SQL of a merge": Mistake(
        lambda it: it.table.merge(rows()).when_matched_update({"n": 5}),  # type: ignore[dict-item]
        TypeError,
        "set: expected SQL for column 'n', such as '5', got int",
    ),
    "a column for the condition of a merge": Mistake(
        lambda it: it.table.merge(rows()).when_matched_delete(pl.col("n") > 1),  # type: ignore[arg-type]
        TypeError,
        "condition: expected SQL, such as 'source.at > target.at', got Expr",
    ),
    "a number for the key of a merge": Mistake(
        lambda it: it.table.merge(rows(), on=5),  # type: ignore[arg-type]
        TypeError,
        r"on: expected the columns of the primary key, such as on=\['id'\], got int",
    ),
    "a number of rows as text": Mistake(
        lambda it: it.table.head("5"),  # type: ignore[arg-type]
        TypeError,
        "n: expected a number of rows, such as 5, got str",
    ),
    "shards of an enabled table as a number": Mistake(
        lambda it: lancemem.enable(it.table.uri, sharding=4),  # type: ignore[arg-type]
        TypeError,
        r"sharding: expected lancemem.bucket\(column, number\) .*, got 4",
    ),
}
MISTAKES = {**ROWS, **TABLES, **WRITERS, **READS, **TYPES}


def _columns(number: int) -> dict[str, Any]:
    return {name: [value] * number for name, value in ROW.items()} | {"id": range(number)}


def test_there_are_forty_mistakes_or_more() -> None:
    assert len(MISTAKES) >= 40
    assert len(MISTAKES) == sum(map(len, (ROWS, TABLES, WRITERS, READS, TYPES)))


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_answered_by_words_that_name_the_way_out(mistake: str, place: Place) -> None:
    call, error, words = MISTAKES[mistake]
    before = place.table.to_table()
    with pytest.raises(error, match=words):
        call(place)
    assert place.table.to_table().equals(before), "nothing of a mistake is written"


# --- what looks like a mistake, and is taken as it is meant ---


def test_whole_numbers_are_taken_for_a_vector_and_for_a_float(place: Place) -> None:
    place.table.upsert(rows(vec=[1, 0, 0], score=3))
    [found] = place.table.get([2]).to_pylist()
    assert (found["vec"], found["score"]) == ([1.0, 0.0, 0.0], 3.0)


def test_an_array_of_two_dimensions_is_a_column_of_vectors(place: Place) -> None:
    place.table.upsert({**_columns(3), "vec": np.eye(3)})
    assert place.table.to_table()["vec"].to_pylist() == np.eye(3).tolist()
    columns = {"id": np.arange(3), "vec": np.eye(3, dtype=np.float32)}
    table = lancemem.create_table(place.folder / "new.lance", columns, primary_key="id")
    assert table.schema.field("vec").type == pa.list_(pa.float32(), 3)
    assert table.search([0, 1, 0], k=1).to_table()["id"].to_pylist() == [1]
