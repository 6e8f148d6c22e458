"""The check of histories agrees with a search of every order.

Owns: small histories, random ones and chosen ones. Not here: histories of real processes.
"""

from __future__ import annotations

import math
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .histories import NOTHING, HistoryError, Operation, check


def write(value: str, begin: float, end: float = math.inf) -> Operation:
    return Operation("write", value, begin, end)


def read(value: str, begin: float, end: float) -> Operation:
    return Operation("read", value, begin, end)


def is_register(order: tuple[Operation, ...]) -> bool:
    """Return whether each read has the value of the write before it, and time allows the order."""
    value = NOTHING
    for place, operation in enumerate(order):
        if any(later.end < operation.begin for later in order[place + 1 :]):
            return False
        if operation.kind == "write":
            value = operation.value
        elif operation.value != value:
            return False
    return True


def has_order(operations: list[Operation]) -> bool:
    """Try every order, with and without each write that may never have happened."""
    sure = [it for it in operations if it.end < math.inf]
    maybe = [it for it in operations if it.end == math.inf]
    return any(
        is_register(order)
        for chosen in range(1 << len(maybe))
        for order in permutations(
            sure + [it for place, it in enumerate(maybe) if chosen >> place & 1]
        )
    )


def is_accepted(operations: list[Operation]) -> bool:
    try:
        check(operations)
    except HistoryError:
        return False
    return True


@st.composite
def histories(draw: st.DrawFn) -> list[Operation]:
    """Give a few operations; no two things happen at the same time."""
    number = draw(st.integers(1, 6))
    times = iter(draw(st.permutations(range(2 * number))))
    operations: list[Operation] = []
    written: list[str] = []
    for place in range(number):
        begin, end = sorted((next(times), next(times)))
        if draw(st.booleans()):
            written.append(str(place))
            operations.append(write(str(place), begin, math.inf if draw(st.booleans()) else end))
        else:
            operations.append(read(draw(st.sampled_from([NOTHING, *written])), begin, end))
    return operations


@settings(max_examples=400, deadline=None)
@given(histories())
def test_the_zones_of_a_history_say_what_trying_every_order_says(
    operations: list[Operation],
) -> None:
    assert is_accepted(operations) == has_order(operations)


@pytest.mark.parametrize(
    ("operations", "told"),
    [
        ([read("a", 0, 1)], "never written"),
        ([write("a", 2, 3), read("a", 0, 1)], "before it was written"),
        ([write("a", 0, 1), read(NOTHING, 2, 3)], "came and went"),
        ([write("a", 0, 1), write("b", 2, 3), read("a", 4, 5)], "came and went"),
        (
            [write("a", 0, 9), write("b", 0, 9), read("a", 1, 2), read("b", 3, 4), read("a", 5, 6)],
            "was there",
        ),
        ([write("a", 0), read("a", 1, 2), read(NOTHING, 3, 4)], "was there"),
    ],
)
def test_a_history_that_no_order_explains_is_named(operations: list[Operation], told: str) -> None:
    with pytest.raises(HistoryError, match=told):
        check(operations)


def test_a_write_that_failed_may_have_happened_late_or_never() -> None:
    check([write("a", 0), read(NOTHING, 1, 2)])
    check([write("a", 0), write("b", 1, 2), read("b", 3, 4), read("a", 5, 6)])
