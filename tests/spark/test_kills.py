"""Processes that are killed with SIGKILL: executors and their Python in mid-put, a driver.

Owns: stories that need their own Spark, in a child process (`driver`), on Spark's local cluster and
on a standalone one (`cluster`). Not here: failures inside one Spark (test_exactly_once).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

import lancemem
from lancemem.spark import LancememTable
from tests.seeds import seed
from tests.spark.cluster import standalone
from tests.spark.test_exactly_once import SCHEMA, source, stored, write_events

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings("ignore:lance is not fork-safe")

ROOT = Path(__file__).parents[2]


# A soak sets the number for each cluster.
KILLS = os.environ.get("LANCEMEM_SPARK_KILLS", "10")
SUM_KILLS = str(min(4, int(KILLS)))
MINUTES = 4 + int(KILLS)


def drive(story: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    package = str(Path(lancemem.__file__).parents[1])
    path = os.pathsep.join([package, str(ROOT)])
    return subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-m", "tests.spark.driver", story, str(folder), *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=60 * MINUTES,
        check=False,
    )


@pytest.fixture(params=["local-cluster", "standalone"])
def master(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Return the address of a cluster of two workers."""
    if request.param == "local-cluster":
        yield "local-cluster[2,1,1024]"
        return
    with standalone(tmp_path / "cluster") as address:
        yield address


@pytest.mark.spark
@pytest.mark.timeout(60 * MINUTES + 60)
def test_a_sum_counts_each_event_once_whatever_is_killed(tmp_path: Path) -> None:
    done = drive("kill_in_mid_sum", tmp_path, "local-cluster[2,1,1024]", SUM_KILLS, seed())
    assert done.returncode == 0, done.stderr[-3000:]
    told = [line for line in done.stdout.splitlines() if line.startswith("killed=")]
    added = [sum(range(5000)) * (number + 3) for number in range(int(SUM_KILLS))]
    sums = [sum(added[: number + 1]) for number in range(int(SUM_KILLS))]
    expected = [f"rows=5000 shards=4 sum={total}" for total in sums]
    assert [line.split(" ", 1)[1] for line in told] == expected
    assert not any(line.startswith("killed=0 ") for line in told)


@pytest.mark.spark
@pytest.mark.timeout(60 * MINUTES + 60)
def test_executors_and_workers_killed_in_mid_put_leave_each_row_once(
    master: str, tmp_path: Path
) -> None:
    done = drive("kill_in_mid_put", tmp_path, master, KILLS, seed())
    assert done.returncode == 0, done.stderr[-3000:]
    told = [line for line in done.stdout.splitlines() if line.startswith("killed=")]
    print("\n".join(told))  # noqa: T201 - how many each kill took along
    sums = [sum(range(5000)) * (number + 3) for number in range(int(KILLS))]
    expected = [f"rows=5000 shards=4 sum={total}" for total in sums]
    assert [line.split(" ", 1)[1] for line in told] == expected
    assert told[0].startswith("killed=2 ")
    assert not any(line.startswith("killed=0 ") for line in told)
    found = lancemem.open_table(str(tmp_path / "table.lance")).scan().to_table()
    rows = zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True)
    assert sorted(rows) == [(n, (int(KILLS) + 2) * n) for n in range(5000)]


def test_a_driver_killed_behind_its_write_goes_on_at_its_checkpoint(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = LancememTable.create(
        spark,
        str(tmp_path / "table.lance"),
        schema=SCHEMA,
        primary_key="id",
        sharding=lancemem.bucket("id", 2),
    )
    for number in range(4):
        events = [{"id": n, "v": 100 * number + n, "seq": number} for n in range(5 * number, 30)]
        write_events(tmp_path / "events", number, events)
    done = drive("die_behind_a_batch", tmp_path)
    assert done.returncode == -signal.SIGKILL, done.stderr[-3000:]
    assert stored(table) == {n: n + (100 if n >= 5 else 0) for n in range(30)}
    # Rows newer than the batch that Spark will repeat.
    table.upsert(spark.createDataFrame([(7, -7, 9)], "id long, v long, seq long"))
    query = table.stream_upsert(
        source(spark, tmp_path / "events"),
        checkpoint=str(tmp_path / "checkpoint"),
        trigger={"availableNow": True},
    )
    assert query.awaitTermination(120)
    expected = {n: n + 100 * min(n // 5, 3) for n in range(30)}
    assert stored(table) == expected | {7: -7}
