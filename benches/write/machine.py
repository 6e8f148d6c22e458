"""The environment of a result.

Owns: the facts of machine, commit and versions that the report names. Names no host and no path.
Does not own: the report.
"""

from __future__ import annotations

import mmap
import os
import platform
import subprocess
import time
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import lancemem._lancemem

PACKAGES = ("lancemem", "pylance", "rocksdict", "slatedb", "deltalake", "pyarrow")


def machine(folder: Path) -> dict[str, str]:
    """Describe the machine and the file system that holds `folder`."""
    model = next(
        (line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if "model name" in line),
        platform.processor() or "unknown",
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    return {
        "cpu": model,
        "cores": str(os.cpu_count()),
        "memory": f"{memory:.0f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "file system": _file_system(folder.resolve()),
        "Python": platform.python_version(),
    }


def measured(facts: dict[str, str]) -> list[str]:
    """Return commit, time and machine: the lines of a page below its text."""
    state = f"load of the machine {load()}, new memory at {new_memory()}"
    return [f"Commit {commit()}, {now()}, {state}.", "", *table(facts)]


def new_memory() -> str:
    """Return how fast a process gets new memory: the host of a virtual machine may bound it."""
    size = 256 << 20
    begun = time.perf_counter()
    with mmap.mmap(-1, size) as memory:
        for place in range(0, size, mmap.PAGESIZE):
            memory[place] = 1
    return f"{size / 1e9 / (time.perf_counter() - begun):.1f} GB/s"


def table(facts: dict[str, str]) -> list[str]:
    """Put facts of a machine into a table, a line each."""
    rows = (f"| {name} | {value} |" for name, value in facts.items())
    return ["| machine | |", "| --- | --- |", *rows]


def now() -> str:
    """Return the time, to the minute."""
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"


def load() -> str:
    """Return the load of the machine, in runnable threads of the last minute."""
    return f"{os.getloadavg()[0]:.1f}"


def versions() -> dict[str, str]:
    """Name the version of every engine."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def commit() -> str:
    """Return the commit, and whether the tree differs from it in the sources."""
    head = _git("rev-parse", "--short=12", "HEAD") or "unknown"
    changed = _git(
        "status", "--porcelain", "--untracked-files=no", "--", "rust", "Cargo.toml", "Cargo.lock"
    )
    notes = [" with changes in rust/"] if changed else []
    if _module_is_older():
        notes.append(", but the module is older than the sources")
    return head + "".join(notes)


def _module_is_older() -> bool:
    """Whether the module was built before the newest Rust source was written."""
    module = lancemem._lancemem.__file__  # noqa: SLF001 - the file is asked for, nothing in it
    sources = Path(__file__).parents[2].glob("rust/*/src/**/*.rs")
    newest = max((source.stat().st_mtime for source in sources), default=0.0)
    return Path(module).stat().st_mtime < newest


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(Path(__file__).parent.parent.parent), *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603
    return done.stdout.strip()


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def _file_system(folder: Path) -> str:
    """Find the mount point that is the longest prefix."""
    best, kind = "", "unknown"
    for line in _lines("/proc/mounts"):
        _, point, found = line.split()[:3]
        if folder.is_relative_to(point) and len(point) >= len(best):
            best, kind = point, found
    return kind
