"""Evictions that neither Kueue nor an operator carries out.

Kueue 0.19.2 returns the quota of an evicted group of pods when it looks at a pod of the group, and skips a group that
has none (`pod_controller.go`, `Load`; kueue#14574). A StatefulSet or a group of a LeaderWorkerSet whose pods were
refused or scaled away is evicted and keeps its GPUs, and the work that they were reclaimed for waits. Without its
Workload it has none: Kueue makes another one when a pod of the group comes.

The pods of work with an operator end when the operator ends them. MPI operator 0.8.2 puts each event of a job into a
queue whose delay doubles with every event until a round ends without an error (`mpi_job_controller.go`,
`enqueueMPIJob`; mpi-operator#607): after 17 events and a conflict it looks at the job again after up to 1,000 s. Kueue
learns of pods from the job's status: what the operator has not written there runs uncounted.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import Any

from tenancy.catalog.frameworks import FRAMEWORKS, Framework
from tenancy.kube.objects import true_conditions

RELEASE_SECONDS = 60
"""Time that Kueue has to return the quota after an eviction."""
_GROUP = "kueue.x-k8s.io/is-group-workload"
"""Annotation of Workloads that count a group of pods."""


def is_evicted_group(workload: Mapping[str, Any]) -> bool:
    """Whether it counts a group of pods, was evicted, and still has quota."""
    metadata, conditions = workload["metadata"], true_conditions(workload)
    is_group = (metadata.get("annotations") or {}).get(_GROUP) == "true" and not metadata.get("deletionTimestamp")
    return is_group and {"Evicted", "QuotaReserved"} <= conditions.keys() and "Finished" not in conditions


def keeps_quota_without_pods(workload: Mapping[str, Any], now: dt.datetime) -> bool:
    """Whether it was evicted a minute ago, still has quota, and none of its pods exists: Kueue notes each of them as an
    owner, and the garbage collector takes the notes off."""
    owners = workload["metadata"].get("ownerReferences") or ()
    if not is_evicted_group(workload) or any(owner["kind"] == "Pod" for owner in owners):
        return False
    return _seconds_since(true_conditions(workload)["Evicted"], now) >= RELEASE_SECONDS


def late_operator(workload: Mapping[str, Any], pods: Iterable[Mapping[str, Any]], now: dt.datetime) -> Framework | None:
    """Kind of a Workload that ended or was evicted a minute ago, if its operator has told none of its pods to end or
    Kueue keeps its quota; None for any other Workload, of which the pods are not read."""
    kinds = [owner["kind"] for owner in workload["metadata"].get("ownerReferences") or ()]
    framework = next((framework for framework in FRAMEWORKS.values() if framework.kind in kinds), None)
    conditions = true_conditions(workload)
    ending = next((kind for kind in ("Finished", "Evicted") if kind in conditions), None)
    if framework is None or ending is None or _seconds_since(conditions[ending], now) < RELEASE_SECONDS:
        return None
    has_quota = ending == "Evicted" and "QuotaReserved" in conditions
    are_ending = ["deletionTimestamp" in pod["metadata"] for pod in pods]
    return framework if (are_ending or has_quota) and not any(are_ending) else None


def _seconds_since(condition: Mapping[str, Any], now: dt.datetime) -> float:
    return (now - dt.datetime.fromisoformat(condition["lastTransitionTime"])).total_seconds()


def to_release(namespace: str, names: Iterable[str]) -> str:
    """Advice how the quota is freed, in a sentence."""
    command = f"kubectl delete workloads -n {namespace} {' '.join(names)}"
    return f"The platform team frees them with `{command}`; with queues.clock the clock does."


def to_restart(framework: Framework) -> str:
    """Advice how the operator of a kind is made to look at its work again, in a sentence."""
    command = f"kubectl rollout restart deployment -n {framework.namespace}"
    return f"The platform team restarts the operator with `{command}`."
