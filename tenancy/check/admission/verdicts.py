"""Answers of the API server."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tenancy.kube.deniers import ADMISSION_POLICY, NOT_FOUND
from tenancy.kube.objects import Object


class VerdictOutcome(StrEnum):
    """The answer in one word."""

    ADMITTED = "admitted"
    REFUSED = "refused"
    UNDECIDED = "not decided"  # it depends on what is known only in the cluster


@dataclass(frozen=True, slots=True)
class Denial:
    """One reason to refuse a request."""

    component: str
    """The control that denies, in the words of `tenancy verify`, such as `ValidatingAdmissionPolicy/tenancy-pods`."""
    rule: str | None
    """Id of the broken rule; None for a control without rules."""
    message: str
    path: str = ""
    """The field, where the control names one."""

    @property
    def denier(self) -> str:
        """The component with its rule, as `tenancy verify` writes it."""
        by_policy = self.component.startswith(ADMISSION_POLICY)
        return f"{self.component}:{self.rule or ''}" if by_policy else self.component


@dataclass(frozen=True, slots=True)
class Verdict:
    """The API server's answer to one request."""

    denials: tuple[Denial, ...] = ()
    """Denials of the first step that refuses; the API server's answer names the first one."""
    undecided: tuple[str, ...] = ()
    """Why the answer depends on what is not known offline."""
    object: Object | None = None
    """The object as it would be stored; None where it was refused before it was complete."""

    @property
    def denier(self) -> str:
        """The control that refuses, as `tenancy verify` writes it; `none` if none does."""
        return self.denials[0].denier if self.denials else "none"

    @property
    def missing(self) -> bool:
        """Whether the object that the request names does not exist."""
        return self.denier == NOT_FOUND

    @property
    def outcome(self) -> VerdictOutcome:
        """The answer in one word: a refusal needs nothing that is not known."""
        if self.denials:
            return VerdictOutcome.REFUSED
        return VerdictOutcome.UNDECIDED if self.undecided else VerdictOutcome.ADMITTED
