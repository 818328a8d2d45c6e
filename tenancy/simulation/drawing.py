"""Charts as SVG text: areas, bars and dumbbells, with axes of round numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape

# Okabe and Ito's colours, which people with colour vision deficiency can distinguish; grey is for the rest.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#B8A800")
REST = "#8c8c8c"
OTHERS = "the others"
WIDTH, LEFT, RIGHT, TOP, BOTTOM = 720, 52, 20, 12, 28

Series = Sequence[float]


def ticks(most: float, about: int = 5) -> list[float]:
    """Round numbers from 0 to at least `most`."""
    if most <= 0:
        return [0, 1]
    raw = most / about
    size = 10 ** math.floor(math.log10(raw))
    step = next(factor * size for factor in (1, 2, 2.5, 5, 10) if factor * size >= raw * 0.999)
    return [step * number for number in range(math.ceil(most / step - 1e-9) + 1)]


def layers(series: Mapping[str, Sequence[float]], colours: Mapping[str, str], width: int) -> dict[str, list[float]]:
    """Layers for `stacked`: one for each name with a colour, and the sum of the rest."""
    found = {name: list(series.get(name, [0.0] * width)) for name in colours if name != OTHERS}
    if OTHERS in colours:
        rest = [values for name, values in series.items() if name not in colours]
        found[OTHERS] = [sum(each) for each in zip(*rest, strict=True)] if rest else [0.0] * width
    return found


def legend(colours: Mapping[str, str]) -> str:
    """The legend: names and their colours."""
    keys = "".join(
        f'<span><i style="background:{colour}"></i>{escape(name)}</span>' for name, colour in colours.items()
    )
    return f'<div class="legend">{keys}</div>'


def stacked(
    layers: Mapping[str, Series], colours: Mapping[str, str], most: float, hours: float, limit: float | None, title: str
) -> str:
    """Areas on top of one another over time; a dashed line at `limit`."""
    frame = _Frame(230, most, hours)
    parts = [frame.grid(lambda value: f"{value:g}")]
    count = len(next(iter(layers.values()), ()))
    below = [0.0] * count
    for name, values in layers.items():
        above = [low + value for low, value in zip(below, values, strict=True)]
        xs = [frame.x(hours * number / count) for number in range(count + 1)]
        top = "".join(
            f"L{xs[i]:.1f},{frame.y(above[i]):.1f}L{xs[i + 1]:.1f},{frame.y(above[i]):.1f}" for i in range(count)
        )
        down = "".join(
            f"L{xs[i + 1]:.1f},{frame.y(below[i]):.1f}L{xs[i]:.1f},{frame.y(below[i]):.1f}"
            for i in reversed(range(count))
        )
        path = f"M{xs[0]:.1f},{frame.y(above[0]):.1f}{top}{down}Z" if count else ""
        parts.append(f'<path d="{path}" fill="{colours[name]}"><title>{escape(name)}</title></path>')
        below = above
    if limit is not None:
        y = frame.y(limit)
        parts.append(f'<line class="limit" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
    return frame.svg("".join(parts), title)


def bars(values: Series, hours: float, most: float, colour: str, title: str) -> str:
    """A bar for each time interval."""
    frame = _Frame(110, most, hours)
    parts = [frame.grid(lambda value: f"{value:g}", about=3)]
    wide = (WIDTH - LEFT - RIGHT) / max(1, len(values))
    for number, value in enumerate(values):
        if value:
            x, y = LEFT + number * wide, frame.y(value)
            size = f'width="{wide - 1:.1f}" height="{frame.y(0) - y:.1f}"'
            parts.append(f'<rect x="{x + 0.5:.1f}" y="{y:.1f}" {size} fill="{colour}"/>')
    return frame.svg("".join(parts), title)


def line(values: Sequence[float | None], hours: float, colour: str, title: str) -> str:
    """A line of values from 0 to 1 over time, with gaps where there is no value."""
    frame = _Frame(110, 1, hours)
    parts = [frame.grid(lambda value: f"{value:g}", about=2)]
    pen = False
    path = ""
    for number, value in enumerate(values):
        if value is None:
            pen = False
            continue
        left, right = frame.x(hours * number / len(values)), frame.x(hours * (number + 1) / len(values))
        path += f"{'L' if pen else 'M'}{left:.1f},{frame.y(value):.1f}L{right:.1f},{frame.y(value):.1f}"
        pen = True
    parts.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
    return frame.svg("".join(parts), title)


def dumbbells(
    rows: Sequence[tuple[str, float, float | None]], say: Callable[[float], str], unit: float, title: str
) -> str:
    """One value for each name, or the step from one value to another, on a square-root axis."""
    high, left = 22, 130
    most = max([1.0, *(value for _, before, after in rows for value in (before, after or 0.0))])
    marks = list(_marks(most, unit))
    height = TOP + high * len(rows) + BOTTOM

    def x(value: float) -> float:
        return left + math.sqrt(value / marks[-1]) * (WIDTH - left - 70)

    parts = []
    for value in marks:
        parts.append(f'<line class="grid" x1="{x(value):.1f}" x2="{x(value):.1f}" y1="{TOP}" y2="{height - BOTTOM}"/>')
        parts.append(f'<text x="{x(value):.1f}" y="{height - 10}" text-anchor="middle">{escape(say(value))}</text>')
    for number, (name, before, after) in enumerate(rows):
        y = TOP + high * (number + 0.5)
        parts.append(f'<text class="name" x="{left - 10}" y="{y + 4:.1f}" text-anchor="end">{escape(name)}</text>')
        last = before if after is None else after
        worst = max(before, last)
        if after is None:
            parts.append(f'<line class="stem" x1="{x(0):.1f}" x2="{x(before):.1f}" y1="{y}" y2="{y}"/>')
            parts.append(f'<circle class="after" cx="{x(before):.1f}" cy="{y}" r="5"/>')
            text = say(before)
        else:
            parts.append(f'<line class="stem" x1="{x(before):.1f}" x2="{x(after):.1f}" y1="{y}" y2="{y}"/>')
            parts.append(f'<circle class="before" cx="{x(before):.1f}" cy="{y}" r="5"/>')
            parts.append(f'<circle class="after" cx="{x(after):.1f}" cy="{y}" r="5"/>')
            text = say(before) if say(before) == say(after) else f"{say(before)} → {say(after)}"
        parts.append(f'<text x="{x(worst) + 10:.1f}" y="{y + 4:.1f}">{escape(text)}</text>')
    return _svg("".join(parts), height, title)


def _marks(most: float, unit: float) -> Iterator[float]:
    yield 0.0
    for factor in (0.25, 1, 4, 9, 16, 36, 64, 144, 400, 900):
        yield factor * unit
        if factor * unit >= most:
            return


class _Frame:
    """Axes: hours on the x axis, values on the y axis."""

    def __init__(self, height: int, most: float, hours: float) -> None:
        self.height, self.hours, self._most = height, hours, most
        self._values = ticks(most)

    def x(self, hour: float) -> float:
        return LEFT + hour / self.hours * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        return TOP + (1 - value / self._values[-1]) * (self.height - TOP - BOTTOM)

    def grid(self, say: Callable[[float], str], about: int = 5) -> str:
        self._values = ticks(self._most, about)
        parts = []
        for value in self._values:
            y = self.y(value)
            parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
            parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{escape(say(value))}</text>')
        step = next(step for step in (1, 2, 3, 6, 12, 24, 48, 96, 168, 336, 672) if self.hours / step <= 10)
        hour = 0
        while hour <= self.hours:
            parts.append(f'<text x="{self.x(hour):.1f}" y="{self.height - 8}" text-anchor="middle">{hour} h</text>')
            hour += step
        return "".join(parts)

    def svg(self, inside: str, title: str) -> str:
        return _svg(inside, self.height, title)


def _svg(inside: str, height: float, title: str) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(title)}">{inside}</svg>'
