"""Guards over the kinds of work that others' operators run, on a real API server with Kueue's own webhooks before them.

The operators do not run here: what is asked is refused or admitted before they would see it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tenancy.catalog.frameworks import FRAMEWORKS
from tenancy.cluster.denial import API_VALIDATION, AuditLog
from tenancy.kube.requests import JSON_PATCH, collection
from tenancy.planning import make_plan
from tenancy.planning.guards import OF_RUNNING, guards
from tenancy.rules.attacks import attack, put
from tenancy.rules.workloads import Case, attack_of, of_api, work, workload
from tenancy.spec.loader import load
from tenancy.verify.attacks import Request
from tenancy.verify.verification import run
from tests.attacks.attack_lab import (
    ROOT,
    Cluster,
    Mutant,
    claimed,
    deployed,
    gaps,
    half_cases,
    local,
    refused_by,
    turned,
    without_controllers,
)
from tests.operators import crds, training_runtime
from tests.waiting import until_clear

pytestmark = pytest.mark.exhaustive(
    reason=(
        "every kind of others' work on a lab with Kueue's webhooks; the "
        "same attacks are judged without an API server in "
        "tests/unit/check/admission"
    )
)

GUARD = "tenancy-frameworks"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("kinds")
    loaded = load(local(folder / "local", kinds=FRAMEWORKS))
    plan = make_plan(loaded, loaded.day)
    with deployed(loaded, plan, folder / "lab", crds(), [training_runtime()]) as deployed_cluster:
        yield deployed_cluster


@pytest.fixture(scope="module")
def on_kinds(cluster: Cluster) -> Cluster:
    """The cluster with those attacks alone that go through kinds of other operators."""
    return replace(cluster, attacks=tuple(a for a in cluster.attacks if f"/{GUARD}:" in a.expected_denier))


@pytest.fixture(scope="module")
def mutant(on_kinds: Cluster) -> Iterator[Mutant]:
    mutant = Mutant(on_kinds)
    yield mutant
    mutant.without(frozenset())


def test_every_kind_of_work_is_attacked_and_refused_by_its_own_guard(cluster: Cluster, on_kinds: Cluster) -> None:
    results = run(cluster.api, cluster.attacks, AuditLog(cluster.audit_log))
    assert [result.as_dict() for result in results if result.gap] == []
    attacked = {a.request.path.rpartition("/")[2] for a in on_kinds.attacks}
    assert attacked == {framework.resource for framework in FRAMEWORKS.values()}


def _rules() -> list[str]:
    loaded = load(ROOT / "stacks" / "local")
    queues = loaded.environment.queues.model_copy(update={"kinds": tuple(FRAMEWORKS)})
    environment = loaded.environment.model_copy(update={"queues": queues})
    (guard_of_kinds,) = (guard for guard in guards(environment) if guard.name == GUARD)
    return sorted({*guard_of_kinds.rules} - {"ns-02", *OF_RUNNING})


@pytest.mark.parametrize("rule", _rules())
def test_every_rule_is_attacked_through_these_kinds(on_kinds: Cluster, rule: str) -> None:
    assert claimed(on_kinds, rule) != set()


@pytest.mark.parametrize("rules", half_cases(_rules()))
def test_without_some_rules_exactly_their_attacks_through_these_kinds_get_through(
    on_kinds: Cluster, mutant: Mutant, rules: frozenset[str]
) -> None:
    with without_controllers(on_kinds):
        sent_attacks = mutant.without(rules)
        assert turned(on_kinds, sent_attacks) == claimed(on_kinds, *rules)


WORKERS = {"groupName": "workers", "replicas": 1, "minReplicas": 1, "maxReplicas": 4, "rayStartParams": {}}
COUNTS = {
    "JobSet": (
        "/spec/replicatedJobs/0/template/spec/completionMode",
        lambda _: "NonIndexed",
        "/spec/replicatedJobs/0/template/spec/parallelism",
    ),
    "MPIJob": (
        "/spec/mpiReplicaSpecs/Worker",
        lambda pods: {"replicas": 1, "template": pods},
        "/spec/mpiReplicaSpecs/Worker/replicas",
    ),
    "RayCluster": (
        "/spec/workerGroupSpecs",
        lambda pods: [{**WORKERS, "template": pods}],
        "/spec/workerGroupSpecs/0/replicas",
    ),
    "RayJob": (
        "/spec/rayClusterSpec/workerGroupSpecs",
        lambda pods: [{**WORKERS, "template": pods}],
        "/spec/rayClusterSpec/workerGroupSpecs/0/replicas",
    ),
    "TrainJob": ("/spec/trainer", lambda _: {"numNodes": 1}, "/spec/trainer/numNodes"),
}
"""Kinds that are started as a whole: more pods, their path, and the path of their number."""


@pytest.mark.parametrize("kind", COUNTS)
def test_work_that_runs_gets_no_more_pods(on_kinds: Cluster, mutant: Mutant, kind: str) -> None:
    mutant.without(frozenset())
    place, (where, more, count) = on_kinds.scene.home, COUNTS[kind]
    assert place
    pod = put(place.pod(), "/metadata/name", "runs")
    running = put(work(place, kind), "/metadata/name", "runs")
    if where:
        running = put(running, where, more(workload("Job", pod)["spec"]["template"]))
    running = put(running, count, 1)
    path = collection(of_api(kind), kind, place.name)
    dry = f"{path}?dryRun=All"
    until_clear(
        lambda: not on_kinds.api.request("POST", dry, running, place.developer).ok, "Kueue knows the TrainJob's runtime"
    )
    answer = on_kinds.api.request("POST", path, running, place.developer)
    assert answer.ok, answer.message
    object_path = f"{path}/runs"

    def waits() -> bool:
        spec = on_kinds.api.request("GET", object_path).body["spec"]
        return bool(spec.get("runPolicy", spec).get("suspend"))

    try:
        until_clear(waits, f"the queue has started the {kind}")
        change = [{"op": "add", "path": count, "value": 2}]
        request = Request("PATCH", object_path, change, place.developer, JSON_PATCH)
        # A TrainJob's trainer is immutable by its own schema, which is asked before the guards.
        guard = API_VALIDATION if kind == "TrainJob" else on_kinds.scene.guard("kueue-27", path.rpartition("/")[2])
        sentence = "run more than was counted"
        same = put(change, "/0/value", 1)
        grows = attack(f"grows-{kind}", "kueue-27", sentence, guard, request, twin_body=same)
        if guard == API_VALIDATION:
            assert gaps(on_kinds, [grows]) == []
        else:
            refused_by(on_kinds, "kueue-27", [grows])
    finally:
        on_kinds.api.request("DELETE", object_path)


def test_no_template_asks_for_a_certificate_of_the_api_server(on_kinds: Cluster) -> None:
    """The API server drops the field of a pod as long as its gate is off: only a kind of an operator keeps it."""
    place = on_kinds.scene.home
    assert place
    signer = "/spec/volumes/0/projected/sources/0/podCertificate/signerName"
    certificate = {"signerName": "bank.example/workloads", "keyType": "ED25519", "credentialBundlePath": "bundle.pem"}
    volumes = [{"name": "own", "projected": {"sources": [{"podCertificate": certificate}]}}]
    case = Case(
        *("id-08", "certificate", "carry a certificate of the API server", signer),
        *("kubernetes.io/kube-apiserver-client-pod", certificate["signerName"], {"/spec/volumes": volumes}),
    )
    refused_by(on_kinds, "id-08", [attack_of(on_kinds.scene, place, case, "JobSet")])
