"""Whether the queue would admit work now, by Kueue's flavor assignment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tenancy.catalog import vocabulary as words
from tenancy.catalog.controllers import QUEUE, URGENCY
from tenancy.kube.objects import Object
from tenancy.kube.pods import Pods, Resources, amount_of, queued_metadata, written
from tenancy.kube.requests import collection
from tenancy.live.api import Api
from tenancy.live.cohorts import read_tree
from tenancy.live.fits_answers import ControlAnswer, FitVerdict
from tenancy.planning.common.priorities import DEFAULT_CLASS, priorities
from tenancy.planning.queueing.assignment import FlavorAssigner, FlavorChoice, Mode, counted, holds_quota
from tenancy.planning.queueing.causes import WaitCause, above_maximum, no_queue, on_hold
from tenancy.planning.queueing.queue_names import ANY_POOL, API, pool_of
from tenancy.schema.environment import Environment

LEAST_PODS = "kueue.x-k8s.io/job-min-parallelism"

BY_ITSELF = ("Deployment", "Pod", "ReplicaSet")
"""Kinds whose pods queue one by one."""


def _never(cause: WaitCause) -> ControlAnswer:
    return ControlAnswer("queue", FitVerdict.NEVER, f"{cause.sentence}.", cause.change)


def queue_answer(
    api: Api, environment: Environment, item: Mapping[str, Any], sets: Sequence[Pods]
) -> tuple[ControlAnswer, list[Object]]:
    """The answer of the queue, and the flavors that it would assign."""
    space = item["metadata"]["namespace"]
    name = (queued_metadata(item).get("labels") or {}).get(QUEUE, words.DEFAULT_QUEUE)
    local = api.request("GET", f"{collection(API, 'LocalQueue', space)}/{name}")
    if not local.ok:
        return _never(no_queue(name)), []
    called = local.body["spec"]["clusterQueue"]
    queue = api.request("GET", f"{collection(API, 'ClusterQueue')}/{called}")
    if not queue.ok:
        text = f"Queue {name} uses ClusterQueue {called}, which does not exist."
        return ControlAnswer("queue", FitVerdict.NEVER, text, "ask the platform team to run `tenancy up`"), []
    for one in (local.body, queue.body):
        if not _active(one):
            cause = on_hold()
            return ControlAnswer("queue", FitVerdict.WAITS, f"{cause.sentence}.", cause.change), []
    tree, flavors = read_tree(api), {f["metadata"]["name"]: f for f in api.items(collection(API, "ResourceFlavor"))}

    def claim_template(name: str) -> Object | None:
        path = collection("resource.k8s.io/v1", "ResourceClaimTemplate", space)
        answer = api.request("GET", f"{path}/{name}")
        return dict(answer.body) if answer.ok else None

    wanted = [(pods, counted(environment, pods, claim_template)) for pods in sets]
    urgency = _urgency(environment, item, sets[0])
    work = _work_of(api, called)
    scheduler = FlavorAssigner(environment, queue.body, tree[called], flavors, work, urgency)
    choices = scheduler.place(wanted)
    ahead = sum(1 for one in work if not holds_quota(one) and (one["spec"].get("priority") or 0) >= urgency)
    used = [flavors[one.flavor] for one in choices if one.flavor in flavors and one.mode is not Mode.NEVER]
    return _told(called, item, choices, scheduler, wanted, ahead), used


def _active(item: Mapping[str, Any]) -> bool:
    conditions = (item.get("status") or {}).get("conditions") or ()
    return all(c["status"] == "True" for c in conditions if c["type"] == "Active")


def _work_of(api: Api, called: str) -> list[Object]:
    """Workloads of a ClusterQueue that have not ended."""
    leading = {
        (one["metadata"]["namespace"], one["metadata"]["name"]): one["spec"]["clusterQueue"]
        for one in api.items(collection(API, "LocalQueue"))
    }
    found = []
    for one in api.items(collection(API, "Workload")):
        conditions = (one.get("status") or {}).get("conditions") or ()
        ended = any(c["type"] == "Finished" and c["status"] == "True" for c in conditions)
        queue = leading.get((one["metadata"]["namespace"], one["spec"].get("queueName", "")))
        if queue == called and not ended and one["spec"].get("active", True):
            found.append(one)
    return found


def _pool_name(flavor: str) -> str:
    return "" if flavor in {"", ANY_POOL} else f" in pool {pool_of(flavor)}"


def _urgency(environment: Environment, item: Mapping[str, Any], pods: Pods) -> int:
    spec, values = pods.template["spec"], priorities(environment)
    named = (queued_metadata(item).get("labels") or {}).get(URGENCY)
    return values.get(named or spec.get("priorityClassName") or DEFAULT_CLASS, spec.get("priority") or 0)


def _told(
    called: str,
    item: Mapping[str, Any],
    choices: Sequence[FlavorChoice],
    scheduler: FlavorAssigner,
    wanted: Sequence[tuple[Pods, Resources]],
    ahead: int,
) -> ControlAnswer:
    order = list(Mode)
    worst = max(choices, key=lambda choice: order.index(choice.mode), default=FlavorChoice(Mode.NOW, ""))
    pool = _pool_name(worst.flavor)
    waiting = f" {ahead} of the queue start{'s' * (ahead == 1)} first." if ahead else ""
    if worst.mode is not Mode.NOW and (fewer := _fewer(item, scheduler, wanted)):
        return _partly(called, item, fewer, wanted[0][0].count)
    if worst.mode is Mode.NOW:
        if ahead and scheduler.queue["spec"].get("queueingStrategy") == "StrictFIFO":
            text = f"Queue {called} has room, and starts work in strict order (StrictFIFO).{waiting}"
            return ControlAnswer("queue", FitVerdict.WAITS, text, "wait, or raise its priority")
        where = "".join(dict.fromkeys(_pool_name(choice.flavor) for choice in choices))
        more = [amount_of(n, name) for name, n in scheduler.borrowed(choices, wanted).items() if n]
        lent = f"; {', '.join(more)} of it borrowed, which may be reclaimed" if more else ""
        return ControlAnswer("queue", FitVerdict.FITS, f"Queue {called} starts it now{where}{lent}.")
    if worst.mode is Mode.CALLED_BACK:
        text = f"Queue {called} reclaims lent quota{pool}: it starts when the borrowers have ended."
        return ControlAnswer("queue", FitVerdict.WAITS, text + waiting, "wait for their grace period")
    if worst.mode is Mode.OWN:
        text = f"Queue {called} evicts work of its own of lower priority{pool}: it starts when that has ended."
        return ControlAnswer("queue", FitVerdict.WAITS, text + waiting, "wait for its grace period")
    if worst.mode is Mode.LATER:
        text = (
            f"Queue {called} has {amount_of(worst.there, worst.resource)} for it now{pool}, of "
            f"{written(worst.needed)} that it asks for."
        )
        return ControlAnswer(
            "queue", FitVerdict.WAITS, text + waiting, "wait, ask for less, or split it into smaller pieces"
        )
    if worst.cause:
        return _never(worst.cause)
    return _never(above_maximum(worst.flavor, amount_of(worst.needed, worst.resource), written(worst.there)))


def _fewer(item: Mapping[str, Any], scheduler: FlavorAssigner, wanted: Sequence[tuple[Pods, Resources]]) -> int:
    """Number of its pods that would start now, if they may start without the others."""
    ((pods, each), *others) = wanted
    notes = item["metadata"].get("annotations") or {}
    least = 1 if item["kind"] in BY_ITSELF else int(notes.get(LEAST_PODS, 0)) if item["kind"] == "Job" else 0
    if others or not least:
        return 0
    low, high = least - 1, pods.count - 1
    while low < high:
        middle = (low + high + 1) // 2
        choices = scheduler.place([(replace(pods, count=middle), each)])
        low, high = (middle, high) if all(choice.mode is Mode.NOW for choice in choices) else (low, middle - 1)
    return low if low >= least else 0


def _partly(called: str, item: Mapping[str, Any], fewer: int, count: int) -> ControlAnswer:
    if item["kind"] == "Job":
        return ControlAnswer(
            "queue", FitVerdict.FITS, f"Queue {called} starts it now with {fewer} of its {count} pods."
        )
    text = f"Queue {called} starts {fewer} of its {count} pods now; the others wait."
    return ControlAnswer("queue", FitVerdict.WAITS, text, f"write {fewer} replicas, or wait")
