"""The eight promises have a text, tests that exist, and a rule on the page of the simulation.

Owns: that P1 to P8 are all there. Not here: that every other promise has evidence, that every other
name exists (rust/testkit/tests/promises.rs), or what a test proves.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROMISES = [f"P{number}" for number in range(1, 9)]


def rows_of(page: str) -> list[list[str]]:
    """Return the cells of the rows that begin with the number of a promise."""
    lines = (ROOT / "docs" / page).read_text().splitlines()
    return [line.strip("| ").split(" | ") for line in lines if re.match(r"\| P\d", line)]


def evidence_of(promise: str) -> list[str]:
    """Give the names that stand in the list of a promise, from its id to the next one."""
    page = (ROOT / "docs" / "guarantees-evidence.md").read_text()
    [(_, entries)] = re.findall(rf"^- \*\*({promise})\*\*(.*(?:\n  - .*)*)", page, re.MULTILINE)
    return re.findall(r"`([^`]+)`", entries)


def is_test(name: str) -> bool:
    """Say whether `file.py::test`, `file.rs::test` or a chapter's `chapter::test` is defined."""
    place, _, test = name.rpartition("::")
    path = ROOT / place if "/" in place else ROOT / "rust/core/tests" / f"{place}.rs"
    if not place or not path.is_file():
        return False
    return re.search(rf"^\s*(async )?(def|fn) {test}\(", path.read_text(), re.MULTILINE) is not None


def test_the_page_has_each_promise_once_and_in_order() -> None:
    assert [row[0] for row in rows_of("guarantees.md")] == PROMISES


@pytest.mark.parametrize("promise", PROMISES)
def test_a_promise_has_words_and_tests_that_exist(promise: str) -> None:
    [[_, words, weaker]] = [row for row in rows_of("guarantees.md") if row[0] == promise]
    assert words.endswith(".")
    assert weaker.endswith(".")
    names = evidence_of(promise)
    assert any(is_test(name) for name in names), f"{promise} has no test"
    missing = [name for name in names if "/" in name.rpartition("::")[0] and not is_test(name)]
    assert missing == []


def test_the_simulation_speaks_of_the_same_promises() -> None:
    assert [row[0].partition(":")[0] for row in rows_of("simulation.md")] == PROMISES


def test_a_name_that_is_nowhere_is_no_test() -> None:
    here = "tests/test_promises.py"
    assert is_test(f"{here}::test_a_name_that_is_nowhere_is_no_test")
    assert is_test("durability::a_durable_put_survives_a_reopen_and_is_not_appended_again")
    for wrong in (here, f"{here}::test_a_name", "durability", "durability::a_durable_put", "x::y"):
        assert not is_test(wrong)
