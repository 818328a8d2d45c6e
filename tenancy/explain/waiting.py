"""Why a workload waits, in one sentence, read with the rights of the user who asks.

Kueue's messages in the Workload (v0.19.2 `pkg/scheduler/flavorassigner`, `scheduler.go`,
`pkg/cache/scheduler/tas_flavor_snapshot.go`, `pkg/controller/core`) are parsed and put in a tenant's words.
"""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tenancy.catalog import vocabulary
from tenancy.catalog.controllers import BUDGET_SPENT, GPU_IDLE
from tenancy.catalog.frameworks import FRAMEWORKS
from tenancy.cluster.api import Api
from tenancy.cluster.evictions import keeps_quota_without_pods, late_operator, to_release, to_restart
from tenancy.explain.gpu_counts import PodTree, counted_devices, uncounted_work
from tenancy.kube.objects import true_conditions
from tenancy.kube.quantities import thousandths
from tenancy.kube.requests import collection
from tenancy.planning.queueing.causes import (
    above_maximum,
    no_queue,
    no_topology,
    not_granted,
    on_hold,
    other_nodes,
    oversized,
    topology_alone,
)
from tenancy.planning.queueing.queue_names import ANY_POOL, API, BOARD_COMPUTE, BOARD_MEMORY, CORES, MEMORY, pool_of

KINDS: Mapping[str, tuple[str, str]] = {
    "job": ("batch/v1", "Job"),
    "pod": ("v1", "Pod"),
    "deployment": ("apps/v1", "Deployment"),
    "statefulset": ("apps/v1", "StatefulSet"),
    **{name: (f"{f.group}/{f.version}", f.kind) for name, f in FRAMEWORKS.items()},
}
"""Kinds that can be explained: name on the command line -> API version and kind."""

Object = Mapping[str, Any]
_REQUEUE_ADVICE = "To queue it again, delete it and make it anew."
"""A StatefulSet that is scaled to 0 and back keeps its Workload, which stays suspended (v0.19.2
`statefulset_reconciler.go`)."""


_RECREATE_ADVICE = "Delete it, which ends its pods, and make it anew; tell the platform team if that happens again."


class WorkNotFound(Exception):
    """There is no such work, or the user may not see it."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why work waits or runs, as one sentence with the message that it is based on."""

    state: str
    """`waits`, `runs`, `uncounted` (its pods have more GPUs than Kueue counts), `stuck` (the queue let it start, and
    its pods do not), `evicted` or `ended`."""
    sentence: str
    said: str
    """The message from the cluster that the sentence explains, verbatim."""
    ahead: int | None
    """Pending work of the same queue that is older or has a higher priority; None once it has started."""


def explain(api: Api, namespace: str, kind: str, name: str) -> Explanation:
    """Why the work does not run, or that it does. WorkNotFound if there is none of that name."""
    version, kind_name = KINDS[kind]
    answer = api.request("GET", f"{collection(version, kind_name, namespace)}/{name}")
    if not answer.ok:
        raise WorkNotFound(answer.message or f"no {kind} {name} in {namespace}")
    workloads = api.items(collection(API, "Workload", namespace))
    workload = _workload(api, namespace, answer.body, workloads)
    # Whatever the conditions say: an eviction ends no pod that Kueue takes for ended.
    if uncounted := uncounted_work(api, namespace, {"kind": kind_name, **answer.body}, workloads):
        return Explanation("uncounted", f"{uncounted.sentence()} {_RECREATE_ADVICE}", "", None)
    if workload is None:
        return _unqueued(api, namespace, answer.body)
    conditions = {c["type"]: c for c in (workload.get("status") or {}).get("conditions") or ()}
    if _is_true(conditions, "Finished"):
        message = conditions["Finished"].get("message", "")
        return Explanation("ended", f"It has ended: {conditions['Finished']['reason'].lower()}.", message, None)
    if kept_quota := _kept_quota(api, namespace, workload, workloads):
        sentence = f"{evicted(conditions['Evicted'])} {kept_quota}"
        return Explanation("evicted", sentence, conditions["Evicted"].get("message", ""), None)
    if _is_true(conditions, "Admitted"):
        return _started(api, namespace, workload, answer.body)
    ahead = _ahead(workload, workloads)
    reserved = conditions.get("QuotaReserved", {})
    message = _not_reserved(workload)
    if re.search(_QUEUE_STOPPED, message) and _is_queue_active(api, workload):
        message = ""  # written before the queue was opened
    message = message or _message_of_equivalent(workload, workloads)
    if _is_true(conditions, "QuotaReserved"):
        message, sentence = reserved["message"], "Its GPUs are set aside; it waits for machines to be made."
    elif _is_true(conditions, "Evicted") and not (workload.get("spec") or {}).get("active", True):
        message = conditions["Evicted"]["message"]
        if by_clock := (workload["metadata"].get("annotations") or {}).get(vocabulary.SUSPENDED):
            return Explanation("evicted", f"{by_clock} {_REQUEUE_ADVICE}", message, None)
        return Explanation(
            "evicted", f"{evicted(conditions['Evicted'])} It does not come back by itself.", message, None
        )
    else:
        sentence = _budget(api, namespace, message) or _oversized(api, workload, message) or waits(message)
    if _is_true(conditions, "Evicted"):
        return Explanation("evicted", f"{evicted(conditions['Evicted'])} {sentence}", message, ahead)
    return Explanation("waits", sentence, message, ahead)


def _kept_quota(api: Api, namespace: str, workload: Object, workloads: Sequence[Object]) -> str:
    """The quota that Kueue still counts for evicted work, and how it is freed; empty without one, and while its pods
    end."""
    if not {"Evicted", "QuotaReserved"} <= true_conditions(workload).keys():
        return ""
    now, counts = dt.datetime.now(dt.UTC), counted_devices(workload).items()
    quota = ", ".join(f"{count} {resource}" for resource, count in counts if "/" in resource) or "its quota"
    if keeps_quota_without_pods(workload, now):
        advice = to_release(namespace, [workload["metadata"]["name"]])
        return f"It has no pods, and Kueue still counts {quota} for it: other work waits. {advice}"
    if operator := late_operator(workload, PodTree(api, namespace, workloads).pods_of(workload), now):
        sentence = "Its operator has not ended its pods, and Kueue still counts"
        return f"{sentence} {quota} for it: other work waits. {to_restart(operator)}"
    return ""


def _budget(api: Api, namespace: str, message: str) -> str:
    """Message of the clock on a queue that it holds because a budget is spent; empty for other reasons."""
    if not re.search(_QUEUE_STOPPED, message):
        return ""
    selector = f"?fieldSelector=involvedObject.kind=LocalQueue,reason={BUDGET_SPENT}"
    events = api.items(collection("v1", "Event", namespace) + selector)
    newest = max(events, key=lambda event: str(event.get("lastTimestamp") or ""), default=None)
    return str(newest.get("message", "")) if newest else ""


def _oversized(api: Api, workload: Object, message: str) -> str:
    """The cause if a pod asks for more GPUs than a node of its pool has; empty if not, or if nodes may not be read.

    Kueue tries every pool of the queue, and its message may name one that the work does not ask for.
    """
    tried_flavors = [match[1] for match in re.finditer(_TRIED, message)]
    for pods in (workload.get("spec") or {}).get("podSets") or ():
        selected = (pods["template"]["spec"].get("nodeSelector") or {}).get(vocabulary.POOL)
        for flavor in [selected] if selected else dict.fromkeys(tried_flavors):
            answer = api.request("GET", f"/api/v1/nodes?labelSelector={vocabulary.POOL}%3D{pool_of(flavor)}")
            nodes = answer.body.get("items") or () if answer.ok else ()
            sizes = [Counter({k: thousandths(n) for k, n in node["status"]["allocatable"].items()}) for node in nodes]
            if cause := oversized(pods["template"], sizes, flavor):
                return str(cause)
    return ""


def _is_true(conditions: Mapping[str, Object], kind: str) -> bool:
    return conditions.get(kind, {}).get("status") == "True"


def _not_reserved(workload: Object) -> str:
    for condition in (workload.get("status") or {}).get("conditions") or ():
        if condition["type"] == "QuotaReserved" and condition["status"] == "False":
            return str(condition.get("message", ""))
    return ""


def _is_queue_active(api: Api, workload: Object) -> bool:
    path = collection(API, "LocalQueue", workload["metadata"]["namespace"])
    answer = api.request("GET", f"{path}/{workload['spec'].get('queueName')}")
    return answer.ok and "Active" in true_conditions(answer.body)


def _message_of_equivalent(workload: Object, workloads: Sequence[Object]) -> str:
    """The message on an equivalent workload: of workloads that are alike in one ClusterQueue, which all queues of a
    namespace share, Kueue evaluates one, and reports nothing on the others."""

    def requested(candidate: Object) -> object:
        spec = candidate["spec"]
        pods = [
            (p["count"], [c.get("resources") for c in p["template"]["spec"]["containers"]]) for p in spec["podSets"]
        ]
        return spec.get("priority"), pods

    alike = (
        _not_reserved(candidate)
        for candidate in workloads
        if not _admitted(candidate) and requested(candidate) == requested(workload)
    )
    return next((message for message in alike if message and not re.search(_QUEUE_STOPPED, message)), "")


def _workload(api: Api, namespace: str, work: Object, workloads: Sequence[Object]) -> Object | None:
    """The newest Workload of the work or of objects that it created; a pending one before a running one."""
    owner_uids = {work["metadata"]["uid"]}
    for version, kind in (("apps/v1", "ReplicaSet"), ("v1", "Pod")):
        if any(_owned(workload, owner_uids) for workload in workloads):
            break
        children = api.items(collection(version, kind, namespace))
        owner_uids |= {child["metadata"]["uid"] for child in children if _owned(child, owner_uids)}
    owned = [workload for workload in workloads if _owned(workload, owner_uids)]
    return min(owned, key=lambda w: (_admitted(w), -_order(w)), default=None)


def _owned(child: Object, owners: set[str]) -> bool:
    return any(owner["uid"] in owners for owner in child["metadata"].get("ownerReferences") or ())


def _admitted(workload: Object) -> bool:
    return bool({"Admitted", "Finished"} & true_conditions(workload).keys())


def _order(workload: Object) -> float:
    return dt.datetime.fromisoformat(workload["metadata"]["creationTimestamp"].replace("Z", "+00:00")).timestamp()


def _ahead(workload: Object, workloads: Sequence[Object]) -> int:
    def rank(candidate: Object) -> tuple[int, float]:
        return -(candidate["spec"].get("priority") or 0), _order(candidate)

    queue = workload["spec"].get("queueName")
    return sum(
        1
        for candidate in workloads
        if candidate["spec"].get("queueName") == queue and not _admitted(candidate) and rank(candidate) < rank(workload)
    )


Say = Callable[[re.Match[str]], str]

_QUEUE_STOPPED = (
    r"(?:LocalQueue|ClusterQueue) \S+ (?:is stopped|is inactive|doesn't exist|not found|is terminating or missing)"
)
"""Messages on work that arrives while the queue is stopped; Kueue does not clear them when the queue opens."""


_TRIED = r'(?:in flavor |[Ff]lavor )"?([a-z0-9.-]+)"?'
"""A flavor that Kueue's message names."""


def _pool(flavor: str) -> str:
    return "" if flavor == ANY_POOL else f" in pool {pool_of(flavor)}"


def _resource(name: str) -> str:
    texts = {BOARD_COMPUTE: "of a board's compute", BOARD_MEMORY: "of a board's memory"}
    return (texts | {CORES: "thousandths of a core", MEMORY: "of memory"}).get(name, name)


_WAITS: Sequence[tuple[str, Say]] = (
    (
        r"Pending the preemption of (\d+) workload",
        lambda m: f"It starts when {m[1]} evicted workload{'s' * (m[1] != '1')} that borrowed its GPUs ended.",
    ),
    (
        r"insufficient quota for (\S+) in flavor (\S+),.*?(?:request \((\S+?)\))? > maximum capacity \((\S+?)\)",
        lambda m: str(above_maximum(m[2], f"{m[3] or 'more'} {_resource(m[1])}", m[4])),
    ),
    (
        r"insufficient unused quota for (\S+) in flavor (\S+?), (\S+) more needed",
        lambda m: (
            f"It waits for {m[3]} more {_resource(m[1])}{_pool(m[2])}: its queue's own are in use, and other queues "
            "do not lend that many."
        ),
    ),
    (
        r"resource (\S+) unavailable in ClusterQueue",
        lambda m: str(not_granted(m[1])),
    ),
    (
        r'topology "[^"]+" (?:allows to fit only (\d+) out of (\d+)|doesn\'t allow to fit any of (\d+))',
        lambda m: (
            f"There are enough GPUs, and they are too far apart: {m[1] or 0} of its {m[2] or m[3]} pods fit "
            "where its topology asks; it starts when nodes that are close together are free."
        ),
    ),
    (
        r'Flavor "([^"]+)" supports only TopologyAwareScheduling, flavor \S+ doesn\'t match node affinity',
        lambda m: str(topology_alone(m[1])),
    ),
    (
        r'Flavor "([^"]+)" does not support TopologyAwareScheduling',
        lambda m: str(no_topology(m[1])),
    ),
    (
        r"flavor (\S+) doesn't match node affinity",
        lambda m: str(other_nodes(m[1])),
    ),
    (
        r"untolerated taint .* in flavor (\S+)",
        lambda m: f"It never starts{_pool(m[1])}: it does not tolerate the pool's taint.",
    ),
    (
        r"requests must not exceed its limits",
        lambda _: (
            "It never starts: a container asks for more than the default limit of its namespace; write its limits too."
        ),
    ),
    (
        r"LimitRange",
        lambda _: (
            "It never starts: a container is larger or smaller than its namespace allows; see `kubectl describe "
            "limitrange`."
        ),
    ),
    (
        r"LocalQueue (\S+) (?:doesn't exist|is terminating or missing)",
        lambda m: str(no_queue(m[1])),
    ),
    (
        _QUEUE_STOPPED,
        lambda _: str(on_hold()),
    ),
    (r"namespace doesn't match", lambda _: "It never starts: its queue belongs to another tenant."),
    (r"^Preempted to accommodate", lambda _: "It is in the queue again."),
    (
        r"no longer fits|overlapping preemption|was already considered",
        lambda _: "Other work was admitted first; Kueue tries again within seconds.",
    ),
)


def _without_unsuitable_pools(message: str) -> str:
    """The message without pools whose maximum is too small, if there is a pool in which the work only waits."""
    reason = r"insufficient quota for \S+ in flavor (\S+), .*?> maximum capacity \(\S+?\)(?:, )?"
    unsuitable = {match[1] for match in re.finditer(reason, message)}
    waiting = {match[1] for match in re.finditer(r"insufficient unused quota for \S+ in flavor (\S+?),", message)}
    return re.sub(reason, "", message) if waiting - unsuitable - {ANY_POOL} else message


def waits(message: str) -> str:
    """A sentence for tenants that explains Kueue's message on pending work."""
    if not message:
        return "Kueue has not reported on it yet."
    for pattern, say in _WAITS:
        if match := re.search(pattern, _without_unsuitable_pools(message), re.DOTALL):
            return say(match)
    return f"It waits. Kueue says: {message}"


_EVICTED: Mapping[str, str] = {
    "PodsReadyTimeout": "Its pods were not ready in time, so its GPUs went to others.",
    "AdmissionCheck": "No machines could be made for it.",
    "ClusterQueueStopped": "Its queue was emptied by the platform team.",
    "LocalQueueStopped": "Its queue was emptied by the platform team.",
    "Deactivated": "It was stopped.",
    "DeactivatedDueToRequeuingLimitExceeded": "It failed to start too many times.",
    "DeactivatedDueToMaximumExecutionTimeExceeded": "It exceeded its maximum run time.",
    "NodeFailures": "A machine that it ran on failed.",
}


_PREEMPTED: Mapping[str, str] = {
    "prioritization in the ClusterQueue": "More urgent work of its own tenant took its place.",
    "Fair Sharing within the cohort": "It ran on borrowed GPUs, which went to a queue that uses less for its weight.",
}
"""By Kueue's `HumanReadablePreemptionReasons`; the same message names the queues."""


def evicted(condition: Object) -> str:
    """The reason of an eviction, in a sentence."""
    if condition["reason"] == "Preempted":
        why = condition.get("message", "").partition("due to ")[2]
        for reason, sentence in _PREEMPTED.items():
            if why.startswith(reason):
                return sentence
        return "It ran on borrowed GPUs, which their owner reclaimed."
    return _EVICTED.get(condition["reason"], f"It was evicted ({condition['reason']}).")


def _started(api: Api, namespace: str, workload: Object, work: Object) -> Explanation:
    """The state of admitted work, by its pods."""
    flavors = sorted(
        {
            pool_of(flavor)
            for podset in workload["status"]["admission"]["podSetAssignments"]
            for flavor in (podset.get("flavors") or {}).values()
            if flavor != ANY_POOL
        }
    )
    location = f" in pool {', '.join(flavors)}" if flavors else ""
    uid = work["metadata"]["uid"]
    pods = [pod for pod in api.items(collection("v1", "Pod", namespace)) if _owned(pod, {uid})]
    newest = max((pod["metadata"].get("creationTimestamp") or "" for pod in pods), default="")
    refusals = _warnings(api, namespace, uid, "FailedCreate")
    # A pod that was made since was not refused: its controller tried again.
    if refusals and (not pods or _when(refusals[-1]) > newest):
        refusal = str(refusals[-1].get("message", ""))
        return Explanation(
            "stuck", f"The queue let it start{location}, and its pods are refused: {refusal}", refusal, None
        )
    for pod in [*pods, work] if work["kind"] == "Pod" else pods:
        for condition in (pod.get("status") or {}).get("conditions") or ():
            # Kueue removes the gate of an admitted pod within a second.
            gated = condition.get("reason") == "SchedulingGated"
            if condition["type"] == "PodScheduled" and condition["status"] == "False" and not gated:
                message = condition.get("message", "")
                return Explanation(
                    "stuck", f"The queue let it start{location}, and no node takes it: {message}", message, None
                )
    idle = _last_warning(api, namespace, workload["metadata"]["uid"], GPU_IDLE)
    return Explanation("runs", f"It runs{location}.{' ' * bool(idle)}{idle}", idle, None)


def _unqueued(api: Api, namespace: str, work: Object) -> Explanation:
    uid = work["metadata"]["uid"]
    # A Deployment's pods are refused to its ReplicaSets.
    children = api.items(collection("apps/v1", "ReplicaSet", namespace)) if work["kind"] == "Deployment" else []
    for owner in [work, *(child for child in children if _owned(child, {uid}))]:
        refusal = _last_warning(api, namespace, owner["metadata"]["uid"], "")
        if not refusal:
            continue
        return Explanation("stuck", f"It is not queued, and the cluster refuses it: {refusal}", refusal, None)
    replicas = (work.get("spec") or {}).get("replicas")
    if replicas == 0:
        return Explanation("ended", "It asks for nothing: its replicas are 0.", "", None)
    if (work.get("spec") or {}).get("suspend") is False or work["kind"] == "Pod":
        return Explanation("runs", "It runs outside of any queue.", "", None)
    return Explanation("waits", waits(""), "", None)


def _last_warning(api: Api, namespace: str, uid: str, reason: str) -> str:
    warnings = _warnings(api, namespace, uid, reason)
    return str(warnings[-1].get("message", "")) if warnings else ""


def _warnings(api: Api, namespace: str, uid: str, reason: str) -> list[Object]:
    """Those of an object, the latest last."""
    selector = f"?fieldSelector=involvedObject.uid={uid},type=Warning"
    events = [e for e in api.items(collection("v1", "Event", namespace) + selector) if reason in e.get("reason", "")]
    return sorted(events, key=_when)


def _when(event: Object) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or "")
