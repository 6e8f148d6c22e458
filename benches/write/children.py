"""Programs of child processes: durable puts, and the two halves of a replay.

Owns: the roles, each a function from options to the numbers that it prints as its last line.
Does not own: how often they run, or against what (`cases`).
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benches.write.data import batches_of
from benches.write.fsync import Counter

if TYPE_CHECKING:
    from collections.abc import Callable

WARM_UP = 3
BLOCK = 10


def _percentile(sorted_values: list[float], share: float) -> float:
    return sorted_values[min(len(sorted_values) - 1, int(len(sorted_values) * share))]


def _time_each(work: list[Callable[[], object]]) -> dict[str, float]:
    """Time calls one by one, in milliseconds, after some that are not counted."""
    for call in work[:WARM_UP]:
        call()
    counter = Counter()
    before = counter.read()
    took = [_milliseconds(call) for call in work[WARM_UP:]]
    fsyncs = counter.read() - before if before >= 0 else float("nan")
    took.sort()
    return {
        "p50": _percentile(took, 0.5),
        "p99": _percentile(took, 0.99),
        "fsyncs": fsyncs / len(took),
    }


def _puts(put: Callable[[Any], object], puts: int, batch: int) -> dict[str, float]:
    batches = batches_of("int64", "random", (puts + WARM_UP) * batch, batch)
    return _time_each([partial(put, rows) for rows in batches])


def durable_lancemem(folder: Path, puts: int, batch: int, *, fsync: bool) -> dict[str, float]:
    """Put durably; one producer."""
    from benches.write.peers.lancemem_job import LancememPeer  # noqa: PLC0415 - one engine a child

    peer = LancememPeer(folder, "int64", durable=True, fsync=fsync)
    found = _puts(peer.put, puts, batch)
    peer.close()
    return found


def durable_pylance(folder: Path, puts: int, batch: int, interval: int | None) -> dict[str, float]:
    """Put durably through pylance, which calls no fsync."""
    from benches.write.peers.pylance_writer import PylancePeer  # noqa: PLC0415 - as above

    settings = {} if interval is None else {"max_wal_flush_interval_ms": interval}
    peer = PylancePeer(folder, "int64", durable_write=True, **settings)
    found = _puts(peer.put, puts, batch)
    peer.close()
    return found


def durable_beside_hand(folder: Path, puts: int, batch: int, entry: str) -> dict[str, float]:
    """Put durably, in turn with the same calls by hand, ten by ten: both see the same disk load."""
    from benches.write.peers.lancemem_job import LancememPeer  # noqa: PLC0415 - as above

    peer = LancememPeer(folder, "int64", durable=True, fsync=True)
    batches = batches_of("int64", "random", puts * batch, batch)
    ours: list[Callable[[], object]] = [partial(peer.put, rows) for rows in batches]
    hand = _by_hand(folder, puts, Path(entry).read_bytes())
    found = _in_turn({"ours": ours, "hand": hand})
    peer.close()
    return found


def writer_beside_job(folder: Path, puts: int, *, fsync: bool) -> dict[str, float]:
    """Put one row durably through a writer, in turn with puts of a job on another table."""
    from benches.write.peers.lancemem_job import LancememPeer, open_writer  # noqa: PLC0415 - as above

    peer = LancememPeer(folder, "int64", durable=True, fsync=fsync)
    writer = open_writer(folder, 1, durable=True, fsync=fsync)
    rows = batches_of("int64", "random", puts, 1)
    found = _in_turn(
        {
            "writer": [partial(writer.put, row) for row in rows],
            "job": [partial(peer.put, row) for row in rows],
        }
    )
    writer.close()
    peer.close()
    return found


def upserts_beside_jobs(folder: Path, calls: int, *, fsync: bool) -> dict[str, float]:
    """Upsert one row without a writer, in turn with a job for each row on another table."""
    from benches.write.peers.lancemem_job import open_table  # noqa: PLC0415 - as above

    upserted, claimed = (open_table(folder, name, fsync=fsync) for name in ("upserted", "claimed"))
    rows = batches_of("int64", "random", calls, 1)

    def by_a_job(row: Any) -> None:  # noqa: ANN401 - an Arrow batch
        job = claimed.start_job(shard=0)
        job.put(row)
        job.close(flush=None)

    return _in_turn(
        {
            "upsert": [partial(upserted.upsert, row) for row in rows],
            "job": [partial(by_a_job, row) for row in rows],
        }
    )


def _in_turn(sides: dict[str, list[Callable[[], object]]]) -> dict[str, float]:
    """Time two lists of as many calls, ten by ten: both see the same load of the disk."""
    counter = Counter()
    calls = min(map(len, sides.values()))
    took: dict[str, list[float]] = {name: [] for name in sides}
    fsyncs = dict.fromkeys(sides, 0)
    for start in range(0, calls, BLOCK):
        names = list(sides) if start // BLOCK % 2 == 0 else list(reversed(sides))
        for name in names:
            before = counter.read()
            found = [_milliseconds(call) for call in sides[name][start : start + BLOCK]]
            fsyncs[name] += counter.read() - before
            # The first block warms up.
            took[name].extend(found if start else [])
    result: dict[str, float] = {}
    for name, times in took.items():
        times.sort()
        result |= {f"{name} p50": _percentile(times, 0.5), f"{name} p99": _percentile(times, 0.99)}
        result[f"{name} fsyncs"] = fsyncs[name] / calls if counter.counts else float("nan")
    return result


def _milliseconds(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return (time.perf_counter() - begun) * 1e3


def _by_hand(folder: Path, puts: int, content: bytes) -> list[Callable[[], object]]:
    """Write a file, fsync, link, fsync the folder: the least that a WAL entry costs."""
    folder = folder / "hand"
    folder.mkdir()
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)

    def create(number: int) -> None:
        name = f"{folder}/{number:032b}"
        file = os.open(f"{name}#1", os.O_RDWR | os.O_CREAT | os.O_EXCL)
        os.write(file, content)
        os.fsync(file)
        os.close(file)
        os.link(f"{name}#1", name)
        os.fsync(directory)

    return [partial(create, number) for number in range(puts)]


def producers(folder: Path, threads: int, batch: int, seconds: float) -> dict[str, float]:
    """Put durably from several threads for some seconds."""
    from benches.write.peers.lancemem_job import LancememPeer  # noqa: PLC0415 - as above

    peer = LancememPeer(folder, "int64", durable=True, fsync=True)
    batches = batches_of("int64", "random", 64 * batch, batch)
    found = _from_threads(peer.put, batches, threads, seconds)
    peer.close()
    return found


def writer_threads(folder: Path, threads: int, shards: int, seconds: float) -> dict[str, float]:
    """Put one row at a time durably from several threads through one writer for some seconds."""
    from benches.write.peers.lancemem_job import open_writer  # noqa: PLC0415 - as above

    writer = open_writer(folder, shards, durable=True, fsync=True)
    rows = batches_of("int64", "random", 256, 1)
    for row in rows[:64]:
        # So that every shard has its job.
        writer.put(row)
    found = _from_threads(writer.put, rows, threads, seconds)
    writer.close()
    return found


def _from_threads(
    put: Callable[[Any], object], batches: list[Any], threads: int, seconds: float
) -> dict[str, float]:
    """Put from several threads for some seconds."""
    done = [0] * threads
    ready = threading.Barrier(threads + 1)
    stop = threading.Event()

    def produce(number: int) -> None:
        ready.wait()
        while not stop.is_set():
            put(batches[(number + done[number]) % len(batches)])
            done[number] += 1

    workers = [threading.Thread(target=produce, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    counter = Counter()
    before = counter.read()
    ready.wait()
    begun = time.perf_counter()
    time.sleep(seconds)
    stop.set()
    for worker in workers:
        worker.join()
    took = time.perf_counter() - begun
    fsyncs = counter.read() - before if before >= 0 else float("nan")
    rows = sum(done) * batches[0].num_rows
    return {"rows/s": rows / took, "fsyncs": fsyncs / sum(done)}


def leave_lancemem(
    folder: Path, entries: int, batch: int, limits: dict[str, int], *, fsync: bool
) -> dict[str, Any]:
    """Put durably and die."""
    from benches.write.peers.lancemem_job import LancememPeer  # noqa: PLC0415 - as above

    peer = LancememPeer(folder, "int64", durable=True, fsync=fsync, **limits)
    return _leave(peer.put, entries, batch)


def leave_pylance(folder: Path, entries: int, batch: int, limits: dict[str, int]) -> dict[str, Any]:
    """Put durably and die."""
    from benches.write.peers.pylance_writer import PylancePeer  # noqa: PLC0415 - as above

    peer = PylancePeer(folder, "int64", durable_write=True, max_wal_flush_interval_ms=1, **limits)
    return _leave(peer.put, entries, batch)


def _leave(put: Callable[[Any], object], entries: int, batch: int) -> dict[str, Any]:
    for rows in batches_of("int64", "random", entries * batch, batch):
        put(rows)
    _say({"entries": entries})
    os._exit(0)


def reopen_lancemem(folder: Path, limits: dict[str, int], *, fsync: bool) -> dict[str, float]:
    """Start a job on the state that is left, and count its rows."""
    import lancemem  # noqa: PLC0415 - as above

    table = lancemem.open_table(str(folder / "lancemem.lance"))
    config = lancemem.WriterConfig(
        durable=False, fsync=fsync, max_memtable_rows=limits["max_memtable_rows"]
    )
    counter = Counter()
    before, begun = counter.read(), time.perf_counter()
    job = table.start_job(shard=0, config=config)
    took = time.perf_counter() - begun
    fsyncs = counter.read() - before if before >= 0 else float("nan")
    return {"seconds": took, "rows": job.stats().num_active_rows, "fsyncs": fsyncs}


def reopen_pylance(folder: Path, limits: dict[str, int]) -> dict[str, float]:
    """Open a writer on the state that is left, and count its rows."""
    import lance  # noqa: PLC0415 - as above

    from benches.write.peers.pylance_writer import SHARD  # noqa: PLC0415 - as above

    dataset: Any = lance.dataset(str(folder / "pylance.lance"))
    counter = Counter()
    before, begun = counter.read(), time.perf_counter()
    writer = dataset.mem_wal_writer(SHARD, durable_write=False, **limits)
    took = time.perf_counter() - begun
    fsyncs = counter.read() - before if before >= 0 else float("nan")
    return {"seconds": took, "rows": writer.memtable_stats()["row_count"], "fsyncs": fsyncs}


def _say(found: dict[str, Any]) -> None:
    print(json.dumps(found), flush=True)


ROLES: dict[str, Callable[..., dict[str, Any]]] = {
    "durable-lancemem": durable_lancemem,
    "durable-pylance": durable_pylance,
    "durable-beside-hand": durable_beside_hand,
    "producers": producers,
    "writer-beside-job": writer_beside_job,
    "writer-threads": writer_threads,
    "upserts-beside-jobs": upserts_beside_jobs,
    "leave-lancemem": leave_lancemem,
    "leave-pylance": leave_pylance,
    "reopen-lancemem": reopen_lancemem,
    "reopen-pylance": reopen_pylance,
}


def main() -> None:
    """Run a role and exit without closing its jobs: a close would add work."""
    options = json.loads(sys.argv[2])
    folder = Path(options.pop("folder"))
    _say(ROLES[sys.argv[1]](folder, **options))
    os._exit(0)


if __name__ == "__main__":
    main()
