"""What the benches print and write: which side is faster, tables, pictures and a sitting.

Owns: the verdicts, the tables of bursts and sustained rates, the panels of the pictures, the lines
of merge engines in Spark, and that a sitting of all benches replaces nothing, goes on at its commit
alone, and ends its bench when it is ended. Not here: any measurement, and which rows a merge engine
shows (tests/spark/test_merge_benches.py).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("matplotlib")

from matplotlib import pyplot as plt

from benches import pages, sitting
from benches.spark import merge_peers, peers
from benches.spark import picture as spark_picture
from benches.write import machine, picture, report
from benches.write.stats import Comparison, Goal

if TYPE_CHECKING:
    from pathlib import Path


def rates(bench: str, ours: list[float], theirs: list[float], **facts: object) -> Comparison:
    facts = {"kind": "int64", "order": "random", "batch": 1_000, **facts}
    return Comparison(bench, "int64, random, batch 1,000", "pylance", "rows/s", ours, theirs,
                      Goal(3.0), facts=facts)  # fmt: skip


@pytest.mark.parametrize(
    ("unit", "inverse", "ours", "theirs", "faster"),
    [
        ("rows/s", False, [20.0] * 3, [10.0] * 3, "lancemem"),
        ("rows/s", False, [10.0] * 3, [20.0] * 3, "the peer"),
        ("ms", False, [10.0] * 3, [20.0] * 3, "lancemem"),
        ("ms", False, [20.0] * 3, [10.0] * 3, "the peer"),
        ("s", True, [10.0] * 3, [20.0] * 3, "lancemem"),
        ("s", True, [20.0] * 3, [10.0] * 3, "the peer"),
        ("ms", False, [9.0, 11.0, 10.0], [10.0] * 3, "within noise"),
    ],
)
def test_a_table_names_the_side_that_is_faster_be_it_the_peer(
    unit: str, inverse: bool, ours: list[float], theirs: list[float], faster: str
) -> None:
    line = Comparison("x", "x", "the peer", unit, ours, theirs, inverse=inverse)
    assert line.faster() == faster


def test_bursts_and_sustained_rates_have_a_table_each() -> None:
    found = [
        rates("put", [30.0] * 3, [2.0] * 3),
        rates("put-sustained", [1.0] * 3, [2.0] * 3),
    ]
    (burst, first), (sustained, second) = report.tables(found)
    assert burst.endswith("bursts")
    assert sustained.endswith("flush and close included")
    assert "**15.00**" in first[2]
    assert "| lancemem |" in first[2]
    assert "**0.50**" in second[2]
    assert "| pylance |" in second[2]


def test_a_page_of_the_write_path_is_made_of_what_was_kept(tmp_path: Path) -> None:
    store, page = tmp_path / "results.json", tmp_path / "RESULTS.md"
    found = [rates("put", [30.0] * 3, [2.0] * 3), rates("put-sustained", [3.0] * 3, [2.0] * 3)]
    report.keep(store, "put", found, quick=True, folder=tmp_path)
    report.write(store, page)
    text = page.read_text()
    assert text.startswith("# The write path against its peers")
    assert text.count("A quick run, with few pairs: not a result.") == 2
    assert text.count("\n## ") == 2
    assert set(report.load(store)) == {"put", "put-sustained"}


def test_the_picture_of_puts_shows_absolute_rates_on_linear_axes_from_zero(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Any] = []
    monkeypatch.setattr(plt, "close", drawn.append)
    found = {
        "put": [rates("put", [3e7, 2e7, 4e7], [2e6] * 3, batch=size) for size in (1, 1_000)],
        "put-sustained": [rates("put-sustained", [3e6] * 3, [2e6] * 3)],
    }
    assert picture.draw(found, tmp_path / "write.png")
    assert (tmp_path / "write.png").stat().st_size > 10_000
    [figure] = drawn
    shown = [axes for axes in figure.axes if axes.get_visible()]
    assert [axes.get_title() for axes in shown] == ["pylance, batch 1", "pylance, batch 1,000"]
    assert all(axes.get_yscale() == "linear" and axes.get_ylim()[0] == 0 for axes in shown)
    assert {round(bar.get_height(), 6) for bar in shown[0].patches} == {30.0, 3.0, 2.0}
    monkeypatch.undo()
    plt.close(figure)


def test_nothing_is_drawn_without_figures(tmp_path: Path) -> None:
    assert not picture.draw({}, tmp_path / "write.png")
    assert list(tmp_path.iterdir()) == []


SPARK = """
| `upsert` of 5,000,000 rows | 0.80 M rows/s | 1.42 M rows/s (`mapInArrow` that counts) | 56% |
| objects after 1,000 micro-batches | at most 8866 | at most 4562 (in the first half) | |
| micro-batch of 1,000 rows, p50 | lancemem (Spark 4.1.0) | 151 ms |  |
| micro-batch of 1,000 rows, p50 | Delta 4.4.0 `MERGE` (Spark 4.1.0) | 10949 ms | 72.5 x |
| 4 writers, 100 batches | Delta 4.4.0 `MERGE` | not done after 10 minutes | |
| 1,000,000 rows, 10 upserts of 200,000, a full read | Paimon 0.9.0 | not run: no jar | |
"""


def test_the_picture_of_spark_has_absolute_rates_and_times() -> None:
    rows = spark_picture.rows_of(SPARK)
    assert spark_picture.rates(rows) == [spark_picture.Rate("upsert", 0.8, 1.42)]
    found = [(it.case, it.engine, it.time, it.text) for it in spark_picture.times(rows)]
    assert found == [
        ("a micro-batch, ms", "lancemem", 151.0, "151"),
        ("a micro-batch, ms", "Delta 4.4.0", 10949.0, "10,949"),
        ("4 writers, s", "Delta 4.4.0", None, "not done after 10 minutes"),
        ("load and read, s", "Paimon 0.9.0", None, "not run"),
    ]


MERGED = peers.Case("20 rows, 2 x 4 updates", ("lancemem", "paimon", "delta", "hudi"), 20, 2)
RIGHT = [20, 7]


def ran(writes: list[float], read: float, check: list[int], spark: str = "4.1.0") -> dict[str, Any]:
    return {"spark": spark, "writes": writes, "read": read, "bytes": 5e6, "check": check}


def test_merge_engines_are_compared_by_write_and_read_and_wrong_rows_are_no_result() -> None:
    found = {
        "lancemem": [ran([1.0, 2.0], 1.0, RIGHT), ran([2.0, 2.0], 2.0, RIGHT)],
        "paimon": [ran([5.0, 2.0], 1.0, RIGHT, "3.5.9"), ran([9.0, 8.0], 1.0, RIGHT, "3.5.9")],
        "delta": [ran([0.1, 0.1], 0.1, RIGHT), ran([0.1, 0.1], 0.1, [20, 8])],
    }
    failed = {"hudi": "not done after 30 minutes"}
    lines, wrong = merge_peers.lines("partial", MERGED, found, failed, RIGHT)
    ours, paimon, delta, hudi = spark_picture.rows_of("\n".join(lines))
    assert ours[1:] == [
        "lancemem `partial_update` (Spark 4.1.0)",
        "3.5 s",
        "1.5 s",
        "5.0 s (4.0 to 6.0)",
        "",
        "5 MB",
    ]
    assert paimon[1:3] == ["Paimon 0.9.0 `partial-update` (Spark 3.5.9)", "12.0 s"]
    assert paimon[4:6] == ["13.0 s (8.0 to 18.0)", "2.5 x"]
    assert delta[2] == "wrong rows: [20, 8], and the model has [20, 7]"
    assert hudi[2] == "not done after 30 minutes"
    assert {len(cells) for cells in (ours, paimon, delta, hudi)} == {7}
    assert wrong == ["partial: Delta 4.4.0 `MERGE` that sets two columns (Spark 4.1.0)"]


def test_the_line_of_a_stream_has_the_median_of_its_micro_batches() -> None:
    case = peers.Case("a stream", ("lancemem",), 1_000, 3)
    found = {"lancemem": [ran([0.1, 0.2, 0.9], 1.0, RIGHT)]}
    lines, _ = merge_peers.lines("late", case, found, {}, RIGHT)
    assert "| 1.2 s (p50 200 ms) | 1.0 s | 2.2 s |" in lines[0]


def test_each_merge_case_has_peers_and_its_lines_are_in_no_panel_of_the_picture(
    tmp_path: Path,
) -> None:
    found = merge_peers.cases(1)
    assert [(case.rows, case.batches) for case in found.values()] == [
        (10_000_000, 10),
        (10_000_000, 10),
        (1_000_000, 200),
    ]
    assert {"lancemem", "paimon", "delta", "hudi"} <= set.intersection(
        *(set(case.engines) for case in found.values())
    )
    page = "\n".join(
        line
        for name, case in found.items()
        for line in merge_peers.lines(
            name,
            case,
            {case.engines[0]: [ran([1.0], 1.0, RIGHT)]},
            dict.fromkeys(case.engines[1:], "x"),
            RIGHT,
        )[0]
    )
    rows = spark_picture.rows_of(page)
    assert len(rows) == 14
    assert spark_picture.rates(rows) == []
    assert spark_picture.times(rows) == []
    spark_picture.draw(page, tmp_path / "spark.png")


def test_the_page_of_spark_has_a_section_of_merge_engines_in_each_sitting() -> None:
    pytest.importorskip("pyspark")
    from benches.spark import __main__ as spark  # noqa: PLC0415 - few environments have Spark

    text = spark.report({"cpu": "one"}, [], [], ["| a case | lancemem |"], quick=True)
    before, merged = text.split("## Merge engines")
    assert "beside it" in before
    assert merged.strip().endswith("\n".join([*merge_peers.HEAD, "| a case | lancemem |"]))
    assert set(merge_peers.cases(10)) == set(merge_peers.cases(1)) <= set(spark.NAMES)
    [part] = [part for part in sitting.PARTS if part.name == "spark"]
    assert "--only" not in {*part.command, *part.full, *(part.quick or ())}


def test_a_page_of_a_sitting_is_not_replaced(tmp_path: Path) -> None:
    usual = tmp_path / "usual" / "RESULTS.md"
    assert pages.place(usual, None) == usual
    usual.write_text("old")
    assert pages.place(usual, None) == usual, "its usual place has the newest page"
    made = pages.place(usual, tmp_path / "sitting")
    made.write_text("first")
    with pytest.raises(SystemExit, match="no result is replaced: name another folder"):
        pages.place(usual, tmp_path / "sitting")


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> list[sitting.Part]:
    """Give one bench that writes a page, and one that fails."""
    writes = (
        "import sys, pathlib; print('measured');"
        "pathlib.Path(sys.argv[-1], 'RESULTS-one.md').write_text(' '.join(sys.argv[1:-1]))"
    )
    found = [
        sitting.Part("one", (sys.executable, "-c", writes), ("--quick",), ("--full",)),
        sitting.Part("two", (sys.executable, "-c", "raise SystemExit(3)"), writes=False),
    ]
    monkeypatch.setattr(sitting, "PARTS", found)
    monkeypatch.setattr(machine, "commit", lambda: "abc")
    return found


def test_a_sitting_writes_each_result_as_it_goes_and_names_what_failed(
    tmp_path: Path, parts: list[sitting.Part], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "all"
    assert sitting.Sitting(folder, "abc", quick=True).run(parts) == 1
    assert (folder / "RESULTS-one.md").read_text() == "--quick --results"
    assert (folder / "one.txt").read_text() == "measured\n"
    told = capsys.readouterr().out
    assert "part 1 of 2: one" in told
    assert "commit abc" in told
    assert "load" in told
    assert "cores" in told
    assert "failed: two" in told
    log = json.loads((folder / "sitting.json").read_text())
    assert [(part["name"], part["status"]) for part in log["parts"]] == [("one", 0), ("two", 3)]
    assert "| two |" in (folder / "SITTING.md").read_text()
    assert str(tmp_path) not in (folder / "SITTING.md").read_text()


def test_a_sitting_does_not_replace_another(tmp_path: Path, parts: list[sitting.Part]) -> None:
    sitting.Sitting(tmp_path / "all", "abc", quick=False).run(parts[:1])
    with pytest.raises(SystemExit, match="does not replace one"):
        sitting.Sitting(tmp_path / "all", "abc", quick=False)
    assert (tmp_path / "all" / "RESULTS-one.md").read_text() == "--full --results"


def test_a_sitting_goes_on_with_the_parts_that_it_lacks_and_is_whole_then(
    tmp_path: Path, parts: list[sitting.Part]
) -> None:
    folder = tmp_path / "all"
    assert sitting.Sitting(folder, "abc", quick=False).run(parts) == 1
    first = (folder / "RESULTS-one.md").stat().st_mtime_ns
    parts[1] = sitting.Part("two", (sys.executable, "-c", "print('now')"), writes=False)
    assert sitting.Sitting(folder, "abc", quick=False, go_on=True).run(parts) == 0
    assert (folder / "RESULTS-one.md").stat().st_mtime_ns == first, "measured once"
    log = json.loads((folder / "sitting.json").read_text())
    assert [(part["name"], part["status"]) for part in log["parts"]] == [("one", 0), ("two", 0)]
    assert log["whole"]
    with pytest.raises(SystemExit, match="abc, and here: def"):
        sitting.Sitting(folder, "def", quick=False, go_on=True)


def test_a_sitting_stops_where_the_commit_changes(
    tmp_path: Path, parts: list[sitting.Part], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = sitting.Sitting(tmp_path / "all", "abc", quick=False)
    monkeypatch.setattr(machine, "commit", lambda: "def")
    with pytest.raises(SystemExit, match="began at abc, and this is def"):
        begun.run(parts)


def test_only_a_whole_sitting_is_published(tmp_path: Path, parts: list[sitting.Part]) -> None:
    sitting.Sitting(tmp_path / "all", "abc", quick=False).run(parts)
    with pytest.raises(SystemExit, match="is not published"):
        sitting.publish(tmp_path / "all")


def test_a_sitting_measures_no_changed_sources(
    monkeypatch: pytest.MonkeyPatch, parts: list[sitting.Part]
) -> None:
    monkeypatch.setattr(machine, "commit", lambda: "abc with changes in rust/")
    monkeypatch.setattr(sys, "argv", ["sitting", "--only", parts[0].name])
    with pytest.raises(SystemExit, match="a sitting measures one commit"):
        sitting.main()


# A bench that starts a process of its own, which ignores SIGTERM. Both hold a pipe open.
LONG_BENCH = """
import subprocess, sys, time

held = open({pipe!r}, "w")
deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
subprocess.Popen([sys.executable, "-c", deaf], stdout=held)
print("started", file=held, flush=True)
time.sleep(600)
"""
SITTING = """
import sys
from benches import sitting
from benches.write import machine

machine.commit = lambda: "abc"
bench = (sys.executable, "-c", sys.argv[1])
sitting.PARTS = [sitting.Part("long", bench, writes=False), sitting.Part("next", ("false",))]
sys.argv[1:] = ["--results", sys.argv[2]]
sys.exit(sitting.main())
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_sitting_that_is_ended_ends_its_bench_and_what_the_bench_started(
    tmp_path: Path, number: signal.Signals
) -> None:
    pipe, folder = str(tmp_path / "pipe"), tmp_path / "all"
    os.mkfifo(pipe)
    program = [sys.executable, "-c", SITTING, LONG_BENCH.format(pipe=pipe), str(folder)]
    options: dict[str, Any] = {"cwd": sitting.ROOT, "stdout": subprocess.DEVNULL}
    with (
        subprocess.Popen(program, stderr=subprocess.DEVNULL, **options) as begun,  # noqa: S603
        open(pipe) as held,  # noqa: PTH123 - a pipe
    ):
        assert held.readline() == "started\n"
        begun.send_signal(number)
        # The end of the pipe: no process of the bench is left.
        assert held.read() == ""
        assert begun.wait() != 0
    assert not (folder / "next.txt").exists()
