"""lancemem's merge engines beside those of Paimon, Delta and Hudi: cases, check and lines.

Owns: the sizes of the cases `partial`, `sum` and `late`, that every table ends with the right rows,
and the lines of the report. Does not own: turns and processes (`peers`), what an engine does
(`merge_engines`).
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from benches.spark import peers

if TYPE_CHECKING:
    from collections.abc import Callable

HEAD = (
    "| case | engine | write | read | write + read | times lancemem's | on disk |",
    f"|{' --- |' * 7}",
)
MODULE = "benches.spark.merge_engines"
# The process whose checksum the others must have.
MODEL = "fold"
NAMES = {
    ("partial", "lancemem"): "lancemem `partial_update`",
    ("partial", "paimon"): "Paimon 0.9.0 `partial-update`",
    ("partial", "delta"): "Delta 4.4.0 `MERGE` that sets two columns",
    ("partial", "hudi"): "Hudi 1.2.0 `MERGE INTO` that sets two columns, merge on read",
    ("sum", "lancemem"): "lancemem `aggregation`",
    ("sum", "paimon"): "Paimon 0.9.0 `aggregation`",
    ("sum", "delta"): "Delta 4.4.0 `MERGE` that sets `t.n + s.n`",
    ("sum", "hudi"): "Hudi 1.2.0 `MERGE INTO` that sets `t.n + s.n`, copy on write",
    ("late", "lancemem"): "lancemem `sequence_by`",
    ("late", "lancemem-jobs"): "lancemem `sequence_by` with running jobs",
    ("late", "keep-newest"): "lancemem `keep_newest`, no rule",
    ("late", "paimon"): "Paimon 0.9.0 `sequence.field`",
    ("late", "hudi"): "Hudi 1.2.0 event time, merge on read",
    ("late", "delta"): "Delta 4.4.0 `MERGE` where `s.ts > t.ts`",
}


def cases(scale: int) -> dict[str, peers.Case]:
    """Name the cases, `scale` times smaller."""
    rows, stream = 10_000_000 // scale, 200 // scale
    titles = {
        "partial": f"{rows:,} rows, 10 x {rows // 5:,} updates of 2 of 4 columns",
        "sum": f"{rows:,} rows, 10 x {rows // 5:,} rows added up in 2 of 4 columns",
        "late": f"{rows // 10:,} rows, {stream} micro-batches of 1,000 rows out of order",
    }
    every: dict[str, list[str]] = {name: [] for name in titles}
    for name, engine in NAMES:
        every[name].append(engine)
    return {
        name: peers.Case(
            title,
            tuple(every[name]),
            rows // 10 if name == "late" else rows,
            stream if name == "late" else 10,
            MODULE,
        )
        for name, title in titles.items()
    }


def measure(name: str, case: peers.Case, rounds: int, minutes: int) -> tuple[list[str], list[str]]:
    """Run the model and the engines in turn; return the lines of the report, and who was wrong."""
    print(f"{name}: {MODEL} ...", flush=True)
    right = peers.run(MODEL, name, case, minutes)["check"]
    found, failed = peers.take_turns(name, case, rounds, minutes)
    return lines(name, case, found, failed, right)


def lines(
    name: str,
    case: peers.Case,
    found: dict[str, list[dict[str, Any]]],
    failed: dict[str, str],
    right: list[int],
) -> tuple[list[str], list[str]]:
    """Return the lines of the report, and the names of engines that showed other rows."""
    ours = found[case.engines[0]]
    made, wrong = [], []
    for engine in case.engines:
        label = NAMES[name, engine]
        if engine in failed:
            made.append(f"| {case.title} | {label} | {failed[engine]} | | | | |")
            continue
        runs = found[engine]
        label += f" (Spark {runs[0]['spark']})"
        others = [run["check"] for run in runs if run["check"] != right]
        if others:
            text = f"wrong rows: {others[0]}, and the model has {right}"
            made.append(f"| {case.title} | {label} | {text} | | | | |")
            wrong.append(f"{name}: {label}")
            continue
        pairs = zip(runs, ours, strict=True)
        share = statistics.median(_both(run) / _both(own) for run, own in pairs)
        cells = (
            case.title,
            label,
            _write(name, runs),
            f"{_middle(runs, _read):.1f} s",
            _spread([_both(run) for run in runs]),
            "" if engine == case.engines[0] else f"{share:.1f} x",
            f"{_middle(runs, _bytes) / 1e6:,.0f} MB",
        )
        made.append(f"| {' | '.join(cells)} |")
    return made, wrong


def _spread(times: list[float]) -> str:
    """Return the median in seconds, and between which times it lies."""
    middle = f"{statistics.median(times):.1f} s"
    return middle if len(times) == 1 else f"{middle} ({min(times):.1f} to {max(times):.1f})"


def _write(name: str, runs: list[dict[str, Any]]) -> str:
    took = f"{_middle(runs, lambda run: float(sum(run['writes']))):.1f} s"
    if name != "late":
        return took
    middle = _middle(runs, lambda run: statistics.median(run["writes"]))
    return f"{took} (p50 {middle * 1e3:.0f} ms)"


def _middle(runs: list[dict[str, Any]], number: Callable[[dict[str, Any]], float]) -> float:
    return statistics.median(map(number, runs))


def _both(run: dict[str, Any]) -> float:
    return float(sum(run["writes"]) + run["read"])


def _read(run: dict[str, Any]) -> float:
    return float(run["read"])


def _bytes(run: dict[str, Any]) -> float:
    return float(run["bytes"])
