"""Query vectors: the forms in which a search takes them.

Owns their conversion to one array of numbers, and pylance's `nearest`. Does not own the search, or
whether the vectors fit a column.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from lancemem import _lancemem

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["flattened", "of_nearest"]

_EXPECTED = "query: expected a vector or a list of vectors of numbers"
# The keys of pylance's `nearest` that a search takes under the same name.
_SAME = (
    "column",
    "k",
    "metric",
    "nprobes",
    "minimum_nprobes",
    "maximum_nprobes",
    "ef",
    "refine_factor",
    "distance_range",
)


def flattened(query: object) -> tuple[pa.Array, int | None]:
    """Return the numbers of a query, and the width of its vectors where it is a batch.

    Args:
        query: One vector: a list or an array of numbers. Or a batch: a list of vectors, an array of
            two dimensions, or an Arrow array of lists.

    Returns:
        The numbers of all vectors, one vector after the other, and their width. A query that is one
        vector has the width None.

    Raises:
        InvalidInputError: `query` has another form, or its vectors are of several widths.
    """
    import pyarrow as pa  # noqa: PLC0415 - `import lancemem` does not load it

    if isinstance(query, str):
        raise _lancemem.InvalidInputError(
            f"{_EXPECTED}, got str; compute the embedding of the text first"
        )
    if query is None or isinstance(query, (bytes, Mapping, int, float)):
        raise _lancemem.InvalidInputError(f"{_EXPECTED}, got {type(query).__name__}")
    if isinstance(query, pa.Scalar):
        return flattened(getattr(query, "values", None))
    if isinstance(query, pa.ChunkedArray):
        query = query.combine_chunks()
    if isinstance(query, pa.Array):
        return _of_arrow(query)
    if hasattr(query, "__array__"):
        return _of_numpy(query)
    if hasattr(query, "__arrow_c_array__"):
        return _of_arrow(pa.array(query))
    return _of_list(query)


def _of_arrow(query: pa.Array) -> tuple[pa.Array, int | None]:
    import pyarrow as pa  # noqa: PLC0415 - `import lancemem` does not load it

    if isinstance(query, pa.ExtensionArray):
        query = query.storage
    of = query.type
    is_list = pa.types.is_list(of) or pa.types.is_large_list(of) or pa.types.is_fixed_size_list(of)
    if not is_list:
        return query, None
    if query.null_count > 0:
        raise _lancemem.InvalidInputError(
            f"{_EXPECTED}, found {query.null_count} null vectors among {len(query)}"
        )
    return _of_widths(query.flatten(), [len(vector) for vector in query])


def _of_numpy(query: object) -> tuple[pa.Array, int | None]:
    import numpy as np  # noqa: PLC0415 - `import lancemem` does not load it
    import pyarrow as pa  # noqa: PLC0415

    numbers = np.asarray(query)
    if numbers.dtype == object:
        return _of_list(numbers.tolist())
    if numbers.ndim not in {1, 2}:
        raise _lancemem.InvalidInputError(f"{_EXPECTED}, got an array of {numbers.ndim} dimensions")
    width = numbers.shape[1] if numbers.ndim > 1 else None
    if width == 0 or numbers.size == 0:
        raise _lancemem.InvalidInputError(
            f"{_EXPECTED}, got an empty array of shape {numbers.shape}"
        )
    return pa.array(np.ascontiguousarray(numbers).reshape(-1)), width


def _of_list(query: object) -> tuple[pa.Array, int | None]:
    import pyarrow as pa  # noqa: PLC0415 - `import lancemem` does not load it

    if not isinstance(query, Iterable):
        raise _lancemem.InvalidInputError(f"{_EXPECTED}, got {type(query).__name__}")
    values = list(query)
    try:
        if values and isinstance(values[0], Iterable) and not isinstance(values[0], (str, bytes)):
            parts = [flattened(vector) for vector in values]
            if any(width is not None for _, width in parts):
                raise _lancemem.InvalidInputError(f"{_EXPECTED}, got lists of lists of lists")
            arrays = [vector for vector, _ in parts]
            types = {vector.type for vector in arrays}
            if len(types) > 1:  # Such as vectors of whole numbers beside others.
                arrays = [vector.cast(pa.float64()) for vector in arrays]
            return _of_widths(pa.concat_arrays(arrays), [len(vector) for vector in arrays])
        return pa.array(values), None
    except pa.ArrowException as error:
        raise _lancemem.InvalidInputError(f"{_EXPECTED}: {error}") from error


def _of_widths(numbers: pa.Array, widths: list[int]) -> tuple[pa.Array, int]:
    if not widths:
        raise _lancemem.InvalidInputError(f"{_EXPECTED}, got an empty one")
    if len(set(widths)) > 1:
        other = next(place for place, width in enumerate(widths) if width != widths[0])
        raise _lancemem.InvalidInputError(
            f"{_EXPECTED} of one width, got {widths[0]} numbers at 0 and {widths[other]} at {other}"
        )
    return numbers, widths[0]


def of_nearest(nearest: Mapping[str, Any], scan: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `search` that say the same as a scan with pylance's `nearest`.

    Args:
        nearest: The dict of `lance.LanceDataset.scanner(nearest=...)`, with `column` and `q`.
        scan: The arguments of the scan: `columns`, `filter`, `limit`, `offset` and `order_by`.

    Returns:
        The arguments, `query` among them.

    Raises:
        InvalidInputError: `nearest` is no such dict, or the scan has an order of its own.
    """
    if not isinstance(nearest, Mapping):
        raise _lancemem.InvalidInputError(
            f"nearest: expected a dict with 'column' and 'q', got {type(nearest).__name__}"
        )
    known = {*_SAME, "q", "use_index"}
    unknown = [name for name in nearest if name not in known]
    missing = [name for name in ("column", "q") if name not in nearest]
    if unknown or missing:
        fault = f"has no key '{unknown[0]}'" if unknown else f"lacks the key '{missing[0]}'"
        raise _lancemem.InvalidInputError(
            f"nearest: a search {fault}; its keys are {', '.join(sorted(known))}"
        )
    if scan["order_by"] is not None:
        raise _lancemem.InvalidInputError(
            "nearest: rows are ordered by distance; leave order_by out, or sort the result"
        )
    given = {name: nearest[name] for name in _SAME if nearest.get(name) is not None}
    if scan["limit"] is not None:
        given["k"] = min(given.get("k", 10), scan["limit"])
    rest = {name: scan[name] for name in ("columns", "filter", "offset")}
    return {**given, **rest, "query": nearest["q"], "exact": not nearest.get("use_index", True)}
