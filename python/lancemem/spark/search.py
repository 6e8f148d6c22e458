"""Vector search from Spark: the nearest rows of a vector, or of each row of a DataFrame.

Owns the two calls, the columns of their results, and the task that searches the vectors of a batch.
Does not own the search, which is the engine's, or the snapshot of a read (`reader`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import lancemem
from lancemem.spark.arrow_collect import map_in_arrow
from lancemem.spark.arrow_types import cast_batch, spark_arrow_schema, spark_schema
from lancemem.spark.broken_pipe import until_closed
from lancemem.spark.job_description import named_task
from lancemem.spark.reader import checked_columns, shared_snapshot, spark_columns
from lancemem.spark.tables import open_cached

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import types as st

    from lancemem.spark.reader import Consistency

    How = Literal["inner", "left"]
    Metric = Literal["l2", "cosine", "dot", "hamming"]

# Maximum number of vectors that a task searches in one call: their rows are in memory together.
QUERIES_A_CALL = 1_024

# Columns that a search adds.
QUERY_INDEX, DISTANCE, RANK = "query_index", "_distance", "_rank"


class VectorSearch:
    """The vector search of `LancememTable`."""

    _spark: SparkSession
    _table: lancemem.Table
    _alias: str | None

    def search(  # noqa: PLR0913 - the arguments of `lancemem.Table.search`
        self,
        query: Any,  # noqa: ANN401 - whatever `lancemem.Table.search` takes
        *,
        query_type: Literal["auto", "vector", "fts", "hybrid"] = "auto",
        text: Any | None = None,  # noqa: ANN401
        text_columns: str | Sequence[str] | None = None,
        rerank: Any | None = None,  # noqa: ANN401
        column: str | None = None,
        k: int = 10,
        columns: Sequence[str] | None = None,
        filter: str | None = None,  # noqa: A002 - the name of the engine's call
        metric: Metric | None = None,
        nprobes: int | None = None,
        minimum_nprobes: int | None = None,
        maximum_nprobes: int | None = None,
        ef: int | None = None,
        refine_factor: int | None = None,
        distance_range: tuple[float | None, float | None] | None = None,
        prefilter: bool = True,
        exact: bool = False,
        fast_search: bool = False,
        offset: int = 0,
        consistency: Consistency = "durable",
    ) -> DataFrame:
        """Find the rows nearest to a vector, or that match a text, as `lancemem.Table.search` does.

        The driver searches during this call, without a Spark job. The DataFrame holds what it
        found, in order: later writes do not change it.

        Args:
            query: A vector, a batch of vectors, words, or a query of `lancemem.query`, as in
                `lancemem.Table.search`.
            query_type: As in `lancemem.Table.search`.
            text: As in `lancemem.Table.search`.
            text_columns: As in `lancemem.Table.search`.
            rerank: As in `lancemem.Table.search`. It runs on the driver.
            column: As in `lancemem.Table.search`.
            k: As in `lancemem.Table.search`.
            columns: The columns of the DataFrame, before the scores. Default: all of them.
            filter: A SQL condition of the engine. Default: every row.
            metric: As in `lancemem.Table.search`.
            nprobes: As in `lancemem.Table.search`.
            minimum_nprobes: As in `lancemem.Table.search`.
            maximum_nprobes: As in `lancemem.Table.search`.
            ef: As in `lancemem.Table.search`.
            refine_factor: As in `lancemem.Table.search`.
            distance_range: As in `lancemem.Table.search`.
            prefilter: As in `lancemem.Table.search`.
            exact: As in `lancemem.Table.search`.
            fast_search: As in `lancemem.Table.search`.
            offset: As in `lancemem.Table.search`.
            consistency: As in `lancemem.Table.search`. "live" also reads the MemTables of the jobs
                that run on the driver (`start_jobs`).

        Returns:
            The rows with `_distance`, nearest first. For a batch `query_index` is the first column.
            A text gives `_score`, a hybrid search all three scores, the best row first.

        Raises:
            InvalidInputError: As in `lancemem.Table.search`.

        Example:
            table.search(vector, k=5, columns=["id", "title"], filter="lang = 'en'").show()
        """
        self._table.refresh()
        names = checked_columns(self._table, columns)
        # A type that Spark lacks is an error before anything is searched.
        spark_columns(self._table, names)
        scan = self._table.search(
            query,
            query_type=query_type,
            text=text,
            text_columns=text_columns,
            rerank=rerank,
            column=column,
            k=k,
            columns=names,
            filter=filter,
            metric=metric,
            nprobes=nprobes,
            minimum_nprobes=minimum_nprobes,
            maximum_nprobes=maximum_nprobes,
            ef=ef,
            refine_factor=refine_factor,
            distance_range=distance_range,
            prefilter=prefilter,
            exact=exact,
            fast_search=fast_search,
            offset=offset,
            consistency=consistency,
        )
        rows = frame_of(self._spark, scan.to_table())
        return rows if self._alias is None else rows.alias(self._alias)

    def search_join(  # noqa: PLR0913 - all but one by name
        self,
        queries: DataFrame,
        *,
        on: str,
        column: str | None = None,
        k: int = 10,
        filter: str | None = None,  # noqa: A002 - the name of the engine's call
        columns: Sequence[str] | None = None,
        how: How = "inner",
        metric: Metric | None = None,
        exact: bool = False,
    ) -> DataFrame:
        """Join each row of a DataFrame with the k rows whose vectors are nearest to its vector.

        Tasks search batches of up to 1,024 vectors, all in one snapshot, which this call takes: it
        has every acknowledged durable write. The snapshot can be read as long as `collect_garbage`
        leaves its files, by default an hour.

        Args:
            queries: The rows on the left. A row whose vector is null has no nearest rows.
            on: The column of `queries` with the vectors, an array of numbers.
            column: The column of the table with the vectors. Default: the only one of the table.
            k: The number of rows for each row of `queries`. Default: 10.
            filter: A SQL condition of the engine on rows of the table. Default: every row.
            columns: The columns of the table in the result. Default: all of them.
            how: "inner" leaves out rows of `queries` without nearest rows; "left" keeps them, with
                nulls in the columns of the table, `_distance` and `_rank`. Default: "inner".
            metric: As in `lancemem.Table.search`.
            exact: As in `lancemem.Table.search`.

        Returns:
            A DataFrame with the columns of `queries`, the columns of the table, `_distance` (float)
            and `_rank` (int, 0 for the nearest row).

        Raises:
            InvalidInputError: `queries` has no column `on` or it holds no arrays of numbers,
                `queries` and the result share a name, or an argument cannot be used as in
                `lancemem.Table.search`. A vector of another width than the column, or with a null
                or NaN in it, is an error of the action that reads the DataFrame
                (`lancemem.spark.error_of`).

        Example:
            asked = spark.createDataFrame([(1, [0.1, 0.2])], "question int, embedding array<float>")
            table.search_join(asked, on="embedding", k=5, columns=["id", "title"]).show()
        """
        self._table.refresh()
        names = checked_columns(self._table, columns)
        if how not in {"inner", "left"}:
            raise lancemem.InvalidInputError(f"how must be 'inner' or 'left', got {how!r}")
        _check_queries(queries, on, names)
        column = column or _only_vectors(self._table, metric)
        given: dict[str, Any] = {"column": column, "k": k, "filter": filter, "metric": metric}
        given["exact"] = exact
        snapshot = shared_snapshot(self._table, "durable")
        _check_search(snapshot, given)
        right = spark_columns(self._table, names)
        join = _Join(self._table.uri, str(snapshot.token), on, given, right, how)
        return join.of(queries)


@dataclass(frozen=True)
class _Join:
    """What the tasks of a join need."""

    uri: str
    token: str
    on: str
    # The arguments of the search.
    given: dict[str, Any]
    # The columns of the table, in the types of Spark.
    right: pa.Schema
    how: How

    def of(self, queries: DataFrame) -> DataFrame:
        """Make the DataFrame."""
        task = named_task(self._task(), "search in", self.uri)
        return map_in_arrow(queries, task, self._schema(queries.schema))

    def _schema(self, left: st.StructType) -> st.StructType:
        from pyspark.sql.types import StructType  # noqa: PLC0415 - tasks need it not

        return StructType([*left.fields, *spark_schema(self._right_columns()).fields])

    def _right_columns(self) -> pa.Schema:
        """Return what follows the columns of the queries."""
        fields = [*self.right, pa.field(DISTANCE, pa.float32()), pa.field(RANK, pa.int32())]
        if self.how == "left":
            return pa.schema([field.with_nullable(True) for field in fields])
        last = [field.with_nullable(False) for field in fields[-2:]]
        return pa.schema([*fields[:-2], *last])

    def _task(self) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        def join(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield from until_closed(joined(batches))

        def joined(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            # A task without rows opens nothing.
            snapshot = None
            for batch in batches:
                for start in range(0, batch.num_rows, QUERIES_A_CALL):
                    snapshot = snapshot or open_cached(self.uri).snapshot(token=self.token)
                    yield self._joined(snapshot, batch.slice(start, QUERIES_A_CALL))

        return join

    def _joined(self, snapshot: lancemem.Snapshot, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Search the vectors of a batch, and put the rows beside them."""
        asked = batch.column(self.on)
        places = np.flatnonzero(asked.is_valid().to_numpy(zero_copy_only=False))
        found, of_query = self._found(snapshot, asked.take(pa.array(places)))
        left, ranks = places[of_query], _ranks(of_query)
        right = pa.array(np.arange(len(left)))
        if self.how == "left":
            alone = np.setdiff1d(np.arange(batch.num_rows), left)
            right = pa.concat_arrays([right, pa.nulls(len(alone), right.type)])
            left = np.concatenate([left, alone])
            order = pa.array(np.argsort(left, kind="stable"))
            left, right = left[order.to_numpy()], right.take(order)
        found = found.append_column(RANK, pa.array(ranks, pa.int32())).take(right)
        beside = cast_batch(_one_batch(found), self._right_columns())
        rows = batch.take(pa.array(left))
        return pa.RecordBatch.from_arrays(
            [*rows.columns, *beside.columns], schema=pa.schema([*rows.schema, *beside.schema])
        )

    def _found(self, snapshot: lancemem.Snapshot, asked: pa.Array) -> tuple[pa.Table, Any]:
        """Return the rows of the table by query and distance, and the query of each."""
        names = self.right.names
        # The engine reads at least one column.
        columns = names or pa.schema(snapshot.schema).names[:1]
        if not len(asked):
            schema = pa.schema([*snapshot.schema, pa.field(DISTANCE, pa.float32())])
            return schema.empty_table().select([*names, DISTANCE]), np.array([], np.int64)
        found = snapshot.search(asked, columns=columns, **self.given).to_table()
        # A stable sort: the rows of a query keep their order.
        found = found.take(pc.sort_indices(found[QUERY_INDEX]))
        of_query = found[QUERY_INDEX].to_numpy()
        return found.select([*names, DISTANCE]), of_query


def frame_of(spark: SparkSession, found: pa.Table) -> DataFrame:
    """Make a DataFrame of rows that the driver holds, in the types of Spark."""
    schema = spark_arrow_schema(found.schema)
    rows = pa.Table.from_batches([cast_batch(_one_batch(found), schema)])
    return spark.createDataFrame(rows, spark_schema(schema))


def _one_batch(rows: pa.Table) -> pa.RecordBatch:
    """Return all rows as one batch, also where there is no row."""
    whole = rows.combine_chunks().to_batches()
    return whole[0] if whole else pa.RecordBatch.from_pylist([], rows.schema)


def _ranks(of_query: Any) -> Any:  # noqa: ANN401 - arrays of numpy
    """Number the rows of each query from 0; the rows of a query stand together."""
    return np.arange(len(of_query)) - np.searchsorted(of_query, of_query)


def _check_queries(queries: DataFrame, on: str, names: list[str]) -> None:
    """Refuse queries without vectors, or with a column that the result has too."""
    from pyspark.sql import types as st  # noqa: PLC0415 - tasks need it not

    if on not in queries.columns:
        raise lancemem.InvalidInputError(
            f"the queries have no column {on!r}; they have {', '.join(queries.columns)}"
        )
    kind = queries.schema[on].dataType
    if not isinstance(kind, st.ArrayType) or not isinstance(kind.elementType, st.NumericType):
        raise lancemem.InvalidInputError(
            f"column {on!r} of the queries has the type {kind.simpleString()}; a search needs "
            "vectors, an array of numbers"
        )
    # Spark finds columns whatever their case.
    result = {name.lower() for name in (*names, DISTANCE, RANK)}
    clashing = [name for name in queries.columns if name.lower() in result]
    if clashing:
        name = clashing[0]
        raise lancemem.InvalidInputError(
            f"column {name!r} is in the queries and in the result of the search; rename it, "
            f"queries.withColumnRenamed({name!r}, 'query_{name.lstrip('_')}'), or leave the "
            "table's column out with columns=[...]"
        )


def _only_vectors(table: lancemem.Table, metric: Metric | None) -> str:
    """Name the only column of the table with vectors: the driver does not see their width."""
    of_metric = pa.types.is_uint8 if metric == "hamming" else pa.types.is_floating
    found: list[str] = [
        field.name
        for field in pa.schema(table.schema)
        if pa.types.is_fixed_size_list(field.type) and of_metric(field.type.value_type)
    ]
    if not found:
        raise lancemem.InvalidInputError(
            f"table {table.uri}: no column holds vectors; a search needs a fixed-size list of "
            "float16, float32 or float64 (uint8 for the metric 'hamming')"
        )
    if len(found) > 1:
        raise lancemem.InvalidInputError(
            f"table {table.uri}: the columns {', '.join(found)} hold vectors; name one with column="
        )
    return found[0]


def _check_search(snapshot: lancemem.Snapshot, given: dict[str, Any]) -> None:
    """Raise on the driver what every task would raise: arguments, whatever the vectors are."""
    schema = pa.schema(snapshot.schema)
    place = schema.get_field_index(given["column"])
    kind = schema.field(place).type if place >= 0 else None
    width = kind.list_size if kind is not None and pa.types.is_fixed_size_list(kind) else 1
    # The engine names a column that is not there, or holds no vectors.
    _ = snapshot.search([1] * width, columns=schema.names[:1], **given).schema
