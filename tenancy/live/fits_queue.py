"""Whether the queue would admit work now, by Kueue's flavor assignment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from tenancy.catalog import vocabulary as words
from tenancy.catalog.controllers import QUEUE, URGENCY
from tenancy.kube.objects import Object
from tenancy.kube.pods import ONE, Pods, Resources, requests_of
from tenancy.kube.quantities import thousandths, units
from tenancy.kube.quota_tree import Node, Place, resource_groups
from tenancy.kube.requests import collection
from tenancy.live.api import Api
from tenancy.live.cohorts import read_tree
from tenancy.live.fits_answers import ControlAnswer, FitVerdict, amount_of, queued_metadata, written
from tenancy.live.queue_causes import (
    WaitCause,
    above_maximum,
    no_queue,
    no_topology,
    not_granted,
    on_hold,
    other_nodes,
    oversized,
    topology_alone,
)
from tenancy.planning.common.pools import node_resources
from tenancy.planning.common.priorities import DEFAULT_CLASS, priorities
from tenancy.planning.queueing.kueue import configuration
from tenancy.planning.queueing.queue_names import ANY_POOL, API, BOARD_COMPUTE, BOARD_MEMORY, pool_of
from tenancy.schema.environment import Environment

LEAST_PODS = "kueue.x-k8s.io/job-min-parallelism"
NEARNESS = tuple(f"kueue.x-k8s.io/podset-{how}-topology" for how in ("required", "preferred", "unconstrained"))

BY_ITSELF = ("Deployment", "Pod", "ReplicaSet")
"""Kinds whose pods queue one by one."""


class _Mode(StrEnum):
    """From the best to the worst."""

    NOW = "now"
    CALLED_BACK = "called back"  # guaranteed quota is lent: borrowers are evicted
    OWN = "own"  # less urgent work of its own queue is evicted
    LATER = "later"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class _Choice:
    """The flavor that pods would get their quota of."""

    mode: _Mode
    flavor: str
    resource: str = ""
    """The resource that is short."""
    needed: int = 0
    there: int = 0
    """The amount available now, or for `never` the maximum."""
    cause: WaitCause | None = None
    """Why the flavor is no choice, whatever its quota."""


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
    wanted = [(pods, _counted(api, environment, item, pods)) for pods in sets]
    urgency = _urgency(environment, item, sets[0])
    work = _work_of(api, called)
    scheduler = _Scheduler(environment, queue.body, tree[called], flavors, work, urgency)
    choices = scheduler.place(wanted)
    ahead = sum(1 for one in work if not _holds_quota(one) and (one["spec"].get("priority") or 0) >= urgency)
    used = [flavors[one.flavor] for one in choices if one.flavor in flavors and one.mode is not _Mode.NEVER]
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


def _holds_quota(workload: Mapping[str, Any]) -> bool:
    return bool((workload.get("status") or {}).get("admission"))


def _urgency(environment: Environment, item: Mapping[str, Any], pods: Pods) -> int:
    spec, values = pods.template["spec"], priorities(environment)
    named = (queued_metadata(item).get("labels") or {}).get(URGENCY)
    return values.get(named or spec.get("priorityClassName") or DEFAULT_CLASS, spec.get("priority") or 0)


def _counted(api: Api, environment: Environment, item: Mapping[str, Any], pods: Pods) -> Resources:
    """The amounts that Kueue counts for one pod, by its configuration."""
    rules = configuration(environment)["resources"]
    asked = requests_of(pods.template["spec"])
    for claim in pods.template["spec"].get("resourceClaims") or ():
        path = collection("resource.k8s.io/v1", "ResourceClaimTemplate", item["metadata"]["namespace"])
        template = api.request("GET", f"{path}/{claim.get('resourceClaimTemplateName')}")
        named = {c: m["name"] for m in rules.get("deviceClassMappings", ()) for c in m["deviceClassNames"]}
        for request in template.body["spec"]["spec"]["devices"]["requests"] if template.ok else ():
            asked[named[request["exactly"]["deviceClassName"]]] += request["exactly"]["count"] * ONE
    found: Resources = Counter()
    changed = {rule["input"]: rule for rule in rules.get("transformations", ())}
    for name, amount in asked.items():
        if name.startswith(tuple(rules["excludeResourcePrefixes"])):
            continue
        rule = changed.get(name, {"strategy": "Retain", "outputs": {}})
        if rule["strategy"] == "Retain":
            found[name] += amount
        for output, factor in rule["outputs"].items():
            found[output] += amount * units(factor)
    return found


class _Scheduler:
    """Kueue's flavor assignment: every kind of pod gets one flavor of each resource group."""

    def __init__(
        self,
        environment: Environment,
        queue: Mapping[str, Any],
        node: Node,
        flavors: Mapping[str, Object],
        work: Sequence[Mapping[str, Any]],
        urgency: int,
    ) -> None:
        self.environment, self.queue, self.node, self.flavors = environment, queue, node, flavors
        self.less_urgent: Counter[Place] = Counter()
        for one in work:
            if _holds_quota(one) and (one["spec"].get("priority") or 0) < urgency:
                for pods in one["status"]["admission"]["podSetAssignments"]:
                    for resource, amount in (pods.get("resourceUsage") or {}).items():
                        place = (pods["flavors"].get(resource, ""), resource)
                        self.less_urgent[place] += thousandths(amount)

    def place(self, wanted: Sequence[tuple[Pods, Resources]]) -> list[_Choice]:
        """A choice for each kind of pod and resource group; quota of one choice is not available to the next."""
        taken: list[tuple[Place, int]] = []
        found = []
        for pods, each in wanted:
            needed = {name: amount * pods.count for name, amount in each.items() if amount}
            for group in resource_groups(self.queue["spec"]):
                here = {name: needed.pop(name) for name in group.resources if name in needed}
                if not here:
                    continue
                before: Counter[Place] = Counter()
                for place, amount in taken:
                    before[place] += amount
                choices = [self._in(flavor["name"], here, pods, before) for flavor in group.flavors]
                best = min(choices, key=lambda choice: list(_Mode).index(choice.mode))
                found.append(best)
                for name, amount in here.items() if best.mode is not _Mode.NEVER else ():
                    self.node.use((best.flavor, name), amount)
                    taken.append(((best.flavor, name), amount))
            for name, amount in needed.items():
                found.append(_Choice(_Mode.NEVER, "", name, amount, 0, not_granted(name)))
        for place, amount in taken:
            self.node.use(place, -amount)
        return found

    def _in(self, flavor: str, needed: Mapping[str, int], pods: Pods, before: Mapping[Place, int]) -> _Choice:
        """The choice of one flavor for the pods; `before` is assigned to other pods of the same work."""
        if cause := _elsewhere(self.environment, flavor, self.flavors.get(flavor), pods):
            return _Choice(_Mode.NEVER, flavor, cause=cause)
        worst = _Choice(_Mode.NOW, flavor)
        for resource, amount in needed.items():
            place = (flavor, resource)
            free, most = self.node.available(place), self.node.potential(place)
            nominal, used = self.node.nominal.get(place, 0), self.node.used[place]
            mode, there = _Mode.NOW, free
            if amount + before[place] > most:
                mode, there, amount = _Mode.NEVER, most, amount + before[place]
            elif amount > free and used + amount <= nominal:
                mode = _Mode.CALLED_BACK
            elif amount > free and used - self.less_urgent[place] + amount <= nominal:
                mode = _Mode.OWN
            elif amount > free:
                mode = _Mode.LATER
            choice = _Choice(mode, flavor, resource, amount, max(there, 0))
            order = list(_Mode)
            if order.index(choice.mode) > order.index(worst.mode):
                worst = choice
        return worst

    def borrowed(self, choices: Sequence[_Choice], wanted: Sequence[tuple[Pods, Resources]]) -> Counter[str]:
        """Amounts of devices that would be borrowed from other tenants."""
        found: Counter[str] = Counter()
        total: Counter[str] = Counter()
        for pods, each in wanted:
            total.update({name: amount * pods.count for name, amount in each.items()})
        for choice in choices:
            for name, amount in total.items():
                place = (choice.flavor, name)
                if place in self.node.nominal and choice.flavor != ANY_POOL and name not in _SHADOWS:
                    more = self.node.used[place] + amount - self.node.nominal[place]
                    found[name] = max(found[name], min(max(more, 0), amount))
        return found


_SHADOWS = frozenset({BOARD_COMPUTE, BOARD_MEMORY})


def _elsewhere(environment: Environment, name: str, flavor: Mapping[str, Any] | None, pods: Pods) -> WaitCause | None:
    """Why pods cannot use a flavor, whatever its quota; None if they can."""
    if flavor is None:
        return WaitCause(
            f"It never starts: its flavor {name} does not exist", "ask the platform team to run `tenancy up`"
        )
    labels = flavor["spec"].get("nodeLabels") or {}
    for key, value in (pods.template["spec"].get("nodeSelector") or {}).items():
        if key in labels and labels[key] != value:
            return other_nodes(name)
    notes = (pods.template.get("metadata") or {}).get("annotations") or {}
    near, asks = flavor["spec"].get("topologyName"), any(key in notes for key in NEARNESS)
    if near and not asks:
        return topology_alone(name)
    if asks and labels and not near:
        return no_topology(name)
    if near and pool_of(name) in environment.pools:
        # By quota alone it would start: Kueue looks at single nodes only where it knows their topology.
        size = node_resources(environment, pool_of(name))
        return oversized(pods.template, [Counter({key: thousandths(n) for key, n in size.items()})], name)
    return None


def _pool_name(flavor: str) -> str:
    return "" if flavor in {"", ANY_POOL} else f" in pool {pool_of(flavor)}"


def _told(
    called: str,
    item: Mapping[str, Any],
    choices: Sequence[_Choice],
    scheduler: _Scheduler,
    wanted: Sequence[tuple[Pods, Resources]],
    ahead: int,
) -> ControlAnswer:
    order = list(_Mode)
    worst = max(choices, key=lambda choice: order.index(choice.mode), default=_Choice(_Mode.NOW, ""))
    pool = _pool_name(worst.flavor)
    waiting = f" {ahead} of the queue start{'s' * (ahead == 1)} first." if ahead else ""
    if worst.mode is not _Mode.NOW and (fewer := _fewer(item, scheduler, wanted)):
        return _partly(called, item, fewer, wanted[0][0].count)
    if worst.mode is _Mode.NOW:
        if ahead and scheduler.queue["spec"].get("queueingStrategy") == "StrictFIFO":
            text = f"Queue {called} has room, and starts work in strict order (StrictFIFO).{waiting}"
            return ControlAnswer("queue", FitVerdict.WAITS, text, "wait, or raise its priority")
        where = "".join(dict.fromkeys(_pool_name(choice.flavor) for choice in choices))
        more = [amount_of(n, name) for name, n in scheduler.borrowed(choices, wanted).items() if n]
        lent = f"; {', '.join(more)} of it borrowed, which may be reclaimed" if more else ""
        return ControlAnswer("queue", FitVerdict.FITS, f"Queue {called} starts it now{where}{lent}.")
    if worst.mode is _Mode.CALLED_BACK:
        text = f"Queue {called} reclaims lent quota{pool}: it starts when the borrowers have ended."
        return ControlAnswer("queue", FitVerdict.WAITS, text + waiting, "wait for their grace period")
    if worst.mode is _Mode.OWN:
        text = f"Queue {called} evicts work of its own of lower priority{pool}: it starts when that has ended."
        return ControlAnswer("queue", FitVerdict.WAITS, text + waiting, "wait for its grace period")
    if worst.mode is _Mode.LATER:
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


def _fewer(item: Mapping[str, Any], scheduler: _Scheduler, wanted: Sequence[tuple[Pods, Resources]]) -> int:
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
        low, high = (middle, high) if all(choice.mode is _Mode.NOW for choice in choices) else (low, middle - 1)
    return low if low >= least else 0


def _partly(called: str, item: Mapping[str, Any], fewer: int, count: int) -> ControlAnswer:
    if item["kind"] == "Job":
        return ControlAnswer(
            "queue", FitVerdict.FITS, f"Queue {called} starts it now with {fewer} of its {count} pods."
        )
    text = f"Queue {called} starts {fewer} of its {count} pods now; the others wait."
    return ControlAnswer("queue", FitVerdict.WAITS, text, f"write {fewer} replicas, or wait")
