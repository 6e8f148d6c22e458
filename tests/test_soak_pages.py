"""The pages of docs/soak: what soaks have tried adds up, and nothing found is lost in the sum."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scripts import soak_pages
from scripts.soak_pages import WANTED, Row

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(soak_pages, "PAGES", tmp_path)
    monkeypatch.setattr(soak_pages, "SUM", tmp_path / "README.md")
    monkeypatch.setattr(soak_pages, "commit", lambda: "0123456789ab and changes")
    return tmp_path


def line(pages: Path, name: str) -> str:
    """Find the line of a layer in the sum."""
    lines = (pages / "README.md").read_text().splitlines()
    return next(line for line in lines if line.startswith(f"| {WANTED[name].title} |"))


def test_two_soaks_of_a_commit_are_two_pages_and_add_up(pages: Path) -> None:
    rows = [Row("cuts", 1_200, 60), Row("simulation", 30, 90)]
    first = soak_pages.write(rows, "30 lives", seed=7)
    second = soak_pages.write([Row("cuts", 800, 30)], "", seed=8)
    assert (first.name, second.name) == ("0123456.md", "0123456-2.md")
    assert "30 lives" in first.read_text()
    assert line(pages, "cuts").endswith("| 100,000 | 2,000 | 1.5 | nothing |")
    assert line(pages, "simulation").endswith("| 1,000,000 | 30 | 1.5 | nothing |")
    assert line(pages, "takeovers").endswith("| 10,000 | 0 | 0.0 | nothing |")


def test_what_a_soak_found_stays_in_the_sum_with_its_page(pages: Path) -> None:
    soak_pages.write([Row("kills", 10, 6, "LANCEMEM_SEED=3 python -m pytest x | y")], "", seed=1)
    soak_pages.write([Row("kills", 90, 54)], "", seed=2)
    assert line(pages, "kills").endswith("| 100 | 1.0 | [0123456](0123456.md) |")
