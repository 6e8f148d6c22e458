"""Change-data-capture: the changes of an orders table, late and in no order, into a table.

The source database numbers its changes. A change may come after a newer one of the same order, in
the same micro-batch or in a later one; the table ends as the database did. An order that is
cancelled keeps its row, so that a change which comes after that is still known to be late.
"""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

import lancemem
from examples.session import session_and_folder
from lancemem.spark import LancememTable

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

CHANGE = "op string, lsn long, order_id long, customer string, cents long, cancelled boolean"


def make_changes(orders: int, changes: int) -> list[dict[str, object]]:
    """Return the database's changes in the order in which they happened."""
    chance = random.Random(2)  # noqa: S311 - an example's data
    return [
        {
            "op": "u",
            "lsn": lsn,
            "order_id": chance.randrange(orders),
            "customer": f"customer {chance.randrange(20)}",
            "cents": chance.randrange(100, 10_000),
            "cancelled": chance.random() < 0.1,
        }
        for lsn in range(changes)
    ]


def deliver(changes: list[dict[str, object]], folder: Path, files: int) -> None:
    """Write the changes into files as a bad network delivers them: some too late, some twice."""
    chance = random.Random(3)  # noqa: S311 - an example's data
    late = chance.sample(changes, len(changes) // 5)
    arrived = sorted(changes, key=lambda change: int(str(change["lsn"])) + chance.randrange(40))
    arrived += late
    folder.mkdir()
    size = -(-len(arrived) // files)
    for number in range(files):
        part = arrived[number * size : (number + 1) * size]
        (folder / f"{number:04}.json").write_text("\n".join(map(json.dumps, part)))


def run(spark: SparkSession, folder: Path, orders: int = 100, changes: int = 600) -> LancememTable:
    """Apply all changes as a stream and return the table."""
    deliver(make_changes(orders, changes), folder / "changes", files=4)
    reader = spark.readStream.schema(CHANGE).option("maxFilesPerTrigger", 1)
    rows = reader.json(str(folder / "changes"))
    table = LancememTable.create(
        spark,
        str(folder / "orders.lance"),
        schema=rows.drop("op").schema,
        primary_key="order_id",
        sharding=lancemem.bucket("order_id", 2),
    )
    query = table.stream_upsert(
        rows,
        checkpoint=str(folder / "checkpoint"),
        trigger={"availableNow": True},
        op_column="op",
        sequence_by="lsn",
        keep_newest=True,
    )
    query.awaitTermination()
    open_orders = table.toDF(where="NOT cancelled")
    open_orders.groupBy("customer").sum("cents").sort("customer").show(5)
    return table


if __name__ == "__main__":
    with session_and_folder() as (session, place):
        run(session, place)
