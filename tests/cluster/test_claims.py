"""Devices by claim on a real API server: what is refused, by whom, and that one quota counts whatever is asked."""

from __future__ import annotations

import copy
import json
import subprocess
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tenancy.catalog import gpus
from tenancy.catalog import vocabulary as words
from tenancy.lab import control_plane
from tenancy.lab.layout import environ
from tenancy.live import denial
from tenancy.live.api import Api, Identity, path_of
from tenancy.live.attacks import Attack, Place, Request, Scene
from tenancy.live.attacks.model import ABSENT, MERGE, attack, core, group, put
from tenancy.live.attacks.pods import LIMITS, workload
from tenancy.live.denial import AuditLog
from tenancy.live.verify import run
from tenancy.plan import Plan, make_plan
from tenancy.plan.devices import DRIVER
from tenancy.plan.pools import fake_nodes, node_taints
from tenancy.plan.quotas import CLAIM_COUNTS, CLASS_AS_RESOURCE, CLASS_QUOTA
from tenancy.spec import Loaded
from tenancy.spec.tenant import Role
from tests.attacks.attack_lab import until
from tests.claims import by_claim, claim
from tests.conftest import SpecFolder

Object = dict[str, Any]

API = "resource.k8s.io/v1"
QUOTA = denial.quota("tenant")
REQUEST = "/devices/requests/0"
EXACTLY = f"{REQUEST}/exactly"


@dataclass(frozen=True)
class Cluster:
    """A deployed environment of its own lab."""

    api: Api
    plan: Plan
    scene: Scene
    audit_log: Path

    def place(self, name: str) -> Place:
        return next(place for place in self.scene.places if place.name == name)

    def audit(self) -> AuditLog:
        return AuditLog(self.audit_log)

    def gaps(self, attacks: list[Attack]) -> list[Object]:
        return [result.as_dict() for result in run(self.api, attacks, self.audit()) if result.gap]

    def through(self, attacks: list[Attack]) -> set[str]:
        """Attacks that their own control does not refuse any more."""
        return {result.attack.id for result in run(self.api, attacks, twins=False) if result.gap}


@contextmanager
def deployed(loaded: Loaded, root: Path) -> Generator[Cluster]:
    plan = make_plan(loaded.environment, loaded.tenants)
    root.mkdir()
    (root / "Pulumi.yaml").write_text("name: scratch\nruntime: python\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("GPU_TENANCY_LAB", raising=False)
        nodes = fake_nodes(loaded.environment)
        lab = control_plane.up(root=root, platform_group=loaded.environment.platform.group, nodes=nodes)
        try:
            apply(root, list(plan.objects()))
            patch.setenv("KUBECONFIG", str(lab.kubeconfig))
            api = Api(plan.context)
            # The witness is the last policy: a server that knows it knows every guard.
            question = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "are-the-guards-in-force"}}
            witness = f"{core(words.PLATFORM_NAMESPACE, 'configmaps')}?dryRun=All"
            until(lambda: api.request("POST", witness, question).ok, "the guards are in force")
            quotas = [path_of(o) for o in plan.objects() if o["kind"] == "ResourceQuota"]
            accounts = [core(n.name, "serviceaccounts", "default") for t in plan.tenants for n in t.namespaces]
            until(lambda: [p for p in quotas if "used" not in _status(api, p)], "every quota is counted")
            until(lambda: [p for p in accounts if not api.request("GET", p).ok], "every namespace has its account")
            yield Cluster(api, plan, Scene(loaded.environment, loaded.tenants), lab.folder / "audit.log")
        finally:
            control_plane.down(root=root)


def apply(root: Path, items: list[Object]) -> None:
    command = ["kubectl", "apply", "--server-side", "-f", "-"]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    subprocess.run(command, input=text, env=environ(root), text=True, capture_output=True, check=True)


def _status(api: Api, path: str) -> Object:
    return dict(api.request("GET", path).body.get("status") or {})


@pytest.fixture(scope="module")
def dra(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("dra")
    spec = by_claim(folder / "small")
    spec.edit("environment.yaml", "context: small-context", f"context: {words.LAB_CONTEXT}")
    with deployed(spec.load(), folder / "lab") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("plugin")
    spec = SpecFolder(folder / "small")
    spec.edit("environment.yaml", "context: small-context", f"context: {words.LAB_CONTEXT}")
    with deployed(spec.load(), folder / "lab") as cluster:
        yield cluster


@contextmanager
def without_rules(cluster: Cluster, rules: set[str], probes: list[Attack]) -> Generator[None]:
    """The rules off in every guard that has one, for as long as it takes."""

    def has(validation: Object) -> bool:
        return validation["message"].partition(":")[0] in rules

    policies = [p for p in cluster.plan.platform.guards if any(map(has, p["spec"].get("validations", ())))]

    def patch(off: bool) -> None:
        for policy in policies:
            validations = copy.deepcopy(policy["spec"]["validations"])
            for validation in validations:
                if off and has(validation):
                    validation["expression"] = "true"
            body = {"spec": {"validations": validations}}
            assert cluster.api.request("PATCH", path_of(policy), body, content_type=MERGE).ok
        ids = {probe.id for probe in probes}
        until(lambda: cluster.through(probes) != (ids if off else set()), f"{rules} are {'off' if off else 'on again'}")

    try:
        patch(off=True)
        yield
    finally:
        patch(off=False)


@contextmanager
def without_quota(cluster: Cluster, place: Place, probes: list[Attack]) -> Generator[None]:
    """The namespace without its quota, for as long as it takes."""
    quotas = [o for o in cluster.plan.objects() if o["kind"] == "ResourceQuota"]
    (quota,) = [o for o in quotas if o["metadata"]["namespace"] == place.name]
    path = path_of(quota)
    try:
        assert cluster.api.request("DELETE", path).ok
        ids = {probe.id for probe in probes}
        until(lambda: cluster.through(probes) != ids, "the quota is gone")
        yield
    finally:
        assert cluster.api.request("POST", path.rpartition("/")[0], quota).ok
        until(lambda: cluster.through(probes), "the quota is back")


def _used(cluster: Cluster, place: Place) -> Object:
    """What pods and claims take of the quota."""
    used = _status(cluster.api, core(place.name, "resourcequotas", "tenant"))["used"]
    return {key: count for key, count in used.items() if "/" in key or key == "pods"}


def _events(cluster: Cluster, place: Place) -> str:
    return "; ".join(str(event.get("message")) for event in cluster.api.items(core(place.name, "events")))


@contextmanager
def standing(cluster: Cluster, place: Place, *items: Object) -> Generator[None]:
    """Objects that the place's developer really makes."""
    made, before = [put(item, "/metadata/namespace", place.name) for item in items], _used(cluster, place)
    try:
        for item in made:
            answer = cluster.api.request("POST", path_of(item).rpartition("/")[0], item, place.developer)
            assert answer.ok, answer.message
        yield
    finally:
        for item in made:
            cluster.api.request("DELETE", f"{path_of(item)}?gracePeriodSeconds=0")
        until(lambda: _used(cluster, place) != before, "what stood is gone, and the quota has noticed")


# What a claim may say


def _of_claims(
    cluster: Cluster, place: Place, name: str, at: str, bad: Any, good: Any = ABSENT, base: dict[str, Any] | None = None
) -> Generator[Attack]:
    """An attack on gpu-08 through a claim and through a template of one; `at` is below the claim's spec."""
    for template, plural in ((False, "resourceclaims"), (True, "resourceclaimtemplates")):
        whole, root = claim(template=template), "/spec/spec" if template else "/spec"
        for pointer, value in (base or {}).items():
            whole = put(whole, root + pointer, value)
        request = Request("POST", group(API, place.name, plural), put(whole, root + at, bad), place.developer)
        denier = cluster.scene.guard("gpu-08", plural)
        yield attack(f"{plural}-{name}", "gpu-08", name, denier, request, twin_body=put(whole, root + at, good))


SETTINGS = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig", "sharing": {"strategy": "TimeSlicing"}}
SECOND = {"name": "any", "firstAvailable": [{"name": "a", "deviceClassName": "a100"}]}


def _claim_attacks(cluster: Cluster, place: Place) -> list[Attack]:
    def each(*arguments: Any, **more: Any) -> Iterator[Attack]:
        return _of_claims(cluster, place, *arguments, **more)

    named, counted = f"{EXACTLY}/deviceClassName", {f"{EXACTLY}/count": ABSENT}
    one = claim()["spec"]["devices"]["requests"]
    more, second = "/devices/requests/1", {**one[0], "name": "any"}
    return [
        *each("foreign-class", named, "l4", "a100"),
        *each("any-gpu", named, "gpu.nvidia.com", "a100"),
        *each("any-slice", named, "mig.nvidia.com", "a100"),
        *each("unknown-class", named, "somebody-elses", "a100"),
        *each("all", f"{EXACTLY}/allocationMode", "All", "ExactCount", base=counted),
        *each(
            "alternatives", "/devices/requests/1", SECOND, {**one[0], "name": "any"}, base={"/devices/requests": one}
        ),
        *each("nothing", "/devices/requests", [], one),
        *each("no-requests", "/devices/requests", ABSENT, one),
        *each("no-devices", "/devices", ABSENT, {"requests": one}),
        *each("count", f"{EXACTLY}/count", 33, 16),
        *each("toleration", f"{EXACTLY}/tolerations", [{"operator": "Exists"}]),
        *each("part-of-a-gpu", f"{EXACTLY}/capacity", {"requests": {"memory": "1Gi"}}),
        *each("settings", "/devices/config", [{"opaque": {"driver": DRIVER, "parameters": SETTINGS}}]),
        *each("second-request", f"{more}/exactly/deviceClassName", "l4", "a100", base={more: second}),
    ]


def test_a_claim_says_a_count_of_a_granted_class_and_no_more(dra: Cluster) -> None:
    assert dra.gaps(_claim_attacks(dra, dra.place("fraud--train"))) == []


def test_without_its_guard_every_one_of_those_claims_gets_past_it(dra: Cluster) -> None:
    attacks = _claim_attacks(dra, dra.place("fraud--train"))
    with without_rules(dra, {"gpu-08"}, attacks):
        results = {r.attack.id: r.denier for r in run(dra.api, attacks, twins=False)}
    refused = {id.removeprefix("resourceclaims-"): denier for id, denier in results.items() if denier != denial.NONE}
    second_wall = ("foreign-class", "any-gpu", "any-slice", "all", "count", "second-request")
    assert refused == dict.fromkeys(second_wall, QUOTA), "what the quota does not see, the guard alone refuses"


def test_a_selector_of_its_own_only_narrows_what_a_claim_gets(dra: Cluster) -> None:
    place = dra.place("fraud--train")
    narrow = [{"cel": {"expression": f"device.attributes['{DRIVER}'].uuid == 'GPU-1'"}}]
    body = put(claim(), f"/spec{EXACTLY}/selectors", narrow)
    answer = dra.api.request("POST", f"{group(API, place.name, 'resourceclaims')}?dryRun=All", body, place.developer)
    assert answer.ok, answer.message


def test_admin_access_is_refused_even_in_a_namespace_that_is_labelled_for_it(dra: Cluster) -> None:
    place, key = dra.place("fraud--train"), "resource.kubernetes.io/admin-access"
    attacks = list(_of_claims(dra, place, "admin", f"{EXACTLY}/adminAccess", True, False))

    def label(value: str | None) -> None:
        body = {"metadata": {"labels": {key: value}}}
        assert dra.api.request("PATCH", f"/api/v1/namespaces/{place.name}", body, content_type=MERGE).ok

    unlabelled = {(r.denier, r.twin_status) for r in run(dra.api, attacks)}
    assert unlabelled == {(denial.API_VALIDATION, 201)}, "the API server's own wall comes first"
    try:
        label("true")
        until(lambda: [r.as_dict() for r in run(dra.api, attacks) if r.gap], "the label is noticed")
        assert dra.gaps(attacks) == []
    finally:
        label(None)


def test_a_namespace_that_lost_its_list_of_classes_admits_no_claim(dra: Cluster) -> None:
    place = dra.place("research--main")
    (namespace,) = [n.namespace for t in dra.plan.tenants for n in t.namespaces if n.name == place.name]
    request = Request("POST", group(API, place.name, "resourceclaims"), claim(), place.developer)
    probe = attack("damaged", "gpu-08", "", dra.scene.guard("gpu-08", "resourceclaims"), request, twin_body=claim())

    def annotate(value: str | None) -> None:
        body = {"metadata": {"annotations": {words.ALLOWED_DEVICE_CLASSES: value}}}
        assert dra.api.request("PATCH", path_of(namespace), body, content_type=MERGE).ok

    try:
        annotate(None)
        until(lambda: not run(dra.api, [probe], twins=False)[0].refused, "claims of the namespace are refused")
    finally:
        annotate(namespace["metadata"]["annotations"][words.ALLOWED_DEVICE_CLASSES])
        until(lambda: run(dra.api, [probe], twins=False)[0].status >= 400, "claims of the namespace are admitted")


def test_the_api_server_has_no_warning_about_any_guard(dra: Cluster) -> None:
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"

    def unchecked() -> list[str]:
        return [p["metadata"]["name"] for p in dra.api.items(path) if "typeChecking" not in p.get("status", {})]

    until(unchecked, "every guard's types have been checked")
    assert [p["status"]["typeChecking"] for p in dra.api.items(path) if p["status"]["typeChecking"]] == []


# Pods that claim


def _claiming(place: Place, flavor: str, name: str = "gpu", template: bool = False) -> Object:
    """A pod with a claim, kept on the pool that yields the flavor."""
    environment = place.environment
    pool = next(pool for pool in environment.pools if flavor in environment.flavors_of(pool))
    taints = node_taints(pool, environment.pools[pool])
    pod = put(place.pod(), "/spec/tolerations", [{"operator": "Equal", **taint} for taint in taints])
    source = "resourceClaimTemplateName" if template else "resourceClaimName"
    pod = put(pod, "/spec/resourceClaims", [{"name": "gpu", source: name}])
    return put(pod, "/spec/containers/0/resources/claims", [{"name": "gpu"}])


@pytest.mark.parametrize("kind", ["Pod", "Job", "CronJob", "Deployment", "StatefulSet"])
@pytest.mark.parametrize("template", [False, True])
def test_a_workload_with_a_claim_of_its_namespace_is_admitted(dra: Cluster, kind: str, template: bool) -> None:
    place = dra.place("fraud--train")
    item = put(workload(kind, _claiming(place, "a100", template=template)), "/metadata/namespace", place.name)
    path = f"{path_of(item).rpartition('/')[0]}?dryRun=All"
    answer = dra.api.request("POST", path, item, place.developer)
    assert answer.ok, answer.message


def _resource_attacks(cluster: Cluster, place: Place) -> list[Attack]:
    """GPUs asked for past claims."""
    path, denier = core(place.name, "pods"), cluster.scene.guard("gpu-06", "pods")
    names = {"plugin": gpus.GPU, "slice": "nvidia.com/mig-1g.5gb", "shared": gpus.GPU_SHARED}
    names |= {"class": "deviceclass.resource.kubernetes.io/a100-1g.5gb"}
    names |= {"any": "deviceclass.resource.kubernetes.io/gpu.nvidia.com"}
    return [
        attack(
            f"pod-{slug}",
            "gpu-06",
            resource,
            denier,
            Request("POST", path, put(place.pod(), f"{LIMITS}/{resource.replace('/', '~1')}", "1"), place.developer),
            twin_body=place.pod(),
        )
        for slug, resource in names.items()
    ]


def test_where_devices_are_claimed_no_pod_asks_for_one_as_a_resource(dra: Cluster) -> None:
    assert dra.gaps(_resource_attacks(dra, dra.place("fraud--train"))) == []


BLIND = {"gpu-06", "sched-01"}
"""Both, because the API server gives a pod with a GPU the toleration of that name, which sched-01 refuses."""


def test_without_those_rules_the_quota_has_none_of_these_resources_either(dra: Cluster) -> None:
    attacks = _resource_attacks(dra, dra.place("fraud--train"))
    with without_rules(dra, BLIND, attacks):
        results = {r.attack.id: r.denier for r in run(dra.api, attacks, twins=False)}
    assert results == dict.fromkeys(results, QUOTA), "the part holds no slice, and nobody holds what a plugin offers"


def test_without_those_rules_a_class_as_a_resource_counts_together_with_claims(dra: Cluster) -> None:
    place, at = dra.place("fraud--train"), f"{LIMITS}/deviceclass.resource.kubernetes.io~1a100"
    request = Request("POST", core(place.name, "pods"), put(place.pod(), at, "7"), place.developer)
    more = attack("more", "quota", "ten and seven of sixteen", QUOTA, request, twin_body=put(place.pod(), at, "6"))
    with without_rules(dra, BLIND, _resource_attacks(dra, place)):
        assert dra.through([more]) == {"more"}, "alone it is admitted"
        with standing(dra, place, claim(count=10)):
            assert dra.gaps([more]) == []


def _toleration(cluster: Cluster, place: Place) -> Attack:
    pod = _claiming(place, "a100")
    bad = put(put(pod, "/spec/containers/0/resources/claims", ABSENT), "/spec/resourceClaims", ABSENT)
    twin = put(bad, "/spec/resourceClaims", pod["spec"]["resourceClaims"])
    request = Request("POST", core(place.name, "pods"), bad, place.developer)
    denier = cluster.scene.guard("sched-01", "pods")
    return attack("no-claim", "sched-01", "take a GPU node's CPU without a claim", denier, request, twin_body=twin)


def test_a_gpu_nodes_taint_is_tolerated_with_a_claim_only(dra: Cluster) -> None:
    assert dra.gaps([_toleration(dra, dra.place("fraud--train"))]) == []


# One quota counts


def _over(place: Place, device_class: str, held: int) -> Attack:
    at, path = f"/spec{EXACTLY}/count", group(API, place.name, "resourceclaims")
    body = claim(device_class)
    request = Request("POST", path, put(body, at, held + 1), place.developer)
    return attack(f"over-{device_class}", "quota", "one too many", QUOTA, request, twin_body=put(body, at, held))


def test_a_claim_of_more_than_the_part_holds_is_refused_by_its_quota(dra: Cluster) -> None:
    place = dra.place("fraud--train")
    elsewhere = group(API, "fraud--serve", "resourceclaims")
    other = Request("POST", group(API, place.name, "resourceclaims"), claim("a100-1g.5gb"), place.developer)
    not_held = attack("not-held", "quota", "granted to another part", QUOTA, other, twin_path=elsewhere)
    attacks = [_over(place, "a100", 16), not_held]
    assert dra.gaps(attacks) == []
    with without_quota(dra, place, attacks):
        assert dra.through(attacks) == {"over-a100", "not-held"}


def test_a_claim_counts_as_device_and_as_resource_alike_and_in_no_plugins_quota(dra: Cluster) -> None:
    place = dra.place("fraud--train")
    with standing(dra, place, claim(count=10)):
        until(lambda: _used(dra, place)[f"a100{CLASS_QUOTA}"] != "10", "the claim is counted")
        used = _used(dra, place)
        assert used[f"{CLASS_AS_RESOURCE}a100"] == "10"
        assert used[CLAIM_COUNTS[0]] == "1"
        assert {used[key] for key in used if key.startswith("requests.nvidia.com/")} == {"0"}


def test_the_second_claim_is_refused_when_both_together_are_too_much(dra: Cluster) -> None:
    place = dra.place("fraud--train")
    path = group(API, place.name, "resourceclaims")
    at = f"/spec{EXACTLY}/count"
    second = claim(name="second")
    request = Request("POST", path, put(second, at, 7), place.developer)
    more = attack("second", "quota", "ten and seven of sixteen", QUOTA, request, twin_body=put(second, at, 6))
    assert dra.through([more]) == {"second"}, "alone it is admitted"
    with standing(dra, place, claim(count=10)):
        assert dra.gaps([more]) == []


def test_a_templates_claim_is_refused_by_the_quota_when_a_pod_asks_for_it(dra: Cluster) -> None:
    place = dra.place("fraud--train")
    too_many, pod = claim(count=17, name="many", template=True), _claiming(place, "a100", "many", template=True)
    with standing(dra, place, too_many, pod):
        until(lambda: "exceeded quota: tenant" not in _events(dra, place), "the claim's maker has met the quota")
        assert dra.api.items(group(API, place.name, "resourceclaims")) == []


# Rights


def test_who_claims_changes_no_status_no_class_and_no_slice(dra: Cluster) -> None:
    place = dra.place("fraud--train")
    who, gone = place.developer, group(API, place.name, "resourceclaims", "not-there")
    offered = {"apiVersion": API, "kind": "DeviceClass", "metadata": {"name": "mine"}, "spec": {}}
    published = {"apiVersion": API, "kind": "ResourceSlice", "metadata": {"name": "mine"}}
    published["spec"] = {"driver": DRIVER, "nodeName": "train-0", "pool": {"name": "p", "resourceSliceCount": 1}}
    published = put(published, "/spec/devices", [])
    classes, slices = (group(API, None, what) for what in ("deviceclasses", "resourceslices"))

    def refused(name: str, request: Request, missing: bool = False) -> Attack:
        return attack(name, "rbac", name, denial.RBAC, request, twin_who=None, twin_missing=missing)

    patch = {"metadata": {"annotations": {"bank.example/note": "x"}}}
    attacks = [
        refused("status", Request("PATCH", f"{gone}/status", {"status": {}}, who, MERGE), missing=True),
        refused("patch", Request("PATCH", gone, patch, who, MERGE), missing=True),
        refused("class", Request("POST", classes, offered, who)),
        refused("widen", Request("PATCH", f"{classes}/a100", patch, who, MERGE)),
        refused("slice", Request("POST", slices, published, who)),
        refused("see-slices", Request("GET", slices, None, who)),
    ]
    assert dra.gaps(attacks) == []


def test_a_viewer_sees_claims_and_makes_none(dra: Cluster) -> None:
    place = dra.place("fraud--train")
    viewer, path = place.person(Role.VIEWER), group(API, place.name, "resourceclaims")
    request = Request("POST", path, claim(), viewer)
    make = attack("viewer", "rbac", "make a claim", denial.RBAC, request, twin_who=place.developer)
    assert dra.gaps([make]) == []
    assert dra.api.request("GET", path, None, viewer).ok


def test_nobody_claims_in_another_tenants_namespace(dra: Cluster) -> None:
    mine, theirs = (group(API, name, "resourceclaims") for name in ("fraud--train", "research--main"))
    who = dra.place("fraud--train").developer
    make = attack("across", "rbac", "", denial.RBAC, Request("POST", theirs, claim(), who), twin_path=mine)
    assert dra.gaps([make]) == []


def test_the_pods_own_account_claims_nothing(dra: Cluster) -> None:
    place = dra.place("fraud--train")
    account = Identity(f"system:serviceaccount:{place.name}:default", ("system:serviceaccounts",))
    request = Request("POST", group(API, place.name, "resourceclaims"), claim(), account)
    make = attack("pod", "rbac", "", denial.RBAC, request, twin_who=place.developer)
    assert dra.gaps([make]) == []


# What a class holds


def _device(name: str, kind: str, product: str, **more: str) -> Object:
    attributes = {"type": kind, "productName": product, "uuid": name, **more}
    return {"name": name, "attributes": {key: {"string": value} for key, value in attributes.items()}}


A100 = "NVIDIA A100-SXM4-40GB"
DECOYS = [
    _device("vfio", "vfio", A100),
    _device("a100-80", "gpu", "NVIDIA A100-SXM4-80GB"),
    _device("a100-80-slice", "mig", "NVIDIA A100-SXM4-80GB", profile="1g.5gb"),
    _device("big-slice", "mig", A100, profile="2g.10gb"),
    _device("media-slice", "mig", A100, profile="1g.5gb+me"),
    _device("l40s", "gpu", "NVIDIA L40S"),
]
"""Ahead of what a class holds, because the scheduler takes the first device that fits."""


@pytest.mark.parametrize(
    ("namespace", "flavor", "node", "device"),
    [
        ("fraud--train", "a100", "train-0", _device("whole", "gpu", A100)),
        ("fraud--serve", "a100-1g.5gb", "serve-0", _device("slice", "mig", A100, profile="1g.5gb", parentUUID="p")),
        ("research--main", "l4", "notebooks-0", _device("l4", "gpu", "NVIDIA L4")),
    ],
)
def test_the_scheduler_gives_a_claim_the_one_device_of_its_class(
    dra: Cluster, namespace: str, flavor: str, node: str, device: Object
) -> None:
    place = dra.place(namespace)
    published = {"apiVersion": API, "kind": "ResourceSlice", "metadata": {"name": f"{node}-gpu"}}
    pool = {"name": node, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": [*DECOYS, device]}
    other = put(put({**published, "spec": spec}, "/metadata/name", f"{node}-other"), "/spec/driver", "other.example")
    slices: list[Object] = [{**published, "spec": spec}, other]
    found = group(API, place.name, "resourceclaims", "gpu")
    try:
        for item in slices:
            answer = dra.api.request("POST", group(API, None, "resourceslices"), item)
            assert answer.ok, answer.message
        with standing(dra, place, claim(flavor), _claiming(place, flavor)):
            until(
                lambda: "allocation" not in _status(dra.api, found) and [_events(dra, place)], "the claim has a device"
            )
            (result,) = _status(dra.api, found)["allocation"]["devices"]["results"]
            assert (result["driver"], result["pool"], result["device"]) == (DRIVER, node, device["name"])
    finally:
        for item in slices:
            dra.api.request("DELETE", group(API, None, "resourceslices", item["metadata"]["name"]))


# The other way round: extended resources, and no claims


def _plugin_attacks(place: Place) -> list[Attack]:
    """Whoever may make anything: what is left is the quota. Nobody's namespace has none."""
    attacks = []
    for template, plural in ((False, "resourceclaims"), (True, "resourceclaimtemplates")):
        request = Request("POST", group(API, place.name, plural), claim(template=template))
        elsewhere = group(API, "default", plural)
        attacks.append(attack(plural, "quota", "claim past the quota on GPUs", QUOTA, request, twin_path=elsewhere))
    return attacks


def test_with_the_device_plugin_not_even_the_platform_makes_a_claim_in_a_tenants_namespace(plugin: Cluster) -> None:
    place = plugin.place("fraud--train")
    attacks = _plugin_attacks(place)
    assert plugin.gaps(attacks) == []
    said = run(plugin.api, attacks, twins=False)
    for result, key in zip(said, CLAIM_COUNTS, strict=True):
        assert (result.status, f"limited: {key}=0" in result.message) == (403, True), result.message
    with without_quota(plugin, place, attacks):
        assert plugin.through(attacks) == {"resourceclaims", "resourceclaimtemplates"}


def test_with_the_device_plugin_no_tenant_may_claim(plugin: Cluster) -> None:
    place = plugin.place("fraud--train")
    claims = group(API, place.name, "resourceclaims")
    request = Request("GET", claims, None, place.developer)
    see = attack("see", "rbac", "see claims", denial.RBAC, request, twin_who=None)
    # The platform's rights end at the quota, so its twin here is a claim that is not there.
    gone = Request("DELETE", f"{claims}/not-there", None, place.developer)
    remove = attack("remove", "rbac", "remove one", denial.RBAC, gone, twin_who=None, twin_missing=True)
    assert plugin.gaps([see, remove]) == []
    answer = plugin.api.request("POST", claims, claim(), place.developer)
    assert denial.denier(answer.status, answer.message) == denial.RBAC


def test_with_the_device_plugin_a_pod_with_a_claim_is_refused_and_one_with_a_gpu_is_counted(plugin: Cluster) -> None:
    place = plugin.place("fraud--train")
    pods, denier = core(place.name, "pods"), plugin.scene.guard("gpu-07", "pods")
    wanted = [{"name": "gpu", "resourceClaimName": "gpu"}]
    with_claim = Request("POST", pods, put(place.pod(), "/spec/resourceClaims", wanted), place.developer)
    claiming = attack("claim", "gpu-07", "", denier, with_claim, twin_body=place.pod())
    at = f"{LIMITS}/nvidia.com~1gpu"
    plain = put(place.pod({"a100": 1}), at.replace("limits", "requests"), ABSENT)
    too_many = Request("POST", pods, put(plain, at, "17"), place.developer)
    over = attack("over", "quota", "", QUOTA, too_many, twin_body=put(plain, at, "16"))
    assert plugin.gaps([claiming, over]) == []
    with without_rules(plugin, {"gpu-07"}, [claiming]):
        assert plugin.through([claiming, over]) == {"claim"}
