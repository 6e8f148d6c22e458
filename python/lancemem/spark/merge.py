"""`merge`: Delta's builder on a table whose rows are matched by their key.

Owns the clauses and their translation: one column with the action for a row, and the columns of the
row. Only the stored rows of the source's keys are read, never the whole table.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as sf

import lancemem
from lancemem import rule_calls
from lancemem.spark import reader, transactions
from lancemem.spark.arrow_types import spark_arrow_schema, spark_schema
from lancemem.spark.assignment import Target, assigned
from lancemem.spark.conditions import as_column, assigned_value, refuse_cut_sequence
from lancemem.spark.size_estimate import estimated_bytes, quoted
from lancemem.spark.task_errors import as_raised
from lancemem.spark.writer import WritePlan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

    from lancemem.spark.table import LancememTable

OP_COLUMN = "_lancemem_op"
# A column, whose name may be quoted; an equality of two columns; one equality for each key column.
_COLUMN = r"(\w+)\.(`[^`]+`|\w+)"
_EQUALITY = rf"\s*\(?\s*{_COLUMN}\s*={{1,2}}\s*{_COLUMN}\s*\)?\s*"
_EQUALITIES = re.compile(rf"{_EQUALITY}(?:\band\b{_EQUALITY})*", re.IGNORECASE)
_ONLY_KEYS = (
    "a merge matches rows by the primary key alone, such as {example!r}; for anything else find "
    "the keys first (toDF(where=...)), then upsert or delete"
)


@dataclass(frozen=True)
class MergeResult:
    """What a merge wrote."""

    num_rows_updated: int
    num_rows_inserted: int
    num_rows_deleted: int
    # False where every source row is written whether it matches or not. The table was not read
    # then, and updates count as inserted.
    matched: bool = True
    # Shards that had recorded the merge's transaction id, and took nothing.
    num_shards_already_written: int = 0


@dataclass(frozen=True)
class _Clause:
    matched: bool
    op: str
    condition: Column | str | None
    # Column to expression; None for all columns of the source.
    values: Mapping[str, Column | str] | None


class MergeBuilder:
    """The clauses of a merge, tried in order for each row of the source; the first match wins.

    Conditions and values are SQL text or Columns over the two aliases. What a merge writes into a
    table with `merge_engine="partial_update"`: see `lancemem.MergeBuilder`.
    """

    def __init__(self, table: LancememTable, source: DataFrame, condition: Column | str) -> None:
        """Use `LancememTable.merge`."""
        self._table = table
        self._source = source
        self._target_alias, self._source_alias, self._key = _parse(table, source, condition)
        self._clauses: list[_Clause] = []

    def whenMatchedUpdateAll(self, condition: Column | str | None = None) -> MergeBuilder:  # noqa: N802
        """Replace a matched row by the source's."""
        return self._with(_Clause(True, "U", condition, None))

    def whenMatchedUpdate(  # noqa: N802
        self,
        condition: Column | str | None = None,
        set: Mapping[str, Column | str] | None = None,  # noqa: A002
    ) -> MergeBuilder:
        """Change the columns in `set` of a matched row; the others keep their values.

        A column may have the table's alias before it: `set={"t.n": "s.n"}`.
        """
        if not set:
            raise lancemem.InvalidInputError(
                "whenMatchedUpdate needs set=, the new value of at least one column; "
                "whenMatchedUpdateAll() takes all columns of the source"
            )
        set = self._by_column(set)  # noqa: A001 - Delta's name
        keys = [name for name in set if name in self._table.primary_key]
        if keys:
            raise lancemem.InvalidInputError(
                f"key column {keys[0]!r} cannot be updated: delete the row and insert another"
            )
        return self._with(_Clause(True, "U", condition, set))

    def whenMatchedDelete(self, condition: Column | str | None = None) -> MergeBuilder:  # noqa: N802
        """Delete a matched row.

        In a table with `sequence_by` the delete has the sequence of the stored row. Where that is
        null in all its columns, `execute` raises `InvalidInputError`.
        """
        return self._with(_Clause(True, "D", condition, {}))

    def whenNotMatchedInsertAll(self, condition: Column | str | None = None) -> MergeBuilder:  # noqa: N802
        """Insert a source row that matches none."""
        return self._with(_Clause(False, "I", condition, None))

    def whenNotMatchedInsert(  # noqa: N802
        self,
        condition: Column | str | None = None,
        values: Mapping[str, Column | str] | None = None,
    ) -> MergeBuilder:
        """Insert a row of `values` for a source row that matches none; other columns are null.

        A column may have the table's alias before it, as in `whenMatchedUpdate`.
        The key must equal the source's key: no other key was looked up in the table.
        """
        values = self._by_column(values or {})
        missing = [name for name in self._table.primary_key if name not in values]
        if missing:
            raise lancemem.InvalidInputError(f"values has no key column {missing[0]!r}")
        return self._with(_Clause(False, "I", condition, values))

    def whenNotMatchedBySourceDelete(self, *_: object, **__: object) -> MergeBuilder:  # noqa: N802
        """Refuse: it would read the whole table."""
        raise lancemem.InvalidInputError(
            "a merge looks only at the keys of its source; find the other rows with an anti join "
            "of toDF() and the source, then delete them"
        )

    whenNotMatchedBySourceUpdate = whenNotMatchedBySourceDelete  # noqa: N815

    def withSchemaEvolution(self) -> MergeBuilder:  # noqa: N802
        """Refuse: a merge adds no column."""
        raise lancemem.InvalidInputError(
            "a merge adds no column to the table; add it first (docs/schema-changes.md), or write "
            "the rows by upsert(df, merge_schema=True)"
        )

    def execute(
        self,
        *,
        round_floats: bool = False,
        txn_app_id: str | None = None,
        txn_version: int | None = None,
    ) -> MergeResult:
        """Write, and return how many rows were updated, inserted and deleted.

        A key that comes twice in the source is an error. Source rows are matched with the rows that
        are stored when the merge reads them. Another writer may change these until the merge
        writes.

        `round_floats`, `txn_app_id` and `txn_version` as in `LancememTable.upsert`: a merge that
        computes with stored values (`set={"n": "t.n + s.n"}`) must not be written twice. Rows that
        the driver writes are checked before any is written. Where tasks write, one task may refuse
        the rows of its shard when other shards are written. Repeat the merge then with the same
        transaction id: rows that are written stay as they are.

        """
        if not self._clauses:
            raise lancemem.InvalidInputError("a merge needs at least one when... clause")
        txn = transactions.of_application(txn_app_id, txn_version)
        columns = self._table.refresh().schema.names
        for clause in self._clauses:
            if clause.matched and clause.values is not None:
                refuse_cut_sequence(self._table, clause.values)
        plan = WritePlan(
            self._written(),
            tuple(self._table.primary_key),
            op_column=OP_COLUMN,
            unique_keys=True,
            round_floats=round_floats,
        )
        if OP_COLUMN in (*columns, *self._source.columns):
            raise lancemem.InvalidInputError(
                f"the column name {OP_COLUMN!r} is lancemem's own; rename it before a merge"
            )
        put = self._put_of_all()
        if put is not None:
            rows, matched = self._put(put, round_floats=round_floats), False
        else:
            rows, matched = self._changes(round_floats=round_floats), True
        size = estimated_bytes(self._source)
        with self._table._described("merge into"):  # noqa: SLF001 - the same package
            reports = self._table._write(rows, plan, None, txn, size=size)  # noqa: SLF001
        deleted = sum(report["deletes"] for report in reports)
        inserted = sum(report["inserts"] for report in reports)
        written = sum(report["rows"] for report in reports)
        already = sum(bool(report["already_written"]) for report in reports)
        return MergeResult(written - deleted - inserted, inserted, deleted, matched, already)

    def _with(self, clause: _Clause) -> MergeBuilder:
        handle = self._table.handle
        if clause.values is None and not rule_calls.is_partial(handle):
            names = self._table.schema.names
            lacking = [name for name in names if name not in self._source.columns]
            if lacking:
                raise lancemem.InvalidInputError(
                    f"the source of the merge has no column {lacking[0]!r}; name the values of "
                    "the other columns with whenMatchedUpdate and whenNotMatchedInsert"
                )
        unknown = [n for n in clause.values or () if n not in self._table.schema.names]
        if unknown:
            raise lancemem.InvalidInputError(
                f"table {self._table.uri} has no column {unknown[0]!r}"
            )
        assigned = self._source.columns if clause.values is None else [*clause.values]
        rule_calls.refuse_assignments(handle, assigned, inserts=not clause.matched)
        self._clauses.append(clause)
        return self

    def _by_column(self, values: Mapping[str, Column | str]) -> dict[str, Column | str]:
        """Name each value's column as the table does: `"t.name"` is `"name"` here, as in Delta."""
        own, found = {*self._table.schema.names}, {}
        for given, value in values.items():
            alias, _, column = given.partition(".")
            qualified = given not in own and alias == self._target_alias
            name = column.strip("`") if qualified else given
            if name in found:
                raise lancemem.InvalidInputError(
                    f"column {name!r} has two values in one clause of the merge; leave one out"
                )
            found[name] = value
        return found

    def _written(self) -> tuple[str, ...]:
        """List the columns that the merge writes; with "partial_update" those that clauses give."""
        names = self._table.schema.names
        if not rule_calls.is_partial(self._table.handle):
            return tuple(names)
        given = {*self._key}
        for clause in self._clauses:
            given |= {*self._source.columns} if clause.values is None else {*clause.values}
        return tuple(name for name in names if name in given)

    def _put_of_all(self) -> _Clause | None:
        """Return the clause that every source row is written by, matched or not, if there is one.

        Then the table need not be read.
        """
        clauses = sorted(self._clauses, key=lambda clause: clause.op)
        if [clause.op for clause in clauses] != ["I", "U"]:
            return None
        insert, update = clauses
        if insert.condition is not None or update.condition is not None:
            return None
        if insert.values is None or update.values is None:
            same_key = all(source == target for target, source in self._key.items())
            return insert if insert.values is update.values and same_key else None
        if not rule_calls.is_partial(self._table.handle):
            return None
        texts = {name: value for name, value in insert.values.items() if isinstance(value, str)}
        alias = self._source_alias
        is_own = all(
            texts.get(n) in {f"{alias}.{own}", f"{alias}.`{own}`"} for n, own in self._key.items()
        )
        others = {name: value for name, value in texts.items() if name not in self._key}
        # Values that are Columns cannot be compared, and may read the target.
        is_text = len(texts) == len(insert.values) and _are_texts(update.values)
        target = re.compile(rf"\b{re.escape(self._target_alias)}\b")
        reads_target = any(target.search(value) for value in others.values())
        return (
            insert if is_own and is_text and others == update.values and not reads_target else None
        )

    def _put(self, clause: _Clause, *, round_floats: bool) -> DataFrame:
        """Make the rows of a clause that every source row is written by."""
        if clause.values is None:
            return self._source.withColumn(OP_COLUMN, sf.lit("I"))
        source, stored = self._source.alias(self._source_alias), self._table.schema
        names = self._written()
        given = source.select(
            *[assigned_value(name, clause.values[name]).alias(name) for name in names]
        )
        schema = pa.schema([stored.field(name) for name in names])
        types = spark_schema(spark_arrow_schema(schema))
        values = [
            assigned(
                sf.col(quoted(it.name)),
                given.schema[it.name].dataType,
                of.dataType,
                Target(it.name, it.type, round_floats),
            ).alias(it.name)
            for it, of in zip(schema, types, strict=True)
        ]
        return given.select(*values, sf.lit("I").alias(OP_COLUMN))

    def _changes(self, *, round_floats: bool) -> DataFrame:
        joined = reader.join_by_key(
            self._source, self._table.handle, self._key, self._target_alias, self._source_alias
        )
        schema = pa.schema([self._table.schema.field(name) for name in self._written()])
        types = spark_schema(spark_arrow_schema(schema))
        found = sf.col(self._target_alias).isNotNull()
        which, row = sf.lit(None).cast("int"), sf.lit(None)
        for number, clause in reversed(list(enumerate(self._clauses))):
            fits = found if clause.matched else ~found
            if clause.condition is not None:
                fits = fits & sf.coalesce(as_column(clause.condition), sf.lit(False))
            which = sf.when(fits, sf.lit(number)).otherwise(which)
        chosen = joined.withColumn("_lancemem_clause", which).where("_lancemem_clause is not null")
        given = self._given(chosen, types)
        have = given.schema
        targets = [Target(it.name, it.type, round_floats) for it in schema]
        for number, clause in enumerate(self._clauses):
            names = [f"{number} {place}" for place in range(len(types))]
            values = [
                assigned(sf.col(f"`{name}`"), have[name].dataType, field.dataType, target)
                for name, field, target in zip(names, types, targets, strict=True)
            ]
            named = [value.alias(name) for value, name in zip(values, types.names, strict=True)]
            made = sf.struct(sf.lit(clause.op).alias(OP_COLUMN), *named)
            row = sf.when(sf.col("_lancemem_clause") == number, made).otherwise(row)
        return given.select(row.alias("row")).select("row.*")

    def _given(self, chosen: DataFrame, types: StructType) -> DataFrame:
        """Make a column of each value of each clause, null where another clause was chosen.

        A cast evaluates its value several times, and the value may come from a costly function.
        """
        columns = [
            sf.when(sf.col("_lancemem_clause") == number, self._value(clause, field.name)).alias(
                f"{number} {place}"
            )
            for number, clause in enumerate(self._clauses)
            for place, field in enumerate(types)
        ]
        return chosen.select("_lancemem_clause", *columns)

    def _value(self, clause: _Clause, name: str) -> Column:
        target, source = sf.col(self._target_alias), sf.col(self._source_alias)
        if clause.op == "D":
            # With the sequence of the row that it removes, a delete undoes no event in between.
            is_kept = name in self._key or name in rule_calls.sequence_columns(self._table.handle)
            return target[name] if is_kept else sf.lit(None)
        own = self._key.get(name, name)
        if clause.values is None and own in self._source.columns:
            return source[own]
        if clause.values is not None and name in clause.values:
            value = assigned_value(name, clause.values[name])
            return value if name not in self._key else self._looked_up(value, name)
        # The stored value of such a column, put again, would be combined with itself.
        is_again = clause.matched and name not in rule_calls.combined_columns(self._table.handle)
        return target[name] if is_again else sf.lit(None)

    def _looked_up(self, value: Column, name: str) -> Column:
        """Return the value of a key column, which fails where the source row has another key."""
        own = sf.col(self._source_alias)[self._key[name]]
        told = (
            f"whenNotMatchedInsert gives the key column '{name}' another value than the source, by "
            "which the rows were matched; change the source before the merge. It gives "
        )
        shown = [sf.coalesce(of.cast("string"), sf.lit("null")) for of in (value, own)]
        error = sf.raise_error(
            sf.concat(sf.lit(as_raised(told)), shown[0], sf.lit(" for "), shown[1])
        )
        return sf.when(value.eqNullSafe(own), value).otherwise(error)


def _parse(
    table: LancememTable, source: DataFrame, condition: Column | str
) -> tuple[str, str, dict[str, str]]:
    """Return the two aliases, and the source's column for each key column."""
    key = table.primary_key
    example = " and ".join(f"t.{_quoted(name)} = s.{_quoted(name)}" for name in key)
    refused = lancemem.InvalidInputError(_ONLY_KEYS.format(example=example))
    if not isinstance(condition, str):
        kind = type(condition).__name__
        raise lancemem.InvalidInputError(
            f"the condition of a merge is text, such as {example!r}, got a {kind}"
        )
    if not _EQUALITIES.fullmatch(condition):
        raise refused
    sides = [[part.strip("`") for part in pair] for pair in re.findall(_EQUALITY, condition)]
    first, second = sides[0][0], sides[0][2]
    if first == second or any({side[0], side[2]} != {first, second} for side in sides):
        raise refused
    named = table._alias  # noqa: SLF001 - the same package
    if named is not None and named not in {first, second}:
        raise lancemem.InvalidInputError(
            f"the condition of the merge names {first!r} and {second!r}; the table has the alias "
            f"{named!r}"
        )
    # With the same names on both sides the first alias is the table, as in Delta's examples.
    turned = second == named if named is not None else _is_source(first, second)
    orders = [(second, first), (first, second)] if turned else [(first, second), (second, first)]
    for target, other in orders if named is None else orders[:1]:
        mapped = {s[1]: s[3] for s in sides if s[0] == target}
        mapped |= {s[3]: s[1] for s in sides if s[2] == target}
        fits = set(mapped) == set(key) and set(mapped.values()) <= set(source.columns)
        if fits and len(sides) == len(key):
            return target, other, mapped
    raise refused


def _are_texts(values: Mapping[str, Column | str]) -> bool:
    return all(isinstance(value, str) for value in values.values())


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"\w+", name) else f"`{name}`"


def _is_source(target_alias: str, source_alias: str) -> bool:
    """Whether the column names show that the aliases are the other way round."""
    sources = ("s", "src", "source", "updates")
    return target_alias in sources and source_alias not in sources
