"""Attacks by the size of objects, through every kind that tenants write, and by labels and finalizers on them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tenancy.catalog import sizes
from tenancy.catalog import vocabulary as words
from tenancy.kube.objects import Object
from tenancy.live import denial
from tenancy.live.api import collection
from tenancy.planning.common.labels import tenant_labels
from tenancy.planning.guards.facts import frameworks
from tenancy.prove.attacks.claims import API as CLAIM_API
from tenancy.prove.attacks.claims import FORMS, claim, device_class
from tenancy.prove.attacks.model import Attack, Request, attack, put
from tenancy.prove.attacks.scene import POD_NAME, AttackedNamespace, Scene
from tenancy.prove.attacks.workloads import BY_CONTROLLERS, ENV, FINALIZERS, Case, attack_of, kinds_of, of_api, workload
from tenancy.schema.people import Role

MANY = sizes.KEYS + 6
FILL = "fill an object until it cannot be updated or removed"
_BESIDE_CLASS = {"cronjobs": "tenancy-cronjobs"}


def size_attacks(scene: Scene) -> Iterator[Attack]:
    """Attacks on the limits of objects' sizes."""
    if home := scene.home:
        yield from _work(scene, home)
        yield from _objects(scene, home)
        yield from _of_sidecars(scene, home)


def _marks(count: int) -> dict[str, str]:
    return {f"note-{number}": "x" for number in range(count)}


def _work(scene: Scene, place: AttackedNamespace) -> Iterator[Attack]:
    others = {framework.kind for framework in frameworks(place.environment)}
    for kind in (*kinds_of(place), *BY_CONTROLLERS):
        path = collection(of_api(kind), kind, place.name)
        resource = path.rpartition("/")[2]
        guard = scene.guard("avail-05", resource)
        large = Case("avail-05", "spec", FILL, f"{ENV}/0/value", "a" * sizes.SPEC, "a" * (sizes.SPEC // 2))
        yield attack_of(scene, place, _with(large, {ENV: [{"name": "NOTE"}]}), kind, guard)
        if kind in BY_CONTROLLERS:
            continue
        for field in ("labels", "annotations"):
            made = workload(kind, place.pod())
            kept = made["metadata"].get(field, {})
            body = put(made, f"/metadata/{field}", {**kept, **_marks(MANY)})
            request = Request("POST", path, body, place.developer)
            # The limit does not apply to the platform, which writes few objects.
            yield attack(f"avail-05-{kind.lower()}-{field}", "avail-05", FILL, guard, request, twin_who=None)
            if kind != "Pod":
                pod = place.pod()
                made = workload(
                    kind, put(pod, f"/metadata/{field}", {**pod["metadata"].get(field, {}), **_marks(MANY)})
                )
                # A Job without labels is given its template's, and another guard judges those.
                made = put(
                    made, "/metadata/labels", {"app.kubernetes.io/name": "x", **made["metadata"].get("labels", {})}
                )
                request = Request("POST", path, made, place.developer)
                policy = "tenancy-frameworks" if kind in others else _BESIDE_CLASS.get(resource, "tenancy-templates")
                yield attack(
                    f"avail-05-{kind.lower()}-template-{field}",
                    "avail-05",
                    f"by a template: {FILL}",
                    denial.guard(policy, "avail-05"),
                    request,
                    twin_who=None,
                )
    pods, guard = collection("v1", "Pod", place.name), scene.guard("avail-05", "pods")
    noted = put(place.pod(), "/metadata/annotations", {"note": "hello"})
    request = Request("POST", pods, put(noted, _NOTE, "a" * sizes.METADATA), place.developer)
    yield attack("avail-05-pod-metadata", "avail-05", f"{FILL}, by an annotation", guard, request, twin_body=noted)
    # An emoji is one character and four bytes.
    wide = put(place.pod(), ENV, [{"name": "NOTE", "value": "x"}])
    request = Request("POST", pods, put(wide, f"{ENV}/0/value", "\U0001f600" * (sizes.SPEC // 3)), place.developer)
    yield attack("avail-05-pod-bytes", "avail-05", f"{FILL}, by few characters", guard, request, twin_body=wide)
    request = Request("POST", pods, put(place.pod(), "/metadata/managedFields", _managers()), place.developer)
    yield attack("avail-05-pod-managers", "avail-05", f"{FILL}, by field managers", guard, request, twin_who=None)


_NOTE = "/metadata/annotations/note"


def _with(case: Case, base: Object) -> Case:
    return Case(case.rule, case.name, case.attack, case.at, case.bad, case.good, base)


def _managers() -> list[Object]:
    """Entries as if many clients had applied fields before."""
    return [
        {
            "manager": f"manager-{number}",
            "operation": "Apply",
            "apiVersion": "v1",
            "time": "2026-01-01T00:00:00Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:metadata": {"f:annotations": {f"f:bank.example/{number}": {}}}},
        }
        for number in range(sizes.MANAGERS + 6)
    ]


def _objects(scene: Scene, place: AttackedNamespace) -> Iterator[Attack]:
    keep = "keep its namespace from ever being removed"
    for body in _kinds(place):
        kind = body["kind"]
        path = collection(body["apiVersion"], kind, place.name)
        resource, who = path.rpartition("/")[2], place.developer
        if kind == "ServiceAccount":
            who = place.person(Role.OWNER)
            if who is None:
                continue
        guard, slug = scene.guard("avail-05", resource), kind.lower()
        request = Request("POST", path, put(body, "/metadata/labels", _marks(MANY)), who)
        yield attack(f"avail-05-{slug}-labels", "avail-05", FILL, guard, request, twin_who=None)
        if kind == "ServiceAccount":
            many = [{"name": f"secret-{number}-{'a' * 200}"} for number in range(400)]
            request = Request("POST", path, put(body, "/imagePullSecrets", many), who)
            yield attack(f"avail-05-{slug}-list", "avail-05", FILL, guard, request, twin_who=None)
            continue
        request = Request("POST", path, put(body, FINALIZERS, ["bank.example/keep"]), who)
        yield attack(f"avail-03-{slug}", "avail-03", keep, scene.guard("avail-03", resource), request, twin_body=body)
        mine = tenant_labels(place.environment, place.tenant, place.namespace)["team"]
        charged = put(body, "/metadata/labels", {"team": mine})
        request = Request("POST", path, put(charged, "/metadata/labels/team", "another-team"), who)
        guard = scene.guard("cost-01", resource)
        yield attack(f"cost-01-{slug}", "cost-01", "charge its cost to another team", guard, request, twin_body=charged)
    for kind, value in (("ConfigMap", "a" * sizes.DATA), ("Secret", "YWFh" * (sizes.DATA // 4))):
        path = collection("v1", kind, place.name)
        made = {"apiVersion": "v1", "kind": kind, "metadata": {"name": POD_NAME}, "data": {"note": "YWFh"}}
        guard = scene.guard("avail-05", path.rpartition("/")[2])
        request = Request("POST", path, put(made, "/data/note", value), place.developer)
        yield attack(f"avail-05-{kind.lower()}-data", "avail-05", FILL, guard, request, twin_body=made)


def _kinds(place: AttackedNamespace) -> Iterator[Object]:
    """A minimal object of each kind that tenants write beside work."""

    def made(kind: str, api: str = "v1", **fields: Any) -> Object:
        return {"apiVersion": api, "kind": kind, "metadata": {"name": POD_NAME}, **fields}

    mine = {"matchLabels": {"app": "x"}}
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"}
    storage = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    yield made("ConfigMap", data={"note": "hello"})
    yield made("Secret", data={"note": "YWFh"})
    yield made("ServiceAccount")
    yield made("Service", spec={"selector": {"app": "x"}, "ports": [{"port": 80}]})
    yield made("PersistentVolumeClaim", spec={**storage, "storageClassName": place.environment.claim_classes[0]})
    yield made("PodDisruptionBudget", "policy/v1", spec={"selector": mine, "maxUnavailable": 1})
    if place.developer == place.without_grant:
        yield made("HorizontalPodAutoscaler", "autoscaling/v2", spec={"scaleTargetRef": target, "maxReplicas": 2})
    inside = {"podSelector": mine, "policyTypes": ["Ingress"], "ingress": [{"from": [{"podSelector": mine}]}]}
    yield made("NetworkPolicy", "networking.k8s.io/v1", spec=inside)
    if place.environment.devices_by_claim and (flavor := next(iter(place.held), None)):
        for plural in FORMS:
            yield {**claim(device_class(flavor), plural=plural), "apiVersion": CLAIM_API}


def _of_sidecars(scene: Scene, place: AttackedNamespace) -> Iterator[Attack]:
    sentence = "have the platform's dashboards load its configuration"
    for kind in ("ConfigMap", "Secret"):
        path = collection("v1", kind, place.name)
        guard = scene.guard("obs-01", path.rpartition("/")[2])
        plain = {"apiVersion": "v1", "kind": kind, "metadata": {"name": POD_NAME, "labels": {"app": "x"}}}
        for key in words.LOADED_LABELS:
            request = Request("POST", path, put(plain, f"/metadata/labels/{key}", "1"), place.developer)
            slug = f"obs-01-{kind.lower()}-{key.replace('_', '-')}"
            yield attack(slug, "obs-01", sentence, guard, request, twin_body=plain)
