"""Answers to whether work would be admitted and start now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any

from tenancy.kube import quantities
from tenancy.kube.pods import ONE


class FitVerdict(StrEnum):
    """From the best to the worst."""

    FITS = "fits"
    UNKNOWN = "not asked"  # another control refused before this one was reached
    WAITS = "waits"
    NEVER = "never"

    @property
    def rank(self) -> int:
        return list(FitVerdict).index(self)


@dataclass(frozen=True, slots=True)
class ControlAnswer:
    """The answer of one control."""

    plane: str
    verdict: FitVerdict
    sentence: str
    change: str = ""
    denier: str = ""
    """The control that refused, as `tenancy.live.denial` names it."""


@dataclass(frozen=True, slots=True)
class Fit:
    kind: str
    name: str
    namespace: str
    asked_as: str
    said: tuple[ControlAnswer, ...]

    @property
    def verdict(self) -> FitVerdict:
        return max((said.verdict for said in self.said), key=lambda verdict: verdict.rank)


def queued_metadata(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """Metadata of the queued object."""
    return (item["spec"]["jobTemplate"].get("metadata") or {}) if item["kind"] == "CronJob" else item["metadata"]


def written(number: int) -> str:
    return quantities.write(Decimal(number) / ONE)


def amount_of(number: int, resource: str) -> str:
    return f"{written(number)} {resource}"
