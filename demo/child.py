"""A second process of a demo, spoken to by lines.

Owns: the start of a module of this package under this Python, the lines that go there and come
back, and its end. Does not own: what the lines mean.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


class Child:
    """The process; `end` ends it."""

    def __init__(self, module: str, *arguments: str, called: str, patience: float) -> None:
        """Start a module.

        Args:
            module: The name of the module, such as "demo.freshness".
            arguments: The arguments of its command line.
            called: The name of the process in the text of an error.
            patience: Seconds that it has for its end, before it is killed.
        """
        self._called, self._patience = called, patience
        self._process = subprocess.Popen(  # noqa: S603 - a module of this tree
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[1],
        )

    def end(self) -> None:
        """Close its input, and wait for its end."""
        try:
            self._process.communicate(timeout=self._patience)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def tell(self, line: str) -> None:
        """Write a line to the process."""
        if self._process.stdin is None:
            raise RuntimeError(f"{self._called} has no input")
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def hear(self) -> str:
        """Return the next line of the process."""
        line = "" if self._process.stdout is None else self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._called} ended early; its error is above")
        return line.strip()


def say(line: str) -> None:
    """Write a line to the process that started this one."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
