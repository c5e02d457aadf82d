"""
A small plot as SVG: p50 and p99 of a commit over the number of commits, both axes readable, the time in powers of ten.
"""

import math
from collections.abc import Mapping, Sequence

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 900, 460, 70, 180, 40, 50
COLOURS = ("#0b6e4f", "#c84630", "#e0a458", "#5b5f97")
Points = Sequence[Sequence[float]]


def curve(sides: Mapping[str, Points], window: int) -> str:
    """
    One line per side: p50 solid, p99 thin and dashed; `points` are (p50, p99) of each window of so many commits.
    """
    values = [value for points in sides.values() for pair in points for value in pair if value > 0]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    longest = max(len(points) for points in sides.values()) * window
    scale = _Scale(longest, low, max(high, low + 1))
    parts = [
        *_axes(scale),
        *(part for index, item in enumerate(sides.items()) for part in _side(scale, index, *item, window)),
    ]
    view = f'viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="13"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {view}>'
    return "\n".join([head, f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>', *parts, "</svg>"]) + "\n"


class _Scale:
    def __init__(self, longest: int, low: int, high: int) -> None:
        self.longest, self.low, self.high = longest, low, high

    def x(self, commits: float) -> float:
        return LEFT + commits / self.longest * (WIDTH - LEFT - RIGHT)

    def y(self, ms: float) -> float:
        share = (math.log10(max(ms, 10**self.low)) - self.low) / (self.high - self.low)
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


def _axes(scale: _Scale) -> list[str]:
    parts = [_text(LEFT, TOP - 15, "ms per commit (p50 solid, p99 dashed), windows of 100 commits")]
    for power in range(scale.low, scale.high + 1):
        for digit in (1, 2, 5) if power < scale.high else (1,):
            at = digit * 10.0**power
            parts.append(_line(LEFT, scale.y(at), WIDTH - RIGHT, scale.y(at), "#ccc" if digit == 1 else "#eee"))
            parts.append(_text(LEFT - 8, scale.y(at) + 4, f"{at:g}", "end"))
    for step in range(5):
        commits = scale.longest * step // 4
        parts.append(_text(scale.x(commits), HEIGHT - BOTTOM + 20, f"{commits:,}", "middle"))
    return [*parts, _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, "commits", "middle")]


def _side(scale: _Scale, index: int, name: str, points: Points, window: int) -> list[str]:
    colour = COLOURS[index % len(COLOURS)]
    parts = []
    for which, style in ((0, 'stroke-width="2"'), (1, 'stroke-width="1" stroke-dasharray="4 3" opacity="0.7"')):
        pairs = ((scale.x((at + 0.5) * window), scale.y(pair[which])) for at, pair in enumerate(points))
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in pairs)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" {style}/>')
    place = TOP + 20 * index
    parts.append(_line(WIDTH - RIGHT + 15, place, WIDTH - RIGHT + 40, place, colour, 3))
    return [*parts, _text(WIDTH - RIGHT + 47, place + 4, name)]


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, width: int = 1) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" stroke-width="{width}"/>'


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="#333">{text}</text>'
