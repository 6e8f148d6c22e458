"""The law of change feeds, over random programs of everything that commits to a base table.

Owns: that state(since) and changes(since, until) give state(until), for every pair of versions;
that counts are rows, feeds that follow each other are one feed, parts are the whole, that stored
changes are those that are derived, and that a consumer that ends at any step commits each change
once. Not here: single operations (test_changes, test_changes_stored).
"""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lancemem
from tests.seeds import seed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.int64())])
KEYS = 40
# Few: the number of pairs of versions grows with the square.
STEPS = 8
ROUNDS = 12
Row = tuple[int, int | None]
Bag = Counter[Row]
BEFORE = {"delete", "update_preimage"}


class _Program:
    """A table, and random commits to it."""

    def __init__(
        self,
        uri: str,
        rng: random.Random,
        *,
        keyed: bool,
        overwrites: bool = True,
        stored: bool = False,
    ) -> None:
        sharding = lancemem.bucket("id", 2) if keyed else lancemem.unsharded()
        key = ["id"] if keyed else []
        self.table = lancemem.create_table(
            uri,
            SCHEMA,
            primary_key=key,
            sharding=sharding,
            changelog="stored" if stored else None,
        )
        self.rng, self.keyed, self.overwrites = rng, keyed, overwrites

    def run(self, steps: int) -> None:
        choices: list[Callable[[], object]] = [
            self.upsert,
            self.upsert,
            self.upsert,
            self.compact,
            self.compact,
            self.compact_files,
            self.delete_by_pylance,
            self.update_by_pylance,
            self.append_by_pylance,
            self.restore,
            self.settings,
        ]
        if self.overwrites:
            choices.append(self.overwrite)
        if self.keyed:
            choices += [self.delete, self.delete, self.merge_by_pylance]
        for _ in range(steps):
            self.rng.choice(choices)()
        self.upsert()
        self.compact()

    @property
    def dataset(self) -> lance.LanceDataset:
        return lance.dataset(self.table.uri)

    def ids(self) -> list[int]:
        return self.rng.sample(range(KEYS), self.rng.randrange(1, 12))

    def rows(self, ids: list[int]) -> pa.Table:
        values = [self.rng.choice([None, *range(4)]) for _ in ids]
        return pa.table({"id": ids, "v": values}, schema=SCHEMA)

    def upsert(self) -> None:
        self.table.upsert(self.rows(self.ids()))

    def delete(self) -> None:
        self.table.delete(self.ids())

    def compact(self) -> None:
        self.table.flush()
        self.table.compact(mode=self.rng.choice(["auto", "link", "rewrite"]))

    def compact_files(self) -> None:
        self.dataset.optimize.compact_files(materialize_deletions_threshold=0.0)

    def delete_by_pylance(self) -> None:
        self.dataset.delete(f"id % 5 = {self.rng.randrange(5)}")

    def update_by_pylance(self) -> None:
        self.dataset.update({"v": "v + 1"}, where=f"id % 4 = {self.rng.randrange(4)}")

    def append_by_pylance(self) -> None:
        # Keys that no other step names: lancemem expects one row of a key.
        first = 1_000 + self.dataset.version * 10
        rows = self.rows([first, first + 1]) if self.keyed else self.rows(self.ids())
        lance.write_dataset(rows, self.table.uri, mode="append")

    def merge_by_pylance(self) -> None:
        merge = self.dataset.merge_insert("id")
        merge = merge.when_matched_update_all().when_not_matched_insert_all()
        merge.execute(self.rows(self.ids()))

    def restore(self) -> None:
        """Bring back the version before. Rows above the base table belong to the newest one."""
        self.compact()
        version = self.dataset.version
        self.dataset.delete(f"id % 3 = {self.rng.randrange(3)}")
        lance.dataset(self.table.uri, version=version).restore()  # type: ignore[no-untyped-call]

    def overwrite(self) -> None:
        """Replace the table, and bring it back: an overwrite removes what lancemem needs."""
        self.compact()
        version = self.dataset.version
        lance.write_dataset(self.rows(self.ids()), self.table.uri, mode="overwrite")
        lance.dataset(self.table.uri, version=version).restore()  # type: ignore[no-untyped-call]

    def settings(self) -> None:
        self.dataset.update_config({"step": str(self.dataset.version)})


def state(uri: str, version: int) -> Bag:
    """Return the rows of a version."""
    if version == 0:
        return Counter()
    rows = lance.dataset(uri, version=version).to_table()
    return Counter(zip(rows["id"].to_pylist(), rows["v"].to_pylist(), strict=True))


def changes(rows: pa.Table) -> Iterator[tuple[str, Row, int]]:
    """Yield kind, row and version of each row of a feed."""
    kinds, versions = rows["_change_type"].to_pylist(), rows["_commit_version"].to_pylist()
    values = zip(rows["id"].to_pylist(), rows["v"].to_pylist(), strict=True)
    yield from zip(kinds, values, versions, strict=True)


def applied(before: Bag, rows: pa.Table) -> Bag:
    """Return the state after the changes, each of which has to fit."""
    after = Counter(before)
    for kind, row, _ in changes(rows):
        if kind in BEFORE:
            assert after[row] > 0, f"{kind} of {row}, which is not there"
            after[row] -= 1
        else:
            after[row] += 1
    return +after


def paired(rows: pa.Table) -> None:
    """Assert that a key has one change in a version, and that updates have both images."""
    kinds: dict[tuple[int, int], list[str]] = {}
    for kind, (key, _), version in changes(rows):
        kinds.setdefault((version, key), []).append(kind)
    expected = (["insert"], ["delete"], ["update_preimage", "update_postimage"])
    assert all(each in expected for each in kinds.values()), kinds


def counted(rows: pa.Table) -> tuple[int, int, int, int]:
    """Return the counts that a feed with these rows has."""
    kinds = Counter(rows["_change_type"].to_pylist())
    return kinds["insert"], kinds["update_postimage"], kinds["delete"], rows.num_rows


def counts(feed: lancemem.ChangeFeed) -> tuple[int, int, int, int]:
    """Return the counts of a feed."""
    of = feed.counts
    return of.num_inserted, of.num_updated, of.num_deleted, of.num_rows


@pytest.mark.parametrize("stored", [False, True], ids=["derived", "stored"])
@pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "unkeyed"])
@pytest.mark.parametrize("number", range(2))
def test_a_state_and_the_changes_behind_it_give_each_later_state(
    number: int, keyed: bool, stored: bool
) -> None:
    rng = random.Random(f"{seed()}/{number}/{keyed}")  # noqa: S311 - a program, no secret
    with tempfile.TemporaryDirectory() as folder:
        program = _Program(f"{folder}/t.lance", rng, keyed=keyed, stored=stored)
        program.run(STEPS)
        check_pairs(program, rng)
        if stored:
            check_both_forms(program)


@contextmanager
def derived(table: lancemem.Table) -> Iterator[None]:
    """Hide the stored changes of a table, so that all changes are derived."""
    there = Path(table.uri) / "_lancemem" / "changelog"
    away = there.with_name("changelog-away")
    there.rename(away)
    try:
        yield
    finally:
        away.rename(there)


def check_both_forms(program: _Program) -> None:
    """Check that stored changes have the rows, order, counts and parts of derived ones."""
    last = program.dataset.version
    asked: list[dict[str, Any]] = [
        {},
        {"skip_unchanged": True},
        {"filter": "v % 2 = 1", "columns": ["v", "id"]},
        {"row_kinds": "flink", "columns": ["id"]},
    ]
    ranges = [(since, last) for since in range(last)] + [(0, until) for until in range(1, last)]
    num_stored = 0
    for since, until in ranges:
        for arguments in asked:
            feed = program.table.changes(since, until, **arguments)
            rows, parts = feed.to_table(), feed.parts(3)
            num_stored += sum(version.is_stored for version in feed.versions)
            with derived(program.table):
                other = program.table.changes(since, until, **arguments)
                assert not any(version.is_stored for version in other.versions)
                assert other.to_table() == rows
                assert counts(other) == counts(feed)
                assert [pa.table(part) for part in other.parts(3)] == [
                    pa.table(part) for part in parts
                ]
            assert [version.version for version in other.versions] == [
                version.version for version in feed.versions
            ]
            assert pa.concat_tables([rows.slice(0, 0), *map(pa.table, parts)]) == rows
    assert num_stored > 0, "the program ends with a compaction of rows"


def check_pairs(program: _Program, rng: random.Random) -> None:
    """Check the law for every pair of versions, and the rest for some."""
    table = program.table
    last = program.dataset.version
    states = [state(table.uri, version) for version in range(last + 1)]
    for since in range(last + 1):
        for until in range(max(since, 1), last + 1):
            feed = table.changes(since, until)
            rows = feed.to_table()
            assert applied(states[since], rows) == states[until], f"{since} to {until}"
            assert counts(feed) == counted(rows)
            versions = [version.version for version in feed.versions]
            assert versions == list(dict.fromkeys(rows["_commit_version"].to_pylist()))
            if not feed.schema.field("id").nullable:
                paired(rows)
            if rng.random() < 0.1:
                check_forms(table, feed, rows, rng)


def check_forms(
    table: lancemem.Table, feed: lancemem.ChangeFeed, rows: pa.Table, rng: random.Random
) -> None:
    """Check that a feed in two reads, in parts and with equal images left out fits the whole."""
    assert feed.since is not None
    middle = rng.randrange(max(feed.since, 1), feed.until + 1)
    if schema_of_range(table, feed, middle):
        halves = [table.changes(feed.since, middle), table.changes(middle, feed.until)]
        assert pa.concat_tables([half.to_table() for half in halves]) == rows
    parts = feed.parts(rng.randrange(1, 6))
    assert pa.concat_tables([feed.schema.empty_table(), *map(pa.table, parts)]) == rows
    skipped = table.changes(feed.since, feed.until, skip_unchanged=True)
    before = state(table.uri, feed.since)
    assert applied(before, skipped.to_table()) == state(table.uri, feed.until)
    assert counts(skipped) == counted(skipped.to_table())
    parts = skipped.parts(3)
    whole = pa.concat_tables([feed.schema.empty_table(), *map(pa.table, parts)])
    assert whole == skipped.to_table()
    odd = table.changes(feed.since, feed.until, filter="v % 2 = 1", columns=["v", "id"])
    assert counts(odd) == counted(odd.to_table())
    kept = Counter((kind, row, version) for kind, row, version in changes(odd.to_table()))
    assert kept <= Counter(changes(rows))
    passing = [change for change in changes(rows) if change[1][1] is not None and change[1][1] % 2]
    assert Counter(passing) <= kept


def schema_of_range(table: lancemem.Table, feed: lancemem.ChangeFeed, middle: int) -> bool:
    """Whether a version in the middle has the key of the last one: an overwrite has none."""
    return bool(table.changes(middle, middle).schema == feed.schema)


@pytest.mark.parametrize("number", range(2))
def test_a_consumer_that_ends_at_any_step_commits_each_change_once(number: int) -> None:
    rng = random.Random(f"{seed()}/consumer/{number}")  # noqa: S311 - a program, no secret
    with tempfile.TemporaryDirectory() as folder:
        program = _Program(f"{folder}/t.lance", rng, keyed=True, overwrites=False)
        table = program.table
        start = program.dataset.version
        table.changes_consumer("mirror", since=start).close()
        committed: list[pa.Table] = []
        mirror: dict[int, Any] = dict(state(table.uri, start))
        for _ in range(ROUNDS):
            program.run(1)
            committed += consumed(table, mirror, rng)
            assert_is_state(mirror, table, committed)
        whole = table.changes(start).to_table()
        with table.changes_consumer("mirror") as consumer:
            while feed := consumer.poll():
                committed.append(feed.to_table())
                consumer.commit(feed)
        assert pa.concat_tables(committed) == whole


def consumed(table: lancemem.Table, mirror: dict[int, Any], rng: random.Random) -> list[pa.Table]:
    """Poll with a new consumer, which may end before it has stored or committed the changes."""
    with table.changes_consumer("mirror") as consumer:
        feed = consumer.poll(max_versions=rng.choice([None, 1, 3]))
        if feed is None or rng.random() < 0.3:
            return []
        rows = feed.to_table()
        # Stored by key: the changes of a feed that was not committed come again.
        for kind, (key, value), _ in changes(rows):
            if kind == "delete":
                mirror.pop(key, None)
            elif kind != "update_preimage":
                mirror[key] = value
        if rng.random() < 0.3:
            return []
        consumer.commit(feed)
        return [rows]


def assert_is_state(
    mirror: dict[int, Any], table: lancemem.Table, committed: list[pa.Table]
) -> None:
    """Assert that a mirror is the table once everything is committed."""
    (info,) = table.changes_consumers()
    if committed and info.position == lance.dataset(table.uri).version:
        assert Counter(mirror.items()) == state(table.uri, info.position)


@pytest.mark.parametrize("stored", [False, True], ids=["derived", "stored"])
def test_a_net_step_over_versions_that_are_gone_keeps_the_law(stored: bool) -> None:
    rng = random.Random(seed())  # noqa: S311 - a program, no secret
    for keyed in (True, False):
        with tempfile.TemporaryDirectory() as folder:
            program = _Program(f"{folder}/t.lance", rng, keyed=keyed, stored=stored)
            program.run(4)
            since = program.dataset.version
            before = state(program.table.uri, since)
            program.table.changes_consumer("mirror", since=since)
            program.run(6)
            program.dataset.cleanup_old_versions(
                older_than=timedelta(0), error_if_tagged_old_versions=False
            )
            feed = program.table.changes(since)
            rows = feed.to_table()
            assert applied(before, rows) == state(program.table.uri, feed.until)
            assert counts(feed) == counted(rows)
            parts = [feed.schema.empty_table(), *map(pa.table, feed.parts(4))]
            assert pa.concat_tables(parts) == rows
            if keyed:
                paired(rows)
                unchanged = [
                    row
                    for row, number in Counter(row for _, row, _ in changes(rows)).items()
                    if number > 1
                ]
                assert unchanged == [], "rows that only moved are no change"
