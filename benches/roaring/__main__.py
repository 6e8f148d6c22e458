"""The roaring table of PIP-16: the crate `roaring`, CRoaring and the published Java figures.

`python -m benches.roaring [--max N] [--turns N] [--write]`. Both sides take turns, each with the
same numbers; figures are medians. Owns the rows and the table. Does not own the loops, which are
compiled: benches/roaring.rs and croaring.c.
"""

from __future__ import annotations

import argparse
import ctypes
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median

HERE = Path(__file__).parent
RESULTS = HERE.parent / "RESULTS-roaring.md"
STEPS = ("add", "serialize", "deserialize", "contains")
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

# Percent and max, then what Java took, in milliseconds: add, serialize, deserialize, contains.
JAVA: dict[tuple[int, int], tuple[float, float, float, float]] = {
    (20, 2_000_000): (43, 5, 26, 7),
    (50, 2_000_000): (47, 3, 52, 5),
    (80, 2_000_000): (57, 1, 24, 8),
    (20, 20_000_000): (450, 13, 247, 49),
    (50, 20_000_000): (629, 6, 222, 76),
    (80, 20_000_000): (1040, 5, 222, 121),
    (20, 200_000_000): (5079, 44, 2262, 442),
    (50, 200_000_000): (9469, 43, 2773, 1107),
    (80, 200_000_000): (13625, 38, 2233, 1799),
    (20, 2_000_000_000): (93753, 568, 22290, 5747),
    (50, 2_000_000_000): (166070, 679, 22339, 14735),
    (80, 2_000_000_000): (218233, 553, 22684, 26504),
}


@dataclass(frozen=True)
class Figures:
    """Milliseconds of each step, and what came out."""

    ms: tuple[float, ...]
    bytes: int
    values: int


class Library(ctypes.Structure):
    """CRoaring's functions, as croaring.c takes them."""

    _fields_ = [(name, ctypes.c_void_p) for name in FUNCTIONS]


class CRoaring:
    """The library inside pyroaring, behind the loops of croaring.c."""

    def __init__(self, folder: Path) -> None:
        """Compile the loops into `folder`."""
        import pyroaring  # noqa: PLC0415 - a peer, which only this bench needs

        compiled = folder / "croaring.so"
        compiler = shutil.which("cc") or "cc"
        source = str(HERE / "croaring.c")
        command = [compiler, "-O3", "-shared", "-fPIC", "-o", str(compiled), source]
        subprocess.run(command, check=True)  # noqa: S603 - our own program
        inner = ctypes.CDLL(pyroaring.__file__)
        addresses = [ctypes.cast(getattr(inner, name), ctypes.c_void_p) for name in FUNCTIONS]
        self._library = Library(*addresses)
        self._loops = ctypes.CDLL(str(compiled))

    def measure(self, percent: int, largest: int) -> Figures:
        """Run one row."""
        out = (ctypes.c_double * 6)()
        limits = ctypes.c_uint64(percent), ctypes.c_uint64(largest)
        failed = self._loops.measure(ctypes.byref(self._library), *limits, out)
        if failed:
            message = f"CRoaring failed at step {failed}"
            raise RuntimeError(message)
        return Figures(tuple(out[:4]), int(out[4]), int(out[5]))


def ours(percent: int, largest: int) -> Figures:
    """Run one row with the crate."""
    cargo = shutil.which("cargo") or "cargo"
    command = [cargo, "bench", "--quiet", "--workspace", "--bench", "roaring", "--"]
    row = [str(percent), str(largest)]
    done = subprocess.run([*command, *row], check=True, capture_output=True, text=True)  # noqa: S603
    line = next(line for line in done.stdout.splitlines() if line.startswith(" ".join(row)))
    numbers = line.split()[2:]
    return Figures(tuple(map(float, numbers[:4])), int(numbers[4]), int(numbers[5]))


def middle(turns: list[Figures]) -> Figures:
    """Give the median of each step; bytes and values are the same in every turn."""
    steps = tuple(median(turn.ms[step] for turn in turns) for step in range(len(STEPS)))
    return Figures(steps, turns[0].bytes, turns[0].values)


def rows(largest: int, turns: int) -> list[str]:
    """Measure every row of PIP-16 up to `largest`, and tell each as it is done."""
    lines = [
        "| rate / max | step | Java, ms | `roaring`, ms | CRoaring, ms | Java / ours | ours / C |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    sizes = ["| rate / max | bytes | without headers | 8 KiB x ceil(max / 65,536) |"]
    sizes.append("| --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        croaring = CRoaring(Path(folder))
        for (percent, most), java in JAVA.items():
            if most > largest:
                continue
            pairs = [(ours(percent, most), croaring.measure(percent, most)) for _ in range(turns)]
            rust, c = (middle([pair[side] for pair in pairs]) for side in (0, 1))
            if (rust.bytes, rust.values) != (c.bytes, c.values):
                message = f"{rust} and {c} are not the same bitmap"
                raise RuntimeError(message)
            name = f"{percent} % / {most:,}"
            for step, published in enumerate(java):
                us, them = rust.ms[step], c.ms[step]
                lines.append(
                    f"| {name} | {STEPS[step]} | {published:,} | {us:,.2f} | {them:,.2f} | "
                    f"{published / us:,.1f} | {us / them:.2f} |"
                )
                sys.stdout.write(f"{lines[-1]}\n")
                sys.stdout.flush()
            containers = -(-most // 65_536)
            bare = rust.bytes - 8 - 8 * containers
            sizes.append(f"| {name} | {rust.bytes:,} | {bare:,} | {containers * 8192:,} |")
    return [*lines, "", *sizes]


def main() -> None:
    """Print the table, and write it where that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--max", type=int, default=2_000_000_000, help="largest range")
    parser.add_argument("--turns", type=int, default=3, help="turns of each side")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    options = parser.parse_args()
    table = rows(options.max, options.turns)
    sys.stdout.write("\n".join(table) + "\n")
    if options.write:
        RESULTS.write_text("\n".join(["# Roaring bitmaps, the table of PIP-16", "", *table, ""]))


if __name__ == "__main__":
    main()
