"""Exceptions from rules for objects that no tenant file describes, each with an owner, a reason and a last day."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from tenancy.catalog import days
from tenancy.catalog.text import escape_invisible, is_shown
from tenancy.rules.catalogue import RULES, Violation
from tenancy.rules.findings import Finding
from tenancy.rules.values import day, unbounded_end

_MAIL = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")
_SHORTEST, _LONGEST = 10, 500


@dataclass(frozen=True, slots=True)
class FindingWaiver:
    """An exception for one finding, with a responsible owner. `until` is the last day on which it is valid."""

    rule: str
    resource: str
    reason: str
    owner: str
    until: dt.date

    def covers(self, finding: Finding) -> bool:
        """Whether the exception is for this rule and object."""
        return (self.rule, self.resource) == (finding.rule, finding.object)

    def has_expired(self, today: dt.date) -> bool:
        """Whether the exception ended before this day."""
        return self.until < today

    def __str__(self) -> str:
        return f"{self.rule} for {self.resource} until {self.until}, {self.owner}: {self.reason}"


FIELDS = tuple(field.name for field in fields(FindingWaiver))


def waivers(document: Any, rules: Collection[str] = tuple(RULES)) -> tuple[FindingWaiver, ...]:
    """The exceptions of a file: a list, or a mapping with the list as `exceptions`.

    Raises Violation (exc-01) for the first invalid entry, also if it names an unknown rule.
    """
    entries = document.get("exceptions") if isinstance(document, Mapping) and "exceptions" in document else document
    if not isinstance(entries, list):
        raise Violation("exc-01", "no list", f"write a list of entries with {', '.join(FIELDS)}")
    all_waivers = tuple(_waiver(f"exceptions[{index}]", entry, rules) for index, entry in enumerate(entries))
    first_indexes: dict[tuple[str, str], int] = {}
    for index, waiver in enumerate(all_waivers):
        first = first_indexes.setdefault((waiver.rule, waiver.resource), index)
        if first != index:
            detail = f"exceptions[{index}]: {waiver.rule} for {waiver.resource}, as exceptions[{first}]"
            raise Violation("exc-01", detail, "keep one of the two")
    return all_waivers


def _waiver(where: str, entry: Any, rules: Collection[str]) -> FindingWaiver:
    if not isinstance(entry, Mapping):
        raise Violation("exc-01", f"{where}: {entry!r}", f"write a mapping of {', '.join(FIELDS)}")
    if wrong := sorted(map(str, set(entry) ^ set(FIELDS))):
        detail = f"{where}: {', '.join(f'unknown key {name}' if name in entry else f'no {name}' for name in wrong)}"
        raise Violation("exc-01", detail, f"write exactly {', '.join(FIELDS)}")
    rule, until = entry["rule"], entry["until"]
    if rule not in rules:
        raise Violation("exc-01", f"{where}.rule: {rule!r}, an unknown rule", "use an id of `tenancy rules`")
    texts = {name: entry[name] for name in FIELDS if name != "until"}
    for name, value in texts.items():
        if not isinstance(value, str) or not value.strip() or not is_shown(value):
            raise Violation("exc-01", f"{where}.{name}: {escape_invisible(repr(value))}", "write a text on one line")
    if not _SHORTEST <= len(texts["reason"]) <= _LONGEST:
        change = f"write a sentence of {_SHORTEST} to {_LONGEST} characters, for an auditor to read"
        raise Violation("exc-01", f"{where}.reason: {texts['reason']!r}", change)
    if not _MAIL.fullmatch(texts["owner"]):
        raise Violation("exc-01", f"{where}.owner: {texts['owner']!r}", "write the mail address of the owner")
    last = until if type(until) is dt.date else day(str(until))
    if last is None:
        raise Violation("exc-01", f"{where}.until: {until!r}", "write its last day like 2027-03-31")
    if last > days.today() and (detail := unbounded_end(last)):
        raise Violation("exc-01", f"{where}.{detail}")
    return FindingWaiver(until=last, **texts)


def waived_by(finding: Finding, valid_waivers: Iterable[FindingWaiver], today: dt.date) -> FindingWaiver | None:
    """The exception that covers a finding and has not ended."""
    return next((waiver for waiver in valid_waivers if waiver.covers(finding) and not waiver.has_expired(today)), None)
