"""Mutations of tenants' pods by the API server: cost labels, and the spreading of replicas.

A MutatingAdmissionPolicy is there from Kubernetes 1.36 on. Before, a pod without the labels is charged by its
namespace, which the bill reads anyway; tools that read pods alone see the labels only from 1.36 on. Replicas are spread
then by the scheduler's default.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenancy.catalog import vocabulary
from tenancy.catalog.versions import incompatible
from tenancy.kube.objects import Object
from tenancy.planning.common.labels import exclude_system_namespaces, manifest, platform_labels
from tenancy.rules.expressions import annotation, charged_keys
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.tiers import Spread, SpreadOf

NAME = "tenancy-pod-defaults"
API = "admissionregistration.k8s.io/v1"
ResourceRule = tuple[str, str, list[str], list[str]]
"""API group, version, resources and operations that a policy matches."""

_LABELS = "(has(object.metadata.labels) ? object.metadata.labels : {})"
_MISSING_LABELS = f"{charged_keys(repr)}.filter(k, k in namespaceObject.metadata.labels && !(k in {_LABELS}))"
_ADD_LABELS = f"""(has(object.metadata.labels) ? []
    : [JSONPatch{{op: "add", path: "/metadata/labels", value: {{}}}}])
    + {_MISSING_LABELS}.map(k, JSONPatch{{op: "add", path: "/metadata/labels/" + jsonpatch.escapeKey(k),
        value: namespaceObject.metadata.labels[k]}})"""

REVISIONS = {"ReplicaSet": "pod-template-hash", "StatefulSet": "controller-revision-hash"}
"""Label that the replicas of one revision share, and no other pod of their namespace has, by what controls them."""
JOB_NAME = "batch.kubernetes.io/job-name"
"""Label that the pods of one Job share."""
_OWNER_REFERENCES = "(has(object.metadata.ownerReferences) ? object.metadata.ownerReferences : [])"
_SPREAD_MODE = f"({annotation(vocabulary.SPREAD, repr)})"
_SPREAD_SCOPES = f"({annotation(vocabulary.SPREAD_OF, repr)}.split(','))"


def _constraint(label_selector: str, match_keys: str) -> str:
    # A node whose taint the pod does not tolerate is no place that lacks a replica.
    return f"""[{{
        "maxSkew": dyn(1),
        "topologyKey": dyn("kubernetes.io/hostname"),
        "whenUnsatisfiable": dyn({_SPREAD_MODE} == {Spread.REQUIRED.value!r} ? "DoNotSchedule" : "ScheduleAnyway"),
        "nodeTaintsPolicy": dyn("Honor"),
        "labelSelector": dyn({label_selector}),
        "matchLabelKeys": dyn({match_keys})}}]"""


def _spread_among(scope: SpreadOf, kind: str, label: str) -> str:
    """The constraint of a pod that a controller of this kind made, among the pods with its value of the label."""
    return f"""({scope.value!r} in {_SPREAD_SCOPES} && {label!r} in {_LABELS}
        && {_OWNER_REFERENCES}.exists(o, o.kind == {kind!r} && o.?controller.orValue(false))
        ? {_constraint("{}", f"[{label!r}]")} : [])"""


_TENANT_PODS = f"{{'matchLabels': {{{vocabulary.TENANT!r}: namespaceObject.metadata.labels[{vocabulary.TENANT!r}]}}}}"
_IN_NAMESPACE = f"({SpreadOf.NAMESPACE.value!r} in {_SPREAD_SCOPES} ? {_constraint(_TENANT_PODS, '[]')} : [])"
_CONSTRAINTS = " + ".join(
    [
        *(_spread_among(SpreadOf.REPLICAS, kind, label) for kind, label in REVISIONS.items()),
        _spread_among(SpreadOf.JOBS, "Job", JOB_NAME),
        _IN_NAMESPACE,
    ]
)
# Maps, because the API server panics on a list of `Object.spec.topologySpreadConstraints` in a JSONPatch (v1.36.3,
# `evaluatePatchExpression`).
_SPREAD = f"""({_SPREAD_MODE} != "" && !has(object.spec.topologySpreadConstraints)
    ? [{_CONSTRAINTS}].filter(found, size(found) > 0)
        .map(found, JSONPatch{{op: "add", path: "/spec/topologySpreadConstraints", value: found}}) : [])"""


# Match conditions know no namespace (kubernetes v1.36.3, `matchconditions/matcher.go`): the patch asks whose it is.
_PATCHES = f"({_ADD_LABELS}) + {_SPREAD}"
_PATCH = f"{vocabulary.TENANT!r} in namespaceObject.metadata.labels ? {_PATCHES} : []"


def pod_defaults(environment: Environment) -> tuple[Object, ...]:
    """The policy and its binding, for every namespace but the platform's own."""
    if incompatible(environment.cluster.kubernetes, "pod-defaults"):
        return ()
    # A namespace without labels is refused by a guard, which says why.
    return mutating_policy(environment, NAME, [("", "v1", ["pods"], ["CREATE"])], " ".join(_PATCH.split()))


def mutating_policy(
    environment: Environment, name: str, rules: Sequence[ResourceRule], patch: str, **spec_fields: Any
) -> tuple[Object, ...]:
    """A policy that patches requests outside of the platform's own namespaces, and its binding.

    `spec_fields` are further keys of its spec. Where the patch fails, the request goes on and meets the guards.
    """
    spec = {
        "failurePolicy": "Ignore",
        "reinvocationPolicy": "Never",
        "matchConstraints": {
            "matchPolicy": "Equivalent",
            "namespaceSelector": exclude_system_namespaces(environment),
            "objectSelector": {},
            "resourceRules": [
                {
                    "apiGroups": [group],
                    "apiVersions": [version],
                    "operations": operations,
                    "resources": resources,
                    "scope": "*",
                }
                for group, version, resources, operations in rules
            ],
        },
        **spec_fields,
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}],
    }
    labels = platform_labels(environment)
    return (
        manifest(API, "MutatingAdmissionPolicy", name, labels, {"spec": spec}),
        manifest(API, "MutatingAdmissionPolicyBinding", name, labels, {"spec": {"policyName": name}}),
    )
