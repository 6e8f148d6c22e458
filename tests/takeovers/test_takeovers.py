"""Four processes take one shard from each other, and every key keeps one history.

Owns: takeovers on a local file system and on an S3 server, by processes that write, read, sleep in
mid-call and die. Does not own: orders of calls in one process (the simulation), or files after a
death (`durability`).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

import lancemem
from tests.s3.running import running
from tests.seeds import seed

from . import contest
from .contender import SCHEMA
from .histories import check

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# A soak sets the number.
TAKEOVERS = int(os.environ.get("LANCEMEM_TAKEOVERS", "200"))
# A guard against hangs, with time for a machine that runs other suites beside this one.
DEADLINE_SECONDS = 400.0 * max(1, TAKEOVERS // 200)

pytestmark = pytest.mark.timeout(DEADLINE_SECONDS + 30)


@pytest.fixture
def far_place() -> Iterator[tuple[str, dict[str, str]]]:
    """Give a place on an S3 server, and the options that reach it."""
    with running() as s3:
        yield f"s3://{s3.make_bucket()}/table.lance", s3.options()


def contend(folder: Path, uri: str, options: dict[str, str] | None, claims: int) -> int:
    """Let them contend and check their histories; return the number of compacted generations."""
    lancemem.create_table(uri, SCHEMA, primary_key="key", storage_options=options)
    told: dict[str, Any] = {"uri": uri, "options": options, "claims": claims}
    found = contest.run(folder, told, seed(), DEADLINE_SECONDS)
    assert len(set(found.epochs)) == len(found.epochs), "two claims have one epoch"
    assert max(found.epochs) >= claims
    assert found.fenced > claims // 10, "too few claims were fenced"
    assert found.unanswered > 0, "no call was interrupted"
    for history in found.histories:
        writes = sum(it.kind == "write" for it in history)
        assert writes > claims // 10, "too little was written"
        check(history)
    print(  # noqa: T201 - what was tried
        f"{max(found.epochs)} claims, {found.fenced} fenced, {found.unanswered} writes without an "
        f"answer, {found.compacted} generations compacted, "
        f"{sum(map(len, found.histories))} operations"
    )
    return found.compacted


def test_processes_that_take_a_shard_from_each_other_see_one_history_of_each_key(
    tmp_path: Path,
) -> None:
    compacted = contend(tmp_path, str(tmp_path / "table.lance"), None, TAKEOVERS)
    assert compacted > 0, "nothing was flushed and compacted"


def test_the_same_on_an_s3_server(tmp_path: Path, far_place: tuple[str, dict[str, str]]) -> None:
    contend(tmp_path, *far_place, TAKEOVERS // 5)
