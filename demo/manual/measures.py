"""The measurements of a run, and their summary.

Owns the numbers of one edit and their sums. Does not own measuring, printing or drawing.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from demo.manual.proof import Proof


@dataclass(frozen=True)
class EditTimes:
    """One edit: its rows, seconds until its acknowledgement, milliseconds from there until found.

    `fresh_ms` is None where the edit deletes only. An edit that a search shows before the
    acknowledgement has reached the writer counts as 0.
    """

    number: int
    release: str
    upserts: int
    deletes: int
    write_s: float
    fresh_ms: float | None


def percentile(values: Sequence[float], percent: int) -> float:
    """Return a percentile, 0.0 of nothing."""
    return float(np.percentile(values, percent)) if values else 0.0


def summarize(
    times: Sequence[EditTimes],
    search_ms: Sequence[float],
    proofs: Sequence[Proof],
    rows: int,
    total_s: float,
) -> dict[str, Any]:
    """Return the numbers of the whole run."""
    fresh = [it.fresh_ms for it in times if it.fresh_ms is not None]
    compared: dict[str, int] = {}
    for proof in proofs:
        for what, count in proof.compared.items():
            compared[what] = compared.get(what, 0) + count
    return {
        "rows": rows,
        "edits": len(times),
        "upserts": sum(it.upserts for it in times),
        "deletes": sum(it.deletes for it in times),
        "searches": len(search_ms),
        "search_p50_ms": percentile(search_ms, 50),
        "search_p99_ms": percentile(search_ms, 99),
        "freshness_samples": len(fresh),
        "freshness_p50_ms": percentile(fresh, 50),
        "freshness_p99_ms": percentile(fresh, 99),
        "compared": compared,
        "differences": sum(len(proof.lines) for proof in proofs),
        "total_seconds": total_s,
        "each_edit": [asdict(it) for it in times],
    }
