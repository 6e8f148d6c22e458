"""Reports of soaks: the numbers of tries add up, and no finding is lost in the totals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scripts import soak_pages
from scripts.soak_pages import WANTED, Row

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(soak_pages, "PAGES", tmp_path / "out" / "soak")
    monkeypatch.setattr(soak_pages, "SUM", tmp_path / "README.md")
    monkeypatch.setattr(soak_pages, "commit", lambda: "0123456789ab and changes")
    return tmp_path


def line(pages: Path, name: str) -> str:
    """Find the line of a layer in the totals."""
    lines = (pages / "README.md").read_text().splitlines()
    return next(line for line in lines if line.startswith(f"| {WANTED[name].title} |"))


def test_two_soaks_of_a_commit_are_two_pages_and_add_up(pages: Path) -> None:
    rows = [Row("cuts", 1_200, 60), Row("simulation", 30, 90)]
    first = soak_pages.write(rows, "30 lives", seed=7)
    second = soak_pages.write([Row("cuts", 800, 30)], "", seed=8)
    assert (first.name, second.name) == ("0123456.md", "0123456-2.md")
    assert first.parent == second.parent == pages / "out" / "soak"
    assert "30 lives" in first.read_text()
    assert line(pages, "cuts").endswith("| 100,000 | 2,000 | 1.5 | nothing |")
    assert line(pages, "simulation").endswith("| 1,000,000 | 30 | 1.5 | nothing |")
    assert line(pages, "takeovers").endswith("| 10,000 | 0 | 0.0 | nothing |")


def test_what_a_soak_found_stays_in_the_totals_with_its_commit(pages: Path) -> None:
    failed = "LANCEMEM_SEED=3 python -m pytest x | y"
    page = soak_pages.write([Row("kills", 10, 6, failed)], "", seed=1)
    soak_pages.write([Row("kills", 90, 54)], "", seed=2)
    assert failed in page.read_text()
    assert line(pages, "kills").endswith("| 100 | 1.0 | 0123456 |")


def test_commits_that_failed_are_listed_once_each(
    pages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for commit in ("bbbbbbb", "aaaaaaa", "bbbbbbb"):
        monkeypatch.setattr(soak_pages, "commit", lambda commit=commit: commit)
        soak_pages.write([Row("kills", 10, 6, "failed")], "", seed=1)
    assert line(pages, "kills").endswith("| 30 | 0.3 | aaaaaaa, bbbbbbb |")


def test_totals_do_not_need_the_pages_of_earlier_soaks(pages: Path) -> None:
    soak_pages.write([Row("cuts", 1_200, 60)], "", seed=1).unlink()
    soak_pages.write([Row("cuts", 800, 30)], "", seed=2)
    assert line(pages, "cuts").endswith("| 100,000 | 2,000 | 1.5 | nothing |")


def test_what_soaks_no_longer_try_stays_in_the_totals(pages: Path) -> None:
    soak_pages.write([Row("cuts", 1_200, 60)], "", seed=1)
    old = "| layers of an earlier soak |  | 7,000 | 1.4 | 89abcde |"
    with (pages / "README.md").open("a") as totals:
        totals.write(f"{old}\n")
    soak_pages.write([Row("cuts", 800, 30)], "", seed=2)
    assert old in (pages / "README.md").read_text().splitlines()
