"""How much memory a job takes that may hold little and is given much.

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
BUDGET_BYTES = 64 * MIB
BATCH_BYTES = 4 * MIB
WRITTEN_BYTES = 1024 * MIB
ALLOWED_BYTES = BUDGET_BYTES * 3 // 2 + BATCH_BYTES
SETTINGS = {
    "durable": False,
    "max_memtable_bytes": 16 * MIB,
    "max_unflushed_memtable_bytes": BUDGET_BYTES,
}


@pytest.mark.slow
@pytest.mark.xfail(
    strict=False,
    reason="measured: 150 to 185 MiB above the start, 115 with MALLOC_MMAP_THRESHOLD_=65536; "
    "100 are allowed",
)
def test_a_gibibyte_through_a_budget_of_64_mib_takes_little_more_than_the_budget(
    tmp_path: Path,
) -> None:
    order = json.dumps([str(tmp_path / TABLE), WRITTEN_BYTES, BATCH_BYTES, SETTINGS])
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
    taken = told["peak"] - told["before"]
    print(f"{taken / MIB:.0f} MiB of {ALLOWED_BYTES / MIB:.0f}, {told}")  # noqa: T201
    assert told["flushes"] > 1
    assert taken <= ALLOWED_BYTES
