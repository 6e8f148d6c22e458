"""The S3 server for tests: start, requests, end.

Owns: the server's process, and plain HTTP requests.
Does not own: what the server does (`server`), or tables in it.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import server

if TYPE_CHECKING:
    from collections.abc import Iterator

SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"  # noqa: S105 - it opens nothing
# moto requires credentials, and accepts any signature.
SIGNED = {
    "Authorization": "AWS4-HMAC-SHA256 Credential=tests/20260101/us-east-1/s3/aws4_request, "
    "SignedHeaders=host, Signature=0"
}


@dataclass(frozen=True)
class S3:
    """The server, as an HTTP client sees it."""

    port: int

    def request(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> tuple[int, bytes]:
        """Send one request and return status and body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, body, SIGNED | (headers or {}))
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def make_bucket(self) -> str:
        """Create a bucket with a unique name, and return the name."""
        bucket = f"bucket-{uuid.uuid4().hex}"
        assert self.request("PUT", f"/{bucket}")[0] == 200
        return bucket

    def log(self) -> list[dict[str, Any]]:
        """Return every request so far."""
        found: list[dict[str, Any]] = json.loads(self.request("GET", server.LOG)[1])
        return found

    def options(self) -> dict[str, str]:
        """Return the storage options that reach it."""
        return {
            "aws_endpoint": f"http://127.0.0.1:{self.port}",
            "aws_region": "us-east-1",
            "aws_access_key_id": "AKIAIOSFODNN7EXAMPLE",
            "aws_secret_access_key": SECRET,
            "allow_http": "true",
        }

    def switch(self, mode: str) -> None:
        """Turn a fault on, or off with an empty name."""
        self.request("GET", server.MODE + mode)


def environment() -> dict[str, str]:
    """Return the environment in which a child finds this package."""
    places = [str(Path(__file__).parents[2]), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places))}


@contextmanager
def running() -> Iterator[S3]:
    """Start the server; it ends when its standard input does, at the latest with us."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.s3.server"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**environment(), "AWS_ACCESS_KEY_ID": "none", "AWS_SECRET_ACCESS_KEY": "none"},
        text=True,
    ) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        yield S3(int(child.stdout.readline()))
        child.stdin.close()
