"""CRoaring's side of the roaring table.

Owns: the library inside pyroaring behind the loops of croaring.c, and the process of each turn.
Does not own: the rows.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

FUNCTIONS = (
    "roaring_bitmap_create_with_capacity",
    "roaring_bitmap_add",
    "roaring_bitmap_contains",
    "roaring_bitmap_portable_size_in_bytes",
    "roaring_bitmap_portable_serialize",
    "roaring_bitmap_portable_deserialize_safe",
    "roaring_bitmap_get_cardinality",
    "roaring_bitmap_equals",
    "roaring_bitmap_free",
)


@dataclass(frozen=True)
class Figures:
    """Milliseconds of each step, and the results."""

    ms: tuple[float, ...]
    bytes: int
    values: int


class Library(ctypes.Structure):
    """CRoaring's functions, as croaring.c takes them."""

    _fields_ = [(name, ctypes.c_void_p) for name in FUNCTIONS]


def compile_loops(folder: Path) -> Path:
    """Compile croaring.c into `folder`."""
    compiled = folder / "croaring.so"
    compiler = shutil.which("cc") or "cc"
    source = str(Path(__file__).with_suffix(".c"))
    command = [compiler, "-O3", "-shared", "-fPIC", "-o", str(compiled), source]
    subprocess.run(command, check=True)  # noqa: S603 - our own program
    return compiled


def croaring(compiled: Path, percent: int, largest: int) -> Figures:
    """Run one row with the library inside pyroaring, in a new process as the other side is."""
    with ProcessPoolExecutor(1, get_context("spawn")) as child:
        return child.submit(_croaring_here, compiled, percent, largest).result()


def _croaring_here(compiled: Path, percent: int, largest: int) -> Figures:
    import pyroaring  # noqa: PLC0415 - a peer, which only this bench needs

    inner = ctypes.CDLL(pyroaring.__file__)
    addresses = [ctypes.cast(getattr(inner, name), ctypes.c_void_p) for name in FUNCTIONS]
    library = Library(*addresses)
    out = (ctypes.c_double * 6)()
    limits = ctypes.c_uint64(percent), ctypes.c_uint64(largest)
    failed = ctypes.CDLL(str(compiled)).measure(ctypes.byref(library), *limits, out)
    if failed:
        message = f"CRoaring failed at step {failed}"
        raise RuntimeError(message)
    return Figures(tuple(out[:4]), int(out[4]), int(out[5]))
