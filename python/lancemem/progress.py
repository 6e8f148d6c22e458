"""The progress of long calls: events for programs, bars for people.

Owns: the event, the bars of `tqdm`, and calls of several steps, of which the engine does some. Does
not own: the stages of the engine and their counts, or when they are reported (`compact`,
`collect_garbage`, `create_record_index`, `write_deletion_vectors`, `verify_sstables` and
`verify_record_index` take `progress=`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

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


class Steps:
    """One `progress=` of a call that takes steps of its own and then calls the engine.

    It is the function that the engine reports its stages to. As there, an exception of the user's
    function goes to `sys.unraisablehook`, and the function is not called again; an exception that
    ends a program is raised.

    Args:
        progress: As in `follower`; None for nothing.

    Raises:
        InvalidInputError: As in `follower`.
        ModuleNotFoundError: As in `follower`.

    Example:
        with Steps(progress) as steps:
            steps.report("flush logs", 1, 1, "logs")
            table.compact(progress=steps.function)
    """

    def __init__(self, progress: object) -> None:
        """Follow `progress`."""
        self._follower = None if progress is None else follower(progress)

    def __enter__(self) -> Self:
        """Use it in a `with` block, which ends a bar where the call ends."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the last bar."""
        if self._follower is not None:
            self._follower.close()

    def report(self, stage: str, done: int, total: int, unit: str) -> None:
        """Report a step of the caller's own."""
        if self._follower is None:
            return
        try:
            self._follower(stage, done, total, unit)
        except Exception as error:  # noqa: BLE001 - whatever the user's function raises
            self._follower = None
            _unraisable(error)

    @property
    def function(self) -> Callable[[Progress], None] | None:
        """What the engine's call takes as `progress`; None for nothing."""
        follows = self._follower
        if follows is None:
            return None
        return lambda at: _ignore(follows(at.stage, at.done, at.total, at.unit))


def _ignore(_: object) -> None:
    """Return nothing, whatever a function returned."""


def _unraisable(error: Exception) -> None:
    """Pass an exception to `sys.unraisablehook`.

    Only the interpreter makes what the hook takes, such as for an exception of `__del__`.
    """

    class Raiser:
        def __del__(self) -> None:
            raise error

    Raiser()


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
