"""The API server of an environment, offline: one verdict for each request, by the steps of the real one, in its order.

Access, schema and defaults, mutating admission, validating admission with quotas last, and Kueue's webhooks. Each step
reads the rendered objects of the environment, which are what `tenancy up` applies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tenancy.check.admission import bootstrap
from tenancy.check.admission.access import Access, Attributes, attributes_of, forbidden
from tenancy.check.admission.cluster import ClusterObjects
from tenancy.check.admission.policies import evaluator_of, validating_policies
from tenancy.check.admission.requests import AdmissionRequest
from tenancy.check.admission.verdicts import Verdict
from tenancy.kube.objects import Object

if TYPE_CHECKING:
    from tenancy.planning.model import Plan


class OfflineApiServer:
    """An API server whose cluster contains these objects, and no work."""

    def __init__(self, objects: Sequence[Object], version: str) -> None:
        """`version` is Kubernetes' own, such as `1.36`."""
        major, minor = version.split(".")[:2]
        self.cluster = ClusterObjects([*bootstrap.objects((int(major), int(minor))), *objects])
        self.version = version
        self.access = Access(self.cluster)
        self._policies = validating_policies(self.cluster)

    @classmethod
    def of_environment(cls, plan: Plan, version: str) -> OfflineApiServer:
        """The API server of a plan's environment after `tenancy up`."""
        return cls([bootstrap.platform_binding(plan.admission.group), *plan.objects()], version)

    def verdict(self, request: AdmissionRequest) -> Verdict:
        """What it answers to a request."""

        decision = self.access.decide(request.identity, attributes_of(request))
        if not decision.allowed and decision.decided:
            return Verdict((forbidden(request.identity, attributes_of(request)),))
        if denial := self.access.restriction(request) or self.access.escalation(request):
            return Verdict((denial,))

        def permission(check: Mapping[str, str]) -> bool:
            return self._allowed(request, check)

        asked = [each for each in self._policies if each.denies and each.selects(request, self.cluster)]
        undecided = () if decision.decided else (decision.reason,)
        if not asked:
            return Verdict((), undecided, request.object)
        evaluator = evaluator_of(request, self.cluster, permission)
        denials = tuple(denial for each in asked for denial in each.denials(evaluator))
        return Verdict(denials, undecided, None if denials else request.object)

    def _allowed(self, request: AdmissionRequest, check: Mapping[str, str]) -> bool:
        """Whether the identity of a request has a permission, for expressions that ask the authorizer."""
        asked = Attributes(check.get("verb", ""), check.get("resource", ""), check.get("group", ""))
        return self.access.decide(request.identity, replace(asked, namespace=check.get("namespace", ""))).allowed
