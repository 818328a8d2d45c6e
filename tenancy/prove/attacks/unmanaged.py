"""Attacks from an unmanaged namespace: on GPUs, on a tenant's name, on a tenant's queue."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

from tenancy.catalog import gpus
from tenancy.catalog import vocabulary as words
from tenancy.kube.objects import Object
from tenancy.prove.attacks.model import MERGE, Attack, Request, attack, core, group, put, skipped
from tenancy.prove.attacks.objects import CLUSTER_ADMIN
from tenancy.prove.attacks.scene import POD_NAME, Scene


def unmanaged_attacks(scene: Scene) -> Iterator[Attack]:
    """Requests of a cluster admin outside of the platform's group, in the first of the unmanaged namespaces."""
    name = scene.unmanaged
    if name is None:
        yield skipped("gpu-12-unmanaged", "gpu-12", "take GPUs outside of every quota", "no namespace is unmanaged")
        return
    yield from _pods(scene, name)
    yield from _names(scene, name)
    if scene.environment.queued:
        yield from _queues(scene, name)


def _pod() -> Object:
    """A pod as an operator may run it and no tenant could: privileged, with a host path."""
    container = {
        "name": "main",
        "image": "docker.io/library/agent:latest",
        "securityContext": {"privileged": True},
        "resources": {"limits": {"cpu": "1"}},
    }
    spec = {
        "containers": [container],
        "hostNetwork": True,
        "tolerations": [{"key": "example.com/own", "operator": "Exists"}],
        "volumes": [{"name": "root", "hostPath": {"path": "/"}}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": POD_NAME}, "spec": spec}


def _pods(scene: Scene, name: str) -> Iterator[Attack]:
    good, guard = _pod(), scene.guard("gpu-12", "pods")
    limits = "/spec/containers/0/resources/limits"
    plugin = {"cpu": "1", gpus.GPU: "1"}
    bad: dict[str, tuple[str, str, Any]] = {
        "gpu": ("ask for a GPU that no quota counts", limits, plugin),
        "slice": ("ask for a slice", limits, {"cpu": "1", "nvidia.com/mig-1g.5gb": "1"}),
        "network": ("ask for a network device of the GPU nodes", limits, {"cpu": "1", gpus.EFA: "1"}),
        "any-taint": ("tolerate every taint", "/spec/tolerations/0", {"operator": "Exists"}),
        "gpu-taint": (
            "tolerate the taint of GPU nodes",
            "/spec/tolerations/0",
            {"key": gpus.GPU_TAINT, "operator": "Exists"},
        ),
        "pool": (
            "tolerate the taint of a tenant's own pool",
            "/spec/tolerations/0",
            {"key": words.POOL, "operator": "Exists"},
        ),
        "node": ("choose its node without the scheduler", "/spec/nodeName", "gpu-node"),
    }
    if scene.environment.devices_by_claim:
        claims = [{"name": "gpu", "resourceClaimName": "mine"}]
        bad["claim"] = ("claim a device", "/spec/resourceClaims", claims)
    for slug, (sentence, pointer, value) in bad.items():
        request = Request("POST", core(name, "pods"), put(good, pointer, value), CLUSTER_ADMIN)
        text = f"{sentence}, from an unmanaged namespace"
        yield attack(f"gpu-12-unmanaged-{slug}", "gpu-12", text, guard, request, twin_body=good)
    init = {"name": "first", "image": "docker.io/library/agent:latest", "resources": {"limits": {"cpu": "1"}}}
    begun = put(good, "/spec/initContainers", [init])
    request = Request(
        "POST", core(name, "pods"), put(begun, "/spec/initContainers/0/resources/limits", plugin), CLUSTER_ADMIN
    )
    text = "ask for a GPU in an init container, from an unmanaged namespace"
    yield attack("gpu-12-unmanaged-init", "gpu-12", text, guard, request, twin_body=begun)


def _names(scene: Scene, name: str) -> Iterator[Attack]:
    """Its owners may change its Pod Security level, and none of the labels that make a namespace a tenant's."""
    guard, path = scene.guard("ns-01", "namespaces"), f"/api/v1/namespaces/{name}"
    free = {"labels": {words.PSA_ENFORCE: "privileged"}}
    for slug, metadata in {
        "tenant": {"labels": {words.PSA_ENFORCE: "privileged", words.TENANT: "a-tenant"}},
        "queue": {"labels": {words.PSA_ENFORCE: "privileged", "kueue.x-k8s.io/managed": "true"}},
    }.items():
        request = Request("PATCH", path, {"metadata": metadata}, CLUSTER_ADMIN, MERGE)
        text = "label an unmanaged namespace as a tenant's"
        yield attack(f"ns-01-unmanaged-{slug}", "ns-01", text, guard, request, twin_body={"metadata": free})
    applied = f"{path}?{urlencode({'fieldManager': 'verify', 'force': 'true'})}"
    labels = {**free["labels"], words.TENANT: "a-tenant"}
    whole = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
    request = Request("PATCH", applied, whole, CLUSTER_ADMIN, "application/apply-patch+yaml")
    text = "label an unmanaged namespace as a tenant's by an apply"
    twin = put(whole, "/metadata/labels", free["labels"])
    yield attack("ns-01-unmanaged-apply", "ns-01", text, guard, request, twin_body=twin)


def _queues(scene: Scene, name: str) -> Iterator[Attack]:
    place = scene.home
    if place is None:
        return
    queue = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "LocalQueue",
        "metadata": {"name": POD_NAME},
        "spec": {"clusterQueue": f"{place.tenant.tenant}--x"},
    }
    request = Request("POST", group("kueue.x-k8s.io/v1beta2", name, "localqueues"), queue, CLUSTER_ADMIN)
    text = "use a tenant's quota from an unmanaged namespace"
    home = group("kueue.x-k8s.io/v1beta2", place.name, "localqueues")
    guard = scene.guard("kueue-05", "localqueues")
    yield attack("kueue-05-unmanaged", "kueue-05", text, guard, request, twin_path=home)
