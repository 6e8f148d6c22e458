"""Fixtures of the durability tests: preloaded libraries, and a folder in memory."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


def compiled(name: str, folder: Path) -> Path:
    """Compile a library of this folder. On Linux a missing C compiler is a failure."""
    if sys.platform != "linux":
        pytest.skip("LD_PRELOAD and /proc are Linux's")
    library, source = folder / f"{name}.so", Path(__file__).with_name(f"{name}.c")
    flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror"]
    command = ["cc", *flags, "-o", str(library), str(source), "-ldl", "-lpthread"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)  # noqa: S603
    assert done.returncode == 0, done.stderr
    return library


@pytest.fixture(scope="session")
def syscalls_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile `syscalls.c`."""
    return compiled("syscalls", tmp_path_factory.mktemp("syscalls"))


def has_unnamed_files(folder: Path) -> bool:
    """Return whether the file system has files without a name (`O_TMPFILE`)."""
    try:
        os.close(os.open(folder, os.O_TMPFILE | os.O_WRONLY))
    except OSError:
        return False
    return True


@pytest.fixture
def ram_path() -> Iterator[Path]:
    """Return a folder in memory, if there is one: a thousand tables are written and removed."""
    memory = Path("/dev/shm")  # noqa: S108 - the name of every Linux
    usable = memory.is_dir() and os.access(memory, os.W_OK)
    with tempfile.TemporaryDirectory(
        dir=memory if usable else None, ignore_cleanup_errors=True
    ) as folder:
        yield Path(folder)
