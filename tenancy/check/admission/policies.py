"""ValidatingAdmissionPolicies and MutatingAdmissionPolicies with their bindings, as the API server evaluates them.

Source: `k8s.io/apiserver` v0.36.3 `pkg/admission/plugin/policy` (`matching`, `validating`, `mutating`) and
`pkg/admission/plugin/cel`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

from tenancy.check.admission.cel import EvaluationError, Evaluator, Permission
from tenancy.check.admission.cluster import ClusterObjects
from tenancy.check.admission.patches import PatchError, json_patched
from tenancy.check.admission.requests import AdmissionRequest
from tenancy.check.admission.verdicts import Denial
from tenancy.kube.deniers import ADMISSION_POLICY
from tenancy.kube.objects import Object, as_list, get_path
from tenancy.kube.selectors import matches

GROUP = "admissionregistration.k8s.io"
VALIDATING, MUTATING = "ValidatingAdmissionPolicy", "MutatingAdmissionPolicy"
_RULE = re.compile(r"([a-z]+-\d+): ")


class AdmissionPolicy:
    """A policy and the resources that one of its bindings selects."""

    def __init__(self, policy: Object, binding: Object) -> None:
        self.spec: Mapping[str, Any] = policy["spec"]
        self.name: str = policy["metadata"]["name"]
        self._selected = (self.spec.get("matchConstraints"), get_path(binding, "spec", "matchResources"))
        self.variables = {variable["name"]: variable["expression"] for variable in as_list(self.spec.get("variables"))}
        self.conditions = tuple(condition["expression"] for condition in as_list(self.spec.get("matchConditions")))
        self.fails_closed = self.spec.get("failurePolicy", "Fail") == "Fail"
        self.denies = "Deny" in as_list(get_path(binding, "spec", "validationActions"))

    def selects(self, request: AdmissionRequest, cluster: ClusterObjects) -> bool:
        """Whether the policy and its binding select a request, before its conditions."""
        return all(
            selects_request(resources, request, cluster) for resources in self._selected if resources is not None
        )


def policy_denials(policy: AdmissionPolicy, evaluator: Evaluator) -> Iterator[Denial]:
    """The validations of a policy that a request breaks."""
    component = f"{ADMISSION_POLICY}{policy.name}"
    try:
        if not all_hold(policy.conditions, evaluator):
            return
    except EvaluationError as error:
        if policy.fails_closed:
            yield Denial(component, None, str(error))
        return
    evaluator = evaluator.having(policy.variables)
    validations = as_list(policy.spec.get("validations"))
    values = evaluator.values([validation["expression"] for validation in validations])
    for validation, value in zip(validations, values, strict=True):
        if isinstance(value, EvaluationError):
            if not policy.fails_closed:
                continue
            message = f"expression '{validation['expression']}' resulted in error: {value}"
        elif value is True:
            continue
        else:
            message = _message(validation, evaluator)
        rule = _RULE.match(message)
        yield Denial(component, rule[1] if rule else None, message)


def apply_mutations(policy: AdmissionPolicy, evaluator: Evaluator, item: Object) -> Object:
    """The object with the mutations of a policy; EvaluationError where one fails, and the request with it."""
    try:
        if not all_hold(policy.conditions, evaluator):
            return item
        evaluator = evaluator.having(policy.variables)
        result = item
        for mutation in as_list(policy.spec.get("mutations")):
            operations = evaluator.value(mutation["jsonPatch"]["expression"])
            result = json_patched(result, [_operation(operation) for operation in operations])
    except (EvaluationError, PatchError) as error:
        if policy.fails_closed:
            raise EvaluationError(str(error)) from error
        return item
    return result


def _operation(message: Any) -> dict[str, Any]:
    """A JSONPatch of CEL as JSON."""
    from google.protobuf.json_format import MessageToDict

    value = _json(MessageToDict(message.value)) if message.HasField("value") else None
    return {"op": message.op, "path": message.path, "from": getattr(message, "from"), "value": value}


def _json(value: Any) -> Any:
    """A value of a message as JSON has it: its numbers are all floating-point."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {key: _json(inner) for key, inner in value.items()}
    return [_json(inner) for inner in value] if isinstance(value, list) else value


def _message(validation: Mapping[str, Any], evaluator: Evaluator) -> str:
    if validation.get("messageExpression"):
        with suppress(EvaluationError):
            value = evaluator.value(validation["messageExpression"])
            if isinstance(value, str) and value.strip() and "\n" not in value:
                return value
    return validation.get("message") or f"failed expression: {validation['expression'].strip()}"


def all_hold(conditions: Sequence[str], evaluator: Evaluator) -> bool:
    """Whether all conditions of a policy hold: one that is false decides, whatever error another one ends in."""
    return evaluator.value(_conjunction(tuple(conditions))) is True


@cache
def _conjunction(conditions: tuple[str, ...]) -> str:
    return " && ".join(f"({condition})" for condition in conditions) or "true"


def selects_request(resources: Mapping[str, Any], request: AdmissionRequest, cluster: ClusterObjects) -> bool:
    """Whether `matchConstraints` or `matchResources` select a request."""
    if any(_rule_matches(rule, request) for rule in as_list(resources.get("excludeResourceRules"))):
        return False
    rules = as_list(resources.get("resourceRules"))
    if rules and not any(_rule_matches(rule, request) for rule in rules):
        return False
    return _namespace_matches(resources.get("namespaceSelector"), request, cluster) and any(
        matches(resources.get("objectSelector") or {}, get_path(item, "metadata", "labels") or {})
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
    return matches(selector, get_path(item, "metadata", "labels") or {})


def _rule_matches(rule: Mapping[str, Any], request: AdmissionRequest) -> bool:
    # API versions are not compared: `matchPolicy: Equivalent` converts a request of another one.
    if not {"*", request.group} & set(rule["apiGroups"]) or not {"*", request.operation} & set(rule["operations"]):
        return False
    if rule.get("scope", "*") not in ("*", "Cluster" if request.namespace is None else "Namespaced"):
        return False
    names = as_list(rule.get("resourceNames"))
    if names and request.name not in names:
        return False
    part = request.subresource
    resources = {
        f"{resource}/{subresource}" if part else resource
        for resource in ("*", request.resource)
        for subresource in ("*", part)
    }
    return bool(resources & set(rule["resources"]))


def bound_policies(cluster: ClusterObjects, kind: str) -> tuple[AdmissionPolicy, ...]:
    """Every policy of a kind that a binding puts in force, once for each binding."""
    policies = {item["metadata"]["name"]: item for item in cluster.all(GROUP, kind)}
    return tuple(
        AdmissionPolicy(policies[binding["spec"]["policyName"]], binding)
        for binding in cluster.all(GROUP, f"{kind}Binding")
        if binding["spec"]["policyName"] in policies
    )


def evaluator_of(request: AdmissionRequest, cluster: ClusterObjects, permission: Permission) -> Evaluator:
    """Evaluator of CEL expressions over the variables of a request."""
    identity = request.identity
    space = cluster.namespace(request.namespace) if request.namespace else None
    kind = request.object or request.old_object or {}
    group, _, version = str(kind.get("apiVersion") or "").rpartition("/")
    resource = {"group": request.group, "version": request.version, "resource": request.resource}
    user = {"username": identity.username, "groups": list(identity.groups)}
    # The API server leaves out what is empty, which `has` reads.
    names = {"subResource": request.subresource, "name": request.name, "namespace": request.namespace}
    request_value = {
        "kind": {"group": group, "version": version, "kind": kind.get("kind", "")},
        "resource": resource,
        **{key: text for key, text in names.items() if text},
        "operation": request.operation.value,
        "userInfo": {**user, "extra": {key: list(value) for key, value in identity.extra.items()}},
        "options": request.options,
    }
    roots = {
        "object": request.object,
        "oldObject": request.old_object,
        "request": request_value,
        "namespaceObject": space,
    }
    return Evaluator(roots, permission)
