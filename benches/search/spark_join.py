"""`python -m benches.search.spark_join`: the nearest rows of 1,000 queries, in Spark and in Python.

Owns: a table whose rows no index has, the same queries as a DataFrame and as a batch, and the time
of both in turn, in `local[2]`. Does not own: a batch beside a loop of searches (`writes`).
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from pyspark.sql import DataFrame, SparkSession

import lancemem
from benches.search.tables import SCHEMA, WIDTH, K, puts
from benches.spark.engines import QUIET
from benches.write.machine import machine, measured
from lancemem.spark import LancememTable, configure

ROWS, QUERIES, ROUNDS = 100_000, 1_000, 5
GOAL = 0.7


def main() -> None:
    """Measure both in turn, and print the page."""
    parser = argparse.ArgumentParser(
        prog="python -m benches.search.spark_join", description=__doc__
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows")
    chosen = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="join-"))
    builder = configure(SparkSession.builder.master("local[2]"))
    for name, value in {**QUIET, "spark.driver.memory": "4g"}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        rows = ROWS // 10 if chosen.quick else ROWS
        sys.stdout.write(_measured(spark, folder, rows, chosen.rounds))
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _measured(spark: SparkSession, folder: Path, rows: int, rounds: int) -> str:
    random = np.random.default_rng(9)
    uri = str(folder / "rows.lance")
    table = lancemem.create_table(uri, SCHEMA, primary_key="id")
    for put in puts(np.arange(rows), random.normal(size=(rows, WIDTH)).astype(np.float32)):
        table.upsert(put)
    asked = random.normal(size=(QUERIES, WIDTH)).astype(np.float32)
    listed = [(number, query.tolist()) for number, query in enumerate(asked)]
    queries = spark.createDataFrame(listed, "question int, embedding array<float>").cache()
    queries.count()
    spark_table = LancememTable(spark, table)
    in_spark = spark_table.search_join(queries, on="embedding", k=K, columns=["id"])

    def by_spark() -> list[tuple[int, int]]:
        return _pairs(in_spark)

    def by_python() -> list[tuple[int, int]]:
        found = table.search(asked, k=K, columns=["id"]).to_table()
        return list(zip(found["query_index"].to_pylist(), found["id"].to_pylist(), strict=True))

    if sorted(by_spark()) != sorted(by_python()):
        raise SystemExit("Spark and Python found different rows")
    taken: dict[str, list[float]] = {"Spark": [], "Python": []}
    for turn in range(rounds):
        sides = [("Spark", by_spark), ("Python", by_python)]
        for name, side in sides if turn % 2 == 0 else sides[::-1]:
            begun = time.perf_counter()
            side()
            taken[name].append(time.perf_counter() - begun)
    return _page(machine(folder), rows, {name: float(np.median(of)) for name, of in taken.items()})


def _pairs(found: DataFrame) -> list[tuple[int, int]]:
    return [(row.question, row.id) for row in found.select("question", "id").collect()]


def _page(facts: dict[str, str], rows: int, seconds: dict[str, float]) -> str:
    ratio = seconds["Python"] / seconds["Spark"]
    met = "met" if ratio >= GOAL else "missed"
    lines = [
        f"| {name} | {taken:.2f} | {QUERIES / taken:,.0f} |" for name, taken in seconds.items()
    ]
    return "\n".join(
        [
            "# `search_join` in Spark beside a batch in Python",
            "",
            f"{QUERIES:,} queries, {K} rows each, of {rows:,} rows of {WIDTH} float32 in logs.",
            "Spark is `local[2]`.",
            "",
            *measured(facts),
            "",
            "| side | s, median | queries a second |",
            "| --- | --- | --- |",
            *lines,
            "",
            f"Spark reaches {ratio:.2f} of Python; goal at least {GOAL}: {met}.",
            "",
        ]
    )


if __name__ == "__main__":
    main()
