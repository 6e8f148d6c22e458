"""The entry of the demo: checks packages and Java before any import that needs them.

Owns that check and its messages. Does not own the demo itself: see `run`.
"""

from __future__ import annotations

import os
import shutil
import sys
from importlib.util import find_spec

PACKAGES = ("lancemem", "lance", "matplotlib", "numpy", "pandas", "pyarrow", "pyspark")


def missing() -> str | None:
    """Return what the demo lacks and the next step, or None."""
    absent = [name for name in PACKAGES if find_spec(name) is None]
    if absent:
        return f"the demo needs the Python packages {', '.join(absent)}: make setup"
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        return "the demo needs Java 17 for Spark: install it, or set JAVA_HOME"
    return None


if __name__ == "__main__":
    if lack := missing():
        sys.exit(lack)
    from demo.manual.run import main

    sys.exit(main())
