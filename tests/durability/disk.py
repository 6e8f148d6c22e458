"""A disk that loses its power.

Owns: which names and bytes are certainly on disk after a log of calls, and the states that a power
cut may leave. The rules are POSIX's, stricter than any one file system: bytes are on disk after a
sync of their file, a name after a sync of its folder. Does not own: whether a table survives a
power cut.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import random
    from pathlib import Path, PurePosixPath

    from .calls import Call

SECTOR_BYTES = 512

# The fate of unsynced names and bytes. `missing`: neither reached the disk. `empty`, `zeros`,
# `sector`: every name reached the disk, and of the bytes nothing, zeros or the first sector.
# `mixed`: each name and each file at random.
CUTS = ("missing", "empty", "zeros", "sector", "mixed")


@dataclass(eq=False)
class File:
    """A file's bytes now and at its last sync."""

    now: bytearray = field(default_factory=bytearray)
    synced: bytes | None = None

    def after_cut(self, kind: str) -> bytes:
        """Return the bytes that a power cut leaves."""
        synced = b"" if self.synced is None else self.synced
        lost = bytes(self.now[len(synced) :])
        if kind == "zeros":
            return synced + bytes(len(lost))
        if kind == "sector":
            return synced + lost[: SECTOR_BYTES - len(synced) % SECTOR_BYTES]
        return synced


@dataclass(eq=False)
class Folder:
    """A folder's names now and at its last sync."""

    now: dict[str, Node] = field(default_factory=dict)
    synced: dict[str, Node] = field(default_factory=dict)


Node: TypeAlias = File | Folder


class Disk:
    """The state after a log of calls, call by call, from a few empty folders."""

    def __init__(self, *folders: str) -> None:
        empty: dict[str, Node] = {name: Folder() for name in folders}
        self.root = Folder(empty, dict(empty))
        self._by_inode: dict[int, Node] = {}
        self._syncing: dict[int, tuple[Node, bytes | dict[str, Node]]] = {}

    def apply(self, call: Call) -> None:
        """Apply one call."""
        match call.name:
            case "create" | "mkdir" | "unnamed":
                self._make(call)
            case "write":
                now = self._file(call).now
                now.extend(bytes(max(0, call.offset - len(now))))
                now[call.offset : call.offset + len(call.data)] = call.data
            case "truncate":
                now = self._file(call).now
                now[call.offset :] = bytes(max(0, call.offset - len(now)))
            case "link":
                self._parent(call.path).now[call.path.name] = self._by_inode[call.inode]
            case "unlink":
                self._parent(call.path).now.pop(call.path.name, None)
            case "sync":
                node = self._node(call)
                state = bytes(node.now) if isinstance(node, File) else dict(node.now)
                self._syncing[call.thread] = (node, state)
            case "synced":
                self._end_sync(call)
            case "look" | "open":
                pass
            case other:
                raise AssertionError(f"an unknown call: {other}")

    def _make(self, call: Call) -> None:
        made = Folder() if call.name == "mkdir" else File()
        if call.name != "unnamed":
            made = self._parent(call.path).now.setdefault(call.path.name, made)
        self._by_inode[call.inode] = made

    def after_cut(self, kind: str, chance: random.Random) -> dict[str, bytes | None]:
        """Return the files, by path, that a power cut leaves now; None stands for a folder."""
        left: dict[str, bytes | None] = {}
        self._walk(self.root, "", kind, chance, left)
        return left

    def now(self) -> dict[str, bytes | None]:
        """Return the files, by path, as the process saw them."""
        left: dict[str, bytes | None] = {}
        waiting = [("", self.root)]
        while waiting:
            prefix, folder = waiting.pop()
            for name, node in folder.now.items():
                if isinstance(node, Folder):
                    left[prefix + name] = None
                    waiting.append((f"{prefix}{name}/", node))
                else:
                    left[prefix + name] = bytes(node.now)
        return left

    def _walk(
        self,
        folder: Folder,
        prefix: str,
        kind: str,
        chance: random.Random,
        left: dict[str, bytes | None],
    ) -> None:
        names = folder.synced if kind == "missing" else folder.now
        if kind == "mixed":
            every = sorted({*folder.synced, *folder.now})
            sides = {name: chance.choice([folder.synced, folder.now]) for name in every}
            names = {name: side[name] for name, side in sides.items() if name in side}
        for name, node in names.items():
            if isinstance(node, Folder):
                left[prefix + name] = None
                self._walk(node, f"{prefix}{name}/", kind, chance, left)
            else:
                how = chance.choice(CUTS[:-1]) if kind == "mixed" else kind
                left[prefix + name] = node.after_cut(how)

    def _end_sync(self, call: Call) -> None:
        match self._syncing.pop(call.thread):
            case (File() as file, bytes() as state):
                file.synced = state
            case (Folder() as folder, dict() as names):
                folder.synced = names

    def _parent(self, path: PurePosixPath) -> Folder:
        """Find the folder of a name. Another thread's record of its creation may come later."""
        folder = self.root
        for name in path.parts[:-1]:
            node = folder.now.setdefault(name, Folder())
            assert isinstance(node, Folder), f"{path} lies below a file"
            folder = node
        return folder

    def _node(self, call: Call) -> Node:
        if not call.path.parts:
            return self.root
        node = self._parent(call.path).now.get(call.path.name)
        return self._by_inode[call.inode] if node is None else node

    def _file(self, call: Call) -> File:
        node = self._by_inode.get(call.inode)
        assert isinstance(node, File), f"{call.path} is written but was never created"
        return node


def write_out(files: dict[str, bytes | None], folder: Path) -> None:
    """Write the files that a power cut left."""
    folder.mkdir(parents=True)
    for name, data in files.items():
        path = folder / name
        if data is None:
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


def read_back(folder: Path) -> dict[str, bytes | None]:
    """Read a real folder in the form of `Disk.now`."""
    return {
        str(path.relative_to(folder)): None if path.is_dir() else path.read_bytes()
        for path in folder.rglob("*")
    }
