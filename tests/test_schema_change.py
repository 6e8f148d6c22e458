"""Columns that are added, dropped, renamed and widened while rows are above the base table.

Owns: Lance's own schema operations on the base table, with rows on every level, read in every way.
Not here: single batches (`format::reconcile` in Rust) and schemas that callers put (test_input).
"""

from __future__ import annotations

import tempfile
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lancemem

lance = pytest.importorskip("lance")

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import MakeTable

Rows = dict[int, dict[str, Any]]

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("n", pa.int32()),
        pa.field("f", pa.float32()),
        pa.field("s", pa.string()),
    ]
)
LEVELS = ["flushed", "durable", "live"]


def create(folder: Path | str) -> lancemem.Table:
    return lancemem.create_table(f"{folder}/board.lance", SCHEMA, primary_key=["id"])


def base_of(table: lancemem.Table) -> Any:  # noqa: ANN401 - pylance has types of its own
    return lance.dataset(table.uri)


def rows(ids: range, **more: Any) -> pa.Table:  # noqa: ANN401
    columns: dict[str, Any] = {
        "id": pa.array(ids, pa.int64()),
        "n": pa.array([i * 10 for i in ids], pa.int32()),
        "f": pa.array([i / 2 for i in ids], pa.float32()),
        "s": [f"s{i}" for i in ids],
    }
    columns |= more
    return pa.table({name: column for name, column in columns.items() if column is not None})


def expected(ids: range) -> Rows:
    return {i: {"id": i, "n": i * 10, "f": i / 2, "s": f"s{i}"} for i in ids}


# Ways to write rows 0 to 9 before the columns change.


def in_the_wal(table: lancemem.Table) -> None:
    table.upsert(rows(range(10)))


def flushed(table: lancemem.Table) -> None:
    with table.start_job(shard=0) as job:
        job.put(rows(range(10)))
        job.flush()


def compacted(table: lancemem.Table) -> None:
    flushed(table)
    table.compact()


def on_every_level(table: lancemem.Table) -> None:
    """Rows 0 to 5 in the base, newer 3 to 7 in an SSTable, newer 6 to 9 in the WAL."""
    with table.start_job(shard=0) as job:
        job.put(rows(range(6)))
        job.flush()
    table.compact()
    with table.start_job(shard=0) as job:
        job.put(rows(range(3, 8)))
        job.flush()
        job.put(rows(range(6, 10)))


STATES: dict[str, Callable[[lancemem.Table], None]] = {
    "wal": in_the_wal,
    "flushed": flushed,
    "compacted": compacted,
    "every level": on_every_level,
}


# A change of the columns, and its effect on older rows.


def add(table: lancemem.Table, found: Rows) -> None:
    base_of(table).add_columns([pa.field("extra", pa.int64()), pa.field("flag", pa.bool_())])
    for row in found.values():
        row |= {"extra": None, "flag": None}


def drop(table: lancemem.Table, found: Rows) -> None:
    base_of(table).drop_columns(["n"])
    for row in found.values():
        del row["n"]


def rename(table: lancemem.Table, found: Rows) -> None:
    base_of(table).alter_columns({"path": "n", "name": "number"})
    for row in found.values():
        row["number"] = row.pop("n")


def swap(table: lancemem.Table, found: Rows) -> None:
    for old, new in [("n", "x"), ("s", "n"), ("x", "s")]:
        base_of(table).alter_columns({"path": old, "name": new})
    for row in found.values():
        row["n"], row["s"] = row["s"], row["n"]


def drop_and_add_again(table: lancemem.Table, found: Rows) -> None:
    base_of(table).drop_columns(["n", "s"])
    base_of(table).add_columns([pa.field("n", pa.string()), pa.field("s", pa.string())])
    for row in found.values():
        row |= {"n": None, "s": None}


def drop_and_add_a_wider_one(table: lancemem.Table, found: Rows) -> None:
    base_of(table).drop_columns(["n"])
    base_of(table).add_columns([pa.field("n", pa.int64())])
    for row in found.values():
        row |= {"n": None}


def widen(table: lancemem.Table, found: Rows) -> None:
    del found
    table.alter_column("n", pa.int64())
    table.alter_column("f", pa.float64())


def all_at_once(table: lancemem.Table, found: Rows) -> None:
    widen(table, found)
    add(table, found)
    rename(table, found)
    base_of(table).drop_columns(["s"])
    for row in found.values():
        del row["s"]


CHANGES: dict[str, Callable[[lancemem.Table, Rows], None]] = {
    "add": add,
    "drop": drop,
    "rename": rename,
    "swap": swap,
    "drop and add again": drop_and_add_again,
    "drop and add a wider one": drop_and_add_a_wider_one,
    "widen": widen,
    "all at once": all_at_once,
}


def seen(data: pa.Table) -> Rows:
    found = {row["id"]: row for row in data.to_pylist()}
    assert len(found) == data.num_rows, "a key is seen twice"
    return found


def check(table: lancemem.Table, want: Rows, level: str, jobs: list[Any]) -> None:
    """Read everything in every way that there is."""
    options: Any = {"consistency": level, "jobs": jobs if level == "live" else None}
    read = table.scan(**options).to_table()
    assert seen(read) == want
    assert read.schema.names == base_of(table).schema.names
    assert read.schema.types == base_of(table).schema.types
    assert table.scan(**options).count_rows() == len(want)
    for name in read.schema.names:
        only = table.scan([name], **options).to_table()
        key = repr
        wanted = sorted((row[name] for row in want.values()), key=key)
        assert sorted(only[name].to_pylist(), key=key) == wanted
        nulls = sum(1 for row in want.values() if row[name] is None)
        assert table.scan(filter=f"{name} IS NULL", **options).count_rows() == nulls
        some = next((row[name] for row in want.values() if row[name] is not None), None)
        if some is not None:
            literal = f"'{some}'" if isinstance(some, str) else str(some)
            equal = {i: row for i, row in want.items() if row[name] == some}
            assert seen(table.scan(filter=f"{name} = {literal}", **options).to_table()) == equal
            assert seen(table.scan(filter=pc.field(name) == some, **options).to_table()) == equal
    keys = pa.table({"id": pa.array([*sorted(want), 999], pa.int64())})
    got = table.get(keys, **options)
    assert seen(got) == want
    assert got.schema.types == read.schema.types


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("handle", ["long-lived", "new"])
def test_older_rows_have_the_present_columns(
    change: str, state: str, handle: str, tmp_path: Path
) -> None:
    table = create(tmp_path)
    STATES[state](table)
    want = expected(range(10))
    # Earlier reads fill every cache of a long-lived handle.
    check(table, want, "durable", [])
    CHANGES[change](table, want)
    if handle == "new":
        table = lancemem.open_table(table.uri)
    check(table, want, "durable", [])
    check(table, want, "live", [])
    with table.start_job(shard=0) as job:
        job.flush()
    for level in LEVELS:
        check(table, want, level, [])
    table.compact()
    check(table, want, "flushed", [])
    assert seen(base_of(table).to_table()) == want


@pytest.mark.parametrize("change", CHANGES)
def test_a_running_job_keeps_its_rows_and_takes_the_new_columns(
    change: str, tmp_path: Path
) -> None:
    table = create(tmp_path)
    want = expected(range(10))
    with table.start_job(shard=0) as job:
        job.put(rows(range(6)))
        job.flush()
        job.put(rows(range(3, 10)))
        CHANGES[change](table, want)
        check(table, want, "live", [job])
        check(table, want, "durable", [job])
        # The job has the new columns at its next flush at the latest.
        job.flush()
        check(table, want, "flushed", [job])
        fresh = {i: dict.fromkeys(base_of(table).schema.names) for i in range(8, 12)}
        for i, row in fresh.items():
            row["id"] = i
        job.put(pa.Table.from_pylist(list(fresh.values()), schema=base_of(table).schema))
        want |= fresh
        check(table, want, "live", [job])
        check(table, want, "durable", [job])
        job.delete(pa.table({"id": pa.array([0, 11], pa.int64())}))
        for i in (0, 11):
            del want[i]
        check(table, want, "live", [job])
    check(table, want, "durable", [])
    table.compact()
    check(table, want, "durable", [])


def test_a_put_that_has_the_new_column_is_taken_at_once(tmp_path: Path) -> None:
    table = create(tmp_path)
    want = expected(range(4))
    with table.start_job(shard=0) as job:
        job.put(rows(range(2)))
        add(table, want)
        with pytest.raises(lancemem.InvalidInputError, match="column 'other' is not in the table"):
            job.put(rows(range(2), other=[1, 2]))
        more = {"extra": pa.array([7, 8], pa.int64()), "flag": [True, None]}
        job.put(rows(range(2, 4), **more))
        want[2] |= {"extra": 7, "flag": True}
        want[3] |= {"extra": 8}
        check(table, want, "live", [job])
        check(table, want, "durable", [])
    check(lancemem.open_table(table.uri), want, "durable", [])


def test_a_put_under_the_old_name_is_what_the_job_knows_until_it_hears_of_the_new_one(
    tmp_path: Path,
) -> None:
    table = create(tmp_path)
    want = expected(range(4))
    with table.start_job(shard=0) as job:
        job.put(rows(range(2)))
        rename(table, want)
        # The job still has the old columns: values under the old name go to the renamed column.
        job.put(rows(range(2, 4)))
        check(table, want, "live", [job])
        job.put(rows(range(2, 4), n=None, number=pa.array([1, 2], pa.int32())))
        want[2]["number"], want[3]["number"] = 1, 2
        check(table, want, "live", [job])
        with pytest.raises(lancemem.InvalidInputError, match="column 'n' is not in the table"):
            job.put(rows(range(2, 4)))


def test_an_id_of_a_dropped_column_is_never_given_again(tmp_path: Path) -> None:
    """Lance assigns the highest id again where no file has it: an empty base with rows above it."""
    table = create(tmp_path)
    in_the_wal(table)
    base_of(table).drop_columns(["s"])
    base_of(table).add_columns(pa.field("t", pa.string()))
    assert table.scan(["t"]).to_table()["t"].null_count == 10
    assert table.get(pa.table({"id": [3]}), ["t"]).to_pylist() == [{"t": None}]


def test_a_column_that_is_widened_after_a_restore_keeps_the_rows_of_its_first_widening(
    make_table: MakeTable,
) -> None:
    table = make_table(pa.schema([pa.field("id", pa.int64()), ("n", pa.int32())]))
    narrow = base_of(table).version
    table.alter_column("n", pa.int64())
    table.upsert(pa.table({"id": [1], "n": [3_000_000_000]}))
    older = base_of(table).checkout_version(narrow)
    older.restore()
    again = lancemem.open_table(table.uri)
    with pytest.raises(lancemem.InvalidInputError, match="column 'n' was int64 and is int32 now"):
        again.scan().to_table()
    again.alter_column("n", pa.int64())
    expected = [{"id": 1, "n": 3_000_000_000}]
    assert again.scan().to_table().to_pylist() == expected
    again.start_job(shard=0).close(flush=True)
    again.compact()
    assert again.scan().to_table().to_pylist() == expected


def test_a_column_with_the_metadata_of_a_widened_one_is_another(make_table: MakeTable) -> None:
    """A new column that is made from another column's field also has the field's metadata."""
    table = make_table(pa.schema([pa.field("id", pa.int64()), ("n", pa.int32())]))
    with table.start_job(shard=0) as job:
        job.put(pa.table({"id": [1], "n": pa.array([7], pa.int32())}))
        job.flush()
        job.put(pa.table({"id": [2], "n": pa.array([8], pa.int32())}))
    table.alter_column("n", pa.int64())
    base_of(table).add_columns(base_of(table).schema.field("n").with_name("m"))
    expected = [{"id": 1, "n": 7, "m": None}, {"id": 2, "n": 8, "m": None}]
    assert sorted(table.scan().to_table().to_pylist(), key=itemgetter("id")) == expected
    table.start_job(shard=0).close(flush=True)
    table.compact()
    assert sorted(table.scan().to_table().to_pylist(), key=itemgetter("id")) == expected


@pytest.mark.parametrize("is_enabled", [False, True], ids=["created", "enabled"])
def test_the_record_of_a_widening_means_nothing_in_a_table_made_from_the_schema(
    is_enabled: bool, make_table: MakeTable, tmp_path: Path
) -> None:
    """The record names a field id, which may belong to another column in the new table."""
    key = pa.field("id", pa.int64(), nullable=False)
    first = make_table(pa.schema([key, ("b", pa.int32()), ("a", pa.int64())]))
    first.alter_column("b", pa.int64())
    schema = pa.schema([pa.schema(first.schema).field(name) for name in ("id", "a", "b")])
    uri = str(tmp_path / "second.lance")
    if is_enabled:
        lance.write_dataset(schema.empty_table(), uri)
        second = lancemem.enable(uri)
    else:
        second = lancemem.create_table(uri, schema, primary_key="id")
    expected = [{"id": 1, "a": 10, "b": 20}]
    with second.start_job(shard=0) as job:
        job.put(pa.table({"id": [1], "a": [10], "b": [20]}))
        assert second.scan(consistency="live", jobs=[job]).to_table().to_pylist() == expected
        assert second.scan().to_table().to_pylist() == expected
        job.flush()
    assert second.scan(consistency="flushed").to_table().to_pylist() == expected
    assert second.get(pa.table({"id": [1]})).to_pylist() == expected
    second.compact(mode="rewrite")
    assert second.scan().to_table().to_pylist() == expected


@pytest.mark.parametrize("name", ["_rowid", "_rowaddr", "_rowoffset", "_row_created_at_version"])
def test_a_name_that_reads_of_lance_use_is_refused_until_it_is_renamed(
    name: str, make_table: MakeTable
) -> None:
    table = make_table()
    table.upsert(pa.table({"id": [1], "name": ["a"], "value": [0.5]}))
    lance.dataset(table.uri).alter_columns({"path": "name", "name": name})
    row = {"id": [2], name: ["b"], "value": [0.5]}
    calls: list[Callable[[], object]] = [
        lambda: table.scan(["id"]).to_table(),
        lambda: table.get(pa.table({"id": [1]})),
        lambda: table.upsert(pa.table(row)),
        lambda: lancemem.open_table(table.uri).scan().to_table(),
    ]
    for call in calls:
        with pytest.raises(lancemem.InvalidInputError, match=f"'{name}' is reserved; rename"):
            call()
    lance.dataset(table.uri).alter_columns({"path": name, "name": "name"})
    assert table.scan().to_table()["name"].to_pylist() == ["a"]


def test_a_new_column_never_shows_the_tombstones_of_an_sstable(tmp_path: Path) -> None:
    """In an SSTable `_tombstone` has the field id that Lance gives to the next new column."""
    table = create(tmp_path)
    flushed(table)
    base_of(table).add_columns(pa.field("flag", pa.bool_()))
    assert table.scan(["flag"]).to_table()["flag"].null_count == 10
    assert table.get(pa.table({"id": [3]}), ["flag"]).to_pylist() == [{"flag": None}]
    table.compact()
    assert base_of(table).to_table()["flag"].null_count == 10


def test_a_compaction_rewrites_sstables_of_other_columns_with_the_reason(tmp_path: Path) -> None:
    table = create(tmp_path)
    flushed(table)
    base_of(table).drop_columns(["n"])
    [run] = table.compact(mode="link", dry_run=True).sstables
    assert (run.treatment, run.reason) == (
        "rewrite",
        "column 'n' has changed since the SSTable was written",
    )
    assert table.compact().num_sstables_rewritten == 1


def test_a_table_that_lost_its_key_is_refused_before_a_byte_is_written(tmp_path: Path) -> None:
    table = create(tmp_path)
    job = table.start_job(shard=0)
    job.put(rows(range(4)))
    base_of(table).drop_columns(["id"])
    files = sorted(map(str, tmp_path.rglob("*")))
    for write in (table.upsert, lambda data: table.start_job(shard=0).put(data)):
        with pytest.raises(lancemem.InvalidInputError, match=r"board.lance.*primary key") as error:
            write(rows(range(2)))
        assert "id" in str(error.value)
    with pytest.raises(lancemem.InvalidInputError, match="primary key"):
        table.scan().to_table()
    with pytest.raises(lancemem.InvalidInputError, match="key"):
        lancemem.open_table(table.uri).scan().to_table()
    assert sorted(map(str, tmp_path.rglob("*"))) == files
    job.flush()
    with pytest.raises(lancemem.InvalidInputError, match="primary key"):
        job.put(rows(range(2)))
    job.close()


ONLY_WIDER = "only int32 to int64 and float32 to float64 are possible"


@pytest.mark.parametrize(
    ("column", "to", "why"),
    [
        ("id", pa.int64(), f"{ONLY_WIDER}, not int64 to int64"),
        ("s", pa.large_string(), f"{ONLY_WIDER}, not string to large_string"),
        ("n", pa.float64(), f"{ONLY_WIDER}, not int32 to double"),
        ("none", pa.int64(), "there is no such column"),
        ("n", pa.schema([]), f"{ONLY_WIDER}, not int32 to struct<>"),
    ],
)
def test_what_cannot_be_widened_is_refused(
    column: str, to: pa.DataType, why: str, tmp_path: Path
) -> None:
    table = create(tmp_path)
    version = base_of(table).version
    with pytest.raises(lancemem.InvalidInputError, match=f"column '{column}' of table .*{why}"):
        table.alter_column(column, to)
    assert base_of(table).version == version


def test_what_is_no_type_is_refused(tmp_path: Path) -> None:
    name: Any = "int64"
    with pytest.raises(lancemem.InvalidInputError, match=r"expected an Arrow type, .* got str"):
        create(tmp_path).alter_column("n", name)


def test_a_column_that_rows_find_their_shard_by_keeps_its_type(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("place", pa.int32()), pa.field("n", pa.int32())])
    table = lancemem.create_table(
        str(tmp_path / "t.lance"), schema, sharding=lancemem.bucket("place", 4)
    )
    table.upsert(pa.table([[1, 2, 3], [1, 2, 3]], schema=schema))
    with pytest.raises(
        lancemem.InvalidInputError, match=r"column 'place' .* sharding column keeps its type"
    ):
        table.alter_column("place", pa.int64())
    table.alter_column("n", pa.int64())
    assert sorted(table.scan().to_table()["n"].to_pylist()) == [1, 2, 3]


OLD_FORMAT = {"lance-schema:unenforced-primary-key": "true"}


@pytest.mark.parametrize("before", [False, True])
def test_a_column_that_the_format_cannot_store_is_refused_by_jobs_and_read(
    before: bool, tmp_path: Path
) -> None:
    uri = str(tmp_path / "t.lance")
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False, metadata=OLD_FORMAT)])
    lance.write_dataset(pa.table([[1, 2]], schema=schema), uri, data_storage_version="2.0")
    table = lancemem.enable(uri)
    table.upsert(pa.table({"id": pa.array([3], pa.int64())}))
    job = None if before else table.start_job(shard=0)
    base_of(table).add_columns(pa.field("s", pa.struct([("a", pa.int64())])))
    rows = pa.table({"id": pa.array([4], pa.int64()), "s": [{"a": 1}]})
    with pytest.raises(lancemem.InvalidInputError, match="column 's' has structs"):
        table.upsert(rows) if job is None else job.put(rows)
    with pytest.raises(lancemem.InvalidInputError, match="column 's' has structs"):
        table.bulk_writer()
    if job is not None:
        job.close(flush=True)
    found = lancemem.open_table(uri).scan().to_table()
    assert sorted(found["id"].to_pylist()) == [1, 2, 3]


def test_a_key_column_and_one_with_an_index_keep_their_types(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int32(), nullable=False), pa.field("n", pa.int32())])
    table = lancemem.create_table(str(tmp_path / "t.lance"), schema, primary_key=["id"])
    table.upsert(pa.table([[1, 2], [1, 2]], schema=schema))
    with table.start_job(shard=0) as job:
        job.flush()
    table.compact()
    with pytest.raises(lancemem.InvalidInputError, match="column of the primary key"):
        table.alter_column("id", pa.int64())
    base_of(table).create_scalar_index("n", "BTREE")
    with pytest.raises(lancemem.InvalidInputError, match="drop its index 'n_idx' first"):
        table.alter_column("n", pa.int64())
    base_of(table).drop_index("n_idx")
    table.alter_column("n", pa.int64())
    assert base_of(table).to_table().schema.field("n").type == pa.int64()


@pytest.mark.parametrize("rows_of_now", [False, True])
def test_a_column_is_widened_that_older_fragments_lack(rows_of_now: bool, tmp_path: Path) -> None:
    table = create(tmp_path)
    compacted(table)
    want = expected(range(10))
    base_of(table).add_columns([pa.field("more", pa.int32()), pa.field("x", pa.float32())])
    for row in want.values():
        row |= {"more": None, "x": None}
    if rows_of_now:
        more = {"more": pa.array([7], pa.int32()), "x": pa.array([0.5], pa.float32())}
        table.upsert(rows(range(20, 21), **more))
        want[20] = expected(range(20, 21))[20] | {"more": 7, "x": 0.5}
        with table.start_job(shard=0) as job:
            job.flush()
        table.compact()
    table.alter_column("more", pa.int64())
    table.alter_column("x", pa.float64())
    check(table, want, "durable", [])
    assert base_of(table).schema.field("more").type == pa.int64()
    base_of(table).validate()


def test_widening_leaves_deleted_rows_and_other_columns_in_their_places(tmp_path: Path) -> None:
    table = create(tmp_path)
    compacted(table)
    base_of(table).delete("id % 3 = 0")
    want = {i: row for i, row in expected(range(10)).items() if i % 3}
    table.alter_column("n", pa.int64())
    assert seen(base_of(table).to_table()) == want
    assert base_of(table).to_table().schema.field("n").type == pa.int64()
    big = 2**40
    table.upsert(rows(range(1), n=pa.array([big], pa.int64())))
    want[0] = expected(range(1))[0] | {"n": big}
    check(table, want, "durable", [])
    base_of(table).optimize.compact_files()
    base_of(table).validate()
    check(table, want, "durable", [])


def test_pylance_reads_entries_and_sstables_of_older_columns(tmp_path: Path) -> None:
    """The field ids are Lance's own, so its reader finds the columns too."""
    from tests.upstream import flushed_rows  # noqa: PLC0415 - of this story alone

    table = create(tmp_path)
    flushed(table)
    want = expected(range(10))
    rename(table, want)
    add(table, want)
    found = flushed_rows(table).select(base_of(table).schema.names)
    assert seen(found) == want


def test_a_read_of_a_snapshot_keeps_its_columns(tmp_path: Path) -> None:
    table = create(tmp_path)
    on_every_level(table)
    want = expected(range(10))
    snapshot = table.snapshot()
    all_at_once(table, expected(range(10)))
    check(table, _after(all_at_once, tmp_path), "durable", [])
    assert seen(snapshot.scan().to_table()) == want
    assert seen(snapshot.get(pa.table({"id": pa.array(range(10), pa.int64())}))) == want


def _after(change: Callable[[lancemem.Table, Rows], None], folder: Path) -> Rows:
    other = create(folder / "other")
    want = expected(range(10))
    change(other, want)
    return want


class _Model:
    """A table and the rows that a reader must see, column by column."""

    def __init__(self, folder: str) -> None:
        self.table = create(folder)
        self.job = self.table.start_job(shard=0)
        self.want: Rows = {}
        self.names = 0

    def put(self, ids: list[int], value: int) -> None:
        schema = base_of(self.table).schema
        for i in ids:
            self.want[i] = {field.name: self._value(field, i, value) for field in schema}
        data = [self.want[i] for i in sorted(set(ids))]
        self.job.put(pa.Table.from_pylist(data, schema=schema))

    @staticmethod
    def _value(field: pa.Field, i: int, value: int) -> Any:  # noqa: ANN401
        if field.name == "id":
            return i
        if value % 5 == 0:
            return None
        return f"{value}" if pa.types.is_string(field.type) else value

    def delete(self, ids: list[int]) -> None:
        self.job.delete(pa.table({"id": pa.array(ids, pa.int64())}))
        for i in ids:
            self.want.pop(i, None)

    def flush(self) -> None:
        self.job.flush()

    def compact(self) -> None:
        self.table.compact()

    def reopen(self) -> None:
        self.job.close()
        self.table = lancemem.open_table(self.table.uri)
        self.job = self.table.start_job(shard=0)

    def take_over(self) -> None:
        """Another process claims the shard, with a handle that it opened long ago."""
        self.job = self.table.start_job(shard=0)

    def _column(self, place: int) -> str | None:
        names = base_of(self.table).schema.names[1:]
        return names[place % len(names)] if names else None

    def add_column(self, kind: int) -> None:
        self.names += 1
        # Names are used again for other columns.
        name = f"c{self.names % 3}"
        if name in base_of(self.table).schema.names:
            return
        of = [pa.int32(), pa.int64(), pa.float32(), pa.string()][kind]
        base_of(self.table).add_columns(pa.field(name, of))
        for row in self.want.values():
            row[name] = None

    def drop_column(self, place: int) -> None:
        name = self._column(place)
        if name is None or len(base_of(self.table).schema) < 3:
            return
        base_of(self.table).drop_columns([name])
        for row in self.want.values():
            del row[name]

    def rename_column(self, place: int) -> None:
        name = self._column(place)
        self.names += 1
        new = f"r{self.names % 3}"
        if name is None or new in base_of(self.table).schema.names:
            return
        base_of(self.table).alter_columns({"path": name, "name": new})
        for row in self.want.values():
            row[new] = row.pop(name)

    def alter_column(self, place: int) -> None:
        name = self._column(place)
        wider = {pa.int32(): pa.int64(), pa.float32(): pa.float64()}
        if name is not None and (to := wider.get(base_of(self.table).schema.field(name).type)):
            self.table.alter_column(name, to)

    def look(self, level: str) -> None:
        if level == "flushed":
            self.job.flush()
        check(self.table, self.want, level, [self.job])


def programs() -> st.SearchStrategy[list[tuple[Any, ...]]]:
    ids = st.lists(st.integers(0, 9), min_size=1, max_size=5)
    place = st.integers(0, 5)
    step = st.one_of(
        st.tuples(st.just("put"), ids, st.integers(1, 99)),
        st.tuples(st.just("put"), ids, st.integers(1, 99)),
        st.tuples(st.just("delete"), ids),
        st.tuples(st.just("flush")),
        st.tuples(st.just("compact")),
        st.tuples(st.just("reopen")),
        st.tuples(st.just("take_over")),
        st.tuples(st.just("add_column"), st.integers(0, 3)),
        st.tuples(st.just("drop_column"), place),
        st.tuples(st.just("rename_column"), place),
        st.tuples(st.just("alter_column"), place),
        st.tuples(st.just("look"), st.sampled_from(LEVELS)),
    )
    return st.lists(step, min_size=8, max_size=20)


def test_no_program_of_writes_and_changes_shows_another_value_than_the_model() -> None:
    @settings(
        max_examples=40,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(program=programs())
    def run(program: list[tuple[Any, ...]]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            model = _Model(folder)
            for name, *arguments in program:
                getattr(model, name)(*arguments)
            for level in LEVELS:
                model.look(level)
            model.compact()
            model.look("durable")
            model.job.close()

    run()
