"""The rows of a served job, as the tests of merge rules read them.

Owns: the check that the ticket of a job's rows is refused and that live reads have the rows. Does
not own: rows of jobs without a rule (test_serve).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import lancemem

if TYPE_CHECKING:
    from collections.abc import Mapping


def assert_live_reads_alone_show(
    table: lancemem.Table, column: str, puts: pa.Table, expected: Mapping[int, int]
) -> None:
    """Put rows into a served job, and read them through the job here and through its endpoint."""
    flight = pytest.importorskip("pyarrow.flight")
    with table.start_job(shard=0) as job, job.serve() as endpoint:
        job.put(puts)
        headers = [(b"authorization", f"Bearer {endpoint.token}".encode())]
        options = flight.FlightCallOptions(headers=headers, timeout=30)
        with (
            flight.connect(endpoint.location) as client,
            pytest.raises(pa.ArrowInvalid, match="consistency 'live'"),
        ):
            client.do_get(flight.Ticket(b"rows"), options).read_all()
        remote = lancemem.connect_job(endpoint.location, endpoint.token)
        for jobs in ([job], [remote]):
            live = table.scan(consistency="live", jobs=jobs).to_table().to_pylist()
            assert {each["k"]: each[column] for each in live} == expected
            got = table.get(list(expected), [column], consistency="live", jobs=jobs).to_pylist()
            assert got == [{column: value} for value in expected.values()]
