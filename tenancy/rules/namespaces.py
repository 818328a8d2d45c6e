"""Namespaces and names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

from tenancy.catalog import vocabulary
from tenancy.catalog.controllers import NAMESPACE_CONTROLLERS
from tenancy.kube.requests import APPLY, JSON_PATCH, MERGE, STRATEGIC, core
from tenancy.rules.attacks import Attack, Request, attack, escaped, put
from tenancy.rules.expressions import IN_TENANTS_NAMESPACE, by_platform, cel
from tenancy.rules.model import GuardSubject, Rule, Severity
from tenancy.rules.scene import POD_NAME, AttackPlace, AttackScene
from tenancy.rules.workloads import CLUSTER_ADMIN

# Attacks


def _labels(scene: AttackScene) -> Iterator[Attack]:
    for place in scene.places:
        yield from (attack for attack in _labels_of(scene, place) if attack.rule == "ns-01")
    if scene.places:
        yield from (attack for attack in _ways(scene, scene.places[0]) if attack.rule == "ns-01")
    if scene.unmanaged:
        yield from _unmanaged_names(scene, scene.unmanaged)


def _other_places(scene: AttackScene) -> Iterator[Attack]:
    if scene.places:
        yield from (attack for attack in _ways(scene, scene.places[0]) if attack.rule == "ns-02")


def _deletions(scene: AttackScene) -> Iterator[Attack]:
    for place in scene.places:
        yield from (attack for attack in _labels_of(scene, place) if attack.rule == "ns-05")


def _change(metadata: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": metadata}


def _labels_of(scene: AttackScene, place: AttackPlace) -> Iterator[Attack]:
    """Changes that would weaken a namespace's isolation, requested by a cluster admin."""
    path = f"/api/v1/namespaces/{place.name}"
    other_namespace = scene.other_tenant_namespace(place)
    bad: dict[str, tuple[str, dict[str, Any]]] = {
        "pod-security": ("allow privileged pods", {"labels": {vocabulary.PSA_ENFORCE: "privileged"}}),
        "tenant": (
            "relabel it as another tenant's",
            {"labels": {vocabulary.TENANT: other_namespace.tenant.tenant if other_namespace else "another-tenant"}},
        ),
        "orphan": ("remove the tenant's label", {"labels": {vocabulary.TENANT: None}}),
        "registries": ("allow images from anywhere", {"annotations": {vocabulary.ALLOWED_REGISTRIES: "docker.io/"}}),
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


def _ways(scene: AttackScene, place: AttackPlace) -> Iterator[Attack]:
    """The other ways to write a namespace, and the other keys."""
    path = f"/api/v1/namespaces/{place.name}"
    guard = scene.guard("ns-01", "namespaces")
    manifest = place.manifest()
    harmless = {"note": "hello"}
    loose = {vocabulary.PSA_ENFORCE: "privileged"}
    pointer = f"/metadata/labels/{escaped(vocabulary.PSA_ENFORCE)}"
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
        "environment": vocabulary.ENVIRONMENT,
        "pod-security-version": vocabulary.PSA_VERSION,
    }.items():
        body = _change({"labels": {**harmless, key: "v1.0" if key == vocabulary.PSA_VERSION else "true"}})
        request = Request("PATCH", path, body, CLUSTER_ADMIN, MERGE)
        good = _change({"labels": harmless})
        yield attack(f"ns-01-label-{name}", "ns-01", f"set the label {key}", guard, request, twin_body=good)
    fresh = put(manifest, "/metadata/name", f"{POD_NAME}--extra")
    request = Request("POST", "/api/v1/namespaces", fresh, CLUSTER_ADMIN)
    sentence = "create a namespace labelled as a tenant's"
    yield attack("ns-01-new-namespace", "ns-01", sentence, guard, request, twin_who=None)
    # A namespace of no tenant that every cluster has.
    request = Request("POST", core("default", "pods"), place.pod(), CLUSTER_ADMIN)
    sentence = "run in a namespace of no tenant"
    home = core(place.name, "pods")
    yield attack("ns-02-pod", "ns-02", sentence, scene.guard("ns-02", "pods"), request, twin_path=home)


def _unmanaged_names(scene: AttackScene, name: str) -> Iterator[Attack]:
    """Its owners may change its Pod Security level, and none of the labels that make a namespace a tenant's."""
    guard, path = scene.guard("ns-01", "namespaces"), f"/api/v1/namespaces/{name}"
    free = {"labels": {vocabulary.PSA_ENFORCE: "privileged"}}
    for slug, metadata in {
        "tenant": {"labels": {vocabulary.PSA_ENFORCE: "privileged", vocabulary.TENANT: "a-tenant"}},
        "queue": {"labels": {vocabulary.PSA_ENFORCE: "privileged", "kueue.x-k8s.io/managed": "true"}},
    }.items():
        request = Request("PATCH", path, {"metadata": metadata}, CLUSTER_ADMIN, MERGE)
        text = "label an unmanaged namespace as a tenant's"
        yield attack(f"ns-01-unmanaged-{slug}", "ns-01", text, guard, request, twin_body={"metadata": free})
    applied = f"{path}?{urlencode({'fieldManager': 'verify', 'force': 'true'})}"
    labels = {**free["labels"], vocabulary.TENANT: "a-tenant"}
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
    request = Request("PATCH", applied, manifest, CLUSTER_ADMIN, "application/apply-patch+yaml")
    text = "label an unmanaged namespace as a tenant's by an apply"
    twin = put(manifest, "/metadata/labels", free["labels"])
    yield attack("ns-01-unmanaged-apply", "ns-01", text, guard, request, twin_body=twin)


RULES: tuple[Rule, ...] = (
    Rule(
        id="name-01",
        title=(
            "a name is a DNS label without '--', not reserved, at most 30 characters for a tenant and 31 for a "
            "namespace"
        ),
        why="derived names are <tenant>--<namespace>: any other form could make two tenants' names collide",
        fix="use lower-case letters, digits and single dashes",
        severity=Severity.CRITICAL,
    ),
    Rule(
        id="name-02",
        title="a name identifies one thing in an environment",
        why="two tenants with one name would own each other's objects",
        fix="rename one of the two",
        severity=Severity.CRITICAL,
    ),
    Rule(
        id="name-03",
        title=(
            "a tenant's namespace has a name of at most 63 characters that is neither reserved nor the platform's nor "
            "unmanaged, with '--' only after its tenant's name"
        ),
        why="guards do not apply in the platform's namespaces, and a name with '--' says whose namespace it is",
        fix="change the namespace's namespace-name, or the pattern namespace-name in environment.yaml",
        severity=Severity.CRITICAL,
    ),
    Rule(
        id="ns-01",
        title="only the platform sets labels and annotations of a tenant's namespace",
        why="quota, queue, guards and bill all depend on the namespace's labels",
        fix="ask the platform team to change the tenant's spec file, which they are made from",
        severity=Severity.CRITICAL,
        guards={
            GuardSubject.NAMESPACES: lambda facts: (
                f"{by_platform(facts.platform_group)} || (variables.labelsKept && variables.annotationsKept)"
            )
        },
        attacks=(_labels,),
    ),
    Rule(
        id="ns-02",
        title="a workload runs only in a namespace that belongs to a tenant or to the platform",
        why="guards have no data on a namespace without labels, and its cost has no owner",
        fix="create the namespace through a tenant file, or list it under platform.namespaces or "
        "platform.unmanaged-namespaces",
        severity=Severity.CRITICAL,
        guards={GuardSubject.NAMESPACE_OF_WORK: IN_TENANTS_NAMESPACE},
        attacks=(_other_places,),
    ),
    Rule(
        id="ns-03",
        title="a tenant's namespace enforces the restricted Pod Security level, pinned to a version",
        why="below restricted, a pod can reach the node, and with it every tenant on the node",
        fix="set pod-security to restricted, or write an exception with an end date",
        severity=Severity.CRITICAL,
        fix_of_object="set the labels enforce: restricted and enforce-version: v1.36, or the cluster's minor version",
        waivable=True,
    ),
    Rule(
        id="ns-04",
        title="every tenant namespace has a quota, a limit range and a default-deny network policy",
        why="a namespace without one of them has no limits or accepts all traffic",
        fix="create all three with the namespace",
        severity=Severity.CRITICAL,
    ),
    Rule(
        id="ns-05",
        title="only the platform deletes a tenant's namespace",
        why="all objects of the tenant in it are deleted too, and an administrator can mistype a name",
        fix="remove the tenant's file and run tenancy up, as the platform's group",
        guards={
            GuardSubject.REMOVALS: lambda facts: (
                f"{by_platform(facts.platform_group)}"
                f" || request.userInfo.username in {cel(list(NAMESPACE_CONTROLLERS))}"
            )
        },
        attacks=(_deletions,),
    ),
    Rule(
        id="ns-06",
        title=(
            "before guards refuse anything, every namespace with work is the platform's, a tenant's or listed as "
            "unmanaged"
        ),
        why="running pods continue, and their replacements are refused: an outage days after the change",
        fix=(
            "list the namespace under platform.unmanaged-namespaces or platform.namespaces, adopt it by a tenant's "
            "file, or set "
            "guards to audit"
        ),
    ),
    Rule(
        id="ns-07",
        title="a tenant's namespace is removed only after the tenant's file says offboarding",
        why="everything in the namespace is deleted with it, and a file is more easily deleted by mistake than changed",
        fix=(
            "restore the file or the namespace in it; to remove the tenant, write `offboarding: hold` into its "
            "file, and after "
            "the next run `offboarding: remove`; a program of your own makes its namespaces with protect=True"
        ),
        severity=Severity.CRITICAL,
    ),
    Rule(
        id="ns-08",
        title="an exemption of namespaces from the guards has a last day within the next 366",
        why="an exemption that outlives its test suite lets other work bypass the guards",
        fix="renew the date after a review, or remove the entry",
    ),
)
