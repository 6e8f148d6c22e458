"""Runs the demo end to end and fails unless every answer is right.

Owns the order of the run and its output. The releases are read and divided into edits. A stream of
Spark applies edit after edit; before each one the searching process is told which section of it to
look for. After each release it answers one question. At the end the rows and the answers are proven
three times: as the stream left them, after a flush, and after a compaction. It imports lancemem as
a user would.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

import lancemem
from demo.manual import sources
from demo.manual.corpus import changes_of, schema_of, state_after
from demo.manual.measures import EditTimes, percentile, summarize
from demo.manual.picture import draw, histogram
from demo.manual.proof import Copy, Proof, Query, check
from demo.manual.searcher import Searcher, Target
from demo.manual.sections import Edit, Sections, edits_between, read_release
from demo.manual.stream import PARTITIONS, EditStream
from demo.manual.vectors import WordVectors

if TYPE_CHECKING:
    from collections.abc import Iterable

QUICK_RELEASES = 3
FIRST_EDIT_ROWS = 500
EDIT_ROWS = 40
ASKED = "async views"
STANDING = (
    ASKED,
    "full text search in postgresql",
    "custom user model",
    "cache a page for anonymous visitors",
    "csrf token in ajax requests",
)
PROVEN_QUERIES = 40
K = 10
SHOWN_ANSWERS = 3
QUERY_WORDS = 12
SHOW_EVERY_SECONDS = 10.0


@dataclass
class Corpus:
    """What is written: the releases, their edits, and the vectors of words."""

    vectors: WordVectors
    releases: dict[str, Sections] = field(default_factory=dict)
    edits: list[Edit] = field(default_factory=list)

    def query(self, text: str) -> Query:
        """Return the words with their vector."""
        vector = self.vectors.mean(text)
        if vector is None:
            raise ValueError(f"no word of {text!r} has a vector")
        return Query(text, vector)


def main(arguments: list[str] | None = None) -> int:
    """Run the demo; 0 if every row and every answer is right, else 1."""
    started = time.perf_counter()
    options = _parse(arguments)
    work = _fresh_folder(options.out / "manual")
    try:
        corpus = _read(
            options.downloads, QUICK_RELEASES if options.quick else len(sources.RELEASES)
        )
    except sources.SourceError as error:
        say(str(error))
        return 2
    say(f"starting Spark on {options.master} ...")
    with EditStream(work, schema_of(corpus.vectors.width), options.master) as stream:
        times, search_ms = _write_all(stream, corpus)
        proofs = _prove(stream, corpus, work)
    rows = len(corpus.releases[next(reversed(corpus.releases))])
    total_s = time.perf_counter() - started
    summary = summarize(times, search_ms, proofs, rows, total_s)
    _report(summary, times, proofs, options.out)
    return 1 if summary["differences"] else 0


def _read(downloads: Path, count: int) -> Corpus:
    say("words and their vectors ...")
    vectors = WordVectors.read(sources.fetch(sources.WORD_VECTORS, downloads, say))
    corpus = Corpus(vectors)
    old: Sections = {}
    for release in list(sources.RELEASES)[:count]:
        new = read_release(sources.fetch(sources.pin_of(release), downloads, say))
        size = EDIT_ROWS if old else FIRST_EDIT_ROWS
        edits = list(edits_between(old, new, release, size, len(corpus.edits) + 1))
        upserts, deletes = (
            sum(len(getattr(it, name)) for it in edits) for name in ("upserts", "deletes")
        )
        say(
            f"Django {release}: {len(new):,} sections; {upserts:,} new or changed, {deletes:,} "
            f"vanished, in {len(edits)} edits"
        )
        corpus.releases[release] = new
        corpus.edits.extend(edits)
        old = new
    return corpus


def _write_all(stream: EditStream, corpus: Corpus) -> tuple[list[EditTimes], list[float]]:
    """Write the edits, release after release, while the other process searches."""
    times: list[EditTimes] = []
    first = changes_of(corpus.edits[0], corpus.vectors)
    sample = stream.folder / "sample.parquet"
    pq.write_table(first, sample)
    stream.start(sample)
    with Searcher(stream.table.uri, [corpus.query(text) for text in STANDING]) as searcher:
        for number, release in enumerate(corpus.releases):
            say(f"\nwriting Django {release} ...")
            edits = [edit for edit in corpus.edits if edit.release == release]
            times.extend(_write_release(stream, searcher, corpus, edits))
            if number == 0:
                say("  an index of the vectors ...")
                stream.index_vectors()
            _show_release(stream, searcher, corpus, [it for it in times if it.release == release])
        search_ms = searcher.milliseconds()
    return times, search_ms


def _write_release(
    stream: EditStream, searcher: Searcher, corpus: Corpus, edits: list[Edit]
) -> Iterable[EditTimes]:
    shown = time.monotonic()
    for done, edit in enumerate(edits, 1):
        yield _write_edit(stream, searcher, corpus, edit)
        if edit.number == 1:
            say("  an index of the texts ...")
            stream.index_texts()
        if time.monotonic() - shown > SHOW_EVERY_SECONDS:
            shown = time.monotonic()
            say(f"  {done} of {len(edits)} edits; {stream.tiers()}")


def _write_edit(stream: EditStream, searcher: Searcher, corpus: Corpus, edit: Edit) -> EditTimes:
    target = _target_of(edit, corpus.vectors)
    changes = changes_of(edit, corpus.vectors)
    if target is not None:
        searcher.look_for(target)
    write_s = stream.publish(edit.number, changes)
    fresh_ms = None
    if target is not None:
        fresh_ms = max(0, searcher.found_at() - stream.acknowledged_at) / 1e6
    counts = len(edit.upserts), len(edit.deletes)
    return EditTimes(edit.number, edit.release, *counts, write_s, fresh_ms)


def _target_of(edit: Edit, vectors: WordVectors) -> Target | None:
    """Choose the longest section of an edit: no other one has its vector."""
    for key, text in sorted(edit.upserts.items(), key=lambda item: -len(item[1])):
        vector = vectors.mean(text)
        if vector is not None:
            words = " ".join(text.split()[:QUERY_WORDS])
            return Target(*key, edit.number, words, vector.tolist())
    return None


def _show_release(
    stream: EditStream, searcher: Searcher, corpus: Corpus, times: list[EditTimes]
) -> None:
    fresh = [it.fresh_ms for it in times if it.fresh_ms is not None]
    release = times[-1].release if times else "?"
    say(
        f"  {len(times)} edits in {sum(it.write_s for it in times):.1f} s; acknowledged to found "
        f"p50 {percentile(fresh, 50):.1f} ms; {stream.tiers()}"
    )
    say(f"  {ASKED!r} in the manual of Django {release}, and the release that wrote the section:")
    for how, rows in searcher.answer(corpus.query(ASKED)).items():
        for row in rows[:SHOWN_ANSWERS]:
            title = row["heading"].rpartition(" > ")[2]
            say(f"    by {how:7} {row['release']}  {row['file']}: {title}")


def _prove(stream: EditStream, corpus: Corpus, work: Path) -> list[Proof]:
    """Prove the rows and answers where they lie, and again after a last compaction."""
    expected = state_after(corpus.releases, corpus.edits, corpus.vectors)
    say(f"\na fresh copy of {expected.num_rows:,} rows with indexes of pylance ...")
    copy = Copy(expected, work / "copy", PARTITIONS)
    headings = expected["heading"].to_pylist()
    texts = [*STANDING, *headings[:: max(1, len(headings) // (PROVEN_QUERIES - len(STANDING)))]]
    queries = [corpus.query(text) for text in texts if corpus.vectors.mean(text) is not None]
    stream.stop_writing()
    proofs: list[Proof] = []
    moments = {
        "as the stream left them": None,
        "after a flush": stream.table.flush,
        "after a compaction": stream.table.compact,
    }
    for moment, move in moments.items():
        if move is not None:
            move()
        say(f"comparing rows and {len(queries)} answers, {moment}: {stream.tiers()} ...")
        table = lancemem.open_table(stream.table.uri)
        proofs.append(check(table, expected, queries, copy, K, PARTITIONS))
    return proofs


def _report(
    summary: dict[str, Any], times: list[EditTimes], proofs: list[Proof], out: Path
) -> None:
    (out / "manual.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    title = f"Django's manual: {summary['edits']:,} edits, {summary['rows']:,} sections"
    draw(out / "manual.png", times, title)
    fresh = [it.fresh_ms for it in times if it.fresh_ms is not None]
    say(
        f"\nacknowledged to found by another process, {len(fresh)} edits:\n{histogram(fresh)}\n"
        f"\nsections   {summary['rows']:,} of the last release\n"
        f"edits      {summary['edits']:,}: {summary['upserts']:,} upserts, {summary['deletes']:,} "
        f"deletes\n"
        f"freshness  p50 {summary['freshness_p50_ms']:.1f} ms, p99 "
        f"{summary['freshness_p99_ms']:.1f} ms\n"
        f"searches   {summary['searches']:,} hybrid ones meanwhile, p50 "
        f"{summary['search_p50_ms']:.1f} ms, p99 {summary['search_p99_ms']:.1f} ms\n"
        f"whole run  {summary['total_seconds']:.0f} s\n"
        f"picture    {out / 'manual.png'}\n"
        f"summary    {out / 'manual.json'}\n"
    )
    for what, count in summary["compared"].items():
        say(f"proof      {count:9,} compared: {what}")
    differences = [line for proof in proofs for line in proof.lines]
    if differences:
        say("\nNOT EQUAL:\n" + "\n".join(differences))
    else:
        say("proof      all equal to brute force and to pylance's index of a fresh copy")


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m demo.manual",
        description="Ten releases of a manual, searched while written.",
    )
    parser.add_argument("--quick", action="store_true", help=f"only {QUICK_RELEASES} releases")
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the results")
    parser.add_argument(
        "--downloads",
        type=Path,
        default=Path(".venv/downloads"),
        help="folder of the releases and the word vectors, which are downloaded once",
    )
    parser.add_argument("--master", default="local[2]", help="the Spark master to run on")
    return parser.parse_args(arguments)


def _fresh_folder(path: Path) -> Path:
    """Make an empty folder; files of an earlier run are removed."""
    shutil.rmtree(path, ignore_errors=True)
    (path / "copy").mkdir(parents=True)
    return path.resolve()


def say(line: str) -> None:
    """Print a line at once, also into a pipe."""
    print(line, flush=True)
