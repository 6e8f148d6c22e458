"""`python -m benches.sitting`: every bench of lancemem, one after the other, at one commit.

Owns: the order of the parts, the folder of their results, what is printed before each part, and
the log of the sitting. A sitting that is ended by SIGTERM or SIGINT ends its bench, and what the
bench started. `--continue FOLDER` runs the parts that a sitting lacks, at its commit and on its
machine. Does not own: what a part measures or writes; each is a command of its own, which gets
`--results`. No part is resumed in its middle, and no result is replaced. `benches.roaring` is no
part: it compares libraries, which no commit of lancemem changes, and takes more than an hour.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from benches.write import machine

ROOT = Path(__file__).parents[1]
OUT = ROOT / "out" / "bench-all"
LOG, PAGE = "sitting.json", "SITTING.md"
PYTHON = [sys.executable, "-m"]
# How long a bench that is ended may take to remove what it has made.
GRACE_SECONDS = 10


@dataclass(frozen=True)
class Part:
    """One bench: its command, and the words that make it quick."""

    name: str
    command: tuple[str, ...]
    # Added with --quick; None where the bench has no quick form and --quick leaves it out.
    quick: tuple[str, ...] | None = ()
    # Added without --quick.
    full: tuple[str, ...] = ()
    # Whether it takes --results; of the others what they print is kept.
    writes: bool = True


def _of(name: str, *words: str, **how: Any) -> Part:  # noqa: ANN401 - fields of Part
    return Part(name, (*PYTHON, f"benches.{name}", *words), **how)


_CARGO = ("cargo", "bench", "--workspace")
PARTS = [
    _of("write", quick=("--quick",)),
    _of("read", quick=("--quick",)),
    _of("compact", quick=("--quick",)),
    _of("compact.one_row", quick=("200000", "--compactions", "3"), writes=False),
    _of("changes", full=("--full",)),
    _of("merge", quick=("--quick",)),
    _of("search", quick=("--quick",)),
    _of("search.text", quick=("--rounds", "1"), writes=False),
    _of("search.words", quick=("--quick", "--rounds", "1"), writes=False),
    _of("search.spark_join", quick=("--quick", "--rounds", "1"), writes=False),
    _of("held_shards", quick=("--rounds", "5"), writes=False),
    Part("put.rs", (*_CARGO, "--bench", "put"), None, writes=False),
    Part("producers.rs", (*_CARGO, "--bench", "producers"), None, writes=False),
    Part("object_store.rs", (*_CARGO, "--bench", "object_store"), None, writes=False),
    Part("table.rs", (*_CARGO, "--bench", "table"), None, writes=False),
    # With merge engines: all cases of Spark have one page. One round, because an engine may need
    # minutes for one case, and one that is not done after five is named as such.
    _of(
        "spark",
        quick=("--quick", "--rounds", "1", "--minutes", "3"),
        full=("--rounds", "1", "--minutes", "5"),
    ),
]
# Where a page or a picture of a whole sitting belongs.
PICTURES = {"write.png", "spark.png"}


def main() -> int:
    """Run the parts that were asked for, or publish a sitting that is whole."""
    chosen = _arguments([part.name for part in PARTS])
    if chosen.publish is not None:
        return publish(chosen.publish)
    parts = [part for part in PARTS if not chosen.only or part.name in chosen.only]
    parts = [part for part in parts if not (chosen.quick and part.quick is None)]
    if not parts:
        raise SystemExit("with --quick nothing is left of --only: these benches have no quick form")
    commit = machine.commit()
    if " " in commit and not chosen.quick:
        raise SystemExit(f"a sitting measures one commit, and this is {commit}: commit and build")
    signal.signal(signal.SIGTERM, _stop)
    if chosen.go_on is not None:
        return Sitting(chosen.go_on, commit, quick=chosen.quick, go_on=True).run(parts)
    folder = chosen.results or OUT / f"{commit.split()[0]}{'-quick' if chosen.quick else ''}"
    return Sitting(folder, commit, quick=chosen.quick).run(parts)


def _arguments(names: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benches.sitting", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rows and pairs: not a result")
    parser.add_argument("--only", nargs="+", choices=names, metavar="PART",
                        help=f"run only these: {', '.join(names)}")  # fmt: skip
    parser.add_argument("--results", type=Path, metavar="FOLDER",
                        help="a new folder (default: out/bench-all/COMMIT)")  # fmt: skip
    parser.add_argument("--continue", type=Path, metavar="FOLDER", dest="go_on",
                        help="run the parts that this sitting lacks")  # fmt: skip
    parser.add_argument("--publish", type=Path, metavar="FOLDER",
                        help="copy the pages of a whole sitting to benches/ and docs/")  # fmt: skip
    return parser.parse_args()


class Sitting:
    """One run of several parts into a folder, by itself or to be continued."""

    def __init__(self, folder: Path, commit: str, *, quick: bool, go_on: bool = False) -> None:
        """Take a folder that does not exist, or go on with one of the same commit and machine."""
        try:
            folder.mkdir(parents=True, exist_ok=go_on)
        except FileExistsError:
            raise SystemExit(
                f"{folder} exists, and a sitting does not replace one: move it away, name another "
                "folder with --results, or run what it lacks with --continue"
            ) from None
        self._folder = folder.resolve()
        self._quick = quick
        same = {"commit": commit, "quick": quick, "machine": machine.machine(folder)}
        self._log: dict[str, Any] = {
            **same,
            "started": machine.now(),
            "versions": machine.versions(),
            "parts": [],
        }
        if go_on:
            self._log = json.loads((folder / LOG).read_text())
            for name, value in same.items():
                if self._log[name] != value:
                    raise SystemExit(f"{name} of {folder}: {self._log[name]}, and here: {value}")

    def run(self, parts: list[Part]) -> int:
        """Run every part that has no result; return 0 if all of them succeeded."""
        done = {part["name"] for part in self._log["parts"] if part["status"] == 0}
        self._log["parts"] = [part for part in self._log["parts"] if part["status"] == 0]
        parts = [part for part in parts if part.name not in done]
        for number, part in enumerate(parts, start=1):
            found = machine.commit()
            if found != self._log["commit"]:
                raise SystemExit(
                    f"the sitting began at {self._log['commit']}, and this is {found}: "
                    f"its parts so far are in {self._folder}"
                )
            self._say(f"part {number} of {len(parts)}: {part.name}")
            self._say(f"  commit {found}, {machine.now()}, load {machine.load()}")
            facts = self._log["machine"]
            self._say(f"  {facts['cores']} cores, {facts['memory']}, {facts['kernel']}")
            self._log["parts"].append(self._part(part))
            self._keep()
        failed = [done["name"] for done in self._log["parts"] if done["status"]]
        self._log["ended"] = machine.now()
        done = {part["name"] for part in self._log["parts"]}
        self._log["whole"] = not failed and not self._quick and done == {it.name for it in PARTS}
        self._keep()
        self._say(f"results in {self._folder}" + (f"; failed: {', '.join(failed)}" * bool(failed)))
        return 1 if failed else 0

    def _part(self, part: Part) -> dict[str, Any]:
        """Run one part; what it prints goes to the screen, and to a file beside its results."""
        command = [*part.command, *((part.quick or ()) if self._quick else part.full)]
        text = self._folder / f"{part.name}.txt"
        done = {
            "name": part.name,
            "started": machine.now(),
            "load": machine.load(),
            "new_memory": machine.new_memory(),
        }
        begun = time.monotonic()
        # A part writes into a folder of its own first: a failed one leaves its results there.
        place = self._folder / part.name
        # Of a run that was cut off, or that failed.
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        if part.writes:
            command += ["--results", str(place)]
        with text.open("w") as out:
            status = _follow(command, out)
        if status == 0:
            for made in place.iterdir():
                made.rename(self._folder / made.name)
            place.rmdir()
        seconds = round(time.monotonic() - begun, 1)
        return {**done, "command": _words(command), "seconds": seconds, "status": status}

    def _keep(self) -> None:
        """Write the log, so that an interrupted sitting has the lines of its parts."""
        (self._folder / LOG).write_text(json.dumps(self._log, indent=1))
        (self._folder / PAGE).write_text(page(self._log))

    def _say(self, text: str) -> None:
        print(f"[bench-all] {text}", flush=True)


def page(log: dict[str, Any]) -> str:
    """Return the page of a sitting."""
    lines = ["# One sitting of all benches", ""]
    if log["quick"]:
        lines += ["A quick run, with few rows and pairs: not a result.", ""]
    lines += [
        f"Commit {log['commit']}, from {log['started']} to {log.get('ended', '(not ended)')}."
    ]
    lines += ["", *machine.table({**log["machine"], **log["versions"]}), ""]
    lines += [
        "| part | started | load before | new memory | seconds | result |",
        f"|{' --- |' * 6}",
    ]
    for part in log["parts"]:
        result = "done" if part["status"] == 0 else f"failed, status {part['status']}"
        before = (part["load"], part.get("new_memory", ""))
        cells = (part["name"], part["started"], *before, part["seconds"], result)
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines) + "\n"


def publish(folder: Path) -> int:
    """Copy pages and pictures of a whole sitting to their places in the tree."""
    log = json.loads((folder / LOG).read_text())
    if not log.get("whole"):
        raise SystemExit(f"{folder} is quick, not ended, or lacks parts: it is not published")
    for made in sorted(folder.iterdir()):
        if made.name in PICTURES:
            shutil.copy(made, ROOT / "docs" / "images" / made.name)
        elif made.name.startswith("RESULTS") or made.name == PAGE:
            shutil.copy(made, ROOT / "benches" / made.name)
    return 0


def _follow(command: list[str], out: Any) -> int:  # noqa: ANN401 - a file of text
    """Run a command; show what it prints while it runs, and write it to a file."""
    # A session of its own: what the bench starts can be ended with it.
    started = subprocess.Popen(  # noqa: S603 - the commands of this file
        command,
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    with started as child:
        try:
            for line in child.stdout or ():
                print(line, end="", flush=True)
                out.write(line)
                out.flush()
            return child.wait()
        except BaseException:
            _end(child)
            raise


def _end(child: subprocess.Popen[str]) -> None:
    """End a bench and all processes of its group, which get no second signal from a terminal."""
    try:
        os.killpg(child.pid, signal.SIGTERM)
        child.wait(GRACE_SECONDS)
    except (ProcessLookupError, subprocess.TimeoutExpired):
        pass
    finally:
        # Also where another signal interrupts the wait.
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)


def _stop(number: int, _frame: object) -> NoReturn:
    """End the sitting as an error would, where Python's own answer to the signal ends it alone."""
    raise SystemExit(128 + number)


def _words(command: list[str]) -> str:
    """Return the command without folders of this machine."""
    words = ["python" if word == sys.executable else word for word in command]
    return " ".join(words[: words.index("--results")] if "--results" in words else words)


if __name__ == "__main__":
    sys.exit(main())
