"""The roaring table of PIP-16: the crate `roaring`, CRoaring and the published Java figures.

`python -m benches.roaring [--max N] [--turns N]`. Both sides take turns, each with the same numbers
in a process of its own; figures are medians. A turn of the largest rows takes minutes, so they have
fewer.

Owns: the rows and the table.
Does not own: the loops, which are compiled (benches/roaring.rs, croaring.c).
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from benches.roaring.croaring import Figures, compile_loops, croaring
from benches.write.machine import machine, measured

HERE = Path(__file__).parent
RESULTS = HERE.parent / "RESULTS-roaring.md"
STEPS = ("add", "serialize", "deserialize", "contains")
LARGEST = 2_000_000_000
# Rows of more positions than the first have three turns, of more than the second one.
MANY = 20_000_000
MOST = 200_000_000

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
        loops = compile_loops(Path(folder))
        for (percent, most), java in JAVA.items():
            if most > largest:
                continue
            times = turns if most <= MANY else min(turns, 3 if most <= MOST else 1)
            pairs = [(ours(percent, most), croaring(loops, percent, most)) for _ in range(times)]
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


def heading(turns: int) -> list[str]:
    """Say what was measured, where and when."""
    return [
        "# Roaring bitmaps, the table of PIP-16",
        "",
        "Written by `make bench-roaring`; do not edit. Numbers come at random, so `add` and",
        "`contains` measure the memory of the machine as much as the library. The Java figures are",
        f"those that PIP-16 published, of another machine. {turns} turns of each side, three above",
        f"{MANY:,} positions and one above {MOST:,}; each turn in a process of its own, which",
        "serializes and deserializes five times, each into fresh memory, and counts the median.",
        "",
        *measured(machine(HERE)),
    ]


def main() -> None:
    """Print the table; the whole of it becomes the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--max", type=int, default=LARGEST, help="largest range; writes no page")
    parser.add_argument("--turns", type=int, default=9, help="turns of each side")
    options = parser.parse_args()
    head = heading(options.turns)
    table = rows(options.max, options.turns)
    sys.stdout.write("\n".join(table) + "\n")
    if options.max >= LARGEST:
        RESULTS.write_text("\n".join([*head, "", *table, ""]))


if __name__ == "__main__":
    main()
