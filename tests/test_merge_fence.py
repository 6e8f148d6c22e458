"""A table with a merge rule beside pylance 14.0.2: what pylance refuses, and what keeps the rule.

Owns: the fence around the writes of the MemWAL, and the base table that stays a Lance table. Does
not own: the fence of SSTables (`sstable::tests::merge_fence` of the engine), or the rule itself
(test_merge_rules).
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import lancemem

lance = pytest.importorskip("lance")

from lance.mem_wal import (  # noqa: E402 - after the check that it is there
    CompactedSsTable,
    LsmScanner,
)

from tests.upstream import AT_ONCE, snapshots  # noqa: E402 - as above

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("ts", pa.int64()),
        pa.field("v", pa.string()),
    ]
)
RULE_SPEC = 2_147_483_647


def rows(first: int, last: int, v: str = "base") -> pa.Table:
    ids = list(range(first, last))
    return pa.table({"id": ids, "ts": ids, "v": [v] * len(ids)}, schema=SCHEMA)


@pytest.fixture
def ruled(table_uri: str) -> lancemem.Table:
    """Give a table with a rule and ten rows in its base, in two fragments."""
    table = lancemem.create_table(table_uri, SCHEMA, primary_key="id", sequence_by="ts")
    lance.write_dataset(rows(0, 5), table_uri, mode="append")
    lance.write_dataset(rows(5, 10), table_uri, mode="append")
    return table


def stored_rule(uri: str) -> str:
    """Return the text of the rule, as pylance reads it from the index."""
    _, rule = lance.dataset(uri).mem_wal_index_details()["sharding_specs"]
    assert rule["spec_id"] == RULE_SPEC
    (field,) = rule["fields"]
    assert field["transform"] == "lancemem:merge"
    return str(field["parameters"]["rule"])


def files_of_shards(uri: str) -> list[str]:
    return sorted(str(path) for path in Path(uri, "_mem_wal").rglob("*"))


def test_the_mem_wal_writer_of_pylance_refuses_and_claims_nothing(ruled: lancemem.Table) -> None:
    before = files_of_shards(ruled.uri)
    for shard in (ruled.shards()[0].shard_id, str(uuid.uuid4())):
        with pytest.raises(Exception, match="at most one sharding spec, found 2"):
            lance.dataset(ruled.uri).mem_wal_writer(shard, **AT_ONCE)
    assert files_of_shards(ruled.uri) == before


def test_pylance_cannot_replace_the_index_of_a_table_with_a_rule(ruled: lancemem.Table) -> None:
    with pytest.raises(Exception, match="already initialized"):
        lance.dataset(ruled.uri).initialize_mem_wal()


def test_a_lsm_scan_of_pylance_reads_the_base_alone(ruled: lancemem.Table) -> None:
    scanner = LsmScanner.from_snapshots(lance.dataset(ruled.uri), snapshots(ruled))
    assert scanner.to_table().num_rows == 10


def append(uri: str) -> None:
    lance.write_dataset(rows(20, 25), uri, mode="append")


def merge_insert(uri: str) -> None:
    merge = lance.dataset(uri).merge_insert("id")
    merge.when_matched_update_all().when_not_matched_insert_all().execute(rows(8, 12, "merged"))


def mark_progress(uri: str) -> None:
    """Commit progress of compaction, as a compactor on pylance does."""
    shard = lancemem.open_table(uri).shards()[0].shard_id
    merge = lance.dataset(uri).merge_insert("id").when_matched_update_all()
    merge.mark_sstables_as_compacted([CompactedSsTable(shard, 1)]).execute(rows(0, 1, "merged"))


def delete(uri: str) -> None:
    lance.dataset(uri).delete("id = 3")


def compact_files(uri: str) -> None:
    lance.dataset(uri).optimize.compact_files()


def create_index(uri: str) -> None:
    dataset = lance.dataset(uri)
    dataset.create_scalar_index("v", "BTREE")
    dataset.optimize.optimize_indices()


def restore(uri: str) -> None:
    before = lance.dataset(uri).version
    append(uri)
    lance.dataset(uri, version=before).restore()


def clean_up(uri: str) -> None:
    append(uri)
    lance.dataset(uri).cleanup_old_versions(retain_versions=1, error_if_tagged_old_versions=False)


def rename(uri: str) -> None:
    lance.dataset(uri).alter_columns({"path": "v", "name": "value"})


def add_and_drop(uri: str) -> None:
    lance.dataset(uri).add_columns(pa.field("w", pa.int64()))
    lance.dataset(uri).drop_columns(["v"])


@pytest.mark.parametrize(
    "change",
    [
        append,
        merge_insert,
        mark_progress,
        delete,
        compact_files,
        create_index,
        restore,
        clean_up,
        rename,
        add_and_drop,
    ],
)
def test_what_pylance_does_to_the_base_keeps_the_rule(
    ruled: lancemem.Table, change: Callable[[str], None]
) -> None:
    before = stored_rule(ruled.uri)
    change(ruled.uri)
    assert stored_rule(ruled.uri) == before
    ruled.refresh()
    for table in (ruled, lancemem.open_table(ruled.uri)):
        assert table.merge_rule is not None
        assert table.merge_rule.sequence_by == ("ts",)
        expected = lance.dataset(ruled.uri).to_table(columns=["id"])["id"].to_pylist()
        assert sorted(table.scan(columns=["id"]).to_table()["id"].to_pylist()) == sorted(expected)


def test_a_rule_names_a_column_by_its_id(ruled: lancemem.Table) -> None:
    lance.dataset(ruled.uri).alter_columns({"path": "ts", "name": "happened"})
    rule = lancemem.open_table(ruled.uri).merge_rule
    assert rule is not None
    assert rule.sequence_by == ("happened",)


def test_a_dropped_sequence_column_is_named_with_its_way_back(ruled: lancemem.Table) -> None:
    before = lance.dataset(ruled.uri).version
    lance.dataset(ruled.uri).drop_columns(["ts"])
    opens: list[Callable[[], Any]] = [ruled.refresh, lambda: lancemem.open_table(ruled.uri)]
    for call in opens:
        with pytest.raises(lancemem.InvalidInputError, match="restore a version") as caught:
            call()
        assert ruled.uri in str(caught.value)
        assert "sequence_by" in str(caught.value)
    lance.dataset(ruled.uri, version=before).restore()
    assert lancemem.open_table(ruled.uri).merge_rule is not None


def test_a_plain_table_has_the_index_that_pylance_makes(table_uri: str, tmp_path: Path) -> None:
    lancemem.create_table(table_uri, SCHEMA, primary_key="id")
    ours = lance.dataset(table_uri)
    theirs = lance.write_dataset(ours.to_table(), str(tmp_path / "theirs"), schema=ours.schema)
    theirs.initialize_mem_wal(unsharded=True)
    details, expected = ours.mem_wal_index_details(), theirs.mem_wal_index_details()
    for each in (details, expected):
        del each["writer_config_defaults"]
    assert details == expected
