"""How many round trips deep a cold read is.

Owns: a reader in its own process, behind the proxy; its requests, step by step.
Does not own: the detection of waves (`proxy`), or the table that is read.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import urllib.parse
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .proxy import Request
from .running import S3, environment

if TYPE_CHECKING:
    from collections.abc import Iterator

# Random parts of paths.
NAMES = {
    r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}": "SHARD",
    r"[0-9a-f]{8}_gen_\d+": "RUN",
    r"\d{16,}": "N",
    r"data/[^/]+\.lance": "data/FILE.lance",
}

# The steps of each side: `open` is the first, one of the others the second.
READER = """
import json, sys, time

told = json.loads(sys.stdin.readline())
uri, options, keys = told["uri"], told["options"], told["keys"]
import pyarrow as pa

def lancemem(what):
    import lancemem
    yield
    table = lancemem.open_table(uri, storage_options=options)
    yield
    if what == "scan":
        yield table.scan().to_table().num_rows
    elif what == "count":
        yield table.scan().count_rows()
    else:
        yield table.get(pa.table({"id": pa.array(keys, pa.int64())})).num_rows

def lance(what):
    import lance
    yield
    dataset = lance.dataset(uri, storage_options=options)
    yield
    if what == "scan":
        yield dataset.to_table().num_rows
    elif what == "count":
        yield dataset.count_rows()
    else:
        yield dataset.to_table(filter=f"id IN ({', '.join(map(str, keys))})").num_rows

for rows in {"lancemem": lancemem, "lance": lance}[told["side"]](told["what"]):
    print(rows, flush=True)
    sys.stdin.readline()
"""


@dataclass
class Step:
    """The requests of a reader in one step, and the duration."""

    requests: list[Request]
    seconds: float

    @property
    def depth(self) -> int:
        """The waves in their order."""
        return max((request.wave for request in self.requests), default=0)

    def waves(self) -> list[str]:
        """Return the requests of each wave."""
        told = []
        for wave in range(1, self.depth + 1):
            kinds = Counter(kind(it) for it in self.requests if it.wave == wave)
            told.append(", ".join(f"{count} {name}" for name, count in sorted(kinds.items())))
        return told


@dataclass
class Cold:
    """A table opened and read by a process without any cache."""

    open: Step
    read: Step
    rows: int


class Proxy:
    """The proxy in front of a server."""

    def __init__(self, child: subprocess.Popen[str]) -> None:
        self.child = child
        self.s3 = S3(int(self._line()))

    def tell(self, command: str) -> Any:  # noqa: ANN401 - what the command answers
        """Send a command."""
        assert self.child.stdin is not None
        self.child.stdin.write(f"{command}\n")
        self.child.stdin.flush()
        return json.loads(self._line())

    def _line(self) -> str:
        assert self.child.stdout is not None
        return self.child.stdout.readline()

    def read(
        self, side: str, what: str, uri: str, keys: list[int], delay: float | None = None
    ) -> Cold:
        """Open and read in a new process, in waves or with every request delayed."""
        told = {"uri": uri, "options": self.s3.options(), "keys": keys, "side": side, "what": what}
        with subprocess.Popen(  # noqa: S603 - our own interpreter
            [sys.executable, "-c", READER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment(),
            text=True,
        ) as reader:
            assert reader.stdin is not None
            assert reader.stdout is not None
            self.tell(f"waves {reader.pid}" if delay is None else f"delay {delay}")
            self.tell("log")
            said, steps = "", []
            for step in ("import", "open", "read"):
                line = json.dumps(told) if step == "import" else step
                begun = time.monotonic()
                reader.stdin.write(f"{line}\n")
                reader.stdin.flush()
                said = reader.stdout.readline().strip()
                if not said:
                    raise RuntimeError(f"the reader ended before it could {step}")
                seconds = time.monotonic() - begun
                requests = [Request(**request) for request in self.tell("log")]
                steps.append(Step(requests, seconds))
            self.tell("delay 0")
        return Cold(steps[1], steps[2], int(said))


@contextmanager
def proxy(s3: S3) -> Iterator[Proxy]:
    """Start a proxy; it ends when its standard input does."""
    with subprocess.Popen(  # noqa: S603 - our own interpreter
        [sys.executable, "-m", "tests.s3.proxy", str(s3.port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(),
        text=True,
    ) as child:
        yield Proxy(child)


def kind(request: Request) -> str:
    """Name the purpose of a request: method and path, without random parts and numbers."""
    path, _, query = request.path.partition("?")
    asked = urllib.parse.parse_qs(query)
    action = request.method
    if "prefix" in asked:
        action, path = "list", asked["prefix"][0]
    path = urllib.parse.unquote(path).partition(".lance/")[2]
    for pattern, name in NAMES.items():
        path = re.sub(pattern, name, path)
    return f"{action} {path}"
