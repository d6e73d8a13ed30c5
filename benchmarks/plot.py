"""A line plot as SVG, written by hand: few enough lines that no plotting library is worth its weight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from math import ceil, log10

WIDTH, HEIGHT = 720, 400
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 50, 60
COLOURS = ("#1f6f8b", "#c1440e", "#7a7a7a", "#5b8c2a")

Point = tuple[float, float]


def line_plot(title: str, x: str, y: str, lines: Mapping[str, Sequence[Point]]) -> str:
    """Lines over evenly spaced values of x, on a logarithmic scale of y: both axes say what they are in."""
    places = sorted({point[0] for points in lines.values() for point in points})
    values = [point[1] for points in lines.values() for point in points]
    low, high = 10.0 ** int(log10(min(values))), 10.0 ** ceil(log10(max(values)))
    low = low if low <= min(values) else low / 10

    def across(value: float) -> float:
        step = (WIDTH - LEFT - RIGHT) / max(1, len(places) - 1)
        return LEFT + places.index(value) * step

    def up(value: float) -> float:
        return HEIGHT - BOTTOM - (log10(value / low) / log10(high / low)) * (HEIGHT - TOP - BOTTOM)

    drawn = [_text(WIDTH / 2, 22, title, "middle", 16), _text(WIDTH / 2, HEIGHT - 14, x, "middle")]
    drawn.append(_text(12, TOP - 14, y, "start"))
    tick = low
    while tick <= high * 1.001:
        drawn.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{up(tick):.1f}" y2="{up(tick):.1f}" stroke="#ddd"/>'
        )
        drawn.append(_text(LEFT - 8, up(tick) + 4, f"{tick:g}", "end"))
        tick *= 10
    for place in places:
        drawn.append(_text(across(place), HEIGHT - BOTTOM + 20, f"{place:g}", "middle"))
    for number, (name, points) in enumerate(lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join(f"{across(a):.1f},{up(b):.1f}" for a, b in points)
        drawn.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        drawn += [f'<circle cx="{across(a):.1f}" cy="{up(b):.1f}" r="3" fill="{colour}"/>' for a, b in points]
        drawn.append(_text(LEFT + 12, TOP + 6 + 18 * number, name, "start", fill=colour))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">'
    ground = f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>'
    return "\n".join([head, ground, *drawn, "</svg>\n"])


def _text(x: float, y: float, text: str, anchor: str, size: int = 12, fill: str = "#333") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {place} font-size="{size}" fill="{fill}">{escape(text)}</text>'
