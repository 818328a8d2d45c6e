"""Whether the queue would admit work now, by Kueue's flavor assignment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tenancy.catalog import vocabulary as words
from tenancy.catalog.controllers import QUEUE, URGENCY
from tenancy.kube.objects import Object, true_conditions
from tenancy.kube.pods import Pods, Resources, amount_of, min_pods_to_start, quantity_text, queued_metadata
from tenancy.kube.requests import collection
from tenancy.live.api import Api
from tenancy.live.cohorts import read_tree
from tenancy.live.fits_answers import ControlAnswer, FitVerdict
from tenancy.planning.common.priorities import DEFAULT_CLASS, priorities
from tenancy.planning.queueing.assignment import (
    AssignmentMode,
    FlavorAssigner,
    FlavorChoice,
    counted_resources,
    holds_quota,
)
from tenancy.planning.queueing.causes import WaitCause, above_maximum, no_queue, on_hold
from tenancy.planning.queueing.queue_names import ANY_POOL, API, pool_of
from tenancy.schema.environment import Environment


def _never(cause: WaitCause) -> ControlAnswer:
    return ControlAnswer("queue", FitVerdict.NEVER, f"{cause.sentence}.", cause.change)


def queue_answer(
    api: Api, environment: Environment, item: Mapping[str, Any], sets: Sequence[Pods]
) -> tuple[ControlAnswer, list[Object]]:
    """The answer of the queue, and the flavors that it would assign."""
    space = item["metadata"]["namespace"]
    name = (queued_metadata(item).get("labels") or {}).get(QUEUE, words.DEFAULT_QUEUE)
    local_queue = api.request("GET", f"{collection(API, 'LocalQueue', space)}/{name}")
    if not local_queue.ok:
        return _never(no_queue(name)), []
    cluster_queue = local_queue.body["spec"]["clusterQueue"]
    queue = api.request("GET", f"{collection(API, 'ClusterQueue')}/{cluster_queue}")
    if not queue.ok:
        text = f"Queue {name} uses ClusterQueue {cluster_queue}, which does not exist."
        return ControlAnswer("queue", FitVerdict.NEVER, text, "ask the platform team to run `tenancy up`"), []
    for entry in (local_queue.body, queue.body):
        if not _active(entry):
            cause = on_hold()
            return ControlAnswer("queue", FitVerdict.WAITS, f"{cause.sentence}.", cause.change), []
    tree, flavors = read_tree(api), {f["metadata"]["name"]: f for f in api.items(collection(API, "ResourceFlavor"))}

    def claim_template(name: str) -> Object | None:
        path = collection("resource.k8s.io/v1", "ResourceClaimTemplate", space)
        answer = api.request("GET", f"{path}/{name}")
        return dict(answer.body) if answer.ok else None

    demands = [(pods, counted_resources(environment, pods, claim_template)) for pods in sets]
    urgency = _urgency(environment, item, sets[0])
    work = _work_of(api, cluster_queue)
    scheduler = FlavorAssigner(environment, queue.body, tree[cluster_queue], flavors, work, urgency)
    choices = scheduler.place(demands)
    ahead = sum(1 for entry in work if not holds_quota(entry) and (entry["spec"].get("priority") or 0) >= urgency)
    used = [
        flavors[entry.flavor] for entry in choices if entry.flavor in flavors and entry.mode is not AssignmentMode.NEVER
    ]
    return _answer(cluster_queue, item, choices, scheduler, demands, ahead), used


def _active(item: Mapping[str, Any]) -> bool:
    conditions = (item.get("status") or {}).get("conditions") or ()
    return all(c["status"] == "True" for c in conditions if c["type"] == "Active")


def _work_of(api: Api, cluster_queue: str) -> list[Object]:
    """Workloads of a ClusterQueue that have not ended."""
    leading = {
        (workload["metadata"]["namespace"], workload["metadata"]["name"]): workload["spec"]["clusterQueue"]
        for workload in api.items(collection(API, "LocalQueue"))
    }
    pending = []
    for workload in api.items(collection(API, "Workload")):
        ended = "Finished" in true_conditions(workload)
        queue = leading.get((workload["metadata"]["namespace"], workload["spec"].get("queueName", "")))
        if queue == cluster_queue and not ended and workload["spec"].get("active", True):
            pending.append(workload)
    return pending


def _pool_name(flavor: str) -> str:
    return "" if flavor in {"", ANY_POOL} else f" in pool {pool_of(flavor)}"


def _urgency(environment: Environment, item: Mapping[str, Any], pods: Pods) -> int:
    spec, values = pods.template["spec"], priorities(environment)
    class_name = (queued_metadata(item).get("labels") or {}).get(URGENCY)
    return values.get(class_name or spec.get("priorityClassName") or DEFAULT_CLASS, spec.get("priority") or 0)


def _answer(
    cluster_queue: str,
    item: Mapping[str, Any],
    choices: Sequence[FlavorChoice],
    scheduler: FlavorAssigner,
    demands: Sequence[tuple[Pods, Resources]],
    ahead: int,
) -> ControlAnswer:
    order = list(AssignmentMode)
    worst = max(choices, key=lambda choice: order.index(choice.mode), default=FlavorChoice(AssignmentMode.FITS, ""))
    pool = _pool_name(worst.flavor)
    waiting = f" {ahead} of the queue start{'s' * (ahead == 1)} first." if ahead else ""
    if worst.mode is not AssignmentMode.FITS and (fewer := _startable_pods(item, scheduler, demands)):
        return _partial_answer(cluster_queue, item, fewer, demands[0][0].count)
    if worst.mode is AssignmentMode.FITS:
        if ahead and scheduler.queue["spec"].get("queueingStrategy") == "StrictFIFO":
            text = f"Queue {cluster_queue} has room, and starts work in strict order (StrictFIFO).{waiting}"
            return ControlAnswer("queue", FitVerdict.WAITS, text, "wait, or raise its priority")
        pools = "".join(dict.fromkeys(_pool_name(choice.flavor) for choice in choices))
        more = [amount_of(n, name) for name, n in scheduler.borrowed_devices(choices, demands).items() if n]
        borrowed_note = f"; {', '.join(more)} of it borrowed, which may be reclaimed" if more else ""
        return ControlAnswer("queue", FitVerdict.FITS, f"Queue {cluster_queue} starts it now{pools}{borrowed_note}.")
    if worst.mode is AssignmentMode.RECLAIMS:
        text = f"Queue {cluster_queue} reclaims lent quota{pool}: it starts when the borrowers have ended."
        return ControlAnswer("queue", FitVerdict.WAITS, text + waiting, "wait for their grace period")
    if worst.mode is AssignmentMode.PREEMPTS_OWN:
        text = f"Queue {cluster_queue} evicts work of its own of lower priority{pool}: it starts when that has ended."
        return ControlAnswer("queue", FitVerdict.WAITS, text + waiting, "wait for its grace period")
    if worst.mode is AssignmentMode.WAITS:
        text = (
            f"Queue {cluster_queue} has {amount_of(worst.available, worst.resource)} for it now{pool}, of "
            f"{quantity_text(worst.needed)} that it asks for."
        )
        return ControlAnswer(
            "queue", FitVerdict.WAITS, text + waiting, "wait, ask for less, or split it into smaller pieces"
        )
    if worst.cause:
        return _never(worst.cause)
    return _never(above_maximum(worst.flavor, amount_of(worst.needed, worst.resource), quantity_text(worst.available)))


def _startable_pods(
    item: Mapping[str, Any], scheduler: FlavorAssigner, demands: Sequence[tuple[Pods, Resources]]
) -> int:
    """Number of its pods that would start now, if they may start without the others."""
    ((pods, pod_requests), *others) = demands
    min_pods = min_pods_to_start(item)
    if others or not min_pods:
        return 0
    low, high = min_pods - 1, pods.count - 1
    while low < high:
        middle = (low + high + 1) // 2
        choices = scheduler.place([(replace(pods, count=middle), pod_requests)])
        low, high = (
            (middle, high) if all(choice.mode is AssignmentMode.FITS for choice in choices) else (low, middle - 1)
        )
    return low if low >= min_pods else 0


def _partial_answer(cluster_queue: str, item: Mapping[str, Any], fewer: int, count: int) -> ControlAnswer:
    if item["kind"] == "Job":
        return ControlAnswer(
            "queue", FitVerdict.FITS, f"Queue {cluster_queue} starts it now with {fewer} of its {count} pods."
        )
    text = f"Queue {cluster_queue} starts {fewer} of its {count} pods now; the others wait."
    return ControlAnswer("queue", FitVerdict.WAITS, text, f"write {fewer} replicas, or wait")
