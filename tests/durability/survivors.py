"""What is left when a writer was killed: all that it promised, the same for whoever looks.

Owns: reading what the writer said, and the look of a reader and of the shard's next owner. Does not
own: who is killed and when, or which words promise anything; the tests know that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import lancemem

from . import oracle

if TYPE_CHECKING:
    from collections.abc import Collection


def survivors(uri: str, said: list[str], floor: int, promising: Collection[str]) -> int:
    """Find what the events `promising` promised, as a prefix; say how many operations survived.

    `floor` of them were found before.
    """
    events = [line.split() for line in said]
    promised = [int(number) for event, number in events if event in promising]
    begun = [int(number) for _, number in events]
    table = lancemem.open_table(uri)
    found = oracle.state_of(table.scan().to_table())
    length = oracle.prefix_length(found, max([floor, *promised]), max([floor, *begun]))
    with table.start_job(shard=0) as job:
        live = oracle.state_of(table.scan(consistency="live", jobs=[job]).to_table())
    assert live == found
    return length
