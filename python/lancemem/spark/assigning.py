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
    if have == wanted:
        return value
    nested = _nested(value, have, wanted, name)
    if nested is not None:
        return nested
    if isinstance(have, st.NullType) or _is_same_kind(have, wanted):
        return value.cast(wanted)
    if isinstance(have, _NUMBERS) and isinstance(wanted, _NUMBERS):
        made = value.try_cast(wanted)
        # That a float is the nearest one to a number is no loss.
        is_right = made.isNotNull() if isinstance(wanted, _FLOATS) else made.cast(have) == value
    elif isinstance(have, st.StringType) and isinstance(wanted, (*_NUMBERS, *_READABLE)):
        made = value.try_cast(wanted)
        is_right = made.isNotNull()
    else:
        raise lancemem.InvalidInputError(
            f"column {name!r} is {wanted.simpleString()}, the merge has {have.simpleString()} for "
            "it: cast it"
        )
    told = f"column '{name}' is {wanted.simpleString()}, which cannot hold the value "
    error = sf.raise_error(sf.concat(sf.lit(told), value.cast("string")))
    return sf.when(value.isNull() | sf.coalesce(is_right, sf.lit(False)), made).otherwise(error)


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
