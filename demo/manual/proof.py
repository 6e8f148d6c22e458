"""The proof: a table's rows and answers beside brute force and beside an index that pylance makes.

Owns the comparison. Rows are compared cell for cell with the expected state. Vector searches are
compared with all distances in numpy, in double precision, and so are pylance's own searches of a
fresh copy. Text searches are compared, with all their scores, with those of the copy. Hybrid ones
are compared with the ranks of the two. Two answers are equal where each key has the right distance
or score and each rank the right one; only rows of one distance may change places.

Does not own the table, the queries or printing.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from demo.manual.corpus import KEY, keys_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import lancemem
    from demo.manual.sections import Key
    from demo.manual.vectors import Vector

METRICS = ("cosine", "l2")
# Of one in single precision, beside a sum in double precision.
TOLERANCE = 1e-5
SHOWN = 5
# As docs/search.md: the rows of each search that a hybrid one fuses, and the constant of RRF.
HYBRID_ROWS = 50
RRF_K = 60


@dataclass(frozen=True)
class Query:
    """Words, and the vector of these words."""

    text: str
    vector: Vector


@dataclass
class Proof:
    """What was compared, and each difference as a line for a person."""

    compared: dict[str, int] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    def add(self, what: str, count: int, lines: Sequence[str]) -> None:
        """Count `count` comparisons of one kind, and keep their differences."""
        self.compared[what] = self.compared.get(what, 0) + count
        self.lines.extend(f"{what}: {line}" for line in lines)


def check(  # noqa: PLR0913, PLR0917 - two states, the queries, and how they are searched
    table: lancemem.Table,
    expected: pa.Table,
    queries: Sequence[Query],
    copy: Copy,
    k: int,
    nprobes: int,
) -> Proof:
    """Compare the rows of `table`, and its answers to `queries`, with `expected`.

    Args:
        table: The table, with or without indexes; its index of vectors, if any, is for cosine.
        expected: The rows that it has to have.
        queries: What is searched, in each of the ways.
        copy: pylance's indexes over `expected`.
        k: The rows of an answer.
        nprobes: All partitions of the table's index, so that it has to propose every nearest row.
    """
    proof = Proof()
    found = pa.table(table.scan().to_table())
    proof.add("cells", found.num_rows * found.num_columns, row_differences(found, expected))
    snapshot = table.snapshot()
    for query in queries:
        for metric in METRICS:
            right = brute_force(expected, query.vector, metric)
            answers = {
                "exact": _nearest(snapshot, query, k, metric, exact=True),
                "by index": _nearest(snapshot, query, k, metric, nprobes=nprobes),
                "by pylance's index": copy.nearest(query.vector, k, metric),
            }
            for way, answer in answers.items():
                lines = answer_differences(answer, right, k, query.text)
                proof.add(f"{metric}, {way}", len(answer), lines)
        scores = copy.scores(query.text)
        answer = _answer(_words(snapshot, query, max(1, expected.num_rows)), "_score")
        lines = answer_differences(answer, scores, len(scores), query.text, descending=True)
        proof.add("text, all scores", len(answer), lines)
        proof.add("hybrid", k, _hybrid_differences(snapshot, query, k, nprobes))
    return proof


def row_differences(found: pa.Table, expected: pa.Table) -> list[str]:
    """Compare two tables row for row and cell for cell; the order of rows does not matter."""
    lines = []
    left, right = (
        {key: place for place, key in enumerate(keys_of(it))} for it in (found, expected)
    )
    if len(left) != found.num_rows:
        lines.append(f"{found.num_rows - len(left)} keys more than once")
    lines += [f"row {key} is missing" for key in list(right.keys() - left.keys())[:SHOWN]]
    lines += [f"row {key} is unexpected" for key in list(left.keys() - right.keys())[:SHOWN]]
    common = sorted(left.keys() & right.keys())
    for name in expected.column_names:
        got = found[name].take(pa.array([left[key] for key in common], pa.int64())).to_pylist()
        want = expected[name].take(pa.array([right[key] for key in common], pa.int64())).to_pylist()
        wrong = [place for place in range(len(common)) if got[place] != want[place]]
        lines += [
            f"row {common[place]}, column {name}: expected {want[place]!r}, found {got[place]!r}"
            for place in wrong[:SHOWN]
        ]
    return lines


def brute_force(rows: pa.Table, vector: Vector, metric: str) -> dict[Key, float]:
    """Return the distance of every row that has one, by its key."""
    has_vector = rows.filter(rows["vector"].is_valid())
    flat = has_vector["vector"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
    vectors = flat.astype(np.float64).reshape(has_vector.num_rows, -1)
    query = vector.astype(np.float64)
    if metric == "l2":
        distances = ((vectors - query) ** 2).sum(axis=1)
    else:
        lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(query)
        distances = 1 - (vectors @ query) / lengths
    return dict(zip(keys_of(has_vector), distances.tolist(), strict=True))


def answer_differences(
    found: Sequence[tuple[Key, float]],
    right: Mapping[Key, float],
    k: int,
    asked: str,
    *,
    descending: bool = False,
) -> list[str]:
    """Compare an answer, in its order, with the distance or score that each key should have."""
    best = sorted(right.values(), reverse=descending)[:k]
    lines = []
    if len(found) != len(best):
        lines.append(f"{asked!r}: expected {len(best)} rows, found {len(found)}")
    if len({key for key, _ in found}) != len(found):
        lines.append(f"{asked!r}: a key is found twice")
    for rank, ((key, value), want) in enumerate(zip(found, best, strict=False)):
        own = right.get(key)
        if own is None:
            lines.append(f"{asked!r}: rank {rank} is {key}, which should not be found")
        elif not (_is_close(value, own) and _is_close(value, want)):
            lines.append(
                f"{asked!r}: rank {rank} is {key} with {value!r}; expected {want!r} at this rank, "
                f"and {own!r} for this key"
            )
    return lines[:SHOWN]


class Copy:
    """A fresh copy of the expected rows, written and indexed by pylance alone."""

    def __init__(self, rows: pa.Table, folder: Path, partitions: int) -> None:
        """Write the rows once for each metric, and make the indexes."""
        # It warns of every empty partition.
        os.environ.setdefault("LANCE_LOG", "error")
        import lance  # noqa: PLC0415 - it warns where a process forks later, as Spark does to start

        self._partitions = partitions
        self._by_metric = {
            metric: lance.write_dataset(rows, str(folder / f"{metric}.lance")) for metric in METRICS
        }
        for metric, dataset in self._by_metric.items():
            dataset.create_index("vector", "IVF_FLAT", metric=metric, num_partitions=partitions)
        self._texts = self._by_metric[METRICS[0]]
        self._texts.create_scalar_index("text", "INVERTED")

    def nearest(self, vector: Vector, k: int, metric: str) -> list[tuple[Key, float]]:
        """Search by the index of a metric, in all its partitions, with exact distances."""
        nearest = {
            "column": "vector",
            "q": vector,
            "k": k,
            "metric": metric,
            "nprobes": self._partitions,
            "refine_factor": 1,
        }
        found = self._by_metric[metric].to_table(columns=[*KEY, "_distance"], nearest=nearest)
        return _answer(found, "_distance")

    def scores(self, text: str) -> dict[Key, float]:
        """Return the score of every row that has a word of `text`."""
        scanner = self._texts.scanner(
            columns=[*KEY, "_score"],
            full_text_query={"query": text, "columns": ["text"]},
            limit=max(1, self._texts.count_rows()),
            disable_scoring_autoprojection=True,
        )
        return dict(_answer(scanner.to_table(), "_score"))


def _nearest(
    snapshot: lancemem.Snapshot,
    query: Query,
    k: int,
    metric: Any,  # noqa: ANN401 - a literal type of the package
    **how: Any,  # noqa: ANN401 - options of a search
) -> list[tuple[Key, float]]:
    found = snapshot.search(query.vector, k=k, columns=KEY, metric=metric, **how)
    return _answer(pa.table(found.to_table()), "_distance")


def _words(snapshot: lancemem.Snapshot, query: Query, k: int) -> pa.Table:
    return pa.table(
        snapshot.search(
            query.text, query_type="fts", text_columns="text", columns=KEY, k=k
        ).to_table()
    )


def _hybrid_differences(
    snapshot: lancemem.Snapshot, query: Query, k: int, nprobes: int
) -> list[str]:
    """Compare a hybrid answer with the ranks of the two searches, each proven by itself."""
    each = max(4 * k, HYBRID_ROWS)
    vector = _nearest(snapshot, query, each, "cosine", exact=True)
    text = _answer(_words(snapshot, query, each), "_score")
    right: dict[Key, float] = {}
    for answer in (vector, text):
        for rank, (key, _) in enumerate(answer):
            right[key] = right.get(key, 0.0) + 1 / (RRF_K + rank)
    found = snapshot.search(
        query.vector,
        text=query.text,
        text_columns="text",
        columns=KEY,
        k=k,
        metric="cosine",
        nprobes=nprobes,
    )
    answer = _answer(pa.table(found.to_table()), "_relevance_score")
    return answer_differences(answer, right, k, query.text, descending=True)


def _answer(rows: pa.Table, value: str) -> list[tuple[Key, float]]:
    return list(zip(keys_of(rows), rows[value].to_pylist(), strict=True))


def _is_close(found: float, expected: float) -> bool:
    return abs(found - expected) <= TOLERANCE * max(1.0, abs(expected))
