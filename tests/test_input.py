"""Which data lancemem accepts, and the text of a refusal.

Owns: the kinds of Arrow data accepted, the refusals, their text, and that a refused call wrote
nothing. Not here: what accepted rows become (test_model), opening and creating (test_open).
"""

from __future__ import annotations

import copy
import datetime as dt
import os
import pickle
import re
import resource
import subprocess
import sys
import traceback
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import lancemem

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import MakeTable

USUAL = {"id": [1, 2], "name": ["a", None], "value": [0.5, None]}
ROWS = [{"id": 1, "name": "a", "value": 0.5}, {"id": 2, "name": None, "value": None}]


def by_id(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=lambda row: row["id"])


def files_of(table: lancemem.Table) -> dict[str, int]:
    return {str(path): path.stat().st_size for path in Path(table.uri).rglob("*")}


# --- accepted ---


def test_a_stream_whose_producer_needs_pythons_lock_in_other_threads_is_read(
    make_table: MakeTable,
) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])
    table = make_table(schema, primary_key=["id"])
    script = f"""
import lancemem, pyarrow as pa, pyarrow.dataset as pds
table = lancemem.open_table({table.uri!r})
schema = pa.schema(table.schema)
def rows():
    for start in range(0, 160_000, 1_000):
        ids = range(start, start + 1_000)
        yield pa.record_batch([ids, list(map(str, ids))], schema=schema)
reader = pa.RecordBatchReader.from_batches(schema, rows())
table.upsert(pds.Scanner.from_batches(reader).to_reader())
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)  # noqa: S603 - our own
    assert table.scan().count_rows() == 160_000


def pandas_frame(schema: pa.Schema) -> object:
    import pandas as pd

    frame = pd.DataFrame({"id": [1, 2], "name": ["a", None], "value": [0.5, None]})
    frame["value"] = frame["value"].astype(pd.ArrowDtype(schema.field("value").type))
    return frame


def polars_frame(_schema: pa.Schema) -> object:
    import polars as pl

    return pl.DataFrame(USUAL)


def with_types(schema: pa.Schema, **types: pa.DataType) -> pa.Table:
    fields = [pa.field(name, types.get(name, schema.field(name).type)) for name in USUAL]
    return pa.table(USUAL, schema=pa.schema(fields))


ACCEPTED: dict[str, Callable[[pa.Schema], object]] = {
    "a table": lambda schema: pa.table(USUAL, schema=schema),
    "a batch": lambda schema: pa.record_batch(USUAL, schema=schema),
    "a reader": lambda schema: pa.table(USUAL, schema=schema).to_reader(max_chunksize=1),
    "a struct array": lambda schema: pa.table(USUAL, schema=schema).to_struct_array().chunk(0),
    "a slice": lambda schema: pa.concat_tables([pa.table(USUAL, schema=schema)] * 3).slice(2, 2),
    "a pandas frame": pandas_frame,
    "a polars frame": polars_frame,
    "nullable keys": with_types,
    "reordered columns": lambda schema: with_types(schema).select(["value", "id", "name"]),
    "large_utf8": lambda schema: with_types(schema, name=pa.large_string()),
    "utf8 view": lambda schema: with_types(schema, name=pa.string_view()),
    "a dictionary with a null value": lambda schema: with_types(schema).set_column(
        1, "name", pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["a", None]))
    ),
    "a narrower key": lambda schema: with_types(schema, id=pa.int8()),
    "an unsigned key": lambda schema: with_types(schema, id=pa.uint64()),
    "a narrower float": lambda schema: with_types(schema, value=pa.float32()),
}


@pytest.mark.parametrize("kind", ACCEPTED)
def test_rows_are_taken_in_any_form_that_keeps_their_values(
    kind: str, table: lancemem.Table, schema: pa.Schema
) -> None:
    data: Any = ACCEPTED[kind](schema)
    assert table.upsert(data).num_rows == 2
    assert by_id(table.scan().to_table()) == ROWS
    with table.start_job(shard=0) as job:
        again: Any = ACCEPTED[kind](schema)
        assert job.put(again).num_rows == 2
    assert by_id(table.scan().to_table()) == ROWS


def structs() -> dict[str, pa.Array]:
    """Arrays whose children have another offset, or nulls behind nulls of the parent."""
    kind = pa.struct([("a", pa.int64()), ("b", pa.struct([("c", pa.string())]))])
    each: list[Any] = [{"a": n, "b": {"c": f"c{n}"}} for n in range(6)]
    some: list[Any] = [{"a": 9, "b": None}, None, {"a": None, "b": {"c": None}}, *each[3:]]
    full, gaps = pa.array(each, kind), pa.array(some, kind)
    offsets = pa.array([0, 1, 3], pa.int32())
    map_of = pa.map_(pa.string(), pa.int64())
    vector = pa.list_(pa.field("item", pa.float32(), nullable=False), 2)
    vectors = pa.array([[n, n + 0.5] if n != 1 else None for n in range(6)], vector)
    return {
        "vectors behind a null": vectors.slice(2, 3),
        "vectors around a null": vectors.slice(0, 3),
        "vectors before a null": vectors.slice(0, 1),
        "parts that are vectors": pa.StructArray.from_arrays([vectors], ["v"]).slice(2, 3),
        "in the middle": full.slice(2, 3),
        "gaps in the middle": gaps.slice(1, 3),
        "gaps before": gaps.slice(3, 3),
        "gaps behind": gaps.slice(0, 1),
        "taken": gaps.take(pa.array([3, 4])),
        "parts of slices": pa.StructArray.from_arrays([full.slice(2, 3)], ["d"]),
        "a list of a slice": pa.ListArray.from_arrays(offsets, full.slice(2, 3)),
        "a slice of a list of a slice": pa.ListArray.from_arrays(offsets, gaps.slice(2)).slice(1),
        "a map": pa.array([[("k", n)] for n in range(6)], map_of).slice(3),
        "lists of a fixed size": pa.StructArray.from_arrays(
            [pa.FixedSizeListArray.from_arrays(pa.array(range(12), pa.int32()), 2)], ["v"]
        ).slice(2, 3),
    }


@pytest.mark.parametrize("kind", structs())
def test_a_slice_of_a_nested_column_keeps_its_values(kind: str, make_table: MakeTable) -> None:
    column = structs()[kind]
    fields = [pa.field("id", pa.int64(), nullable=False), pa.field("v", column.type)]
    table = make_table(pa.schema(fields))
    data = pa.table({"id": range(len(column)), "v": column})
    table.upsert(data)
    stored = table.scan().to_table().sort_by("id")["v"].to_pylist()
    assert stored == column.to_pylist()
    one_by_one = make_table(pa.schema(fields))
    for batch in data.to_batches(max_chunksize=1):
        one_by_one.upsert(batch)
    assert one_by_one.scan().to_table().sort_by("id")["v"].to_pylist() == column.to_pylist()


def test_a_polars_column_that_is_all_null_and_has_no_type_is_null(table: lancemem.Table) -> None:
    import polars as pl

    table.upsert(pl.DataFrame({"id": [1, 2], "name": [None, None], "value": [0.5, None]}))
    assert by_id(table.scan().to_table()) == [
        {"id": 1, "name": None, "value": 0.5},
        {"id": 2, "name": None, "value": None},
    ]


@pytest.mark.parametrize("chunk", [3, 100])
def test_a_stream_with_a_column_without_a_type_is_read_once_and_whole(
    table: lancemem.Table, chunk: int
) -> None:
    import polars as pl

    frame = pl.DataFrame({"id": range(10), "name": [None] * 10, "value": [0.5] * 10})
    batches = frame.lazy().collect_batches(chunk_size=chunk)
    assert table.upsert(batches).num_rows == 10
    reader = pa.RecordBatchReader.from_stream(frame)
    assert table.upsert(reader).num_rows == 10
    assert table.scan().count_rows() == 10


def test_a_list_of_another_length_is_refused_before_anything_of_it_is_made(
    make_table: MakeTable,
) -> None:
    table = make_table(
        pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.list_(pa.float32(), 2))])
    )
    long = pa.FixedSizeListArray.from_arrays(pa.nulls(2 * 10**9), 2 * 10**9)
    with pytest.raises(lancemem.InvalidInputError, match="no cast keeps every value"):
        table.upsert(pa.table({"id": [1], "v": long}))


def test_an_argument_of_a_wrong_kind_is_told_what_it_can_be(
    table: lancemem.Table, schema: pa.Schema
) -> None:
    wrong: Any = 3
    with pytest.raises(
        TypeError, match=r"'primary_key': expected a name or a list of names, got int"
    ):
        lancemem.create_table(table.uri + "2", schema, primary_key=wrong)
    names: Any = ["id", 3]
    with pytest.raises(
        TypeError, match=r"'primary_key': expected names of columns in the list, got int"
    ):
        lancemem.create_table(table.uri + "2", schema, primary_key=names)
    with pytest.raises(TypeError, match=r"'jobs': expected jobs, of start_job or .*, got int"):
        table.scan(consistency="live", jobs=[wrong])
    nothing: Any = []
    with pytest.raises(
        TypeError, match="'shard': expected the ordinal of a shard or its id, got list"
    ):
        table.start_job(shard=nothing)
    for beyond in (-1, 2**31, 2**32):
        with pytest.raises(lancemem.InvalidInputError, match=f"no shard {beyond}; it has 1"):
            table.start_job(shard=beyond)
    name: Any = "id"
    for read in (
        table.scan,
        table.snapshot().scan,
        lambda it: table.get(pa.table({"id": [1]}), it),
    ):
        with pytest.raises(TypeError, match=r"'columns': expected a list of names .*, got str"):
            read(name)
        with pytest.raises(TypeError, match=r"'columns': expected names .* in the list, got int"):
            read(names)
    keys: list[Any] = [3, 3.5, np.int64(3), None, "a", b"a", {"id": [3]}]
    for key in keys:
        with pytest.raises(lancemem.InvalidInputError, match="put one key into a list"):
            table.get(key)


def test_keys_to_get_and_delete_are_taken_from_frames_and_whole_rows(table: lancemem.Table) -> None:
    import pandas as pd
    import polars as pl

    table.upsert(pa.table(USUAL))
    assert table.get(pl.DataFrame({"id": [2, 9, 1]})).column("id").to_pylist() == [2, 1]
    for keys in (range(2, 0, -1), np.array([2, 9, 1]), pd.Series([2, 1]), iter([2, 1])):
        assert table.get(keys).column("id").to_pylist() == [2, 1]
    assert table.delete(pl.DataFrame({"name": ["whatever"], "id": [1]})).num_rows == 1
    assert by_id(table.scan().to_table()) == ROWS[1:]


def test_an_index_without_a_name_is_no_column_and_one_with_a_name_is(table: lancemem.Table) -> None:
    import pandas as pd

    frame = pd.DataFrame({"id": [1, 2, 3], "name": ["a", "b", "c"], "value": [0.5, 1.5, 2.5]})
    table.upsert(frame[frame["id"] != 2])
    assert sorted(table.scan().to_table()["id"].to_pylist()) == [1, 3]
    table.upsert(frame[frame["id"] == 2].set_index("id"))
    assert table.get([2])["name"].to_pylist() == ["b"]
    table.delete(frame[frame["id"] == 3])
    assert sorted(table.scan().to_table()["id"].to_pylist()) == [1, 2]


def test_empty_data_writes_nothing(table: lancemem.Table) -> None:
    before = files_of(table)
    assert table.upsert(pa.table(USUAL).slice(0, 0)).num_rows == 0
    assert table.delete(pa.table({"id": pa.array([], pa.int64())})).num_rows == 0
    assert files_of(table) == before


def test_what_the_caller_changes_afterwards_does_not_change_the_table(
    table: lancemem.Table,
) -> None:
    numbers = pa.allocate_buffer(16)
    view = memoryview(numbers).cast("B").cast("q")
    view[0], view[1] = 1, 2
    ids = pa.Array.from_buffers(pa.int64(), 2, [None, numbers])
    with table.start_job(shard=0) as job:
        job.put(pa.table([ids, ["a", None], [0.5, None]], names=list(USUAL)))
        view[0] = 77
        assert by_id(table.scan(consistency="live", jobs=[job]).to_table()) == ROWS


def test_offsets_of_an_array_without_values_are_never_read(make_table: MakeTable) -> None:
    """Spark exports them as a buffer of no bytes; what lies behind it is not the array's."""
    elsewhere = pa.py_buffer(b"\xff\x00\xff\xf0" * 4)
    texts = pa.Array.from_buffers(pa.string(), 0, [None, elsewhere.slice(0, 0), elsewhere])
    parts = pa.StructArray.from_arrays([texts, pa.array([], pa.int32())], ["sku", "quantity"])
    items = pa.ListArray.from_arrays(pa.array([0] * 4, pa.int32()), parts)
    rows = pa.table({"id": [1, 2, 3], "items": items})
    schema = rows.schema.set(0, pa.field("id", pa.int64(), nullable=False))
    table = make_table(schema=schema)
    table.upsert(rows)
    table.upsert(rows.to_batches()[0])
    table.flush()
    assert table.to_table(order_by="id")["items"].to_pylist() == [[], [], []]


@pytest.mark.parametrize("shift", [0, 8])
@pytest.mark.parametrize("decimal", [pa.decimal128(22, 2), pa.decimal256(50, 2)], ids=str)
def test_decimals_of_an_ipc_message_are_taken_wherever_they_lie(
    shift: int, decimal: pa.DataType, make_table: MakeTable
) -> None:
    """IPC aligns to 8 bytes; Rust's decimal arrays need 16, and panic unless realigned."""
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("price", decimal)])
    table = make_table(schema)
    numbers = range(100)
    rows = pa.record_batch(
        {"id": list(numbers), "price": pa.array(numbers, pa.int64()).cast(decimal)}, schema=schema
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as stream:
        stream.write_batch(rows)
    message = sink.getvalue()

    place = pa.allocate_buffer(message.size + 32)
    start = -place.address % 16 + shift
    memoryview(place).cast("B")[start : start + message.size] = memoryview(message).cast("B")
    [batch] = pa.ipc.open_stream(place.slice(start, message.size))
    assert batch.column("price").buffers()[1].address % 16 == shift

    for part in (batch, batch.slice(1, 97), pa.table(batch).slice(33)):
        table.upsert(part)
        with table.start_job(shard=0) as job:
            job.put(part)
    table.start_job(shard=0).close(flush=True)
    assert by_id(table.scan().to_table()) == rows.to_pylist()


# --- refused, with nothing written ---


def changed(**columns: pa.Array | None) -> pa.Table:
    data = {name: pa.array(values) for name, values in USUAL.items()} | columns
    return pa.table({name: values for name, values in data.items() if values is not None})


REFUSED: dict[str, tuple[object, str]] = {
    "missing column": (changed(value=None), "'value'.*missing"),
    "missing key": (changed(id=None), "'id'.*missing"),
    "unknown column": (changed(extra=pa.array([1, 2])), "'extra'.*not in the table"),
    "wrong type": (changed(name=pa.array([1, 2])), "'name'.*int64.*string"),
    "text for a number": (changed(value=pa.array(["1", "2"])), "'value'.*string.*double"),
    "fraction for an integer": (changed(id=pa.array([1.5, 2.0])), "'id'.*double.*int64"),
    "overflow": (changed(id=pa.array([1, 2**64 - 1], pa.uint64())), "'id'.*18446744073709551615"),
    "null key": (changed(id=pa.array([1, None])), "'id' is null in row 1"),
    "null type": (changed(id=pa.nulls(2)), "'id'"),
    "no data": (42, "expected Arrow data.*int"),
    "a list": ([1], "expected Arrow data.*list"),
    "an array": (pa.array([1, 2]), "struct|Struct|table"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_rows_that_do_not_fit_are_refused_by_name_with_nothing_written(
    case: str, table: lancemem.Table
) -> None:
    data: Any = REFUSED[case][0]
    text = REFUSED[case][1]
    before = files_of(table)
    with pytest.raises(lancemem.InvalidInputError, match=text):
        table.upsert(data)
    assert files_of(table) == before

    with table.start_job(shard=0) as job:
        job.put(pa.table(USUAL))
        stats, before = job.stats(), files_of(table)
        with pytest.raises(lancemem.InvalidInputError, match=text):
            job.put(data)
        assert (job.stats(), files_of(table)) == (stats, before)
        assert by_id(table.scan(consistency="live", jobs=[job]).to_table()) == ROWS


def nulls_inside() -> dict[str, tuple[pa.Array, str]]:
    """Nulls where a type has none: pyarrow builds such arrays, and exports them unchecked."""
    strict = pa.field("a", pa.int32(), nullable=False)
    some, offsets = pa.array([1, None], pa.int32()), pa.array([0, 1, 2], pa.int32())
    item = strict.with_name("item")
    return {
        "a struct": (pa.StructArray.from_arrays([some], fields=[strict]), "v.a"),
        "a list": (pa.ListArray.from_arrays(offsets, some, pa.list_(item)), "v.item"),
        "a struct in a list": (
            pa.ListArray.from_arrays(offsets, pa.StructArray.from_arrays([some], fields=[strict])),
            "v.item.a",
        ),
    }


@pytest.mark.parametrize("kind", nulls_inside())
def test_a_null_where_a_nested_type_has_none_is_refused_by_its_path(
    kind: str, make_table: MakeTable
) -> None:
    column, path = nulls_inside()[kind]
    key = pa.field("id", pa.int64(), nullable=False)
    table = make_table(pa.schema([key, pa.field("v", column.type)]))
    data = pa.table({"id": [1, 2], "v": column})
    before = files_of(table)
    with pytest.raises(lancemem.InvalidInputError, match=f"column '{path}' is null in row 1"):
        table.upsert(data)
    assert files_of(table) == before
    assert table.upsert(data.slice(0, 1)).num_rows == 1
    assert table.scan().to_table().to_pylist() == data.slice(0, 1).to_pylist()


class Exported:
    """An array that returns the same export at each call."""

    def __init__(self, schema: pa.Schema, batch: pa.RecordBatch) -> None:
        self.capsules = (schema.__arrow_c_schema__(), batch.__arrow_c_array__()[1])

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        assert requested_schema is None
        return self.capsules


def test_an_export_that_was_consumed_or_has_other_parts_is_refused(
    table: lancemem.Table, schema: pa.Schema
) -> None:
    batch = pa.record_batch(USUAL, schema=schema)
    once = Exported(schema, batch)
    assert table.upsert(once).num_rows == 2
    with pytest.raises(lancemem.InvalidInputError, match="the array was consumed"):
        table.upsert(once)
    with pytest.raises(lancemem.InvalidInputError, match=r"has 3 children .*, the data has 2"):
        table.upsert(Exported(schema, batch.select(["id", "name"])))
    inside = pa.schema([pa.field("p", pa.struct(schema))])
    narrow = pa.record_batch({"p": batch.select(["id", "name"]).to_struct_array()})
    with pytest.raises(lancemem.InvalidInputError, match=r"has 3 children .*, the data has 2"):
        table.upsert(Exported(inside, narrow))
    assert by_id(table.scan().to_table()) == ROWS


def test_bytes_of_a_view_become_those_of_a_fixed_size(make_table: MakeTable) -> None:
    key = pa.field("id", pa.int64(), nullable=False)
    table = make_table(pa.schema([key, ("b", pa.binary(2))]))
    table.upsert(pa.table({"id": [1, 2], "b": pa.array([b"ab", None], pa.binary_view())}))
    assert table.scan().to_table().sort_by("id")["b"].to_pylist() == [b"ab", None]
    with pytest.raises(lancemem.InvalidInputError, match="column 'b'"):
        table.upsert(pa.table({"id": [3], "b": pa.array([b"abc"], pa.binary_view())}))


WORDS = ["b", None, "a", "b"]
AS_WORDS: dict[str, pa.Array] = {
    "text": pa.array(WORDS),
    "large text": pa.array(WORDS, pa.large_string()),
    "a view": pa.array(WORDS, pa.string_view()),
    "other indices": pa.array(WORDS, pa.dictionary(pa.int8(), pa.string())),
    "other indices and text": pa.array(WORDS, pa.dictionary(pa.uint64(), pa.large_string())),
    "a null value": pa.DictionaryArray.from_arrays(
        pa.array([2, 1, 0, 2], pa.int16()), pa.array(["a", None, "b"])
    ),
    "a slice": pa.array(["x", *WORDS], pa.dictionary(pa.int8(), pa.string())).slice(1),
}


@pytest.mark.parametrize("kind", AS_WORDS)
def test_a_column_of_dictionaries_takes_its_values_in_any_form(
    kind: str, make_table: MakeTable
) -> None:
    words = pa.dictionary(pa.int32(), pa.string())
    key = pa.field("id", pa.int64(), nullable=False)
    part = pa.struct([("w", words)])
    table = make_table(pa.schema([key, ("w", words), ("l", pa.list_(words)), ("s", part)]))
    given = AS_WORDS[kind]
    absent = pa.array([False, True, True, False])
    data = pa.table(
        {
            "id": range(4),
            "w": given,
            "l": pa.ListArray.from_arrays(pa.array([0, 1, 1, 3, 4], pa.int32()), given),
            "s": pa.StructArray.from_arrays([given], ["w"], mask=absent),
        }
    )
    expected = data.to_pylist()
    table.upsert(data)
    assert by_id(table.scan().to_table()) == expected
    assert table.scan().to_table().schema.field("w").type == words
    assert table.scan(["id"], "w = 'b'").count_rows() == 2
    with table.start_job(shard=0) as job:
        job.flush()
    assert by_id(table.scan().to_table()) == expected
    table.compact()
    assert by_id(table.scan().to_table()) == expected


def test_a_value_that_no_dictionary_of_the_column_can_hold_is_refused(
    make_table: MakeTable,
) -> None:
    key = pa.field("id", pa.int64(), nullable=False)
    table = make_table(pa.schema([key, ("n", pa.dictionary(pa.int32(), pa.int32()))]))
    with pytest.raises(lancemem.InvalidInputError, match="column 'n'"):
        table.upsert(pa.table({"id": [1, 2], "n": pa.array([1, 2**40])}))
    with pytest.raises(lancemem.InvalidInputError, match=r"column 'n' .*no cast keeps every"):
        table.upsert(pa.table({"id": [1, 2], "n": pa.array(["1", "2"])}))
    table.upsert(pa.table({"id": [1, 2], "n": pa.array([1, None])}))
    assert by_id(table.scan().to_table()) == [{"id": 1, "n": 1}, {"id": 2, "n": None}]


def test_a_null_among_the_values_of_a_dictionary_is_a_null(make_table: MakeTable) -> None:
    words = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int32()), pa.array(["a", None]))
    key = pa.field("id", pa.int64(), nullable=False)
    strict = make_table(pa.schema([key, pa.field("w", words.type, nullable=False)]))
    with pytest.raises(lancemem.InvalidInputError, match="column 'w' is null in row 1"):
        strict.upsert(pa.table({"id": [1, 2], "w": words}))
    assert strict.scan().count_rows() == 0


def test_the_row_of_a_null_key_is_counted_over_all_batches(table: lancemem.Table) -> None:
    good = pa.table(USUAL)
    data = pa.concat_tables([good, good, changed(id=pa.array([None, 5]))])
    before = files_of(table)
    with pytest.raises(lancemem.InvalidInputError, match="'id' is null in row 4"):
        table.upsert(data.to_reader(max_chunksize=2))
    assert files_of(table) == before


def test_a_reader_that_fails_half_way_writes_nothing(
    table: lancemem.Table, schema: pa.Schema
) -> None:
    def batches() -> Any:  # noqa: ANN401
        yield pa.record_batch(USUAL, schema=schema)
        raise ValueError("the source broke")

    before = files_of(table)
    with pytest.raises(Exception, match="the source broke"):
        table.upsert(pa.RecordBatchReader.from_batches(schema, batches()))
    assert files_of(table) == before


@pytest.mark.parametrize("verb", ["put", "delete"])
def test_rows_of_another_shard_are_refused_by_their_row(verb: str, make_table: MakeTable) -> None:
    table = make_table(sharding=lancemem.bucket("id", 4))
    rows = pa.table({"id": range(40), "name": ["a"] * 40, "value": [1.0] * 40})
    ordinals = pa.array(table.shard_ordinals(rows)).to_pylist()
    mine = [row for row, ordinal in enumerate(ordinals) if ordinal == 2]
    foreign = next(row for row, ordinal in enumerate(ordinals) if ordinal != 2)
    data = rows.take([*mine, foreign])
    with table.start_job(shard=2) as job:
        before = files_of(table)
        with pytest.raises(lancemem.InvalidInputError, match=rf"row {len(mine)} .*'id'"):
            getattr(job, verb)(data)
        assert files_of(table) == before
        assert job.stats().num_rows == 0
        getattr(job, verb)(rows.take(mine))


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        (pa.table({"name": ["a"]}), "'id'.*missing"),
        (pa.table({"id": ["a"]}), "'id'.*string.*int64"),
        (pa.table({"id": pa.array([1, None])}), "'id' is null in row 1"),
        (pa.table([[1], [2]], names=["id", "id"]), "'id' is given twice"),
    ],
    ids=["missing", "wrong type", "null", "twice"],
)
def test_keys_that_do_not_fit_are_refused_by_get_and_delete(
    keys: pa.Table, text: str, table: lancemem.Table
) -> None:
    before = files_of(table)
    with pytest.raises(lancemem.InvalidInputError, match=text):
        table.delete(keys)
    with pytest.raises(lancemem.InvalidInputError, match=text):
        table.get(keys)
    assert files_of(table) == before


# --- keys that a table may have ---

ALLOWED_KEYS: dict[str, list[Any]] = {
    **{f"{sign}int{bits}": [0, 1, 100] for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "bool": [False, True],
    "string": ["", "a", "é"],
    "large_string": ["", "a", "é"],
    "binary": [b"", b"\x00", b"\xff"],
    "large_binary": [b"", b"\x00", b"\xff"],
}

REFUSED_KEYS = [
    pa.float16(),
    pa.float32(),
    pa.float64(),
    pa.date32(),
    pa.date64(),
    pa.time32("s"),
    pa.time64("us"),
    pa.timestamp("us"),
    pa.timestamp("ns", tz="UTC"),
    pa.duration("us"),
    pa.decimal128(10, 2),
    pa.decimal256(50, 2),
    pa.binary(16),
    pa.string_view(),
    pa.binary_view(),
    pa.list_(pa.int64()),
    pa.struct([("a", pa.int64())]),
    pa.dictionary(pa.int32(), pa.string()),
    pa.null(),
]


@pytest.mark.parametrize("kind", ALLOWED_KEYS)
def test_every_allowed_key_type_is_written_flushed_compacted_and_found(
    kind: str, make_table: MakeTable
) -> None:
    key = getattr(pa, {"bool": "bool_"}.get(kind, kind))()
    schema = pa.schema([pa.field("id", key, nullable=False), pa.field("v", pa.int64())])
    table = make_table(schema)
    values = ALLOWED_KEYS[kind]
    keys = pa.table({"id": pa.array(values, key)})

    def found() -> list[Any]:
        values: list[Any] = table.get(keys, ["v"]).column("v").to_pylist()
        return values

    for step in range(3):
        expected = [step * 10 + n for n in range(len(values))]
        table.upsert(keys.append_column("v", pa.array(expected, pa.int64())))
        assert found() == expected
        table.start_job(shard=0).close(flush=True)
        assert found() == expected
        if step == 1:
            table.compact()
            assert found() == expected
    table.delete(keys.slice(0, 1))
    table.start_job(shard=0).close(flush=True)
    table.compact()
    assert found() == expected[1:]


@pytest.mark.parametrize("key", REFUSED_KEYS, ids=str)
def test_other_key_types_are_refused_by_name_and_leave_no_table(
    key: pa.DataType, table_uri: str
) -> None:
    schema = pa.schema([pa.field("n", pa.int64()), pa.field("odd", key)])
    with pytest.raises(
        lancemem.InvalidInputError, match=r"'odd'.*cannot be a primary key.*integer"
    ):
        lancemem.create_table(table_uri, schema, primary_key=["n", "odd"])
    assert not Path(table_uri).exists()


@pytest.mark.parametrize(
    ("key", "sharding", "text"),
    [
        (["nope"], None, "'nope'"),
        (["id", "id"], None, "'id'"),
        (["id"], lancemem.bucket("name", 2), "'name'"),
        (["id"], lancemem.bucket("nope", 2), "'nope'"),
    ],
    ids=["unknown key", "key twice", "sharded by no key", "sharded by an unknown column"],
)
def test_keys_and_shardings_that_make_no_sense_are_refused(
    key: list[str],
    sharding: lancemem.Sharding | None,
    text: str,
    table_uri: str,
    schema: pa.Schema,
) -> None:
    with pytest.raises(lancemem.InvalidInputError, match=text):
        lancemem.create_table(table_uri, schema, primary_key=key, sharding=sharding)
    assert not Path(table_uri).exists()


@pytest.mark.parametrize("buckets", [0, 1025, -1, 2**40])
def test_a_number_of_buckets_out_of_range_is_refused_where_it_is_given(buckets: int) -> None:
    with pytest.raises(lancemem.InvalidInputError, match=rf"1024, got {buckets}|{buckets} is too"):
        lancemem.bucket("id", buckets)


def _serve(table: lancemem.Table, streams: int) -> None:
    with table.start_job(shard=0) as job:
        job.serve(max_streams=streams)


def _serve_patiently(table: lancemem.Table, patience: timedelta) -> None:
    with table.start_job(shard=0) as job:
        job.serve(stall_timeout=patience)


# The argument, and a call that takes it.
NUMBERS: dict[str, tuple[str, Callable[[lancemem.Table, int], object]]] = {
    "limit": ("limit", lambda table, number: table.scan(limit=number)),
    "offset": ("offset", lambda table, number: table.scan(offset=number)),
    "limit of a view": ("limit", lambda table, number: table.snapshot().scan(limit=number)),
    "rate": ("bytes_per_second", lambda table, number: table.compact(bytes_per_second=number)),
    "versions": ("limit", lambda table, number: table.history(number)),
    "position": (
        "from_position",
        lambda table, number: table.admin.truncate_wal(0, from_position=number),
    ),
    "generation": (
        "through_generation",
        lambda table, number: table.admin.abandon_generations(0, through_generation=number),
    ),
    "setting": ("max_memtable_rows", lambda _, many: lancemem.WriterConfig(max_memtable_rows=many)),
    "buckets": ("buckets", lambda _, number: lancemem.bucket("id", number)),
    "streams": ("max_streams", _serve),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_that_is_none_of_something_is_refused(name: str, table: lancemem.Table) -> None:
    argument, call = NUMBERS[name]
    for number, end in ((-1, "small"), (2**70, "large")):
        text = f"^{argument}: expected a number from 0, {number} is too {end}"
        with pytest.raises(lancemem.InvalidInputError, match=text):
            call(table, number)
    with pytest.raises(TypeError):
        call(table, "3")  # type: ignore[arg-type]


# The setting or argument, and a call that takes it.
DURATIONS: dict[str, Callable[[lancemem.Table, timedelta], object]] = {
    "max_wal_flush_interval": lambda _, it: lancemem.WriterConfig(max_wal_flush_interval=it),
    "max_compaction_wait": lambda _, it: lancemem.WriterConfig(max_compaction_wait=it),
    "idle_flush_interval": lambda _, it: lancemem.WriterConfig(idle_flush_interval=it),
    "interval": lambda _, it: lancemem.MaintenanceConfig(interval=it),
    "older_than": lambda _, it: lancemem.MaintenanceConfig(older_than=it),
    "stall_timeout": _serve_patiently,
}


@pytest.mark.parametrize("name", DURATIONS)
def test_a_duration_is_a_timedelta_of_whole_milliseconds(name: str, table: lancemem.Table) -> None:
    call = DURATIONS[name]
    text = f"^{name}: expected a duration from 0, -1 day, 23:59:59 is too small"
    with pytest.raises(lancemem.InvalidInputError, match=text):
        call(table, timedelta(seconds=-1))
    text = f"^{name}: expected whole milliseconds, got 0:00:00.000500"
    with pytest.raises(lancemem.InvalidInputError, match=text):
        call(table, timedelta(microseconds=500))
    for number in (1, 0, 0.5):
        with pytest.raises(TypeError, match=f"{name}.* expected a timedelta.*, got"):
            call(table, number)  # type: ignore[arg-type]
    if name != "idle_flush_interval":
        with pytest.raises(TypeError):
            call(table, "3")  # type: ignore[arg-type]


def test_zero_is_never_no_limit(table: lancemem.Table) -> None:
    with pytest.raises(lancemem.InvalidInputError, match=r"^idle_flush_interval: .* 'never'"):
        lancemem.WriterConfig(idle_flush_interval=timedelta(0))
    with pytest.raises(lancemem.InvalidInputError, match=r"^bytes_per_second: .*'unli"):
        lancemem.MaintenanceConfig(bytes_per_second=0)
    with pytest.raises(lancemem.InvalidInputError, match=r"^bytes_per_second .* None is no limit"):
        table.compact(bytes_per_second=0)
    with pytest.raises(lancemem.InvalidInputError, match="a timedelta or 'never', got 'soon'"):
        lancemem.WriterConfig(idle_flush_interval="soon")  # type: ignore[arg-type]
    with pytest.raises(lancemem.InvalidInputError, match="a number or 'unlimited', got 'fast'"):
        lancemem.MaintenanceConfig(bytes_per_second="fast")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        lancemem.MaintenanceConfig(bytes_per_second=1.5)  # type: ignore[arg-type]
    for number, end in ((-1, "small"), (2**70, "large")):
        text = f"^bytes_per_second: expected a number from 0, {number} is too {end}"
        with pytest.raises(lancemem.InvalidInputError, match=text):
            lancemem.MaintenanceConfig(bytes_per_second=number)


def test_a_limit_beyond_all_rows_gives_all(table: lancemem.Table) -> None:
    table.upsert(pa.table(USUAL))
    assert table.scan(limit=2**64 - 1, offset=1).to_table().num_rows == 1


def test_settings_are_pickled_and_copied() -> None:
    for config in (
        lancemem.WriterConfig(durable=False, max_memtable_rows=10, key_index="hash"),
        lancemem.MaintenanceConfig(enabled=False, generations=3),
    ):
        assert pickle.loads(pickle.dumps(config)) == copy.deepcopy(config) == config  # noqa: S301
        assert repr(copy.copy(config)) == repr(config)


def test_durations_and_rates_are_pickled_and_read_as_they_were_given() -> None:
    writer, maintenance = lancemem.WriterConfig, lancemem.MaintenanceConfig
    given: list[tuple[type, dict[str, Any]]] = [
        (writer, {"max_compaction_wait": timedelta(0), "idle_flush_interval": "never"}),
        (writer, {"idle_flush_interval": timedelta(milliseconds=1)}),
        (writer, {"max_wal_flush_interval": timedelta(days=2, seconds=3, milliseconds=4)}),
        (maintenance, {"interval": timedelta(milliseconds=1), "bytes_per_second": 7}),
        (maintenance, {"interval": timedelta.max - timedelta(microseconds=999_999)}),
        (maintenance, {"older_than": timedelta(0), "bytes_per_second": "unlimited"}),
    ]
    for settings_class, settings in given:
        config = settings_class(**settings)
        assert {name: getattr(config, name) for name in settings} == settings
        assert pickle.loads(pickle.dumps(config)) == copy.deepcopy(config) == config  # noqa: S301
        names = {settings_class.__name__: settings_class, "datetime": dt}
        assert eval(repr(config), names) == config  # noqa: S307 - our own text


def test_shardings_are_pickled_and_copied() -> None:
    for sharding in (lancemem.bucket("id", 4), lancemem.unsharded()):
        assert pickle.loads(pickle.dumps(sharding)) == copy.deepcopy(sharding) == sharding  # noqa: S301


def test_a_job_says_which_it_is(table: lancemem.Table) -> None:
    with table.start_job(shard=0) as job:
        assert repr(job) == f'Job("{table.uri}", shard_id={job.shard_id}, epoch=1)'


# --- the text of errors ---


@pytest.mark.parametrize(
    "call",
    [
        lambda table: table.upsert(pa.table({"id": [None]})),
        lambda table: table.scan(filter="nope = 1").to_table(),
        lambda table: table.snapshot().scan(["nope"]).to_table(),
        lambda table: table.get(["text"]),
        lambda table: table.start_job(shard=0).put(pa.table({"id": [1.5]})),
        lambda table: table.bulk_writer().upsert(pa.table({"nope": [1]})),
        lambda table: table.admin.truncate_wal(0, from_position=1),
        lambda table: lancemem.create_table(table.uri, table.schema, primary_key="id"),
    ],
    ids=["upsert", "scan", "snapshot", "get", "put", "bulk", "truncate", "create"],
)
def test_an_error_names_the_table_in_a_note(
    call: Callable[[lancemem.Table], object], table: lancemem.Table
) -> None:
    with pytest.raises(lancemem.InvalidInputError) as raised:
        call(table)
    assert raised.value.__notes__ == [f"table: {table.uri}"]
    assert f"table: {table.uri}" in "".join(traceback.format_exception(raised.value))


MACHINE_PATH = re.compile(r"\.rs\b|/root|/home|registry|cargo|rustc|src/|panicked")

FAILING: dict[str, Callable[[lancemem.Table], object]] = {
    "open nothing": lambda table: lancemem.open_table(table.uri + "-not-there"),
    "open a bad scheme": lambda _: lancemem.open_table("nope://bucket/table"),
    "create again": lambda table: lancemem.create_table(table.uri, table.schema, primary_key="id"),
    "reshard": lambda table: lancemem.enable(table.uri, sharding=lancemem.bucket("id", 3)),
    "unknown column": lambda table: table.scan(["nope"]).to_table(),
    "column twice": lambda table: table.scan(["id", "nope", "nope"]).to_table(),
    "filter syntax": lambda table: table.scan(filter="id = = 1").to_table(),
    "filter column": lambda table: table.scan(filter="nope = 1").to_table(),
    "filter type": lambda table: table.scan(filter="name + 1").to_table(),
    "filter function": lambda table: table.scan(filter="nope(id)").to_table(),
    "consistency": lambda table: table.scan(consistency="eventual"),  # type: ignore[arg-type]
    "unknown ordinal": lambda table: table.start_job(shard=9),
    "negative ordinal": lambda table: table.start_job(shard=-1),
    "unknown shard": lambda table: table.start_job(shard="00000000-0000-4000-8000-000000000000"),
    "no shard id": lambda table: table.start_job(shard="first"),
    "get column": lambda table: table.get(pa.table({"id": [1]}), ["nope"]),
}


@pytest.mark.parametrize("case", FAILING)
def test_an_error_is_typed_and_names_no_path_of_the_machine_that_built_it(
    case: str, table: lancemem.Table
) -> None:
    table.upsert(pa.table(USUAL))
    with pytest.raises(lancemem.InvalidInputError) as caught:
        FAILING[case](table)
    text = str(caught.value).replace(table.uri, "")
    assert text
    assert not MACHINE_PATH.search(text), text


@pytest.mark.parametrize("call", ["to_table", "count_rows"])
def test_a_scan_that_fails_while_it_runs_raises_an_error_of_ours(
    call: str, table: lancemem.Table
) -> None:
    table.upsert(pa.table(USUAL))
    with pytest.raises(lancemem.InvalidInputError, match=r"[Dd]ivide by zero"):
        getattr(table.scan(filter="id / 0 = 1"), call)()


@pytest.mark.parametrize("damage", ["wal", "manifest", "data"])
def test_damage_is_reported_as_damage_with_the_place(
    damage: str, table: lancemem.Table, schema: pa.Schema
) -> None:
    if damage == "data":
        with table.start_job(shard=0) as job:
            job.put(pa.table(USUAL, schema=schema))
            job.flush()
    else:
        table.upsert(pa.table(USUAL, schema=schema))
    shard = table.shards()[0].shard_id
    pattern = {"wal": "wal/*.arrow", "manifest": "manifest/*.binpb", "data": "*_gen_1/data/*"}
    for path in Path(table.uri, "_mem_wal").glob(f"*/{pattern[damage]}"):
        path.write_bytes(b"not what was written")
    with pytest.raises(lancemem.CorruptionError) as caught:
        lancemem.open_table(table.uri).scan().to_table()
    assert shard in str(caught.value)
    assert not MACHINE_PATH.search(str(caught.value).replace(table.uri, ""))


def test_text_that_is_not_utf8_is_refused_by_its_column_with_nothing_written(
    table: lancemem.Table,
) -> None:
    """Otherwise it would be durable, and no reader could decode the entry."""
    before = files_of(table)
    text = pa.array([b"\xff"]).view(pa.string())
    bad = pa.table({"id": [1], "name": text, "value": [1.0]})
    for data in (bad, bad.set_column(1, "name", text.dictionary_encode())):
        with pytest.raises(lancemem.InvalidInputError, match=r"column 'name'.*(UTF|utf)"):
            table.upsert(data)
    assert files_of(table) == before


def test_a_batch_of_other_columns_than_its_stream_is_refused(table: lancemem.Table) -> None:
    good = pa.record_batch({"id": [1], "name": ["a"], "value": [1.0]})
    batches = iter([good, pa.record_batch({"id": [2]})])
    with pytest.raises(lancemem.InvalidInputError, match=r"has 3 children .*, the data has 1"):
        table.upsert(pa.RecordBatchReader.from_batches(good.schema, batches))


def test_rows_are_deleted_where_a_column_is_never_null(tmp_path: Path) -> None:
    schema = pa.schema(
        [pa.field("id", pa.int64(), nullable=False), pa.field("n", pa.int64(), nullable=False)]
    )
    table = lancemem.create_table(str(tmp_path / "t.lance"), schema, primary_key="id")
    table.upsert(pa.table({"id": range(10), "n": range(10)}, schema=schema))
    table.delete([3, 4])
    left = [n for n in range(10) if n not in {3, 4}]
    for flush in (False, True):
        if flush:
            with table.start_job(shard=0) as job:
                job.flush()
        assert [row["n"] for row in by_id(table.scan().to_table())] == left
        assert table.scan().to_table().schema.field("n").nullable is False
        assert table.scan(["n"], "n < 5").count_rows() == 3
        assert table.scan(["n"], "n + 1 < 6").to_table().num_rows == 3
        assert table.get([2, 3])["n"].to_pylist() == [2]


def test_a_put_beyond_its_bound_is_refused_before_it_is_copied(
    tmp_path: Path, make_table: MakeTable
) -> None:
    """The rows are in the hole of a sparse file: a copy of them would take 5 GiB of memory."""
    wide = pa.binary(1 << 20)
    count = 5 << 10
    path = tmp_path / "hole"
    path.touch()
    os.truncate(path, count << 20)
    with pa.memory_map(str(path)) as hole:
        column = pa.Array.from_buffers(wide, count, [None, hole.read_buffer()])
        rows = pa.table({"id": pa.array(range(count)), "data": column})
        table = make_table(pa.schema([pa.field("id", pa.int64(), nullable=False), ("data", wide)]))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with table.start_job(shard=0) as job:
            for data in (rows, rows.to_batches()[0]):
                with pytest.raises(lancemem.InvalidInputError, match="limited to 4294967296 bytes"):
                    job.put(data)
            job.put(rows.slice(17, 3))
        taken = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        del rows, column
    assert table.scan().count_rows() == 3
    assert taken < 1 << 20, "in KiB"
