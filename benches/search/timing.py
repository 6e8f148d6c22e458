"""How long the searches of one side take.

Owns: the median of searches one after the other. Does not own: rounds, sides and statistics
(`benches.write.stats`).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Query = TypeVar("Query")


def median_ms(search: Callable[[Query], object], queries: Iterable[Query]) -> float:
    """Search for each query, and return the median of the milliseconds."""
    taken = []
    for query in queries:
        begun = time.perf_counter()
        search(query)
        taken.append((time.perf_counter() - begun) * 1e3)
    return float(np.median(taken))
