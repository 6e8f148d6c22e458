"""Samples of a table: its shards, SSTables and logs at one moment, and the rates between two.

Owns: what one sample reads, and how rates follow from two. Does not own: who shows them:
`lancemem stats`, the metrics and the dashboard.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import lancemem

__all__ = ["Rates", "Sample", "ShardSample", "rates", "take"]


@dataclass(frozen=True, slots=True)
class ShardSample:
    """A shard at one moment.

    Attributes:
        ordinal: Its number in the table's sharding; None for a shard of another program.
        shard_id: Its id.
        writer_epoch: The epoch of its present or last writer.
        is_released: Whether no running job holds it. None where logs are not counted.
        current_generation: The generation of its next flush.
        generations: The generation and the rows of each uncompacted SSTable, oldest first.
        num_log_rows: Rows in its log alone. None where logs are not counted.
        log_bytes: Bytes of that log. None where logs are not counted.
    """

    ordinal: int | None
    shard_id: str
    writer_epoch: int
    is_released: bool | None
    current_generation: int
    generations: tuple[tuple[int, int], ...]
    num_log_rows: int | None
    log_bytes: int | None

    @property
    def num_sstable_rows(self) -> int:
        """Rows of the uncompacted SSTables."""
        return sum(rows for _, rows in self.generations)

    def values(self) -> dict[str, object]:
        """Return the values under the names of `--json`."""
        return {
            "ordinal": self.ordinal,
            "shard_id": self.shard_id,
            "writer_epoch": self.writer_epoch,
            "is_released": self.is_released,
            "current_generation": self.current_generation,
            "num_sstables": len(self.generations),
            "num_sstable_rows": self.num_sstable_rows,
            "num_log_rows": self.num_log_rows,
            "log_bytes": self.log_bytes,
        }


@dataclass(frozen=True, slots=True)
class Sample:
    """A table at one moment.

    Attributes:
        seconds: The time, in seconds since 1970.
        base_version: The version of the base table.
        num_base_rows: Live rows of the base table.
        num_sstables: Uncompacted SSTables.
        num_sstable_rows: Rows of these, superseded ones and tombstones included.
        num_log_rows: Rows in logs alone. None where logs are not counted.
        log_bytes: Bytes of these logs. None where logs are not counted.
        shards: The shards, by ordinal.
    """

    seconds: float
    base_version: int
    num_base_rows: int
    num_sstables: int
    num_sstable_rows: int
    num_log_rows: int | None
    log_bytes: int | None
    shards: tuple[ShardSample, ...]

    @property
    def lag_rows(self) -> int:
        """Rows that the base table does not have yet: those of SSTables and counted logs."""
        return self.num_sstable_rows + (self.num_log_rows or 0)

    def values(self) -> dict[str, object]:
        """Return the values under the names of `--json`, without the shards."""
        return {
            "base_version": self.base_version,
            "num_base_rows": self.num_base_rows,
            "num_shards": len(self.shards),
            "num_sstables": self.num_sstables,
            "num_sstable_rows": self.num_sstable_rows,
            "num_log_rows": self.num_log_rows,
            "log_bytes": self.log_bytes,
            "lag_rows": self.lag_rows,
        }


@dataclass(frozen=True, slots=True)
class Rates:
    """What happened between two samples, for each second.

    An SSTable that was flushed and compacted between the samples is in neither, so its rows are in
    no rate.

    Attributes:
        written_rows: Rows that reached logs. None where logs are not counted.
        flushed_rows: Rows that left logs for SSTables.
        compacted_rows: Rows that left SSTables for the base table.
        versions: Versions of the base table.
    """

    written_rows: float | None
    flushed_rows: float
    compacted_rows: float
    versions: float

    def values(self) -> dict[str, float | None]:
        """Return the values under the names of `--json`."""
        return {
            "written_rows_per_second": _rounded(self.written_rows),
            "flushed_rows_per_second": _rounded(self.flushed_rows),
            "compacted_rows_per_second": _rounded(self.compacted_rows),
            "versions_per_second": _rounded(self.versions),
        }


def take(table: lancemem.Table, *, count_logs: bool = True) -> Sample:
    """Read the state of a table. Writes nothing.

    Args:
        table: The table.
        count_logs: Read the logs, each entry that no flush has covered. Default: True.

    Returns:
        The state at about one moment: shards and counts are read one after the other.

    Raises:
        CorruptionError: A log is damaged.

    Example:
        samples.take(lancemem.open_table("board.lance")).lag_rows
    """
    shards = table.shards()
    stats = table.stats(count_logs=count_logs)
    logs = {log.shard_id: log for log in stats.logs}

    def sampled(shard: lancemem.Shard) -> ShardSample:
        log = logs.get(shard.shard_id)
        return ShardSample(
            ordinal=shard.ordinal,
            shard_id=shard.shard_id,
            writer_epoch=shard.writer_epoch,
            is_released=log.is_released if log else None,
            current_generation=shard.current_generation,
            generations=tuple((it.generation, it.num_rows or 0) for it in shard.sstables),
            num_log_rows=log.num_rows if log else None,
            log_bytes=log.bytes if log else None,
        )

    return Sample(
        seconds=time.time(),
        base_version=stats.base_version,
        num_base_rows=stats.num_base_rows,
        num_sstables=stats.num_sstables,
        num_sstable_rows=stats.num_sstable_rows,
        num_log_rows=stats.num_log_rows if count_logs else None,
        log_bytes=stats.log_bytes if count_logs else None,
        shards=tuple(map(sampled, shards)),
    )


def rates(before: Sample, now: Sample) -> Rates | None:
    """Compare two samples of a table.

    Args:
        before: The earlier sample.
        now: The later one.

    Returns:
        The rates; None where no time passed.
    """
    seconds = now.seconds - before.seconds
    if seconds <= 0:
        return None
    earlier = {shard.shard_id: shard for shard in before.shards}
    flushed = compacted = written = 0
    for shard in now.shards:
        old = earlier.get(shard.shard_id)
        listed = {generation for generation, _ in shard.generations}
        first_new = old.current_generation if old else 0
        new = sum(rows for generation, rows in shard.generations if generation >= first_new)
        flushed += new
        # A job without durable puts flushes rows that no log had.
        written += max(new + (shard.num_log_rows or 0) - ((old and old.num_log_rows) or 0), 0)
        gone = old.generations if old else ()
        compacted += sum(rows for generation, rows in gone if generation not in listed)
    is_counted = now.num_log_rows is not None and before.num_log_rows is not None
    return Rates(
        written_rows=written / seconds if is_counted else None,
        flushed_rows=flushed / seconds,
        compacted_rows=compacted / seconds,
        versions=(now.base_version - before.base_version) / seconds,
    )


def _rounded(rate: float | None) -> float | None:
    return None if rate is None else round(rate, 3)
