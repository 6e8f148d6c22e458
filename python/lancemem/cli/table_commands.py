"""The commands about a table as a whole: create, enable, describe, history, indexes, drop.

Owns: their arguments and answers. Does not own: rows (`read_commands`), upkeep
(`maintenance_commands`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import typer

import lancemem
from lancemem.cli import answers
from lancemem.cli.app import TABLE, command
from lancemem.cli.arguments import Json, Uri, Yes, column, sharding

Key = Annotated[
    list[str] | None,
    typer.Option("--key", "-k", metavar="COLUMN", help="A key column; repeat it for more."),
]
Shards = Annotated[
    int | None, typer.Option("--shards", min=1, metavar="N", help="The number of shards.")
]
ShardBy = Annotated[
    str | None,
    typer.Option(
        "--shard-by", metavar="COLUMN", help="Spreads rows over shards. Default: the first key."
    ),
]


def _schema_arguments(columns: list[str] | None, rows: Path | None) -> Any:  # noqa: ANN401
    """Return the schema, or the rows, of a new table."""
    if columns and rows:
        raise typer.BadParameter("--column and --from both name the columns: give one of the two")
    if not (columns or rows):
        raise typer.BadParameter(
            "name the columns, --column id:int64 --column name:string, or take them from a file, "
            "--from rows.parquet"
        )
    if columns:
        return pa.schema([column(text) for text in columns])
    return _rows_of(rows)


def _rows_of(path: Path | None) -> pa.Table:
    """Read the rows of a file, whose ending names its form."""
    # Half a second, which most commands do not need.
    from pyarrow import csv, feather, json, parquet  # noqa: PLC0415

    if path is None or not path.exists():
        raise typer.BadParameter(f"--from names no file: {path}")
    forms: dict[str, Any] = {
        ".parquet": parquet.read_table,
        ".csv": csv.read_csv,
        ".json": json.read_json,
        ".jsonl": json.read_json,
        ".ndjson": json.read_json,
        ".arrow": feather.read_table,
        ".feather": feather.read_table,
    }
    read = forms.get(path.suffix.lower())
    if read is None:
        raise typer.BadParameter(f"--from reads {', '.join(forms)}, got {path.name!r}")
    return read(path)


@command("create", TABLE)
def create(
    uri: Uri,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            "--column",
            "-c",
            metavar="NAME:TYPE",
            help="A column, such as id:int64 or embedding:float32[384]; ! behind the type forbids "
            "nulls. Repeat it.",
        ),
    ] = None,
    rows: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="FILE", help="Columns and rows of a Parquet, CSV, JSON or Arrow file."
        ),
    ] = None,
    key: Key = None,
    shards: Shards = None,
    shard_by: ShardBy = None,
    exist_ok: Annotated[
        bool, typer.Option("--exist-ok", help="Open a table that exists; its rows stay.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Create a table from columns or from the rows of a file."""
    data = _schema_arguments(columns, rows)
    table = lancemem.create_table(
        uri,
        data,
        primary_key=key or None,
        sharding=sharding(shards, shard_by, key or []),
        exist_ok=exist_ok,
    )
    _describe(table, as_json)


@command("enable", TABLE)
def enable(
    uri: Uri,
    key: Key = None,
    shards: Shards = None,
    shard_by: ShardBy = None,
    as_json: Json = False,
) -> None:
    """Add upserts to a Lance table that exists."""
    table = lancemem.enable(
        uri, primary_key=key or None, sharding=sharding(shards, shard_by, key or [])
    )
    _describe(table, as_json)


@command("describe", TABLE)
def describe(uri: Uri, as_json: Json = False) -> None:
    """Print columns, key, sharding, settings and sizes."""
    _describe(lancemem.open_table(uri), as_json)


def _describe(table: lancemem.Table, as_json: bool) -> None:
    stats = table.stats()
    sharded = table.sharding
    columns = [
        {"name": it.name, "type": str(it.type), "nullable": it.nullable} for it in table.schema
    ]
    sizes = {
        "base_version": stats.base_version,
        "num_base_rows": stats.num_base_rows,
        "num_shards": stats.num_shards,
        "num_sstables": stats.num_sstables,
        "num_sstable_rows": stats.num_sstable_rows,
        "num_log_rows": stats.num_log_rows,
        "log_bytes": stats.log_bytes,
    }
    settings = {
        "uri": table.uri,
        "primary_key": table.primary_key,
        "shard_by": sharded.column if sharded else None,
        "deletion_vectors": table.deletion_vectors,
        "changelog": table.changelog,
        "merge_rule": _rule(table.merge_rule),
        **sizes,
    }
    if as_json:
        answers.json_line({**settings, "columns": columns})
        return
    told: dict[str, Any] = {
        **settings,
        "primary_key": ", ".join(table.primary_key) or "none (append-only)",
    }
    told["shard_by"] = told["shard_by"] or "nothing (one shard)"
    told["changelog"] = told["changelog"] or "derived"
    rule = told["merge_rule"] or {}
    told["merge_rule"] = ", ".join(f"{name}={it}" for name, it in rule.items()) or "newest row"
    answers.facts({name.replace("_", " ").removeprefix("num "): it for name, it in told.items()})
    rows = [[it["name"], it["type"], "" if it["nullable"] else "not null"] for it in columns]
    answers.grid(["column", "type", ""], rows)


def _rule(rule: lancemem.MergeRule | None) -> dict[str, Any] | None:
    """Return what was chosen of a merge rule, in values of JSON."""
    if rule is None:
        return None
    groups = rule.sequence_groups.items()
    chosen = {
        "merge_engine": rule.merge_engine,
        "sequence_by": list(rule.sequence_by),
        "aggregates": {name: str(it) for name, it in rule.aggregates.items()},
        "merge_functions": rule.merge_functions,
        "sequence_groups": {",".join(names): list(columns) for names, columns in groups},
        "deletes": rule.deletes,
    }
    return {name: value for name, value in chosen.items() if value}


@command("history", TABLE)
def history(
    uri: Uri,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, metavar="N", help="The newest N versions.")
    ] = 20,
    as_json: Json = False,
) -> None:
    """Print the newest versions of the base table, newest first; JSON has one line for each."""
    versions = lancemem.open_table(uri).history(limit)
    if as_json:
        for version in versions:
            answers.json_line(answers.fields(version))
        return
    rows = [
        [str(it.version), it.timestamp, it.operation, it.num_compacted_shards] for it in versions
    ]
    answers.grid(["version", "time (UTC)", "operation", "compacted shards"], rows)


@command("indexes", TABLE)
def indexes(uri: Uri, as_json: Json = False) -> None:
    """Print the table's own indexes; JSON has one line for each."""
    found = lancemem.open_table(uri).indexes()
    if as_json:
        for index in found:
            answers.json_line(answers.fields(index))
        return
    if not found:
        answers.say("the table has no index")
        return
    rows = [
        [it.name, ", ".join(it.columns), it.type, it.metric, it.indexed_rows, it.unindexed_rows]
        for it in found
    ]
    answers.grid(["index", "columns", "type", "metric", "rows", "rows without"], rows)


@command("drop", TABLE)
def drop(uri: Uri, yes: Yes = False, as_json: Json = False) -> None:
    """Remove a table with everything in its folder. Asks first."""
    stats = lancemem.open_table(uri).stats(count_logs=False) if not yes else None
    if stats is not None:
        rows = f"{stats.num_base_rows + stats.num_sstable_rows:,} rows, and those of its logs"
        answers.ask(f"remove the table {uri}: {rows}?", is_agreed=yes)
    lancemem.drop_table(uri)
    if as_json:
        answers.json_line({"uri": uri, "dropped": True})
    else:
        answers.say(f"dropped {uri}")
