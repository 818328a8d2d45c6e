"""Whether waiting work could start without an eviction, by Kueue's own arithmetic of quotas.

Kueue checks waiting work again one second after other work ended. This module decides whether the run has to wait for
that second; which work starts then, and in which order, is decided by Kueue.
"""

from __future__ import annotations

from collections.abc import Iterable

from tenancy.kube.objects import Object
from tenancy.kube.quantities import units
from tenancy.kube.quota_tree import Tree


class Quotas:
    """The tree of an environment's Cohorts and ClusterQueues, with one resource of each flavor: devices."""

    def __init__(self, objects: Iterable[Object], devices: Iterable[str]) -> None:
        made = [item for item in objects if item["kind"] in {"Cohort", "ClusterQueue"}]
        self._queues = Tree(made, units, frozenset(devices)).queues
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

    def use(self, queue: str, flavor: str, resource: str, count: int) -> None:
        """Reserve devices of a flavor for a ClusterQueue; a negative number releases them."""
        self._queues[queue].use((flavor, resource), count)

    def fits(self, queue: str, resource: str, count: int) -> bool:
        """Whether a queue has that many devices available now."""
        node = self._queues[queue]
        return any(
            (flavor, resource) in node.nominal and node.available((flavor, resource)) >= count
            for flavor in self._orders[queue]
        )
