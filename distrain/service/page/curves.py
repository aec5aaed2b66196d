"""Curves as SVG, drawn on the server: polylines with the ends of their axes."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT, MARGIN = 360.0, 170.0, 34.0
MOST_POINTS = 400
"""Points that are drawn of a line; of more, evenly chosen ones and the last."""

Point = tuple[float, float]


@dataclass(frozen=True)
class Line:
    """One line: a CSS class and its points by x."""

    css_class: str
    points: Sequence[Point]


def thinned(points: Sequence[Point], most: int = MOST_POINTS) -> list[Point]:
    """At most `most` of the points, evenly chosen, the first and the last among them.

    >>> thinned([(0, 1.0), (1, 2.0), (2, 3.0), (3, 4.0), (4, 5.0)], 3)
    [(0, 1.0), (2, 3.0), (4, 5.0)]
    """
    if len(points) <= most:
        return list(points)
    return [points[round(n * (len(points) - 1) / (most - 1))] for n in range(most)]


def draw(title: str, lines: Sequence[Line]) -> str:
    """An `<svg>` element; "" where no line has a finite point."""
    shown = [Line(line.css_class, thinned(_finite(line.points))) for line in lines]
    shown = [line for line in shown if line.points]
    if not shown:
        return ""
    x_low, x_high = _ends([x for line in shown for x, _ in line.points])
    y_low, y_high = _ends([y for line in shown for _, y in line.points])

    def place(point: Point) -> str:
        x = MARGIN + (WIDTH - MARGIN - 8) * (point[0] - x_low) / (x_high - x_low)
        y = HEIGHT - 20 - (HEIGHT - 30) * (point[1] - y_low) / (y_high - y_low)
        return f"{x:.1f},{y:.1f}"

    drawn = "".join(
        f'<polyline class="{escape(line.css_class)}" points="{" ".join(map(place, line.points))}"/>'
        for line in shown
    )
    texts = [
        (2, 14, "start", _short(y_high)),
        (2, HEIGHT - 22, "start", _short(y_low)),
        (MARGIN, HEIGHT - 5, "start", _short(x_low)),
        (WIDTH - 6, HEIGHT - 5, "end", _short(x_high)),
    ]
    words = "".join(
        f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(text)}</text>'
        for x, y, anchor, text in texts
    )
    return (
        f'<svg viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img" aria-label="{escape(title)}">'
        f"{drawn}{words}</svg>"
    )


def by_step(records: Sequence[Mapping[str, object]], split: str, name: str) -> list[Point]:
    """A figure of the records of one split over their steps, where it is known."""
    found = []
    for record in records:
        x, y = record.get("step"), record.get(name)
        if record.get("split") == split and isinstance(x, int) and isinstance(y, int | float):
            found.append((float(x), float(y)))
    return found


def _finite(points: Sequence[Point]) -> list[Point]:
    return [point for point in points if math.isfinite(point[0]) and math.isfinite(point[1])]


def _ends(values: Sequence[float]) -> tuple[float, float]:
    """The smallest and largest value, apart from each other."""
    low, high = min(values), max(values)
    if low == high:
        room = abs(low) / 2 or 1.0
        return low - room, high + room
    return low, high


def _short(value: float) -> str:
    """A few digits.

    >>> _short(0.70312), _short(1234567.0), _short(12.0)
    ('0.703', '1.23M', '12')
    """
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if unit == 'k' else size):.3g}{unit}"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
