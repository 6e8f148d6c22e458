"""The site of docs/: what `make docs` cannot see.

Owns: that the reference has every public name, that the menu has every page once, and that the
pictures of the concepts are those that their script draws. Does not own: links and anchors, which
`make docs` checks, or the blocks of pages (test_pages).
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import lancemem
from scripts import concept_pictures

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
# Pages of the tree's root that are in the menu, and pages that the menu lists by their folder.
OF_THE_ROOT = {"ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"}
DECISIONS = "decisions"


def documented() -> list[str]:
    """Return the names that the pages of the reference take from docstrings."""
    pages = "\n".join(page.read_text() for page in sorted((DOCS / "reference").glob("*.md")))
    return re.findall(r"^::: (\S+)$", pages, re.MULTILINE)


def test_the_reference_has_every_public_name_once() -> None:
    names = documented()
    assert len(names) == len(set(names))
    # Python lists it; it is no part of what a program calls.
    public = {f"lancemem.{name}" for name in lancemem.__all__} - {"lancemem.__version__"}
    # Their docstrings are in the stub of the extension.
    of_stub = {"lancemem._lancemem.open_table", "lancemem._lancemem.enable"}
    found = {name.replace("_lancemem.", "") if name in of_stub else name for name in names}
    others = {name for name in found if name.startswith(("lancemem.spark.", "lancemem.torch."))}
    assert found - others == public


def test_the_reference_has_every_public_name_of_spark() -> None:
    # Read, not imported, so that no Spark is needed.
    source = (ROOT / "python" / "lancemem" / "spark" / "__init__.py").read_text()
    [names] = re.findall(r"^__all__ = (\[.*?^\])", source, re.MULTILINE | re.DOTALL)
    # A schema, which the page describes.
    public = {f"lancemem.spark.{name}" for name in ast.literal_eval(names)}
    public -= {"lancemem.spark.TASK_REPORT"}
    assert {name for name in documented() if name.startswith("lancemem.spark.")} == public


def test_the_menu_has_every_page_once() -> None:
    listed = re.findall(r"^\s+- .+: (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    pages = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    assert len(listed) == len(set(listed))
    assert set(listed) - OF_THE_ROOT == {
        page for page in pages if not page.startswith(f"{DECISIONS}/")
    }


@pytest.mark.parametrize("name", concept_pictures.PICTURES)
def test_a_picture_of_the_concepts_is_the_one_that_its_script_draws(name: str) -> None:
    drawn = concept_pictures.PICTURES[name]().svg()
    assert (concept_pictures.IMAGES / name).read_text() == drawn, (
        "draw it again: python -m scripts.concept_pictures"
    )
