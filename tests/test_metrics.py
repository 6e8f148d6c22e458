"""The metrics of a table and of `maintain`, and the Grafana dashboard that reads them.

Owns: names, values and types of `lancemem.metrics`, the server of `maintain --metrics`, and that
docs/grafana/lancemem.json asks for metrics that exist. Not here: the metrics of a job
(test_job_stats).
"""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

import lancemem
from lancemem import metrics
from tests.programs import run_python

if TYPE_CHECKING:
    from tests.conftest import MakeTable

GRAFANA = Path(__file__).parents[1] / "docs" / "grafana" / "lancemem.json"
PAGE = Path(__file__).parents[1] / "docs" / "monitoring.md"


def rows(count: int) -> pa.Table:
    return pa.table({"id": range(count), "name": ["a"] * count, "value": [0.5] * count})


def parsed(text: str) -> dict[tuple[str, str], float]:
    """Return the samples by name and shard."""
    return {
        (sample.name, sample.labels.get("ordinal") or sample.labels.get("shard", "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def scraped(*collectors: metrics.TableCollector | metrics.Rounds) -> dict[tuple[str, str], float]:
    registry = CollectorRegistry()
    for collector in collectors:
        registry.register(collector)
    return parsed(generate_latest(registry).decode())


def fetched(url: str) -> str:
    with urllib.request.urlopen(url, timeout=20) as answer:  # noqa: S310 - a loopback address
        return str(answer.read(), "utf-8")


@pytest.fixture
def filled(make_table: MakeTable) -> lancemem.Table:
    table = make_table(sharding=lancemem.bucket("id", 2))
    table.upsert(rows(20))
    table.flush()
    table.upsert(rows(6))
    return table


def test_a_scrape_has_what_stats_count(filled: lancemem.Table) -> None:
    found = scraped(metrics.TableCollector(filled, count_logs=True))
    stats = filled.stats()
    assert found["lancemem_table_up", ""] == 1
    assert found["lancemem_table_sstable_rows", ""] == stats.num_sstable_rows == 20
    assert found["lancemem_table_log_rows", ""] == stats.num_log_rows == 6
    assert found["lancemem_table_base_version", ""] == stats.base_version
    of_shards = [found["lancemem_shard_log_rows", ordinal] for ordinal in ("0", "1")]
    assert of_shards == [log.num_rows for log in stats.logs]
    assert found["lancemem_shard_sstables", "0"] == 1


def test_a_scrape_that_counts_no_logs_has_no_metric_of_them(filled: lancemem.Table) -> None:
    names = {name for name, _ in scraped(metrics.TableCollector(filled))}
    assert "lancemem_table_sstables" in names
    assert not [name for name in names if "log" in name]


def test_the_metrics_of_several_jobs_are_one_family_each(filled: lancemem.Table) -> None:
    with filled.start_job(shard=0) as one, filled.start_job(shard=1) as two:
        found = scraped(metrics.TableCollector(filled, jobs=[one, two]))
        for job in (one, two):
            assert found["lancemem_job_writer_epoch", job.shard_id] == job.stats().writer_epoch


def test_a_table_that_cannot_be_read_is_down(filled: lancemem.Table) -> None:
    collector = metrics.TableCollector(filled)
    lancemem.drop_table(filled.uri)
    assert scraped(collector) == {("lancemem_table_up", ""): 0}


def test_rounds_are_counted(filled: lancemem.Table) -> None:
    rounds = metrics.Rounds(filled.uri)
    rounds.ended(0.5, {"flush": filled.flush(), "compact": filled.compact()})
    rounds.failed()
    found = scraped(rounds)
    assert found["lancemem_maintenance_rounds_total", ""] == 1
    assert found["lancemem_maintenance_errors_total", ""] == 1
    assert found["lancemem_maintenance_flushed_rows_total", ""] == 6
    assert found["lancemem_maintenance_compacted_sstables_total", ""] == 4
    assert found["lancemem_maintenance_seconds_total", ""] == 0.5
    assert found["lancemem_maintenance_last_round_timestamp_seconds", ""] > 1.6e9


def test_maintain_serves_metrics_while_it_runs(filled: lancemem.Table) -> None:
    options = ["--interval", "0.1", "--flush-idle", "0", "--metrics", "127.0.0.1:0"]
    command = [sys.executable, "-m", "lancemem", "maintain", filled.uri, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as it:  # noqa: S603
        try:
            assert it.stdout is not None
            url = it.stdout.readline().removeprefix("metrics at ").strip()
            while it.stdout.readline().split()[0] != "collected":
                pass
            found = parsed(fetched(url))
            while not found["lancemem_maintenance_rounds_total", ""]:
                found = parsed(fetched(url))
            it.send_signal(signal.SIGTERM)
            _, errors = it.communicate(timeout=50)
        finally:
            it.kill()
    assert (it.returncode, errors) == (0, "")
    assert found["lancemem_table_base_rows", ""] == 20
    assert found["lancemem_maintenance_compacted_sstables_total", ""] == 4


def test_an_address_in_use_is_named(filled: lancemem.Table) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"metrics cannot be served at 127.0.0.1:{port}"):
            metrics.serve(filled, "127.0.0.1", port)


def test_without_prometheus_client_maintain_names_the_extra(filled: lancemem.Table) -> None:
    done = run_python(
        """
        import sys
        sys.modules["prometheus_client"] = None
        from lancemem.__main__ import main
        main(["maintain", sys.argv[1], "--once", "--metrics", "127.0.0.1:0"])
        """,
        filled.uri,
    )
    assert "pip install 'lancemem[metrics]'" in done.stderr


def every_metric(table: lancemem.Table) -> set[str]:
    with table.start_job(shard=0) as job:
        collector = metrics.TableCollector(table, jobs=[job], count_logs=True)
        found = scraped(collector, metrics.Rounds(table.uri))
    return {name for name, _ in found}


def test_grafana_asks_for_metrics_that_exist(filled: lancemem.Table) -> None:
    board = json.loads(GRAFANA.read_text())
    asked = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    names = {name for each in asked for name in re.findall(r"lancemem_\w+", each)}
    assert len(asked) >= 10
    assert names - every_metric(filled) == set()
    assert [panel["id"] for panel in board["panels"]] == list(range(1, len(board["panels"]) + 1))
    axes = [panel["fieldConfig"]["defaults"] for panel in board["panels"]]
    assert all(axis["min"] == 0 for axis in axes), "every axis starts at zero"


def test_the_page_lists_every_metric(filled: lancemem.Table) -> None:
    text = PAGE.read_text()
    listed = set(re.findall(r"`(lancemem_(?:table|shard|maintenance)_\w+)`", text))
    exposed = {name for name in every_metric(filled) if not name.startswith("lancemem_job_")}
    assert listed == exposed
