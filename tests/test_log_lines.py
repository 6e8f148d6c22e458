"""The logger `lancemem` at INFO: a line for each flush, compaction, collection, claim and fence.

Owns: which actions of a whole table have a line, its fields, and the level of Python's logger.
Not here: lines about failures (`test_waiting`, `test_damaged_files`), or a shard's own lines (the
core's chapter `events`).
"""

from __future__ import annotations

import logging
import re
from datetime import timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import lancemem

if TYPE_CHECKING:
    from collections.abc import Iterable


def rows(keys: Iterable[int]) -> pa.Table:
    ids = list(keys)
    return pa.table({"id": ids, "name": ["a"] * len(ids), "value": [0.5] * len(ids)})


def taken(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the lines since the last call."""
    lines = [record.getMessage() for record in caplog.records if record.name == "lancemem"]
    caplog.clear()
    return lines


def fields(line: str) -> dict[str, str]:
    """Return the fields of a line, by name."""
    return dict(re.findall(r"(\w+)=(\S+)", line))


def test_a_finished_action_is_one_line_and_puts_and_reads_are_none(
    table: lancemem.Table, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="lancemem"):
        job = table.start_job(shard=0)
        (claimed,) = taken(caplog)
        assert claimed.startswith("claimed ")
        common = {"table": f'"{table.uri}"', "shard": job.shard_id}
        assert (
            fields(claimed).items() >= {**common, "epoch": "1", "rows": "0", "bytes": "0"}.items()
        )

        for key in range(3):
            job.put(rows([key, key + 1]))
        assert table.scan(consistency="live").count_rows() == 4
        assert table.get([1]).num_rows == 1
        assert taken(caplog) == []

        job.flush()
        (flushed,) = taken(caplog)
        assert flushed.startswith("flushed ")
        assert fields(flushed).items() >= {**common, "generation": "1", "rows": "6"}.items()
        assert int(fields(flushed)["bytes"]) > 0
        assert float(fields(flushed)["seconds"]) >= 0

        result = table.compact()
        (compacted,) = taken(caplog)
        assert compacted.startswith("compacted ")
        version = str(result.base_version)
        expected = {"shards": "1", "generations": "1", "rows": "4", "version": version}
        assert fields(compacted).items() >= {"table": common["table"], **expected}.items()

        removed = table.collect_garbage(older_than=timedelta(0))
        (collected,) = taken(caplog)
        assert collected.startswith("collected ")
        assert fields(collected)["bytes"] == str(removed.bytes)

        other = table.start_job(shard=0)
        taken(caplog)
        for _ in range(2):
            with pytest.raises(lancemem.WriterFencedError):
                job.put(rows([9]))
        (fenced,) = taken(caplog)
        assert fenced.startswith("fenced ")
        assert fields(fenced).items() >= {**common, "epoch": "1", "by_epoch": "2"}.items()
        other.close()
        assert taken(caplog) == []


def test_calls_without_work_are_no_lines(
    table: lancemem.Table, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="lancemem"):
        table.compact()
        table.flush()
        table.collect_garbage()
        assert taken(caplog) == []


def test_a_level_that_the_program_sets_holds_from_its_next_call_on(
    table: lancemem.Table, caplog: pytest.LogCaptureFixture
) -> None:
    job = table.start_job(shard=0)
    for number, level in enumerate([logging.INFO, logging.WARNING, logging.INFO]):
        with caplog.at_level(level, logger="lancemem"):
            job.put(rows([number]))
            job.flush()
        lines = taken(caplog)
        assert [line.split()[0] for line in lines] == ["flushed"] * (level == logging.INFO)
    job.close()
