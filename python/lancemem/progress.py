"""The progress of long calls: events for programs, bars for people.

Owns: the event, and the bars of `tqdm`. Does not own: the stages and their counts, which the engine
makes, or when they are reported (`compact`, `collect_garbage`, `create_record_index`,
`write_deletion_vectors`, `verify_sstables` and `verify_record_index` take `progress=`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from lancemem import _lancemem

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Progress"]

# Between two drawings of a bar.
_REDRAW_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a stage of a long call is.

    The stages of a call follow each other. A call whose plan a concurrent commit overtakes repeats
    stages. The last event of each stage that ended is always passed on.

    Attributes:
        stage: The stage, a verb and its object, such as "rewrite rows" (docs/monitoring.md lists
            them).
        done: What is done, in `unit`, at most `total`.
        total: What is to do.
        unit: What is counted, such as "rows" or "SSTables".

    Example:
        table.compact(progress=lambda at: print(f"{at.stage}: {at.done} of {at.total} {at.unit}"))
    """

    stage: str
    done: int
    total: int
    unit: str


class Follower(Protocol):
    """What the extension reports the stages of one call to."""

    def __call__(self, stage: str, done: int, total: int, unit: str) -> object:
        """Take how far a stage is."""

    def close(self) -> None:
        """Take the end of the call."""


def follower(progress: object) -> Follower | None:
    """Return what the argument `progress` of a call asks for.

    Args:
        progress: A function of one `Progress`, True for bars, False for nothing.

    Returns:
        A follower; None for nothing.

    Raises:
        InvalidInputError: It is neither a function nor a bool.
        ModuleNotFoundError: Bars are asked for, and tqdm is not installed.
    """
    if progress is False:
        return None
    if progress is True:
        return _Bars(_tqdm())
    if not callable(progress):
        raise _lancemem.InvalidInputError(
            f"progress takes a function of one lancemem.Progress, or True for bars of tqdm, "
            f"got {progress!r}"
        )
    return _Function(progress)


class _Function:
    """Passes events to a function."""

    def __init__(self, function: Callable[[Progress], object]) -> None:
        self._function = function

    def __call__(self, stage: str, done: int, total: int, unit: str) -> None:
        self._function(Progress(stage, done, total, unit))

    def close(self) -> None:
        pass


class _Bars:
    """Shows one bar after the other, in a terminal on stderr, in a notebook as a widget."""

    def __init__(self, tqdm: Any) -> None:  # noqa: ANN401 - tqdm has no types
        self._tqdm = tqdm
        self._stage: str | None = None
        self._bar: Any = None

    def __call__(self, stage: str, done: int, total: int, unit: str) -> None:
        if stage != self._stage or total != self._bar.total or done < self._bar.n:
            self.close()
            self._stage = stage
            self._bar = self._tqdm(
                total=total, desc=stage, unit=f" {unit}", mininterval=_REDRAW_SECONDS
            )
        self._bar.update(done - self._bar.n)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


def _tqdm() -> Any:  # noqa: ANN401 - a class of a package without types
    try:
        from tqdm.auto import tqdm  # noqa: PLC0415 - it is no dependency
    except ModuleNotFoundError as error:
        message = "progress=True shows bars of the package tqdm: pip install tqdm"
        raise ModuleNotFoundError(message, name=error.name) from error
    return tqdm
