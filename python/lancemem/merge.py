"""`merge`: a source merged into a table whose rows are matched by their key.

Owns the clauses and their checks. `lancemem.spark` has the same builder for DataFrames. Does not
own the rows that a merge makes (`merge_rows`), or the write.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from lancemem import _lancemem, rule_calls

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

    from lancemem._lancemem import _Rows, _Txn

__all__ = [
    "Clause",
    "MergeBuilder",
    "MergeResult",
    "refuse_key_columns",
    "refuse_unknown_columns",
    "sql_of_columns",
]


@dataclass(frozen=True)
class MergeResult:
    """What a merge wrote.

    Attributes:
        num_rows_updated: Rows that were updated.
        num_rows_inserted: Rows that were inserted.
        num_rows_deleted: Rows that were deleted.
        matched: False where every source row is written whether it matches or not. The table was
            not read then, and updates count as inserted.
        num_shards_already_written: Shards that had recorded the merge's transaction id, and took
            nothing.
    """

    num_rows_updated: int
    num_rows_inserted: int
    num_rows_deleted: int
    matched: bool = True
    num_shards_already_written: int = 0


@dataclass(frozen=True)
class Clause:
    """One `when_...`: which rows it takes, and what becomes of them.

    Attributes:
        matched: Whether it takes source rows that match a row of the table.
        op: "U", "I" or "D", to update, insert or delete.
        condition: The condition of the rows. None for all.
        values: The expression of each column. None for all columns of the source.
    """

    matched: bool
    op: str
    condition: str | None
    values: Mapping[str, str] | None


class MergeBuilder:
    """The clauses of a merge, tried in order for each row of the source; the first match wins.

    Conditions and values are SQL over `source.x` and `target.x`. A condition that is null does not
    fit. Every method but `execute` returns the builder.

    In a table with `merge_engine="partial_update"` a merge writes the columns that its clauses
    give, and a clause that takes all columns takes those that the source has. Where every source
    row is put whether it matches or not, and no value reads the target, the table is not read.
    """

    def __init__(self, table: _lancemem.Table, source: _Rows) -> None:
        """Use `Table.merge`."""
        from lancemem import rows  # noqa: PLC0415 - it loads pyarrow

        self._table = table
        self._source: pa.Table = rows.to_table(source)
        self._clauses: list[Clause] = []
        for name in table.primary_key:
            if name not in self._source.column_names:
                raise _lancemem.InvalidInputError(
                    f"the source of the merge has no key column {name!r}"
                )

    # --- clauses ---

    def when_matched_update_all(self, condition: str | None = None) -> MergeBuilder:
        """Replace a matched row by the source's.

        Args:
            condition: Of the rows that the clause takes. Default: every matched row.

        Returns:
            The builder.

        Raises:
            InvalidInputError: The source lacks a column of the table, or with "partial_update" has
                a column with a function.

        Example:
            table.merge(rows).when_matched_update_all("source.at > target.at").execute()
        """
        return self._with(Clause(True, "U", condition, None))

    def when_matched_update(
        self,
        set: Mapping[str, str],  # noqa: A002
        condition: str | None = None,
    ) -> MergeBuilder:
        """Change the columns in `set` of a matched row; the others keep their values.

        Args:
            set: The expression of each column that changes.
            condition: As in `when_matched_update_all`.

        Returns:
            The builder.

        Raises:
            InvalidInputError: `set` names a key column, or no column of the table; or with
                "partial_update" a column with a function, or a part of a sequence group.

        Example:
            table.merge(sales).when_matched_update({"n": "target.n + source.n"}).execute()
        """
        assigned = sql_of_columns("set", set)
        refuse_key_columns(assigned, self._table.primary_key)
        return self._with(Clause(True, "U", condition, assigned))

    def when_matched_delete(self, condition: str | None = None) -> MergeBuilder:
        """Delete a matched row.

        In a table with `sequence_by` the delete has the sequence of the stored row. Where that is
        null in all its columns, `execute` raises `InvalidInputError`.

        Args:
            condition: As in `when_matched_update_all`.

        Returns:
            The builder.

        Example:
            table.merge(changes).when_matched_delete("source.cancelled").execute()
        """
        return self._with(Clause(True, "D", condition, {}))

    def when_not_matched_insert_all(self, condition: str | None = None) -> MergeBuilder:
        """Insert a source row that matches none.

        Args:
            condition: Of the rows that the clause takes. Default: every row that matches none.

        Returns:
            The builder.

        Raises:
            InvalidInputError: The source lacks a column of the table.

        Example:
            table.merge(rows).when_not_matched_insert_all().execute()
        """
        return self._with(Clause(False, "I", condition, None))

    def when_not_matched_insert(
        self, values: Mapping[str, str], condition: str | None = None
    ) -> MergeBuilder:
        """Insert a row of `values` for a source row that matches none; other columns are null.

        The key must equal the source's key: no other key was looked up in the table.

        Args:
            values: The expression of each column, key columns included.
            condition: As in `when_not_matched_insert_all`.

        Returns:
            The builder.

        Raises:
            InvalidInputError: `values` lacks a key column, or names no column of the table.

        Example:
            new = {"id": "source.id", "n": "source.n", "first": "source.at"}
            table.merge(sales).when_not_matched_insert(new).execute()
        """
        assigned = sql_of_columns("values", values)
        missing = [name for name in self._table.primary_key if name not in assigned]
        if missing:
            raise _lancemem.InvalidInputError(f"values has no key column {missing[0]!r}")
        return self._with(Clause(False, "I", condition, assigned))

    def when_not_matched_by_source_delete(self, *_: object) -> NoReturn:
        """Refuse: it would read the whole table."""
        raise _lancemem.InvalidInputError(
            "a merge looks only at the keys of its source; find the other rows with an anti join "
            "of to_table() and the source, then delete them"
        )

    # --- the write ---

    def execute(
        self, *, round_floats: bool = False, txn: _Txn | None = None, take_over: bool = False
    ) -> MergeResult:
        """Write, and return how many rows were updated, inserted and deleted.

        Source rows are matched with the rows that are stored when the merge reads them. Another
        writer may change these until the merge writes. All rows are written by one `Table.apply`.

        Args:
            round_floats: As in `Table.upsert`.
            txn: As in `Table.upsert`. A merge that computes with stored values must not be written
                twice.
            take_over: As in `Table.upsert`.

        Returns:
            The numbers of rows. They count rows of shards too that had recorded `txn`.

        Raises:
            InvalidInputError: There is no clause, a key comes twice in the source, an expression is
                not valid, or a column cannot hold its value. Nothing is written.
            LancememError: As in `Table.upsert`.
        """
        if not self._clauses:
            raise _lancemem.InvalidInputError("a merge needs at least one when_... clause")
        self._table.refresh()
        from lancemem import merge_rows  # noqa: PLC0415 - it loads pyarrow

        merge_rows.refuse_double_keys(self._table, self._source)
        how: dict[str, Any] = {"txn": txn, "round_floats": round_floats, "take_over": take_over}
        put = self._put_of_all()
        if put is not None:
            rows = merge_rows.put_of(self._table, self._source, put.values)
            done = self._table.upsert(rows, **how)
            return MergeResult(0, rows.num_rows, 0, False, done.num_shards_already_written)
        matched, unmatched = merge_rows.joined(self._table, self._source)
        of_matched = [clause for clause in self._clauses if clause.matched]
        others = [clause for clause in self._clauses if not clause.matched]
        columns = merge_rows.written(self._table, self._clauses, self._source.column_names)
        parts = [
            *merge_rows.chosen(self._table, matched, of_matched, columns),
            *merge_rows.chosen(self._table, unmatched, others, columns),
        ]
        rows, deletes = merge_rows.whole(
            self._table, parts, columns.names, round_floats=round_floats
        )
        done = self._table.apply(rows, deletes, **how)
        counts = Counter(U=0, I=0, D=0)
        for clause, part in parts:
            counts[clause.op] += part.num_rows
        already = done.num_shards_already_written
        return MergeResult(counts["U"], counts["I"], counts["D"], True, already)

    def _with(self, clause: Clause) -> MergeBuilder:
        if not isinstance(clause.condition, str | None):
            raise TypeError(
                "condition: expected SQL, such as 'source.at > target.at', got "
                f"{type(clause.condition).__name__}"
            )
        names = self._table.schema.names
        is_partial = rule_calls.is_partial(self._table)
        if clause.values is None and not is_partial:
            lacking = [name for name in names if name not in self._source.column_names]
            if lacking:
                raise _lancemem.InvalidInputError(
                    f"the source of the merge has no column {lacking[0]!r}; name the values of the "
                    "other columns with when_matched_update and when_not_matched_insert"
                )
        refuse_unknown_columns(clause.values or (), names, self._table.uri)
        assigned = self._source.column_names if clause.values is None else [*clause.values]
        rule_calls.refuse_assignments(self._table, assigned, inserts=not clause.matched)
        self._clauses.append(clause)
        return self

    def _put_of_all(self) -> Clause | None:
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
            return insert if insert.values is update.values else None
        key = self._table.primary_key
        is_own = all(insert.values[n] in {f"source.{n}", f'source."{n}"'} for n in key)
        assigned = {n: value for n, value in insert.values.items() if n not in key}
        reads_target = any(re.search(r"\btarget\b", value) for value in assigned.values())
        same = bool(assigned) and assigned == update.values
        puts = is_own and same and not reads_target
        return insert if puts and rule_calls.is_partial(self._table) else None


def sql_of_columns(argument: str, given: object) -> dict[str, str]:
    """Return the SQL of columns by their names; refuse anything else.

    Args:
        argument: The name of the argument.
        given: What was passed.

    Raises:
        TypeError: It is no mapping, or has a value that is no text.
    """
    if not isinstance(given, Mapping):
        raise TypeError(
            f"{argument}: expected a dict of columns and their SQL, such as {{'n': 'n + 1'}}, got "
            f"{type(given).__name__}"
        )
    for name, sql in given.items():
        if not isinstance(sql, str):
            raise TypeError(
                f"{argument}: expected SQL for column {name!r}, such as {str(sql)!r}, got "
                f"{type(sql).__name__}; a text is quoted in SQL, \"'new'\""
            )
    return dict(given)


def refuse_key_columns(names: Iterable[str], key: list[str]) -> None:
    """Refuse to change columns of the primary key."""
    changed = [name for name in names if name in key]
    if changed:
        raise _lancemem.InvalidInputError(
            f"key column {changed[0]!r} cannot be updated: delete the row and insert another"
        )


def refuse_unknown_columns(names: Iterable[str], known: list[str], uri: str) -> None:
    """Refuse names that are no columns of the table at `uri`."""
    unknown = [name for name in names if name not in known]
    if unknown:
        raise _lancemem.InvalidInputError(
            f"table {uri} has no column {unknown[0]!r}; it has {', '.join(known)}"
        )
