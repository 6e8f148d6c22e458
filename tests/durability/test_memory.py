"""The memory of a job with a small budget and many rows.

Owns: the peak of a real process. Does not own: when a put waits (the core's `backpressure`).
"""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest

from .children import TABLE, TIMEOUT_SECONDS, command, environment

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20
BATCH_BYTES = 4 * MIB
WRITTEN_BYTES = 1024 * MIB
# The budget is four MemTables. One entry that is being encoded and one SSTable that is being
# written come on top: the smaller the budget, the larger their share.
BUDGETS = [pytest.param(256 * MIB, id="256 MiB"), pytest.param(64 * MIB, id="64 MiB")]


LARGE_BYTES = 512 * MIB


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "times"), [("whole", 2.5), ("chunks", 3.5), ("stream", 3.5)])
def test_a_large_put_takes_its_rows_twice_beside_the_callers(
    tmp_path: Path, shape: str, times: float
) -> None:
    """Once as lancemem copied them, once in the log entry; chunks once more, as they are joined."""
    order = json.dumps([str(tmp_path / TABLE), LARGE_BYTES, shape])
    ended = subprocess.run(  # noqa: S603 - our own program
        command("large_put", order),
        env=environment(),
        timeout=TIMEOUT_SECONDS,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    taken = told["peak"] - told["before"]
    print(f"{taken / MIB:.0f} MiB, {told}")  # noqa: T201
    assert taken <= LARGE_BYTES * times


@pytest.mark.slow
@pytest.mark.parametrize("budget", BUDGETS)
def test_a_gibibyte_takes_at_most_half_more_than_the_budget_and_one_batch(
    tmp_path: Path, budget: int
) -> None:
    settings = {
        "durable": False,
        "max_memtable_bytes": budget // 4,
        "max_unflushed_memtable_bytes": budget,
    }
    order = json.dumps([str(tmp_path / TABLE), WRITTEN_BYTES, BATCH_BYTES, settings])
    ended = subprocess.run(  # noqa: S603 - our own program
        command("budget", order),
        env=environment(),
        timeout=TIMEOUT_SECONDS,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    taken, allowed = told["peak"] - told["before"], budget * 3 // 2 + BATCH_BYTES
    print(f"{taken / MIB:.0f} MiB of {allowed / MIB:.0f}, {told}")  # noqa: T201
    assert told["flushes"] > 1
    assert taken <= allowed
