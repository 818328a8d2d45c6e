"""Charts as shapes with coordinates: areas, bars, lines and dumbbells, with axes of round numbers.

The template `charts.html.j2` writes them as SVG.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

# Okabe and Ito's colours, which people with colour vision deficiency can distinguish; grey is for the rest.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#B8A800")
OTHERS_COLOUR = "#8c8c8c"
OTHERS = "the others"
WIDTH, LEFT_MARGIN, RIGHT, TOP, BOTTOM = 720, 52, 20, 12, 28

Series = Sequence[float]


@dataclass(frozen=True, slots=True)
class Line:
    """A straight line; `style` is its class in the style sheet."""

    shape: ClassVar[str] = "line"
    style: str
    x1: float
    x2: float
    y1: float
    y2: float


@dataclass(frozen=True, slots=True)
class Label:
    """A text; `anchor` is the part of it that is at `x`."""

    shape: ClassVar[str] = "label"
    x: float
    y: float
    text: str
    anchor: str = "start"
    style: str = ""


@dataclass(frozen=True, slots=True)
class Path:
    """Path data of SVG, filled or stroked with one colour; the title is shown on hover."""

    shape: ClassVar[str] = "path"
    data: str
    colour: str
    filled: bool = True
    title: str = ""


@dataclass(frozen=True, slots=True)
class Bar:
    """A filled rectangle."""

    shape: ClassVar[str] = "bar"
    x: float
    y: float
    width: float
    height: float
    colour: str


@dataclass(frozen=True, slots=True)
class Dot:
    """A circle; `style` is its class in the style sheet."""

    shape: ClassVar[str] = "dot"
    style: str
    x: float
    y: float


Shape = Line | Label | Path | Bar | Dot


@dataclass(frozen=True, slots=True)
class Chart:
    """Shapes in the order in which they are drawn; the title is for screen readers."""

    title: str
    height: float
    shapes: Sequence[Shape]
    width: float = WIDTH


def ticks(maximum: float, about: int = 5) -> list[float]:
    """Round numbers from 0 to at least `maximum`."""
    if maximum <= 0:
        return [0, 1]
    raw = maximum / about
    size = 10 ** math.floor(math.log10(raw))
    step = next(factor * size for factor in (1, 2, 2.5, 5, 10) if factor * size >= raw * 0.999)
    return [step * number for number in range(math.ceil(maximum / step - 1e-9) + 1)]


def colours(amounts: Mapping[str, float]) -> dict[str, str]:
    """A colour for each of the names with the largest amounts, and one grey for the rest."""
    order = sorted(amounts, key=lambda name: (-amounts[name], name))
    colour_of = dict(zip(order, COLOURS, strict=False))
    return colour_of | ({OTHERS: OTHERS_COLOUR} if len(order) > len(colour_of) else {})


def layers(series: Mapping[str, Sequence[float]], colours: Mapping[str, str], width: int) -> dict[str, list[float]]:
    """Layers for `stacked`: one for each name with a colour, and the sum of the rest."""
    result = {name: list(series.get(name, [0.0] * width)) for name in colours if name != OTHERS}
    if OTHERS in colours:
        other_series = [values for name, values in series.items() if name not in colours]
        result[OTHERS] = (
            [sum(step_values) for step_values in zip(*other_series, strict=True)] if other_series else [0.0] * width
        )
    return result


def stacked(
    layers: Mapping[str, Series],
    colours: Mapping[str, str],
    maximum: float,
    hours: float,
    limit: float | None,
    title: str,
    begin: dt.datetime | None = None,
) -> Chart:
    """Areas on top of one another over time; a dashed line at `limit`. With `begin` the x axis has days and times of
    day, else hours since the begin."""
    frame = _Frame(230, maximum, hours, begin)
    shapes = frame.grid()
    count = len(next(iter(layers.values()), ()))
    lower_edge = [0.0] * count
    for name, values in layers.items():
        upper_edge = [low + value for low, value in zip(lower_edge, values, strict=True)]
        xs = [frame.x(hours * number / count) for number in range(count + 1)]
        top = "".join(
            f"L{xs[i]:.1f},{frame.y(upper_edge[i]):.1f}L{xs[i + 1]:.1f},{frame.y(upper_edge[i]):.1f}"
            for i in range(count)
        )
        down = "".join(
            f"L{xs[i + 1]:.1f},{frame.y(lower_edge[i]):.1f}L{xs[i]:.1f},{frame.y(lower_edge[i]):.1f}"
            for i in reversed(range(count))
        )
        data = f"M{xs[0]:.1f},{frame.y(upper_edge[0]):.1f}{top}{down}Z" if count else ""
        shapes.append(Path(data, colours[name], title=name))
        lower_edge = upper_edge
    if limit is not None:
        y = frame.y(limit)
        shapes.append(Line("limit", LEFT_MARGIN, WIDTH - RIGHT, y, y))
    return Chart(title, frame.height, shapes)


def bars(values: Series, hours: float, maximum: float, colour: str, title: str) -> Chart:
    """A bar for each time interval."""
    frame = _Frame(110, maximum, hours)
    shapes = frame.grid(about=3)
    wide = (WIDTH - LEFT_MARGIN - RIGHT) / max(1, len(values))
    for number, value in enumerate(values):
        if value:
            y = frame.y(value)
            shapes.append(Bar(LEFT_MARGIN + number * wide + 0.5, y, wide - 1, frame.y(0) - y, colour))
    return Chart(title, frame.height, shapes)


def line(values: Sequence[float | None], hours: float, colour: str, title: str) -> Chart:
    """A line of values from 0 to 1 over time, with gaps where there is no value."""
    frame = _Frame(110, 1, hours)
    shapes = frame.grid(about=2)
    pen = False
    data = ""
    for number, value in enumerate(values):
        if value is None:
            pen = False
            continue
        start_x, end_x = frame.x(hours * number / len(values)), frame.x(hours * (number + 1) / len(values))
        data += f"{'L' if pen else 'M'}{start_x:.1f},{frame.y(value):.1f}L{end_x:.1f},{frame.y(value):.1f}"
        pen = True
    shapes.append(Path(data, colour, filled=False))
    return Chart(title, frame.height, shapes)


def dumbbells(
    rows: Sequence[tuple[str, float, float | None]], say: Callable[[float], str], unit: float, title: str
) -> Chart:
    """One value for each name, or the step from one value to another, on a square-root axis."""
    high, name_width = 22, 130
    maximum = max([1.0, *(value for _, before, after in rows for value in (before, after or 0.0))])
    tick_values = list(_tick_values(maximum, unit))
    height = TOP + high * len(rows) + BOTTOM

    def x(value: float) -> float:
        return name_width + math.sqrt(value / tick_values[-1]) * (WIDTH - name_width - 70)

    shapes: list[Shape] = []
    for value in tick_values:
        shapes.append(Line("grid", x(value), x(value), TOP, height - BOTTOM))
        shapes.append(Label(x(value), height - 10, say(value), "middle"))
    for number, (name, before, after) in enumerate(rows):
        y = TOP + high * (number + 0.5)
        shapes.append(Label(name_width - 10, y + 4, name, "end", "name"))
        if after is None:
            shapes += [Line("stem", x(0), x(before), y, y), Dot("after", x(before), y)]
            text = say(before)
        else:
            shapes.append(Line("stem", x(before), x(after), y, y))
            shapes += [Dot("before", x(before), y), Dot("after", x(after), y)]
            text = say(before) if say(before) == say(after) else f"{say(before)} → {say(after)}"
        shapes.append(Label(x(max(before, after or 0.0)) + 10, y + 4, text))
    return Chart(title, height, shapes)


def _tick_values(maximum: float, unit: float) -> Iterator[float]:
    yield 0.0
    for factor in (0.25, 1, 4, 9, 16, 36, 64, 144, 400, 900):
        yield factor * unit
        if factor * unit >= maximum:
            return


class _Frame:
    """Axes: hours on the x axis, values on the y axis."""

    def __init__(self, height: int, most: float, hours: float, begin: dt.datetime | None = None) -> None:
        self.height, self.hours, self._most, self._begin = height, hours, most, begin
        self._values = ticks(most)

    def x(self, hour: float) -> float:
        return LEFT_MARGIN + hour / self.hours * (WIDTH - LEFT_MARGIN - RIGHT)

    def y(self, value: float) -> float:
        return TOP + (1 - value / self._values[-1]) * (self.height - TOP - BOTTOM)

    def _moment(self, hour: int) -> str:
        """An hour of the x axis in words."""
        if self._begin is None:
            return f"{hour} h"
        moment = self._begin + dt.timedelta(hours=hour)
        return f"{moment:%H:%M}" if moment.hour or moment.minute else f"{moment:%a} {moment.day} {moment:%b}"

    def grid(self, about: int = 5) -> list[Shape]:
        """Lines and labels of both axes, with about that many values on the y axis."""
        self._values = ticks(self._most, about)
        shapes: list[Shape] = []
        for value in self._values:
            y = self.y(value)
            shapes.append(Line("grid", LEFT_MARGIN, WIDTH - RIGHT, y, y))
            shapes.append(Label(LEFT_MARGIN - 6, y + 4, f"{value:g}", "end"))
        step = next(step for step in (1, 2, 3, 6, 12, 24, 48, 96, 168, 336, 672) if self.hours / step <= 10)
        hour = 0
        while hour <= self.hours:
            if self._begin is None or hour < self.hours:  # the day after the last is no day of the chart
                shapes.append(Label(self.x(hour), self.height - 8, self._moment(hour), "middle"))
            if self._begin is not None:
                shapes.append(Line("grid", self.x(hour), self.x(hour), TOP, self.height - BOTTOM))
            hour += step
        return shapes
