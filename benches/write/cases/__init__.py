"""The benches, one file a question.

Owns: the list of them. Does not own: their parts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from benches.write.cases import durable, flush, key_value, put, replay, upsert, writer

if TYPE_CHECKING:
    from collections.abc import Callable

    from benches.write.runner import Settings
    from benches.write.stats import Comparison

    Case: TypeAlias = Callable[[Settings], list[Comparison]]

CASES: dict[str, Case] = {
    "put": put.run,
    "key-value": key_value.run,
    "durable": durable.run,
    "producers": durable.run_producers,
    "unsynced": durable.run_unsynced,
    "writer": writer.run,
    "writer-threads": writer.run_threads,
    "upsert": upsert.run,
    "replay": replay.run,
    "flush": flush.run,
}

# By the bench of a comparison; a case may have several.
TITLES = {
    "put": "put from Python, not durable, against pylance: bursts",
    "put-sustained": "put from Python, not durable, against pylance: flush and close included",
    "key-value": "put from Python, not durable, against RocksDB and SlateDB: bursts",
    "key-value-sustained": (
        "put from Python, not durable, against RocksDB and SlateDB: flush and close included"
    ),
    "durable": "durable put with fsync, one producer, against the same calls by hand",
    "producers": "durable put with fsync, 16 producers against one",
    "unsynced": "durable put without fsync, against pylance",
    "writer": "durable put of one row through a table's writer, against a put of a job",
    "writer-threads": "durable puts of four threads through one writer, against one thread",
    "upsert": "upsert in a loop without a writer, against a job for each row",
    "replay": "replay of a WAL that a dead process left, against pylance",
    "flush": "flush of a MemTable, against pylance and lance",
}
