"""The operations of a child and the states that they lead to. It does not read the data.

Owns: the numbered operations and the state after the first n of them. Does not own: which n a death
may leave; the tests derive that from the acknowledgements.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

if TYPE_CHECKING:
    import lancemem

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("value", pa.int64())])
# Every put replaces this row, so the state shows which put was the last.
HEAD = -1
ROWS_PER_PUT = 4
DELETE_EVERY = 5

State: TypeAlias = dict[int, int]


def is_delete(number: int) -> bool:
    """Return whether operation `number`, from 1, deletes the rows of the operation before."""
    return number % DELETE_EVERY == 0


def ids_of(number: int) -> list[int]:
    """Return the keys that belong to operation `number` alone."""
    return list(range(number * ROWS_PER_PUT, (number + 1) * ROWS_PER_PUT))


def apply(job: lancemem.Job, number: int) -> bool:
    """Do operation `number` and return whether it was acknowledged as durable."""
    if is_delete(number):
        keys = pa.table({"id": ids_of(number - 1)}, schema=pa.schema([SCHEMA.field("id")]))
        return job.delete(keys).durable
    ids = [HEAD, *ids_of(number)]
    return job.put(pa.table({"id": ids, "value": [number] * len(ids)}, schema=SCHEMA)).durable


def states(last: int) -> list[State]:
    """Return the states after 0 to `last` operations."""
    state: State = {}
    found = [state]
    for number in range(1, last + 1):
        state = dict(state)
        if is_delete(number):
            for key in ids_of(number - 1):
                del state[key]
        else:
            state |= dict.fromkeys([HEAD, *ids_of(number)], number)
        found.append(state)
    return found


def state_of(rows: pa.Table) -> State:
    """Return the state that was read; a key that occurs twice is a failure."""
    pairs = list(zip(*(rows.column(name).to_pylist() for name in SCHEMA.names), strict=True))
    state = dict(pairs)
    assert len(state) == len(pairs), "a key was read twice"
    return state


def prefix_length(found: State, at_least: int, at_most: int) -> int:
    """Return after how many operations the state is `found`; no number in range fails."""
    every = states(at_most)
    for length in range(at_least, at_most + 1):
        if every[length] == found:
            return length
    head = found.get(HEAD)
    known = [length for length, state in enumerate(every) if state == found]
    raise AssertionError(
        f"{len(found)} rows, the newest of put {head}, are not the state after {at_least} to "
        f"{at_most} operations (it is that after {known or 'no number of them'})"
    )
