"""What a value becomes in a column of another type.

Owns the casts of the values of a merge or an update. Parts of structs are matched by name. A lossy
cast is an error: of the call where the types show it, otherwise of the row. Spark's own cast
matches parts by position, rounds, and depends on a setting. Doubles follow the engine's rule:
doubles of a vector are rounded, others only where the caller allows it. Does not own columns that
are written as they come: the engine casts them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as sf
from pyspark.sql import types as st

import lancemem
from lancemem.spark.task_errors import as_raised

if TYPE_CHECKING:
    from pyspark.sql import Column

_INTEGERS = (st.ByteType, st.ShortType, st.IntegerType, st.LongType)
_NUMBERS = (*_INTEGERS, st.DecimalType, st.FloatType, st.DoubleType)
_FLOATS = (st.FloatType, st.DoubleType)
# Types other than numbers that a text may be cast to.
_READABLE = (st.BooleanType, st.DateType, st.TimestampType, st.TimestampNTZType)
# Every integer up to this bound is exact in a double.
_LARGEST_WHOLE = 2.0**53 - 1


@dataclass(frozen=True)
class Target:
    """Where a value goes: the column, the type of it or of its part, and whether to round."""

    column: str
    stored: pa.DataType
    rounds: bool

    def part(self, name: str) -> Target:
        """Return the part of a struct."""
        place = self.stored.get_field_index(name)
        return replace(self, stored=self.stored.field(place).type) if place >= 0 else self

    def item(self) -> Target:
        """Return the items of a list; the items of a vector are rounded."""
        rounds = self.rounds or pa.types.is_fixed_size_list(self.stored)
        return replace(self, stored=self.stored.value_type, rounds=rounds)


def assigned(value: Column, have: st.DataType, wanted: st.DataType, target: Target) -> Column:
    """Return `value`, of type `have`, as a column of type `wanted` takes it.

    Raises `InvalidInputError` where the column can hold no value of that type.
    """
    # Spark's types include nullability, which changes no value: `simpleString` leaves it out.
    if have.simpleString() == wanted.simpleString():
        return value
    nested = _nested(value, have, wanted, target)
    if nested is not None:
        return nested
    if isinstance(have, st.NullType) or _is_same_kind(have, wanted):
        return value.cast(wanted)
    made = value.try_cast(wanted)
    if isinstance(have, _NUMBERS) and isinstance(wanted, _NUMBERS):
        is_right = _is_number(value, made, have, wanted, target)
    elif isinstance(have, st.StringType) and isinstance(wanted, (*_NUMBERS, *_READABLE)):
        is_right = _is_read(value, made, wanted)
    else:
        raise lancemem.InvalidInputError(
            f"column {target.column!r} is {wanted.simpleString()}, the given value is "
            f"{have.simpleString()}: cast the value"
        )
    told = as_raised(
        f"column '{target.column}' is {wanted.simpleString()}, which cannot hold the value "
    )
    way_out = ""
    if isinstance(have, st.DoubleType) and isinstance(wanted, st.FloatType):
        way_out = "; cast it to float, or let round_floats=True store the nearest one"
    error = sf.raise_error(sf.concat(sf.lit(told), value.cast("string"), sf.lit(way_out)))
    return sf.when(value.isNull() | sf.coalesce(is_right, sf.lit(False)), made).otherwise(error)


def _is_number(
    value: Column, made: Column, have: st.DataType, wanted: st.DataType, target: Target
) -> Column:
    """Whether `made` is the number `value`, or its nearest float where rounding is allowed."""
    if isinstance(wanted, _FLOATS):
        right = made.isNotNull() & (_is_finite(made) | ~_is_finite(value.try_cast("double")))
        if isinstance(have, st.DoubleType) and not target.rounds:
            return right & (made.cast(have) == value)
        return right
    right = made.cast(have) == value
    if isinstance(have, _FLOATS) and isinstance(wanted, _INTEGERS):
        return right & (sf.abs(value) <= sf.lit(_LARGEST_WHOLE))
    return right


def _is_read(value: Column, made: Column, wanted: st.DataType) -> Column:
    """Whether `made` is the whole value that the text `value` denotes."""
    if isinstance(wanted, st.DecimalType):
        wide = st.DecimalType(38, 18)
        return made.cast(wide) == value.try_cast(wide)
    if isinstance(wanted, _FLOATS):
        return made.isNotNull() & (_is_finite(made) | value.rlike("(?i)inf"))
    if isinstance(wanted, st.DateType):
        return made.cast(st.TimestampNTZType()) == value.try_cast(st.TimestampNTZType())
    if isinstance(wanted, st.TimestampNTZType):
        # A time zone, or an offset from UTC, behind the time of day.
        return made.isNotNull() & ~value.rlike(r"\d:\d.*([A-Za-z]|[+-])")
    return made.isNotNull()


def _is_finite(number: Column) -> Column:
    return sf.abs(number) != sf.lit(float("inf"))


def _is_same_kind(have: st.DataType, wanted: st.DataType) -> bool:
    """Whether the cast loses nothing: the wanted type holds every value of the other type."""
    if isinstance(have, _INTEGERS) and isinstance(wanted, _INTEGERS):
        return _INTEGERS.index(type(have)) <= _INTEGERS.index(type(wanted))
    text = (st.StringType, st.CharType, st.VarcharType)
    return any(
        isinstance(have, kind) and isinstance(wanted, kind)
        for kind in (text, st.DayTimeIntervalType)
    )


def _nested(value: Column, have: st.DataType, wanted: st.DataType, target: Target) -> Column | None:
    """Cast the parts of a struct, an array or a map; None for other pairs of types."""
    if isinstance(have, st.StructType) and isinstance(wanted, st.StructType):
        names = sorted(part.name for part in wanted)
        if sorted(part.name for part in have) != names:
            raise lancemem.InvalidInputError(
                f"column {target.column!r} is a struct of {', '.join(wanted.names)}, the given "
                f"value is a struct of {', '.join(have.names)}"
            )
        parts = [
            assigned(
                value.getField(part.name),
                have[part.name].dataType,
                part.dataType,
                target.part(part.name),
            ).alias(part.name)
            for part in wanted
        ]
        return sf.when(value.isNotNull(), sf.struct(*parts))
    if isinstance(have, st.ArrayType) and isinstance(wanted, st.ArrayType):
        items = have.elementType, wanted.elementType
        return sf.transform(value, lambda item: assigned(item, *items, target.item()))
    if isinstance(have, st.MapType) and isinstance(wanted, st.MapType):
        keys, values = (have.keyType, wanted.keyType), (have.valueType, wanted.valueType)
        key = replace(target, stored=target.stored.key_type)
        item = replace(target, stored=target.stored.item_type)
        made = sf.transform_keys(value, lambda each, _: assigned(each, *keys, key))
        return sf.transform_values(made, lambda _, each: assigned(each, *values, item))
    return None
