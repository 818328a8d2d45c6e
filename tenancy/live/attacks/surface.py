"""Attacks on kinds that a tenant has no business with: certificates, admission, routing, proxies, others' operators."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tenancy.live import denial
from tenancy.live.attacks.model import MERGE, Attack, Request, attack, core, group
from tenancy.live.attacks.scene import POD_NAME, Place, Scene

GONE = f"{POD_NAME}-not-there"

CSR = (
    "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlIVE1Ic0NBUUF3R1RFWE1CVUdBMVVFQXd3T2RHVnVZVzVqZVMxMlpYSnBa"
    "bmt3V1RBVEJnY3Foa2pPUFFJQgpCZ2dxaGtqT1BRTUJCd05DQUFSelF6ckRUK1Y2aGlzT0VCTzArQzliaFBlQkVicS95TjVOWk1ZemptcWpt"
    "NTVLClBUWmFVdGs4VjlXaHZVSm1LZU8rNDZ2WXlxSFBnNlUwUGFFMWs0V3pvQUF3Q2dZSUtvWkl6ajBFQXdJRFNBQXcKUlFJZ0ZiV3FvS3Bi"
    "T09xdnU1cHR0aXM4L3ZLNGEvZTFOWFBFWU1FMSt2dUEweGtDSVFDaUxOZjR4NHgrK2dOTgp5dU91R2YyRUdqQ3FqMjdodEJqYTdrUzlvL3Ry"
    "ZXc9PQotLS0tLUVORCBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0K"
)
"""A request for a client certificate, with a key that was thrown away; nobody ever signs it."""

OPERATORS = {
    "cilium-policy": ("open itself to others by a policy of Cilium's", "cilium.io/v2", "ciliumnetworkpolicies", True),
    "cilium-wide": ("write a policy of Cilium's for all", "cilium.io/v2", "ciliumclusterwidenetworkpolicies", False),
    "cilium-envoy": ("configure everybody's proxy", "cilium.io/v2", "ciliumenvoyconfigs", True),
    "cilium-redirect": ("redirect what others send", "cilium.io/v2", "ciliumlocalredirectpolicies", True),
    "cilium-egress": ("leave by somebody else's address", "cilium.io/v2", "ciliumegressgatewaypolicies", False),
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
    "snapshot": ("read a snapshot of another's volume", "snapshot.storage.k8s.io/v1", "volumesnapshotcontents", False),
}
"""Kinds of operators that a cluster may have; where one has not, the platform's twin is not found."""


def surface_attacks(scene: Scene) -> Iterator[Attack]:
    """Everything that RBAC alone refuses, outside of a namespace's own work and its neighbours'."""
    if home := scene.home:
        yield from _kinds_of_operators(home)
        yield from _made(home)
        yield from _missing(home)
        yield from _system(home)


def _rbac(id: str, sentence: str, request: Request, **twin: Any) -> Attack:
    return attack(f"rbac-{id}", "rbac", sentence, denial.RBAC, request, **twin)


def _kinds_of_operators(place: Place) -> Iterator[Attack]:
    for name, (sentence, api, plural, namespaced) in OPERATORS.items():
        path = group(api, place.name if namespaced else None, plural, GONE)
        request = Request("PATCH", path, {"spec": {}}, place.developer, MERGE)
        yield _rbac(f"of-{name}", sentence, request, twin_who=None, twin_missing=True)


def _object(api_version: str, kind: str, **fields: Any) -> dict[str, Any]:
    return _named(POD_NAME, api_version, kind, **fields)


def _named(name: str, api_version: str, kind: str, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **fields}


def _made(place: Place) -> Iterator[Attack]:
    """Objects that the API server itself knows; the platform may make each."""
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
    everybody = [{"kind": "Group", "group": {"name": "system:authenticated"}}]
    flow = {
        "priorityLevelConfiguration": {"name": "exempt"},
        "matchingPrecedence": 2,
        "rules": [
            {"subjects": everybody, "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["/healthz"]}]},
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
            "answer in the API server's place",
            "apiregistration.k8s.io/v1",
            "APIService",
            "apiservices",
            {"spec": aggregated},
        ),
        (
            "flow",
            "have its requests go before everybody's",
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
            "bind a guard to nothing",
            "admissionregistration.k8s.io/v1",
            "ValidatingAdmissionPolicyBinding",
            "validatingadmissionpolicybindings",
            {"spec": {"policyName": "x", "validationActions": ["Audit"]}},
        ),
        (
            "validating-hook",
            "refuse everybody's work",
            "admissionregistration.k8s.io/v1",
            "ValidatingWebhookConfiguration",
            "validatingwebhookconfigurations",
            {"webhooks": []},
        ),
        (
            "review",
            "find out what others may do",
            "authorization.k8s.io/v1",
            "SubjectAccessReview",
            "subjectaccessreviews",
            {"spec": {"user": "somebody", "resourceAttributes": {"verb": "get", "resource": "secrets"}}},
        ),
    )
    for name, sentence, api, kind, plural, fields in parts:
        made = _object(api, kind, **fields)
        if kind == "SubjectAccessReview":
            made["metadata"] = {}
        elif kind == "CustomResourceDefinition":
            made["metadata"]["name"] = "verifies.attack.example"
        elif kind == "APIService":
            made["metadata"]["name"] = "v1.attack.example"
        request = Request("POST", group(api, None, plural), made, place.developer)
        yield _rbac(f"make-{name}", sentence, request, twin_who=None)
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
        ("lease", "hold a lease that elects a leader at home", "coordination.k8s.io/v1", lease),
        ("ingress", "publish itself by an ingress", "networking.k8s.io/v1", ingress),
    ):
        plural = f"{body['kind'].lower()}{'es' if body['kind'].endswith('s') else 's'}"
        request = Request("POST", group(path, place.name, plural), body, place.developer)
        yield _rbac(f"make-{name}", sentence, request, twin_who=None)
    for where in ("kube-system", "default"):
        request = Request("POST", group("coordination.k8s.io/v1", where, "leases"), lease, place.developer)
        yield _rbac(f"lease-in-{where}", "take the leader's place in the system", request, twin_who=None)
    event["metadata"]["namespace"] = "kube-system"
    request = Request("POST", core("kube-system", "events"), event, place.developer)
    yield _rbac("event-in-system", "write events about the system", request, twin_who=None)


def _missing(place: Place) -> Iterator[Attack]:
    """Subresources of objects that are not there: whoever may is told so."""
    where = place.name
    binding = _named(GONE, "v1", "Binding", target={"kind": "Node", "name": "node-1"})
    parts = {
        "node-label": (
            "have a node's GPUs cut anew by its label",
            Request(
                "PATCH", f"/api/v1/nodes/{GONE}", {"metadata": {"labels": {"nvidia.com/mig.config": "all-1g.5gb"}}}
            ),
        ),
        "node-status": ("say what a node offers", Request("PATCH", f"/api/v1/nodes/{GONE}/status", {"status": {}})),
        "node-proxy": ("run a command by the node's own server", Request("GET", f"/api/v1/nodes/{GONE}/proxy/pods")),
        "service-proxy": (
            "reach past network policies by a service",
            Request("GET", core(where, "services", GONE, "proxy/")),
        ),
        "service-status": (
            "take over an address by a service's status",
            Request("PATCH", core(where, "services", GONE, "status"), {"status": {}}),
        ),
        "namespaced-binding": (
            "bind a pod to a node, in the older way",
            Request("POST", core(where, "bindings"), binding),
        ),
        "approval": (
            "approve a certificate",
            Request(
                "PATCH",
                group("certificates.k8s.io/v1", None, "certificatesigningrequests", GONE, "approval"),
                {"status": {}},
            ),
        ),
        "evict": (
            "evict a pod",
            Request("POST", core("kube-system", "pods", GONE, "eviction"), _named(GONE, "policy/v1", "Eviction")),
        ),
        "namespace-status": (
            "change its namespace by its status",
            Request("PATCH", f"/api/v1/namespaces/{where}/status", {"metadata": {"annotations": {"a": "b"}}}),
        ),
        "namespace-finalize": (
            "change its namespace by its finalizers",
            Request("PUT", f"/api/v1/namespaces/{where}/finalize", _named(where, "v1", "Namespace", spec={})),
        ),
        "claim-status": (
            "pass for bound to another's volume",
            Request("PATCH", core(where, "persistentvolumeclaims", GONE, "status"), {"status": {}}),
        ),
        "job-status": (
            "have a job taken for done",
            Request("PATCH", group("batch/v1", where, "jobs", GONE, "status"), {"status": {}}),
        ),
        "quota-status": (
            "have its use forgotten",
            Request("PATCH", core(where, "resourcequotas", GONE, "status"), {"status": {"used": {}}}),
        ),
    }
    for name, (sentence, asked) in parts.items():
        kind = MERGE if asked.method == "PATCH" else "application/json"
        request = Request(asked.method, asked.path, asked.body, place.developer, kind)
        yield _rbac(f"by-{name}", sentence, request, twin_who=None, twin_missing=True)


def _system(place: Place) -> Iterator[Attack]:
    """What runs the cluster, changed or emptied by a tenant."""
    for name, sentence, path in (
        ("system-pods", "delete all of the system's pods", core("kube-system", "pods")),
        ("system-config", "delete the system's config maps", core("kube-system", "configmaps")),
        (
            "everybodys-bindings",
            "delete its namespace's bindings",
            group("rbac.authorization.k8s.io/v1", place.name, "rolebindings"),
        ),
    ):
        yield _rbac(f"delete-{name}", sentence, Request("DELETE", path, None, place.developer), twin_who=None)
