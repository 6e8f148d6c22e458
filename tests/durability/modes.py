"""The four modes of a put: durable or not, key index synchronous or deferred.

Owns: their settings. Does not own: what each promises; docs/write-path.md says that.
"""

from __future__ import annotations

from typing import Any

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
