"""An HTTP proxy that adds latency to a server, in its own process.

Owns: forwarding, a log of requests, and when a request goes on: after a delay, or in waves. A wave
goes when its reader can send no further request: no answer is on its way and every thread of the
reader sleeps. Then all of its requests go at once. So the number of waves is the depth of a read in
round trips, however slow the machine or the server is.
Does not own: the reader (`waves`), or the server.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

# Seconds without a request or an answer before a wave goes, and seconds between two checks.
QUIET = 0.05
LOOK = 0.01
WITHOUT_BODY = {204, 304}


@dataclass
class Request:
    """One request and when it was on its way."""

    method: str
    path: str
    wave: int
    arrived: float
    status: int = 0
    bytes: int = 0
    answered: float = 0.0


@dataclass
class Message:
    """A request or an answer."""

    head: bytes
    first: str
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)


async def message(reader: asyncio.StreamReader, *, has_body: bool = True) -> Message:
    """Read a whole message, which has a length or comes in chunks."""
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {}
    for line in filter(None, lines):
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    if first.startswith("HTTP/") and int(first.split()[1]) in WITHOUT_BODY:
        has_body = False
    body = b""
    if has_body and headers.get("transfer-encoding", "").lower() == "chunked":
        size = -1
        while size != 0:
            chunk = await reader.readuntil(b"\r\n")
            size = int(chunk.split(b";")[0], 16)
            body += chunk + await reader.readexactly(size + 2)
    elif has_body:
        body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Message(head, first, body, headers)


class Proxy:
    """The requests that wait, those on their way, and all so far."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.delay = 0.0
        # The process whose requests go in waves.
        self.reader: int | None = None
        self.log: list[Request] = []
        self.wave = 0
        self.waiting: list[asyncio.Future[int]] = []
        self.on_their_way = 0
        self.last = time.monotonic()

    async def serve(self, client: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        """Forward what comes over one connection, over one connection of its own."""
        server: asyncio.StreamReader | None = None
        there: asyncio.StreamWriter | None = None
        try:
            while True:
                asked = await message(client)
                method, path, _ = asked.first.split(" ", 2)
                request = Request(method, path, 0, time.monotonic())
                self.last = request.arrived
                self.log.append(request)
                await self.hold(request)
                self.on_their_way += 1
                try:
                    if server is None or there is None:
                        server, there = await asyncio.open_connection("127.0.0.1", self.port)
                    there.write(asked.head + asked.body)
                    await there.drain()
                    answer = await message(server, has_body=method != "HEAD")
                    request.status = int(answer.first.split()[1])
                    request.bytes = len(answer.body)
                    back.write(answer.head + answer.body)
                    await back.drain()
                finally:
                    self.on_their_way -= 1
                    self.last = request.answered = time.monotonic()
                if answer.headers.get("connection", "").lower() == "close":
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            # Either side has closed the connection.
            return
        finally:
            for writer in (there, back):
                if writer is not None:
                    writer.close()

    async def hold(self, request: Request) -> None:
        """Wait until the request may go."""
        if self.delay > 0:
            await asyncio.sleep(self.delay)
        if self.reader is not None:
            goes: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            self.waiting.append(goes)
            request.wave = await goes

    async def release(self) -> None:
        """Let one wave after the other go."""
        while True:
            await asyncio.sleep(LOOK)
            quiet = time.monotonic() - self.last > QUIET
            if not self.waiting or self.on_their_way > 0 or not quiet:
                continue
            if self.reader is not None and not sleeps(self.reader):
                self.last = time.monotonic()
                continue
            self.wave += 1
            for goes in self.waiting:
                goes.set_result(self.wave)
            self.waiting.clear()

    def obey(self, line: str) -> str:
        """Obey one line of input and answer in one line."""
        command, _, value = line.partition(" ")
        if command == "delay":
            self.delay, self.reader = float(value), None
        elif command == "waves":
            self.delay, self.reader, self.wave = 0.0, int(value), 0
        elif command == "log":
            log, self.log, self.wave = self.log, [], 0
            return json.dumps([asdict(request) for request in log])
        return "null"


def sleeps(process: int) -> bool:
    """Whether no thread of a process runs, wants to, or waits for a disk."""
    for thread in Path(f"/proc/{process}/task").glob("*/stat"):
        try:
            state = thread.read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if state in "RD":
            return False
    return True


async def main() -> None:
    """Serve on a free port, which is the first line of output, until standard input ends."""
    proxy = Proxy(int(sys.argv[1]))
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    releasing = asyncio.create_task(proxy.release())
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    while line := await asyncio.to_thread(sys.stdin.readline):
        sys.stdout.write(proxy.obey(line.strip()) + "\n")
        sys.stdout.flush()
    releasing.cancel()


if __name__ == "__main__":
    asyncio.run(main())
