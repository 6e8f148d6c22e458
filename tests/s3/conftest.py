"""A running S3 server, and a place for a table in it."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from . import server

if TYPE_CHECKING:
    from collections.abc import Iterator

SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"  # noqa: S105 - it opens nothing
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.string()),
    ]
)


# moto asks who calls, and believes any signature.
SIGNED = {
    "Authorization": "AWS4-HMAC-SHA256 Credential=tests/20260101/us-east-1/s3/aws4_request, "
    "SignedHeaders=host, Signature=0"
}


@dataclass(frozen=True)
class S3:
    """The server, as somebody sees it who speaks HTTP."""

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

    def log(self) -> list[dict[str, Any]]:
        """Return every request so far."""
        found: list[dict[str, Any]] = json.loads(self.request("GET", server.LOG)[1])
        return found

    def switch(self, mode: str) -> None:
        """Switch a fault on, or with an empty name off."""
        self.request("GET", server.MODE + mode)


@dataclass(frozen=True)
class Place:
    """Where a table is, and the options that reach it."""

    s3: S3
    bucket: str
    uri: str
    options: dict[str, str] = field(repr=False)

    def log(self) -> list[dict[str, Any]]:
        """Return the requests of this bucket."""
        return [r for r in self.s3.log() if r["path"].startswith(f"/{self.bucket}/")]


def environment() -> dict[str, str]:
    """Give a child what it needs to find this package."""
    places = [str(Path(__file__).parents[2]), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places))}


@pytest.fixture(scope="session")
def s3() -> Iterator[S3]:
    """Start the server once; it ends when its standard input does, at the latest with us."""
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


@pytest.fixture
def place(s3: S3) -> Iterator[Place]:
    """Name a place in a bucket of its own, where no table is yet."""
    bucket = f"bucket-{uuid.uuid4().hex}"
    assert s3.request("PUT", f"/{bucket}")[0] == 200
    options = {
        "aws_endpoint": f"http://127.0.0.1:{s3.port}",
        "aws_region": "us-east-1",
        "aws_access_key_id": "AKIAIOSFODNN7EXAMPLE",
        "aws_secret_access_key": SECRET,
        "allow_http": "true",
    }
    yield Place(s3, bucket, f"s3://{bucket}/folder/table.lance", options)
    s3.switch("")


def rows(ids: range, name: str) -> pa.Table:
    """Give rows with these ids, all of the same name."""
    return pa.table({"id": list(ids), "name": [name] * len(ids)}, schema=SCHEMA)
