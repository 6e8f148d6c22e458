"""The commands that read rows: head, count, scan, search.

Owns: their arguments, and rows as a table or as JSON lines. Does not own: the reads (`Table.scan`,
`Table.search`).
"""

from __future__ import annotations

import json
import sys
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

import lancemem
from lancemem.cli import answers
from lancemem.cli.app import TABLE, command
from lancemem.cli.arguments import Json, Uri, names, order

if TYPE_CHECKING:
    from collections.abc import Iterator

# Rows that a table on the terminal has.
SHOWN = 50

Columns = Annotated[
    str | None, typer.Option("--columns", metavar="A,B", help="The columns. Default: all.")
]
Filter = Annotated[
    str | None, typer.Option("--filter", metavar="SQL", help="A condition on the rows.")
]
Level = Annotated[
    str,
    typer.Option(
        "--consistency",
        metavar="LEVEL",
        help="durable: every acknowledged durable write; flushed: no logs.",
    ),
]


def _level(text: str) -> Any:  # noqa: ANN401 - a literal of the stub
    if text not in {"durable", "flushed"}:
        raise typer.BadParameter(f"--consistency is durable or flushed, got {text!r}")
    return text


def _rows(scan: lancemem.Scan) -> Iterator[dict[str, Any]]:
    for batch in scan:
        yield from batch.to_pylist()


def _show(scan: lancemem.Scan, as_json: bool, shown: int | None) -> None:
    rows = _rows(scan)
    if as_json:
        for row in rows:
            answers.json_line(row)
        return
    first = list(islice(rows, shown))
    columns = scan.schema.names
    answers.grid(columns, [[row[name] for name in columns] for row in first])
    if shown is not None and next(rows, None) is not None:
        sys.stderr.write(f"the first {shown} rows; --limit N shows more, --json all\n")


@command("head", TABLE)
def head(
    uri: Uri,
    n: Annotated[int, typer.Option("-n", min=0, metavar="N", help="The number of rows.")] = 5,
    columns: Columns = None,
    as_json: Json = False,
) -> None:
    """Print some rows, whichever come first: rows have no order. JSON has one line for each."""
    table = lancemem.open_table(uri)
    _show(table.scan(names(columns), limit=n), as_json, None)


@command("count", TABLE)
def count(
    uri: Uri,
    filter: Filter = None,
    consistency: Level = "durable",
    as_json: Json = False,
) -> None:
    """Count the rows that meet a condition."""
    level = _level(consistency)
    found = lancemem.open_table(uri).count_rows(filter, consistency=level)
    if as_json:
        answers.json_line({"num_rows": found})
    else:
        answers.say(str(found))


@command("scan", TABLE)
def scan(
    uri: Uri,
    columns: Columns = None,
    filter: Filter = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=0, metavar="N", help="The most rows.")
    ] = None,
    offset: Annotated[
        int, typer.Option("--offset", min=0, metavar="N", help="Rows that are skipped first.")
    ] = 0,
    order_by: Annotated[
        str | None,
        typer.Option("--order-by", metavar="A,-B", help="Sort by columns; -B downwards."),
    ] = None,
    consistency: Level = "durable",
    as_json: Json = False,
) -> None:
    """Print rows: at most 50 as a table unless --limit asks for more, all of them as JSON lines."""
    read = lancemem.open_table(uri).scan(
        names(columns),
        filter,
        limit,
        offset,
        order_by=cast("Any", order(order_by)),
        consistency=_level(consistency),
    )
    _show(read, as_json, SHOWN if limit is None else None)


@command("search", TABLE)
def search(
    uri: Uri,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="A vector, such as '[0.1, 0.2]'.")],
    column: Annotated[
        str | None, typer.Option("--column", metavar="COLUMN", help="The column to search.")
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, metavar="K", help="The number of rows.")] = 10,
    columns: Columns = None,
    filter: Filter = None,
    as_json: Json = False,
) -> None:
    """Print the rows nearest to a vector, the nearest first; JSON has one line for each."""
    read = lancemem.open_table(uri).search(
        _query(query), column=column, k=k, columns=names(columns), filter=filter
    )
    _show(read, as_json, None)


def _query(text: str) -> list[float]:
    try:
        vector = json.loads(text)
    except ValueError:
        vector = None
    if not isinstance(vector, list):
        raise typer.BadParameter(f"expected a vector such as '[0.1, 0.2]', got {text!r}")
    return vector
