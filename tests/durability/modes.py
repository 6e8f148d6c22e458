"""The four modes of a put: durable or not, key index synchronous or deferred.

Owns: their settings, which go to other processes as JSON. Does not own: the promises of each mode
(docs/write-path.md).
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import lancemem

DURABLE: dict[str, Any] = {"durable": True}
# Nothing but a close, a freeze or a flush appends the rows of such a job.
NOT_DURABLE: dict[str, Any] = {
    "durable": False,
    "max_wal_flush_interval_ms": 3_600_000,
    "max_wal_buffer_bytes": 1 << 30,
}

DEFERRED: dict[str, Any] = {"sync_index": False}

MODES: dict[str, dict[str, Any]] = {
    "durable": DURABLE,
    "not durable": NOT_DURABLE,
    "durable, deferred index": DURABLE | DEFERRED,
    "not durable, deferred index": NOT_DURABLE | DEFERRED,
}


def writer_config(settings: dict[str, Any]) -> lancemem.WriterConfig:
    """Make the settings of a job; JSON has durations as numbers, under names that end in `_ms`."""
    durations: dict[str, Any] = {
        name.removesuffix("_ms"): timedelta(milliseconds=value)
        for name, value in settings.items()
        if name.endswith("_ms")
    }
    others = {name: value for name, value in settings.items() if not name.endswith("_ms")}
    return lancemem.WriterConfig(**others, **durations)
