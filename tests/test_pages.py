"""The Python blocks of README.md and docs/ run as a reader of the page types them.

Owns: what a page takes for granted, such as a table of flights. Does not own: indented code, which
is a fragment or a command, or README beside the wheel alone (`scripts/check_wheel.py`).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import code_blocks

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"

FLIGHTS = """
import lancemem, pyarrow as pa

schema = pa.schema([
    pa.field("id", pa.int64(), nullable=False),
    *(pa.field(name, pa.string()) for name in ("name", "carrier", "origin", "gate", "remark")),
    pa.field("delay", pa.int64()),
    pa.field("passengers", pa.int32()),
])
text = dict(carrier="AA", origin="JFK", gate="B7", remark=None)
flights = [dict(text, id=id, name=str(id), delay=id * 5, passengers=150) for id in range(10)]
rows = pa.Table.from_pylist(flights, schema)
keys = pa.table({"id": [7, 3]})
"""
# Half of the rows are in SSTables and half in the log, but for a page that says where they are.
WRITTEN = """
table = lancemem.create_table("flights.lance", schema, primary_key="id")
with table.start_job(shard=0) as job:
    job.put(rows.slice(0, 5))
    job.flush()
    job.put(rows.slice(5))
"""
OTHER_LIBRARIES = """
import datafusion, duckdb, lance, polars, pyarrow, pyarrow.dataset

gates = pa.table({"id": ["B7"]})
handle = len
"""
WITHOUT_COLUMN = """
schema = schema.remove(schema.get_field_index("gate"))
rows = rows.drop_columns(["gate"])
"""
BEFORE = {
    "README.md": "",
    "docs/changes.md": FLIGHTS + WRITTEN,
    "docs/compaction.md": FLIGHTS + WRITTEN,
    "docs/indexes.md": FLIGHTS + WRITTEN,
    "docs/merge-engines.md": "",
    "docs/reading.md": FLIGHTS + WRITTEN + OTHER_LIBRARIES,
    "docs/schema-changes.md": FLIGHTS + WITHOUT_COLUMN + WRITTEN,
    "docs/event-time.md": "",
    "docs/search.md": "",
    "docs/write-path.md": FLIGHTS + WRITTEN,
}
SPARK = """
import os, sys

os.environ.update(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
"""


def run_page(name: str, *options: str, before: str, seconds: int = 250) -> str:
    """Run the blocks of a page in a process of their own, and return what they print."""
    command = [sys.executable, code_blocks.__file__, name, *options, "--before", before]
    ended = subprocess.run(  # noqa: S603 - pages of this tree
        command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=seconds
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_each_page_with_python_blocks_is_run() -> None:
    pages = [README, *sorted((ROOT / "docs").rglob("*.md"))]
    found = {os.fspath(page.relative_to(ROOT)) for page in pages if code_blocks.blocks(page)}
    assert found == set(BEFORE)


@pytest.mark.parametrize("name", BEFORE)
def test_the_python_blocks_of_a_page_run(name: str) -> None:
    run_page(name, "--skip", "PySpark", before=BEFORE[name])


def test_the_first_block_of_the_readme_prints_what_it_says() -> None:
    printed = run_page("README.md", "--only", "Python", before="")
    frame = printed[: printed.index("\n2 ")]
    assert "Ada" in frame
    assert "Grace Hopper" in frame
    assert "Edsger" not in frame


@pytest.mark.spark
def test_the_spark_block_of_the_readme_prints_what_it_says() -> None:
    printed = run_page("README.md", "--only", "PySpark", before=SPARK, seconds=500)
    assert "45" in printed.splitlines()


def test_a_traceback_names_the_line_of_the_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One\n\n```python\nx = 1\n```\n\n## Two\n\n```python\n\nx / 0\n```\n")
    first, second = code_blocks.blocks(page)
    assert (first.heading, first.line, first.code) == ("One", 4, "x = 1")
    assert (second.heading, second.line) == ("Two", 10)
    with pytest.raises(ZeroDivisionError) as raised:
        code_blocks.run(page, [first, second], str(tmp_path))
    last = raised.traceback[-1]
    assert (str(last.path), last.lineno + 1) == (str(page), 11)


def test_blocks_of_other_languages_and_comments_in_them_are_passed_over(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One\n\n```sh\n# not a heading\n```\n\n```python\npass\n```\n")
    assert [block.heading for block in code_blocks.blocks(page)] == ["One"]
