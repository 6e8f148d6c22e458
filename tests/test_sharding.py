"""How many shards a table gets: what `advise_sharding` chooses, and what `create_table` logs.

Owns the rule and its reasons. Not here: how rows are routed, or tables whose sharding was named.
"""

from __future__ import annotations

import logging

import pyarrow as pa
import pytest

import lancemem

GIB = 1 << 30
SCHEMA = pa.schema(
    [("day", pa.binary()), ("id", pa.int64()), ("name", pa.string()), ("x", pa.float64())]
)


@pytest.mark.parametrize(
    ("key", "num_bytes", "processors", "shards", "reason"),
    [
        ("id", None, 8, 1, "not known"),
        ("id", 100, 8, 1, "0.0 GiB of rows, and one takes 4 GiB"),
        ("id", 4 * GIB, 8, 1, "one takes 4 GiB"),
        ("id", 9 * GIB, 8, 3, "3 shards by 'id'"),
        (["day", "name"], 9 * GIB, 8, 3, "3 shards by 'name'"),
        ("id", 100 * GIB, 8, 8, "at most one for each of 8 processors"),
        ("id", 1000 * GIB, 128, 64, "64 shards"),
        ("id", 9 * GIB, 1, 1, "one processor"),
        ("day", 9 * GIB, 8, 1, "no key column"),
        (None, 9 * GIB, 8, 1, "no key column"),
        ("absent", 9 * GIB, 8, 1, "no key column"),
    ],
)
def test_the_number_of_shards_follows_the_size_and_says_why(
    key: str | list[str] | None, num_bytes: int | None, processors: int, shards: int, reason: str
) -> None:
    advice = lancemem.advise_sharding(SCHEMA, key, num_bytes=num_bytes, processors=processors)
    assert advice.sharding.num_shards == shards
    assert reason in str(advice)
    assert str(advice) == advice.reason


def test_a_table_without_a_sharding_logs_its_choice(
    table_uri: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = pa.table({"id": range(1_000)})
    monkeypatch.setattr("lancemem.sharding._BYTES_PER_SHARD", 3_000)
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    with caplog.at_level(logging.INFO, logger="lancemem"):
        table = lancemem.create_table(table_uri, rows, primary_key="id")
    assert table.sharding == lancemem.bucket("id", 3)
    assert table.count_rows() == 1_000
    [line] = [text for text in caplog.messages if text.startswith("sharding ")]
    assert f'table="{table_uri}" shards=3 reason="3 shards by \'id\'' in line
    # A table that exists keeps its sharding, where none is asked for.
    again = lancemem.create_table(table_uri, rows, primary_key="id", exist_ok=True)
    assert again.sharding == table.sharding


def test_a_sharding_that_is_named_is_taken_and_a_stream_is_of_unknown_size(
    table_uri: str, caplog: pytest.LogCaptureFixture
) -> None:
    rows = pa.table({"id": range(10)})
    with caplog.at_level(logging.INFO, logger="lancemem"):
        lancemem.create_table(
            table_uri + "2", rows, primary_key="id", sharding=lancemem.bucket("id", 2)
        )
        assert not any(text.startswith("sharding ") for text in caplog.messages)
        table = lancemem.create_table(table_uri, rows.to_reader(), primary_key="id")
    assert table.sharding == lancemem.unsharded()
    assert any("size of the rows is not known" in text for text in caplog.messages)
