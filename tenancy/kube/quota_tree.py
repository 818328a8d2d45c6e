"""Kueue's tree of quotas: what a ClusterQueue can use now, and its maximum, through the Cohorts above it.

Source: Kueue v0.19.2 `pkg/cache/scheduler/resource_node.go`, from which the methods have their names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tenancy.kube.quantities import thousandths

Object = Mapping[str, Any]
Place = tuple[str, str]
"""Kueue's flavor and a resource."""


@dataclass(slots=True, eq=False)
class Node:
    """A Cohort or a ClusterQueue. Default of a limit: none."""

    nominal: dict[Place, int] = field(default_factory=dict)
    borrowing: dict[Place, int] = field(default_factory=dict)
    lending: dict[Place, int] = field(default_factory=dict)
    parent: Node | None = None
    quota: Counter[Place] = field(default_factory=Counter)
    """Its own nominal quota, and the quota that its children lend."""
    used: Counter[Place] = field(default_factory=Counter)
    """Usage that counts against `quota`."""

    def local(self, place: Place) -> int:
        """Quota that it does not lend."""
        return max(0, self.quota[place] - self.lending[place]) if place in self.lending else 0

    def available(self, place: Place) -> int:
        """Quota that it can use now without an eviction; negative if usage exceeds the quota."""
        used = self.used[place]
        if self.parent is None:
            return self.quota[place] - used
        above, local = self.parent.available(place), self.local(place)
        if place in self.borrowing:
            above = min(above, self.quota[place] - local - max(0, used - local) + self.borrowing[place])
        return max(0, local - used) + above

    def potential(self, place: Place) -> int:
        """Quota that it could use if there were no other usage."""
        if self.parent is None:
            return self.quota[place]
        found = self.local(place) + self.parent.potential(place)
        return min(found, self.quota[place] + self.borrowing[place]) if place in self.borrowing else found

    def use(self, place: Place, amount: int) -> None:
        """Add usage here, and in the parent the usage above the local quota; a negative amount is subtracted."""
        local = self.local(place)
        before = max(0, self.used[place] - local)
        self.used[place] += amount
        passed = max(0, self.used[place] - local) - before
        if passed and self.parent:
            self.parent.use(place, passed)

    def above(self) -> Iterator[Node]:
        """Its Cohorts, up to the root."""
        node = self.parent
        while node is not None:
            yield node
            node = node.parent


class Tree:
    """Cohorts and ClusterQueues by name. A Cohort without an object of its own has no quota and no limit."""

    def __init__(
        self,
        objects: Iterable[Object],
        read: Callable[[Any], int] = thousandths,
        resources: Collection[str] | None = None,
    ) -> None:
        """`read` returns the number of a quantity; with `resources`, only these are read."""
        items = [item for item in objects if item["kind"] in {"ClusterQueue", "Cohort"}]
        self.cohorts: dict[str, Node] = {}
        self.queues: dict[str, Node] = {}
        for item in items:
            nodes = self.queues if item["kind"] == "ClusterQueue" else self.cohorts
            nodes[item["metadata"]["name"]] = _node(item["spec"], read, resources)
        for item in items:
            if parent := item["spec"].get("cohortName" if item["kind"] == "ClusterQueue" else "parentName"):
                nodes = self.queues if item["kind"] == "ClusterQueue" else self.cohorts
                _join(nodes[item["metadata"]["name"]], self.cohorts.setdefault(parent, Node()))
        depths = {node: sum(1 for _ in node.above()) for node in (*self.cohorts.values(), *self.queues.values())}
        for node in sorted(depths, key=depths.__getitem__, reverse=True):
            node.quota.update(node.nominal)
            if node.parent:
                node.parent.quota.update({place: amount - node.local(place) for place, amount in node.quota.items()})


def _join(node: Node, parent: Node) -> None:
    # Kueue admits no work in a cycle of Cohorts; here the edge that would close the cycle is left out.
    if parent is not node and node not in parent.above():
        node.parent = parent


def _node(spec: Mapping[str, Any], read: Callable[[Any], int], resources: Collection[str] | None) -> Node:
    node = Node()
    fields = ((node.nominal, "nominalQuota"), (node.borrowing, "borrowingLimit"), (node.lending, "lendingLimit"))
    for group in spec.get("resourceGroups") or ():
        for flavor in group["flavors"]:
            for resource in flavor["resources"]:
                if resources is None or resource["name"] in resources:
                    for amounts, name in fields:
                        if resource.get(name) is not None:
                            amounts[flavor["name"], resource["name"]] = read(resource[name])
    return node


def most_borrowed(borrowers: Sequence[Node], lenders: Sequence[Node], place: Place) -> int:
    """Maximum that some ClusterQueues may borrow from others, by the limits on every edge up and down the tree.

    The ClusterQueues of each side have one Cohort above them.
    """
    lent = sum(min(node.nominal.get(place, 0), node.lending.get(place, node.nominal.get(place, 0))) for node in lenders)
    # A queue whose quota does not name the resource cannot use it.
    limits = [node.borrowing.get(place) for node in borrowers if place in node.nominal]
    mine = [limit for limit in limits if limit != 0]
    ours, theirs = ([*node.above()] for node in (*borrowers[:1], *lenders[:1]))
    shared = next((cohort for cohort in ours if cohort in theirs), None)
    if not (lent and mine and shared):
        return 0
    known = [limit for limit in mine if limit is not None]
    found = [lent, *([max(known)] if len(known) == len(mine) else [])]
    found += [cohort.borrowing[place] for cohort in ours[: ours.index(shared)] if place in cohort.borrowing]
    found += [cohort.lending[place] for cohort in theirs[: theirs.index(shared)] if place in cohort.lending]
    return min(found)
