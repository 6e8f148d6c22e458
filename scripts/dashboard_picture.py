"""Draws docs/images/dashboard.png: the dashboard of a table that is written, in a real browser.

Owns: the load, and the call of the browser. Does not own: the page (`lancemem.dashboard`).

    python scripts/dashboard_picture.py chromium-headless-shell /data/flights.lance picture.png
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading

import pyarrow as pa

import lancemem
from lancemem.dashboard import server

SECONDS = 40
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("delay", pa.float64())])
OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars")


def write(table: lancemem.Table, end: threading.Event) -> None:
    """Upsert, flush and compact, each rarer than the one before, until the end."""
    chance = random.Random(3)  # noqa: S311 - the same picture each time
    step = 0
    while not end.wait(0.08):
        ids = [chance.randrange(200_000) for _ in range(chance.randrange(800, 3000))]
        columns = [ids, ["flight"] * len(ids), [1.0] * len(ids)]
        table.upsert(pa.table(columns, schema=SCHEMA))
        step += 1
        if step % 12 == 0:
            table.flush()
        if step % 75 == 0:
            table.compact()


def main() -> None:
    """Draw the picture, and remove the table."""
    browser, uri, picture = sys.argv[1:]
    sharding = lancemem.bucket("id", 4)
    table = lancemem.create_table(uri, SCHEMA, primary_key="id", sharding=sharding)
    end = threading.Event()
    writer = threading.Thread(target=write, args=[table, end])
    writer.start()
    try:
        with server.serve(table, port=0, interval=0.5) as dashboard:
            end.wait(SECONDS)
            size = ["--window-size=1200,1230", f"--screenshot={picture}"]
            subprocess.run([browser, *OPTIONS, *size, dashboard.url], check=True)  # noqa: S603
    finally:
        end.set()
        writer.join()
        lancemem.drop_table(uri)


if __name__ == "__main__":
    main()
