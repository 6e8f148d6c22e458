"""The samples of a dashboard: the last ones, and the history of the base table.

Owns: the thread that samples, and how much is kept. Does not own: what a sample is
(`lancemem.samples`), or how it is shown.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import lancemem
from lancemem import samples

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from lancemem.samples import Rates, Sample

__all__ = ["Recorder", "State"]

# At the usual five seconds, half an hour.
KEPT = 360
_VERSIONS = 20


@dataclass(frozen=True, slots=True)
class State:
    """What a page shows.

    Attributes:
        samples: The samples, oldest first.
        rates: The rates between each sample and the one before; one fewer than samples.
        versions: The newest versions of the base table, newest first.
        error: Why the last sample failed, or None.
    """

    samples: tuple[Sample, ...]
    rates: tuple[Rates, ...]
    versions: tuple[lancemem.TableVersion, ...]
    error: str | None


class Recorder:
    """Samples a table on a thread of its own, from `with` on. It writes nothing.

    Args:
        table: The table.
        interval: Seconds between two samples.
    """

    def __init__(self, table: lancemem.Table, interval: float) -> None:
        self._table = table
        self._interval = interval
        self._samples: deque[samples.Sample] = deque(maxlen=KEPT)
        self._versions: tuple[lancemem.TableVersion, ...] = ()
        self._error: str | None = None
        self._lock = threading.Lock()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lancemem-dashboard", daemon=True)

    def __enter__(self) -> Self:
        # The first page has a sample.
        self.sample()
        self._thread.start()
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end.set()
        self._thread.join()

    def sample(self) -> None:
        """Take a sample now. An error is kept for the page."""
        try:
            taken = samples.take(self._table)
            versions = tuple(self._table.history(_VERSIONS))
        except lancemem.LancememError as error:
            with self._lock:
                self._error = f"{type(error).__name__}: {error}"
            return
        with self._lock:
            self._samples.append(taken)
            self._versions = versions
            self._error = None

    def state(self) -> State:
        """Return what is known now."""
        with self._lock:
            kept, versions, error = tuple(self._samples), self._versions, self._error
        found = (samples.rates(one, next_one) for one, next_one in itertools.pairwise(kept))
        return State(kept, tuple(rate for rate in found if rate is not None), versions, error)

    def _run(self) -> None:
        while not self._end.wait(self._interval):
            self.sample()
