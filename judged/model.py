"""Verdicts of judges: findings and the number of checks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One thing that a judge has against an object. Equal findings of several objects differ in `object` alone."""

    judge: str
    check: str
    object: str
    """The judged object, as the judge names it, such as `samples-bank/Pod.fraud--train.sample` or `ci/steps/scan`."""
    message: str
    file: str = ""
    """Path from the root of the repository; empty for an object that is made for the judge only."""
    line: int = 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer of one judge. A judge that was skipped has a reason and no findings."""

    judge: str
    version: str
    judged: str
    """Inputs of the judge: renders, samples, workflows, …"""
    checks: int = 0
    """Number of checks that it made, or of files or objects where it does not count its checks."""
    findings: Sequence[Finding] = field(default_factory=tuple)
    counts_files: bool = False
    """Whether `checks` is a number of files, each of which can have several findings."""
    skipped: str = ""
    details: Sequence[str] = ()
    """Lines of Markdown for the page: what a row of the table cannot say."""


class SkippedJudge(Exception):
    """A judge that cannot be had here, with the reason. Never raised for a judge that ran and found something."""
