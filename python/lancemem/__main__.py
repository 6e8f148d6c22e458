"""The command line: `python -m lancemem check-wal` and `cut-wal`.

Owns arguments and plain text. Does not own what they do: see `Table.check_wal`, `Table.cut_wal`.
Exit codes: 0, nothing is damaged or the cut is done; 1, damage was found; 2, the call failed.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

import lancemem

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FAILED = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    options = _parser().parse_args(arguments)
    try:
        table = lancemem.open_table(options.uri)
        if options.command == "cut-wal":
            _say(_cut(table, options.shard, options.from_position))
            return 0
        return _check(table, options.shard)
    except lancemem.LancememError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lancemem", description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    check = commands.add_parser("check-wal", help="look for damage in the logs; writes nothing")
    check.add_argument("uri", help="the table")
    check.add_argument("--shard", type=_shard, help="ordinal or id; every shard without it")
    cut = commands.add_parser("cut-wal", help="drop the end of a damaged log; copies are kept")
    cut.add_argument("uri", help="the table")
    cut.add_argument("--shard", type=_shard, required=True, help="ordinal or id")
    cut.add_argument(
        "--from",
        dest="from_position",
        metavar="N",
        type=int,
        required=True,
        help="the first damaged position, which check-wal reports",
    )
    return parser


def _shard(text: str) -> int | str:
    return int(text) if text.isdigit() else text


def _check(table: lancemem.Table, shard: int | str | None) -> int:
    names = [shard] if shard is not None else [known.shard_id for known in table.shards()]
    damaged = 0
    for name in names:
        report = table.check_wal(name)
        damaged += report.first_damaged_position is not None
        _say(_checked(report))
    return 1 if damaged else 0


def _checked(report: lancemem.WalReport) -> Iterator[str]:
    covered, last = report.replay_after_wal_position, report.last_wal_position
    looked = f"entries {covered + 1} to {last}" if last > covered else "no entries to replay"
    if report.first_damaged_position is None:
        yield f"shard {report.shard_id}: {looked}, nothing damaged"
        return
    yield f"shard {report.shard_id}: {looked}, damaged from {report.first_damaged_position} on"
    yield from map(_finding, report.findings)


def _cut(table: lancemem.Table, shard: int | str, from_position: int) -> Iterator[str]:
    report = table.cut_wal(shard, from_position=from_position)
    yield f"shard {report.shard_id}: dropped the log from entry {from_position} on, and with it"
    yield from map(_finding, report.findings)


def _finding(finding: lancemem.WalFinding) -> str:
    kind = finding.kind if finding.detail is None else f"{finding.kind}: {finding.detail}"
    if finding.kind == "intact":
        kind = "intact, behind the damage" if finding.rows else "intact, a fence without rows"
    numbers = [
        ("bytes", finding.bytes),
        ("rows", finding.rows),
        ("generation", finding.generation),
        ("epoch", finding.writer_epoch),
    ]
    told = ", ".join(f"{name} {number}" for name, number in numbers if number is not None)
    copied = "" if finding.copy is None else f", copied to {finding.copy}"
    return f"  entry {finding.position} ({kind}): {told}{copied}"


def _say(lines: Iterator[str]) -> None:
    for line in lines:
        sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
