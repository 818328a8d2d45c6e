"""Quota of the queue that is free for work now, and whether the work could ever have it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tenancy.catalog import vocabulary
from tenancy.catalog.controllers import QUEUE
from tenancy.cluster.api import Api
from tenancy.explain.cohorts import read_tree
from tenancy.explain.fits_answers import ControlAnswer, FitVerdict
from tenancy.kube.objects import Object
from tenancy.kube.pods import Pods, amount_of, min_pods_to_start, quantity_text, queued_metadata
from tenancy.kube.requests import collection
from tenancy.planning.queueing.assignment import (
    AssignmentMode,
    FlavorAssigner,
    FlavorChoice,
    counted_resources,
    is_device,
    never_causes,
)
from tenancy.planning.queueing.causes import WaitCause, no_queue, on_hold
from tenancy.planning.queueing.queue_names import ANY_POOL, API, pool_of
from tenancy.spec.fields.environment import Environment


def _never(cause: WaitCause) -> ControlAnswer:
    return ControlAnswer("queue", FitVerdict.NEVER, f"{cause.sentence}.", cause.change)


def queue_answer(
    api: Api, environment: Environment, item: Mapping[str, Any], pod_sets: Sequence[Pods]
) -> ControlAnswer:
    """The answer of the queue. Work ahead of it, and work that Kueue would evict for it, are not considered."""
    space = item["metadata"]["namespace"]
    name = (queued_metadata(item).get("labels") or {}).get(QUEUE, vocabulary.DEFAULT_QUEUE)
    local_queue = api.request("GET", f"{collection(API, 'LocalQueue', space)}/{name}")
    if not local_queue.ok:
        return _never(no_queue(name))
    cluster_queue = local_queue.body["spec"]["clusterQueue"]
    queue = api.request("GET", f"{collection(API, 'ClusterQueue')}/{cluster_queue}")
    if not queue.ok:
        text = f"Queue {name} uses ClusterQueue {cluster_queue}, which does not exist."
        return ControlAnswer("queue", FitVerdict.NEVER, text, "ask the platform team to run `tenancy up`")
    if not (_is_active(local_queue.body) and _is_active(queue.body)):
        cause = on_hold()
        return ControlAnswer("queue", FitVerdict.WAITS, f"{cause.sentence}.", cause.change)
    flavors = {flavor["metadata"]["name"]: flavor for flavor in api.items(collection(API, "ResourceFlavor"))}
    assigner = FlavorAssigner(environment, queue.body, read_tree(api)[cluster_queue], flavors)

    def claim_template(name: str) -> Object | None:
        path = collection("resource.k8s.io/v1", "ResourceClaimTemplate", space)
        answer = api.request("GET", f"{path}/{name}")
        return dict(answer.body) if answer.ok else None

    demands = [(pods, counted_resources(environment, pods, claim_template)) for pods in pod_sets]
    least = min_pods_to_start(item)
    least_demands = [
        (replace(pods, count=min(pods.count, least or pods.count)), requests) for pods, requests in demands
    ]
    least_choices = assigner.place(least_demands)
    for cause in never_causes(environment, least_choices, pod_sets):
        return _never(cause)
    choices = assigner.place(demands)
    can_start_whole = all(choice.mode is not AssignmentMode.NEVER for choice in choices)
    return _free_quota(cluster_queue, choices if can_start_whole else least_choices)


def _is_active(item: Mapping[str, Any]) -> bool:
    conditions = (item.get("status") or {}).get("conditions") or ()
    return all(c["status"] == "True" for c in conditions if c["type"] == "Active")


def _free_quota(cluster_queue: str, choices: Sequence[FlavorChoice]) -> ControlAnswer:
    """Free quota against what the work asks for, of the flavor and resource that are the shortest."""
    modes = list(AssignmentMode)
    worst = max(
        choices,
        key=lambda choice: (modes.index(choice.mode), is_device(choice.resource)),
        default=FlavorChoice(AssignmentMode.FITS, ""),
    )
    pool = "" if worst.flavor in {"", ANY_POOL} else f" in pool {pool_of(worst.flavor)}"
    if not worst.resource:
        return ControlAnswer("queue", FitVerdict.FITS, f"Queue {cluster_queue} counts nothing of it.")
    free, needed = amount_of(worst.available, worst.resource), quantity_text(worst.needed)
    text = f"Queue {cluster_queue}: {free} free{pool}, {needed} requested."
    if worst.mode is AssignmentMode.FITS:
        return ControlAnswer("queue", FitVerdict.FITS, text)
    if worst.mode is AssignmentMode.RECLAIMS:
        change = "wait until borrowers have been evicted: it is within the queue's guarantee"
        return ControlAnswer("queue", FitVerdict.WAITS, text, change)
    return ControlAnswer("queue", FitVerdict.WAITS, text, "wait, ask for less, or split it into smaller pieces")
