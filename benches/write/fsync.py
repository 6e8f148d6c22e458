"""Processes of one side, with their calls of fsync counted.

Owns: the shim (`fsync_count.c`, compiled at run time and preloaded) and the start of a child.
Does not own: what a child does (`children`).
"""

from __future__ import annotations

import json
import mmap
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

VARIABLE = "FSYNC_COUNT_FILE"
SOURCE = Path(__file__).with_name("fsync_count.c")
ROOT = Path(__file__).parents[2]
# Seconds after which a child is killed: no bench may hang.
MAX_SECONDS = 120


def build_shim(folder: Path) -> Path | None:
    """Compile the shim, or print that calls will not be counted."""
    compiler = shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        print("no C compiler, or not Linux: fsync is not counted")
        return None
    shim = folder / "fsync_count.so"
    command = [compiler, "-O2", "-shared", "-fPIC", "-o", str(shim), str(SOURCE), "-ldl"]
    subprocess.run(command, check=True)  # noqa: S603 - the compiler, on a file of ours
    return shim


def run_child(folder: Path, role: str, **options: Any) -> dict[str, Any]:  # noqa: ANN401
    """Run one role of `children` in its own process; return its last line of output."""
    environment = dict(os.environ)
    shim = folder.parent / "fsync_count.so"
    if not shim.exists():
        build_shim(folder.parent)
    if shim.exists():
        counter = folder / "fsyncs"
        counter.write_bytes(bytes(8))
        environment |= {"LD_PRELOAD": str(shim), VARIABLE: str(counter)}
    command = [sys.executable, "-m", "benches.write.children", role]
    done = subprocess.run(  # noqa: S603 - a module of ours
        [*command, json.dumps({"folder": str(folder), **options})],
        check=False,
        timeout=MAX_SECONDS,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{role} failed ({done.returncode}):\n{done.stdout}{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


class Counter:
    """The counter of this process; counts nothing where there is no shim."""

    def __init__(self) -> None:
        path = os.environ.get(VARIABLE)
        self._page: mmap.mmap | None = None
        if path is not None:
            with Path(path).open("r+b") as file:
                self._page = mmap.mmap(file.fileno(), 8)

    @property
    def counts(self) -> bool:
        """Whether there is a shim."""
        return self._page is not None

    def read(self) -> int:
        """Read the calls since the process began, or -1."""
        if self._page is None:
            return -1
        (calls,) = struct.unpack("=Q", self._page[:8])
        return int(calls)
