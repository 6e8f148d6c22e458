"""The seed of the tests that draw from one, and the command that runs such a test again.

Owns: `LANCEMEM_SEED`, and which tests have asked for it. Does not own: what a test draws, or the
end of a run, where the commands of failed tests are printed (conftest).
"""

from __future__ import annotations

import os
import shlex

VARIABLE = "LANCEMEM_SEED"
# Variables with this prefix set how much a test tries, and so change what it draws.
PREFIX = "LANCEMEM_"
# When `make` began.
OF_NO_TEST = "LANCEMEM_STARTED"

_again: dict[str, str] = {}


def seed() -> str:
    """Give the seed to the test that runs."""
    used = os.environ.get(VARIABLE, "0")
    test = os.environ["PYTEST_CURRENT_TEST"].rpartition(" (")[0]
    if test not in _again:
        _again[test] = _command(test, used)
        # A test that times out ends pytest: only what it has printed is seen then.
        print(_again[test])  # noqa: T201
    return used


def again(test: str) -> str | None:
    """Give the command that repeats a test, if it has asked for the seed."""
    return _again.get(test)


def _command(test: str, used: str) -> str:
    # Imported late: it loads the extension, which tests without a seed may not have.
    from benches.write.machine import commit  # noqa: PLC0415

    others = {VARIABLE, OF_NO_TEST}
    more = {
        name: value
        for name, value in sorted(os.environ.items())
        if name.startswith(PREFIX) and name not in others
    }
    given = " ".join(
        f"{name}={shlex.quote(value)}" for name, value in ({VARIABLE: used} | more).items()
    )
    # `-m ''` lifts the choice of markers in pyproject.toml, which could leave the test out.
    return f"again: {given} python -m pytest -m '' {shlex.quote(test)}  # commit {commit()}"
