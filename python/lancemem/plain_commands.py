"""The plain commands, `python -m lancemem COMMAND URI`: logs, maintenance, indexes, changes.

Owns: their arguments and their text; they need no other package. Does not own: what the commands do
(`Table`), the loop of `maintain` (`maintenance_loop`), or the commands of the console script
(`cli`). Exit code 0: nothing is damaged, the work is done, or a loop was stopped. Exit code 1:
damage was found. Exit code 2: the call failed, or maintenance met an error that needs a person.
"""

from __future__ import annotations

import argparse
import sys
import threading
import traceback
from datetime import timedelta
from typing import TYPE_CHECKING

import lancemem
from lancemem import change_lines, maintenance_loop

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["COMMANDS", "DAMAGED", "FAILED", "main"]

DAMAGED = 1
FAILED = maintenance_loop.FAILED
# Every command.
COMMANDS = (
    "verify-wal",
    "verify-sstables",
    "truncate-wal",
    "relist-sstables",
    "abandon-generations",
    "verify-record-index",
    "create-record-index",
    "drop-record-index",
    "deletion-vectors",
    "maintain",
    "changes",
)
# Commands that look for damage, or read everything.
VERIFICATIONS = (
    "verify-wal",
    "verify-sstables",
    "verify-record-index",
    "create-record-index",
    "relist-sstables",
)
# Commands for a base table that is older than its shards.
REPAIRS = ("relist-sstables", "abandon-generations")
# Commands of the record index.
INDEXING = ("verify-record-index", "create-record-index", "drop-record-index")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    options = _parser().parse_args(arguments)
    try:
        return _run(options)
    except (lancemem.LancememError, OSError, ModuleNotFoundError) as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        if isinstance(error, lancemem.CorruptionError) and options.command in VERIFICATIONS:
            return DAMAGED
    except Exception:  # noqa: BLE001 - the exit code reports it, and the trace is printed
        # A script that acts on the exit code of damage must not mistake a defect for damage.
        traceback.print_exc()
    return FAILED


def _run(options: argparse.Namespace) -> int:
    table = lancemem.open_table(options.uri)
    loops = {"maintain": _maintain, "changes": _changes}
    if options.command in loops:
        return loops[options.command](table, options)
    if options.command in INDEXING:
        return _index(table, options.command)
    if options.command == "deletion-vectors":
        _say(_vectors(table, options.what))
        return 0
    if options.command == "truncate-wal":
        _say(_truncate(table, options.shard, options.from_position))
        return 0
    if options.command in REPAIRS:
        return _repair(table, options)
    verify = _verify_sstables if options.command == "verify-sstables" else _verify_wal
    return verify(table, options.shard)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m lancemem",
        description="Logs, maintenance, indexes and changes of a table.",
        epilog="pip install 'lancemem[cli]' adds the commands of docs/cli.md.",
    )
    parser.add_argument("--version", action="version", version=lancemem.__version__)
    commands = parser.add_subparsers(dest="command", required=True)
    wal = commands.add_parser("verify-wal", help="look for damage in the logs; writes nothing")
    wal.add_argument("uri", help="the table")
    wal.add_argument("--shard", type=_shard, help="ordinal or id; default: every shard")
    sstables = commands.add_parser(
        "verify-sstables", help="compare flushed SSTables with their checksums; writes nothing"
    )
    sstables.add_argument("uri", help="the table")
    sstables.add_argument("--shard", type=_shard, help="ordinal or id; default: every shard")
    truncate = commands.add_parser(
        "truncate-wal", help="drop the end of a damaged log; copies are kept"
    )
    truncate.add_argument("uri", help="the table")
    truncate.add_argument("--shard", type=_shard, required=True, help="ordinal or id")
    truncate.add_argument(
        "--from",
        dest="from_position",
        metavar="N",
        type=_count,
        required=True,
        help="the first entry to drop; verify-wal reports where the damage begins",
    )
    relist = commands.add_parser(
        "relist-sstables",
        help="list SSTables again that a restore or a copy of the base table lost",
    )
    relist.add_argument("uri", help="the table")
    relist.add_argument("--shard", type=_shard, help="ordinal or id; default: every shard")
    abandon = commands.add_parser(
        "abandon-generations", help="give up the rows of a shard's missing generations"
    )
    abandon.add_argument("uri", help="the table")
    abandon.add_argument("--shard", type=_shard, required=True, help="ordinal or id")
    abandon.add_argument(
        "--through",
        dest="through_generation",
        metavar="N",
        type=_count,
        required=True,
        help="the newest missing generation; relist-sstables and verify-sstables report it",
    )
    verify_index = commands.add_parser(
        "verify-record-index", help="compare the record index with the base table; writes nothing"
    )
    verify_index.add_argument("uri", help="the table")
    create_index = commands.add_parser(
        "create-record-index", help="create the record index; an existing index is replaced"
    )
    create_index.add_argument("uri", help="the table")
    drop_index = commands.add_parser("drop-record-index", help="drop the record index")
    drop_index.add_argument("uri", help="the table")
    vectors = commands.add_parser(
        "deletion-vectors",
        help="turn deletion-vector mode on or off, or write missing deletion vectors now",
    )
    vectors.add_argument("what", choices=["on", "off", "write"])
    vectors.add_argument("uri", help="the table")
    maintain = commands.add_parser(
        "maintain", help="flush idle logs, compact the table and collect its garbage, in a loop"
    )
    maintain.add_argument("uri", help="the table")
    maintain.add_argument(
        "--interval",
        metavar="S",
        type=_interval,
        default=60.0,
        help="seconds between the end of a round and the next (default 60)",
    )
    maintain.add_argument("--once", action="store_true", help="one round, then end")
    maintain.add_argument(
        "--bytes-per-second",
        metavar="N",
        type=_rate,
        help="limit on what compactions read and write (default: none)",
    )
    maintain.add_argument(
        "--older-than",
        metavar="S",
        type=_seconds,
        default=3600.0,
        help="seconds for which garbage must have been unneeded (default 3600)",
    )
    maintain.add_argument(
        "--flush-idle",
        metavar="S",
        type=_seconds,
        default=60.0,
        help="flush logs that got no entry for S seconds and that no job holds (default 60)",
    )
    maintain.add_argument(
        "--no-flush-idle",
        dest="flush_idle",
        action="store_const",
        const=None,
        help="flush no log",
    )
    maintain.add_argument(
        "--update-indexes",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="let the table's own indexes cover new rows (default: yes)",
    )
    maintain.add_argument(
        "--metrics",
        metavar="HOST:PORT",
        type=_address,
        help="serve Prometheus metrics of the table and of the rounds there "
        "(needs the package prometheus_client)",
    )
    maintain.add_argument("--json", action="store_true", help="print each round as a JSON object")
    change_lines.add_parser(commands, _interval)
    return parser


def _interval(text: str) -> float:
    seconds = _seconds(text)
    if not 0 < seconds <= threading.TIMEOUT_MAX:
        message = f"expected seconds, above 0 and at most {threading.TIMEOUT_MAX:g}, got {text!r}"
        raise argparse.ArgumentTypeError(message)
    return seconds


def _seconds(text: str) -> float:
    try:
        seconds = timedelta(seconds=float(text)).total_seconds()
    except (ValueError, OverflowError):
        seconds = -1.0
    if seconds < 0:
        message = f"expected seconds, 0 or more, got {text!r}"
        raise argparse.ArgumentTypeError(message)
    return seconds


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not _is_number(port) or int(port) >= 2**16:
        message = f"expected HOST:PORT such as 127.0.0.1:9464, got {text!r}"
        raise argparse.ArgumentTypeError(message)
    return host.removeprefix("[").removesuffix("]"), int(port)


def _count(text: str) -> int:
    if not _is_number(text) or int(text) >= 2**64:
        message = f"expected an integer from 0 to 2^64 - 1, got {text!r}"
        raise argparse.ArgumentTypeError(message)
    return int(text)


def _rate(text: str) -> int:
    if not _is_number(text) or not 0 < int(text) < 2**64:
        message = (
            f"expected bytes per second, at least 1, got {text!r}; omit the option for no limit"
        )
        raise argparse.ArgumentTypeError(message)
    return int(text)


def _shard(text: str) -> int | str:
    return int(text) if _is_number(text) and int(text) < 2**31 else text


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()


def _verify_wal(table: lancemem.Table, shard: int | str | None) -> int:
    names = [shard] if shard is not None else [known.shard_id for known in table.shards()]
    damaged = 0
    for name in names:
        report = table.admin.verify_wal(name)
        damaged += report.first_damaged_position is not None
        _say(_verified(report))
    return DAMAGED if damaged else 0


def _verify_sstables(table: lancemem.Table, shard: int | str | None) -> int:
    reports = table.admin.verify_sstables(shard)
    damaged = [report for report in reports if report.damage]
    for report in damaged:
        name = f"SSTable {report.path}: " if report.path else ""
        place = f"shard {report.shard_id}: {name}"
        if report.path.startswith("_lancemem/"):
            place = f"remembered deletes {report.path}: "
        _say(f"{place}{each}" for each in report.damage)
    unknown = sum(bool(report.unchecked) for report in reports)
    without = f", {unknown} without checksums" if unknown else ""
    files, size = sum(it.num_files for it in reports), sum(it.bytes for it in reports)
    looked = f"{len(reports)} SSTables{without}: {files} files, {size} bytes"
    _say([f"{looked}, {len(damaged)} SSTables damaged"])
    return DAMAGED if damaged else 0


def _repair(table: lancemem.Table, options: argparse.Namespace) -> int:
    if options.command == "abandon-generations":
        through = options.through_generation
        version = table.admin.abandon_generations(options.shard, through_generation=through)
        _say([f"shard {options.shard}: generations through {through} given up; version {version}"])
        return 0
    reports = table.admin.relist_sstables(options.shard)
    if not reports:
        _say(["no generation is missing"])
    for report in reports:
        listed = ", ".join(map(str, report.relisted)) or "none"
        _say([f"shard {report.shard_id}: generations listed again: {listed}"])
        _say(f"  still missing, {reason}" for reason in report.missing)
    return DAMAGED if any(report.missing for report in reports) else 0


def _verified(report: lancemem.WalReport) -> Iterator[str]:
    covered, last = report.replay_after_wal_position, report.last_wal_position
    looked = f"entries {covered + 1} to {last}" if last > covered else "no entries to replay"
    if report.first_damaged_position is None:
        yield f"shard {report.shard_id}: {looked}, nothing damaged"
        return
    yield f"shard {report.shard_id}: {looked}, damaged from {report.first_damaged_position} on"
    yield from _findings(report)


def _truncate(table: lancemem.Table, shard: int | str, from_position: int) -> Iterator[str]:
    report = table.admin.truncate_wal(shard, from_position=from_position)
    yield f"shard {report.shard_id}: dropped the log from entry {from_position} on, and with it"
    yield from _findings(report)


def _findings(report: lancemem.WalReport) -> Iterator[str]:
    damaged = report.first_damaged_position
    for finding in report.findings:
        if damaged is None:
            place = ""
        else:
            place = f", {'behind' if finding.position > damaged else 'before'} the damage"
        yield _finding(finding, place)


def _finding(finding: lancemem.WalFinding, place: str) -> str:
    kind = finding.kind if finding.detail is None else f"{finding.kind}: {finding.detail}"
    if finding.kind == "intact":
        kind = f"intact{place}" if finding.num_rows else "intact, a fence without rows"
    numbers = [
        ("bytes", finding.bytes),
        ("rows", finding.num_rows),
        ("generation", finding.generation),
        ("epoch", finding.writer_epoch),
    ]
    told = ", ".join(f"{name} {number}" for name, number in numbers if number is not None)
    copied = "" if finding.copy is None else f", copied to {finding.copy}"
    return f"  entry {finding.position} ({kind}): {told}{copied}"


def _index(table: lancemem.Table, command: str) -> int:
    if command == "drop-record-index":
        table.drop_record_index()
        _say(["the table has no record index"])
        return 0
    verifies = command == "verify-record-index"
    report = table.admin.verify_record_index() if verifies else table.create_record_index()
    if verifies and not (report.num_runs or report.num_stale_runs or report.damage):
        _say(["the table has no record index; create-record-index creates one"])
        return 0
    told = (
        f"{report.num_runs} runs, {report.num_entries} entries, {report.bytes} bytes; "
        f"{report.num_fragments_covered} fragments covered, {report.num_fragments_uncovered} not, "
        f"{report.num_stale_runs} runs stale; version {report.base_version}"
    )
    _say([told, *(f"damaged: {each}" for each in report.damage)])
    return DAMAGED if report.damage else 0


def _vectors(table: lancemem.Table, what: str) -> Iterator[str]:
    if what == "write":
        yield maintenance_loop.looked_up(table.write_deletion_vectors())
        return
    version = table.alter(deletion_vectors=what == "on")
    yield f"deletion-vector mode is {what}; version {version}"


def _maintain(table: lancemem.Table, options: argparse.Namespace) -> int:
    return maintenance_loop.run(table, maintenance_loop.Settings.of(options), _say)


def _changes(table: lancemem.Table, options: argparse.Namespace) -> int:
    """Print changes, with `--follow` until a signal."""
    with maintenance_loop.stoppable():
        try:
            _say(change_lines.lines(table, options))
        except (maintenance_loop.Stopped, KeyboardInterrupt):
            if not options.follow:
                raise
    return 0


def _say(lines: Iterable[str]) -> None:
    for line in lines:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
