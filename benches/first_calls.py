"""How many first calls of three users work, name the way or fail.

Owns the printed table. Does not own the calls (`tests/first_calls.py`).

    python -m benches.first_calls [--spark] [--calls]
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from typing import Any

from tests.first_calls import FAILS, NAMES_THE_WAY, USERS, WORKS, outcomes


def main() -> None:
    """Print a row for each user, and with `--calls` one for each call."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spark", action="store_true", help="run the calls of delta-spark too")
    parser.add_argument("--calls", action="store_true", help="print each call with its error")
    options = parser.parse_args()
    session: Any = None
    if options.spark:
        from pyspark.sql import SparkSession  # noqa: PLC0415 - without --spark it is not needed

        session = SparkSession.builder.master("local[2]").getOrCreate()
    kinds = (WORKS, NAMES_THE_WAY, FAILS)
    table = [f"| user | calls | {' | '.join(kinds)} |", "| --- | --- | --- | --- | --- |"]
    with tempfile.TemporaryDirectory() as folder:
        for user, calls in USERS.items():
            if user == "delta-spark" and session is None:
                continue
            counts: Counter[str] = Counter()
            for call, found, text in outcomes(user, folder, session):
                counts[found] += 1
                if options.calls or found == FAILS:
                    print(f"{found:14} {call.code}  {text.splitlines()[0] if text else ''}")
            row = " | ".join(str(counts[kind]) for kind in kinds)
            table.append(f"| {user} | {len(calls)} | {row} |")
    print("\n".join(table))


if __name__ == "__main__":
    main()
