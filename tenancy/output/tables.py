"""Tables as text and as Markdown."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import NamedTuple

from tenancy.catalog.text import escape_invisible, escape_output, in_markdown

WIDTH = 100
"""Width of text that is not for a terminal, in characters."""
GUTTER = 2
NARROWEST = 24
"""Minimum width of the last column in characters, however wide the others are."""

BACKTICK = "`"
"""Allowed in remarks: they are written by the program and quote commands; the names in them are slugs."""
Cell = str | int | float | None


class Table(NamedTuple):
    """A part of a report: a title, columns, and remarks below them.

    Columns of numbers are aligned to the right; `numbers` are the positions of those whose numbers are texts. Without a
    header only the title and the remarks are written.
    """

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    remarks: Sequence[str] = ()
    numbers: frozenset[int] = frozenset()


def as_text(table: Table, *, fold: bool = True, terminal: bool = False) -> str:
    """The table as columns with two spaces between them, as wide as the terminal, or 100 if it is not for a terminal.

    The last column wraps, and a word that is wider than it is broken, unless `fold` is false. No cell is cut: if the
    other columns need more room than there is, the table is wider. Control and invisible characters are shown as their
    numbers. On a terminal the title and the header are bold; elsewhere the text is plain.
    """
    # Their import takes 0.1 s, which commands that print no table and those that write JSON or Markdown save.
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table as Columns
    from rich.text import Text

    width = shutil.get_terminal_size().columns if terminal else WIDTH
    # All widths are set below: rich cuts what is wider than its console.
    console = Console(width=10**6, force_terminal=terminal, highlight=False)

    with console.capture() as capture:
        if table.title:
            console.print(Text(f"{escape_invisible(table.title)}:", style="bold"))
        if table.header:
            cells, numeric = _cell_texts(table)
            cells = [[escape_invisible(cell) for cell in row] for row in cells]
            columns = Columns(box=None, pad_edge=False, padding=(0, GUTTER, 0, 0), header_style="bold")
            *before, last = zip(table.header, *cells, strict=True)
            used_width = 0
            for column, number in zip(before, numeric, strict=False):
                wide = max(map(cell_len, column))
                columns.add_column(Text(column[0]), justify="right" if number else "left", no_wrap=True, width=wide)
                used_width += wide + GUTTER
            unfolded_width = 0 if fold else max(map(cell_len, last))
            room = max(width - used_width, NARROWEST, unfolded_width)
            justify = "right" if numeric[-1] else "left"
            columns.add_column(Text(last[0]), justify=justify, max_width=room, overflow="fold")
            for row in cells:
                columns.add_row(*map(Text, row))
            console.print(columns)
        if table.remarks:
            remarks = Columns.grid(padding=(0, 1, 0, 0), pad_edge=False)
            remarks.add_column(width=1)
            remarks.add_column(max_width=width - 2, overflow="fold")
            for remark in table.remarks:
                remarks.add_row("-", Text(escape_invisible(" ".join(remark.split()))))
            console.print(remarks)
    text = "\n".join(line.rstrip() for line in capture.get().splitlines())
    return text if terminal else escape_output(text)


def as_markdown(table: Table, markup: str = "") -> str:
    """The table as Markdown, escaped: cells, titles and remarks contain names that users or API clients chose.
    Characters of `markup` are not escaped."""
    cells, numeric = _cell_texts(table)
    escaped = [[in_markdown(cell, markup) for cell in row] for row in cells]
    rows = [table.header, ["---:" if number else "---" for number in numeric], *escaped]
    lines = [f"## {in_markdown(table.title, markup)}", "", *(f"| {' | '.join(row)} |" for row in rows)]
    remarks = [f"- {in_markdown(remark, BACKTICK + markup)}" for remark in table.remarks]
    return "\n".join(lines + [""] * bool(remarks) + remarks)


def _cell_texts(table: Table) -> tuple[list[list[str]], list[bool]]:
    """The cells as texts, and which columns hold numbers."""
    numeric = [
        index in table.numbers or all(row[index] is None or isinstance(row[index], int | float) for row in table.rows)
        for index in range(len(table.header))
    ]
    return [[_cell(cell) for cell in row] for row in table.rows], numeric


def _cell(cell: Cell) -> str:
    if cell is None:
        return "–"
    return f"{cell:.2f}" if isinstance(cell, float) else str(cell)
