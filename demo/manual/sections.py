"""The sections of a manual in reStructuredText, and the edits from one release to the next.

Owns the division of a text into sections, their keys, and the difference of two releases. Does not
own archives' download, vectors or tables.

A section is a title with the text below it, up to the next title of any level. Its key is the file
and the titles above it ("Managers > Custom managers"); the second section of one key is "... (2)".
"""

from __future__ import annotations

import tarfile
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Key: TypeAlias = tuple[str, str]
Sections: TypeAlias = dict[Key, str]

PUNCTUATION = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
MIN_UNDERLINE = 3
TOP = "(top)"


@dataclass(frozen=True)
class Edit:
    """One save of an author: sections that are new or changed, and keys that vanished."""

    number: int
    release: str
    upserts: Sections
    deletes: list[Key]

    @property
    def count(self) -> int:
        """Rows that the edit changes."""
        return len(self.upserts) + len(self.deletes)


def read_release(path: Path) -> Sections:
    """Read the manual of a source distribution: the `.txt` files of its folder `docs`."""
    sections: Sections = {}
    with tarfile.open(path) as archive:
        for member in archive:
            name = member.name.partition("/docs/")[2]
            file = archive.extractfile(member) if member.isfile() else None
            if file is not None and name.endswith(".txt"):
                text = file.read().decode("utf-8")
                sections.update({(name, heading): body for heading, body in divide(text)})
    return sections


def divide(text: str) -> Iterator[tuple[str, str]]:
    """Divide a text into sections: the path of titles and the text, which starts with the title."""
    lines = [line.rstrip() for line in text.expandtabs().splitlines()]
    marks = list(_titles(lines))
    styles: list[str] = []
    above: list[str] = []
    seen: Counter[str] = Counter()
    top = "\n".join(lines[: marks[0].first if marks else len(lines)]).strip()
    if top:
        yield TOP, top
    for place, mark in enumerate(marks):
        if mark.style not in styles:
            styles.append(mark.style)
        above = [*above[: styles.index(mark.style)], mark.title]
        heading = " > ".join(above)
        seen[heading] += 1
        if seen[heading] > 1:
            heading += f" ({seen[heading]})"
        end = marks[place + 1].first if place + 1 < len(marks) else len(lines)
        yield heading, "\n".join([mark.title, *lines[mark.after : end]]).strip()


def edits_between(
    old: Sections, new: Sections, release: str, size: int, first: int
) -> Iterator[Edit]:
    """Make edits of at most `size` rows, numbered from `first`, that turn `old` into `new`."""
    changed = [key for key, text in new.items() if old.get(key) != text]
    vanished = [key for key in old if key not in new]
    keys = sorted(changed + vanished)
    for number, start in enumerate(range(0, len(keys), size), first):
        part = keys[start : start + size]
        upserts = {key: new[key] for key in part if key in new}
        yield Edit(number, release, upserts, [key for key in part if key not in new])


@dataclass(frozen=True)
class _Title:
    """A title: its first line with an overline, the line after its underline, and its style."""

    title: str
    style: str
    first: int
    after: int


def _titles(lines: list[str]) -> Iterator[_Title]:
    for place in range(len(lines) - 1):
        title, under = lines[place], lines[place + 1]
        if not _is_rule(under) or len(under) < len(title.strip()) or _is_rule(title):
            continue
        before = lines[place - 1] if place else ""
        is_overlined = before == under and bool(title.strip())
        # Only a title with an overline may be indented, and only it may stand below a line.
        if is_overlined or (not before and title and not title[0].isspace()):
            first = place - 1 if is_overlined else place
            style = under[0] * (2 if is_overlined else 1)
            yield _Title(title.strip(), style, first, place + 2)


def _is_rule(line: str) -> bool:
    return len(line) >= MIN_UNDERLINE and line[0] in PUNCTUATION and line == line[0] * len(line)
