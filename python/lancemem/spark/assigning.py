"""What a value becomes in a column of another type.

Owns the casts of a merge's values: parts of structs go by name, and what would lose something is an
error, of the call where the types tell and else of the row. Spark's own cast takes parts by place,
rounds, and depends on a setting. Does not own columns that are written as they come: those the
engine casts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as sf
from pyspark.sql import types as st

import lancemem

if TYPE_CHECKING:
    from pyspark.sql import Column

_INTEGERS = (st.ByteType, st.ShortType, st.IntegerType, st.LongType)
_NUMBERS = (*_INTEGERS, st.DecimalType, st.FloatType, st.DoubleType)
_FLOATS = (st.FloatType, st.DoubleType)
# What a text may say, beside numbers.
_READABLE = (st.BooleanType, st.DateType, st.TimestampType, st.TimestampNTZType)


def assigned(value: Column, have: st.DataType, wanted: st.DataType, name: str) -> Column:
    """Return `value`, of type `have`, as the column `name` of type `wanted` takes it.

    Raises `InvalidInputError` where no value of that type can be one of the column.
    """
    # What may be null is said by the types too, and changes no value.
    if have.simpleString() == wanted.simpleString():
        return value
    nested = _nested(value, have, wanted, name)
    if nested is not None:
        return nested
    if isinstance(have, st.NullType) or _is_same_kind(have, wanted):
        return value.cast(wanted)
    made = value.try_cast(wanted)
    if isinstance(have, _NUMBERS) and isinstance(wanted, _NUMBERS):
        is_right = _is_number(value, made, have, wanted)
    elif isinstance(have, st.StringType) and isinstance(wanted, (*_NUMBERS, *_READABLE)):
        is_right = _is_read(value, made, wanted)
    else:
        raise lancemem.InvalidInputError(
            f"column {name!r} is {wanted.simpleString()}, the merge has {have.simpleString()} for "
            "it: cast it"
        )
    told = f"column '{name}' is {wanted.simpleString()}, which cannot hold the value "
    error = sf.raise_error(sf.concat(sf.lit(told), value.cast("string")))
    return sf.when(value.isNull() | sf.coalesce(is_right, sf.lit(False)), made).otherwise(error)


def _is_number(value: Column, made: Column, have: st.DataType, wanted: st.DataType) -> Column:
    """Whether `made` is the number `value`. That a float is the nearest one is no loss."""
    if isinstance(wanted, _FLOATS):
        return made.isNotNull() & (_is_finite(made) | ~_is_finite(value.try_cast("double")))
    return made.cast(have) == value


def _is_read(value: Column, made: Column, wanted: st.DataType) -> Column:
    """Whether `made` is all that the text `value` says."""
    if isinstance(wanted, st.DecimalType):
        wide = st.DecimalType(38, 18)
        return made.cast(wide) == value.try_cast(wide)
    if isinstance(wanted, _FLOATS):
        return made.isNotNull() & (_is_finite(made) | value.rlike("(?i)inf"))
    if isinstance(wanted, st.DateType):
        return made.cast(st.TimestampNTZType()) == value.try_cast(st.TimestampNTZType())
    if isinstance(wanted, st.TimestampNTZType):
        # A zone, or a distance from one, behind the time of day.
        return made.isNotNull() & ~value.rlike(r"\d:\d.*([A-Za-z]|[+-])")
    return made.isNotNull()


def _is_finite(number: Column) -> Column:
    return sf.abs(number) != sf.lit(float("inf"))


def _is_same_kind(have: st.DataType, wanted: st.DataType) -> bool:
    """Whether the types differ in what says nothing about a value, or the wanted one has more."""
    if isinstance(have, _INTEGERS) and isinstance(wanted, _INTEGERS):
        return _INTEGERS.index(type(have)) <= _INTEGERS.index(type(wanted))
    text = (st.StringType, st.CharType, st.VarcharType)
    return any(
        isinstance(have, kind) and isinstance(wanted, kind)
        for kind in (text, st.DayTimeIntervalType)
    )


def _nested(value: Column, have: st.DataType, wanted: st.DataType, name: str) -> Column | None:
    """Go into a struct, an array or a map; None for what is none, or not the same."""
    if isinstance(have, st.StructType) and isinstance(wanted, st.StructType):
        names = sorted(part.name for part in wanted)
        if sorted(part.name for part in have) != names:
            raise lancemem.InvalidInputError(
                f"column {name!r} is a struct of {', '.join(wanted.names)}, the merge has one of "
                f"{', '.join(have.names)} for it"
            )
        parts = [
            assigned(
                value.getField(part.name), have[part.name].dataType, part.dataType, name
            ).alias(part.name)
            for part in wanted
        ]
        return sf.when(value.isNotNull(), sf.struct(*parts))
    if isinstance(have, st.ArrayType) and isinstance(wanted, st.ArrayType):
        items = have.elementType, wanted.elementType
        return sf.transform(value, lambda item: assigned(item, *items, name))
    if isinstance(have, st.MapType) and isinstance(wanted, st.MapType):
        keys, values = (have.keyType, wanted.keyType), (have.valueType, wanted.valueType)
        made = sf.transform_keys(value, lambda key, _: assigned(key, *keys, name))
        return sf.transform_values(made, lambda _, item: assigned(item, *values, name))
    return None
