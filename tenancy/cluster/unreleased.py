"""Evictions after which Kueue keeps the quota.

Kueue 0.19.2 returns the quota of an evicted group of pods when it looks at a pod of the group, and skips a group that
has none (`pod_controller.go`, `Load`; kueue#14574). A StatefulSet or a group of a LeaderWorkerSet whose pods were
refused or scaled away is evicted and keeps its GPUs, and the work that they were reclaimed for waits. Without its
Workload it has none: Kueue makes another one when a pod of the group comes.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import Any

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
    evicted = dt.datetime.fromisoformat(true_conditions(workload)["Evicted"]["lastTransitionTime"])
    return (now - evicted).total_seconds() >= RELEASE_SECONDS


def to_release(namespace: str, names: Iterable[str]) -> str:
    """Advice how the quota is freed, in a sentence."""
    command = f"kubectl delete workloads -n {namespace} {' '.join(names)}"
    return f"The platform team frees them with `{command}`; with queues.clock the clock does."
