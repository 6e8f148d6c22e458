"""The loop of `maintain`: idle logs, compaction, deletion vectors and garbage, round after round.

Owns: the steps of a round, their text, and the end by a signal. Does not own: what the steps do
(`Table`), arguments (`plain_commands`, `cli`) or metrics (`metrics`).
"""

from __future__ import annotations

import json
import signal
import threading
import time
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Never

import lancemem

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Iterator

    from lancemem.metrics import Rounds

__all__ = ["Settings", "Stopped", "looked_up", "run", "stoppable"]

# The exit code of a command that failed, or of a round that left a damaged log alone.
FAILED = 2
# In the reason why a log was left alone: a person has to repair it.
_DAMAGED = " is damaged ("


class Stopped(BaseException):
    """SIGTERM arrived. The running call is cancelled; it leaves nothing half done."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What `maintain` does, and how often.

    Attributes:
        interval: Seconds between the end of a round and the next.
        once: One round, then end.
        bytes_per_second: Limit on what compactions read and write.
        older_than: Seconds for which garbage must have been unneeded.
        flush_idle: Flush logs that got no entry for this many seconds. None flushes no log.
        update_indexes: Let the table's own indexes cover new rows.
        metrics: Where metrics are served, a host and a port.
        json: Each round is a JSON object.
    """

    interval: float = 60.0
    once: bool = False
    bytes_per_second: int | None = None
    older_than: float = 3600.0
    flush_idle: float | None = 60.0
    update_indexes: bool = True
    metrics: tuple[str, int] | None = None
    json: bool = False

    @classmethod
    def of(cls, options: argparse.Namespace) -> Settings:
        """Take the settings that a command line has."""
        return cls(**{name: getattr(options, name) for name in cls.__dataclass_fields__})


def _stop(_number: int, _frame: object) -> Never:
    raise Stopped


@contextmanager
def stoppable() -> Iterator[None]:
    """Let SIGTERM raise `Stopped` in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def run(table: lancemem.Table, settings: Settings, say: Callable[[Iterable[str]], object]) -> int:
    """Run rounds until a signal, or one round. A retryable error waits for the next round.

    Args:
        table: The table.
        settings: What to do, and how often.
        say: Takes lines of text as the work is done.

    Returns:
        The exit code.

    Raises:
        LancememError: An error that needs a person; a retryable error too where there is one round.
        ModuleNotFoundError: Metrics are asked for, and prometheus_client is not installed.
        OSError: The address of the metrics cannot be bound.
    """
    with stoppable(), _served(table, settings, say) as rounds:
        try:
            if not (settings.once or settings.json):
                say([f"maintaining {table.uri} every {settings.interval:g} s"])
            while True:
                damage = _one(table, settings, say, rounds)
                if settings.once:
                    return FAILED if damage else 0
                threading.Event().wait(settings.interval)
        except (Stopped, KeyboardInterrupt):
            if not settings.json:
                say(["stopped"])
            return 0


def _served(
    table: lancemem.Table, settings: Settings, say: Callable[[Iterable[str]], object]
) -> Any:  # noqa: ANN401 - a context that returns counters or None
    if settings.metrics is None:
        return nullcontext()
    from lancemem import metrics  # noqa: PLC0415 - its package may be missing

    host, port = settings.metrics
    served = metrics.serve(table, host, port)
    if not settings.json:
        say([f"metrics at {served.url}"])
    return served


def _one(
    table: lancemem.Table,
    settings: Settings,
    say: Callable[[Iterable[str]], object],
    rounds: Rounds | None,
) -> str | None:
    """Run one round, and return what it says of a damaged log, which it leaves alone."""
    started = time.monotonic()
    done: dict[str, Any] = {}
    error: lancemem.LancememError | None = None
    try:
        for lines in _round(table, settings, done):
            if not settings.json:
                say(lines)
    except lancemem.RetryableError as raised:
        if rounds is not None:
            rounds.failed()
        if settings.once:
            raise
        error = raised
        if not settings.json:
            say([f"again in {settings.interval:g} s: {error}"])
    seconds = time.monotonic() - started
    if rounds is not None and error is None:
        rounds.ended(seconds, done)
    damage = _damage(done)
    if settings.json:
        say([json.dumps(_answer(done, seconds, str(error) if error else damage))])
    return damage


def _round(
    table: lancemem.Table, settings: Settings, done: dict[str, Any]
) -> Iterator[Iterable[str]]:
    """Run the steps of a round, store their results in `done`, and yield their text."""
    if settings.flush_idle is not None:
        done["flush"] = table.flush(idle_for=timedelta(seconds=settings.flush_idle))
        yield _flushed(done["flush"])
    # The count of rows in logs would read the logs of running jobs in every round.
    done["compact"] = table.compact(
        bytes_per_second=settings.bytes_per_second,
        update_indexes=settings.update_indexes,
        count_logs=False,
    )
    yield [_compacted(done["compact"])]
    if table.deletion_vectors:
        done["deletion_vectors"] = table.write_deletion_vectors()
        yield [looked_up(done["deletion_vectors"])]
    done["gc"] = table.collect_garbage(older_than=timedelta(seconds=settings.older_than))
    yield [_collected(done["gc"])]


def _damage(done: dict[str, Any]) -> str | None:
    """Return why a log was left alone that only a person can repair."""
    flush = done.get("flush")
    reasons = [log.reason for log in flush.skipped] if flush else []
    return next((reason for reason in reasons if _DAMAGED in reason), None)


def _flushed(done: lancemem.FlushResult) -> Iterator[str]:
    if done.flushed:
        took = f"{done.bytes} bytes, {done.elapsed_ms} ms"
        yield f"flushed {len(done.flushed)} logs: {done.num_rows} rows, {took}"
    for log in done.skipped:
        shard = log.shard_id if log.ordinal is None else log.ordinal
        size = f"{log.num_entries} entries, {log.bytes} bytes"
        yield f"left the log of shard {shard} alone ({size}): {log.reason}"


def _compacted(done: lancemem.CompactionResult) -> str:
    if not (done.num_generations or done.num_fragments_rewritten):
        return f"nothing to compact; version {done.base_version}"
    return (
        f"compacted {done.num_generations} SSTables: {done.num_sstables_linked} linked, "
        f"{done.num_sstables_rewritten} rewritten, {done.num_sstables_dropped} without a row; "
        f"{done.num_rows_written} rows in, {done.num_rows_deleted} out, "
        f"{done.num_fragments_rewritten} fragments rewritten; version {done.base_version}"
    )


def _collected(gone: lancemem.CollectionResult) -> str:
    kinds = [garbage.kind for garbage in gone.garbage]
    counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
    pinned = (
        f"; {gone.num_pinned_sstables} SSTables are being read" if gone.num_pinned_sstables else ""
    )
    return f"collected {gone.bytes} bytes: {counts or 'nothing'}{pinned}"


def looked_up(done: lancemem.DeletionVectorResult) -> str:
    """Describe the deletion vectors that a call wrote."""
    if not done.num_sstables:
        return "deletion vectors: nothing to look up"
    wrote = f"{done.bytes} bytes, {done.elapsed_ms} ms"
    return f"deletion vectors: looked up {done.num_sstables} SSTables, {wrote}"


def _answer(done: dict[str, Any], seconds: float, error: str | None) -> dict[str, Any]:
    """Return a round as the object of `--json`."""
    flush, compact, gone = done.get("flush"), done.get("compact"), done.get("gc")
    vectors = done.get("deletion_vectors")
    return {
        "seconds": round(seconds, 3),
        "flushed_logs": len(flush.flushed) if flush else 0,
        "flushed_rows": flush.num_rows if flush else 0,
        "skipped_logs": len(flush.skipped) if flush else 0,
        "compacted_sstables": compact.num_generations if compact else 0,
        "rows_written": compact.num_rows_written if compact else 0,
        "rows_deleted": compact.num_rows_deleted if compact else 0,
        "base_version": compact.base_version if compact else None,
        "deletion_vector_files": vectors.num_sstables if vectors else 0,
        "collected_bytes": gone.bytes if gone else 0,
        "collected_things": len(gone.garbage) if gone else 0,
        "error": error,
    }
