"""The cases of merge engines in `benches/spark`, at a few rows.

Owns: that lancemem shows the rows of the model in each case, and that the model is not the rows of
another rule. Does not own: peers, which need other releases of Spark, and times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from benches.spark import merge_engines, merge_rows

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

ROWS, BATCHES = 5_000, 7


def shown(spark: SparkSession, folder: Path, engine: str, case: str) -> list[int]:
    """Run a case of an engine in this session, and return its checksum."""
    (folder / engine).mkdir()
    running = merge_engines.ENGINES[engine](folder / engine)
    running._session = spark
    found = merge_engines.CASES[case](running, ROWS, BATCHES)
    assert len(found["writes"]) == BATCHES
    check: list[int] = found["check"]
    return check


@pytest.mark.parametrize(
    ("case", "engines"),
    [
        ("partial", ["lancemem"]),
        ("sum", ["lancemem"]),
        ("late", ["lancemem", "lancemem-jobs", "keep-newest"]),
    ],
)
def test_each_engine_of_lancemem_shows_the_rows_of_the_model(
    spark: SparkSession, tmp_path: Path, case: str, engines: list[str]
) -> None:
    right = shown(spark, tmp_path, "fold", case)
    assert right[0] == ROWS
    for engine in engines:
        assert shown(spark, tmp_path, engine, case) == right


def test_the_model_of_a_case_has_the_rows_of_no_other_rule(spark: SparkSession) -> None:
    late = merge_rows.RULES["late"]
    base = merge_rows.laid(spark, late, ROWS)
    batches = [merge_rows.batch(spark, late, 1 + number, ROWS) for number in range(BATCHES)]
    events = merge_rows.folded(base, batches, late)
    in_arrival_order = merge_rows.folded(
        base, batches, merge_rows.Rule("partial", late.ddl, late.gives)
    )
    assert merge_rows.checksum(events, late) != merge_rows.checksum(in_arrival_order, late)


def test_no_key_comes_twice_in_a_batch(spark: SparkSession) -> None:
    for rule in merge_rows.RULES.values():
        ids = merge_rows.batch(spark, rule, 3, ROWS).select("id")
        assert ids.count() == ids.distinct().count() == 1_000
