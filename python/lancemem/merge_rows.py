"""The rows that a merge writes.

Owns the match of source rows with stored rows, the choice of a clause for each row, the columns
that a merge writes, and those that a clause gives its rows. Does not own the clauses (`merge`),
expressions, which the extension evaluates, or casts to a column's type where all clauses agree: the
engine makes them. Loaded where a merge runs: it imports pyarrow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lancemem import rule_calls
from lancemem._lancemem import InvalidInputError, evaluate

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from lancemem._lancemem import Table
    from lancemem.merge import Clause

__all__ = ["Written", "chosen", "joined", "put_of", "refuse_double_keys", "whole", "written"]

# Positions of rows, beside the columns of a key.
_PLACE, _FOUND_PLACE = "lancemem.place", "lancemem.found_place"
_FITS = "fits"
# What pyarrow raises for a cast that it refuses.
_REFUSED = (ValueError, TypeError, NotImplementedError)


@dataclass(frozen=True)
class Written:
    """The columns of the rows of a merge.

    Attributes:
        names: The columns, in the order of the table.
        combined: Columns that stay null where a clause does not give them: their stored value, put
            again, would be combined with itself.
    """

    names: tuple[str, ...]
    combined: frozenset[str] = frozenset()


def written(table: Table, clauses: Sequence[Clause], source: Collection[str]) -> Written:
    """Return the columns that clauses write: all of them, or with "partial_update" the given ones.

    `source` lists the columns of the source. A column that one clause gives and another does not
    has its stored value in the rows of the other.
    """
    names = table.schema.names
    if not rule_calls.is_partial(table):
        return Written(tuple(names))
    given = {*table.primary_key}
    for clause in clauses:
        given |= {*source} if clause.values is None else {*clause.values}
    combined = frozenset(rule_calls.combined_columns(table))
    return Written(tuple(name for name in names if name in given), combined)


def put_of(table: Table, source: pa.Table, values: Mapping[str, str] | None) -> pa.Table:
    """Return the rows of a merge that puts every source row, whatever is stored."""
    names = [name for name in table.schema.names if name in source.column_names]
    if values is None:
        return source.select(names)
    key = table.primary_key
    computed = evaluate(_named("source", source), {n: values[n] for n in values if n not in key})
    for name in key:
        computed = computed.append_column(name, source[name])
    return computed


def refuse_double_keys(table: Table, source: pa.Table) -> None:
    """Refuse a source in which a key comes twice: which of its rows should win?"""
    key = table.primary_key
    counted = source.select(key).group_by(key).aggregate([([], "count_all")])
    double = counted.filter(pc.greater(counted["count_all"], 1)).select(key)
    if double.num_rows:
        example = double.slice(0, 1).to_pylist()[0]
        raise InvalidInputError(
            f"table {table.uri}: {double.num_rows} keys come more than once in the source of a "
            f"merge, such as {example}; keep one row a key"
        )


def joined(table: Table, source: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return the source rows that have a stored row, beside it, and the others beside nulls.

    Columns are named `source.x` and `target.x`, as expressions name them.
    """
    key, schema = table.primary_key, table.schema
    found = table.get(source.select(key))
    if not found.num_rows:
        found = schema.empty_table()
    places = _keys(source, key, schema).append_column(_PLACE, _numbers(source))
    of_found = _keys(found, key, schema).append_column(_FOUND_PLACE, _numbers(found))
    places = places.join(of_found, key, join_type="left outer").sort_by(_PLACE)
    has_row = places[_FOUND_PLACE].is_valid()
    sources, targets = _named("source", source), _named("target", found)
    both, alone = places.filter(has_row), places.filter(pc.invert(has_row))
    matched = sources.take(both[_PLACE])
    unmatched = sources.take(alone[_PLACE])
    stored = targets.take(both[_FOUND_PLACE])
    for field, column in zip(targets.schema, stored.columns, strict=True):
        nulls = pa.nulls(unmatched.num_rows, field.type)
        unmatched = unmatched.append_column(field.with_nullable(True), nulls)
        matched = matched.append_column(field, column)
    return matched, unmatched


def chosen(
    table: Table, rows: pa.Table, clauses: Sequence[Clause], columns: Written
) -> Iterator[tuple[Clause, pa.Table]]:
    """Give each row to the first clause that fits; yield what the clauses make of their rows."""
    rest = rows
    for clause in clauses:
        taken, rest = _divided(rest, clause.condition)
        yield clause, _made(table, clause, taken, columns)


def whole(
    table: Table, parts: list[tuple[Clause, pa.Table]], names: Sequence[str], *, round_floats: bool
) -> tuple[pa.Table, pa.Array]:
    """Return all rows with the columns `names`, and which of them delete their key.

    Clauses may make different types of a column. Where they agree the engine casts, with its own
    rules. Where they do not, each is cast here.
    """
    columns = []
    for field in map(table.schema.field, names):
        made = [rows[field.name] for _, rows in parts]
        if len({column.type for column in made}) > 1:
            made = [_cast(column, field, round_floats=round_floats) for column in made]
        pieces = [piece for column in made for piece in column.chunks]
        columns.append(pa.chunked_array(pieces, made[0].type))
    deletes = [clause.op == "D" for clause, rows in parts for _ in range(rows.num_rows)]
    return pa.table(columns, names=names), pa.array(deletes, pa.bool_())


def _divided(rows: pa.Table, condition: str | None) -> tuple[pa.Table, pa.Table]:
    """Return the rows that meet a condition, and those for which it is false or null."""
    if condition is None:
        return rows, rows.slice(0, 0)
    fits = evaluate(rows, {_FITS: condition})[_FITS]
    if not (pa.types.is_boolean(fits.type) or pa.types.is_null(fits.type)):
        raise InvalidInputError(f"the condition '{condition}' is {fits.type}, not bool")
    fits = pc.fill_null(fits.cast(pa.bool_()), fill_value=False)
    return rows.filter(fits), rows.filter(pc.invert(fits))


def _made(table: Table, clause: Clause, rows: pa.Table, written: Written) -> pa.Table:
    """Return the rows of a clause, with all columns that the merge writes."""
    values, key = clause.values, table.primary_key
    # A delete has the sequence of the row that it removes: no event between the two is undone.
    of_deletes = {*key, *rule_calls.sequence_columns(table)}
    computed = evaluate(rows, values) if values else None
    if computed is not None and not clause.matched:
        _refuse_other_keys(computed, rows, key)
    columns = []
    for name in written.names:
        own, of_target = f"source.{name}", clause.op == "U" and name not in written.combined
        if values is None and own in rows.column_names:
            columns.append(rows[own])
        elif computed is not None and values is not None and name in values:
            columns.append(computed[name])
        elif of_target or (clause.op == "D" and name in of_deletes):
            columns.append(rows[f"target.{name}"])
        else:
            nulls = pa.nulls(rows.num_rows, table.schema.field(name).type)
            columns.append(pa.chunked_array([nulls]))
    return pa.table(columns, names=written.names)


def _refuse_other_keys(computed: pa.Table, rows: pa.Table, key: list[str]) -> None:
    for name in key:
        own = rows[f"source.{name}"].to_pylist()
        for value, wanted in zip(computed[name].to_pylist(), own, strict=True):
            if value != wanted:
                raise InvalidInputError(
                    f"when_not_matched_insert gives the key column {name!r} another value than the "
                    "source, by which the rows were matched; change the source before the merge. "
                    f"It gives {value!r} for {wanted!r}"
                )


def _keys(rows: pa.Table, key: list[str], schema: pa.Schema) -> pa.Table:
    """Return the key columns in the types of the table, in which they are compared."""
    wanted = pa.schema([pa.field(name, schema.field(name).type) for name in key])
    try:
        return rows.select(key).cast(wanted)
    except _REFUSED as error:
        raise InvalidInputError(f"the keys of the source: {error}") from error


def _numbers(rows: pa.Table) -> pa.Array:
    return pa.array(range(rows.num_rows), pa.int64())


def _named(side: str, rows: pa.Table) -> pa.Table:
    return rows.rename_columns([f"{side}.{name}" for name in rows.column_names])


def _cast(column: pa.ChunkedArray, field: pa.Field, *, round_floats: bool) -> pa.ChunkedArray:
    """Cast a column where that loses nothing. pyarrow rounds doubles, so these are compared."""
    if column.type == field.type:
        return column
    try:
        cast = column.cast(field.type)
    except _REFUSED as error:
        raise InvalidInputError(
            f"column {field.name!r} is {field.type}, the merge gives it {column.type}: {error}"
        ) from error
    if round_floats or not (pa.types.is_floating(field.type) and pa.types.is_floating(column.type)):
        return cast
    same = pc.or_(pc.equal(cast.cast(column.type), column), pc.is_nan(column))
    lost = column.filter(pc.invert(pc.fill_null(same, fill_value=True)))
    if len(lost):
        raise InvalidInputError(
            f"column {field.name!r} is {field.type}, which cannot hold the value {lost[0]}; cast "
            "it to float, or let round_floats=True store the nearest one"
        )
    return cast
