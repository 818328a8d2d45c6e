"""Attacks on work that runs or exists already: more pods than were counted, and an object that grows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from attack_lab import Cluster, gaps, refused_by

from tenancy.catalog import sizes
from tenancy.catalog.controllers import KUEUE
from tenancy.cluster.api import Response
from tenancy.kube.objects import Object
from tenancy.kube.requests import APPLY, MERGE, STRATEGIC, Impersonation, collection
from tenancy.planning.queueing.queue_names import API as QUEUE_API
from tenancy.rules.attacks import attack, put
from tenancy.rules.workloads import workload
from tenancy.verify.attacks import Attack, AttackedNamespace, Request
from tests.conftest import every
from tests.waiting import until_clear

RUNS, EXISTING = "runs", "stands"


@pytest.fixture(scope="module")
def home(cluster: Cluster) -> AttackedNamespace:
    assert cluster.scene.home
    return cluster.scene.home


@pytest.fixture(scope="module")
def running(cluster: Cluster, home: AttackedNamespace) -> Iterator[str]:
    """A Job that the queue has started: its path."""
    job = put(workload("Job", put(home.pod(), "/metadata/name", RUNS)), "/spec/completions", 4)
    jobs = collection("batch/v1", "Job", home.name)
    answer = cluster.api.request("POST", jobs, job, home.developer)
    assert answer.ok, answer.message
    path = f"{jobs}/{RUNS}"
    try:
        until_clear(lambda: cluster.api.request("GET", path).body["spec"]["suspend"], "the queue has started the job")
        yield path
    finally:
        cluster.api.request("DELETE", f"{path}?propagationPolicy=Background")
        pods = f"{collection('v1', 'Pod', home.name)}?labelSelector=batch.kubernetes.io%2Fjob-name%3D{RUNS}"
        until_clear(lambda: cluster.api.request("GET", pods).body["items"], "the pods of what ran are gone")


def test_a_job_that_runs_gets_no_more_pods(cluster: Cluster, home: AttackedNamespace, running: str) -> None:
    guard, sentence = cluster.scene.guard("kueue-27", "jobs"), "run more pods than the queue has counted"
    body = {"spec": {"parallelism": 4}}
    request = Request("PATCH", running, body, home.developer, MERGE)
    more = attack("running-more", "kueue-27", sentence, guard, request, twin_body=put(body, "/spec/parallelism", 1))
    fewer = attack("running-none", "kueue-27", sentence, guard, request, twin_body=put(body, "/spec/parallelism", 0))
    by_queue = attack("running-queue", "kueue-27", sentence, guard, request, twin_who=Impersonation(KUEUE))
    waiting = put(body, "/spec/suspend", False)
    request = Request("PATCH", running, waiting, home.developer, MERGE)
    waits = attack("running-waits", "kueue-27", sentence, guard, request, twin_body=put(waiting, "/spec/suspend", True))
    refused_by(cluster, "kueue-27", (more, fewer, by_queue, waits))


@pytest.fixture(scope="module")
def waiting_workload(cluster: Cluster, home: AttackedNamespace) -> Iterator[str]:
    """A Workload of two pods, or of one at least, that Kueue does not admit: its path."""
    pods = home.pod()["spec"]
    item = {
        "apiVersion": QUEUE_API,
        "kind": "Workload",
        "metadata": {"name": "counted", "namespace": home.name},
        "spec": {
            "queueName": "absent",
            "podSets": [
                {"name": "all", "count": 2, "template": {"spec": pods}},
                {"name": "some", "count": 2, "minCount": 1, "template": {"spec": pods}},
            ],
        },
    }
    path = collection(QUEUE_API, "Workload", home.name)
    answer = cluster.api.request("POST", path, item)
    assert answer.ok, answer.message
    yield f"{path}/counted"
    cluster.api.request("DELETE", f"{path}/counted")


def test_no_admission_counts_other_pods_than_the_work_has(cluster: Cluster, waiting_workload: str) -> None:
    guard, sentence = cluster.scene.guard("kueue-35", "workloads/status"), "admit work with fewer pods than it has"
    assignments = [{"name": name, "count": count} for name, count in (("all", 2), ("some", 1))]
    body = {"status": {"admission": {"clusterQueue": "any", "podSetAssignments": assignments}}}
    attacks = [
        attack(
            f"admission-{slug}",
            "kueue-35",
            sentence,
            guard,
            Request("PATCH", f"{waiting_workload}/status", put(body, at, count), Impersonation(KUEUE), MERGE),
            twin_body=body,
        )
        for slug, at, count in (
            ("fewer", "/status/admission/podSetAssignments/0/count", 1),
            ("more", "/status/admission/podSetAssignments/0/count", 3),
            ("below-least", "/status/admission/podSetAssignments/1/count", 0),
        )
    ]
    refused_by(cluster, "kueue-35", attacks)


def test_work_that_is_admitted_gets_no_other_pods_than_its_admission_counts(
    cluster: Cluster, waiting_workload: str
) -> None:
    guard, sentence = cluster.scene.guard("kueue-35", "workloads"), "change the pods of work that is admitted"
    assignments = [{"name": name, "count": 2} for name in ("all", "some")]
    admission: Object = {"status": {"admission": {"clusterQueue": "any", "podSetAssignments": assignments}}}
    answer = cluster.api.request("PATCH", f"{waiting_workload}/status", admission, Impersonation(KUEUE), MERGE)
    assert answer.ok, answer.message
    pod_sets = cluster.api.request("GET", waiting_workload).body["spec"]["podSets"]
    body = {"metadata": {"labels": {"note": "any"}}, "spec": {"podSets": pod_sets}}
    request = Request("PATCH", waiting_workload, put(body, "/spec/podSets/0/count", 3), Impersonation(KUEUE), MERGE)
    refused_by(cluster, "kueue-35", [attack("admitted-more", "kueue-35", sentence, guard, request, twin_body=body)])


@pytest.fixture(scope="module")
def running_work(cluster: Cluster, home: AttackedNamespace) -> Iterator[None]:
    """A pod, a Deployment without pods and a large config map, as the platform may write it."""
    pod = put(home.pod(), "/metadata/name", EXISTING)
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": EXISTING}}
    config["data"] = {"note": "a" * (2 * sizes.DATA)}  # type: ignore[assignment]
    objects_and_authors = [
        (pod, home.developer),
        (put(workload("Deployment", pod), "/spec/replicas", 0), home.developer),
        (config, None),
    ]
    paths = [collection(item["apiVersion"], item["kind"], home.name) for item, _ in objects_and_authors]
    try:
        for path, (item, who) in zip(paths, objects_and_authors, strict=True):
            answer = cluster.api.request("POST", path, item, who)
            assert answer.ok, answer.message
        yield
    finally:
        for path in paths:
            cluster.api.request("DELETE", f"{path}/{EXISTING}?gracePeriodSeconds=0&propagationPolicy=Background")
        until_clear(
            lambda: [p for p in paths if cluster.api.request("GET", f"{p}/{EXISTING}").ok], "what stood is gone"
        )


def _growths(cluster: Cluster, home: AttackedNamespace) -> Iterator[Attack]:
    """Every way in which an object that stands becomes larger."""
    pods = f"{collection('v1', 'Pod', home.name)}/{EXISTING}"
    deployments = f"{collection('apps/v1', 'Deployment', home.name)}/{EXISTING}"

    def grown(name: str, resource: str, path: str, body: Any, at: str, bad: Any, kind: str = MERGE) -> Attack:
        request = Request("PATCH", path, put(body, at, bad), home.developer, kind)
        guard, sentence = cluster.scene.guard("avail-05", resource), f"grow by {name}"
        return attack(f"grow-{name}", "avail-05", sentence, guard, request, twin_body=body)

    note = {"metadata": {"annotations": {"bank.example/note": "x"}}}
    large = "a" * sizes.METADATA
    for resource, path in (("pods", pods), ("deployments", deployments)):
        yield grown(f"annotation-{resource}", resource, path, note, "/metadata/annotations/bank.example~1note", large)
        # Fewer than a guard walks over, and long.
        uid = "0b1c0000-0000-4000-8000-00000000"
        owner = {"apiVersion": "v1", "kind": "a" * 500, "name": "a" * 250}
        owners = [{**owner, "uid": f"{uid}{number:04d}"} for number in range(200)]
        owned = {"metadata": {"ownerReferences": owners[:1]}}
        request = Request("PATCH", path, put(owned, "/metadata/ownerReferences", owners), home.developer, MERGE)
        guard = cluster.scene.guard("avail-05", resource)
        yield attack(f"grow-owners-{resource}", "avail-05", "grow by owners", guard, request, twin_who=None)
    debug = {**home.pod()["spec"]["containers"][0], "name": "debug", "env": [{"name": "NOTE", "value": "x"}]}
    del debug["resources"]
    body = {"spec": {"ephemeralContainers": [debug]}}
    at = "/spec/ephemeralContainers/0/env/0/value"
    resource = "pods/ephemeralcontainers"
    yield grown("debug", resource, f"{pods}/ephemeralcontainers", body, at, "a" * sizes.SPEC, STRATEGIC)


@pytest.mark.usefixtures("running_work")
def test_what_stands_grows_no_further_than_it_may(cluster: Cluster, home: AttackedNamespace) -> None:
    growths = tuple(_growths(cluster, home))
    assert gaps(cluster, growths) == []
    refused_by(cluster, "avail-05", growths)


@pytest.mark.usefixtures("running_work")
def test_no_scale_makes_more_pods_than_the_queue_can_count(cluster: Cluster, home: AttackedNamespace) -> None:
    path = f"{collection('apps/v1', 'Deployment', home.name)}/{EXISTING}/scale"
    body = {"spec": {"replicas": sizes.PODS_OF_WORK + 1}}
    request = Request("PATCH", path, body, home.developer, MERGE)
    guard, sentence = (
        cluster.scene.guard("kueue-29", "deployments/scale"),
        "have so many pods that the queue counts none",
    )
    fewer = put(body, "/spec/replicas", sizes.PODS_OF_WORK)
    refused_by(cluster, "kueue-29", [attack("scale", "kueue-29", sentence, guard, request, twin_body=fewer)])


def _apply(cluster: Cluster, path: str, body: Object, number: int, who: Impersonation | None) -> Response:
    applied = f"{path}?fieldManager=manager-{number}&force=true"
    return cluster.api.request("PATCH", applied, body, who, APPLY)


@pytest.mark.usefixtures("running_work")
def test_field_managers_come_to_an_end(cluster: Cluster, home: AttackedNamespace) -> None:
    path = f"{collection('apps/v1', 'Deployment', home.name)}/{EXISTING}"
    metadata = {"name": EXISTING, "annotations": {"bank.example/applied": "x"}}
    body: Object = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata}
    answers = [_apply(cluster, path, body, number, home.developer) for number in range(sizes.MANAGERS + 3)]
    refused = [answer for answer in answers if not answer.ok]
    assert answers[0].ok, answers[0].message
    assert refused, "field managers without end"
    assert every("avail-05" in answer.message for answer in refused), refused[0].message
    assert _apply(cluster, path, body, 0, home.developer).ok, "who was there before goes on"
    assert _apply(cluster, path, body, sizes.MANAGERS + 1, None).ok, "the platform goes on"


@pytest.mark.usefixtures("running_work")
def test_the_last_to_scale_is_the_only_field_manager_of_the_scale(cluster: Cluster, home: AttackedNamespace) -> None:
    """So no guard has to count them: the API server shows none of them in a scale."""
    path = f"{collection('apps/v1', 'Deployment', home.name)}/{EXISTING}"
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": EXISTING}, "spec": {"replicas": 0}}
    answers = [_apply(cluster, f"{path}/scale", scale, number, home.developer) for number in range(5)]
    assert [answer.message for answer in answers if not answer.ok] == []
    entries = cluster.api.request("GET", path).body["metadata"]["managedFields"]
    assert [entry["manager"] for entry in entries if entry.get("subresource") == "scale"] == ["manager-4"]


@pytest.mark.usefixtures("running_work")
def test_what_is_too_large_already_may_become_smaller_and_no_larger(cluster: Cluster, home: AttackedNamespace) -> None:
    path = f"{collection('v1', 'ConfigMap', home.name)}/{EXISTING}"
    guard = cluster.scene.guard("avail-05", "configmaps")
    body = {"data": {"note": "a" * (2 * sizes.DATA + 1)}}
    request = Request("PATCH", path, body, home.developer, MERGE)
    less = put(body, "/data/note", "a" * (2 * sizes.DATA - 1000))
    larger = attack("shrink", "avail-05", "grow what is too large", guard, request, twin_body=less)
    assert gaps(cluster, [larger]) == []
    assert cluster.api.request("DELETE", f"{path}?dryRun=All", None, home.developer).ok
