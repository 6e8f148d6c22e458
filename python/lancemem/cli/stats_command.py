"""The command `stats`: shards, generations, log rows, lag and rates, once or live.

Owns: its forms: a table, a live table, a line for each sample where no terminal is, JSON lines.
Does not own: the samples and rates (`lancemem.samples`).
"""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

import lancemem
from lancemem import maintenance_loop, samples
from lancemem.cli import answers
from lancemem.cli.app import TABLE, command
from lancemem.cli.arguments import Json, Uri, interval

if TYPE_CHECKING:
    from collections.abc import Iterator

_COLUMNS = (
    "shard",
    "epoch",
    "job",
    "SSTables",
    "SSTable rows",
    "log rows",
    "log bytes",
    "gen.",
)


@command("stats", TABLE)
def stats(
    uri: Uri,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Go on until Ctrl-C, and show rates.")
    ] = False,
    every: Annotated[
        float,
        typer.Option("--interval", parser=interval, metavar="S", help="Seconds between samples."),
    ] = 2.0,
    rounds: Annotated[
        int | None,
        typer.Option("--samples", min=1, metavar="N", help="With --watch: end after N samples."),
    ] = None,
    no_count_logs: Annotated[
        bool, typer.Option("--no-count-logs", help="Read no log: it costs what the logs hold.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Print shards, generations, log rows and lag; with --watch live, with rates."""
    if rounds is not None and not watch:
        raise typer.BadParameter("--samples is for --watch: add --watch")
    table = lancemem.open_table(uri)
    if not watch:
        _show(samples.take(table, count_logs=not no_count_logs), as_json)
        return
    taken = _taken(table, every, rounds, count_logs=not no_count_logs)
    with maintenance_loop.stoppable():
        try:
            if as_json:
                for sample, rates in taken:
                    answers.json_line(_object(sample, rates))
            elif sys.stdout.isatty():
                _live(uri, taken)
            else:
                for sample, rates in taken:
                    answers.say(_line(sample, rates))
        except (KeyboardInterrupt, maintenance_loop.Stopped):
            pass


def _taken(
    table: lancemem.Table, every: float, rounds: int | None, *, count_logs: bool
) -> Iterator[tuple[samples.Sample, samples.Rates | None]]:
    before: samples.Sample | None = None
    number = 0
    while rounds is None or number < rounds:
        if number:
            threading.Event().wait(every)
        sample = samples.take(table, count_logs=count_logs)
        yield sample, samples.rates(before, sample) if before else None
        before, number = sample, number + 1


def _show(sample: samples.Sample, as_json: bool) -> None:
    if as_json:
        answers.json_line(_object(sample, None))
        return
    answers.facts(_facts(sample))
    answers.grid(_COLUMNS, _rows(sample))


def _object(sample: samples.Sample, rates: samples.Rates | None) -> dict[str, Any]:
    told: dict[str, Any] = {"time": round(sample.seconds, 3), **sample.values()}
    told["rates"] = rates.values() if rates else None
    told["shards"] = [shard.values() for shard in sample.shards]
    return told


def _facts(sample: samples.Sample) -> dict[str, object]:
    least = "at least " if sample.num_log_rows is None else ""
    return {
        "base version": str(sample.base_version),
        "base rows": sample.num_base_rows,
        "SSTable rows": f"{sample.num_sstable_rows:,} in {sample.num_sstables} SSTables",
        "log rows": "not counted"
        if sample.num_log_rows is None
        else f"{sample.num_log_rows:,} in {sample.log_bytes or 0:,} bytes",
        "lag": f"{least}{sample.lag_rows:,} rows and deletes that the base table does not have",
    }


def _rows(sample: samples.Sample) -> Iterator[list[object]]:
    for shard in sample.shards:
        name = shard.shard_id if shard.ordinal is None else str(shard.ordinal)
        held = {None: "", True: "none", False: "may run"}[shard.is_released]
        yield [
            name,
            shard.writer_epoch,
            held,
            len(shard.generations),
            shard.num_sstable_rows,
            shard.num_log_rows,
            shard.log_bytes,
            shard.current_generation,
        ]


def _told(rates: samples.Rates | None) -> str:
    if rates is None:
        return "rates: from the second sample on"
    parts = [
        ("written", rates.written_rows),
        ("flushed", rates.flushed_rows),
        ("compacted", rates.compacted_rows),
    ]
    told = ", ".join(f"{name} {_rate(rate)} rows/s" for name, rate in parts if rate is not None)
    return f"rates: {told}"


def _rate(rate: float) -> str:
    """Return a rate so that one row in a long interval is not shown as none."""
    return f"{rate:,.0f}" if rate == 0 or rate >= 10 else f"{rate:.2g}"  # noqa: PLR2004


def _line(sample: samples.Sample, rates: samples.Rates | None) -> str:
    clock = time.strftime("%H:%M:%S", time.localtime(sample.seconds))
    logs = "" if sample.num_log_rows is None else f"{sample.num_log_rows} log rows, "
    return (
        f"{clock} version {sample.base_version}: {sample.num_base_rows} base rows, "
        f"{sample.num_sstables} SSTables, {sample.num_sstable_rows} SSTable rows, {logs}"
        f"lag {sample.lag_rows}; {_told(rates)}"
    )


def _live(uri: str, taken: Iterator[tuple[samples.Sample, samples.Rates | None]]) -> None:
    with Live(console=Console(), auto_refresh=False) as live:
        for sample, rates in taken:
            clock = time.strftime("%H:%M:%S", time.localtime(sample.seconds))
            head = Text(f"{uri} at {clock}", style="bold")
            lines = [
                f"{name.ljust(13)} {answers.shown(value, 100)}"
                for name, value in _facts(sample).items()
            ]
            body = Text("\n".join([*lines, _told(rates)]))
            live.update(Group(head, body, answers.grid_of(_COLUMNS, _rows(sample))), refresh=True)
