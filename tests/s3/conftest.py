"""A running S3 server, and a place for a table on it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from .running import S3, running

if TYPE_CHECKING:
    from collections.abc import Iterator

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.string()),
    ]
)


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


@pytest.fixture(scope="session")
def s3() -> Iterator[S3]:
    """Start the server once."""
    with running() as started:
        yield started


@pytest.fixture
def place(s3: S3) -> Iterator[Place]:
    """Name a place without a table, in its own bucket."""
    bucket = s3.make_bucket()
    yield Place(s3, bucket, f"s3://{bucket}/folder/table.lance", s3.options())
    s3.switch("")


def rows(ids: range, name: str) -> pa.Table:
    """Return rows with these ids, all with the same name."""
    return pa.table({"id": list(ids), "name": [name] * len(ids)}, schema=SCHEMA)
