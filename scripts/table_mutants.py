"""Puts each known bug of reads and compaction back; the report goes to out/table-mutants.md.

Owns: the list of the engine's bugs, the test that is named after each, and the random programs that
must fail too. Does not own: the code of the bugs (`mutant!`), or the bugs of the core
(`mutants.sh`). Exits with 1 where a bug is not caught.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import NamedTuple

from benches.write.machine import commit

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "out" / "table-mutants.md"
TIMEOUT_SECONDS = 600
PROGRAMS = {
    "reads": "tests/test_model.py::test_a_table_agrees_with_a_dict_after_any_program",
    "maintenance": "tests/test_compaction_model.py::test_no_maintenance_changes_what_a_reader_sees",
}


class Bug(NamedTuple):
    """A bug: its description, the test of its name, and why random programs cannot show it."""

    what: str
    story: str
    unseen: str = ""


BUGS = {
    "B14": Bug(
        "a compaction commits although another has moved its SSTables",
        "test_compaction.py::test_two_compactors_lose_nothing_and_duplicate_nothing",
    ),
    "B15": Bug(
        "a compaction is committed behind versions that it was not planned for",
        "test_compaction.py::"
        "test_rows_that_pylance_deletes_between_planning_and_commit_stay_deleted",
    ),
    "B16": Bug(
        "a compaction leaves the older row of a key in the base",
        "test_compaction_model.py::test_the_rows_of_the_base_are_the_rows_of_the_table",
    ),
    "B17": Bug(
        "a row or a tombstone of a newer SSTable hides none of an older one that moves with it",
        "test_compaction.py::test_one_generation_or_many_give_the_same_table",
    ),
    "B18": Bug(
        "a condition is asked before the newest row of a key is chosen",
        "test_filters.py::test_a_condition_that_only_a_superseded_row_meets_finds_nothing",
    ),
    "B19-run": Bug(
        "no check of the checksums of an SSTable's files",
        "test_damaged_runs.py::test_a_damaged_file_of_a_run_is_reported_and_never_compacted",
        "the flips of 90 programs are refused by the decoder or change no row",
    ),
    "B19-kept": Bug(
        "what was read of an SSTable before its files were compared is written down after it",
        "test_damaged_runs.py::"
        "test_what_was_read_of_a_damaged_run_is_forgotten_when_its_file_is_brought_back",
        "no program writes down what it reads of a damaged SSTable",
    ),
}


def build(folder: Path) -> Path:
    """Build the module with all bugs in it, disabled, and unpack it."""
    command = [str(ROOT / "scripts" / "build_module.sh"), "--mutants", str(folder)]
    subprocess.run(command, check=True, cwd=ROOT)  # noqa: S603 - our own script
    [wheel] = folder.glob("*.whl")
    module = folder / "module"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(module)
    return module


def failures(module: Path, mutant: str, *tests: str) -> int:
    """Count the tests that fail with a bug enabled; a test that hangs counts as failed."""
    # A test that hangs would end pytest without a count.
    options = ["-q", "-p", "no:cacheprovider", "--timeout=0"]
    options.append("--hypothesis-profile=first-failure")
    command = [sys.executable, "-m", "pytest", *options, *tests]
    environment = os.environ | {"LANCEMEM_MUTANT": mutant, "PYTHONPATH": str(module)}
    try:
        done = subprocess.run(  # noqa: S603 - our own tests
            command,
            cwd=ROOT,
            env=environment,
            timeout=TIMEOUT_SECONDS,
            capture_output=True,
            text=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return len(tests)
    failed = re.search(r"(\d+) failed", done.stdout)
    if failed is None and done.returncode != 0:
        sys.exit(f"the tests did not run: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return int(failed[1]) if failed else 0


def write_page(rows: list[str]) -> None:
    """Write the report."""
    text = f"""\
# Mutants of reads and compaction

`make table-mutants` at commit {commit()}: each bug of the engine, enabled alone in a
module with the feature `mutants`. *Programs* are the random ones of `tests/test_model.py` (reads)
and `tests/test_compaction_model.py` (maintenance): the kinds of which some fail.

| switch | bug | programs | its story |
| --- | --- | --- | --- |
"""
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(text + "\n".join(rows) + "\n")


def main() -> None:
    """Try every bug."""
    survived, rows = [], []
    with tempfile.TemporaryDirectory() as folder:
        module = build(Path(folder))
        already = failures(module, "", *(f"tests/{bug.story}" for bug in BUGS.values()))
        if already:
            sys.exit(f"{already} of the stories fail although no bug is awake")
        for name, bug in BUGS.items():
            caught = failures(module, name, f"tests/{bug.story}") > 0
            kinds = [kind for kind, test in PROGRAMS.items() if failures(module, name, test) > 0]
            found = ", ".join(kinds) or f"none: {bug.unseen}"
            print(f"{name}: its story {'fails' if caught else 'PASSES'}; programs: {found}")
            if not caught or not (kinds or bug.unseen):
                survived.append(name)
            rows.append(f"| {name} | {bug.what} | {found} | `tests/{bug.story}` |")
    write_page(rows)
    if survived:
        sys.exit(f"not caught: {', '.join(survived)}")


if __name__ == "__main__":
    main()
