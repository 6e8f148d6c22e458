"""lancedb's own writer on tables of lancemem.

Owns: that rows of its `merge_insert` and of lancemem's calls are one table, and which commits to
the base table it can still make. Not here: the rule in detail, which pylance's writer shows as well
(test_foreign_shards).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lancemem

if TYPE_CHECKING:
    from tests.conftest import MakeTable

lancedb: Any = pytest.importorskip("lancedb")


def rows(ids: range | list[int], name: str) -> pa.Table:
    return pa.table({"id": list(ids), "name": [name] * len(ids), "value": [0.5] * len(ids)})


def opened(table: lancemem.Table) -> Any:  # noqa: ANN401 - lancedb has no types
    place = Path(table.uri)
    return lancedb.connect(str(place.parent)).open_table(place.stem)


def merged(there: Any, ids: range | list[int], name: str) -> None:  # noqa: ANN401 - as above
    keyed = rows(ids, name).cast(there.schema)
    there.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(keyed)


def names(table: lancemem.Table) -> dict[int, str]:
    found = table.scan().to_table()
    keys = found["id"].to_pylist()
    assert len(set(keys)) == len(keys), sorted(keys)
    return dict(zip(keys, found["name"].to_pylist(), strict=True))


def test_rows_of_lancedb_are_read_beside_those_of_lancemem_and_taken_in(
    make_table: MakeTable,
) -> None:
    table = make_table()
    table.upsert(rows(range(5), "lancemem"))
    merged(opened(table), range(3, 8), "lancedb")
    wanted = {n: "lancemem" if n < 5 else "lancedb" for n in range(8)}
    assert names(table) == wanted
    table.upsert(rows([7], "lancemem"))
    wanted[7] = "lancemem"
    assert names(lancemem.open_table(table.uri)) == wanted
    table.start_job(shard=0).close(flush=True)
    table.compact()
    assert names(table) == wanted
    assert lance.dataset(table.uri).count_rows() == len(wanted)

    merged(opened(table), [1, 20], "again")
    wanted |= {1: "again", 20: "again"}
    assert names(table) == wanted


def test_lancedb_commits_to_a_table_that_was_only_enabled_and_not_to_one_that_was_written(
    table_uri: str, schema: pa.Schema
) -> None:
    key = {b"lance-schema:unenforced-primary-key": b"true"}
    columns = schema.set(0, schema.field(0).with_metadata(key))
    lance.write_dataset(rows(range(3), "base").cast(columns), table_uri)
    table = lancemem.enable(table_uri)
    there = opened(table)
    there.add(rows([3], "lancedb").cast(columns))
    assert names(table) == {0: "base", 1: "base", 2: "base", 3: "lancedb"}
    table.upsert(rows([4], "lancemem"))
    there = opened(table)
    commits: list[Any] = [
        lambda: there.add(rows([5], "lancedb").cast(columns)),
        lambda: there.delete("id = 0"),
    ]
    for commit in commits:
        with pytest.raises(Exception, match="cannot be written"):
            commit()
    assert sorted(names(table)) == [0, 1, 2, 3, 4]
