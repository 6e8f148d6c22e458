"""The log of `syscalls.c` as Python values.

Owns: the records of calls, and the events that a child prints among them. Does not own: the effect
of a call on a disk (`disk`), or running the child (`children`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath

MARKS = "marks"


@dataclass(frozen=True)
class Call:
    """One call; its index in the list is its sequence number."""

    thread: int
    name: str
    inode: int
    offset: int
    path: PurePosixPath
    data: bytes


@dataclass(frozen=True)
class Mark:
    """An event that the child printed, such as `ack 3`, and the call that follows it."""

    at: int
    event: str
    number: int


def read_calls(log: Path, root: Path) -> list[Call]:
    """Parse a log; paths become relative to `root`. A truncated record is left out."""
    stored, place, calls = log.read_bytes(), 0, []
    while (end := stored.find(b"\n", place)) != -1:
        thread, name, inode, offset, length, path = stored[place:end].decode().split("\t")
        place = end + 1 + int(length)
        relative = PurePosixPath(path).relative_to(root)
        data = stored[end + 1 : place]
        calls.append(Call(int(thread), name, int(inode), int(offset), relative, data))
    return calls


def marks_of(calls: list[Call]) -> list[Mark]:
    """Find the events of the child and their places."""
    found = []
    for at, call in enumerate(calls):
        if call.name == "write" and call.path.name == MARKS:
            event, number = call.data.decode().split()
            found.append(Mark(at, event, int(number)))
    return found


def between(calls: list[Call], marks: list[Mark], number: int) -> list[Call]:
    """Return the calls from the start of an operation to its acknowledgement."""
    start, end = (
        next(mark.at for mark in marks if mark.number == number and mark.event in events)
        for events in ({"start"}, {"ack", "took"})
    )
    return [call for call in calls[start:end] if call.path.name != MARKS]
