"""Which Spark partition a row goes to: the partition of its shard.

Owns the shard column and the shuffle on it, so that one task holds all rows of one shard and no two
tasks fence each other. The ordinals come from the engine, because the table's bucket hash is
neither Spark's nor Iceberg's. Does not own the writing: see `writer`.
"""

# No `from __future__ import annotations`: Spark reads an Arrow UDF's kind from its annotations.
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.pandas.functions import arrow_udf

import lancemem
from lancemem.spark.reader import key_batch
from lancemem.spark.size_estimate import quoted
from lancemem.spark.tables import open_cached

if TYPE_CHECKING:
    from pyspark.sql._typing import UserDefinedFunctionLike

SHARD_COLUMN = "_lancemem_shard"


def partition_by_shard(
    rows: DataFrame,
    uri: str,
    primary_key: Sequence[str],
    shard_count: int,
    sequence_by: str | None = None,
) -> DataFrame:
    """Bring the rows of shard n to partition n, in the order of `sequence_by` if it is given.

    The result has the columns of `rows` and, last, `SHARD_COLUMN`.
    """
    if SHARD_COLUMN in rows.columns:
        raise lancemem.InvalidInputError(
            f"the column name {SHARD_COLUMN!r} is lancemem's own; rename it in the DataFrame"
        )
    if shard_count == 1:
        routed = rows.withColumn(SHARD_COLUMN, sf.lit(0)).repartition(1)
        return _in_order(routed, sequence_by)
    # Only the key crosses to Python here; the other columns stay in the JVM.
    ordinal = _shard_ordinals_of(uri)(sf.struct(*[rows[name] for name in primary_key]))
    routed = rows.withColumn(SHARD_COLUMN, ordinal).repartitionById(
        shard_count, sf.col(SHARD_COLUMN)
    )
    return _in_order(routed, sequence_by)


def _in_order(routed: DataFrame, sequence_by: str | None) -> DataFrame:
    return routed if sequence_by is None else routed.sortWithinPartitions(quoted(sequence_by))


def _shard_ordinals_of(uri: str) -> "UserDefinedFunctionLike":
    def shard_ordinals(keys: Iterator[pa.Array]) -> Iterator[pa.Array]:
        table = open_cached(uri)
        for batch in keys:
            rows = key_batch(table, pa.RecordBatch.from_struct_array(batch))
            yield pa.array(table.shard_ordinals(rows))

    # pyspark's own stub wants the kind as an argument, which pyspark then warns about.
    udf: UserDefinedFunctionLike = arrow_udf(shard_ordinals, returnType="int")  # type: ignore[call-overload]
    return udf
