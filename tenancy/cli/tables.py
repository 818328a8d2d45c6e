"""Tables that commands print: as text, JSON or Markdown."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import click

from tenancy.catalog.nodes import Resources
from tenancy.catalog.text import in_markdown
from tenancy.cli.common import print_json

WIDTH = 100
GUTTER = 2
NARROWEST = 24
"""Minimum width of the last column in characters, however wide the others are."""

BACKTICK = "`"
"""Allowed in remarks: they are written by the program and quote commands; the names in them are slugs."""
Cell = str | int | float | None


class Table(NamedTuple):
    """A part of a report: a title, columns, and remarks below them."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    remarks: Sequence[str] = ()


def cores(millicores: int) -> float:
    """Cores, rounded down to hundredths, so that no more than the real amount is shown."""
    return millicores // 10 / 100


def gib(mib: int) -> float:
    """GiB, rounded down to hundredths."""
    return mib * 100 // 1024 / 100


def as_json(value: Any) -> Any:
    """Dataclasses as JSON values, with the numbers that the tables show."""
    match value:
        case Resources():
            amounts = {"vcpu": cores(value.cpu), "memory_gib": gib(value.memory)}
            return {**amounts, "disk_gib": gib(value.ephemeral), "pods": value.pods}
        case Fraction():
            return str(value)
        case Mapping():
            return {key: as_json(of) for key, of in value.items()}
        case list() | tuple():
            return [as_json(of) for of in value]
    if dataclasses.is_dataclass(value):
        return {field.name: as_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return value


def show(form: str, tables: Sequence[Table], value: Any, nothing: str = "Nothing to show.") -> None:
    """Print a report in the given format; `nothing` if no table has a row."""
    if form == "json":
        print_json(value)
        return
    write = as_markdown if form == "markdown" else as_text
    parts = [write(table) for table in tables if table.rows]
    click.echo("\n\n".join(parts) or nothing)


def as_text(table: Table) -> str:
    """The table as columns with two spaces between them; the last column wraps if it is too wide."""
    cells, numeric = _written(table)
    widths = [max(map(len, column)) for column in zip(table.header, *cells, strict=True)]
    *ahead, last = widths
    before = sum(ahead) + GUTTER * len(ahead)
    room = max(WIDTH - before, NARROWEST)
    lines = [f"{table.title}:"]
    for row in (list(table.header), *cells):
        first, *more = [row[-1]] if last <= room else textwrap.wrap(row[-1], room, break_on_hyphens=False) or [""]
        padded = [_pad(cell, width, number) for cell, width, number in zip(row[:-1], ahead, numeric, strict=False)]
        end = _pad(first, min(last, room), numeric[-1])
        lines.append((" " * GUTTER).join([*padded, end]).rstrip())
        lines += [" " * before + line for line in more]
    for remark in table.remarks:
        lines += textwrap.wrap(f"- {remark}", WIDTH, subsequent_indent="  ", break_on_hyphens=False)
    return "\n".join(lines)


def as_markdown(table: Table) -> str:
    """The table as Markdown, escaped: cells, titles and remarks contain names that users or API clients chose."""
    cells, numeric = _written(table)
    escaped = [[in_markdown(cell) for cell in row] for row in cells]
    rows = [table.header, ["---:" if number else "---" for number in numeric], *escaped]
    lines = [f"## {in_markdown(table.title)}", "", *(f"| {' | '.join(row)} |" for row in rows)]
    remarks = [f"- {in_markdown(remark, BACKTICK)}" for remark in table.remarks]
    return "\n".join(lines + [""] * bool(remarks) + remarks)


def _written(table: Table) -> tuple[list[list[str]], list[bool]]:
    """The cells as texts, and which columns hold numbers."""
    columns = zip(*table.rows, strict=True)
    numeric = [all(cell is None or isinstance(cell, int | float) for cell in column) for column in columns]
    return [[_cell(cell) for cell in row] for row in table.rows], numeric


def _cell(cell: Cell) -> str:
    if cell is None:
        return "–"
    return f"{cell:.2f}" if isinstance(cell, float) else str(cell)


def _pad(cell: str, width: int, number: bool) -> str:
    return cell.rjust(width) if number else cell.ljust(width)
