"""The search demo's sections, edits and proof, on a manual of a few lines: no Spark, no network."""

from __future__ import annotations

import hashlib
import io
import tarfile
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lancemem
from demo.manual import sources
from demo.manual.corpus import DELETE, KEY, changes_of, keys_of, schema_of, state_after
from demo.manual.picture import bins_of, histogram
from demo.manual.proof import Copy, Query, answer_differences, brute_force, check
from demo.manual.searcher import FIRST_ROWS_WIN
from demo.manual.sections import TOP, Edit, divide, edits_between, read_release
from demo.manual.vectors import WordVectors

if TYPE_CHECKING:
    from pathlib import Path

    from demo.manual.sections import Sections

PARTITIONS = 2
K = 3

OLD = """\
A line before the first title.

=====
Views
=====

A view takes a request.

Async views
===========

An async view waits for nothing::

    Example
    -------

Example
-------

First example.

Example
-------

Second example.

Caching
=======

A cache keeps a page.
"""
NEW = OLD.replace("waits for nothing", "may wait for a request").replace(
    "Caching\n=======\n\nA cache keeps a page.\n", "Signals\n=======\n\nA signal keeps a page.\n"
)


@pytest.fixture(scope="module")
def vectors() -> WordVectors:
    words = "a an view views async request cache keeps page signal signals first second example"
    places = {word: row for row, word in enumerate(words.split())}
    chance = np.random.default_rng(7)
    return WordVectors(places, chance.normal(size=(len(places), 4)).astype(np.float32))


def sections_of(text: str) -> Sections:
    return {("views.txt", heading): body for heading, body in divide(text)}


@pytest.fixture
def releases() -> dict[str, Sections]:
    return {"1.0": sections_of(OLD), "1.1": sections_of(NEW)}


@pytest.fixture
def edits(releases: dict[str, Sections]) -> list[Edit]:
    first = list(edits_between({}, releases["1.0"], "1.0", 2, 1))
    return [*first, *edits_between(releases["1.0"], releases["1.1"], "1.1", 2, len(first) + 1)]


def test_a_section_has_the_titles_above_it_and_the_text_up_to_the_next_title() -> None:
    sections = dict(divide(OLD))
    assert list(sections) == [
        TOP,
        "Views",
        "Views > Async views",
        "Views > Async views > Example",
        "Views > Async views > Example (2)",
        "Views > Caching",
    ]
    assert sections["Views"] == "Views\n\nA view takes a request."
    # The title inside the indented block is text.
    assert sections["Views > Async views"].endswith("Example\n    -------")
    assert sections["Views > Async views > Example (2)"] == "Example\n\nSecond example."


def test_a_table_and_a_line_of_dashes_are_no_titles() -> None:
    text = "Fields\n======\n\n=====  =====\nname   type\n=====  =====\nid     int\n\n----\n\nEnd.\n"
    assert [heading for heading, _ in divide(text)] == ["Fields"]


def test_an_archive_gives_the_texts_of_its_docs_alone(tmp_path: Path) -> None:
    path = tmp_path / "release.tar.gz"
    files = {"docs/a/b.txt": OLD, "docs/conf.py": "x = 1", "README.txt": OLD, "src/docs.txt": OLD}
    with tarfile.open(path, "w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(f"Django-1.0/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    assert {file for file, _ in read_release(path)} == {"a/b.txt"}


def test_edits_change_what_changed_delete_what_vanished_and_touch_nothing_else(
    releases: dict[str, Sections], edits: list[Edit]
) -> None:
    second = [edit for edit in edits if edit.release == "1.1"]
    assert {key for edit in second for key in edit.upserts} == {
        ("views.txt", "Views > Async views"),
        ("views.txt", "Views > Signals"),
    }
    assert [key for edit in second for key in edit.deletes] == [("views.txt", "Views > Caching")]
    assert [edit.number for edit in edits] == list(range(1, len(edits) + 1))
    state: Sections = {}
    for edit in edits:
        assert edit.count <= 2
        state.update(edit.upserts)
        for key in edit.deletes:
            del state[key]
    assert state == releases["1.1"]


def written(tmp_path: Path, edits: list[Edit], vectors: WordVectors) -> lancemem.Table:
    """Write the edits into a table, some rows of which are in no index."""
    table = lancemem.create_table(
        str(tmp_path / "manual.lance"), schema_of(vectors.width), primary_key=KEY
    )
    for edit in edits:
        changes = changes_of(edit, vectors)
        deletes = pc.equal(changes["op"], DELETE).combine_chunks()
        table.apply(changes.drop_columns("op"), deletes)
        if edit.number == 2:
            table.compact(flush=True)
            table.create_index("vector", "IVF_FLAT", metric="cosine", num_partitions=PARTITIONS)
            table.create_index("text", "INVERTED")
    return table


def queries_of(vectors: WordVectors) -> list[Query]:
    texts = ["async views", "a cache keeps a page", "signal example"]
    queries = []
    for text in texts:
        vector = vectors.mean(text)
        assert vector is not None
        queries.append(Query(text, vector))
    return queries


def test_the_proof_holds_for_a_right_table_and_names_what_is_wrong_in_another(
    tmp_path: Path, releases: dict[str, Sections], edits: list[Edit], vectors: WordVectors
) -> None:
    table = written(tmp_path, edits, vectors)
    expected = state_after(releases, edits, vectors)
    queries = queries_of(vectors)
    copy = Copy(expected, tmp_path, PARTITIONS)
    for moment in ("in logs", "compacted"):
        proof = check(table, expected, queries, copy, K, PARTITIONS)
        assert proof.lines == [], moment
        assert proof.compared["cells"] == expected.num_rows * expected.num_columns
        assert all(proof.compared.values())
        table.compact(flush=True)
    # One word more in one section, with its vector: a cell, a distance and a score.
    place = 2
    changed = expected.slice(place, 1).to_pylist()[0]
    changed["text"] += " async async"
    changed["vector"] = vectors.mean(changed["text"])
    table.upsert([changed])
    lines = check(table, expected, queries, copy, K, PARTITIONS).lines
    for what in ("cells", "cosine, exact", "l2, exact", "text, all scores"):
        assert any(line.startswith(what) for line in lines), (what, lines)
    table.delete([tuple(changed[name] for name in KEY)])
    lines = check(table, expected, queries, copy, K, PARTITIONS).lines
    assert any("is missing" in line for line in lines)


def test_a_section_is_found_by_its_vector_whatever_the_words_of_the_search(
    tmp_path: Path, edits: list[Edit], vectors: WordVectors
) -> None:
    table = written(tmp_path, edits, vectors)
    rows = pa.table(table.scan().to_table()).to_pylist()
    assert len(rows) > K
    for words in ("views", "example", "signals"):
        for row in rows:
            found = table.search(
                row["vector"],
                text=words,
                text_columns="text",
                k=K,
                metric="cosine",
                rerank=FIRST_ROWS_WIN,
            )
            keys = keys_of(pa.table(found.to_table()))
            assert (row["file"], row["heading"]) in keys, words


def test_an_answer_is_wrong_by_a_row_a_rank_a_number_or_a_repetition() -> None:
    right = {("f", "a"): 0.1, ("f", "b"): 0.2, ("f", "c"): 0.2, ("f", "d"): 0.9}
    best = [(("f", "a"), 0.1), (("f", "c"), 0.2)]
    assert answer_differences(best, right, 2, "q") == []
    wrong = {
        "another row": [best[0], (("f", "d"), 0.9)],
        "another number": [best[0], (("f", "c"), 0.21)],
        "another order": best[::-1],
        "too few": best[:1],
        "a row twice": [best[0], best[0]],
        "a deleted row": [best[0], (("f", "x"), 0.2)],
    }
    for why, answer in wrong.items():
        assert answer_differences(answer, right, 2, "q"), why


def test_brute_force_leaves_out_rows_without_a_vector() -> None:
    width = 2
    rows = pa.Table.from_pylist(
        [
            {"file": "f", "heading": "a", "vector": [3.0, 4.0]},
            {"file": "f", "heading": "b", "vector": None},
        ],
        schema=schema_of(width),
    )
    query = np.array([3.0, 0.0], dtype=np.float32)
    assert brute_force(rows, query, "l2") == {("f", "a"): 16.0}
    assert brute_force(rows, query, "cosine")["f", "a"] == pytest.approx(0.4)


def test_the_histogram_counts_each_value_once() -> None:
    values = [0.0, 0.5, 1.0, 1.5, 20.0, 999.0, 5000.0]
    bins = dict(bins_of(values))
    assert sum(bins.values()) == len(values)
    assert (bins["0"], bins["to 1"], bins["to 2"], bins["over 1,000"]) == (1, 2, 1, 1)
    assert len(histogram(values).splitlines()) == len(bins)
    assert "#" not in histogram([])


def test_a_file_that_is_not_the_pinned_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pin = sources.Pin("manual", "manual-1.0.tar.gz", hashlib.sha256(b"right").hexdigest())
    (tmp_path / pin.file).write_bytes(b"right")
    assert sources.fetch(pin, tmp_path, print).read_bytes() == b"right"
    (tmp_path / pin.file).write_bytes(b"wrong")
    monkeypatch.setattr(sources, "_address_of", lambda _: "https://a.test/file")
    monkeypatch.setattr(sources, "_open", lambda *_: io.BytesIO(b"other"))
    with pytest.raises(sources.SourceError, match="checksum mismatch"):
        sources.fetch(pin, tmp_path, print)

    def refuse(*_: object) -> None:
        raise OSError("no route")

    monkeypatch.setattr(sources, "_open", refuse)
    with pytest.raises(sources.SourceError, match="the package index that pip uses"):
        sources.fetch(pin, tmp_path, print)
