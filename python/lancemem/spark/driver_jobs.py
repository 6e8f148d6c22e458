"""Jobs that stay between the writes of a driver, one a shard.

Owns the life of such a job: its start, the write that has it, its end and restart, and its endpoint
for readers in other processes. A write without such jobs claims each shard, reads its log and
closes the job again. With them a write puts its rows into MemTables that exist already. Does not
own the writing of rows: see `writer`.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import lancemem
from lancemem.spark.claim import close_quietly

if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import PathLike
    from types import TracebackType
    from typing import Self, TypeAlias

    # The paths of a certificate and of its private key.
    _Tls: TypeAlias = tuple[str | PathLike[str], str | PathLike[str]]

# A job survives these errors: they are raised before anything is written.
_HARMLESS = (lancemem.InvalidInputError, lancemem.StaleTxnError)


class _Running:
    """The job of one shard, which one write has at a time, and where it is offered."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.job: lancemem.Job | None = None
        self.endpoint: lancemem.Endpoint | None = None


class ShardJobs:
    """The running jobs of a driver; a context manager. Made by `LancememTable.start_jobs`.

    A shard is claimed by its first rows. Where another writer takes the shard, the next rows claim
    it again. A write returns when its rows are durable, whatever the settings are. So a job may end
    at any time and no row is lost: the next claim reads the log.
    """

    def __init__(
        self,
        table: lancemem.Table,
        config: lancemem.WriterConfig | None,
        maintenance: lancemem.MaintenanceConfig | bool | None = None,
    ) -> None:
        """Start no job yet."""
        self._table = table
        self._config = config
        self._maintenance = maintenance
        self._offer: tuple[str, str | None, _Tls | None] | None = None
        self._shards: dict[int, _Running] = {}
        self._lock = threading.Lock()
        self._closed = False
        self._failure: lancemem.LancememError | None = None

    def runs(self, shard: int) -> bool:
        """Whether the shard's job runs, so that a write need not claim the shard."""
        return self._of(shard).job is not None

    @contextmanager
    def lend(self, shard: int) -> Iterator[lancemem.Job]:
        """Yield the job of a shard to one write; start it where no job runs.

        The job ends with an error of the storage, or with a fence by another writer.
        """
        running = self._of(shard)
        with running.lock:
            job = running.job or self._start(shard, running)
            try:
                yield job
            except _HARMLESS:
                raise
            except BaseException:
                _end_quietly(running)
                raise

    def serve(
        self,
        address: str = "grpc://127.0.0.1:0",
        token: str | None = None,
        tls: _Tls | None = None,
    ) -> dict[int, lancemem.Endpoint]:
        """Offer the rows in the jobs' memory to other processes, as `Job.serve` does; all shards.

        Starts the jobs that do not run, and returns an endpoint for each shard. A job that is
        started again is offered with the same token, and at the same address where that is still
        free; `endpoints` has the new endpoint. `address` has port 0 where the table has several
        shards. A second call ends the endpoints of the first call.
        """
        offered, self._offer = self._offer, (address, token, tls)
        try:
            for ordinal in self._ordinals():
                running = self._of(ordinal)
                with running.lock:
                    before, running.endpoint = running.endpoint, None
                    if before is not None:
                        before.close()
                    if running.job is None:
                        self._start(ordinal, running)
                    else:
                        self._serve(running.job, running)
        except BaseException:
            self._offer = offered
            raise
        return self.endpoints

    @property
    def endpoints(self) -> dict[int, lancemem.Endpoint]:
        """Where running jobs are offered, by shard."""
        return {
            shard: running.endpoint
            for shard, running in self._all()
            if running.job is not None and running.endpoint is not None
        }

    def stats(self) -> dict[int, lancemem.JobStats]:
        """Return the counters of running jobs, by shard."""
        jobs = [(shard, running.job) for shard, running in self._all()]
        return {shard: job.stats() for shard, job in jobs if job is not None}

    def flush(self) -> None:
        """Flush every shard, as `Job.flush` does."""
        for ordinal in self._ordinals():
            with self.lend(ordinal) as job:
                job.flush()

    def release(self) -> None:
        """End the jobs until the next rows claim their shards again; rows stay in the log."""
        self._end(flush=False)

    def close(self, *, flush: bool = False) -> None:
        """End the jobs for good. Without `flush` rows stay in the log, as with `Job.close`.

        Where a shard could not be flushed, a later call with `flush` raises the same error again.
        """
        self._closed = True
        if flush and self._failure is not None:
            raise self._failure
        self._end(flush=flush)

    @property
    def closed(self) -> bool:
        """Whether `close` was called; writes then claim shards as they need them."""
        return self._closed

    def __enter__(self) -> Self:
        """Return the jobs."""
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None = None,
        error: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        """Close."""
        try:
            self.close()
        except lancemem.LancememError:
            # The error of the block is the cause: do not replace it by an error of the close.
            if error_type is None:
                raise

    def _of(self, shard: int) -> _Running:
        with self._lock:
            return self._shards.setdefault(shard, _Running())

    def _all(self) -> list[tuple[int, _Running]]:
        with self._lock:
            return sorted(self._shards.items())

    def _ordinals(self) -> list[int]:
        return [shard.ordinal for shard in own_shards(self._table) if shard.ordinal is not None]

    def _start(self, shard: int, running: _Running) -> lancemem.Job:
        if self._closed:
            raise lancemem.JobStoppedError("the jobs were closed")
        job = running.job = self._table.start_job(
            shard=shard, config=self._config, maintenance=self._maintenance
        )
        try:
            self._serve(job, running)
        except BaseException:
            _end_quietly(running)
            raise
        return job

    def _serve(self, job: lancemem.Job, running: _Running) -> None:
        if self._offer is None:
            return
        address, token, tls = self._offer
        before = running.endpoint
        if before is not None:
            before.close()
            token = before.token
            try:
                running.endpoint = job.serve(before.location, token, tls)
            except lancemem.LancememError:
                # Another process listens at that address now.
                running.endpoint = None
            else:
                return
        running.endpoint = job.serve(address, token, tls)

    def _end(self, *, flush: bool) -> None:
        first: lancemem.LancememError | None = None
        for _, running in self._all():
            with running.lock:
                job, running.job = running.job, None
                try:
                    if job is not None:
                        job.close(flush=flush)
                except lancemem.WriterFencedError:
                    # Another writer has the shard, and has replayed every row of this job.
                    continue
                except lancemem.LancememError as error:
                    first = first or error
        if first is not None:
            self._failure = first if flush else self._failure
            raise first


def own_shards(table: lancemem.Table) -> list[lancemem.Shard]:
    """Return the shards of the table's sharding.

    Empty shards of an earlier, larger sharding may be listed too. No job of this table claims them.
    """
    shards, sharding = table.shards(), table.sharding
    if sharding is None:
        return shards
    return [s for s in shards if s.ordinal is None or s.ordinal < sharding.num_shards]


def _end_quietly(running: _Running) -> None:
    job, running.job = running.job, None
    if job is not None:
        close_quietly(job)
