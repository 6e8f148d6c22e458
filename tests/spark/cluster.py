"""A standalone Spark cluster on this machine: a master and workers, each in its own process.

Owns: starting them from the installed pyspark, and ending them. Does not own: what runs on it.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark

if TYPE_CHECKING:
    from collections.abc import Iterator

HOST = "127.0.0.1"
WORKERS = 2
START_SECONDS = 60.0


@contextmanager
def standalone(folder: Path) -> Iterator[str]:
    """Start a master and its workers, one core each, and return the master's address."""
    folder.mkdir(parents=True)
    quiet = folder / "log4j2.properties"
    quiet.write_text("rootLogger.level = off\n")
    port, pages = _free_ports(2)
    master = f"spark://{HOST}:{port}"
    with ExitStack() as ending:

        def start(name: str, *arguments: str) -> None:
            child = subprocess.Popen(  # noqa: S603 - Spark's own program
                [str(_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments],
                env=os.environ
                | {
                    "SPARK_HOME": str(_HOME),
                    "SPARK_LOCAL_IP": HOST,
                    "SPARK_DAEMON_JAVA_OPTS": f"-Dlog4j2.configurationFile={quiet}",
                    "PYSPARK_PYTHON": sys.executable,
                },
                cwd=folder,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            ending.callback(_end, child)

        start("master.Master", "--host", HOST, "--port", f"{port}", "--webui-port", f"{pages}")
        for number in range(WORKERS):
            place = str(folder / f"worker-{number}")
            here = ["--host", HOST, "--webui-port", "0", "--work-dir", place]
            start("worker.Worker", *here, "--cores", "1", "--memory", "1g", master)
        _wait_for_workers(f"http://{HOST}:{pages}/json/")
        yield master


_HOME = Path(pyspark.__file__).parent


def _free_ports(number: int) -> list[int]:
    sockets = [socket.socket() for _ in range(number)]
    try:
        for each in sockets:
            each.bind((HOST, 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def _wait_for_workers(page: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            with urllib.request.urlopen(page, timeout=5) as answer:  # noqa: S310 - our own
                if json.load(answer)["aliveworkers"] == WORKERS:
                    return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            pass
        except json.JSONDecodeError:
            # At first the master answers every path with its first page.
            pass
        assert time.monotonic() < deadline, "the cluster does not start"
        time.sleep(0.2)


def _end(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(20)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait(20)
