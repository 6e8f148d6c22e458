"""Merge rules as Python code describes them: what a table can have, and what is refused.

Owns the arguments of `create_table` and `enable`, `lancemem.agg`, and `Table.merge_rule`. Does not
own how rows are merged, or which programs can read such a table (test_merge_fence).
"""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import lancemem
from lancemem import agg

if TYPE_CHECKING:
    from tests.conftest import MakeTable

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("ts", pa.int64()),
        pa.field("n", pa.int64()),
        pa.field("small", pa.int32()),
        pa.field("day", pa.date32()),
        pa.field("name", pa.string()),
        pa.field("flag", pa.bool_()),
        pa.field("tags", pa.list_(pa.string())),
    ]
)
WEEK = timedelta(days=7)


def test_a_table_shows_the_rule_that_it_was_created_with(make_table: MakeTable) -> None:
    table = make_table(SCHEMA, sequence_by=["ts", "name"], delete_retention=timedelta(hours=1))
    for opened in (table, lancemem.open_table(table.uri)):
        rule = opened.merge_rule
        assert rule is not None
        assert rule.merge_engine == "deduplicate"
        assert rule.sequence_by == ("ts", "name")
        assert (rule.aggregates, rule.sequence_groups) == ({}, {})
        assert (rule.deletes, rule.nulls) == ("remove", "set")
        assert rule.delete_retention == timedelta(hours=1)
        assert opened.stats(count_logs=False).merge_rule == rule
    assert repr(table.merge_rule) == (
        'MergeRule(merge_engine="deduplicate", sequence_by=["ts", "name"], deletes="remove", '
        "delete_retention=datetime.timedelta(seconds=3600))"
    )


def test_deletes_with_a_sequence_are_remembered_for_a_week(make_table: MakeTable) -> None:
    rule = make_table(SCHEMA, sequence_by="ts").merge_rule
    assert rule is not None
    assert rule.delete_retention == WEEK
    rule = make_table(SCHEMA, sequence_by="ts", delete_retention=timedelta(0)).merge_rule
    assert rule is not None
    assert rule.delete_retention == timedelta(0)


def test_first_row_remembers_no_deletes(make_table: MakeTable) -> None:
    rule = make_table(SCHEMA, merge_engine="first_row", sequence_by="ts").merge_rule
    assert rule is not None
    assert (rule.merge_engine, rule.delete_retention) == ("first_row", None)
    assert repr(rule) == 'MergeRule(merge_engine="first_row", sequence_by=["ts"], deletes="remove")'


@pytest.mark.parametrize("options", [{}, {"merge_engine": "deduplicate"}, {"deletes": "remove"}])
def test_plain_deduplicate_is_no_rule(make_table: MakeTable, options: dict[str, Any]) -> None:
    table = make_table(SCHEMA, **options)
    assert table.merge_rule is None
    assert table.stats(count_logs=False).merge_rule is None
    table.upsert(pa.Table.from_pylist([{"id": 1, "n": 2}], schema=SCHEMA))
    assert table.count_rows() == 1


def test_a_rule_is_a_value(make_table: MakeTable) -> None:
    rules = [make_table(SCHEMA, sequence_by=name).merge_rule for name in ("ts", "ts", "n")]
    assert rules[0] == rules[1] != rules[2]
    with pytest.raises(AttributeError):
        rules[0].deletes = "ignore"  # type: ignore[union-attr, misc]


# --- what is refused, with nothing written ---

# Options, and what the error contains.
REFUSED: list[tuple[dict[str, Any], list[str]]] = [
    ({"sequence_by": "when"}, ["sequence_by names column 'when'", "not in the table"]),
    ({"sequence_by": "id"}, ["column 'id' is of the primary key"]),
    ({"sequence_by": "tags"}, ["column 'tags' of type list", "sequence_by", "timestamps"]),
    ({"sequence_by": ["ts", "ts"]}, ["column 'ts'", "named once"]),
    ({"merge_engine": "newest"}, ["merge_engine is 'deduplicate'", "got 'newest'"]),
    ({"deletes": "never"}, ["deletes is 'remove'", "got 'never'"]),
    ({"deletes": "ignore"}, ["deletes cannot be used", "partial_update and aggregation"]),
    ({"aggregates": {"n": "sum"}}, ["aggregates cannot be used", "use aggregation"]),
    ({"sequence_groups": {"ts": ["n"]}}, ["sequence_groups cannot be used", "partial_update"]),
    ({"delete_retention": WEEK}, ["delete_retention", "deduplicate with sequence_by"]),
    ({"delete_retention": timedelta(-1), "sequence_by": "ts"}, ["delete_retention", "too small"]),
    (
        {"delete_retention": timedelta(microseconds=5), "sequence_by": "ts"},
        ["delete_retention", "whole milliseconds"],
    ),
]
AGGREGATION: list[tuple[dict[str, Any], list[str]]] = [
    ({"name": "sum"}, ["column 'name' of type string", "'sum'", "it takes integers"]),
    ({"small": "count"}, ["column 'small' of type int32", "'count'", "it takes int64"]),
    ({"n": "bool_and"}, ["column 'n'", "'bool_and'", "it takes booleans"]),
    ({"n": agg.collect()}, ["column 'n'", "'collect'", "it takes lists"]),
    ({"n": "avg"}, ["column 'n' cannot have the function 'avg'", "keep a 'sum' and a 'count'"]),
    ({"n": "total"}, ["unknown function 'total'", "the functions are sum, count"]),
    ({"id": "max"}, ["column 'id' is of the primary key", "aggregates"]),
    ({"m": "max"}, ["aggregates names column 'm'"]),
    ({"name": agg.listagg("", distinct=True)}, ["column 'name'", "not associative", "separator"]),
    ({"tags": agg.collect(limit=0)}, ["limit of the function 'collect' of column 'tags'"]),
    ({"tags": agg.collect(limit=-1)}, ["limit of column 'tags'", "too small"]),
    ({"tags": agg.collect(distinct=True, limit=3, keep="last")}, ["'tags'", "keep='first'"]),
    ({"n": agg.Aggregate("sum", distinct=True)}, ["'sum' of column 'n'", "agg.sum()"]),
]
RETRACT: list[tuple[dict[str, Any], list[str]]] = [
    ({"n": "max"}, ["column 'n' with the function 'max' cannot take back", "ignore_retract"]),
    ({"n": "sum"}, ["column 'ts' with the function 'last_non_null_value'", "ignore_retract"]),
]
GROUPS: list[tuple[dict[Any, Any], list[str]]] = [
    ({"ts": ["n"], "day": ["n"]}, ["column 'n'", "named once"]),
    ({"ts": ["n"], "n": ["name"]}, ["column 'n'", "named once"]),
    ({"ts": []}, ["a sequence group needs", "group 1 has only sequence columns"]),
    ({(): ["n"]}, ["a sequence group needs", "group 1 has no sequence column"]),
    ({"flag": ["n"]}, ["column 'flag' of type bool", "sequence_groups"]),
    ({("ts", "day"): ["later"]}, ["sequence_groups names column 'later'"]),
]


def assert_refused(uri: str, options: dict[str, Any], parts: list[str]) -> None:
    with pytest.raises(lancemem.InvalidInputError) as caught:
        lancemem.create_table(uri, SCHEMA, primary_key="id", **options)
    text = str(caught.value) + "".join(getattr(caught.value, "__notes__", ()))
    assert [part for part in [*parts, uri] if part not in text] == [], text
    assert not Path(uri).exists()


@pytest.mark.parametrize(("options", "parts"), REFUSED)
def test_a_rule_that_cannot_be_is_refused(
    table_uri: str, options: dict[str, Any], parts: list[str]
) -> None:
    assert_refused(table_uri, options, parts)


@pytest.mark.parametrize(("aggregates", "parts"), AGGREGATION)
def test_a_function_that_a_column_cannot_have_is_refused(
    table_uri: str, aggregates: dict[str, Any], parts: list[str]
) -> None:
    options = {"merge_engine": "aggregation", "aggregates": aggregates}
    assert_refused(table_uri, options, parts)


@pytest.mark.parametrize(("aggregates", "parts"), RETRACT)
def test_what_has_no_inverse_cannot_be_retracted(
    table_uri: str, aggregates: dict[str, Any], parts: list[str]
) -> None:
    options = {"merge_engine": "aggregation", "aggregates": aggregates, "deletes": "retract"}
    assert_refused(table_uri, options, parts)


@pytest.mark.parametrize(("groups", "parts"), GROUPS)
def test_groups_that_overlap_or_have_no_order_are_refused(
    table_uri: str, groups: dict[Any, Any], parts: list[str]
) -> None:
    options = {"merge_engine": "partial_update", "sequence_groups": groups}
    assert_refused(table_uri, options, parts)


@pytest.mark.parametrize("engine", ["partial_update", "aggregation"])
def test_one_sequence_for_columns_of_several_events_is_refused(table_uri: str, engine: str) -> None:
    options = {"merge_engine": engine, "sequence_by": "ts"}
    assert_refused(table_uri, options, ["sequence_by cannot be used", engine])


def test_a_combining_engine_needs_nullable_columns(table_uri: str) -> None:
    schema = SCHEMA.append(pa.field("strict", pa.int64(), nullable=False))
    with pytest.raises(lancemem.InvalidInputError, match="'strict' is not nullable") as caught:
        lancemem.create_table(table_uri, schema, primary_key="id", merge_engine="aggregation")
    assert table_uri in str(caught.value)


def test_a_table_without_a_key_has_no_rule(table_uri: str) -> None:
    with pytest.raises(lancemem.InvalidInputError, match="needs a table with a primary key"):
        lancemem.create_table(table_uri, SCHEMA, sequence_by="ts")
    assert not Path(table_uri).exists()


@pytest.mark.parametrize("wrong", [3, {"sum"}, None])
def test_a_function_is_a_builder_or_a_name(table_uri: str, wrong: object) -> None:
    with pytest.raises(TypeError, match=r"a function of lancemem\.agg or its name"):
        lancemem.create_table(
            table_uri,
            SCHEMA,
            primary_key="id",
            merge_engine="aggregation",
            aggregates={"n": wrong},  # type: ignore[dict-item]
        )


# --- enable, exist_ok ---


def test_enable_gives_a_lance_table_its_rule_once(table_uri: str) -> None:
    lance = pytest.importorskip("lance")
    lance.write_dataset(pa.table({"id": [1], "ts": [1]}), table_uri)
    table = lancemem.enable(table_uri, primary_key="id", sequence_by="ts")
    assert table.merge_rule is not None
    for same in ({}, {"sequence_by": ["ts"]}, {"sequence_by": "ts", "delete_retention": WEEK}):
        assert lancemem.enable(table_uri, **same).merge_rule == table.merge_rule
    others: list[dict[str, Any]] = [
        {"merge_engine": "deduplicate"},
        {"merge_engine": "first_row"},
        {"sequence_by": "ts", "delete_retention": timedelta(days=1)},
    ]
    for other in others:
        with pytest.raises(lancemem.InvalidInputError, match="a rule cannot be changed") as caught:
            lancemem.enable(table_uri, **other)
        assert "deduplicate, sequence_by ts" in str(caught.value)
        assert table_uri in str(caught.value)


def test_enable_marks_no_key_where_the_rule_cannot_be(table_uri: str) -> None:
    lance = pytest.importorskip("lance")
    lance.write_dataset(pa.table({"id": [1], "ts": [1]}), table_uri)
    with pytest.raises(lancemem.InvalidInputError, match="sequence_by names column 'when'"):
        lancemem.enable(table_uri, primary_key="id", sequence_by="when")
    dataset = lance.dataset(table_uri)
    assert dataset.version == 1
    assert dataset.mem_wal_index_details() is None


def test_a_table_that_exists_must_have_the_rule_that_is_asked_for(make_table: MakeTable) -> None:
    table = make_table(SCHEMA, sequence_by="ts")

    def again(**options: Any) -> lancemem.Table:  # noqa: ANN401 - whatever create_table takes
        return lancemem.create_table(table.uri, SCHEMA, primary_key="id", exist_ok=True, **options)

    assert again().merge_rule == again(sequence_by="ts").merge_rule == table.merge_rule
    with pytest.raises(lancemem.InvalidInputError, match="a rule cannot be changed"):
        again(merge_engine="first_row")


# --- lancemem.agg ---


def test_builders_are_frozen_values() -> None:
    assert agg.sum() == agg.Aggregate("sum")
    assert agg.collect(distinct=True, limit=3) == agg.collect(limit=3, distinct=True)
    assert agg.collect() != agg.collect(keep="last")
    with pytest.raises(FrozenInstanceError):
        agg.sum().function = "max"  # type: ignore[misc]


def test_the_text_of_a_builder_makes_an_equal_one() -> None:
    for made in (
        agg.count(),
        agg.sum(ignore_retract=True),
        agg.listagg("; ", distinct=True),
        agg.collect(distinct=True, limit=100),
        agg.collect(keep="last", limit=1),
    ):
        assert eval(repr(made), {"agg": agg}) == made  # noqa: S307 - the text is ours
