"""Columns of maps, structs and lists, on every level of the tree.

Owns: that nested values are read back unchanged from memory, log, SSTables and base, and that
pylance reads the same values. Not here: how Spark holds them (tests/spark/test_types), schema
changes.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import lance
import pyarrow as pa
import pytest

import lancemem

if TYPE_CHECKING:
    from tests.conftest import MakeTable

POINT = pa.struct([("x", pa.float64()), ("tags", pa.list_(pa.string()))])
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("counts", pa.map_(pa.string(), pa.int32())),
        pa.field("points", pa.map_(pa.int64(), POINT)),
        pa.field("history", pa.list_(pa.map_(pa.string(), pa.int32()))),
        pa.field("point", POINT),
    ]
)


def row(number: int, turn: int) -> dict[str, Any]:
    """Give a row; some values are null, some are empty, some have nulls inside."""
    point = {"x": number / 4, "tags": ["a", None] if number % 2 else []}
    return {
        "id": number,
        "counts": None if number % 5 == 0 else [(f"k{n}", turn * n) for n in range(number % 4)],
        "points": [(n, point if n % 2 else None) for n in range(number % 3)],
        "history": [[("turn", turn)], None, [("none", None)]],
        "point": None if number % 7 == 0 else point,
    }


def rows(numbers: range, turn: int) -> list[dict[str, Any]]:
    return [row(number, turn) for number in numbers]


def by_id(found: pa.Table) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = found.to_pylist()
    return sorted(listed, key=lambda each: int(each["id"]))


def check(table: lancemem.Table, wanted: list[dict[str, Any]], job: lancemem.Job | None) -> None:
    """Compare a scan, its filter, a projection and every row by key."""
    level: dict[str, Any] = {"consistency": "live", "jobs": [job]} if job else {}
    assert by_id(table.scan(**level).to_table()) == wanted
    some = by_id(table.scan(filter="id % 3 = 0", columns=["id", "counts"], **level).to_table())
    names = ("id", "counts")
    assert some == [{name: each[name] for name in names} for each in wanted if each["id"] % 3 == 0]
    keys = pa.table({"id": [each["id"] for each in wanted]})
    assert by_id(table.get(keys, **level)) == wanted


def test_nested_values_come_back_from_memory_log_sstables_and_base(make_table: MakeTable) -> None:
    table = make_table(SCHEMA)
    with table.start_job(shard=0) as job:
        job.put(pa.Table.from_pylist(rows(range(30), 1), schema=SCHEMA))
        check(table, rows(range(30), 1), job)
        check(table, rows(range(30), 1), None)
        job.flush()
        check(table, rows(range(30), 1), None)
        table.compact()
        job.put(pa.Table.from_pylist(rows(range(20, 40), 2), schema=SCHEMA))
        job.flush()
        job.put(pa.Table.from_pylist(rows(range(35, 50), 3), schema=SCHEMA))
        job.delete(pa.table({"id": [0, 1]}))
        wanted = rows(range(2, 20), 1) + rows(range(20, 35), 2) + rows(range(35, 50), 3)
        check(table, wanted, job)
        check(lancemem.open_table(table.uri), wanted, None)
        job.flush()
    table.compact()
    check(table, wanted, None)
    assert by_id(lance.dataset(table.uri).to_table()) == wanted


def test_a_map_whose_values_do_not_fit_is_refused(make_table: MakeTable) -> None:
    schema = pa.schema([SCHEMA.field("id"), SCHEMA.field("counts")])
    table = make_table(schema)
    wide = pa.schema([schema.field("id"), pa.field("counts", pa.map_(pa.string(), pa.int64()))])
    with table.start_job(shard=0) as job:
        job.put(pa.Table.from_pylist([{"id": 1, "counts": [("a", 7)]}], schema=wide))
        with pytest.raises(lancemem.InvalidInputError, match="column 'counts' is of type map<"):
            job.put(pa.Table.from_pylist([{"id": 1, "counts": [("a", 1 << 40)]}], schema=wide))
    assert table.scan().to_table().to_pylist() == [{"id": 1, "counts": [("a", 7)]}]


@pytest.mark.parametrize("version", ["2.0", "2.1"])
def test_a_table_of_a_file_format_without_maps_is_refused_before_anything_is_written(
    table_uri: str, version: Literal["2.0", "2.1"]
) -> None:
    """Lance creates such a table as long as it has no rows; no flush could ever succeed."""
    key = {"lance-schema:unenforced-primary-key": "true"}
    schema = SCHEMA.set(0, SCHEMA.field("id").with_metadata(key))
    lance.write_dataset(schema.empty_table(), table_uri, data_storage_version=version)
    with pytest.raises(lancemem.InvalidInputError, match=f"'counts' has maps.* {version};"):
        lancemem.enable(table_uri)


def test_lists_inside_others_become_vectors_whatever_their_items_are_called(
    make_table: MakeTable,
) -> None:
    vector, element = pa.list_(pa.float32(), 2), pa.list_(pa.field("element", pa.float64()))
    key = pa.field("id", pa.int64(), nullable=False)
    wide = pa.field("key", pa.string(), nullable=False)
    values: dict[str, tuple[pa.DataType, pa.DataType, list[Any]]] = {
        "s": (
            pa.struct([("a", pa.int32()), ("v", vector)]),
            pa.struct([("v", element), ("a", pa.int64())]),
            [{"a": 1, "v": [1.0, 2.0]}, {"a": 2, "v": None}, None],
        ),
        "l": (pa.list_(vector), pa.list_(element), [[[1.0, 2.0], None], [], None]),
        "m": (
            pa.map_(pa.string(), vector),
            pa.map_(wide, element),
            [[("k", [1.0, 2.0])], [], None],
        ),
        "f": (pa.list_(vector, 1), pa.list_(element, 1), [[[1.0, 2.0]], [None], None]),
    }
    table = make_table(pa.schema([key, *((name, it[0]) for name, it in values.items())]))
    given = {name: pa.array(rows, have) for name, (_, have, rows) in values.items()}
    table.upsert(pa.table({"id": [0, 1, 2]} | given))
    found = table.scan().to_table().sort_by("id")
    for name, (_, _, rows) in values.items():
        assert found[name].to_pylist() == rows, name
    for name, row in {
        "s": {"a": 3, "v": [1.0]},
        "l": [[1.0]],
        "m": [("k", [1e300, 2.0])],
        "f": [[1.0]],
    }.items():
        wrong = {other: pa.nulls(1, it[1]) for other, it in values.items()}
        wrong[name] = pa.array([row], values[name][1])
        with pytest.raises(lancemem.InvalidInputError, match=f"column '{name}'"):
            table.upsert(pa.table({"id": [9]} | wrong))


def test_a_table_whose_file_format_has_no_null_structs_is_refused(table_uri: str) -> None:
    """A tombstone has a null struct: it would be acknowledged, and no flush would ever succeed."""
    key = {"lance-schema:unenforced-primary-key": "true"}
    inside = pa.list_(pa.struct([("x", pa.int64())]))
    fields = [pa.field("id", pa.int64(), nullable=False, metadata=key), pa.field("l", inside)]
    rows = pa.table({"id": [1], "l": [[{"x": 1}]]}, schema=pa.schema(fields))
    lance.write_dataset(rows, table_uri, data_storage_version="2.0")
    with pytest.raises(
        lancemem.InvalidInputError, match=r"'l' has structs.* nulls need file format 2\.1"
    ):
        lancemem.enable(table_uri)
    lance.write_dataset(rows, table_uri + "2", data_storage_version="2.1")
    table = lancemem.enable(table_uri + "2")
    with table.start_job(shard=0) as job:
        job.delete([1])
        job.flush()
    assert table.scan().count_rows() == 0


@pytest.mark.parametrize("level", ["memory", "log", "run", "base"])
def test_a_part_of_a_struct_that_is_null_is_null(level: str, make_table: MakeTable) -> None:
    inner = pa.struct([("z", pa.int32())])
    point = pa.struct([("x", pa.int64()), ("y", pa.string()), ("in", inner)])
    table = make_table(pa.schema([pa.field("id", pa.int64(), nullable=False), ("p", point)]))
    points: list[Any] = [
        None,
        {"x": None, "y": None, "in": None},
        {"x": 0, "y": "", "in": {"z": 0}},
        {"x": 5, "y": "q", "in": {"z": None}},
    ]
    job = table.start_job(shard=0)
    job.put(pa.table({"id": range(4), "p": pa.array(points, point)}))
    how: dict[str, Any] = {"consistency": "live", "jobs": [job]} if level == "memory" else {}
    if level in ("run", "base"):
        job.flush()
    if level == "base":
        table.compact()
    for condition, wanted in {
        "p.x IS NULL": [0, 1],
        "p.x IS NOT NULL": [2, 3],
        "p.x = 0": [2],
        "p.y = ''": [2],
        "coalesce(p.x, -1) = -1": [0, 1],
        "p['in']['z'] IS NULL": [0, 1, 3],
        "p['in']['z'] = 0": [2],
    }.items():
        scan = table.scan(["id"], filter=condition, **how)
        assert sorted(scan.to_table()["id"].to_pylist()) == wanted, condition
        assert scan.count_rows() == len(wanted), condition


LEVELS: dict[str, tuple[pa.DataType, Any]] = {
    "list": (pa.list_(pa.int32()), [[], [None]]),
    "large list": (pa.large_list(pa.string()), [[], [None]]),
    "list of lists": (pa.list_(pa.list_(pa.int32())), [[], [[None]]]),
    "struct": (pa.struct([("x", pa.int64()), ("y", pa.list_(pa.string()))]),
               [{"x": None, "y": []}, {"x": None, "y": [None]}]),
    "map": (pa.map_(pa.string(), pa.int64()), [[], [("k", None)]]),
    "vector": (pa.list_(pa.float32(), 2), [None, [None, None]]),
}  # fmt: skip


@pytest.mark.parametrize("kind", LEVELS)
def test_parts_that_are_all_null_and_so_have_no_type_are_nulls_of_the_column(
    kind: str, make_table: MakeTable
) -> None:
    column, given = LEVELS[kind]
    table = make_table(pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", column)]))
    nulls = pa.array(given, nulls_in(column))
    table.upsert(pa.table({"id": [0, 1], "v": nulls}))
    with table.start_job(shard=0) as job:
        job.flush()
    found = table.scan().to_table().sort_by("id")
    assert found["v"].to_pylist() == given


def nulls_in(column: pa.DataType) -> pa.DataType:
    """Return the type of such a column without any value: every leaf is `null`."""
    if pa.types.is_map(column):
        return pa.map_(column.key_type, pa.null())
    if pa.types.is_struct(column):
        return pa.struct([(part.name, nulls_in(part.type)) for part in column])
    if pa.types.is_fixed_size_list(column):
        return pa.list_(pa.null(), column.list_size)
    if pa.types.is_large_list(column):
        return pa.large_list(nulls_in(column.value_type))
    return pa.list_(nulls_in(column.value_type)) if pa.types.is_list(column) else pa.null()


def test_a_key_that_is_part_of_a_struct_is_refused_by_its_name(table_uri: str) -> None:
    """Also where a column has the name of the part: the column is not the key."""
    key = {"lance-schema:unenforced-primary-key": "true"}
    part = pa.field("id", pa.int64(), nullable=False, metadata=key)
    schema = pa.schema(
        [
            pa.field("who", pa.struct([part, ("name", pa.string())]), nullable=False),
            pa.field("id", pa.int64(), nullable=False),
        ]
    )
    lance.write_dataset(schema.empty_table(), table_uri)
    with pytest.raises(lancemem.InvalidInputError, match=r"key names 'who\.id', a part of the col"):
        lancemem.enable(table_uri)
    with pytest.raises(lancemem.InvalidInputError, match=r"marks 'who\.id' as the primary key"):
        lancemem.create_table(table_uri + "2", schema, primary_key="id")
    assert not Path(table_uri + "2").exists()
