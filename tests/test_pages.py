"""The blocks of README.md and docs/ run as a reader of the page types them.

Owns: what a page takes for granted, such as a table of flights; blocks of Python and of commands
(`sh`), and what pages show as printed. Does not own: indented code and other fences, which are
fragments, files or commands that install something, or README beside the wheel alone
(`scripts/check_wheel.py`).
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from scripts import code_blocks
from tests.s3.running import running

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
FIRST_SCREEN = "Ten lines"
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)

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
    "docs/coming-from.md": "",
    "docs/compaction.md": FLIGHTS + WRITTEN,
    "docs/concepts.md": "",
    "docs/howto/beside-pylance-and-lancedb.md": "",
    "docs/howto/delete.md": "",
    "docs/howto/maintenance.md": "",
    "docs/howto/sharding.md": "",
    "docs/howto/upsert-stream.md": "",
    "docs/index.md": "",
    "docs/indexes.md": FLIGHTS + WRITTEN,
    "docs/merge-engines.md": "",
    "docs/monitoring.md": FLIGHTS + WRITTEN,
    "docs/reading.md": FLIGHTS + WRITTEN + OTHER_LIBRARIES,
    "docs/schema-changes.md": FLIGHTS + WITHOUT_COLUMN + WRITTEN,
    "docs/event-time.md": "",
    "docs/search.md": "",
    "docs/serving.md": FLIGHTS + WRITTEN,
    "docs/tutorial.md": "",
    "docs/write-path.md": FLIGHTS + WRITTEN,
}
# Pages whose blocks below the heading PySpark need a session, and pages that are such blocks alone.
SPARK_PAGES = (
    "README.md",
    "docs/coming-from.md",
    "docs/howto/delete.md",
    "docs/howto/upsert-stream.md",
)
ALL_SPARK_PAGES = {"docs/howto/foreach-batch.md": "Write from foreachBatch"}
S3_PAGES = {"docs/howto/s3.md": "", "docs/object-stores.md": FLIGHTS}
SPARK = """
import os, sys

few = "--conf spark.sql.shuffle.partitions=2 --conf spark.ui.enabled=false pyspark-shell"
os.environ.update(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
os.environ["PYSPARK_SUBMIT_ARGS"] = few
"""


def run_page(*names: str, before: str, options: Sequence[str] = (), seconds: int = 250) -> str:
    """Run the blocks of pages in a process of their own, and return what they print."""
    command = [sys.executable, code_blocks.__file__, *names, *options, "--before", before]
    ended = subprocess.run(  # noqa: S603 - pages of this tree
        command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=seconds
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_each_page_with_blocks_is_run() -> None:
    pages = [README, *sorted((ROOT / "docs").rglob("*.md"))]
    found = {os.fspath(page.relative_to(ROOT)) for page in pages if code_blocks.blocks(page)}
    assert found == {*BEFORE, *SPARK_PAGES, *ALL_SPARK_PAGES, *S3_PAGES}
    spark = [
        os.fspath(page.relative_to(ROOT))
        for page in pages
        if any(block.heading == "PySpark" for block in code_blocks.blocks(page))
    ]
    assert sorted(spark) == sorted(SPARK_PAGES)


@pytest.mark.parametrize("name", BEFORE)
def test_the_blocks_of_a_page_run(name: str) -> None:
    run_page(name, options=["--skip", "PySpark"], before=BEFORE[name])


@pytest.mark.parametrize("name", S3_PAGES)
def test_the_blocks_of_a_page_about_s3_run_on_the_tests_server(name: str) -> None:
    with running() as server:
        place = server.options()
        names = {
            "KEY": place["aws_access_key_id"],
            "SECRET": place["aws_secret_access_key"],
            "ENDPOINT": place["aws_endpoint"],
            "BUCKET": server.make_bucket(),
        }
        variables = {option.upper(): value for option, value in place.items()}
        variables |= {"AWS_ALLOW_HTTP": "true", "BUCKET": names["BUCKET"]}
        before = [S3_PAGES[name], *(f"{name} = {value!r}" for name, value in names.items())]
        before += ["import os", f"os.environ.update({variables!r})"]
        run_page(name, before="\n".join(before))


def test_a_block_can_be_pasted_at_a_prompt() -> None:
    """A prompt ends an indented statement at an empty line, and not at the next statement."""
    compound = (ast.For, ast.FunctionDef, ast.If, ast.Try, ast.While, ast.With)
    glued = []
    for page in [README, *sorted((ROOT / "docs").rglob("*.md"))]:
        for block in PYTHON_BLOCK.findall(page.read_text()):
            with suppress(SyntaxError):  # a fragment
                lines = block.splitlines()
                for before, after in pairwise(ast.parse(block).body):
                    ends = before.end_lineno or before.lineno
                    if isinstance(before, compound) and lines[ends].strip():
                        glued.append(f"{page.relative_to(ROOT)}: {lines[after.lineno - 1]}")
    assert not glued, "an empty line is missing before these lines"


def test_the_first_block_of_the_readme_prints_what_it_says() -> None:
    printed = run_page("README.md", options=["--only", FIRST_SCREEN], before="")
    frame = [line.split(maxsplit=2) for line in printed.splitlines()]
    assert sorted(line[2] for line in frame[1:3]) == ["Ada", "Grace Hopper"]  # in no order


@pytest.mark.spark
def test_the_spark_blocks_of_all_pages_run_and_print_what_they_say() -> None:
    # One process, because a session takes long to start.
    only = ["--only", "PySpark", *(f"--only={title}" for title in ALL_SPARK_PAGES.values())]
    printed = run_page(*SPARK_PAGES, *ALL_SPARK_PAGES, options=only, before=SPARK, seconds=500)
    assert "45" in printed.splitlines()


def test_a_page_that_shows_something_else_than_its_block_prints_fails(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    shown = "# One\n\n```python\nprint(6 * 7)\n```\n\n```text\n{}\n```\n"
    page.write_text(shown.format(42))
    [block] = code_blocks.blocks(page)
    assert block.printed == "42"
    code_blocks.run(page, [block], str(tmp_path))
    page.write_text(shown.format(43))
    with pytest.raises(SystemExit, match="does not print\n43"):
        code_blocks.run(page, code_blocks.blocks(page), str(tmp_path))


def test_commands_run_with_the_python_of_the_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One\n\n```sh\npython -c 'import sys; print(sys.executable)' > path\n```\n")
    [block] = code_blocks.blocks(page)
    monkeypatch.chdir(tmp_path)
    code_blocks.run(page, [block], str(tmp_path))
    assert (tmp_path / "path").read_text().strip() == sys.executable


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
    page.write_text("# One\n\n```ini\n# not a heading\n```\n\n```python\npass\n```\n")
    assert [block.heading for block in code_blocks.blocks(page)] == ["One"]
