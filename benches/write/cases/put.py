"""put from Python, not durable, against pylance's `ShardWriter`.

Owns: sizes, keys and orders, and the timed parts. A burst is the puts alone; the time of a
sustained rate ends when the same rows are flushed and the side is closed. Does not own: how either
side is opened.
"""

from __future__ import annotations

import resource
import time
from typing import TYPE_CHECKING, Any

from benches.write.data import KEY_KINDS, ORDERS, KeyKind, Order, batches_of
from benches.write.peers.lancemem_job import LancememPeer
from benches.write.peers.pylance_writer import PylancePeer
from benches.write.runner import Sample, Settings, Side, column, interleave
from benches.write.stats import Comparison, Goal

if TYPE_CHECKING:
    from pathlib import Path

    from benches.write.peers import Peer

# Rows of a sample by batch size: enough puts to time, MemTables that fill where rows allow it.
ROWS = {1: 4_000, 10: 30_000, 100: 120_000, 1_000: 200_000, 10_000: 200_000}
QUICK_ROWS = {1: 2_000, 10: 10_000, 100: 50_000, 1_000: 120_000, 10_000: 120_000}
QUICK: list[tuple[KeyKind, Order]] = [
    ("int64", "random"),
    ("utf8 uuid", "updates"),
]


def side(peer: type[Peer], kind: KeyKind, batches: list[Any], rows: int) -> Side:
    """Put the batches: the rate of the burst, its page faults, and the rate with the close."""

    def sample(folder: Path) -> Sample:
        opened = peer(folder, kind)
        put = opened.put
        faults = _page_faults()
        begun = time.perf_counter()
        for batch in batches:
            put(batch)
        written = time.perf_counter()
        faults = _page_faults() - faults
        opened.close()
        closed = time.perf_counter()
        return {
            "rows/s": rows / (written - begun),
            "closed": rows / (closed - begun),
            "page faults": faults,
        }

    return sample


def _page_faults() -> int:
    """Return those of this process that needed no disk: pages that it had not touched before."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def _compare(settings: Settings, kind: KeyKind, order: Order, size: int) -> list[Comparison]:
    """Compare the bursts and the sustained rates of the same puts."""
    rows = (QUICK_ROWS if settings.quick else ROWS)[size]
    batches = batches_of(kind, order, rows, size)
    sides = {
        "lancemem": side(LancememPeer, kind, batches, rows),
        "pylance": side(PylancePeer, kind, batches, rows),
    }
    found = interleave(settings, sides)
    return [
        Comparison(
            bench=bench,
            label=f"{kind}, {order}, batch {size:,}",
            peer="pylance",
            unit="rows/s",
            ours=column(found["lancemem"], rate),
            theirs=column(found["pylance"], rate),
            goal=goal,
            facts={"kind": kind, "order": order, "batch": size},
        )
        for bench, rate, goal in (
            ("put", "rows/s", Goal(3.0)),
            ("put-sustained", "closed", None),
        )
    ]


def run(settings: Settings) -> list[Comparison]:
    """Run every kind of key in every order at every size."""
    every: list[tuple[KeyKind, Order]] = [(kind, order) for kind in KEY_KINDS for order in ORDERS]
    found = []
    for kind, order in QUICK if settings.quick else every:
        for size in ROWS:
            burst, sustained = _compare(settings, kind, order, size)
            found += [burst, sustained]
            ratio, low, high = burst.interval()
            settings.say(
                f"  {burst.label}: {ratio:.2f}x [{low:.2f}, {high:.2f}], "
                f"sustained {sustained.interval()[0]:.2f}x"
            )
    return found
