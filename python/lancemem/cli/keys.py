"""The keys of `--json`, for each command: a part of the interface, as the options are.

Owns: their names. docs/cli.md is made from them, and a test compares them with what commands
print. Does not own: their meaning, which is that of the attributes of the result classes.
"""

from __future__ import annotations

__all__ = ["ERROR", "KEYS", "RATES", "ROWS", "SHARD"]

_TABLE = (
    "uri",
    "primary_key",
    "shard_by",
    "deletion_vectors",
    "changelog",
    "merge_rule",
    "base_version",
    "num_base_rows",
    "num_shards",
    "num_sstables",
    "num_sstable_rows",
    "num_log_rows",
    "log_bytes",
    "columns",
)
_RECORD_INDEX = (
    "base_version",
    "num_runs",
    "num_stale_runs",
    "num_entries",
    "bytes",
    "num_fragments_covered",
    "num_fragments_uncovered",
    "damage",
)

# Commands whose lines are rows: the keys are the columns.
ROWS = ("head", "scan", "search")

KEYS: dict[str, tuple[str, ...]] = {
    "create": _TABLE,
    "enable": _TABLE,
    "describe": _TABLE,
    "history": ("version", "timestamp", "operation", "num_compacted_shards"),
    "indexes": (
        "name",
        "columns",
        "type",
        "metric",
        "indexed_rows",
        "unindexed_rows",
        "segments",
        "unindexed_because",
    ),
    "drop": ("uri", "dropped"),
    "count": ("num_rows",),
    "stats": (
        "time",
        "base_version",
        "num_base_rows",
        "num_shards",
        "num_sstables",
        "num_sstable_rows",
        "num_log_rows",
        "log_bytes",
        "lag_rows",
        "rates",
        "shards",
    ),
    "flush": ("num_rows", "bytes", "elapsed_ms", "flushed", "skipped"),
    "compact": (
        "num_generations",
        "num_sstables_linked",
        "num_sstables_rewritten",
        "num_sstables_dropped",
        "num_rows_written",
        "num_rows_deleted",
        "num_late_rows",
        "copied_bytes",
        "num_fragments_added",
        "num_fragments_rewritten",
        "base_version",
        "num_rows_in_logs",
        "sstables",
        "indexes",
    ),
    "maintain": (
        "seconds",
        "flushed_logs",
        "flushed_rows",
        "skipped_logs",
        "compacted_sstables",
        "rows_written",
        "rows_deleted",
        "base_version",
        "deletion_vector_files",
        "collected_bytes",
        "collected_things",
        "error",
    ),
    "gc": ("garbage", "bytes", "num_pinned_sstables"),
    "record-index create": _RECORD_INDEX,
    "record-index verify": _RECORD_INDEX,
    "record-index drop": ("num_runs",),
    "deletion-vectors on": ("deletion_vectors", "base_version"),
    "deletion-vectors off": ("deletion_vectors", "base_version"),
    "deletion-vectors write": ("num_sstables", "num_fragments", "bytes", "elapsed_ms"),
    "dashboard": ("url",),
    "verify": ("is_damaged", "damage", "logs", "sstables", "record_index"),
    "truncate-wal": (
        "shard_id",
        "replay_after_wal_position",
        "last_wal_position",
        "writer_epoch",
        "first_damaged_position",
        "findings",
    ),
}

# Inside of `stats`.
SHARD = (
    "ordinal",
    "shard_id",
    "writer_epoch",
    "is_released",
    "current_generation",
    "num_sstables",
    "num_sstable_rows",
    "num_log_rows",
    "log_bytes",
)
RATES = (
    "written_rows_per_second",
    "flushed_rows_per_second",
    "compacted_rows_per_second",
    "versions_per_second",
)

# On standard error.
ERROR = ("error", "message", "way_out")
