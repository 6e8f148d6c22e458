"""Reads that Spark ends early print no traces of broken pipes.

Owns: the standard error of a Spark in a process of its own. Not here: the rows of reads.
"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

import lancemem

if TYPE_CHECKING:
    from pathlib import Path

QUERIES = """
import sys
from pathlib import Path
from lancemem.spark import LancememTable
from tests.spark.driver import session
spark = session("local[1]", Path(sys.argv[1]))
table = LancememTable.forPath(spark, sys.argv[2])
table.toDF().limit(5).collect()
table.toDF().show(3)
table.toDF(splits=2).show(3)
table.lookup(table.toDF(["id"])).show(3)
assert table.toDF().count() == 400_000
print("done")
"""


@pytest.mark.spark
def test_a_read_that_spark_ends_early_prints_no_trace(table_uri: str, tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])
    table = lancemem.create_table(table_uri, schema, primary_key=["id"])
    for start in (0, 200_000):
        ids = list(range(start, start + 200_000))
        table.upsert(pa.table({"id": ids, "v": ["x" * 50] * len(ids)}, schema=schema))
        table.start_job(shard=0).close(flush=True)
        table.compact()
    ran = subprocess.run(  # noqa: S603 - our own
        [sys.executable, "-c", QUERIES, str(tmp_path), table_uri],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (ran.returncode, ran.stdout.splitlines()[-1:]) == (0, ["done"]), ran.stderr
    assert "Traceback" not in ran.stderr
