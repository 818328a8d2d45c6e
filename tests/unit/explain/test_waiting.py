"""The explanation of `tenancy why` for work that was evicted, by Kueue's own message."""

from __future__ import annotations

from typing import Any

import pytest

from tenancy.catalog import vocabulary
from tenancy.cluster.api import Response
from tenancy.explain.fits_answers import FitVerdict
from tenancy.explain.fits_queue import queue_answer
from tenancy.explain.usage import queue_use
from tenancy.explain.waiting import Explanation, evicted, explain, waits
from tenancy.kube.objects import Object
from tenancy.kube.pods import pods_of
from tenancy.spec.fields.environment import Environment

TENANT = "More urgent work of its own tenant took its place."
SHARE = "It ran on borrowed GPUs, which went to a queue that uses less for its weight."
OWNER = "It ran on borrowed GPUs, which their owner reclaimed."


@pytest.mark.parametrize(
    ("reason", "queue", "sentence"),
    [
        ("prioritization in the ClusterQueue", "fraud--batch", TENANT),
        ("prioritization in the ClusterQueue", "cohort--batch", TENANT),
        ("Fair Sharing within the cohort", "fraud--batch", SHARE),
        ("reclamation within the cohort", "fraud--batch", OWNER),
    ],
)
def test_who_evicted_work_is_told_by_kueues_reason_alone(reason: str, queue: str, sentence: str) -> None:
    """Names of queues stand in the same message, and a tenant may be called as a word of the reason."""
    path = f"/organisation/department--risk/{queue}"
    message = (
        "Preempted to accommodate a workload (UID: 1f, JobUID: 2e) due to "
        f"{reason}; preemptor path: {path}; preemptee path: {path}"
    )
    assert evicted({"type": "Evicted", "reason": "Preempted", "message": message}) == sentence


def explained(workload: Object, events: list[Object] | None = None, pod_created: str = "") -> Explanation:
    """The explanation of `tenancy why` for a StatefulSet with this Workload, and a pod that was made then."""
    owner = {"kind": "StatefulSet", "metadata": {"name": "notebook", "namespace": "desk", "uid": "s"}, "spec": {}}
    metadata: Object = {"name": "notebook-0", "uid": "p", "creationTimestamp": pod_created}
    metadata["ownerReferences"] = [{"uid": "s", "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "notebook"}]
    pod = {"metadata": metadata, "spec": {"containers": []}}
    lists = {
        "workloads": [workload],
        "events": events or [],
        "pods": [pod] if pod_created else [],
        "statefulsets": [owner],
    }

    class Cluster:
        def request(self, _method: str, _path: str) -> Response:
            return Response(200, owner)

        def items(self, path: str) -> list[Object]:
            return lists[path.partition("?")[0].rpartition("/")[2]]

    api: Any = Cluster()
    return explain(api, "desk", "statefulset", "notebook")


def stored(active: bool, *conditions: str) -> Object:
    metadata = {"name": "w", "namespace": "desk", "uid": "w", "ownerReferences": [{"kind": "StatefulSet", "uid": "s"}]}
    metadata |= {
        "creationTimestamp": "2026-11-24T10:00:00Z",
        "annotations": {vocabulary.SUSPENDED: "It was suspended."},
    }
    stored_conditions = [
        {"type": kind, "status": "True", "reason": "Deactivated", "message": "m"} for kind in conditions
    ]
    spec = {"active": active, "queueName": "default", "podSets": []}
    return {
        "metadata": metadata,
        "spec": spec,
        "status": {"conditions": stored_conditions, "admission": {"podSetAssignments": []}},
    }


def test_who_is_suspended_for_idle_gpus_is_told_why_and_how_to_come_back() -> None:
    explanation = explained(stored(False, "Evicted"))
    assert (explanation.state, explanation.sentence) == (
        "evicted",
        "It was suspended. To queue it again, delete it and make it anew.",
    )
    again = explained(stored(True, "Evicted"))
    assert "suspended" not in again.sentence, "the platform has made it active"


def test_running_work_is_told_its_newest_warning() -> None:
    warned = [
        {"reason": "GpuIdle", "message": f"warning {n}", "lastTimestamp": f"2026-11-24T1{n}:00:00Z"} for n in (2, 1)
    ]
    assert explained(stored(True, "Admitted"), warned).sentence == "It runs. warning 2"
    assert explained(stored(True, "Admitted")).sentence == "It runs."


def test_refused_pods_are_told_until_one_is_made() -> None:
    refusal = {"reason": "FailedCreate", "message": "exceeded quota", "lastTimestamp": "2026-11-24T12:00:00Z"}
    refused = "The queue let it start, and its pods are refused: exceeded quota"
    for pod_created, sentence in {
        "": refused,
        "2026-11-24T11:59:00Z": refused,
        "2026-11-24T12:01:00Z": "It runs.",
    }.items():
        assert explained(stored(True, "Admitted"), [refusal], pod_created).sentence == sentence, pod_created


# The same cause, told by `tenancy fits` before and by `tenancy why` afterwards

GPU, SPACE = "nvidia.com/gpu", "fraud--train"
UNCONSTRAINED = {"kueue.x-k8s.io/podset-unconstrained-topology": "true"}
"""An annotation that asks for placement by topology."""


def job(gpus: int = 1, pods: int = 1, labels: Any = None, notes: Any = None, pool: str = "") -> Object:
    spec = {"containers": [{"resources": {"limits": {GPU: gpus}}}]}
    spec |= {"nodeSelector": {vocabulary.POOL: pool}} if pool else {}
    template = {"metadata": {"annotations": notes or {}}, "spec": spec}
    metadata = {"name": "one", "namespace": SPACE, "labels": labels or {}}
    body = {"parallelism": pods, "completions": pods, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": body}


class Queued:
    """An API server with one queue of 16 GPUs in pool `train`, which has a topology or none."""

    def __init__(self, *, near: bool = False, is_stopped: bool = False, resource: str = GPU) -> None:
        status = {"conditions": [{"type": "Active", "status": "False" if is_stopped else "True"}]}
        quota = {"name": resource, "nominalQuota": "16", "borrowingLimit": "0", "lendingLimit": "0"}
        groups = [{"coveredResources": [resource], "flavors": [{"name": "train", "resources": [quota]}]}]
        local = {"metadata": {"name": "default", "namespace": SPACE}, "spec": {"clusterQueue": "q"}, "status": status}
        queue = {"metadata": {"name": "q"}, "spec": {"resourceGroups": groups}, "status": status}
        flavor: Object = {"metadata": {"name": "train"}, "spec": {"nodeLabels": {vocabulary.POOL: "train"}}}
        if near:
            flavor["spec"]["topologyName"] = "train"
        self.named = {"localqueues/default": local, "clusterqueues/q": queue}
        self.lists = {"localqueues": [local], "clusterqueues": [queue], "resourceflavors": [flavor]}
        node = {"metadata": {}, "status": {"allocatable": {GPU: "8"}}}
        self.nodes = [node]

    def request(self, _method: str, path: str) -> Response:
        if "/nodes" in path:
            return Response(200, {"items": self.nodes})
        named_object = self.named.get("/".join(path.rsplit("/", 2)[-2:]))
        return Response(200, named_object) if named_object else Response(404, {"message": "not found"})

    def items(self, path: str) -> list[Object]:
        return self.lists.get(path.rpartition("/")[2], [])


CAUSES = {
    "more than the queue ever has": (
        Queued(),
        job(gpus=8, pods=3),
        "insufficient quota for nvidia.com/gpu in flavor train, previously considered podsets requests (0) + current "
        "podset request (24) > maximum capacity (16)",
    ),
    "no such resource": (
        Queued(resource="nvidia.com/mig-1g.5gb"),
        job(),
        "resource nvidia.com/gpu unavailable in ClusterQueue",
    ),
    "a topology in a pool without one": (
        Queued(),
        job(notes=UNCONSTRAINED),
        'Flavor "train" does not support TopologyAwareScheduling',
    ),
    "no topology in a pool that needs one": (
        Queued(near=True),
        job(),
        'Flavor "train" supports only TopologyAwareScheduling, flavor serve doesn\'t match node affinity',
    ),
    "the nodes of another pool": (Queued(), job(pool="serve"), "flavor train doesn't match node affinity"),
    "no such queue": (
        Queued(),
        job(labels={"kueue.x-k8s.io/queue-name": "other"}),
        "LocalQueue other doesn't exist",
    ),
    "a queue on hold": (Queued(is_stopped=True), job(), "LocalQueue default is stopped"),
    "a pod larger than a node": (
        Queued(near=True),
        job(gpus=9, notes=UNCONSTRAINED, pool="train"),
        'topology "train" doesn\'t allow to fit any of 1 pod(s). Total nodes: 2; '
        'excluded: resource "nvidia.com/gpu": 2',
    ),
    "a pod larger than a node, where Kueue names another pool": (
        Queued(near=True),
        job(gpus=9, notes=UNCONSTRAINED, pool="train"),
        'Flavor "serve" does not support TopologyAwareScheduling',
    ),
}


@pytest.mark.parametrize("cause", CAUSES)
def test_why_and_fits_give_one_explanation(environment: Environment, cause: str) -> None:
    cluster, work, message = CAUSES[cause]
    api: Any = cluster
    answer = queue_answer(api, environment, work, pods_of(work))
    assert answer.verdict is not FitVerdict.FITS
    conditions = [{"type": "QuotaReserved", "status": "False", "message": message}]
    template = work["spec"]["template"]
    waiting = {**stored(True), "status": {"conditions": conditions}}
    queue = work["metadata"]["labels"].get("kueue.x-k8s.io/queue-name", "default")
    waiting["spec"] = {"queueName": queue, "podSets": [{"name": "main", "count": 1, "template": template}]}

    class WithWork(Queued):
        def request(self, method: str, path: str) -> Response:
            owner = {**work, "metadata": {**work["metadata"], "uid": "s"}}
            return Response(200, owner) if "/jobs/" in path else cluster.request(method, path)

        def items(self, path: str) -> list[Object]:
            return [waiting] if path.endswith("/workloads") else []

    why: Any = WithWork()
    assert explain(why, SPACE, "job", "one").sentence == f"{answer.sentence.removesuffix('.')}; {answer.change}."


# `tenancy queues`


def test_a_queue_on_hold_is_told_as_why_tells_it(environment: Environment) -> None:
    message = "Can't admit new workloads: is stopped."
    condition = {"type": "Active", "status": "False", "reason": "Stopped", "message": message}
    quota = {"name": "nvidia.com/gpu", "nominalQuota": "16"}
    groups = [{"coveredResources": [GPU], "flavors": [{"name": "train", "resources": [quota]}]}]
    labels = {vocabulary.ENVIRONMENT: environment.environment, vocabulary.TENANT: "fraud", "tier": "batch"}
    queue = {"metadata": {"name": "q", "labels": labels}, "spec": {"resourceGroups": groups}}

    class Cluster:
        def items(self, path: str) -> list[Object]:
            return [{**queue, "status": {"conditions": [condition]}}] if path.endswith("/clusterqueues") else []

    api: Any = Cluster()
    (use,) = queue_use(api, environment)
    assert use.state == waits("ClusterQueue q is stopped")
    assert "Can't admit" not in use.state
