"""Whether anybody who waits could start without an eviction: Kueue's own arithmetic of quotas.

Kueue looks at who waits again one second after something ended. This says whether that second is worth waiting for;
what starts then, and in which order, is Kueue's to say.

Source: Kueue v0.19.2 `pkg/cache/scheduler/resource_node.go`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tenancy.plan.model import Object

Key = tuple[str, str]
"""(Kueue's flavor, resource)."""


@dataclass(slots=True)
class _Node:
    parent: _Node | None = None
    nominal: dict[Key, int] = field(default_factory=dict)
    borrowing: dict[Key, int] = field(default_factory=dict)
    lending: dict[Key, int] = field(default_factory=dict)
    subtree: dict[Key, int] = field(default_factory=dict)
    usage: dict[Key, int] = field(default_factory=dict)

    def local(self, key: Key) -> int:
        """What of its quota the rest of the tree never sees."""
        return max(0, self.subtree.get(key, 0) - self.lending[key]) if key in self.lending else 0

    def available(self, key: Key) -> int:
        used, local = self.usage.get(key, 0), self.local(key)
        if self.parent is None:
            return self.subtree.get(key, 0) - used
        above = self.parent.available(key)
        if key in self.borrowing:
            above = min(above, self.subtree.get(key, 0) - local - max(0, used - local) + self.borrowing[key])
        return max(0, local - used) + above

    def use(self, key: Key, count: int) -> None:
        before = self.usage.get(key, 0)
        self.usage[key] = before + count
        if self.parent is not None and (passed := self._above(key, before + count) - self._above(key, before)):
            self.parent.use(key, passed)

    def _above(self, key: Key, used: int) -> int:
        return max(0, used - self.local(key))


class Quotas:
    """The tree of an environment's Cohorts and ClusterQueues, counting one resource of each flavor: devices."""

    def __init__(self, objects: Iterable[Object], devices: Iterable[str]) -> None:
        self._devices = frozenset(devices)
        self._nodes: dict[tuple[str, str], _Node] = {}
        made = [item for item in objects if item["kind"] in {"Cohort", "ClusterQueue"}]
        for item in made:
            self._nodes[item["kind"], item["metadata"]["name"]] = self._node(item["spec"])
        for item in made:
            above = item["spec"].get("parentName") or item["spec"].get("cohortName")
            if above:
                self._nodes[item["kind"], item["metadata"]["name"]].parent = self._nodes["Cohort", above]
        self.strict = {
            item["metadata"]["name"]
            for item in made
            if item["kind"] == "ClusterQueue" and item["spec"].get("queueingStrategy") == "StrictFIFO"
        }
        self._orders = {
            item["metadata"]["name"]: [
                flavor["name"] for group in item["spec"]["resourceGroups"] for flavor in group["flavors"]
            ]
            for item in made
            if item["kind"] == "ClusterQueue"
        }
        for node in self._nodes.values():
            node.subtree = dict(node.nominal)
        self._gather()

    def _node(self, spec: dict[str, Any]) -> _Node:
        node = _Node()
        for group in spec.get("resourceGroups", ()):
            for flavor in group["flavors"]:
                for resource in flavor["resources"]:
                    if resource["name"] in self._devices:
                        key = flavor["name"], resource["name"]
                        node.nominal[key] = int(resource["nominalQuota"])
                        if "borrowingLimit" in resource:
                            node.borrowing[key] = int(resource["borrowingLimit"])
                        if "lendingLimit" in resource:
                            node.lending[key] = int(resource["lendingLimit"])
        return node

    def _gather(self) -> None:
        """Subtree quotas from the leaves up: what a child lends counts in its parent."""
        depth = {key: _depth(node) for key, node in self._nodes.items()}
        for key in sorted(self._nodes, key=lambda key: -depth[key]):
            node = self._nodes[key]
            if node.parent is not None:
                for each, count in node.subtree.items():
                    node.parent.subtree[each] = node.parent.subtree.get(each, 0) + count - node.local(each)

    def use(self, queue: str, flavor: str, resource: str, count: int) -> None:
        """Take devices of a flavor for a ClusterQueue; give them back when negative."""
        self._nodes["ClusterQueue", queue].use((flavor, resource), count)

    def fits(self, queue: str, resource: str, count: int) -> bool:
        node = self._nodes["ClusterQueue", queue]
        return any(
            (flavor, resource) in node.nominal and node.available((flavor, resource)) >= count
            for flavor in self._orders[queue]
        )


def _depth(node: _Node) -> int:
    return 0 if node.parent is None else 1 + _depth(node.parent)
