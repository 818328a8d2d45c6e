"""Devices by claim on a real API server: what is refused, by whom, and that one quota counts whatever is asked."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from click.testing import CliRunner

from tenancy.catalog import gpus, vocabulary
from tenancy.cli import main
from tenancy.cluster import denial
from tenancy.cluster.api import Api, path_of
from tenancy.cluster.denial import AuditLog
from tenancy.kube import deniers
from tenancy.kube.requests import MERGE, core, group
from tenancy.lab import control_plane
from tenancy.lab.layout import environ
from tenancy.planning import Plan, make_plan
from tenancy.planning.common.pools import fake_nodes
from tenancy.planning.kubernetes.quotas import CLAIM_COUNTS, CLASS_AS_RESOURCE, CLASS_QUOTA
from tenancy.rules.attacks import attack, put
from tenancy.rules.claim_forms import API, CLAIMS, DRIVER, FORMS, TEMPLATES, claim
from tenancy.rules.device_claims import EXACTLY, admin_access, claim_form, foreign_class_attacks
from tenancy.rules.workloads import ALL_KINDS, LIMITS, workload
from tenancy.spec.fields.people import Role
from tenancy.verify.attacks import Attack, AttackedNamespace, Request, Scene, all_attacks
from tenancy.verify.attacks.device_claims import QUOTA, no_claims, over_quota
from tenancy.verify.verification import run
from tests.claims import by_claim
from tests.conftest import SpecFolder
from tests.waiting import until_clear

Object = dict[str, Any]

COUNT = f"/spec{EXACTLY}/count"


@dataclass(frozen=True)
class Cluster:
    """A deployed environment of its own lab."""

    api: Api
    plan: Plan
    scene: Scene
    spec: Path
    lab: Path

    @property
    def attacks(self) -> list[Attack]:
        return list(all_attacks(self.scene))

    def place(self, name: str) -> AttackedNamespace:
        return next(place for place in self.scene.places if place.name == name)

    def audit(self) -> AuditLog:
        return AuditLog(self.lab / "audit.log")

    def gaps(self, attacks: list[Attack]) -> list[Object]:
        return [result.as_dict() for result in run(self.api, attacks, self.audit()) if result.gap]

    def through(self, attacks: list[Attack]) -> set[str]:
        """Attacks that their own control does not refuse any more."""
        return {result.attack.id for result in run(self.api, attacks, twins=False) if result.gap}


@contextmanager
def deployed(spec: SpecFolder, root: Path) -> Generator[Cluster]:
    loaded = spec.load()
    plan = make_plan(loaded, loaded.day)
    root.mkdir()
    (root / "Pulumi.yaml").write_text("name: scratch\nruntime: python\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("GPU_TENANCY_LAB", raising=False)
        nodes = fake_nodes(loaded.environment)
        group = loaded.environment.platform.group
        lab = control_plane.up(root=root, platform_group=group, nodes=nodes)
        try:
            apply(root, list(plan.objects()))
            patch.setenv("KUBECONFIG", str(lab.kubeconfig))
            api = Api(plan.context)
            # The readiness probe is the last policy: a server that knows it knows every guard.
            question = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "are-the-guards-in-force"}}
            readiness_probe = f"{core(vocabulary.PLATFORM_NAMESPACE, 'configmaps')}?dryRun=All"
            until_clear(lambda: api.request("POST", readiness_probe, question).ok, "the guards are enforced")
            quotas = [path_of(o) for o in plan.objects() if o["kind"] == "ResourceQuota"]
            default_objects = ("serviceaccounts/default", "configmaps/kube-root-ca.crt")
            controllers = [core(n.name, what) for t in plan.tenants for n in t.namespaces for what in default_objects]
            until_clear(lambda: [p for p in quotas if "used" not in _status(api, p)], "every quota is counted")
            until_clear(
                lambda: [p for p in controllers if not api.request("GET", p).ok], "controllers have been everywhere"
            )
            yield Cluster(api, plan, Scene(loaded.environment, loaded.tenants), spec.path, lab.folder)
        finally:
            control_plane.down(root=root)


def apply(root: Path, items: list[Object]) -> None:
    command = ["kubectl", "apply", "--server-side", "-f", "-"]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    subprocess.run(command, input=text, env=environ(root), text=True, capture_output=True, check=True)


def _status(api: Api, path: str) -> Object:
    return dict(api.request("GET", path).body.get("status") or {})


def in_the_lab(spec: SpecFolder) -> None:
    """Without queues: what is asked about is claims, and what no queue holds back is refused at once."""
    spec.edit("environment.yaml", "context: small-context", f"context: {vocabulary.LAB_CONTEXT}")
    spec.add("environment.yaml", "queues: {scheduler: none}\n")
    spec.edit("tenants/fraud.yaml", ", sharing: lend-and-borrow, lending-limit: 8, borrowing-limit: 16", "")


@pytest.fixture(scope="module")
def dra(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("dra")
    spec = by_claim(folder / "small")
    in_the_lab(spec)
    with deployed(spec, folder / "lab") as cluster:
        place = cluster.place("fraud--train")
        before = _used(cluster, place)
        until_clear(lambda: _unnoticed(cluster, place, before), "the quota controller watches claims")
        yield cluster


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("plugin")
    spec = SpecFolder(folder / "small")
    in_the_lab(spec)
    with deployed(spec, folder / "lab") as cluster:
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
        until_clear(
            lambda: cluster.through(probes) != (ids if off else set()), f"{rules} are {'off' if off else 'on again'}"
        )

    try:
        patch(off=True)
        yield
    finally:
        patch(off=False)


@contextmanager
def without_quota(cluster: Cluster, place: AttackedNamespace, probes: list[Attack]) -> Generator[None]:
    """The namespace without its quota, for as long as it takes."""
    quota_key = ("ResourceQuota", "tenant")
    quotas = [o for o in cluster.plan.objects() if (o["kind"], o["metadata"]["name"]) == quota_key]
    (quota,) = [o for o in quotas if o["metadata"]["namespace"] == place.name]
    path = path_of(quota)
    try:
        assert cluster.api.request("DELETE", path).ok
        ids = {probe.id for probe in probes}
        until_clear(lambda: cluster.through(probes) != ids, "the quota is gone")
        yield
    finally:
        assert cluster.api.request("POST", path.rpartition("/")[0], quota).ok
        until_clear(lambda: cluster.through(probes), "the quota is back")


def _used(cluster: Cluster, place: AttackedNamespace) -> Object:
    """Quota that pods and claims use."""
    used = _status(cluster.api, core(place.name, "resourcequotas", "tenant"))["used"]
    # Of other kinds the controller learns late, and counts late what was there before.
    counted_keys = {"pods", *CLAIM_COUNTS}
    return {key: n for key, n in used.items() if key in counted_keys or ("/" in key and not key.startswith("count/"))}


def _taken_since(cluster: Cluster, place: AttackedNamespace, before: Object) -> Object:
    """Quota counts that differ from those before: the old and the new value."""
    used = _used(cluster, place)
    return {key: (count, used.get(key)) for key, count in before.items() if used.get(key) != count}


def _unnoticed(cluster: Cluster, place: AttackedNamespace, before: Object) -> Object:
    """Quota counts of a claim that was created and deleted: one from before the quota controller watched claims is
    counted for five minutes."""
    path = group(API, place.name, "resourceclaims")
    watched_claim = put(claim("a100", name="watched"), "/metadata/namespace", place.name)
    for answer in (cluster.api.request("POST", path, watched_claim), cluster.api.request("DELETE", f"{path}/watched")):
        assert answer.ok, answer.message
    deadline = time.monotonic() + 10
    while (usage := _taken_since(cluster, place, before)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return usage


def _events(cluster: Cluster, place: AttackedNamespace) -> str:
    return "; ".join(str(event.get("message")) for event in cluster.api.items(core(place.name, "events")))


@contextmanager
def with_objects(cluster: Cluster, place: AttackedNamespace, *items: Object) -> Generator[None]:
    """Objects that the place's developer really makes."""
    namespaced_items, before = [put(item, "/metadata/namespace", place.name) for item in items], _used(cluster, place)
    try:
        for item in namespaced_items:
            answer = cluster.api.request("POST", path_of(item).rpartition("/")[0], item, place.developer)
            assert answer.ok, answer.message
        yield
    finally:
        for item in namespaced_items:
            answer = cluster.api.request("DELETE", f"{path_of(item)}?gracePeriodSeconds=0")
            assert answer.ok, answer.message
        until_clear(lambda: _taken_since(cluster, place, before), "what stood is gone, and the quota has noticed")


# The attacks of `tenancy verify`


def tenancy(cluster: Cluster, *arguments: str) -> str:
    """Output of the command; it takes on the environment of the lab, and this process gives it back."""
    with mock.patch.dict(os.environ, {"GPU_TENANCY_LAB": str(cluster.lab)}):
        result = CliRunner().invoke(main, list(arguments))
    assert result.exit_code == 0, result.output
    return result.stdout


_NOWHERE = {"gpu-01-pod-runtime-class", "gpu-01-node-runtime", "gpu-10"}
NO_OCCASION = {
    "dra": _NOWHERE | {"gpu-12-unmanaged", "gpu-07-pod-claim", "rbac-operator-resourceclaim"},
    "plugin": _NOWHERE | {"gpu-12-unmanaged", "gpu-08-resourceclaim", "gpu-11-claim"},
}
"""Attacks on claims and devices that an environment of that kind is not asked."""


def _devices(cluster: Cluster) -> set[str]:
    kinds = (*FORMS, "deviceclasses", "resourceslices")
    return {item["metadata"]["uid"] for kind in kinds for item in cluster.api.items(group(API, None, kind))}


@pytest.mark.parametrize(
    "devices",
    [
        "dra",
        pytest.param(
            "plugin",
            marks=pytest.mark.exhaustive(
                reason=(
                    "all attacks where GPUs come by the device plugin; `make test` runs "
                    "them where GPUs are claimed, and tests/attacks with the device "
                    "plugin"
                )
            ),
        ),
    ],
)
def test_verify_finds_no_gap_and_skips_nothing_but_what_has_no_occasion(
    request: pytest.FixtureRequest, devices: str
) -> None:
    cluster: Cluster = request.getfixturevalue(devices)
    before = _devices(cluster)
    records = json.loads(tenancy(cluster, "verify", str(cluster.spec), "--format", "json"))
    assert len(records) == len(cluster.attacks)
    assert [r for r in records if not r.get("skipped") and not (r["refused"] and r["twin_admitted"])] == []
    skipped = {r["id"] for r in records if r.get("skipped")}
    assert {id for id in skipped if "claim" in id or id.startswith("gpu-")} == NO_OCCASION[devices]
    assert skipped <= {a.id for a in cluster.attacks if a.skipped}, "no twin finds a quota used up"
    assert _devices(cluster) == before, "nothing is made"


@pytest.mark.exhaustive(
    reason="takes rules of claims away one by one; `make test` takes the quota away here and rules in tests/attacks"
)
@pytest.mark.parametrize("rule", ["gpu-06", "gpu-08", "sched-01"])
def test_without_a_rule_exactly_its_attacks_get_through(dra: Cluster, rule: str) -> None:
    attacks = [a for a in dra.attacks if not a.skipped]
    rule_attacks = [a for a in attacks if a.rule == rule]
    assert {a.request.path.rpartition("/")[2] for a in rule_attacks} >= (set(FORMS) if rule == "gpu-08" else {"pods"})
    with without_rules(dra, {rule}, rule_attacks):
        assert dra.through(attacks) == {a.id for a in rule_attacks}


@pytest.mark.parametrize(
    "devices",
    [
        "dra",
        pytest.param(
            "plugin",
            marks=pytest.mark.exhaustive(
                reason=(
                    "takes the quota away where GPUs come by the device plugin; `make "
                    "test` does it where GPUs are claimed"
                )
            ),
        ),
    ],
)
def test_without_its_quota_exactly_the_attacks_on_it_get_through(request: pytest.FixtureRequest, devices: str) -> None:
    cluster: Cluster = request.getfixturevalue(devices)
    place, attacks = cluster.place("fraud--train"), [a for a in cluster.attacks if not a.skipped]
    quota_attacks = [a for a in attacks if a.rule == "quota" and f"/namespaces/{place.name}/" in a.request.path]
    with without_quota(cluster, place, quota_attacks):
        assert cluster.through(attacks) == {a.id for a in quota_attacks}


def test_where_no_claim_of_the_tenants_is_admitted_the_twin_is_the_platforms(dra: Cluster) -> None:
    place = dra.place("fraud--train")
    poor = replace(place, tenant=place.tenant.model_copy(update={"gpus": {}}), usable_gpus={}, device_classes=())
    attacks = [*foreign_class_attacks(dra.scene, poor, "l4"), over_quota(poor, "a100-1g.5gb", 0)]
    assert {a.twin.path.split("/")[5] for a in attacks} == {vocabulary.PLATFORM_NAMESPACE}
    assert dra.gaps(attacks) == []


# What a claim may say


def test_without_its_guard_every_one_of_those_claims_gets_past_it(dra: Cluster) -> None:
    attacks = [a for a in dra.attacks if a.rule == "gpu-08" and f"/namespaces/fraud--train/{CLAIMS}" in a.request.path]
    with without_rules(dra, {"gpu-08"}, attacks):
        results = {r.attack.id: r.denier for r in run(dra.api, attacks, twins=False)}
    refused = {id.removeprefix("gpu-08-resourceclaim-"): d for id, d in results.items() if d != deniers.NONE}
    classes = ("gpu-nvidia-com", "mig-nvidia-com", "vfio-gpu-nvidia-com", "l4@fraud--train")
    second_wall = (*classes, "all", "count", "second-request")
    assert refused == dict.fromkeys(second_wall, QUOTA), "what the quota does not see, the guard alone refuses"


def test_a_selector_of_its_own_only_narrows_what_a_claim_gets(dra: Cluster) -> None:
    place = dra.place("fraud--train")
    narrow = [{"cel": {"expression": f"device.attributes['{DRIVER}'].uuid == 'GPU-1'"}}]
    body = put(claim("a100"), f"/spec{EXACTLY}/selectors", narrow)
    answer = dra.api.request("POST", f"{group(API, place.name, 'resourceclaims')}?dryRun=All", body, place.developer)
    assert answer.ok, answer.message


def test_admin_access_is_refused_even_in_a_namespace_that_is_labelled_for_it(dra: Cluster) -> None:
    place, key = dra.place("fraud--train"), "resource.kubernetes.io/admin-access"
    attacks = [claim_form(dra.scene, place, admin_access("gpu-08"), "a100", plural) for plural in FORMS]

    def label(value: str | None) -> None:
        body = {"metadata": {"labels": {key: value}}}
        assert dra.api.request("PATCH", f"/api/v1/namespaces/{place.name}", body, content_type=MERGE).ok

    unlabelled = {(r.denier, r.twin_status) for r in run(dra.api, attacks)}
    assert unlabelled == {(deniers.API_VALIDATION, 201)}, "the API server's own wall comes first"
    try:
        label("true")
        until_clear(lambda: [r.as_dict() for r in run(dra.api, attacks) if r.gap], "the label is noticed")
        assert dra.gaps(attacks) == []
    finally:
        label(None)


def test_a_namespace_that_lost_its_list_of_classes_admits_no_claim(dra: Cluster) -> None:
    place = dra.place("research--main")
    (namespace,) = [n.namespace for t in dra.plan.tenants for n in t.namespaces if n.name == place.name]
    request = Request("POST", group(API, place.name, CLAIMS), claim("a100"), place.developer)
    probe = attack("damaged", "gpu-08", "", dra.scene.guard("gpu-08", CLAIMS), request, twin_who=None)

    def annotate(value: str | None) -> None:
        body = {"metadata": {"annotations": {vocabulary.ALLOWED_DEVICE_CLASSES: value}}}
        assert dra.api.request("PATCH", path_of(namespace), body, content_type=MERGE).ok

    try:
        annotate(None)
        until_clear(lambda: not run(dra.api, [probe], twins=False)[0].refused, "claims of the namespace are refused")
    finally:
        annotate(namespace["metadata"]["annotations"][vocabulary.ALLOWED_DEVICE_CLASSES])
        until_clear(lambda: run(dra.api, [probe], twins=False)[0].status >= 400, "claims of the namespace are admitted")


@pytest.mark.exhaustive(
    reason=(
        "waits until the API server has checked the types of all guards; that every expression compiles is in "
        "tests/unit, that guards of claims refuse in this module"
    )
)
def test_the_api_server_has_no_warning_about_any_guard(dra: Cluster) -> None:
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"

    def unchecked() -> list[str]:
        return [p["metadata"]["name"] for p in dra.api.items(path) if "typeChecking" not in p.get("status", {})]

    control_plane.up(root=dra.lab.parent, type_checks=True)
    try:
        until_clear(unchecked, "every guard's types have been checked")
        assert [p["status"]["typeChecking"] for p in dra.api.items(path) if p["status"]["typeChecking"]] == []
    finally:
        control_plane.up(root=dra.lab.parent, type_checks=False)


# Pods that claim


def _claiming(place: AttackedNamespace, flavor: str, name: str = "gpu", template: bool = False) -> Object:
    """The sample pod of a flavor with a claim or a template of that name."""
    source = "resourceClaimTemplateName" if template else "resourceClaimName"
    return put(place.pod({flavor: 1}), "/spec/resourceClaims", [{"name": "gpu", source: name}])


@pytest.mark.parametrize("kind", ALL_KINDS)
@pytest.mark.parametrize("template", [False, True])
def test_a_workload_with_a_claim_of_its_namespace_is_admitted(dra: Cluster, kind: str, template: bool) -> None:
    place = dra.place("fraud--train")
    item = put(workload(kind, _claiming(place, "a100", template=template)), "/metadata/namespace", place.name)
    path = f"{path_of(item).rpartition('/')[0]}?dryRun=All"
    answer = dra.api.request("POST", path, item, place.developer)
    assert answer.ok, answer.message


def _resource_attacks(cluster: Cluster, place: AttackedNamespace) -> list[Attack]:
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


@pytest.mark.parametrize("kind", ["pod", "job"])
def test_the_sample_of_a_claim_is_admitted_as_its_developer_creates_it(dra: Cluster, kind: str) -> None:
    place = dra.place("fraud--train")
    text = tenancy(dra, "sample", kind, str(dra.spec), "--tenant", "fraud", "--gpu", "a100=2")
    assert place.developer is not None
    asking = [f"--as={place.developer.user}", *(f"--as-group={g}" for g in place.developer.groups)]
    create, env = ["kubectl", "create", "-f", "-", *asking], environ(dra.lab.parent)

    def created(*more: str) -> str:
        process = subprocess.run([*create, *more], input=text, env=env, text=True, capture_output=True)
        assert process.returncode == 0, process.stderr
        return process.stdout

    assert created("--dry-run=server").count("created (server dry run)") == 2
    before = _used(dra, place)
    template, workload = json.loads(text)["items"]
    try:
        assert created().count("created") == 2
        until_clear(
            lambda: _used(dra, place)[f"a100{CLASS_QUOTA}"] != "2", "the claim of the template is made and counted"
        )
    finally:
        for item in (workload, template):
            path = f"{path_of(item)}?gracePeriodSeconds=0&propagationPolicy=Background"
            dra.api.request("DELETE", path)
        until_clear(lambda: _taken_since(dra, place, before), "what was created is gone, and the quota has noticed")


BLIND = {"gpu-06", "sched-01"}
"""Both, because the API server gives a pod with a GPU the toleration of that name, which sched-01 refuses."""


def test_without_those_rules_the_quota_has_none_of_these_resources_either(dra: Cluster) -> None:
    attacks = _resource_attacks(dra, dra.place("fraud--train"))
    with without_rules(dra, BLIND, attacks):
        results = {r.attack.id: r.denier for r in run(dra.api, attacks, twins=False)}
    assert results == dict.fromkeys(results, QUOTA), "the quota allows no slice and no resource of a device plugin"


def test_without_those_rules_a_class_as_a_resource_counts_together_with_claims(dra: Cluster) -> None:
    place, at = dra.place("fraud--train"), f"{LIMITS}/deviceclass.resource.kubernetes.io~1a100"
    request = Request("POST", core(place.name, "pods"), put(place.pod(), at, "7"), place.developer)
    more = attack("more", "quota", "ten and seven of sixteen", QUOTA, request, twin_body=put(place.pod(), at, "6"))
    with without_rules(dra, BLIND, _resource_attacks(dra, place)):
        assert dra.through([more]) == {"more"}, "alone it is admitted"
        with with_objects(dra, place, claim("a100", 10)):
            assert dra.gaps([more]) == []


# One quota counts


@pytest.mark.parametrize("limit", [31, 32, 63, 100, 1023])
def test_an_attack_on_a_large_quota_is_bounded_by_what_a_claim_may_say(dra: Cluster, limit: int) -> None:
    place = dra.place("fraud--train")
    (quota,) = (o for o in dra.plan.objects() if path_of(o) == core(place.name, "resourcequotas", "tenant"))
    keys = (f"a100{CLASS_QUOTA}", f"{CLASS_AS_RESOURCE}a100")

    def cap(count: str) -> None:
        body = {"spec": {"hard": dict.fromkeys(keys, count)}}
        assert dra.api.request("PATCH", path_of(quota), body, content_type=MERGE).ok
        until_clear(lambda: _status(dra.api, path_of(quota))["hard"][keys[0]] != count, "the quota's bound has moved")

    try:
        cap(str(limit))
        assert dra.gaps([over_quota(place, "a100", limit)]) == []
    finally:
        cap(quota["spec"]["hard"][keys[0]])
    assert over_quota(place, "a100", 1024).skipped


def test_a_claim_counts_as_device_and_as_resource_alike_and_in_no_plugins_quota(dra: Cluster) -> None:
    place = dra.place("fraud--train")
    with with_objects(dra, place, claim("a100", 10)):
        until_clear(lambda: _used(dra, place)[f"a100{CLASS_QUOTA}"] != "10", "the claim is counted")
        used = _used(dra, place)
        assert used[f"{CLASS_AS_RESOURCE}a100"] == "10"
        assert used[CLAIM_COUNTS[0]] == "1"
        assert {used[key] for key in used if key.startswith("requests.nvidia.com/")} == {"0"}


def test_the_second_claim_is_refused_when_both_together_are_too_much(dra: Cluster) -> None:
    place = dra.place("fraud--train")
    path = group(API, place.name, "resourceclaims")
    second = claim("a100", name="second")
    request = Request("POST", path, put(second, COUNT, 7), place.developer)
    more = attack("second", "quota", "ten and seven of sixteen", QUOTA, request, twin_body=put(second, COUNT, 6))
    assert dra.through([more]) == {"second"}, "alone it is admitted"
    with with_objects(dra, place, claim("a100", 10)):
        assert dra.gaps([more]) == []


def test_a_templates_claim_is_refused_by_the_quota_when_a_pod_asks_for_it(dra: Cluster) -> None:
    place = dra.place("fraud--train")
    too_many = claim("a100", 17, plural=TEMPLATES)
    pod = _claiming(place, "a100", "a100-17", template=True)
    with with_objects(dra, place, too_many, pod):
        until_clear(lambda: "exceeded quota: tenant" not in _events(dra, place), "the claim's maker has met the quota")
        assert dra.api.items(group(API, place.name, "resourceclaims")) == []


# Rights


def test_a_viewer_sees_claims(dra: Cluster) -> None:
    place = dra.place("fraud--train")
    assert dra.api.request("GET", group(API, place.name, CLAIMS), None, place.person(Role.VIEWER)).ok


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
    foreign_slice = put(
        put({**published, "spec": spec}, "/metadata/name", f"{node}-other"), "/spec/driver", "other.example"
    )
    slices: list[Object] = [{**published, "spec": spec}, foreign_slice]
    claim_path = group(API, place.name, "resourceclaims", "gpu")
    try:
        for item in slices:
            answer = dra.api.request("POST", group(API, None, "resourceslices"), item)
            assert answer.ok, answer.message
        with with_objects(dra, place, claim(flavor, name="gpu"), _claiming(place, flavor)):
            until_clear(
                lambda: "allocation" not in _status(dra.api, claim_path) and [_events(dra, place)],
                "the claim has a device",
            )
            (result,) = _status(dra.api, claim_path)["allocation"]["devices"]["results"]
            assert (result["driver"], result["pool"], result["device"]) == (DRIVER, node, device["name"])
    finally:
        for item in slices:
            dra.api.request("DELETE", group(API, None, "resourceslices", item["metadata"]["name"]))


# The other way round: extended resources, and no claims


@pytest.mark.exhaustive(
    reason=(
        "claims of the platform beside the device plugin; that a tenant's "
        "claim is refused is among the attacks of `make test`"
    )
)
def test_with_the_device_plugin_not_even_the_platform_makes_a_claim_in_a_tenants_namespace(plugin: Cluster) -> None:
    place = plugin.place("fraud--train")
    results = run(plugin.api, list(no_claims(place)), twins=False)
    for result, key in zip(results, CLAIM_COUNTS, strict=True):
        assert (result.status, f"limited: {key}=0" in result.message) == (403, True), result.message


@pytest.mark.exhaustive(
    reason="claims of a tenant beside the device plugin, on a lab of its own; they are among the attacks of `make test`"
)
def test_with_the_device_plugin_no_tenant_may_claim(plugin: Cluster) -> None:
    place = plugin.place("fraud--train")
    for plural in FORMS:
        answer = plugin.api.request(
            "POST", group(API, place.name, plural), claim("a100", plural=plural), place.developer
        )
        assert denial.denier(answer.status, answer.message) == deniers.RBAC, answer.message
