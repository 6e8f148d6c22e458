"""A second process that searches the table all the time, by vector and by text at once.

Owns the process, its loop and the lines that go between it and the writer. Without a task the loop
asks standing queries, one after the other, and checks that no answer has a key twice. A task is one
of two: find a section in the version of a given edit, as soon as a search shows it; or give the
answer to a query. Times are the monotonic clock's, which on Linux all processes of a machine share.

Does not own the table or what is looked for.
"""

from __future__ import annotations

import json
import queue
import sys
import threading
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

import lancemem
from demo.child import Child, say

if TYPE_CHECKING:
    from types import TracebackType

    from demo.manual.proof import Query

GIVE_UP_SECONDS = 60.0
K = 10
# The first row of one search is among the first three of this fusion, wherever the other search
# has it: only the first row of the other search can have a higher sum, and one more row the same.
FIRST_ROWS_WIN = lancemem.RRF(k=1)
COLUMNS = ["file", "heading", "release", "edit"]


@dataclass(frozen=True)
class Target:
    """A section in the version of an edit, and the query that has to find it."""

    file: str
    heading: str
    edit: int
    text: str
    vector: list[float]


class Searcher:
    """The process, seen from the writer; a context manager."""

    def __init__(self, uri: str, standing: list[Query]) -> None:
        """Start the process on the table at `uri`."""
        self._process = Child(
            "demo.manual.searcher",
            uri,
            called="the searching process",
            patience=GIVE_UP_SECONDS,
        )
        self._tell({"standing": [_plain(query) for query in standing]})

    def __enter__(self) -> Self:
        """Return the searcher."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the process."""
        self._process.end()

    def look_for(self, target: Target) -> None:
        """Make the process look for a section; return once it looks."""
        self._tell({"find": asdict(target)})
        self._hear("looking")

    def found_at(self) -> int:
        """Return the instant at which a search showed the section, in nanoseconds."""
        return int(self._hear("found"))

    def answer(self, query: Query) -> dict[str, list[dict[str, Any]]]:
        """Return the best rows for a query, by its words alone and by both."""
        self._tell({"answer": _plain(query)})
        rows: dict[str, list[dict[str, Any]]] = self._hear("rows")
        return rows

    def milliseconds(self) -> list[float]:
        """Return how long each search took so far."""
        self._tell({"report": True})
        taken: list[float] = self._hear("milliseconds")
        return taken

    def _tell(self, message: dict[str, Any]) -> None:
        self._process.tell(json.dumps(message))

    def _hear(self, name: str) -> Any:  # noqa: ANN401 - what the line has
        return json.loads(self._process.hear())[name]


class _Loop:
    """The loop of the process."""

    def __init__(self, table: lancemem.Table) -> None:
        self._table = table
        self._standing: list[dict[str, Any]] = []
        self._milliseconds: list[float] = []
        self._next = 0

    def run(self) -> None:
        """Search until the input ends."""
        tasks: queue.Queue[dict[str, Any] | None] = queue.Queue()
        threading.Thread(target=_read_tasks, args=(tasks,), daemon=True).start()
        while True:
            try:
                # Before the first message there is nothing to ask.
                task = tasks.get(block=not self._standing)
            except queue.Empty:
                self._ask_standing()
                continue
            if task is None:
                return
            self._do(task)

    def _do(self, task: dict[str, Any]) -> None:
        match task:
            case {"standing": queries}:
                self._standing = queries
            case {"find": target}:
                self._find(Target(**target))
            case {"answer": query}:
                _say(rows={"words": self._search_words(query), "both": self._search(query)})
            case _:
                _say(milliseconds=self._milliseconds)

    def _find(self, target: Target) -> None:
        _say(looking=True)
        give_up = time.monotonic() + GIVE_UP_SECONDS
        wanted = (target.file, target.heading, target.edit)
        query = {"text": target.text, "vector": target.vector}
        while True:
            rows = self._search(query, FIRST_ROWS_WIN)
            seen = time.monotonic_ns()
            if any((row["file"], row["heading"], row["edit"]) == wanted for row in rows):
                break
            if time.monotonic() > give_up:
                raise TimeoutError(f"{wanted} was not found within {GIVE_UP_SECONDS} seconds")
        _say(found=seen)

    def _ask_standing(self) -> None:
        self._search(self._standing[self._next % len(self._standing)])
        self._next += 1

    def _search_words(self, query: dict[str, Any]) -> list[dict[str, Any]]:
        found = self._table.search(
            query["text"], query_type="fts", text_columns="text", columns=COLUMNS, k=K
        )
        rows: list[dict[str, Any]] = pa.table(found.to_table()).to_pylist()
        return rows

    def _search(
        self, query: dict[str, Any], rerank: lancemem.RRF | None = None
    ) -> list[dict[str, Any]]:
        started = time.perf_counter()
        found = self._table.search(
            query["vector"],
            text=query["text"],
            text_columns="text",
            columns=COLUMNS,
            k=K,
            metric="cosine",
            rerank=rerank,
        )
        rows: list[dict[str, Any]] = pa.table(found.to_table()).to_pylist()
        self._milliseconds.append((time.perf_counter() - started) * 1e3)
        keys = {(row["file"], row["heading"]) for row in rows}
        if len(keys) != len(rows):
            raise RuntimeError(f"a search for {query['text']!r} found a section twice: {rows}")
        return rows


def _read_tasks(tasks: queue.Queue[dict[str, Any] | None]) -> None:
    for line in sys.stdin:
        tasks.put(json.loads(line))
    tasks.put(None)


def _plain(query: Query) -> dict[str, Any]:
    return {"text": query.text, "vector": query.vector.tolist()}


def _say(**message: object) -> None:
    say(json.dumps(message))


if __name__ == "__main__":
    _Loop(lancemem.open_table(sys.argv[1])).run()
