"""`Table.sql` and `scan(order_by=)`: SQL over one snapshot, and rows in an order.

Owns: the forms of `order_by`, what a query may be, its names, and its results in Python. Not here:
DataFusion's own sessions over a table (test_ways_in), conditions (test_filters).
"""

from __future__ import annotations

import pickle
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from lance.dataset import ColumnOrdering

import lancemem

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import MakeTable

ROWS: list[dict[str, Any]] = [
    {"id": 1, "Gate": "B", "delay": 20},
    {"id": 2, "Gate": "A", "delay": None},
    {"id": 3, "Gate": "A", "delay": 5},
    {"id": 4, "Gate": None, "delay": 20},
]


@pytest.fixture
def board(tmp_path: Path) -> lancemem.Table:
    """Give a table with rows in the base table, in an SSTable and in the log."""
    uri = tmp_path / "Board.lance"
    stale = [{**row, "delay": 99} for row in ROWS]
    table = lancemem.create_table(
        uri, [*stale, {"id": 9, "Gate": "Z", "delay": 0}], primary_key="id"
    )
    table.compact(flush=True)
    table.upsert(ROWS[:2])
    table.start_job(shard=0).close(flush=True)
    table.upsert(ROWS[2:])
    table.delete([9])
    return table


def ids(read: Any) -> list[int]:  # noqa: ANN401 - a scan
    numbers: list[int] = read.to_table().column("id").to_pylist()
    return numbers


# --- order ---


@pytest.mark.parametrize(
    ("order_by", "expected"),
    [
        ("id", [1, 2, 3, 4]),
        ("-id", [4, 3, 2, 1]),
        (["delay", "id"], [3, 1, 4, 2]),
        (["-delay", "-id"], [4, 1, 3, 2]),
        ([("delay", "desc"), ("id", "asc")], [1, 4, 3, 2]),
        ([("Gate", "ascending"), ("id", "descending")], [3, 2, 1, 4]),
        ([ColumnOrdering("delay", nulls_first=True), "id"], [2, 3, 1, 4]),
        ([ColumnOrdering("Gate", ascending=False), "id"], [1, 2, 3, 4]),
    ],
)
def test_rows_come_in_the_order_of_each_form(
    order_by: Any,  # noqa: ANN401
    expected: list[int],
    board: lancemem.Table,
) -> None:
    assert ids(board.scan(order_by=order_by)) == expected
    assert ids(board.snapshot().scan(["id"], order_by=order_by)) == expected
    assert ids(board.scan(order_by=order_by, limit=2, offset=1)) == expected[1:3]
    assert ids(pickle.loads(pickle.dumps(board.scan(order_by=order_by)))) == expected  # noqa: S301


def test_an_order_has_columns_that_are_not_shown_and_computed_ones(board: lancemem.Table) -> None:
    assert board.scan(["Gate"], order_by="-id", limit=1).to_table().to_pylist() == [{"Gate": None}]
    computed = {"id": "id", "hours": "coalesce(delay, 0) / 60.0"}
    scan = board.scan(computed, "id < 4", order_by=["-hours"])
    assert ids(scan) == [1, 3, 2]
    assert scan.schema.names == ["id", "hours"]
    assert scan.count_rows() == 3
    assert scan.to_polars()["id"].to_list() == [1, 3, 2]


def test_a_writer_reads_its_own_rows_in_an_order(board: lancemem.Table) -> None:
    with board.writer() as writer:
        writer.put(pa.Table.from_pylist([{"id": 0, "Gate": "C", "delay": 50}]))
        assert ids(writer.scan(["id"], order_by=["-delay", "id"], limit=3)) == [0, 1, 4]


@pytest.mark.parametrize(
    ("order_by", "text"),
    [
        (["gate"], "column 'gate' is not in the table"),
        ([("id", "down")], "must be 'asc' or 'desc', got 'down'"),
    ],
)
def test_an_order_that_cannot_be_is_refused(
    order_by: Any,  # noqa: ANN401
    text: str,
    board: lancemem.Table,
) -> None:
    with pytest.raises(lancemem.InvalidInputError, match=text):
        board.scan(order_by=order_by).to_table()


def test_an_order_of_another_type_of_a_part_or_by_lists_is_refused(
    board: lancemem.Table, make_table: MakeTable
) -> None:
    wrong: Any = [3]
    with pytest.raises(TypeError, match="names of columns"):
        board.scan(order_by=wrong)
    with pytest.raises(lancemem.InvalidInputError, match="does not go with part"):
        board.snapshot().scan(order_by="id", part=(0, 2)).to_table()
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("l", pa.list_(pa.int64()))])
    with pytest.raises(lancemem.InvalidInputError, match="cannot be ordered by column 'l'"):
        make_table(schema).scan(order_by="l").to_table()


def test_a_top_k_keeps_few_rows_and_shows_it_in_its_plan(board: lancemem.Table) -> None:
    plan = board.scan(order_by="-delay", limit=2).explain()
    assert "TopK(fetch=2)" in plan
    assert "SortExec" not in board.scan(limit=2).explain()


# --- SQL ---


def test_a_query_has_the_forms_of_a_scan(board: lancemem.Table) -> None:
    query = board.sql("SELECT Gate, count(*) AS Rows FROM t GROUP BY Gate ORDER BY Gate")
    expected = [
        {"Gate": "A", "Rows": 2},
        {"Gate": "B", "Rows": 1},
        {"Gate": None, "Rows": 1},
    ]
    assert isinstance(query, lancemem.Scan)
    assert query.to_table().to_pylist() == expected
    assert query.to_pandas()["Rows"].tolist() == [2, 1, 1]
    assert query.to_polars()["Rows"].to_list() == [2, 1, 1]
    assert pa.Table.from_batches(query).to_pylist() == expected
    assert pa.RecordBatchReader.from_stream(query).read_all().to_pylist() == expected
    assert query.count_rows() == 3
    assert query.schema.names == ["Gate", "Rows"]
    assert "AggregateExec" in query.explain()
    assert pickle.loads(pickle.dumps(query)).to_table().to_pylist() == expected  # noqa: S301
    assert repr(query).startswith(f'Scan("{board.uri}", query=\'SELECT Gate')
    assert query._repr_html_().count("<tr>") == 4


def test_a_query_names_the_table_t_or_as_its_folder(board: lancemem.Table) -> None:
    both = board.sql("SELECT a.id FROM t a JOIN Board b ON a.delay = b.delay WHERE a.id <> b.id")
    assert sorted(ids(both)) == [1, 4]
    assert ids(board.sql('SELECT id FROM "Board" WHERE "Gate" = \'B\'')) == [1]


def test_each_read_of_a_query_takes_one_snapshot(board: lancemem.Table) -> None:
    count = "SELECT count(*) AS id FROM t"
    of_table, of_snapshot = board.sql(count), board.snapshot().sql(count)
    board.upsert([{"id": 5, "Gate": "D", "delay": 1}])
    assert (ids(of_table), ids(of_snapshot)) == ([5], [4])
    assert ids(board.sql(count, consistency="flushed")) == [5]
    with board.start_job(shard=0) as job:
        job.put([{"id": 6, "Gate": "D", "delay": 1}], durable=False)
        live = board.sql(count, consistency="live")
        assert ids(live) == [6]
        with pytest.raises(TypeError, match="live"):
            pickle.dumps(live)


@pytest.mark.parametrize(
    "query",
    [
        "CREATE TABLE other AS SELECT * FROM t",
        "CREATE EXTERNAL TABLE other STORED AS CSV LOCATION '/etc/passwd'",
        "CREATE VIEW v AS SELECT 1",
        "DROP TABLE t",
        "INSERT INTO t VALUES (1)",
        "UPDATE t SET delay = 1",
        "DELETE FROM t",
        "COPY t TO 'out.csv'",
        "EXPLAIN ANALYZE COPY t TO 'out.csv'",
        "SET datafusion.execution.batch_size = 1",
        "PREPARE p AS SELECT 1",
        "SELECT 1; SELECT 2",
        "",
    ],
)
def test_a_statement_that_does_not_read_is_refused_at_once(
    query: str, board: lancemem.Table
) -> None:
    with pytest.raises(lancemem.InvalidInputError, match="sql takes"):
        board.sql(query)
    assert len(board) == 4


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("SELECT id FROM flights", "the table is called t or Board"),
        ("SELECT * FROM '/etc/passwd'", "not valid"),
        ("SELECT gate FROM t", "gate"),
        ("SELECT id + Gate + FROM t", "not valid"),
        ("SELECT * INTO other FROM t", "not valid"),
    ],
)
def test_a_query_that_cannot_be_is_refused(query: str, text: str, board: lancemem.Table) -> None:
    with pytest.raises(lancemem.InvalidInputError, match=text):
        board.sql(query).to_table()


def test_numbers_of_a_query_are_floats_unless_the_table_has_decimals(
    board: lancemem.Table, make_table: MakeTable
) -> None:
    halves = board.sql("SELECT delay / 2.5 AS x FROM t WHERE id = 3").to_table()
    assert halves.schema.field("x").type == pa.float64()
    assert halves.to_pylist() == [{"x": 2.0}]
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("price", pa.decimal128(20, 2))])
    prices = make_table(schema)
    prices.upsert([{"id": 1, "price": Decimal("123456789012345678.01")}])
    assert ids(prices.sql("SELECT id FROM t WHERE price > 123456789012345678.00")) == [1]
    assert ids(prices.sql("SELECT id FROM t WHERE price > 123456789012345678.01")) == []


@pytest.mark.slow
def test_a_sort_of_more_than_its_memory_continues_on_disk(
    make_table: MakeTable,
) -> None:
    # 40,000 rows of 40 kB are 1.6 GB; a sort may use 1 GiB.
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("text", pa.large_string())])
    table = make_table(schema)
    text = "x" * 40_000
    with table.start_job(shard=0) as job:
        for start in range(0, 40_000, 2_000):
            numbers = [(n * 7_919) % 40_000 for n in range(start, start + 2_000)]
            job.put(pa.table({"id": numbers, "text": [text] * len(numbers)}, schema=schema))
        job.flush()
    assert table.scan(order_by="-id", limit=3).to_table()["id"].to_pylist() == [39999, 39998, 39997]
    plan = table.scan(order_by="id").explain(analyze=True)
    assert re.search("spill_count=[1-9]", plan), plan
    last, rows = -1, 0
    for batch in table.scan(order_by="id").to_batches():
        numbers = batch.column("id").to_pylist()
        assert numbers == sorted(numbers)
        assert numbers[0] > last
        last, rows = numbers[-1], rows + len(numbers)
    assert rows == 40_000
