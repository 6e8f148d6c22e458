"""Where a bench writes its page: to its usual place, or into the folder of one sitting.

Owns: the option `--results`, and that a page of a sitting is never replaced. Does not own: pages.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse


def add_option(parser: argparse.ArgumentParser) -> None:
    """Add `--results`."""
    parser.add_argument(
        "--results",
        type=Path,
        metavar="FOLDER",
        help="write page, figures and picture there, and replace no file (make bench-all does)",
    )


def place(usual: Path, results: Path | None) -> Path:
    """Return the path of a page, a store or a picture.

    Args:
        usual: The path without `--results`.
        results: The folder of `--results`; None for the usual path.

    Returns:
        The path, whose folder exists.

    Raises:
        SystemExit: The folder has such a file already.
    """
    if results is None:
        usual.parent.mkdir(parents=True, exist_ok=True)
        return usual
    found = results / usual.name
    if found.exists():
        raise SystemExit(f"{found} exists, and no result is replaced: name another folder")
    results.mkdir(parents=True, exist_ok=True)
    return found
