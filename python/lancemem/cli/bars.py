"""The progress of a command on the terminal.

Owns: bars on standard error, beside the answer on standard output. Does not own: the events
(`lancemem.progress`).
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.progress import TaskID

    from lancemem.progress import Progress

__all__ = ["following"]


@contextmanager
def following(wanted: bool | None) -> Iterator[Callable[[Progress], None] | None]:
    """Return the function that shows bars, or None where none are shown.

    Args:
        wanted: Whether bars are shown. None: where standard error is a terminal.
    """
    if wanted is False or (wanted is None and not sys.stderr.isatty()):
        yield None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[unit]}"),
        TimeElapsedColumn(),
    )
    with Bars(*columns, console=Console(file=sys.stderr)) as bars:
        current: dict[str, TaskID] = {}

        def show(at: Progress) -> None:
            if at.stage not in current:
                current[at.stage] = bars.add_task(at.stage, total=at.total, unit=at.unit)
            bars.update(current[at.stage], completed=at.done, total=at.total)

        yield show
