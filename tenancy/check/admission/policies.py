"""ValidatingAdmissionPolicies and MutatingAdmissionPolicies with their bindings, as the API server asks them.

Source: `k8s.io/apiserver` v0.36.3 `pkg/admission/plugin/policy` (`matching`, `validating`, `mutating`) and
`pkg/admission/plugin/cel`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from tenancy.check.admission.cel import EvaluationError, Evaluator, Permission
from tenancy.check.admission.cluster import ClusterObjects
from tenancy.check.admission.requests import AdmissionRequest
from tenancy.check.admission.verdicts import Denial, policy
from tenancy.kube.objects import Object, at, many
from tenancy.kube.selectors import matches

GROUP = "admissionregistration.k8s.io"
_RULE = re.compile(r"([a-z]+-\d+): ")


class ValidatingPolicy:
    """A policy and the resources that one of its bindings selects."""

    def __init__(self, policy: Object, binding: Object) -> None:
        spec = policy["spec"]
        self.name: str = policy["metadata"]["name"]
        self._selected = (spec["matchConstraints"], at(binding, "spec", "matchResources"))
        self._variables = {one["name"]: one["expression"] for one in many(spec.get("variables"))}
        self._conditions = tuple(one["expression"] for one in many(spec.get("matchConditions")))
        self._validations = many(spec.get("validations"))
        self._fails_closed = spec.get("failurePolicy", "Fail") == "Fail"
        self.denies = "Deny" in binding["spec"]["validationActions"]

    def selects(self, request: AdmissionRequest, cluster: ClusterObjects) -> bool:
        """Whether the policy and its binding select a request, before its conditions."""
        return all(selected(resources, request, cluster) for resources in self._selected if resources is not None)

    def denials(self, evaluator: Evaluator) -> Iterator[Denial]:
        """The validations that a request breaks."""
        component = policy(self.name)
        try:
            holds = all_hold(self._conditions, evaluator)
        except EvaluationError as error:
            if self._fails_closed:
                yield Denial(component, None, str(error))
            return
        if not holds:
            return
        evaluator = evaluator.having(self._variables)
        for each in self._validations:
            expression = each["expression"]
            try:
                if evaluator.value(expression) is True:
                    continue
                message = _message(each, evaluator)
            except EvaluationError as error:
                if not self._fails_closed:
                    continue
                message = f"expression '{expression}' resulted in error: {error}"
            rule = _RULE.match(message)
            yield Denial(component, rule[1] if rule else None, message)


def _message(validation: Mapping[str, Any], evaluator: Evaluator) -> str:
    if validation.get("messageExpression"):
        with suppress(EvaluationError):
            value = evaluator.value(validation["messageExpression"])
            if isinstance(value, str) and value.strip() and "\n" not in value:
                return value
    return validation.get("message") or f"failed expression: {validation['expression'].strip()}"


def all_hold(conditions: Sequence[str], evaluator: Evaluator) -> bool:
    """Whether all conditions of a policy hold: one that is false decides, whatever error another one ends in."""
    failure: EvaluationError | None = None
    for condition in conditions:
        try:
            if evaluator.value(condition) is not True:
                return False
        except EvaluationError as error:
            failure = failure or error
    if failure:
        raise failure
    return True


def selected(resources: Mapping[str, Any], request: AdmissionRequest, cluster: ClusterObjects) -> bool:
    """Whether `matchConstraints` or `matchResources` select a request."""
    if any(_covers(rule, request) for rule in many(resources.get("excludeResourceRules"))):
        return False
    rules = many(resources.get("resourceRules"))
    if rules and not any(_covers(rule, request) for rule in rules):
        return False
    return _namespace_matches(resources.get("namespaceSelector"), request, cluster) and any(
        matches(resources.get("objectSelector") or {}, at(item, "metadata", "labels") or {})
        for item in (request.object, request.old_object)
        if item is not None
    )


def _namespace_matches(selector: Any, request: AdmissionRequest, cluster: ClusterObjects) -> bool:
    if not selector:
        return True
    if request.group == "" and request.resource == "namespaces":
        item = request.object or request.old_object
    elif request.namespace is None:
        return True
    else:
        item = cluster.namespace(request.namespace)
    return matches(selector, at(item, "metadata", "labels") or {})


def _covers(rule: Mapping[str, Any], request: AdmissionRequest) -> bool:
    # Versions are no question: `matchPolicy: Equivalent` converts a request of another one.
    if not {"*", request.group} & set(rule["apiGroups"]) or not {"*", request.operation} & set(rule["operations"]):
        return False
    if rule.get("scope", "*") not in ("*", "Cluster" if request.namespace is None else "Namespaced"):
        return False
    names = many(rule.get("resourceNames"))
    if names and request.name not in names:
        return False
    part = request.subresource
    written = {
        f"{resource}/{subresource}" if part else resource
        for resource in ("*", request.resource)
        for subresource in ("*", part)
    }
    return bool(written & set(rule["resources"]))


def validating_policies(cluster: ClusterObjects) -> tuple[ValidatingPolicy, ...]:
    """Every validating policy that a binding puts in force."""
    policies = {item["metadata"]["name"]: item for item in cluster.all(GROUP, "ValidatingAdmissionPolicy")}
    bindings = cluster.all(GROUP, "ValidatingAdmissionPolicyBinding")
    return tuple(
        ValidatingPolicy(policies[binding["spec"]["policyName"]], binding)
        for binding in bindings
        if binding["spec"]["policyName"] in policies
    )


def evaluator_of(request: AdmissionRequest, cluster: ClusterObjects, permission: Permission) -> Evaluator:
    """A request as expressions read it."""
    identity = request.identity
    space = cluster.namespace(request.namespace) if request.namespace else None
    kind = request.object or request.old_object or {}
    group, _, version = str(kind.get("apiVersion") or "").rpartition("/")
    resource = {"group": request.group, "version": request.version, "resource": request.resource}
    user = {"username": identity.username, "groups": list(identity.groups)}
    asked = {
        "kind": {"group": group, "version": version, "kind": kind.get("kind", "")},
        "resource": resource,
        "subResource": request.subresource,
        "name": request.name,
        "namespace": request.namespace or "",
        "operation": request.operation.value,
        "userInfo": {**user, "extra": {key: list(value) for key, value in identity.extra.items()}},
        "options": request.options,
    }
    roots = {"object": request.object, "oldObject": request.old_object, "request": asked, "namespaceObject": space}
    return Evaluator(roots, permission)
