"""Tables and scans as HTML, for notebooks.

Owns the markup. Does not own what is shown.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

__all__ = ["ROWS", "of_rows"]

# Rows of a preview, and characters of a value.
ROWS = 10
_CHARACTERS = 80


def of_rows(title: str, rows: pa.Table) -> str:
    """Show at most `ROWS` rows under a line of text."""
    head = _line("th", (f"{escape(it.name)}<br>{escape(str(it.type))}" for it in rows.schema))
    body = "".join(
        _line("td", (escape(_shortened(value)) for value in row.values()))
        for row in rows.slice(0, ROWS).to_pylist()
    )
    return f"<p>{escape(title)}</p><table><thead>{head}</thead><tbody>{body}</tbody></table>"


def _line(tag: str, cells: Iterable[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{cell}</{tag}>' for cell in cells)}</tr>"


def _shortened(value: object) -> str:
    text = str(value)
    return text if len(text) <= _CHARACTERS else f"{text[: _CHARACTERS - 1]}…"
