"""Names of pylance, lancedb and Delta for what lancemem has under a name of its own.

Owns the errors that name the way. Does not own the calls: none of these names does anything.
"""

from __future__ import annotations

__all__ = ["way_of_module", "way_of_scan", "way_of_table"]

_BY_LANCE = "to_lance().{} does that on the base table"
_OLDER = "snapshot(version=...) reads an older version; history() lists them"

_OF_TABLE = {
    "add": "upsert(rows) adds rows and replaces rows of the same key",
    "append": "upsert(rows) adds rows and replaces rows of the same key",
    "insert": "upsert(rows) adds rows and replaces rows of the same key",
    "write": "upsert(rows) adds rows and replaces rows of the same key",
    "overwrite": 'lancemem.create_table(uri, rows, mode="overwrite") replaces a table',
    "merge_insert": "merge(rows) takes the rows first, then the same clauses and execute()",
    "to_arrow": "to_table() returns a table of pyarrow",
    "toPandas": "to_pandas() returns a frame of pandas",
    "toDF": "to_pandas() returns a frame of pandas; lancemem.spark.LancememTable has toDF()",
    "to_batches": "scan().to_batches() reads batches, and so does iterating over the table",
    "scanner": "scan(columns, filter) describes a read",
    "query": "scan(columns, filter) describes a read, sql(query) takes a query",
    "nearest": "search(vector, k=...) reads the rows with the nearest vectors",
    "vector_search": "search(vector, k=...) reads the rows with the nearest vectors",
    "take": "get(keys) reads rows by key; rows have no numbers",
    "sample": "head(n) reads n rows, whichever come first",
    "fragments": _BY_LANCE.format("get_fragments()"),
    "get_fragments": _BY_LANCE.format("get_fragments()"),
    "version": _OLDER,
    "latest_version": _OLDER,
    "versions": _OLDER,
    "list_versions": _OLDER,
    "checkout": _OLDER,
    "checkout_version": _OLDER,
    "checkout_latest": "a table always reads its newest version",
    "restore": _OLDER,
    "create_scalar_index": "create_index(column, 'BTREE') creates an index of any type",
    "create_fts_index": "create_index(column, 'INVERTED') creates an index for full-text search",
    "list_indices": "indexes() lists the indexes of the base table",
    "describe_indices": "indexes() lists the indexes of the base table",
    "index_statistics": "indexes() counts the rows that each index covers",
    "index_stats": "indexes() counts the rows that each index covers",
    "add_columns": _BY_LANCE.format("add_columns(...)"),
    "drop_columns": _BY_LANCE.format("drop_columns([...])"),
    "alter_columns": _BY_LANCE.format("alter_columns(...)"),
    "optimize": (
        "compact(flush=True) moves rows into the base table, optimize_indexes() adds them to the "
        "indexes, collect_garbage() cleans up"
    ),
    "optimize_indices": "optimize_indexes() adds rows of compactions to the indexes",
    "compact_files": "compact(flush=True) moves rows into the base table",
    "cleanup_old_versions": "collect_garbage() removes what no reader needs",
    "vacuum": "collect_garbage() removes what no reader needs",
    "name": "a table is known by its address, uri",
    "count": "count_rows(filter) counts rows, and so does len(table)",
    "num_rows": "count_rows(filter) counts rows, and so does len(table)",
    "columns": "schema.names lists the columns",
    "select": "scan([...]) takes the columns",
    "where": "scan(filter=...) takes a condition, and so do update(where=) and delete(where=)",
    "filter": "scan(filter=...) takes a condition, and so do update(where=) and delete(where=)",
    "collect": "to_table() returns a table of pyarrow",
    "show": "head(n) returns n rows",
    "rename_column": _BY_LANCE.format("alter_columns({'path': ..., 'name': ...})"),
    "refresh": "a table always reads its newest version",
    "drop": "lancemem.drop_table(uri) removes a table",
    "close": "a table has nothing to close; a writer and a job have close()",
    "commit": "a write is durable when it returns; nothing waits for a commit",
}
_OF_SCAN = {
    "count": "count_rows() counts the rows",
    "num_rows": "count_rows() counts the rows",
    "limit": "search(vector, k=...) and scan(limit=...) take the number of rows",
    "where": "search(vector, filter=...) and scan(filter=...) take the condition",
    "select": "search(vector, columns=[...]) and scan([...]) take the columns",
    "metric": "search(vector, metric=...) takes the metric",
    "distance_type": "search(vector, metric=...) takes the metric",
    "distance_range": "search(vector, distance_range=(lower, upper)) takes the bounds",
    "nprobes": "search(vector, nprobes=...) takes the number of partitions",
    "refine_factor": "search(vector, refine_factor=...) takes the factor",
    "bypass_vector_index": "search(vector, exact=True) uses no table index",
    "fast_search": "search(vector, fast_search=True) searches what indexes cover, alone",
    "to_list": "to_table().to_pylist() returns dicts",
    "to_arrow": "to_table() returns a table of pyarrow",
    "explain_plan": "explain() returns the plan",
    "analyze_plan": "explain(analyze=True) runs the plan and returns it",
}
_NO_DATABASE = "a table is known by its address"
_OF_MODULE = {
    "connect": f"{_NO_DATABASE}: open_table(uri), create_table(uri, rows, primary_key=...)",
    "write_dataset": "create_table(uri, rows, primary_key=...) creates a table",
    "write_deltalake": "create_table(uri, rows, primary_key=...) creates a table",
    "dataset": "open_table(uri) opens a table",
    "table_names": f"{_NO_DATABASE}: exists(uri)",
    "list_tables": f"{_NO_DATABASE}: exists(uri)",
    "DeltaTable": "open_table(uri) opens a table, lancemem.spark.LancememTable one for Spark",
}


def way_of_table(name: str) -> str:
    """Return the text of the error for an attribute that a table does not have."""
    return _text("'Table' object", name, _OF_TABLE)


def way_of_scan(name: str) -> str:
    """Return the text of the error for an attribute that a scan does not have."""
    return _text("'Scan' object", name, _OF_SCAN)


def way_of_module(name: str) -> str:
    """Return the text of the error for an attribute that the package does not have."""
    return _text("module 'lancemem'", name, _OF_MODULE)


def _text(owner: str, name: str, ways: dict[str, str]) -> str:
    text = f"{owner} has no attribute {name!r}"
    return f"{text}; {ways[name]}" if name in ways else text
