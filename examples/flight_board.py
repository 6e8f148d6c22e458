"""A departure board: a stream of flight messages into a table, and a live query beside it.

The messages come as files, one micro-batch each, as they would from a queue. The board is read
while the stream writes; every read is one consistent snapshot.
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

    from pyspark.sql import DataFrame, SparkSession

MESSAGE = "flight string, status string, gate int, delay int, seq long"
STATES = ("scheduled", "boarding", "departed")


def write_messages(folder: Path, batches: int, a_batch: int) -> list[dict[str, object]]:
    """Write files of messages that make up the day, and return all of them in order."""
    chance = random.Random(1)  # noqa: S311 - an example's data
    folder.mkdir()
    every: list[dict[str, object]] = []
    for number in range(batches):
        messages: list[dict[str, object]] = [
            {
                "flight": f"LM{chance.randrange(60):03}",
                "status": chance.choice(STATES),
                "gate": chance.randrange(1, 20),
                "delay": chance.choice((0, 0, 0, 10, 25, 90)),
                "seq": len(every) + n,
            }
            for n in range(a_batch)
        ]
        every += messages
        (folder / f"{number:04}.json").write_text("\n".join(map(json.dumps, messages)))
    return every


def board(table: LancememTable) -> DataFrame:
    """Return the live query: how many flights are in which state, and how late they are."""
    rows = table.toDF(columns=["status", "delay"])
    return rows.groupBy("status").agg({"*": "count", "delay": "avg"}).sort("status")


def run(spark: SparkSession, folder: Path, batches: int = 5, a_batch: int = 100) -> LancememTable:
    """Stream the messages into a new table and show the board while they come."""
    write_messages(folder / "messages", batches, a_batch)
    messages = spark.readStream.schema(MESSAGE).option("maxFilesPerTrigger", 1)
    rows = messages.json(str(folder / "messages"))
    table = LancememTable.create(
        spark,
        str(folder / "flights.lance"),
        schema=rows.schema,
        primary_key="flight",
        sharding=lancemem.bucket("flight", 2),
    )
    query = table.stream_upsert(
        rows,
        checkpoint=str(folder / "checkpoint"),
        trigger={"availableNow": True},
        sequence_by="seq",
        keep_newest=True,
    )
    while query.isActive:
        board(table).show()
        query.awaitTermination(1)
    error = query.exception()
    if error is not None:
        raise error
    board(table).show()
    return table


if __name__ == "__main__":
    with session_and_folder() as (session, place):
        run(session, place)
