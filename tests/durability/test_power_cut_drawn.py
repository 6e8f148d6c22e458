"""Power cuts in random lives: jobs of any settings, flushes, compactions and collections.

Owns: the lives. Does not own: the promises after a power cut (`cuts`), or chosen stories
(`test_power_cut`).
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from tests.seeds import seed

from .children import run_logged
from .cuts import RANDOM_CUTS, check_all, cuts
from .modes import DEFERRED

if TYPE_CHECKING:
    from pathlib import Path

LIVES = 4
Step = list[Any]

# Steps that follow some operations of a job.
BEHIND: list[list[Step]] = [
    [],
    [["flush"]],
    [["compact"]],
    [["flush"], ["compact"]],
    [["collect"]],
    [["flush"], ["compact"], ["collect"]],
]


def drawn_config(chance: random.Random) -> dict[str, Any]:
    """Draw the settings of a job; all of them sync before an acknowledgement."""
    config: dict[str, Any] = {
        "max_memtable_rows": chance.choice([1, 24, 1_000]),
        "max_wal_buffer_bytes": chance.choice([1, 1 << 20]),
        "max_wal_flush_interval_ms": chance.choice([1, 20]),
    }
    return config | chance.choice([{}, DEFERRED])


def drawn_life(chance: random.Random) -> list[Step]:
    """Draw a life of several jobs, some of which the next job fences."""
    steps: list[Step] = [["create", {}]]
    for _ in range(chance.randint(2, 5)):
        steps.append(["start_job", drawn_config(chance)])
        for _ in range(chance.randint(1, 4)):
            steps += [["operate", chance.randint(1, 4)], *chance.choice(BEHIND)]
        steps += chance.choice([[], [["close", False]], [["close", True]]])
    return steps


@pytest.mark.parametrize("number", range(LIVES))
def test_every_acknowledged_row_of_a_drawn_life_survives_a_power_cut(
    number: int, syscalls_library: Path, tmp_path: Path, ram_path: Path
) -> None:
    chance = random.Random(f"{number} {seed()}")  # noqa: S311 - a seed that a failure names
    steps = drawn_life(chance)
    print(steps)  # noqa: T201 - where a failure may be
    logged = run_logged(syscalls_library, tmp_path / "life", steps)
    first = logged.at("created")
    left = cuts(logged, "mixed", ram_path, promising={"ack"}, when=first)
    assert check_all(left) > RANDOM_CUTS
