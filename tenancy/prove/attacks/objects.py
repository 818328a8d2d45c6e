"""Attacks through config maps, secrets, service accounts, services, claims and namespaces."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_network
from typing import Any
from urllib.parse import urlencode

from tenancy.catalog import gpus
from tenancy.catalog import vocabulary as words
from tenancy.live.api import Impersonation, collection
from tenancy.planning.kubernetes.namespaces import namespace_meta
from tenancy.planning.kubernetes.network import DEFAULT_DENY
from tenancy.prove.attacks.model import (
    ABSENT,
    APPLY,
    JSON_PATCH,
    MERGE,
    STRATEGIC,
    Attack,
    Request,
    attack,
    core,
    escaped,
    put,
    skipped,
)
from tenancy.prove.attacks.scene import POD_NAME, AttackedNamespace, Scene
from tenancy.rules.identity import ENGINE
from tenancy.rules.values import internet_block
from tenancy.schema.people import Role

CLUSTER_ADMIN = Impersonation("verify-cluster-admin", ("system:masters",))
"""An identity with every right of RBAC outside of the platform's group: only guards refuse it."""

VISIBLE = gpus.DEVICE_VARIABLES[0]


def object_attacks(scene: Scene) -> Iterator[Attack]:
    """Everything in a namespace that is not a workload, and the namespace itself."""
    home = scene.home
    if home is None:
        yield skipped("objects", "gpu-04", "attack through objects", "no tenant has a developer or an owner")
    else:
        yield from _keys(scene, home)
        yield from _identities(scene)
        yield from _services(scene, home)
        yield from _claims(scene, home)
        yield from _budgets(scene, home)
    yield from _network_policies(scene)
    for place in scene.places:
        yield from _namespace(scene, place)
    if scene.places:
        yield from _namespace_ways(scene, scene.places[0])


def _body(kind: str, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": POD_NAME}, **fields}


def _create(
    scene: Scene,
    place: AttackedNamespace,
    rule: str,
    name: str,
    sentence: str,
    twin: Any,
    at: str,
    bad: Any,
    who: Impersonation | None = None,
) -> Attack:
    plural = twin["kind"].lower() + "s"
    request = Request("POST", core(place.name, plural), put(twin, at, bad), who or place.developer)
    slug = f"{rule}-{plural.removesuffix('s')}-{name}"
    return attack(slug, rule, sentence, scene.guard(rule, plural), request, twin_body=twin)


def _keys(scene: Scene, place: AttackedNamespace) -> Iterator[Attack]:
    smuggle = "smuggle a device variable into envFrom"
    plain = _body("ConfigMap", data={"MODE": "fast"})
    yield _create(scene, place, "gpu-04", "key", f"{smuggle} by a config map", plain, f"/data/{VISIBLE}", "all")
    yield _create(scene, place, "gpu-04", "imex", f"{smuggle} for IMEX", plain, "/data/NVIDIA_IMEX_CHANNELS", "0")
    secret = _body("Secret", data={"MODE": "ZmFzdA=="})
    yield _create(scene, place, "gpu-04", "key", f"{smuggle} by a secret", secret, f"/data/{VISIBLE}", "YWxs")
    text = _body("Secret", stringData={"MODE": "fast"})
    yield _create(
        scene, place, "gpu-04", "text", f"{smuggle} by a secret's text", text, f"/stringData/{VISIBLE}", "all"
    )
    # Every namespace has this one, so that an update can be tried without making anything.
    there = core(place.name, "configmaps", "kube-root-ca.crt")
    patch = {"data": {"MODE": "fast"}}
    for name, kind, bad, good in (
        ("merge", MERGE, put(patch, f"/data/{VISIBLE}", "all"), patch),
        ("strategic", STRATEGIC, put(patch, f"/data/{VISIBLE}", "all"), patch),
        (
            "json",
            JSON_PATCH,
            [{"op": "add", "path": f"/data/{VISIBLE}", "value": "all"}],
            [{"op": "add", "path": "/data/MODE", "value": "all"}],
        ),
    ):
        yield attack(
            f"gpu-04-configmap-patch-{name}",
            "gpu-04",
            f"{smuggle} by a {name} patch",
            scene.guard("gpu-04", "configmaps"),
            Request("PATCH", there, bad, place.developer, kind),
            twin_body=good,
        )
    account = {"kubernetes.io/service-account.name": "default"}
    token = put(_body("Secret", type="Opaque"), "/metadata/annotations", account)
    kind = "kubernetes.io/service-account-token"
    yield _create(scene, place, "id-02", "token", "create a token that never expires", token, "/type", kind)


def _identities(scene: Scene) -> Iterator[Attack]:
    owned = next((found for found in scene.places if found.person(Role.OWNER)), None)
    sentence = "take another tenant's AWS role by annotation"
    if owned is None:
        yield skipped("id-01-serviceaccount-role", "id-01", sentence, "no tenant has an owner")
        return
    owner = owned.person(Role.OWNER)
    plain = _body("ServiceAccount")
    plain["metadata"]["annotations"] = {"note": "hello"}
    at = f"/metadata/annotations/{escaped('eks.amazonaws.com/role-arn')}"
    arn = "arn:aws:iam::111122223333:role/another-tenant"
    yield _create(scene, owned, "id-01", "role", sentence, plain, at, arn, owner)
    never, at_end = "keep a service account, and its namespace, from ever being removed", ["bank.example/keep"]
    yield _create(scene, owned, "avail-03", "finalizer", never, plain, "/metadata/finalizers", at_end, owner)
    patch = {"metadata": {"annotations": {"note": "hello"}}}
    there = core(owned.name, "serviceaccounts", "default")
    engine = "present its own change as the platform's"
    for name, kind in (("merge", MERGE), ("apply", APPLY)):
        body = {"apiVersion": "v1", "kind": "ServiceAccount", **patch} if kind == APPLY else patch
        forced = "&force=true" if kind == APPLY else ""
        path = f"{there}?fieldManager={{}}{forced}"
        request = Request("PATCH", path.format(f"{ENGINE}-4f3c2b1a"), body, owner, kind)
        guard, mine = scene.guard("id-10", "serviceaccounts"), path.format("verify")
        yield attack(f"id-10-serviceaccount-{name}", "id-10", engine, guard, request, twin_path=mine)
    request = Request("PATCH", there, put(patch, at, arn), owner, MERGE)
    denier = scene.guard("id-01", "serviceaccounts")
    yield attack(
        "id-01-serviceaccount-update", "id-01", f"{sentence} of its default account", denier, request, twin_body=patch
    )


def _services(scene: Scene, place: AttackedNamespace) -> Iterator[Attack]:
    spec = {"type": "ClusterIP", "selector": {"app": "x"}, "ports": [{"port": 80}]}
    plain = _body("Service", spec=spec)
    plain["metadata"]["annotations"] = {"note": "hello"}
    kind = "/spec/type"
    yield _create(scene, place, "net-01", "node-port", "open a port on every node", plain, kind, "NodePort")
    yield _create(
        scene, place, "net-01", "load-balancer", "publish itself to the internet", plain, kind, "LoadBalancer"
    )
    sentence = "redirect clients to a name of its choice"
    elsewhere = "payments.bank.example"
    yield _create(scene, place, "net-01", "external-name", sentence, plain, "/spec/externalName", elsewhere)
    sentence = "take over traffic to a foreign address"
    yield _create(scene, place, "net-01", "external-ip", sentence, plain, "/spec/externalIPs", ["198.51.100.7"])
    at = f"/metadata/annotations/{escaped('service.beta.kubernetes.io/aws-load-balancer-scheme')}"
    sentence = "ask for an internet-facing load balancer"
    yield _create(scene, place, "net-01", "annotation", sentence, plain, at, "internet-facing")
    at = f"/metadata/annotations/{escaped('external-dns.alpha.kubernetes.io/hostname')}"
    sentence = "claim a host name of the company"
    yield _create(scene, place, "net-01", "host-name", sentence, plain, at, "payments.bank.example")
    at = f"/metadata/annotations/{escaped('io.cilium/global-service')}"
    yield _create(scene, place, "net-01", "other-clusters", "share the service with other clusters", plain, at, "true")
    address = scene.address or str(ip_network(place.environment.service_cidrs[0])[251])
    sentence = "take an address reserved for another service"
    yield _create(scene, place, "net-11", "address", sentence, plain, "/spec/clusterIP", address)
    headless = put(plain, "/spec/clusterIP", "None")
    request = Request("POST", core(place.name, "services"), put(headless, "/spec/clusterIP", address), place.developer)
    guard = scene.guard("net-11", "services")
    yield attack("net-11-service-chosen", "net-11", sentence, guard, request, twin_body=headless)


def _claims(scene: Scene, place: AttackedNamespace) -> Iterator[Attack]:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": place.environment.claim_classes[0],
    }
    plain = _body("PersistentVolumeClaim", spec=spec)
    sentence = "bind a volume that another tenant released"
    yield _create(scene, place, "stor-03", "volume", sentence, plain, "/spec/volumeName", "pv-of-another-tenant")
    anything = {"matchLabels": {"team": "another-team"}}
    yield _create(scene, place, "stor-03", "selector", f"{sentence}, by its labels", plain, "/spec/selector", anything)
    yield _create(scene, place, "stor-03", "classless", f"{sentence}, of no class", plain, "/spec/storageClassName", "")
    noted = put(plain, "/metadata/annotations", {"note": "hello"})
    at = "/metadata/annotations/volume.beta.kubernetes.io~1storage-class"
    yield _create(scene, place, "stor-03", "old-annotation", f"{sentence}, by an annotation", noted, at, "")


def _budgets(scene: Scene, place: AttackedNamespace) -> Iterator[Attack]:
    twin = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": POD_NAME},
        "spec": {"selector": {"matchLabels": {"app": "x"}}, "maxUnavailable": 1},
    }
    path = collection("policy/v1", "PodDisruptionBudget", place.name)
    guard = scene.guard("avail-02", "poddisruptionbudgets")
    sentence = "keep a node from ever being drained"
    staying = put(put(twin, "/spec/maxUnavailable", ABSENT), "/spec/minAvailable", 0)
    for name, good, at, bad in (
        ("none", twin, "maxUnavailable", 0),
        ("padded", put(twin, "/spec/maxUnavailable", "10%"), "maxUnavailable", "00%"),
        ("all-stay", staying, "minAvailable", "0100%"),
        ("many-stay", staying, "minAvailable", 1000),
        ("no-number", twin, "maxUnavailable", ABSENT),
    ):
        request = Request("POST", path, put(good, f"/spec/{at}", bad), place.developer)
        yield attack(f"avail-02-budget-{name}", "avail-02", sentence, guard, request, twin_body=good)


def _network_policies(scene: Scene) -> Iterator[Attack]:
    """Network policies of a tenant that open more than its file, and changes of the platform's policies."""
    for place in list({place.tenant.tenant: place for place in reversed(scene.manned)}.values())[::-1]:
        yield from _opened(scene, place)
        yield from _default_denies(scene, place)


def _opened(scene: Scene, place: AttackedNamespace) -> Iterator[Attack]:
    path = collection(_POLICIES, "NetworkPolicy", place.name)
    guard = scene.guard("net-02", "networkpolicies")
    inside = {"podSelector": {"matchLabels": {"app": "x"}}}

    def tried(name: str, sentence: str, twin: Any, at: str, bad: Any) -> Attack:
        request = Request("POST", path, put(twin, at, bad), place.developer)
        return attack(f"net-02-policy-{name}@{place.name}", "net-02", sentence, guard, request, twin_body=twin)

    other, tenant = scene.other(place), place.tenant
    for direction, side, word in (("ingress", "from", "in"), ("egress", "to", "out")):
        twin = _policy({direction: [{side: [inside]}]})
        rule = f"/spec/{direction}/0/{side}"
        peer = f"{rule}/0/namespaceSelector"
        sentence = "allow all ingress" if word == "in" else "allow all egress"
        yield tried(f"{word}-all", sentence, twin, rule, ABSENT)
        yield tried(f"{word}-none-named", f"{sentence}, by an empty list of peers", twin, rule, [])
        yield tried(f"{word}-spaces", f"{sentence}, by peers in every namespace", twin, peer, {})
        exists = {"matchExpressions": [{"key": words.TENANT, "operator": "Exists"}]}
        yield tried(f"{word}-tenants", f"{sentence}, by peers of every tenant", twin, peer, exists)
        if other:
            named = {words.TENANT: {words.TENANT: other.tenant.tenant}, "name": {words.SPACE_NAME: other.name}}
            for what, labels in named.items():
                yield tried(
                    f"{word}-other-{what.rpartition('/')[2]}",
                    f"allow {direction} {side} another tenant, by its {what.rpartition('/')[2]}",
                    twin,
                    peer,
                    {"matchLabels": labels},
                )
        if not tenant.between_namespaces:
            mine = {"matchLabels": {words.TENANT: tenant.tenant}}
            yield tried(
                f"{word}-parts",
                f"allow {direction} {side} a namespace that the tenant's file isolates",
                twin,
                peer,
                mine,
            )
        known = [way for way in (tenant.egress if word == "out" else tenant.ingress) if way.cidr]
        for way in known[:1]:
            port = {"protocol": way.protocol, "port": way.port}
            twin = _policy({direction: [{side: [{"ipBlock": {"cidr": way.cidr}}], "ports": [port]}]})
            cidr, ports = f"{rule}/0/ipBlock/cidr", f"/spec/{direction}/0/ports"
            yield tried(f"{word}-anywhere", f"allow {direction} {side} every address", twin, cidr, "0.0.0.0/0")
            peers = [{"ipBlock": {"cidr": way.cidr}}, {"ipBlock": internet_block(())}]
            sentence = f"allow {direction} {side} the internet, which the tenant's file does not open"
            yield tried(f"{word}-internet", sentence, twin, rule, peers)
            metadata = "169.254.169.254/32"
            yield tried(f"{word}-metadata", f"allow {direction} {side} the machine's metadata", twin, cidr, metadata)
            wider = f"{ports}/0/endPort"
            yield tried(f"{word}-any-port", f"allow {direction} on every port", twin, ports, ABSENT)
            yield tried(f"{word}-port", f"allow {direction} on another port", twin, f"{ports}/0/port", 65535)
            yield tried(f"{word}-ports", f"allow {direction} on a range of ports", twin, wider, 65535)
            sentence = f"allow {direction} by another transport"
            yield tried(f"{word}-transport", sentence, twin, f"{ports}/0/protocol", "SCTP")


def _default_denies(scene: Scene, place: AttackedNamespace) -> Iterator[Attack]:
    """The platform's own policies, changed and deleted by a developer and by a cluster admin."""
    path = f"{collection(_POLICIES, 'NetworkPolicy', place.name)}/{DEFAULT_DENY}"
    guard = scene.guard("net-10", "networkpolicies")
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "of-mine", "uid": "00000000-0000-0000-0000-000000000001"}
    patches = {
        "narrow": ("leave pods without the default-deny", {"spec": {"podSelector": {"matchLabels": {"app": "x"}}}}),
        "open": ("let the default-deny allow everything", {"spec": {"egress": [{}]}}),
        "orphan": ("relabel the default-deny as its own", {"metadata": {"labels": {words.ENVIRONMENT: None}}}),
        "owner": ("have the default-deny collected as garbage", {"metadata": {"ownerReferences": [owner]}}),
    }
    for who, identity in (("developer", place.developer), ("admin", CLUSTER_ADMIN)):
        for name, (sentence, body) in patches.items():
            request = Request("PATCH", path, body, identity, MERGE)
            id = f"net-10-policy-{name}-by-{who}@{place.name}"
            yield attack(id, "net-10", sentence, guard, request, twin_who=None)
        request = Request("DELETE", path, None, identity)
        id = f"net-10-policy-delete-by-{who}@{place.name}"
        yield attack(id, "net-10", "delete the default-deny", guard, request, twin_who=None)
    twin = _policy({"ingress": [{"from": [{"podSelector": {}}]}]})
    twin["metadata"]["labels"] = {"app": "x"}
    at = f"/metadata/labels/{escaped(words.ENVIRONMENT)}"
    body = put(twin, at, place.environment.environment)
    request = Request("POST", collection(_POLICIES, "NetworkPolicy", place.name), body, place.developer)
    sentence = "create a policy that only the platform could delete"
    yield attack(f"net-10-policy-forged@{place.name}", "net-10", sentence, guard, request, twin_body=twin)


_POLICIES = "networking.k8s.io/v1"


def _policy(rules: dict[str, Any]) -> dict[str, Any]:
    types = [direction.capitalize() for direction in rules]
    spec = {"podSelector": {"matchLabels": {"app": "x"}}, "policyTypes": types, **rules}
    return {"apiVersion": _POLICIES, "kind": "NetworkPolicy", "metadata": {"name": POD_NAME}, "spec": spec}


def _change(metadata: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": metadata}


def _namespace(scene: Scene, place: AttackedNamespace) -> Iterator[Attack]:
    """Changes that would weaken a namespace's isolation, requested by a cluster admin."""
    path = f"/api/v1/namespaces/{place.name}"
    other = scene.other(place)
    bad: dict[str, tuple[str, dict[str, Any]]] = {
        "pod-security": ("allow privileged pods", {"labels": {words.PSA_ENFORCE: "privileged"}}),
        "tenant": (
            "relabel it as another tenant's",
            {"labels": {words.TENANT: other.tenant.tenant if other else "another-tenant"}},
        ),
        "orphan": ("remove the tenant's label", {"labels": {words.TENANT: None}}),
        "registries": ("allow images from anywhere", {"annotations": {words.ALLOWED_REGISTRIES: "docker.io/"}}),
    }
    for name, (sentence, metadata) in bad.items():
        request = Request("PATCH", path, _change(metadata), CLUSTER_ADMIN, MERGE)
        yield attack(
            f"ns-01-namespace-{name}@{place.name}",
            "ns-01",
            f"{sentence}: {place.name}",
            scene.guard("ns-01", "namespaces"),
            request,
            twin_who=None,
        )
    yield attack(
        f"ns-05-namespace-delete@{place.name}",
        "ns-05",
        f"delete the namespace with its contents: {place.name}",
        scene.guard("ns-05", "namespaces", deleted=True),
        Request("DELETE", path, None, CLUSTER_ADMIN),
        twin_who=None,
    )


def _namespace_ways(scene: Scene, place: AttackedNamespace) -> Iterator[Attack]:
    """The other ways to write a namespace, and the other keys."""
    path = f"/api/v1/namespaces/{place.name}"
    guard = scene.guard("ns-01", "namespaces")
    whole = namespace_meta(place.environment, place.tenant, place.namespace).manifest("v1", "Namespace", {})
    harmless = {"note": "hello"}
    loose = {words.PSA_ENFORCE: "privileged"}
    pointer = f"/metadata/labels/{escaped(words.PSA_ENFORCE)}"
    stripped = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": place.name}}
    applied = f"{path}?{urlencode({'fieldManager': 'verify', 'force': 'true'})}"
    ways = {
        "json-patch": Request(
            "PATCH", path, [{"op": "replace", "path": pointer, "value": "privileged"}], CLUSTER_ADMIN, JSON_PATCH
        ),
        "strategic-patch": Request("PATCH", path, _change({"labels": loose}), CLUSTER_ADMIN, STRATEGIC),
        "apply": Request("PATCH", applied, put(stripped, "/metadata/labels", loose), CLUSTER_ADMIN, APPLY),
        "replace": Request("PUT", path, stripped, CLUSTER_ADMIN),
        "status": Request("PATCH", f"{path}/status", _change({"labels": loose}), CLUSTER_ADMIN, MERGE),
        "finalize": Request("PUT", f"{path}/finalize", {**stripped, "spec": {}}, CLUSTER_ADMIN),
    }
    for name, request in ways.items():
        yield attack(
            f"ns-01-way-{name}", "ns-01", f"weaken a namespace's labels by {name}", guard, request, twin_who=None
        )
    for name, key in {
        "admin-access": "resource.kubernetes.io/admin-access",
        "kueue": "kueue.x-k8s.io/managed",
        "cost-center": "cost-center",
        "environment": words.ENVIRONMENT,
        "pod-security-version": words.PSA_VERSION,
    }.items():
        body = _change({"labels": {**harmless, key: "v1.0" if key == words.PSA_VERSION else "true"}})
        request = Request("PATCH", path, body, CLUSTER_ADMIN, MERGE)
        good = _change({"labels": harmless})
        yield attack(f"ns-01-label-{name}", "ns-01", f"set the label {key}", guard, request, twin_body=good)
    fresh = put(whole, "/metadata/name", f"{POD_NAME}--extra")
    request = Request("POST", "/api/v1/namespaces", fresh, CLUSTER_ADMIN)
    sentence = "create a namespace labelled as a tenant's"
    yield attack("ns-01-new-namespace", "ns-01", sentence, guard, request, twin_who=None)
    # A namespace of no tenant that every cluster has.
    request = Request("POST", core("default", "pods"), place.pod(), CLUSTER_ADMIN)
    sentence = "run in a namespace of no tenant"
    home = core(place.name, "pods")
    yield attack("ns-02-pod", "ns-02", sentence, scene.guard("ns-02", "pods"), request, twin_path=home)
