"""The file system calls of a put between its start and its acknowledgement, no fewer and no more.

Owns: syncs of files and folders, and that a put in a steady state touches only its WAL entry. Does
not own: the rows that survive (test_power_cut).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from .calls import between
from .children import Logged, run_logged
from .conftest import has_unnamed_files
from .modes import NOT_DURABLE

if TYPE_CHECKING:
    from pathlib import Path

    from .calls import Call

PUTS = 4


def steady_life(library: Path, root: Path, config: dict[str, Any]) -> Logged:
    """Let one job put a few times, without a flush between."""
    steps: list[list[Any]] = [["create", {}], ["start_job", config], ["operate", PUTS]]
    return run_logged(library, root, [*steps, ["close", False]])


def puts_of(logged: Logged) -> list[list[Call]]:
    """Return the calls of each put, from its start to its acknowledgement."""
    return [between(logged.calls, logged.marks, number) for number in range(1, PUTS + 1)]


def named(calls: list[Call], *names: str) -> list[Call]:
    return [call for call in calls if call.name in names]


def wal_links(calls: list[Call]) -> list[Call]:
    return [call for call in named(calls, "link") if call.path.parent.name == "wal"]


@pytest.fixture(scope="module")
def synced(syscalls_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Logged:
    return steady_life(syscalls_library, tmp_path_factory.mktemp("synced") / "life", {})


@pytest.fixture(scope="module")
def unsynced(syscalls_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Logged:
    root = tmp_path_factory.mktemp("unsynced") / "life"
    return steady_life(syscalls_library, root, {"fsync": False})


@pytest.fixture(scope="module")
def undurable(syscalls_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Logged:
    root = tmp_path_factory.mktemp("undurable") / "life"
    return steady_life(syscalls_library, root, NOT_DURABLE)


def test_a_durable_put_syncs_its_entry_before_it_gets_its_name_and_the_folder_after(
    synced: Logged,
) -> None:
    for calls in puts_of(synced):
        (link,) = wal_links(calls)
        names = [call.name for call in calls]
        assert names.count("sync") == names.count("synced") == 2
        file, folder = named(calls, "synced")
        assert file.inode == link.inode
        assert folder.path == link.path.parent
        assert calls.index(file) < calls.index(link) < names.index("sync", calls.index(link))


def test_a_put_of_a_job_that_does_not_sync_writes_its_entry_and_syncs_nothing(
    unsynced: Logged,
) -> None:
    for calls in puts_of(unsynced):
        assert len(wal_links(calls)) == 1
        assert named(calls, "sync", "synced") == []


def test_a_put_that_is_not_durable_asks_nothing_of_the_disk(undurable: Logged) -> None:
    assert puts_of(undurable) == [[]] * PUTS


def test_what_a_job_that_is_not_durable_put_shares_one_entry_when_the_job_closes(
    undurable: Logged,
) -> None:
    after = undurable.calls[undurable.at("took", PUTS) : undurable.at("closed", PUTS)]
    (link,) = wal_links(after)
    assert link.inode in {call.inode for call in named(after, "synced")}


@pytest.mark.parametrize("life", ["synced", "unsynced"])
def test_a_put_in_a_steady_state_makes_one_entry_and_looks_at_nothing_else(
    life: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    # Where there are no files without a name, the entry has a staging name first.
    how, gone = ("unnamed", []) if has_unnamed_files(tmp_path) else ("create", ["unlink"])
    for calls in puts_of(request.getfixturevalue(life)):
        (link,) = wal_links(calls)
        (made,) = named(calls, "create", "unnamed")
        assert (made.name, made.inode) == (how, link.inode)
        assert [call.name for call in named(calls, "unlink")] == gone
        assert named(calls, "mkdir", "look") == []
        assert {call.path for call in named(calls, "open")} <= {link.path.parent}
        assert {call.path for call in calls} <= {made.path, link.path, link.path.parent}
