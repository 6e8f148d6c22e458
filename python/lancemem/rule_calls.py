"""What a merge rule makes of a call: the columns that it writes, and what is refused.

Owns the refusals of updates, merges, retracts, changes and deletes by a condition, before a row is
read, and the columns that such a call gives. `lancemem.spark` has the same answers from here. Does
not own which rules there are, or how rows are merged: the engine does both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lancemem._lancemem import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from lancemem._lancemem import MergeRule, Table

__all__ = [
    "combined_columns",
    "combines",
    "given_columns",
    "is_partial",
    "orders_by",
    "refuse_assignments",
    "refuse_by_rule",
    "refuse_changes",
    "refuse_delete_where",
    "refuse_mode",
    "refuse_retract",
    "replaced_columns",
    "sequence_columns",
    "takes_back",
]

# A put into their tables may give some of the columns.
_COMBINING = ("partial_update", "aggregation")
# Functions whose inverse is known.
_GROUPS = ("sum", "count")


def is_partial(table: Table) -> bool:
    """Whether a put leaves the columns that it does not give as they are."""
    rule = table.merge_rule
    return rule is not None and rule.merge_engine == "partial_update"


def combines(table: Table) -> bool:
    """Whether the rule makes a row of several."""
    rule = table.merge_rule
    return rule is not None and rule.merge_engine in _COMBINING


def takes_back(table: Table) -> bool:
    """Whether a delete takes the values of a row back instead of removing it."""
    rule = table.merge_rule
    return rule is not None and rule.deletes == "retract"


def orders_by(table: Table, column: str) -> bool:
    """Whether the table itself shows the row of a key with the greatest value of `column`."""
    return sequence_columns(table)[:1] == (column,)


def sequence_columns(table: Table) -> tuple[str, ...]:
    """List the columns that order whole rows of a key: a delete has them too, or is a barrier."""
    rule = table.merge_rule
    return rule.sequence_by if rule is not None and rule.merge_engine == "deduplicate" else ()


def given_columns(table: Table, given: Collection[str]) -> tuple[str, ...]:
    """List the columns that a write of rows gives.

    Args:
        table: The table.
        given: The columns of the rows.

    Returns:
        All columns of the table; where its merge rule makes a row of several puts, the key and the
        columns that the rows have.
    """
    names = table.schema.names
    if not combines(table):
        return tuple(names)
    kept = {*given, *table.primary_key}
    return tuple(name for name in names if name in kept)


def replaced_columns(table: Table, given: Collection[str]) -> tuple[str, ...]:
    """List the columns that a write of whole rows gives: a column with `count` takes no values.

    Args:
        table: The table.
        given: The columns of the rows. A column with `count` among them is kept, so that the engine
            refuses it.

    Returns:
        The columns, in the order of the table.
    """
    counts = {name for name, it in _aggregates(table.merge_rule) if it == "count"}
    return tuple(n for n in table.schema.names if n not in counts or n in given)


def combined_columns(table: Table) -> set[str]:
    """List the columns that would change if their stored value were put again."""
    return {name for name, it in _aggregates(table.merge_rule) if it != "last_value"}


def refuse_by_rule(table: Table, what: str) -> None:
    """Refuse to change rows that are read first, where the merge rule would change the result.

    Args:
        table: The table.
        what: The call, with its article.

    Raises:
        InvalidInputError: The table has `merge_engine="first_row"`, whose stored row stays, or
            "aggregation", which combines what is written with the stored row.

    Example:
        refuse_by_rule(table, "an update")
    """
    rule = table.merge_rule
    if rule is not None and rule.merge_engine == "first_row":
        raise InvalidInputError(
            f"table {table.uri} has merge_engine='first_row': the stored row of a key would hide "
            f"what {what} writes; delete the keys and upsert their new rows"
        )
    if rule is not None and rule.merge_engine == "aggregation":
        raise InvalidInputError(
            f"table {table.uri} has merge_engine='aggregation': the functions of the columns would "
            f"combine what {what} assigns with the stored row; set rows anew with upsert(rows, "
            "replace=True), or upsert what is to be added"
        )


def refuse_assignments(table: Table, names: Collection[str], *, inserts: bool = False) -> None:
    """Refuse columns that a clause or an update of a `partial_update` table cannot assign.

    Args:
        table: The table.
        names: The columns that are assigned.
        inserts: Whether the rows are new, so that no stored value is combined with theirs.

    Raises:
        InvalidInputError: A column has a function, which would combine the value with the stored
            one, or a sequence group is given in part.

    Example:
        refuse_assignments(table, ["pay_ts", "pay_status"])
    """
    rule = table.merge_rule
    if rule is None or rule.merge_engine != "partial_update":
        return
    functions = dict(_aggregates(rule))
    combined = [name for name in names if name in functions]
    if combined and not inserts:
        raise InvalidInputError(
            f"table {table.uri}: column {combined[0]!r} has the function "
            f"{functions[combined[0]]!r}, which would combine the assigned value with the stored "
            "one; upsert what is to be combined, or set whole rows with upsert(rows, replace=True)"
        )
    for sequence, columns in rule.sequence_groups.items():
        group = (*sequence, *columns)
        assigned = [name for name in group if name in names]
        lacking = [name for name in group if name not in names]
        if assigned and lacking:
            raise InvalidInputError(
                f"table {table.uri}: column {assigned[0]!r} is of the sequence group "
                f"{', '.join(group)}, whose columns are assigned together: assign {lacking[0]!r} "
                "too"
            )


def refuse_retract(table: Table) -> None:
    """Refuse to take rows back from a table whose rule cannot.

    Args:
        table: The table.

    Raises:
        InvalidInputError: The rule has no `deletes="retract"`. The error names the columns' part in
            that: `create_table` checks each function when it takes the option.

    Example:
        refuse_retract(table)
    """
    rule = table.merge_rule
    if rule is not None and rule.deletes == "retract":
        return
    if rule is None or rule.merge_engine != "aggregation":
        engine = "deduplicate" if rule is None else rule.merge_engine
        raise InvalidInputError(
            f"table {table.uri} has merge_engine={engine!r}, which has no sums to take a row back "
            "from: create the table with merge_engine='aggregation', functions such as "
            "aggregates={'clicks': 'sum'} and deletes='retract'; delete(keys) removes rows"
        )
    raise InvalidInputError(
        f"table {table.uri} has deletes={rule.deletes!r}: a retract needs deletes='retract', which "
        f"is chosen when the table is created{_without_inverse(table, rule)}"
    )


def refuse_changes(table: Table) -> None:
    """Refuse changes of rows for a table that would add up their images.

    Args:
        table: The table.

    Raises:
        InvalidInputError: Its `merge_engine` is "aggregation" without `deletes="retract"`.
    """
    rule = table.merge_rule
    if rule is None or rule.merge_engine != "aggregation" or rule.deletes == "retract":
        return
    raise InvalidInputError(
        f"table {table.uri}: changes hold whole rows, and merge_engine='aggregation' with "
        f"deletes={rule.deletes!r} would add each image of a row to the one before; create the "
        "table with deletes='retract', which takes images before a change back, or write what is "
        "to be added with upsert"
    )


def refuse_delete_where(table: Table) -> None:
    """Refuse a delete by a condition where deletes take values back: it has keys alone.

    Args:
        table: The table.

    Raises:
        InvalidInputError: The rule has `deletes="retract"`.
    """
    if takes_back(table):
        raise InvalidInputError(
            f"table {table.uri} has deletes='retract': a delete by a condition knows keys and not "
            "the rows that were added; take rows back with retract(rows), or set totals anew with "
            "upsert(rows, replace=True)"
        )


def refuse_mode(table: Table, *, replace: bool, nulls: str | None, changes: bool) -> None:
    """Refuse a mode of an upsert that the table or the call does not have.

    Args:
        table: The table.
        replace: Whether whole rows are put.
        nulls: What a null does; None for the default of the table.
        changes: Whether the rows are deletes, or changes with an operation each.

    Raises:
        InvalidInputError: `nulls` is no policy, or is "keep" for a table without columns that are
            not given; or a mode comes with changes.
    """
    if nulls is not None and nulls not in {"set", "keep"}:
        raise InvalidInputError(f"table {table.uri}: nulls is 'set' or 'keep', got {nulls!r}")
    if changes and (replace or nulls is not None):
        raise InvalidInputError(
            f"table {table.uri}: replace and nulls are of upserts, and these rows are deletes or "
            "have a column of operations: leave replace and nulls out"
        )
    if nulls == "keep" and not is_partial(table):
        raise InvalidInputError(
            f"table {table.uri}: nulls='keep' is of tables with merge_engine='partial_update'; "
            "here a null is the new value: leave nulls out"
        )


def _aggregates(rule: MergeRule | None) -> Iterable[tuple[str, str]]:
    """Yield the columns that have a function, and its name."""
    if rule is not None:
        yield from ((name, it.function) for name, it in rule.aggregates.items())
        yield from rule.merge_functions.items()


def _without_inverse(table: Table, rule: MergeRule) -> str:
    """Name the first column that would stand in the way of the option."""
    for name in table.schema.names:
        if name in table.primary_key:
            continue
        if name in rule.merge_functions:
            function = rule.merge_functions[name]
            return f"; column {name!r} has the merge function {function!r}, which has no inverse"
        aggregate = rule.aggregates.get(name)
        function = "last_non_null_value" if aggregate is None else aggregate.function
        if function not in _GROUPS and (aggregate is None or not aggregate.ignore_retract):
            # The two that count nulls have no such option.
            named = function.replace("t_value", "t_non_null_value")
            return (
                f"; column {name!r} has the function {function!r}, which cannot take a value back: "
                f"give it agg.{named}(ignore_retract=True), or 'sum' or 'count'"
            )
    return ""
