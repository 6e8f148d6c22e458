"""What the writes of `LancememTable` return.

Owns the results, and their numbers from the reports of tasks. Does not own the reports: see
`writer`.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ChangesResult", "DeleteResult", "Report", "UpsertResult", "places", "total"]

Report = dict[str, int]


@dataclass(frozen=True)
class UpsertResult:
    """What an upsert or a retract wrote. Which rows were new is not known at write time.

    Attributes:
        num_rows: Rows written.
        num_shards: Shards of these rows.
        num_wal_entries: WAL entries that hold rows.
        num_sstables: Flushed SSTables that hold rows.
        num_shards_already_written: Shards that had recorded the write's transaction id, and took
            nothing.
    """

    num_rows: int
    num_shards: int
    num_wal_entries: int
    num_sstables: int = 0
    num_shards_already_written: int = 0


@dataclass(frozen=True)
class DeleteResult:
    """What a delete wrote.

    Attributes:
        num_rows: Keys deleted. Keys that the table did not hold count as well.
        num_shards: As in `UpsertResult`.
        num_wal_entries: As in `UpsertResult`.
        num_sstables: As in `UpsertResult`.
        num_shards_already_written: As in `UpsertResult`.
    """

    num_rows: int
    num_shards: int
    num_wal_entries: int
    num_sstables: int = 0
    num_shards_already_written: int = 0


@dataclass(frozen=True)
class ChangesResult:
    """What `apply_changes` wrote.

    Attributes:
        num_upserts: Rows written.
        num_deletes: Keys deleted, or rows taken back.
        num_shards: As in `UpsertResult`.
        num_wal_entries: As in `UpsertResult`.
        num_sstables: As in `UpsertResult`.
        num_shards_already_written: As in `UpsertResult`.
        num_late_changes: Changes that were older than the stored row and left out.
    """

    num_upserts: int
    num_deletes: int
    num_shards: int
    num_wal_entries: int
    num_sstables: int = 0
    num_shards_already_written: int = 0
    num_late_changes: int = 0


def places(reports: list[Report]) -> tuple[int, int, int, int]:
    """Return the numbers of shards, WAL entries, SSTables and shards already written."""
    return (
        len(reports),
        total(reports, "wal_entries"),
        total(reports, "sstables"),
        total(reports, "already_written"),
    )


def total(reports: list[Report], name: str) -> int:
    """Add up a count of all reports."""
    return sum(int(report[name]) for report in reports)
