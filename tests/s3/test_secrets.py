"""Credentials are used and never shown."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import lancemem

from . import server
from .conftest import SCHEMA, Place, rows
from .running import SECRET

if TYPE_CHECKING:
    from collections.abc import Callable

TOKEN = "FwoGZXIvYXdzEXAMPLE/session+token/with=signs=="  # noqa: S105 - it opens nothing


def test_queries_of_datafusion_do_not_repeat_the_token_either(place: Place) -> None:
    datafusion = pytest.importorskip("datafusion")
    options = {**place.options, "aws_session_token": TOKEN}
    table = lancemem.create_table(place.uri, SCHEMA, primary_key="id", storage_options=options)
    with table.start_job(shard=0) as job:
        job.put(rows(range(3), "before"))
        job.flush()
    table.compact()
    session = datafusion.SessionContext()
    session.register_table(
        "board", lancemem.open_table(place.uri, storage_options=options).snapshot()
    )
    query = session.sql("select * from board")
    place.s3.switch(server.EXPIRED)
    with pytest.raises(Exception, match="ExpiredToken") as raised:
        query.collect()
    assert TOKEN not in str(raised.value)
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize("call", ["open_table", "create_table"])
def test_a_call_without_credentials_names_what_gives_them(place: Place, call: str) -> None:
    """A call of its own process: credentials that were found once are kept."""
    options = {name: value for name, value in place.options.items() if "key" not in name}
    program = (
        "import json, sys, lancemem\n"
        "uri, options, call = json.loads(sys.argv[1])\n"
        "rows = ([{'id': 1}],) if call == 'create_table' else ()\n"
        "getattr(lancemem, call)(uri, *rows, storage_options=options)\n"
    )
    given = [sys.executable, "-c", program, json.dumps([place.uri, options, call])]
    here = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    elsewhere = {"AWS_EC2_METADATA_DISABLED": "true", "HOME": "/nonexistent"}
    done = subprocess.run(  # noqa: S603 - the program above
        given, env=here | elsewhere, capture_output=True, text=True, timeout=120, check=False
    )
    assert "InvalidInputError" in done.stderr
    assert "S3 has no credentials; set AWS_ACCESS_KEY_ID" in done.stderr


def test_an_answer_that_repeats_the_token_is_never_shown(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    options = {**place.options, "aws_session_token": TOKEN}
    table = lancemem.create_table(place.uri, SCHEMA, primary_key="id", storage_options=options)
    job = table.start_job(shard=0)
    job.put(rows(range(3), "before"))
    texts = [repr(table), repr(job), table.scan().explain()]
    place.s3.switch(server.EXPIRED)
    calls: list[Callable[[], object]] = [
        lambda: lancemem.open_table(place.uri, storage_options=options),
        lambda: table.scan().to_table(),
        lambda: table.start_job(shard=0),
        table.shards,
        lambda: job.put(rows(range(3), "after")),
        job.close,
    ]
    with caplog.at_level(logging.DEBUG, logger="lancemem"):
        for call in calls:
            with pytest.raises(lancemem.LancememError) as raised:
                call()
            texts.append(str(raised.value))
    texts += [record.getMessage() for record in caplog.records]
    # In base64 a character or two depend on the token's neighbours, and may stay.
    spellings = [spelling.strip("=")[3:-3] for spelling in server.spelled(TOKEN)]
    for text in texts:
        assert not any(spelling in text for spelling in spellings), text
        assert SECRET not in text, text
    assert any("ExpiredToken" in text for text in texts), "the error contains the answer"
    assert any("******" in text for text in texts), "the token was in an answer"
