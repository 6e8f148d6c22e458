"""`python -m lancemem`: the plain commands, and those of the console script beside them.

Owns: streams that cannot be written. Does not own: the commands (`plain_commands`, `cli`).
"""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

from lancemem import plain_commands
from lancemem.cli import program
from lancemem.plain_commands import FAILED, main

__all__ = ["main"]


def _program() -> int:
    # Output that cannot be written must not change the exit code: a closed stream, or a character
    # that the encoding lacks.
    sys.stdout = sys.stdout or Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    # Scripts call the plain commands this way: their text and their questions stay as they are.
    is_plain = sys.argv[1:2] and sys.argv[1] in plain_commands.COMMANDS
    code = main() if is_plain else program()
    try:
        sys.stdout.flush()
    except OSError:
        # Python flushes the rest at exit: it would fail again, with an exit code of its own.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    return code


if __name__ == "__main__":
    sys.exit(_program())
