"""Texts in a table, and a fresh pylance index of them beside a search.

Owns: rows with texts, the scores that a search has to report, and the comparison with them.
Not here: the tables, or what is searched (the tests).
"""

from __future__ import annotations

import random
import tempfile
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Few words, so that terms are shared, repeated and often at the same score; the last ones are stop
# words and forms of one stem.
WORDS = ["write", "writes", "ahead", "log", "snapshot", "merge", "flush", "Köln", "the", "and"]
# In single precision.
TOLERANCE = 1e-5

Row = tuple[str | None, str | None]


def schema_of() -> pa.Schema:
    """Give the columns of most tests: a key, a tag, and two texts."""
    id_field = pa.field("id", pa.int64(), nullable=False)
    texts = [pa.field("title", pa.string()), pa.field("body", pa.large_string())]
    return pa.schema([id_field, pa.field("tag", pa.int64()), *texts])


def seeded(seed: object) -> random.Random:
    """Give a generator that draws the same texts again."""
    return random.Random(str(seed))  # noqa: S311


def draw(chance: random.Random) -> Row:
    """Draw the texts of a row, some of them null or without words."""
    title = " ".join(chance.choices(WORDS, k=chance.randint(0, 4)))
    body: str | None = " ".join(chance.choices(WORDS, k=chance.randint(1, 12)))
    odd = chance.random()
    if odd < 0.05:
        body = None
    elif odd < 0.1:
        body = "..."
    return title, body


def rows_of(rows: Mapping[int, Row]) -> pa.Table:
    """Make rows; the tag of a row is its key modulo 4."""
    columns: dict[str, Any] = {
        "id": list(rows),
        "tag": [key % 4 for key in rows],
        "title": [title for title, _ in rows.values()],
        "body": [body for _, body in rows.values()],
    }
    return pa.table(columns, schema=schema_of())


def fresh_index(rows: pa.Table, columns: Iterable[str], **options: Any) -> lance.LanceDataset:  # noqa: ANN401
    """Write rows into a new dataset and index them, as pylance does by itself."""
    folder = tempfile.mkdtemp(prefix="lancemem-texts-")
    dataset = lance.write_dataset(rows, folder + "/fresh.lance")
    for column in columns:
        dataset.create_scalar_index(column, "INVERTED", **options)
    return dataset


def scores_of(
    dataset: lance.LanceDataset,
    query: Any,  # noqa: ANN401 - words or a query of pylance
    columns: list[str] | None = None,
) -> dict[Any, float]:
    """Return the score of each key that pylance finds."""
    if isinstance(query, str):
        query = {"query": query, "columns": columns}
    scanner = dataset.scanner(
        columns=["id", "_score"],
        full_text_query=query,
        limit=100_000,
        disable_scoring_autoprojection=True,
    )
    found = scanner.to_table()
    return dict(zip(found["id"].to_pylist(), found["_score"].to_pylist(), strict=True))


def check_same(found: pa.Table, expected: Mapping[Any, float], key: str = "id") -> None:
    """Compare a search of all rows with the expected scores, and check its order."""
    keys, scores = found[key].to_pylist(), found["_score"].to_pylist()
    assert sorted(keys) == sorted(expected)
    for one, score in zip(keys, scores, strict=True):
        assert abs(score - expected[one]) <= TOLERANCE * max(1.0, abs(score)), one
    order = [(-score, one) for one, score in zip(keys, scores, strict=True)]
    assert order == sorted(order)
