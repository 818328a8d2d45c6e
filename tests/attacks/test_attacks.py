from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
import urllib3
import yaml
from attack_lab import (
    ROOT,
    Cluster,
    Mutant,
    claimed,
    gaps,
    half_cases,
    halves,
    local,
    removed,
    settle,
    turned,
    without_controllers,
)
from click.testing import CliRunner, Result

from tenancy.catalog import sizes, vocabulary
from tenancy.catalog.controllers import JOB_FINALIZER
from tenancy.catalog.frameworks import FRAMEWORKS
from tenancy.check.admission.server import OfflineApiServer
from tenancy.check.admission.verdicts import VerdictOutcome
from tenancy.cli import main
from tenancy.cluster import denial
from tenancy.cluster.api import path_of
from tenancy.kube import deniers
from tenancy.kube.requests import APPLY, JSON_PATCH, MERGE, STRATEGIC, Impersonation, collection
from tenancy.lab import control_plane
from tenancy.planning import Plan
from tenancy.planning.guards import BACKSTOPS, OF_ADMISSIONS, OF_DELETIONS, OF_RUNNING, guards
from tenancy.planning.guards.objects import DELETIONS
from tenancy.planning.kubernetes import quotas
from tenancy.rules.attacks import attack, put
from tenancy.rules.availability import JOB_CONTROLLER
from tenancy.rules.catalogue import RULES
from tenancy.rules.network import NETWORK_DOMAINS, OBEYED, RUNTIME_DOMAINS, SANDBOX_PREFIXES
from tenancy.rules.workloads import CLUSTER_ADMIN, workload
from tenancy.spec.loader import Loaded, load
from tenancy.verify.attacks import RULES_ATTACKED, Attack, AttackedNamespace, Request, Scene, all_attacks, differences
from tenancy.verify.verification import run
from tests.attack_worlds import world_of
from tests.claims import by_claim
from tests.conftest import every
from tests.offline_requests import RUNTIME, offline_server_of, verdict_on
from tests.waiting import until_clear

GUARD_RULES = sorted({rule for guard in guards(load(ROOT / "stacks" / "local").environment) for rule in guard.rules})
CONTROLS = {"rbac", "quota", "limits", "pod-security", "api-validation"}


@pytest.fixture(scope="module", params=["plugin", "claims", "kinds"])
def either(request: pytest.FixtureRequest, loaded: Loaded, tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    """One that hands out GPUs by device plugin, one by claim, and one with every kind of work."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "claims":
        spec = by_claim(folder / "small")
        spec.edit(
            "environment.yaml", "  batch:\n    priority: 100\n", "  batch:\n    priority: 100\n    max-run-time: 3d\n"
        )
        return spec.load()
    return load(local(folder / "local", kinds=FRAMEWORKS)) if request.param == "kinds" else loaded


@pytest.fixture(scope="module")
def offline(either: Loaded) -> tuple[Attack, ...]:
    return _all(either)


def _all(loaded: Loaded) -> tuple[Attack, ...]:
    return all_attacks(Scene(loaded.environment, loaded.tenants, ["nvidia"], ["plain"]))


# What the list of attacks is


def test_there_are_many_attacks(offline: tuple[Attack, ...]) -> None:
    assert len(offline) >= 60


def test_attack_ids_are_unique(offline: tuple[Attack, ...]) -> None:
    assert [id for id, count in Counter(a.id for a in offline).items() if count > 1] == []


def test_every_twin_differs_in_exactly_one_field(offline: tuple[Attack, ...]) -> None:
    fields_by_attack = {a.id: differences(a.request.as_data(), a.twin.as_data()) for a in offline if not a.skipped}
    assert {id: fields for id, fields in fields_by_attack.items() if len(fields) != 1} == {}, (
        "else the twin proves nothing"
    )


def test_every_attack_names_a_rule_or_a_control(offline: tuple[Attack, ...]) -> None:
    assert {a.rule for a in offline} <= {*RULES, *CONTROLS}


def test_the_catalogue_says_which_rules_are_attacked(loaded: Loaded, tmp_path: Path) -> None:
    kinds = load(local(tmp_path / "kinds" / "local", kinds=FRAMEWORKS))
    older = replace(loaded, environment=world_of("older")[0])
    world_attacks = (*_all(loaded), *_all(by_claim(tmp_path / "small").load()), *_all(kinds), *_all(older))
    assert {a.rule for a in world_attacks if not a.skipped} - CONTROLS == {*RULES_ATTACKED}


UNREACHED_DENIERS = {deniers.guard("tenancy-pods", rule) for rule in (*BACKSTOPS, "id-07", "sched-02")}
"""Deniers that no request reaches while the limit range, Kueue's webhooks and the API server's own check of accounts
stand: a pod with a gate names no node, and none the account that is not there."""
WITHHELD = {"gpu-10", "pod-03", "sched-03", "sched-08"}
"""Rules for namespaces whose file asks for it; the small environment's are not."""
OF_EXISTING = {"kueue-34", *OF_ADMISSIONS, *OF_DELETIONS, *OF_RUNNING}
"""Rules that only a request on existing work can break, and these attacks create nothing: test_queue_attacks.py and
test_running.py make it."""


def unreachable(guard: str, rule: str, loaded: Loaded) -> bool:
    if guard == DELETIONS or rule in OF_EXISTING:
        return True
    if rule == "ns-02":
        # Who may make anything there may do so in the platform's namespaces too: what makes pods ends as pods.
        return guard != "tenancy-pods"
    if rule == "gpu-07":
        # Where GPUs are claimed a pod names a claim or a template, and anything else is no pod to the API server.
        return loaded.environment.uses_device_claims
    if rule in WITHHELD and loaded.environment.uses_device_claims:
        return True
    return deniers.guard(guard, rule) in UNREACHED_DENIERS


def test_every_rule_is_attacked_in_every_guard_that_has_it(offline: tuple[Attack, ...], either: Loaded) -> None:
    attacked_deniers = {a.expected_denier for a in offline if not a.skipped}
    guard_deniers = {
        deniers.guard(guard.name, rule)
        for guard in guards(either.environment)
        for rule in guard.rules
        if not unreachable(guard.name, rule, either)
    }
    assert guard_deniers - attacked_deniers == set()


def test_every_annotation_that_a_network_or_runtime_obeys_is_attacked_once() -> None:
    keys = [key for _, key in OBEYED.values()]
    attacks_by_annotation = Counter(
        name
        for key in keys
        for name in (*NETWORK_DOMAINS, *RUNTIME_DOMAINS, *SANDBOX_PREFIXES)
        if key.startswith(name) or f".{key.split('/')[0]}".endswith(f".{name}")
    )
    assert set(attacks_by_annotation) == {*NETWORK_DOMAINS, *RUNTIME_DOMAINS, *SANDBOX_PREFIXES}


def test_tenants_attack_each_other_both_ways(offline: tuple[Attack, ...], either: Loaded) -> None:
    names = [tenant.tenant for tenant in either.tenants]
    for at, name in enumerate(names):
        for attacker, victim in ((names[at - 1], name), (name, names[at - 1])):
            assert any(a.id.startswith(f"rbac-exec-as-{attacker}@{victim}--") for a in offline), (
                f"{attacker} -> {victim}"
            )


def test_one_tenant_alone_is_attacked_too_and_what_needs_two_is_skipped_by_name(loaded: Loaded) -> None:
    alone = all_attacks(Scene(loaded.environment, loaded.tenants[:1], ["nvidia"]))
    skipped = {a.id: a.skipped for a in alone if a.skipped}
    assert "rbac-across" in skipped
    assert every(skipped.values())
    assert {a.rule for a in alone if not a.skipped} >= {*GUARD_RULES} - {
        *BACKSTOPS,
        *OF_EXISTING,
    } - WITHHELD


def test_a_cluster_older_than_claims_is_not_asked_about_them(loaded: Loaded) -> None:
    cluster = loaded.environment.cluster.model_copy(update={"kubernetes": "1.33"})
    old = loaded.environment.model_copy(update={"cluster": cluster})
    attacks = all_attacks(Scene(old, loaded.tenants))
    assert [a.id for a in attacks if "resource.k8s.io" in a.request.path] == []
    assert [a.skipped for a in attacks if a.id == "claims"] != [], "what cannot be asked is counted, never dropped"


@pytest.mark.parametrize("without", [{"people": (), "gpus": {}}, {"gpus": {}}])
def test_a_tenant_without_people_or_gpus_is_no_reason_to_fail(either: Loaded, without: dict[str, Any]) -> None:
    reduced = either.tenants[0].model_copy(update=without)
    attacks = all_attacks(Scene(either.environment, [reduced]))
    assert any(a.skipped for a in attacks), "what cannot be asked is counted, never dropped"
    assert any(a.rule == "ns-01" and not a.skipped for a in attacks)


# What the cluster says


KEYS = {"id", "attack", "expected_denier", "status", "denier", "refused", "twin_admitted"}


def _verify(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["verify", *arguments])


@dataclass(frozen=True)
class VerifyRun:
    """Output of the command for every attack and its twin, and the uids of objects before and after."""

    command: Result
    before: Mapping[str, Sequence[str]]
    after: Mapping[str, Sequence[str]]

    @property
    def records(self) -> list[dict[str, Any]]:
        return json.loads(self.command.stdout)


@pytest.fixture(scope="module")
def verify_run(cluster: Cluster, folder: Path) -> VerifyRun:
    def uids_by_kind() -> dict[str, list[str]]:
        kinds = ("pods", "secrets", "configmaps", "services", "serviceaccounts", "persistentvolumeclaims", "namespaces")
        items = {kind: cluster.api.items(f"/api/v1/{kind}") for kind in kinds}
        return {
            kind: sorted(item["metadata"]["uid"] for item in items_of_kind) for kind, items_of_kind in items.items()
        }

    before = uids_by_kind()
    command_result = _verify(str(folder), "--format", "json", "--audit-log", str(cluster.audit_log))
    return VerifyRun(command_result, before, uids_by_kind())


def test_every_attack_is_refused_by_its_own_control_and_every_twin_is_admitted(
    cluster: Cluster, verify_run: VerifyRun
) -> None:
    records = verify_run.records
    assert {record["id"] for record in records if "skipped" in record} == {a.id for a in cluster.attacks if a.skipped}
    sent = [record for record in records if "skipped" not in record]
    assert [record for record in sent if not (record["refused"] and record["twin_admitted"])] == []
    assert verify_run.command.exit_code == 0, verify_run.command.output


def test_the_command_prints_a_record_for_each_attack(cluster: Cluster, verify_run: VerifyRun) -> None:
    assert [record["id"] for record in verify_run.records] == [attack.id for attack in cluster.attacks]
    assert every(record.keys() >= KEYS for record in verify_run.records)


def test_asking_leaves_nothing_behind(verify_run: VerifyRun) -> None:
    assert verify_run.after == verify_run.before


UNDECIDED_AT_MOST = 0.02
"""Share of requests of which only the cluster knows the answer."""


def _offline(cluster: Cluster, loaded: Loaded, without: str = "") -> OfflineApiServer:
    """The API server without a cluster, with the plan's objects but those of a kind, and what the lab has beside it."""
    nodes = [{**cluster.scene.node, "apiVersion": "v1", "kind": "Node"}] if cluster.scene.node else []
    objects = [item for item in cluster.plan.objects() if item["kind"] != without]
    return offline_server_of(objects, loaded.environment, [*nodes, RUNTIME])


def _disagreements(
    server: OfflineApiServer, cluster: Cluster, verify_run: VerifyRun
) -> tuple[dict[str, tuple[str, str]], dict[str, Sequence[str]], int]:
    """Requests that are answered otherwise offline, with both answers; those that are not decided; and of how many."""
    records = {record["id"]: record for record in verify_run.records if "skipped" not in record}
    wrong: dict[str, tuple[str, str]] = {}
    undecided: dict[str, Sequence[str]] = {}
    for probe in (candidate for candidate in cluster.attacks if candidate.id in records):
        record = records[probe.id]
        admitted = record["twin_admitted"]
        live_answers = {
            probe.id: record["denier"] if record["status"] >= 400 else deniers.NONE,
            f"{probe.id} (twin)": deniers.NONE if admitted else record.get("twin_message", deniers.UNKNOWN),
        }
        for (name, live), request in zip(live_answers.items(), (probe.request, probe.twin), strict=True):
            verdict = verdict_on(server, request, cluster.plan.admission.group)
            # The command counts the answer that such an object does not exist as an admission.
            missing = request is probe.twin and probe.twin_missing and verdict.missing
            if verdict.outcome is VerdictOutcome.UNDECIDED:
                undecided[name] = verdict.undecided
            elif (offline := deniers.NONE if missing else verdict.denier) != live:
                wrong[name] = (offline, live)
    return wrong, undecided, 2 * len(records)


def test_the_verdict_without_a_cluster_is_the_api_servers_on_every_attack_and_twin(
    cluster: Cluster, loaded: Loaded, verify_run: VerifyRun
) -> None:
    wrong, undecided, count = _disagreements(_offline(cluster, loaded), cluster, verify_run)
    assert count > 1900
    assert wrong == {}, "what is answered offline and what the API server answers"
    assert [name for name, reasons in undecided.items() if not all(reasons)] == [], "each has its reason"
    assert len(undecided) <= UNDECIDED_AT_MOST * count, undecided


@pytest.mark.parametrize("kind", ["ValidatingAdmissionPolicyBinding", "RoleBinding", "ResourceQuota"])
def test_without_a_kind_of_object_the_verdicts_would_be_others(
    kind: str, cluster: Cluster, loaded: Loaded, verify_run: VerifyRun
) -> None:
    wrong, _, _ = _disagreements(_offline(cluster, loaded, kind), cluster, verify_run)
    assert wrong


@pytest.fixture(scope="module")
def standing_work(cluster: Cluster) -> Iterator[AttackedNamespace]:
    """A namespace with a pod and a deployment, which an update needs."""
    place = cluster.scene.home
    assert place is not None
    pod = put(place.pod(), "/metadata/name", "standing")
    work_objects = [pod, workload("Deployment", pod)]
    for made_object in work_objects:
        path = collection(made_object["apiVersion"], made_object["kind"], place.name)
        answer = cluster.api.request("POST", path, made_object, place.developer)
        assert answer.ok, answer.message
    yield place
    for made_object in work_objects:
        path = path_of(put(made_object, "/metadata/namespace", place.name))
        cluster.api.request("DELETE", f"{path}?gracePeriodSeconds=0", None)


KUBE_SYSTEM = "system:serviceaccounts:kube-system"


def _updates(cluster: Cluster, place: AttackedNamespace) -> Iterator[Attack]:
    """Updates that change an admitted object into one that would be refused."""
    pods, apps = f"/api/v1/namespaces/{place.name}/pods/standing", f"/apis/apps/v1/namespaces/{place.name}"
    first = copy.deepcopy(place.pod()["spec"]["containers"][0])
    foreign, image = "docker.io/attacker/miner:1", first["image"]
    first.update(name="debug", env=[{"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "all"}])
    del first["resources"]

    def update(name: str, rule: str, path: str, good: Any, at: str, bad: Any, kind: str, resource: str) -> Attack:
        request = Request("PATCH", path, put(good, at, bad), place.developer, kind)
        return attack(f"update-{name}", rule, name, cluster.scene.guard(rule, resource), request, twin_body=good)

    debug = {"spec": {"ephemeralContainers": [first]}}
    at = "/spec/ephemeralContainers/0"
    variable = f"{at}/env/0/name"
    on_debug = (f"{pods}/ephemeralcontainers", debug)
    kind = "pods/ephemeralcontainers"
    visible = "NVIDIA_VISIBLE_DEVICES"
    yield update("debug-env", "gpu-02", *on_debug, variable, visible, STRATEGIC, kind)
    yield update("debug-image", "img-01", *on_debug, f"{at}/image", foreign, STRATEGIC, kind)
    containers = {"spec": {"containers": [{"name": "hello", "image": image}]}}
    yield update("image", "img-01", pods, containers, "/spec/containers/0/image", foreign, STRATEGIC, "pods")
    meta = {"metadata": {"annotations": {"bank.example/note": "x"}, "labels": {"team": place.tenant.team}}}
    device = "/metadata/annotations/nvidia.cdi.k8s.io~1pod"
    yield update("annotation", "gpu-05", pods, meta, device, "nvidia.com/gpu=all", MERGE, "pods")
    yield update("label", "cost-01", pods, meta, "/metadata/labels/team", "another-team", MERGE, "pods")
    yield update("finalizer", "avail-03", pods, meta, "/metadata/finalizers", ["bank.example/keep"], MERGE, "pods")
    hold = "/metadata/annotations/karpenter.sh~1do-not-disrupt"
    yield update("hold", "avail-04", pods, meta, hold, "true", MERGE, "pods")
    network = "/metadata/annotations/k8s.v1.cni.cncf.io~1networks"
    yield update("network", "net-07", pods, meta, network, "x", MERGE, "pods")
    # A network's agent writes what the pod's connection is, onto a pod that stands.
    connected = {"metadata": {"annotations": {"vpc.amazonaws.com/pod-ips": "10.0.0.1"}}}
    agent = Impersonation("system:serviceaccount:kube-system:aws-node", ("system:masters", KUBE_SYSTEM))
    request = Request("PATCH", pods, connected, CLUSTER_ADMIN, MERGE)
    guard = cluster.scene.guard("net-07", "pods")
    yield attack("update-connection", "net-07", "claim another's address", guard, request, twin_who=agent)
    usual = {"key": "node.kubernetes.io/memory-pressure", "operator": "Exists", "effect": "NoSchedule"}
    tolerate = [{"op": "add", "path": "/spec/tolerations/-", "value": usual}]
    yield update("toleration", "sched-01", pods, tolerate, "/0/value/key", vocabulary.POOL, JSON_PATCH, "pods")
    grace = {"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 600}}}}
    long = "/spec/template/spec/terminationGracePeriodSeconds"
    where = f"{apps}/deployments/standing"
    for kind in (MERGE, STRATEGIC):
        yield update(f"grace-{kind}", "avail-01", where, grace, long, 601, kind, "deployments")
    deployment = put(
        put(workload("Deployment", put(place.pod(), "/metadata/name", "standing")), long, 600), "/spec/replicas", 1
    )
    applied = f"{where}?fieldManager=verify&force=true"
    yield update("grace-apply", "avail-01", applied, deployment, long, 601, APPLY, "deployments")
    request = Request("PUT", where, put(deployment, long, 601), place.developer)
    denier = cluster.scene.guard("avail-01", "deployments")
    yield attack("update-grace-replace", "avail-01", "replace", denier, request, twin_body=deployment)


def test_what_stands_cannot_be_changed_into_what_would_be_refused(
    cluster: Cluster, standing_work: AttackedNamespace
) -> None:
    assert gaps(cluster, list(_updates(cluster, standing_work))) == []


def test_what_a_controller_wrote_onto_a_pod_stays_and_a_finalizer_is_taken_off(cluster: Cluster) -> None:
    place = cluster.scene.home
    assert place is not None
    pod = put(put(place.pod(), "/metadata/name", "tracked"), "/metadata/finalizers", [JOB_FINALIZER])
    pods = collection("v1", "Pod", place.name)
    # Of an owner that is no job: from a pod without an owner the job controller takes its finalizer off at once.
    root = cluster.api.request("GET", f"/api/v1/namespaces/{place.name}/configmaps/kube-root-ca.crt").body["metadata"]
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": root["name"], "uid": root["uid"], "controller": True}
    pod = put(pod, "/metadata/ownerReferences", [owner])
    path = f"{pods}/tracked"
    answer = cluster.api.request("POST", pods, pod, JOB_CONTROLLER)
    assert answer.ok, answer.message
    agent = Impersonation("eks:vpc-resource-controller", ("system:masters",))
    connected = {"metadata": {"annotations": {"vpc.amazonaws.com/pod-eni": "[]"}}}
    try:
        answer = cluster.api.request("PATCH", path, connected, agent, MERGE)
        assert answer.ok, answer.message
        labels = {"metadata": {"labels": {"note": "hello"}, "finalizers": [JOB_FINALIZER]}}
        another = put(labels, "/metadata/finalizers", [JOB_FINALIZER, "bank.example/keep"])
        request = Request("PATCH", path, another, place.developer, MERGE)
        denier = cluster.scene.guard("avail-03", "pods")
        added = attack("one-more", "avail-03", "", denier, request, twin_body=labels)
        assert [result.as_dict() for result in run(cluster.api, [added]) if result.gap] == []
    finally:
        cluster.api.request("DELETE", f"{path}?gracePeriodSeconds=0")
        answer = cluster.api.request("PATCH", path, {"metadata": {"finalizers": None}}, JOB_CONTROLLER, MERGE)
    assert answer.ok, answer.message
    assert cluster.api.request("GET", path).status == 404


COUNTED = {
    "count/poddisruptionbudgets.policy": ("policy/v1", "PodDisruptionBudget"),
    "count/horizontalpodautoscalers.autoscaling": ("autoscaling/v2", "HorizontalPodAutoscaler"),
    "count/replicasets.apps": ("apps/v1", "ReplicaSet"),
    "count/controllerrevisions.apps": ("apps/v1", "ControllerRevision"),
    "count/serviceaccounts": ("v1", "ServiceAccount"),
}


@pytest.mark.parametrize("key", COUNTED)
def test_a_quota_counts_what_comes_with_work(cluster: Cluster, key: str) -> None:
    place = cluster.scene.home
    assert place is not None
    api, kind = COUNTED[key]
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"}
    further_fields: dict[str, Any] = {
        "PodDisruptionBudget": {"spec": {"selector": {"matchLabels": {"app": "x"}}, "maxUnavailable": 1}},
        "HorizontalPodAutoscaler": {"spec": {"scaleTargetRef": target, "maxReplicas": 2}},
        "ReplicaSet": {"spec": workload("Deployment", place.pod())["spec"]},
        "ControllerRevision": {"revision": 1, "data": {"spec": {}}},
        "ServiceAccount": {},
    }[kind]
    body = {"apiVersion": api, "kind": kind, "metadata": {"name": "counted"}, **further_fields}
    ask = Request("POST", collection(api, kind, place.name), body)
    quota = f"/api/v1/namespaces/{place.name}/resourcequotas/{quotas.NAME}"
    full_limit = cluster.api.request("GET", quota).body["spec"]["hard"][key]
    probe = attack("counted", "quota", "", deniers.quota(quotas.NAME), ask)

    def allow(value: str) -> None:
        assert cluster.api.request("PATCH", quota, {"spec": {"hard": {key: value}}}, content_type=MERGE).ok

    assert run(cluster.api, [probe], twins=False)[0].status < 300, "there is room at first"
    allow("0")
    try:
        until_clear(lambda: not run(cluster.api, [probe], twins=False)[0].refused, f"{key} is enforced")
    finally:
        allow(full_limit)
        until_clear(lambda: run(cluster.api, [probe], twins=False)[0].status >= 400, f"{key} has room again")


def test_the_largest_legal_pod_does_not_exhaust_the_guards(cluster: Cluster) -> None:
    place = cluster.scene.home
    assert place is not None
    pod = place.pod()
    first = pod["spec"]["containers"][0]
    little = {"cpu": "10m", "memory": "16Mi", "ephemeral-storage": "1Mi"}
    env = [{"name": f"SETTING_{number}", "value": "x"} for number in range(24)]
    containers = [
        {**first, "name": f"c{n}", "env": env, "resources": {"requests": little, "limits": little}} for n in range(40)
    ]
    assert sizes.SPEC * 0.8 < len(json.dumps(containers)) < sizes.SPEC
    path = f"/api/v1/namespaces/{place.name}/pods?dryRun=All"
    answer = cluster.api.request("POST", path, put(pod, "/spec/containers", containers), place.developer)
    assert answer.ok, answer.message


def test_what_runs_in_a_pod_cannot_impersonate_any_identity(cluster: Cluster) -> None:
    place = cluster.scene.home
    assert place is not None
    account = f"/api/v1/namespaces/{place.name}/serviceaccounts/default/token"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = cluster.api.request("POST", account, body).body["status"]["token"]
    client = {"authorization": f"Bearer {token}"}
    path = f"{cluster.api.host}/api/v1/namespaces/{place.name}/configmaps"
    with urllib3.PoolManager(ca_certs=str(cluster.authority)) as pool:
        for whom in ({"Impersonate-User": "admin", "Impersonate-Group": "system:masters"}, {}):
            answer = pool.request("GET", path, headers={**client, **whom})
            message = answer.json()["message"]
            assert denial.denier(answer.status, message) == deniers.RBAC, message
            assert ("impersonate" in message) == bool(whom)


@pytest.mark.parametrize("damaged", [None, "", ","], ids=["gone", "empty", "a list of nothing"])
def test_a_namespace_whose_annotations_are_damaged_admits_nothing(cluster: Cluster, damaged: str | None) -> None:
    place = cluster.scene.home
    assert place is not None
    namespace = next(n.namespace for t in cluster.plan.tenants for n in t.namespaces if n.name == place.name)
    registries = namespace["metadata"]["annotations"][vocabulary.ALLOWED_REGISTRIES]
    ask = Request("POST", f"/api/v1/namespaces/{place.name}/pods", place.pod(), place.developer)
    denier = cluster.scene.guard("img-01", "pods")
    probe = attack("damaged", "img-01", "", denier, ask, twin_who=place.developer)

    def annotate(value: str | None) -> None:
        body = {"metadata": {"annotations": {vocabulary.ALLOWED_REGISTRIES: value}}}
        assert cluster.api.request("PATCH", path_of(namespace), body, content_type=MERGE).ok

    try:
        annotate(damaged)
        until_clear(lambda: not run(cluster.api, [probe], twins=False)[0].refused, "pods of the namespace are refused")
    finally:
        annotate(registries)
        until_clear(
            lambda: run(cluster.api, [probe], twins=False)[0].status >= 400, "pods of the namespace are admitted"
        )


@pytest.mark.exhaustive(
    reason=(
        "waits until the API server has checked the types of all guards; "
        "that every expression compiles is in tests/unit, that each guard "
        "refuses in this module"
    )
)
def test_the_api_server_has_no_warning_about_any_guard(cluster: Cluster) -> None:
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"

    def unchecked() -> list[str]:
        policies = cluster.api.items(path)
        return [p["metadata"]["name"] for p in policies if "typeChecking" not in p.get("status", {})]

    control_plane.up(root=ROOT, type_checks=True)
    try:
        until_clear(unchecked, "every guard's types have been checked")
        assert [p["status"]["typeChecking"] for p in cluster.api.items(path) if p["status"]["typeChecking"]] == []
    finally:
        control_plane.up(root=ROOT, type_checks=False)


# What the controls are unit cost: without one, exactly its own attacks get through


@pytest.fixture(scope="module")
def mutant(cluster: Cluster) -> Iterator[Mutant]:
    mutant = Mutant(cluster)
    yield mutant
    mutant.without(frozenset())


def test_of_any_two_rules_each_is_off_where_the_other_is_on() -> None:
    sets = halves(GUARD_RULES).values()
    assert every(any(a in off and b not in off for off in sets) for a, b in permutations(GUARD_RULES, 2))


@pytest.mark.parametrize("rules", half_cases(GUARD_RULES))
def test_without_some_rules_exactly_their_attacks_get_through(
    cluster: Cluster, mutant: Mutant, rules: frozenset[str]
) -> None:
    with without_controllers(cluster):
        sent_attacks = mutant.without(rules)
        assert turned(cluster, sent_attacks) == claimed(cluster, *rules)


def test_every_guard_is_as_planned_again_after_the_mutations(cluster: Cluster, mutant: Mutant) -> None:
    mutant.without(frozenset())
    policies = [guard for guard in cluster.plan.platform.guards if guard["kind"] == "ValidatingAdmissionPolicy"]
    served_policies = [cluster.api.request("GET", path_of(policy)).body for policy in policies]
    changed_policies = [
        policy["metadata"]["name"]
        for policy, served in zip(policies, served_policies, strict=True)
        if policy["spec"]["validations"] != served["spec"]["validations"]
    ]
    assert policies != []
    assert changed_policies == []


@contextmanager
def unlabelled(cluster: Cluster) -> Generator[None]:
    """Every namespace without its label of Pod Security, for as long as it takes."""
    namespaces = [namespace.namespace for tenant in cluster.plan.tenants for namespace in tenant.namespaces]

    def label(level: Callable[[dict[str, Any]], str | None]) -> None:
        for namespace in namespaces:
            body = {"metadata": {"labels": {vocabulary.PSA_ENFORCE: level(namespace)}}}
            assert cluster.api.request("PATCH", path_of(namespace), body, content_type=MERGE).ok

    try:
        label(lambda _: None)
        yield
    finally:
        label(lambda namespace: namespace["metadata"]["labels"][vocabulary.PSA_ENFORCE])
        settle(cluster, "pod-security", refused=True)


OF_NAMESPACES: dict[str, Callable[[Cluster], AbstractContextManager[None]]] = {
    "quota": lambda cluster: removed(cluster, "ResourceQuota", "quota"),
    "limits": lambda cluster: removed(cluster, "LimitRange", "limits"),
    "pod-security": unlabelled,
}
"""Controls that an object of the namespace sets, and how each is taken away."""


@pytest.mark.parametrize("controls", [*([control] for control in OF_NAMESPACES), [*OF_NAMESPACES]], ids="+".join)
def test_without_a_namespaces_controls_exactly_their_attacks_get_through(
    cluster: Cluster, mutant: Mutant, controls: list[str]
) -> None:
    """Alone each is told apart from the other two. What the guards refuse without all three does not depend on one."""
    mutant.without(frozenset())
    of_any = [a for a in cluster.attacks if a.rule in OF_NAMESPACES and not a.skipped]
    with ExitStack() as stack:
        for control in controls:
            stack.enter_context(OF_NAMESPACES[control](cluster))
        for control in controls:
            settle(cluster, control, refused=False)
        sent_attacks = None if len(controls) == len(OF_NAMESPACES) else of_any
        assert turned(cluster, sent_attacks) == claimed(cluster, *controls)


# The command


def test_the_command_ends_with_a_count_and_what_a_tenant_reads(cluster: Cluster, folder: Path) -> None:
    result = _verify(str(folder), "--only", "gpu-")
    count = sum(a.id.startswith("gpu-") and not a.skipped for a in cluster.attacks)
    assert result.exit_code == 0, result.output
    assert f"{count} attacks: {count} refused by the expected control, {count} twins admitted, 0 gaps" in result.stdout
    assert "To change:" in result.stdout


def test_attacks_of_others_are_read_from_a_file_and_a_gap_is_exit_code_1(
    cluster: Cluster, folder: Path, tmp_path: Path
) -> None:
    place = cluster.scene.home
    assert place is not None
    assert place.developer is not None
    who = {"user": place.developer.user, "groups": list(place.developer.groups)}
    pods = f"/api/v1/namespaces/{place.name}/pods"
    refused = {
        "id": "mine-1",
        "attack": "list pods of the system",
        "as": who,
        "method": "GET",
        "path": "/api/v1/namespaces/kube-system/pods",
        "expected_denier": "RBAC",
        "twin": {"path": pods},
    }
    through = {**refused, "id": "mine-2", "attack": "make a pod that is fine", "method": "POST", "path": pods}
    through |= {"body": place.pod(), "twin": {}}
    file = tmp_path / "attacks.yaml"
    file.write_text(yaml.safe_dump([refused, through]))
    result = _verify(str(folder), "--attacks", str(file), "--format", "json")
    records = {record["id"]: record for record in json.loads(result.stdout)}
    assert result.exit_code == 1
    assert records["mine-1"]["refused"]
    assert records["mine-2"]["denier"] == "none", "what gets through is a gap"
    names = {item["metadata"]["name"] for item in cluster.api.items(pods)}
    assert place.pod()["metadata"]["name"] not in names, "others' attacks are dry runs too"


VALID_ATTACK = "{id: a, expected_denier: RBAC, path: /api/v1/pods, twin: {}}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- {id: x}", "expected_denier"),
        ("{id: x}", "no list"),
        ("[]", "empty list"),
        ("- 3", "no mapping"),
        ("[", "line 1"),
        (VALID_ATTACK.replace("twin: {}", "twin: 3"), "twin 3"),
        (VALID_ATTACK.replace("/api", "api"), "begin it with /api"),
        (VALID_ATTACK.replace("twin: {}", "twin: {}, method: FROB"), "FROB"),
        (VALID_ATTACK.replace("twin: {}", "twin: {}, as: stranger"), "stranger"),
        (VALID_ATTACK.replace("twin: {}", "twin: {as: {groups: [x]}}"), "entry 1, twin"),
        (VALID_ATTACK.replace("twin: {}", "twin: {}, as: {user: x, groups: 5}"), "groups"),
        (VALID_ATTACK.replace("twin: {}", "twin: {}, body: 2026-01-01"), "no JSON"),
        (f"- {VALID_ATTACK}\n- {VALID_ATTACK}", "which an entry before has"),
    ],
)
def test_a_file_that_is_no_list_of_attacks_is_bad_input(folder: Path, tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "attacks.yaml"
    file.write_text(text if text[0] != "{" or text == "{id: x}" else f"- {text}")
    result = _verify(str(folder), "--attacks", str(file))
    assert result.exit_code == 2
    assert message in result.output
    assert "Traceback" not in result.output


def test_a_refusal_by_another_control_is_a_gap(cluster: Cluster) -> None:
    probe = next(a for a in cluster.attacks if a.rule == "gpu-02")
    wrong = Attack(probe.id, probe.rule, probe.attack, deniers.RBAC, probe.request, probe.twin)
    assert [result.gap for result in run(cluster.api, [probe, wrong])] == [False, True]


def test_an_environment_that_is_not_deployed_is_one_message(cluster: Cluster, tmp_path: Path) -> None:
    folder = local(tmp_path / "local")
    research_file = (folder / "tenants" / "research.yaml").read_text("utf-8")
    (folder / "tenants" / "research.yaml").rename(folder / "tenants" / "newcomer.yaml")
    (folder / "tenants" / "newcomer.yaml").write_text(research_file.replace("tenant: research", "tenant: newcomer"))
    environment = (folder / "environment.yaml").read_text("utf-8").replace("tenants: [research]", "tenants: [newcomer]")
    (folder / "environment.yaml").write_text(environment)
    result = _verify(str(folder))
    assert result.exit_code == 1, result.output
    assert "tenancy up" in result.stderr
    assert "newcomer--main" in result.stderr
    assert cluster.api.host not in result.stdout


def test_a_cluster_that_does_not_answer_is_one_message(
    plan: Plan, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unreachable = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": plan.context, "context": {"cluster": "c", "user": "u"}}],
    }
    file = tmp_path / "kubeconfig"
    file.write_text(json.dumps(unreachable))
    # The environment is the lab's, and so is the kubeconfig: a lab whose API server is down.
    monkeypatch.setenv("GPU_TENANCY_LAB", str(tmp_path))
    result = _verify(str(folder))
    assert result.exit_code == 1
    assert len(result.stderr.strip().splitlines()) == 1
