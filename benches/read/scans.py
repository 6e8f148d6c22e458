"""Scans with newer rows above the base, beside a plain Lance scan and beside pylance's LSM scan.

Owns: all columns, the key alone and the count, in a process that reads the snapshot for the first
time and again; deletes beside Lance's own deletion vectors; a selective filter on an indexed
column. A count is also compared with Lance's own `count_rows()`, which reads metadata alone.
Does not own: the tables.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import lance

import lancemem
from benches.read import tables
from benches.write.runner import Sample, Settings, Side, column, interleave
from benches.write.stats import Comparison, Goal

if TYPE_CHECKING:
    from benches.read.tables import Above

# A read, which returns the number of its rows.
Read: TypeAlias = Callable[[], int]

COUNT_ROWS = "Lance's count_rows()"
# Pairs with a peer that takes seconds, where the other sides take milliseconds.
SLOW_PAIRS = 3
READS = {"all columns": None, "key only": ["id"], "count": ["id"]}
# Against the plain scan, by what is read; then against pylance.
GOALS = {"all columns": (1.2, 4.0), "key only": (2.0, 10.0), "count": (2.0, 10.0)}


def _timed(read: Read, expected: int) -> Sample:
    begun = time.perf_counter()
    found = read()
    taken = (time.perf_counter() - begun) * 1e3
    if found != expected:
        message = f"{found} rows, not {expected}"
        raise RuntimeError(message)
    return {"ms": taken}


def _plain(dataset: lance.LanceDataset, columns: list[str] | None) -> Read:
    return lambda: sum(batch.num_rows for batch in dataset.to_batches(columns=columns))


def _ours(scan: lancemem.Scan, what: str) -> Read:
    if what == "count":
        return scan.count_rows
    return lambda: sum(batch.num_rows for batch in scan)


def _scan(
    table: lancemem.Table, columns: list[str] | None, jobs: list[lancemem.Job]
) -> lancemem.Scan:
    return table.scan(columns, consistency="live" if jobs else "flushed", jobs=jobs)


def _first(uri: str, what: str, jobs: list[lancemem.Job], expected: int) -> Sample:
    """Read a snapshot that this handle has not read, with the keys of its SSTables in memory."""
    table = lancemem.open_table(uri)
    columns = READS[what]
    table.scan(["id"], "tag < 0", consistency="flushed").count_rows()
    return _timed(_ours(_scan(table, columns, jobs), what), expected)


def _pylance(uri: str, table: lancemem.Table, what: str) -> Read:
    def read() -> int:
        scanner = tables.pylance_scanner(uri, table)
        if what == "count":
            return int(scanner.count_rows())
        columns = READS[what]
        scanner = scanner if columns is None else scanner.project(columns)
        return sum(batch.num_rows for batch in scanner.to_batches())

    return read


def newer(
    settings: Settings, kind: str, base_rows: int, above: Above, *, peer: bool
) -> list[Comparison]:
    """Compare every read of one table with the plain scan of its base, and with pylance's."""
    place = settings.folder / "table"
    uri = str(place / "t.lance")
    found: list[Comparison] = []
    try:
        table = tables.base(uri, kind, base_rows)
        with tables.lay(table, kind, base_rows, above) as job:
            jobs = [] if above.runs else [job]
            for what in READS:
                opened = (uri, table, jobs)
                found += _newer(settings, opened, (kind, base_rows, above), what, peer=peer)
        if above.runs:
            table.alter(deletion_vectors=True)
            for what in READS:
                found += _by_position(settings, uri, (kind, base_rows, above), what)
        return found
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _newer(
    settings: Settings,
    opened: tuple[str, lancemem.Table, list[lancemem.Job]],
    made_of: tuple[str, int, Above],
    what: str,
    *,
    peer: bool,
) -> list[Comparison]:
    uri, table, jobs = opened
    kind, base_rows, above = made_of
    dataset = lance.dataset(uri)
    expected = base_rows - (-(-base_rows // above.every) if above.deletes else 0)
    again = _scan(table, READS[what], jobs)
    sides: dict[str, Side] = {
        "plain": lambda _: _timed(_plain(dataset, READS[what]), base_rows),
        "first": lambda _: _first(uri, what, jobs, expected),
        "again": lambda _: _timed(_ours(again, what), expected),
    }
    if what == "count":
        sides[COUNT_ROWS] = lambda _: _timed(dataset.count_rows, base_rows)
    for side in sides.values():
        side(settings.folder)
    samples = interleave(settings, sides)
    plain_goal, peer_goal = GOALS[what]
    if above.runs > 4:
        plain_goal = 1.5 if what == "all columns" else plain_goal
    label = f"{kind}, {base_rows:,} rows, {above.label}, {what}"
    found = [
        Comparison(
            "scan", f"{label}, {turn}", "plain Lance", "ms",
            column(samples[turn], "ms"), column(samples["plain"], "ms"),
            Goal(plain_goal, at_least=False),
        )
        for turn in ("first", "again")
    ]  # fmt: skip
    if COUNT_ROWS in samples:
        found += [
            _beside_count_rows(f"{label}, {turn}", samples, turn) for turn in ("first", "again")
        ]
    if peer and above.runs:
        theirs = _pylance(uri, table, what)
        pair = {"first": sides["first"], "pylance": lambda _: _timed(theirs, expected)}
        found.append(_beside_pylance(f"{label}, first", settings, pair, Goal(peer_goal)))
    return found


def _beside_pylance(
    label: str, settings: Settings, pair: dict[str, Side], goal: Goal
) -> Comparison:
    """Compare with pylance's LSM scan, in few pairs. Its files are in the page cache."""
    samples = interleave(settings, pair, min(SLOW_PAIRS, settings.pairs))
    ours, theirs = column(samples["first"], "ms"), column(samples["pylance"], "ms")
    return Comparison("scan", label, "pylance", "ms", ours, theirs, goal, inverse=True)


def _beside_count_rows(label: str, samples: dict[str, list[Sample]], side: str) -> Comparison:
    """Compare a count with Lance's of the base table alone."""
    ours, theirs = column(samples[side], "ms"), column(samples[COUNT_ROWS], "ms")
    return Comparison("scan", label, COUNT_ROWS, "ms", ours, theirs)


def _by_position(
    settings: Settings, uri: str, made_of: tuple[str, int, Above], what: str
) -> list[Comparison]:
    """Compare the first read of a handle, in deletion-vector mode, with the plain scan."""
    kind, base_rows, above = made_of
    dataset = lance.dataset(uri)

    def first() -> Sample:
        snapshot = lancemem.open_table(uri).snapshot(consistency="flushed")
        return _timed(_ours(snapshot.scan(READS[what]), what), base_rows)

    sides: dict[str, Side] = {
        "plain": lambda _: _timed(_plain(dataset, READS[what]), base_rows),
        "first": lambda _: first(),
    }
    if what == "count":
        sides[COUNT_ROWS] = lambda _: _timed(dataset.count_rows, base_rows)
    for side in sides.values():
        side(settings.folder)
    samples = interleave(settings, sides)
    plain_goal = 1.5 if above.runs > 4 and what == "all columns" else GOALS[what][0]
    label = f"{kind}, {base_rows:,} rows, {above.label}, deletion-vector mode, {what}, first"
    found = [
        Comparison(
            "scan", label, "plain Lance", "ms",
            column(samples["first"], "ms"), column(samples["plain"], "ms"),
            Goal(plain_goal, at_least=False),
        )
    ]  # fmt: skip
    if COUNT_ROWS in samples:
        found.append(_beside_count_rows(label, samples, "first"))
    return found


def deletes(settings: Settings, kind: str, base_rows: int) -> list[Comparison]:
    """Compare a scan after deletes, pending and compacted, with Lance's deletion vectors."""
    place = settings.folder / "table"
    uris = [str(place / f"{name}.lance") for name in ("pending", "compacted", "lance")]
    try:
        pending, compacted, plain = (tables.base(uri, kind, base_rows) for uri in uris)
        for table in (pending, compacted):
            tables.lay(table, kind, base_rows, tables.DELETED).close(flush=True)
        compacted.compact()
        chosen = range(0, base_rows, tables.DELETED.every)
        _delete_by_lance(plain, kind, chosen)
        expected = base_rows - len(chosen)
        dataset = lance.dataset(uris[2])
        lines = []
        for label, table, uri in (("pending", pending, uris[0]), ("compacted", compacted, uris[1])):
            again = _scan(table, None, [])
            sides: dict[str, Side] = {
                "plain": lambda _: _timed(_plain(dataset, None), expected),
                "first": lambda _, uri=uri: _first(uri, "all columns", [], expected),  # type: ignore[misc]
                "again": lambda _, again=again: _timed(_ours(again, "all columns"), expected),  # type: ignore[misc]
            }
            for side in sides.values():
                side(settings.folder)
            samples = interleave(settings, sides)
            lines += [
                Comparison(
                    "scan", f"{kind}, {base_rows:,} rows, 10 % deleted, {label}, {turn}",
                    "Lance's deletion vectors", "ms",
                    column(samples[turn], "ms"), column(samples["plain"], "ms"),
                    Goal(1.1, at_least=False),
                )
                for turn in ("first", "again")
            ]  # fmt: skip
        return lines
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _delete_by_lance(table: lancemem.Table, kind: str, chosen: range) -> None:
    dataset = lance.dataset(table.uri)
    if kind == "int64":
        dataset.delete(f"id % {chosen.step} = 0")
        return
    quote = "'" if kind == "uuid" else ""
    for start in range(0, len(chosen), 10_000):
        keys = [tables.key(kind, number) for number in chosen[start : start + 10_000]]
        dataset.delete("id IN ({})".format(", ".join(f"{quote}{key}{quote}" for key in keys)))


def filtered(settings: Settings, kind: str, base_rows: int) -> list[Comparison]:
    """Compare a filter on an indexed column that keeps 0.1 % with a plain indexed query."""
    place = settings.folder / "table"
    uri = str(place / "t.lance")
    try:
        table = tables.base(uri, kind, base_rows)
        lance.dataset(uri).create_scalar_index("tag", "BTREE")
        tables.lay(table, kind, base_rows, tables.FOUR).close(flush=True)
        dataset = lance.dataset(uri)
        expected = base_rows // tables.TAGS
        condition = "tag = 7"
        scan = table.scan(filter=condition, consistency="flushed")
        sides: dict[str, Side] = {
            "plain": lambda _: _timed(
                lambda: sum(it.num_rows for it in dataset.to_batches(filter=condition)), expected
            ),
            "ours": lambda _: _timed(lambda: sum(it.num_rows for it in scan), expected),
        }
        for side in sides.values():
            side(settings.folder)
        samples = interleave(settings, sides)
        return [
            Comparison(
                "scan", f"{kind}, {base_rows:,} rows, 4 SSTables, a tag of 0.1 % by its index",
                "plain Lance", "ms",
                column(samples["ours"], "ms"), column(samples["plain"], "ms"),
                Goal(2.0, at_least=False),
            )
        ]  # fmt: skip
    finally:
        shutil.rmtree(place, ignore_errors=True)
