"""The commands of upkeep: flush, compact, maintain, gc, record-index, deletion-vectors, dashboard.

Owns: their arguments and answers. Does not own: the loop of `maintain` (`maintenance_loop`), or
metrics and pages.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

import typer

import lancemem
from lancemem import maintenance_loop
from lancemem.cli import answers, bars
from lancemem.cli.app import DAMAGED, DONE, UPKEEP, command
from lancemem.cli.arguments import (
    Bars,
    Json,
    ShardName,
    Uri,
    Yes,
    address,
    duration,
    interval,
    rate,
)

Rate = Annotated[
    int | None,
    typer.Option("--bytes-per-second", parser=rate, metavar="N", help="Limit on reads and writes."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Decide, and write nothing.")]


@command("flush", UPKEEP)
def flush(
    uri: Uri,
    idle_for: Annotated[
        timedelta | None,
        typer.Option(
            "--idle-for",
            parser=duration,
            metavar="S",
            help="Only logs that got no entry for S seconds and that no job holds.",
        ),
    ] = None,
    take_over: Annotated[
        bool,
        typer.Option("--take-over", help="Flush shards that jobs hold too. It stops these jobs."),
    ] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Move the rows of logs into SSTables. --take-over asks first."""
    table = lancemem.open_table(uri)
    if take_over:
        answers.ask(f"stop the jobs that run on {uri}?", is_agreed=yes)
    done = table.flush(idle_for=idle_for, take_over=take_over)
    left = [
        f"left the log of shard {log.shard_id if log.ordinal is None else log.ordinal} alone: "
        f"{log.reason}"
        for log in done.skipped
    ]
    flushed = f"flushed {len(done.flushed)} logs: {done.num_rows} rows, {done.bytes} bytes"
    answers.answer(done, flushed, *left, as_json=as_json)


@command("compact", UPKEEP)
def compact(
    uri: Uri,
    mode: Annotated[
        str, typer.Option("--mode", metavar="MODE", help="auto, link or rewrite.")
    ] = "auto",
    dry_run: DryRun = False,
    flush: Annotated[bool, typer.Option("--flush", help="Flush all logs first.")] = False,
    update_indexes: Annotated[
        bool,
        typer.Option(
            "--update-indexes/--no-update-indexes",
            help="Let the table's own indexes cover new rows.",
        ),
    ] = True,
    max_dead_share: Annotated[
        float | None,
        typer.Option(
            "--max-dead-share",
            min=0,
            max=1,
            metavar="SHARE",
            help="Rewrite fragments with more dead rows than this share. Default: 0.5.",
        ),
    ] = None,
    bytes_per_second: Rate = None,
    progress: Bars = None,
    as_json: Json = False,
) -> None:
    """Move every SSTable into the base table, in one commit."""
    if mode not in {"auto", "link", "rewrite"}:
        raise typer.BadParameter(f"--mode is auto, link or rewrite, got {mode!r}")
    wanted: Any = mode
    with bars.following(progress) as show:
        done = lancemem.open_table(uri).compact(
            mode=wanted,
            dry_run=dry_run,
            update_indexes=update_indexes,
            max_dead_share=max_dead_share,
            bytes_per_second=bytes_per_second,
            flush=flush,
            progress=show,
        )
    if as_json:
        answers.json_line(answers.fields(done))
        return
    would = "would move" if dry_run else "moved"
    answers.say(
        f"{would} {done.num_generations} SSTables: {done.num_sstables_linked} linked, "
        f"{done.num_sstables_rewritten} rewritten, {done.num_sstables_dropped} without a row; "
        f"{done.num_rows_written} rows in, {done.num_rows_deleted} out; "
        f"version {done.base_version}"
    )
    if dry_run and done.sstables:
        rows = [
            [it.shard_id, it.generation, it.num_live_rows, it.bytes, it.treatment, it.reason]
            for it in done.sstables
        ]
        answers.grid(["shard", "generation", "live rows", "bytes", "way", "why"], rows)
    if done.num_rows_in_logs:
        answers.say(f"{done.num_rows_in_logs} rows stay in logs; --flush moves them too")


@command("maintain", UPKEEP)
def maintain(
    uri: Uri,
    every: Annotated[
        float,
        typer.Option(
            "--interval", parser=interval, metavar="S", help="Seconds between two rounds."
        ),
    ] = 60.0,
    once: Annotated[bool, typer.Option("--once", help="One round, then end.")] = False,
    bytes_per_second: Rate = None,
    older_than: Annotated[
        timedelta,
        typer.Option(
            "--older-than",
            parser=duration,
            metavar="S",
            show_default="3600",
            help="Age of garbage, in seconds.",
        ),
    ] = timedelta(hours=1),
    flush_idle: Annotated[
        timedelta,
        typer.Option(
            "--flush-idle",
            parser=duration,
            metavar="S",
            show_default="60",
            help="Flush logs that got no entry for S seconds.",
        ),
    ] = timedelta(minutes=1),
    no_flush_idle: Annotated[bool, typer.Option("--no-flush-idle", help="Flush no log.")] = False,
    update_indexes: Annotated[
        bool,
        typer.Option(
            "--update-indexes/--no-update-indexes",
            help="Let the table's own indexes cover new rows.",
        ),
    ] = True,
    metrics: Annotated[
        str | None,
        typer.Option(
            "--metrics",
            metavar="HOST:PORT",
            help="Serve Prometheus metrics there (needs the extra metrics).",
        ),
    ] = None,
    as_json: Json = False,
) -> int:
    """Flush idle logs, compact, and collect garbage, in a loop. SIGTERM and Ctrl-C end it."""
    settings = maintenance_loop.Settings(
        interval=every,
        once=once,
        bytes_per_second=bytes_per_second,
        older_than=older_than.total_seconds(),
        flush_idle=None if no_flush_idle else flush_idle.total_seconds(),
        update_indexes=update_indexes,
        metrics=address(metrics) if metrics is not None else None,
        json=as_json,
    )
    return maintenance_loop.run(lancemem.open_table(uri), settings, answers.say_all)


@command("gc", UPKEEP)
def collect(
    uri: Uri,
    older_than: Annotated[
        timedelta,
        typer.Option(
            "--older-than",
            parser=duration,
            metavar="S",
            show_default="3600",
            help="Seconds for which a thing must have been unneeded.",
        ),
    ] = timedelta(hours=1),
    dry_run: DryRun = False,
    progress: Bars = None,
    as_json: Json = False,
) -> None:
    """Remove what no reader needs any more."""
    with bars.following(progress) as show:
        gone = lancemem.open_table(uri).collect_garbage(
            dry_run=dry_run, older_than=older_than, progress=show
        )
    if as_json:
        answers.json_line(answers.fields(gone))
        return
    if dry_run and gone.garbage:
        rows = [[it.kind, it.path, it.bytes, it.reason] for it in gone.garbage]
        answers.grid(["kind", "path", "bytes", "why"], rows)
    would = "would remove" if dry_run else "removed"
    answers.say(f"{would} {len(gone.garbage)} things, {gone.bytes} bytes")
    if gone.num_pinned_sstables:
        answers.say(f"{gone.num_pinned_sstables} SSTables are being read, and stay")


@command("record-index", UPKEEP, verifies=True)
def record_index(
    what: Annotated[str, typer.Argument(metavar="WHAT", help="create, verify or drop.")],
    uri: Uri,
    progress: Bars = None,
    as_json: Json = False,
) -> int:
    """Create, verify or drop the index that finds the base rows of keys."""
    if what not in {"create", "verify", "drop"}:
        raise typer.BadParameter(f"record-index takes create, verify or drop, got {what!r}")
    table = lancemem.open_table(uri)
    if what == "drop":
        table.drop_record_index()
        answers.answer({"num_runs": 0}, "the record index is dropped", as_json=as_json)
        return DONE
    with bars.following(progress) as show:
        if what == "create":
            report = table.create_record_index(progress=show)
        else:
            report = table.admin.verify_record_index(progress=show)
    answers.answer(report, *_of_index(report), as_json=as_json)
    return DAMAGED if report.damage else DONE


def _of_index(report: lancemem.RecordIndexReport) -> list[str]:
    """Return the lines about a record index."""
    if not (report.num_runs or report.num_stale_runs or report.damage):
        return ["the table has no record index; lancemem record-index create URI makes one"]
    size = (
        f"{report.num_runs} runs, {report.num_entries} entries, {report.bytes} bytes; "
        f"{report.num_fragments_covered} fragments covered, "
        f"{report.num_fragments_uncovered} not"
    )
    return [size, *(f"damaged: {each}" for each in report.damage)]


@command("deletion-vectors", UPKEEP)
def deletion_vectors(
    what: Annotated[str, typer.Argument(metavar="WHAT", help="on, off or write.")],
    uri: Uri,
    shard: ShardName = None,
    progress: Bars = None,
    as_json: Json = False,
) -> None:
    """Turn deletion-vector mode on or off, or write missing deletion vectors now."""
    if what not in {"on", "off", "write"}:
        raise typer.BadParameter(f"deletion-vectors takes on, off or write, got {what!r}")
    table = lancemem.open_table(uri)
    if what == "write":
        with bars.following(progress) as show:
            done = table.write_deletion_vectors(shard=shard, progress=show)
        answers.answer(done, maintenance_loop.looked_up(done), as_json=as_json)
        return
    version = table.alter(deletion_vectors=what == "on")
    answers.answer(
        {"deletion_vectors": what == "on", "base_version": version},
        f"deletion-vector mode is {what}; version {version}",
        as_json=as_json,
    )


@command("dashboard", UPKEEP)
def dashboard(
    uri: Uri,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, metavar="N", help="0 takes a free port.")
    ] = 8787,
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="The address to bind.")
    ] = "127.0.0.1",
    every: Annotated[
        float,
        typer.Option(
            "--interval", parser=interval, metavar="S", help="Seconds between two samples."
        ),
    ] = 5.0,
    allow_remote: Annotated[
        bool,
        typer.Option(
            "--allow-remote", help="Bind an address that other machines reach. It has no password."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Show shards, logs, SSTables and compactions on a page. It writes nothing."""
    from lancemem.dashboard import server  # noqa: PLC0415 - one command alone needs it

    table = lancemem.open_table(uri)
    with (
        maintenance_loop.stoppable(),
        server.serve(table, host, port, interval=every, allow_remote=allow_remote) as served,
    ):
        answers.answer(
            {"url": served.url},
            f"dashboard of {table.uri} at {served.url}; Ctrl-C ends it",
            as_json=as_json,
        )
        try:
            served.wait()
        except (KeyboardInterrupt, maintenance_loop.Stopped):
            if not as_json:
                answers.say("stopped")
