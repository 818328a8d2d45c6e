"""Answers to whether work would be admitted and start now."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FitVerdict(StrEnum):
    """From the best to the worst."""

    FITS = "fits"
    UNKNOWN = "not asked"  # another control refused before this one was reached
    WAITS = "waits"
    NEVER = "never"

    @property
    def rank(self) -> int:
        """Place in the order of the verdicts; the best is 0."""
        return list(FitVerdict).index(self)


@dataclass(frozen=True, slots=True)
class ControlAnswer:
    """The answer of one control."""

    plane: str
    verdict: FitVerdict
    sentence: str
    change: str = ""
    denier: str = ""
    """The control that refused, as `tenancy.cluster.denial` names it."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Every control's answer to one object."""

    kind: str
    name: str
    namespace: str
    asked_as: str
    said: tuple[ControlAnswer, ...]

    @property
    def verdict(self) -> FitVerdict:
        """The worst of the answers."""
        return max((answer.verdict for answer in self.said), key=lambda verdict: verdict.rank)
