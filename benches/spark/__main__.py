"""Run the cases and write benches/RESULTS-spark.md.

Owns the command line, the session and the report. Does not own what is measured (`cases`).
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from benches.spark import cases
from benches.write.machine import commit, load, machine
from lancemem.spark import configure

RESULTS = Path(__file__).parents[1] / "RESULTS-spark.md"


def session(folder: Path) -> SparkSession:
    """Start Spark on two cores, quietly."""
    builder = configure(SparkSession.builder.master("local[2]").appName("lancemem bench"))
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
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
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows")
    parser.add_argument("--rounds", type=int, default=3, help="interleaved rounds of each case")
    parser.add_argument("--only", choices=sorted(cases.CASES), help="one case")
    chosen = parser.parse_args()
    scale = 10 if chosen.quick else 1
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        spark = session(folder)
        lines = []
        for name, case in cases.CASES.items():
            if chosen.only in (None, name):
                print(f"{name} ...", flush=True)
                found = case(spark, folder, scale, chosen.rounds)
                print("\n".join(found), flush=True)
                lines += found
        facts = machine(folder)
        spark.stop()
    if chosen.only is None:
        RESULTS.write_text(report(facts, lines, quick=chosen.quick))


def report(facts: dict[str, str], lines: list[str], *, quick: bool) -> str:
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
            cases.PEERS,
            "",
        ]
    )


if __name__ == "__main__":
    main()
