"""Installs the wheel of a folder into an empty environment, and runs README's blocks there.

Owns: the wheel's name, files and size; an environment with no compiler and no cargo on its PATH.
Does not own: the wheel (`scripts/build_module.sh --wheel`), or the blocks (`code_blocks`).

    python scripts/check_wheel.py dist
"""

from __future__ import annotations

import argparse
import os
import re
import struct
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
RUNNER = ROOT / "scripts" / "code_blocks.py"
# PEP 600 names the oldest glibc; macOS its oldest release. A plain `linux` tag fits one machine.
NAME = re.compile(r"lancemem-[\d.]+-cp311-abi3-(manylinux_2_\d+|macosx_\d+_\d+)_[\w.]+\.whl")
MODULE = "lancemem/_lancemem.abi3.so"
# The type of a symbol table that only debuggers read (ELF, SHT_SYMTAB).
SYMTAB = 2
# README's first block takes a DataFrame; lancemem itself does not depend on pandas.
README_IMPORTS = ["pandas"]
# Variables of pip and of the network; the rest of the caller's environment stays outside.
KEPT = re.compile(r"PIP_\w+|\w*(proxy|PROXY)|(SSL|REQUESTS)_\w+|LANG|LC_\w+|TMPDIR|HOME")

USE = """
import pathlib, sys, tempfile
import lancemem
assert pathlib.Path(lancemem.__file__).is_relative_to(sys.prefix), lancemem.__file__
with tempfile.TemporaryDirectory() as folder:
    rows = [{"id": 1, "name": "Ada"}, {"id": 2, "name": "Grace"}]
    table = lancemem.create_table(folder + "/t.lance", rows, primary_key="id")
    table.upsert([{"id": 2, "name": "Grace Hopper"}])
    table.compact(flush=True)
    assert table.to_table().sort_by("id")["name"].to_pylist() == ["Ada", "Grace Hopper"]
"""


def the_wheel(folder: Path) -> Path:
    """Return the one wheel of a folder, after a look at its name."""
    wheels = sorted(folder.glob("*.whl"))
    if len(wheels) != 1:
        sys.exit(f"{folder} has {len(wheels)} wheels, and this checks one: make wheel")
    if not NAME.fullmatch(wheels[0].name):
        sys.exit(f"{wheels[0].name} fits this machine alone: auditwheel found no manylinux tag")
    return wheels[0]


def check_files(wheel: Path) -> None:
    """Compare the files of a wheel with what a user needs; print its size."""
    with zipfile.ZipFile(wheel) as archive:
        sizes = {entry.filename: entry.file_size for entry in archive.infolist()}
    needed = [MODULE, "lancemem/_lancemem.pyi", "lancemem/py.typed", "pyspark_lancemem/__init__.py"]
    missing = [name for name in needed if name not in sizes]
    if missing:
        sys.exit(f"{wheel.name} lacks {', '.join(missing)}")
    extra = [
        name
        for name in sizes
        if name.endswith(".pyc") or (re.search(r"\.(so|dylib)(\.|$)", name) and name != MODULE)
    ]
    if extra:
        sys.exit(f"{wheel.name} has {', '.join(extra)}, which no user needs")
    packed, module = wheel.stat().st_size, sizes[MODULE]
    print(f"{wheel.name}: {packed / 1e6:.0f} MB, its module {module / 1e6:.0f} MB")


def check_symbols(wheel: Path) -> None:
    """Fail where the module of a Linux wheel still has its symbol table."""
    with zipfile.ZipFile(wheel) as archive:
        module = archive.read(MODULE)
    if module.startswith(b"\x7fELF") and SYMTAB in section_types(module):
        sys.exit(f"{wheel.name}: the module has a symbol table; maturin build --strip removes it")


def section_types(elf: bytes) -> set[int]:
    """Return the types of the sections of an ELF file of 64 bits, the lowest byte first."""
    (start,) = struct.unpack_from("<Q", elf, 40)
    size, number = struct.unpack_from("<HH", elf, 58)
    return {struct.unpack_from("<I", elf, start + size * at + 4)[0] for at in range(number)}


def check_use(wheel: Path, page: Path) -> None:
    """Install a wheel with its dependencies alone, use it, then run a page's blocks."""
    with tempfile.TemporaryDirectory() as place:
        home = Path(place, "venv")
        venv.create(home, with_pip=True, symlinks=True)
        kept = {name: value for name, value in os.environ.items() if KEPT.fullmatch(name)}
        environment = {**kept, "PATH": str(home / "bin")}

        def python(*arguments: str) -> None:
            command = [str(home / "bin" / "python"), "-I", *arguments]
            subprocess.run(command, check=True, env=environment, cwd=place)  # noqa: S603

        install = ["-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"]
        python(*install, "--only-binary", ":all:", str(wheel))
        python("-c", USE)
        python(*install, "--only-binary", ":all:", *README_IMPORTS)
        python(str(RUNNER), str(page), "--skip", "PySpark")


def main() -> None:
    """Check the wheel of a folder."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", default=ROOT / "dist")
    wheel = the_wheel(parser.parse_args().folder.resolve())
    check_files(wheel)
    check_symbols(wheel)
    check_use(wheel, ROOT / "README.md")
    print(f"{wheel.name}: installed and used in an empty environment")


if __name__ == "__main__":
    main()
