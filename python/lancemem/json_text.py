"""Rows and results as JSON, for both programs of the command line.

Owns: the text of values that JSON lacks. Does not own: which values are printed, or where.
"""

from __future__ import annotations

import base64
import json
import math
from datetime import date, time, timedelta

__all__ = ["json_text"]


def json_text(value: object) -> str:
    """Return a value as one line of JSON.

    Args:
        value: A value of Python, also of dicts and lists.

    Returns:
        JSON. What JSON lacks is text: NaN and infinities, times in ISO 8601, bytes in base64. A
        duration is a number of seconds.

    Example:
        json_text({"x": float("nan")})  # '{"x": "nan"}'
    """
    try:
        return json.dumps(value, default=_plain, ensure_ascii=False, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), default=_plain, ensure_ascii=False)


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    return str(value)


def _finite(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return value
