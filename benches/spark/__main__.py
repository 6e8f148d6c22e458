"""Run the cases and write benches/RESULTS-spark.md.

Owns the command line, the session and the report. Does not own the measurements (`cases`).
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from benches import pages
from benches.spark import cases, engines, files, peers, picture
from benches.write.machine import commit, load, machine
from lancemem.spark import configure

HERE = {**cases.CASES, "files": files.measure}
ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benches" / "RESULTS-spark.md"
OUT = ROOT / "out" / "bench-spark"


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
    parser.add_argument("--only", choices=sorted({*HERE, *peers.cases(1)}), help="one case")
    pages.add_option(parser)
    chosen = parser.parse_args()
    partial = chosen.quick or chosen.only
    page = pages.place(OUT / RESULTS.name if partial else RESULTS, chosen.results)
    image = OUT / picture.PICTURE.name if partial else picture.PICTURE
    image = pages.place(image, chosen.results)
    scale = 10 if chosen.quick else 1
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        lines = here(folder, scale, chosen.rounds, chosen.only)
        facts = machine(folder)
    beside = []
    for name, case in peers.cases(scale).items():
        if chosen.only in (None, name):
            beside += shown(peers.measure(name, case, chosen.rounds, chosen.minutes))
    text = report(facts, lines, beside, quick=chosen.quick)
    page.write_text(text)
    picture.draw(text, image)


def here(folder: Path, scale: int, rounds: int, only: str | None) -> list[str]:
    """Measure the cases of one session."""
    chosen = {name: case for name, case in HERE.items() if only in (None, name)}
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


def report(facts: dict[str, str], lines: list[str], beside: list[str], *, quick: bool) -> str:
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
        ]
    )


if __name__ == "__main__":
    main()
