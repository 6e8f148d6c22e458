"""How many first calls of three users work, or name the way (`tests/first_calls.py` has them).

Owns the counts, which `python -m benches.first_calls` prints. Not here: what a call does
(test_first_calls).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import lancemem
from tests.first_calls import DELTA, FAILS, LANCEDB, PYLANCE, USERS, outcomes

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_the_lists_have_84_calls() -> None:
    assert [len(calls) for calls in (PYLANCE, LANCEDB, DELTA)] == [28, 28, 28]
    assert all(len({call.code for call in calls}) == 28 for calls in USERS.values())


@pytest.mark.parametrize("user", ["pylance", "lancedb"])
def test_the_first_calls_of_a_python_user_work_or_name_the_way(user: str, tmp_path: Path) -> None:
    failed = {
        call.code: text for call, found, text in outcomes(user, str(tmp_path)) if found == FAILS
    }
    assert failed == {}


def test_the_first_calls_of_a_spark_user_work_or_name_the_way(
    spark: SparkSession, tmp_path: Path
) -> None:
    failed = {
        call.code: text
        for call, found, text in outcomes("delta-spark", str(tmp_path), spark)
        if found == FAILS
    }
    assert failed == {}


def test_a_name_that_is_of_no_library_is_an_attribute_error(table: lancemem.Table) -> None:
    with pytest.raises(AttributeError, match=r"has no attribute 'uspert'$"):
        table.uspert  # type: ignore[attr-defined]  # noqa: B018
    assert not hasattr(table, "add")
    with pytest.raises(AttributeError, match=r"open_table\(uri\)"):
        lancemem.connect  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError, match=r"has no attribute 'nothing'$"):
        lancemem.nothing  # type: ignore[attr-defined]  # noqa: B018
