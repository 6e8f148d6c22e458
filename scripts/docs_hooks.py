"""Hooks of the site of docs/: pages of the tree's root, links out of docs/, and the decisions.

Owns: what mkdocs cannot read from `docs/` alone. Does not own: the site's settings (`mkdocs.yml`),
or what a page says. mkdocs calls the functions by their names.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
# Pages of the tree's root that are part of the site.
ROOT_PAGES = ("ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
# Python-Markdown nests a list by four spaces, GitHub by two.
NESTED = re.compile(r"^ {2,3}(?=(?:-|\d+\.) )", re.MULTILINE)
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """List the decisions in the place of the word DECISIONS."""
    folder = DOCS / "decisions"
    pages = ["decisions/README.md"]
    pages += [f"decisions/{page.name}" for page in sorted(folder.glob("0*.md"))]
    for entry in config.nav or []:
        for title, value in entry.items() if isinstance(entry, dict) else ():
            if value == "DECISIONS":
                entry[title] = pages
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the tree's root."""
    for name in ROOT_PAGES:
        files.append(File.generated(config, name, content=(ROOT / name).read_text()))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:  # noqa: ANN401 - mkdocs' own
    """Bring each link to a page of the site, leave the text of any other link, and nest lists."""
    name = page.file.src_uri
    base = "" if name in ROOT_PAGES else posixpath.join("docs", posixpath.dirname(name))

    def moved(found: re.Match[str]) -> str:
        is_image, text, target = found.groups()
        if is_image or target.startswith("#") or urlsplit(target).scheme:
            return found.group()
        path, _, anchor = target.partition("#")
        there = posixpath.normpath(posixpath.join(base, path))
        if (ROOT / there).is_dir():
            there = posixpath.join(there, "README.md")
        in_site = there.removeprefix("docs/") if there.startswith("docs/") else there
        is_page = there in ROOT_PAGES or (there.startswith("docs/") and (ROOT / there).is_file())
        if not is_page:
            return text if "`" in text else f"{text} (`{there}`)"
        back = posixpath.relpath(in_site, posixpath.dirname(name) or ".")
        return f"[{text}]({back}{'#' + anchor if anchor else ''})"

    def prose(text: str) -> str:
        return NESTED.sub("    ", LINK.sub(moved, text))

    parts, start = [], 0
    for fence in FENCE.finditer(markdown):
        parts += [prose(markdown[start : fence.start()]), fence.group()]
        start = fence.end()
    return "".join([*parts, prose(markdown[start:])])
