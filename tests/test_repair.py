"""A damaged log in Python: refused by a claim, reported by verify_wal, dropped by truncate_wal.

Owns the methods, the command line and pylance as the other reader. Does not own the bytes of each
kind of damage, or truncations that stop half-way: see `rust/core/tests/repair.rs`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest

import lancemem
from lancemem.__main__ import main

if TYPE_CHECKING:
    from collections.abc import Callable

ENTRIES = 6
# The claim's sentinel stands at position 1.
FIRST = 2


def entry_path(table: lancemem.Table, position: int) -> Path:
    name = f"{position:064b}"[::-1]
    return Path(table.uri) / "_mem_wal" / shard_of(table) / "wal" / f"{name}.arrow"


def shard_of(table: lancemem.Table) -> str:
    return table.shards()[0].shard_id


def row(number: int) -> pa.Table:
    columns = {"id": [number], "name": [f"r{number}"], "value": [number / 2]}
    return pa.table(columns)


@pytest.fixture
def written(table: lancemem.Table) -> lancemem.Table:
    """Give a table with the rows 2 to 7, each in the entry of its number."""
    with table.start_job(shard=0) as job:
        for number in range(FIRST, FIRST + ENTRIES):
            job.put(row(number))
    return table


def ids(rows: pa.Table) -> list[int]:
    return sorted(rows.column("id").to_pylist())


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "hole": Path.unlink,
    "cut short": lambda path: path.write_bytes(path.read_bytes()[:100]),
    "zero length": lambda path: path.write_bytes(b""),
    "zero filled": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "checksum": flip,
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_damage_is_refused_reported_and_truncated_and_pylance_reads_the_rest(
    written: lancemem.Table, kind: str
) -> None:
    DAMAGES[kind](entry_path(written, 5))
    for refused in (lambda: written.start_job(shard=0), lambda: written.scan().to_table()):
        with pytest.raises(lancemem.CorruptionError, match=rf"WAL entry 5 .*\({kind}\)"):
            refused()

    report = written.admin.verify_wal(0)
    assert report.first_damaged_position == 5
    assert (report.replay_after_wal_position, report.last_wal_position) == (0, 7)
    assert [finding.kind for finding in report.findings] == [kind, "intact", "intact"]
    assert [finding.num_rows for finding in report.findings[1:]] == [1, 1]

    originals = {
        position: path.read_bytes()
        for position in (5, 6, 7)
        if (path := entry_path(written, position)).exists()
    }
    dropped = written.admin.truncate_wal(shard_of(written), from_position=5)
    assert [finding.position for finding in dropped.findings] == [5, 6, 7]
    copies = {
        finding.position: (Path(written.uri) / finding.copy).read_bytes()
        for finding in dropped.findings
        if finding.copy is not None
    }
    assert copies == originals

    assert written.admin.verify_wal(0).findings == []
    assert ids(written.scan().to_table()) == [2, 3, 4]
    with lance.dataset(written.uri).mem_wal_writer(shard_of(written)) as writer:
        assert ids(writer.lsm_scanner().to_table()) == [2, 3, 4]
    with written.start_job(shard=0) as job:
        job.put(row(9))
    assert ids(written.scan().to_table()) == [2, 3, 4, 9]


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
@pytest.mark.parametrize("said", [8_000, 1 << 62])
def test_compressed_buffers_are_refused_whatever_size_they_say_they_have(
    written: lancemem.Table, codec: str, said: int
) -> None:
    """A decoder that trusted the size would allocate that much memory, and end the process."""
    stream = pa.ipc.open_stream(entry_path(written, 7).read_bytes())
    columns = {"id": range(1000), "name": ["r"] * 1000, "value": [0.0] * 1000}
    rows = pa.table(columns | {"_tombstone": [False] * 1000}).cast(stream.schema)
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with pa.ipc.new_stream(sink, stream.schema, options=options) as writer:
        writer.write_table(rows)
    compressed = sink.getvalue().to_pybytes()
    size = (8_000).to_bytes(8, "little")
    assert size in compressed
    path = entry_path(written, 7)
    path.write_bytes(compressed.replace(size, said.to_bytes(8, "little")))
    for refused in (lambda: written.start_job(shard=0), lambda: written.scan().to_table()):
        with pytest.raises(lancemem.CorruptionError, match=r"WAL entry 7 .*compressed"):
            refused()
    assert [finding.kind for finding in written.admin.verify_wal(0).findings] == ["undecodable"]
    written.admin.truncate_wal(shard_of(written), from_position=7)
    assert ids(written.scan().to_table()) == [2, 3, 4, 5, 6]


def test_a_file_under_the_last_number_there_is_hides_no_entry(written: lancemem.Table) -> None:
    path = entry_path(written, 2**64 - 1)
    path.write_bytes(b"whatever")
    table = lancemem.open_table(written.uri)
    assert ids(table.scan().to_table()) == [2, 3, 4, 5, 6, 7]
    assert table.admin.verify_wal(0).findings == []
    with table.start_job(shard=0) as job:
        job.put(row(8))
    assert ids(table.scan().to_table()) == [2, 3, 4, 5, 6, 7, 8]
    assert path.read_bytes() == b"whatever"


def test_rows_of_a_dropped_entry_can_be_read_from_its_copy(written: lancemem.Table) -> None:
    DAMAGES["zero length"](entry_path(written, 5))
    dropped = written.admin.truncate_wal(0, from_position=5)
    copy = Path(written.uri) / str(dropped.findings[1].copy)
    rows = pa.ipc.open_stream(copy.read_bytes()).read_all()
    written.upsert(rows.drop_columns(["_tombstone"]))
    assert ids(written.scan().to_table()) == [2, 3, 4, 6]


def test_a_running_job_can_flush_past_the_damage_and_loses_nothing(table: lancemem.Table) -> None:
    job = table.start_job(shard=0)
    for number in range(FIRST, FIRST + ENTRIES):
        job.put(row(number))
    DAMAGES["checksum"](entry_path(table, 4))
    with pytest.raises(lancemem.CorruptionError):
        table.start_job(shard=0)
    job.close(flush=True)
    assert table.admin.verify_wal(0).findings == []
    assert ids(table.scan().to_table()) == list(range(FIRST, FIRST + ENTRIES))


def test_a_truncation_that_must_not_happen_is_refused_with_the_reason(
    written: lancemem.Table,
) -> None:
    with pytest.raises(lancemem.InvalidInputError, match="no entry of the log is damaged"):
        written.admin.truncate_wal(0, from_position=5)
    DAMAGES["hole"](entry_path(written, 4))
    with pytest.raises(lancemem.InvalidInputError, match="entry 4 before it is damaged too"):
        written.admin.truncate_wal(0, from_position=6)
    with pytest.raises(lancemem.InvalidInputError, match="covers the log up to entry 0"):
        written.admin.truncate_wal(0, from_position=0)
    for unknown in (7, "no id", "6c6e636d-656d-8000-8000-00010000ffff"):
        with pytest.raises(lancemem.InvalidInputError, match=r"no shard|not a shard id|not exist"):
            written.admin.verify_wal(unknown)


def test_the_old_job_is_fenced_by_a_truncation(table: lancemem.Table) -> None:
    job = table.start_job(shard=0)
    for number in range(FIRST, FIRST + ENTRIES):
        job.put(row(number))
    DAMAGES["hole"](entry_path(table, 6))
    table.admin.truncate_wal(0, from_position=6)
    with pytest.raises(lancemem.WriterFencedError):
        job.put(row(99))
    assert ids(table.scan().to_table()) == [2, 3, 4, 5]


def test_the_command_line_reports_damage_by_its_exit_code_and_truncates(
    written: lancemem.Table, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify-wal", written.uri]) == 0
    assert "entries 1 to 7, nothing damaged" in capsys.readouterr().out

    assert main(["verify-record-index", written.uri]) == 0
    assert "no record index" in capsys.readouterr().out
    manifests = Path(written.uri, "_mem_wal", shard_of(written), "manifest")
    # The name of a manifest is its version in binary, backwards.
    newest = max(manifests.glob("*.binpb"), key=lambda path: path.stem[::-1])
    kept = newest.read_bytes()
    newest.write_bytes(kept[:-4])
    assert main(["verify-wal", written.uri]) == 1
    assert newest.name in capsys.readouterr().err
    newest.write_bytes(kept)

    DAMAGES["cut short"](entry_path(written, 6))
    assert main(["verify-wal", written.uri, "--shard", "0"]) == 1
    said = capsys.readouterr().out
    assert "damaged from 6 on" in said
    assert "entry 6 (cut short: 100 bytes" in said
    assert "entry 7 (intact, behind the damage)" in said
    assert "rows 1" in said

    assert main(["truncate-wal", written.uri, "--shard", "0", "--from", "7"]) == 2
    assert "entry 6 before it is damaged too" in capsys.readouterr().err
    assert main(["truncate-wal", written.uri, "--shard", shard_of(written), "--from", "5"]) == 0
    said = capsys.readouterr().out
    assert f"copied to _lancemem/dropped/{shard_of(written)}/2/{6:016}.arrow" in said
    assert "entry 5 (intact, before the damage)" in said
    assert main(["verify-wal", written.uri]) == 0
    assert ids(written.scan().to_table()) == [2, 3, 4]


@pytest.mark.parametrize(
    ("command", "option", "value"),
    [
        ("truncate-wal", "--from", "-1"),
        ("truncate-wal", "--from", "x"),
        ("maintain", "--bytes-per-second", "-5"),
        ("maintain", "--bytes-per-second", "0"),
        ("maintain", "--older-than", "-5"),
        ("maintain", "--older-than", "nan"),
        ("maintain", "--older-than", "1e300"),
        ("maintain", "--flush-idle", "-5"),
        ("maintain", "--flush-idle", "never"),
        ("maintain", "--interval", "0"),
        ("maintain", "--interval", "inf"),
    ],
)
def test_the_command_line_refuses_numbers_that_mean_nothing(
    command: str, option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shard = ["--shard", "0"] if command == "truncate-wal" else []
    with pytest.raises(SystemExit) as ended:
        main([command, "never opened", *shard, f"{option}={value}"])
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert f"argument {option}: expected " in told
    assert f", got {value!r}" in told


def test_only_damage_ends_the_command_line_with_the_code_of_damage(
    written: lancemem.Table, capsys: pytest.CaptureFixture[str]
) -> None:
    for shard in ("9" * 23, "-1", "\u00b2", "\u0663"):
        assert main(["verify-wal", written.uri, f"--shard={shard}"]) == 2
    with pytest.raises(SystemExit) as refused:
        main(["truncate-wal", written.uri, "--shard", "0", "--from", "\u0663"])
    assert refused.value.code == 2
    with pytest.raises(SystemExit) as refused:
        main(["maintain", written.uri, "--interval", "864000000000"])
    assert refused.value.code == 2
    capsys.readouterr()
    with pytest.raises(SystemExit) as told:
        main(["--version"])
    assert told.value.code == 0
    assert capsys.readouterr().out.strip() == lancemem.__version__
    call = [sys.executable, "-m", "lancemem", "verify-wal", written.uri]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(call, stdout=full, stderr=subprocess.PIPE, check=False, timeout=50)  # noqa: S603
    assert done.returncode == 2, done.stderr
    for closed in (">&-", "2>&-", ">&- 2>&-"):
        shell = f'"$0" -m lancemem verify-wal "$1" {closed}'
        for uri, code in ((written.uri, 0), (f"{written.uri}/none", 2)):
            command = ["/bin/sh", "-c", shell, sys.executable, uri]
            done = subprocess.run(command, check=False, timeout=50, capture_output=True)  # noqa: S603
            assert done.returncode == code, (closed, uri, done.stderr)
            assert b"Traceback" not in done.stderr
