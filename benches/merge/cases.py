"""Puts, scans, look-ups and compactions of tables with a rule, beside the same without.

Owns: the clocks, the order of the sides, and the check of what a read returns. Does not own: the
tables, the stream in Spark (`stream`), or the page.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import lancemem
from benches.compact import measure
from benches.compact import tables as copies
from benches.merge import tables
from benches.write.runner import Sample, Settings, Side, column, interleave
from benches.write.stats import Comparison, Goal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SHARE, SSTABLES = 0.1, 4
LOOKUP_SSTABLES, LOOKUPS = 5, 50
PUTS = {1: 300, 100: 200, 10_000: 30}
PARTIAL_ROWS, PARTIALS, MERGES = 1_000, 10, 2
PLAIN, NO_RULE, MERGE = "plain Lance scan", "no rule", "`merge_insert`"
LOOKED_UP = "deletion-vector mode"
GET = "`get` and `upsert`, no rule"


def _clock(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def _each(call: Callable[[pa.Table], None], batches: list[pa.Table]) -> None:
    for batch in batches:
        call(batch)


def puts(settings: Settings, base: Path, rule: str) -> list[Comparison]:
    """Put durable batches into a table without SSTables, with a rule and without one."""
    found = []
    for size, count in PUTS.items():
        times = np.arange(size, dtype=np.int64)
        batches = [
            tables.rows(np.arange(number * size, (number + 1) * size), number, times)
            for number in range(count)
        ]

        def put(place: Path, rule: str | None, batches: list[pa.Table] = batches) -> Sample:
            path = copies.copy(base, place.name)
            with tables.enable(path, rule).start_job(shard=0) as job:
                job.put(batches[0])
                seconds = _clock(lambda: [job.put(batch) for batch in batches])
            copies.remove(path)
            return {"rate": sum(len(batch) for batch in batches) / seconds}

        sides: dict[str, Side] = {
            "ours": partial(put, rule=rule),
            "theirs": partial(put, rule=None),
        }
        runs = interleave(settings, sides)
        found.append(
            Comparison(
                "put", f"`{rule}`: durable put, batch {size:,}", NO_RULE, "rows/s",
                column(runs["ours"], "rate"), column(runs["theirs"], "rate"), Goal(0.95),
            )
        )  # fmt: skip
    return found


def partial_puts(settings: Settings, base: Path, base_rows: int) -> list[Comparison]:
    """Put one column of random keys, durably, beside the ways of tables without a rule."""
    random = np.random.default_rng(23)
    keys = [random.choice(base_rows, PARTIAL_ROWS, replace=False) for _ in range(PARTIALS)]
    batches = [
        pa.table({"id": pa.array(some), "number": pa.array(random.random(len(some)))})
        for some in keys
    ]

    def put(place: Path) -> Sample:
        path = copies.copy(base, place.name)
        with tables.enable(path, "partial_update").start_job(shard=0) as job:
            seconds = _clock(lambda: [job.put(batch) for batch in batches])
        copies.remove(path)
        return {"ms": seconds * 1e3 / len(batches)}

    def get_and_upsert(place: Path) -> Sample:
        path = copies.copy(base, place.name)
        table = tables.enable(path, None)
        with table.start_job(shard=0) as job:

            def one(batch: pa.Table) -> None:
                stored = table.get(batch.select(["id"]), consistency="live", jobs=[job])
                at = stored.schema.get_field_index("number")
                given = batch["number"].take(pc.index_in(stored["id"], batch["id"]))
                job.put(stored.set_column(at, "number", given))

            seconds = _clock(partial(_each, one, batches))
        copies.remove(path)
        return {"ms": seconds * 1e3 / len(batches)}

    def merge_insert(place: Path) -> Sample:
        path = copies.copy(base, place.name)
        few = batches[:MERGES]

        def one(batch: pa.Table) -> None:
            merge = lance.dataset(str(path)).merge_insert("id").when_matched_update_all()
            merge.execute(batch)

        seconds = _clock(partial(_each, one, few))
        copies.remove(path)
        return {"ms": seconds * 1e3 / len(few)}

    sides: dict[str, Side] = {"ours": put, GET: get_and_upsert, MERGE: merge_insert}
    runs = interleave(settings, sides)
    label = f"durable put of one column of {PARTIAL_ROWS:,} random keys into {base_rows:,} rows"
    return [
        Comparison(
            "partial", label, peer, "ms", column(runs["ours"], "ms"), column(runs[peer], "ms"),
            Goal(bound), inverse=True,
        )
        for peer, bound in ((GET, 5.0), (MERGE, 20.0))
    ]  # fmt: skip


def scans(settings: Settings, base: Path, base_rows: int, rule: str) -> list[Comparison]:
    """Read all columns of a snapshot for the first time and again."""
    changed = tables.late_and_new(base_rows, SHARE, 7)
    ruled = tables.above(base, changed, SSTABLES, rule)
    without = tables.above(base, changed, SSTABLES, None)
    looked_up = tables.above(base, changed, SSTABLES, rule, "looked-up")
    lancemem.open_table(str(looked_up)).alter(deletion_vectors=True)

    def read(path: Path, _: Path) -> Sample:
        scan = lancemem.open_table(str(path)).scan(consistency="flushed")
        seen: list[int] = []
        first = _clock(lambda: seen.append(sum(batch.num_rows for batch in scan)))
        again = _clock(lambda: seen.append(sum(batch.num_rows for batch in scan)))
        if seen != [base_rows, base_rows]:
            message = f"{path.name} has {seen} rows, not {base_rows}"
            raise AssertionError(message)
        return {"first": first * 1e3, "again": again * 1e3}

    def plain(_: Path) -> Sample:
        dataset = lance.dataset(str(base))
        first, again = (_clock(lambda: sum(map(len, dataset.to_batches()))) for _ in range(2))
        return {"first": first * 1e3, "again": again * 1e3}

    sides: dict[str, Side] = {
        "ours": partial(read, ruled),
        LOOKED_UP: partial(read, looked_up),
        NO_RULE: partial(read, without),
        PLAIN: plain,
    }
    runs = interleave(settings, sides)
    goals = {("first", PLAIN): 1.35 if rule == "sequence_by" else 1.6, ("again", PLAIN): 1.2}
    found = []
    for what in ("first", "again"):
        for peer in (PLAIN, NO_RULE):
            bound = goals.get((what, peer))
            found.append(
                Comparison(
                    "scan", f"`{rule}`: scan of {base_rows:,} rows, 10 % contested, {what}", peer,
                    "ms", column(runs["ours"], what), column(runs[peer], what),
                    Goal(bound, at_least=False) if bound else None,
                )
            )  # fmt: skip
    for what in ("first", "again"):
        label = f"`{rule}`: scan in {LOOKED_UP}, {what}"
        found.append(
            Comparison(
                "scan", label, PLAIN, "ms", column(runs[LOOKED_UP], what),
                column(runs[PLAIN], what), Goal(1.05, at_least=False),
            )
        )  # fmt: skip
    for path in (ruled, looked_up, without):
        copies.remove(path)
    return found


def lookups(settings: Settings, base: Path, base_rows: int, rule: str) -> list[Comparison]:
    """Get one key and a thousand keys at random from five SSTables and the base."""
    changed = tables.late_and_new(base_rows, SHARE, 11)
    paths = [tables.above(base, changed, LOOKUP_SSTABLES, which) for which in (rule, None)]
    opened = [lancemem.open_table(str(path)) for path in paths]
    found = []
    for count, calls in ((1, LOOKUPS), (1_000, LOOKUPS // 10)):
        random = np.random.default_rng(count)
        keys = [random.choice(base_rows, count, replace=False).tolist() for _ in range(calls)]

        def get(table: lancemem.Table, _: Path, keys: list[list[int]] = keys) -> Sample:
            table.get(keys[0])
            seconds = _clock(lambda: [table.get(some) for some in keys])
            return {"ms": seconds * 1e3 / len(keys)}

        sides: dict[str, Side] = {
            "ours": partial(get, opened[0]),
            "theirs": partial(get, opened[1]),
        }
        runs = interleave(settings, sides)
        label = f"`{rule}`: get of {count:,} of {base_rows:,} rows, {LOOKUP_SSTABLES} SSTables"
        found.append(
            Comparison(
                "get", label, NO_RULE, "ms", column(runs["ours"], "ms"),
                column(runs["theirs"], "ms"), Goal(1.5, at_least=False),
            )
        )  # fmt: skip
    del opened
    for path in paths:
        copies.remove(path)
    return found


def compactions(settings: Settings, base: Path, base_rows: int, rule: str) -> list[Comparison]:
    """Compact contested rows, beside `merge_insert` of the result and a table without a rule."""
    changed = tables.late_and_new(base_rows, SHARE, 13)
    result = tables.merged(base, changed, rule)
    ruled = tables.above(base, changed, SSTABLES, rule)
    without = tables.above(base, changed, SSTABLES, None)

    def compact(source: Path, _: Path) -> Sample:
        side = measure.Side()
        path = measure.compact(source, "auto", side)
        if source == ruled:
            _same_rows(path, base_rows, result)
        copies.remove(path)
        return side.last()

    def merge_insert(_: Path) -> Sample:
        side = measure.Side()
        copies.remove(measure.merge_insert(base, [result], side))
        return side.last()

    sides: dict[str, Side] = {
        "ours": partial(compact, ruled),
        NO_RULE: partial(compact, without),
        MERGE: merge_insert,
    }
    runs = interleave(settings, sides)
    label = f"`{rule}`: compaction of {changed.num_rows:,} contested of {base_rows:,} rows"
    bound = Goal(1.3, at_least=False) if rule == "sequence_by" else None
    found = [
        Comparison(
            "compact", label, MERGE, "s", column(runs["ours"], "seconds"),
            column(runs[MERGE], "seconds"), Goal(1.0), inverse=True,
        ),
        Comparison(
            "compact", label, NO_RULE, "s", column(runs["ours"], "seconds"),
            column(runs[NO_RULE], "seconds"), bound,
        ),
        Comparison(
            "compact", f"{label}: bytes of the commit", "the rows that changed", "bytes",
            column(runs["ours"], "bytes"), [float(result.nbytes)] * len(runs["ours"]),
            Goal(1.2, at_least=False),
        ),
    ]  # fmt: skip
    for path in (ruled, without):
        copies.remove(path)
    return found


def _same_rows(path: Path, base_rows: int, result: pa.Table) -> None:
    """Compare the rows of the rule with what pylance reads after the compaction."""
    dataset = lance.dataset(str(path))
    names = ["id", "ts", "number"]
    changed = dataset.to_table(names, filter=f"ts <> {tables.BASE_TIME}")
    expected = result.filter(pa.array(result["ts"].to_numpy() != tables.BASE_TIME)).select(names)
    same = changed.sort_by("id").equals(expected.sort_by("id").cast(changed.schema))
    if dataset.count_rows() != base_rows or not same:
        message = f"{path.name} does not have the rows of the rule after its compaction"
        raise AssertionError(message)
