"""moto's S3 server, in a process of its own.

Owns: the wrapper around moto: writes one at a time, because moto checks and stores in two steps and
two writers could both succeed; a log of requests; faults that a test turns on.
Does not own: S3. `test_server` checks the behaviour that the other tests rely on.
"""

from __future__ import annotations

import base64
import json
import sys
import threading
from datetime import timedelta
from email.utils import format_datetime, parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

LOG = "/--log"
MODE = "/--mode/"
# Answers as S3 does to credentials that have expired, with the token that the caller sent.
EXPIRED = "expired"
# Forgets conditions, as some servers do.
UNCONDITIONAL = "unconditional"
# Shifts the times of objects, but not of listings, by a week back or ahead.
BEHIND, AHEAD = "behind", "ahead"
# Executes the next write whose path has these words, and answers as if it had failed.
LOSES = "loses-"


def spelled(token: str) -> list[str]:
    """Return a token in the encodings in which servers and proxies may repeat it."""
    named = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "+": "&#43;", "/": "&#x2F;", "=": "&#x3d;"}
    return [
        token,
        "".join(named.get(sign, sign) for sign in token),
        "".join(f"&#{ord(sign)};" for sign in token),
        token.encode().hex(),
        token.encode().hex().upper(),
        *(base64.b64encode(f"{before}{token};".encode()).decode() for before in ("", ":", "a:")),
    ]


class Handler(WSGIRequestHandler):
    """Keeps connections open, and logs nothing."""

    protocol_version = "HTTP/1.1"

    def log_request(self, *_: object) -> None:
        """Log nothing: tests ask for the log of `Around`."""


class Around:
    """moto's application and what the tests need around it."""

    def __init__(self) -> None:
        self.moto: Any = DomainDispatcherApplication(create_backend_app)
        self.writing = threading.Lock()
        self.log: list[dict[str, Any]] = []
        self.mode = ""

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        """Answer one request."""
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        if path == LOG:
            return answer(start, "200 OK", json.dumps(self.log).encode())
        if path.startswith(MODE):
            self.mode = path.removeprefix(MODE)
            return answer(start, "200 OK", b"")
        if self.mode == EXPIRED:
            token = environ.get("HTTP_X_AMZ_SECURITY_TOKEN", "")
            repeated = "".join(
                f"<Token-{n}>{it}</Token-{n}>" for n, it in enumerate(spelled(token))
            )
            error = f"<Error><Code>ExpiredToken</Code>{repeated}</Error>"
            return answer(start, "400 Bad Request", error.encode())
        condition = environ.get("HTTP_IF_NONE_MATCH")
        if self.mode == UNCONDITIONAL:
            environ.pop("HTTP_IF_NONE_MATCH", None)
        status = ""

        def started(code: str, headers: list[tuple[str, str]], info: object = None) -> object:
            nonlocal status
            status = code
            return start(code, self.dated(headers), info)

        if method in {"PUT", "POST"}:
            with self.writing:
                body = list(self.moto(environ, self.losing(path, started)))
        else:
            body = list(self.moto(environ, started))
        self.log.append(
            {
                "method": method,
                "path": path,
                "condition": condition,
                "status": int(status.split(maxsplit=1)[0]),
            }
        )
        return body

    def dated(self, headers: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """Shift the time of an object, where the server's clock is to be wrong."""
        if self.mode not in {BEHIND, AHEAD}:
            return headers
        week = timedelta(days=7 if self.mode == AHEAD else -7)
        return [
            (name, format_datetime(parsedate_to_datetime(value) + week, usegmt=True))
            if name.lower() == "last-modified"
            else (name, value)
            for name, value in headers
        ]

    def losing(self, path: str, started: Callable[..., Any]) -> Callable[..., Any]:
        """Give what hears the status of this write: another one where its answer is to be lost."""
        if not self.mode.startswith(LOSES) or self.mode.removeprefix(LOSES) not in path:
            return started
        self.mode = ""
        return lambda _status, headers, info=None: started("500 Lost", headers, info)


def answer(start: Callable[..., Any], status: str, body: bytes) -> list[bytes]:
    """Answer without moto."""
    start(status, [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]


def main() -> None:
    """Serve on a free port, which is the only line of output, until the parent ends."""
    server = make_server("127.0.0.1", 0, Around(), threaded=True, request_handler=Handler)
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main()
