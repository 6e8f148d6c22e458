"""The rows after SIGKILL directly after a chosen call to the file system.

Owns: the points, by name, and kills at each: of puts, claims, flushes, closes, compactions with
and without stored changes, and collections, on a real disk. Does not own: kills at random times
(test_kill), power cuts (test_power_cut), what the names on a disk mean (docs/format.md).
"""

from __future__ import annotations

import os
import random
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import lancemem
from tests.seeds import seed

from . import oracle
from .children import TABLE
from .conftest import has_unnamed_files
from .forking import Forks, forks
from .survivors import survivors

if TYPE_CHECKING:
    from collections.abc import Iterator

# A soak sets the number.
KILLS = int(os.environ.get("LANCEMEM_POINT_KILLS", "16"))

SHARD = f"{TABLE}/_mem_wal/*"
RUN = f"{SHARD}/*_gen_*"
UNNAMED = f"{SHARD}/wal/#"
CHANGES = f"{TABLE}/_lancemem/changelog"


class Point(NamedTuple):
    """The number in a round, the call as `syscalls.c` names it, the pattern of its path."""

    in_a_round: int
    call: str
    pattern: str


# The process ends directly after such a call. A file may be nameless at first, which the system
# shows as `#` and a number. Or it has a temporary name: with `#` and a number at the end, or `.tmp`
# at the start.
POINTS = {
    "log entry made": Point(12, "unnamed", f"{UNNAMED}*"),
    "log entry written": Point(12, "write", f"{UNNAMED}*"),
    "log entry synced": Point(12, "synced", f"{UNNAMED}*"),
    "log entry named": Point(12, "link", f"{SHARD}/wal/*.arrow"),
    "sentinel created": Point(1, "create", f"{SHARD}/wal/*.arrow#*"),
    "sentinel written": Point(1, "write", f"{SHARD}/wal/*.arrow#*"),
    "sentinel synced": Point(1, "synced", f"{SHARD}/wal/*.arrow#*"),
    "sentinel has one name": Point(1, "unlink", f"{SHARD}/wal/*.arrow#*"),
    "log folder synced": Point(12, "synced", f"{SHARD}/wal"),
    "shard manifest created": Point(4, "create", f"{SHARD}/manifest/*.binpb#*"),
    "shard manifest written": Point(4, "write", f"{SHARD}/manifest/*.binpb#*"),
    "shard manifest synced": Point(4, "synced", f"{SHARD}/manifest/*.binpb#*"),
    "shard manifest named": Point(4, "link", f"{SHARD}/manifest/*.binpb"),
    "manifest folder synced": Point(4, "synced", f"{SHARD}/manifest"),
    "version hint written": Point(4, "write", f"{SHARD}/manifest/version_hint.json#*"),
    "version hint named": Point(4, "link", f"{SHARD}/manifest/version_hint.json"),
    "run folder made": Point(2, "mkdir", RUN),
    "run data written": Point(2, "write", f"{RUN}/data/*.lance"),
    "run data synced": Point(2, "synced", f"{RUN}/data/*.lance"),
    "run key index written": Point(2, "write", f"{RUN}/_pk_index/.tmp*"),
    "run key index named": Point(2, "link", f"{RUN}/_pk_index/page_lookup.lance"),
    "run deletions named": Point(2, "link", f"{RUN}/_deletions/*"),
    "run bloom filter named": Point(2, "link", f"{RUN}/bloom_filter.bin"),
    "run version named": Point(2, "link", f"{RUN}/_versions/*.manifest"),
    "run folder synced": Point(2, "synced", RUN),
    "base data written": Point(1, "write", f"{TABLE}/data/.tmp*"),
    "base data named": Point(1, "link", f"{TABLE}/data/*.lance"),
    "base data synced": Point(1, "synced", f"{TABLE}/data/*.lance"),
    "base transaction named": Point(1, "link", f"{TABLE}/_transactions/*.txn"),
    "base version written": Point(1, "write", f"{TABLE}/_versions/*.manifest#*"),
    "base version named": Point(1, "link", f"{TABLE}/_versions/*.manifest"),
    "base versions synced": Point(1, "synced", f"{TABLE}/_versions"),
    "change rows named": Point(1, "link", f"{CHANGES}/*/data/*.lance"),
    "change rows synced": Point(1, "synced", f"{CHANGES}/*/data/*.lance"),
    "changes described": Point(1, "link", f"{CHANGES}/*/changes.binpb"),
    "changelog folder synced": Point(1, "synced", CHANGES),
    "changes published": Point(1, "link", f"{CHANGES}/v*.binpb"),
    "log entry collected": Point(4, "unlink", f"{SHARD}/wal/*.arrow"),
    "run data collected": Point(1, "unlink", f"{RUN}/data/*.lance"),
    "run folder collected": Point(1, "unlink", RUN),
}

CONFIG: dict[str, Any] = {"max_memtable_rows": 40}
# Every point is in each round.
ROUND: list[list[Any]] = [
    ["operate", 6],
    ["flush"],
    ["operate", 3],
    ["close", False],
    ["start_job", CONFIG],
    ["operate", 2],
    ["flush"],
    ["compact"],
    ["operate", 1],
    ["collect"],
]
ROUNDS = 2
PROMISING = {"ack", "flushed"}


@pytest.fixture(scope="module")
def server(
    syscalls_library: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Forks, Path]]:
    """Return the program that forks, and the folder below which it sees calls."""
    root = tmp_path_factory.mktemp("killed")
    preloaded = {
        "LD_PRELOAD": str(syscalls_library),
        "SYSCALLS_ROOT": str(root),
        "SYSCALLS_LOG": os.devnull,
    }
    with forks(preloaded) as running:
        yield running, root


@pytest.mark.parametrize("name", POINTS)
def test_a_kill_behind_any_call_loses_nothing_that_was_promised(
    name: str, server: tuple[Forks, Path]
) -> None:
    running, root = server
    chance = random.Random(name + seed())  # noqa: S311 - a fixed seed is the point
    point = POINTS[name]
    if point.pattern.startswith(UNNAMED) and not has_unnamed_files(root):
        pytest.skip("this file system has no files without a name")
    folder = root / name.replace(" ", "-")
    folder.mkdir()
    pattern = f"{folder.name}/{point.pattern}"
    uri = str(folder / TABLE)
    stored = point.pattern.startswith(CHANGES)
    changelog: Any = "stored" if stored else None
    lancemem.create_table(uri, oracle.SCHEMA, primary_key="id", changelog=changelog)
    survived = 0
    for _ in range(KILLS):
        steps = [["resume", survived], ["start_job", CONFIG], *ROUND * ROUNDS]
        calls = chance.randint(1, ROUNDS * point.in_a_round)
        behind = {"call": point.call, "pattern": pattern, "calls": calls}
        said = running.killed(uri=uri, steps=steps, behind=behind)
        survived = survivors(uri, said, survived, PROMISING)
    table = lancemem.open_table(uri)
    table.compact()
    found = oracle.state_of(table.scan().to_table())
    assert oracle.prefix_length(found, survived, survived) == survived
    if stored:
        assert_changes_are_whole(table)


def assert_changes_are_whole(table: lancemem.Table) -> None:
    """Assert that stored changes are those that are derived, and that garbage is the rest."""
    table.collect_garbage(older_than=timedelta(0))
    feed = table.changes(0)
    rows = feed.to_table()
    assert any(version.is_stored for version in feed.versions)
    there = Path(table.uri) / "_lancemem" / "changelog"
    named = sum(version.is_stored for version in feed.versions)
    assert sum(path.is_dir() for path in there.iterdir()) == named
    there.rename(there.with_name("away"))
    assert table.changes(0).to_table() == rows
