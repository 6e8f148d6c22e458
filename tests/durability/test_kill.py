"""The rows after SIGKILL at any moment of a life with every operation.

Owns: killed processes, with and without durable puts, flushes, closes and syncs. Does not own:
power cuts (test_power_cut), threads of one job.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

import lancemem
from tests.seeds import seed

from . import oracle
from .children import TABLE
from .forking import Forks, forks
from .modes import DEFERRED, NOT_DURABLE
from .survivors import survivors

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# A soak sets the number.
KILLS_PER_LIFE = int(os.environ.get("LANCEMEM_KILLS", "10"))
LARGEST_DELAY_SECONDS = 0.02
SMALL: dict[str, Any] = {"max_memtable_rows": 40}
AT_LEISURE: dict[str, Any] = SMALL | {"durable": False, "max_wal_flush_interval_ms": 1}


@dataclass(frozen=True)
class Life:
    """The steps of a child until it is killed, and the events after which rows are promised."""

    config: dict[str, Any]
    last_step: list[Any]
    promising: frozenset[str]


LIVES = {
    "durable puts": Life(SMALL, ["operate", None], frozenset({"ack"})),
    "durable puts and flushes": Life(
        SMALL, ["put_and_flush_until_killed", 7], frozenset({"ack", "flushed"})
    ),
    "durable puts without syncs": Life(
        SMALL | {"fsync": False}, ["operate", None], frozenset({"ack"})
    ),
    "puts that are not durable and flushes": Life(
        SMALL | NOT_DURABLE, ["put_and_flush_until_killed", 9], frozenset({"flushed"})
    ),
    "puts that are not durable and closes": Life(
        AT_LEISURE, ["put_and_close_until_killed", 9, AT_LEISURE], frozenset({"closed"})
    ),
    "durable puts, deferred index": Life(
        SMALL | DEFERRED, ["put_and_flush_until_killed", 7], frozenset({"ack", "flushed"})
    ),
    "puts that are not durable, deferred index": Life(
        SMALL | NOT_DURABLE | DEFERRED, ["put_and_flush_until_killed", 9], frozenset({"flushed"})
    ),
}


@pytest.fixture(scope="module")
def running() -> Iterator[Forks]:
    """Return the program that forks."""
    with forks() as program:
        yield program


@pytest.mark.parametrize("name", LIVES)
def test_what_was_promised_is_there_after_every_kill_as_a_prefix_of_the_puts(
    name: str, running: Forks, tmp_path: Path
) -> None:
    life, chance = LIVES[name], random.Random(name + seed())  # noqa: S311 - a fixed seed is the point
    table = lancemem.create_table(str(tmp_path / TABLE), oracle.SCHEMA, primary_key="id")
    survived = 0
    for _ in range(KILLS_PER_LIFE):
        steps = [["resume", survived], ["start_job", life.config], life.last_step]
        after = {
            "lines": chance.randrange(1, 120),
            "seconds": chance.uniform(0, LARGEST_DELAY_SECONDS),
        }
        said = running.killed(uri=table.uri, steps=steps, after=after)
        survived = survivors(table.uri, said, survived, life.promising)
    assert survived > 0
    table.compact()
    found = oracle.state_of(table.scan(consistency="durable").to_table())
    assert oracle.prefix_length(found, survived, survived) == survived
