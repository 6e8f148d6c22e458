"""Columns that a DataFrame and the table do not share.

Owns: the refusal of columns that the table lacks, which the caller may waive, and their addition to
the table (`mergeSchema`). Does not own which columns a write gives (`lancemem.rule_calls`), or the
error for a column that a write needs: see `LancememTable`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import StructType

import lancemem
from lancemem.spark.arrow_types import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Collection


def settle_extra(
    table: lancemem.Table,
    rows: StructType,
    read: Collection[str],
    *,
    ignores: bool,
    merges: bool,
) -> None:
    """Refuse the columns of `rows` that a write would leave out; with `merges` add them first.

    Args:
        table: The table, whose columns are the newest ones.
        rows: The schema of the DataFrame.
        read: Columns that the write reads besides, such as the column of operations.
        ignores: Whether the write may leave columns out.
        merges: Whether the table takes columns that it does not have.

    Raises:
        InvalidInputError: There is such a column, or the table cannot take it.
    """
    have = {*pa.schema(table.schema).names, *read}
    extra = [field for field in rows if field.name not in have]
    if extra and merges:
        _add(table, StructType(extra))
    elif extra and not ignores:
        raise lancemem.InvalidInputError(
            f"table {table.uri}: column {extra[0].name!r} of the DataFrame is not in the table; "
            "leave it out, or let merge_schema=True (the option mergeSchema) add it to the table "
            "and ignore_extra_columns=True (the option ignoreExtraColumns) ignore it"
        )


def _add(table: lancemem.Table, extra: StructType) -> None:
    """Add columns to the base table, by Lance's own operation. Older rows have nulls there."""
    added = pa.schema([field.with_nullable(True) for field in arrow_schema(extra)])
    try:
        base = table.to_lance()
    except ModuleNotFoundError as error:
        raise lancemem.InvalidInputError(
            f"table {table.uri}: merge_schema adds column {added.names[0]!r} by the package "
            "pylance, which the driver does not have: pip install pylance"
        ) from error
    try:
        base.add_columns(added)
    except Exception as error:
        table.refresh()
        # Another writer may have added the same columns first.
        if not set(added.names) <= set(pa.schema(table.schema).names):
            raise lancemem.InvalidInputError(
                f"table {table.uri}: the columns {', '.join(added.names)} cannot be added: {error}"
            ) from error
    table.refresh()
