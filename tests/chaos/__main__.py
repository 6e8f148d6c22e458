"""`make chaos`: rounds in sequence, each in its own process.

Owns: the command line, and `clock.c`, which shifts the clocks of processes. Does not own: a round
(`rounds`).
"""

from __future__ import annotations

import argparse
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SECONDS = 12.0
# The processes of a round are forked before any of them starts the engine.
QUIET = "ignore:lance is not fork-safe"
HERE = Path(__file__).parent
TOP = HERE.parents[1]
# The name of this package, however the tests import it.
PROGRAM = "tests.chaos"
# A round, its final check and the processes that end late.
ROUND_TIMEOUT_SECONDS = 900


def compiled_clock(folder: Path) -> Path:
    """Compile the library that shifts a process's clock."""
    library = folder / "clock.so"
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise FileNotFoundError("the chaos tests need a C compiler: cc or gcc")
    subprocess.run(  # noqa: S603 - the compiler of the machine, and a file of ours
        [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(HERE / "clock.c"), "-ldl"],
        check=True,
    )
    return library


def run(seed: str, seconds: float, folder: Path, clock: Path) -> subprocess.CompletedProcess[str]:
    """Run one round in a process of its own."""
    return subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-W", QUIET, "-m", PROGRAM, "--one", seed, str(seconds), str(folder)],
        env=os.environ | {"LD_PRELOAD": str(clock), "LANCE_LOG": "error"},
        cwd=TOP,
        capture_output=True,
        text=True,
        timeout=ROUND_TIMEOUT_SECONDS,
        check=False,
    )


def _one(seed: str, seconds: str, folder: str) -> int:
    from .rounds import Round  # noqa: PLC0415 - only the process of a round loads the engine

    outcome = Round(seed, float(seconds), Path(folder)).run()
    print(outcome)  # noqa: T201
    for what, count in sorted(outcome.counts.items()):
        print(f"    {what}: {count}")  # noqa: T201
    return 1 if outcome.faults else 0


def main(arguments: list[str]) -> int:
    """Run rounds and return the number of rounds that found a fault."""
    if arguments[:1] == ["--one"]:
        return _one(*arguments[1:])
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--seed", help="of the first round; the others follow from it")
    parser.add_argument("--verbose", action="store_true", help="print what each role counted")
    told = parser.parse_args(arguments)
    first = told.seed or secrets.token_hex(4)
    folder = TOP / "out" / "chaos"
    failed = 0
    with tempfile.TemporaryDirectory() as temporary:
        clock = compiled_clock(Path(temporary))
        for number in range(told.rounds):
            seed = first if number == 0 else f"{first}-{number}"
            ended = run(seed, told.seconds, folder / seed, clock)
            failed += ended.returncode != 0
            shown = (
                ended.stdout if told.verbose or ended.returncode else ended.stdout.split("\n")[0]
            )
            print(shown.rstrip(), ended.stderr[-2_000:], sep="\n", flush=True)  # noqa: T201
    print(f"{told.rounds - failed} passed, {failed} failed")  # noqa: T201
    return min(failed, 100)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
