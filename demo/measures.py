"""The measurements of a run of the flight board, and their summary.

Owns the numbers of one micro-batch and their sums. Does not own measuring or printing.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class MicroBatch:
    """One micro-batch: rows written, rows at each level, generations compacted; times in seconds.

    `mirror_lag_s` is the time from the compaction until the second table had its changes.
    `started_s` and `probed_s` count from the start of the first micro-batch.
    """

    events: int
    upserts: int
    deletes: int
    wal_entries: int
    started_s: float
    write_s: float
    read_s: float
    rows_by_level: dict[str, int]
    generations_flushed: int
    generations_compacted: int
    compact_s: float
    mirror_lag_s: float
    probed_s: float
    freshness_ms: list[float]

    @property
    def events_per_second(self) -> float:
        """Events by the seconds of their Spark job, with shuffle and acknowledgement."""
        return self.events / self.write_s


def summarize(
    micro_batches: Sequence[MicroBatch], events_by_kind: dict[str, int], rows: int, total_s: float
) -> dict[str, Any]:
    """Add the micro-batches up to the numbers of the whole run."""
    freshness = [value for batch in micro_batches for value in batch.freshness_ms]
    events = sum(batch.events for batch in micro_batches)
    write_s = sum(batch.write_s for batch in micro_batches)
    # The first micro-batch also pays for starting Spark's Python workers.
    warm = micro_batches[1:]
    return {
        "rows": rows,
        "events": events,
        "events_by_kind": events_by_kind,
        "events_per_second": events / write_s,
        "events_per_second_warm": sum(batch.events for batch in warm)
        / sum(batch.write_s for batch in warm)
        if warm
        else None,
        "write_seconds": write_s,
        "total_seconds": total_s,
        "wal_entries": sum(batch.wal_entries for batch in micro_batches),
        "generations_flushed": sum(batch.generations_flushed for batch in micro_batches),
        "generations_compacted": sum(batch.generations_compacted for batch in micro_batches),
        "freshness_samples": len(freshness),
        "freshness_p50_ms": float(np.percentile(freshness, 50)),
        "freshness_p99_ms": float(np.percentile(freshness, 99)),
        "mirror_lag_p50_s": float(np.percentile([it.mirror_lag_s for it in micro_batches], 50)),
        "micro_batches": [
            {**asdict(batch), "events_per_second": batch.events_per_second}
            for batch in micro_batches
        ],
    }
