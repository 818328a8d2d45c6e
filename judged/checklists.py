"""Checklists of others that no program runs here: each item as data, with what shows it or why nothing can."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent / "checklists"
STATUSES = ("shown", "partly", "needs hardware", "needs AWS", "not there yet", "not a tenancy layer's")


@dataclass(frozen=True, slots=True)
class Item:
    """One demand. `shown_by` are attack ids, paths of tests or commands; `note` says what is missing."""

    id: str
    level: str
    asks: str
    status: str
    shown_by: Sequence[str]
    note: str


@dataclass(frozen=True, slots=True)
class Checklist:
    """A list of demands, with its source and the day on which it was compared."""

    title: str
    source: str
    date: str
    items: Sequence[Item]

    @property
    def intro(self) -> Sequence[str]:
        """Source, date and the number of items by status."""
        counts = {status: sum(item.status == status for item in self.items) for status in STATUSES}
        counts_text = ", ".join(f"{status} {count}" for status, count in counts.items() if count)
        return [f"Source: {self.source}, compared on {self.date}. {len(self.items)} items: {counts_text}."]

    def table(self) -> Sequence[str]:
        """Rows in Markdown."""
        lines = ["| item | level | asks | status | shown by | note |", "|---|---|---|---|---|---|"]
        for item in self.items:
            proofs = ", ".join(f"`{proof}`" for proof in item.shown_by) or "–"
            lines.append(f"| {item.id} | {item.level} | {item.asks} | {item.status} | {proofs} | {item.note or '–'} |")
        return lines


def read() -> Mapping[str, Checklist]:
    """Every checklist, by the name of its file. Raises ValueError for an item with an unknown status or no proof."""
    return {path.stem: _read(path) for path in sorted(FOLDER.glob("*.yaml"))}


def _read(path: Path) -> Checklist:
    document: dict[str, Any] = yaml.safe_load(path.read_text("utf-8"))
    items = [
        Item(
            str(row["id"]),
            row.get("level", "–"),
            row["asks"],
            row["status"],
            tuple(row.get("shown-by", ())),
            row.get("note", ""),
        )
        for row in document["items"]
    ]
    for item in items:
        if item.status not in STATUSES:
            raise ValueError(f"{path.name}: {item.id}: status {item.status!r}; one of {', '.join(STATUSES)}")
        if item.status in ("shown", "partly") and not item.shown_by:
            raise ValueError(f"{path.name}: {item.id}: {item.status} by nothing")
        if item.status != "shown" and not item.note:
            raise ValueError(f"{path.name}: {item.id}: {item.status} without a note")
    return Checklist(document["title"], document["source"], str(document["date"]), items)
