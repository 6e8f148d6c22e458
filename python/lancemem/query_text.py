"""What the query of a search is: vectors, a text, or both; and rerankers of both.

Owns the forms in which a search takes a full-text query, and `RRF`. Does not own vectors
(`query_vectors`), the builders of queries (`query`), or scores, which are the engine's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lancemem import _lancemem

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["RRF", "of_full_text", "parsed", "reranked", "reranking"]

_TYPES = ("auto", "vector", "fts", "hybrid")
_OCCURS = {"MUST": "must", "SHOULD": "should", "MUST_NOT": "must_not"}
_PYLANCE = (
    "a query object of pylance keeps its text to itself; build it with lancemem.query, whose "
    "functions take the same arguments"
)


@dataclass(frozen=True)
class RRF:
    """Reciprocal rank fusion, the default reranker of a hybrid search.

    The relevance of a row is the sum of `1 / (k + rank)` over the vector results and the text
    results, where the first row has the rank 0.

    Args:
        k: How little the ranks at the top differ from each other. Default: 60.

    Raises:
        InvalidInputError: Raised by the search: `k` is not positive.

    Example:
        table.search(vector, text="snapshot", rerank=lancemem.RRF(k=20))
    """

    k: int = 60


def parsed(
    query: object, query_type: str, text: object
) -> tuple[object | None, tuple[Any, ...] | None]:
    """Split the query of a search into vectors and a text query.

    Args:
        query: The first argument of a search.
        query_type: What the caller says that it is.
        text: The text of a hybrid search.

    Returns:
        The vectors and the text query in the engine's form, None for what is not asked for.

    Raises:
        InvalidInputError: The three do not fit each other.
    """
    if query_type not in _TYPES:
        raise _fault(f"query_type: expected one of {', '.join(_TYPES)}, got {query_type!r}")
    if _is_text(query):
        _refuse_text(query_type, text)
        return None, _tree(query)
    if query_type == "fts":
        raise _fault(f"query_type='fts' needs words or a text query, got {type(query).__name__}")
    if text is None:
        if query_type == "hybrid":
            raise _fault("a hybrid search needs text= beside its vector")
        return query, None
    if query_type == "vector":
        raise _fault("text= makes a search hybrid; leave query_type='vector' or the text out")
    if not _is_text(text):
        raise _fault(f"text: expected words or a text query, got {type(text).__name__}")
    return query, _tree(text)


def _refuse_text(query_type: str, text: object) -> None:
    """Refuse what does not go with a query of words."""
    if text is not None:
        raise _fault("text= belongs to a hybrid search, whose query is a vector")
    if query_type == "vector":
        raise _fault("query_type='vector' needs a vector, got a text query")
    if query_type == "hybrid":
        raise _fault("a hybrid search needs a vector beside its text: search(vector, text=...)")


def _fault(message: str) -> _lancemem.InvalidInputError:
    return _lancemem.InvalidInputError(message)


def _is_text(query: object) -> bool:
    if isinstance(query, str):
        return True
    named = ("query", "positive", "must", "queries", "inner")
    is_array = hasattr(query, "__array__") or isinstance(query, Sequence)
    return not is_array and any(hasattr(query, name) for name in named)


def _tree(query: Any) -> tuple[Any, ...]:  # noqa: ANN401, PLR0911 - one return a kind
    """Return a query as nested tuples: its kind, then its parts."""
    if isinstance(query, str):
        return ("match", query, None, 1.0, False)
    if _is_fuzzy(query):
        raise _fault("text query: fuzzy matching is not supported; leave fuzziness at 0")
    if hasattr(query, "positive"):
        parts = (_tree(query.positive), _tree(query.negative))
        return ("boost", *parts, _number("negative_boost", query.negative_boost))
    if hasattr(query, "must"):
        return _boolean(query.must, query.should, query.must_not)
    if hasattr(query, "queries"):
        return _of_pairs(query.queries)
    if hasattr(query, "columns"):
        return _multi(query)
    if hasattr(query, "query"):
        text = _text(query.query)
        if hasattr(query, "slop"):
            return ("phrase", text, query.column, _slop(query.slop))
        boost = _number("boost", query.boost)
        return ("match", text, query.column, boost, _all_words(query.operator))
    if hasattr(query, "inner"):
        raise _fault(f"text query: {_PYLANCE}")
    raise _fault(f"text query: expected words or a query, got {type(query).__name__}")


def _is_fuzzy(query: Any) -> bool:  # noqa: ANN401 - as `_tree`
    fuzziness: Any = getattr(query, "fuzziness", 0)
    return bool(fuzziness != 0)


def _multi(query: Any) -> tuple[Any, ...]:  # noqa: ANN401 - as `_tree`
    boosts = [1.0] * len(query.columns) if query.boosts is None else list(query.boosts)
    if len(boosts) != len(query.columns):
        raise _fault(
            f"boosts: expected one for each of {len(query.columns)} columns, got {len(boosts)}"
        )
    text, all_words = _text(query.query), _all_words(query.operator)
    pairs = zip(query.columns, boosts, strict=True)
    parts = [("match", text, name, _number("boosts", boost), all_words) for name, boost in pairs]
    return ("best", parts)


def _of_pairs(pairs: Sequence[tuple[Any, Any]]) -> tuple[Any, ...]:
    parts: dict[str, list[Any]] = {"must": [], "should": [], "must_not": []}
    for occur, query in pairs:
        name = str(getattr(occur, "value", occur)).upper()
        if name not in _OCCURS:
            raise _fault(f"boolean: expected MUST, SHOULD or MUST_NOT, got {occur!r}")
        parts[_OCCURS[name]].append(query)
    return _boolean(parts["must"], parts["should"], parts["must_not"])


def _boolean(
    must: Sequence[Any], should: Sequence[Any], must_not: Sequence[Any]
) -> tuple[Any, ...]:
    return ("boolean", *([_tree(part) for part in parts] for parts in (must, should, must_not)))


def _text(text: object) -> str:
    if not isinstance(text, str):
        raise _fault(f"text query: expected words as a str, got {type(text).__name__}")
    return text


def _number(name: str, value: Any) -> float:  # noqa: ANN401 - checked here
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _fault(f"{name}: expected a number, got {type(value).__name__}")
    return float(value)


def _slop(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**31:
        raise _fault(f"slop: expected a number from 0 on, got {value!r}")
    return value


def _all_words(operator: object) -> bool:
    name = str(getattr(operator, "value", operator)).upper()
    if name not in {"AND", "OR"}:
        raise _fault(f"operator: expected 'AND' or 'OR', got {operator!r}")
    return name == "AND"


def reranking(rerank: object) -> tuple[float | None, object | None]:
    """Return what reranks a hybrid search: the number of `RRF`, or a function of two tables.

    Args:
        rerank: `RRF`, lancedb's reranker, a function, or None for `RRF()`.

    Returns:
        The number, or the object; one of them is None.

    Raises:
        InvalidInputError: It is none of them.
    """
    if rerank is None:
        return float(RRF().k), None
    if isinstance(rerank, RRF):
        k: Any = rerank.k
        if isinstance(k, bool) or not isinstance(k, (int, float)) or k <= 0:
            raise _fault(f"RRF: expected a positive number k, got {k!r}")
        return float(k), None
    if hasattr(rerank, "rerank_hybrid") or callable(rerank):
        return None, rerank
    raise _fault(
        "rerank: expected lancemem.RRF, a function of (query, vector_results, fts_results), or an "
        f"object with rerank_hybrid, got {type(rerank).__name__}"
    )


def reranked(
    rerank: object, query: object, vectors: pa.RecordBatch, texts: pa.RecordBatch
) -> pa.RecordBatch:
    """Call a reranker, and return its rows in one batch.

    Args:
        rerank: A function, or an object with `rerank_hybrid`.
        query: The text of the search.
        vectors: The vector results, with `_distance`.
        texts: The text results, with `_score`.

    Returns:
        The rows of the reranker, with `_relevance_score`.

    Raises:
        InvalidInputError: It returned no Arrow table.
    """
    import pyarrow as pa  # noqa: PLC0415 - `import lancemem` does not load it

    call: Any = getattr(rerank, "rerank_hybrid", rerank)
    tables = (pa.Table.from_batches([vectors]), pa.Table.from_batches([texts]))
    found = call(query, *tables)
    if isinstance(found, pa.RecordBatch):
        return found
    if not isinstance(found, pa.Table):
        raise _fault(f"rerank: expected an Arrow table of it, got {type(found).__name__}")
    batches = found.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=found.schema)


def of_full_text(
    full_text: Any,  # noqa: ANN401 - words, a query or a dict
    scan: Mapping[str, Any],
    *,
    has_nearest: bool,
) -> dict[str, Any]:
    """Return the arguments of `search` that say the same as a scan with a full-text query.

    Args:
        full_text: Words, a query, or pylance's dict with `query` and `columns`.
        scan: The arguments of the scan: `columns`, `filter`, `limit`, `offset` and `order_by`.
        has_nearest: Whether the scan has `nearest` too.

    Returns:
        The arguments, `query` among them.

    Raises:
        InvalidInputError: The query has another form, or the scan has an order of its own.
    """
    if has_nearest:
        raise _fault("full_text_query: goes without nearest; search(vector, text=...) is hybrid")
    if scan["order_by"] is not None:
        raise _fault(
            "full_text_query: rows are ordered by score; leave order_by out, or sort the result"
        )
    columns = None
    if isinstance(full_text, Mapping):
        unknown = [name for name in full_text if name not in {"query", "columns"}]
        if unknown or "query" not in full_text:
            raise _fault("full_text_query: expected words, a query, or a dict with query, columns")
        full_text, columns = full_text["query"], full_text.get("columns")
    given = {name: scan[name] for name in ("columns", "filter", "offset")}
    if scan["limit"] is not None:
        given["k"] = scan["limit"]
    return {**given, "query": full_text, "query_type": "fts", "text_columns": columns}
