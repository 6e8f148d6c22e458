"""`python -m benches.search.text`: full-text and hybrid search of rows in memory, beside peers.

Owns: 20,000 short documents in memory, the same in a pylance `INVERTED` index and, where its wheel
is installed, in a tantivy index; milliseconds of one search by each. Does not own: vector search
(`python -m benches.search`).
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import lancemem
from benches.search.timing import median_ms
from benches.write.machine import machine, measured, versions

if TYPE_CHECKING:
    from collections.abc import Callable

DOCUMENTS, WORDS_EACH, VOCABULARY = 20_000, 27, 20_000
WIDTH, K, QUERIES, ROUNDS = 64, 10, 50, 7
GOAL_MS, GOAL_RATIO = 0.3, 1.2
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("body", pa.string()),
        pa.field("vec", pa.list_(pa.float32(), WIDTH)),
    ]
)


def documents() -> tuple[pa.Table, list[str], Any]:
    """Draw documents of words with the frequencies of a language, queries of three, and vectors."""
    random = np.random.default_rng(7)
    frequencies = 1 / np.arange(1, VOCABULARY + 1)
    words = random.choice(VOCABULARY, (DOCUMENTS, WORDS_EACH), p=frequencies / frequencies.sum())
    bodies = [" ".join(f"word{word}" for word in document) for document in words]
    # Words of the middle: neither in every document nor in none.
    asked = random.integers(20, 2_000, (QUERIES, 3))
    queries = [" ".join(f"word{word}" for word in query) for query in asked]
    vectors = random.normal(size=(DOCUMENTS, WIDTH)).astype(np.float32)
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), WIDTH)
    columns = {"id": np.arange(DOCUMENTS), "body": bodies, "vec": column}
    return pa.table(columns, SCHEMA), queries, random.normal(size=(QUERIES, WIDTH))


def _pylance(folder: Path, rows: pa.Table) -> Callable[[str], object]:
    import lance  # noqa: PLC0415 - a peer

    dataset = lance.write_dataset(rows, str(folder / "peer.lance"))
    dataset.create_scalar_index("body", "INVERTED")
    dataset = lance.dataset(dataset.uri)
    return lambda words: dataset.to_table(columns=["id"], full_text_query=words, limit=K)


def _tantivy(rows: pa.Table) -> Callable[[str], object] | None:
    try:
        import tantivy  # noqa: PLC0415 - a peer that may be missing
    except ModuleNotFoundError:
        return None
    schema = tantivy.SchemaBuilder()
    schema.add_integer_field("id", stored=True)
    schema.add_text_field("body")
    index = tantivy.Index(schema.build())
    writer = index.writer()
    for row in rows.select(["id", "body"]).to_pylist():
        writer.add_document(tantivy.Document(id=row["id"], body=row["body"]))
    writer.commit()
    index.reload()
    searcher = index.searcher()
    return lambda words: searcher.search(index.parse_query(words, ["body"]), K).hits


def main() -> None:
    """Measure all sides in turn, and print the page."""
    parser = argparse.ArgumentParser(prog="python -m benches.search.text", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    rounds = parser.parse_args().rounds
    folder = Path(tempfile.mkdtemp(prefix="texts-"))
    try:
        sys.stdout.write(_measured(folder, rounds))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _measured(folder: Path, rounds: int) -> str:
    rows, queries, vectors = documents()
    table = lancemem.create_table(str(folder / "ours.lance"), SCHEMA, primary_key="id")
    with table.start_job(shard=0) as job:
        begun = time.perf_counter()
        for start in range(0, DOCUMENTS, 1_000):
            job.put(rows.slice(start, 1_000), durable=False)
        level: Any = {"consistency": "live", "k": K, "columns": ["id"], "text_columns": "body"}
        table.search(queries[0], **level).to_table()
        indexed = time.perf_counter() - begun
        both = list(zip(vectors, queries, strict=True))
        vector = {name: level[name] for name in ("consistency", "k", "columns")}
        sides: dict[str, tuple[Callable[[Any], object], Any]] = {
            "text": (lambda words: table.search(words, **level).to_table(), queries),
            "vector": (lambda query: table.search(query, **vector).to_table(), vectors),
            "hybrid": (lambda pair: table.search(pair[0], text=pair[1], **level).to_table(), both),
            "pylance": (_pylance(folder, rows), queries),
        }
        peer = _tantivy(rows)
        if peer is not None:
            sides["tantivy"] = (peer, queries)
        taken: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(rounds):
            for name, (search, asked) in sides.items():
                taken[name].append(median_ms(search, asked))
    facts = machine(folder) | {name: versions()[name] for name in ("lancemem", "pylance")}
    return _page(facts, indexed, {name: float(np.median(found)) for name, found in taken.items()})


def _page(facts: dict[str, str], indexed: float, ms: dict[str, float]) -> str:
    slower = max(ms["text"], ms["vector"])
    met = "yes" if ms["text"] <= GOAL_MS else "no"
    fits = "yes" if ms["hybrid"] <= GOAL_RATIO * slower else "no"
    lines = [f"| {name} | {found:.3f} |" for name, found in ms.items()]
    return "\n".join(
        [
            "# Full-text search in memory",
            "",
            f"{DOCUMENTS:,} documents of {WORDS_EACH} words, any of three words, {K} rows.",
            f"Put and indexed in {indexed:.2f} s.",
            "",
            *measured(facts),
            "",
            "| search | ms, median |",
            "| --- | --- |",
            *lines,
            "",
            f"Text at most {GOAL_MS} ms: {met}.",
            f"Hybrid at most {GOAL_RATIO} times the slower of both: {fits}.",
            "",
        ]
    )


if __name__ == "__main__":
    main()
