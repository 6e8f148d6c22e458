"""The rows after a power cut, with files synced: `fsync=True`, the default.

Owns: acknowledged durable rows, rows of jobs that are not durable, compactions and new tables.
Does not own: jobs that do not sync (test_power_cut_unsynced), killed processes (test_kill).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from .children import Logged, run_logged
from .cuts import RANDOM_CUTS, check_all, cuts, every_moment
from .disk import CUTS
from .modes import DEFERRED, NOT_DURABLE

if TYPE_CHECKING:
    from pathlib import Path

SMALL = {"max_memtable_rows": 24}


def life(config: dict[str, Any]) -> list[list[Any]]:
    """Write a life with explicit and automatic flushes, several jobs and a closing flush."""
    return [
        ["create", {}],
        ["start_job", config],
        ["operate", 8],
        ["flush"],
        ["operate", 3],
        ["close", False],
        ["start_job", config],
        ["operate", 6],
        ["close", False],
        ["start_job", config],
        ["operate", 2],
        ["close", True],
    ]


@pytest.fixture(scope="module")
def durable_life(syscalls_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Logged:
    return run_logged(syscalls_library, tmp_path_factory.mktemp("durable") / "life", life(SMALL))


@pytest.fixture(scope="module")
def undurable_life(syscalls_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Logged:
    folder = tmp_path_factory.mktemp("undurable") / "life"
    return run_logged(syscalls_library, folder, life(SMALL | NOT_DURABLE))


@pytest.fixture(scope="module")
def compacted_life(syscalls_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Logged:
    folder = tmp_path_factory.mktemp("compacted") / "life"
    before: list[list[Any]] = [
        ["create", {}],
        ["start_job", SMALL],
        ["operate", 8],
        ["flush"],
        ["operate", 1],
    ]
    after: list[list[Any]] = [
        ["operate", 3],
        ["flush"],
        ["compact"],
        ["operate", 2],
        ["close", False],
    ]
    return run_logged(syscalls_library, folder, [*before, ["compact"], *after])


@pytest.mark.parametrize("kind", CUTS)
def test_every_acknowledged_row_survives_a_power_cut_and_what_is_found_is_a_prefix(
    durable_life: Logged, kind: str, ram_path: Path
) -> None:
    first = durable_life.at("created")
    left = cuts(durable_life, kind, ram_path, promising={"ack"}, when=first)
    assert check_all(left) > RANDOM_CUTS


@pytest.mark.parametrize("kind", CUTS)
def test_a_job_that_is_not_durable_keeps_what_it_flushed_or_closed_and_loses_only_the_end(
    undurable_life: Logged, kind: str, ram_path: Path
) -> None:
    first = undurable_life.at("claimed")
    check_all(cuts(undurable_life, kind, ram_path, promising={"flushed", "closed"}, when=first))


@pytest.mark.parametrize(
    ("config", "promising"),
    [
        pytest.param(SMALL | DEFERRED, {"ack"}, id="durable"),
        pytest.param(SMALL | NOT_DURABLE | DEFERRED, {"flushed", "closed"}, id="not durable"),
    ],
)
def test_a_deferred_index_promises_the_same_after_a_power_cut(
    syscalls_library: Path,
    config: dict[str, Any],
    promising: set[str],
    tmp_path: Path,
    ram_path: Path,
) -> None:
    logged = run_logged(syscalls_library, tmp_path / "life", life(config))
    first = logged.at("created")
    check_all(cuts(logged, "mixed", ram_path, promising=promising, when=first))


def check_from(first: int, logged: Logged, kind: str, folder: Path) -> None:
    """Cut the power at every moment from a call to the end of a life."""
    moments = every_moment(logged, first, len(logged.calls))
    check_all(cuts(logged, kind, folder, promising={"ack"}, when=moments))


@pytest.mark.parametrize("kind", CUTS)
def test_every_acknowledged_row_survives_a_power_cut_after_a_compaction(
    compacted_life: Logged, kind: str, ram_path: Path
) -> None:
    check_from(compacted_life.at("compacted", 9), compacted_life, kind, ram_path)


@pytest.mark.parametrize("kind", CUTS)
def test_every_acknowledged_row_survives_a_power_cut_during_a_compaction(
    compacted_life: Logged, kind: str, ram_path: Path
) -> None:
    first, last = compacted_life.at("ack", 9), compacted_life.at("compacted", 9)
    moments = every_moment(compacted_life, first + 1, last)
    check_all(cuts(compacted_life, kind, ram_path, promising={"ack"}, when=moments))


@pytest.fixture(scope="module")
def rewritten_life(syscalls_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Logged:
    folder = tmp_path_factory.mktemp("rewritten") / "life"
    steps: list[list[Any]] = [["create", {}], ["start_job", SMALL]]
    for then in ("compact", "rewrite", "compact"):
        steps += [["operate", 4], ["flush"], ["compact"], [then]]
    return run_logged(syscalls_library, folder, [*steps, ["operate", 2], ["close", False]])


@pytest.mark.parametrize("kind", CUTS)
def test_every_acknowledged_row_survives_a_power_cut_after_a_compaction_on_files_of_another_program(
    rewritten_life: Logged, kind: str, ram_path: Path
) -> None:
    check_from(rewritten_life.at("compacted", 12), rewritten_life, kind, ram_path)


def test_a_new_table_survives_a_power_cut_when_the_call_that_made_it_returned(
    syscalls_library: Path, tmp_path: Path, ram_path: Path
) -> None:
    steps: list[list[Any]] = [["create", {}], ["start_job", {}], ["operate", 1], ["close", False]]
    logged = run_logged(syscalls_library, tmp_path / "life", steps, folders=())
    first = logged.at("created")
    check_all(cuts(logged, "missing", ram_path, promising={"ack"}, when=first))
