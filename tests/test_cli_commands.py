"""The commands of `lancemem`, each run on a real table.

Owns: their answers as text and as JSON, their keys and exit codes, and questions before something
is lost. Not here: mistakes (test_cli_mistakes), the plain commands of `python -m lancemem`
(test_maintenance, test_repair, test_changes), the page docs/cli.md (test_cli_page).
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import csv, feather, parquet
from rich.console import Console

import lancemem
from lancemem import samples
from lancemem.cli import answers, keys
from lancemem.cli.app import run
from tests.programs import run_python

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import MakeTable

    Call = Callable[..., list[dict[str, Any]]]


def rows(ids: range, name: str = "a") -> list[dict[str, Any]]:
    return [{"id": key, "name": name, "value": key / 2} for key in ids]


@pytest.fixture
def filled(make_table: MakeTable) -> lancemem.Table:
    """Give a table of two shards with rows in its base, in SSTables and in logs."""
    table = make_table(sharding=lancemem.bucket("id", 2))
    table.upsert(rows(range(60)))
    table.compact(flush=True)
    table.upsert(rows(range(50, 80), "b"))
    table.flush()
    table.upsert(rows(range(80, 90), "c"))
    return table


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Give a function that runs a command with `--json` and returns the objects it prints."""

    def called(*arguments: str, code: int = 0) -> list[dict[str, Any]]:
        capsys.readouterr()
        ended = run([*arguments, "--json"])
        out, errors = capsys.readouterr()
        assert ended == code, out + errors
        return [json.loads(line) for line in out.splitlines()]

    return called


def text_of(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    capsys.readouterr()
    ended = run(arguments)
    out, errors = capsys.readouterr()
    assert ended == code, out + errors
    return out


def has_keys(command: str, found: dict[str, Any]) -> None:
    assert set(found) == set(keys.KEYS[command])


# --- tables ---


def test_create_makes_a_table_of_columns_and_describe_shows_them(
    table_uri: str, call: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = ["id:int64!", "name:string", "at:timestamp[us]", "embedding:float32[4]"]
    named = [part for column in columns for part in ("--column", column)]
    (made,) = call("create", table_uri, *named, "--key", "id", "--shards", "3")
    has_keys("create", made)
    assert (made["num_shards"], made["shard_by"], made["primary_key"]) == (3, "id", ["id"])
    assert made["columns"][0] == {"name": "id", "type": "int64", "nullable": False}
    assert lancemem.open_table(table_uri).schema.field("embedding").type == pa.list_(
        pa.float32(), 4
    )
    (described,) = call("describe", table_uri)
    assert described == made
    assert "timestamp[us]" in text_of(capsys, "describe", table_uri)


@pytest.mark.parametrize("form", ["rows.parquet", "rows.csv", "rows.jsonl", "rows.arrow"])
def test_create_takes_the_rows_of_a_file(
    table_uri: str, tmp_path: Path, form: str, call: Call
) -> None:

    path = tmp_path / form
    data = pa.Table.from_pylist(rows(range(7)))
    match path.suffix:
        case ".parquet":
            parquet.write_table(data, path)
        case ".csv":
            csv.write_csv(data, path)
        case ".jsonl":
            path.write_text("\n".join(map(json.dumps, rows(range(7)))))
        case _:
            feather.write_feather(data, path)
    call("create", table_uri, "--from", str(path), "--key", "id")
    assert call("count", table_uri) == [{"num_rows": 7}]


def test_create_opens_a_table_that_exists_where_it_is_asked_to(
    filled: lancemem.Table, call: Call
) -> None:
    same = ["-c", "id:int64!", "-c", "name:string", "-c", "value:float64", "-k", "id"]
    (found,) = call("create", filled.uri, *same, "--shards", "2", "--exist-ok")
    assert found["num_base_rows"] == 60


def test_enable_adds_upserts_to_a_lance_table(table_uri: str, call: Call) -> None:
    import lance  # noqa: PLC0415 - this test alone needs it

    lance.write_dataset(pa.Table.from_pylist(rows(range(5))), table_uri)
    (enabled,) = call("enable", table_uri, "--key", "id")
    has_keys("enable", enabled)
    assert (enabled["num_base_rows"], enabled["primary_key"]) == (5, ["id"])


def test_history_and_indexes_have_a_line_for_each(
    filled: lancemem.Table, call: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    versions = call("history", filled.uri, "--limit", "2")
    assert [it["version"] for it in versions] == [it.version for it in filled.history(2)]
    has_keys("history", versions[0])
    assert "operation" in text_of(capsys, "history", filled.uri)
    assert "no index" in text_of(capsys, "indexes", filled.uri)
    filled.create_index("name", "btree")
    (index,) = call("indexes", filled.uri)
    has_keys("indexes", index)
    assert index["columns"] == ["name"]
    assert "name" in text_of(capsys, "indexes", filled.uri)


def test_drop_removes_a_table_after_a_yes(
    make_table: MakeTable, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    uri = make_table().uri
    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    assert text_of(capsys, "drop", uri, code=2) == ""
    assert lancemem.exists(uri)
    monkeypatch.setattr(sys, "stdin", Terminal("yes\n"))
    assert text_of(capsys, "drop", uri) == f"dropped {uri}\n"
    assert not lancemem.exists(uri)


def test_drop_with_yes_asks_nothing(table: lancemem.Table, call: Call) -> None:
    assert call("drop", table.uri, "--yes") == [{"uri": table.uri, "dropped": True}]
    assert not lancemem.exists(table.uri)


# --- rows ---


def test_head_count_and_scan_print_rows(
    filled: lancemem.Table, call: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(call("head", filled.uri, "-n", "3")) == 3
    assert call("count", filled.uri) == [{"num_rows": 90}]
    assert call("count", filled.uri, "--filter", "name = 'c'") == [{"num_rows": 10}]
    assert call("count", filled.uri, "--consistency", "flushed") == [{"num_rows": 80}]
    assert text_of(capsys, "count", filled.uri) == "90\n"
    read = call("scan", filled.uri, "--columns", "id,name", "--order-by=-id", "--limit", "2")
    assert read == [{"id": 89, "name": "c"}, {"id": 88, "name": "c"}]
    read = call("scan", filled.uri, "--filter", "id < 3", "--order-by", "id", "--offset", "1")
    assert read == rows(range(1, 3))
    assert len(call("scan", filled.uri)) == 90
    assert "│ 89 │" in text_of(capsys, "scan", filled.uri, "--order-by=-id", "--limit", "1")


def test_a_scan_of_many_rows_shows_the_first_and_names_the_way_to_all(
    filled: lancemem.Table, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["scan", filled.uri]) == 0
    out, errors = capsys.readouterr()
    assert len([line for line in out.splitlines() if line.startswith("│")]) == 50
    assert errors == "the first 50 rows; --limit N shows more, --json all\n"


def test_values_that_json_lacks_are_text(make_table: MakeTable, call: Call) -> None:
    schema = pa.schema(
        [
            pa.field("id", pa.binary()),
            ("at", pa.timestamp("us")),
            ("x", pa.float64()),
            ("m", pa.map_(pa.string(), pa.float64())),
        ]
    )
    table = make_table(schema)
    nan = float("nan")
    table.upsert(pa.table([[b"\xff"], [0], [nan], [[("a", nan)]]], schema=schema))
    wanted = {"id": "/w==", "at": "1970-01-01T00:00:00", "x": "nan", "m": [["a", "nan"]]}
    assert call("scan", table.uri) == [wanted]
    table.compact(flush=True)
    (change,) = call("changes", table.uri)
    assert {name: change[name] for name in wanted} == wanted


def test_search_finds_the_nearest_rows(table_uri: str, call: Call) -> None:
    schema = pa.schema([("id", pa.int64()), ("at", pa.list_(pa.float32(), 2))])
    table = lancemem.create_table(table_uri, schema, primary_key="id")
    table.upsert(pa.table([[1, 2, 3], [[0, 0], [5, 5], [1, 1]]], schema=schema))
    found = call("search", table_uri, "[0.9, 1.0]", "-k", "2", "--columns", "id")
    assert [it["id"] for it in found] == [3, 1]


# --- stats ---


def test_stats_count_shards_sstables_and_logs(
    filled: lancemem.Table, call: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    (found,) = call("stats", filled.uri)
    has_keys("stats", found)
    assert (found["num_base_rows"], found["num_sstable_rows"], found["num_log_rows"]) == (
        60,
        30,
        10,
    )
    assert found["lag_rows"] == 40
    assert [tuple(shard) for shard in found["shards"]] == [keys.SHARD] * 2
    assert sum(shard["num_log_rows"] for shard in found["shards"]) == 10
    (uncounted,) = call("stats", filled.uri, "--no-count-logs")
    assert (uncounted["num_log_rows"], uncounted["lag_rows"]) == (None, 30)
    shown = text_of(capsys, "stats", filled.uri)
    assert "lag           40 rows" in shown
    assert "log rows" in shown


def test_watched_stats_show_rates_from_the_second_sample_on(
    filled: lancemem.Table, call: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    short = ["--interval", "0.05", "--samples", "3"]
    first, second, _ = call("stats", filled.uri, "--watch", *short)
    assert first["rates"] is None
    assert tuple(second["rates"]) == keys.RATES
    lines = text_of(capsys, "stats", filled.uri, "--watch", *short).splitlines()
    assert len(lines) == 3
    assert "written 0 rows/s" in lines[1]


def test_a_number_of_a_table_stays_on_one_line_of_a_narrow_terminal() -> None:
    names = ("shard", "job", "SSTable rows", "log rows", "log bytes")
    narrow = Console(width=52, file=io.StringIO())
    narrow.print(answers.grid_of(names, [["0", "may run", 1_152_288, 41_000, 982_451_653]]))
    shown = narrow.file.getvalue()  # type: ignore[attr-defined]
    assert all(number in shown for number in ("1,152,288", "41,000", "982,451,653")), shown


def test_watched_stats_live_on_a_terminal(
    filled: lancemem.Table, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    assert run(["stats", filled.uri, "-w", "--interval", "0.05", "--samples", "2"]) == 0
    shown = capsys.readouterr().out
    assert "rates: written 0 rows/s" in shown
    assert "log rows" in shown


def test_rates_follow_rows_from_the_log_to_the_base_table(table: lancemem.Table) -> None:
    def between(work: Callable[[], object]) -> samples.Rates:
        before = samples.take(table)
        work()
        now = samples.take(table)
        found = samples.rates(before, now)
        assert found is not None
        seconds = now.seconds - before.seconds
        per_second = (found.written_rows or 0, found.flushed_rows, found.compacted_rows)
        written, flushed, compacted = (round(it * seconds) for it in per_second)
        return samples.Rates(written, flushed, compacted, 0)

    assert between(lambda: table.upsert(rows(range(30)))) == samples.Rates(30, 0, 0, 0)
    assert between(table.flush) == samples.Rates(0, 30, 0, 0)
    assert between(table.compact) == samples.Rates(0, 0, 30, 0)
    same = samples.take(table)
    assert samples.rates(same, same) is None


# --- upkeep ---


def test_flush_compact_and_gc_report_what_they_did(
    filled: lancemem.Table, call: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    (flushed,) = call("flush", filled.uri)
    has_keys("flush", flushed)
    assert flushed["num_rows"] == 10
    assert {log["ordinal"] for log in flushed["flushed"]} == {0, 1}
    (planned,) = call("compact", filled.uri, "--dry-run")
    assert planned["num_generations"] == 4
    assert "link" in text_of(capsys, "compact", filled.uri, "--dry-run")
    (done,) = call("compact", filled.uri, "--mode", "rewrite", "--max-dead-share", "0.3")
    has_keys("compact", done)
    assert (done["num_generations"], done["num_sstables_rewritten"]) == (4, 4)
    assert done["sstables"][0]["treatment"] == "rewrite"
    assert "would remove" in text_of(capsys, "gc", filled.uri, "--older-than", "0", "--dry-run")
    (gone,) = call("gc", filled.uri, "--older-than", "0")
    has_keys("gc", gone)
    assert gone["bytes"] > 0
    assert {"kind", "path", "reason", "bytes"} == set(gone["garbage"][0])
    assert text_of(capsys, "gc", filled.uri) == "removed 0 things, 0 bytes\n"


def test_flush_leaves_a_running_job_alone_until_it_is_told_to_take_over(
    filled: lancemem.Table, call: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    (flushed,) = call("flush", filled.uri, "--idle-for", "3600")
    assert (flushed["num_rows"], len(flushed["skipped"])) == (0, 2)
    assert "left the log of shard 0 alone" in text_of(
        capsys, "flush", filled.uri, "--idle-for", "3600"
    )
    (taken,) = call("flush", filled.uri, "--take-over", "--yes")
    assert taken["num_rows"] == 10


def test_a_compaction_names_the_rows_that_stay_in_logs_and_flush_moves_them(
    filled: lancemem.Table, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "10 rows stay in logs; --flush moves them too" in text_of(capsys, "compact", filled.uri)
    assert "stay in logs" not in text_of(capsys, "compact", filled.uri, "--flush")
    assert filled.stats().num_base_rows == 90


def test_maintain_does_rounds_with_the_output_of_the_plain_command(
    filled: lancemem.Table, call: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    (done,) = call("maintain", filled.uri, "--once", "--flush-idle", "0", "--older-than", "0")
    has_keys("maintain", done)
    assert (done["flushed_rows"], done["compacted_sstables"], done["error"]) == (10, 4, None)
    assert text_of(capsys, "maintain", filled.uri, "--once", "--no-flush-idle").startswith(
        "nothing to compact; version "
    )


def test_the_record_index_and_deletion_vectors_are_switched(
    filled: lancemem.Table, call: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "no record index" in text_of(capsys, "record-index", "verify", filled.uri)
    (made,) = call("record-index", "create", filled.uri)
    has_keys("record-index create", made)
    assert made["num_entries"] == 60
    assert "60 entries" in text_of(capsys, "record-index", "verify", filled.uri)
    assert call("record-index", "drop", filled.uri) == [{"num_runs": 0}]
    (on,) = call("deletion-vectors", "on", filled.uri)
    has_keys("deletion-vectors on", on)
    filled.flush()
    (wrote,) = call("deletion-vectors", "write", filled.uri)
    has_keys("deletion-vectors write", wrote)
    assert wrote["num_sstables"] == 2
    assert "mode is off" in text_of(capsys, "deletion-vectors", "off", filled.uri)


# --- verification and repair ---


def test_verify_finds_no_damage_in_a_table_without_any(
    filled: lancemem.Table, call: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    filled.create_record_index()
    (found,) = call("verify", filled.uri)
    has_keys("verify", found)
    assert (found["is_damaged"], len(found["logs"]), len(found["sstables"])) == (False, 2, 2)
    assert found["record_index"]["num_entries"] == 60
    assert "no damage" in text_of(capsys, "verify", filled.uri, "--shard", "0")


def test_damage_of_a_log_is_exit_code_1_and_truncate_wal_drops_it(
    table: lancemem.Table, call: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    table.upsert(rows(range(3)))
    shard = table.shards()[0].shard_id
    entries = sorted(
        Path(table.uri, "_mem_wal", shard, "wal").iterdir(), key=lambda it: it.stat().st_size
    )
    entries[-1].write_bytes(b"garbage" * 20)
    fresh = lancemem.open_table(table.uri)
    (found,) = call("verify", fresh.uri, code=1)
    assert found["is_damaged"]
    position = found["logs"][0]["first_damaged_position"]
    told = text_of(capsys, "verify", fresh.uri, code=1)
    assert f"truncate-wal URI --shard {shard} --from {position}" in told
    arguments = ["--shard", "0", "--from", str(position), "--yes"]
    (dropped,) = call("truncate-wal", fresh.uri, *arguments)
    has_keys("truncate-wal", dropped)
    assert dropped["findings"][0]["copy"]
    call("verify", fresh.uri)


def test_damage_that_verify_cannot_look_behind_is_exit_code_1_too(
    table: lancemem.Table, capsys: pytest.CaptureFixture[str]
) -> None:
    table.upsert(rows(range(3)))
    shard = table.shards()[0].shard_id
    for manifest in Path(table.uri, "_mem_wal", shard, "manifest").glob("*.binpb"):
        manifest.write_bytes(b"garbage")
    assert run(["verify", table.uri]) == 1
    assert capsys.readouterr().err.startswith("CorruptionError: ")
    assert run(["count", table.uri]) == 2


def test_a_base_table_that_cannot_be_read_is_damage_to_each_command_that_verifies(
    table: lancemem.Table, capsys: pytest.CaptureFixture[str]
) -> None:
    table.upsert(rows(range(3)))
    table.compact(flush=True)
    table.create_record_index()
    for version in Path(table.uri, "_versions").iterdir():
        version.write_bytes(b"garbage")
    for command, code in ((["verify"], 1), (["record-index", "verify"], 1), (["count"], 2)):
        assert run([*command, table.uri]) == code
        assert capsys.readouterr().err.startswith("CorruptionError: ")


def test_the_commands_of_one_part_are_the_plain_ones(
    filled: lancemem.Table, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "nothing damaged" in text_of(capsys, "verify-wal", filled.uri, "--shard", "0")
    assert "2 SSTables" in text_of(capsys, "verify-sstables", filled.uri)
    lines = text_of(capsys, "changes", filled.uri, "--json").splitlines()
    assert json.loads(lines[0])["_change_type"] == "insert"
    assert "--since" in text_of(capsys, "changes", "--help")


# --- the program ---


def test_python_m_lancemem_has_every_command(filled: lancemem.Table) -> None:
    command = [sys.executable, "-m", "lancemem", "count", filled.uri]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=50)  # noqa: S603
    assert (done.returncode, done.stdout, done.stderr) == (0, "90\n", "")


def test_without_the_extra_the_script_names_it_and_keeps_the_plain_commands(
    filled: lancemem.Table,
) -> None:
    program = """
        import sys

        class Missing:
            def find_spec(self, name, path=None, target=None):
                if name.split(".")[0] in ("typer", "rich"):
                    raise ModuleNotFoundError(f"No module named {name!r}", name=name)

        sys.meta_path.insert(0, Missing())
        from lancemem.cli import program
        codes = []
        for arguments in (["count", sys.argv[1]], [], ["verify-wal", sys.argv[1]], ["--version"]):
            sys.argv[1:] = arguments
            try:
                codes.append(program())
            except SystemExit as ended:
                codes.append(ended.code)
            sys.argv[1:] = ["{}"]
        print(codes)
        """.replace("{}", filled.uri)
    done = run_python(program, filled.uri)
    assert done.stdout.splitlines()[-1] == "[2, 2, 0, 0]", done.stderr
    assert "pip install 'lancemem[cli]'" in done.stderr
    assert "'count' needs the packages typer and rich" in done.stderr
    assert "verify-wal" in done.stderr


def test_an_error_is_an_object_on_standard_error_where_json_is_asked_for(
    table_uri: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["count", table_uri, "--json"]) == 2
    told = json.loads(capsys.readouterr().err)
    assert tuple(told) == keys.ERROR
    assert (told["error"], "lancemem create" in told["way_out"]) == ("TableNotFoundError", True)


@pytest.mark.parametrize(
    ("raised", "code", "told"),
    [
        (KeyboardInterrupt(), 130, "stopped\n"),
        (RuntimeError("a defect"), 2, "RuntimeError: a defect\n"),
        (PermissionError("a file"), 2, "PermissionError: a file\n"),
    ],
)
def test_ctrl_c_a_defect_and_an_error_of_the_system_have_their_exit_codes(
    raised: BaseException,
    code: int,
    told: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(_: str) -> lancemem.Table:
        raise raised

    monkeypatch.setattr(lancemem, "open_table", broken)
    assert run(["count", "a.lance"]) == code
    assert capsys.readouterr().err.endswith(told)


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert text_of(capsys, "--version") == f"{lancemem.__version__}\n"


def test_a_reader_that_ends_early_is_no_error(filled: lancemem.Table) -> None:
    filled.upsert(rows(range(3000), "x" * 200))
    done = run_python(
        """
        import subprocess, sys
        command = [sys.executable, "-m", "lancemem", "scan", sys.argv[1], "--json"]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        child.stdout.readline()
        child.stdout.close()
        errors = child.stderr.read()
        print(child.wait(40), errors.decode())
        """,
        filled.uri,
    )
    assert done.stdout.strip() == "0", done.stderr


@pytest.mark.parametrize("command", ["describe", "scan", "history", "stats"])
def test_a_reader_of_a_pipe_that_has_what_it_wanted_is_no_damage(
    filled: lancemem.Table, command: str
) -> None:
    program = "import sys; from lancemem.cli import program; sys.exit(program())"
    child = subprocess.Popen(  # noqa: S603 - the command of this tree
        [sys.executable, "-c", program, command, filled.uri],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()
        errors = child.stderr.read().decode()
        assert child.wait(timeout=120) == 0, errors
    assert "Traceback" not in errors
