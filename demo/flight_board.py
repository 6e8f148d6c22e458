"""Runs the flight board end to end and fails unless the board is exactly right.

Owns the order of the run and its output. Events are derived and written as Parquet files, one per
micro-batch. Spark reads each file, routes its rows to four shards and applies them. A second Spark
job reads the board at the three consistency levels, and the compactor runs. A stream of the board's
changes keeps a second table, the mirror. At the end the whole board is compared with the state that
pandas computes, and the mirror with the same. It imports lancemem as a user would.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import pyarrow as pa
import pyarrow.parquet as pq

import lancemem
from demo import events as ev
from demo.flights import load_flights
from demo.freshness import FreshnessProbe
from demo.measures import MicroBatch, summarize
from demo.mirror import Mirror
from demo.picture import draw
from demo.reference import Difference, ExpectedCounts, compare, final_board
from demo.spark_session import start_spark
from lancemem.spark import LancememTable
from lancemem.spark.reader import Consistency

if TYPE_CHECKING:
    from typing import Any

    from pyspark.sql import SparkSession

SHARDS = 4
FLUSHES_PER_SHARD_AND_MICRO_BATCH = 2
MIN_MEMTABLE_ROWS = 64
FRESHNESS_SAMPLES = 100


class UnequalBoardError(Exception):
    """The board differs from the state that pandas computes."""


@dataclass
class Run:
    """The state of one run of the micro-batches, and its measurements so far."""

    spark: SparkSession
    board: LancememTable
    probe: FreshnessProbe
    mirror: Mirror
    probes_per_micro_batch: int
    expected: ExpectedCounts = field(default_factory=ExpectedCounts)
    started: float = field(default_factory=time.perf_counter)
    seen_generations: set[tuple[str, int]] = field(default_factory=set)

    def elapsed_s(self) -> float:
        """Seconds since the first micro-batch started."""
        return time.perf_counter() - self.started


def main(arguments: list[str] | None = None) -> int:
    """Run the demo; 0 if the board is equal to the reference, else 1."""
    options = _parse(arguments)
    work = _fresh_folder(options.out / "flight_board")
    say("deriving the events of the flights of 2013 ...")
    flights = load_flights(options.rows_limit)
    events = ev.derive_events(flights)
    files = _write_micro_batches(events, options.micro_batches, work / "events")
    by_kind = ev.count_by_kind(events)
    say(f"{events.num_rows:,} events: " + ", ".join(f"{n:,} {kind}" for kind, n in by_kind.items()))
    say(f"starting Spark on {options.master} ...")
    spark = start_spark(options.master, "lancemem flight board", SHARDS)
    try:
        board = _create_board(spark, work / "board.lance", events.num_rows, options.micro_batches)
        probes = -(-FRESHNESS_SAMPLES // options.micro_batches)
        with (
            FreshnessProbe(str(work / "marker.lance")) as probe,
            Mirror(spark, board, work) as mirror,
        ):
            run = Run(spark, board, probe, mirror, probes)
            measured = [_micro_batch(run, number, path) for number, path in enumerate(files, 1)]
            total_s = run.elapsed_s()
            expected = final_board(flights)
            rows = _check_whole_board(board, expected)
            _check_mirror(board, mirror, expected)
    except UnequalBoardError as error:
        say(f"\nNOT EQUAL to the state computed by pandas:\n{error}")
        return 1
    finally:
        spark.stop()
    summary = summarize(measured, by_kind, rows, total_s)
    _report(summary, measured, options.out)
    return 0


def _micro_batch(run: Run, number: int, path: Path) -> MicroBatch:
    """Apply one micro-batch, read the board, compact it, measure freshness."""
    started_s = run.elapsed_s()
    changes = run.spark.read.parquet(str(path))
    written = run.board.apply_changes(changes, op_column="op", sequence_by="sequence")
    written_s = run.elapsed_s()
    counts = {level: _count_by_status(run.board, level) for level in get_args(Consistency)}
    read_s = run.elapsed_s()
    _check_counts(number, counts["durable"], run.expected.apply(pq.read_table(path)))
    flushed = _new_generations(run)
    compacting = time.perf_counter()
    compacted = run.board.compact()
    compact_s = time.perf_counter() - compacting
    mirror_lag_s = run.mirror.catch_up()
    probed_s = run.elapsed_s()
    measured = MicroBatch(
        events=written.num_upserts + written.num_deletes,
        upserts=written.num_upserts,
        deletes=written.num_deletes,
        wal_entries=written.num_wal_entries,
        started_s=started_s,
        write_s=written_s - started_s,
        read_s=read_s - written_s,
        rows_by_level={level: sum(count.values()) for level, count in counts.items()},
        generations_flushed=flushed,
        generations_compacted=compacted.num_generations,
        compact_s=compact_s,
        mirror_lag_s=mirror_lag_s,
        probed_s=probed_s,
        freshness_ms=run.probe.measure(run.probes_per_micro_batch),
    )
    _show_progress(number, measured, counts["durable"])
    return measured


def _count_by_status(board: LancememTable, level: Consistency) -> dict[str, int]:
    counted = board.toDF(columns=["status"], consistency=level).groupBy("status").count()
    return {row["status"]: row["count"] for row in counted.collect()}


def _new_generations(run: Run) -> int:
    """Count the generations flushed since the last call; a shard lists them until compacted."""
    listed = {
        (shard.shard_id, sstable.generation)
        for shard in lancemem.open_table(run.board.uri).shards()
        for sstable in shard.sstables
    }
    new = listed - run.seen_generations
    run.seen_generations |= new
    return len(new)


def _check_counts(number: int, found: dict[str, int], expected: dict[str, int]) -> None:
    if found != expected:
        raise UnequalBoardError(f"after micro-batch {number}: expected {expected}, found {found}")


def _check_whole_board(board: LancememTable, expected: pa.Table) -> int:
    """Compare every cell twice: through Spark, and without Spark after a last compaction."""
    say("comparing the whole board with the state computed by pandas ...")
    _raise_if_different("read by Spark", compare(board.toDF().toArrow(), expected))
    board.compact()
    compacted = pa.table(lancemem.open_table(board.uri).scan().to_table())
    _raise_if_different("read after the last compaction", compare(compacted, expected))
    rows: int = expected.num_rows
    say(f"equal: {rows:,} rows of {expected.num_columns} columns, cell for cell")
    return rows


def _check_mirror(board: LancememTable, mirror: Mirror, expected: pa.Table) -> None:
    """Compare every cell of the second table, after the rows in logs became changes too."""
    board.compact(flush=True)
    mirror.catch_up()
    _raise_if_different(
        "kept by the change stream", compare(mirror.table.toDF().toArrow(), expected)
    )
    say("the second table, kept by the change stream, is equal too, cell for cell")


def _raise_if_different(how: str, difference: Difference) -> None:
    if not difference.is_empty:
        raise UnequalBoardError("\n".join([f"{how}:", *difference.lines]))


def _create_board(
    spark: SparkSession, path: Path, event_count: int, micro_batches: int
) -> LancememTable:
    # Small MemTables, so that generations flush whatever the number of events.
    flushes = SHARDS * micro_batches * FLUSHES_PER_SHARD_AND_MICRO_BATCH
    config = lancemem.WriterConfig(max_memtable_rows=max(MIN_MEMTABLE_ROWS, event_count // flushes))
    return LancememTable.create(
        spark,
        str(path),
        schema=ev.BOARD_SCHEMA,
        primary_key=ev.KEY,
        sharding=lancemem.bucket("flight", SHARDS),
        config=config,
    )


def _write_micro_batches(events: pa.Table, count: int, folder: Path) -> list[Path]:
    folder.mkdir()
    files = []
    for number, micro_batch in enumerate(ev.split_into_micro_batches(events, count), 1):
        path = folder / f"micro_batch_{number:03}.parquet"
        pq.write_table(micro_batch, path)
        files.append(path)
    return files


def _fresh_folder(path: Path) -> Path:
    """Make an empty folder; files of an earlier run are removed."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return path


def _show_progress(number: int, measured: MicroBatch, on_board: dict[str, int]) -> None:
    levels = "  ".join(f"{level} {rows:,}" for level, rows in measured.rows_by_level.items())
    statuses = ", ".join(f"{on_board[status]:,} {status}" for status in sorted(on_board))
    say(
        f"{number:3}: {measured.events:7,} events at {measured.events_per_second:8,.0f}/s | "
        f"rows at {levels} ({statuses}) | generations +{measured.generations_flushed}, "
        f"compacted {measured.generations_compacted} in {measured.compact_s:.2f} s, "
        f"mirror {measured.mirror_lag_s:.2f} s behind"
    )


def _report(summary: dict[str, Any], measured: list[MicroBatch], out: Path) -> None:
    warm = summary["events_per_second_warm"]
    once_warm = "" if warm is None else f", {warm:,.0f} once Spark's workers had started"
    (out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    title = f"Flight board: {summary['events']:,} events, {summary['rows']:,} rows, {SHARDS} shards"
    draw(out / "flight_board.png", measured, title)
    say(
        f"\nrows on the board      {summary['rows']:,}\n"
        f"events                 {summary['events']:,} in {summary['write_seconds']:.1f} s of "
        f"writing: {summary['events_per_second']:,.0f} a second{once_warm}\n"
        f"whole run              {summary['total_seconds']:.1f} s with reads, compaction, probes\n"
        f"generations            {summary['generations_flushed']} flushed, "
        f"{summary['generations_compacted']} compacted between micro-batches\n"
        f"freshness              p50 {summary['freshness_p50_ms']:.1f} ms, "
        f"p99 {summary['freshness_p99_ms']:.1f} ms from acknowledged to seen by another process "
        f"({summary['freshness_samples']} samples, between micro-batches)\n"
        f"mirror                 p50 {summary['mirror_lag_p50_s']:.2f} s from a compaction to its "
        f"changes in the second table\n"
        f"picture                {out / 'flight_board.png'}\n"
        f"summary                {out / 'summary.json'}"
    )


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m demo.flight_board", description="A year of flights as upserts and deletes."
    )
    parser.add_argument("--rows-limit", type=_positive, metavar="N", help="use the first N flights")
    parser.add_argument("--micro-batches", type=_positive, default=12, metavar="K")
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the results")
    parser.add_argument("--master", default="local[2]", help="the Spark master to run on")
    return parser.parse_args(arguments)


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not at least 1")
    return value


def say(line: str) -> None:
    """Print a line at once, also into a pipe."""
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
