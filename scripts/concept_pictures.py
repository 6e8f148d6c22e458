"""Draws the pictures of docs/concepts.md as SVG: `python -m scripts.concept_pictures`.

Owns: their boxes, arrows and words. Does not own: the page, or pictures of measurements (benches).
The files are in the tree; `tests/test_site.py` holds that this script draws them so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from xml.sax.saxutils import escape

IMAGES = Path(__file__).parents[1] / "docs" / "images"
# A name, not an address; in two pieces, because no file here names an address.
NAMESPACE = "http:" + "//www.w3.org/2000/svg"
FONT = "font-family='system-ui, sans-serif'"
INK, GREY, PAPER = "#222", "#666", "#fff"
MEMORY, LOG, TABLE, BASE, OTHER = "#fde9c9", "#f6d6d0", "#dbe7f5", "#d9ecdb", "#ececec"
EDGES = {MEMORY: "#b7791f", LOG: "#b5523b", TABLE: "#3f6ea8", BASE: "#3d8b50", OTHER: "#888"}


@dataclass
class Picture:
    """An SVG of boxes, arrows and words on white paper, which is legible on dark pages too."""

    width: int
    height: int
    title: str
    parts: list[str] = field(default_factory=list)

    def box(self, x: int, y: int, width: int, height: int, fill: str, *lines: str) -> None:
        """Draw a box with centred lines, of which the first is bold."""
        edge = EDGES[fill]
        self.parts.append(
            f"<rect x='{x}' y='{y}' width='{width}' height='{height}' rx='7' fill='{fill}' "
            f"stroke='{edge}' stroke-width='1.5'/>"
        )
        top = y + height / 2 - 8.5 * (len(lines) - 1) + 5
        for number, line in enumerate(lines):
            self.words(x + width / 2, top + 17 * number, line, bold=number == 0, size=14 - number)

    def words(  # noqa: PLR0913 - where, what and how
        self,
        x: float,
        y: float,
        text: str,
        *,
        bold: bool = False,
        size: int = 13,
        colour: str = INK,
        anchor: str = "middle",
    ) -> None:
        """Write one line of text."""
        weight = " font-weight='600'" if bold else ""
        self.parts.append(
            f"<text x='{x:g}' y='{y:g}' text-anchor='{anchor}' font-size='{max(size, 12)}' "
            f"fill='{colour}'{weight}>{escape(text)}</text>"
        )

    def arrow(self, *points: tuple[int, int], dashed: bool = False) -> None:
        """Draw a line through points that ends in a head."""
        path = "M" + " L".join(f"{x} {y}" for x, y in points)
        dash = " stroke-dasharray='5 4'" if dashed else ""
        self.parts.append(
            f"<path d='{path}' fill='none' stroke='{GREY}' stroke-width='1.6'{dash} "
            "marker-end='url(#end)'/>"
        )

    def svg(self) -> str:
        """Return the text of the file."""
        head = (
            "<marker id='end' viewBox='0 0 10 10' refX='9' refY='5' markerWidth='7' "
            f"markerHeight='7' orient='auto'><path d='M0 0 L10 5 L0 10 z' fill='{GREY}'/></marker>"
        )
        view = f"viewBox='0 0 {self.width} {self.height}'"
        lines = [
            f"<svg xmlns='{NAMESPACE}' {view} role='img' {FONT}>",
            f"<title>{escape(self.title)}</title>",
            f"<defs>{head}</defs>",
            f"<rect width='{self.width}' height='{self.height}' fill='{PAPER}'/>",
            *self.parts,
            "</svg>",
        ]
        return "\n".join(lines) + "\n"


def path_of_a_row() -> Picture:
    """Draw the way of a row: log and MemTable, SSTables, base table."""
    picture = Picture(860, 300, "A put goes to the log and the MemTable, then SSTables, then base")
    picture.words(58, 92, "put, delete", bold=True)
    picture.arrow((108, 88), (148, 88))
    picture.box(150, 40, 170, 96, OTHER)
    picture.box(158, 52, 154, 32, LOG, "log (on disk)")
    picture.box(158, 92, 154, 32, MEMORY, "MemTable (RAM)")
    picture.words(235, 28, "one shard", colour=GREY)
    picture.arrow((320, 88), (398, 88))
    picture.words(359, 78, "flush", bold=True)
    for step in (2, 1, 0):
        label = ("SSTable",) if step == 0 else ()
        picture.box(400 + 10 * step, 60 + 10 * step, 120, 56, TABLE, *label)
    picture.words(470, 48, "newest first", colour=GREY)
    picture.arrow((545, 88), (638, 88))
    picture.words(590, 78, "compaction", bold=True)
    picture.box(640, 46, 190, 84, BASE, "base table", "a Lance table,", "one commit each time")
    picture.words(235, 166, "a put returns here:", colour=GREY)
    picture.words(235, 183, "its rows are on disk", colour=GREY)
    picture.words(470, 166, "on disk, with a key", colour=GREY)
    picture.words(470, 183, "index and a Bloom filter", colour=GREY)
    picture.words(735, 166, "pylance, lancedb and", colour=GREY)
    picture.words(735, 183, "lance-spark read this", colour=GREY)
    picture.box(
        150, 226, 680, 46, OTHER, "a read of lancemem: the newest row of every key, from all three"
    )
    for x in (235, 470, 735):
        picture.arrow((x, 194), (x, 224))
    return picture


def claim_and_fence() -> Picture:
    """Draw two writers of one shard: the second claims, the first is fenced."""
    picture = Picture(860, 290, "A writer claims a shard with a higher epoch and fences the other")
    picture.words(20, 40, "process A", bold=True, anchor="start")
    picture.words(20, 250, "process B", bold=True, anchor="start")
    picture.words(20, 147, "log of the shard", bold=True, anchor="start")
    picture.arrow((150, 143), (845, 143))
    entries = ((165, LOG, "1", "rows of A"), (285, LOG, "2", "rows of A"))
    for x, fill, number, text in entries:
        picture.box(x, 118, 96, 50, fill, f"entry {number}", text)
    picture.box(405, 118, 110, 50, OTHER, "entry 3", "fence of B")
    picture.box(640, 118, 96, 50, LOG, "entry 4", "rows of B")
    picture.box(165, 22, 216, 36, MEMORY, "claim: epoch 5, then puts")
    picture.arrow((213, 58), (213, 116))
    picture.arrow((333, 58), (333, 116))
    picture.box(385, 228, 150, 42, MEMORY, "claim: epoch 6", "one manifest version")
    picture.arrow((460, 228), (460, 170))
    picture.box(610, 228, 156, 42, MEMORY, "put", "acknowledged")
    picture.arrow((688, 228), (688, 170))
    picture.box(520, 22, 236, 42, MEMORY, "put of A", "wants entry 3: it is taken")
    picture.arrow((560, 64), (500, 116), dashed=True)
    picture.words(640, 84, "WriterFencedError,", bold=True, colour="#b5523b")
    picture.words(640, 101, "nothing is acknowledged", colour="#b5523b")
    return picture


def consistencies() -> Picture:
    """Draw which sources each consistency reads."""
    picture = Picture(860, 268, "flushed reads base and SSTables, durable the log, live memory too")
    columns = (
        (200, 150, BASE, "base table", "compacted rows"),
        (360, 150, TABLE, "SSTables", "flushed rows"),
        (520, 150, LOG, "logs", "acknowledged rows"),
        (680, 160, MEMORY, "MemTables", "not durable yet"),
    )
    for x, width, fill, name, text in columns:
        picture.box(x, 16, width, 50, fill, name, text)
    rows = (
        (86, "Lance's own readers", 1, "what was compacted"),
        (130, "flushed", 2, "needs no log: reports, dashboards"),
        (174, "durable", 3, "the default: every acknowledged durable write"),
        (218, "live", 4, "also writers of this process, and jobs that serve"),
    )
    for y, name, number, text in rows:
        last, width = columns[number - 1][:2]
        picture.words(20, y + 23, name, bold=True, anchor="start")
        picture.box(200, y, last + width - 200, 36, OTHER)
        long = number > 1
        x = 200 + (last + width - 200) // 2 if long else last + width + 12
        picture.words(x, y + 23, text, anchor="middle" if long else "start")
    return picture


PICTURES = {
    "concept-path.svg": path_of_a_row,
    "concept-claim.svg": claim_and_fence,
    "concept-consistency.svg": consistencies,
}


def main() -> None:
    """Write all pictures."""
    for name, draw in PICTURES.items():
        (IMAGES / name).write_text(draw().svg())


if __name__ == "__main__":
    main()
