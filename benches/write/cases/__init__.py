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
