"""lancemem beside Delta, Hudi, Paimon and pylance, each in a process and a Spark of its own.

Owns: which engine runs under which release of Spark, turn after turn, and the lines of the report.
Does not own: what an engine does (`engines`). An engine that cannot be run is named with the
reason, and the others go on.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Releases of Spark that `make bench-spark` puts beside the one of .venv.
SPARKS = {
    "lancemem": "4.1.0",
    "lancemem-jobs": "4.1.0",
    "lancemem-feed": "4.1.0",
    "delta-feed": "4.1.0",
    "keep-newest": "4.1.0",
    "fold": "4.1.0",
    "collect": "4.1.0",
    "pylance": "4.1.0",
    "delta": "4.1.0",
    "hudi": "3.5.9",
    "paimon": "3.5.9",
}
NAMES = {
    "lancemem": "lancemem",
    "lancemem-jobs": "lancemem with running jobs",
    "lancemem-feed": 'lancemem, `changelog="stored"`',
    "delta-feed": "Delta 4.4.0 `MERGE` with its change data feed",
    "collect": "Spark alone: the rows are collected and dropped",
    "pylance": "pylance 14.0.2 `merge_insert` in the driver",
    "delta": "Delta 4.4.0 `MERGE`",
    "hudi": "Hudi 1.2.0, merge on read",
    "paimon": "Paimon 0.9.0",
}
_PARTS = ("lay", "upserts", "read")


@dataclass
class Case:
    """One case: its engines, its size, and the figure that counts."""

    title: str
    engines: tuple[str, ...]
    rows: int
    batches: int
    # What runs one engine.
    module: str = "benches.spark.engines"


def cases(scale: int) -> dict[str, Case]:
    """Name the cases, `scale` times smaller."""
    rows, some = 10_000_000 // scale, ("lancemem", "lancemem-jobs", "collect", "pylance", "delta")
    every = ("lancemem", "delta", "hudi", "paimon")
    return {
        "micro": Case(f"micro-batch of 1,000 rows into {rows:,}, p50", some, rows, 15),
        "writers": Case(
            f"4 writers, {100 // scale} batches of 1,000 rows each, into {rows // 10:,}",
            some,
            rows // 10,
            100 // scale,
        ),
        "load": Case(f"{rows:,} rows, 10 upserts of {rows // 5:,}, a full read", every, rows, 10),
        "changes": Case(
            f"{rows // 5:,} rows, 10 commits of {rows // 50:,} updates, their changes read once",
            ("lancemem-feed", "delta-feed"),
            rows // 5,
            10,
        ),
    }


def measure(name: str, case: Case, rounds: int, minutes: int) -> list[str]:
    """Run the engines, and return the lines of the report."""
    found, failed = take_turns(name, case, rounds, minutes)
    ours = _cost(name, found[case.engines[0]])
    lines = []
    for engine in case.engines:
        if engine in failed:
            lines.append(f"| {case.title} | {NAMES[engine]} | {failed[engine]} | |")
            continue
        runs = found[engine]
        share = "" if engine == case.engines[0] else f"{_cost(name, runs) / ours:.1f} x"
        label = f"{NAMES[engine]} (Spark {runs[0]['spark']})"
        lines.append(f"| {case.title} | {label} | {_text(name, runs)} | {share} |")
    return lines


def take_turns(
    name: str, case: Case, rounds: int, minutes: int
) -> tuple[dict[str, list[dict[str, Any]]], dict[str, str]]:
    """Run the engines in turn, each with a time limit; one that failed is not run again.

    Args:
        name: The case, as the command line has it.
        case: Its engines and its size.
        rounds: How often each engine runs.
        minutes: The limit of one run.

    Returns:
        What each engine printed, round by round, and why the others have no result.

    Raises:
        RuntimeError: The first engine failed: without it the case has no comparison.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    failed: dict[str, str] = {}
    for _ in range(rounds):
        for engine in case.engines:
            if engine in failed:
                continue
            print(f"{name}: {engine} ...", flush=True)
            try:
                found.setdefault(engine, []).append(run(engine, name, case, minutes))
            except RuntimeError as error:
                if engine == case.engines[0]:
                    raise
                failed[engine] = str(error)
    return found, failed


def _cost(name: str, runs: list[dict[str, Any]]) -> float:
    """Seconds of a run, the median of the rounds."""
    return statistics.median(_seconds(name, run) for run in runs)


def _seconds(name: str, run: dict[str, Any]) -> float:
    if name == "micro":
        return float(statistics.median(run["seconds"]))
    return float(run["seconds"] if name == "writers" else run["upserts"] + run["read"])


def _text(name: str, runs: list[dict[str, Any]]) -> str:
    cost = _cost(name, runs)
    if name == "micro":
        return f"{cost * 1e3:.0f} ms"
    if name == "writers":
        return f"{cost:.1f} s, {sum(run['refused'] for run in runs)} refused"
    parts = (f"{part} {statistics.median(run[part] for run in runs):.1f}" for part in _PARTS)
    return f"{cost:.1f} s ({', '.join(parts)})"


def run(engine: str, name: str, case: Case, minutes: int) -> dict[str, Any]:
    """Run one engine in one case, in a process of its own.

    Args:
        engine: The engine, as the command line has it.
        name: The case, likewise.
        case: Its size, and the module that runs it.
        minutes: The limit.

    Returns:
        What the process printed.

    Raises:
        RuntimeError: The process failed or was not done in time; the reason, for the report.
    """
    release = SPARKS[engine]
    folder = f".venv/pyspark-{release}"
    environment = {**os.environ, "PYTHONPATH": folder, "PYSPARK_PYTHON": sys.executable}
    with tempfile.TemporaryDirectory() as place:
        command = [sys.executable, "-m", case.module, engine, name, place]
        command += ["--rows", str(case.rows), "--batches", str(case.batches)]
        try:
            done = subprocess.run(  # noqa: S603 - our own interpreter
                command,
                check=False,
                capture_output=True,
                text=True,
                env=environment,
                timeout=minutes * 60,
            )
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"not done after {minutes} minutes") from None
    if done.returncode:
        raise RuntimeError(f"not run: {_reason(done.stderr)}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _reason(errors: str) -> str:
    """Find the line with the reason, without folders."""
    lines = [line.strip() for line in errors.splitlines() if "Error" in line or "Exception" in line]
    last = lines[-1] if lines else "no error was printed"
    return last.replace("|", "/").replace(str(Path.cwd()), ".")[:160]
