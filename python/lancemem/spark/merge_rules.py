"""Merge rules in Spark: as options of a write of `format("lancemem")`, and what they refuse.

Owns the text of these options, the comparison with the rule of a table that exists, and the refusal
of an overwrite. Does not own which rules there are, or what they refuse in Python too:
`lancemem.create_table` and `lancemem.rule_calls` do.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import lancemem

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["OPTIONS", "of_options", "refuse_another", "refuse_overwrite"]

# Options in lower case, as Spark passes them on.
OPTIONS = {
    "mergeengine",
    "sequenceby",
    "aggregates",
    "mergefunctions",
    "sequencegroups",
    "deletes",
    "deleteretention",
}
_UNITS = ("milliseconds", "seconds", "minutes", "hours", "days", "weeks")


def of_options(options: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments of `lancemem.create_table` that the options stand for.

    Args:
        options: The options of the write: `mergeEngine`, `sequenceBy` ("ts,n"), `aggregates`
            ("clicks=sum,views=count"), `mergeFunctions` ("embedding=package.module:function"),
            `sequenceGroups` ("pay_ts=status,amount;ship_ts=carrier"), `deletes`, `deleteRetention`
            ("7 days").

    Returns:
        The arguments; empty where no option is given.

    Raises:
        InvalidInputError: The text of an option has another form.
    """
    rule: dict[str, Any] = {}
    if (engine := options.get("mergeEngine")) is not None:
        rule["merge_engine"] = engine
    if (columns := options.get("sequenceBy")) is not None:
        rule["sequence_by"] = _names(columns)
    if (text := options.get("aggregates")) is not None:
        rule["aggregates"] = dict(_pairs("aggregates", text, ",", "clicks=sum,views=count"))
    if (text := options.get("mergeFunctions")) is not None:
        example = "embedding=package.module:function"
        rule["merge_functions"] = dict(_pairs("mergeFunctions", text, ",", example))
    if (text := options.get("sequenceGroups")) is not None:
        pairs = _pairs("sequenceGroups", text, ";", "pay_ts=status,amount;ship_ts=carrier")
        rule["sequence_groups"] = {
            tuple(_names(sequence)): _names(columns) for sequence, columns in pairs
        }
    if (deletes := options.get("deletes")) is not None:
        rule["deletes"] = deletes
    if (text := options.get("deleteRetention")) is not None:
        rule["delete_retention"] = _duration(text)
    return rule


def refuse_another(table: lancemem.Table, options: Mapping[str, str]) -> None:
    """Refuse a table with another merge rule than the options describe, if one of them is given.

    Args:
        table: The table, which exists.
        options: As in `of_options`.

    Raises:
        InvalidInputError: The table has another rule.
    """
    rule = of_options(options)
    if rule:
        # The engine compares the rule with the table's.
        lancemem.enable(table.uri, **rule)


def refuse_overwrite(table: lancemem.Table) -> None:
    """Refuse mode("overwrite") for a table that does not remove rows by deletes.

    Args:
        table: The table.

    Raises:
        InvalidInputError: Its rule has `deletes` other than "remove".
    """
    rule = table.merge_rule
    if rule is not None and rule.deletes != "remove":
        raise lancemem.InvalidInputError(
            f"table {table.uri}: mode('overwrite') deletes all rows, and the table has "
            f"deletes={rule.deletes!r}; use mode('append')"
        )


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def _pairs(option: str, text: str, between: str, example: str) -> list[tuple[str, str]]:
    pairs = [part.partition("=") for part in text.split(between)]
    if not all(name.strip() and sign and value.strip() for name, sign, value in pairs):
        raise lancemem.InvalidInputError(
            f"option {option} is of the form {example!r}, got {text!r}; functions with parameters "
            "are for LancememTable.create"
        )
    return [(name.strip(), value.strip()) for name, _, value in pairs]


def _duration(text: str) -> timedelta:
    number, _, unit = text.strip().partition(" ")
    unit = unit.strip() if unit.strip().endswith("s") else f"{unit.strip()}s"
    try:
        if number.isdecimal() and unit in _UNITS:
            return timedelta(**{unit: int(number)})
    except OverflowError:
        pass
    raise lancemem.InvalidInputError(
        f"option deleteRetention is a number and one of {', '.join(_UNITS)}, such as '7 days', "
        f"got {text!r}"
    )
