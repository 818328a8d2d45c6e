"""Attacks on kinds that are not for tenants: certificates, admission, routing, proxies, kinds of other operators."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tenancy.kube.requests import MERGE, core, group
from tenancy.rules.attacks import Attack, Request
from tenancy.rules.scene import MISSING_OBJECT, POD_NAME
from tenancy.verify.attacks.access import rbac_attack
from tenancy.verify.attacks.scene import AttackedNamespace, Scene

CSR = (
    "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlIVE1Ic0NBUUF3R1RFWE1CVUdBMVVFQXd3T2RHVnVZVzVqZVMxMlpYSnBa"
    "bmt3V1RBVEJnY3Foa2pPUFFJQgpCZ2dxaGtqT1BRTUJCd05DQUFSelF6ckRUK1Y2aGlzT0VCTzArQzliaFBlQkVicS95TjVOWk1ZemptcWpt"
    "NTVLClBUWmFVdGs4VjlXaHZVSm1LZU8rNDZ2WXlxSFBnNlUwUGFFMWs0V3pvQUF3Q2dZSUtvWkl6ajBFQXdJRFNBQXcKUlFJZ0ZiV3FvS3Bi"
    "T09xdnU1cHR0aXM4L3ZLNGEvZTFOWFBFWU1FMSt2dUEweGtDSVFDaUxOZjR4NHgrK2dOTgp5dU91R2YyRUdqQ3FqMjdodEJqYTdrUzlvL3Ry"
    "ZXc9PQotLS0tLUVORCBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0K"
)
"""A request for a client certificate, whose private key was discarded; it is never signed."""

OPERATORS = {
    "cilium-policy": ("open itself to others by a Cilium policy", "cilium.io/v2", "ciliumnetworkpolicies", True),
    "cilium-wide": ("write a cluster-wide Cilium policy", "cilium.io/v2", "ciliumclusterwidenetworkpolicies", False),
    "cilium-envoy": ("configure the shared proxy", "cilium.io/v2", "ciliumenvoyconfigs", True),
    "cilium-redirect": ("redirect other tenants' traffic", "cilium.io/v2", "ciliumlocalredirectpolicies", True),
    "cilium-egress": ("use another tenant's egress address", "cilium.io/v2", "ciliumegressgatewaypolicies", False),
    "gateway": ("open a gateway for itself", "gateway.networking.k8s.io/v1", "gateways", True),
    "route": ("take over a host name by a route", "gateway.networking.k8s.io/v1", "httproutes", True),
    "reference": ("permit references across namespaces", "gateway.networking.k8s.io/v1beta1", "referencegrants", True),
    "target-group": ("attach a foreign target group", "elbv2.k8s.aws/v1beta1", "targetgroupbindings", True),
    "security-group": (
        "choose its pods' security groups",
        "vpcresources.k8s.aws/v1beta1",
        "securitygrouppolicies",
        True,
    ),
    "gpu-operator": ("change how GPUs are set up", "nvidia.com/v1", "clusterpolicies", False),
    "gpu-driver": ("change the GPUs' driver", "nvidia.com/v1alpha1", "nvidiadrivers", False),
    "imex": ("open a memory channel between nodes", "resource.nvidia.com/v1beta1", "computedomains", True),
    "node-pool": ("buy nodes of its own", "karpenter.sh/v1", "nodepools", False),
    "node-class": ("choose the image of nodes", "karpenter.k8s.aws/v1", "ec2nodeclasses", False),
    "snapshot": (
        "read a snapshot of another tenant's volume",
        "snapshot.storage.k8s.io/v1",
        "volumesnapshotcontents",
        False,
    ),
}
"""Kinds of operators that a cluster may have; on a cluster without one the platform's twin gets 404."""


def surface_attacks(scene: Scene) -> Iterator[Attack]:
    """Everything that RBAC alone refuses, except for workloads of the own namespace and of other tenants'."""
    if home := scene.home:
        yield from _kinds_of_operators(home)
        yield from _own_kinds(home)
        yield from _missing(home)
        yield from _system(home)


def _kinds_of_operators(place: AttackedNamespace) -> Iterator[Attack]:
    for name, (sentence, api, plural, namespaced) in OPERATORS.items():
        path = group(api, place.name if namespaced else None, plural, MISSING_OBJECT)
        request = Request("PATCH", path, {"spec": {}}, place.developer, MERGE)
        yield rbac_attack(f"of-{name}", sentence, request, twin_who=None, twin_missing=True)


def _object(api_version: str, kind: str, **fields: Any) -> dict[str, Any]:
    return _manifest(POD_NAME, api_version, kind, **fields)


def _manifest(name: str, api_version: str, kind: str, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **fields}


def _own_kinds(place: AttackedNamespace) -> Iterator[Attack]:
    """Kinds of the API server itself; the platform may create each."""
    signer = {"signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"], "request": CSR}
    schema = {"type": "object", "properties": {"spec": {"type": "string"}}}
    names = {"plural": "verifies", "singular": "verify", "kind": "Verify"}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    definition = {"group": "attack.example", "scope": "Namespaced", "names": names, "versions": [version]}
    aggregated = {
        "group": "attack.example",
        "version": "v1",
        "groupPriorityMinimum": 1,
        "versionPriority": 1,
        "service": {"name": POD_NAME, "namespace": place.name},
        "insecureSkipTLSVerify": True,
    }
    authenticated = [{"kind": "Group", "group": {"name": "system:authenticated"}}]
    flow = {
        "priorityLevelConfiguration": {"name": "exempt"},
        "matchingPrecedence": 2,
        "rules": [
            {"subjects": authenticated, "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["/healthz"]}]},
        ],
    }
    backend = {"service": {"name": "x", "port": {"number": 80}}}
    parts = (
        (
            "certificate",
            "ask for a certificate of any name",
            "certificates.k8s.io/v1",
            "CertificateSigningRequest",
            "certificatesigningrequests",
            {"spec": signer},
        ),
        (
            "definition",
            "define a kind",
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            "customresourcedefinitions",
            {"spec": definition},
        ),
        (
            "api-service",
            "serve an API group in place of the API server",
            "apiregistration.k8s.io/v1",
            "APIService",
            "apiservices",
            {"spec": aggregated},
        ),
        (
            "flow",
            "give its requests precedence over all others",
            "flowcontrol.apiserver.k8s.io/v1",
            "FlowSchema",
            "flowschemas",
            {"spec": flow},
        ),
        (
            "storage-class",
            "make a storage class",
            "storage.k8s.io/v1",
            "StorageClass",
            "storageclasses",
            {"provisioner": "ebs.csi.aws.com"},
        ),
        (
            "binding-of-guard",
            "bind a guard to the action Audit alone",
            "admissionregistration.k8s.io/v1",
            "ValidatingAdmissionPolicyBinding",
            "validatingadmissionpolicybindings",
            {"spec": {"policyName": "x", "validationActions": ["Audit"]}},
        ),
        (
            "validating-hook",
            "refuse every tenant's work",
            "admissionregistration.k8s.io/v1",
            "ValidatingWebhookConfiguration",
            "validatingwebhookconfigurations",
            {"webhooks": []},
        ),
        (
            "review",
            "query the rights of other users",
            "authorization.k8s.io/v1",
            "SubjectAccessReview",
            "subjectaccessreviews",
            {"spec": {"user": "another-user", "resourceAttributes": {"verb": "get", "resource": "secrets"}}},
        ),
    )
    for name, sentence, api, kind, plural, fields in parts:
        manifest = _object(api, kind, **fields)
        if kind == "SubjectAccessReview":
            manifest["metadata"] = {}
        elif kind == "CustomResourceDefinition":
            manifest["metadata"]["name"] = "verifies.attack.example"
        elif kind == "APIService":
            manifest["metadata"]["name"] = "v1.attack.example"
        request = Request("POST", group(api, None, plural), manifest, place.developer)
        yield rbac_attack(f"make-{name}", sentence, request, twin_who=None)
    lease = _object("coordination.k8s.io/v1", "Lease", spec={"holderIdentity": place.tenant.tenant})
    event = _object(
        "v1",
        "Event",
        involvedObject={"kind": "Pod", "name": "x", "namespace": "kube-system"},
        reason="Verify",
        message="x",
        type="Normal",
    )
    ingress = _object("networking.k8s.io/v1", "Ingress", spec={"defaultBackend": backend})
    for name, sentence, path, body in (
        ("lease", "create a leader election lease in its namespace", "coordination.k8s.io/v1", lease),
        ("ingress", "publish itself by an ingress", "networking.k8s.io/v1", ingress),
    ):
        plural = f"{body['kind'].lower()}{'es' if body['kind'].endswith('s') else 's'}"
        request = Request("POST", group(path, place.name, plural), body, place.developer)
        yield rbac_attack(f"make-{name}", sentence, request, twin_who=None)
    for where in ("kube-system", "default"):
        request = Request("POST", group("coordination.k8s.io/v1", where, "leases"), lease, place.developer)
        yield rbac_attack(f"lease-in-{where}", "become the leader of a system component", request, twin_who=None)
    event["metadata"]["namespace"] = "kube-system"
    request = Request("POST", core("kube-system", "events"), event, place.developer)
    yield rbac_attack("event-in-system", "write events about the system", request, twin_who=None)


def _missing(place: AttackedNamespace) -> Iterator[Attack]:
    """Subresources of objects that do not exist: an identity with the right to them gets 404."""
    where = place.name
    binding = _manifest(MISSING_OBJECT, "v1", "Binding", target={"kind": "Node", "name": "node-1"})
    parts = {
        "node-label": (
            "repartition a node's GPUs by its label",
            Request(
                "PATCH",
                f"/api/v1/nodes/{MISSING_OBJECT}",
                {"metadata": {"labels": {"nvidia.com/mig.config": "all-1g.5gb"}}},
            ),
        ),
        "node-status": (
            "change a node's capacity",
            Request("PATCH", f"/api/v1/nodes/{MISSING_OBJECT}/status", {"status": {}}),
        ),
        "node-proxy": (
            "run a command through the kubelet's API",
            Request("GET", f"/api/v1/nodes/{MISSING_OBJECT}/proxy/pods"),
        ),
        "service-proxy": (
            "bypass network policies through a service",
            Request("GET", core(where, "services", MISSING_OBJECT, "proxy/")),
        ),
        "service-status": (
            "take over an address through a service's status",
            Request("PATCH", core(where, "services", MISSING_OBJECT, "status"), {"status": {}}),
        ),
        "namespaced-binding": (
            "bind a pod to a node, by the older API",
            Request("POST", core(where, "bindings"), binding),
        ),
        "approval": (
            "approve a certificate",
            Request(
                "PATCH",
                group("certificates.k8s.io/v1", None, "certificatesigningrequests", MISSING_OBJECT, "approval"),
                {"status": {}},
            ),
        ),
        "evict": (
            "evict a pod",
            Request(
                "POST",
                core("kube-system", "pods", MISSING_OBJECT, "eviction"),
                _manifest(MISSING_OBJECT, "policy/v1", "Eviction"),
            ),
        ),
        "namespace-status": (
            "change its namespace through its status",
            Request("PATCH", f"/api/v1/namespaces/{where}/status", {"metadata": {"annotations": {"a": "b"}}}),
        ),
        "namespace-finalize": (
            "change its namespace through its finalizers",
            Request("PUT", f"/api/v1/namespaces/{where}/finalize", _manifest(where, "v1", "Namespace", spec={})),
        ),
        "claim-status": (
            "mark its claim as bound to another tenant's volume",
            Request("PATCH", core(where, "persistentvolumeclaims", MISSING_OBJECT, "status"), {"status": {}}),
        ),
        "job-status": (
            "mark a job as complete",
            Request("PATCH", group("batch/v1", where, "jobs", MISSING_OBJECT, "status"), {"status": {}}),
        ),
        "quota-status": (
            "reset the recorded use of its quota",
            Request("PATCH", core(where, "resourcequotas", MISSING_OBJECT, "status"), {"status": {"used": {}}}),
        ),
    }
    for name, (sentence, attack_request) in parts.items():
        kind = MERGE if attack_request.method == "PATCH" else "application/json"
        request = Request(attack_request.method, attack_request.path, attack_request.body, place.developer, kind)
        yield rbac_attack(f"by-{name}", sentence, request, twin_who=None, twin_missing=True)


def _system(place: AttackedNamespace) -> Iterator[Attack]:
    """Components of the cluster, changed or deleted by a tenant."""
    for name, sentence, path in (
        ("system-pods", "delete all of the system's pods", core("kube-system", "pods")),
        ("system-config", "delete the system's config maps", core("kube-system", "configmaps")),
        (
            "system-bindings",
            "delete its namespace's bindings",
            group("rbac.authorization.k8s.io/v1", place.name, "rolebindings"),
        ),
    ):
        yield rbac_attack(f"delete-{name}", sentence, Request("DELETE", path, None, place.developer), twin_who=None)
