"""Run the cases and write benches/RESULTS-spark.md.

Owns the command line, the session and the report. Does not own the measurements (`cases`).
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from benches import pages
from benches.spark import cases, engines, files, merge_peers, peers, picture
from benches.write.machine import commit, load, machine
from lancemem.spark import configure

if TYPE_CHECKING:
    from collections.abc import Collection

HERE = {**cases.CASES, "files": files.measure}
NAMES = [*HERE, *peers.cases(1), *merge_peers.cases(1)]
ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benches" / "RESULTS-spark.md"
OUT = ROOT / "out" / "bench-spark"

MERGED = (
    "Each engine runs as above; a table has a key and four columns. After the batches the number",
    "and the hash of its rows are compared with those of the same rows folded in plain Spark.",
    "Other rows fail the bench. `write` is the time of all batches after the first load, `read`",
    "the time of one read of all rows and columns after the last batch, and `on disk` the size of",
    "all files of the table after the read. In brackets are the least and the greatest round; a",
    "ratio is the median of the ratios of the rounds.",
    "",
    "lancemem, Paimon and Hudi merge when they read, Delta when it writes. Hudi adds up when it",
    "writes, because its `MERGE INTO` refuses `t.n + s.n` for merge on read. For Paimon a null is",
    "a column that is not given. An event out of order is up to ten micro-batches late, at random.",
)


def session(folder: Path) -> SparkSession:
    """Start Spark on two cores, quietly."""
    builder = configure(SparkSession.builder.master("local[2]").appName("lancemem bench"))
    settings = {
        **engines.QUIET,
        "spark.driver.memory": "3g",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.shuffle.partitions": "2",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(prog="python -m benches.spark")
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows; writes to out/")
    parser.add_argument("--rounds", type=int, default=3, help="interleaved rounds of each case")
    parser.add_argument("--minutes", type=int, default=30, help="of one engine in one case")
    parser.add_argument("--only", nargs="+", choices=NAMES, metavar="CASE",
                        help=f"some cases of {', '.join(NAMES)}")  # fmt: skip
    pages.add_option(parser)
    chosen = parser.parse_args()
    partial = chosen.quick or chosen.only
    page = pages.place(OUT / RESULTS.name if partial else RESULTS, chosen.results)
    image = OUT / picture.PICTURE.name if partial else picture.PICTURE
    image = pages.place(image, chosen.results)
    scale = 10 if chosen.quick else 1
    only = chosen.only or NAMES
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        lines = here(folder, scale, chosen.rounds, only)
        facts = machine(folder)
    beside: list[str] = []
    for name, case in peers.cases(scale).items():
        if name in only:
            beside += shown(peers.measure(name, case, chosen.rounds, chosen.minutes))
    merged: list[str] = []
    wrong: list[str] = []
    for name, case in merge_peers.cases(scale).items():
        if name in only:
            made, others = merge_peers.measure(name, case, chosen.rounds, chosen.minutes)
            merged += shown(made)
            wrong += others
    text = report(facts, lines, beside, merged, quick=chosen.quick)
    page.write_text(text)
    picture.draw(text, image)
    if wrong:
        raise SystemExit(f"wrong rows, see {page}: {'; '.join(wrong)}")


def here(folder: Path, scale: int, rounds: int, only: Collection[str]) -> list[str]:
    """Measure the cases of one session."""
    chosen = {name: case for name, case in HERE.items() if name in only}
    if not chosen:
        return []
    spark = session(folder)
    lines = []
    for name, case in chosen.items():
        print(f"{name} ...", flush=True)
        lines += shown(case(spark, folder, scale, rounds))
    spark.stop()
    return lines


def shown(lines: list[str]) -> list[str]:
    """Print lines as they come."""
    print("\n".join(lines), flush=True)
    return lines


def report(
    facts: dict[str, str], lines: list[str], beside: list[str], merged: list[str], *, quick: bool
) -> str:
    """Return the page."""
    return "\n".join(
        [
            "# Inside Spark",
            "",
            f"`make bench-spark{' BENCH_ARGS=--quick' if quick else ''}`, commit {commit()}.",
            ", ".join(f"{name} {value}" for name, value in facts.items())
            + f"; load of the machine at the end {load()}.",
            "Rounds of both sides alternate; a figure is the median of the rounds.",
            "",
            "| case | lancemem | beside it | share |",
            "| --- | --- | --- | --- |",
            *lines,
            "",
            "Each engine in a process and a Spark of its own, `local[2]`, in turn. Delta has no",
            "jar for the newest Spark, so it, pylance and lancemem run on the oldest that lancemem",
            "supports; Hudi and Paimon have one for 3.5. lancemem syncs its files before a write",
            "returns. `writers` counts refused commits, which were tried again.",
            "",
            "| case | engine | time | times lancemem's |",
            "| --- | --- | --- | --- |",
            *beside,
            "",
            "## Merge engines",
            "",
            *MERGED,
            "",
            *merge_peers.HEAD,
            *merged,
            "",
        ]
    )


if __name__ == "__main__":
    main()
