"""Kueue's flavor assignment: which flavor work would get its quota of, and whether it could ever have it.

Source: Kueue v0.19.2 `pkg/scheduler/flavorassigner`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tenancy.kube.objects import Object
from tenancy.kube.pods import SCALE, Pods, Resources, requests_of
from tenancy.kube.quantities import thousandths, units
from tenancy.kube.quota_tree import Node, Place, resource_groups
from tenancy.planning.common.pools import node_resources
from tenancy.planning.queueing.causes import (
    WaitCause,
    no_topology,
    not_granted,
    other_nodes,
    oversized,
    topology_alone,
)
from tenancy.planning.queueing.kueue import configuration
from tenancy.planning.queueing.queue_names import ANY_POOL, BOARD_COMPUTE, BOARD_MEMORY, pool_of
from tenancy.schema.environment import Environment

NEARNESS = tuple(f"kueue.x-k8s.io/podset-{how}-topology" for how in ("required", "preferred", "unconstrained"))


class Mode(StrEnum):
    """From the best to the worst."""

    NOW = "now"
    CALLED_BACK = "called back"  # guaranteed quota is lent: borrowers are evicted
    OWN = "own"  # less urgent work of its own queue is evicted
    LATER = "later"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class FlavorChoice:
    """The flavor that pods would get their quota of."""

    mode: Mode
    flavor: str
    resource: str = ""
    """The resource that is short."""
    needed: int = 0
    there: int = 0
    """The amount available now, or for `never` the maximum."""
    cause: WaitCause | None = None
    """Why the flavor is no choice, whatever its quota."""


def counted(environment: Environment, pods: Pods, claim_template: Callable[[str], Object | None]) -> Resources:
    """The amounts that Kueue counts for one pod, by its configuration; `claim_template` finds one in its namespace."""
    rules = configuration(environment)["resources"]
    asked = requests_of(pods.template["spec"])
    for claim in pods.template["spec"].get("resourceClaims") or ():
        template = claim_template(str(claim.get("resourceClaimTemplateName")))
        named = {c: m["name"] for m in rules.get("deviceClassMappings", ()) for c in m["deviceClassNames"]}
        for request in template["spec"]["spec"]["devices"]["requests"] if template else ():
            asked[named[request["exactly"]["deviceClassName"]]] += request["exactly"]["count"] * SCALE
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


def holds_quota(workload: Mapping[str, Any]) -> bool:
    """Whether Kueue has reserved quota for a Workload."""
    return bool((workload.get("status") or {}).get("admission"))


class FlavorAssigner:
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
            if holds_quota(one) and (one["spec"].get("priority") or 0) < urgency:
                for pods in one["status"]["admission"]["podSetAssignments"]:
                    for resource, amount in (pods.get("resourceUsage") or {}).items():
                        place = (pods["flavors"].get(resource, ""), resource)
                        self.less_urgent[place] += thousandths(amount)

    def place(self, wanted: Sequence[tuple[Pods, Resources]]) -> list[FlavorChoice]:
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
                best = min(choices, key=lambda choice: list(Mode).index(choice.mode))
                found.append(best)
                for name, amount in here.items() if best.mode is not Mode.NEVER else ():
                    self.node.use((best.flavor, name), amount)
                    taken.append(((best.flavor, name), amount))
            for name, amount in needed.items():
                found.append(FlavorChoice(Mode.NEVER, "", name, amount, 0, not_granted(name)))
        for place, amount in taken:
            self.node.use(place, -amount)
        return found

    def _in(self, flavor: str, needed: Mapping[str, int], pods: Pods, before: Mapping[Place, int]) -> FlavorChoice:
        """The choice of one flavor for the pods; `before` is assigned to other pods of the same work."""
        if cause := _elsewhere(self.environment, flavor, self.flavors.get(flavor), pods):
            return FlavorChoice(Mode.NEVER, flavor, cause=cause)
        worst = FlavorChoice(Mode.NOW, flavor)
        for resource, amount in needed.items():
            place = (flavor, resource)
            free, most = self.node.available(place), self.node.potential(place)
            nominal, used = self.node.nominal.get(place, 0), self.node.used[place]
            mode, there = Mode.NOW, free
            if amount + before[place] > most:
                mode, there, amount = Mode.NEVER, most, amount + before[place]
            elif amount > free and used + amount <= nominal:
                mode = Mode.CALLED_BACK
            elif amount > free and used - self.less_urgent[place] + amount <= nominal:
                mode = Mode.OWN
            elif amount > free:
                mode = Mode.LATER
            choice = FlavorChoice(mode, flavor, resource, amount, max(there, 0))
            order = list(Mode)
            if order.index(choice.mode) > order.index(worst.mode):
                worst = choice
        return worst

    def borrowed(self, choices: Sequence[FlavorChoice], wanted: Sequence[tuple[Pods, Resources]]) -> Counter[str]:
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
