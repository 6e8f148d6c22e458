"""The program of a child that lacks a resource: space, write permission, handles, right time.

Owns: the stories, each with the state that has to be read before, during and after. The library of
`shortage.c` is loaded into this process and withholds a resource on request. Does not own: starting
the child (test_shortage).
"""

from __future__ import annotations

import ctypes
import errno
import itertools
import os
import random
import resource
import sys
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

import lancemem
from tests import seeds

from . import oracle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

YEAR_SECONDS = 365 * 24 * 3600
ROUNDS = 8
# More operations than fit under any of the shortages.
MANY = 60
MAX_BYTES = 6_000
# Bytes that are too few for a flush or a compaction, and how often they are chosen beside draws.
FEW_BYTES = 300
TIGHT_ROUNDS = 4
NO_SPACE, READ_ONLY, NO_HANDLES = map(os.strerror, (errno.ENOSPC, errno.EROFS, errno.EMFILE))
SMALL = lancemem.WriterConfig(max_memtable_rows=40)


def says(error: lancemem.LancememError, reason: str) -> None:
    """Check that the text of an error has the reason."""
    assert reason in str(error), repr(error)


class Library:
    """The functions of `shortage.c`."""

    def __init__(self) -> None:
        self.calls = ctypes.CDLL(None)
        self.calls.shortage_begin.argtypes = [ctypes.c_int, ctypes.c_long]
        self.calls.shortage_count.restype = ctypes.c_long
        self.calls.clock_jump.argtypes = [ctypes.c_long]
        self.calls.clock_count.restype = ctypes.c_long
        # The number of shortages, and the number of shortages that made a call fail.
        self.shortages = self.noticed = 0

    @contextmanager
    def shortage(self, number: int, left: int = 0) -> Iterator[None]:
        """Let every write after `left` bytes fail."""
        self.calls.shortage_begin(number, left)
        try:
            yield
        finally:
            self.shortages += 1
            self.noticed += self.calls.shortage_count() > 0
            self.calls.shortage_end()

    def jump(self, seconds: int) -> None:
        """Shift the clock."""
        self.calls.clock_jump(seconds)

    def told_wrong(self) -> int:
        """Count how often a wrong time was returned since the clock jumped."""
        count: int = self.calls.clock_count()
        return count


class Story:
    """A table, a job and how many operations survived."""

    def __init__(self, uri: str) -> None:
        self.library = Library()
        self.table = lancemem.create_table(uri, oracle.SCHEMA, primary_key="id")
        self.chance = random.Random(os.environ[seeds.VARIABLE])  # noqa: S311 - a kept seed
        self.done = 0
        self.job = self.table.start_job(shard=0, config=SMALL)

    def operate(self, count: int) -> None:
        """Do operations without a shortage."""
        for _ in range(count):
            assert oracle.apply(self.job, self.done + 1)
            self.done += 1

    def operate_until_refused(self, reason: str) -> None:
        """Go on until an operation fails. It may be there or not; all before it are there."""
        acknowledged = self.done
        try:
            for _ in range(MANY):
                self.done += 1
                oracle.apply(self.job, self.done)
                acknowledged = self.done
        except (lancemem.RetryableError, lancemem.JobStoppedError) as error:
            says(error, reason)
        self.done = self.survivors(acknowledged)

    def survivors(self, at_least: int) -> int:
        """Read, and return how many operations are there."""
        found = oracle.state_of(self.table.scan().to_table())
        return oracle.prefix_length(found, at_least, self.done)

    def check(self) -> None:
        """Compare the reads of this handle and of a new one."""
        assert self.survivors(self.done) == self.done
        fresh = oracle.state_of(lancemem.open_table(self.table.uri).scan().to_table())
        assert fresh == oracle.states(self.done)[-1]

    def restart(self) -> None:
        """Start a job again, as a program does after an error."""
        self.job = self.table.start_job(shard=0, config=SMALL)
        self.check()

    def bytes_left(self, turn: int) -> int:
        """Draw how many bytes fit on the disk: at first too few for any write."""
        return self.chance.randrange(FEW_BYTES if turn < TIGHT_ROUNDS else MAX_BYTES)

    def fails(self, call: Callable[[], object], reason: str) -> bool:
        """Return whether a call fails; its error has to have the reason."""
        try:
            call()
        except lancemem.LancememError as error:
            says(error, reason)
            return True
        return False

    def refused(self, call: Callable[[], object], reason: str) -> None:
        """Check that a call fails with the reason."""
        assert self.fails(call, reason), "it was not refused"


def puts_on_a_full_disk(story: Story) -> None:
    """Puts fail, are read or not, and go on when there is space again."""
    for _ in range(ROUNDS):
        story.operate(5)
        with story.library.shortage(errno.ENOSPC, story.chance.randrange(MAX_BYTES)):
            story.operate_until_refused(NO_SPACE)
        story.restart()
    story.operate(5)
    story.check()


def flushes_on_a_full_disk(story: Story) -> None:
    """A flush fails, its rows stay readable, and the next flush takes them."""
    failures = 0
    for turn in range(TIGHT_ROUNDS + ROUNDS):
        story.operate(3)
        with story.library.shortage(errno.ENOSPC, story.bytes_left(turn)):
            failures += story.fails(story.job.flush, NO_SPACE)
            story.check()
        story.restart()
        story.operate(1)
        story.job.flush()
        story.check()
    assert failures > 0


def compactions_on_a_full_disk(story: Story) -> None:
    """A compaction fails, every read is the same, and the next one does it."""
    failures = 0
    for turn in range(TIGHT_ROUNDS + ROUNDS):
        story.operate(7)
        story.job.flush()
        with story.library.shortage(errno.ENOSPC, story.bytes_left(turn)):
            failures += story.fails(story.table.compact, NO_SPACE)
            story.check()
        story.table.compact()
        story.check()
        assert story.table.stats().num_sstables == 0
    # Steps that fail after the commit are done by the next compaction.
    assert failures > 0


def a_folder_that_became_read_only(story: Story) -> None:
    """Reads succeed, writes fail with the reason; then writes succeed again."""
    story.operate(9)
    story.job.flush()
    story.operate(3)
    with story.library.shortage(errno.EROFS):
        story.check()
        keys = pa.table({"id": [oracle.HEAD]}, schema=pa.schema([oracle.SCHEMA.field("id")]))
        head = oracle.states(story.done)[-1][oracle.HEAD]
        assert story.table.get(keys).column("value").to_pylist() == [head]
        story.refused(story.table.compact, READ_ONLY)
        story.operate_until_refused(READ_ONLY)
        story.refused(lambda: story.table.start_job(shard=0), READ_ONLY)
        story.check()
    story.restart()
    story.operate(5)
    assert story.table.compact().num_generations > 0
    story.check()


def no_more_handles(story: Story) -> None:
    """With few or no handles left calls fail with the reason; with handles again they work."""
    story.operate(5)
    story.check()
    story.table.compact()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    failures = 0
    for spare in range(ROUNDS):
        story.operate(2)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit_with(spare // 3), hard))
        calls: list[Callable[[], object]] = [
            story.table.compact,
            story.job.flush,
            lambda: oracle.apply(story.job, story.done + 1),
            lambda: lancemem.open_table(story.table.uri).scan().to_table(),
        ]
        try:
            failures += sum(story.fails(call, NO_HANDLES) for call in calls)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        story.done = story.done + 1
        story.done = story.survivors(story.done - 1)
        story.restart()
    assert failures > ROUNDS // 2
    story.check()


def limit_with(spare: int) -> int:
    """Return the limit on handle numbers that leaves so many handles."""
    used = {int(entry.name) for entry in Path("/proc/self/fd").iterdir()}
    free = (number for number in itertools.count() if number not in used)
    return next(itertools.islice(free, spare, None))


def a_clock_that_jumps(story: Story) -> None:
    """The clock jumps by years, forward and back: no row is lost, and a snapshot stays."""
    for years in (1, -3, 0, 20, -20, 0):
        story.library.jump(years * YEAR_SECONDS)
        snapshot = story.table.snapshot()
        before = oracle.state_of(snapshot.scan().to_table())
        story.operate(7)
        story.job.flush()
        story.operate(3)
        story.check()
        story.table.compact()
        if years == 0:
            story.table.collect_garbage()
        else:
            refuses_to_collect(story)
        story.check()
        assert oracle.state_of(snapshot.scan().to_table()) == before
        # Where no wrong time is returned, this story proves nothing.
        assert (story.library.told_wrong() > 0) == (years != 0)
        story.restart()


def refuses_to_collect(story: Story) -> None:
    """Check that a collector whose clock is wrong removes nothing."""
    files = set(Path(story.table.uri).rglob("*"))
    collect = partial(story.table.collect_garbage, older_than=timedelta(0))
    story.refused(collect, "the clock of this process is")
    assert files <= set(Path(story.table.uri).rglob("*"))


def a_collector_whose_clock_is_wrong(story: Story) -> None:
    """Ahead or behind: a fence sentinel of the last minute never counts as a week old."""
    for hours in (2, 24, 7 * 24):
        for sign in (1, -1):
            story.job.close()
            # Claims the shard, and so fences the writer before.
            story.restart()
            story.operate(5)
            story.job.flush()
            story.table.compact()
            story.library.jump(sign * hours * 3600)
            refuses_to_collect(story)
            assert story.library.told_wrong() > 0
            story.library.jump(0)
            assert story.table.collect_garbage(older_than=timedelta(0)).garbage
            story.check()


STORIES = {
    story.__name__: story
    for story in (
        puts_on_a_full_disk,
        flushes_on_a_full_disk,
        compactions_on_a_full_disk,
        a_folder_that_became_read_only,
        no_more_handles,
        a_clock_that_jumps,
        a_collector_whose_clock_is_wrong,
    )
}

if __name__ == "__main__":
    told = Story(sys.argv[2])
    STORIES[sys.argv[1]](told)
    # The bytes that are left are sometimes enough.
    assert told.library.noticed >= told.library.shortages / 3, "too few calls were refused"
