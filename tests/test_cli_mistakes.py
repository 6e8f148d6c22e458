"""Typical mistakes at the command line, each answered in words that name the way out.

Owns: the mistakes, and that each ends with exit code 2 and changes nothing. Not here: commands that
work (test_cli_commands).
"""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest

import lancemem
from lancemem.cli.app import run


class Mistake(NamedTuple):
    """A command line, and the words of its answer that name the way out."""

    arguments: str
    way: str


# `table`, `keyless`, `plain` (a Lance table that is not enabled), `file` and `nothing` are URIs.
MISTAKES = [
    # What is called.
    Mistake("", "Usage: lancemem"),
    Mistake("hed table", "Did you mean 'head'"),
    Mistake("vacuum table", "No such command 'vacuum'"),
    Mistake("head", "Missing argument 'URI'"),
    Mistake("head table another", "unexpected extra argument"),
    Mistake("head table --colums id", "--columns"),
    Mistake("count table --json=yes", "does not take a value"),
    # Which table.
    Mistake("head nothing", "lancemem create makes a table"),
    Mistake("head plain", "lancemem enable URI adds upserts to a Lance table"),
    Mistake("head file", "lancemem create URI --from FILE --key COLUMN makes a table"),
    Mistake("drop nothing --yes", "check the URI"),
    Mistake("enable nothing --key id", "check the URI"),
    # Reads.
    Mistake("head table --columns nme", "nme"),
    Mistake("head table -n -1", "greater than or equal to 0"),
    Mistake("head table -n ten", "a valid integer"),
    Mistake("scan table --columns id,,name", "names divided by commas"),
    Mistake("scan table --order-by nme", "nme"),
    Mistake("scan table --limit -5", "greater than or equal to 0"),
    Mistake("count table --filter id_>_'a", "filter"),
    Mistake("count table --filter idd>1", "idd"),
    Mistake("count table --consistency live", "durable or flushed"),
    Mistake("search table [1,2", "a vector such as '[0.1, 0.2]'"),
    Mistake("search table words", "a vector such as"),
    Mistake("history table --limit 0", "greater than or equal to 1"),
    Mistake("stats table --samples 3", "add --watch"),
    Mistake("stats table --watch --interval 0", "seconds above 0"),
    # New tables.
    Mistake("create new", "--column id:int64 --column name:string"),
    Mistake("create new -c id", "NAME:TYPE such as id:int64"),
    Mistake("create new -c id:number", "a name such as int64, float32, string"),
    Mistake("create new -c id:int64 -k key", "key"),
    Mistake("create new -c v:float64 -k v", "use an integer, bool, string"),
    Mistake("create new -c id:int64 -c id:string", "id"),
    Mistake("create new -c id:int64 --shards 0", "greater than or equal to 1"),
    Mistake("create new -c id:int64 --shards 4", "add --shard-by or --key"),
    Mistake("create new -c id:int64 --shard-by id", "add --shards N"),
    Mistake("create new -c id:int64 --from file", "give one of the two"),
    Mistake("create new --from none.parquet", "names no file: none.parquet"),
    Mistake("create new --from file", "--from reads .parquet"),
    Mistake("create table -c id:int64", "--exist-ok opens the table that exists"),
    Mistake("enable plain", "--key"),
    # Upkeep.
    Mistake("compact table --mode fast", "auto, link or rewrite"),
    Mistake("compact table --max-dead-share 2", "less than or equal to 1"),
    Mistake("compact table --bytes-per-second 0", "omit the option for no limit"),
    Mistake("compact table --flush --dry-run", "pass one of the two"),
    Mistake("flush table --idle-for soon", "expected seconds, 0 or more"),
    Mistake("flush table --idle-for 1 --take-over --yes", "pass one of them"),
    Mistake("flush table --take-over", "pass --yes to do it"),
    Mistake("drop table", "pass --yes to do it"),
    Mistake("gc table --older-than -1", "expected seconds, 0 or more"),
    Mistake("record-index make table", "create, verify or drop"),
    Mistake("record-index table", "Missing argument 'URI'"),
    Mistake("record-index create keyless", "primary key"),
    Mistake("deletion-vectors yes table", "on, off or write"),
    Mistake("deletion-vectors write table", "lancemem deletion-vectors on URI"),
    Mistake("maintain table --metrics 9464", "HOST:PORT such as 127.0.0.1:9464"),
    Mistake("maintain table --interval 0", "seconds above 0"),
    Mistake("dashboard table --host 0.0.0.0", "insist with --allow-remote"),
    Mistake("dashboard table --port 70000", "less than or equal to 65535"),
    # Verification and repair.
    Mistake("verify table --shard 9", "shard"),
    Mistake("verify table --shard seven", "'seven' is not a shard id"),
    Mistake("truncate-wal table --shard 0", "Missing option '--from'"),
    Mistake("truncate-wal table --shard 0 --from 1", "pass --yes to do it"),
    Mistake("truncate-wal table --shard 0 --from 1 --yes", "no entry"),
]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    import lance  # noqa: PLC0415 - this module alone makes a table that is not enabled

    folder = tmp_path_factory.mktemp("mistakes")
    names = ("table", "keyless", "plain", "nothing", "new")
    found = {name: str(folder / f"{name}.lance") for name in names}
    found["file"] = str(folder / "notes.txt")
    Path(found["file"]).write_text("notes")
    rows = pa.table({"id": [1, 2], "name": ["a", "b"]})
    lancemem.create_table(found["table"], rows, primary_key="id")
    lancemem.create_table(found["keyless"], rows)
    lance.write_dataset(rows, found["plain"])
    return found


def words(text: str) -> str:
    """Return a text without colours, boxes and line breaks."""
    return " ".join(re.sub(r"\x1b\[[0-9;]*m|[│╭╮╰╯─]", " ", text).split())


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda it: it.arguments or "nothing at all")
def test_a_mistake_is_answered_with_the_way_out(
    mistake: Mistake,
    places: dict[str, str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    before = lancemem.open_table(places["table"]).stats()
    arguments = [places.get(it, it.replace("_", " ")) for it in mistake.arguments.split()]
    code = run(arguments)
    out, errors = capsys.readouterr()
    answer = words(errors or out)
    assert mistake.way in answer, answer
    assert code == 2
    assert "Traceback" not in errors
    assert lancemem.open_table(places["table"]).stats() == before
    assert not Path(places["new"]).exists()


@pytest.mark.parametrize("arguments", ["drop table", "create new -c id:number", "hed table"])
def test_every_mistake_is_an_object_with_json(
    arguments: str,
    places: dict[str, str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert run([*(places.get(it, it) for it in arguments.split()), "--json"]) == 2
    out, errors = capsys.readouterr()
    assert out == ""
    assert json.loads(errors).keys() == {"error", "message", "way_out"}


def test_there_are_forty_mistakes_or_more() -> None:
    assert len({it.arguments for it in MISTAKES}) == len(MISTAKES) >= 40
