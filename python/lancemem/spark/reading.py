"""A lancemem table as a Spark DataFrame.

Owns the splits of a read and the task that streams one split. What a row's newest version is, and
which filter runs where, is the engine's plan alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pyarrow as pa

import lancemem
from lancemem.spark.arrow_types import cast_batch, spark_arrow_schema, spark_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

Consistency = Literal["flushed", "durable", "live"]


def read_table(
    spark: SparkSession,
    table: lancemem.Table,
    columns: Sequence[str] | None,
    where: str | None,
    consistency: Consistency,
) -> DataFrame:
    """Make a DataFrame of the table; each evaluation of it reads the table as it is then."""
    uri = table.uri
    schema = pa.schema(table.schema)
    names = schema.names if columns is None else list(columns)
    _check_columns(uri, schema, names)
    schema = spark_arrow_schema(pa.schema([schema.field(name) for name in names]))

    def read_split(splits: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for split in splits:
            for _ in range(split.num_rows):
                scan = lancemem.open_table(uri).scan(
                    columns=names, filter=where, consistency=consistency
                )
                for batch in pa.RecordBatchReader.from_stream(scan.to_reader()):
                    yield cast_batch(batch, schema)

    # One split: the engine's scan covers all shards. The DataFrame of splits is what tasks pull.
    splits = spark.range(0, 1, 1, numPartitions=1)
    return splits.mapInArrow(read_split, spark_schema(schema))


def _check_columns(uri: str, schema: pa.Schema, names: Sequence[str]) -> None:
    unknown = [name for name in names if name not in schema.names]
    if unknown:
        raise lancemem.InvalidInputError(
            f"table {uri}: no column {unknown[0]!r}; it has {', '.join(schema.names)}"
        )
