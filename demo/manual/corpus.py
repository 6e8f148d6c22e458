"""The table of sections: its columns, an edit as rows of changes, and the state after a release.

Owns the schema and both directions of the conversion. Does not own the parsing of sections or the
table itself. The expected state comes from the releases and not from the edits, so a mistake in the
edits cannot hide; only the number of a row's edit is looked up in them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from demo.manual.sections import Edit, Key, Sections
    from demo.manual.vectors import WordVectors

KEY = ["file", "heading"]
UPSERT = "U"
DELETE = "D"


def schema_of(width: int) -> pa.Schema:
    """Return the columns of the table, for vectors of `width` numbers."""
    return pa.schema(
        [
            pa.field("file", pa.string(), nullable=False),
            pa.field("heading", pa.string(), nullable=False),
            pa.field("text", pa.string()),
            pa.field("release", pa.string()),
            pa.field("edit", pa.int32()),
            pa.field("vector", pa.list_(pa.float32(), width)),
        ]
    )


def changes_of(edit: Edit, vectors: WordVectors) -> pa.Table:
    """Return the rows of an edit: those of the table, and `op`, "U" or "D"."""
    upserts = [(key, text, UPSERT) for key, text in edit.upserts.items()]
    deletes = [(key, None, DELETE) for key in edit.deletes]
    rows = [
        {
            "file": key[0],
            "heading": key[1],
            "text": text,
            "release": edit.release,
            "edit": edit.number,
            "vector": None if text is None else vectors.mean(text),
            "op": op,
        }
        for key, text, op in [*upserts, *deletes]
    ]
    schema = schema_of(vectors.width).append(pa.field("op", pa.string(), nullable=False))
    return pa.Table.from_pylist(rows, schema=schema)


def state_after(
    releases: Mapping[str, Sections], edits: Iterable[Edit], vectors: WordVectors
) -> pa.Table:
    """Return the rows of the last release; each has the release that changed it last."""
    changed_in: dict[Key, str] = {}
    old: Sections = {}
    for release, new in releases.items():
        changed_in.update({key: release for key, text in new.items() if old.get(key) != text})
        old = new
    # A later edit of the same key replaces the number of an earlier one.
    edit_of = {key: edit.number for edit in edits for key in edit.upserts}
    rows = [
        {
            "file": key[0],
            "heading": key[1],
            "text": text,
            "release": changed_in[key],
            "edit": edit_of.get(key),
            "vector": vectors.mean(text),
        }
        for key, text in sorted(old.items())
    ]
    return pa.Table.from_pylist(rows, schema=schema_of(vectors.width))


def keys_of(rows: pa.Table) -> Sequence[Key]:
    """Return the key of each row."""
    return list(zip(rows["file"].to_pylist(), rows["heading"].to_pylist(), strict=True))
