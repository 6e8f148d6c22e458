"""The calls that a user tries first: a table from rows, frames out of it, counts, updates, merges.

Owns: rows in every form, tables that exist or are replaced, the Python class of a table with its
pickle and its descriptions, changes by SQL. Not here: Arrow's own protocols (test_input), reads
(test_ways_in), conditions (test_filters).
"""

from __future__ import annotations

import copy
import datetime as dt
import inspect
import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pandas as pd  # noqa: TID253 - frames are what is tested
import polars as pl  # noqa: TID253
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pds
import pytest

import lancemem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conftest import MakeTable

PEOPLE = [
    {"id": 1, "name": "Ada", "n": 10},
    {"id": 2, "name": "Grace", "n": 20},
    {"id": 3, "name": "Edsger", "n": 30},
]
ARROW = pa.Table.from_pylist(PEOPLE)
HALVES = ARROW.to_batches(max_chunksize=2)

FORMS: dict[str, Callable[[], Any]] = {
    "a table": lambda: ARROW,
    "a batch": lambda: ARROW.to_batches()[0],
    "a reader": lambda: ARROW.to_reader(max_chunksize=2),
    "a dataset": lambda: pds.dataset(ARROW),
    "a scanner": lambda: pds.dataset(ARROW).scanner(),
    "a pandas frame": ARROW.to_pandas,
    "a filtered pandas frame": lambda: pd.DataFrame([{**PEOPLE[0], "id": 0}, *PEOPLE])[1:],
    "a pandas frame with an index": lambda: ARROW.to_pandas().set_index("id"),
    "a polars frame": lambda: pl.DataFrame(PEOPLE),
    "a lazy polars frame": lambda: pl.LazyFrame(PEOPLE),
    "a list of dicts": lambda: PEOPLE,
    "an iterator of dicts": lambda: iter(PEOPLE),
    "a dict of lists": ARROW.to_pydict,
    "a dict of arrays": lambda: {**ARROW.to_pydict(), "id": np.array([1, 2, 3])},
    "a list of batches": lambda: HALVES,
    "a generator of batches": lambda: (batch for batch in HALVES),
    "a list of tables": lambda: [ARROW.slice(0, 1), ARROW.slice(1)],
}


def people(table: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - whatever has to_table
    return sorted(table.to_table(["id", "name", "n"]).to_pylist(), key=lambda row: row["id"])


def stored(table: lancemem.Table) -> dict[int, tuple[Any, ...]]:
    return {row["id"]: (row["name"], row["n"]) for row in table.to_table().to_pylist()}


@pytest.fixture
def board(table_uri: str) -> lancemem.Table:
    """Give a table of three people."""
    return lancemem.create_table(table_uri, ARROW, primary_key="id")


# --- rows in every form ---


@pytest.mark.parametrize("form", FORMS)
def test_a_table_is_created_from_rows_in_any_form(form: str, table_uri: str) -> None:
    table = lancemem.create_table(table_uri, FORMS[form](), primary_key="id")
    assert people(table) == PEOPLE
    assert sorted(table.schema.names) == ["id", "n", "name"]
    assert not table.schema.field("id").nullable
    assert people(lancemem.open_table(table_uri)) == PEOPLE


@pytest.mark.parametrize("form", FORMS)
def test_rows_in_any_form_are_upserted_and_put(form: str, make_table: MakeTable) -> None:
    table = make_table(ARROW.schema)
    assert table.upsert(FORMS[form]()).num_rows == 3
    assert people(table) == PEOPLE
    with table.start_job(shard=0) as job:
        assert job.put(FORMS[form]()).num_rows == 3
    assert people(table) == PEOPLE
    writer = make_table(ARROW.schema).bulk_writer()
    writer.upsert(FORMS[form]())
    [sstable] = writer.finish()
    assert sstable.num_rows == 3


def test_rows_are_read_from_another_table(board: lancemem.Table, tmp_path: Path) -> None:
    for number, source in enumerate((board, board.scan(), board.snapshot().scan(), board.head(9))):
        copied = lancemem.create_table(tmp_path / f"{number}", source, primary_key="id")
        assert people(copied) == PEOPLE
    of_lance = lance.write_dataset(ARROW, tmp_path / "lance")
    assert people(lancemem.create_table(tmp_path / "5", of_lance, primary_key="id")) == PEOPLE


def test_rows_with_one_key_leave_the_last_one_in_every_shard(table_uri: str) -> None:
    batches = (pa.record_batch({"id": range(100), "n": [number] * 100}) for number in range(3))
    sharding = lancemem.bucket("id", 4)
    table = lancemem.create_table(table_uri, batches, primary_key="id", sharding=sharding)
    assert len(table) == 100
    assert set(table.to_table()["n"].to_pylist()) == {2}


def test_a_table_without_a_key_takes_every_row(table_uri: str) -> None:
    table = lancemem.create_table(table_uri, [*PEOPLE, *PEOPLE])
    assert (len(table), table.primary_key) == (6, [])


def test_an_empty_table_comes_from_a_schema_or_from_rows_without_any(tmp_path: Path) -> None:
    empty = ARROW.slice(0, 0)
    for number, data in enumerate(
        (ARROW.schema, empty, pl.DataFrame(PEOPLE)[:0], empty.to_reader())
    ):
        table = lancemem.create_table(tmp_path / f"{number}", data, primary_key="id")
        assert (len(table), bool(table)) == (0, True)
        assert table.schema.names == ["id", "name", "n"]


UNREADABLE: dict[str, tuple[Any, str]] = {
    "an empty list": ([], "the list is empty.*schema"),
    "an empty generator": ((batch for batch in HALVES[:0]), "the generator is empty"),
    "an empty dict": ({}, "the dict is empty"),
    "other keys": ([{"id": 1}, {"id": 2, "n": 3}], "row 0 has no value for 'n', row 1 has"),
    "fewer keys": ([{"id": 1, "n": 3}, {"id": 2}], "row 1 has no value for 'n', row 0 has"),
    "no dict": ([{"id": 1}, 5], "row 1 is int"),
    "columns of two lengths": ({"id": [1, 2], "n": [1]}, "length"),
    "mixed types": ([{"id": 1}, {"id": "a"}], "could not be read as Arrow"),
    "a column of nulls": ([{"id": 1, "x": None}], "column 'x' has no value.*types"),
    "a number that is too large": ([{"id": 2**70}], "could not be read as Arrow.*types"),
    "other batches": (
        [ARROW, ARROW.select(["id"])],
        "part 1 of the rows has the columns id: int64",
    ),
    "no batch": ([ARROW, 5], "part 1 of the rows is int"),
    "a list of numbers": ([1, 2], "expected Arrow data.*list of int"),
    "text": ("rows", "expected Arrow data.*str"),
    "nothing": (None, "expected Arrow data.*NoneType|needs rows, .*, or a schema"),
    "a pandas series": (pd.Series([1], name="id"), "to_frame"),
    "a polars series": (pl.Series("id", [1]), "to_frame|struct"),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_what_has_no_rows_is_refused_and_leaves_no_table(case: str, table_uri: str) -> None:
    data, text = UNREADABLE[case]
    with pytest.raises(lancemem.InvalidInputError, match=text):
        lancemem.create_table(table_uri, data, primary_key="id")
    assert not Path(table_uri).exists()


# Nulls have a type in a table that exists, and the engine reads series itself.
ONLY_OF_CREATE = ("a column of nulls", "a pandas series", "a polars series", "an empty generator")


@pytest.mark.parametrize("case", [case for case in UNREADABLE if case not in ONLY_OF_CREATE])
def test_an_upsert_refuses_what_has_no_rows(case: str, board: lancemem.Table) -> None:
    data, text = UNREADABLE[case]
    with pytest.raises(lancemem.InvalidInputError, match=text):
        board.upsert(data)
    assert people(board) == PEOPLE


def test_rows_that_fail_halfway_leave_no_table_and_keep_their_error(table_uri: str) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield HALVES[0]
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        lancemem.create_table(table_uri, failing(), primary_key="id")
    with pytest.raises(lancemem.InvalidInputError, match="'id' is null"):
        lancemem.create_table(table_uri, [*PEOPLE, {**PEOPLE[0], "id": None}], primary_key="id")
    with pytest.raises(lancemem.InvalidInputError, match="'key' is not in the schema"):
        lancemem.create_table(table_uri, PEOPLE, primary_key="key")
    assert not lancemem.exists(table_uri)
    assert people(lancemem.create_table(table_uri, PEOPLE, primary_key="id")) == PEOPLE


# --- tables that exist ---


def test_a_table_that_exists_is_kept_opened_or_replaced(board: lancemem.Table) -> None:
    with pytest.raises(lancemem.TableExistsError):
        lancemem.create_table(board.uri, PEOPLE[:1], primary_key="id")
    same = lancemem.create_table(board.uri, PEOPLE[:1], primary_key="id", exist_ok=True)
    assert people(same) == PEOPLE
    new = lancemem.create_table(board.uri, [{"key": "a"}], primary_key="key", mode="overwrite")
    assert new.to_table().to_pylist() == [{"key": "a"}]
    with pytest.raises(lancemem.InvalidInputError, match="replaced by another"):
        len(board)


def test_a_table_is_overwritten_by_its_own_rows(board: lancemem.Table) -> None:
    rows = board.scan({"id": "id", "name": "upper(name)", "n": "n"}, "id < 3")
    new = lancemem.create_table(board.uri, rows, primary_key="id", mode="overwrite")
    assert stored(new) == {1: ("ADA", 10), 2: ("GRACE", 20)}


def test_what_cannot_be_created_replaces_nothing(board: lancemem.Table) -> None:
    number: Any = 5
    cases: tuple[tuple[Any, str], ...] = (
        (PEOPLE, "missing"),
        ([], "id"),
        ([{"id": 1.5}], "id"),
        (number, "id"),
    )
    for data, key in cases:
        with pytest.raises(lancemem.InvalidInputError) as refused:
            lancemem.create_table(board.uri, data, primary_key=key, mode="overwrite")
        assert "/tmp/tmp" not in str(refused.value).replace(board.uri, "")  # noqa: S108
    assert people(board) == PEOPLE


@pytest.mark.parametrize(
    ("data", "options", "text"),
    [
        (PEOPLE, {"primary_key": "n"}, r"the primary key \['id'\], asked for \['n'\]"),
        (PEOPLE, {}, r"asked for \[\]"),
        (
            [{"id": 1}],
            {"primary_key": "id"},
            "columns id: int64, name: string.*asked for id: int64",
        ),
        (PEOPLE, {"primary_key": "id", "sharding": lancemem.bucket("id", 2)}, "the sharding"),
    ],
)
def test_exist_ok_opens_only_the_table_that_was_asked_for(
    data: Any,  # noqa: ANN401
    options: dict[str, Any],
    text: str,
    board: lancemem.Table,
) -> None:
    with pytest.raises(lancemem.InvalidInputError, match=text):
        lancemem.create_table(board.uri, data, exist_ok=True, **options)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"mode": "append"}, "mode must be 'create' or 'overwrite', got 'append'"),
        ({"mode": "overwrite", "exist_ok": True}, "pass one"),
    ],
)
def test_a_mode_that_is_unknown_or_contradicts_is_refused(
    options: dict[str, Any], text: str, board: lancemem.Table
) -> None:
    with pytest.raises(lancemem.InvalidInputError, match=text):
        lancemem.create_table(board.uri, PEOPLE, primary_key="id", **options)
    assert people(board) == PEOPLE


def test_a_table_exists_until_it_is_dropped(board: lancemem.Table) -> None:
    assert lancemem.exists(board.uri)
    assert lancemem.exists(Path(board.uri))
    lancemem.drop_table(board.uri)
    assert not lancemem.exists(board.uri)
    assert not Path(board.uri).exists()
    with pytest.raises(lancemem.TableNotFoundError):
        lancemem.drop_table(board.uri)
    with pytest.raises(lancemem.LancememError):
        len(board)


def test_a_job_of_a_dropped_table_writes_nothing_into_its_successor(board: lancemem.Table) -> None:
    job = board.start_job(shard=0)
    lancemem.drop_table(board.uri)
    new = lancemem.create_table(board.uri, PEOPLE[:1], primary_key="id")
    with pytest.raises(lancemem.LancememError):
        job.put(PEOPLE)
    assert people(new) == PEOPLE[:1]


def test_a_folder_that_is_no_table_is_not_dropped(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    for uri in (tmp_path, tmp_path / "missing", tmp_path / "mine"):
        assert not lancemem.exists(uri)
        with pytest.raises(lancemem.TableNotFoundError):
            lancemem.drop_table(uri)
    assert (tmp_path / "mine").read_text() == "precious"
    for call in (lancemem.exists, lancemem.drop_table):
        with pytest.raises(lancemem.InvalidInputError, match="no store for 'gs://'"):
            call("gs://bucket/table")


def test_a_lance_table_exists_and_is_dropped(tmp_path: Path) -> None:
    uri = tmp_path / "lance"
    lance.write_dataset(ARROW, uri)
    assert lancemem.exists(uri)
    lancemem.drop_table(uri)
    assert not uri.exists()


# --- a Lance table is enabled in one call ---


def test_a_lance_table_without_a_key_is_enabled_in_one_call(table_uri: str) -> None:
    lance.write_dataset(ARROW, table_uri)
    table = lancemem.enable(table_uri, primary_key="id", sharding=lancemem.bucket("id", 2))
    assert table.primary_key == ["id"]
    table.upsert([{"id": 3, "name": "E. W. Dijkstra", "n": 31}])
    assert people(table)[2]["name"] == "E. W. Dijkstra"
    assert len(table) == 3
    again = lancemem.enable(table_uri, primary_key=["id"])
    assert people(again) == people(table)
    assert not lance.dataset(table_uri).schema.field("id").nullable


def test_a_key_of_several_columns_keeps_its_order(table_uri: str) -> None:
    lance.write_dataset(ARROW, table_uri)
    assert lancemem.enable(table_uri, primary_key=["name", "id"]).primary_key == ["name", "id"]


def test_a_key_that_cannot_be_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    rows = pa.table({"id": [1, None], "x": [0.5, 1.5], "s": ["a", "b"]})
    uri = str(tmp_path / "lance")
    lance.write_dataset(rows, uri)
    for key, text in (("id", "NULL"), ("x", "cannot be a primary key"), ("q", "not in the schema")):
        with pytest.raises(lancemem.InvalidInputError, match=text):
            lancemem.enable(uri, primary_key=key)
    with pytest.raises(lancemem.InvalidInputError, match="primary_key="):
        lancemem.enable(uri)
    assert lancemem.enable(uri, primary_key="s").primary_key == ["s"]
    with pytest.raises(lancemem.InvalidInputError, match="has the primary key s"):
        lancemem.enable(uri, primary_key="id")
    plain = lancemem.create_table(tmp_path / "plain", ARROW)
    with pytest.raises(lancemem.InvalidInputError, match="append-only"):
        lancemem.enable(plain.uri, primary_key="id")


# --- reads ---


def test_rows_leave_a_table_as_every_kind_of_frame(board: lancemem.Table) -> None:
    assert people(board) == PEOPLE
    assert board.to_table(["n"], "id = 2").to_pylist() == [{"n": 20}]
    frame = board.to_pandas(filter=pc.field("id") > 1)
    assert isinstance(frame, pd.DataFrame)
    assert sorted(frame["name"]) == ["Edsger", "Grace"]
    assert sorted(board.to_polars(["id"]).get_column("id")) == [1, 2, 3]
    with board.to_reader(["id"]) as reader:
        assert isinstance(reader, pa.RecordBatchReader)
        assert reader.read_all().num_rows == 3
    assert isinstance(board.scan().to_reader(), pa.RecordBatchReader)
    assert sum(batch.num_rows for batch in board) == 3
    assert pa.table(board).num_rows == pl.DataFrame(board).height == 3
    assert board.to_pandas(types_mapper=pd.ArrowDtype)["id"].dtype == "int64[pyarrow]"


def test_rows_are_counted_and_shown(board: lancemem.Table) -> None:
    assert (len(board), board.count_rows(), board.count_rows("n > 10")) == (3, 3, 2)
    assert board.head().num_rows == 3
    assert board.head(2, ["id"]).schema.names == ["id"]
    assert board.head(0).num_rows == 0
    with pytest.raises(lancemem.InvalidInputError, match="n=-1"):
        board.head(-1)
    wrong: Any = "two"
    with pytest.raises(TypeError):
        board.head(wrong)


def test_the_length_of_a_table_on_which_a_job_runs_counts_what_is_durable(
    board: lancemem.Table,
) -> None:
    config = lancemem.WriterConfig(max_wal_flush_interval=dt.timedelta(hours=1))
    with board.start_job(shard=0, config=config) as job:
        job.put([{"id": 4, "name": "Barbara", "n": 40}])
        job.put([{"id": 5, "name": "Donald", "n": 50}], durable=False)
        assert len(board) == 4
        assert board.count_rows(consistency="live", jobs=[job]) == 5
        assert board.to_table(consistency="live", jobs=[job]).num_rows == 5
    assert len(board) == 5


def test_a_scan_computes_columns(board: lancemem.Table) -> None:
    scan = board.scan({"key": "id", "twice": "n * 2", "one": "1"}, "id > 1", limit=5)
    assert scan.schema.names == ["key", "twice", "one"]
    rows = sorted(scan.to_table().to_pylist(), key=lambda row: row["key"])
    assert rows == [{"key": 2, "twice": 40, "one": 1}, {"key": 3, "twice": 60, "one": 1}]
    assert scan.count_rows() == 2
    assert sorted(board.snapshot().scan({"x": "n + id"}).to_table()["x"].to_pylist()) == [
        11,
        22,
        33,
    ]
    assert board.scan({"one": "1"}).to_table().num_rows == 3
    assert board.to_table({"half": "n / 4.0"}, "id = 1").to_pylist() == [{"half": 2.5}]


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"x": "q + 1"}, "the expression 'q \\+ 1' of column 'x'"),
        ({"x": "n +"}, "is not valid"),
        ({"x": "sum(n)"}, "aggregate"),
        ({"x": "n * 9223372036854775807"}, "[Oo]verflow"),
        ({"a\0b": "n"}, "NUL"),
    ],
)
def test_an_expression_that_is_not_valid_is_refused(
    columns: dict[str, str], text: str, board: lancemem.Table
) -> None:
    with pytest.raises(lancemem.InvalidInputError, match=text):
        board.to_table(columns)
    wrong: Any = {"x": 5}
    with pytest.raises(TypeError):
        board.scan(wrong)


def test_the_base_table_is_opened_with_lance(board: lancemem.Table) -> None:
    assert board.to_lance().count_rows() == 0
    board.compact()
    assert isinstance(board.to_lance(), lance.LanceDataset)
    assert board.to_lance().count_rows() == 3


# --- a table is an object of Python ---


def test_tables_are_of_one_class_however_they_are_made(board: lancemem.Table) -> None:
    opened = lancemem.open_table(board.uri)
    enabled = lancemem.enable(board.uri)
    for table in (board, opened, enabled, copy.copy(board)):
        assert isinstance(table, lancemem.Table)
    assert isinstance(board.scan(), lancemem.Scan)
    assert isinstance(board.snapshot(), lancemem.Snapshot)
    assert isinstance(board.snapshot().scan(), lancemem.Scan)
    wrong: Any = board.uri
    with pytest.raises(TypeError):
        lancemem.Table(wrong)
    with board as same:
        assert same is board
    assert len(board) == 3


def test_help_explains_every_call() -> None:
    kinds = (lancemem.Table, lancemem.Scan, lancemem.Snapshot, lancemem.ChangeFeed)
    for kind in (*kinds, lancemem.MergeBuilder):
        names = [name for name in dir(kind) if not name.startswith("_")]
        silent = [name for name in names if not inspect.getdoc(getattr(kind, name))]
        assert set(silent) <= {"uri", "primary_key", "sharding", "schema", "merge_rule"}
    for call in (lancemem.create_table, lancemem.open_table, lancemem.enable, lancemem.exists):
        assert "Args:" in (inspect.getdoc(call) or "")


def counted(what: Any) -> int:  # noqa: ANN401 - a table, scan or snapshot
    rows: int = what.count_rows()
    return rows


def test_tables_scans_and_snapshots_are_pickled_to_another_process(board: lancemem.Table) -> None:
    snapshot = board.snapshot()
    board.upsert([{"id": 4, "name": "Barbara", "n": 40}])
    things = [
        board,
        board.scan(["id"], "id > 1"),
        board.scan(filter=pc.field("id") > 1, limit=2),
        snapshot,
        snapshot.scan(filter="id > 1"),
    ]
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as other:
        assert list(other.map(counted, things)) == [4, 3, 2, 3, 2]
    assert [counted(pickle.loads(pickle.dumps(it))) for it in things] == [4, 3, 2, 3, 2]  # noqa: S301


def test_what_has_rows_of_a_job_is_not_pickled(board: lancemem.Table) -> None:
    with board.start_job(shard=0) as job:
        job.put(PEOPLE, durable=False)
        with pytest.raises(TypeError, match="live"):
            pickle.dumps(board.scan(consistency="live", jobs=[job]))
        with pytest.raises(TypeError, match="no token"):
            pickle.dumps(board.snapshot(consistency="live", jobs=[job]))


def test_a_pickle_knows_how_its_table_was_opened(board: lancemem.Table) -> None:
    table = lancemem.open_table(board.uri, storage_options={"timeout": "7s"}, verify_sstables=False)
    _, arguments = table.__reduce__()
    assert arguments == (board.uri, {"timeout": "7s"}, False)
    assert "7s" not in repr(table)


def test_a_table_and_a_scan_describe_themselves(board: lancemem.Table) -> None:
    assert repr(board) == (
        f"Table(\"{board.uri}\", columns=['id', 'name', 'n'], primary_key=['id'], base_rows=0, "
        "sstable_rows=3)"
    )
    scan = board.scan(["id"], "id < 3", limit=2)
    assert repr(scan) == f"Scan(\"{board.uri}\", columns=['id'], filter='id < 3', limit=2)"
    assert repr(board.snapshot().scan()).startswith("Scan(Snapshot(")
    assert "field" in repr(board.scan(filter=pc.field("id") > 1)) or "id" in repr(scan)
    lancemem.drop_table(board.uri)
    assert board.uri in repr(board)


def test_notebooks_show_rows_and_counters(board: lancemem.Table) -> None:
    board.upsert([{"id": 9, "name": "<b>&", "n": 1}])
    for shown in (board, board.scan(), board.snapshot().scan(filter="id > 0")):
        html: str = shown._repr_html_()
        assert "&lt;b&gt;&amp;" in html
        assert "<b>&" not in html
        assert "<th>id<br>int64</th>" in html
    assert board.scan(limit=1)._repr_html_().count("<tr>") == 2
    stats: Any = board.stats()
    assert "<th>num_shards</th><td>1</td>" in stats._repr_html_()


# --- changes by SQL ---


def test_rows_are_deleted_by_a_condition(board: lancemem.Table) -> None:
    assert board.delete(where="n > 15 AND name <> 'Grace'").num_rows == 1
    assert board.delete(where=pc.field("id") == 2).num_rows == 1
    assert board.delete(where="n > 1000").num_rows == 0
    assert people(board) == PEOPLE[:1]
    assert board.delete([1]).num_rows == 1
    board.upsert(PEOPLE)
    assert board.delete(where="true").num_rows == 3
    assert len(board) == 0
    for arguments in ({}, {"keys": [1], "where": "id = 1"}):
        with pytest.raises(lancemem.InvalidInputError, match="either keys or where"):
            board.delete(**arguments)  # type: ignore[arg-type]


def test_rows_are_updated_by_expressions(board: lancemem.Table) -> None:
    done = board.update({"n": "n + id", "name": "upper(name)"}, where="id > 1")
    assert done.num_rows == 2
    assert stored(board) == {1: ("Ada", 10), 2: ("GRACE", 22), 3: ("EDSGER", 33)}
    board.update({"name": "NULL"}, where="id = 1")
    assert board.update({"n": "0"}).num_rows == 3
    assert stored(board)[1] == (None, 0)
    assert board.update({"n": "1"}, where="false").num_rows == 0
    assert board.update({"n": "n + 1"}, txn=("job", 1)).num_shards_already_written == 0
    assert board.update({"n": "n + 1"}, txn=("job", 1)).num_shards_already_written == 1
    assert {n for _, n in stored(board).values()} == {1}


def test_rows_are_updated_by_values_as_they_are(table_uri: str) -> None:
    vector = pa.list_(pa.float32(), 2)
    columns = {"id": pa.int64(), "name": pa.string(), "x": pa.float32(), "v": vector}
    columns |= {"day": pa.date32(), "n": pa.uint8()}
    board = lancemem.create_table(table_uri, pa.schema(list(columns.items())), primary_key="id")
    first = {"id": 1, "name": "Ada", "x": 1.0, "v": [0.0, 0.0], "day": None, "n": 7}
    board.upsert([first, {**first, "id": 2}])
    values = {"name": "it's 'n'", "x": np.float32(0.1), "v": [0.1, 0.25], "n": 200}
    done = board.update(where="id = 1", values={**values, "day": dt.date(2024, 2, 29)})
    assert done.num_rows == 1
    [one, two] = board.scan(order_by="id").to_table().to_pylist()
    assert (one["name"], one["n"], one["day"]) == ("it's 'n'", 200, dt.date(2024, 2, 29))
    assert one["x"] == pytest.approx(0.1)
    assert one["v"] == pytest.approx([0.1, 0.25])
    assert two == {**first, "id": 2}
    board.update(values={"name": None}, values_sql={"n": "n - id"}, where=pc.field("id") == 2)
    board.update({"x": "x + n"}, values={"name": "n"}, where="id = 1")
    [one, two] = board.scan(order_by="id").to_table().to_pylist()
    assert (one["name"], one["x"]) == ("n", pytest.approx(200.1))
    assert (two["name"], two["n"]) == (None, 5)
    assert board.update(values={"n": 1}, where="false").num_rows == 0


REFUSED_UPDATES: dict[str, tuple[dict[str, Any], str]] = {
    "no column": ({"values": {}}, "at least one column"),
    "nothing": ({}, "at least one column"),
    "a column twice": ({"values": {"n": 1}, "values_sql": {"n": "2"}}, "'n' more than once"),
    "a column twice, by set": ({"set": {"n": "1"}, "values": {"n": 1}}, "'n' more than once"),
    "the key": ({"values": {"id": 1}}, "key column 'id' cannot be updated"),
    "an unknown column": ({"values": {"q": 1}}, "has no column 'q'"),
    "another type": ({"values": {"n": "text"}}, "'n'"),
    "a fraction": ({"values": {"n": 0.5}}, "'n'"),
    "no Arrow value": ({"values": {"n": object()}}, "of column 'n' could not be read as Arrow"),
    "too large": ({"values": {"n": 2**70}}, "of column 'n' could not be read as Arrow"),
    "the condition first": ({"set": "id = 1", "where": {"n": 1}}, "takes columns first"),
}


@pytest.mark.parametrize("case", REFUSED_UPDATES)
def test_an_update_by_values_that_cannot_be_is_refused(case: str, board: lancemem.Table) -> None:
    arguments, text = REFUSED_UPDATES[case]
    with pytest.raises(lancemem.InvalidInputError, match=text):
        board.update(**arguments)
    assert people(board) == PEOPLE


@pytest.mark.parametrize(
    ("changes", "where", "text"),
    [
        ({"id": "id + 1"}, None, "key column 'id' cannot be updated"),
        ({"q": "1"}, None, "has no column 'q'"),
        ({}, None, "at least one column"),
        ({"n": "n +"}, None, "'n \\+' of column 'n'"),
        ({"n": "m"}, None, "'m' of column 'n'"),
        ({"n": "n"}, "m > 1", "filter 'm > 1'"),
        ({"n": "'text'"}, None, "'n'"),
        ({"n": "n + 0.5"}, None, "'n'"),
    ],
)
def test_an_update_that_cannot_be_is_refused_with_nothing_written(
    changes: dict[str, str], where: str | None, text: str, board: lancemem.Table
) -> None:
    with pytest.raises(lancemem.InvalidInputError, match=text):
        board.update(changes, where=where)
    assert people(board) == PEOPLE


def test_a_table_without_a_key_is_not_changed_by_a_condition(table_uri: str) -> None:
    table = lancemem.create_table(table_uri, PEOPLE)
    for call in (
        lambda: table.update({"n": "1"}),
        lambda: table.delete(where="id = 1"),
        lambda: table.merge(PEOPLE),
    ):
        with pytest.raises(lancemem.InvalidInputError, match="append-only"):
            call()


# --- merge ---

CHANGES = [
    {"id": 1, "name": "A. Lovelace", "n": 5, "gone": False},
    {"id": 2, "name": "G. Hopper", "n": 6, "gone": True},
    {"id": 8, "name": "Niklaus", "n": 7, "gone": True},
    {"id": 9, "name": "Barbara", "n": 8, "gone": False},
]


@pytest.mark.parametrize("form", [list, pa.Table.from_pylist, pd.DataFrame, pl.DataFrame])
def test_a_merge_updates_deletes_and_inserts(
    form: Callable[[Any], Any], board: lancemem.Table
) -> None:
    merge = (
        board.merge(form(CHANGES))
        .when_matched_delete("source.gone")
        .when_matched_update({"n": "target.n + source.n"})
        .when_not_matched_insert_all("NOT source.gone")
    )
    assert merge.execute() == lancemem.MergeResult(1, 1, 1)
    assert stored(board) == {1: ("Ada", 15), 3: ("Edsger", 30), 9: ("Barbara", 8)}


def test_the_first_clause_that_fits_takes_a_row(board: lancemem.Table) -> None:
    merge = (
        board.merge(CHANGES)
        .when_matched_update_all("source.n > 5")
        .when_matched_update({"name": "'other'"})
        .when_not_matched_insert({"id": "source.id", "name": "source.name || '!'"}, "source.gone")
        .when_not_matched_insert_all("NULL")
    )
    done = merge.execute(txn=("merge", 1))
    assert done == lancemem.MergeResult(2, 1, 0)
    assert stored(board)[1] == ("other", 10)
    assert stored(board)[2] == ("G. Hopper", 6)
    assert stored(board)[8] == ("Niklaus!", None)
    assert set(stored(board)) == {1, 2, 3, 8}
    assert merge.execute(txn=("merge", 1)).num_shards_already_written == 1


def test_a_merge_of_all_rows_is_an_upsert(board: lancemem.Table) -> None:
    merge = board.merge(CHANGES).when_matched_update_all().when_not_matched_insert_all()
    assert merge.execute() == lancemem.MergeResult(0, 4, 0, matched=False)
    assert len(board) == 5


def test_a_merge_matches_composite_keys_of_other_types(table_uri: str) -> None:
    rows = [{"day": "mon", "hour": hour, "n": hour} for hour in range(3)]
    table = lancemem.create_table(table_uri, rows, primary_key=["day", "hour"])
    source = pa.table(
        {
            "hour": pa.array([2, 3], pa.int8()),
            "day": pa.array(["mon", "mon"], pa.large_string()),
            "n": [20, 30],
        }
    )
    merge = table.merge(source, on=["hour", "day"]).when_matched_update({"n": "source.n"})
    assert merge.execute() == lancemem.MergeResult(1, 0, 0)
    assert sorted(table.to_table()["n"].to_pylist()) == [0, 1, 20]


def test_clauses_that_make_different_types_lose_nothing(make_table: MakeTable) -> None:
    schema = pa.schema([("id", pa.int64()), ("x", pa.float32())])
    table = make_table(schema)
    table.upsert([{"id": 1, "x": 1.0}])
    source = pa.table({"id": [1, 2], "x": pa.array([0.1, 0.5])})
    merge = table.merge(source).when_matched_update({"x": "target.x"}).when_not_matched_insert_all()
    assert merge.execute() == lancemem.MergeResult(1, 1, 0)
    merge = (
        table.merge(source)
        .when_matched_update({"x": "source.x"}, "source.id = 1")
        .when_matched_update({"x": "target.x"})
    )
    with pytest.raises(lancemem.InvalidInputError, match=r"'x' is float.*round_floats"):
        merge.execute()
    assert merge.execute(round_floats=True) == lancemem.MergeResult(2, 0, 0)


def test_a_merge_that_deletes_may_have_columns_without_nulls(table_uri: str) -> None:
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("n", pa.int64(), nullable=False)])
    rows = pa.table({"id": [1, 2], "n": [1, 2]}, schema=schema)
    table = lancemem.create_table(table_uri, rows, primary_key="id")
    merge = table.merge([{"id": 1}]).when_matched_delete()
    assert merge.execute() == lancemem.MergeResult(0, 0, 1)
    assert len(table) == 1


REFUSED_MERGES: dict[str, tuple[Callable[[lancemem.Table], object], str]] = {
    "no clause": (lambda t: t.merge(CHANGES).execute(), "at least one"),
    "a key twice": (
        lambda t: t.merge([*CHANGES, CHANGES[0]]).when_matched_delete().execute(),
        "1 keys come more than once.*'id': 1",
    ),
    "no key": (lambda t: t.merge([{"n": 1}]), "no key column 'id'"),
    "other columns to match": (lambda t: t.merge(CHANGES, on="n"), "primary key alone"),
    "a column that is missing": (
        lambda t: t.merge([{"id": 1}]).when_matched_update_all(),
        "no column 'name'",
    ),
    "an update of the key": (
        lambda t: t.merge(CHANGES).when_matched_update({"id": "1"}),
        "key column 'id' cannot be updated",
    ),
    "an unknown column": (
        lambda t: t.merge(CHANGES).when_matched_update({"q": "1"}),
        "has no column 'q'",
    ),
    "an insert without its key": (
        lambda t: t.merge(CHANGES).when_not_matched_insert({"n": "1"}),
        "no key column 'id'",
    ),
    "an insert of another key": (
        lambda t: t.merge(CHANGES).when_not_matched_insert({"id": "source.id + 1"}).execute(),
        "It gives 9 for 8",
    ),
    "a condition of another type": (
        lambda t: t.merge(CHANGES).when_matched_delete("source.n").execute(),
        "is int64, not bool",
    ),
    "an unknown name": (
        lambda t: t.merge(CHANGES).when_matched_delete("source.zz").execute(),
        "source.zz",
    ),
    "an ambiguous name": (
        lambda t: t.merge(CHANGES).when_matched_delete("n > 5").execute(),
        "ambiguous.*source.n or target.n|ambiguous.*target.n or source.n",
    ),
    "rows that are not in the source": (
        lambda t: t.merge(CHANGES).when_not_matched_by_source_delete(),
        "only at the keys of its source",
    ),
}


@pytest.mark.parametrize("case", REFUSED_MERGES)
def test_a_merge_that_cannot_be_is_refused_with_nothing_written(
    case: str, board: lancemem.Table
) -> None:
    call, text = REFUSED_MERGES[case]
    with pytest.raises(lancemem.InvalidInputError, match=text):
        call(board)
    assert people(board) == PEOPLE


# --- tables that are overwritten by streams, and descriptions that read no log ---


def test_a_stream_that_fails_replaces_nothing(board: lancemem.Table) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield HALVES[0]
        raise RuntimeError("the source is gone")

    with pytest.raises(Exception, match="the source is gone"):
        lancemem.create_table(board.uri, broken(), primary_key="id", mode="overwrite")
    mixed = [ARROW, ARROW.select(["id"])]
    with pytest.raises(lancemem.InvalidInputError, match="part 1"):
        lancemem.create_table(board.uri, mixed, primary_key="id", mode="overwrite")
    assert people(board) == PEOPLE


@pytest.mark.parametrize("form", FORMS)
def test_a_table_is_overwritten_by_rows_in_any_form(form: str, board: lancemem.Table) -> None:
    uri = board.uri
    again = lancemem.create_table(uri, FORMS[form](), primary_key="id", mode="overwrite")
    assert people(again) == PEOPLE


def test_a_table_takes_rows_or_a_schema(table_uri: str) -> None:
    with pytest.raises(lancemem.InvalidInputError, match="either rows or a schema"):
        lancemem.create_table(table_uri, ARROW, schema=ARROW.schema)
    assert lancemem.create_table(table_uri, schema=ARROW.schema).count_rows() == 0


def test_a_description_reads_no_log(board: lancemem.Table) -> None:
    board.upsert([{"id": 9, "name": "new", "n": 1}])
    counted = board.stats()
    assert (counted.num_log_rows, len(counted.logs)) == (1, 1)
    quick = board.stats(count_logs=False)
    assert (quick.num_log_rows, quick.log_bytes, quick.logs) == (0, 0, [])
    assert (quick.num_base_rows, quick.num_sstable_rows) == (
        counted.num_base_rows,
        counted.num_sstable_rows,
    )
    entries = Path(board.uri, "_mem_wal").glob("*/wal/*.arrow")
    entry = max(entries, key=lambda each: each.stat().st_mtime_ns)
    entry.write_bytes(b"damaged")
    assert repr(lancemem.open_table(board.uri)).startswith("Table(")
    assert "base_rows=" in repr(lancemem.open_table(board.uri))


def test_a_scan_of_a_writer_has_the_forms_of_a_scan(board: lancemem.Table) -> None:
    with board.writer() as writer:
        assert isinstance(writer, lancemem.TableWriter)
        writer.put([{"id": 4, "name": "Barbara", "n": 40}], durable=False)
        scan = writer.scan({"id": "id", "double": "n * 2"}, "n > 25", order_by="id")
        assert isinstance(scan, lancemem.Scan)
        assert scan.to_pandas()["double"].tolist() == [60, 80]
        with scan.to_reader() as reader:
            assert reader.read_all()["id"].to_pylist() == [3, 4]
        assert repr(scan).startswith(f'Scan("{board.uri}", ')
        assert "80" in scan._repr_html_()
        with pytest.raises(TypeError, match="live"):
            pickle.dumps(scan)
