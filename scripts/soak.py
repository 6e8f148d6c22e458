"""Runs layers of random checks with fresh seeds for so many minutes; reports to out/soak.

Owns: which layers, and how the time is divided among them. Does not own: the checks, or the report
and the totals in docs/soak (`soak_pages`). Each check is a command that a person can run too; a
failure prints the command that repeats it.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from scripts import soak_pages
from scripts.soak_pages import Row

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[1]
SIM = ROOT / "rust" / "sim"
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
POWER_CUTS = [f"tests/durability/test_power_cut{which}.py" for which in ("", "_drawn")]
CARGO = ["cargo", "test", "--workspace", "--release", "--quiet", "--locked"]
# The simulation is compiled with its own flags, so in its own folder (Makefile).
SIM_TARGET = Path(os.environ.get("CARGO_TARGET_DIR", "target"), "sim")


@dataclass(frozen=True)
class Layer:
    """A command that is repeated, and the number of tries that one passed test counts for.

    A layer ends when its part of the time is over, or at as many tries as a soak wants.
    """

    name: str
    share: float
    command: list[str]
    settings: dict[str, str] = field(default_factory=dict)
    tries: int = 1
    seed: str | None = "LANCEMEM_SEED"
    folder: Path = ROOT


LAYERS = [
    Layer(
        "model",
        0.05,
        [*CARGO, "--tests", "--", "--ignored", "model::"],
        seed=None,
        folder=SIM,
    ),
    Layer(
        "map",
        0.10,
        [*CARGO, "--test", "stories", "model::"],
        {"PROPTEST_CASES": "500"},
        tries=500,
        seed=None,
        folder=SIM,
    ),
    Layer(
        "schedules",
        0.08,
        [*CARGO, "--test", "schedules", "--test", "cursors"],
        {"SCHEDULES": "20000"},
        tries=20_000,
        seed=None,
        folder=SIM,
    ),
    Layer(
        "fuzz",
        0.06,
        [sys.executable, "-m", "scripts.fuzz", "60", "--turns", "4"],
        seed=None,
    ),
    Layer(
        "damage",
        0.04,
        [*CARGO, "--test", "stories", "damage_everywhere::"],
        {"LANCEMEM_POSITIONS": "all"},
        seed=None,
        folder=SIM,
    ),
    Layer(
        "damaged-runs",
        0.04,
        [*CARGO, "--tests", "--", "sstable::tests::damage::damage_anywhere"],
        {"LANCEMEM_POSITIONS": "all"},
        seed=None,
    ),
    Layer(
        "damaged-files",
        0.04,
        [
            *PYTEST,
            "tests/test_damaged_files.py",
            "tests/test_damaged_writes.py",
            "--timeout",
            "3600",
        ],
        {"LANCEMEM_POSITIONS": "all"},
        seed=None,
    ),
    Layer(
        "kill-points",
        0.08,
        [*PYTEST, "tests/durability/test_kill_points.py"],
        {"LANCEMEM_POINT_KILLS": "16"},
        tries=16,
    ),
    Layer(
        "kills",
        0.08,
        [*PYTEST, "tests/durability/test_kill.py", "--timeout", "3600"],
        {"LANCEMEM_KILLS": "20"},
        tries=20,
    ),
    Layer(
        "cuts",
        0.08,
        [*PYTEST, *POWER_CUTS, "--timeout", "3600"],
        {"LANCEMEM_CUTS": "60"},
        tries=60,
    ),
    Layer(
        "shortages",
        0.04,
        [*PYTEST, "tests/durability/test_shortage.py"],
    ),
    Layer(
        "takeovers",
        0.08,
        [*PYTEST, "tests/takeovers/test_takeovers.py"],
        {"LANCEMEM_TAKEOVERS": "200"},
        # The mean of both tests: 200 on a file system, and a fifth of that on an S3 server.
        tries=120,
    ),
    Layer(
        "cross-read",
        0.05,
        [*PYTEST, "tests/test_cross_read_random.py"],
        {"LANCEMEM_LIVES": "60"},
        tries=20,
    ),
    Layer(
        "spark-kills",
        0.10,
        [*PYTEST, "-m", "spark", "tests/spark/test_kills.py", "-k", "executors"],
        {"LANCEMEM_SPARK_KILLS": "10"},
        tries=10,
    ),
]
SIMULATION = "simulation"


def run(layer: Layer, row: Row, seconds: float, seed: int) -> None:
    """Repeat a layer at least once, until its time is over, it fails, or it has enough tries."""
    started, turn = time.monotonic(), 0
    while turn == 0 or not (row.seconds >= seconds or is_enough(row)):
        settings = dict(layer.settings)
        if layer.seed is not None:
            settings[layer.seed] = str(seed + turn)
        folder = {"CARGO_TARGET_DIR": str(SIM_TARGET)} if layer.folder == SIM else {}
        done = _done(layer, os.environ | settings | folder)
        turn += 1
        row.seconds = time.monotonic() - started
        if done.returncode != 0:
            given = " ".join(f"{name}={value}" for name, value in settings.items())
            command = " ".join(layer.command).replace(sys.executable, "python")
            row.failed = f"cd {layer.folder.relative_to(ROOT)} && {given} {command}"
            print(done.stdout[-6000:], done.stderr[-2000:], f"again: {row.failed}", sep="\n")
            return
        passed = re.findall(r"(?:ok\. |^)(\d+) passed", done.stdout, re.MULTILINE)
        row.tries += layer.tries * sum(map(int, passed))


def _done(layer: Layer, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a layer's command once. Its child processes end with it when the soak is stopped."""
    with subprocess.Popen(  # noqa: S603 - our own tests
        layer.command,
        cwd=layer.folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            out, error = process.communicate()
        except KeyboardInterrupt:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(layer.command, process.returncode, out, error)


def is_enough(row: Row) -> bool:
    """Whether the layer has as many tries as a soak wants."""
    return row.tries >= soak_pages.WANTED[row.name].tries


class Simulation:
    """Simulated lives of a shard, on the processor time that the other layers leave."""

    def __init__(self, minutes: float) -> None:
        """Start the simulation for so many minutes; `end` waits for it."""
        program = SIM_TARGET / "soak" / "lancemem-sim"
        self._report = tempfile.TemporaryFile("w+")  # noqa: SIM115 - it is open until the end
        self._process = subprocess.Popen(  # noqa: S603 - our own program
            ["nice", "-n", "19", str(program), "minutes", str(max(1, round(minutes)))],  # noqa: S607
            cwd=ROOT,
            stdout=self._report,
        )

    def end(self) -> tuple[Row, str]:
        """Wait for the end of its time; return the result and the report."""
        self._process.wait()
        self._report.seek(0)
        report = self._report.read()
        lives = re.search(r"^(\d+) lives .*?([\d.]+) s,", report, re.MULTILINE)
        failed = "" if self._process.returncode == 0 else "the lines below say which seeds"
        count, seconds = (int(lives[1]), float(lives[2])) if lives else (0, 0.0)
        return Row(SIMULATION, count, seconds, failed), report

    def kill(self) -> None:
        """End it together with the soak."""
        self._process.kill()


def _arguments() -> argparse.Namespace:
    names = [*(layer.name for layer in LAYERS), SIMULATION]
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("minutes", type=float)
    parser.add_argument("--only", nargs="*", choices=names, default=[], metavar="LAYER",
                        help=f"of {', '.join(names)}")  # fmt: skip
    return parser.parse_args()


def main() -> None:
    """Run the layers one after the other, and the simulation beside them; write the page."""
    chosen = _arguments()
    is_simulated = not chosen.only or SIMULATION in chosen.only
    simulation = Simulation(chosen.minutes) if is_simulated else None
    rows: list[Row] = []
    seed, lives = int(time.time()), ""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        run_all(chosen, seed, rows)
        if simulation is not None:
            row, lives = simulation.end()
            rows.append(row)
            say(row)
    except KeyboardInterrupt:
        print("stopped: the page has what was tried until now, without the simulation")
    finally:
        if simulation is not None:
            simulation.kill()
    page = soak_pages.write(rows, lives, seed)
    print(f"wrote {page.relative_to(ROOT)}")
    if any(row.failed for row in rows):
        sys.exit(1)


def run_all(chosen: argparse.Namespace, seed: int, rows: list[Row]) -> None:
    """Divide the minutes among the layers; the later ones get the time that a layer leaves."""
    started = time.monotonic()
    layers = [layer for layer in LAYERS if not chosen.only or layer.name in chosen.only]
    shares = sum(layer.share for layer in layers)
    for layer in layers:
        left = chosen.minutes * 60 - (time.monotonic() - started)
        rows.append(Row(layer.name, 0, 0))
        run(layer, rows[-1], max(0.0, left * layer.share / shares), seed)
        shares -= layer.share
        say(rows[-1])


def say(row: Row) -> None:
    """Print the result of a layer."""
    print(f"{row.name}: {row.tries:,} in {row.seconds:.0f} s {row.failed}", flush=True)


if __name__ == "__main__":
    main()
