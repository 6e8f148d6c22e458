"""Flush: a full MemTable becomes files, against pylance's close and a plain write of lance.

Owns: the MemTable that both sides fill, and the timed part. lancemem is measured twice: with fsync,
its default, which no peer calls, and without, which is the durability of the peers and carries the
goals. Does not own: how either side is opened.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import lance

from benches.write.data import batches_of, payload_bytes, rows_of
from benches.write.peers.lancemem_job import LancememPeer
from benches.write.peers.pylance_writer import PylancePeer
from benches.write.runner import Sample, Settings, Side, column, interleave
from benches.write.stats import Comparison, Goal, spread

if TYPE_CHECKING:
    from pathlib import Path

ROWS = 200_000
BATCH = 1_000
LIMITS = {"max_memtable_rows": 2 * ROWS}
# Two intervals of the log and more, so that the timed part holds no append.
DRAIN = 0.4


def _rate(seconds: float) -> Sample:
    return {"MB/s": payload_bytes(ROWS) / 1e6 / seconds, "ms": seconds * 1e3}


def _lancemem(batches: list[Any], *, fsync: bool) -> Side:
    def sample(folder: Path) -> Sample:
        peer = LancememPeer(folder, "int64", fsync=fsync, **LIMITS)
        for batch in batches:
            peer.put(batch)
        time.sleep(DRAIN)
        begun = time.perf_counter()
        peer.job.flush()
        took = time.perf_counter() - begun
        peer.close()
        return _rate(took)

    return sample


def _pylance(batches: list[Any]) -> Side:
    def sample(folder: Path) -> Sample:
        peer = PylancePeer(folder, "int64", **LIMITS)
        for batch in batches:
            peer.put(batch)
        time.sleep(DRAIN)
        begun = time.perf_counter()
        peer.close()
        return _rate(time.perf_counter() - begun)

    return sample


def _lance() -> Side:
    rows = rows_of("int64", "random", ROWS)

    def sample(folder: Path) -> Sample:
        begun = time.perf_counter()
        lance.write_dataset(rows, str(folder / "plain.lance"))
        return _rate(time.perf_counter() - begun)

    return sample


def run(settings: Settings) -> list[Comparison]:
    """Flush 200,000 rows in random order of their keys."""
    batches = batches_of("int64", "random", ROWS, BATCH)
    peers = {"pylance close": Goal(2.0), "lance.write_dataset": Goal(0.8)}
    ours = {"without fsync": False, "with fsync": True}
    sides: dict[str, Side] = {
        name: _lancemem(batches, fsync=synced) for name, synced in ours.items()
    }
    sides |= {"pylance close": _pylance(batches), "lance.write_dataset": _lance()}
    found = interleave(settings, sides)
    took = {name: f"{spread(column(found[name], 'ms')).median:.0f}" for name in sides}
    return [
        Comparison(
            bench="flush",
            label=f"{ROWS:,} rows, {payload_bytes(ROWS) / 1e6:.1f} MB, lancemem {name}",
            peer=peer,
            unit="MB/s",
            ours=column(found[name], "MB/s"),
            theirs=column(found[peer], "MB/s"),
            goal=None if synced else goal,
            notes=[("ms", took[name], took[peer])],
        )
        for name, synced in ours.items()
        for peer, goal in peers.items()
    ]
