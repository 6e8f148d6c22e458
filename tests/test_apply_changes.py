"""`Table.apply_changes`: the rows of a feed, and of other change streams, into a table.

Owns: which operation does what, the order of changes, and what is refused before a row is written.
Not here: what a feed consists of (test_changes).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import lancemem

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import MakeTable


def rows(ids: list[int], value: float) -> pa.Table:
    columns = {"id": ids, "name": [f"n{key}" for key in ids], "value": [value] * len(ids)}
    return pa.table(columns)


def stored(table: lancemem.Table) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.scan().to_table().to_pylist()
    return sorted(found, key=lambda row: int(row["id"]))


def test_a_mirror_takes_feeds_as_they_are_and_a_repeated_one_once(make_table: MakeTable) -> None:
    table, mirror = make_table(), make_table()
    for number in range(3):
        table.upsert(rows([number, 10, 20 + number], float(number)))
        if number:
            table.delete([number - 1])
        table.compact(flush=True)
    first = table.changes(0, table.changes(0).versions[0].version)
    mirror.apply_changes(first, txn=("mirror", first.until))
    rest = table.changes(first.until)
    # Several versions at once: the newest change of a key wins, whatever the order of the rows.
    shuffled = rest.to_table().take(list(reversed(range(rest.counts.num_rows))))
    mirror.apply_changes(shuffled, txn=("mirror", rest.until))
    assert stored(mirror) == stored(table)
    again = mirror.apply_changes(shuffled, txn=("mirror", rest.until))
    assert again.num_shards_already_written == 1
    flink = table.changes(first.until, row_kinds="flink")
    mirror.apply_changes(flink)
    assert stored(mirror) == stored(table)


def test_columns_of_other_streams_are_named_and_rows_without_a_sequence_keep_their_order(
    make_table: MakeTable,
) -> None:
    table = make_table()
    changes = rows([1, 1, 2, 2], 1.0).append_column("op", pa.array(["I", "D", "D", "u"]))
    table.apply_changes(changes, op_column="op")
    assert [row["id"] for row in stored(table)] == [2]
    late = changes.append_column("lsn", pa.array([9, 1, 9, None], pa.int64()))
    table.apply_changes(late, op_column="op", sequence_by="lsn")
    assert [row["id"] for row in stored(table)] == [1]
    table.apply_changes(late.slice(0, 0), op_column="op", sequence_by="lsn")
    assert [row["id"] for row in stored(table)] == [1]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda given: given.drop_columns(["op"]), "no column 'op'"),
        (lambda given: given.drop_columns(["value"]), "no column 'value'"),
        (lambda given: given.append_column("more", pa.array([1, 2])), "'more'.* not in the table"),
        (
            lambda given: given.set_column(3, "op", pa.array(["U", "truncate"])),
            "'truncate', which is no operation",
        ),
    ],
)
def test_bad_changes_are_refused_before_a_row_is_written(
    table: lancemem.Table, change: Callable[[pa.Table], pa.Table], told: str
) -> None:
    given = rows([1, 2], 1.0).append_column("op", pa.array(["U", "U"]))
    with pytest.raises(lancemem.InvalidInputError, match=told):
        table.apply_changes(change(given), op_column="op")
    assert stored(table) == []
    assert table.shards()[0].writer_epoch == 0


def test_a_table_without_a_key_takes_no_changes(make_table: MakeTable) -> None:
    table = make_table(primary_key=[])
    with pytest.raises(lancemem.InvalidInputError, match="needs a primary key"):
        table.apply_changes(rows([1], 1.0), op_column="op")
