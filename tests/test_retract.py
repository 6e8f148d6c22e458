"""`retract`: rows that are taken back from sums and counts, by name.

Owns: the verb of a table, a writer and a job, and one clear error for each table that cannot take a
row back. Does not own: in which order a retract and its row may come (test_combining), or Spark's
verb.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import lancemem
from lancemem import agg

if TYPE_CHECKING:
    from tests.conftest import MakeTable

SCHEMA = pa.schema(
    [
        pa.field("k", pa.int64(), nullable=False),
        pa.field("v", pa.int64()),
        pa.field("price", pa.float32()),
        pa.field("n", pa.int64()),
        pa.field("name", pa.string()),
    ]
)
TOTALS: dict[str, Any] = {
    "merge_engine": "aggregation",
    "aggregates": {
        "v": "sum",
        "price": "sum",
        "n": "count",
        "name": agg.last_non_null_value(ignore_retract=True),
    },
}
RETRACT: dict[str, Any] = {**TOTALS, "deletes": "retract"}
ADA = {"k": 1, "v": 5, "price": 0.5, "name": "Ada"}


def total(table: lancemem.Table, k: int = 1) -> dict[str, Any]:
    [found] = table.get([k]).to_pylist()
    return {name: found[name] for name in ("v", "price", "n", "name")}


@pytest.mark.parametrize("flushed", [False, True])
def test_a_row_that_is_taken_back_counts_no_more(make_table: MakeTable, flushed: bool) -> None:
    table = make_table(SCHEMA, **RETRACT)
    table.upsert([ADA, {**ADA, "v": 7, "price": 1.0}])
    if flushed:
        table.compact(flush=True)
    assert table.retract([ADA]).num_rows == 1
    assert total(table) == {"v": 7, "price": 1.0, "n": 1, "name": "Ada"}
    if flushed:
        table.compact(flush=True)
    assert total(table) == {"v": 7, "price": 1.0, "n": 1, "name": "Ada"}


def test_rows_come_in_any_form_and_a_missing_column_stays(make_table: MakeTable) -> None:
    table = make_table(SCHEMA, **RETRACT)
    table.upsert([ADA])
    table.retract({"k": [1], "v": [2]})
    table.retract(pa.table({"k": [1], "v": pa.nulls(1, pa.int64()), "price": [0.25]}))
    assert total(table) == {"v": 3, "price": 0.25, "n": -1, "name": "Ada"}
    table.retract([{"k": 1, "price": 0.1}], round_floats=True)
    assert total(table)["n"] == -2


def test_a_retract_with_a_transaction_id_counts_once(make_table: MakeTable) -> None:
    table = make_table(SCHEMA, **RETRACT)
    table.upsert([ADA])
    for again in (0, 1):
        done = table.retract([ADA], txn=("corrections", 1))
        assert done.num_shards_already_written == again
    assert total(table) == {"v": 0, "price": 0.0, "n": 0, "name": "Ada"}


def test_a_writer_takes_rows_back_in_their_shards(make_table: MakeTable) -> None:
    table = make_table(SCHEMA, sharding=lancemem.bucket("k", 2), **RETRACT)
    rows = [{**ADA, "k": k} for k in range(10)]
    with table.writer() as writer:
        writer.put(rows)
        assert writer.retract(rows[1:]).num_rows == 9
        found = writer.scan(order_by="k").to_table()
    assert found["v"].to_pylist() == [5] + [0] * 9
    assert found["n"].to_pylist() == [1] + [0] * 9


def test_a_job_takes_rows_of_its_shard_back(make_table: MakeTable) -> None:
    table, other = make_table(SCHEMA, **RETRACT), make_table(SCHEMA, **TOTALS)
    with table.start_job() as job, other.start_job() as refusing:
        job.put([ADA, ADA])
        assert job.retract([{"k": 1, "v": 5, "price": 0.25}], txn=("fix", 1)).num_rows == 1
        assert job.retract([ADA], txn=("fix", 1)).already_written
        with pytest.raises(lancemem.InvalidInputError, match="deletes='retract'") as caught:
            refusing.retract([ADA])
        assert other.uri in str(caught.value)
    assert total(table) == {"v": 5, "price": 0.75, "n": 1, "name": "Ada"}
    assert other.count_rows() == 0


def test_a_delete_of_such_a_table_is_the_same_call(make_table: MakeTable) -> None:
    table = make_table(SCHEMA, **RETRACT)
    table.upsert([ADA])
    table.delete(pa.Table.from_pylist([ADA]).drop_columns(["price"]))
    assert total(table) == {"v": 0, "price": 0.5, "n": 0, "name": "Ada"}


def test_a_delete_by_a_condition_knows_no_row_to_take_back(make_table: MakeTable) -> None:
    table = make_table(SCHEMA, **RETRACT)
    table.upsert([ADA])
    with pytest.raises(lancemem.InvalidInputError, match=r"retract\(rows\).*replace=True"):
        table.delete(where="v = 5")
    assert total(table)["v"] == 5
    # The way that the error names.
    table.upsert([{**ADA, "v": 1}], replace=True)
    assert total(table) == {"v": 1, "price": 0.5, "n": 1, "name": "Ada"}


# Options of a table, and what the error of its retract contains.
REFUSED: list[tuple[dict[str, Any], list[str]]] = [
    ({}, ["merge_engine='deduplicate'", "merge_engine='aggregation'", "deletes='retract'"]),
    ({"sequence_by": "v"}, ["merge_engine='deduplicate'", r"delete(keys) removes rows"]),
    ({"merge_engine": "first_row"}, ["merge_engine='first_row'", "deletes='retract'"]),
    (
        {"merge_engine": "partial_update", "aggregates": {"v": "sum"}},
        ["merge_engine='partial_update'", "merge_engine='aggregation'"],
    ),
    (TOTALS, ["deletes='remove'", "needs deletes='retract'"]),
    ({**TOTALS, "deletes": "ignore"}, ["deletes='ignore'", "needs deletes='retract'"]),
    (
        {**TOTALS, "aggregates": {**TOTALS["aggregates"], "v": "max"}},
        ["needs deletes='retract'", "column 'v' has the function 'max'", "agg.max(ignore_retract"],
    ),
    (
        {**TOTALS, "aggregates": {"v": "sum", "price": "sum", "n": "count"}},
        ["column 'name' has the function 'last_non_null_value'", "ignore_retract=True"],
    ),
    (
        {**TOTALS, "aggregates": {**TOTALS["aggregates"], "name": "first_value"}},
        ["'first_value'", "agg.first_non_null_value(ignore_retract=True)"],
    ),
]


@pytest.mark.parametrize(("options", "parts"), REFUSED)
def test_a_table_that_cannot_take_a_row_back_names_the_option_and_the_column(
    make_table: MakeTable, options: dict[str, Any], parts: list[str]
) -> None:
    table = make_table(SCHEMA, **options)
    for retract in (table.retract, table.writer().retract):
        with pytest.raises(lancemem.InvalidInputError) as caught:
            retract([ADA])
        text = str(caught.value)
        assert [part for part in [table.uri, *parts] if part not in text] == [], text
    assert table.count_rows() == 0
    assert table.shards()[0].writer_epoch == 0


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({**ADA, "n": 1}, "'n' counts rows and takes no values; leave it out"),
        ({**ADA, "clicks": 1}, "'clicks' is not in the table"),
        ({"v": 1}, "'k'"),
        ({**ADA, "v": 0.5}, "'v'.*not a whole number"),
    ],
)
def test_a_row_that_cannot_be_taken_back_changes_nothing(
    make_table: MakeTable, row: dict[str, Any], words: str
) -> None:
    table = make_table(SCHEMA, **RETRACT)
    table.upsert([ADA])
    with pytest.raises(lancemem.InvalidInputError, match=words):
        table.retract([row])
    assert total(table) == {"v": 5, "price": 0.5, "n": 1, "name": "Ada"}
