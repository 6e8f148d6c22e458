"""A process without space, handles, permission or right time loses no row and recovers by itself.

Owns: starting the child that runs each story. Does not own: the stories (`shortage`), kills and
power cuts.
"""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from tests import seeds

from .children import TABLE, TIMEOUT_SECONDS, command, environment
from .conftest import compiled
from .shortage import STORIES

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the library that withholds resources."""
    return compiled("shortage", tmp_path_factory.mktemp("shortage"))


@pytest.mark.parametrize("name", STORIES)
def test_a_shortage_is_an_error_that_says_so_and_passes(
    name: str, library: Path, tmp_path: Path
) -> None:
    more = {"LD_PRELOAD": str(library), "SHORTAGE_ROOT": str(tmp_path)}
    ended = subprocess.run(  # noqa: S603 - our own program
        command("shortage", name, str(tmp_path / TABLE)),
        env=environment(more | {seeds.VARIABLE: seeds.seed()}),
        timeout=TIMEOUT_SECONDS,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
