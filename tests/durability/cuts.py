"""Power cuts at many moments of a logged life, and the check of the files that are left.

Owns: the moments, the promises at each, and the check that a table is whole. Does not own: the
states of a disk after a power cut (`disk`), or which promise a test checks.
"""

from __future__ import annotations

import os
import random
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import lancemem
from tests.seeds import seed

from . import oracle
from .children import TABLE
from .disk import write_out

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from .children import Logged

RANDOM_CUTS = int(os.environ.get("LANCEMEM_CUTS", "30"))
UNSYNCED = lancemem.WriterConfig(fsync=False)
# A number beyond the operations of any life.
NEW_OPERATION = 10_001


@dataclass(frozen=True)
class Cut:
    """A moment of a life: the operations promised and begun, and the files left on disk."""

    at: int
    promised: int
    begun: int
    folder: Path

    def table(self) -> lancemem.Table:
        """Open the table that is left, as a process would after the power is back."""
        return lancemem.open_table(str(self.folder / TABLE))

    def state(self) -> oracle.State:
        """Read the rows that are left."""
        return oracle.state_of(self.table().scan().to_table())


def moments(logged: Logged, chance: random.Random, first: int) -> list[int]:
    """Choose the moment after every promise, and random moments after changes."""
    changes = [
        at + 1
        for at, call in enumerate(logged.calls)
        if at > first and call.name not in {"look", "open"}
    ]
    # Before a start the disk is the same as after the last promise.
    ends = [mark for mark in logged.marks if mark.event != "start"]
    after_marks = [mark.at + 1 for mark in ends if mark.at >= first]
    others = chance.sample(changes, min(RANDOM_CUTS, len(changes)))
    return sorted({*after_marks, *others})


def every_moment(logged: Logged, first: int, last: int) -> list[int]:
    """Choose every moment between two places after a change."""
    return [at + 1 for at in range(first, last) if logged.calls[at].name not in {"look", "open"}]


def cuts(
    logged: Logged,
    kind: str,
    folder: Path,
    *,
    promising: set[str],
    when: int | list[int],
) -> Iterator[Cut]:
    """Cut the power at the moments `when`, or at many behind the call `when`.

    `promising` are the events after which the operations so far are promised to survive.
    """
    chance = random.Random(  # noqa: S311 - a fixed seed is the point
        f"{kind} {sorted(promising)}{seed()}"
    )
    chosen = moments(logged, chance, when) if isinstance(when, int) else when
    print(f"cuts behind the calls {chosen}")  # noqa: T201 - where a failure may be
    disk, place = logged.disk(), 0
    for at in chosen:
        for call in logged.calls[place:at]:
            disk.apply(call)
        place = at
        said = [mark for mark in logged.marks if mark.at < at]
        left = folder / f"cut-{at}"
        write_out(disk.after_cut(kind, chance), left)
        yield Cut(
            at=at,
            promised=max((mark.number for mark in said if mark.event in promising), default=0),
            begun=max((mark.number for mark in said), default=0),
            folder=left,
        )


def check_whole(cut: Cut) -> None:
    """Find a prefix with every promised operation, claim the shard, write, and find both again."""
    found = cut.state()
    length = oracle.prefix_length(found, cut.promised, cut.begun)
    table = cut.table()
    with table.start_job(shard=0, config=UNSYNCED) as job:
        live = oracle.state_of(table.scan(consistency="live", jobs=[job]).to_table())
        assert live == found, f"the job replays another state than that after {length} operations"
        assert oracle.apply(job, NEW_OPERATION)
    new = dict.fromkeys([oracle.HEAD, *oracle.ids_of(NEW_OPERATION)], NEW_OPERATION)
    assert cut.state() == found | new


def check_all(left: Iterable[Cut], check: Callable[[Cut], None] = check_whole) -> int:
    """Check every cut, several at once because most of the time is waiting; count them."""

    def check_and_remove(cut: Cut) -> None:
        check(cut)
        # A flush that the job began may still write.
        shutil.rmtree(cut.folder, ignore_errors=True)

    with ThreadPoolExecutor(4) as pool:
        return len(list(pool.map(check_and_remove, left)))
