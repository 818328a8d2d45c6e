"""Attacks on GPUs and allowances that a tenant's file withholds, or grants to some people only."""

from __future__ import annotations

from collections.abc import Iterator

from tenancy.catalog import vocabulary as words
from tenancy.live.api import collection
from tenancy.planning.kubernetes.namespaces import allowances
from tenancy.prove.attacks.model import ABSENT, Attack, Request, attack, escaped, skipped, value_at
from tenancy.prove.attacks.scene import POD_NAME, Scene
from tenancy.prove.attacks.workloads import (
    RUNTIME,
    SECURITY,
    Case,
    attack_of,
    kinds_of,
    of_api,
    workload,
)


def withheld_attacks(scene: Scene) -> Iterator[Attack]:
    """Fields that an allowance lets pods leave out, where the namespace lacks it: each rule in the first such place."""
    yield from granted_attacks(scene)
    selector = f"/spec/nodeSelector/{escaped(words.TENANT)}"
    root = f"{SECURITY}/readOnlyRootFilesystem"
    image = "/spec/containers/0/image"
    allowed = words.Allowance
    for rule, sentence, withheld, at, bad in (
        ("gpu-01", "run on the node's kernel, outside of its sandbox", allowed.NODE_RUNTIME, RUNTIME, ABSENT),
        ("sched-03", "run on nodes shared with other tenants", allowed.ANY_NODE, selector, ABSENT),
        ("sched-08", "run on a node beside another tenant's pods", allowed.BESIDE_OTHERS, "/spec/affinity", ABSENT),
        ("pod-03", "overwrite its own programs", allowed.WRITABLE_ROOT, root, False),
        ("img-02", "run an image by its tag", allowed.IMAGE_TAGS, image, ABSENT),
    ):
        strict = (p for p in scene.manned if withheld not in allowances(p.environment, p.tenant, p.namespace))
        place = next(strict, None)
        if place is None:
            yield skipped(f"{rule}-{withheld}", rule, sentence, f"every namespace has {withheld}")
            continue
        pod = place.pod()
        good = value_at(pod, at)
        bad = good.partition("@")[0] if rule == "img-02" else bad
        for kind in kinds_of(place):
            case = Case(rule, withheld.value, sentence, at, bad, good)
            yield attack_of(scene, place, case, kind)


def granted_attacks(scene: Scene) -> Iterator[Attack]:
    """Work that asks for GPUs where a grant by name (gpu-users) is needed, by a developer without one."""
    sentence = "run on GPUs without a grant"
    place = next((p for p in scene.manned if p.tenant.gpu_users and p.held and p.developer != p.without_grant), None)
    if place is None:
        yield skipped("gpu-10", "gpu-10", sentence, "no namespace has GPUs granted by name")
        return
    flavor = next(iter(place.held))
    for kind in kinds_of(place):
        pod = place.pod({flavor: 1})
        path = collection(of_api(kind), kind, place.name)
        yield attack(
            f"gpu-10-{kind.lower()}-not-granted",
            "gpu-10",
            sentence if kind == "Pod" else f"through a {kind}: {sentence}",
            scene.guard("gpu-10", path.rpartition("/")[2]),
            Request("POST", path, workload(kind, pod), place.without_grant),
            twin_who=place.developer,
        )
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "of-another-user"}
    scaler = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": POD_NAME},
        "spec": {"scaleTargetRef": target, "minReplicas": 2, "maxReplicas": 4},
    }
    path = collection("autoscaling/v2", "HorizontalPodAutoscaler", place.name)
    guard = scene.guard("gpu-10", "horizontalpodautoscalers")
    request = Request("POST", path, scaler, place.without_grant)
    more = "scale up another user's work on GPUs"
    yield attack("gpu-10-autoscaler-not-granted", "gpu-10", more, guard, request, twin_who=place.developer)
