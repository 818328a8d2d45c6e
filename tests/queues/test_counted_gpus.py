"""Kueue's count of work whose pods end at different times, and whether evictions come to an end.

The kubelet's and the JobSet controller's parts are played: they write the status that Kueue reads. Each test also shows
what Kueue's defaults do.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import town
from scene import LEAST_PODS, PLATFORM, Object, Scene, collection, holds, kueue_values

from tenancy.kube.requests import MERGE, STRATEGIC, Impersonation
from tenancy.lab import control_plane
from tenancy.planning.common.pools import fake_nodes
from tenancy.planning.queueing.queue_names import API
from tests import operators
from tests.waiting import until

pytestmark = pytest.mark.exhaustive(
    reason=(
        "minutes of evictions and restarts under Kueue's settings; the "
        "ledger of `make test` plays such events under ours"
    )
)

FILES = {
    "environment.yaml": town.ENVIRONMENT + "queues: {kinds: [jobset]}\n",
    "tenants/fraud.yaml": town.tenant(
        "fraud", "risk", "guaranteed: 32, sharing: lend-and-borrow, lending-limit: 16, borrowing-limit: 32"
    ),
    "tenants/performance.yaml": town.tenant(
        "performance", "markets", "guaranteed: 24, sharing: lend-and-borrow, lending-limit: 24, borrowing-limit: 40"
    ),
}
CRDS = operators.crds
RECLAIMABLE = {"featureGates": {"ReclaimablePods": True}}
BOTH = {"fairSharing": {"preemptionStrategies": ["LessThanOrEqualToFinalShare", "LessThanInitialShare"]}}
UNJUDGED = Impersonation("system:serviceaccount:kube-system:cronjob-controller", ("system:masters",))
"""A controller, whose work the guards do not judge: a developer is refused such a Job (kueue-28)."""
QUIET_SECONDS = 12
"""Without an eviction. Endless ones come every two seconds."""


@contextmanager
def configured(scene: Scene, **settings: Any) -> Iterator[None]:
    """Kueue with other settings, and afterwards with the environment's."""

    def start(**more: Any) -> None:
        group, nodes = scene.loaded.environment.platform.group, fake_nodes(scene.loaded.environment)
        queues = kueue_values(scene.loaded, **more)
        control_plane.up(root=scene.root, platform_group=group, nodes=nodes, queues=queues)
        scene.settle()

    start(**settings)
    try:
        yield
    finally:
        start()


def running(scene: Scene, tenant: str) -> int:
    """GPUs of pods on nodes that have not ended."""
    pods = scene.pods(scene.space(tenant))
    return sum(int(c["resources"]["limits"].get("nvidia.com/gpu", 0)) for p in pods for c in p["spec"]["containers"])


def end_one_pod(scene: Scene, tenant: str) -> None:
    """Write the status that a kubelet writes when a pod's containers have ended."""
    pod = scene.pods(scene.space(tenant))[0]
    where = f"{collection('v1', 'Pod', pod['metadata']['namespace'])}/{pod['metadata']['name']}/status"
    ended = {"exitCode": 0, "reason": "Completed"}
    container = pod["spec"]["containers"][0]
    status = {"name": container["name"], "image": container["image"], "imageID": "", "ready": False}
    status |= {"restartCount": 0, "state": {"terminated": ended}}
    body = {"status": {"phase": "Succeeded", "containerStatuses": [status]}}
    answer = scene.api.request("PATCH", where, body, PLATFORM, STRATEGIC)
    assert answer.ok, answer.message


def more_parallelism_than_completions(scene: Scene, name: str) -> None:
    job = scene.job("fraud", name, 8, queue="default")
    job["spec"] |= {"completions": 4, "parallelism": 12}
    where = collection("batch/v1", "Job", scene.space("fraud"))
    answer = scene.api.request("POST", where, job, UNJUDGED)
    assert answer.ok, answer.message
    until(lambda: running(scene, "fraud") == 32, "four pods run")
    scene.until_held("fraud", 32)
    end_one_pod(scene, "fraud")
    until(lambda: running(scene, "fraud") == 24, "three pods run")


def test_a_pod_that_ended_stays_counted_and_a_restart_of_kueue_counts_what_ran_uncounted(scene: Scene) -> None:
    """A Job of four pods of 8 GPUs that asks for twelve at once: by Kueue's defaults the three that run after the first
    end are not counted. Counted again, they are called back by the owner of a guarantee."""
    scene.clear()
    with configured(scene, **RECLAIMABLE):
        more_parallelism_than_completions(scene, "sweep")
        scene.until_held("fraud", 0)
        assert running(scene, "fraud") == 24
    scene.until_held("fraud", 32)
    assert running(scene, "fraud") == 24
    scene.clear()
    more_parallelism_than_completions(scene, "sweep")
    until(lambda: holds(scene.workload(scene.space("fraud"), "sweep"), "PodsReady"), "Kueue looked at it again")
    assert scene.gpus_in_use("fraud") == 32


def jobset(scene: Scene, name: str) -> str:
    """Eight children of 8 GPUs; the path of the JobSet, which the queue has started."""
    pods = scene.job("fraud", "any", 8)["spec"]["template"]
    child = {"spec": {"backoffLimit": 0, "template": {"spec": pods["spec"]}}}
    spec = {"failurePolicy": {"maxRestarts": 1}, "replicatedJobs": [{"name": "w", "replicas": 8, "template": child}]}
    metadata = {"name": name, "namespace": scene.space("fraud")}
    item: Object = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata, "spec": spec}
    answer = scene.ask("fraud", item)
    assert answer.ok, answer.message
    scene.until_held("fraud", 64)
    return f"{collection(item['apiVersion'], 'JobSet', scene.space('fraud'))}/{name}"


def children(scene: Scene, path: str, succeeded: int, active: int) -> None:
    """Write the counts of children that the JobSet's controller writes."""
    counts = {"name": "w", "ready": active, "succeeded": succeeded, "failed": 0, "active": active, "suspended": 0}
    body = {"status": {"restarts": 0, "replicatedJobsStatus": [counts]}}
    answer = scene.api.request("PATCH", f"{path}/status", body, PLATFORM, MERGE)
    assert answer.ok, answer.message


def drain(scene: Scene, policy: str) -> None:
    where = f"{collection(API, 'LocalQueue', scene.space('fraud'))}/default"
    answer = scene.api.request("PATCH", where, {"spec": {"stopPolicy": policy}}, PLATFORM, MERGE)
    assert answer.ok, answer.message


def suspended(scene: Scene, path: str) -> bool:
    return bool(scene.api.request("GET", path).body["spec"].get("suspend"))


def test_a_jobset_that_restarts_stays_counted_and_can_be_evicted(scene: Scene) -> None:
    """Seven of eight children succeed, the eighth fails, and all eight are made anew. By Kueue's defaults 8 of its 64
    GPUs are counted from then on, and a drain does not end it, because Kueue may not count the seven again."""
    scene.clear()
    with configured(scene, **RECLAIMABLE):
        path = jobset(scene, "defaults")
        children(scene, path, succeeded=7, active=1)
        scene.until_held("fraud", 8)
        children(scene, path, succeeded=0, active=8)
        drain(scene, "HoldAndDrain")
        until(lambda: scene.evictions(reason="LocalQueueStopped"), "Kueue has told it to end")
        with pytest.raises(AssertionError, match="still not: it is suspended"):
            until(lambda: suspended(scene, path), "it is suspended", seconds=QUIET_SECONDS)
        assert scene.gpus_in_use("fraud") == 8
        drain(scene, "None")
        scene.api.request("DELETE", path)
        scene.until_held("fraud", 0)
    path = jobset(scene, "counted")
    children(scene, path, succeeded=7, active=1)
    children(scene, path, succeeded=0, active=8)
    assert scene.gpus_in_use("fraud") == 64
    drain(scene, "HoldAndDrain")
    until(lambda: suspended(scene, path), "it is suspended")
    children(scene, path, succeeded=0, active=0)
    scene.until_held("fraud", 0)
    drain(scene, "None")
    scene.api.request("DELETE", path)


SIX = (
    ("performance", 8, 4, None, True),
    ("performance", 8, 5, "batch", True),
    ("performance", 8, 2, "batch", False),
    ("fraud", 2, 1, None, False),
    ("fraud", 8, 5, "batch", False),
    ("performance", 1, 3, "batch", False),
)
"""Tenant, GPUs of a pod, pods, priority, and whether the job may start with one pod."""


def submit_six(scene: Scene) -> None:
    for number, (tenant, gpus, pods, priority, smaller) in enumerate(SIX):
        notes = {LEAST_PODS: "1"} if smaller else None
        home, name = scene.submit(tenant, f"job-{number}", gpus, pods, priority=priority, notes=notes), f"job-{number}"
        # In this order, each seen by Kueue before the next.
        until(lambda home=home, name=name: scene.runs(home, name) or scene.waits(home, name), f"Kueue has seen {name}")


def evicted(scene: Scene) -> int:
    return sum(sum(scene.evictions(scene.space(tenant)).values()) for tenant in ("fraud", "performance"))


def quiet(scene: Scene) -> None:
    """Wait until no work has been evicted for a while."""
    evictions, since = evicted(scene), time.monotonic()

    def still() -> bool:
        nonlocal evictions, since
        if (count := evicted(scene)) != evictions:
            evictions, since = count, time.monotonic()
        return time.monotonic() - since > QUIET_SECONDS

    until(still, f"no eviction for {QUIET_SECONDS} s")


def test_evictions_end_when_no_work_is_submitted_any_more(scene: Scene) -> None:
    """Six jobs of two tenants, two of which may start with fewer pods. With both of Kueue's default strategies they
    evict each other without end."""
    scene.clear()
    submit_six(scene)
    quiet(scene)
    assert evicted(scene) <= len(SIX)
    scene.clear()
    with configured(scene, **BOTH):
        submit_six(scene)
        until(lambda: evicted(scene) > 4 * len(SIX), "they evict each other")
        scene.clear()
