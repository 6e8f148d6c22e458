"""A feature store: events enriched with the newest features of their user, found by key.

Features are written all the time. A task that handles events asks the live table for the users of
each batch, in a handle that it opens once a process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

import lancemem
from examples.session import session_and_folder
from lancemem.spark import LancememTable, open_cached

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

FEATURES = pa.schema(
    [
        pa.field("user_id", pa.int64(), nullable=False),
        pa.field("clicks", pa.int64()),
        pa.field("embedding", pa.list_(pa.float32(), 4)),
    ]
)
SCORED = "event long, user_id long, clicks long, score float"


def scorer(uri: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Make the function for mapInArrow: events in, events with clicks and a score out."""

    def score(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        features = open_cached(uri)
        for events in batches:
            users = pa.table({"user_id": pc.unique(events["user_id"])})
            found = features.get(users, columns=["user_id", "clicks", "embedding"])
            first = pc.list_element(found["embedding"], 0)
            found = found.select(["user_id", "clicks"]).append_column("score", first)
            yield from (
                pa.Table.from_batches([events])
                .join(found, keys="user_id", join_type="left outer")
                .select(["event", "user_id", "clicks", "score"])
                .to_batches()
            )

    return score


def run(
    spark: SparkSession, folder: Path, users: int = 500, events: int = 2_000
) -> tuple[LancememTable, DataFrame]:
    """Write features, replace some of them, and enrich events of users, known and unknown."""
    table = LancememTable.create(
        spark,
        str(folder / "features.lance"),
        schema=FEATURES,
        primary_key="user_id",
        sharding=lancemem.bucket("user_id", 2),
    )
    columns = ["id user_id", "id % 7 clicks", "array(id / 4f, 0f, 0f, 0f) embedding"]
    table.upsert(spark.range(users).selectExpr(*columns))
    table.compact()
    newer = ["id user_id", "-id clicks", "array(-1f, 0f, 0f, 0f) embedding"]
    table.upsert(spark.range(0, users, 10).selectExpr(*newer))
    came = spark.range(events).selectExpr("id event", f"id * 37 % {users + 50} user_id")
    scored = came.mapInArrow(scorer(table.uri), SCORED)
    return table, scored


if __name__ == "__main__":
    with session_and_folder() as (session, place):
        run(session, place)[1].sort("event").show(10)
