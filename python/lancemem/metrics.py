"""Prometheus metrics of a table, of its jobs and of its maintenance, by `prometheus_client`.

Owns: the metrics of a table and their names, and the server of `maintain --metrics`. Does not own:
the metrics of a job, whose text is the job's (`Job.prometheus`); a program that runs jobs passes
them to `TableCollector`. docs/monitoring.md lists every metric.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import lancemem
from lancemem import samples

try:
    import prometheus_client
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.parser import text_string_to_metric_families
    from prometheus_client.registry import Collector
except ModuleNotFoundError as _error:
    raise ModuleNotFoundError(
        "metrics need the package prometheus_client: pip install 'lancemem[metrics]'",
        name=_error.name,
    ) from _error

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prometheus_client.metrics_core import Metric

__all__ = ["Rounds", "Served", "TableCollector", "serve"]


class TableCollector(Collector):
    """The metrics of a table, read when they are scraped.

    A scrape reads the shard manifests and the newest version of the base table, and writes nothing.
    A table that cannot be read has `lancemem_table_up` 0 and no other metric.

    Args:
        table: The table.
        jobs: Jobs of this process, whose metrics are added.
        count_logs: Read the logs too, each entry that no flush has covered. Default: False.

    Example:
        prometheus_client.REGISTRY.register(metrics.TableCollector(table, jobs=[job]))
    """

    def __init__(
        self, table: lancemem.Table, jobs: Iterable[lancemem.Job] = (), *, count_logs: bool = False
    ) -> None:
        self._table = table
        self._jobs = list(jobs)
        self._count_logs = count_logs

    def describe(self) -> Iterable[Metric]:
        """Return no metric, so that registering reads no table."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Read the table, and return its metrics."""
        up = GaugeMetricFamily(
            "lancemem_table_up", "Whether the table can be read.", labels=["uri"]
        )
        try:
            sample = samples.take(self._table, count_logs=self._count_logs)
        except lancemem.LancememError:
            up.add_metric([self._table.uri], 0)
            yield up
            return
        up.add_metric([self._table.uri], 1)
        yield up
        yield from self._of_table(sample)
        yield from self._of_shards(sample)
        yield from _of_jobs(self._jobs)

    def _of_table(self, sample: samples.Sample) -> Iterator[Metric]:
        values: list[tuple[str, str, float | None]] = [
            ("base_version", "Version of the base table.", sample.base_version),
            ("base_rows", "Live rows of the base table.", sample.num_base_rows),
            ("shards", "Shards of the table.", len(sample.shards)),
            ("sstables", "SSTables that wait for compaction.", sample.num_sstables),
            ("sstable_rows", "Rows of these SSTables.", sample.num_sstable_rows),
            ("log_rows", "Rows that are in logs alone.", sample.num_log_rows),
            ("log_bytes", "Bytes of these logs.", sample.log_bytes),
        ]
        for name, text, value in values:
            if value is not None:
                family = GaugeMetricFamily(f"lancemem_table_{name}", text, labels=["uri"])
                family.add_metric([self._table.uri], value)
                yield family

    def _of_shards(self, sample: samples.Sample) -> Iterator[Metric]:
        names = {
            "writer_epoch": "Epoch of the present or last writer of the shard.",
            "current_generation": "Generation of the next flush of the shard.",
            "num_sstables": "SSTables of the shard that wait for compaction.",
            "num_sstable_rows": "Rows of these SSTables.",
            "num_log_rows": "Rows that are in the log of the shard alone.",
            "log_bytes": "Bytes of that log.",
        }
        for name, text in names.items():
            short = name.removeprefix("num_")
            family = GaugeMetricFamily(
                f"lancemem_shard_{short}", text, labels=["uri", "shard", "ordinal"]
            )
            for shard in sample.shards:
                value: Any = shard.values()[name]
                if value is not None:
                    ordinal = "" if shard.ordinal is None else str(shard.ordinal)
                    family.add_metric([self._table.uri, shard.shard_id, ordinal], value)
            if family.samples:
                yield family


def _of_jobs(jobs: list[lancemem.Job]) -> Iterator[Metric]:
    """Merge the metrics of jobs: a family appears once, with the samples of every job."""
    merged: dict[str, Metric] = {}
    for job in jobs:
        for family in text_string_to_metric_families(job.prometheus()):
            known = merged.setdefault(family.name, family)
            if known is not family:
                known.samples.extend(family.samples)
    yield from merged.values()


class Rounds(Collector):
    """The counters of the loop of `maintain`.

    Example:
        rounds = metrics.Rounds("board.lance")
        rounds.ended(0.5, {"compact": table.compact()})
    """

    _COUNTERS = (
        ("rounds", "Rounds that ended without an error."),
        ("errors", "Rounds that failed and were tried again."),
        ("seconds", "Time that rounds took."),
        ("flushed_logs", "Logs that rounds flushed."),
        ("flushed_rows", "Rows of these logs."),
        ("compacted_sstables", "SSTables that rounds moved into the base table."),
        ("compacted_rows", "Rows that the base table got."),
        ("collected_bytes", "Bytes of garbage that rounds removed."),
        ("deletion_vector_files", "Files of deletion vectors that rounds wrote."),
    )

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._lock = threading.Lock()
        self._counts = dict.fromkeys((name for name, _ in self._COUNTERS), 0.0)
        self._last = 0.0

    def ended(self, seconds: float, done: dict[str, Any]) -> None:
        """Count a round, whose results `done` has by their step."""
        flush, compact, gone = done.get("flush"), done.get("compact"), done.get("gc")
        vectors = done.get("deletion_vectors")
        added = {
            "rounds": 1,
            "seconds": seconds,
            "flushed_logs": len(flush.flushed) if flush else 0,
            "flushed_rows": flush.num_rows if flush else 0,
            "compacted_sstables": compact.num_generations if compact else 0,
            "compacted_rows": compact.num_rows_written if compact else 0,
            "collected_bytes": gone.bytes if gone else 0,
            "deletion_vector_files": vectors.num_sstables if vectors else 0,
        }
        with self._lock:
            for name, value in added.items():
                self._counts[name] += value
            self._last = time.time()

    def failed(self) -> None:
        """Count a round that failed."""
        with self._lock:
            self._counts["errors"] += 1

    def describe(self) -> Iterable[Metric]:
        """Return no metric: `collect` has them."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Return the counters, and the time of the last round."""
        with self._lock:
            counts, last = dict(self._counts), self._last
        for name, text in self._COUNTERS:
            family = CounterMetricFamily(f"lancemem_maintenance_{name}", text, labels=["uri"])
            family.add_metric([self._uri], counts[name])
            yield family
        ended = GaugeMetricFamily(
            "lancemem_maintenance_last_round_timestamp_seconds",
            "When the last round ended, in seconds since 1970; 0 before the first.",
            labels=["uri"],
        )
        ended.add_metric([self._uri], last)
        yield ended


class Served:
    """A server of metrics. As a context manager it returns the counters of rounds, and closes."""

    def __init__(self, server: Any, thread: threading.Thread, url: str, rounds: Rounds) -> None:  # noqa: ANN401 - a WSGI server
        self._server, self._thread = server, thread
        self.url, self.rounds = url, rounds

    def close(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Rounds:
        return self.rounds

    def __exit__(self, *_: object) -> None:
        self.close()


def serve(
    table: lancemem.Table,
    host: str,
    port: int,
    *,
    jobs: Iterable[lancemem.Job] = (),
    count_logs: bool = False,
) -> Served:
    """Serve the metrics of a table at `http://host:port/metrics`, on a thread of their own.

    Args:
        table: The table.
        host: The address to bind. Metrics name the table's URI, its sizes and its shards, and
            have no password: an address that others reach is the caller's decision.
        port: The port; 0 takes a free one, which `url` names.
        jobs: As in `TableCollector`.
        count_logs: As in `TableCollector`.

    Returns:
        The server. `close` ends it.

    Raises:
        OSError: The address cannot be bound.

    Example:
        with metrics.serve(table, "127.0.0.1", 9464) as rounds:
            ...
    """
    registry = prometheus_client.CollectorRegistry()
    registry.register(TableCollector(table, jobs, count_logs=count_logs))
    rounds = Rounds(table.uri)
    registry.register(rounds)
    try:
        server, thread = prometheus_client.start_http_server(port, host, registry)
    except OSError as error:
        text = f"metrics cannot be served at {host}:{port}: {error.strerror}; name another port"
        raise OSError(error.errno, text) from error
    place = f"[{host}]" if ":" in host else host
    return Served(server, thread, f"http://{place}:{server.server_port}/metrics", rounds)
