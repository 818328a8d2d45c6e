"""Cost labels of pods, set by the API server: who writes a pod writes none of them, and the guard has nothing to say.

A MutatingAdmissionPolicy is there from Kubernetes 1.36 on. Before, a pod without the labels is charged by its
namespace, which the bill reads anyway; what looks at pods alone sees them only there.
"""

from __future__ import annotations

import json

from tenancy.catalog import vocabulary as words
from tenancy.catalog.versions import incompatible
from tenancy.plan.labels import beside_the_systems, manifest, platform_labels
from tenancy.plan.model import Object
from tenancy.spec.environment import Environment

NAME = "tenancy-labels"
API = "admissionregistration.k8s.io/v1"

_CHARGED = json.dumps(list(words.CHARGED_LABELS))
_LABELS = "(has(object.metadata.labels) ? object.metadata.labels : {})"
_MISSING = f"{_CHARGED}.filter(k, k in namespaceObject.metadata.labels && !(k in {_LABELS}))"
_PATCH = f"""(has(object.metadata.labels) ? []
    : [JSONPatch{{op: "add", path: "/metadata/labels", value: {{}}}}])
    + {_MISSING}.map(k, JSONPatch{{op: "add", path: "/metadata/labels/" + jsonpatch.escapeKey(k),
        value: namespaceObject.metadata.labels[k]}})"""


def labelling(environment: Environment) -> tuple[Object, ...]:
    """The policy and its binding, for every namespace but the platform's own."""
    if incompatible(environment.cluster.kubernetes, "labelling"):
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
        "matchConditions": [{"name": "tenants", "expression": f"{words.TENANT!r} in namespaceObject.metadata.labels"}],
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": " ".join(_PATCH.split())}}],
    }
    labels = platform_labels(environment)
    return (
        manifest(API, "MutatingAdmissionPolicy", NAME, labels, {"spec": spec}),
        manifest(API, "MutatingAdmissionPolicyBinding", NAME, labels, {"spec": {"policyName": NAME}}),
    )
