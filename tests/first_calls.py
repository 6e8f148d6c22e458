"""The first calls of three users, as they type them with lancemem in the place of what they know.

Owns the lists, 28 calls of each: from the pages of pylance, lancedb and delta-spark. Does not own
the runs: see `test_first_call_lists` and `benches/first_calls.py`.

A call *works*, or *names the way*: its error contains the call to use instead. Otherwise it fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

import lancemem

if TYPE_CHECKING:
    from collections.abc import Iterator

PEOPLE = [
    {"id": 1, "name": "Ada", "n": 10},
    {"id": 2, "name": "Grace", "n": 20},
    {"id": 3, "name": "Edsger", "n": 30},
]
ROWS = pa.Table.from_pylist(PEOPLE)
MORE = pa.Table.from_pylist([{"id": 3, "name": "E. W.", "n": 31}, {"id": 4, "name": "Bo", "n": 4}])

WORKS, NAMES_THE_WAY, FAILS = "works", "names the way", "fails"


class FirstCall(NamedTuple):
    """A call, and what its error contains where it is not to work."""

    code: str
    way: str | None = None


PYLANCE = (
    FirstCall("lancemem.write_dataset(rows, new)", "create_table("),
    FirstCall("lancemem.dataset(uri)", "open_table("),
    FirstCall("t.count_rows()"),
    FirstCall("t.count_rows('n > 15')"),
    FirstCall("t.head(2)"),
    FirstCall("t.to_table()"),
    FirstCall("t.to_table(columns=['id'], filter='n > 15')"),
    FirstCall("t.to_table(limit=2, offset=1)"),
    FirstCall("t.to_table(columns={'double': 'n * 2'})"),
    FirstCall("t.scanner(columns=['id']).to_table()", "scan("),
    FirstCall("list(t.to_batches())", "scan().to_batches()"),
    FirstCall("t.take([0, 1])", "get(keys)"),
    FirstCall("t.sample(2)", "head(n)"),
    FirstCall("t.schema.names"),
    FirstCall("t.uri"),
    FirstCall("t.version", "history()"),
    FirstCall("t.versions()", "history()"),
    FirstCall("t.checkout_version(1)", "snapshot(version="),
    FirstCall("t.insert(more)", "upsert("),
    FirstCall("t.delete('n > 15')", "where"),
    FirstCall("t.update({'name': \"'new'\"}, where='id = 1')"),
    FirstCall("t.merge_insert('id').when_matched_update_all().execute(more)", "merge(rows)"),
    FirstCall("t.create_scalar_index('name', 'BTREE')", "create_index("),
    FirstCall("t.optimize.compact_files()", "compact("),
    FirstCall("t.cleanup_old_versions()", "collect_garbage()"),
    FirstCall("t.add_columns({'m': 'n * 2'})", "to_lance()"),
    FirstCall("t.get_fragments()", "to_lance()"),
    FirstCall("t.to_lance()"),
)

LANCEDB = (
    FirstCall("lancemem.connect(uri)", "open_table("),
    FirstCall("lancemem.create_table(new, data=people)"),
    FirstCall("lancemem.create_table(new, rows.to_pandas(), mode='overwrite')"),
    FirstCall("lancemem.create_table(new, schema=rows.schema)"),
    FirstCall("lancemem.create_table(new, people, exist_ok=True)"),
    FirstCall("lancemem.open_table(uri)"),
    FirstCall("lancemem.table_names()", "exists(uri)"),
    FirstCall("lancemem.drop_table(uri)"),
    FirstCall("t.add(people)", "upsert("),
    FirstCall("t.to_pandas()"),
    FirstCall("t.to_arrow()", "to_table()"),
    FirstCall("t.to_polars()"),
    FirstCall("t.count_rows(filter='n > 15')"),
    FirstCall("len(t)"),
    FirstCall("t.head(5)"),
    FirstCall("t.search().where('n > 15').to_pandas()", "scan("),
    FirstCall("t.search([0.1, 0.2]).limit(2).to_list()", "search(vector, k="),
    FirstCall("t.update(where='id = 1', values={'name': 'new'})"),
    FirstCall("t.update(where='id = 1', values_sql={'n': 'n + 1'})"),
    FirstCall("t.delete('id = 1')", "where"),
    FirstCall("t.merge_insert('id').when_not_matched_insert_all().execute(more)", "merge(rows)"),
    FirstCall("t.create_index(metric='cosine')", "column"),
    FirstCall("t.create_fts_index('name')", "create_index("),
    FirstCall("t.list_indices()", "indexes()"),
    FirstCall("t.optimize()", "compact("),
    FirstCall("t.list_versions()", "history()"),
    FirstCall("t.checkout(1)", "snapshot(version="),
    FirstCall("t.schema.names"),
)

_MERGE = "d.alias('t').merge(df.alias('s'), 't.id = s.id')"

DELTA = (
    FirstCall("LancememTable.forPath(spark, uri)"),
    FirstCall("LancememTable.forName(spark, 'people')", "forPath"),
    FirstCall("LancememTable.isDeltaTable(spark, uri)", "exists"),
    FirstCall("LancememTable.create(spark, new, schema='id long, name string', primary_key='id')"),
    FirstCall("df.write.format('lancemem').mode('append').save(uri)"),
    FirstCall("spark.read.format('lancemem').load(uri).count()"),
    FirstCall("d.toDF().count()"),
    FirstCall("d.toDF().show()"),
    FirstCall("d.toDF().where('n > 15').select('id').collect()"),
    FirstCall("d.alias('t').toDF().select('t.id').count()"),
    FirstCall("d.delete('n > 15')"),
    FirstCall("d.delete(sf.col('n') > 15)"),
    FirstCall("d.delete()", "delete"),
    FirstCall("d.update('n > 15', {'name': \"'new'\"})"),
    FirstCall("d.update(condition='n > 15', set={'name': sf.lit('new')})"),
    FirstCall("d.update(set={'n': 'n + 1'})"),
    FirstCall(f"{_MERGE}.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()"),
    FirstCall(f"{_MERGE}.whenMatchedUpdate(set={{'n': 's.n + t.n'}}).execute()"),
    FirstCall(f"{_MERGE}.whenMatchedDelete('s.n > 30').execute()"),
    FirstCall(
        f"{_MERGE}.whenNotMatchedInsert(values={{'id': 's.id', 'name': 's.name', 'n': 's.n'}})"
        ".execute()"
    ),
    FirstCall(f"{_MERGE}.whenNotMatchedBySourceDelete().execute()", "anti join"),
    FirstCall("d.history().show()"),
    FirstCall("d.history(1).collect()"),
    FirstCall("d.detail().collect()"),
    FirstCall("d.vacuum()"),
    FirstCall("d.optimize().executeCompaction()"),
    FirstCall("d.optimize().executeZOrderBy('id')", "create"),
    FirstCall("d.restoreToVersion(1)", "docs/repair.md"),
)

USERS = {"pylance": PYLANCE, "lancedb": LANCEDB, "delta-spark": DELTA}


def names_of(folder: str, number: int, spark: Any = None) -> dict[str, Any]:  # noqa: ANN401
    """Return what a call may name: a new table of three people, and rows."""
    uri = f"{folder}/{number}.lance"
    table = lancemem.create_table(uri, ROWS, primary_key="id")
    names = {"lancemem": lancemem, "t": table, "uri": uri, "new": f"{folder}/{number}.new.lance"}
    names |= {"rows": ROWS, "more": MORE, "people": PEOPLE}
    if spark is not None:
        from pyspark.sql import functions as sf  # noqa: PLC0415 - most runs need no Spark

        from lancemem.spark import LancememTable  # noqa: PLC0415

        more = spark.createDataFrame([tuple(row.values()) for row in MORE.to_pylist()], MORE_DDL)
        names |= {"spark": spark, "sf": sf, "LancememTable": LancememTable, "df": more}
        names["d"] = LancememTable.forPath(spark, uri)
    return names


MORE_DDL = "id long, name string, n long"


def outcome(call: FirstCall, names: dict[str, Any]) -> tuple[str, str]:
    """Run a call. Return whether it works, names the way or fails, and the text of its error."""
    try:
        eval(call.code, names)  # noqa: S307 - the list above
    except Exception as error:  # noqa: BLE001 - every error of a first call counts
        text = f"{type(error).__name__}: {error}"
        if isinstance(error, (lancemem.LancememError, AttributeError, TypeError)):
            named = call.way is not None and call.way in str(error)
            return (NAMES_THE_WAY if named else FAILS), text
        return FAILS, text
    return (WORKS if call.way is None else FAILS), ""


def outcomes(
    user: str,
    folder: str,
    spark: Any = None,  # noqa: ANN401 - a session
) -> Iterator[tuple[FirstCall, str, str]]:
    """Run the calls of a user, each on a table of its own."""
    for number, call in enumerate(USERS[user]):
        yield call, *outcome(call, names_of(f"{folder}/{user}", number, spark))
