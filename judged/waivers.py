"""Findings that are accepted, each with a reason, an owner and a last day; and what is wrong with such a list."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import yaml

from judged.model import Finding, Verdict

FILE = Path(__file__).parent / "waivers.yaml"
LONGEST = 366
"""Days from today that a waiver may last: every one is looked at once a year, as an exception of a tenant is."""


class UnusableWaivers(ValueError):
    """The file of waivers cannot be read: given, rule and change in one sentence."""


@dataclass(frozen=True, slots=True)
class Waiver:
    """Accepts the findings of `judge` whose check and object match the shell patterns."""

    judge: str
    check: str
    object: str
    reason: str
    owner: str
    until: dt.date

    def __str__(self) -> str:
        return f"{self.judge} {self.check} on {self.object}"

    def covers(self, finding: Finding) -> bool:
        """Whether the finding is accepted by this waiver, whatever the day."""
        return (
            self.judge == finding.judge
            and fnmatchcase(finding.check, self.check)
            and fnmatchcase(finding.object, self.object)
        )


def read(path: Path = FILE) -> tuple[Waiver, ...]:
    """The waivers of a file. Raises UnusableWaivers."""
    fields = set(Waiver.__dataclass_fields__)
    rule = f"a list `waivers`, each with {', '.join(sorted(fields))}"
    try:
        rows = yaml.safe_load(path.read_text("utf-8"))["waivers"]
    except (OSError, yaml.YAMLError, KeyError, TypeError) as error:
        raise UnusableWaivers(f"given {path} ({type(error).__name__}); rule: {rule}; change: write one") from None
    waivers = []
    for number, row in enumerate(rows):
        if not isinstance(row, dict) or set(row) != fields:
            raise UnusableWaivers(f"given {path}: waivers[{number}]: {row}; rule: {rule}; change: the fields of it")
        if not isinstance(row["until"], dt.date):
            raise UnusableWaivers(
                f"given {path}: waivers[{number}].until: {row['until']}; rule: a date; change: write YYYY-MM-DD"
            )
        empty = [name for name in fields - {"until"} if not str(row[name]).strip()]
        if empty:
            raise UnusableWaivers(f"given {path}: waivers[{number}].{empty[0]}: nothing; rule: {rule}; change: fill it")
        texts = {name: " ".join(str(row[name]).split()) for name in fields - {"until"}}
        waivers.append(Waiver(until=row["until"], **texts))
    return tuple(waivers)


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdicts of all judges, with what is waived, and every problem that makes the run fail."""

    verdicts: Sequence[Verdict]
    waived: Mapping[Finding, Waiver]
    problems: Sequence[str]

    def open(self, verdict: Verdict) -> list[Finding]:
        """Findings of a verdict that no waiver covers."""
        return [finding for finding in verdict.findings if finding not in self.waived]


def weigh(verdicts: Iterable[Verdict], waivers: Sequence[Waiver], today: dt.date) -> Judgement:
    """Compare findings with waivers.

    Problems are: a judge that ran and made no check; a finding without a waiver; a waiver that covers no finding of a
    judge that ran; a waiver after its last day, which covers nothing then; a waiver that lasts too long.
    """
    verdicts = tuple(verdicts)
    ran = {verdict.judge for verdict in verdicts if not verdict.skipped}
    findings = [finding for verdict in verdicts for finding in verdict.findings]
    problems = [
        f"{verdict.judge} made no check: its answer is not understood, or it was given nothing"
        for verdict in verdicts
        if not verdict.skipped and not verdict.checks
    ]
    waived: dict[Finding, Waiver] = {}
    for waiver in waivers:
        covered = [finding for finding in findings if waiver.covers(finding)]
        if waiver.until < today:
            problems.append(f"waiver expired on {waiver.until}: {waiver}; mend the finding, or look at it again")
            continue
        if (waiver.until - today).days > LONGEST:
            problems.append(f"waiver lasts more than {LONGEST} days: {waiver}")
        if waiver.judge in ran and not covered:
            problems.append(f"waiver matches no finding: {waiver}; remove it")
        waived.update({finding: waiver for finding in covered if finding not in waived})
    problems += [
        f"{finding.judge} {finding.check}: {finding.object}: {finding.message}"
        for finding in sorted(findings)
        if finding not in waived
    ]
    return Judgement(verdicts, waived, problems)
