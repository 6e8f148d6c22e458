"""The job of a shard for the length of one write.

Owns the claim. Writes of one process do not fence each other: they take turns at a shard, and each
write goes on with the job of the write before it. Does not own jobs that stay between writes: see
`driver_jobs`.
"""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import lancemem

if TYPE_CHECKING:
    from collections.abc import Iterator


class _Claim:
    """The turns at one shard."""

    def __init__(self) -> None:
        self.turn = threading.Lock()
        # The number of writes that have their turn or wait for it.
        self.wanted = 0
        # The job that the last turn left for the next.
        self.job: lancemem.Job | None = None


class _Claims:
    """The shards that this process writes at present, by table and ordinal."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.claims: dict[tuple[str, int], _Claim] = {}
        self.parents: list[dict[tuple[str, int], _Claim]] = []

    def begin_anew(self) -> None:
        """Forget the claims of a fork's parent, but keep them alive: it must end no job."""
        self.parents.append(self.claims)
        self.lock, self.claims = threading.Lock(), {}

    @contextmanager
    def wanted(self, uri: str, shard: int) -> Iterator[_Claim]:
        """Yield the claim of a shard, which exists as long as a write wants it."""
        with self.lock:
            claim = self.claims.setdefault((uri, shard), _Claim())
            claim.wanted += 1
        try:
            yield claim
        finally:
            with self.lock:
                claim.wanted -= 1
                if claim.wanted == 0:
                    del self.claims[uri, shard]


_CLAIMS = _Claims()
os.register_at_fork(after_in_child=_CLAIMS.begin_anew)


@contextmanager
def in_turn(table: lancemem.Table, shard: int) -> Iterator[_Claim]:
    """Give the turn at a shard to one write.

    A job that the write has, or finds there from the write before it, ends when no other write of
    this process waits. The job does not outlive an error, and a long log does not outlive the job.
    """
    with _CLAIMS.wanted(table.uri, shard) as claim, claim.turn:
        try:
            yield claim
        except BaseException:
            job, claim.job = claim.job, None
            if job is not None:
                close_quietly(job)
            raise
        if claim.wanted > 1 or claim.job is None:
            return
        job, claim.job = claim.job, None
        # A writer that took the shard has read the durable rows of this job.
        with suppress(lancemem.WriterFencedError):
            job.close(flush=None)


@contextmanager
def claimed(table: lancemem.Table, shard: int) -> Iterator[lancemem.Job]:
    """Give the shard's job to one write: the job of the write before it, or a new one."""
    with in_turn(table, shard) as claim:
        if claim.job is None:
            claim.job = table.start_job(shard=shard)
        yield claim.job


def close_quietly(job: lancemem.Job) -> None:
    """Close a job after an error; an error of the close would only hide the first one."""
    try:
        job.close()
    except lancemem.LancememError:
        return
