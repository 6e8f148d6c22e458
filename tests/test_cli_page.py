"""docs/cli.md and the help of every command agree with the commands.

Owns: the page's list, the help, and that each command of the list runs in test_cli_commands. Not
here: what commands do.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lancemem import plain_commands
from lancemem.cli import keys
from lancemem.cli.app import run
from scripts import cli_page

COMMANDS = cli_page.commands()
RUN_HERE = (Path(__file__).parent / "test_cli_commands.py").read_text()
ELSEWHERE = {"dashboard"}  # test_dashboard


def test_the_page_lists_the_commands_as_they_are() -> None:
    text = cli_page.PAGE.read_text()
    assert cli_page.page(text) == text, "run python scripts/cli_page.py"


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_names_each_option_in_full(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run([name, "--help"]) == 0
    shown = capsys.readouterr().out
    _, _, section = cli_page.PAGE.read_text().partition(f"### `lancemem {name} ")
    section = section.partition("###")[0]
    options = set(re.findall(r"`(--[a-z-]+)`", section))
    assert "--json" in options
    assert {option for option in options if option not in shown} == set()


def test_every_command_of_the_list_is_run_and_has_its_keys_written_down() -> None:
    for name in COMMANDS:
        assert f'"{name}"' in RUN_HERE or name in ELSEWHERE, name
        assert name in keys.ROWS or any(key.split()[0] == name for key in keys.KEYS), name


def test_the_page_names_every_plain_command() -> None:
    text = cli_page.PAGE.read_text()
    assert [name for name in plain_commands.COMMANDS if f"`{name}`" not in text] == []


def test_the_keys_inside_of_stats_and_of_errors_are_on_the_page() -> None:
    text = cli_page.PAGE.read_text()
    nested = [*keys.SHARD, *keys.RATES, *keys.ERROR]
    assert [name for name in nested if f"`{name}`" not in text] == []
