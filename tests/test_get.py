"""Rows by key: every source of a snapshot against a Python dict.

Owns: `Table.get` and its treatment of keys without a row, with rows in the base table, in SSTables
and in MemTables, indexes on the base table and SSTables of pylance. Not here: which keys are
accepted (test_input).
"""

from __future__ import annotations

import random
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lancemem

if TYPE_CHECKING:
    from tests.conftest import MakeTable

PRIMARY_KEY = "lance-schema:unenforced-primary-key"
PAYLOAD = [pa.field("name", pa.string()), pa.field("value", pa.int64())]
KEYS: dict[str, list[pa.Field]] = {
    "int64": [pa.field("id", pa.int64(), nullable=False)],
    "uint64": [pa.field("id", pa.uint64(), nullable=False)],
    "string": [pa.field("id", pa.string(), nullable=False)],
    "composite": [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("sub", pa.string(), nullable=False),
    ],
}
NUMBERS = range(300)

State = dict[int, tuple[str, int]]


def key_of(kind: str, number: int) -> dict[str, Any]:
    text = "" if number == 0 else f"key-é-{number:04}"
    found: dict[str, dict[str, Any]] = {
        "int64": {"id": number - 100},
        "uint64": {"id": number},
        "string": {"id": text},
        # Half of each key is shared with other keys.
        "composite": {"id": number // 7, "sub": f"{text[:4]}{number % 7}"},
    }
    return found[kind]


def keys(kind: str, numbers: list[int]) -> pa.Table:
    rows = [key_of(kind, number) for number in numbers]
    return pa.Table.from_pylist(rows, schema=pa.schema(KEYS[kind]))


def rows(kind: str, state: State) -> pa.Table:
    found = [
        {**key_of(kind, number), "name": name, "value": value}
        for number, (name, value) in state.items()
    ]
    return pa.Table.from_pylist(found, schema=pa.schema(KEYS[kind] + PAYLOAD))


def newer(numbers: list[int], name: str) -> State:
    return {number: (name, number * 1000 + len(name)) for number in numbers}


def check(
    table: lancemem.Table,
    kind: str,
    state: State,
    numbers: list[int],
    **level: Any,  # noqa: ANN401 - what `get` takes
) -> None:
    """Ask for `numbers` and compare with the model: rows, order, duplicates and misses."""
    found = table.get(keys(kind, numbers), **level)
    filled = table.get(keys(kind, numbers), missing="null", **level)
    missing = [place for place, name in enumerate(filled["name"].to_pylist()) if name is None]
    there = [number for number in numbers if number in state]
    expected = [
        {**key_of(kind, number), "name": state[number][0], "value": state[number][1]}
        for number in there
    ]
    assert found.to_pylist() == expected
    assert missing == [place for place, number in enumerate(numbers) if number not in state]
    nothing = {"name": None, "value": None}
    rest = iter(expected)
    assert filled.to_pylist() == [
        next(rest) if number in state else {**key_of(kind, number), **nothing} for number in numbers
    ]
    assert table.get(keys(kind, numbers), missing="drop", **level).equals(found)
    if missing:
        text = f"^no row for {len(missing)} of {len(numbers)} keys: "
        with pytest.raises(lancemem.InvalidInputError, match=text):
            table.get(keys(kind, numbers), missing="raise", **level)
    else:
        assert table.get(keys(kind, numbers), missing="raise", **level).equals(found)


class _Layers:
    """A table with rows at every level, and what must be seen of them."""

    def __init__(self, table: lancemem.Table, kind: str, seed: int) -> None:
        self.table, self.kind = table, kind
        self.random = random.Random(seed)  # noqa: S311 - a repeatable choice, no secret
        self.state: State = {}

    def change(self, job: lancemem.Job, name: str) -> None:
        put = newer(self.random.sample(NUMBERS, 60), name)
        dead = self.random.sample(NUMBERS, 25)
        job.put(rows(self.kind, put))
        job.delete(keys(self.kind, dead))
        self.state.update(put)
        for number in dead:
            self.state.pop(number, None)

    def build(self) -> lancemem.Job:
        base = newer(self.random.sample(NUMBERS, 200), "base")
        self.table.upsert(rows(self.kind, base))
        self.table.start_job(shard=0).close(flush=True)
        self.table.compact()
        self.state.update(base)
        job = self.table.start_job(shard=0)
        for run in range(4):
            self.change(job, f"run {run}")
            job.flush()
        for memory in range(3):
            self.change(job, f"memory {memory}")
        return job


@pytest.mark.parametrize("index", [False, True], ids=["plain", "btree"])
@pytest.mark.parametrize("kind", KEYS)
def test_every_level_answers_for_its_newest_keys(
    make_table: MakeTable, kind: str, index: bool
) -> None:
    names = [field.name for field in KEYS[kind]]
    layers = _Layers(make_table(pa.schema(KEYS[kind] + PAYLOAD), names), kind, seed=11)
    with layers.build() as job:
        if index:
            lance = pytest.importorskip("lance")
            lance.dataset(layers.table.uri).create_scalar_index("id", "BTREE")
        live: dict[str, Any] = {"consistency": "live", "jobs": [job]}
        everything = list(range(-3, 310)) if kind == "int64" else list(NUMBERS)
        for level in ({}, live):
            for number in layers.random.sample(everything, 40):
                check(layers.table, kind, layers.state, [number], **level)
            check(layers.table, kind, layers.state, everything, **level)
            twice = [*everything, *reversed(everything), 5, 5, 5]
            check(layers.table, kind, layers.state, twice, **level)
            check(layers.table, kind, layers.state, [], **level)
        check(lancemem.open_table(layers.table.uri), kind, layers.state, [7, 3, 7])


def test_only_the_columns_that_are_asked_for_come_in_the_order_of_the_question(
    make_table: MakeTable,
) -> None:
    layers = _Layers(make_table(pa.schema(KEYS["int64"] + PAYLOAD)), "int64", seed=5)
    with layers.build():
        numbers = [number for number in NUMBERS if number in layers.state][:20]
        asked = keys("int64", numbers)
        for columns in (["value", "id"], ["id"], ["name"], ["name", "value"], []):
            found = layers.table.get(asked, columns)
            assert found.column_names == columns
            assert found.num_rows == len(numbers)
            if "value" in columns:
                expected = [layers.state[number][1] for number in numbers]
                assert found.column("value").to_pylist() == expected
            if "id" in columns:
                assert found.column("id").to_pylist() == asked.column("id").to_pylist()


def test_a_smaller_integer_finds_the_same_row(make_table: MakeTable) -> None:
    table = make_table(pa.schema(KEYS["int64"] + PAYLOAD))
    table.upsert(rows("int64", newer([101, 102], "x")))
    found = table.get(pa.table({"id": pa.array([2, 1, 3], pa.int32())}))
    assert found.column("id").to_pylist() == [2, 1]
    assert found.schema.field("id").type == pa.int64()


def test_rows_behind_an_index_are_found_after_appends_updates_and_deletes(
    make_table: MakeTable,
) -> None:
    """The index covers some fragments; some of their rows die; other programs add fragments."""
    lance = pytest.importorskip("lance")
    table = make_table(pa.schema(KEYS["int64"] + PAYLOAD))
    state = newer(list(range(200)), "first")
    table.upsert(rows("int64", state))
    table.start_job(shard=0).close(flush=True)
    table.compact()
    dataset = lance.dataset(table.uri)
    dataset.create_scalar_index("id", "BTREE")
    appended = newer(list(range(200, 260)), "appended")
    dataset.insert(rows("int64", appended), mode="append")
    state.update(appended)
    dataset.delete("id < -90")
    state = {number: row for number, row in state.items() if number >= 10}
    dataset.update({"name": "'updated'"}, where="id >= 0 and id < 20")
    state.update({n: ("updated", state[n][1]) for n in range(100, 120)})
    moved = newer(list(range(40, 60)), "moved")
    table.upsert(rows("int64", moved))
    table.start_job(shard=0).close(flush=True)
    table.compact()
    state.update(moved)
    for number in [0, 9, 10, 45, 99, 100, 119, 120, 199, 200, 259, 260]:
        check(table, "int64", state, [number])
    for _ in range(4):
        check(table, "int64", state, list(NUMBERS))
    dataset = lance.dataset(table.uri)
    dataset.optimize.compact_files()
    check(table, "int64", state, list(NUMBERS))
    dataset.optimize.optimize_indices()
    check(table, "int64", state, list(NUMBERS))
    check(lancemem.open_table(table.uri), "int64", state, [45])


@pytest.mark.parametrize("kind", ["uint64", "string", "int64"])
def test_the_bloom_filter_of_pylance_hides_no_row(kind: str, table_uri: str) -> None:
    """The filter that pylance writes for uint64 keys contains only their null flags."""
    lance = pytest.importorskip("lance")
    fields = [KEYS[kind][0].with_metadata({PRIMARY_KEY: "true"}), *PAYLOAD]
    base = rows(kind, newer([0], "base")).cast(pa.schema(fields))
    dataset = lance.write_dataset(base, table_uri)
    dataset.initialize_mem_wal(unsharded=True)
    state = newer(list(range(1, 250)), "pylance")
    options: dict[str, Any] = {"durable_write": True, "max_wal_flush_interval_ms": 1}
    with dataset.mem_wal_writer(str(uuid.uuid4()), **options) as writer:
        writer.put(rows(kind, state))
    state.update(newer([0], "base"))
    table = lancemem.open_table(table_uri)
    assert [len(shard.sstables) for shard in table.shards()] == [1]
    for number in (0, 1, 100, 249, 250):
        check(table, kind, state, [number])
    check(table, kind, state, list(NUMBERS))


def test_pylance_finds_keys_in_sstables_that_name_another_writer(make_table: MakeTable) -> None:
    lance = pytest.importorskip("lance")
    table = make_table(pa.schema(KEYS["int64"] + PAYLOAD))
    table.upsert(rows("int64", newer([1, 2], "x")))
    table.start_job(shard=0).close(flush=True)
    [run] = table.shards()[0].sstables
    shard = table.shards()[0].shard_id
    dataset = lance.dataset(f"{table.uri}/_mem_wal/{shard}/{run.path}")
    assert dataset.to_table(filter="id = -98").column("name").to_pylist() == ["x"]
    assert dataset.count_rows() == 2


def test_keys_of_one_column_come_as_values_an_array_or_rows(make_table: MakeTable) -> None:
    schema = pa.schema([*KEYS["int64"], *PAYLOAD])
    table = make_table(schema, primary_key=["id"])
    table.upsert(rows("int64", {100: ("zero", 0), 103: ("three", 3)}))
    forms = [
        [3, 9, 0],
        (3, 9, 0),
        pa.array([3, 9, 0], pa.int32()),
        pa.chunked_array([[3], [9, 0]], pa.int64()),
        pa.table({"id": [3, 9, 0]}),
    ]
    snapshot = table.snapshot()
    for form in forms:
        found = table.get(form, ["name"])
        assert found["name"].to_pylist() == ["three", "zero"]
        filled = table.get(form, ["name"], missing="null")
        assert filled["name"].to_pylist() == ["three", None, "zero"]
        assert snapshot.get(form, ["name"], missing="null") == filled
        assert snapshot.get(form, ["name"]) == found
        for reader in (table, snapshot):
            with pytest.raises(lancemem.InvalidInputError, match=r"^no row for 1 of 3 keys: 9\b"):
                reader.get(form, ["name"], missing="raise")
    table.delete([3])
    assert table.get([3, 0])["name"].to_pylist() == ["zero"]
    assert table.get(pa.chunked_array([], pa.int64())).num_rows == 0


def test_a_row_of_nulls_has_the_key_and_nullable_columns(make_table: MakeTable) -> None:
    nested = pa.struct([pa.field("part", pa.int64(), nullable=False)])
    payload = [
        pa.field("name", pa.string(), nullable=False),
        pa.field("vector", pa.list_(pa.float32(), 2), nullable=False),
        pa.field("nested", nested, nullable=False),
        pa.field("items", pa.list_(pa.int64()), nullable=False),
    ]
    table = make_table(pa.schema([*KEYS["composite"], *payload]), primary_key=["id", "sub"])
    row = {"name": "a", "vector": [1.0, 2.0], "nested": {"part": 3}, "items": [4]}
    table.upsert(
        pa.Table.from_pylist([{"id": 1, "sub": "a", **row}], schema=pa.schema(table.schema))
    )
    nothing = dict.fromkeys(row)
    asked = [(2, "b"), (1, "a"), (2, "b"), (3, "c")]
    for reader in (table, table.snapshot()):
        filled = reader.get(asked, missing="null")
        filled.validate(full=True)
        assert filled.to_pylist() == [
            {"id": 2, "sub": "b", **nothing},
            {"id": 1, "sub": "a", **row},
            {"id": 2, "sub": "b", **nothing},
            {"id": 3, "sub": "c", **nothing},
        ]
        nullable = {field.name: field.nullable for field in filled.schema}
        assert nullable == {"id": False, "sub": False, **dict.fromkeys(row, True)}
        assert reader.get([(1, "a")], missing="null").schema == filled.schema
        assert reader.get([(9, "z")], ["items"], missing="null").to_pylist() == [{"items": None}]
        assert reader.get([], missing="null").num_rows == 0
        text = r"^no row for 3 of 4 keys: \(2, b\), \(2, b\), \(3, c\)"
        with pytest.raises(lancemem.InvalidInputError, match=text):
            reader.get(asked, missing="raise")
        many = [(number, "x") for number in range(7)]
        with pytest.raises(lancemem.InvalidInputError, match=r"of 7 keys: .*\(4, x\), \.\.\."):
            reader.get(many, missing="raise")
        with pytest.raises(lancemem.InvalidInputError, match="'drop', 'null' or 'raise', got 'no'"):
            reader.get(asked, missing="no")  # type: ignore[arg-type]


def test_keys_of_several_columns_come_as_tuples(make_table: MakeTable) -> None:
    schema = pa.schema([*KEYS["composite"], *PAYLOAD])
    table = make_table(schema, primary_key=["id", "sub"])
    table.upsert(rows("composite", {7: ("seven", 7)}))
    key = tuple(key_of("composite", 7).values())
    assert table.get([key, (99, "x")])["name"].to_pylist() == ["seven"]
    with table.start_job(shard=0) as job:
        job.delete([key])
    assert table.get([key]).num_rows == 0
    for wrong in ([1], [(1,)], pa.array([1])):
        with pytest.raises(lancemem.InvalidInputError, match="2 columns"):
            table.get(wrong)


def test_values_that_are_no_keys_are_refused(make_table: MakeTable) -> None:
    schema = pa.schema([*KEYS["int64"], *PAYLOAD])
    table = make_table(schema, primary_key=["id"])
    wrong: list[Any] = [["a"], [1, "a"], [None], [object()], 7, "abc"]
    for given in wrong:
        with pytest.raises(lancemem.InvalidInputError):
            table.get(given)
    with pytest.raises(lancemem.InvalidInputError, match="a record batch or a table"):
        table.upsert(pa.array([1]))
    with pytest.raises(lancemem.InvalidInputError, match="no primary key"):
        make_table(schema, primary_key=[]).get([1])


def test_a_bloom_filter_that_lost_its_bits_is_damage_and_hides_no_row(
    make_table: MakeTable,
) -> None:
    table = make_table(pa.schema(KEYS["int64"] + PAYLOAD), ["id"])
    for value in (1, 2):
        table.upsert(rows("int64", dict.fromkeys(NUMBERS, ("row", value))))
        with table.start_job(shard=0) as job:
            job.flush()
        if value == 1:
            table.compact()
    [shard] = table.shards()
    [run] = shard.sstables
    path = Path(table.uri) / "_mem_wal" / shard.shard_id / run.path / "bloom_filter.bin"
    path.write_bytes(bytes(path.stat().st_size))
    with pytest.raises(lancemem.CorruptionError, match=r"bloom_filter\.bin") as raised:
        lancemem.open_table(table.uri).get(keys("int64", [7]))
    assert "checksum" in str(raised.value)


@pytest.mark.parametrize("stable", [False, True])
def test_a_column_of_an_extension_type_is_found_wherever_its_row_lies(
    stable: bool, tmp_path: Path
) -> None:
    uri = str(tmp_path / "t.lance")
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False, metadata={PRIMARY_KEY: "true"}),
            pa.field("u", pa.binary(16), metadata={"ARROW:extension:name": "arrow.uuid"}),
        ]
    )

    def rows(ids: list[int], letter: bytes) -> pa.Table:
        return pa.table([ids, [letter * 16] * len(ids)], schema=schema)

    lance.write_dataset(rows([1, 2, 3, 4], b"a"), uri, enable_stable_row_ids=stable)
    # A row id is the address of a row until the row moves.
    lance.dataset(uri).delete("id = 1")
    lance.dataset(uri).optimize.compact_files(materialize_deletions_threshold=0.0)
    table = lancemem.enable(uri)
    table.upsert(rows([3], b"b"))
    with table.start_job(shard=0) as job:
        job.flush()
    table.compact()
    table.upsert(rows([4], b"c"))
    found = table.get([2, 3, 4])["u"]
    storage = found.cast(pa.binary(16)).to_pylist()
    assert storage == [b"a" * 16, b"b" * 16, b"c" * 16]


def test_keys_of_the_upper_half_of_the_unsigned_numbers_come_as_a_list_too(
    make_table: MakeTable,
) -> None:
    one = pa.schema([pa.field("id", pa.uint64(), nullable=False), ("v", pa.int8())])
    table = make_table(one)
    keys = [1, 2**63, 2**64 - 1]
    table.upsert(pa.table({"id": keys, "v": [1, 2, 3]}, schema=one))
    assert table.get(keys)["v"].to_pylist() == [1, 2, 3]
    assert table.get([2**63])["v"].to_pylist() == [2]
    assert table.get(iter(keys))["v"].to_pylist() == [1, 2, 3]
    assert table.get(key for key in keys)["v"].to_pylist() == [1, 2, 3]
    assert table.delete(iter([2**64 - 1])).num_rows == 1
    assert table.get(iter([2**64 - 1])).num_rows == 0
    with table.start_job(shard=0) as job:
        assert job.delete(iter([1, 2**63])).num_rows == 2
    two = make_table(one.append(pa.field("b", pa.binary(), nullable=False)), ["id", "b"])
    two.upsert(pa.table({"id": keys, "v": [1, 2, 3], "b": [b""] * 3}, schema=two.schema))
    assert two.get([(2**63, b"")])["v"].to_pylist() == [2]
    with pytest.raises(lancemem.InvalidInputError, match="could not be read as Arrow"):
        table.get([2**64])
