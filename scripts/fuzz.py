"""Runs libFuzzer under AddressSanitizer on each decoder of the core for so many seconds.

Owns: the build of `rust/fuzz`, the working corpus in the target folder, and which inputs are kept
in the tree. Does not own: the properties of a decoder (`lancemem_testkit::decoders`).
"""
# ruff: noqa: S603, S607 - it runs cargo and what it has compiled

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "rust" / "fuzz"
KEPT = FOLDER / "corpus"
# Inputs that once broke a property; they are never removed.
FOUND = FOLDER / "found"
TARGETS = sorted(path.stem for path in (FOLDER / "targets").glob("*.rs"))
# Coverage counters for every edge, and traced comparisons, which guide libFuzzer.
COVERAGE = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
]
# A flag of nightly, which RUSTC_BOOTSTRAP=1 permits for the stable compiler.
FLAGS = " ".join(["-Zsanitizer=address", *COVERAGE, "--cfg=fuzzing"])
# Limits on memory and time that no decoder reaches, whatever the bytes.
LIMITS = ["-max_len=8192", "-malloc_limit_mb=8", "-rss_limit_mb=2048", "-timeout=10"]
# No leak detection: a panic that the core turns into an error leaks.
OPTIONS = {"ASAN_OPTIONS": "detect_leaks=0"}


def compiled() -> tuple[Path, Path]:
    """Build all targets; return the folder of the programs, and a folder for their findings."""
    folder = Path(os.environ["CARGO_TARGET_DIR"], "fuzz")
    version = subprocess.run(["rustc", "-vV"], capture_output=True, text=True, check=True).stdout
    host = version.partition("host: ")[2].split()[0]
    # For a named target cargo leaves build scripts and macros without the flags.
    subprocess.run(
        ["cargo", "build", "--release", "--locked", "--quiet", "--target", host],
        cwd=FOLDER,
        env=os.environ
        | {"CARGO_TARGET_DIR": str(folder), "RUSTC_BOOTSTRAP": "1", "RUSTFLAGS": FLAGS},
        check=True,
    )
    return folder / host / "release", folder


def fuzz(target: str, seconds: int, programs: Path, folder: Path) -> bool:
    """Fuzz a decoder for inputs that reach new edges."""
    corpus, found = folder / "corpus" / target, folder / "found" / target
    for path in (corpus, found):
        path.mkdir(parents=True, exist_ok=True)
    program = programs / target
    done = subprocess.run(
        [str(program), str(corpus), *_kept(target), f"-max_total_time={seconds}", *LIMITS,
         "-print_final_stats=1", f"-artifact_prefix={found}/"],
        env=os.environ | OPTIONS | {"LANCEMEM_FUZZ_EXAMPLES": str(corpus)},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    if done.returncode != 0:
        written = re.search(r"Test unit written to (\S+)", done.stderr)
        print(done.stderr[-6000:])
        print(f"FAILED: {target}; again: {program} {written[1] if written else ''}")
        print(f"keep the input in rust/fuzz/found/{target}, under a name that says what it found")
        return False
    inputs = int(re.findall(r"number_of_executed_units: (\d+)", done.stderr)[-1])
    reached = re.findall(r"cov: (\d+)", done.stderr)
    print(f"{target}: {inputs:,} inputs, {reached[-1] if reached else 0} edges reached", flush=True)
    return True


def keep(target: str, programs: Path, folder: Path) -> None:
    """Replace the inputs in the tree by a minimal set that reaches the same edges."""
    with tempfile.TemporaryDirectory() as fewest:
        subprocess.run(
            [str(programs / target), "-set_cover_merge=1", "-use_counters=0", "-max_len=8192",
             fewest, str(folder / "corpus" / target), *_kept(target)],
            env=os.environ | OPTIONS,
            capture_output=True,
            check=True,
        )  # fmt: skip
        kept = KEPT / target
        kept.mkdir(parents=True, exist_ok=True)
        for path in kept.iterdir():
            path.unlink()
        for path in Path(fewest).iterdir():
            (kept / path.name[:16]).write_bytes(path.read_bytes())
        print(f"{target}: {len(list(kept.iterdir()))} inputs kept")


def _kept(target: str) -> list[str]:
    return [str(path / target) for path in (KEPT, FOUND) if (path / target).is_dir()]


def main() -> None:
    """Fuzz the decoders, as many in parallel as there are processors."""
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("seconds", type=int)
    parser.add_argument("--turns", type=int, default=1, help="how often each decoder has its turn")
    parser.add_argument("--keep", action="store_true", help="keep what reaches more in the tree")
    given = parser.parse_args()
    programs, folder = compiled()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        # One queue, so that no processor waits for the others.
        queue = TARGETS * given.turns
        tried = [pool.submit(fuzz, target, given.seconds, programs, folder) for target in queue]
        passed = sum(run.result() for run in tried)
    print(f"{passed} passed, {given.seconds} s each")
    if passed < len(queue):
        sys.exit(1)
    if given.keep:
        for target in TARGETS:
            keep(target, programs, folder)


if __name__ == "__main__":
    main()
