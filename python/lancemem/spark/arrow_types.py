"""Arrow types on both sides of the Spark boundary.

Owns the mapping from Spark's schema to the Arrow schema of a new table, and from a table's Arrow
types to the types that Spark accepts from Python. pyspark has such functions, but their signatures
and gaps differ between the releases that lancemem supports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as st
from pyspark.sql.pandas.types import from_arrow_schema

import lancemem

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_FROM_SPARK: dict[type[st.DataType], pa.DataType] = {
    st.BooleanType: pa.bool_(),
    st.ByteType: pa.int8(),
    st.ShortType: pa.int16(),
    st.IntegerType: pa.int32(),
    st.LongType: pa.int64(),
    st.FloatType: pa.float32(),
    st.DoubleType: pa.float64(),
    st.StringType: pa.string(),
    st.BinaryType: pa.binary(),
    st.DateType: pa.date32(),
    # Spark's timestamp is an instant, so it is stored with a time zone, UTC.
    st.TimestampType: pa.timestamp("us", tz="UTC"),
    st.TimestampNTZType: pa.timestamp("us"),
    st.DayTimeIntervalType: pa.duration("us"),
}

# Characters of a value in an error.
_SHOWN = 100

# Types that Spark does not take from Python, each with a type that holds all of its values.
_TO_SPARK: list[tuple[Callable[[pa.DataType], bool], pa.DataType]] = [
    (pa.types.is_large_string, pa.string()),
    (pa.types.is_string_view, pa.string()),
    (pa.types.is_large_binary, pa.binary()),
    (pa.types.is_binary_view, pa.binary()),
    (pa.types.is_fixed_size_binary, pa.binary()),
    (pa.types.is_uint8, pa.int16()),
    (pa.types.is_uint16, pa.int32()),
    (pa.types.is_uint32, pa.int64()),
    (pa.types.is_uint64, pa.decimal128(20, 0)),
    (pa.types.is_float16, pa.float32()),
    (pa.types.is_date64, pa.date32()),
    (pa.types.is_duration, pa.duration("us")),
]


def arrow_schema(schema: st.StructType, vectors: Mapping[str, int] | None = None) -> pa.Schema:
    """Return the Arrow schema of a table that holds the rows of a Spark schema.

    `vectors` gives the length of array columns that become fixed-size lists.
    """
    fields = {field.name: _arrow_field(field) for field in schema}
    for name, length in (vectors or {}).items():
        field = fields.get(name)
        if field is None or not pa.types.is_list(field.type):
            raise lancemem.InvalidInputError(f"the schema has no array column {name!r}")
        # Lance's vectors have elements that may be null by type and are not.
        element = pa.field("item", field.type.value_type)
        fields[name] = field.with_type(pa.list_(element, length))
    return pa.schema(list(fields.values()))


def spark_arrow_schema(schema: pa.Schema) -> pa.Schema:
    """Return `schema` with every type replaced by one that Spark accepts from a Python task.

    Raises `InvalidInputError` where Spark has no such type, as for times of the day.
    """
    for field in schema:
        odd = _without_a_place(field.type)
        if odd is not None:
            inside = "" if odd.equals(field.type) else f" in {field.type}"
            raise lancemem.InvalidInputError(
                f"column {field.name!r} has the type {odd}{inside}, which lancemem cannot hand to "
                "Spark: read the other columns with columns= (the option columns of the format), "
                "and write such rows with Table.upsert of lancemem"
            )
    return pa.schema([_spark_field(field) for field in schema])


def _without_a_place(arrow_type: pa.DataType) -> pa.DataType | None:
    """Return the type, or the first type inside of it, that no type of Spark holds."""
    types = pa.types
    if any(is_it(arrow_type) for is_it in (types.is_time32, types.is_time64, types.is_decimal256)):
        return arrow_type
    if types.is_dictionary(arrow_type) or _is_list(arrow_type):
        return _without_a_place(arrow_type.value_type)
    parts: list[pa.DataType] = []
    if types.is_struct(arrow_type):
        parts = [part.type for part in arrow_type]
    elif types.is_map(arrow_type):
        parts = [arrow_type.key_type, arrow_type.item_type]
    return next(filter(None, map(_without_a_place, parts)), None)


def spark_schema(schema: pa.Schema) -> st.StructType:
    """Return the Spark schema of batches with the Arrow schema of `spark_arrow_schema`."""
    # The default differs before Spark 4.3.
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def cast_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Cast `batch` to `schema`, column by column in order; nanoseconds lose what Spark lacks."""
    columns = [
        column
        if column.type.equals(field.type)
        else pc.cast(column, options=pc.CastOptions(field.type, allow_time_truncate=True))
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def table_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Bring a batch of Spark's to the types of the table's columns `schema`, in its order.

    Undoes what `spark_arrow_schema` does. The engine does every other cast: it casts where no value
    changes, and its error names the column and the row that do not fit.
    """
    columns, fields = [], []
    for field in schema:
        column = batch.column(field.name)
        if not column.type.equals(field.type):
            column = _table_column(column, field)
        columns.append(column)
        fields.append(field.with_type(column.type).with_nullable(True).remove_metadata())
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _table_column(column: pa.Array, field: pa.Field) -> pa.Array:
    wanted = field.type
    if pa.types.is_fixed_size_list(wanted) and not pa.types.is_fixed_size_list(column.type):
        _check_lengths(column, field)
        return _vectors(column, wanted, field.name)
    restored = _restored(column.type, wanted)
    if restored.equals(column.type):
        return column
    return cast_column(column, restored, field.name)


def cast_column(column: pa.Array, wanted: pa.DataType, name: str) -> pa.Array:
    """Cast a column, and name the first row with a value that the type does not hold."""
    made = _made(column, wanted)
    if made is not None:
        return made
    first, end = 0, len(column)
    while end - first > 1:
        middle = (first + end) // 2
        if _made(column[first:middle], wanted) is None:
            end = middle
        else:
            first = middle
    value = repr(column[first].as_py())[:_SHOWN]
    raise lancemem.InvalidInputError(
        f"column {name!r}: row {first} has {value}, which does not fit {wanted}"
    )


def _made(column: pa.Array, wanted: pa.DataType) -> pa.Array | None:
    """Cast a column; None where a value is lost. pyarrow casts large numbers to infinite halves."""
    try:
        made = column.cast(wanted)
    except pa.ArrowInvalid:
        return None
    return None if _infinite(made) > _infinite(column) else made


def _infinite(column: pa.Array) -> int:
    """Count the infinite numbers of a column that can become halves."""
    types = pa.types
    if types.is_struct(column.type):
        return sum(_infinite(part) for part in column.flatten())
    if types.is_map(column.type):
        return _infinite(column.keys) + _infinite(column.items)
    if _is_list(column.type):
        return _infinite(column.flatten())
    if not types.is_floating(column.type):
        return 0
    numbers = column.cast(pa.float32()) if types.is_float16(column.type) else column
    return int(pc.sum(pc.is_inf(numbers), min_count=0).as_py())


def _restored(have: pa.DataType, wanted: pa.DataType) -> pa.DataType:
    """Return `have` with the types of `wanted` that Spark lacks and the engine would not cast to.

    Other differences stay: the engine matches the parts of structs by name, and refuses casts that
    lose values. pyarrow's cast would fill missing parts with nulls.
    """
    types = pa.types
    if types.is_struct(have) and types.is_struct(wanted):
        parts = [_restored_field(part, _part(wanted, part.name)) for part in have]
        return pa.struct(parts)
    if types.is_map(have) and types.is_map(wanted):
        key = _restored_field(have.key_field, wanted.key_field)
        return pa.map_(key, _restored_field(have.item_field, wanted.item_field))
    if types.is_list(have) and _is_list(wanted):
        return pa.list_(_restored_field(have.value_field, wanted.value_field))
    if types.is_float64(have) and types.is_float16(wanted):
        # Spark holds halves as floats. The engine decides which doubles may be rounded.
        return have
    is_lacking = types.is_uint64(wanted) and types.is_decimal(have)
    return wanted if is_lacking or _is_only_pythons(wanted) else have


def _restored_field(have: pa.Field, wanted: pa.Field | None) -> pa.Field:
    return have if wanted is None else have.with_type(_restored(have.type, wanted.type))


def _part(struct: pa.DataType, name: str) -> pa.Field | None:
    """Return the part of that name, if exactly one has it."""
    place = struct.get_field_index(name)
    return struct.field(place) if place >= 0 else None


def _is_list(arrow_type: pa.DataType) -> bool:
    types = pa.types
    lists = (types.is_list, types.is_large_list, types.is_fixed_size_list)
    return any(matches(arrow_type) for matches in lists)


def _is_only_pythons(arrow_type: pa.DataType) -> bool:
    only_python = (pa.types.is_float16, pa.types.is_dictionary)
    return any(matches(arrow_type) for matches in only_python)


def _check_lengths(column: pa.Array, field: pa.Field) -> None:
    """Name the first row whose list has another length than the table's vectors."""
    size = field.type.list_size
    lengths = pc.list_value_length(column)
    wrong = pc.fill_null(pc.not_equal(lengths, size), fill_value=False)
    row = pc.index(wrong, value=True).as_py()
    if row >= 0:
        raise lancemem.InvalidInputError(
            f"column {field.name!r} holds vectors of {size} values, row {row} has "
            f"{lengths[row].as_py()}"
        )


def _vectors(column: pa.Array, wanted: pa.DataType, name: str) -> pa.Array:
    """Make fixed-size lists of lists that all have `size` values.

    Not by pyarrow's cast: it aborts the process where all lists are null and have no buffer of
    values, as Spark sends them.
    """
    values, size = column.flatten(), wanted.list_size
    if not len(values):
        values = pa.array([], wanted.value_type)
    elif not values.type.equals(wanted.value_type):
        values = cast_column(column, pa.list_(wanted.value_type), name).flatten()
    if not column.null_count:
        return pa.FixedSizeListArray.from_arrays(values, type=wanted)
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    if len(values):
        # Null lists have no values, but a fixed-size list has a slot for each: fill these with
        # nulls.
        first = (valid.cumsum() - 1)[:, None] * size
        places = (first + range(size)).ravel()
        values = values.take(pa.array(places, pa.int64(), mask=~valid.repeat(size)))
    else:
        values = pa.nulls(len(column) * size, wanted.value_type)
    mask = pa.array(~valid)
    return pa.FixedSizeListArray.from_arrays(values, type=wanted, mask=mask)


def _arrow_field(field: st.StructField) -> pa.Field:
    return pa.field(field.name, _arrow_type(field.dataType, field.name), nullable=field.nullable)


def _arrow_type(spark_type: st.DataType, column: str) -> pa.DataType:
    plain = _FROM_SPARK.get(type(spark_type))
    if plain is not None:
        return plain
    if isinstance(spark_type, st.DecimalType):
        return pa.decimal128(spark_type.precision, spark_type.scale)
    if isinstance(spark_type, st.ArrayType):
        element = _arrow_type(spark_type.elementType, column)
        return pa.list_(pa.field("element", element, nullable=spark_type.containsNull))
    if isinstance(spark_type, st.MapType):
        key = pa.field("key", _arrow_type(spark_type.keyType, column), nullable=False)
        value = _arrow_type(spark_type.valueType, column)
        return pa.map_(key, pa.field("value", value, nullable=spark_type.valueContainsNull))
    if isinstance(spark_type, st.StructType):
        return pa.struct([_arrow_field(field) for field in spark_type])
    raise TypeError(
        f"column {column!r}: a lancemem table cannot hold Spark's type {spark_type.simpleString()}"
    )


def _spark_field(field: pa.Field) -> pa.Field:
    # Lance's field metadata (the primary key) means nothing to Spark, and may not be JSON.
    return field.with_type(_spark_type(field.type)).remove_metadata()


def _spark_type(arrow_type: pa.DataType) -> pa.DataType:
    for matches, replacement in _TO_SPARK:
        if matches(arrow_type):
            return replacement
    if pa.types.is_timestamp(arrow_type):
        # An instant is the same in any zone; Spark takes it in UTC.
        return pa.timestamp("us", tz=None if arrow_type.tz is None else "UTC")
    if pa.types.is_dictionary(arrow_type):
        return _spark_type(arrow_type.value_type)
    return _spark_nested_type(arrow_type)


def _spark_nested_type(arrow_type: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_struct(arrow_type):
        return pa.struct([_spark_field(field) for field in arrow_type])
    if types.is_map(arrow_type):
        return pa.map_(_spark_field(arrow_type.key_field), _spark_field(arrow_type.item_field))
    if _is_list(arrow_type):
        return pa.list_(_spark_field(arrow_type.value_field))
    return arrow_type
