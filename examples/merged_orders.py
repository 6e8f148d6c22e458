"""Merge engines: an order table joined from three streams, and a table of counters.

Orders, payments and shipments come in streams of their own, late and in no order. Each stream
writes the columns that it knows (`merge_engine="partial_update"`), and no stream reads the table or
waits for another. A payment that arrives late does not replace a newer one: `pay_ts` orders
payments alone. Sums are exact because a micro-batch is written once, also when Spark repeats it.
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

ORDERS = "order_id long, customer string, pay_ts long, pay_status string, cents long"
ORDERS += ", ship_ts long, carrier string"
COUNTERS = "customer string, events long, cents long, last_seen long"
STREAMS = {
    "orders": "order_id long, customer string",
    "payments": "order_id long, pay_ts long, pay_status string, cents long",
    "shipments": "order_id long, ship_ts long, carrier string",
}


def make_events(orders: int) -> dict[str, list[dict[str, object]]]:
    """Return the events of each stream, in the order in which they arrive."""
    chance = random.Random(5)  # noqa: S311 - an example's data
    placed = [{"order_id": n, "customer": f"customer {n % 7}"} for n in range(orders)]
    states = ["open", "paid", "refunded"]
    payments = [
        {
            "order_id": chance.randrange(orders),
            "pay_ts": ts,
            "pay_status": chance.choice(states),
            "cents": chance.randrange(100, 10_000),
        }
        for ts in range(3 * orders)
    ]
    shipments = [
        {"order_id": chance.randrange(orders), "ship_ts": ts, "carrier": f"carrier {ts % 3}"}
        for ts in range(orders)
    ]
    events: dict[str, list[dict[str, object]]] = {
        "orders": list(placed),
        "payments": list(payments),
        "shipments": list(shipments),
    }
    for stream in events.values():
        chance.shuffle(stream)
    return events


def deliver(events: dict[str, list[dict[str, object]]], folder: Path, files: int) -> None:
    """Write the events of each stream into files."""
    for name, rows in events.items():
        (folder / name).mkdir(parents=True)
        size = -(-len(rows) // files)
        for number in range(files):
            lines = map(json.dumps, rows[number * size : (number + 1) * size])
            (folder / name / f"{number:04}.json").write_text("\n".join(lines))


def join(spark: SparkSession, folder: Path) -> LancememTable:
    """Join the three streams, each by a query of its own, and return the table."""
    table = LancememTable.create(
        spark,
        str(folder / "orders.lance"),
        schema=ORDERS,
        primary_key="order_id",
        sharding=lancemem.bucket("order_id", 2),
        merge_engine="partial_update",
        sequence_groups={"pay_ts": ["pay_status", "cents"], "ship_ts": ["carrier"]},
    )
    for name, columns in STREAMS.items():
        reader = spark.readStream.schema(columns).option("maxFilesPerTrigger", 1)
        query = table.stream_upsert(
            reader.json(str(folder / "events" / name)),
            checkpoint=str(folder / f"checkpoint-{name}"),
            trigger={"availableNow": True},
        )
        query.awaitTermination()
    return table


def count(spark: SparkSession, folder: Path) -> LancememTable:
    """Count the payments of each customer, and return the table."""
    table = LancememTable.create(
        spark,
        str(folder / "counters.lance"),
        schema=COUNTERS,
        primary_key="customer",
        merge_engine="aggregation",
        aggregates={"events": "sum", "cents": "sum", "last_seen": "max"},
    )
    reader = spark.readStream.schema(STREAMS["payments"]).option("maxFilesPerTrigger", 1)
    payments = reader.json(str(folder / "events" / "payments"))
    query = table.stream_upsert(
        payments.selectExpr(
            "concat('customer ', order_id % 7) customer",
            "1L events",
            "cents",
            "pay_ts last_seen",
        ),
        checkpoint=str(folder / "checkpoint-counters"),
        trigger={"availableNow": True},
    )
    query.awaitTermination()
    return table


def run(
    spark: SparkSession, folder: Path, orders: int = 200
) -> tuple[LancememTable, LancememTable]:
    """Deliver the events, and return the joined orders and the counters."""
    deliver(make_events(orders), folder / "events", files=3)
    joined, counters = join(spark, folder), count(spark, folder)
    joined.toDF(where="carrier IS NOT NULL AND pay_status = 'paid'").sort("order_id").show(5)
    counters.toDF().sort("customer").show()
    return joined, counters


if __name__ == "__main__":
    with session_and_folder() as (session, place):
        run(session, place)
