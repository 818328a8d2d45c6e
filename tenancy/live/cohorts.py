"""How much of its quota a queue could use now, and at most, by the tree that stands in the cluster.

Sources: Kueue v0.19.2 `pkg/cache/scheduler/resource_node.go`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from tenancy.catalog import quantity
from tenancy.live.api import Api, collection
from tenancy.plan.queues import API

Place = tuple[str, str]
"""Kueue's flavor and a resource."""


def thousandths(amount: str | int) -> int:
    """A quantity in the smallest unit that there is: whole numbers add up exactly."""
    return int(quantity.parse(str(amount)) * 1000)


@dataclass(slots=True)
class Node:
    """A Cohort or a ClusterQueue, in thousandths. Limits that are absent limit nothing."""

    nominal: dict[Place, int] = field(default_factory=dict)
    borrowing: dict[Place, int] = field(default_factory=dict)
    lending: dict[Place, int] = field(default_factory=dict)
    parent: Node | None = None
    quota: Counter[Place] = field(default_factory=Counter)
    """Its own, and what those below it lend."""
    used: Counter[Place] = field(default_factory=Counter)
    """What counts against `quota`."""

    def kept(self, place: Place) -> int:
        """What of its quota nobody above it ever sees."""
        return max(0, self.quota[place] - self.lending[place]) if place in self.lending else 0

    def unused(self, place: Place) -> int:
        return max(0, self.kept(place) - self.used[place])

    def free(self, place: Place) -> int:
        """What it could use now without anybody being evicted."""
        if self.parent is None:
            return self.quota[place] - self.used[place]
        above = self.parent.free(place)
        if place in self.borrowing:
            kept = self.kept(place)
            taken = max(0, self.used[place] - kept)
            above = min(above, self.quota[place] - kept - taken + self.borrowing[place])
        return self.unused(place) + above

    def most(self, place: Place) -> int:
        """What it could use if nobody used anything."""
        if self.parent is None:
            return self.quota[place]
        found = self.kept(place) + self.parent.most(place)
        return min(found, self.quota[place] + self.borrowing[place]) if place in self.borrowing else found

    def use(self, place: Place, amount: int) -> None:
        """Count more of it here, and above what does not fit into what it keeps; less, if it is negative."""
        before = max(0, self.used[place] - self.kept(place))
        self.used[place] += amount
        more = max(0, self.used[place] - self.kept(place)) - before
        if more and self.parent:
            self.parent.use(place, more)


def read_tree(api: Api) -> dict[str, Node]:
    """The ClusterQueues by name, each with the Cohorts above it; Unreachable without Kueue."""
    queues, cohorts = (api.items(collection(API, kind)) for kind in ("ClusterQueue", "Cohort"))
    above = defaultdict(Node, {item["metadata"]["name"]: _node(item) for item in cohorts})
    for item in cohorts:
        if parent := item["spec"].get("parentName"):
            above[item["metadata"]["name"]].parent = above[parent]
    found = {}
    for item in queues:
        node = found[item["metadata"]["name"]] = _node(item)
        if cohort := item["spec"].get("cohortName"):
            node.parent = above[cohort]
    for node in _from_below([*above.values(), *found.values()]):
        for place, amount in node.nominal.items():
            node.quota[place] += amount
        if node.parent:
            node.parent.quota.update({place: amount - node.kept(place) for place, amount in node.quota.items()})
    for item in queues:
        for flavor in (item.get("status") or {}).get("flavorsReservation") or ():
            for resource in flavor["resources"]:
                place = (flavor["name"], resource["name"])
                found[item["metadata"]["name"]].use(place, thousandths(resource.get("total") or 0))
    return found


def _node(item: Any) -> Node:
    node = Node()
    for group in item["spec"].get("resourceGroups") or ():
        for flavor in group["flavors"]:
            for resource in flavor["resources"]:
                place = (flavor["name"], resource["name"])
                for limits, name in (
                    (node.nominal, "nominalQuota"),
                    (node.borrowing, "borrowingLimit"),
                    (node.lending, "lendingLimit"),
                ):
                    if name in resource:
                        limits[place] = thousandths(resource[name])
    return node


def _from_below(nodes: list[Node]) -> list[Node]:
    def depth(node: Node) -> int:
        return depth(node.parent) + 1 if node.parent else 0

    return sorted(nodes, key=depth, reverse=True)
