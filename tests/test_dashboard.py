"""The page of `lancemem dashboard`: what it shows, who may ask for it, and that it writes nothing.

Owns: the page over HTTP, its policy, its pictures, and the page in a real browser where there is
one. Not here: samples and rates (test_cli_commands).
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import lancemem
from lancemem.dashboard import page, pictures, server
from lancemem.dashboard.recorder import Recorder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import MakeTable

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
BROWSER = os.environ.get("LANCEMEM_BROWSER") or next(
    filter(None, map(shutil.which, BROWSERS)), None
)


@pytest.fixture
def filled(make_table: MakeTable) -> lancemem.Table:
    table = make_table(sharding=lancemem.bucket("id", 2))
    for step in range(3):
        ids = range(step * 40, step * 40 + 50)
        table.upsert(pa.table({"id": ids, "name": ["a"] * 50, "value": [0.5] * 50}))
        table.flush()
        if step == 0:
            table.compact()
    table.upsert(pa.table({"id": [1], "name": ["b"], "value": [0.0]}))
    return table


@pytest.fixture
def served(filled: lancemem.Table) -> Iterator[str]:
    """Give the address of a running dashboard, as HOST:PORT."""
    with server.serve(filled, port=0, interval=0.1) as running:
        yield running.url.removeprefix("http://").rstrip("/")


def ask(
    address: str, path: str = "/", method: str = "GET", host: str | None = None
) -> tuple[http.client.HTTPResponse, str]:
    connection = http.client.HTTPConnection(address, timeout=20)
    connection.request(method, path, headers={"Host": host} if host else {})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer, text


class Elements(HTMLParser):
    """The elements of a page, and the attributes that could load something."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.loads: list[str | None] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: D102
        self.names.append(tag)
        self.loads += [value for name, value in attrs if name in {"src", "href", "action", "data"}]
        assert not [name for name, _ in attrs if name.startswith("on") or name == "style"]


def test_the_page_shows_shards_logs_debt_history_and_rates(served: str) -> None:
    answer, text = ask(served)
    assert (answer.status, answer.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    for heading in ("Rates", "Compaction debt", "SSTables", "Log", "Base table", "Shards"):
        assert f"<figcaption>{heading} " in text
    assert "<dt>SSTable rows</dt><dd>100</dd>" in text
    assert "<dt>log rows</dt><dd>1</dd>" in text
    assert "<dt>lag, rows</dt><dd>101</dd>" in text
    assert text.count("<svg") == 6
    assert "Compactions and other versions" in text


def test_the_page_loads_and_runs_nothing(served: str) -> None:
    answer, text = ask(served)
    elements = Elements(text)
    assert elements.loads == ["data:,"]
    assert not {"script", "form", "input", "button", "iframe", "a", "img"} & set(elements.names)
    policy = answer.headers["Content-Security-Policy"]
    assert policy == page.POLICY
    assert "default-src 'none'" in policy
    style = re.search("<style>(.*)</style>", text, re.DOTALL)
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in policy
    assert answer.headers["X-Frame-Options"] == "DENY"
    assert answer.headers["Cache-Control"] == "no-store"


def test_the_samples_are_there_as_json(served: str) -> None:
    _, text = ask(served, "/samples.json")
    found = json.loads(text)
    assert found["error"] is None
    assert found["samples"][-1]["lag_rows"] == 101


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_a_request_that_could_write_is_refused(served: str, method: str) -> None:
    assert ask(served, method=method)[0].status == 501


def test_other_paths_name_the_way_and_head_has_no_body(served: str) -> None:
    answer, text = ask(served, "/../../etc/passwd")
    assert (answer.status, text) == (404, "the page is at /\n")
    answer, text = ask(served, method="HEAD")
    assert (answer.status, text) == (200, "")
    assert int(answer.headers["Content-Length"]) > 1000


def test_a_page_of_another_site_cannot_read_it_by_a_name_of_its_own(served: str) -> None:
    port = served.rpartition(":")[2]
    assert ask(served, host=f"evil.example:{port}")[0].status == 421
    assert ask(served, host=f"localhost:{port}")[0].status == 200


def test_watching_writes_nothing(filled: lancemem.Table) -> None:
    def files() -> dict[str, int]:
        found = (path for path in Path(filled.uri).rglob("*") if path.is_file())
        return {str(path): path.stat().st_mtime_ns for path in found}

    before = files()
    with server.serve(filled, port=0, interval=0.02) as running:
        address = running.url.removeprefix("http://").rstrip("/")
        while len(json.loads(ask(address, "/samples.json")[1])["samples"]) < 4:
            ask(address)
    assert files() == before


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "example.org"])  # noqa: S104
def test_an_address_that_others_reach_is_refused_unless_insisted(
    filled: lancemem.Table, host: str
) -> None:
    with (
        pytest.raises(lancemem.InvalidInputError, match="insist with --allow-remote"),
        server.serve(filled, host, 0),
    ):
        pytest.fail("it must not run")


def test_a_port_in_use_names_the_way(filled: lancemem.Table, served: str) -> None:
    port = int(served.rpartition(":")[2])
    with pytest.raises(OSError, match="pass another --port"), server.serve(filled, port=port):
        pytest.fail("it must not run")


def test_texts_of_a_table_are_escaped(filled: lancemem.Table) -> None:
    with Recorder(filled, 60) as recorder:
        text = page.render("<script>alert(1)</script>", recorder.state(), 5)
    assert "<script" not in text
    assert "&lt;script&gt;" in text


def test_a_table_that_cannot_be_read_is_shown_with_its_last_samples(
    filled: lancemem.Table,
) -> None:
    with Recorder(filled, 60) as recorder:
        lancemem.drop_table(filled.uri)
        recorder.sample()
        state = recorder.state()
    assert state.error is not None
    text = page.render(filled.uri, state, 5)
    assert "The last sample failed: " in text
    assert "<dt>log rows</dt><dd>1</dd>" in text


@pytest.mark.parametrize(
    ("largest", "ticks"),
    [(0, "4"), (1, "1"), (7, "8"), (9, "10"), (101, "200"), (999, "1k"), (1_234_567, "2M")],
)
def test_axes_start_at_zero_and_end_at_a_round_number_above_the_values(
    largest: float, ticks: str
) -> None:
    drawn = pictures.lines("a", "rows", [0, 1], [("b", [0, largest])])
    found = re.findall(r'<text class="tick end" x="46" y="[\d.]+">([^<]+)<', drawn)
    assert (found[0], found[-1]) == ("0", ticks)
    heights = [float(y) for y in re.findall(r"points=\"[\d.]+,[\d.]+ [\d.]+,([\d.]+)\"", drawn)]
    assert all(12 <= y <= 172 for y in heights)


def test_the_command_serves_until_it_is_stopped(filled: lancemem.Table) -> None:
    command = [sys.executable, "-m", "lancemem", "dashboard", filled.uri, "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:  # noqa: S603
        try:
            assert running.stdout is not None
            url = json.loads(running.stdout.readline())["url"]
            assert ask(url.removeprefix("http://").rstrip("/"))[0].status == 200
            running.send_signal(signal.SIGTERM)
            _, errors = running.communicate(timeout=50)
        finally:
            running.kill()
    assert (running.returncode, errors) == (0, b"")


@pytest.mark.skipif(
    BROWSER is None, reason="no Chromium is installed, and LANCEMEM_BROWSER is unset"
)
def test_a_real_browser_draws_the_page_under_its_policy(served: str, tmp_path: Path) -> None:
    picture = tmp_path / "page.png"
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    logged = ["--enable-logging=stderr", f"--user-data-dir={tmp_path / 'profile'}"]
    size = ["--window-size=1200,1100", f"--screenshot={picture}"]
    drawn = subprocess.run(  # noqa: S603 - a browser of this machine
        [str(BROWSER), *options, *logged, *size, f"http://{served}/"],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert drawn.returncode == 0, drawn.stderr
    assert "Refused to" not in drawn.stderr
    assert "Content Security Policy" not in drawn.stderr
    from PIL import Image  # noqa: PLC0415 - this test alone looks at pixels

    with Image.open(picture) as image:
        assert image.size == (1200, 1100)
        colours = {colour for _, colour in image.convert("RGB").getcolors(1 << 22) or ()}
    # Without its style the page has no colour of a line.
    for colour in pictures.COLOURS[:2]:
        assert tuple(bytes.fromhex(colour[1:])) in colours
