"""Indexes of the base table: the calls of `Table` that create, list, update and drop them.

Owns their Python forms. Does not own the indexes, which are Lance's, or the checks before a build,
which are the extension's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lancemem import _lancemem

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import EllipsisType

    from lancemem._lancemem import OptimizedIndex, TableIndex, _Metric

__all__ = ["TableIndexes"]


class TableIndexes(_lancemem.Table):
    """The indexes of `Table`."""

    def create_index(  # noqa: PLR0913 - each is an option of some type of index
        self,
        column: str,
        index_type: str,
        *,
        name: str | None = None,
        replace: bool = False,
        metric: _Metric | None = None,
        num_partitions: int | None = None,
        target_partition_size: int | None = None,
        num_sub_vectors: int | None = None,
        num_bits: int | None = None,
        max_iters: int | None = None,
        sample_rate: int | None = None,
        m: int | None = None,
        ef_construction: int | None = None,
        max_level: int | None = None,
        base_tokenizer: str | None = None,
        language: str | None = None,
        with_position: bool | None = None,
        max_token_length: int | EllipsisType | None = ...,
        lower_case: bool | None = None,
        stem: bool | None = None,
        remove_stop_words: bool | None = None,
        custom_stop_words: Sequence[str] | None = None,
        ascii_folding: bool | None = None,
        min_ngram_length: int | None = None,
        max_ngram_length: int | None = None,
        prefix_only: bool | None = None,
        memory_limit: int | None = None,
        num_workers: int | None = None,
    ) -> TableIndex:
        """Create an index of a column of the base table, in one commit.

        Types, names and options are pylance's, and pylance uses the index. Rows in logs and
        SSTables are not in it: they are added by `compact(flush=True)` and `optimize_indexes`. No
        read misses a row meanwhile. Jobs, compactions and other programs go on; after a commit that
        moved the rows the index is built again. Docs: docs/indexes.md.

        Args:
            column: The column.
            index_type: "IVF_FLAT", "IVF_PQ", "IVF_SQ", "IVF_RQ", "IVF_HNSW_FLAT", "IVF_HNSW_PQ" and
                "IVF_HNSW_SQ" for vectors; "BTREE", "BITMAP", "ZONEMAP" and "BLOOMFILTER" for
                conditions; "LABEL_LIST" for lists; "INVERTED" (or "FTS") for full-text search;
                "NGRAM" for `contains`. In upper or lower case.
            name: The name. Default: that of the column and `_idx`.
            replace: Replace the index of that name. Default: False, a name that is taken is an
                error.
            metric: Vectors: "l2", "cosine", "dot", or "hamming" for `uint8`. Default: "l2", or
                "hamming" for `uint8`.
            num_partitions: Vectors: the number of partitions. Fewer are trained where a partition
                would get fewer than `sample_rate` vectors and the type has codes of few bits.
                Default: rows by `target_partition_size`.
            target_partition_size: Vectors: rows of a partition. Default: Lance's for the type.
            num_sub_vectors: Types with PQ: the number of codes of a vector, which divides its
                width. Default: a code for each 16 numbers, or for each 8 where 16 does not divide
                the width, or else one code.
            num_bits: Types with PQ: bits of a code, 4 or 8. Default: 8. "IVF_RQ": bits for each
                number, from 1 to 9. Default: 5.
            max_iters: Vectors: the maximum number of rounds of a training. Default: 50.
            sample_rate: Vectors: how many vectors train each centroid. Default: 256.
            m: Types with HNSW: edges of a node, at least 4. Default: 20.
            ef_construction: Types with HNSW: candidates for the edges of a node, at least `m`.
                Default: 150.
            max_level: Types with HNSW: levels of the graph. Default: 7.
            base_tokenizer: "INVERTED": "simple", "whitespace", "raw", "ngram", "icu" or
                "icu/split". Default: "simple".
            language: "INVERTED": the language of stems and stop words. Default: "English".
            with_position: "INVERTED": store positions, which phrase queries need. Default: False.
            max_token_length: "INVERTED": the longest word that is indexed. None for no limit.
                Default: 40.
            lower_case: "INVERTED": make words lower case. Default: True.
            stem: "INVERTED": reduce words to their stems. Default: True, False for "ngram".
            remove_stop_words: "INVERTED": leave out stop words. Default: as `stem`.
            custom_stop_words: "INVERTED": stop words in the place of the language's.
            ascii_folding: "INVERTED": remove accents. Default: True.
            min_ngram_length: "INVERTED" with "ngram": the fewest letters of an n-gram. Default: 3.
            max_ngram_length: "INVERTED" with "ngram": the most letters of an n-gram. Default: 3.
            prefix_only: "INVERTED" with "ngram": only n-grams at the start of a word. Default:
                False.
            memory_limit: "INVERTED": MiB of memory for the build. Default: 2 GiB for each worker.
            num_workers: "INVERTED": threads of the build, at most all processors but two. Default:
                half of the processors.

        Returns:
            The index.

        Raises:
            InvalidInputError: The column is unknown or cannot have such an index, the type has no
                such option, the name is taken, `num_sub_vectors` does not divide the width, or the
                base table has too few rows with a vector. Nothing was built.
            RetryableError: The storage failed, or other commits came first again and again.

        Example:
            table.create_index("carrier", "BITMAP")
            table.create_index("vec", "IVF_PQ", metric="cosine", num_sub_vectors=48)
        """
        options: dict[str, Any] = {
            "metric": metric,
            "num_partitions": num_partitions,
            "target_partition_size": target_partition_size,
            "num_sub_vectors": num_sub_vectors,
            "num_bits": num_bits,
            "max_iters": max_iters,
            "sample_rate": sample_rate,
            "m": m,
            "ef_construction": ef_construction,
            "max_level": max_level,
            "base_tokenizer": base_tokenizer,
            "language": language,
            "with_position": with_position,
            "lower_case": lower_case,
            "stem": stem,
            "remove_stop_words": remove_stop_words,
            "custom_stop_words": custom_stop_words,
            "ascii_folding": ascii_folding,
            "min_ngram_length": min_ngram_length,
            "max_ngram_length": max_ngram_length,
            "prefix_only": prefix_only,
            "memory_limit": memory_limit,
            "num_workers": num_workers,
        }
        given = {option: value for option, value in options.items() if value is not None}
        if max_token_length is not ...:
            given["max_token_length"] = max_token_length
        return _lancemem.create_index(self, column, index_type, name=name, replace=replace, **given)

    def indexes(self) -> list[TableIndex]:
        """List the indexes of the base table, by name: those made here and by other programs.

        Returns:
            The indexes of the newest version, each with the rows that it covers and does not cover.
            Rows above the base table are in neither count.

        Raises:
            RetryableError: The storage failed.

        Example:
            [index.name for index in table.indexes() if index.unindexed_rows > 0]
        """
        return _lancemem.table_indexes(self)

    def drop_index(self, name: str) -> None:
        """Drop an index of the base table. Older versions keep it.

        Args:
            name: The name of the index.

        Raises:
            InvalidInputError: No index has that name.
            RetryableError: The storage failed.

        Example:
            table.drop_index("carrier_idx")
        """
        _lancemem.drop_index(self, name)

    def optimize_indexes(
        self, names: Sequence[str] | str | None = None, *, num_indices_to_merge: int | None = None
    ) -> list[OptimizedIndex]:
        """Add the rows of the base table that its indexes do not cover to them.

        The rows are added to what is trained: partitions and codes stay, so an index of data that
        has changed a lot is better created anew (`create_index(replace=True)`).

        Args:
            names: The names of the indexes. Default: all.
            num_indices_to_merge: How many of the newest segments of an index become one with the
                new rows. 0 adds a segment. Default: a segment is added, unless Lance finds
                partitions that are too large or too small, and rebuilds these.

        Returns:
            The indexes that changed.

        Raises:
            InvalidInputError: No index has one of the names.
            RetryableError: The storage failed, or other commits came first again and again.

        Example:
            table.compact(flush=True)
            table.optimize_indexes()
        """
        named = [names] if isinstance(names, str) else names
        return _lancemem.optimize_indexes(self, named, num_indices_to_merge=num_indices_to_merge)
