"""The progress of long calls: `progress=` of compaction, collection, indexes and verification.

Owns: which stages a call reports, the event, bars, and what an exception of the function does. Not
here: what the calls do, which is the same without it.
"""

from __future__ import annotations

import dataclasses
import sys
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import lancemem
from lancemem import Progress
from lancemem.progress import Steps

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import MakeTable


def rows(ids: range) -> pa.Table:
    return pa.table({"id": ids, "name": ["a"] * len(ids), "value": [0.5] * len(ids)})


@pytest.fixture
def in_debt(make_table: MakeTable) -> lancemem.Table:
    """Give a table whose compaction looks up base rows, links and rewrites."""
    table = make_table(sharding=lancemem.bucket("id", 2))
    table.upsert(rows(range(100)))
    table.compact(flush=True)
    for step in range(2):
        table.upsert(rows(range(50 * step, 50 * step + 80)))
        table.flush()
    return table


def followed(call: Callable[[Callable[[Progress], None]], object]) -> list[Progress]:
    events: list[Progress] = []
    call(events.append)
    return events


def stages(events: list[Progress]) -> list[str]:
    """Return the stages in their order, and check what holds for every event."""
    found: list[Progress] = []
    for event in events:
        assert 0 <= event.done <= event.total
        if found and found[-1].stage == event.stage:
            assert (event.unit, event.total) == (found[-1].unit, found[-1].total)
            assert event.done >= found.pop().done
        found.append(event)
    assert [event for event in found if event.done != event.total] == []
    return [event.stage for event in found]


def test_a_compaction_reports_its_stages_and_does_the_same_work(in_debt: lancemem.Table) -> None:
    planned = in_debt.compact(dry_run=True, mode="rewrite")
    events: list[Progress] = []
    done = in_debt.compact(mode="rewrite", progress=events.append)
    assert stages(events) == [
        "verify SSTables",
        "read keys",
        "look up keys",
        "write deletions",
        "rewrite rows",
    ]
    assert done.sstables == planned.sstables
    assert Progress("verify SSTables", 4, 4, "SSTables") in events
    assert Progress("rewrite rows", done.num_rows_written, done.num_rows_written, "rows") in events
    assert in_debt.count_rows() == 130


def test_each_long_call_reports_its_stages(in_debt: lancemem.Table) -> None:
    admin = in_debt.admin
    in_debt.alter(deletion_vectors=True)
    in_debt.upsert(rows(range(10)))
    in_debt.flush()
    look = followed(lambda it: in_debt.write_deletion_vectors(progress=it))
    assert stages(look) == ["write deletion vectors"]
    verified = followed(lambda it: admin.verify_sstables(progress=it))
    assert stages(verified) == ["verify SSTables"]
    linked = followed(lambda it: in_debt.compact(mode="link", progress=it))
    assert "link SSTables" in stages(linked)
    built = followed(lambda it: in_debt.create_record_index(progress=it))
    assert stages(built) == ["index rows"]
    assert built[-1].unit == "rows"
    checked = followed(lambda it: admin.verify_record_index(progress=it))
    assert stages(checked) == ["verify entries", "verify rows"]
    soon = timedelta(0)
    gone = followed(lambda it: in_debt.collect_garbage(older_than=soon, progress=it))
    assert stages(gone) == ["list shards", "remove garbage"]


def test_an_event_is_a_frozen_value() -> None:
    event = Progress("read keys", 1, 2, "SSTables")
    with pytest.raises(dataclasses.FrozenInstanceError):
        event.done = 2  # type: ignore[misc]
    assert event == Progress(stage="read keys", done=1, total=2, unit="SSTables")


def test_the_function_runs_on_the_thread_of_the_call_while_the_call_runs(
    in_debt: lancemem.Table,
) -> None:
    here = threading.get_ident()
    during: list[tuple[int, int]] = []

    def look(_: Progress) -> None:
        during.append((threading.get_ident(), len(in_debt.shards()[0].sstables)))

    # The look-up reads the base table at this rate, so the call takes several reports.
    in_debt.compact(bytes_per_second=20_000, progress=look)
    assert {thread for thread, _ in during} == {here}
    assert during[0][1] == 2, "the first report comes before the commit"


def test_an_exception_of_the_function_is_reported_and_the_call_goes_on(
    in_debt: lancemem.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", reported.append)
    calls: list[Progress] = []

    def broken(event: Progress) -> None:
        calls.append(event)
        raise ValueError("a broken function")

    done = in_debt.compact(progress=broken)
    assert done.num_generations == 4
    assert in_debt.stats().num_sstables == 0
    assert len(calls) == 1, "it is not called again"
    assert [str(each.exc_value) for each in reported] == ["a broken function"]


def test_an_exception_that_ends_a_program_cancels_the_call(in_debt: lancemem.Table) -> None:
    def interrupted(_: Progress) -> None:
        raise KeyboardInterrupt

    # At a byte a second the compaction would take minutes.
    with pytest.raises(KeyboardInterrupt):
        in_debt.compact(bytes_per_second=1, progress=interrupted)
    assert in_debt.stats().num_sstables == 4, "nothing is half done"
    assert in_debt.compact().num_generations == 4


def test_calls_that_the_function_makes_are_not_followed(in_debt: lancemem.Table) -> None:
    inner: list[int] = []
    events: list[Progress] = []

    def count(event: Progress) -> None:
        events.append(event)
        inner.append(in_debt.count_rows())
        in_debt.admin.verify_sstables()

    in_debt.compact(progress=count)
    assert set(inner) == {130}
    assert len(events) == len(inner)
    assert stages(events)[0] == "verify SSTables"


def test_a_call_of_another_thread_is_not_followed(in_debt: lancemem.Table) -> None:
    events: list[Progress] = []

    def beside(event: Progress) -> None:
        events.append(event)
        other = threading.Thread(target=in_debt.admin.verify_sstables)
        other.start()
        other.join()

    in_debt.create_record_index(progress=beside)
    assert {event.stage for event in events} == {"index rows"}


def test_a_call_that_fails_closes_what_follows_it(
    make_table: MakeTable, capsys: pytest.CaptureFixture[str]
) -> None:
    table = make_table(primary_key=[])
    with pytest.raises(lancemem.InvalidInputError, match="primary key"):
        table.create_record_index(progress=True)
    table.compact(progress=False)
    assert capsys.readouterr().err == ""


def test_bars_show_each_stage(in_debt: lancemem.Table, capsys: pytest.CaptureFixture[str]) -> None:
    in_debt.compact(progress=True)
    shown = capsys.readouterr().err
    assert "read keys: 100%" in shown
    assert "4/4" in shown


def test_bars_name_the_package_that_they_need(
    table: lancemem.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    with pytest.raises(ModuleNotFoundError, match="pip install tqdm"):
        table.compact(progress=True)


@pytest.mark.parametrize("progress", [3, "bar", object()])
def test_what_is_neither_a_function_nor_a_bool_is_refused(
    table: lancemem.Table,
    progress: Any,  # noqa: ANN401
) -> None:
    with pytest.raises(lancemem.InvalidInputError, match=r"a function of one lancemem\.Progress"):
        table.compact(progress=progress)


def test_steps_of_a_caller_and_stages_of_the_engine_are_one_progress(
    in_debt: lancemem.Table,
) -> None:
    events: list[Progress] = []
    with Steps(events.append) as steps:
        steps.report("flush logs", 2, 2, "logs")
        in_debt.compact(progress=steps.function)
    assert events[0] == Progress("flush logs", 2, 2, "logs")
    assert stages(events)[:2] == ["flush logs", "verify SSTables"]


def test_a_function_that_fails_at_a_step_is_reported_and_not_called_again(
    in_debt: lancemem.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda it: reported.append(str(it.exc_value)))
    calls: list[Progress] = []

    def broken(event: Progress) -> None:
        calls.append(event)
        raise ValueError("a broken function")

    with Steps(broken) as steps:
        steps.report("flush logs", 1, 2, "logs")
        steps.report("flush logs", 2, 2, "logs")
        done = in_debt.compact(progress=steps.function)
    assert (done.num_generations, len(calls)) == (4, 1)
    assert reported == ["a broken function"]


def test_steps_show_bars_and_pass_on_what_ends_a_program(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Steps(True) as steps:
        steps.report("flush logs", 2, 2, "logs")
    assert "flush logs: 100%" in capsys.readouterr().err

    def interrupted(_: Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), Steps(interrupted) as steps:
        steps.report("flush logs", 1, 2, "logs")
