"""The API server of an environment, offline: one verdict for each request, by the steps of the real one, in its order.

Access, schema and defaults, mutating admission, validating admission with quotas last, and Kueue's webhooks. Each step
reads the rendered objects of the environment, which are what `tenancy up` applies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING

from tenancy.check.admission import bootstrap
from tenancy.check.admission.access import Attributes, Authorizer, attributes_of, forbidden
from tenancy.check.admission.cel import EvaluationError, Permission
from tenancy.check.admission.cluster import ClusterObjects
from tenancy.check.admission.completions import completed
from tenancy.check.admission.defaults import add_managed_fields, decode, set_creation_fields, set_defaults
from tenancy.check.admission.forms import form_problems, undecodable
from tenancy.check.admission.kueue import apply_kueue_defaults
from tenancy.check.admission.limits import limit_denials, with_default_limits
from tenancy.check.admission.pod_security import pod_security_denials
from tenancy.check.admission.policies import (
    MUTATING,
    VALIDATING,
    apply_mutations,
    bound_policies,
    evaluator_of,
    policy_denials,
)
from tenancy.check.admission.queue_rules import webhook_denials
from tenancy.check.admission.quota import quota_denials
from tenancy.check.admission.requests import AdmissionRequest, Operation, unreadable
from tenancy.check.admission.validation import validation_denials
from tenancy.check.admission.verdicts import Denial, Verdict
from tenancy.kube.deniers import API_VALIDATION, CONFLICT
from tenancy.kube.kinds import group_of
from tenancy.kube.objects import Object, as_list, name_of
from tenancy.rules.findings import UNREADABLE

if TYPE_CHECKING:
    from tenancy.planning.plan_model import Plan

_IN_EVERY_NAMESPACE = frozenset({("configmaps", "kube-root-ca.crt"), ("serviceaccounts", "default")})
"""Objects that controllers make in each namespace."""


class OfflineApiServer:
    """An API server whose cluster contains these objects, and no work."""

    def __init__(self, objects: Sequence[Object], version: str) -> None:
        """`version` is Kubernetes' own, such as `1.36`."""
        major, minor = version.split(".")[:2]
        self.cluster = ClusterObjects([*bootstrap.objects((int(major), int(minor))), *objects])
        self.version = version
        self.access = Authorizer(self.cluster)
        self._minor = int(minor)
        granted = (
            rule for role in self.cluster.all(bootstrap.GROUP, "ClusterRole") for rule in as_list(role.get("rules"))
        )
        self._known_groups = self.cluster.groups | {
            group for rule in granted for group in as_list(rule.get("apiGroups"))
        }
        self.validating = bound_policies(self.cluster, VALIDATING)
        self.mutating = bound_policies(self.cluster, MUTATING)

    @classmethod
    def of_environment(cls, plan: Plan, version: str) -> OfflineApiServer:
        """The API server of a plan's environment after `tenancy up`."""
        return cls([bootstrap.platform_binding(plan.admission.group), *plan.objects()], version)

    def stored(self, group: str, resource: str, name: str, namespace: str = "") -> Object | None:
        """An object of the cluster as it is stored, with its defaults; None if there is none."""
        item = self.cluster.stored(group, resource, name, namespace)
        return None if item is None else set_defaults(decode(deepcopy(item), group), group)

    def add(self, item: Object) -> None:
        """Take up an object that was created: rights that it gives hold from then on."""
        self.cluster.add(item)
        if group_of(item) == bootstrap.GROUP:
            self.access = Authorizer(self.cluster)

    def verdict(self, request: AdmissionRequest) -> Verdict:
        """The server's answer to a request."""
        decision = self.access.decide(request.identity, attributes_of(request))
        undecided = () if decision.decided else (decision.reason,)
        if not decision.allowed and decision.decided:
            return Verdict((forbidden(request.identity, attributes_of(request)),))
        if request.operation is Operation.READ:
            return Verdict((), undecided)
        if unserved := self._unserved(request):
            return Verdict((), (*undecided, unserved))
        if request.namespace is not None and self.cluster.namespace(request.namespace) is None:
            reason = f"namespace {request.namespace} is in no file of the environment, so its labels are not known"
            return Verdict((), (*undecided, reason))
        if request.object is not None and (reason := unreadable(request.object)):
            return Verdict((Denial(API_VALIDATION, None, reason),), undecided)
        try:
            request, denials = self._answer(request)
        except UNREADABLE as error:
            message = f"{name_of(request.object or {})} is not of the form of its kind ({error})"
            denials = (Denial(API_VALIDATION, None, message),)
        if not denials and (existing := self._existing(request)):
            denials = (existing,)
        return Verdict(denials, undecided, None if denials else request.object)

    def _answer(self, request: AdmissionRequest) -> tuple[AdmissionRequest, tuple[Denial, ...]]:
        """The request as it is stored, or the denials of the first step that denies."""
        if denial := undecodable(request):
            return request, (denial,)
        if request.object is not None:
            item = set_defaults(decode(deepcopy(request.object), request.group), request.group)
            add_managed_fields(item, request.options, applied=False)
            request = replace(request, object=item)
        request, denials = self._admitted(request)
        return (request, denials) if denials else self._validated(request)

    def _unserved(self, request: AdmissionRequest) -> str:
        """Why it is not known whether the cluster serves a kind; empty for kinds of Kubernetes and of the plan."""
        group = request.group
        if not group or "." not in group or group.endswith(".k8s.io") or group in self._known_groups:
            return ""
        return f"whether the cluster serves {request.resource}.{group} depends on its operator, which may be missing"

    def _existing(self, request: AdmissionRequest) -> Denial | None:
        """The refusal of a creation whose object is there already."""
        if request.operation is not Operation.CREATE or request.subresource or not request.name:
            return None
        by_controllers = (request.resource, request.name) in _IN_EVERY_NAMESPACE and request.group == ""
        if not by_controllers and not self.cluster.stored(
            request.group, request.resource, request.name, request.namespace or ""
        ):
            return None
        kind = f"{request.resource}.{request.group}" if request.group else request.resource
        return Denial(CONFLICT, None, f'{kind} "{request.name}" already exists')

    def _admitted(self, request: AdmissionRequest) -> tuple[AdmissionRequest, tuple[Denial, ...]]:
        """The request after mutating admission, in the order of the plugins."""
        with_default_limits(request, self.cluster)
        if denials := tuple(completed(request, self.cluster)):
            return request, denials
        for policy in self.mutating:
            if request.object is not None and policy.selects(request, self.cluster):
                try:
                    result = apply_mutations(
                        policy, evaluator_of(request, self.cluster, self._permission(request)), request.object
                    )
                except EvaluationError as error:
                    return request, (Denial(f"{MUTATING}/{policy.name}", None, str(error)),)
                request = replace(request, object=result)
        apply_kueue_defaults(request, self.cluster)
        if request.object is not None and request.operation is Operation.CREATE:
            set_creation_fields(request.object, request.group)
            problems = form_problems(request.object)
            forms = tuple(Denial(API_VALIDATION, None, f"{path}: {reason}", path) for path, reason in problems)
            return request, (*forms, *validation_denials(request, self.cluster))
        return request, tuple(validation_denials(request, self.cluster))

    def _validated(self, request: AdmissionRequest) -> tuple[AdmissionRequest, tuple[Denial, ...]]:
        """Validating admission, in the order of the plugins; all denials of the first plugin that denies."""
        plugins = (self._restrictions, self._limits, self._pod_security, self._policies, self._queue, self._quotas)
        for plugin in plugins:
            if denials := tuple(plugin(request)):
                return request, denials
        return request, ()

    def _restrictions(self, request: AdmissionRequest) -> Iterator[Denial]:
        if denial := self.access.restriction(request) or self.access.escalation(request):
            yield denial

    def _limits(self, request: AdmissionRequest) -> Iterator[Denial]:
        return limit_denials(request, self.cluster)

    def _pod_security(self, request: AdmissionRequest) -> Iterator[Denial]:
        return pod_security_denials(request, self.cluster, self._minor)

    def _policies(self, request: AdmissionRequest) -> Iterator[Denial]:
        policies = [policy for policy in self.validating if policy.denies and policy.selects(request, self.cluster)]
        if policies:
            evaluator = evaluator_of(request, self.cluster, self._permission(request))
            for policy in policies:
                yield from policy_denials(policy, evaluator)

    def _queue(self, request: AdmissionRequest) -> Iterator[Denial]:
        return webhook_denials(request, self.cluster)

    def _quotas(self, request: AdmissionRequest) -> Iterator[Denial]:
        return quota_denials(request, self.cluster)

    def _permission(self, request: AdmissionRequest) -> Permission:
        """Whether the identity of a request has a permission, for expressions that ask the authorizer."""

        def permission(check: Mapping[str, str]) -> bool:
            attributes = Attributes(check.get("verb", ""), check.get("resource", ""), check.get("group", ""))
            return self.access.decide(
                request.identity, replace(attributes, namespace=check.get("namespace", ""))
            ).allowed

        return permission
