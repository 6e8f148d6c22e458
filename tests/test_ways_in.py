"""Every way to read a table, on rows in the base table, in an SSTable and in the log.

Owns: the result of each way, what engines push into the scan, streaming, and the errors of
unsupported calls. Not here: conditions of lancemem's own calls (test_filters), snapshots
(test_snapshots).
"""

from __future__ import annotations

import datetime as dt
import pickle
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import duckdb
import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pds
import pytest
from pyarrow import acero

import lancemem
from lancemem.arrow_dataset import TableDataset

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import MakeTable

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("value", pa.float64()),
        pa.field("tags", pa.list_(pa.string())),
    ]
)
EXPECTED = {0: "memory", 1: "memory", 2: "run", 3: "run", 4: "run"} | dict.fromkeys(
    range(5, 10), "base"
)


def rows(ids: range, name: str) -> pa.Table:
    columns = {
        "id": list(ids),
        "name": [name] * len(ids),
        "value": [n / 2 for n in ids],
        "tags": [["x"] * (n % 3) for n in ids],
    }
    return pa.table(columns, schema=SCHEMA)


@pytest.fixture
def board(make_table: MakeTable) -> lancemem.Table:
    """Give ids 0 to 9 over all three layers; 10 was deleted."""
    table = make_table(SCHEMA)
    with table.start_job(shard=0) as job:
        job.put(rows(range(11), "base"))
        job.flush()
    table.compact()
    with table.start_job(shard=0) as job:
        job.put(rows(range(5), "run"))
        job.delete(pa.table({"id": pa.array([10], pa.int64())}))
        job.flush()
        job.put(rows(range(2), "memory"))
    return table


def names(table: Any) -> dict[int, str]:  # noqa: ANN401
    return dict(zip(table["id"].to_pylist(), table["name"].to_pylist(), strict=True))


# --- a scan ---


def test_a_table_is_read_in_an_order_without_a_scan(board: lancemem.Table) -> None:
    down = list(range(9, 4, -1))
    chosen: dict[str, Any] = {"columns": ["id"], "filter": "id > 4", "order_by": "-id"}
    assert board.to_table(**chosen)["id"].to_pylist() == down
    assert board.to_table(**chosen, limit=2)["id"].to_pylist() == down[:2]
    assert board.to_pandas(**chosen)["id"].tolist() == down
    assert board.to_polars(**chosen)["id"].to_list() == down


def test_a_scan_is_read_as_table_frames_stream_and_batches(board: lancemem.Table) -> None:
    scan = board.scan(["id", "name"])
    assert scan.schema == board.schema.empty_table().select(["id", "name"]).schema
    assert names(scan.to_table()) == EXPECTED
    assert names(pa.RecordBatchReader.from_stream(scan.to_reader()).read_all()) == EXPECTED
    assert names(pa.table(scan)) == EXPECTED
    frame = scan.to_pandas()
    assert dict(zip(frame["id"], frame["name"], strict=True)) == EXPECTED
    assert dict(scan.to_polars().iter_rows()) == EXPECTED
    batches = list(scan)
    assert all(isinstance(batch, pa.RecordBatch) for batch in batches)
    assert names(pa.Table.from_batches(batches)) == EXPECTED
    assert scan.count_rows() == len(EXPECTED)


@pytest.mark.parametrize("size", [8_191, 8_192, 10_000])
def test_a_dataset_gives_no_batch_of_more_rows_than_asked(size: int, make_table: MakeTable) -> None:
    table = make_table()
    table.upsert(pa.table({"id": range(20_000), "name": ["a"] * 20_000, "value": [0.5] * 20_000}))
    table.start_job(shard=0).close(flush=True)
    table.compact()
    rows = [batch.num_rows for batch in table.to_dataset().to_batches(["id"], batch_size=size)]
    assert (sum(rows), max(rows) <= size) == (20_000, True)


def test_options_of_pandas_reach_it(board: lancemem.Table) -> None:
    import pandas as pd

    frame = board.scan(["id"]).to_pandas(types_mapper=pd.ArrowDtype)
    assert str(frame["id"].dtype) == "int64[pyarrow]"


def test_batches_keep_nested_columns_metadata_and_nullability(make_table: MakeTable) -> None:
    schema = SCHEMA.with_metadata({"owner": "tower"})
    table = make_table(schema)
    table.upsert(rows(range(3), "a"))
    (batch,) = table.scan()
    assert batch.schema == table.schema
    assert batch.schema.metadata == table.schema.metadata
    for keys in ([1], [99]):
        found = table.get(pa.table({"id": keys}))
        assert found.schema.equals(table.scan().schema, check_metadata=True)
    assert sorted(batch.column("tags").to_pylist()) == [[], ["x"], ["x", "x"]]


def test_each_iteration_reads_again_and_a_started_one_goes_on(board: lancemem.Table) -> None:
    scan = board.scan()
    first = scan.to_batches()
    board.upsert(rows(range(20, 30), "new"))
    assert sum(batch.num_rows for batch in first) == 10
    assert next(first, None) is None
    assert sum(batch.num_rows for batch in scan) == 20


def test_batches_are_fetched_while_they_are_asked_for(make_table: MakeTable) -> None:
    table = make_table()
    number = 200_000
    table.upsert(
        pa.table({"id": range(number), "name": ["n" * 40] * number, "value": [0.0] * number})
    )
    table.compact()
    before = pa.total_allocated_bytes()
    batches = iter(table.scan())
    rows_seen = next(batches).num_rows
    assert 0 < rows_seen < number // 4
    for batch in batches:
        rows_seen += batch.num_rows
        # lancemem allocates the batches, and pyarrow copies none of them.
        assert pa.total_allocated_bytes() - before < 1 << 20
    assert rows_seen == number


def test_an_error_in_the_middle_of_a_scan_keeps_its_type(board: lancemem.Table) -> None:
    with pytest.raises(lancemem.InvalidInputError):
        list(board.scan(filter="CAST(name AS BIGINT) > 3"))
    with pytest.raises(lancemem.InvalidInputError, match="column 'gone' is not in the table"):
        _ = board.scan(["gone"]).schema


def test_a_plan_is_explained_and_measured(board: lancemem.Table) -> None:
    scan = board.scan(["id"], "value > 1")
    assert "NewestRows" in scan.explain()
    assert "metrics=[" not in scan.explain()
    measured = scan.explain(analyze=True)
    assert measured.startswith("rows=7\n")
    assert "output_rows=" in measured


# --- engines over the dataset ---


class Asked(TableDataset):
    """Records the columns and the condition of each scan."""

    def __init__(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401
        super().__init__(*arguments, **options)
        self.asked: list[tuple[list[str] | None, str | None]] = []

    def scan(self, columns: Any, filter: Any, limit: Any) -> lancemem.Scan:  # noqa: A002, ANN401
        """Prepare the scan and take a note."""
        self.asked.append((columns, None if filter is None else str(filter)))
        return super().scan(columns, filter, limit)


def fetched(relation: duckdb.DuckDBPyRelation | None) -> list[Any]:
    """Return the rows of a query, which must have a result."""
    assert relation is not None
    return relation.fetchall()


def test_duckdb_pushes_columns_and_conditions_into_the_scan(board: lancemem.Table) -> None:
    flights = Asked(board)
    found = fetched(duckdb.sql("SELECT name FROM flights WHERE id = 3 AND value > 1"))
    assert found == [("run",)]
    assert len(flights.asked) == 1
    columns, condition = flights.asked[0]
    assert columns is not None
    assert set(columns) <= {"name", "value"}
    assert condition is not None
    assert "(id == 3)" in condition


DUCKDB = {
    "SELECT count(*) FROM flights": [(10,)],
    "SELECT count(*), sum(value) FROM flights WHERE name = 'run'": [(3, 4.5)],
    "SELECT id FROM flights WHERE name IN ('memory', 'gone') ORDER BY id": [(0,), (1,)],
    "SELECT id FROM flights WHERE name LIKE 'mem%' ORDER BY id": [(0,), (1,)],
    "SELECT a.id FROM flights a JOIN (SELECT 4 AS id) b USING (id)": [(4,)],
    "SELECT count(*) FROM flights WHERE name = 'base' AND id < 5": [(0,)],
    "SELECT len(tags) FROM flights WHERE id = 8": [(2,)],
    "SELECT id FROM flights ORDER BY value DESC LIMIT 2": [(9,), (8,)],
}


@pytest.mark.parametrize("sql", DUCKDB)
def test_duckdb_gives_the_newest_rows(sql: str, board: lancemem.Table) -> None:
    flights = board.to_dataset()
    assert isinstance(flights, pds.Dataset)
    assert fetched(duckdb.sql(sql)) == DUCKDB[sql]


def test_duckdb_reads_one_snapshot_of_a_snapshots_dataset(board: lancemem.Table) -> None:
    flights = board.snapshot().to_dataset()
    assert isinstance(flights, pds.Dataset)
    board.upsert(rows(range(20, 30), "new"))
    sql = "SELECT count(*) FROM flights a JOIN flights b USING (id)"
    assert fetched(duckdb.sql(sql)) == [(10,)]


def test_duckdb_reads_a_plain_scan_without_pushing_anything(board: lancemem.Table) -> None:
    flights = board.scan(["id", "name"], "id > 7")
    assert hasattr(flights, "__arrow_c_stream__")
    assert fetched(duckdb.sql("SELECT count(*), min(name) FROM flights")) == [(2, "base")]


def test_polars_pushes_columns_and_conditions_into_the_scan(board: lancemem.Table) -> None:
    import polars as pl

    flights = Asked(board)
    frame = pl.scan_pyarrow_dataset(flights)
    found = frame.filter(pl.col("name") == "run", pl.col("id") > 2).select("value").collect()
    assert sorted(found["value"]) == [1.5, 2.0]
    assert len(flights.asked) == 1
    columns, condition = flights.asked[0]
    assert columns is not None
    assert "tags" not in columns
    assert condition is not None
    assert '(name == "run")' in condition
    assert frame.select(pl.len()).collect().item() == 10
    assert frame.filter(pl.col("name").is_in(["memory"])).collect().height == 2


def test_a_condition_that_cannot_be_pushed_is_applied_all_the_same(board: lancemem.Table) -> None:
    flights = Asked(board)
    found = flights.to_table(columns=["name"], filter=pc.utf8_upper(pc.field("name")) == "RUN")
    assert found.to_pydict() == {"name": ["run"] * 3}
    # The first scan has the condition, which is refused; the second reads everything.
    assert [columns for columns, _ in flights.asked] == [["name"], None]
    assert flights.asked[1][1] is None
    with pytest.raises(lancemem.InvalidInputError, match="gone"):
        flights.to_table(columns=["gone"])
    with pytest.raises(lancemem.InvalidInputError, match="is not valid"):
        flights.to_table(filter="id ===")


def test_a_dataset_is_read_in_pyarrows_ways(board: lancemem.Table, tmp_path: Path) -> None:
    flights = board.to_dataset()
    assert flights.schema == board.schema
    assert flights.count_rows() == 10
    assert flights.count_rows(pc.field("id") > 6) == 3
    assert flights.head(4).num_rows == 4
    assert flights.head(4, filter="id > 7").num_rows == 2
    assert flights.to_table(["id", "id"]).column_names == ["id", "id"]
    doubled = flights.to_table({"twice": pc.field("value") * 2}, filter=pc.field("id") == 9)
    assert doubled.to_pydict() == {"twice": [9.0]}
    small = flights.to_batches(["id"], batch_size=3)
    assert max(batch.num_rows for batch in small) <= 3
    small = flights.to_batches(["id"], batch_size=np.int64(3))
    assert max(batch.num_rows for batch in small) <= 3
    kept = flights.filter(pc.field("name") == "base").filter(pc.field("id") > 7)
    assert sorted(kept.to_table()["id"].to_pylist()) == [8, 9]
    assert kept.count_rows(pc.field("id") == 8) == 1
    assert names(flights.scanner(["id", "name"]).to_table()) == EXPECTED
    pds.write_dataset(flights, tmp_path / "copy", format="parquet")
    assert names(pds.dataset(tmp_path / "copy").to_table()) == EXPECTED


WITHOUT = ("get_fragments", "take", "sort_by", "join", "join_asof", "replace_schema")


def test_what_a_dataset_has_not_is_refused_with_another_way(board: lancemem.Table) -> None:
    flights = board.to_dataset()
    for name in WITHOUT:
        arguments = {"get_fragments": [], "join": [flights, "id"]}.get(name, [[0]])
        with pytest.raises(NotImplementedError, match="a dataset over a lancemem table has no"):
            getattr(flights, name)(*arguments)
    with pytest.raises(NotImplementedError, match="filter"):
        _ = flights.partition_expression
    with pytest.raises(TypeError, match="open the table where it is read"):
        pickle.dumps(flights)
    known = {name for name in dir(pds.UnionDataset) if not name.startswith("_")}
    own = {name for name in vars(TableDataset) if not name.startswith("_")}
    # An inherited method of pyarrow would read the dataset of a missing file.
    assert known <= own


BELOW_PYTHON: dict[str, Callable[[pds.Dataset, Path], object]] = {
    "scanner": lambda flights, _: pds.Scanner.from_dataset(flights).to_table(),
    "rows": lambda flights, _: pds.Scanner.from_dataset(flights).count_rows(),
    "acero": lambda flights, _: acero.Declaration(
        "scan", acero.ScanNodeOptions(flights)
    ).to_table(),
    "lance": lambda flights, path: lance.write_dataset(flights, path / "copy"),
}


@pytest.mark.parametrize("way", BELOW_PYTHON)
def test_code_that_reads_a_dataset_below_python_is_told_what_to_read(
    board: lancemem.Table, way: str, tmp_path: Path
) -> None:
    with pytest.raises(OSError, match=r"from_stream\(table.scan\(\)\)"):
        BELOW_PYTHON[way](board.to_dataset(), tmp_path)
    reader = pa.RecordBatchReader.from_stream(board.scan())
    assert names(lance.write_dataset(reader, tmp_path / "rows").to_table()) == EXPECTED


def test_a_live_dataset_sees_the_rows_of_its_jobs(table: lancemem.Table) -> None:
    config = lancemem.WriterConfig(
        durable=False, max_wal_flush_interval=timedelta(hours=1), max_wal_buffer_bytes=1 << 30
    )
    with table.start_job(shard=0, config=config) as job:
        job.put(pa.table({"id": [1], "name": ["a"], "value": [0.5]}))
        assert table.to_dataset().count_rows() == 0
        live = table.to_dataset(consistency="live", jobs=[job])
        assert live.count_rows() == 1
        assert fetched(duckdb.sql("SELECT name FROM live")) == [("a",)]
    with pytest.raises(lancemem.InvalidInputError, match="consistency must be"):
        table.to_dataset(consistency="soon")  # type: ignore[arg-type]


# --- DataFusion ---


@pytest.fixture
def session() -> Any:  # noqa: ANN401
    """Return a session of DataFusion's own package."""
    import datafusion  # noqa: PLC0415

    return datafusion.SessionContext()


def results(session: Any, sql: str) -> list[tuple[Any, ...]]:  # noqa: ANN401
    batches = session.sql(sql).collect()
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


DATAFUSION = {
    "SELECT count(*) FROM board": [(10,)],
    "SELECT id FROM board WHERE name = 'memory' ORDER BY id": [(0,), (1,)],
    "SELECT count(*) FROM board WHERE name = 'base' AND id < 5": [(0,)],
    "SELECT name FROM board WHERE upper(name) = 'RUN' LIMIT 1": [("run",)],
    "SELECT name, count(*) FROM board GROUP BY name ORDER BY name": [
        ("base", 5),
        ("memory", 2),
        ("run", 3),
    ],
    "SELECT b.name, g.gate FROM board b JOIN gates g ON b.id = g.id ORDER BY b.id": [
        ("memory", "A1"),
        ("base", "B7"),
    ],
    "SELECT a.id FROM board a JOIN board b ON a.id = b.id + 8 ORDER BY a.id": [(8,), (9,)],
    "SELECT id FROM board WHERE id IN (SELECT id FROM gates) ORDER BY id": [(1,), (7,)],
    "SELECT array_length(tags) FROM board WHERE id = 8": [(2,)],
}


@pytest.mark.parametrize("sql", DATAFUSION)
def test_datafusion_queries_live_data(sql: str, board: lancemem.Table, session: Any) -> None:  # noqa: ANN401
    session.register_table("board", board)
    session.from_arrow(pa.table({"id": [1, 7], "gate": ["A1", "B7"]}), "gates")
    assert results(session, sql) == DATAFUSION[sql]


# Syntax that another engine plans as a function, which lancemem may lack or define otherwise.
FUNCTIONS = {
    "s['a'] = 1": [1],
    "m['k'] = 2": [2],
    "date_trunc('day', at) = TIMESTAMP '2020-01-02T00:00:00'": [1],
    "extract(day FROM at) = 3": [2],
    "array_has(tags, 't0')": [0],
    "coalesce(name, 'none') = 'none'": [2],
}


@pytest.mark.parametrize("condition", FUNCTIONS)
def test_datafusion_asks_conditions_with_functions_of_its_own(
    condition: str,
    make_table: MakeTable,
    session: Any,  # noqa: ANN401
) -> None:
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            ("name", pa.string()),
            ("s", pa.struct([("a", pa.int64())])),
            ("m", pa.map_(pa.string(), pa.int64())),
            ("tags", pa.list_(pa.string())),
            ("at", pa.timestamp("us")),
        ]
    )
    table = make_table(schema)
    for number in range(3):
        row = {
            "id": number,
            "name": None if number == 2 else "n",
            "s": {"a": number},
            "m": [("k", number)],
            "tags": [f"t{number}"],
            "at": dt.datetime(2020, 1, 1 + number, 12),  # noqa: DTZ001 - the column has no zone
        }
        table.upsert(pa.Table.from_pylist([row], schema=schema))
        if number == 0:
            table.compact()
    session.register_table("t", table)
    found = results(session, f"SELECT id FROM t WHERE {condition}")  # noqa: S608 - our own
    assert [row[0] for row in found] == FUNCTIONS[condition]


def test_datafusion_sees_what_was_written_since_and_a_snapshot_does_not(
    board: lancemem.Table,
    session: Any,  # noqa: ANN401
) -> None:
    session.register_table("board", board)
    session.register_table("pinned", board.snapshot())
    board.upsert(rows(range(50, 55), "new"))
    assert results(session, "SELECT count(*) FROM board") == [(15,)]
    assert results(session, "SELECT count(*) FROM pinned") == [(10,)]


def test_datafusion_pushes_columns_conditions_and_limits_into_the_scan(
    board: lancemem.Table,
    session: Any,  # noqa: ANN401
) -> None:
    session.register_table("board", board)
    plan = session.sql("SELECT name FROM board WHERE id > 3 LIMIT 2")
    plan = plan.optimized_logical_plan().display_indent()
    assert "projection=[name]" in plan or "projection=[id, name]" in plan
    assert "full_filters=[board.id > Int64(3)]" in plan
    assert "fetch=2" in plan
    assert "Filter:" not in plan
    volatile = session.sql("SELECT name FROM board WHERE random() > 0.5")
    assert "Filter:" in volatile.optimized_logical_plan().display_indent()


def test_datafusion_streams_a_large_table(make_table: MakeTable, session: Any) -> None:  # noqa: ANN401
    table = make_table(sharding=lancemem.bucket("id", 2))
    number = 100_000
    table.upsert(pa.table({"id": range(number), "name": ["n"] * number, "value": [0.5] * number}))
    session.register_table("board", table)
    assert results(session, "SELECT count(*), sum(value), max(id) FROM board") == [
        (number, number / 2, number - 1)
    ]
    seen = sum(batch.to_pyarrow().num_rows for batch in session.sql("SELECT id FROM board"))
    assert seen == number


def test_a_session_that_is_none_is_refused(board: lancemem.Table) -> None:
    with pytest.raises(lancemem.InvalidInputError, match="expected a SessionContext"):
        board.__datafusion_table_provider__(object())


def test_an_error_in_a_query_names_what_went_wrong(
    board: lancemem.Table,
    session: Any,  # noqa: ANN401
) -> None:
    session.register_table("board", board)
    with pytest.raises(Exception, match="Cannot cast string"):
        results(session, "SELECT id FROM board WHERE CAST(name AS BIGINT) > 3")
    assert results(session, "SELECT count(*) FROM board") == [(10,)]


# --- PyTorch ---


@pytest.mark.filterwarnings("ignore:lance is not fork-safe:UserWarning")
@pytest.mark.filterwarnings("ignore:This DataLoader will create 3 worker processes:UserWarning")
def test_torch_reads_tensors_and_divides_the_shards_among_workers(make_table: MakeTable) -> None:
    torch = pytest.importorskip("torch", reason="torch is not among the tools of the tests")
    from lancemem.torch import ScanDataset  # noqa: PLC0415

    table = make_table(sharding=lancemem.bucket("id", 4))
    number = 1_000
    table.upsert(pa.table({"id": range(number), "name": ["a"] * number, "value": [0.5] * number}))
    dataset = ScanDataset(table, ["value", "id"], "id >= 10", batch_size=64)
    for workers in (0, 2, 3):
        loader = torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=workers)
        batches = list(loader)
        assert all(list(batch) == ["value", "id"] for batch in batches)
        assert batches[0]["value"].dtype == torch.float64
        ids = sorted(torch.cat([batch["id"] for batch in batches]).tolist())
        assert ids == list(range(10, number))


def test_torch_tensors_hold_vectors_and_refuse_nulls_of_integers() -> None:
    torch = pytest.importorskip("torch", reason="torch is not among the tools of the tests")
    from lancemem.torch import to_tensors  # noqa: PLC0415

    vectors = pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float32(), 2))
    batch = pa.record_batch({"v": vectors, "x": [1.5, None], "s": ["a", None], "b": [True, False]})
    tensors = to_tensors(batch)
    assert tensors["v"].tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert torch.isnan(tensors["x"]).tolist() == [False, True]
    assert tensors["s"] == ["a", None]
    assert tensors["b"].tolist() == [True, False]
    with pytest.raises(lancemem.InvalidInputError, match="column 'n' has nulls"):
        to_tensors(pa.record_batch({"n": pa.array([1, None])}))
    holes = pa.array([[1, None]], pa.list_(pa.int64(), 2))
    with pytest.raises(lancemem.InvalidInputError, match="column 'n' has nulls"):
        to_tensors(pa.record_batch({"n": holes}))
