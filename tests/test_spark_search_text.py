"""Full-text and hybrid `LancememTable.search` on a real Spark session.

Owns: that the DataFrame has the rows and scores of `Table.search`. Not here: the search itself
(test_search_text, test_search_hybrid).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

import lancemem
from lancemem import query
from lancemem.spark import LancememTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("body", pa.string()),
        pa.field("vec", pa.list_(pa.float32(), 2)),
    ]
)


@pytest.fixture
def table(spark: SparkSession, table_uri: str) -> LancememTable:
    """Give a table with indexed texts in the base table, and others in the log."""
    made = LancememTable.create(spark, table_uri, schema=SCHEMA, primary_key="id")
    bodies = ["write ahead log", "merge", "log log", "flush of a log", "snapshot"]
    rows = [{"id": n, "body": text, "vec": [float(n), 1.0]} for n, text in enumerate(bodies)]
    made.handle.upsert(rows)
    made.handle.compact(flush=True)
    made.handle.create_index("body", "INVERTED", with_position=True)
    made.handle.upsert([{"id": 1, "body": "a log that is merged", "vec": [9.0, 1.0]}])
    return made


def test_words_give_a_dataframe_with_the_scores_of_the_table(table: LancememTable) -> None:
    frame = table.search("log", k=3, columns=["id", "body"], filter="id <> 3")
    expected = table.handle.search("log", k=3, columns=["id", "body"], filter="id <> 3")
    assert [row.asDict() for row in frame.collect()] == expected.to_table().to_pylist()
    phrase = table.search(query.phrase("write ahead"), text_columns="body")
    assert [row["id"] for row in phrase.collect()] == [0]


def test_a_vector_with_a_text_gives_all_scores(table: LancememTable) -> None:
    arguments: dict[str, Any] = {
        "text": "log",
        "k": 4,
        "columns": ["id"],
        "rerank": lancemem.RRF(k=10),
    }
    frame = table.search([2.0, 1.0], **arguments)
    assert frame.columns == ["id", "_distance", "_score", "_relevance_score"]
    expected = table.handle.search([2.0, 1.0], **arguments).to_table().to_pylist()
    assert [row.asDict() for row in frame.collect()] == expected
