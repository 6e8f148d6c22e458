"""A test that drew from a seed and failed prints a command that repeats it.

Owns: the printed line, checked in separate pytest runs. Does not own: what is drawn.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benches.write.machine import commit

ROOT = Path(__file__).parents[1]
TESTS = """
import os
import random

import pytest

from tests.seeds import seed

def drawn():
    return random.Random(seed() + os.environ.get("LANCEMEM_LIVES", "")).random()

@pytest.mark.slow
@pytest.mark.parametrize("name", ["two words"])
def test_that_fails(name):
    assert drawn() < 0

@pytest.fixture
def broken():
    assert drawn() < 0

def test_of_a_fixture_that_fails(broken):
    pass

def test_that_passes():
    assert drawn() >= 0

def test_that_draws_nothing():
    assert False

def test_that_hangs():
    drawn()
    __import__("time").sleep(60)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a folder with tests."""
    (tmp_path / "test_them.py").write_text(TESTS)
    return tmp_path


def run(command: str, folder: Path, **variables: str) -> str:
    """Run a command with this tree's settings, and only the variables that are passed."""
    without = {name: value for name, value in os.environ.items() if "LANCEMEM_" not in name}
    # Captured output is left out: the lines are searched below the failures.
    settings = "-p tests.conftest -p no:cacheprovider --tb=short --show-capture=no"
    places = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "PYTEST_ADDOPTS": f"-c {ROOT / 'pyproject.toml'} --rootdir {folder} {settings}",
    }
    done = subprocess.run(  # noqa: S602 - as a person would paste it
        command,
        shell=True,
        cwd=folder,
        env=without | places | variables,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


def again(told: str) -> list[str]:
    """Give the commands that repeat what has failed."""
    return re.findall(r"^again: (.*)$", told, re.MULTILINE)


def drawn(told: str) -> set[str]:
    """Give what the tests that failed drew."""
    return set(re.findall(r"assert (0\.\d+) < 0", told))


def test_each_test_that_drew_and_failed_ends_with_a_command_that_draws_the_same(
    folder: Path,
) -> None:
    settings = {"LANCEMEM_SEED": "7", "LANCEMEM_LIVES": "3"}
    told = run("python -m pytest test_them.py -m '' -k 'not hangs'", folder, **settings)
    lines = again(told)
    assert [line.rpartition("  # commit ")[0] for line in lines] == [
        f"LANCEMEM_SEED=7 LANCEMEM_LIVES=3 python -m pytest -m '' {name}"
        for name in (
            "'test_them.py::test_that_fails[two words]'",
            "test_them.py::test_of_a_fixture_that_fails",
        )
    ]
    assert all(line.rpartition("  # commit ")[2].startswith(commit()[:7]) for line in lines)
    assert len(drawn(told)) == 1
    for line in lines:
        assert drawn(run(line, folder)) == drawn(told)


def test_the_seed_is_printed_where_none_was_given(folder: Path) -> None:
    [line] = again(run("python -m pytest test_them.py -m slow", folder))
    assert line.startswith("LANCEMEM_SEED=0 python -m pytest -m '' 'test_them.py::")


def test_a_test_that_is_out_of_time_has_told_its_seed_before(folder: Path) -> None:
    command = "python -m pytest test_them.py -k hangs --timeout 10"
    [line] = again(run(command, folder, LANCEMEM_SEED="7"))
    assert line.startswith(
        "LANCEMEM_SEED=7 python -m pytest -m '' test_them.py::test_that_hangs  #"
    )
