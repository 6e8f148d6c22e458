"""Writes by a user's own tasks: each task stages SSTables, and the driver commits all of them.

Owns `task_writer`, the report of a task, and the commit of the reports. A repeated, speculative or
late task stages SSTables of its own. Spark returns the report of one run of each task, and only
those SSTables are committed, all of a shard at once. So neither the number of tasks nor the
division of rows among them matters when a micro-batch is repeated. A task that committed its own
rows could not have that: Spark may divide a repeated micro-batch in another way. Does not own the
format's two phases: see `source`.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, Self

import pyarrow as pa

import lancemem
from lancemem.rule_calls import (
    given_columns,
    refuse_mode,
    refuse_retract,
    replaced_columns,
    takes_back,
)
from lancemem.spark.arrow_types import table_batch
from lancemem.spark.tables import open_cached
from lancemem.spark.writer import FAULTS, try_again

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import TracebackType

    from pyspark.sql import DataFrame

    from lancemem.spark import transactions

# The columns of a report, as the schema of a `mapInArrow`.
TASK_REPORT = (
    "lancemem string, shard_id string, path string, num_rows long, in_memory_bytes long, "
    "primary_key_bytes long"
)
_REPORT_SCHEMA = pa.schema(
    [
        *(pa.field(name, pa.string()) for name in ("lancemem", "shard_id", "path")),
        *(
            pa.field(name, pa.int64())
            for name in ("num_rows", "in_memory_bytes", "primary_key_bytes")
        ),
    ]
)


def task_writer(uri: str, *, round_floats: bool = False) -> TaskWriter:
    """Open a table for the rows that one Spark task writes.

    Rows stay invisible until the driver commits them with `LancememTable.commit`. Any number of
    tasks may write to any shard; the writer claims none. Rows of one key in two tasks have no
    order.

    Args:
        uri: The address of the table.
        round_floats: As in `LancememTable.upsert`.

    Returns:
        The writer, a context manager.

    Raises:
        TableNotFoundError: There is no table at `uri`.

    Example:
        def score(batches):
            with task_writer(uri) as writer:
                for batch in batches:
                    writer.put(model(batch))
            yield writer.report()

        table.commit(rows.mapInArrow(score, TASK_REPORT))
    """
    return TaskWriter(uri, round_floats=round_floats)


class TaskWriter:
    """The rows of one task. Made by `task_writer`."""

    def __init__(self, uri: str, *, round_floats: bool) -> None:
        """Use `task_writer`."""
        self._table = open_cached(uri)
        self._schema = pa.schema(self._table.schema)
        self._round_floats = round_floats
        # It may claim empty shards of another sharding, and other tasks do the same at this time.
        self._bulk = try_again(self._table.bulk_writer)
        self._staged: list[lancemem.StagedSsTable] | None = None
        self._is_closed = False

    def put(
        self,
        rows: pa.RecordBatch | pa.Table,
        *,
        replace: bool = False,
        nulls: Literal["set", "keep"] | None = None,
    ) -> None:
        """Insert rows, or replace those whose key the table holds. Columns may come in any order.

        Args:
            rows: The rows, with every column of the table. A table whose `merge_engine` is
                "partial_update" or "aggregation" takes some of the columns, and each call may give
                others.
            replace: As in `lancemem.Table.upsert`.
            nulls: As in `lancemem.Table.upsert`.

        Raises:
            InvalidInputError: The rows cannot be stored, or the writer is closed.

        Example:
            writer.put(batch.select(["order_id", "ship_ts", "carrier"]))
        """
        self._check_open()
        refuse_mode(self._table, replace=replace, nulls=nulls, changes=False)
        columns = replaced_columns if replace else given_columns
        for batch in _batches(rows):
            rows_of_table = self._of_table(batch, columns(self._table, batch.schema.names))
            self._bulk.upsert(
                rows_of_table, replace=replace, nulls=nulls, round_floats=self._round_floats
            )

    def retract(self, rows: pa.RecordBatch | pa.Table) -> None:
        """Take rows back, as `lancemem.Table.retract` does.

        Args:
            rows: As in `lancemem.Table.retract`.

        Raises:
            InvalidInputError: The table cannot take rows back, or not these, or the writer is
                closed.

        Example:
            writer.retract(batch.filter(batch["cancelled"]).select(["sku", "paid"]))
        """
        self._check_open()
        refuse_retract(self._table)
        for batch in _batches(rows):
            given = self._of_table(batch, given_columns(self._table, batch.schema.names))
            all_rows = pa.repeat(pa.scalar(value=True), batch.num_rows)
            self._bulk.apply(given, all_rows, round_floats=self._round_floats)

    def delete(self, keys: pa.RecordBatch | pa.Table) -> None:
        """Delete rows by key. In a table with `deletes="retract"` this is `retract`.

        Args:
            keys: Rows with the key columns. Other columns are ignored where they are not taken
                back.

        Raises:
            InvalidInputError: The keys cannot be used, or the writer is closed.
        """
        self._check_open()
        if takes_back(self._table):
            self.retract(keys)
            return
        key = list(self._table.primary_key)
        for batch in _batches(keys):
            self._check_has(batch, key)
            fields = pa.schema([self._schema.field(name) for name in key])
            self._bulk.delete(table_batch(batch.select(key), fields))

    def report(self) -> pa.RecordBatch:
        """Write the remaining rows, and describe all of them for `LancememTable.commit`.

        Returns:
            A batch for the function of `mapInArrow` to yield, with the columns of `TASK_REPORT`.

        Raises:
            InvalidInputError: The block of the writer ended with an error.
        """
        if self._staged is None:
            self._check_open()
            self._staged = self._bulk.finish()
            self._is_closed = True
        columns = [
            [lancemem.__version__] * len(self._staged),
            *(
                [getattr(sstable, name) for sstable in self._staged]
                for name in _REPORT_SCHEMA.names[1:]
            ),
        ]
        arrays = [
            pa.array(values, field.type)
            for values, field in zip(columns, _REPORT_SCHEMA, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=_REPORT_SCHEMA)

    def __enter__(self) -> Self:
        """Return the writer."""
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Write the remaining rows; after an error drop them."""
        if error_type is None:
            self.report()
        self._is_closed = True

    def _of_table(self, batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
        self._check_has(batch, names)
        extra = [name for name in batch.schema.names if name not in self._schema.names]
        if extra:
            raise lancemem.InvalidInputError(
                f"table {self._table.uri}: column {extra[0]!r} of the rows is not in the table"
            )
        return table_batch(batch, pa.schema([self._schema.field(name) for name in names]))

    def _check_has(self, batch: pa.RecordBatch, names: Iterable[str]) -> None:
        missing = [name for name in names if name not in batch.schema.names]
        if missing:
            raise lancemem.InvalidInputError(
                f"table {self._table.uri}: the rows have no column {missing[0]!r}"
            )

    def _check_open(self) -> None:
        if self._is_closed:
            raise lancemem.InvalidInputError(
                f"table {self._table.uri}: the writer of this task is closed; open another one"
            )


def _batches(rows: pa.RecordBatch | pa.Table) -> list[pa.RecordBatch]:
    if isinstance(rows, pa.RecordBatch):
        return [rows]
    if isinstance(rows, pa.Table):
        return list(rows.to_batches())
    message = f"expected a pyarrow.RecordBatch or a pyarrow.Table, got {type(rows).__name__}"
    raise TypeError(message)


def sstables_of(reports: DataFrame) -> list[lancemem.StagedSsTable]:
    """Run the tasks, and return the SSTables that their reports describe.

    Raises:
        InvalidInputError: The DataFrame has other columns.
        LancememError: A task ran another version of lancemem.
    """
    if reports.columns != _REPORT_SCHEMA.names:
        raise lancemem.InvalidInputError(
            "commit takes the reports of task_writer: let the function yield writer.report(), and "
            f"call mapInArrow(function, TASK_REPORT); got the columns {', '.join(reports.columns)}"
        )
    sstables = []
    for report in reports.collect():
        if report["lancemem"] != lancemem.__version__:
            raise lancemem.LancememError(
                f"a task wrote with lancemem {report['lancemem']}, the driver has "
                f"{lancemem.__version__}: install one version on every node"
            )
        sstables.append(
            lancemem.StagedSsTable(*(report[name] for name in _REPORT_SCHEMA.names[1:]))
        )
    return sstables


def commit(
    table: lancemem.Table, sstables: list[lancemem.StagedSsTable], txn: transactions.Txn
) -> lancemem.CommitResult:
    """Commit the SSTables of all tasks; after an error remove those that are not committed."""
    write = name_of(sstables)
    try:
        # Spark does not repeat a failed commit. The transaction id makes a repeated one harmless.
        return try_again(lambda: table.commit(sstables, write=write, txn=txn), FAULTS)
    except lancemem.LancememError:
        with suppress(lancemem.LancememError):
            table.abort(sstables, write=write)
        raise


def name_of(sstables: Iterable[lancemem.StagedSsTable]) -> str:
    """Name a bulk write by its SSTables: each driver gives it the same name."""
    places = sorted(f"{sstable.shard_id}/{sstable.path}" for sstable in sstables)
    return hashlib.sha256("\n".join(places).encode()).hexdigest()[:32]
