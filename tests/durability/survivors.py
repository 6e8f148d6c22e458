"""The rows after a writer was killed: every promised row, the same for a reader and the next owner.

Owns: reading the writer's output, and the checks by a reader and by the shard's next owner. Does
not own: the kill and its moment, or which events are promises: the tests set them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import lancemem

from . import oracle

if TYPE_CHECKING:
    from collections.abc import Collection


def survivors(uri: str, said: list[str], floor: int, promising: Collection[str]) -> int:
    """Check that the operations promised by `promising` events survived; return how many did.

    `floor` operations were found before.
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
