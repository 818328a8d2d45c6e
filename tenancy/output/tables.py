"""Tables as text and as Markdown."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tenancy.catalog.text import escape_invisible, escape_output, in_markdown

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

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
    # Its import takes 0.1 s, which commands that print no table and those that write JSON or Markdown save.
    from rich.console import Console
    from rich.table import Table as Columns
    from rich.text import Text

    width = shutil.get_terminal_size().columns if terminal else WIDTH
    # All widths are set below: rich cuts what is wider than its console.
    console = Console(width=10**6, force_terminal=terminal, highlight=False)

    lines: list[str] = []
    if table.title:
        lines += _printed(console, Text(f"{escape_invisible(table.title)}:", style="bold"))
    if table.header:
        lines += _columns(console, table, width, fold=fold)
    if table.remarks:
        remarks = Columns.grid(padding=(0, 1, 0, 0), pad_edge=False)
        remarks.add_column(width=1)
        remarks.add_column(max_width=width - 2, overflow="fold")
        for remark in table.remarks:
            remarks.add_row("-", Text(escape_invisible(" ".join(remark.split()))))
        lines += _printed(console, remarks)
    text = "\n".join(line.rstrip() for line in lines)
    return text if terminal else escape_output(text)


def _printed(console: Console, content: RenderableType) -> list[str]:
    with console.capture() as capture:
        console.print(content)
    return capture.get().splitlines()


def _columns(console: Console, table: Table, width: int, *, fold: bool) -> Iterator[str]:
    """Lines of the header and of the rows. Rich would take forty times as long to pad the rows."""
    from rich.cells import cell_len
    from rich.table import Table as Columns
    from rich.text import Text

    cells, numeric = _cell_texts(table)
    cells = [[escape_invisible(cell) for cell in row] for row in cells]
    *widths, last_width = (max(map(cell_len, column)) for column in zip(table.header, *cells, strict=True))
    indent = sum(widths) + GUTTER * len(widths)
    if fold:
        last_width = min(last_width, max(width - indent, NARROWEST))
    widths.append(last_width)
    header = Columns(box=None, pad_edge=False, padding=(0, GUTTER, 0, 0), header_style="bold")
    for name, number, column_width in zip(table.header, numeric, widths, strict=True):
        justify = "right" if number else "left"
        header.add_column(Text(name), justify=justify, overflow="fold", width=column_width)
    yield from _printed(console, header)

    def padded(text: str, column_width: int, number: bool) -> str:
        if number:
            text = text.rstrip()
        padding = " " * (column_width - cell_len(text))
        return padding + text if number else text + padding

    for *before, last in cells:
        wrapped_lines = [last]
        if cell_len(last) > last_width:
            wrapped_lines = [line.plain for line in Text(last).wrap(console, last_width, overflow="fold")]
        for number, line in enumerate(wrapped_lines):
            texts = [line] if number else [*before, line]
            columns = zip(texts, widths[-len(texts) :], numeric[-len(texts) :], strict=True)
            yield " " * (indent * bool(number)) + (" " * GUTTER).join(padded(*column) for column in columns)


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
