"""merge, lookup and enable: the clauses against plain Python, and refusals with advice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql import functions as sf

import lancemem
from lancemem.spark import LancememTable, MergeResult, stream

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("part", pa.string(), nullable=False),
        pa.field("v", pa.int64()),
        pa.field("vec", pa.list_(pa.float32(), 2)),
    ]
)
SOURCE = "id long, part string, v long, vec array<float>, op string"
ON = "t.id = s.id AND s.part = t.part"

Row = tuple[int, str, int | None, list[float] | None]


@pytest.fixture
def table(spark: SparkSession, table_uri: str) -> LancememTable:
    made = LancememTable.create(
        spark,
        table_uri,
        schema=SCHEMA,
        primary_key=["id", "part"],
        sharding=lancemem.bucket("id", 2),
    )
    rows: list[Row] = [(n, "a", n, [float(n), 0.5]) for n in range(20)]
    made.upsert(spark.createDataFrame(rows, "id long, part string, v long, vec array<float>"))
    return made


def stored(table: LancememTable) -> dict[tuple[int, str], tuple[int | None, list[float] | None]]:
    rows = lancemem.open_table(table.uri).scan().to_table().to_pylist()
    return {(row["id"], row["part"]): (row["v"], row["vec"]) for row in rows}


def test_the_first_clause_that_fits_decides_what_becomes_of_a_row(
    spark: SparkSession, table: LancememTable
) -> None:
    source = spark.createDataFrame(
        [
            (1, "a", 100, [1.0, 1.0], "U"),
            (2, "a", None, None, "D"),
            (3, "a", 5, None, "add"),
            (4, "a", 0, None, None),
            (30, "a", 300, [3.0, 3.0], "U"),
            (31, "a", 310, None, "D"),
            (1, "b", 7, None, "zero"),
        ],
        SOURCE,
    )
    done = (
        table.merge(source.repartition(3), ON)
        .whenMatchedDelete("s.op = 'D'")
        .whenMatchedUpdate("s.op = 'add'", set={"v": "t.v + s.v"})
        .whenMatchedUpdateAll("s.op = 'U'")
        .whenNotMatchedInsertAll("s.op = 'U'")
        .whenNotMatchedInsert("s.op = 'zero'", values={"id": "s.id", "part": "s.part", "v": "0"})
        .execute()
    )
    assert done == MergeResult(num_rows_updated=2, num_rows_inserted=2, num_rows_deleted=1)
    expected = {(n, "a"): (n, [float(n), 0.5]) for n in range(20) if n != 2}
    expected[1, "a"] = (100, [1.0, 1.0])
    expected[3, "a"] = (8, [3.0, 0.5])
    expected[30, "a"] = (300, [3.0, 3.0])
    assert stored(table) == expected | {(1, "b"): (0, None)}


def test_a_column_to_set_may_have_the_alias_of_the_table_as_in_delta(
    spark: SparkSession, table: LancememTable
) -> None:
    source = spark.createDataFrame([(1, "a", 9, None, "x"), (50, "a", 8, None, "x")], SOURCE)
    done = (
        table.merge(source, ON)
        .whenMatchedUpdate(set={"t.v": "t.v + s.v", "t.`vec`": "s.vec"})
        .whenNotMatchedInsert(values={"t.id": "s.id", "t.part": "s.part", "v": "s.v"})
        .execute()
    )
    assert done == MergeResult(num_rows_updated=1, num_rows_inserted=1, num_rows_deleted=0)
    assert stored(table)[1, "a"] == (10, None)
    assert stored(table)[50, "a"] == (8, None)
    merge = table.merge(source, ON)
    with pytest.raises(lancemem.InvalidInputError, match="'id' cannot be updated"):
        merge.whenMatchedUpdate(set={"t.id": "1"})
    with pytest.raises(lancemem.InvalidInputError, match="column 'v' has two values"):
        merge.whenMatchedUpdate(set={"t.v": "1", "v": "2"})
    with pytest.raises(lancemem.InvalidInputError, match=r"no column 's\.v'"):
        merge.whenMatchedUpdate(set={"s.v": "1"})


def test_a_merge_of_whole_rows_is_an_upsert_and_reads_nothing(
    spark: SparkSession, table: LancememTable
) -> None:
    source = spark.createDataFrame([(1, "a", 9, None, "x"), (40, "a", 9, None, "x")], SOURCE)
    done = table.merge(source, ON).whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    assert (done.num_rows_inserted, done.num_rows_deleted, done.matched) == (2, 0, False)
    assert stored(table)[1, "a"] == stored(table)[40, "a"] == (9, None)


def test_the_values_of_a_merge_go_by_name_and_lose_nothing(
    spark: SparkSession, table_uri: str
) -> None:
    place = pa.struct([("lat", pa.float64()), ("lon", pa.float64())])
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("at", place),
            pa.field("all", pa.list_(place)),
            pa.field("n", pa.int32()),
            pa.field("price", pa.decimal128(10, 2)),
            pa.field("wall", pa.timestamp("us")),
            pa.field("f", pa.float32()),
            pa.field("day", pa.date32()),
        ]
    )
    table = LancememTable.create(spark, table_uri, schema=schema, primary_key="id")
    first = "1 n, 1.5BD price, null wall, 1f f, null day"
    table.upsert(spark.sql(f"select 1L id, null at, null all, {first}"))
    swapped = "named_struct('lon', 13.4d, 'lat', 52.5d)"

    def merge(*, round_floats: bool = False, **values: str) -> None:
        source = spark.sql(f"select 1L id, {swapped} at, array({swapped}, null) all, 2L n")
        merged = table.merge(source, "t.id = s.id").whenMatchedUpdate("s.n = 2", set=values)
        merged.execute(round_floats=round_floats)

    try:
        for ansi in ("true", "false"):
            spark.conf.set("spark.sql.ansi.enabled", ansi)
            merge(
                at="s.at", all="s.all", n="s.n", price="t.price + 1", f="s.n / 3", round_floats=True
            )
            merge(n="'7'", wall="'2024-02-29 12:00:00'", day="'2024-02-29'", f="'0.1'")
            merge(n="floor(rand() * 0) + 7", price="'3.50'", f="float(cast(s.n as double) / 3)")
            for column, value in (
                ("n", "1.75d"),
                ("n", "5000000000"),
                ("n", "'7x'"),
                ("price", "1.239d"),
                ("price", "'1.239'"),
                ("f", "1e300d"),
                ("f", "cast(s.n as double) / 3"),
                ("day", "'2024-02-29 12:00:00'"),
                ("wall", "'2024-02-29T12:00:00+05:00'"),
                ("price", "123456789.5d"),
            ):
                text = f"^column '{column}' is .* cannot hold"
                with pytest.raises(lancemem.InvalidInputError, match=text):
                    merge(round_floats=False, **{column: value})
            for column, value, match in (
                ("wall", "current_timestamp()", "timestamp_ntz.*cast the value"),
                ("at", "named_struct('lat', 1d, 'l', 1d)", "struct of lat, lon"),
                ("n", "true", "boolean"),
            ):
                with pytest.raises(lancemem.InvalidInputError, match=match):
                    merge(round_floats=False, **{column: value})
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
    [row] = lancemem.open_table(table_uri).scan().to_table().to_pylist()
    berlin = {"lat": 52.5, "lon": 13.4}
    assert (row["at"], row["all"], row["n"]) == (berlin, [berlin, None], 7)
    assert (str(row["price"]), row["wall"].hour) == ("3.50", 12)
    assert row["f"] == pytest.approx(2 / 3)


def test_what_a_merge_cannot_do_says_what_to_do_instead(
    spark: SparkSession, table: LancememTable
) -> None:
    source = spark.createDataFrame([(1, "a", 9, None, "x"), (1, "a", 8, None, "x")], SOURCE)
    for condition in ("t.v = s.v", "t.id = s.id", "t.id > s.id AND t.part = s.part", "true"):
        with pytest.raises(lancemem.InvalidInputError, match=r"t.id = s.id and t.part = s.part"):
            table.merge(source, condition)
    merge = table.merge(source, ON)
    with pytest.raises(lancemem.InvalidInputError, match="anti join"):
        merge.whenNotMatchedBySourceDelete()
    with pytest.raises(lancemem.InvalidInputError, match="cannot be updated"):
        merge.whenMatchedUpdate(set={"id": "1"})
    with pytest.raises(lancemem.InvalidInputError, match="no column 'nope'"):
        merge.whenMatchedUpdate(set={"nope": "1"})
    with pytest.raises(lancemem.InvalidInputError, match="has no column 'vec'"):
        table.merge(source.drop("vec"), ON).whenMatchedUpdateAll()
    with pytest.raises(lancemem.InvalidInputError, match="at least one"):
        merge.execute()
    before = stored(table)
    with pytest.raises(Exception, match="keys come more than once"):
        merge.whenMatchedUpdateAll("true").execute()
    assert stored(table) == before


def test_a_merge_that_one_shard_refuses_writes_none_and_counts_once_when_it_is_repeated(
    spark: SparkSession, table: LancememTable
) -> None:
    shards = pa.array(table.handle.shard_ordinals(pa.table({"id": range(20)}))).to_pylist()
    clean, double = shards.index(0), shards.index(1)

    def merge(*ids: int) -> MergeResult:
        values = ", ".join(f"({each})" for each in ids)
        source = spark.sql(f"select bigint(id) id, 'a' part from values {values} as s(id)")  # noqa: S608
        return table.merge(source, ON).whenMatchedUpdate(set={"v": "t.v + 1"}).execute()

    before = stored(table)
    with pytest.raises(lancemem.InvalidInputError, match="keys come more than once"):
        merge(clean, double, double)
    assert stored(table) == before
    assert merge(clean, double).num_rows_updated == 2
    assert [stored(table)[key, "a"][0] for key in (clean, double)] == [clean + 1, double + 1]


@pytest.mark.parametrize("driver_bytes", [0, 1 << 20])
def test_a_dot_in_the_name_of_a_column_is_part_of_it(
    spark: SparkSession, table: LancememTable, monkeypatch: pytest.MonkeyPatch, driver_bytes: int
) -> None:
    monkeypatch.setattr("lancemem.spark.table.DRIVER_BYTES", driver_bytes)
    source = spark.sql("select 1L `s.id`, 'a' part, 10L v, 0L `a.b`")
    on = "t.id = s.`s.id` AND s.part = t.part"
    merge = table.merge(source, on).whenMatchedUpdate(set={"v": "t.v + s.v"})
    assert merge.execute().num_rows_updated == 1
    assert stored(table)[1, "a"] == (11, [1.0, 0.5])
    versions = "(20L, 'U', 2), (30L, 'D', 1) as c(v, `c.op`, `c.seq`)"
    changes = spark.sql(f"select *, 1L id, 'a' part from values {versions}")  # noqa: S608
    changes = changes.withColumn("vec", sf.lit(None).cast("array<float>"))
    table.apply_changes(changes, op_column="c.op", sequence_by="c.seq")
    assert stored(table)[1, "a"] == (20, None)
    assert stream._observed(changes, "c.seq").columns == changes.columns


def test_an_inserted_row_has_the_key_that_the_merge_has_looked_for(
    spark: SparkSession, table: LancememTable
) -> None:
    source = spark.createDataFrame([(1004, "a", -1, None, "x")], SOURCE)
    before = stored(table)
    values = {"id": "s.id - 1000", "part": "s.part", "v": "s.v"}
    with pytest.raises(Exception, match=r"key column 'id' another value .* gives 4 for 1004"):
        table.merge(source, ON).whenNotMatchedInsert(values=values).execute()
    assert stored(table) == before
    values["id"] = "cast(s.id as string)"
    done = table.merge(source, ON).whenNotMatchedInsert(values=values).execute()
    assert done.num_rows_inserted == 1
    assert stored(table) == before | {(1004, "a"): (-1, None)}


def test_a_lookup_gives_the_rows_of_keys_that_exist(
    spark: SparkSession, table: LancememTable
) -> None:
    keys = spark.createDataFrame(
        [("a", 3), ("b", 3), ("a", 99), (None, 3), ("a", 7), ("a", None)], "part string, id long"
    )
    found = table.lookup(keys.repartition(2), columns=["v", "id"])
    assert sorted(map(tuple, found.collect())) == [(3, 3), (7, 7)]
    with pytest.raises(lancemem.InvalidInputError, match="no column 'part'"):
        table.lookup(keys.select("id"))


def test_a_lance_table_is_enabled_with_the_sharding_that_it_has(
    spark: SparkSession, tmp_path: Path
) -> None:
    lance = pytest.importorskip("lance")
    uri = str(tmp_path / "enabled.lance")
    mark = {"lance-schema:unenforced-primary-key": "true"}
    schema = pa.schema(
        [pa.field("id", pa.int64(), nullable=False, metadata=mark), pa.field("v", pa.int64())]
    )
    dataset = lance.write_dataset(pa.table({"id": [1, 2], "v": [1, 2]}, schema=schema), uri)
    dataset.initialize_mem_wal(bucket_column="id", num_buckets=3)
    table = LancememTable.enable(spark, uri)
    table.upsert(spark.createDataFrame([(2, 20), (3, 30)], "id long, v long"))
    assert sorted(map(tuple, table.toDF().collect())) == [(1, 1), (2, 20), (3, 30)]
    assert len(table.shards()) == 3
    table.flush()
    table.compact()
    assert sorted(map(tuple, table.toDF(where="v > 10").collect())) == [(2, 20), (3, 30)]
    with pytest.raises(lancemem.InvalidInputError):
        LancememTable.enable(spark, uri, sharding=lancemem.bucket("id", 4))


def test_a_merge_and_a_delete_with_a_version_of_their_own_are_written_once(
    spark: SparkSession, table: LancememTable
) -> None:
    source = spark.sql("select 1L id, 'a' part, 10L v")
    for again in (0, 1):
        merge = table.merge(source, ON).whenMatchedUpdate(set={"v": "t.v + s.v"})
        done = merge.execute(txn_app_id="board", txn_version=1)
        assert (done.num_rows_updated, done.num_shards_already_written) == (1, again)
        assert stored(table)[1, "a"][0] == 11
    keys = source.select("id", "part")
    for again in (0, 1):
        gone = table.delete(keys, txn_app_id="board", txn_version=2)
        assert gone.num_shards_already_written == again
        assert ((1, "a") in stored(table)) == bool(again)
        if not again:
            table.upsert(spark.sql("select 1L id, 'a' part, 5L v, cast(null as array<float>) vec"))


@pytest.mark.parametrize("key", ["row", "place", "stored", "key 0", "x and y"])
def test_a_key_may_be_called_as_anything_inside_a_merge(
    spark: SparkSession, table_uri: str, key: str
) -> None:
    schema = pa.schema([pa.field(key, pa.int64(), nullable=False), pa.field("v", pa.int64())])
    table = LancememTable.create(spark, table_uri, schema=schema, primary_key=key)
    rows = spark.range(3).selectExpr(f"id `{key}`", "1L v")
    table.upsert(rows)
    joined = rows.selectExpr(f"`{key}` id", "5L v")
    merge = table.merge(joined, f"t.`{key}` = s.id").whenMatchedUpdate(set={"v": "t.v + s.v"})
    assert merge.execute().num_rows_updated == 3
    changes = joined.selectExpr(f"id `{key}`", "if(id = 0, 0L, 9L) v", "'U' op")
    done = table.apply_changes(changes, op_column="op", sequence_by="v", keep_newest=True)
    assert done.num_late_changes == 1
    assert {row.v for row in table.toDF(where="v = 9").collect()} == {9}


def test_keys_of_a_type_that_spark_lacks_are_routed_found_merged_and_deleted(
    spark: SparkSession, table_uri: str
) -> None:
    schema = pa.schema([pa.field("id", pa.uint64(), nullable=False), pa.field("v", pa.int64())])
    table = LancememTable.create(
        spark, table_uri, schema=schema, primary_key="id", sharding=lancemem.bucket("id", 4)
    )
    largest = 2**64 - 1
    rows = spark.range(10).selectExpr(f"cast({largest} - id as decimal(20,0)) id", "id v")
    table.upsert(rows)
    large = spark.range(200_000).selectExpr("cast(id as decimal(20,0)) id", "id v")
    assert table.upsert(large).num_rows == 200_000
    assert {row.v for row in table.lookup(rows).collect()} == set(range(10))
    merge = table.merge(rows, "t.id = s.id").whenMatchedUpdate(set={"v": "t.v + s.v"})
    assert merge.execute().num_rows_updated == 10
    table.delete(rows.where("v > 0"))
    found = {int(row.id): row.v for row in table.toDF(where=f"id > {2**63}").collect()}
    assert found == {largest: 0}
