"""`python -m benches.write`: run the benches, print and write their results.

Owns: the command line. Does not own: the benches (`cases`) or the files (`report`, `picture`).
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

from benches import pages
from benches.write import fsync, picture, report
from benches.write.cases import CASES
from benches.write.runner import Settings

ROOT = Path(__file__).parents[2]
OUT = ROOT / "out" / "bench-write"
PAIRS, QUICK_PAIRS = 7, 3


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benches.write", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES), metavar="NAME",
                        help=f"run only these: {', '.join(CASES)}")  # fmt: skip
    parser.add_argument("--pairs", type=int, help=f"pairs a comparison (default {PAIRS})")
    parser.add_argument(
        "--quick", action="store_true",
        help=f"{QUICK_PAIRS} pairs, fewer rows and cases; writes to {OUT.relative_to(ROOT)} only",
    )  # fmt: skip
    parser.add_argument("--folder", type=Path, default=OUT, help="where tables are written")
    pages.add_option(parser)
    return parser.parse_args()


def main() -> None:
    """Run what was asked for."""
    chosen = _arguments()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    OUT.mkdir(parents=True, exist_ok=True)
    pairs = chosen.pairs or (QUICK_PAIRS if chosen.quick else PAIRS)
    folder = Path(tempfile.mkdtemp(prefix="tables-", dir=chosen.folder.resolve()))
    settings = Settings(folder, pairs, chosen.quick, limit=10.0 if chosen.quick else 40.0)
    store = pages.place(OUT / ("quick.json" if chosen.quick else "results.json"), chosen.results)
    text = OUT / "RESULTS.md" if chosen.quick else ROOT / "benches" / "RESULTS.md"
    image = OUT / "write.png" if chosen.quick else ROOT / "docs" / "images" / "write.png"
    text, image = pages.place(text, chosen.results), pages.place(image, chosen.results)
    try:
        fsync.build_shim(folder)
        for name in chosen.only:
            settings.say(name)
            found = CASES[name](settings)
            report.show(found)
            report.keep(store, name, found, quick=chosen.quick, folder=folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    report.write(store, text)
    settings.say(f"wrote {text}")
    if picture.draw(report.load(store), image):
        settings.say(f"wrote {image}")


if __name__ == "__main__":
    main()
