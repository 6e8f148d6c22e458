"""What a session of Spark needs of the machine: PySpark, and one environment for driver and tasks.

Owns: the words of a missing PySpark, and which `PYSPARK_PYTHON` is warned of. Not here: tasks under
another release (tests/spark/test_task_errors.py).
"""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

WITHOUT_PYSPARK = """
import sys
sys.modules["pyspark"] = None
import lancemem.spark
"""


def test_a_missing_pyspark_is_named_with_the_extra() -> None:
    command = [sys.executable, "-c", WITHOUT_PYSPARK]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)  # noqa: S603
    assert ended.returncode == 1
    last = ended.stderr.strip().splitlines()[-1]
    assert last.startswith("ModuleNotFoundError: lancemem.spark needs PySpark and Java 17")
    assert "pip install 'lancemem[spark]'" in last


@pytest.fixture
def python_of_tasks(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    pytest.importorskip("pyspark")
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    yield monkeypatch
    os.environ.pop("PYSPARK_PYTHON", None)


def test_another_spelling_of_the_same_environment_is_no_reason_for_a_warning(
    python_of_tasks: pytest.MonkeyPatch,
) -> None:
    from lancemem.spark import session  # noqa: PLC0415 - it needs pyspark

    here = Path(sys.executable)
    spelled = here.parent / ".." / here.parent.name / here.name
    python_of_tasks.setenv("PYSPARK_PYTHON", str(spelled))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session._settle_task_python()


def test_another_environment_is_warned_of(
    python_of_tasks: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from lancemem.spark import session  # noqa: PLC0415 - as above

    other = tmp_path / "bin" / "python"
    other.parent.mkdir()
    other.symlink_to(sys.executable)
    python_of_tasks.setenv("PYSPARK_PYTHON", str(other))
    with pytest.warns(UserWarning, match="is not the environment of"):
        session._settle_task_python()
