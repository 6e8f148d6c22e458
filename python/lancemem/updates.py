"""Updates of a table by a condition or by a source, beside the upserts and deletes by key.

Owns `delete(where=)`, `retract`, `update`, `apply_changes` and the start of a merge. Does not own
the write: rows are read and computed first, then written by key. Does not own what a merge rule
refuses (`rule_calls`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from lancemem import _lancemem, rule_calls
from lancemem.merge import (
    MergeBuilder,
    refuse_key_columns,
    refuse_unknown_columns,
    sql_of_columns,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from lancemem._lancemem import WriteResult, _Filter, _Keys, _Rows, _Txn

__all__ = ["TableUpdates"]


class TableUpdates(_lancemem.Table):
    """The updates of `Table`."""

    def delete(
        self,
        keys: _Keys | None = None,
        *,
        where: _Filter | None = None,
        txn: _Txn | None = None,
        take_over: bool = False,
    ) -> WriteResult:
        """Delete rows by key, or by a condition. Returns when all deletions are durable.

        With `keys`, rows need not exist. With `where`, the keys of the rows that meet the condition
        are read first. A row that another writer changes or adds meanwhile is deleted or kept by
        what was read. In a table with `deletes="retract"` the call takes rows back, as `retract`
        does.

        The call writes to each shard as `upsert` does.

        Args:
            keys: As in `get`. Does not go with `where`. In a "deduplicate" table with `sequence_by`
                rows that have the sequence columns too are deletes with that sequence, which lose
                against a greater one. With "first_row" and sequence groups such rows are an
                `InvalidInputError`: give the key columns alone. With `deletes="ignore"` the call
                changes nothing, though the result counts the keys; with "refuse" it is an
                `InvalidInputError`.
            where: As the `filter` of `scan`.
            txn: As in `upsert`.
            take_over: As in `upsert`.

        Returns:
            The number of keys, shards and WAL entries written.

        Raises:
            InvalidInputError: Both `keys` and `where` are given or neither is, the table has no
                primary key, or `where` is given for a table with `deletes="retract"`.
            LancememError: As in `upsert`.

        Example:
            table.delete([3, 7])
            table.delete(where="arrived < TIMESTAMP '2024-01-01'")
        """
        if (keys is None) == (where is None):
            raise _lancemem.InvalidInputError(
                "delete takes either keys or where; to delete all rows pass where='true'"
            )
        if isinstance(keys, str):
            raise _lancemem.InvalidInputError(
                "expected a list, an array or a table of keys, got str; put one key into a list, "
                "or pass a condition as where="
            )
        if where is not None:
            key = _key(self, "a delete")
            rule_calls.refuse_delete_where(self)
            keys = self.scan(key, where).to_table()
        assert keys is not None  # noqa: S101 - for the type checker
        return super().delete(keys, txn=txn, take_over=take_over)

    def retract(
        self,
        rows: _Rows,
        *,
        txn: _Txn | None = None,
        round_floats: bool = False,
        take_over: bool = False,
    ) -> WriteResult:
        """Take rows back: subtract their values from sums, and 1 from each count.

        The table has `merge_engine="aggregation"` and `deletes="retract"`. A retract may arrive
        before the row that it takes back; until then the sum lacks the value. Nothing is read. The
        call writes to each shard as `upsert` does.

        Args:
            rows: The rows as they were written: the key and the columns that have a sum, in any
                form that `upsert` takes. A column that is missing, a null, and a column with
                `ignore_retract` stay as they are. A column with `count` is left out.
            txn: As in `upsert`. Without one a retract that is repeated may be subtracted twice.
            round_floats: As in `upsert`.
            take_over: As in `upsert`.

        Returns:
            The number of rows, shards and WAL entries written.

        Raises:
            InvalidInputError: The table has another engine or other `deletes`, or the rows cannot
                be taken back. The error names the option and the column. Nothing is written.
            LancememError: As in `upsert`.

        Example:
            clicks = pa.table({"page": ["/"], "clicks": [3]})
            pages.upsert(clicks)
            pages.retract(clicks)
        """
        rule_calls.refuse_retract(self)
        given, all_rows = taken_back(rows)
        how: dict[str, Any] = {"txn": txn, "round_floats": round_floats, "take_over": take_over}
        return self.apply(given, all_rows, **how)

    def update(  # noqa: PLR0913 - the arguments of two spellings and of a write
        self,
        set: Mapping[str, str] | None = None,  # noqa: A002
        where: _Filter | None = None,
        *,
        values: Mapping[str, object] | None = None,
        values_sql: Mapping[str, str] | None = None,
        txn: _Txn | None = None,
        round_floats: bool = False,
        take_over: bool = False,
    ) -> WriteResult:
        """Change columns of the rows that meet a condition. Returns when all rows are durable.

        The rows are read, computed in memory, and written by key. **A change that another writer
        makes to one of them meanwhile is overwritten.** In a table with
        `merge_engine="partial_update"` the columns that change are written alone, so the other
        columns keep such a change. The call writes to each shard as `upsert` does.

        Args:
            set: The SQL expression of each column that changes, over the columns of the row before
                the update (docs/reading.md). Text is quoted in SQL: `"'new'"`.
            where: As the `filter` of `scan`. Default: every row.
            values: The value of each column that changes, as it is: text needs no quotes.
            values_sql: As `set`, which LanceDB calls so.
            txn: As in `upsert`. An update that computes with stored values must not be written
                twice.
            round_floats: As in `upsert`.
            take_over: As in `upsert`.

        Returns:
            The number of rows, shards and WAL entries written.

        Raises:
            InvalidInputError: No column is to change, a column is named twice, is of the primary
                key or not in the table, an expression is not valid, a column cannot hold its
                value, or the merge engine of the table does not take it (docs/merge-engines.md).
            LancememError: As in `upsert`.

        Example:
            table.update({"price": "price * 1.1"}, where="category = 'book'")
            table.update(values={"category": "book"}, where="id = 7")
        """
        key = _key(self, "an update")
        rule_calls.refuse_by_rule(self, "an update")
        expressions, literals = _assignments(set, values, values_sql)
        for changes in (expressions, literals):
            refuse_key_columns(changes, key)
        self.refresh()
        names = self.schema.names
        for changes in (expressions, literals):
            refuse_unknown_columns(changes, names, self.uri)
        changed = [*expressions, *literals]
        rule_calls.refuse_assignments(self, changed)
        if rule_calls.is_partial(self):
            names = [name for name in names if name in key or name in changed]
        columns = {
            name: expressions.get(name, quoted(name)) for name in names if name not in literals
        }
        rows = self.scan(columns, where).to_table()
        for name, value in literals.items():
            rows = rows.append_column(name, _repeated(name, value, rows.num_rows))
        return self.upsert(rows, txn=txn, round_floats=round_floats, take_over=take_over)

    def apply_changes(
        self,
        changes: _Rows,
        *,
        op_column: str = "_change_type",
        sequence_by: str | None = None,
        txn: _Txn | None = None,
        round_floats: bool = False,
    ) -> WriteResult:
        """Apply changes: upserts and deletes, as the operation of each row requires.

        Takes the rows of a change feed as they are: inserts and images after an update are upserts,
        deletes are deletes, and images before an update are left out. So a second table is kept
        equal to the first one. All changes are written by one `apply`, and checked before that.

        In a table with `sequence_by` a delete has the sequence of its row: it loses against a
        greater one. In a table with `deletes="retract"` deletes and images before an update are
        taken back, so that sums follow the rows. Where the table's rule makes a row of several
        puts, changes may have some of the columns (docs/merge-engines.md).

        Args:
            changes: Rows with the columns of the table and those below, in any form that `upsert`
                takes. They are read into memory. A delete needs only its key, and with
                `sequence_by` its sequence; its other columns may be null. The columns that a feed
                adds are not written.
            op_column: The column of operations: I, U and D, small and as words, Debezium's c and r,
                the change types of Delta, the row kinds of Flink and Paimon. Any other value is an
                error. Default: that of a feed.
            sequence_by: The column by which the changes of a key take effect in order. Default: the
                `_commit_version` of a feed, or else the order of the rows.
            txn: As in `upsert`.
            round_floats: As in `upsert`.

        Returns:
            The number of changes, shards and WAL entries written.

        Raises:
            InvalidInputError: The table has no primary key, a column is missing or is not in the
                table, an operation is unknown, or the table has `merge_engine="aggregation"`
                without `deletes="retract"`.
            LancememError: As in `upsert`.

        Example:
            feed = table.changes(since=41)
            mirror.apply_changes(feed, txn=("mirror", feed.until))
        """
        _key(self, "a change")
        rule_calls.refuse_changes(self)
        from lancemem import change_rows, rows  # noqa: PLC0415 - they load pyarrow

        given: pa.Table = rows.to_table(changes)
        version = change_rows.COMMIT_VERSION
        is_feed = op_column == change_rows.CHANGE_TYPE and version in given.column_names
        if sequence_by is None and is_feed:
            sequence_by = version
        self.refresh()
        ordered, deletes = change_rows.in_order(self, given, op_column, sequence_by)
        return self.apply(ordered, deletes, txn=txn, round_floats=round_floats)

    def merge(self, source: _Rows, on: str | Sequence[str] | None = None) -> MergeBuilder:
        """Start a merge of rows into the table, which `execute` runs.

        Source rows are matched with the rows of their keys. Conditions and values are SQL over
        `source.x` and `target.x`. The clauses are tried in order for each row of the source; the
        first that fits is done.

        Args:
            source: The rows, in any form that `upsert` takes. They are read now, into memory.
            on: The columns of the primary key. A merge matches by these alone. Default: the primary
                key.

        Returns:
            A builder for the clauses.

        Raises:
            InvalidInputError: The table has no primary key, `on` is not the primary key, the source
                lacks a column of it, or the merge engine of the table does not take it
                (docs/merge-engines.md).

        Example:
            (
                table.merge(changes)
                .when_matched_delete("source.cancelled")
                .when_matched_update({"seats": "target.seats + source.seats"})
                .when_not_matched_insert_all("NOT source.cancelled")
                .execute()
            )
        """
        key = _key(self, "a merge")
        rule_calls.refuse_by_rule(self, "a merge")
        if not isinstance(on, Iterable | None):
            raise TypeError(
                f"on: expected the columns of the primary key, such as on={key!r}, got "
                f"{type(on).__name__}"
            )
        columns = [on] if isinstance(on, str) else on
        if columns is not None and sorted(columns) != sorted(key):
            raise _lancemem.InvalidInputError(
                f"a merge matches rows by the primary key alone, {key}, got on={on!r}; for other "
                "rows find the keys first (scan(filter=...)), then upsert or delete"
            )
        return MergeBuilder(self, source)


def taken_back(rows: _Rows) -> tuple[pa.Table, pa.Array]:
    """Return rows to take back, and the mask by which `apply` takes all of them back."""
    import pyarrow as pa  # noqa: PLC0415 - loaded where it is needed

    from lancemem.rows import to_table  # noqa: PLC0415

    given = to_table(rows)
    return given, pa.repeat(pa.scalar(value=True), given.num_rows)


def quoted(name: str) -> str:
    """Return a name of a column as SQL."""
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def _assignments(
    expressions: Mapping[str, str] | None,
    values: Mapping[str, object] | None,
    values_sql: Mapping[str, str] | None,
) -> tuple[dict[str, str], dict[str, object]]:
    """Return the expression of each column that changes, and the value of each other one."""
    given = (expressions, values_sql, values)
    if any(isinstance(part, str) for part in given):
        raise _lancemem.InvalidInputError(
            "an update takes columns first: update({column: expression}, where=condition), or "
            "update(values={column: value}, where=condition)"
        )
    of_sql = [("set", expressions), ("values_sql", values_sql)]
    checked = [sql_of_columns(name, part) for name, part in of_sql if part is not None]
    if not isinstance(values, Mapping | None):
        raise TypeError(
            "values: expected a dict of columns and their values, such as {'name': 'new'}, got "
            f"{type(values).__name__}"
        )
    names = [name for part in given for name in part or ()]
    if not names:
        raise _lancemem.InvalidInputError("an update needs at least one column to set")
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise _lancemem.InvalidInputError(f"an update sets column '{twice[0]}' more than once")
    return {name: sql for part in checked for name, sql in part.items()}, dict(values or {})


def _repeated(name: str, value: object, rows: int) -> pa.Array:
    """Return a value `rows` times, in a type of its own: the write casts it as it casts any row."""
    import pyarrow as pa  # noqa: PLC0415 - loaded where it is needed

    try:
        return pa.repeat(pa.scalar(value), rows)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise _lancemem.InvalidInputError(
            f"the value {value!r} of column '{name}' could not be read as Arrow: {error}"
        ) from error


def _key(table: _lancemem.Table, what: str) -> list[str]:
    key = table.primary_key
    if not key:
        raise _lancemem.InvalidInputError(
            f"table {table.uri} is append-only: {what} needs a primary key, which create_table sets"
        )
    return key
