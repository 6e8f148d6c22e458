"""The server of a dashboard: one page, on a loopback address, and nothing that writes.

Owns: which requests are answered, and the headers. Does not own: the page. A request with another
`Host` than the bound address is refused, so that a page of another site cannot read this one by a
name that it points here.
"""

from __future__ import annotations

import ipaddress
import json
import threading
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import lancemem
from lancemem.dashboard import page
from lancemem.dashboard.recorder import Recorder

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Dashboard", "serve"]

# A browser that sends its request slower than this is left.
_REQUEST_SECONDS = 10


class Dashboard:
    """A running server.

    Attributes:
        url: Where the page is.
    """

    def __init__(self, url: str, end: threading.Event) -> None:
        self.url = url
        self._end = end

    def wait(self) -> None:
        """Wait for ever; a signal ends the wait."""
        while not self._end.wait(3600):
            pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], recorder: Recorder, uri: str) -> None:
        self.address_family = _family(address[0])
        super().__init__(address, _Handler)
        self.recorder, self.uri = recorder, uri
        self.interval = 5.0
        # Names under which a browser may ask; None is any.
        self.hosts: frozenset[str] | None = None


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _REQUEST_SECONDS
    server_version, sys_version = "lancemem", ""

    def do_GET(self) -> None:
        self._answer(is_head=False)

    def do_HEAD(self) -> None:
        self._answer(is_head=True)

    def _answer(self, *, is_head: bool) -> None:
        host = self.headers.get("Host", "").rpartition(":")[0] or self.headers.get("Host", "")
        if self.server.hosts is not None and host.strip("[]") not in self.server.hosts:
            self._send(HTTPStatus.MISDIRECTED_REQUEST, "text/plain", "unknown host\n", is_head)
            return
        path = self.path.partition("?")[0]
        state = self.server.recorder.state()
        if path == "/":
            text = page.render(self.server.uri, state, self.server.interval)
            self._send(HTTPStatus.OK, "text/html", text, is_head)
        elif path == "/samples.json":
            told = [{"time": round(it.seconds, 3), **it.values()} for it in state.samples]
            text = json.dumps({"uri": self.server.uri, "error": state.error, "samples": told})
            self._send(HTTPStatus.OK, "application/json", text, is_head)
        else:
            self._send(HTTPStatus.NOT_FOUND, "text/plain", "the page is at /\n", is_head)

    def _send(self, status: HTTPStatus, kind: str, text: str, is_head: bool) -> None:
        body = text.encode()
        self.send_response(status)
        for name, value in (
            ("Content-Type", f"{kind}; charset=utf-8"),
            ("Content-Length", str(len(body))),
            ("Content-Security-Policy", page.POLICY),
            ("Cache-Control", "no-store"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
            ("Referrer-Policy", "no-referrer"),
            ("X-Content-Type-Options", "nosniff"),
            ("X-Frame-Options", "DENY"),
        ):
            self.send_header(name, value)
        self.end_headers()
        if not is_head:
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:  # noqa: ANN401 - the command prints one line alone
        pass


def _family(host: str) -> Any:  # noqa: ANN401 - a constant of socket
    import socket  # noqa: PLC0415 - the constants alone

    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@contextmanager
def serve(
    table: lancemem.Table,
    host: str = "127.0.0.1",
    port: int = 8787,
    *,
    interval: float = 5.0,
    allow_remote: bool = False,
) -> Iterator[Dashboard]:
    """Serve the dashboard of a table while the context lasts.

    Args:
        table: The table, which is only read.
        host: The address to bind, a loopback one unless `allow_remote`.
        port: The port; 0 takes a free one, which `Dashboard.url` names.
        interval: Seconds between two samples. A sample reads the logs.
        allow_remote: Bind any address. **The page has no password**: everyone who reaches the
            address sees the table's URI, sizes and history. Default: False.

    Yields:
        The running server.

    Raises:
        InvalidInputError: `host` is no loopback address, and `allow_remote` is False.
        OSError: The address cannot be bound.

    Example:
        with server.serve(table, port=0) as dashboard:
            print(dashboard.url)
    """
    is_local = _is_loopback(host)
    if not (is_local or allow_remote):
        raise lancemem.InvalidInputError(
            f"the dashboard has no password, and {host!r} is no loopback address: bind 127.0.0.1 "
            "and reach it through a tunnel, or insist with --allow-remote"
        )
    with Recorder(table, interval) as recorder:
        try:
            server = _Server((host, port), recorder, table.uri)
        except OSError as error:
            text = f"the dashboard cannot be served at {host}:{port}: {error}; pass another --port"
            raise OSError(text) from error
        server.interval = interval
        server.hosts = frozenset({host, "localhost", "127.0.0.1", "::1"}) if is_local else None
        place = f"[{host}]" if ":" in host else host
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield Dashboard(f"http://{place}:{server.server_port}/", threading.Event())
        finally:
            server.shutdown()
            server.server_close()
            thread.join()
