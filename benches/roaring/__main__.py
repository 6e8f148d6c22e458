"""The roaring table of PIP-16: the crate `roaring`, CRoaring and the published Java figures.

`python -m benches.roaring [--rows PERCENT/MAX ..] [--turns N]`. Both sides take turns, each with
the same numbers in a process of its own; figures are medians. A turn of the largest rows takes
minutes, so they have fewer. A row that was measured is in the page at once; rows that are not named
stay in it.

Owns: the rows and their turns.
Does not own: the loops, which are compiled (benches/roaring.rs, croaring.c), or the page.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from benches import pages
from benches.roaring.croaring import Figures, compile_loops, croaring
from benches.roaring.page import RESULTS, Page, lines_of

# Rows of more positions have fewer turns: at most three, and one.
THREE_TURNS_ABOVE = 20_000_000
ONE_TURN_ABOVE = 200_000_000

# Percent and max, then Java's milliseconds: add, serialize, deserialize, contains.
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
    steps = tuple(median(turn.ms[step] for turn in turns) for step in range(len(turns[0].ms)))
    return Figures(steps, turns[0].bytes, turns[0].values)


def measure(loops: Path, percent: int, most: int, turns: int) -> tuple[Figures, Figures]:
    """Measure one row of PIP-16 on both sides, which must make the same bitmap."""
    pairs = [(ours(percent, most), croaring(loops, percent, most)) for _ in range(turns)]
    rust, c = (middle([pair[side] for pair in pairs]) for side in (0, 1))
    if (rust.bytes, rust.values) != (c.bytes, c.values):
        message = f"{rust} and {c} are not the same bitmap"
        raise RuntimeError(message)
    return rust, c


def turns_of(most: int, wanted: int) -> int:
    """Return how many turns a row of so many positions has."""
    if most <= THREE_TURNS_ABOVE:
        return wanted
    return min(wanted, 3 if most <= ONE_TURN_ABOVE else 1)


def named(text: str) -> tuple[int, int]:
    """Read a row's name, such as 20/2000000."""
    percent, _, most = text.partition("/")
    if not (percent.isdecimal() and most.isdecimal() and (int(percent), int(most)) in JAVA):
        known = ", ".join(f"{row[0]}/{row[1]}" for row in JAVA)
        message = f"{text} is no row of PIP-16; these are: {known}"
        raise argparse.ArgumentTypeError(message)
    return int(percent), int(most)


def main() -> None:
    """Measure row by row, and print each as it is done."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=named, nargs="+", metavar="PERCENT/MAX", default=list(JAVA))
    parser.add_argument("--turns", type=int, default=9, help="turns of each side")
    pages.add_option(parser)
    options = parser.parse_args()
    page = Page(list(JAVA), pages.place(RESULTS, options.results))
    with tempfile.TemporaryDirectory() as folder:
        loops = compile_loops(Path(folder))
        for percent, most in options.rows:
            turns = turns_of(most, options.turns)
            sides = measure(loops, percent, most, turns)
            lines = lines_of((percent, most), JAVA[percent, most], sides, turns)
            sys.stdout.write("\n".join([*lines, ""]))
            sys.stdout.flush()
            page.put((percent, most), lines)


if __name__ == "__main__":
    main()
