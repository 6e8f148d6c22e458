"""Functions of users in merge rules: where they run, what they may return, and who can load them.

Owns: the stories of a function from `create_table` to a compaction, `check_merge_function`, and
processes without the module. Does not own: built-in functions (test_combining), random programs
(test_combining_model), Spark (tests/spark/test_merge_functions).
"""

from __future__ import annotations

import json
import os
import threading
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lancemem
from lancemem.cli.app import run as run_command
from tests import merge_functions
from tests.programs import IN_A_FORK, run_python

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import MakeTable

HERE = "tests.merge_functions"
VECTOR = pa.list_(pa.float32(), 2)
SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64()), ("vec", VECTOR)])
FARTHEST = {"vec": f"{HERE}:farthest"}
FRAGILE = {"v": f"{HERE}:fragile"}
# A module that only some processes find.
ADDING = "import pyarrow.compute as pc\n\ndef add(older, newer):\n    return pc.add(older, newer)\n"


@pytest.fixture(autouse=True)
def mended() -> Iterator[None]:
    """Let no test leave `fragile` broken."""
    yield
    merge_functions.BROKEN.clear()


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Write a module that this process finds, and its children do not."""
    name = f"adding_{tmp_path.name.replace('-', '_')}"
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / f"{name}.py").write_text(ADDING)
    monkeypatch.syspath_prepend(folder)
    return name


def merged(make_table: MakeTable, functions: dict[str, str], **options: Any) -> lancemem.Table:  # noqa: ANN401
    options = {"merge_engine": "aggregation", **options}
    return make_table(options.pop("schema", SCHEMA), merge_functions=functions, **options)


def put(table: lancemem.Table, k: int, **values: object) -> None:
    columns = {"k": pa.array([k])}
    for name, value in values.items():
        columns[name] = pa.array([value], type=table.schema.field(name).type)
    table.upsert(pa.table(columns))


def compact(table: lancemem.Table) -> None:
    table.flush()
    table.compact()


def values(table: lancemem.Table, column: str) -> list[Any]:
    found: list[Any] = table.scan().to_table().sort_by("k")[column].to_pylist()
    return found


# --- where a function runs ---


def test_every_reader_sees_what_a_function_makes_of_all_sources(make_table: MakeTable) -> None:
    table = merged(make_table, FARTHEST)
    put(table, 1, v=1, vec=[3.0, 0.0])
    put(table, 2, v=1, vec=[1.0, 1.0])
    compact(table)
    put(table, 1, vec=[0.0, 4.0])
    put(table, 1, vec=[2.0, 2.0])
    table.flush()
    put(table, 1, vec=[0.0, -4.0])
    put(table, 3, vec=[9.0, 9.0])

    expected = {1: [0.0, 4.0], 2: [1.0, 1.0], 3: [9.0, 9.0]}
    for opened in (table, lancemem.open_table(table.uri)):
        assert values(opened, "vec") == list(expected.values())
        assert opened.get([1]).to_pylist() == [{"k": 1, "v": 1, "vec": [0.0, 4.0]}]
        snapshot = opened.snapshot()
        assert snapshot.get([1], ["vec"]).to_pylist() == [{"vec": [0.0, 4.0]}]
        found = opened.sql("SELECT k FROM t WHERE vec[2] = 4.0").to_table()
        assert found["k"].to_pylist() == [1]
        assert opened.scan(filter="vec[1] = 2.0").count_rows() == 0
    before = table.stats().base_version
    compact(table)
    assert values(table, "vec") == list(expected.values())
    changes = table.changes(since=before).to_table().to_pylist()
    images = {(it["_change_type"], it["k"]): it["vec"] for it in changes}
    assert images["update_preimage", 1] == [3.0, 0.0]
    assert images["update_postimage", 1] == [0.0, 4.0]
    assert images["insert", 3] == [9.0, 9.0]
    assert lancemem.open_table(table.uri).to_lance().to_table().num_rows == 3


@pytest.mark.parametrize("engine", ["aggregation", "partial_update"])
def test_a_function_gets_no_nulls_and_no_events_behind_a_delete(
    make_table: MakeTable, engine: str
) -> None:
    table = merged(make_table, FRAGILE, merge_engine=engine)
    put(table, 1, v=1)
    put(table, 1, v=None)
    put(table, 1, vec=[1.0, 2.0])
    put(table, 1, v=2)
    assert values(table, "v") == [3]
    compact(table)
    table.delete([1])
    put(table, 1, v=10)
    put(table, 1, v=None)
    assert values(table, "v") == [10]
    table.upsert(pa.table({"k": [1], "v": [5], "vec": pa.nulls(1, VECTOR)}), replace=True)
    compact(table)
    assert values(table, "v") == [5]


@pytest.mark.parametrize(
    ("of", "older", "newer"),
    [
        (VECTOR, [1.0, 2.0], [3.0, 4.0]),
        (pa.list_(pa.string()), ["a"], ["b", None]),
        (pa.struct([("a", pa.int32()), ("b", VECTOR)]), {"a": 1, "b": [0.0, 0.0]}, {"a": 2}),
        (pa.large_string(), "a", "b"),
        (pa.timestamp("us", "UTC"), 1, 2),
        (pa.decimal128(20, 2), 1, 2),
        (pa.bool_(), True, False),
    ],
    ids=str,
)
def test_a_function_builds_values_of_any_type(
    make_table: MakeTable,
    of: pa.DataType,
    older: object,
    newer: object,
) -> None:
    schema = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", of)])
    table = merged(make_table, {"v": f"{HERE}:rebuilt"}, schema=schema)
    put(table, 1, v=older)
    put(table, 1, v=newer)
    [expected] = pa.array([newer], type=of).to_pylist()
    assert values(table, "v") == [expected]
    compact(table)
    put(table, 1, v=older)
    [expected] = pa.array([older], type=of).to_pylist()
    assert values(table, "v") == [expected]


def test_a_mean_of_vectors_is_kept_as_sums_with_a_weight(make_table: MakeTable) -> None:
    of = pa.struct([("total", VECTOR), ("weight", pa.float32())])
    schema = pa.schema([pa.field("k", pa.int64(), nullable=False), ("mean", of)])
    table = merged(make_table, {"mean": f"{HERE}:weighted"}, schema=schema)
    for first in range(4):
        put(table, 1, mean={"total": [float(first), 1.0], "weight": 1.0})
        table.flush()
    compact(table)
    assert values(table, "mean") == [{"total": [6.0, 4.0], "weight": 4.0}]


def test_jobs_bulk_writes_and_many_keys_call_a_function_too(make_table: MakeTable) -> None:
    table = merged(make_table, FRAGILE, sharding=lancemem.bucket("k", 2))
    keys = range(20_000)
    rows = pa.table({"k": keys, "v": keys})
    writer = table.bulk_writer()
    writer.upsert(rows)
    table.commit(writer.finish())
    with table.writer() as live:
        live.put(rows)
        live.put(rows)
        assert live.scan(["v"], filter="k = 7").to_table()["v"].to_pylist() == [21]
        live.flush()
    compact(table)
    assert values(table, "v") == [3 * key for key in keys]


def test_two_threads_merge_while_a_third_holds_on_to_python(make_table: MakeTable) -> None:
    table = merged(make_table, FRAGILE)
    rows = pa.table({"k": range(500), "v": [1] * 500})
    table.upsert(rows)
    failures: list[BaseException] = []
    is_over = threading.Event()

    def spin() -> None:
        while not is_over.is_set():
            pass

    def work() -> None:
        try:
            for _ in range(5):
                table.upsert(rows)
                table.scan().to_table()
                table.get([1, 2, 3])
        except BaseException as error:  # noqa: BLE001 - of another thread
            failures.append(error)

    others = [threading.Thread(target=work) for _ in range(2)]
    spinning = threading.Thread(target=spin)
    for thread in (spinning, *others):
        thread.start()
    for thread in others:
        thread.join(60)
    is_over.set()
    spinning.join()
    assert failures == []
    assert values(table, "v") == [11] * 500


def test_a_widened_column_keeps_its_function_if_that_takes_the_type(make_table: MakeTable) -> None:
    schema = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int32())])
    table = merged(make_table, FRAGILE, schema=schema)
    put(table, 1, v=2**31 - 1)
    table.alter_column("v", pa.int64())
    put(table, 1, v=1)
    assert values(table, "v") == [2**31]
    other = merged(make_table, {"v": f"{HERE}:narrow"}, schema=schema)
    with pytest.raises(lancemem.InvalidInputError, match=r"narrow.*returned int32, expected int64"):
        other.alter_column("v", pa.int64())
    assert other.schema.field("v").type == pa.int32()


# --- what a table shows ---


def test_a_table_shows_the_names_of_its_functions(
    make_table: MakeTable, capsys: pytest.CaptureFixture[str]
) -> None:
    table = merged(make_table, FARTHEST, aggregates={"v": "sum"})
    for opened in (table, lancemem.open_table(table.uri)):
        rule = opened.merge_rule
        assert rule is not None
        assert rule.merge_functions == FARTHEST
        assert rule == opened.stats(count_logs=False).merge_rule
        assert repr(rule) == (
            'MergeRule(merge_engine="aggregation", aggregates={"v": agg.sum()}, '
            'merge_functions={"vec": "tests.merge_functions:farthest"}, deletes="remove")'
        )
    same: dict[str, Any] = {"merge_engine": "aggregation", "aggregates": {"v": "sum"}}
    lancemem.enable(table.uri, **same, merge_functions=FARTHEST)
    with pytest.raises(lancemem.InvalidInputError, match="a rule cannot be changed"):
        lancemem.enable(table.uri, **same, merge_functions={"vec": f"{HERE}:rebuilt"})
    capsys.readouterr()
    assert run_command(["describe", table.uri, "--json"]) == 0
    described = json.loads(capsys.readouterr().out)
    assert described["merge_rule"] == {
        "merge_engine": "aggregation",
        "aggregates": {"v": "agg.sum()"},
        "merge_functions": FARTHEST,
        "deletes": "remove",
    }
    assert run_command(["describe", table.uri]) == 0
    assert f"{HERE}:farthest" in capsys.readouterr().out


def test_a_lance_table_is_enabled_with_a_function(tmp_path: Path) -> None:
    lance = pytest.importorskip("lance")
    uri = str(tmp_path / "plain.lance")
    lance.write_dataset(pa.table({"k": [1], "v": [1]}), uri)
    rule: dict[str, Any] = {"merge_engine": "aggregation", "merge_functions": {"v": "none:f"}}
    with pytest.raises(lancemem.InvalidInputError, match="No module named 'none'"):
        lancemem.enable(uri, primary_key="k", **rule)
    assert lance.dataset(uri).version == 1
    table = lancemem.enable(uri, primary_key="k", **{**rule, "merge_functions": FRAGILE})
    put(table, 1, v=2)
    assert values(table, "v") == [3]


# --- what is refused before anything is written ---

REFUSED: list[tuple[Any, list[str]]] = [
    ("no_such_module:f", ["cannot be loaded", "No module named 'no_such_module'", "PYTHONPATH"]),
    (f"{HERE}:no_such", ["cannot be loaded", "has no 'no_such'", "merge_functions.py"]),
    (f"{HERE}:not_a_function", ["is no function, but of type int"]),
    ("__main__:f", ["another process has another __main__"]),
    ("add", ["'module:function'"]),
    (merge_functions.longest, ["'package.module:function'", "got <function longest"]),
    (f"{HERE}:floats", ["two empty arrays", "returned double, expected int64"]),
    (f"{HERE}:longest", ["two empty arrays", "Error"]),
    (f"{HERE}:chunks", ["two empty arrays", "got ChunkedArray"]),
]


@pytest.mark.parametrize(("function", "words"), REFUSED, ids=str)
def test_a_function_that_cannot_be_is_refused_with_nothing_written(
    table_uri: str,
    function: Any,  # noqa: ANN401 - also what is no name
    words: list[str],
) -> None:
    with pytest.raises(lancemem.InvalidInputError) as refused:
        lancemem.create_table(
            table_uri,
            SCHEMA,
            primary_key="k",
            merge_engine="aggregation",
            merge_functions={"v": function},
        )
    for word in ("column 'v'", table_uri, *words):
        assert word in str(refused.value)
    assert not Path(table_uri).exists()


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"merge_engine": "first_row"}, "merge_functions cannot be used"),
        ({"merge_engine": "aggregation", "aggregates": {"v": "sum"}}, "one function"),
        ({"merge_engine": "aggregation", "deletes": "retract"}, "has no inverse"),
        ({"merge_engine": "partial_update", "sequence_groups": {"vec": ["v"]}}, "column 'vec'"),
    ],
    ids=str,
)
def test_a_rule_that_cannot_have_a_function_is_refused(
    table_uri: str, rule: dict[str, Any], words: str
) -> None:
    with pytest.raises(lancemem.InvalidInputError, match=words):
        lancemem.create_table(table_uri, SCHEMA, primary_key="k", merge_functions=FRAGILE, **rule)
    assert not Path(table_uri).exists()


def test_an_error_of_an_import_is_the_cause(
    table_uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "half_written.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    rule: dict[str, Any] = {
        "merge_engine": "aggregation",
        "merge_functions": {"v": "half_written:f"},
    }
    for mode in ("create", "overwrite"):
        with pytest.raises(lancemem.InvalidInputError, match="ZeroDivisionError") as refused:
            lancemem.create_table(table_uri, SCHEMA, primary_key="k", mode=mode, **rule)
        assert isinstance(refused.value.__cause__, ZeroDivisionError)


def test_an_update_does_not_combine_what_it_assigns(make_table: MakeTable) -> None:
    table = merged(make_table, FRAGILE, merge_engine="partial_update")
    put(table, 1, v=1)
    with pytest.raises(lancemem.InvalidInputError, match=r"column 'v'|partial_update"):
        table.update({"v": "v + 1"})
    assert values(table, "v") == [1]


# --- what a function may not return ---


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("floats_of_values", "returned double, expected int64"),
        ("short", "returned 0 values for 1 pairs"),
        ("nothing", "returned a null"),
    ],
)
def test_a_result_that_is_no_value_for_each_pair_ends_the_read(
    make_table: MakeTable, function: str, words: str
) -> None:
    table = merged(make_table, {"v": f"{HERE}:{function}"})
    put(table, 1, v=1)
    put(table, 1, v=2)
    with pytest.raises(lancemem.InvalidInputError, match=words) as refused:
        table.scan().to_table()
    assert f"function '{HERE}:{function}' of column 'v'" in str(refused.value)
    with pytest.raises(lancemem.InvalidInputError, match=words):
        table.get([1])


def test_an_exception_ends_a_read_and_a_flush_and_no_row_is_lost(make_table: MakeTable) -> None:
    table = merged(make_table, FRAGILE)
    put(table, 1, v=1)
    put(table, 1, v=2)
    merge_functions.BROKEN.append("out of paper")
    with pytest.raises(lancemem.InvalidInputError) as refused:
        table.scan().to_table()
    assert f"function '{HERE}:fragile' of column 'v': ArithmeticError: out of paper" in str(
        refused.value
    )
    assert isinstance(refused.value.__cause__, ArithmeticError)
    frames = traceback.extract_tb(refused.value.__cause__.__traceback__)
    assert frames[-1].name == "fragile"
    with pytest.raises(lancemem.InvalidInputError, match="out of paper"):
        table.sql("SELECT v FROM t").to_table()
    with table.start_job(shard=0) as job:
        with pytest.raises(lancemem.InvalidInputError, match="out of paper") as refused:
            job.flush()
        assert isinstance(refused.value.__cause__, ArithmeticError)
        job.put(pa.table({"k": [1], "v": [4]}))
        merge_functions.BROKEN.clear()
        job.flush()
    assert values(table, "v") == [7]
    compact(table)
    assert values(table, "v") == [7]


# --- other processes ---

OPEN = """
import sys
import lancemem

try:
    table = lancemem.open_table(sys.argv[1])
    table.compact(flush=True)
    print(table.scan(["v"]).to_table()["v"].to_pylist())
except lancemem.InvalidInputError as error:
    print(type(error.__cause__).__name__, error)
"""


def test_a_process_without_the_module_is_refused_when_it_opens_the_table(
    make_table: MakeTable, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = merged(make_table, {"v": f"{module}:add"})
    put(table, 1, v=1)
    compact(table)
    put(table, 1, v=2)
    done = run_python(OPEN, table.uri)
    assert done.stdout.startswith("ModuleNotFoundError table "), done.stderr
    for word in (table.uri, f"merge function '{module}:add' of column 'v'", "PYTHONPATH"):
        assert word in done.stdout
    plain = "import lance, sys\nprint(lance.dataset(sys.argv[1]).to_table()['v'].to_pylist())"
    assert run_python(plain, table.uri).stdout == "[1]\n", "the base table is open to all"
    assert "dropped" not in run_python(OPEN, table.uri).stdout
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "modules"), prepend=os.pathsep)
    done = run_python(OPEN, table.uri)
    assert done.stdout == "[3]\n", done.stderr
    assert lancemem.open_table(table.uri).to_lance().to_table()["v"].to_pylist() == [3]


def test_a_table_with_a_function_can_be_dropped_without_it(
    make_table: MakeTable, module: str
) -> None:
    table = merged(make_table, {"v": f"{module}:add"})
    drop = "import lancemem, sys\nlancemem.drop_table(sys.argv[1])\n"
    assert run_python(drop, table.uri).returncode == 0
    assert not lancemem.exists(table.uri)


def test_a_forked_child_loads_the_function_itself(make_table: MakeTable) -> None:
    table = merged(make_table, FRAGILE)
    done = run_python(
        """
        import lancemem, pyarrow as pa

        def rows(v):
            return pa.table({"k": [1], "v": [v]})

        uri = sys.argv[1]
        table = lancemem.open_table(uri)
        table.upsert(rows(1))
        table.upsert(rows(2))
        assert table.scan().to_table()["v"].to_pylist() == [3]
        table.flush()

        def child(answers):
            own = lancemem.open_table(uri)
            own.upsert(rows(4), take_over=True)
            own.compact(flush=True)
            answers.send(own.get([1])["v"].to_pylist())

        assert in_a_fork(child) == 0
        print(table.scan().to_table()["v"].to_pylist())
        """,
        table.uri,
        before=IN_A_FORK,
    )
    assert done.stdout == "[7]\n[7]\n", done.stderr


def test_a_module_that_opens_the_table_while_it_is_imported_does_not_hang(
    make_table: MakeTable, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = merged(make_table, {"v": f"{module}:add"})
    put(table, 1, v=1)
    put(table, 1, v=2)
    opens = f"import lancemem\nTABLE = lancemem.open_table({table.uri!r})\n"
    (tmp_path / "modules" / f"{module}.py").write_text(ADDING + opens)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "modules"), prepend=os.pathsep)
    for program in (
        f"import {module}\nprint({module}.TABLE.get([1])['v'].to_pylist())",
        f"import lancemem\nprint(lancemem.open_table({table.uri!r}).get([1])['v'].to_pylist())",
    ):
        done = run_python(program)
        assert done.stdout == "[3]\n", done.stderr


# --- check_merge_function ---


@pytest.mark.parametrize(
    ("function", "samples", "of"),
    [
        ("longest", ["", "a", "bb", "cc", "ddd", None], None),
        ("farthest", [[0.0, 1.0], [1.0, 0.0], [3.0, 4.0], [0.1, -0.7]], VECTOR),
        ("fragile", range(-20, 20), None),
        (
            "weighted",
            [{"total": [n, 0.3 - n], "weight": 0.1} for n in (0.1, 1e3, -7.7)],
            pa.struct([("total", VECTOR), ("weight", pa.float32())]),
        ),
    ],
)
def test_a_function_that_merges_passes_the_check(
    function: str, samples: list[object], of: pa.DataType | None
) -> None:
    lancemem.check_merge_function(f"{HERE}:{function}", samples, type=of)
    lancemem.check_merge_function(getattr(merge_functions, function), pa.array(samples, type=of))


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("average", ["is not associative", "f(f(a, b), c) = ", "f(a, f(b, c)) = ", "(sample 0)"]),
        ("floats", ["returned double, expected int64"]),
        ("short", ["values for 25 pairs"]),
        ("nothing", ["returned a null for 1 and 1"]),
        ("chunks", ["returned ChunkedArray, expected pyarrow.Array"]),
        ("counted", ["gave two results for the same call"]),
        ("ranked", ["depend on the other pairs of a call"]),
        ("raw", ["depend on the offset of an array"]),
        ("longest", ["raised ArrowNotImplementedError"]),
        ("no_such", ["has no 'no_such'"]),
    ],
)
def test_the_check_finds_a_fault_and_names_it(function: str, words: list[str]) -> None:
    with pytest.raises(lancemem.InvalidInputError) as found:
        lancemem.check_merge_function(f"{HERE}:{function}", [1, 10, 100, 7, 2])
    for word in words:
        assert word in str(found.value)


def test_the_check_names_the_samples_that_differ() -> None:
    def minus(older: pa.Array, newer: pa.Array) -> pa.Array:
        return pc.subtract(older, newer)

    with pytest.raises(lancemem.InvalidInputError) as found:
        lancemem.check_merge_function(minus, [0, 5])
    assert "f(f(a, b), c) = -5, f(a, f(b, c)) = 5" in str(found.value)
    assert "a = 0 (sample 0), b = 0 (sample 0), c = 5 (sample 1)" in str(found.value)


def test_floats_may_differ_in_their_last_bits() -> None:
    samples = [0.1, 0.7, 1e6, -1e6]
    lancemem.check_merge_function(f"{HERE}:fragile", samples)
    with pytest.raises(lancemem.InvalidInputError, match="not associative"):
        lancemem.check_merge_function(f"{HERE}:fragile", samples, tolerance=0.0)


def test_a_check_needs_samples() -> None:
    with pytest.raises(lancemem.InvalidInputError, match="needs samples that are not null"):
        lancemem.check_merge_function(f"{HERE}:fragile", [None], type=pa.int64())


def test_an_exception_is_the_cause_of_a_failed_check() -> None:
    merge_functions.BROKEN.append("out of paper")
    with pytest.raises(lancemem.InvalidInputError, match="out of paper for 1 pairs") as found:
        lancemem.check_merge_function(f"{HERE}:fragile", [1])
    assert isinstance(found.value.__cause__, ArithmeticError)
