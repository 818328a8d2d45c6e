"""Kueue's flavor assignment: which flavor work would get its quota of, and whether it could ever have it.

Source: Kueue v0.19.2 `pkg/scheduler/flavorassigner`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tenancy.kube.objects import Object
from tenancy.kube.pods import SCALE, Pods, Resources, amount_of, quantity_text, requests_of
from tenancy.kube.quantities import thousandths, units
from tenancy.kube.quota_tree import Node, Place, resource_groups
from tenancy.planning.common.pools import node_resources
from tenancy.planning.queueing.causes import (
    WaitCause,
    above_maximum,
    no_topology,
    not_granted,
    other_nodes,
    oversized,
    topology_alone,
)
from tenancy.planning.queueing.kueue import configuration
from tenancy.planning.queueing.queue_names import pool_of
from tenancy.spec.fields.environment import Environment

TOPOLOGY_ANNOTATIONS = tuple(
    f"kueue.x-k8s.io/podset-{mode}-topology" for mode in ("required", "preferred", "unconstrained")
)


class AssignmentMode(StrEnum):
    """From the best to the worst."""

    FITS = "now"
    RECLAIMS = "called back"  # guaranteed quota is lent: borrowers are evicted
    WAITS = "later"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class FlavorChoice:
    """The flavor that pods would get their quota of."""

    mode: AssignmentMode
    flavor: str
    resource: str = ""
    """Resource that is short, or a device of those that fit."""
    needed: int = 0
    available: int = 0
    """Amount available now, or for `never` the maximum."""
    cause: WaitCause | None = None
    """Cause for which the flavor is no choice, whatever its quota."""


def counted_resources(
    environment: Environment, pods: Pods, claim_template: Callable[[str], Object | None]
) -> Resources:
    """The amounts that Kueue counts for one pod, by its configuration; `claim_template` finds one in its namespace."""
    rules = configuration(environment)["resources"]
    requests = requests_of(pods.template["spec"])
    for claim in pods.template["spec"].get("resourceClaims") or ():
        template = claim_template(str(claim.get("resourceClaimTemplateName")))
        resource_by_class = {c: m["name"] for m in rules.get("deviceClassMappings", ()) for c in m["deviceClassNames"]}
        for request in template["spec"]["spec"]["devices"]["requests"] if template else ():
            requests[resource_by_class[request["exactly"]["deviceClassName"]]] += request["exactly"]["count"] * SCALE
    counts: Resources = Counter()
    transformations = {rule["input"]: rule for rule in rules.get("transformations", ())}
    for name, amount in requests.items():
        if name.startswith(tuple(rules["excludeResourcePrefixes"])):
            continue
        rule = transformations.get(name, {"strategy": "Retain", "outputs": {}})
        if rule["strategy"] == "Retain":
            counts[name] += amount
        for output, factor in rule["outputs"].items():
            counts[output] += amount * units(factor)
    return counts


def is_device(resource: str) -> bool:
    """Whether a resource is an extended one, such as a GPU: only these have a domain in their name."""
    return "/" in resource


class FlavorAssigner:
    """Kueue's flavor assignment: every kind of pod gets one flavor of each resource group."""

    def __init__(
        self,
        environment: Environment,
        queue: Mapping[str, Any],
        node: Node,
        flavors: Mapping[str, Object],
    ) -> None:
        self.environment, self.queue, self.node, self.flavors = environment, queue, node, flavors

    def place(self, pod_requests: Sequence[tuple[Pods, Resources]]) -> list[FlavorChoice]:
        """A choice for each kind of pod and resource group; quota of one choice is not available to the next."""
        assigned: list[tuple[Place, int]] = []
        assignments = []
        for pods, requests in pod_requests:
            needed = {name: amount * pods.count for name, amount in requests.items() if amount}
            for group in resource_groups(self.queue["spec"]):
                group_needs = {name: needed.pop(name) for name in group.resources if name in needed}
                if not group_needs:
                    continue
                assigned_before: Counter[Place] = Counter()
                for place, amount in assigned:
                    assigned_before[place] += amount
                choices = [
                    self._choice_in(flavor["name"], group_needs, pods, assigned_before) for flavor in group.flavors
                ]
                best_choice = min(choices, key=lambda choice: list(AssignmentMode).index(choice.mode))
                assignments.append(best_choice)
                for name, amount in group_needs.items() if best_choice.mode is not AssignmentMode.NEVER else ():
                    self.node.use((best_choice.flavor, name), amount)
                    assigned.append(((best_choice.flavor, name), amount))
            for name, amount in needed.items():
                assignments.append(FlavorChoice(AssignmentMode.NEVER, "", name, amount, 0, not_granted(name)))
        for place, amount in assigned:
            self.node.use(place, -amount)
        return assignments

    def _choice_in(
        self, flavor: str, needed: Mapping[str, int], pods: Pods, assigned_before: Mapping[Place, int]
    ) -> FlavorChoice:
        """The choice of one flavor for the pods; `assigned_before` is assigned to other pods of the same work."""
        if cause := _flavor_obstacle(self.environment, flavor, self.flavors.get(flavor), pods):
            return FlavorChoice(AssignmentMode.NEVER, flavor, cause=cause)
        worst_choice = FlavorChoice(AssignmentMode.FITS, flavor)
        # Devices first: they are the resource that an answer names where all fit.
        for resource, amount in sorted(needed.items(), key=lambda need: not is_device(need[0])):
            place = (flavor, resource)
            free, potential = self.node.available(place), self.node.potential(place)
            nominal, usage = self.node.nominal.get(place, 0), self.node.used[place]
            mode, available = AssignmentMode.FITS, free
            if amount + assigned_before[place] > potential:
                mode, available, amount = AssignmentMode.NEVER, potential, amount + assigned_before[place]
            elif amount > free and usage + amount <= nominal:
                mode = AssignmentMode.RECLAIMS
            elif amount > free:
                mode = AssignmentMode.WAITS
            choice = FlavorChoice(mode, flavor, resource, amount, max(available, 0))
            order = list(AssignmentMode)
            if not worst_choice.resource or order.index(choice.mode) > order.index(worst_choice.mode):
                worst_choice = choice
        return worst_choice


def never_causes(
    environment: Environment, choices: Sequence[FlavorChoice], pod_sets: Sequence[Pods]
) -> Iterator[WaitCause]:
    """Causes for which work with these choices would never start; nothing if it could."""
    impossible_choices = [choice for choice in choices if choice.mode is AssignmentMode.NEVER]
    for choice in impossible_choices:
        needed, available = amount_of(choice.needed, choice.resource), quantity_text(choice.available)
        yield choice.cause or above_maximum(choice.flavor, needed, available)
    # The queue counts the pods' sum: one that is larger than each node is admitted, and no node takes it.
    sizes = [node_size(environment, pool) for pool in environment.pools]
    for pods in pod_sets if not impossible_choices else ():
        if cause := oversized(pods.template, sizes, ""):
            yield cause


def _flavor_obstacle(
    environment: Environment, name: str, flavor: Mapping[str, Any] | None, pods: Pods
) -> WaitCause | None:
    """Cause for which pods cannot use a flavor, whatever its quota; None if they can."""
    if flavor is None:
        return WaitCause(
            f"It never starts: its flavor {name} does not exist", "ask the platform team to run `tenancy up`"
        )
    labels = flavor["spec"].get("nodeLabels") or {}
    for key, value in (pods.template["spec"].get("nodeSelector") or {}).items():
        if key in labels and labels[key] != value:
            return other_nodes(name)
    notes = (pods.template.get("metadata") or {}).get("annotations") or {}
    topology, requests_topology = flavor["spec"].get("topologyName"), any(key in notes for key in TOPOLOGY_ANNOTATIONS)
    if topology and not requests_topology:
        return topology_alone(name)
    if requests_topology and labels and not topology:
        return no_topology(name)
    if topology and pool_of(name) in environment.pools:
        # By quota alone it would start: Kueue looks at single nodes only where it knows their topology.
        return oversized(pods.template, [node_size(environment, pool_of(name))], name)
    return None


def node_size(environment: Environment, pool: str) -> Resources:
    """The amounts that pods can have of one node of a pool."""
    return Counter({key: thousandths(amount) for key, amount in node_resources(environment, pool).items()})
