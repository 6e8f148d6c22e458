"""The commands that the plain program has and this one passes on, word for word.

Owns: that they are listed. Does not own: their arguments, text and exit codes (`plain_commands`).
"""

from __future__ import annotations

import typer

from lancemem import plain_commands
from lancemem.cli.app import PARTS, app

# Commands of this program with the same names have more to say.
_OWN = ("maintain", "deletion-vectors", "truncate-wal")
_HELP = {
    "verify-wal": "Look for damage in the logs.",
    "verify-sstables": "Compare SSTables with their checksums.",
    "relist-sstables": "List SSTables again that a restore of the base table lost.",
    "abandon-generations": "Give up the rows of a shard's missing generations.",
    "verify-record-index": "Compare the record index with the base table.",
    "create-record-index": "Create the record index.",
    "drop-record-index": "Drop the record index.",
    "changes": "Print the inserts, updates and deletes between two versions.",
}


def _pass_on(name: str) -> None:
    @app.command(
        name,
        help=_HELP[name],
        rich_help_panel=PARTS,
        add_help_option=False,
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )
    def called(context: typer.Context) -> None:
        raise typer.Exit(plain_commands.main([name, *context.args]))


for _name in plain_commands.COMMANDS:
    if _name not in _OWN:
        _pass_on(_name)
