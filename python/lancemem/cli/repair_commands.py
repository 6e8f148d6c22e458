"""The commands that look for damage and drop damaged logs: verify, truncate-wal.

Owns: their arguments and answers. Does not own: verification and repair (`Table.admin`).
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

import lancemem
from lancemem.cli import answers, bars
from lancemem.cli.app import DAMAGED, DONE, REPAIR, command
from lancemem.cli.arguments import Bars, Json, ShardName, Uri, Yes


@command("verify", REPAIR, verifies=True)
def verify(uri: Uri, shard: ShardName = None, progress: Bars = None, as_json: Json = False) -> int:
    """Look for damage in logs, SSTables and the record index. Damage is exit code 1."""
    table = lancemem.open_table(uri)
    shards = [shard] if shard is not None else [known.shard_id for known in table.shards()]
    logs, refused = [], []
    for name in shards:
        try:
            logs.append(table.admin.verify_wal(name))
        except lancemem.CorruptionError as error:
            refused.append(f"shard {name}: {error}")
    with bars.following(progress) as show:
        sstables = table.admin.verify_sstables(shard, progress=show)
        index = None
        if shard is None and table.primary_key:
            index = table.admin.verify_record_index(progress=show)
    damage = [*refused, *_of_logs(logs), *_of_sstables(sstables), *(index.damage if index else ())]
    if as_json:
        answers.json_line(_object(logs, sstables, index, damage))
    else:
        size = sum(report.bytes for report in sstables)
        answers.say(
            f"{len(logs)} logs, {len(sstables)} SSTables of {size} bytes: "
            f"{len(damage) or 'no'} damage"
        )
        for each in damage:
            answers.say(f"damaged: {each}")
    return DAMAGED if damage else DONE


def _of_logs(logs: list[lancemem.WalReport]) -> list[str]:
    return [
        f"shard {log.shard_id}: log from entry {log.first_damaged_position} on; "
        f"lancemem truncate-wal URI --shard {log.shard_id} --from {log.first_damaged_position} "
        "drops its end"
        for log in logs
        if log.first_damaged_position is not None
    ]


def _of_sstables(reports: list[lancemem.SsTableReport]) -> list[str]:
    return [f"{_place(report)}: {each}" for report in reports for each in report.damage]


def _place(report: lancemem.SsTableReport) -> str:
    if report.path.startswith("_lancemem/"):
        return f"remembered deletes {report.path}"
    return f"shard {report.shard_id}: SSTable {report.path or report.generation}"


def _object(
    logs: list[lancemem.WalReport],
    sstables: list[lancemem.SsTableReport],
    index: lancemem.RecordIndexReport | None,
    damage: list[str],
) -> dict[str, Any]:
    return {
        "is_damaged": bool(damage),
        "damage": damage,
        "logs": [answers.fields(log) for log in logs],
        "sstables": [answers.fields(report) for report in sstables],
        "record_index": answers.fields(index) if index else None,
    }


@command("truncate-wal", REPAIR)
def truncate_wal(
    uri: Uri,
    shard: Annotated[str, typer.Option("--shard", metavar="S", help="Ordinal or id.")],
    from_position: Annotated[
        int,
        typer.Option(
            "--from", min=1, metavar="N", help="The first entry to drop, which verify reports."
        ),
    ],
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Drop the end of a damaged log. Every dropped entry is copied first. Asks first."""
    table = lancemem.open_table(uri)
    name: int | str = int(shard) if shard.isascii() and shard.isdecimal() else shard
    answers.ask(
        f"drop the log of shard {shard} from entry {from_position} on? Its job is stopped, and "
        "intact entries behind are dropped too.",
        is_agreed=yes,
    )
    report = table.admin.truncate_wal(name, from_position=from_position)
    if as_json:
        answers.json_line(answers.fields(report))
        return
    answers.say(
        f"shard {report.shard_id}: dropped {len(report.findings)} entries from {from_position} on"
    )
    for finding in report.findings:
        copied = f", copied to {finding.copy}" if finding.copy else ""
        answers.say(f"  entry {finding.position} ({finding.kind}): {finding.bytes} bytes{copied}")
