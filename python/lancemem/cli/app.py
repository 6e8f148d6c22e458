"""The commands of the console script, on Typer.

Owns: the application, exit codes, and the words for an error. Does not own: what a command does;
each is in the module of its subject.
"""

from __future__ import annotations

import functools
import importlib
import io
import json
import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

import lancemem
from lancemem import plain_commands
from lancemem.cli import answers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["DAMAGED", "DONE", "FAILED", "STOPPED", "app", "command", "run"]

DONE, DAMAGED, FAILED = 0, plain_commands.DAMAGED, plain_commands.FAILED
# Ctrl-C, as shells number it.
STOPPED = 130

# Typer has a click of its own, of which it names the kinds of errors alone.
_NOT_UNDERSTOOD: Any = next(
    it for it in typer.BadParameter.__mro__ if it.__name__ == "ClickException"
)

TABLE = "Tables and rows"
UPKEEP = "Upkeep"
REPAIR = "Verification and repair"
PARTS = "One part at a time, as python -m lancemem has them"

_HELP = (
    "Fast upserts and consistent reads on Lance tables.\n\n"
    "URI is a path or s3://bucket/path; credentials come from the environment. --json prints "
    "stable keys, and an error as an object on standard error. Exit codes: 0 done, 1 damage was "
    "found, 2 the call failed or was not understood, 130 stopped by Ctrl-C."
)
# In the order of the help.
_MODULES = (
    "table_commands",
    "read_commands",
    "stats_command",
    "maintenance_commands",
    "repair_commands",
    "part_commands",
)

app = typer.Typer(
    name="lancemem",
    help=_HELP,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        sys.stdout.write(f"{lancemem.__version__}\n")
        raise typer.Exit(DONE)


@app.callback()
def _main(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    pass


class _Command(TyperCommand):
    """A command whose help names each option in full; Rich's boxes cut long names at 80 columns."""

    def __init__(self, name: str | None, **settings: Any) -> None:  # noqa: ANN401 - those of Typer
        super().__init__(name, **{**settings, "rich_markup_mode": None})


def command(
    name: str, panel: str, *, verifies: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a command whose errors become words and an exit code.

    Args:
        name: Its name.
        panel: The part of the help that lists it.
        verifies: Whether it looks for damage, so that damage which keeps it from going on is its
            answer too.

    Returns:
        A decorator. The command returns its exit code, or None for 0.
    """

    def register(body: Callable[..., int | None]) -> Callable[..., Any]:
        @app.command(name, cls=_Command, rich_help_panel=panel)
        @functools.wraps(body)
        def called(*arguments: Any, **options: Any) -> None:  # noqa: ANN401 - those of the command
            code = _code_of(body, arguments, options, DAMAGED if verifies else FAILED)
            raise typer.Exit(code)

        return called

    return register


def _code_of(
    body: Callable[..., int | None],
    arguments: Any,  # noqa: ANN401 - those of the command
    options: dict[str, Any],
    code_of_damage: int,
) -> int:
    as_json = bool(options.get("as_json"))
    try:
        return body(*arguments, **options) or DONE
    except KeyboardInterrupt:
        sys.stderr.write("stopped\n")
        return STOPPED
    except BrokenPipeError:
        # The reader of a pipe, such as `head`, has what it wanted.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except (lancemem.LancememError, OSError, ModuleNotFoundError) as error:
        _say_error(error, as_json)
        return code_of_damage if isinstance(error, lancemem.CorruptionError) else FAILED
    except (typer.Exit, typer.Abort, typer.BadParameter):
        raise
    except Exception:  # noqa: BLE001 - the exit code reports it, and the trace is printed
        # A script that acts on the exit code of damage must not mistake a defect for damage.
        traceback.print_exc()
        return FAILED


def _say_error(error: Exception, as_json: bool) -> None:
    kind, text = type(error).__name__, str(error)
    way = answers.way_out(error)
    if as_json:
        _say_object(kind, text, way)
        return
    sys.stderr.write(f"{kind}: {text}\n")
    if way:
        sys.stderr.write(f"{way}\n")


def _say_object(kind: str, text: str, way: str | None) -> None:
    told = {"error": kind, "message": text, "way_out": way}
    sys.stderr.write(f"{json.dumps(told, ensure_ascii=False)}\n")


def run(arguments: Sequence[str]) -> int:
    """Run one command.

    Args:
        arguments: The command line without the program's name.

    Returns:
        The exit code.
    """
    sys.stdout = sys.stdout or Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    for name in _MODULES:
        importlib.import_module(f"lancemem.cli.{name}")
    try:
        if "--json" in arguments:
            return _run_for_a_program(list(arguments))
        app(list(arguments), prog_name="lancemem")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else FAILED
    return DONE


def _run_for_a_program(arguments: list[str]) -> int:
    """Run a command with `--json`, where a command line that is not understood is an object too."""
    try:
        ended = app(arguments, prog_name="lancemem", standalone_mode=False)
    except _NOT_UNDERSTOOD as error:
        at = getattr(error, "ctx", None)
        way = f"{at.command_path if at else 'lancemem'} --help"
        _say_object("UsageError", error.format_message(), way)
        return FAILED
    return ended if isinstance(ended, int) else DONE
