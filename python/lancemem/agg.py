"""Functions of columns for `merge_engine="aggregation"` and `"partial_update"`.

Owns the builders and their parameters. Does not own what a function does to values, or which column
can have it: the engine refuses what cannot be when the table is created.

A name such as `"sum"` stands for the builder with its defaults.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

__all__ = [
    "Aggregate",
    "bool_and",
    "bool_or",
    "collect",
    "count",
    "first_non_null_value",
    "first_value",
    "last_non_null_value",
    "last_value",
    "listagg",
    "max",
    "merge_map",
    "min",
    "rbm32",
    "rbm64",
    "sum",
]


@dataclass(frozen=True, slots=True, repr=False)
class Aggregate:
    """How the values of a column become one. Made by the functions of this module.

    Attributes:
        function: The name of the function.
        sep: What stands between two texts of `listagg`. None for other functions.
        distinct: Whether `listagg` and `collect` leave out what is there already.
        limit: How many texts or items `listagg` and `collect` keep. None for all.
        keep: Which items the limit of `collect` keeps, "first" or "last".
        ignore_retract: Whether a retract leaves the column as it is.

    Example:
        assert lancemem.agg.sum() == lancemem.agg.Aggregate("sum")
    """

    function: str
    sep: str | None = None
    distinct: bool = False
    limit: int | None = None
    keep: Literal["first", "last"] = "first"
    ignore_retract: bool = False

    def __repr__(self) -> str:
        options = [
            f"{option.name}={getattr(self, option.name)!r}"
            for option in fields(self)[1:]
            if getattr(self, option.name) != option.default
        ]
        return f"agg.{self.function}({', '.join(options)})"


def sum(*, ignore_retract: bool = False) -> Aggregate:  # noqa: A001 - the name of the function
    """Add numbers: integers, floats, `decimal128(38, s)`. It wraps around at the type's bounds.

    Args:
        ignore_retract: Whether a retract leaves the column as it is.

    Returns:
        The function.

    Example:
        lancemem.create_table(
            uri, schema, primary_key="page", merge_engine="aggregation",
            aggregates={"clicks": lancemem.agg.sum()},
        )
    """
    return Aggregate("sum", ignore_retract=ignore_retract)


def count(*, ignore_retract: bool = False) -> Aggregate:
    """Count puts, in an `int64` column. A put gives it no value.

    Args:
        ignore_retract: As in `sum`.

    Returns:
        The function.

    Example:
        aggregates = {"views": lancemem.agg.count()}
    """
    return Aggregate("count", ignore_retract=ignore_retract)


def min(*, ignore_retract: bool = False) -> Aggregate:  # noqa: A001 - the name of the function
    """Keep the least value of a type with an order.

    Args:
        ignore_retract: As in `sum`.

    Returns:
        The function.

    Example:
        aggregates = {"first_seen": lancemem.agg.min()}
    """
    return Aggregate("min", ignore_retract=ignore_retract)


def max(*, ignore_retract: bool = False) -> Aggregate:  # noqa: A001 - the name of the function
    """Keep the greatest value of a type with an order. NaN is greater than every number.

    Args:
        ignore_retract: As in `sum`.

    Returns:
        The function.

    Example:
        aggregates = {"last_seen": lancemem.agg.max()}
    """
    return Aggregate("max", ignore_retract=ignore_retract)


def bool_and(*, ignore_retract: bool = False) -> Aggregate:
    """Keep whether all values are true.

    Args:
        ignore_retract: As in `sum`.

    Returns:
        The function.

    Example:
        aggregates = {"all_paid": lancemem.agg.bool_and()}
    """
    return Aggregate("bool_and", ignore_retract=ignore_retract)


def bool_or(*, ignore_retract: bool = False) -> Aggregate:
    """Keep whether one value is true.

    Args:
        ignore_retract: As in `sum`.

    Returns:
        The function.

    Example:
        aggregates = {"was_late": lancemem.agg.bool_or()}
    """
    return Aggregate("bool_or", ignore_retract=ignore_retract)


def last_value() -> Aggregate:
    """Keep the value of the newest put, also a null.

    Returns:
        The function.

    Example:
        aggregates = {"status": lancemem.agg.last_value()}
    """
    return Aggregate("last_value")


def first_value() -> Aggregate:
    """Keep the value of the oldest put, also a null.

    Returns:
        The function.

    Example:
        aggregates = {"source": lancemem.agg.first_value()}
    """
    return Aggregate("first_value")


def last_non_null_value(*, ignore_retract: bool = False) -> Aggregate:
    """Keep the newest value that is not null: the default of an aggregation's columns.

    Args:
        ignore_retract: As in `sum`.

    Returns:
        The function.

    Example:
        aggregates = {"name": lancemem.agg.last_non_null_value(ignore_retract=True)}
    """
    return Aggregate("last_non_null_value", ignore_retract=ignore_retract)


def first_non_null_value(*, ignore_retract: bool = False) -> Aggregate:
    """Keep the oldest value that is not null.

    Args:
        ignore_retract: As in `sum`.

    Returns:
        The function.

    Example:
        aggregates = {"signed_up": lancemem.agg.first_non_null_value()}
    """
    return Aggregate("first_non_null_value", ignore_retract=ignore_retract)


def listagg(
    sep: str = ",",
    *,
    distinct: bool = False,
    limit: int | None = None,
    ignore_retract: bool = False,
) -> Aggregate:
    """Join texts.

    Args:
        sep: What stands between two texts. With `distinct` or `limit` it is not empty, and no end
            of it is its beginning, because the texts are told apart by it.
        distinct: Whether a text that is there already is left out. Default: False.
        limit: How many texts are kept, the oldest ones, at least 1. Default: all.
        ignore_retract: As in `sum`.

    Returns:
        The function.

    Example:
        aggregates = {"names": lancemem.agg.listagg("; ", distinct=True)}
    """
    return Aggregate("listagg", sep, distinct, limit, ignore_retract=ignore_retract)


def collect(
    *,
    distinct: bool = False,
    limit: int | None = None,
    keep: Literal["first", "last"] = "first",
    ignore_retract: bool = False,
) -> Aggregate:
    """Join lists.

    Args:
        distinct: Whether an item that is there already is left out. Default: False.
        limit: How many items are kept, at least 1. Default: all.
        keep: Which items the limit keeps, the oldest or the newest ones. "last" needs
            `distinct=False`. Default: "first".
        ignore_retract: As in `sum`.

    Returns:
        The function.

    Example:
        aggregates = {"tags": lancemem.agg.collect(distinct=True, limit=100)}
    """
    return Aggregate("collect", None, distinct, limit, keep, ignore_retract)


def merge_map(*, ignore_retract: bool = False) -> Aggregate:
    """Join maps. The newest value of a key stays.

    Args:
        ignore_retract: As in `sum`.

    Returns:
        The function.

    Example:
        aggregates = {"attributes": lancemem.agg.merge_map()}
    """
    return Aggregate("merge_map", ignore_retract=ignore_retract)


def rbm32(*, ignore_retract: bool = False) -> Aggregate:
    """Unite roaring bitmaps of 32-bit numbers in the portable form, in a binary column.

    Args:
        ignore_retract: As in `sum`.

    Returns:
        The function.

    Example:
        aggregates = {"visitors": lancemem.agg.rbm32()}
    """
    return Aggregate("rbm32", ignore_retract=ignore_retract)


def rbm64(*, ignore_retract: bool = False) -> Aggregate:
    """Unite roaring bitmaps of 64-bit numbers in the portable form, in a binary column.

    Args:
        ignore_retract: As in `sum`.

    Returns:
        The function.

    Example:
        aggregates = {"visitors": lancemem.agg.rbm64()}
    """
    return Aggregate("rbm64", ignore_retract=ignore_retract)
