"""Histories of a whole table show no row too many, too few, or too old.

Owns: the rounds of CI, and that the verdict would notice. Not here: one shard that processes take
from each other (tests/takeovers), kills at chosen points (tests/durability).
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import lance
import numpy as np
import pytest

import lancemem
from tests import seeds

from .__main__ import SECONDS, compiled_clock, run
from .foreign import Pylance, restore
from .oracle import (
    FOREIGN_ROWS,
    GROUPS,
    KEYS_PER_GROUP,
    MAX_OPERATIONS,
    Foreign,
    Kind,
    Moment,
    Oracle,
)
from .role import Told
from .shape import FOREIGN_GROUP, Layout, Row, draw, text_of
from .verdict import Judge

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = int(os.environ.get("LANCEMEM_CHAOS_ROUNDS", "10"))
FOLDER = Path(__file__).parents[2] / "out" / "chaos"


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the library that shifts the clock."""
    return compiled_clock(tmp_path_factory.mktemp("clock"))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", range(ROUNDS))
def test_every_read_of_a_table_in_chaos_is_explained(number: int, clock: Path) -> None:
    seed = f"{seeds.seed()}-{number}"
    ended = run(seed, SECONDS, FOLDER / seed, clock)
    assert ended.returncode == 0, ended.stdout + ended.stderr[-4_000:]


def test_a_restore_is_undone_with_every_compaction_after_it(tmp_path: Path) -> None:
    shape = replace(draw("0"), restores=True)
    told = Told(str(tmp_path / "table.lance"), tmp_path, "0", "pylance0", 0, 0, shape)
    Oracle(told.oracle, create=True)
    table = lancemem.create_table(told.uri, shape.schema, primary_key=shape.key_columns)
    rows: list[Row] = [(shape.key_of(number), 0, 1, "a row") for number in range(20)]
    table.upsert(shape.rows(rows))
    old = lance.dataset(told.uri).version
    lance.dataset(told.uri).create_scalar_index("n", "BTREE")
    newest = lance.dataset(told.uri).version
    (tmp_path / "restoring").write_text(str(newest))
    restore(told.uri, old)
    with table.start_job(shard=0) as job:
        job.flush()
    assert table.compact().num_generations
    # An undo that was chosen before that compaction, and is committed after it.
    restore(told.uri, newest)
    with pytest.raises(lancemem.CorruptionError, match="base table older than its shards"):
        lancemem.open_table(told.uri).scan().to_table()
    pylance = Pylance(told)
    assert sorted(shape.read(pylance.table.scan().to_table())) == sorted(rows)
    assert pylance.oracle.restores == 0


# --- the verdict ----------------------------------------------------


class Case:
    """A table in which every group was put five times, and the third time deleted."""

    def __init__(self) -> None:
        self.shape = draw("0")
        keys = tuple(
            tuple(self.shape.key_of(group * KEYS_PER_GROUP + key) for key in range(KEYS_PER_GROUP))
            for group in range(GROUPS)
        )
        self.layout = Layout((0,) * GROUPS, keys, tuple(key for of in keys for key in of))
        self.kinds = np.full((GROUPS, MAX_OPERATIONS), Kind.PUT, np.uint8)
        self.kinds[:, 3] = Kind.DELETE
        self.judge = Judge(self.shape, self.layout, self.kinds)
        self.states = np.zeros(FOREIGN_ROWS, np.int64)
        self.values = np.zeros(FOREIGN_ROWS, np.int64)

    def moment(self, acked: int, begun: int) -> Moment:
        """Give a moment at which each group had these operations."""
        return Moment(np.full(GROUPS, acked), np.full(GROUPS, begun), self.states, self.values, 0)

    def rows(self, number: int) -> list[Row]:
        """Give the rows of operation `number` of every group."""
        return [
            (key, group, number, text_of(group, number))
            for group, keys in enumerate(self.layout.keys)
            for key in keys
        ]

    def faults(
        self, rows: list[Row], acked: int = 5, begun: int = 5, level: str = "durable"
    ) -> list[str]:
        """Judge a read during which nothing happened."""
        moment = self.moment(acked, begun)
        return self.judge.faults(rows, (moment, moment), level=level, foreign=True)


def _torn(rows: list[Row]) -> list[Row]:
    return [(*rows[0][:2], 4, text_of(0, 4)), *rows[1:]]


MUTATIONS: dict[str, Callable[[list[Row]], list[Row]]] = {
    "a lost row": lambda rows: rows[1:],
    "a lost group": lambda rows: rows[KEYS_PER_GROUP:],
    "a key twice": lambda rows: [*rows, rows[0]],
    "a torn group": _torn,
    "other content": lambda rows: [(*rows[0][:3], "other"), *rows[1:]],
    "a row of no operation": lambda rows: [*rows, ((b"unknown",), 0, 5, "")],
}


@pytest.mark.parametrize("what", MUTATIONS)
def test_the_verdict_names(what: str) -> None:
    case = Case()
    assert case.faults(case.rows(5)) == []
    assert case.faults(MUTATIONS[what](case.rows(5)))


def test_the_verdict_names_what_is_older_than_its_acknowledgement() -> None:
    case = Case()
    assert case.faults(case.rows(4))
    assert case.faults(case.rows(4), acked=4) == []


def test_the_verdict_names_what_no_operation_has_begun() -> None:
    case = Case()
    assert case.faults(case.rows(5), acked=4, begun=4)


def test_a_deleted_group_is_absent_and_nothing_else() -> None:
    case = Case()
    assert case.faults([], acked=3, begun=3) == []
    assert case.faults(case.rows(3), acked=3, begun=3)
    assert case.faults([], acked=4, begun=5)


def test_a_reader_never_goes_back() -> None:
    case = Case()
    assert case.faults(case.rows(5), acked=0, level="flushed") == []
    assert case.faults(case.rows(4), acked=0, level="flushed")


def test_the_verdict_knows_the_rows_of_pylance() -> None:
    case = Case()
    case.states[7], case.values[7] = Foreign.THERE, 2
    row: Row = (case.shape.foreign_key(7), FOREIGN_GROUP, 2, "pylance")
    assert case.faults([*case.rows(5), row]) == []
    assert case.faults(case.rows(5))
    assert case.faults([*case.rows(5), (*row[:2], 1, row[3])])
    case.states[7] = Foreign.GONE
    assert case.faults([*case.rows(5), row])
    case.states[7] = Foreign.UNKNOWN
    assert case.faults([*case.rows(5), row]) == []
