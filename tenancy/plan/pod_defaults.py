"""What the API server writes onto pods of tenants, so that nobody has to: cost labels, and the spreading of replicas.

A MutatingAdmissionPolicy is there from Kubernetes 1.36 on. Before, a pod without the labels is charged by its
namespace, which the bill reads anyway; what looks at pods alone sees them only there. Replicas are spread then as the
scheduler spreads everybody's.
"""

from __future__ import annotations

import json

from tenancy.catalog import vocabulary as words
from tenancy.catalog.versions import incompatible
from tenancy.plan.labels import beside_the_systems, manifest, platform_labels
from tenancy.plan.model import Object
from tenancy.spec.environment import Environment, Spread

NAME = "tenancy-pod-defaults"
API = "admissionregistration.k8s.io/v1"

_CHARGED = json.dumps(list(words.CHARGED_LABELS))
_LABELS = "(has(object.metadata.labels) ? object.metadata.labels : {})"
_MISSING = f"{_CHARGED}.filter(k, k in namespaceObject.metadata.labels && !(k in {_LABELS}))"
_LABELLED = f"""(has(object.metadata.labels) ? []
    : [JSONPatch{{op: "add", path: "/metadata/labels", value: {{}}}}])
    + {_MISSING}.map(k, JSONPatch{{op: "add", path: "/metadata/labels/" + jsonpatch.escapeKey(k),
        value: namespaceObject.metadata.labels[k]}})"""

REVISIONS = {"ReplicaSet": "pod-template-hash", "StatefulSet": "controller-revision-hash"}
"""Label that the replicas of one revision share, and no other pod of their namespace has, by what controls them."""
_OWNERS = "(has(object.metadata.ownerReferences) ? object.metadata.ownerReferences : [])"
_ASKED = f"(namespaceObject.metadata.?annotations[?{words.SPREAD!r}].orValue(''))"


def _spread(kind: str, revision: str) -> str:
    # A node whose taint the pod does not tolerate is no place that lacks a replica. Maps, because the API server
    # panics on a list of `Object.spec.topologySpreadConstraints` in a JSONPatch (v1.36.3, `evaluatePatchExpression`).
    return f"""({_ASKED} != "" && !has(object.spec.topologySpreadConstraints) && {revision!r} in {_LABELS}
        && {_OWNERS}.exists(o, o.kind == {kind!r} && o.?controller.orValue(false))
        ? [JSONPatch{{op: "add", path: "/spec/topologySpreadConstraints", value: [{{
            "maxSkew": dyn(1),
            "topologyKey": dyn("kubernetes.io/hostname"),
            "whenUnsatisfiable": dyn({_ASKED} == {Spread.REQUIRED.value!r} ? "DoNotSchedule" : "ScheduleAnyway"),
            "nodeTaintsPolicy": dyn("Honor"),
            "labelSelector": dyn({{}}),
            "matchLabelKeys": dyn([{revision!r}])}}]}}]
        : [])"""


# Match conditions know no namespace (kubernetes v1.36.3, `matchconditions/matcher.go`): the patch asks whose it is.
_PATCHES = " + ".join([f"({_LABELLED})", *(_spread(kind, label) for kind, label in REVISIONS.items())])
_PATCH = f"{words.TENANT!r} in namespaceObject.metadata.labels ? {_PATCHES} : []"


def pod_defaults(environment: Environment) -> tuple[Object, ...]:
    """The policy and its binding, for every namespace but the platform's own."""
    if incompatible(environment.cluster.kubernetes, "pod-defaults"):
        return ()
    pods = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["pods"],
        "scope": "*",
    }
    spec = {
        # A namespace without labels is refused by a guard, which says why.
        "failurePolicy": "Ignore",
        "reinvocationPolicy": "Never",
        "matchConstraints": {
            "matchPolicy": "Equivalent",
            "namespaceSelector": beside_the_systems(environment),
            "objectSelector": {},
            "resourceRules": [pods],
        },
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": " ".join(_PATCH.split())}}],
    }
    labels = platform_labels(environment)
    return (
        manifest(API, "MutatingAdmissionPolicy", NAME, labels, {"spec": spec}),
        manifest(API, "MutatingAdmissionPolicyBinding", NAME, labels, {"spec": {"policyName": NAME}}),
    )
