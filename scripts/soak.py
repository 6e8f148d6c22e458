"""Runs every layer of random checks with fresh seeds for so many minutes; reports to docs/soak.

Owns: which layers, how the time is divided among them, and the report. Does not own: the checks;
each is a command that a person can give too, and a failure prints the one that repeats it.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from benches.write.machine import commit

ROOT = Path(__file__).parents[1]
SIM = ROOT / "rust" / "sim"
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
CARGO = ["cargo", "test", "--workspace", "--release", "--quiet", "--locked"]


@dataclass(frozen=True)
class Layer:
    """A command that is repeated, and what one test that passed in it stands for."""

    name: str
    share: float
    command: list[str]
    settings: dict[str, str] = field(default_factory=dict)
    tries: int = 1
    seed: str | None = "LANCEMEM_SEED"
    folder: Path = ROOT


LAYERS = [
    Layer(
        "random lives of a shard against a map",
        0.10,
        [*CARGO, "--test", "stories", "model::"],
        {"PROPTEST_CASES": "500"},
        tries=500,
        seed=None,
        folder=SIM,
    ),
    Layer(
        "orders of threads and tasks",
        0.08,
        [*CARGO, "--test", "schedules", "--test", "cursors"],
        {"SCHEDULES": "20000"},
        tries=20_000,
        seed=None,
        folder=SIM,
    ),
    Layer(
        "bytes that nobody wrote",
        0.06,
        [*CARGO, "--test", "fuzz"],
        {"FUZZ_CASES": "1000000"},
        tries=1_000_000,
        seed="FUZZ_SEED",
        folder=SIM,
    ),
    Layer(
        "kills behind chosen calls to the file system",
        0.08,
        [*PYTEST, "tests/durability/test_kill_points.py"],
        {"LANCEMEM_POINT_KILLS": "16"},
        tries=16,
    ),
    Layer(
        "kills at random times",
        0.08,
        [*PYTEST, "tests/durability/test_kill.py", "--timeout", "3600"],
        {"LANCEMEM_KILLS": "10"},
        tries=10,
    ),
    Layer(
        "power cuts, about 60 a test",
        0.08,
        [*PYTEST, "tests/durability/test_power_cut.py", "--timeout", "3600"],
        {"LANCEMEM_CUTS": "60"},
        tries=60,
    ),
    Layer(
        "shortages of space, handles, rights, time",
        0.04,
        [*PYTEST, "tests/durability/test_shortage.py"],
    ),
    Layer(
        "takeovers between processes, half of them on an S3 server with a fifth as many",
        0.08,
        [*PYTEST, "tests/takeovers"],
        {"LANCEMEM_TAKEOVERS": "200"},
        tries=120,
    ),
    Layer(
        "lives that lancemem and pylance write in turns",
        0.05,
        [*PYTEST, "tests/test_cross_read_random.py"],
        {"LANCEMEM_LIVES": "60"},
        tries=20,
    ),
    Layer(
        "kills of Spark's executors and of their Python",
        0.10,
        [*PYTEST, "-m", "spark", "tests/spark/test_kills.py", "-k", "executors"],
        {"LANCEMEM_SPARK_KILLS": "10"},
        tries=10,
    ),
]
# What the others leave, at least this.
SHARE_OF_SIMULATION = 0.25


@dataclass
class Row:
    """What became of a layer."""

    name: str
    tries: int
    seconds: float
    failed: str = ""


def run(layer: Layer, seconds: float, seed: int) -> Row:
    """Repeat a layer until its time is over, at least once, or until it fails."""
    started, tries, turn = time.monotonic(), 0, 0
    while turn == 0 or time.monotonic() - started < seconds:
        settings = dict(layer.settings)
        if layer.seed is not None:
            settings[layer.seed] = str(seed + turn)
        done = subprocess.run(  # noqa: S603 - our own tests
            layer.command,
            cwd=layer.folder,
            env=os.environ | settings,
            capture_output=True,
            text=True,
            check=False,
        )
        turn += 1
        if done.returncode != 0:
            given = " ".join(f"{name}={value}" for name, value in settings.items())
            command = " ".join(layer.command).replace(sys.executable, "python")
            again = f"cd {layer.folder.relative_to(ROOT)} && {given} {command}"
            print(done.stdout[-6000:], done.stderr[-2000:], f"again: {again}", sep="\n")
            return Row(layer.name, tries, time.monotonic() - started, again)
        passed = re.findall(r"(?:ok\. |^)(\d+) passed", done.stdout, re.MULTILINE)
        tries += layer.tries * sum(map(int, passed))
    return Row(layer.name, tries, time.monotonic() - started)


def simulate(minutes: float) -> tuple[Row, str]:
    """Live lives of a shard for the rest of the time."""
    program = Path(os.environ["CARGO_TARGET_DIR"], "release", "lancemem-sim")
    started = time.monotonic()
    done = subprocess.run(  # noqa: S603 - our own program
        [str(program), "minutes", str(max(1, round(minutes)))],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    lives = re.match(r"(\d+) lives", done.stdout)
    failed = "" if done.returncode == 0 else "the lines below say which seeds"
    row = Row("lives of the simulation", int(lives[1]) if lives else 0, 0, failed)
    row.seconds = time.monotonic() - started
    return row, done.stdout


def report(rows: list[Row], lives: str, seed: int) -> Path:
    """Write what was tried."""
    tried = commit()
    lines = [
        f"# Soak of {tried}",
        "",
        f"`make soak` on {dt.datetime.now(dt.UTC):%Y-%m-%d}, {os.cpu_count()} processors,",
        f"seeds from {seed}. Without a failure in n tries at most 3/n of all fail (95 %).",
        "",
        "| what | tries | minutes | found |",
        "| --- | ---: | ---: | --- |",
    ]
    lines += [
        f"| {row.name} | {row.tries:,} | {row.seconds / 60:.1f} | {row.failed or 'nothing'} |"
        for row in rows
    ]
    page = ROOT / "docs" / "soak" / f"{tried[:7]}.md"
    page.parent.mkdir(exist_ok=True)
    page.write_text("\n".join([*lines, "", "The simulation:", "", "```", lives.strip(), "```", ""]))
    return page


def main() -> None:
    """Divide the minutes of the command line among the layers."""
    minutes, started = float(sys.argv[1]), time.monotonic()
    seed = int(time.time())
    rows = []
    for layer in LAYERS:
        rows.append(run(layer, layer.share * minutes * 60, seed))
        row = rows[-1]
        print(f"{row.name}: {row.tries:,} in {row.seconds:.0f} s {row.failed}", flush=True)
    left = minutes - (time.monotonic() - started) / 60
    row, lives = simulate(max(left, SHARE_OF_SIMULATION * minutes))
    rows.append(row)
    page = report(rows, lives, seed)
    print(f"{row.name}: {row.tries:,} in {row.seconds:.0f} s\nwrote {page.relative_to(ROOT)}")
    if any(row.failed for row in rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
