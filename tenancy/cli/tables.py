"""Reports that commands print: as text, JSON or Markdown."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import click

from tenancy.catalog.nodes import Resources
from tenancy.cli.common import print_json
from tenancy.output.tables import Table, as_markdown, as_text


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
            return {key: as_json(item) for key, item in value.items()}
        case list() | tuple():
            return [as_json(item) for item in value]
    if dataclasses.is_dataclass(value):
        return {field.name: as_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return value


def show(form: str, tables: Sequence[Table], value: Any, empty_text: str = "Nothing to show.") -> None:
    """Print a report in the given format; `empty_text` if no table has a row."""
    if form == "json":
        print_json(value)
        return
    filled = [table for table in tables if table.rows]
    if not filled:
        click.echo(empty_text)
    elif form == "markdown":
        click.echo("\n\n".join(map(as_markdown, filled)))
    else:
        print_tables(filled)


def print_tables(tables: Iterable[Table], *, fold: bool = True) -> None:
    """Print the tables that have rows as text; without `fold` no word of a last column is broken."""
    terminal = sys.stdout.isatty()
    click.echo("\n\n".join(as_text(table, fold=fold, terminal=terminal) for table in tables if table.rows))
