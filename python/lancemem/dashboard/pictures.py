"""Pictures of a dashboard as inline SVG: lines over time, and bars.

Owns: the drawing. Every axis is linear, starts at zero and has absolute values. Does not own: the
values. A picture has no script, no font and no address of its own.
"""

from __future__ import annotations

import math
import time
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["COLOURS", "bars", "lines", "number"]

# Told apart with every colour vision, in this order.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")
_WIDTH, _HEIGHT = 560, 200
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 12, 28
_STEPS = (1, 2, 2.5, 5, 10)
_TICKS = 4
# Bars that all have a name below them.
_NAMED = 16


def number(value: float) -> str:
    """Return a number with a thousands unit, as an axis has room for."""
    for limit, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return (
                f"{value / limit:g}{unit}"
                if value % (limit / 10) == 0
                else f"{value / limit:.2f}{unit}"
            )
    return f"{value:g}" if value == int(value) else f"{value:.2f}"


def _top(largest: float) -> float:
    """Return the end of an axis: a round number at or above the largest value."""
    if largest <= 0:
        return _TICKS
    step = largest / _TICKS
    size: float = 10.0 ** math.floor(math.log10(step))
    return next(size * nice for nice in _STEPS if size * nice >= step * (1 - 1e-9)) * _TICKS


def _grid(top: float) -> list[str]:
    found = []
    for tick in range(_TICKS + 1):
        y = _y(top * tick / _TICKS, top)
        found.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>')
        text = number(top * tick / _TICKS)
        found.append(f'<text class="tick end" x="{_LEFT - 6}" y="{y + 4}">{text}</text>')
    return found


def _y(value: float, top: float) -> float:
    return round(_HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * value / top, 2)


def _svg(title: str, parts: Sequence[str]) -> str:
    return (
        f'<svg role="img" viewBox="0 0 {_WIDTH} {_HEIGHT}"><title>{escape(title)}</title>'
        f"{''.join(parts)}</svg>"
    )


def lines(
    title: str, unit: str, times: Sequence[float], series: Sequence[tuple[str, Sequence[float]]]
) -> str:
    """Draw values over time.

    Args:
        title: What is drawn, for readers who see no picture.
        unit: The unit of the values.
        times: Seconds since 1970, ascending.
        series: The name and the values of each line, one value for each time.

    Returns:
        A figure with the picture and the newest values.
    """
    top = _top(max((value for _, values in series for value in values), default=0))
    parts = _grid(top)
    first, last = (times[0], times[-1]) if times else (0.0, 0.0)
    span = max(last - first, 1e-9)
    for colour, (_, values) in zip(COLOURS, series, strict=False):
        points = [
            f"{round(_LEFT + (_WIDTH - _LEFT - _RIGHT) * (at - first) / span, 2)},{_y(value, top)}"
            for at, value in zip(times, values, strict=True)
        ]
        parts.append(f'<polyline stroke="{colour}" points="{" ".join(points)}"/>')
        if points:
            x, y = points[-1].split(",")
            parts.append(f'<circle fill="{colour}" cx="{x}" cy="{y}" r="3"/>')
    if times:
        bottom = _HEIGHT - 8
        parts.append(f'<text class="tick" x="{_LEFT}" y="{bottom}">{_clock(first)}</text>')
        parts.append(
            f'<text class="tick end" x="{_WIDTH - _RIGHT}" y="{bottom}">{_clock(last)}</text>'
        )
    newest = [(name, values[-1] if values else 0) for name, values in series]
    return _figure(title, unit, _svg(title, parts), newest)


def bars(
    title: str, unit: str, values: Sequence[tuple[str, Sequence[float]]], names: Sequence[str]
) -> str:
    """Draw stacked bars.

    Args:
        title: What is drawn.
        unit: The unit of the values.
        values: The name of each bar, and its parts from the bottom.
        names: The names of the parts.

    Returns:
        A figure with the picture and the sums.
    """
    top = _top(max((sum(parts) for _, parts in values), default=0))
    drawn = _grid(top)
    room = (_WIDTH - _LEFT - _RIGHT) / max(len(values), 1)
    for place, (name, parts) in enumerate(values):
        below = 0.0
        x = round(_LEFT + room * place + room * 0.15, 2)
        for colour, part in zip(COLOURS, parts, strict=False):
            y, bottom = _y(below + part, top), _y(below, top)
            drawn.append(
                f'<rect fill="{colour}" x="{x}" y="{y}" width="{round(room * 0.7, 2)}" '
                f'height="{round(bottom - y, 2)}"><title>{escape(name)}: {number(part)}</title>'
                "</rect>"
            )
            below += part
        if place % (len(values) // (_NAMED + 1) + 1) == 0:
            middle = round(x + room * 0.35, 2)
            drawn.append(
                f'<text class="tick middle" x="{middle}" y="{_HEIGHT - 8}">{escape(name)}</text>'
            )
    sums = [(part, sum(parts[place] for _, parts in values)) for place, part in enumerate(names)]
    return _figure(title, unit, _svg(title, drawn), sums)


def _figure(title: str, unit: str, picture: str, newest: Sequence[tuple[str, float]]) -> str:
    told = "".join(
        f'<span class="key"><i class="c{place}"></i>{escape(name)} <b>{number(value)}</b></span>'
        for place, (name, value) in enumerate(newest)
    )
    return (
        f'<figure><figcaption>{escape(title)} <span class="unit">{escape(unit)}</span> {told}'
        f"</figcaption>{picture}</figure>"
    )


def _clock(seconds: float) -> str:
    return time.strftime("%H:%M:%S", time.gmtime(seconds))
