"""The console script `lancemem`.

Owns: which of two programs runs: the commands on Typer and Rich (`lancemem[cli]`), or the plain
ones of `python -m lancemem`, which need no other package. Does not own: the commands.
"""

from __future__ import annotations

import sys

from lancemem import plain_commands

__all__ = ["program"]

# Packages of the extra `cli`.
_NEEDED = ("typer", "rich")


def program() -> int:
    """Run the command that `sys.argv` names, and return its exit code."""
    arguments = sys.argv[1:]
    try:
        from lancemem.cli.app import run  # noqa: PLC0415 - its packages may be missing
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] not in _NEEDED:
            raise
        return _without_the_extra(arguments)
    return run(arguments)


def _without_the_extra(arguments: list[str]) -> int:
    """Run a plain command, and name the way to the others."""
    if arguments and (arguments[0] in plain_commands.COMMANDS or arguments[0] == "--version"):
        return plain_commands.main(arguments)
    plain = ", ".join(plain_commands.COMMANDS)
    asked = f"the command {arguments[0]!r} needs" if arguments else "the commands need"
    sys.stderr.write(
        f"{asked} the packages typer and rich: pip install 'lancemem[cli]'\n"
        f"commands without them: {plain}\n"
    )
    return plain_commands.FAILED
