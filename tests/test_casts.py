"""Conditions over casts, signs and truth values, which optimizers rewrite.

Owns: that each keeps its meaning in memory, in an SSTable, in the base table and with an index
there.
Not here: other conditions (`test_filters`).
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lancemem

lance = pytest.importorskip("lance")

if TYPE_CHECKING:
    from tests.conftest import MakeTable

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("tns", pa.timestamp("ns")),
        ("dec", pa.decimal128(10, 2)),
        ("i64", pa.int64()),
        ("i32", pa.int32()),
        ("b", pa.bool_()),
    ]
)
ROWS = pa.table(
    {
        "id": range(4),
        "tns": pa.array([0, 500_000_000, 10**9, None], pa.timestamp("ns")),
        "dec": [Decimal("1.00"), Decimal("1.25"), Decimal("2.00"), None],
        "i64": [5, 2**32 + 5, -1, -(2**63)],
        "i32": pa.array([5, 7, -1, None], pa.int32()),
        "b": [True, False, None, None],
    },
    schema=SCHEMA,
)
EPOCH = "timestamp '1970-01-01'"
CONDITIONS = {
    "cast(dec as int) = 1": [0, 1],
    "cast(dec as int) + 0 = 1": [0, 1],
    "cast(dec as decimal(10,0)) = 1": [0, 1],
    "cast(dec as decimal(12,3)) = 1.25": [1],
    "try_cast(i64 as int) > 0": [0],
    "try_cast(i64 as int) != 5": [2],
    "try_cast(i64 as int) NOT IN (7)": [0, 2],
    "try_cast(i64 as int) IS NULL": [1, 3],
    f"cast(tns as timestamp(0)) = {EPOCH}": [0, 1],
    f"cast(cast(tns as timestamp(0)) as timestamp(9)) = {EPOCH}": [0, 1],
    "cast(i32 as bigint) = 5": [0],
    "cast(i32 as bigint) IN (5, 7)": [0, 1],
    "i32 = 5 AND cast(dec as int) = 1": [0],
    "NOT (b IS TRUE)": [1, 2, 3],
    "NOT (b IS FALSE)": [0, 2, 3],
    "NOT ((b = true) IS TRUE)": [1, 2, 3],
    "NOT (b IS NOT FALSE)": [1],
    "NOT (b IS TRUE OR id = 3)": [1, 2],
    "-i32 > 0": [2],
}


def stages(make_table: MakeTable) -> dict[str, lancemem.Table]:
    """Give the rows in the log, in an SSTable, in the base, and there with indexes."""
    made = {name: make_table(SCHEMA, ["id"]) for name in ("log", "run", "base", "indexed")}
    for name, table in made.items():
        table.upsert(ROWS)
        if name != "log":
            table.start_job(shard=0).close(flush=True)
        if name in ("base", "indexed"):
            table.compact()
    base = lance.dataset(made["indexed"].uri)
    for column, kind in {"b": "BITMAP", "i32": "BTREE", "i64": "BTREE", "dec": "BTREE"}.items():
        base.create_scalar_index(column, kind)
    return {name: lancemem.open_table(table.uri) for name, table in made.items()}


def test_a_condition_means_what_it_says_wherever_its_rows_are(make_table: MakeTable) -> None:
    for stage, table in stages(make_table).items():
        for condition, expected in CONDITIONS.items():
            found = table.scan(["id"], condition).to_table()["id"].to_pylist()
            assert sorted(found) == expected, (stage, condition)
        for condition in ("-id > 0 OR -i64 > 0", "cast(i64 as int) > 0"):
            with pytest.raises(lancemem.InvalidInputError):
                table.scan(["id"], condition).to_table()


def test_an_unsafe_cast_of_pyarrow_means_what_pyarrow_says(make_table: MakeTable) -> None:
    table = make_table(SCHEMA, ["id"])
    table.upsert(ROWS)
    seconds = pc.field("tns").cast(pa.timestamp("s"), safe=False)
    for condition in (
        seconds == pa.scalar(0, pa.timestamp("s")),
        pc.field("dec").cast(pa.int32(), safe=False) == 1,
    ):
        expected = ROWS.filter(condition)["id"].to_pylist()
        assert table.to_dataset().to_table(filter=condition)["id"].to_pylist() == expected
