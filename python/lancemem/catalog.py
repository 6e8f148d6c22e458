"""The functions that create, open, enable and drop tables.

Owns what they take beyond the extension: rows instead of a schema, tables that exist already, and
tables that are replaced. Does not own what a table is.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from lancemem import _lancemem
from lancemem.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import timedelta
    from os import PathLike

    import pyarrow as pa

    from lancemem._lancemem import (
        MaintenanceConfig,
        Sharding,
        WriterConfig,
        _Changelog,
        _Deletes,
        _Groups,
        _MergeEngine,
        _Rows,
        _Schema,
    )
    from lancemem.agg import Aggregate

__all__ = ["create_table", "drop_table", "enable", "exists", "open_table"]

_LOG = logging.getLogger("lancemem")
_MODES = ("create", "overwrite")


def create_table(  # noqa: PLR0913 - each is a keyword of one setting
    uri: str | PathLike[str],
    data: _Schema | _Rows | None = None,
    *,
    schema: _Schema | None = None,
    primary_key: str | Sequence[str] | None = None,
    sharding: Sharding | None = None,
    config: WriterConfig | None = None,
    maintenance: MaintenanceConfig | bool | None = None,
    changelog: _Changelog | None = None,
    merge_engine: _MergeEngine | None = None,
    sequence_by: str | Sequence[str] | None = None,
    aggregates: Mapping[str, str | Aggregate] | None = None,
    merge_functions: Mapping[str, str] | None = None,
    sequence_groups: _Groups | None = None,
    deletes: _Deletes | None = None,
    delete_retention: timedelta | None = None,
    storage_options: dict[str, str] | None = None,
    exist_ok: bool = False,
    mode: str = "create",
) -> Table:
    """Create a table with its shards from rows or from a schema, and open it.

    The rows become visible in one commit for each shard, as `Table.bulk_writer` writes them: a
    stream that is larger than memory is fine. Of rows with one key the last one stays, or what the
    merge rule makes of them. Where the rows cannot be written, no table is left.

    Args:
        uri: A path, which is made absolute, a `file://` URL with its escapes, or `s3://`.
        data: The rows, whose columns become the table's, or an Arrow schema for an empty table.
            Rows are a pandas or polars frame, an Arrow table, batch or stream, a pyarrow dataset, a
            list of dicts, a dict of columns, or an iterable of batches. Key columns become not
            nullable. An index of pandas becomes columns where it has names.
        schema: The columns of an empty table, in the place of `data`.
        primary_key: The key columns in key order: integers, bool, `utf8`, `large_utf8`, `binary` or
            `large_binary`. Default: no key, and the table is append-only.
        sharding: How rows are spread over shards; it cannot be changed later. Default: what
            `advise_sharding` chooses by the size of rows in memory, one shard for an empty table,
            for a stream and up to 4 GiB. The logger `lancemem` gets the reason at INFO.
        config: The defaults of every job of the table, stored with it.
        maintenance: Whether and when a task beside every job of the table compacts and collects,
            stored with it. True is `MaintenanceConfig()`. Default: no such task.
        changelog: "stored" stores the changes of each compaction, as `Table.alter` does. "flushed"
            stores the changes of each flush, and enters deletion-vector mode. Default: changes are
            derived.
        merge_engine: How the events of a key become one row (docs/merge-engines.md). "deduplicate"
            keeps the last event, or with `sequence_by` the greatest; "first_row" the first, or the
            least. It cannot be changed later. Default: "deduplicate".
        sequence_by: The columns that order the events of a key, the most significant first:
            integers, floats, decimals, dates, timestamps, text or binary. Default: the order of
            arrival.
        aggregates: The function of each column, of `lancemem.agg`, or its name.
        merge_functions: Functions of your own by column, each with a name that every process which
            opens the table can import: {"embedding": "package.module:function"}. The function gets
            two Arrow arrays, older and newer, and returns one of the same type and length.
            `check_merge_function` tests it; this call only tries it with two empty arrays.
        sequence_groups: Sequence columns, and the columns that are taken together with them.
        deletes: What a delete does. Default: "remove".
        delete_retention: How long a delete with a sequence is remembered after a compaction, in
            whole milliseconds; 0 is not at all. Default: 7 days, where `sequence_by` orders
            "deduplicate".
        storage_options: Options of pylance, such as `aws_access_key_id` (docs/object-stores.md).
            Base table and shards share them. No error, log line or `repr` shows the secret ones.
        exist_ok: Open the table if one exists at `uri`; its columns, key, sharding and merge rule
            must be those asked for. **Its rows and settings stay: `data`, `config`, `maintenance`
            and `changelog` are not written.** Default: False.
        mode: "overwrite" drops the table at `uri` first, if there is one, as `drop_table` does. The
            columns are checked before, and rows that stream are read into a temporary file. **The
            values are not: where a row cannot be written, such as one with a null key, the old
            table is gone too.** Default: "create".

    Returns:
        The table.

    Raises:
        TableExistsError: A table exists at `uri`, or another process created it at the same time.
        InvalidInputError: The rows have no accepted form or no columns, the key cannot be used, or
            Lance could not store or read a column as it is: dictionaries with indices of less than
            32 bits, structs without fields, lists of a fixed size of anything but numbers and
            booleans, blobs and JSON, columns without a name. The table cannot have the merge rule:
            the text names the column and what works. A merge function cannot be loaded, or does not
            take the type of its column. With `exist_ok`, the table at `uri` has other
            columns, another key, another sharding or another merge rule.

    Example:
        table = lancemem.create_table("board.lance", frame, primary_key="id")
        schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
        table = lancemem.create_table("empty.lance", schema, primary_key="id")
    """
    _refuse_no_mapping(aggregates, sequence_groups)
    if mode not in _MODES:
        raise _lancemem.InvalidInputError(f"mode must be 'create' or 'overwrite', got {mode!r}")
    if exist_ok and mode == "overwrite":
        raise _lancemem.InvalidInputError(
            "exist_ok=True keeps a table that exists, mode='overwrite' drops it; pass one of them"
        )
    if data is not None and schema is not None:
        raise _lancemem.InvalidInputError(
            "create_table takes either rows or a schema; rows bring their columns along"
        )
    schema, rows = _columns_and_rows(schema if data is None and schema is not None else data)
    chosen = _sharding(sharding) or _advised(uri, schema, primary_key, rows)
    options: dict[str, Any] = {
        "primary_key": primary_key,
        "sharding": chosen,
        "config": config,
        "maintenance": maintenance,
        "changelog": changelog,
    }
    rule: dict[str, Any] = {
        "merge_engine": merge_engine,
        "sequence_by": sequence_by,
        "aggregates": aggregates,
        "merge_functions": merge_functions,
        "sequence_groups": sequence_groups,
        "deletes": deletes,
        "delete_retention": delete_retention,
    }
    options |= rule
    if mode == "overwrite":
        with tempfile.TemporaryDirectory() as folder:
            rows = _read_before(rows, schema, folder)
            _prove(uri, schema, options)
            if exists(uri, storage_options=storage_options):
                drop_table(uri, storage_options=storage_options)
            table = _created(uri, schema, options, storage_options)
            if rows is not None:
                _fill(table, rows, storage_options)
            return table
    try:
        table = _created(uri, schema, options, storage_options)
    except _lancemem.TableExistsError:
        if not exist_ok:
            raise
        table = open_table(uri, storage_options=storage_options)
        _refuse_another(table, schema, primary_key, sharding)
        _refuse_another_rule(uri, rule, storage_options)
        return table
    if rows is not None:
        _fill(table, rows, storage_options)
    return table


def open_table(  # noqa: D103 - the extension has the docstring
    uri: str | PathLike[str],
    *,
    storage_options: dict[str, str] | None = None,
    verify_sstables: bool = True,
) -> Table:
    try:
        handle = _lancemem.open_table(
            uri, storage_options=storage_options, verify_sstables=verify_sstables
        )
    except _lancemem.InvalidInputError as error:
        if not os.path.isfile(uri):  # noqa: PTH113 - of any text, however long
            raise
        raise _lancemem.InvalidInputError(
            f"{uri} is a file, and a table is a folder: read the file into a frame, and "
            "lancemem.create_table(uri, rows, primary_key=...) makes a table of its rows"
        ) from error
    return Table._of(handle, storage_options, verify_sstables)  # noqa: SLF001


def enable(  # noqa: D103, PLR0913 - the extension has the docstring
    uri: str | PathLike[str],
    *,
    primary_key: str | Sequence[str] | None = None,
    sharding: Sharding | None = None,
    config: WriterConfig | None = None,
    maintenance: MaintenanceConfig | bool | None = None,
    merge_engine: _MergeEngine | None = None,
    sequence_by: str | Sequence[str] | None = None,
    aggregates: Mapping[str, str | Aggregate] | None = None,
    merge_functions: Mapping[str, str] | None = None,
    sequence_groups: _Groups | None = None,
    deletes: _Deletes | None = None,
    delete_retention: timedelta | None = None,
    storage_options: dict[str, str] | None = None,
    verify_sstables: bool = True,
) -> Table:
    _refuse_no_mapping(aggregates, sequence_groups)
    handle = _lancemem.enable(
        uri,
        primary_key=primary_key,
        sharding=_sharding(sharding),
        config=config,
        maintenance=maintenance,
        merge_engine=merge_engine,
        sequence_by=sequence_by,
        aggregates=aggregates,
        merge_functions=merge_functions,
        sequence_groups=sequence_groups,
        deletes=deletes,
        delete_retention=delete_retention,
        storage_options=storage_options,
        verify_sstables=verify_sstables,
    )
    return Table._of(handle, storage_options, verify_sstables)  # noqa: SLF001


def exists(uri: str | PathLike[str], *, storage_options: dict[str, str] | None = None) -> bool:
    """Return whether a table is at `uri`: one of lancemem's, or a Lance table for `enable`.

    Args:
        uri: As in `create_table`.
        storage_options: As in `create_table`.

    Returns:
        Whether there is a table.

    Raises:
        InvalidInputError: `uri` is not a table's URI.
        CorruptionError: There is a table, and its newest version cannot be read.

    Example:
        lancemem.exists("board.lance")
    """
    return _lancemem.exists(uri, storage_options=storage_options)


def drop_table(uri: str | PathLike[str], *, storage_options: dict[str, str] | None = None) -> None:
    """Remove a table with everything in its folder. It cannot be brought back.

    Jobs that run on it fail at their next write, and open handles at their next read. A folder
    without a table is refused and stays as it is. An interrupted call can leave files: call again,
    and where no version of the table is left, remove the folder.

    Args:
        uri: As in `create_table`.
        storage_options: As in `create_table`.

    Raises:
        TableNotFoundError: There is no table at `uri`.
        RetryableError: A file could not be removed, for example because a job wrote another at the
            same time.

    Example:
        lancemem.drop_table("board.lance")
    """
    _lancemem.drop_table(uri, storage_options=storage_options)


# `help` shows the docstrings of the extension.
open_table.__doc__ = _lancemem.open_table.__doc__
enable.__doc__ = _lancemem.enable.__doc__


def _sharding(sharding: object) -> Sharding | None:
    """Return the sharding; refuse a number of shards, which lacks its column."""
    if sharding is None or isinstance(sharding, _lancemem.Sharding):
        return sharding
    raise TypeError(
        f"sharding: expected lancemem.bucket(column, number) or lancemem.unsharded(), got "
        f"{sharding!r}"
    )


def _refuse_no_mapping(aggregates: object, sequence_groups: object) -> None:
    """Refuse options of a rule that name columns without what belongs to them."""
    for name, given, example in (
        ("aggregates", aggregates, "{'clicks': 'sum'}"),
        ("sequence_groups", sequence_groups, "{'pay_ts': ['pay_status', 'amount']}"),
    ):
        if not isinstance(given, Mapping | None):
            raise TypeError(
                f"{name}: expected a dict, such as {example}, got {type(given).__name__}"
            )


def _columns_and_rows(
    data: _Schema | _Rows | None,
) -> tuple[Any, Iterable[pa.RecordBatch] | None]:
    from lancemem import rows  # noqa: PLC0415 - it loads pyarrow

    if data is None:
        raise _lancemem.InvalidInputError(
            "create_table needs rows, whose columns become the table's, or a schema: "
            "create_table(uri, rows, primary_key=...)"
        )
    if rows.is_schema(data):
        return data, None
    reader = rows.to_reader(cast("_Rows", data))
    untyped = [field.name for field in reader.schema if str(field.type) == "null"]
    if untyped:
        raise _lancemem.InvalidInputError(
            f"column {untyped[0]!r} has no value from which its type could be learned, and could "
            "never take one; pass an Arrow table with the types of its columns"
        )
    # Rows in memory are looked at now, and not copied.
    return reader.schema, reader if rows.is_stream(data) else list(reader)


def _created(
    uri: str | PathLike[str],
    schema: _Schema,
    options: dict[str, Any],
    storage_options: dict[str, str] | None,
) -> Table:
    handle = _lancemem.create_table(uri, schema, **options, storage_options=storage_options)
    return Table._of(handle, storage_options)  # noqa: SLF001 - the same package


def _advised(
    uri: str | PathLike[str],
    schema: Any,  # noqa: ANN401 - an Arrow schema of any library
    primary_key: str | Sequence[str] | None,
    rows: Iterable[pa.RecordBatch] | None,
) -> Sharding:
    """Choose a sharding by what is known of the rows, and log why."""
    import pyarrow as pa  # noqa: PLC0415 - `import lancemem` does not load it

    from lancemem.sharding import advise_sharding  # noqa: PLC0415 - this call alone

    num_bytes = sum(batch.nbytes for batch in rows) if isinstance(rows, list) else None
    advice = advise_sharding(pa.schema(schema), primary_key, num_bytes=num_bytes)
    _LOG.info('sharding table="%s" shards=%d reason="%s"', uri, advice.sharding.num_shards, advice)
    return advice.sharding


def _read_before(
    rows: Iterable[pa.RecordBatch] | None, schema: pa.Schema, folder: str
) -> Iterable[pa.RecordBatch] | None:
    """Read rows that stream before their table is dropped: they may fail, or be the table's own."""
    from lancemem.rows import spooled  # noqa: PLC0415 - it loads pyarrow

    if rows is None or isinstance(rows, list):
        return rows
    return spooled(rows, schema, str(Path(folder) / "rows.arrow"))


def _prove(uri: str | PathLike[str], schema: _Schema, options: dict[str, Any]) -> None:
    """Create the table in a folder of its own, so that what cannot be created replaces nothing."""
    with tempfile.TemporaryDirectory() as folder:
        place = str(Path(folder) / "table")
        try:
            _lancemem.create_table(place, schema, **options)
        except _lancemem.LancememError as error:
            raise type(error)(str(error).replace(place, str(uri))) from error.__cause__


def _fill(
    table: Table, rows: Iterable[pa.RecordBatch], storage_options: dict[str, str] | None
) -> None:
    try:
        writer = table.bulk_writer()
        for batch in rows:
            writer.upsert(batch)
        table.commit(writer.finish())
    except BaseException:
        drop_table(table.uri, storage_options=storage_options)
        raise


def _refuse_another(
    table: Table,
    schema: Any,  # noqa: ANN401 - an Arrow schema of any library
    primary_key: str | Sequence[str] | None,
    sharding: Sharding | None,
) -> None:
    import pyarrow as pa  # noqa: PLC0415 - `import lancemem` does not load it

    key = [primary_key] if isinstance(primary_key, str) else list(primary_key or ())
    asked = {field.name: field.type for field in pa.schema(schema)}
    stored = {field.name: field.type for field in table.schema}
    pairs = (
        ("columns", asked, stored),
        ("the primary key", key, table.primary_key),
        ("the sharding", sharding or table.sharding, table.sharding),
    )
    for what, wanted, found in pairs:
        if wanted != found:
            raise _lancemem.InvalidInputError(
                f"table {table.uri} exists with {what} {_shown(found)}, asked for {_shown(wanted)}"
                "; open it with lancemem.open_table(uri)"
            )


def _refuse_another_rule(
    uri: str | PathLike[str], rule: dict[str, Any], storage_options: dict[str, str] | None
) -> None:
    """Refuse a table with another merge rule, if one is asked for: the engine compares them."""
    if any(option is not None for option in rule.values()):
        _lancemem.enable(uri, **rule, storage_options=storage_options)


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}: {of}" for name, of in value.items())
    return str(value)
