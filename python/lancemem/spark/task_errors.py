"""Errors of Spark's tasks as the exceptions that the tasks raised.

Owns: the search for the class and the first line of lancemem's exception in Spark's text. Does not
own: what a message means, or errors of Spark itself.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

import lancemem

if TYPE_CHECKING:
    from collections.abc import Iterator

# A Python traceback has the class and then the message, at the start of a line. In the errors that
# Spark raises for a merge they follow the name of Spark's own error. The note with the table
# follows.
_RAISED = re.compile(
    r"(?:^|[\]:] )lancemem\.(\w+): (.*?)(?: SQLSTATE: \w+)?(?:\n(table: [^\n]*))?$", re.MULTILINE
)


def as_raised(message: str) -> str:
    """Return a message for Spark to raise, which `error_of` finds."""
    return f"lancemem.InvalidInputError: {message}"


def error_of(error: BaseException) -> lancemem.LancememError | None:
    """Return the exception of lancemem that Spark shows as `error`; None for any other error.

    For errors of what Spark runs later, such as an action on `toDF()`, a write of
    `format("lancemem")` or `query.exception()`: Spark raises its own exception for them, with the
    traceback of the task as text. The verbs of `LancememTable` raise lancemem's by themselves.
    """
    if isinstance(error, lancemem.LancememError):
        return error
    # The last exception of a traceback is the outermost one.
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
    """Raise the exception of lancemem that a task raised, with Spark's exception as its cause."""
    try:
        yield
    except lancemem.LancememError:
        raise
    except Exception as error:
        told = error_of(error)
        if told is None:
            raise
        raise told from error
