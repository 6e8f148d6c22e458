"""The examples run, and end with the result that plain Python computes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from examples import feature_store, flight_board, merged_orders, orders_cdc

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_the_flight_board_shows_the_last_message_of_each_flight(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = flight_board.run(spark, tmp_path, batches=3, a_batch=50)
    messages = flight_board.write_messages(tmp_path / "again", batches=3, a_batch=50)
    expected = {message["flight"]: message for message in messages}
    assert {row.flight: row.asDict() for row in table.toDF().collect()} == expected


def test_the_orders_end_as_the_database_did_whatever_came_late_or_twice(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = orders_cdc.run(spark, tmp_path, orders=40, changes=300)
    expected = {change["order_id"]: change for change in orders_cdc.make_changes(40, 300)}
    rows = [row.asDict() for row in table.toDF().collect()]
    assert {row["order_id"]: row | {"op": "u"} for row in rows} == expected


def test_events_get_the_newest_features_of_their_users(spark: SparkSession, tmp_path: Path) -> None:
    _, scored = feature_store.run(spark, tmp_path, users=100, events=400)
    expected = []
    for event in range(400):
        user = event * 37 % 150
        newest = (-user, -1.0) if user % 10 == 0 else (user % 7, user / 4)
        expected.append((event, user, *(newest if user < 100 else (None, None))))
    assert sorted(map(tuple, scored.collect())) == expected


def test_orders_are_joined_from_three_streams_and_payments_are_counted_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    joined, counters = merged_orders.run(spark, tmp_path, orders=60)
    events = merged_orders.make_events(60)
    orders: dict[object, dict[str, object]] = {}
    for name, sequence in (("orders", None), ("payments", "pay_ts"), ("shipments", "ship_ts")):
        for event in events[name]:
            order = orders.setdefault(event["order_id"], {})
            newest = order.get(sequence) if sequence else None
            if newest is None or int(str(event[str(sequence)])) > int(str(newest)):
                order |= event
    columns = [part.split()[0] for part in merged_orders.ORDERS.split(", ")]
    expected = {id_: {name: order.get(name) for name in columns} for id_, order in orders.items()}
    assert {row.order_id: row.asDict() for row in joined.toDF().collect()} == expected
    totals: dict[str, list[int]] = {}
    for event in events["payments"]:
        total = totals.setdefault(f"customer {int(str(event['order_id'])) % 7}", [0, 0, 0])
        cents, seen = int(str(event["cents"])), int(str(event["pay_ts"]))
        total[:] = [total[0] + 1, total[1] + cents, max(total[2], seen)]
    rows = counters.toDF().collect()
    assert {row.customer: [row.events, row.cents, row.last_seen] for row in rows} == totals
