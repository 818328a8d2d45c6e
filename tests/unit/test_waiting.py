"""What `tenancy why` says of work that was evicted, by Kueue's own message."""

from __future__ import annotations

from typing import Any

import pytest

from tenancy.catalog import vocabulary as words
from tenancy.kube.objects import Object
from tenancy.live.api import Response
from tenancy.live.waiting import Explanation, evicted, explain

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
    said = (
        "Preempted to accommodate a workload (UID: 1f, JobUID: 2e) due to "
        f"{reason}; preemptor path: {path}; preemptee path: {path}"
    )
    assert evicted({"type": "Evicted", "reason": "Preempted", "message": said}) == sentence


def explained(workload: Object, events: list[Object] | None = None) -> Explanation:
    """What `tenancy why` says of a StatefulSet with this Workload."""
    owner = {"kind": "StatefulSet", "metadata": {"name": "notebook", "namespace": "desk", "uid": "s"}, "spec": {}}
    lists = {"workloads": [workload], "events": events or [], "pods": []}

    class Cluster:
        def request(self, _method: str, _path: str) -> Response:
            return Response(200, owner)

        def items(self, path: str) -> list[Object]:
            return lists[path.partition("?")[0].rpartition("/")[2]]

    api: Any = Cluster()
    return explain(api, "desk", "statefulset", "notebook")


def stored(active: bool, *conditions: str) -> Object:
    metadata = {"name": "w", "namespace": "desk", "uid": "w", "ownerReferences": [{"uid": "s"}]}
    metadata |= {"creationTimestamp": "2026-11-24T10:00:00Z", "annotations": {words.SUSPENDED: "It was suspended."}}
    held = [{"type": kind, "status": "True", "reason": "Deactivated", "message": "m"} for kind in conditions]
    spec = {"active": active, "queueName": "default", "podSets": []}
    return {
        "metadata": metadata,
        "spec": spec,
        "status": {"conditions": held, "admission": {"podSetAssignments": []}},
    }


def test_who_is_suspended_for_idle_gpus_is_told_why_and_how_to_come_back() -> None:
    found = explained(stored(False, "Evicted"))
    assert (found.state, found.sentence) == (
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
