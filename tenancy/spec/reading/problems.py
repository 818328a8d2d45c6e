"""Mistakes of an environment and its tenants, as they are shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tenancy.catalog.text import escape_invisible
from tenancy.spec.reading.source import Location


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake: its place, what was given, the broken rule and what to change."""

    file: str
    """Relative to the working directory; `environment` or `tenant NAME` where the specs came from no file."""
    line: int
    """0 where the specs came from no file."""
    column: int
    field: str
    given: str
    rule: str
    change: str
    id: str = ""

    @property
    def path(self) -> str:
        """The spec and the field in it, such as `tenant fraud: gpus.a100.guaranteed`."""
        return f"{self.file}: {self.field}" if self.field else self.file

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}:" if self.line else f"{self.file}:"
        field = f" {self.field}:" if self.field else ""
        rule = f"{self.id}: {self.rule}" if self.id else self.rule
        return f"{place}{field} given {self.given}; rule {rule}; change: {self.change}"

    def as_dict(self) -> dict[str, Any]:
        """The fields as plain values, for JSON."""
        return asdict(self)


class SpecError(Exception):
    """An environment and its tenants cannot be used; `problems` has all reasons."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        unique = dict.fromkeys(problems)
        self.problems = tuple(sorted(unique, key=lambda p: (p.file, p.line, p.column, p.field, p.given)))
        super().__init__("\n".join(map(str, self.problems)))


def dotted_path(location: Location) -> str:
    """The path of a field, such as `namespaces[0].quota`."""
    out = ""
    for part in location:
        out += f"[{part}]" if isinstance(part, int) else f"{'.' if out else ''}{escape_invisible(part)}"
    return out
