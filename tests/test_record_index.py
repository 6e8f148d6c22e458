"""The record index: correct lookups whatever happens to the base table or to the index.

Owns: `create_record_index`, `drop_record_index`, `verify_record_index`, the upkeep by compactions,
and lookups with, without and with a damaged index. Not here: lookups as such (test_get), compaction
(test_compaction).
"""

from __future__ import annotations

import logging
import os
import random
import shutil
import subprocess
import sys
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lancemem
from tests.keyed_rows import KEYS, Key, KeyedRows, empty_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tests.conftest import MakeTable

DAY = 24 * 3600


class Model(KeyedRows):
    """A table of one shard that is compacted and looked up by key."""

    def compact(self) -> None:
        """Move all rows into the base table."""
        flush(self.table)
        self.table.compact()

    def check(self, numbers: Iterable[int]) -> None:
        """Look up the keys, many at once and one at a time."""
        asked = list(dict.fromkeys(self.key(n) for n in numbers))
        for keys in (asked, asked[:1], asked[-2:]):
            found = lookup(self.table, self.batch(dict.fromkeys(keys, "")))
            assert found == {key: self.rows[key] for key in keys if key in self.rows}


def flush(table: lancemem.Table) -> None:
    for shard in table.shards():
        table.start_job(shard=shard.shard_id).close(flush=True)


def lookup(table: lancemem.Table, keys: pa.Table) -> dict[Key, str]:
    found = table.get(keys)
    columns = [found[name].to_pylist() for name in table.primary_key]
    rows = dict(zip(zip(*columns, strict=True), found["value"].to_pylist(), strict=True))
    assert len(rows) == found.num_rows
    return rows


def folder(table: lancemem.Table) -> Path:
    return Path(table.uri) / "_lancemem" / "record_index"


def published(table: lancemem.Table) -> set[str]:
    return {path.stem for path in (folder(table) / "runs").glob("*.binpb")}


def sound(table: lancemem.Table) -> lancemem.RecordIndexReport:
    report = table.admin.verify_record_index()
    assert report.damage == []
    return report


@pytest.fixture(params=KEYS)
def model(request: pytest.FixtureRequest, make_table: MakeTable) -> Model:
    """Give an empty table for each kind of key."""
    return Model(*empty_table(make_table, request.param))


@pytest.fixture
def ints(make_table: MakeTable) -> Model:
    return Model(*empty_table(make_table, "int64"))


def test_lookups_are_right_over_a_life_of_upserts_deletes_and_compactions(model: Model) -> None:
    rng = random.Random(7)  # noqa: S311 - no secret
    model.put(range(1000), "first")
    model.compact()
    report = model.table.create_record_index()
    assert (report.num_fragments_uncovered, report.damage) == (0, [])
    assert report.num_entries >= len(model.rows)
    for step in range(6):
        model.put(rng.sample(range(1200), 90), f"v{step}")
        model.delete(rng.sample(range(1200), 40))
        model.check(rng.sample(range(1300), 200))
        model.compact()
        report = sound(model.table)
        assert report.num_fragments_uncovered == 0, "a compaction keeps the index up"
        model.check(rng.sample(range(1300), 200))
    model.check(range(1300))
    assert model.table.scan().count_rows() == len(model.rows)


def test_a_table_without_an_index_gets_none_from_a_compaction(ints: Model) -> None:
    ints.put(range(10), "a")
    ints.compact()
    assert not folder(ints.table).exists()
    report = sound(ints.table)
    assert (report.num_runs, report.num_entries, report.num_fragments_uncovered) == (0, 0, 1)


def test_an_index_of_an_empty_base_takes_up_what_comes(ints: Model) -> None:
    assert ints.table.create_record_index().num_runs == 0
    ints.put(range(100), "a")
    ints.compact()
    report = sound(ints.table)
    assert (report.num_runs, report.num_entries, report.num_fragments_covered) == (1, 100, 1)
    assert len(published(ints.table)) == 1, "the run that only said that there is an index is gone"
    ints.check(range(120))


def test_the_key_index_of_an_sstable_is_linked_without_a_copy(ints: Model) -> None:
    ints.table.create_record_index()
    ints.put(range(1000), "a")
    flush(ints.table)
    (pages,) = Path(ints.table.uri).glob("_mem_wal/*/*_gen_*/_pk_index/page_data.lance")
    ints.table.compact()
    (linked,) = folder(ints.table).glob("*/page_data.lance")
    assert linked.samefile(pages)
    ints.check(range(1100))


def test_without_its_folder_everything_works_and_a_new_one_brings_it_back(ints: Model) -> None:
    ints.put(range(500), "a")
    ints.compact()
    ints.table.create_record_index()
    ints.check(range(600))
    shutil.rmtree(folder(ints.table))
    ints.check(range(600))
    ints.put(range(400, 700), "b")
    ints.compact()
    ints.check(range(800))
    assert not folder(ints.table).exists()
    assert ints.table.create_record_index().num_fragments_uncovered == 0
    sound(ints.table)
    ints.check(range(800))


def test_a_dropped_index_is_not_used_and_not_kept_up_until_one_is_created(ints: Model) -> None:
    ints.put(range(500), "a")
    ints.compact()
    ints.table.create_record_index()
    ints.check(range(600))
    reader = lancemem.open_table(ints.table.uri)
    keys = pa.table([[-500, -400, 499], [""] * 3], schema=ints.table.schema)
    answer = lookup(reader, keys)
    ints.table.drop_record_index()
    assert published(ints.table) == set()
    assert lookup(reader, keys) == answer, "it goes on with the pages that it has open"
    ints.check(range(600))
    report = sound(ints.table)
    assert (report.num_runs, report.num_stale_runs, report.num_fragments_uncovered) == (0, 0, 1)
    ints.put(range(400, 700), "b")
    ints.compact()
    ints.check(range(800))
    assert published(ints.table) == set()
    for path in folder(ints.table).rglob("*.lance"):
        os.utime(path, (path.stat().st_atime, path.stat().st_mtime - DAY))
    gone = ints.table.collect_garbage(older_than=timedelta(0))
    assert "record index run" in {garbage.kind for garbage in gone.garbage}
    assert not list(folder(ints.table).rglob("*.lance"))
    assert lookup(reader, keys) == answer
    ints.check(range(800))
    ints.table.drop_record_index()
    assert ints.table.create_record_index().num_fragments_uncovered == 0
    sound(ints.table)
    ints.check(range(800))


def test_compactions_and_reads_beside_a_drop_do_not_bring_the_index_back(ints: Model) -> None:
    ints.put(range(100), "a")
    ints.compact()
    ended = threading.Event()

    def read() -> None:
        while not ended.is_set():
            reader = lancemem.open_table(ints.table.uri)
            assert reader.get(pa.table({"id": [-500, -401]})).num_rows == 2

    with ThreadPoolExecutor(1) as threads:
        reads = threads.submit(read)
        try:
            for step in range(20):
                ints.table.create_record_index()
                ints.put(range(step * 10, step * 10 + 50), f"v{step}")
                flush(ints.table)
                other = lancemem.open_table(ints.table.uri)
                compaction = threading.Thread(target=other.compact)
                compaction.start()
                time.sleep(random.random() / 20)  # noqa: S311 - no secret
                ints.table.drop_record_index()
                compaction.join()
                assert published(ints.table) == set(), step
                ints.check(range(250))
        finally:
            ended.set()
        reads.result()


@pytest.mark.filterwarnings("ignore:lance is not fork-safe")
def test_foreign_commits_and_lances_compaction_leave_every_answer_right(ints: Model) -> None:
    for step in range(4):
        ints.put(range(step * 100, step * 100 + 150), f"v{step}")
        ints.compact()
    ints.table.create_record_index()
    ints.check(range(600))
    # Rows that another program appends, deletes and updates, and fragments that it merges.
    other = lance.dataset(ints.table.uri)
    other = lance.write_dataset(
        pa.table({"id": [9_000, 9_001], "value": ["x", "y"]}, schema=ints.table.schema),
        ints.table.uri,
        mode="append",
    )
    ints.rows |= {(9_000,): "x", (9_001,): "y"}
    ints.check([*range(600), 9_500, 9_501, 9_502])
    other.delete("id < -450")
    ints.rows = {key: value for key, value in ints.rows.items() if key[0] >= -450}
    ints.check([*range(600), 9_500])
    other.update({"value": "'updated'"}, where="id >= 0 and id < 20")
    ints.rows |= {(n,): "updated" for n in range(20) if (n,) in ints.rows}
    ints.check(range(600))
    assert sound(ints.table).num_fragments_covered >= 1
    other.optimize.compact_files(target_rows_per_fragment=1_000_000)
    report = sound(ints.table)
    assert (report.num_fragments_covered, report.num_fragments_uncovered) == (0, 1)
    ints.check([*range(600), 9_500, 9_501])
    ints.put(range(50, 60), "again")
    ints.compact()
    report = sound(ints.table)
    assert report.num_fragments_uncovered == 0
    assert report.num_stale_runs == 0
    ints.check([*range(600), 9_500, 9_501])


def test_a_fragment_whose_id_is_used_again_is_not_taken_for_the_old_one(ints: Model) -> None:
    empty = lance.dataset(ints.table.uri).version
    ints.put(range(100), "a")
    ints.compact()
    ints.table.create_record_index()
    first = lance.dataset(ints.table.uri)
    ids = [fragment.fragment_id for fragment in first.get_fragments()]
    rows = [[-400 - n for n in range(100)], ["other"] * 100]
    earlier: Any = first.checkout_version(empty)
    earlier.restore()
    lance.write_dataset(pa.table(rows, schema=ints.table.schema), ints.table.uri, mode="append")
    again = lance.dataset(ints.table.uri)
    assert {fragment.fragment_id for fragment in again.get_fragments()}
    table = lancemem.open_table(ints.table.uri)
    table.admin.abandon_generations(0, through_generation=1)
    report = table.admin.verify_record_index()
    assert (report.damage, report.num_fragments_covered) == ([], 0), (ids, report)
    keys = pa.table([[-400, -499, -401], [""] * 3], schema=ints.table.schema)
    assert lookup(table, keys) == {(-400,): "other", (-499,): "other", (-401,): "other"}


def damage_pages(run: Path) -> None:
    for name in ("page_data.lance", "page_lookup.lance"):
        path = run / name
        copy = path.read_bytes()
        path.unlink()  # it may be a link to an SSTable's own file
        path.write_bytes(copy[: len(copy) // 2])


def test_a_damaged_index_is_found_repaired_and_never_trusted(
    ints: Model, caplog: pytest.LogCaptureFixture
) -> None:
    ints.put(range(1000), "a")
    ints.compact()
    ints.table.create_record_index()
    (name,) = published(ints.table)
    damage_pages(folder(ints.table) / name)
    table = lancemem.open_table(ints.table.uri)
    with caplog.at_level(logging.WARNING, logger="lancemem"):
        keys = pa.table([[-500, 0, 499, 500], [""] * 4], schema=ints.table.schema)
        assert len(lookup(table, keys)) == 3
        table.stats()
    lines = [record.getMessage() for record in caplog.records]
    assert any("the record index cannot be read" in line for line in lines), lines
    report = table.admin.verify_record_index()
    assert len(report.damage) >= 1
    assert name in report.damage[0]
    # A compaction does not need the index either.
    ints.put(range(10, 20), "b")
    ints.compact()
    ints.check(range(1100))
    table.create_record_index()
    sound(table)
    ints.check(range(1100))


@pytest.mark.parametrize("file", ["page_data.lance", "page_lookup.lance"])
def test_a_byte_that_changed_in_the_pages_is_found_and_changes_no_answer(
    ints: Model, file: str
) -> None:
    ints.put(range(300), "a")
    ints.compact()
    ints.table.create_record_index()
    ints.put(range(250, 600), "b")  # its key index is linked
    ints.compact()
    names = published(ints.table)
    assert len(names) == 2
    keys = pa.table([[-500, -200, -100, 99, 100], [""] * 5], schema=ints.table.schema)
    answer = lookup(ints.table, keys)
    assert len(answer) == 4
    for name in names:
        path = folder(ints.table) / name / file
        whole = path.read_bytes()
        path.unlink()  # it may be a link to an SSTable's own file
        for at in range(0, len(whole), max(1, len(whole) // 60)):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x40]) + whole[at + 1 :])
            table = lancemem.open_table(ints.table.uri)
            assert lookup(table, keys) == answer, (name, at)
            damage = table.admin.verify_record_index().damage
            assert name in damage[0], (at, damage)
            assert file in damage[0], (at, damage)
        path.write_bytes(whole)
        sound(lancemem.open_table(ints.table.uri))


def test_large_pages_are_compared_before_a_compaction_writes_down_what_they_say(
    ints: Model,
) -> None:
    count, step = 2_100_000, 100
    uri, schema = ints.table.uri, ints.table.schema
    rows = pa.table([range(count), ["a"] * count], schema=schema)
    lance.write_dataset(rows, uri, mode="append")
    table = lancemem.open_table(uri)
    table.create_record_index()
    (name,) = published(table)
    pages = folder(table) / name / "page_data.lance"
    whole = pages.read_bytes()
    assert len(whole) > 32 << 20, "smaller ones are compared when they are opened"
    damaged = bytearray(whole)
    for at in range(len(whole) // 200, len(whole) // 2, len(whole) // 100):
        damaged[at] ^= 0x04
    pages.write_bytes(damaged)
    table = lancemem.open_table(uri)
    changed = range(0, count, step)
    table.upsert(pa.table([changed, ["b"] * len(changed)], schema=schema))
    flush(table)
    table.compact()
    values = lance.dataset(uri).to_table().sort_by("id")["value"]
    assert len(values) == count, "no key stands twice"
    assert values.take(pa.array(changed)).unique().to_pylist() == ["b"]
    assert lance.dataset(uri).count_rows("value = 'b'") == len(changed)


def test_a_damaged_publication_is_left_out_and_named(ints: Model) -> None:
    ints.put(range(100), "a")
    ints.compact()
    ints.table.create_record_index()
    (name,) = published(ints.table)
    path = folder(ints.table) / "runs" / f"{name}.binpb"
    written = path.read_bytes()
    path.write_bytes(written[:-1] + bytes([written[-1] ^ 1]))
    table = lancemem.open_table(ints.table.uri)
    assert [name in line for line in table.admin.verify_record_index().damage] == [True]
    ints.table = table
    ints.check(range(150))
    table.create_record_index()
    sound(table)
    assert name not in published(table)


def varint(content: bytes, at: int) -> tuple[int, int]:
    """Read a varint of a message, and return the place behind it."""
    number = shift = 0
    while True:
        number |= (content[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if content[at - 1] < 0x80:
            return number, at


def fields(message: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield each field of a message: its number, all its bytes, and the bytes of its value."""
    at = 0
    while at < len(message):
        start = at
        tag, at = varint(message, at)
        value = at
        if tag & 7 == 0:
            _, at = varint(message, at)
        elif tag & 7 == 2:
            length, value = varint(message, at)
            at = value + length
        else:
            assert tag & 7 == 5
            at += 4
        yield tag >> 3, message[start:at], message[value:at]


def republish(publication: Path, page_files: Callable[[bytes], bytes]) -> None:
    """Change the messages of the files of pages, as earlier versions wrote them."""
    content = publication.read_bytes()
    magic, message = content[:8], content[8:-4]
    content = magic + b"".join(
        page_files(value) if number == 6 else field for number, field, value in fields(message)
    )
    publication.write_bytes(content + zlib.crc32(content).to_bytes(4, "little"))


def without_checksums(publication: Path) -> None:
    """Leave out the list of page files: no page is verified."""
    republish(publication, lambda _: b"")


def without_blocks(publication: Path) -> None:
    """Leave out the sizes and the checksums of blocks: files are verified whole."""

    def message(file: bytes) -> bytes:
        known = b"".join(field for number, field, _ in fields(file) if number <= 2)
        assert len(known) < len(file) < 1 << 14
        return bytes([6 << 3 | 2, len(known)]) + known

    republish(publication, message)


def test_a_verification_beside_creations_tells_of_no_damage(make_table: MakeTable) -> None:
    """A sorted run may be published while the check reads the entries of other runs."""
    table = make_table()
    count = 50_000
    columns = [list(range(count)), ["a"] * count, [0.0] * count]
    table.upsert(pa.table(columns, schema=table.schema))
    flush(table)
    table.compact()
    table.create_record_index()
    ended = threading.Event()

    def create() -> None:
        other = lancemem.open_table(table.uri)
        while not ended.is_set():
            other.create_record_index()

    beside = threading.Thread(target=create)
    beside.start()
    try:
        for _ in range(20):
            assert table.admin.verify_record_index().damage == []
    finally:
        ended.set()
        beside.join()


def test_pages_of_an_earlier_version_are_read_without_checksums(ints: Model) -> None:
    ints.put(range(300), "a")
    ints.compact()
    ints.table.create_record_index()
    (name,) = published(ints.table)
    without_checksums(folder(ints.table) / "runs" / f"{name}.binpb")
    ints.table = lancemem.open_table(ints.table.uri)
    assert sound(ints.table).num_fragments_covered == 1
    ints.check(range(350))


@pytest.mark.parametrize("file", ["page_data.lance", "page_lookup.lance"])
def test_pages_of_a_version_without_checksums_of_blocks_are_compared_whole(
    ints: Model, file: str
) -> None:
    ints.put(range(300), "a")
    ints.compact()
    ints.table.create_record_index()
    (name,) = published(ints.table)
    without_blocks(folder(ints.table) / "runs" / f"{name}.binpb")
    ints.table = lancemem.open_table(ints.table.uri)
    assert sound(ints.table).num_fragments_covered == 1
    ints.check(range(350))
    path = folder(ints.table) / name / file
    whole = path.read_bytes()
    for at in range(0, len(whole), max(1, len(whole) // 20)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x40]) + whole[at + 1 :])
        ints.table = lancemem.open_table(ints.table.uri)
        ints.check(range(0, 350, 7))
        assert file in ints.table.admin.verify_record_index().damage[0], at
    path.write_bytes(whole)
    ints.table = lancemem.open_table(ints.table.uri)
    for start in range(1_000, 1_008):  # merged with runs that have checksums of blocks
        ints.put([start], "b")
        ints.compact()
    assert len(published(ints.table)) < 8
    sound(ints.table)
    ints.check([*range(0, 350, 7), *range(1_000, 1_010)])


def test_only_the_blocks_that_a_lookup_reads_are_compared(ints: Model) -> None:
    uri, schema = ints.table.uri, ints.table.schema
    count = 200_000
    lance.write_dataset(pa.table([range(count), ["a"] * count], schema=schema), uri, mode="append")
    table = lancemem.open_table(uri)
    table.create_record_index()
    (name,) = published(table)
    path = folder(table) / name / "page_data.lance"
    content = bytearray(path.read_bytes())
    assert len(content) > 40 * 65_536
    keys = pa.table([[5, count - 5, count], [""] * 3], schema=schema)
    for at in range(20 * 65_536, 22 * 65_536, 30_000):
        content[at] ^= 1
    path.write_bytes(content)
    table = lancemem.open_table(uri)
    assert len(lookup(table, keys)) == 2
    # The lookups read each block in turn: they find the damage, and no row is missing.
    every = pa.table([range(0, count, 5_000), [""] * (count // 5_000)], schema=schema)
    assert len(lookup(table, every)) == count // 5_000
    (damage,) = table.admin.verify_record_index().damage[:1]
    assert "page_data.lance" in damage


def test_entries_of_other_rows_are_damage(ints: Model, make_table: MakeTable) -> None:
    ints.put(range(1000), "a")
    ints.compact()
    ints.table.create_record_index()
    other = Model(make_table(pa.schema(ints.table.schema), ["id"]), ints.key)
    other.put(range(1, 1001), "a")
    other.compact()
    other.table.create_record_index()
    (ours,), (theirs,) = published(ints.table), published(other.table)
    for name in ("page_data.lance", "page_lookup.lance"):
        shutil.copy(folder(other.table) / theirs / name, folder(ints.table) / ours / name)
    table = lancemem.open_table(ints.table.uri)
    assert ours in table.admin.verify_record_index().damage[0], (
        "the checksums are those of other pages"
    )
    without_checksums(folder(ints.table) / "runs" / f"{ours}.binpb")
    (sentence,) = lancemem.open_table(ints.table.uri).admin.verify_record_index().damage
    assert sentence.startswith("fragment ")


def test_many_small_runs_become_one_and_their_pages_are_collected(ints: Model) -> None:
    ints.table.create_record_index()
    for step in range(20):
        ints.put(range(step * 10, step * 10 + 10), f"v{step}")
        ints.compact()
    report = sound(ints.table)
    assert report.num_runs <= 16
    assert (report.num_stale_runs, report.num_fragments_uncovered) == (0, 0)
    ints.check(range(250))
    pages = {path.name for path in folder(ints.table).iterdir() if path.name != "runs"}
    assert pages > published(ints.table)
    young = ints.table.collect_garbage(older_than=timedelta(0))
    assert "record index run" not in {garbage.kind for garbage in young.garbage}
    for path in folder(ints.table).rglob("*.lance"):
        os.utime(path, (path.stat().st_atime, path.stat().st_mtime - DAY))
    old = ints.table.collect_garbage(older_than=timedelta(0))
    assert "record index run" in {garbage.kind for garbage in old.garbage}
    pages = {path.name for path in folder(ints.table).iterdir() if path.name != "runs"}
    assert pages == published(ints.table)
    sound(ints.table)
    ints.check(range(250))


def test_the_command_line_creates_verifies_and_drops(ints: Model) -> None:
    ints.put(range(100), "a")
    ints.compact()

    def command(what: str) -> subprocess.CompletedProcess[str]:
        call = [sys.executable, "-m", "lancemem", f"{what}-record-index", ints.table.uri]
        return subprocess.run(call, capture_output=True, text=True, timeout=50, check=False)  # noqa: S603

    done = command("create")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("1 runs, 100 entries, ")
    assert command("verify").returncode == 0
    (name,) = published(ints.table)
    damage_pages(folder(ints.table) / name)
    checked = command("verify")
    assert checked.returncode == 1
    assert "\ndamaged: run " in checked.stdout
    assert command("create").returncode == 0
    assert command("verify").returncode == 0
    dropped = command("drop")
    assert (dropped.returncode, dropped.stdout) == (0, "the table has no record index\n")
    assert published(ints.table) == set()
    assert "create-record-index creates one" in command("verify").stdout


def test_a_table_without_a_key_has_no_record_index(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("v", pa.int64())])
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"v": [1]}, schema=schema), uri)
    with pytest.raises(lancemem.InvalidInputError):
        lancemem.enable(uri).create_record_index()
    with pytest.raises(lancemem.InvalidInputError):
        lancemem.enable(uri).drop_record_index()
