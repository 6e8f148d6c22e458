"""Creating, enabling and opening tables: what is written, what is kept, what is refused.

Owns: Lance tables becoming lancemem tables, and what a second opener finds. Not here: the types of
keys (test_input), shards that pylance made (test_cross_read).
"""

from __future__ import annotations

import functools
import pickle
import shutil
import struct
import zlib
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import lancemem
from lancemem.__main__ import main

lance = pytest.importorskip("lance")

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import MakeTable

PRIMARY_KEY = "lance-schema:unenforced-primary-key"
COLUMNS = ["c", "a", "b"]


def lance_table(uri: str, key: list[str], rows: int = 5) -> pa.Table:
    """Write a table with lance alone; the key columns are not in the order of the schema."""
    fields = [
        pa.field(
            name,
            pa.int64(),
            nullable=name not in key,
            metadata={PRIMARY_KEY: "true", f"{PRIMARY_KEY}:position": str(key.index(name) + 1)}
            if name in key
            else None,
        )
        for name in COLUMNS
    ]
    data = pa.table({name: range(rows) for name in COLUMNS}, schema=pa.schema(fields))
    lance.write_dataset(data, uri)
    return data


def by_columns(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=lambda row: tuple(row.values()))


def rows(*numbers: int, b: int) -> pa.Table:
    return pa.table({"c": list(numbers), "a": list(numbers), "b": [b] * len(numbers)})


def test_a_create_that_was_interrupted_is_finished(table_uri: str) -> None:
    sharding = lancemem.bucket("a", 4)
    data = lance_table(table_uri, ["a"], rows=0)
    other = data.schema.append(pa.field("d", pa.int64()))
    for schema, key in ((other, "a"), (data.schema, "b")):
        with pytest.raises(lancemem.InvalidInputError, match="exists; open it"):
            lancemem.create_table(table_uri, schema, primary_key=key)
    config = lancemem.WriterConfig(max_memtable_rows=7)
    made = lancemem.create_table(
        table_uri, data.schema, primary_key="a", sharding=sharding, config=config
    )
    assert (made.sharding, len(made.shards())) == (sharding, 4)
    made.upsert(rows(1, 2, 3, b=4))
    with pytest.raises(lancemem.InvalidInputError, match="exists; open it"):
        lancemem.create_table(table_uri, data.schema, primary_key="a", sharding=sharding)
    assert lancemem.open_table(table_uri).scan().count_rows() == 3


def test_a_lance_table_with_rows_is_not_created_anew(table_uri: str) -> None:
    data = lance_table(table_uri, ["a"])
    with pytest.raises(lancemem.TableExistsError, match="exists; open it") as refused:
        lancemem.create_table(table_uri, data.schema, primary_key="a")
    assert "lancemem.enable(uri, ...)" in str(refused.value)
    assert lance.dataset(table_uri).version == 1


def test_a_lance_table_with_a_key_is_enabled_and_keeps_its_rows(table_uri: str) -> None:
    before = lance_table(table_uri, ["a", "c"])
    table = lancemem.enable(table_uri, sharding=lancemem.bucket("c", 3))
    assert table.primary_key == ["a", "c"]
    assert table.sharding == lancemem.bucket("c", 3)
    assert [shard.ordinal for shard in table.shards()] == [0, 1, 2]
    assert by_columns(table.scan().to_table()) == by_columns(before)

    table.upsert(rows(4, 5, b=77))
    table.delete(rows(0, b=0).select(["c", "a"]))
    expected = by_columns(pa.concat_tables([rows(1, b=1), rows(2, b=2), rows(3, b=3)]))
    expected += by_columns(rows(4, 5, b=77))
    assert by_columns(table.scan().to_table()) == expected
    for ordinal in range(3):
        table.start_job(shard=ordinal).close(flush=True)
    table.compact()
    assert by_columns(lance.dataset(table_uri).to_table()) == expected


def test_a_table_is_enabled_unsharded_unless_told(table_uri: str) -> None:
    lance_table(table_uri, ["a"])
    table = lancemem.enable(table_uri)
    assert table.sharding == lancemem.unsharded()
    assert len(table.shards()) == 1


def test_the_settings_of_an_enabled_table_are_those_that_were_named(table_uri: str) -> None:
    lance_table(table_uri, ["a"])
    config = lancemem.WriterConfig(durable=False, max_wal_flush_interval=timedelta(hours=1))
    assert lancemem.enable(table_uri, config=config).sharding == lancemem.unsharded()
    with lancemem.open_table(table_uri).start_job(shard=0) as job:
        assert not job.put(rows(9, b=9)).durable


def test_settings_that_a_table_would_not_take_are_refused(make_table: MakeTable) -> None:
    table = make_table(config=lancemem.WriterConfig(durable=False))
    lancemem.enable(table.uri, config=lancemem.WriterConfig(durable=False))
    lancemem.enable(table.uri, config=lancemem.WriterConfig())
    for other in ({"durable": True}, {"durable": False, "max_memtable_rows": 5}):
        config = lancemem.WriterConfig(**other)
        with pytest.raises(lancemem.InvalidInputError, match=r"start_job\(config=\)"):
            lancemem.enable(table.uri, config=config)


def test_a_lance_table_without_a_key_is_enabled_once_it_has_one(table_uri: str) -> None:
    lance.write_dataset(pa.table({"id": [1, 2], "v": ["old", "old"]}), table_uri)
    with pytest.raises(lancemem.InvalidInputError, match="names no primary key") as refused:
        lancemem.enable(table_uri)
    assert lance.dataset(table_uri).version == 1
    base = lance.dataset(table_uri)
    base.alter_columns({"path": "id", "nullable": False})
    base.update_field_metadata({"id": {PRIMARY_KEY: "true"}})
    assert all(word in str(refused.value) for word in ("alter_columns", PRIMARY_KEY))
    table = lancemem.enable(table_uri)
    table.upsert(pa.table({"id": [1], "v": ["new"]}))
    assert sorted(table.scan().to_table()["v"].to_pylist()) == ["new", "old"]


def test_making_a_table_that_exists_leaves_it_and_its_jobs_alone(make_table: MakeTable) -> None:
    table = make_table(sharding=lancemem.bucket("id", 2))
    row = pa.table({"id": [1], "name": ["a"], "value": [0.5]})
    for step in range(3):
        [owner] = pa.array(table.shard_ordinals(row)).to_pylist()
        with table.start_job(shard=owner) as job, table.start_job(shard=1 - owner) as idle:
            with pytest.raises(lancemem.InvalidInputError, match="exists; open it"):
                lancemem.create_table(table.uri, table.schema, primary_key="id")
            job.put(row)
            idle.flush()
            if step:
                job.flush()
        if step == 2:
            table.compact()
    with pytest.raises(lancemem.InvalidInputError, match="exists; open it"):
        lancemem.create_table(table.uri, table.schema, primary_key="id")
    assert table.scan().count_rows() == 1


def test_opening_leaves_a_lance_table_alone_and_names_the_call_that_enables_it(
    table_uri: str,
) -> None:
    lance_table(table_uri, ["a"])
    before = sorted(path.name for path in Path(table_uri).rglob("*"))
    with pytest.raises(lancemem.InvalidInputError, match="without a MemWAL index") as refused:
        lancemem.open_table(table_uri)
    assert "lancemem.enable(uri, ...)" in str(refused.value)
    with pytest.raises(TypeError, match="sharding"):
        lancemem.open_table(table_uri, sharding=lancemem.unsharded())  # type: ignore[call-arg]
    for command in (["verify-wal"], ["verify-record-index"], ["maintain", "--once"]):
        assert main([*command, table_uri]) == 2
    assert sorted(path.name for path in Path(table_uri).rglob("*")) == before
    lancemem.enable(table_uri)
    assert lancemem.open_table(table_uri).scan().count_rows() == 5


def contents(uri: str) -> dict[str, bytes]:
    """Read every file below a table's folder."""
    return {str(path): path.read_bytes() for path in Path(uri).rglob("*") if path.is_file()}


def test_opening_a_table_writes_nothing(make_table: MakeTable) -> None:
    table = make_table(sharding=lancemem.bucket("id", 2))
    table.upsert(pa.table({"id": [1, 2, 3], "name": ["a"] * 3, "value": [0.5] * 3}))
    before = contents(table.uri)
    again = lancemem.open_table(table.uri)
    assert contents(table.uri) == before
    assert again.scan().count_rows() == 3


def test_a_table_whose_index_another_program_made_gets_its_shards_by_a_write(
    table_uri: str,
) -> None:
    lance_table(table_uri, ["a"])
    lance.dataset(table_uri).initialize_mem_wal(bucket_column="a", num_buckets=2)
    before = contents(table_uri)
    table = lancemem.open_table(table_uri)
    assert table.shards() == []
    assert contents(table_uri) == before
    table.upsert(rows(4, 5, 6, 7, b=77))
    assert [shard.ordinal for shard in table.shards()] == [0, 1]
    assert table.scan().count_rows() == 8


def test_an_empty_lance_table_is_enabled(table_uri: str) -> None:
    lance_table(table_uri, ["a"], rows=0)
    table = lancemem.enable(table_uri)
    assert table.scan().count_rows() == 0
    table.upsert(rows(1, b=1))
    assert table.scan().count_rows() == 1


def test_files_that_are_gone_before_they_are_synced_are_passed_over(table_uri: str) -> None:
    """Other programs write at the same time: a listed file may be gone, as a temporary one."""
    before = lance_table(table_uri, ["a", "c"])
    for folder in ("data", "_transactions", "_versions"):
        # The name is listed, and cannot be opened.
        Path(table_uri, folder, ".tmp-gone").symlink_to("nowhere")
    table = lancemem.enable(table_uri, sharding=lancemem.bucket("c", 3))
    assert by_columns(table.scan().to_table()) == by_columns(before)


def test_a_second_opener_finds_the_same_table(make_table: MakeTable) -> None:
    first = make_table(sharding=lancemem.bucket("id", 4))
    first.upsert(pa.table({"id": range(20), "name": ["a"] * 20, "value": [0.5] * 20}))
    second = lancemem.open_table(first.uri)
    assert second.shards() == first.shards()
    assert second.sharding == first.sharding == lancemem.bucket("id", 4)
    assert second.primary_key == first.primary_key == ["id"]
    assert second.schema == first.schema
    assert second.stats() == first.stats()
    assert second.scan().count_rows() == 20


def test_two_that_enable_one_table_agree_on_its_shards(table_uri: str) -> None:
    lance_table(table_uri, ["a"])
    tables = [lancemem.enable(table_uri) for _ in range(3)]
    shards = {tuple(shard.shard_id for shard in table.shards()) for table in tables}
    assert len(shards) == 1


def test_naming_the_sharding_again_is_fine_and_another_is_refused(make_table: MakeTable) -> None:
    table = make_table(sharding=lancemem.bucket("id", 2))
    assert len(lancemem.enable(table.uri, sharding=lancemem.bucket("id", 2)).shards()) == 2
    for other in (lancemem.bucket("id", 3), lancemem.unsharded()):
        with pytest.raises(lancemem.InvalidInputError, match="shard"):
            lancemem.enable(table.uri, sharding=other)
    assert len(lancemem.open_table(table.uri).shards()) == 2


def test_a_table_cannot_be_created_twice(table: lancemem.Table, schema: pa.Schema) -> None:
    with pytest.raises(lancemem.InvalidInputError, match="exists") as refused:
        lancemem.create_table(table.uri, schema, primary_key="id")
    assert type(refused.value) is lancemem.TableExistsError
    assert "lancemem.open_table(uri)" in str(refused.value)


def test_errors_of_a_call_are_errors_of_python_as_well(
    table: lancemem.Table, schema: pa.Schema
) -> None:
    nowhere = table.uri + "-not-there"
    calls: list[tuple[Callable[[], object], type[Exception], type[Exception]]] = [
        (lambda: table.scan(["nope"]).to_table(), ValueError, lancemem.InvalidInputError),
        (lambda: lancemem.open_table(nowhere), FileNotFoundError, lancemem.TableNotFoundError),
        (lambda: lancemem.enable(nowhere), FileNotFoundError, lancemem.TableNotFoundError),
        (
            lambda: lancemem.create_table(table.uri, schema, primary_key="id"),
            FileExistsError,
            lancemem.TableExistsError,
        ),
    ]
    for call, of_python, kind in calls:
        with pytest.raises(of_python) as raised:
            call()
        error = raised.value
        assert type(error) is kind
        assert isinstance(error, lancemem.InvalidInputError)
        assert isinstance(error, ValueError)
        assert (kind.__module__, kind.__qualname__) == ("lancemem", kind.__name__)
        assert kind.__doc__
        again = pickle.loads(pickle.dumps(error))  # noqa: S301
        assert (type(again), str(again), again.args) == (kind, str(error), error.args)
        assert again.__notes__ == error.__notes__
        assert error.__notes__[0].startswith("table: ")


def test_a_handle_of_a_table_that_was_deleted_and_made_again_says_so(
    table_uri: str, schema: pa.Schema
) -> None:
    def make(name: str) -> lancemem.Table:
        made = lancemem.create_table(table_uri, schema, primary_key="id")
        made.upsert(pa.table({"id": [1, 2], "name": [name] * 2, "value": [0.0] * 2}))
        return made

    old = make("old")
    assert old.scan().count_rows() == 2
    shutil.rmtree(table_uri)
    new = make("new")
    keys = pa.table({"id": [1]})
    for versions in range(3):
        for ask in (
            lambda: old.scan().to_table(),
            lambda: old.get(keys),
            lambda: old.upsert(pa.table({"id": [1], "name": ["lost"], "value": [0.0]})),
            lambda: old.start_job(shard=0),
            old.compact,
            old.refresh,
        ):
            with pytest.raises(lancemem.InvalidInputError, match="was replaced by another one"):
                ask()
        assert new.get(keys)["name"].to_pylist() == ["new"], versions
        with new.start_job(shard=0) as job:
            job.flush()
        new.compact()


def test_a_table_that_is_not_there_is_refused_and_not_made(table_uri: str) -> None:
    assert issubclass(lancemem.TableNotFoundError, lancemem.InvalidInputError)
    with pytest.raises(lancemem.TableNotFoundError, match="there is no table"):
        lancemem.open_table(table_uri)
    assert not Path(table_uri).exists()


def test_key_columns_become_not_nullable_and_the_rest_stays(table_uri: str) -> None:
    schema = pa.schema([("x", pa.int8()), ("y", pa.string()), ("z", pa.bool_())])
    table = lancemem.create_table(table_uri, schema, primary_key=["y", "x"])
    assert [column.nullable for column in table.schema] == [False, False, True]
    assert [column.type for column in table.schema] == schema.types
    assert table.schema.names == ["x", "y", "z"]
    assert table.primary_key == ["y", "x"]
    assert lancemem.open_table(table_uri).primary_key == ["y", "x"]


def test_a_table_without_a_key_is_append_only(table_uri: str, schema: pa.Schema) -> None:
    table = lancemem.create_table(table_uri, schema)
    assert table.primary_key == []
    same = pa.table({"id": [1, 1], "name": ["a", "b"], "value": [0.5, None]}, schema=schema)
    for step in range(1, 4):
        table.upsert(same)
        assert table.scan().count_rows() == 2 * step
        if step == 2:
            table.start_job(shard=0).close(flush=True)
    assert table.scan(filter="name = 'a'").count_rows() == 3
    table.start_job(shard=0).close(flush=True)
    flushed = table.scan(["name"], consistency="flushed").to_table()
    assert sorted(flushed.column("name").to_pylist()) == list("aaabbb")

    with pytest.raises(lancemem.InvalidInputError, match="no primary key"):
        table.delete(same.select(["id"]))
    with pytest.raises(lancemem.InvalidInputError, match="no primary key"):
        table.get(same.select(["id"]))
    assert table.compact().num_rows_written == 6
    assert table.scan().count_rows() == 6


def test_settings_of_the_table_are_those_of_every_job(make_table: MakeTable) -> None:
    """PEERS B4: pylance stores such defaults and never reads them."""
    config = lancemem.WriterConfig(durable=False, max_wal_flush_interval=timedelta(hours=1))
    table = make_table(config=config)
    row = pa.table({"id": [1], "name": ["a"], "value": [0.5]})
    with lancemem.open_table(table.uri).start_job(shard=0) as job:
        assert not job.put(row).durable
    with table.start_job(shard=0, config=lancemem.WriterConfig(durable=True)) as job:
        assert job.put(row).durable


def test_rows_that_others_append_to_the_base_table_are_seen(table_uri: str) -> None:
    """PEERS B8: a long-lived reader of pylance keeps the version of its beginning."""
    lance_table(table_uri, ["a"])
    table = lancemem.enable(table_uri)
    job = table.start_job(shard=0)
    job.put(rows(100, b=1))
    lance.write_dataset(
        rows(200, b=2).cast(lance.dataset(table_uri).schema), table_uri, mode="append"
    )
    assert table.scan(consistency="live", jobs=[job]).count_rows() == 7
    assert table.scan(consistency="flushed").count_rows() == 6
    job.close()


# --- the shard manifest, decoded byte by byte without lancemem ---


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def message(data: bytes) -> dict[int, list[Any]]:
    """Split a protobuf message into its fields; only the wire types that occur."""
    fields: dict[int, list[Any]] = {}
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        value: Any
        if tag & 7 == 5:
            value, at = int.from_bytes(data[at : at + 4], "little"), at + 4
        else:
            value, at = varint(data, at)
        if tag & 7 == 2:
            value, at = data[at : at + value], at + value
        fields.setdefault(tag >> 3, []).append(value)
    return fields


def manifests(table: lancemem.Table, shard_id: str) -> list[bytes]:
    folder = Path(table.uri, "_mem_wal", shard_id, "manifest")
    versions = sorted(folder.glob("*.binpb"), key=lambda path: path.stem[::-1])
    return [path.read_bytes() for path in versions]


def test_every_version_of_a_shard_manifest_records_bucket_and_sharding(
    make_table: MakeTable,
) -> None:
    table = make_table(sharding=lancemem.bucket("id", 3))
    table.upsert(pa.table({"id": range(20), "name": ["a"] * 20, "value": [0.5] * 20}))
    for ordinal in range(3):
        table.start_job(shard=ordinal).close(flush=True)
    table.compact()
    for shard in table.shards():
        found = [message(data) for data in manifests(table, shard.shard_id)]
        assert [manifest[1] for manifest in found] == [[n + 1] for n in range(len(found))]
        assert len(found) >= 3
        for manifest in found:
            # The upsert's claim is released from its start, and the claim of a job at its end.
            bucket, sharding, *released = map(message, manifest[14])
            assert bucket == {1: [b"bucket"], 2: [struct.pack("<i", shard.ordinal)]}
            named = b"bucket(field_id=0, num_buckets=3)"
            assert sharding == {1: [b"lancemem:sharding"], 2: [named]}
            epochs = [[{1: [b"lancemem:released"], 2: [struct.pack("<Q", n)]}] for n in (1, 2)]
            assert released in ([], *epochs)
            assert manifest[10] == [1]
        assert released == epochs[1]


def test_every_version_of_a_shard_manifest_has_its_checksum_at_both_ends(
    make_table: MakeTable,
) -> None:
    table = make_table()
    table.upsert(pa.table({"id": [1], "name": ["a"], "value": [0.5]}))
    [shard] = table.shards()
    for data in manifests(table, shard.shard_id):
        checksum = zlib.crc32(data[8:-8])
        fields = message(data)
        first, *_, last = fields
        assert (first, last) == (29_000_001, 29_000_002)
        assert fields[29_000_001] == fields[29_000_002] == [checksum]


def folders_with(name: str, below: Path) -> set[Path]:
    # An SSTable is a Lance dataset of its own.
    return {path.parent for path in below.rglob(name) if "_mem_wal" not in path.parent.parts}


@pytest.mark.parametrize("name", ["a b", "ä", "50%25", "x?y", "x#y", "a\\b"])
def test_a_path_and_its_file_url_are_one_table(name: str, tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    path = tmp_path / name
    table = lancemem.create_table(path.as_uri(), schema, primary_key="id")
    table.upsert(pa.table({"id": [1, 2]}))
    with table.start_job(shard=0) as job:
        job.flush()
    assert lancemem.open_table(str(path)).scan().count_rows() == 2
    assert lancemem.open_table(path.as_uri()).compact().num_rows_written == 2
    assert folders_with("_versions", tmp_path) == folders_with("_mem_wal", tmp_path) == {path}


def test_a_relative_path_is_the_one_of_the_moment_it_was_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    table = lancemem.create_table("../board.lance", schema, primary_key="id")
    monkeypatch.chdir("/")
    table.upsert(pa.table({"id": [1]}))
    assert table.uri == str(tmp_path / "board.lance")
    assert lancemem.open_table(table.uri).scan().count_rows() == 1


REFUSED_URIS = ["", "~/t", "file:t", "memory:t", "file://host/t", "file:///t?a"]
REFUSED_URIS += [
    "memory://t",
    "shared-memory://t",
    "gs://b/t",
    "s3://",
    "s3://b/t#1",
    "s3://b/t?a=1",
]


@pytest.mark.parametrize("uri", REFUSED_URIS)
def test_a_uri_that_could_mean_two_places_is_refused_and_nothing_is_written(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    with pytest.raises(lancemem.InvalidInputError, match="is not a table's URI"):
        lancemem.create_table(uri, schema, primary_key="id")
    assert list(tmp_path.iterdir()) == []


DEEP = functools.reduce(lambda inner, _: pa.list_(inner), range(60), pa.int32())


@pytest.mark.parametrize(
    ("column", "of", "why"),
    [
        ("_tombstone", pa.bool_(), "is reserved"),
        ("id", pa.bool_(), "'id' is in the schema twice"),
        ("a`b", pa.bool_(), "the name 'a`b'"),
        ("*", pa.bool_(), "cannot read a column"),
        ("", pa.bool_(), "cannot read a column"),
        ("\0", pa.bool_(), "cannot read a column"),
        ("c", pa.dictionary(pa.int8(), pa.string()), "32-bit indices"),
        ("c", pa.list_(pa.dictionary(pa.int16(), pa.string())), "32-bit indices"),
        ("c", pa.struct([("empty", pa.struct([]))]), "a struct without fields"),
        ("c", pa.list_(pa.string(), 2), "no fixed-size lists of string"),
        (
            "c",
            pa.list_(pa.struct([("a", pa.int8())]), 2),
            "no fixed-size lists of struct<a: int8>",
        ),
        ("c", pa.struct([("a", pa.int8()), ("a", pa.int16())]), "field 'a' twice"),
        ("c", pa.dictionary(pa.int32(), pa.null()), "without a type has no values"),
        ("c", DEEP, "limited to 48 levels"),
    ],
)
def test_a_schema_that_cannot_be_stored_leaves_no_table(
    column: str, of: pa.DataType, why: str, tmp_path: Path
) -> None:
    schema = pa.schema([pa.field("id", pa.int64()), pa.field(column, of)])
    with pytest.raises(lancemem.InvalidInputError, match=why):
        lancemem.create_table(str(tmp_path / "t.lance"), schema, primary_key="id")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("key", ["lance-encoding:blob", "ARROW:extension:name"])
def test_a_column_that_lance_keeps_in_another_form_is_refused(key: str, table_uri: str) -> None:
    is_blob = key == "lance-encoding:blob"
    metadata = {key: "true" if is_blob else "arrow.json"}
    column = pa.field("c", pa.large_binary() if is_blob else pa.string(), metadata=metadata)
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), column])
    with pytest.raises(lancemem.InvalidInputError, match="column 'c' cannot be stored"):
        lancemem.create_table(table_uri, schema, primary_key="id")
    marked = schema.set(
        0, schema.field(0).with_metadata({"lance-schema:unenforced-primary-key": "true"})
    )
    lance.write_dataset(pa.table([[1], [None]], schema=marked), table_uri)
    with pytest.raises(lancemem.InvalidInputError, match="column 'c' cannot be stored"):
        lancemem.enable(table_uri)


def test_what_cannot_be_opened_by_calling_again_is_no_passing_fault(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    (tmp_path / "file").write_text("no table")
    (tmp_path / "loop").symlink_to("loop")
    for name in ("file", "file/below", "loop", "x" * 300, "missing"):
        with pytest.raises(lancemem.InvalidInputError):
            lancemem.open_table(str(tmp_path / name))
        if name != "missing":
            with pytest.raises(lancemem.InvalidInputError):
                lancemem.create_table(str(tmp_path / name), schema, primary_key="id")


@pytest.mark.parametrize(
    "name",
    [
        "max_memtable_rows",
        "max_memtable_bytes",
        "max_memtable_batches",
        "max_wal_buffer_bytes",
        "max_unflushed_memtable_bytes",
        "max_uncompacted_generations",
        "generations",
        "interval",
    ],
)
def test_a_setting_that_cannot_work_is_refused_under_its_own_name(
    make_table: MakeTable, name: str
) -> None:
    setting: dict[str, Any] = {name: timedelta(0) if name == "interval" else 0}
    given: dict[str, Any]
    if name in ("generations", "interval"):
        given = {"maintenance": lancemem.MaintenanceConfig(**setting)}
    else:
        given = {"config": lancemem.WriterConfig(**setting)}
    text = f"^{name}( of MaintenanceConfig)? must be at least 1( ms)?, got 0"
    with pytest.raises(lancemem.InvalidInputError, match=text):
        make_table(**given)
    table = make_table()
    with pytest.raises(lancemem.InvalidInputError, match=text):
        table.start_job(shard=0, **given)


@pytest.mark.parametrize(
    ("version", "column", "why"),
    [
        ("legacy", pa.field("n", pa.int64()), "a null of a number as 0"),
        ("2.0", pa.field("n", pa.binary(0)), "values of no bytes"),
        ("2.1", pa.field("n", pa.list_(pa.binary(0))), "values of no bytes"),
    ],
)
def test_a_table_whose_files_would_change_rows_is_not_enabled(
    tmp_path: Path, version: str, column: pa.Field, why: str
) -> None:
    """Lance reads back other values than it wrote: rows would change with their flush."""
    key = pa.field("id", pa.int64(), nullable=False, metadata={PRIMARY_KEY: "true"})
    uri = str(tmp_path / "old.lance")
    lance.write_dataset(pa.schema([key, column]).empty_table(), uri, data_storage_version=version)
    with pytest.raises(lancemem.InvalidInputError, match=why):
        lancemem.enable(uri)
    assert lance.dataset(uri).version == 1


def test_a_location_may_be_a_path(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    made = lancemem.create_table(tmp_path / "t.lance", schema, primary_key="id")
    assert lancemem.open_table(tmp_path / "t.lance").uri == made.uri
    with pytest.raises(lancemem.InvalidInputError, match="not UTF-8"):
        lancemem.open_table(tmp_path / "\udcff.lance")
    with pytest.raises(TypeError):
        lancemem.open_table(7)  # type: ignore[arg-type]
