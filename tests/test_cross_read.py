"""lancemem and pylance 14.0.2 read what the other wrote, on every level of the tree.

Owns: that the bytes mean the same to both, and that both route rows to the same bucket. Not here:
lancemem reading itself (test_model), foreign tables being enabled (test_open).
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lancemem

lance = pytest.importorskip("lance")

from lance.mem_wal import (  # noqa: E402 - after the check that it is there
    CompactedSsTable,
    LsmPointLookupPlanner,
    evaluate_sharding_spec,
)

from tests.upstream import AT_ONCE, flushed_rows, snapshots  # noqa: E402 - as above

if TYPE_CHECKING:
    from tests.conftest import MakeTable

PRIMARY_KEY = "lance-schema:unenforced-primary-key"

KEYS: dict[str, list[pa.Field]] = {
    "int64": [pa.field("id", pa.int64(), nullable=False)],
    "string": [pa.field("id", pa.string(), nullable=False)],
    "composite": [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("sub", pa.string(), nullable=False),
    ],
}
PAYLOAD = [pa.field("name", pa.string()), pa.field("value", pa.float64())]


def schema_of(kind: str) -> pa.Schema:
    return pa.schema(KEYS[kind] + PAYLOAD)


def keys_of(kind: str, numbers: range) -> dict[str, list[Any]]:
    texts = ["" if n == 0 else f"key-é-{n}" for n in numbers]
    found: dict[str, dict[str, list[Any]]] = {
        "int64": {"id": list(numbers)},
        "string": {"id": texts},
        "composite": {"id": list(numbers), "sub": texts},
    }
    return found[kind]


def key_rows(kind: str, numbers: range) -> pa.Table:
    return pa.table(keys_of(kind, numbers), schema=pa.schema(KEYS[kind]))


def rows(kind: str, numbers: range, name: str | None) -> pa.Table:
    data = keys_of(kind, numbers)
    data |= {"name": [name] * len(numbers), "value": [n / 2 for n in numbers]}
    return pa.table(data, schema=schema_of(kind))


def in_order(table: pa.Table) -> list[dict[str, Any]]:
    names = [name for name in table.column_names if name in {"id", "sub", "name", "value"}]
    found = table.select(names).to_pylist()
    return sorted(found, key=lambda row: (row["id"], row.get("sub")))


def read_flushed_by_pylance(table: lancemem.Table) -> list[dict[str, Any]]:
    return in_order(flushed_rows(table))


def write_three_rounds(table: lancemem.Table, kind: str, flush: bool) -> list[dict[str, Any]]:
    """Write, replace a part, delete a part; each in an SSTable of its own where `flush` is set."""
    with table.start_job(shard=0) as job:
        job.put(rows(kind, range(40), "first"))
        if flush:
            job.flush()
        job.put(rows(kind, range(20, 60), None))
        if flush:
            job.flush()
        job.delete(key_rows(kind, range(10, 30)))
        if flush:
            job.flush()
    kept = [rows(kind, range(10), "first"), rows(kind, range(30, 60), None)]
    return in_order(pa.concat_tables(kept))


def make_pylance_table(uri: str, kind: str, **sharding: Any) -> Any:  # noqa: ANN401
    names = [column.name for column in KEYS[kind]]
    fields = [
        column.with_metadata(
            {PRIMARY_KEY: "true", f"{PRIMARY_KEY}:position": str(names.index(column.name) + 1)}
            if column.name in names
            else None
        )
        for column in schema_of(kind)
    ]
    first = rows(kind, range(50, 70), "base").cast(pa.schema(fields))
    dataset = lance.write_dataset(first, uri)
    dataset.initialize_mem_wal(**sharding)
    return dataset


# --- written by lancemem, read by pylance ---


@pytest.mark.parametrize("kind", KEYS)
def test_pylance_replays_rows_that_are_only_in_our_wal(kind: str, make_table: MakeTable) -> None:
    table = make_table(schema_of(kind), [column.name for column in KEYS[kind]])
    expected = write_three_rounds(table, kind, flush=False)
    shard = table.shards()[0]
    assert shard.sstables == []

    writer = lance.dataset(table.uri).mem_wal_writer(shard.shard_id, **AT_ONCE)
    assert in_order(writer.lsm_scanner().to_table()) == expected
    writer.close()
    assert in_order(table.scan(consistency="flushed").to_table()) == expected


def test_pylance_replays_a_put_of_ours_that_is_larger_than_its_memtable(
    make_table: MakeTable,
) -> None:
    """Its limit is 100,000 rows; a put is never divided among entries, however large it is."""
    table = make_table(schema_of("int64"))
    with table.start_job(shard=0) as job:
        job.put(rows("int64", range(150_000), None))
        assert job.stats().num_wal_entries == 1
    shard = table.shards()[0]
    assert shard.sstables == []

    writer = lance.dataset(table.uri).mem_wal_writer(shard.shard_id, **AT_ONCE)
    found = writer.lsm_scanner().to_table().column("id").to_pylist()
    writer.close()
    assert sorted(found) == list(range(150_000))
    assert table.scan(consistency="flushed").count_rows() == 150_000


def test_pylance_replays_a_put_of_ours_that_its_entry_holds_in_pieces(
    make_table: MakeTable,
) -> None:
    """A put of more than 64 MiB is several batches of one entry (docs/format.md)."""
    table = make_table(schema_of("int64"))
    ids = [*range(70_000), 3, 69_999]
    columns = {"id": ids, "name": [f"{row:1000}" for row in range(len(ids))]}
    put = pa.table(columns | {"value": pa.nulls(len(ids))}).cast(schema_of("int64"))
    with table.start_job(shard=0) as job:
        job.put(put)
        assert job.stats().num_wal_entries == 1
    shard = table.shards()[0]
    [*_, entry] = sorted(
        Path(table.uri).glob(f"_mem_wal/{shard.shard_id}/wal/*.arrow"), key=os.path.getsize
    )
    with pa.memory_map(str(entry)) as stream, pa.ipc.open_stream(stream) as pieces:
        assert sum(1 for _ in pieces) == 2

    expected = in_order(
        pa.concat_tables([put.slice(0, 3), put.slice(4, 69_995), put.slice(70_000)])
    )
    assert in_order(table.scan().to_table()) == expected
    writer = lance.dataset(table.uri).mem_wal_writer(shard.shard_id, **AT_ONCE)
    assert in_order(writer.lsm_scanner().to_table()) == expected
    writer.close()


@pytest.mark.parametrize("kind", KEYS)
def test_pylance_reads_our_flushed_sstables(kind: str, make_table: MakeTable) -> None:
    table = make_table(schema_of(kind), [column.name for column in KEYS[kind]])
    expected = write_three_rounds(table, kind, flush=True)
    assert len(table.shards()[0].sstables) == 3
    assert read_flushed_by_pylance(table) == expected


@pytest.mark.parametrize("kind", KEYS)
def test_pylance_reads_the_base_table_after_our_compaction(
    kind: str, make_table: MakeTable
) -> None:
    table = make_table(schema_of(kind), [column.name for column in KEYS[kind]])
    expected = write_three_rounds(table, kind, flush=True)
    assert table.compact().num_generations == 3
    assert in_order(lance.dataset(table.uri).to_table()) == expected
    assert read_flushed_by_pylance(table) == expected


def test_pylance_reads_sstables_above_a_base_table_that_we_compacted(make_table: MakeTable) -> None:
    table = make_table(schema_of("string"), ["id"])
    write_three_rounds(table, "string", flush=True)
    table.compact()
    with table.start_job(shard=0) as job:
        job.put(rows("string", range(25), "again"))
        job.delete(key_rows("string", range(40, 60)))
        job.flush()
    expected = [rows("string", range(25), "again"), rows("string", range(30, 40), None)]
    assert read_flushed_by_pylance(table) == in_order(pa.concat_tables(expected))


def test_pylance_looks_up_keys_in_our_sstables(make_table: MakeTable) -> None:
    table = make_table(schema_of("string"), ["id"])
    write_three_rounds(table, "string", flush=True)
    planner = LsmPointLookupPlanner(lance.dataset(table.uri), snapshots(table))
    for number, found in [(0, ["first"]), (15, []), (25, []), (45, [None]), (99, [])]:
        key = pa.array(keys_of("string", range(number, number + 1))["id"])
        assert planner.plan_lookup(key).to_table().column("name").to_pylist() == found


def test_pylance_reads_many_shards_of_ours(make_table: MakeTable) -> None:
    table = make_table(schema_of("string"), ["id"], sharding=lancemem.bucket("id", 4))
    table.upsert(rows("string", range(200), "first"))
    table.delete(key_rows("string", range(50)))
    for ordinal in range(4):
        table.start_job(shard=ordinal).close(flush=True)
    expected = in_order(rows("string", range(50, 200), "first"))
    assert read_flushed_by_pylance(table) == expected
    assert in_order(table.scan(consistency="flushed").to_table()) == expected


def test_a_change_of_the_base_table_after_compaction_is_seen_though_pylance_hides_it(
    make_table: MakeTable,
) -> None:
    """Bug B3 of pylance: its readers ignore compacted generations, so only lancemem is checked."""
    table = make_table(schema_of("int64"), ["id"])
    write_three_rounds(table, "int64", flush=True)
    table.compact()
    lance.dataset(table.uri).update({"value": "42.0"}, where="id = 1")
    got = lancemem.open_table(table.uri).get(key_rows("int64", range(1, 2)))
    assert got.column("value").to_pylist() == [42.0]


# --- written by pylance, read by lancemem ---


@pytest.mark.parametrize("kind", KEYS)
def test_sstables_that_pylance_flushed_are_read(kind: str, table_uri: str) -> None:
    dataset = make_pylance_table(table_uri, kind, unsharded=True)
    with dataset.mem_wal_writer(str(uuid.uuid4()), **AT_ONCE) as writer:
        writer.put(rows(kind, range(60), "pylance"))
        writer.delete(key_rows(kind, range(55, 65)))
    table = lancemem.open_table(table_uri)
    kept = [rows(kind, range(55), "pylance"), rows(kind, range(65, 70), "base")]
    expected = in_order(pa.concat_tables(kept))
    assert in_order(table.scan(consistency="flushed").to_table()) == expected
    assert in_order(table.get(key_rows(kind, range(70)))) == expected
    reports = table.admin.verify_sstables()
    assert [(it.num_files, it.damage) for it in reports] == [(0, [])] * len(reports)
    assert all(len(it.unchecked) >= 1 for it in reports), reports


@pytest.mark.parametrize("kind", KEYS)
def test_what_a_killed_pylance_left_in_its_wal_is_read_and_taken_over(
    kind: str, table_uri: str
) -> None:
    make_pylance_table(table_uri, kind, unsharded=True)
    shard = str(uuid.uuid4())
    body = f"""
        import os, signal, sys
        sys.path.insert(0, {str(Path(__file__).parents[1])!r})
        import lance
        from tests.test_cross_read import AT_ONCE, key_rows, rows
        writer = lance.dataset({table_uri!r}).mem_wal_writer({shard!r}, **AT_ONCE)
        writer.put(rows({kind!r}, range(60), "pylance"))
        writer.delete(key_rows({kind!r}, range(55, 65)))
        os.kill(os.getpid(), signal.SIGKILL)
    """
    command = [sys.executable, "-c", textwrap.dedent(body)]
    died = subprocess.run(command, check=False, timeout=50, capture_output=True)  # noqa: S603
    assert died.returncode == -9, died.stderr.decode()

    table = lancemem.open_table(table_uri)
    assert [(found.shard_id, found.sstables) for found in table.shards()] == [(shard, [])]
    kept = [rows(kind, range(55), "pylance"), rows(kind, range(65, 70), "base")]
    expected = in_order(pa.concat_tables(kept))
    assert in_order(table.scan().to_table()) == expected
    assert in_order(table.get(key_rows(kind, range(70)))) == expected

    table.start_job(shard=shard).close(flush=True)
    assert in_order(table.scan(consistency="flushed").to_table()) == expected
    table.compact()
    assert in_order(lance.dataset(table_uri).to_table()) == expected


def test_the_buckets_of_pylance_are_read(table_uri: str) -> None:
    dataset = make_pylance_table(table_uri, "string", bucket_column="id", num_buckets=3)
    spec = dataset.mem_wal_index_details()["sharding_specs"][0]
    [batch] = rows("string", range(60), "pylance").to_batches()
    buckets = evaluate_sharding_spec(batch, spec, dataset.lance_schema).column(0)
    for bucket in range(3):
        with dataset.mem_wal_writer(str(uuid.uuid4()), **AT_ONCE) as writer:
            writer.put(batch.filter(pc.equal(buckets, bucket)))
    table = lancemem.open_table(table_uri)
    assert table.sharding == lancemem.bucket("id", 3)
    assert len(table.shards()) == 3
    kept = [rows("string", range(60), "pylance"), rows("string", range(60, 70), "base")]
    assert in_order(table.scan().to_table()) == in_order(pa.concat_tables(kept))


def test_both_take_turns_on_one_shard(make_table: MakeTable) -> None:
    table = make_table(schema_of("int64"), ["id"])
    shard = table.shards()[0].shard_id
    for turn in range(3):
        # A writer of lance releases no claim, whether it was closed or runs.
        newer = rows("int64", range(turn, turn + 10), f"lancemem {turn}")
        if turn:
            with pytest.raises(lancemem.ShardHeldError):
                table.upsert(newer)
        table.upsert(newer, take_over=True)
        with lance.dataset(table.uri).mem_wal_writer(shard, **AT_ONCE) as writer:
            writer.put(rows("int64", range(turn, turn + 5), f"pylance {turn}"))
    names = {row["id"]: row["name"] for row in table.scan().to_table().to_pylist()}
    assert [names[n] for n in range(12)] == (
        ["pylance 0", "pylance 1"] + ["pylance 2"] * 5 + ["lancemem 2"] * 5
    )
    assert len(names) == 12


def test_an_old_job_is_fenced_by_a_writer_of_pylance(make_table: MakeTable) -> None:
    table = make_table(schema_of("int64"), ["id"])
    job = table.start_job(shard=0)
    job.put(rows("int64", range(3), "ours"))
    writer = lance.dataset(table.uri).mem_wal_writer(job.shard_id, **AT_ONCE)
    with pytest.raises(lancemem.WriterFencedError):
        job.put(rows("int64", range(3), "too late"))
    writer.close()
    assert set(table.scan().to_table().column("name").to_pylist()) == {"ours"}


def test_sstables_that_pylance_recorded_as_compacted_are_not_read_again(table_uri: str) -> None:
    dataset = make_pylance_table(table_uri, "int64", unsharded=True)
    shard = str(uuid.uuid4())
    with dataset.mem_wal_writer(shard, **AT_ONCE) as writer:
        writer.put(rows("int64", range(5), "run"))
    merge = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    merge.mark_sstables_as_compacted([CompactedSsTable(shard, 1)])
    merge.execute(rows("int64", range(5), "run"))
    lance.dataset(table_uri).update({"name": "'changed'"}, where="id = 1")
    got = lancemem.open_table(table_uri).get(key_rows("int64", range(1, 2)))
    assert got.column("name").to_pylist() == ["changed"]


# --- routing ---

TEXTS = ["abcdefghi"[:length] for length in range(10)] + ["é", "日本語", "🛫", "a\x00b", "x" * 100]
ROUTED: dict[str, pa.Array] = {
    "int8": pa.array([-128, -1, 0, 1, 127], pa.int8()),
    "int16": pa.array([-(2**15), -1, 0, 1, 2**15 - 1], pa.int16()),
    "int32": pa.array([-(2**31), -1, 0, 1, 34, 2**31 - 1], pa.int32()),
    "int64": pa.array([-(2**63), -(2**31) - 1, -1, 0, 1, 34, 2**32, 2**63 - 1], pa.int64()),
    "uint8": pa.array([0, 1, 127, 128, 255], pa.uint8()),
    "uint32": pa.array([0, 1, 2**31, 2**32 - 1], pa.uint32()),
    "uint64": pa.array([0, 1, 2**32, 2**63, 2**64 - 1], pa.uint64()),
    "bool": pa.array([False, True]),
    "many": pa.array(range(-1000, 1000), pa.int64()),
    "utf8": pa.array(TEXTS + [f"N{n}" for n in range(1000)], pa.string()),
    "large_utf8": pa.array(TEXTS, pa.large_string()),
}


@pytest.mark.parametrize("buckets", [1, 4, 7])
@pytest.mark.parametrize("kind", ROUTED)
def test_rows_go_to_the_bucket_that_pylance_computes(
    kind: str, buckets: int, make_table: MakeTable
) -> None:
    values = ROUTED[kind]
    schema = pa.schema([pa.field("id", values.type, nullable=False), pa.field("v", pa.int8())])
    sharding = lancemem.bucket("id", buckets)
    table = make_table(schema, sharding=sharding)
    dataset = lance.dataset(table.uri)
    spec = dataset.mem_wal_index_details()["sharding_specs"][0]
    batch = pa.record_batch([values], schema=pa.schema([schema.field("id")]))
    theirs = evaluate_sharding_spec(batch, spec, dataset.lance_schema).column(0).to_pylist()
    assert pa.array(table.shard_ordinals(batch)).to_pylist() == theirs
