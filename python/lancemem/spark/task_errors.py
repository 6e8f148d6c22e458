"""Errors of Spark's tasks as the exceptions that they were raised as.

Owns: finding lancemem's exception in what Spark makes of it, its class and its first line. Does not
own: what a message means, or errors of Spark itself.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

import lancemem

if TYPE_CHECKING:
    from collections.abc import Iterator

# A Python traceback names the class and then the message, at the start of a line; so do the errors
# that a merge has Spark raise, behind the name of Spark's own. The note of the table comes behind.
_RAISED = re.compile(
    r"(?:^|[\]:] )lancemem\.(\w+): (.*?)(?: SQLSTATE: \w+)?(?:\n(table: [^\n]*))?$", re.MULTILINE
)


def as_raised(message: str) -> str:
    """Return a message that Spark is to raise, for `error_of` to find."""
    return f"lancemem.InvalidInputError: {message}"


def error_of(error: BaseException) -> lancemem.LancememError | None:
    """Return the exception of lancemem that Spark shows as `error`; None where it is of another.

    For errors of what Spark runs later, such as an action on `toDF()`, a write of
    `format("lancemem")` or `query.exception()`: Spark raises its own exception for them, with the
    traceback of the task as text. The verbs of `LancememTable` raise lancemem's by themselves.
    """
    if isinstance(error, lancemem.LancememError):
        return error
    # The last one of a traceback is the one that was raised while others were handled.
    for name, message, note in reversed(_RAISED.findall(str(error))):
        kind = getattr(lancemem, name, None)
        if isinstance(kind, type) and issubclass(kind, lancemem.LancememError):
            raised = kind(message)
            if note:
                raised.add_note(note)
            return raised
    return None


@contextmanager
def own_errors() -> Iterator[None]:
    """Raise an exception of lancemem's that a task raised as what it is, with Spark's as cause."""
    try:
        yield
    except lancemem.LancememError:
        raise
    except Exception as error:
        told = error_of(error)
        if told is None:
            raise
        raise told from error
