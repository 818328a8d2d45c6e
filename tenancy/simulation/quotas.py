"""Whether waiting work could start without an eviction, by Kueue's own arithmetic of quotas.

Kueue checks waiting work again one second after other work ended. This module decides whether the run has to wait for
that second; which work starts then, and in which order, is decided by Kueue.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tenancy.kube.quota_tree import Tree
from tenancy.planning.queueing.queue_objects import ClusterQueue, Cohort


class Quotas:
    """The tree of an environment's Cohorts and ClusterQueues, and what of it is in use."""

    def __init__(self, queues: Sequence[ClusterQueue], cohorts: Iterable[Cohort]) -> None:
        self._nodes = Tree(queues, cohorts).queues
        self.strict = {queue.name for queue in queues if queue.strict}
        """ClusterQueues whose work starts strictly in order."""
        self._flavors = {queue.name: queue.flavors for queue in queues}

    def use(self, queue: str, flavor: str, resource: str, count: int) -> None:
        """Reserve devices of a flavor for a ClusterQueue; a negative number releases them."""
        self._nodes[queue].use((flavor, resource), count)

    def fits(self, queue: str, resource: str, count: int) -> bool:
        """Whether a queue has that many devices available now."""
        node = self._nodes[queue]
        return any(
            (flavor, resource) in node.nominal and node.available((flavor, resource)) >= count
            for flavor in self._flavors[queue]
        )
