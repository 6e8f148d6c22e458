"""Every dependency that this tree names is listed in docs/dependencies.md with its purpose.

Owns: that the page and the files agree. Does not own licences and sources (`make deny`).
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

TREE = Path(__file__).parents[1]
OWN = {
    "lancemem",
    "lancemem-core",
    "lancemem-face",
    "lancemem-flight",
    "lancemem-testkit",
    "lancemem-sim",
}
# The fuzz targets need this crate's codecs for the core's decoder.
UNSEEN = {("fuzz", "arrow-ipc")}
# Both compile files of the core.
SOURCES_ELSEWHERE = {"schedules": "core", "sim": "core"}
MANIFESTS = sorted((TREE / "rust").glob("**/Cargo.toml"))


def rows_of_the_page() -> list[tuple[list[str], str]]:
    page = (TREE / "docs" / "dependencies.md").read_text()
    rows = re.findall(r"^\| (`.*`) \| (.+) \|$", page, re.MULTILINE)
    return [(re.findall(r"`([^`]+)`", names), reason) for names, reason in rows]


def crates(tables: dict[str, Any]) -> Iterator[str]:
    """Return the crates of a manifest; a renamed crate has its original name."""
    for name, value in tables.items():
        if name.endswith("dependencies"):
            for crate, wanted in value.items():
                yield wanted.get("package", crate) if isinstance(wanted, dict) else crate
        elif isinstance(value, dict):
            yield from crates(value)


def named() -> set[str]:
    manifests = [TREE / "Cargo.toml", *(TREE / "rust").glob("**/Cargo.toml")]
    found = {crate for path in manifests for crate in crates(tomllib.loads(path.read_text()))}
    project = tomllib.loads((TREE / "pyproject.toml").read_text())["project"]
    optional = project["optional-dependencies"].values()
    packages = [*project["dependencies"], *(package for extra in optional for package in extra)]
    return found | {re.split(r"[^\w-]", package)[0] for package in packages}


def test_every_dependency_has_a_row_that_says_what_it_is_for() -> None:
    on_page = [name for names, _ in rows_of_the_page() for name in names]
    assert len(on_page) == len(set(on_page))
    assert set(on_page) == named() - OWN
    assert all(len(reason) > 10 for _, reason in rows_of_the_page())


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: path.parent.name)
def test_every_crate_that_a_manifest_names_is_used_by_its_sources(manifest: Path) -> None:
    folder = manifest.parent
    sources = [folder, TREE / "rust" / SOURCES_ELSEWHERE.get(folder.name, folder.name)]
    files = {path for source in sources for path in source.glob("**/*.rs")}
    words = set(re.findall(r"\w+", "\n".join(path.read_text() for path in files)))
    tables = tomllib.loads(manifest.read_text())
    names = {name for key in ("dependencies", "dev-dependencies") for name in tables.get(key, {})}
    unused = {name for name in names if name.replace("-", "_") not in words}
    assert unused == {name for name in unused if (folder.name, name) in UNSEEN}
